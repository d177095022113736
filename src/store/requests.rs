//! Which hub a feed is subscribed to, and the requests that go there: the worker's half of `subscriptions`.
//!
//! Transactions are the caller's.

use super::subscriptions::{by_id, remember_no_lease, schedule, store};
use crate::error::{Error, Result};
use crate::push::answer::Outcome;
use crate::push::callback::Known;
use crate::push::request::{Ask, Mode, callback_url, https_first, is_https};
use crate::rules::lease::{self, Effect, Event, Health, Job, State};
use rusqlite::{Connection, OptionalExtension};

/// A hub is asked at most once in this time, seconds.
const HUB_EVERY: i64 = 1;
/// A request in flight holds its hub so long, should its answer never be recorded, seconds.
const IN_FLIGHT: i64 = 60;
/// A queue before a hub that seems longer than this, seconds, was written by a clock that went wrong.
const QUEUE_MAX: i64 = 7 * 86_400;
/// Polls in a row that do not name the hub, after which it is left.
const ABSENCES_MAX: i64 = 2;

fn text(connection: &Connection, key: &str) -> Result<String> {
    Ok(connection.prepare_cached("SELECT value FROM settings WHERE key = ?1")?.query_row([key], |row| row.get(0))?)
}

fn number<T: std::str::FromStr>(connection: &Connection, key: &str) -> Result<T> {
    let value = text(connection, key)?;
    value.parse().map_err(|_| Error::Database(format!("setting {key}: {value} is not a number")))
}

/// What a document that was read says of push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named<'a> {
    /// Absolute, best first.
    pub hubs: &'a [String],
    /// rel=self, absolute.
    pub topic: Option<&'a str>,
    /// Where the document was read, after redirects.
    pub fetched_url: &'a str,
}

/// Notes the hubs that a 200 document (a poll or a delivery: `polled` tells) names, then looks after the subscription as
/// [`look_after`] does. A delivery that names none says nothing: many hubs send no links.
pub fn discovered(connection: &Connection, feed_id: i64, named: &Named<'_>, polled: bool, now: i64) -> Result<()> {
    let ours = !named.hubs.is_empty() || overridden(connection, feed_id)?.is_some();
    if ours {
        connection
            .prepare_cached("UPDATE subscriptions SET absences = 0 WHERE feed_id = ?1 AND absences > 0")?
            .execute([feed_id])?;
    } else if polled {
        connection.prepare_cached("DELETE FROM feed_hubs WHERE feed_id = ?1")?.execute([feed_id])?;
        connection
            .prepare_cached(
                "UPDATE subscriptions SET absences = absences + 1
                 WHERE feed_id = ?1 AND state IN ('pending', 'active')",
            )?
            .execute([feed_id])?;
        connection
            .prepare_cached(
                "UPDATE subscriptions SET state = 'unsubscribing'
                 WHERE feed_id = ?1 AND state IN ('pending', 'active') AND absences >= ?2",
            )?
            .execute((feed_id, ABSENCES_MAX))?;
    }
    if !named.hubs.is_empty() {
        connection
            .prepare_cached("DELETE FROM feed_hubs WHERE feed_id = ?1 AND position > ?2")?
            .execute((feed_id, i64::try_from(named.hubs.len()).unwrap_or(i64::MAX)))?;
    }
    let topic = named.topic.unwrap_or(named.fetched_url);
    for (position, hub) in (1_i64..).zip(named.hubs) {
        connection
            .prepare_cached(
                "INSERT INTO feed_hubs(feed_id, position, hub_url, topic_url, fetched_url) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (feed_id, position) DO UPDATE
                   SET hub_url = excluded.hub_url, topic_url = excluded.topic_url, fetched_url = excluded.fetched_url
                 WHERE hub_url <> excluded.hub_url OR topic_url <> excluded.topic_url
                   OR fetched_url <> excluded.fetched_url",
            )?
            .execute((feed_id, position, hub, topic, named.fetched_url))?;
    }
    if ours && named.hubs.is_empty() && polled {
        // The hub is the user's; the topic is still the feed's.
        connection.prepare_cached("DELETE FROM feed_hubs WHERE feed_id = ?1 AND position > 1")?.execute([feed_id])?;
        connection
            .prepare_cached(
                "INSERT INTO feed_hubs(feed_id, position, hub_url, topic_url, fetched_url) VALUES (?1, 1, '', ?2, ?3)
                 ON CONFLICT (feed_id, position) DO UPDATE
                   SET hub_url = '', topic_url = excluded.topic_url, fetched_url = excluded.fetched_url",
            )?
            .execute((feed_id, topic, named.fetched_url))?;
    }
    look_after(connection, feed_id, now)
}

