//! What hubs deliver: taken by the callback program, read by the worker's `ingest` job, and the hints to poll.
//!
//! The promise: a delivery that was answered with 2xx stands in `deliveries` with an `ingest` job, on disk, until the
//! worker has applied it. Transactions are the caller's.

use super::subscriptions::CallbackSettings;
use crate::error::Result;
use crate::push::callback::Known;
use rusqlite::{Connection, OptionalExtension};

/// Unverifiable deliveries cause at most one poll of their feed in this time, seconds.
pub const HINT_EVERY: i64 = 900;
/// After so many refused pushes the hub is asked anew: PuSHPress drops a subscriber on the first non-2xx, and a hub may have
/// lost the secret.
const REFUSED_PUSHES: i64 = 3;
/// ... but not more often than this, seconds.
const ASK_ANEW_EVERY: i64 = 6 * 3600;

/// What became of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It waits for the worker (or the same bytes did already).
    Stored,
    /// `max_pending_deliveries` are waiting: nothing was written, the hub shall come later.
    Full,
}

/// Stores a delivery and makes the `ingest` job due. `current`: signed with the current secret, so the previous one goes.
/// The same bytes among the newest few waiting are kept once: hubs repeat themselves within a second.
pub fn deliver(
    connection: &Connection,
    known: &Known,
    delivery: &Delivery,
    current: bool,
    settings: &CallbackSettings,
    now: i64,
) -> Result<Taken> {
    let id = known.life.id;
    let waiting = connection
        .prepare_cached(
            "SELECT 1 FROM (SELECT body FROM deliveries WHERE subscription_id = ?1 ORDER BY id DESC LIMIT 4)
             WHERE length(body) = ?2 AND body = ?3",
        )?
        .exists((id, i64::try_from(delivery.body.len()).unwrap_or(i64::MAX), &delivery.body))?;
    if !waiting {
        if is_full(connection, settings.max_pending_deliveries)? {
            return Ok(Taken::Full);
        }
        connection
            .prepare_cached(
                "INSERT INTO deliveries(subscription_id, received_at, content_type, link, body)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute((id, now, &delivery.content_type, &delivery.link, &delivery.body))?;
    }
    connection
        .prepare_cached(
            "INSERT INTO jobs(kind, feed_id, subscription_id, run_at) VALUES ('ingest', ?1, ?2, 0)
             ON CONFLICT (subscription_id, kind) WHERE subscription_id IS NOT NULL DO UPDATE SET run_at = 0",
        )?
        .execute((known.feed_id, id))?;
    connection
        .prepare_cached(
            "UPDATE subscriptions SET last_delivery_at = ?2,
               previous_secret = CASE WHEN ?3 AND NOT renewing THEN NULL ELSE previous_secret END WHERE id = ?1",
        )?
        .execute((id, now, current))?;
    Ok(Taken::Stored)
}

/// Whether `max` deliveries wait. They go oldest first, so the ids mostly tell without counting.
fn is_full(connection: &Connection, max: i64) -> Result<bool> {
    let most: i64 = connection
        .prepare_cached("SELECT coalesce((SELECT max(id) FROM deliveries) - (SELECT min(id) FROM deliveries) + 1, 0)")?
        .query_row([], |row| row.get(0))?;
    if most < max {
        return Ok(false);
    }
    let waiting: i64 = connection
        .prepare_cached("SELECT count(*) FROM (SELECT 1 FROM deliveries LIMIT ?1)")?
        .query_row([max], |row| row.get(0))?;
    Ok(waiting >= max)
}

/// Books a push that brought nothing usable: `refused` says why it was turned away, `None` that it was a mere hint. Its feed
/// is polled now, or [`HINT_EVERY`] after the last such poll.
pub fn hint(connection: &Connection, known: &Known, refused: Option<&str>, now: i64) -> Result<()> {
    let id = known.life.id;
    match refused {
        Some(why) => {
            let pushes: i64 = connection
                .prepare_cached(
                    "UPDATE subscriptions SET bad_pushes = bad_pushes + 1, last_error = ?2 WHERE id = ?1
                     RETURNING bad_pushes",
                )?
                .query_row((id, why), |row| row.get(0))?;
            if pushes % REFUSED_PUSHES == 0 {
                connection
                    .prepare_cached(
                        "UPDATE jobs SET run_at = 0 WHERE subscription_id = ?1 AND kind = 'renew' AND claimed_by IS NULL
                         AND (SELECT coalesce(requested_at, 0) <= ?2 FROM subscriptions WHERE id = ?1)",
                    )?
                    .execute((id, now - ASK_ANEW_EVERY))?;
            }
        }
        None => {
            connection
                .prepare_cached("UPDATE subscriptions SET last_delivery_at = ?2 WHERE id = ?1")?
                .execute((id, now))?;
        }
    }
    let Some(feed_id) = known.feed_id else { return Ok(()) };
    let last: Option<i64> = connection
        .prepare_cached("SELECT max(hinted_at) FROM subscriptions WHERE feed_id = ?1")?
        .query_row([feed_id], |row| row.get(0))?;
    let Some((run_at, hinted_at)) = next_poll(last, now) else { return Ok(()) };
    connection.prepare_cached("UPDATE subscriptions SET hinted_at = ?2 WHERE id = ?1")?.execute((id, hinted_at))?;
    poll_at(connection, feed_id, run_at)
}

/// When a hint at `now` has its feed polled (the job's `run_at`, 0 = at once) and what then stands in `hinted_at`; `None`: a
/// poll is waiting already. A hint inside the quarter of an hour is put off, not dropped: without a secret it is all the
/// hub can say.
fn next_poll(last: Option<i64>, now: i64) -> Option<(i64, i64)> {
    match last {
        // Further ahead than we ever write: the clock was set back.
        Some(last) if last > now + HINT_EVERY => Some((0, now)),
        Some(last) if last > now => None,
        Some(last) if last + HINT_EVERY > now => Some((last + HINT_EVERY, last + HINT_EVERY)),
        _ => Some((0, now)),
    }
}

/// Has a feed fetched at `run_at` (0 = at once) unless it is due earlier.
pub fn poll_at(connection: &Connection, feed_id: i64, run_at: i64) -> Result<()> {
    connection
        .prepare_cached("UPDATE jobs SET run_at = ?2 WHERE feed_id = ?1 AND kind = 'fetch' AND run_at > ?2")?
        .execute((feed_id, run_at))?;
    Ok(())
}

/// A delivery as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// 0 before it is stored.
    pub id: i64,
    /// May be wrong: hubs send feeds as `text/html`.
    pub content_type: Option<String>,
    /// The `Link` header fields, joined by the web server.
    pub link: Option<String>,
    pub body: Vec<u8>,
}

