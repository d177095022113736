//! The rows of `subscriptions`: looked up and moved on for both programs, by the decisions of `rules::lease`.
//!
//! The promise: a request's row and secret are on disk before the request leaves; a row changes state only by a step of
//! `rules::lease`; an answer that comes after the row has moved on changes nothing. Transactions are the caller's.

use crate::error::{Error, Result};
use crate::push::callback::Known;
use crate::rules::lease::{Effect, Job, Life, State, Step};
use rusqlite::{Connection, OptionalExtension, Row};

/// The settings the callback program goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallbackSettings {
    /// Bytes.
    pub max_delivery_bytes: u64,
    /// Rows.
    pub max_pending_deliveries: i64,
    /// Milliseconds.
    pub callback_wait_ms: u64,
}

/// Reads them; the schema keeps each in its range.
pub fn callback_settings(connection: &Connection) -> Result<CallbackSettings> {
    // One statement: the program lives for a millisecond.
    let (bytes, rows, wait): (Option<i64>, Option<i64>, Option<i64>) = connection.query_row(
        "SELECT max(CASE key WHEN 'max_delivery_bytes' THEN CAST(value AS INTEGER) END),
                max(CASE key WHEN 'max_pending_deliveries' THEN CAST(value AS INTEGER) END),
                max(CASE key WHEN 'callback_wait_ms' THEN CAST(value AS INTEGER) END) FROM settings",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let natural = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
    match (natural(bytes), rows, natural(wait)) {
        (Some(max_delivery_bytes), Some(max_pending_deliveries), Some(callback_wait_ms)) => {
            Ok(CallbackSettings { max_delivery_bytes, max_pending_deliveries, callback_wait_ms })
        }
        _ => Err(Error::Database("a setting of the callback program is missing; run: feedmill check".into())),
    }
}

/// What [`read`] reads, but for the last two columns.
const COLUMNS: &str = "s.id, s.feed_id, s.state, s.renewing, s.requests, s.failures, s.rung, s.lease_seconds,
     s.lease_expires_at, s.requested_at, s.ended_at, s.topic_url, s.secret, s.previous_secret, s.verify_token,
     s.fetched_url IS NOT NULL AND s.fetched_url <> s.topic_url";
/// `lease_refused` and `superseded`: they matter to requests only.
const BESIDE: &str = "coalesce((SELECT h.without_lease FROM hubs h WHERE h.hub_url = s.hub_url), 0),
     EXISTS (SELECT 1 FROM subscriptions o WHERE o.feed_id = s.feed_id AND o.id <> s.id
             AND o.state IN ('pending', 'active'))";

fn read(row: &Row<'_>) -> rusqlite::Result<Known> {
    let name: String = row.get(2)?;
    let state = State::from_name(&name).ok_or_else(|| rusqlite::Error::InvalidColumnName(format!("state {name}")))?;
    Ok(Known {
        life: Life {
            id: row.get(0)?,
            state,
            renewing: row.get(3)?,
            requests: row.get(4)?,
            failures: row.get(5)?,
            rung: row.get(6)?,
            lease_seconds: row.get(7)?,
            lease_expires_at: row.get(8)?,
            requested_at: row.get(9)?,
            ended_at: row.get(10)?,
            has_fallback: row.get(15)?,
            lease_refused: row.get(16)?,
            superseded: row.get(17)?,
        },
        feed_id: row.get(1)?,
        topic_url: row.get(11)?,
        secret: row.get(12)?,
        previous_secret: row.get(13)?,
        verify_token: row.get(14)?,
    })
}

/// The subscription of a callback token. (The index finds it in other than constant time; with 256 random bits there is
/// nothing to be learnt from that.) For what hubs send: `lease_refused` and `superseded` are not looked up.
pub fn by_token(connection: &Connection, token: &str) -> Result<Option<Known>> {
    let sql = format!("SELECT {COLUMNS}, 0, 0 FROM subscriptions s WHERE s.callback_token = ?1");
    Ok(connection.prepare_cached(&sql)?.query_row([token], read).optional()?)
}

/// The subscription of a job.
pub fn by_id(connection: &Connection, id: i64) -> Result<Option<Known>> {
    let sql = format!("SELECT {COLUMNS}, {BESIDE} FROM subscriptions s WHERE s.id = ?1");
    Ok(connection.prepare_cached(&sql)?.query_row([id], read).optional()?)
}

/// Stores a step and does its effects that are rows; answers those that are left to the caller: the requests, and
/// [`Effect::NextHub`].
///
/// `error` is written to `last_error`; `None` leaves it, but a confirmation clears it. Writes only where the row still is as
/// `before` was: `None` means that it moved on meanwhile, and nothing was written.
pub fn store(
    connection: &Connection,
    before: &Known,
    step: &Step,
    error: Option<&str>,
    now: i64,
) -> Result<Option<Vec<Effect>>> {
    let (old, new) = (&before.life, &step.life);
    let confirmed = new.state == State::Active && new.lease_expires_at != old.lease_expires_at
        || new.state == State::Ended && old.state == State::Unsubscribing && error.is_none();
    // The trigger on 'unsubscribing' makes the job, and the state must reach it by an UPDATE of its own column.
    let changed = connection
        .prepare_cached(
            "UPDATE subscriptions SET state = ?2, renewing = ?3, requests = ?4, failures = ?5, rung = ?6,
               lease_seconds = ?7, lease_expires_at = ?8, requested_at = ?9, ended_at = ?10,
               verified_at = CASE WHEN ?11 THEN ?12 ELSE verified_at END,
               active_since = CASE WHEN ?2 = 'active' THEN coalesce(active_since, ?12) ELSE active_since END,
               last_error = CASE WHEN ?13 IS NOT NULL THEN ?13 WHEN ?11 THEN NULL ELSE last_error END
             WHERE id = ?1 AND state = ?14 AND renewing = ?15 AND requests = ?16 AND failures = ?17 AND rung = ?18
               AND requested_at IS ?19",
        )?
        .execute(rusqlite::params![
            new.id,
            new.state.name(),
            new.renewing,
            new.requests,
            new.failures,
            new.rung,
            new.lease_seconds,
            new.lease_expires_at,
            new.requested_at,
            new.ended_at,
            confirmed,
            now,
            error,
            old.state.name(),
            old.renewing,
            old.requests,
            old.failures,
            old.rung,
            old.requested_at,
        ])?;
    if changed == 0 {
        return Ok(None);
    }
    let mut left = Vec::new();
    for effect in &step.effects {
        match effect {
            Effect::Schedule(job, at) => schedule(connection, before, *job, *at)?,
            Effect::Cancel(job) => {
                connection
                    .prepare_cached("DELETE FROM jobs WHERE subscription_id = ?1 AND kind = ?2")?
                    .execute((new.id, job.name()))?;
            }
            Effect::UseFetchedTopic => {
                run(connection, "UPDATE subscriptions SET topic_url = fetched_url WHERE id = ?1", new.id)?
            }
            Effect::UseNamedTopic => run(
                connection,
                "UPDATE subscriptions SET topic_url = coalesce(named_topic, topic_url) WHERE id = ?1",
                new.id,
            )?,
            Effect::RememberNoLease => remember_no_lease(connection, new.id)?,
            Effect::EndReplaced => run(
                connection,
                "UPDATE subscriptions SET state = 'unsubscribing' WHERE state IN ('pending', 'active')
                   AND id = (SELECT replaces FROM subscriptions WHERE id = ?1)",
                new.id,
            )?,
            Effect::Poll => run(
                connection,
                "UPDATE jobs SET run_at = 0 WHERE kind = 'fetch'
                   AND feed_id = (SELECT feed_id FROM subscriptions WHERE id = ?1)",
                new.id,
            )?,
            Effect::Subscribe { .. } | Effect::Unsubscribe | Effect::NextHub => left.push(*effect),
        }
    }
    Ok(Some(left))
}

/// Sets the time of a job, or makes it. A claim on it is left alone: the worker gives it back without touching `run_at`.
pub(super) fn schedule(connection: &Connection, known: &Known, job: Job, at: i64) -> Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO jobs(kind, feed_id, subscription_id, run_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (subscription_id, kind) WHERE subscription_id IS NOT NULL DO UPDATE SET run_at = excluded.run_at",
        )?
        .execute((job.name(), known.feed_id, known.life.id, at))?;
    Ok(())
}

/// The hub of this subscription refuses `hub.lease_seconds`.
pub(super) fn remember_no_lease(connection: &Connection, id: i64) -> Result<()> {
    run(
        connection,
        "INSERT INTO hubs(hub_url, without_lease) SELECT hub_url, 1 FROM subscriptions WHERE id = ?1
         ON CONFLICT (hub_url) DO UPDATE SET without_lease = 1",
        id,
    )
}

fn run(connection: &Connection, sql: &str, id: i64) -> Result<()> {
    connection.prepare_cached(sql)?.execute([id])?;
    Ok(())
}