/// Sees that the feed has the subscription it should have: the user's hub, else the first it names that is not refusing it.
/// Called after every good fetch (304 too), and when a hub refused. A change is made before the break: the new row names
/// the old in `replaces`, and the old is ended when the new one is verified.
pub fn look_after(connection: &Connection, feed_id: i64, now: i64) -> Result<()> {
    if text(connection, "callback_url")?.is_empty() || !is_active(connection, feed_id)? {
        return Ok(());
    }
    let Some((hub, topic, fetched)) = candidate(connection, feed_id)? else { return Ok(()) };
    let mut statement = connection.prepare_cached(
        "SELECT id, state, hub_url, coalesce(named_topic, topic_url) FROM subscriptions
         WHERE feed_id = ?1 AND state IN ('pending', 'active') ORDER BY id DESC",
    )?;
    let rows = statement.query_map([feed_id], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?, row.get::<_, String>(3)?))
    })?;
    let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    let wanted = |row: &(i64, String, String, String)| row.2 == hub && row.3 == topic;
    let active = rows.iter().find(|row| row.1 == "active");
    // Whatever is asked for and not wanted goes; so does a replacement when the live row is the right one again.
    let keep_active = active.is_some_and(wanted);
    for row in rows.iter().filter(|row| row.1 == "pending" && (keep_active || !wanted(row))) {
        connection
            .prepare_cached("UPDATE subscriptions SET state = 'unsubscribing' WHERE id = ?1")?
            .execute([row.0])?;
    }
    if rows.iter().any(wanted) {
        return Ok(());
    }
    let id: i64 = connection
        .prepare_cached(
            "INSERT INTO subscriptions(feed_id, hub_url, topic_url, named_topic, fetched_url, replaces)
             VALUES (?1, ?2, ?3, ?3, ?4, ?5) RETURNING id",
        )?
        .query_row((feed_id, &hub, &topic, &fetched, active.map(|row| row.0)), |row| row.get(0))?;
    if let Some(known) = by_id(connection, id)? {
        schedule(connection, &known, Job::Subscribe, now)?;
    }
    Ok(())
}

/// (hub, topic, fetched URL) of the subscription a feed should have.
fn candidate(connection: &Connection, feed_id: i64) -> Result<Option<(String, String, String)>> {
    let named = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    if let Some(hub) = overridden(connection, feed_id)? {
        let (_, topic, fetched): (String, String, String) = connection
            .prepare_cached(
                "SELECT '', coalesce(h.topic_url, f.url), coalesce(h.fetched_url, f.url) FROM feeds f
                 LEFT JOIN feed_hubs h ON h.feed_id = f.id AND h.position = 1 WHERE f.id = ?1",
            )?
            .query_row([feed_id], named)?;
        let hub = settled(connection, hub)?;
        return Ok((!turned_down(connection, feed_id, &hub, &topic)?).then_some((hub, topic, fetched)));
    }
    let mut statement = connection.prepare_cached(
        "SELECT hub_url, topic_url, fetched_url FROM feed_hubs WHERE feed_id = ?1 AND hub_url <> '' ORDER BY position",
    )?;
    let hubs = statement.query_map([feed_id], named)?.collect::<rusqlite::Result<Vec<(String, String, String)>>>()?;
    for (hub, topic, fetched) in hubs {
        let hub = settled(connection, hub)?;
        if !turned_down(connection, feed_id, &hub, &topic)? {
            return Ok(Some((hub, topic, fetched)));
        }
    }
    Ok(None)
}

fn overridden(connection: &Connection, feed_id: i64) -> Result<Option<String>> {
    Ok(connection
        .prepare_cached("SELECT hub_url FROM feeds WHERE id = ?1 AND hub_url <> ''")?
        .query_row([feed_id], |row| row.get(0))
        .optional()?)
}

