//! What `feedmill status` shows.

use super::text::Text;
use crate::error::Result;
use rusqlite::{Connection, params};

/// Everything at a glance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Feeds by state.
    pub states: Vec<(String, i64)>,
    /// Active feeds whose last fetch failed, and those that are invalid.
    pub failing: i64,
    pub entries: i64,
    pub due: i64,
    pub running: i64,
    /// When the next job is due.
    pub next_at: Option<i64>,
    /// The failing feeds that failed most often.
    pub failures: Vec<FailingFeed>,
    pub moves: Vec<WaitingMove>,
    pub holds: Vec<Hold>,
    /// Subscriptions by state.
    pub subscriptions: Vec<(String, i64)>,
    /// Deliveries that were not read yet.
    pub deliveries: i64,
    pub callback_url: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingFeed {
    pub feed_id: i64,
    pub url: String,
    pub kind: String,
    pub message: String,
    pub count: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingMove {
    pub feed_id: i64,
    pub url: String,
    pub target: String,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    pub host: String,
    pub until: i64,
    pub reason: String,
}

/// Reads the status; at most `named` feeds are named in each list.
pub fn read(db: &Connection, now: i64, named: usize) -> Result<Status> {
    let named = named as i64;
    let count = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0));
    let by_state = |sql: &str| -> Result<Vec<(String, i64)>> {
        let mut statement = db.prepare(sql)?;
        let rows = statement
            .query_map([], |row| Ok((row.get::<_, Text>(0)?.0, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        Ok(rows)
    };
    let failures = db
        .prepare(
            "SELECT id, url, failure_kind, coalesce(failure_message, ''), failure_count FROM feeds
             WHERE failure_kind IS NOT NULL AND state IN ('active', 'invalid', 'gone')
             ORDER BY failure_count DESC, id LIMIT ?1",
        )?
        .query_map([named], |row| {
            Ok(FailingFeed {
                feed_id: row.get(0)?,
                url: row.get::<_, Text>(1)?.0,
                kind: row.get::<_, Text>(2)?.0,
                message: row.get::<_, Text>(3)?.0,
                count: row.get(4)?,
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    let moves = db
        .prepare(
            "SELECT p.feed_id, f.url, p.target_url, p.why FROM pending_moves p JOIN feeds f ON f.id = p.feed_id
             ORDER BY p.first_seen_at LIMIT ?1",
        )?
        .query_map([named], |row| {
            let text = |i: usize| row.get::<_, Text>(i).map(|text| text.0);
            Ok(WaitingMove { feed_id: row.get(0)?, url: text(1)?, target: text(2)?, why: text(3)? })
        })?
        .collect::<rusqlite::Result<_>>()?;
    let holds = db
        .prepare("SELECT host, hold_until, reason FROM hosts WHERE hold_until > ?1 ORDER BY hold_until LIMIT ?2")?
        .query_map(params![now, named], |row| {
            Ok(Hold { host: row.get::<_, Text>(0)?.0, until: row.get(1)?, reason: row.get::<_, Text>(2)?.0 })
        })?
        .collect::<rusqlite::Result<_>>()?;
    Ok(Status {
        states: by_state("SELECT state, count(*) FROM feeds GROUP BY state ORDER BY state")?,
        failing: count(
            "SELECT count(*) FROM feeds WHERE failure_kind IS NOT NULL AND state IN ('active', 'invalid', 'gone')",
        )?,
        entries: count("SELECT count(*) FROM entries")?,
        due: db
            .query_row("SELECT count(*) FROM jobs WHERE claimed_by IS NULL AND run_at <= ?1", [now], |r| r.get(0))?,
        running: count("SELECT count(*) FROM jobs WHERE claimed_by IS NOT NULL")?,
        next_at: super::jobs::next_due(db)?,
        failures,
        moves,
        holds,
        subscriptions: by_state("SELECT state, count(*) FROM subscriptions GROUP BY state ORDER BY state")?,
        deliveries: count("SELECT count(*) FROM deliveries")?,
        callback_url: db
            .query_row("SELECT value FROM settings WHERE key = 'callback_url'", [], |row| row.get::<_, String>(0))
            .map(|url| Some(url).filter(|url| !url.is_empty()))?,
    })
}
