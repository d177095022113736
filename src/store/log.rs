//! The log of fetches, and the hosts that asked to be left alone.

use super::text::Text;
use crate::error::Result;
use rusqlite::{Connection, params};
use std::collections::HashMap;

/// A row of `fetches`.
#[derive(Debug, Clone)]
pub struct Fetched<'a> {
    pub feed_id: i64,
    pub at: i64,
    pub status: Option<u16>,
    pub statuses: &'a str,
    /// `None`: the feed's own URL.
    pub final_url: Option<&'a str>,
    pub bytes: u64,
    pub duration_ms: u64,
    pub outcome: &'static str,
    pub new_entries: usize,
    pub message: Option<&'a str>,
}

/// Writes one row.
pub fn fetched(db: &Connection, fetch: &Fetched<'_>) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO fetches(feed_id, fetched_at, status, statuses, final_url, bytes, duration_ms, outcome, new_entries, message)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        fetch.feed_id,
        fetch.at,
        fetch.status,
        (!fetch.statuses.is_empty()).then_some(fetch.statuses),
        fetch.final_url,
        fetch.bytes as i64,
        fetch.duration_ms as i64,
        fetch.outcome,
        fetch.new_entries as i64,
        fetch.message
    ])?;
    Ok(())
}

/// Removes at most `most` of the oldest rows from before `cutoff`. Rows stand in the order of time, so this reads only what
/// it removes.
pub fn purge(db: &Connection, cutoff: i64, most: usize) -> Result<usize> {
    Ok(db
        .prepare_cached(
            "DELETE FROM fetches WHERE id IN (SELECT id FROM fetches ORDER BY id LIMIT ?2) AND fetched_at < ?1",
        )?
        .execute(params![cutoff, most as i64])?)
}

/// Leaves a host alone until `until`, or longer if it was to be left alone longer.
pub fn hold_host(db: &Connection, host: &str, until: i64, reason: &str) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO hosts(host, hold_until, reason) VALUES (?1, ?2, ?3)
         ON CONFLICT (host) DO UPDATE SET hold_until = max(hold_until, ?2), reason = ?3",
    )?
    .execute(params![host, until, reason])?;
    Ok(())
}

/// The hosts on hold at `now`, with the end of each hold.
pub fn held_hosts(db: &Connection, now: i64) -> Result<HashMap<String, i64>> {
    let mut statement = db.prepare_cached("SELECT host, hold_until FROM hosts WHERE hold_until > ?1")?;
    let hosts = statement
        .query_map([now], |row| Ok((row.get::<_, Text>(0)?.0, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    Ok(hosts)
}

/// Forgets holds that ended before `now`.
pub fn purge_holds(db: &Connection, now: i64) -> Result<usize> {
    Ok(db.prepare_cached("DELETE FROM hosts WHERE hold_until <= ?1")?.execute([now])?)
}