fn is_active(connection: &Connection, feed_id: i64) -> Result<bool> {
    Ok(connection.prepare_cached("SELECT 1 FROM feeds WHERE id = ?1 AND state = 'active'")?.exists([feed_id])?)
}

/// The address of a hub that a feed names, as we know it: https where that was not tried in vain, and where 308s led. An
/// address that a hub itself gave is taken as it is.
fn settled(connection: &Connection, hub: String) -> Result<String> {
    let (moved, no_https) = standing(connection, &hub)?;
    match (moved, https_first(&hub)) {
        (Some(moved), _) => moved_on(connection, moved),
        (None, Some(https)) if !no_https => moved_on(connection, https),
        _ => Ok(hub),
    }
}

/// Where 308s led from a hub's address; two steps at most.
fn moved_on(connection: &Connection, mut hub: String) -> Result<String> {
    for _ in 0..2 {
        match standing(connection, &hub)?.0 {
            Some(moved) => hub = moved,
            None => break,
        }
    }
    Ok(hub)
}

/// `moved_to` and `no_https` of a hub.
fn standing(connection: &Connection, hub: &str) -> Result<(Option<String>, bool)> {
    let row = connection
        .prepare_cached("SELECT moved_to, no_https FROM hubs WHERE hub_url = ?1")?
        .query_row([hub], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(row.unwrap_or_default())
}

/// This hub refused or denied this feed under this topic; the row asks again by itself when its time has come.
fn turned_down(connection: &Connection, feed_id: i64, hub: &str, topic: &str) -> Result<bool> {
    Ok(connection
        .prepare_cached(
            "SELECT 1 FROM subscriptions WHERE feed_id = ?1 AND hub_url = ?2 AND coalesce(named_topic, topic_url) = ?3
               AND state IN ('denied', 'refused')",
        )?
        .exists((feed_id, hub, topic))?)
}

/// What a claimed subscribe, renew or unsubscribe job comes to.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // one at a time, and moved at once
pub enum Begun {
    /// Commit, then POST [`Ask::body`] to `ask.hub_url`, then [`finish`] with `ticket`.
    /// `trusted`: the hub may be at a private address, whatever the feed's own is: the user typed it, or it was asked there
    /// before and is to be told that this is over.
    Post { ask: Ask, ticket: Box<Ticket>, trusted: bool },
    /// There is nothing to send: rows and job are as they should be. Give the claim back.
    Nothing,
}

/// The row as it was when the request left.
#[derive(Clone)]
pub struct Ticket(Known, String);

/// A ticket holds a secret.
impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ticket({})", self.0.life.id)
    }
}