/// What an `ingest` job has to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The feed that the entries go to: the survivor where it was merged. `None`: deleted; nothing is to be read.
    pub feed_id: Option<i64>,
    /// Oldest first.
    pub deliveries: Vec<Delivery>,
}

/// The deliveries of a subscription, oldest first, until their bodies exceed `max_bytes` (one at least): call again until
/// [`applied`] says that none is left. Reads only.
pub fn waiting(connection: &Connection, subscription_id: i64, max_bytes: usize) -> Result<Waiting> {
    let feed_id = connection
        .prepare_cached(
            "SELECT CASE WHEN f.state = 'merged' THEN f.merged_into ELSE f.id END
             FROM subscriptions s JOIN feeds f ON f.id = s.feed_id WHERE s.id = ?1",
        )?
        .query_row([subscription_id], |row| row.get::<_, Option<i64>>(0))
        .optional()?
        .flatten();
    let mut statement = connection
        .prepare_cached("SELECT id, content_type, link, body FROM deliveries WHERE subscription_id = ?1 ORDER BY id")?;
    let mut rows = statement.query([subscription_id])?;
    let (mut deliveries, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let delivery = Delivery { id: row.get(0)?, content_type: row.get(1)?, link: row.get(2)?, body: row.get(3)? };
        bytes += delivery.body.len();
        if bytes > max_bytes && !deliveries.is_empty() {
            break;
        }
        deliveries.push(delivery);
    }
    Ok(Waiting { feed_id, deliveries })
}

/// The deliveries `ids` were applied, `good` of them held a feed: they go, in the transaction that stores their entries.
/// Answers whether others wait, come meanwhile or left for a second helping; then the job's `run_at` is 0, else the job is
/// deleted. The worker only gives its claim back.
pub fn applied(connection: &Connection, subscription_id: i64, ids: &[i64], good: usize, now: i64) -> Result<bool> {
    for id in ids {
        connection
            .prepare_cached("DELETE FROM deliveries WHERE id = ?1 AND subscription_id = ?2")?
            .execute((id, subscription_id))?;
    }
    if good > 0 {
        // A good push: what was missed before is forgiven.
        connection
            .prepare_cached("UPDATE subscriptions SET good_pushes = good_pushes + ?2, misses = 0 WHERE id = ?1")?
            .execute((subscription_id, i64::try_from(good).unwrap_or(1)))?;
    }
    if good < ids.len() {
        // Signed, but no feed: a thin ping.
        let feed: Option<i64> = connection
            .prepare_cached("SELECT feed_id FROM subscriptions WHERE id = ?1")?
            .query_row([subscription_id], |row| row.get(0))
            .optional()?
            .flatten();
        if let Some(feed_id) = feed {
            let last: Option<i64> = connection
                .prepare_cached("SELECT max(hinted_at) FROM subscriptions WHERE feed_id = ?1")?
                .query_row([feed_id], |row| row.get(0))?;
            if let Some((run_at, hinted_at)) = next_poll(last, now) {
                connection
                    .prepare_cached("UPDATE subscriptions SET hinted_at = ?2 WHERE id = ?1")?
                    .execute((subscription_id, hinted_at))?;
                poll_at(connection, feed_id, run_at)?;
            }
        }
    }
    let left =
        connection.prepare_cached("SELECT 1 FROM deliveries WHERE subscription_id = ?1")?.exists([subscription_id])?;
    let job = if left {
        "UPDATE jobs SET run_at = 0 WHERE subscription_id = ?1 AND kind = 'ingest'"
    } else {
        "DELETE FROM jobs WHERE subscription_id = ?1 AND kind = 'ingest'"
    };
    connection.prepare_cached(job)?.execute([subscription_id])?;
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_poll_in_a_quarter_of_an_hour_and_none_lost() {
        for (last, poll) in [
            (None, Some((0, 10_000))),
            (Some(9_000), Some((0, 10_000))),
            (Some(9_100), Some((0, 10_000))),
            (Some(9_500), Some((10_400, 10_400))),
            (Some(10_000), Some((10_900, 10_900))),
            (Some(10_400), None),
            (Some(99_999), Some((0, 10_000))),
        ] {
            assert_eq!(next_poll(last, 10_000), poll, "{last:?}");
        }
    }
}