/// Begins what a claimed job asks for, inside the claim's transaction. The job's `run_at` is moved to when it is to be looked
/// at again (or the job is gone); the worker only gives its claim back, whatever the outcome. A hub that was asked within
/// the last second, or has a request in flight, has the job wait.
pub fn begin(connection: &Connection, subscription_id: i64, kind: &str, now: i64) -> Result<Begun> {
    let gone = || connection.prepare_cached("DELETE FROM jobs WHERE subscription_id = ?1 AND kind = ?2");
    let Some(known) = by_id(connection, subscription_id)? else {
        gone()?.execute((subscription_id, kind))?;
        return Ok(Begun::Nothing);
    };
    // A job that was left behind by a change of state.
    let expected = match known.life.state {
        State::Active => "renew",
        State::Unsubscribing => "unsubscribe",
        State::Pending | State::Denied | State::Refused => "subscribe",
        State::Ended => "",
    };
    let base = text(connection, "callback_url")?;
    if kind != expected || base.is_empty() && known.life.state == State::Pending {
        gone()?.execute((subscription_id, kind))?;
        if kind == expected {
            // Push was switched off: with a callback again, the next good fetch asks anew.
            connection
                .prepare_cached("UPDATE subscriptions SET state = 'ended', ended_at = ?2 WHERE id = ?1")?
                .execute((subscription_id, now))?;
        }
        return Ok(Begun::Nothing);
    }
    let job = match expected {
        "renew" => Job::Renew,
        "unsubscribe" => Job::Unsubscribe,
        _ => Job::Subscribe,
    };
    let row_hub: String = connection
        .prepare_cached("SELECT hub_url FROM subscriptions WHERE id = ?1")?
        .query_row([subscription_id], |row| row.get(0))?;
    let (free_at, hub) = hub(connection, &row_hub)?;
    if base.is_empty() || free_at > now {
        // Without a callback URL a live row just runs out; looked at daily.
        let at = if base.is_empty() { now + 86_400 } else { place(connection, &row_hub, free_at, now)? };
        schedule(connection, &known, job, at)?;
        return Ok(Begun::Nothing);
    }
    let Some(step) = lease::step(&known.life, Event::Due, now) else { return Ok(Begun::Nothing) };
    // Given up without a word of the hub, so this is ours; what it said before is worth more.
    let silent = step.life.state == State::Refused && known.life.state == State::Pending;
    let why = format!("{} requests and no verification: can the hub reach callback_url?", known.life.requests);
    let said = connection
        .prepare_cached("SELECT 1 FROM subscriptions WHERE id = ?1 AND last_error IS NOT NULL")?
        .exists([subscription_id])?;
    let why = Some(why.as_str()).filter(|_| silent && !said);
    let left = store(connection, &known, &step, why, now)?.unwrap_or_default();
    next_hub(connection, &known, &left, now)?;
    let post = left.iter().find_map(|effect| match effect {
        Effect::Subscribe { with_lease, sync } => Some((Mode::Subscribe, *with_lease, *sync)),
        Effect::Unsubscribe => Some((Mode::Unsubscribe, false, false)),
        _ => None,
    });
    let Some((mode, with_lease, sync)) = post else { return Ok(Begun::Nothing) };
    let secret_over_http = number::<u8>(connection, "secret_over_http")? == 1;
    if known.life.lease_expires_at.is_none() && mode == Mode::Subscribe {
        // Not live yet: it gets a secret or none, as its hub allows. A live row keeps what the hub knows.
        let sql = if is_https(&hub) || secret_over_http {
            "UPDATE subscriptions SET secret = coalesce(secret, lower(hex(randomblob(32)))) WHERE id = ?1"
        } else {
            "UPDATE subscriptions SET secret = NULL WHERE id = ?1"
        };
        connection.prepare_cached(sql)?.execute([subscription_id])?;
    }
    connection
        .prepare_cached(
            "INSERT INTO hubs(hub_url, next_request_at) VALUES (?1, ?2)
             ON CONFLICT (hub_url) DO UPDATE SET next_request_at = excluded.next_request_at",
        )?
        .execute((&row_hub, now + IN_FLIGHT))?;
    // As it stands now: topic and secret may just have changed.
    let Some(asked) = by_id(connection, subscription_id)? else { return Ok(Begun::Nothing) };
    let (token, private_hub): (String, bool) = connection
        .prepare_cached("SELECT callback_token, private_hub FROM subscriptions WHERE id = ?1")?
        .query_row([subscription_id], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let typed = match known.feed_id.map(|feed_id| overridden(connection, feed_id)).transpose()?.flatten() {
        Some(typed) => typed == hub || settled(connection, typed)? == hub,
        None => false,
    };
    let trusted = typed || mode == Mode::Unsubscribe && private_hub;
    let ask = Ask {
        mode,
        hub_url: hub,
        topic: asked.topic_url.clone(),
        callback: callback_url(&base, &token),
        lease_seconds: if with_lease { Some(number(connection, "lease_s")?) } else { None },
        secret: asked.secret.clone(),
        verify_token: asked.verify_token.clone(),
        sync,
        secret_over_http,
    };
    Ok(Begun::Post { ask, ticket: Box::new(Ticket(asked, row_hub)), trusted })
}

/// When the hub may be asked next, and at which address.
fn hub(connection: &Connection, row_hub: &str) -> Result<(i64, String)> {
    let free_at: Option<i64> = connection
        .prepare_cached("SELECT next_request_at FROM hubs WHERE hub_url = ?1")?
        .query_row([row_hub], |row| row.get(0))
        .optional()?;
    Ok((free_at.unwrap_or(0), moved_on(connection, row_hub.to_string())?))
}

/// A place in the queue before a hub that cannot be asked before `free_at`: each has a second of its own. Behind a request
/// that is in flight the queue stands close: how long it takes nobody knows, and who finds it still there takes a new place.
fn place(connection: &Connection, row_hub: &str, free_at: i64, now: i64) -> Result<i64> {
    let first = if free_at > now + IN_FLIGHT { free_at } else { now + HUB_EVERY };
    Ok(connection
        .prepare_cached(
            "UPDATE hubs SET queue_until = CASE WHEN queue_until BETWEEN ?2 AND ?2 + ?3 THEN queue_until + 1 ELSE ?2 END
             WHERE hub_url = ?1 RETURNING queue_until",
        )?
        .query_row((row_hub, first, QUEUE_MAX), |row| row.get(0))
        .optional()?
        .unwrap_or(first))
}

/// Records the end of a request. An answer that comes after the row has moved on (the hub verified before it answered, the
/// feed was deleted) changes only what is known of the hub. `private`: it was at a private address.
pub fn finish(connection: &Connection, ticket: &Ticket, outcome: &Outcome, private: bool, now: i64) -> Result<()> {
    let Ticket(known, row_hub) = ticket;
    if private {
        connection
            .prepare_cached("UPDATE subscriptions SET private_hub = 1 WHERE id = ?1 AND private_hub = 0")?
            .execute([known.life.id])?;
    }
    let failed = matches!(outcome.event, Event::Failed { .. } | Event::HubGone);
    let free_at = now + outcome.hold_hub.map_or(HUB_EVERY, |hold| hold.clamp(HUB_EVERY, lease::RETRY_AFTER_MAX));
    connection
        .prepare_cached(
            "UPDATE hubs SET next_request_at = ?2, failures = CASE WHEN ?3 THEN failures + 1 ELSE 0 END,
               last_error = ?4 WHERE hub_url = ?1",
        )?
        .execute((row_hub, free_at, failed, &outcome.message))?;
    if let Some(moved) = outcome.moved_to.as_deref().filter(|moved| moved != row_hub) {
        connection.prepare_cached("UPDATE hubs SET moved_to = ?2 WHERE hub_url = ?1")?.execute((row_hub, moved))?;
        // The way back must not lead in a circle.
        connection
            .prepare_cached("UPDATE hubs SET moved_to = NULL WHERE hub_url = ?2 AND moved_to = ?1")?
            .execute((row_hub, moved))?;
        connection
            .prepare_cached("UPDATE subscriptions SET hub_url = ?2 WHERE hub_url = ?1 AND state <> 'ended'")?
            .execute((row_hub, moved))?;
    }
    let Some(step) = lease::step(&known.life, outcome.event, now) else { return Ok(()) };
    match store(connection, known, &step, outcome.message.as_deref(), now)? {
        Some(left) => next_hub(connection, known, &left, now),
        // It verified before it answered; that it takes requests without a lease is worth knowing all the same.
        None if step.effects.contains(&Effect::RememberNoLease) => remember_no_lease(connection, known.life.id),
        None => Ok(()),
    }
}

/// The https address of a hub that is advertised by http could not be connected to (no connection, no TLS; any HTTP answer
/// is an answer). A row that was never live is asked by http a second later, without a secret unless the settings allow it.
/// Answers whether that is so; else call [`finish`] with the failure.
pub fn no_https(connection: &Connection, ticket: &Ticket, ask: &Ask, now: i64) -> Result<bool> {
    let Ticket(known, row_hub) = ticket;
    if known.life.lease_expires_at.is_some() || !is_https(&ask.hub_url) {
        return Ok(false);
    }
    // The feed's own spelling, which `settled` turned into https.
    let http = format!("http{}", &ask.hub_url[5..]);
    let advertised = connection
        .prepare_cached(
            "SELECT 1 FROM feed_hubs WHERE feed_id = ?1 AND rtrim(hub_url, '/') = rtrim(?2, '/')
             UNION ALL SELECT 1 FROM feeds WHERE id = ?1 AND rtrim(hub_url, '/') = rtrim(?2, '/')",
        )?
        .exists((known.feed_id, &http))?;
    if !advertised {
        return Ok(false);
    }
    connection
        .prepare_cached(
            "INSERT INTO hubs(hub_url, no_https, next_request_at) VALUES (?1, 1, ?2)
             ON CONFLICT (hub_url) DO UPDATE SET no_https = 1, next_request_at = excluded.next_request_at",
        )?
        .execute((&http, now + HUB_EVERY))?;
    connection
        .prepare_cached("UPDATE hubs SET next_request_at = ?2 WHERE hub_url = ?1")?
        .execute((row_hub, now + HUB_EVERY))?;
    connection
        .prepare_cached("UPDATE subscriptions SET hub_url = ?2, requests = 0 WHERE id = ?1 AND state = 'pending'")?
        .execute((known.life.id, &http))?;
    schedule(connection, known, Job::Subscribe, now + HUB_EVERY)?;
    Ok(true)
}

fn next_hub(connection: &Connection, known: &Known, left: &[Effect], now: i64) -> Result<()> {
    match known.feed_id {
        Some(feed_id) if left.contains(&Effect::NextHub) => look_after(connection, feed_id, now),
        _ => Ok(()),
    }
}

/// How push does for a feed: the best of its subscriptions, for `lease::pushed_poll`. `None`: it has none that is active.
pub fn health(connection: &Connection, feed_id: i64) -> Result<Option<Health>> {
    Ok(connection
        .prepare_cached(
            "SELECT lease_expires_at, good_pushes, misses FROM subscriptions WHERE feed_id = ?1 AND state = 'active'
             ORDER BY good_pushes > 0 AND misses < ?2 DESC, lease_expires_at DESC LIMIT 1",
        )?
        .query_row((feed_id, lease::MISSES_MAX), |row| {
            Ok(Health {
                state: State::Active,
                lease_expires_at: row.get(0)?,
                good_pushes: row.get(1)?,
                misses: row.get(2)?,
            })
        })
        .optional()?)
}

/// A poll found new entries: a miss, for a subscription that was live already when the feed was last polled with success
/// (`last_success_at` before this poll, `None` = never). No delivery may be waiting: it may hold these very entries.
/// Nor may the hub have hinted since that poll: then it kept its word, and this poll is what came of it.
pub fn missed(connection: &Connection, feed_id: i64, last_success_at: Option<i64>, now: i64) -> Result<()> {
    connection
        .prepare_cached(
            "UPDATE subscriptions SET misses = misses + 1 WHERE feed_id = ?1 AND state = 'active'
               AND active_since <= ?2 AND lease_expires_at > ?3 AND coalesce(hinted_at, 0) < ?2
               AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.subscription_id = subscriptions.id)",
        )?
        .execute((feed_id, last_success_at, now))?;
    Ok(())
}

/// Drops tombstones after their time, and makes the jobs again that something outside took away. Answers how many rows went.
pub fn tidy(connection: &Connection, now: i64) -> Result<usize> {
    let old = "SELECT id FROM subscriptions WHERE state = 'ended' AND coalesce(ended_at, 0) < ?1";
    let before = now - lease::TOMBSTONE;
    connection.execute(&format!("DELETE FROM deliveries WHERE subscription_id IN ({old})"), [before])?;
    connection.execute(&format!("DELETE FROM jobs WHERE subscription_id IN ({old})"), [before])?;
    let gone = connection.execute(&format!("DELETE FROM subscriptions WHERE id IN ({old})"), [before])?;
    connection.execute(
        "INSERT INTO jobs(kind, feed_id, subscription_id, run_at)
         SELECT w.kind, w.feed_id, w.id, ?1 FROM (
           SELECT id, feed_id, CASE state WHEN 'active' THEN 'renew' WHEN 'unsubscribing' THEN 'unsubscribe'
                                          ELSE 'subscribe' END AS kind FROM subscriptions WHERE state <> 'ended'
           UNION ALL SELECT s.id, s.feed_id, 'ingest' FROM subscriptions s
             WHERE EXISTS (SELECT 1 FROM deliveries d WHERE d.subscription_id = s.id)) w
         WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.subscription_id = w.id AND j.kind = w.kind)",
        [now],
    )?;
    Ok(gone)
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
