//! The queue: what is due, claims, finishing.
//!
//! A claim raises `attempts`, and finishing is fenced by (id, attempts): of two results for one attempt only one lands.
//! Due jobs are found by the partial index `jobs_due`, which SQLite uses only where `claimed_by IS NULL` stands literally.

use super::feeds::{self, StoredFeed};
use super::text::Text;
use crate::error::Result;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::sync::LazyLock;

/// The kinds of job, as in `jobs.kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Fetch,
    Subscribe,
    Renew,
    Unsubscribe,
    Ingest,
}

impl Kind {
    /// The name in `jobs.kind`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Fetch => "fetch",
            Kind::Subscribe => "subscribe",
            Kind::Renew => "renew",
            Kind::Unsubscribe => "unsubscribe",
            Kind::Ingest => "ingest",
        }
    }

    fn from_name(name: &str) -> Kind {
        match name {
            "subscribe" => Kind::Subscribe,
            "renew" => Kind::Renew,
            "unsubscribe" => Kind::Unsubscribe,
            "ingest" => Kind::Ingest,
            _ => Kind::Fetch,
        }
    }
}

/// A job that is due and not claimed.
#[derive(Debug, Clone)]
pub struct Due {
    pub id: i64,
    pub kind: Kind,
    pub subscription_id: Option<i64>,
    pub run_at: i64,
    pub attempts: i64,
    /// `None`: the feed is gone or none belongs to the job.
    pub feed: Option<StoredFeed>,
}

/// A claimed job: what finishing is fenced by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    pub job_id: i64,
    /// After the claim.
    pub attempts: i64,
    /// When it was due; if it is another at the end, somebody asked for one more run meanwhile.
    pub run_at: i64,
}

/// The statement of [`next_due`].
pub const NEXT_DUE: &str = "SELECT run_at FROM jobs WHERE claimed_by IS NULL ORDER BY run_at LIMIT 1";

/// The statement of [`sweep_expired`].
pub const SWEEP_EXPIRED: &str = "UPDATE jobs SET claimed_by = NULL, claim_expires_at = NULL
     WHERE claimed_by IS NOT NULL AND (claim_expires_at <= ?1 OR claim_expires_at > ?2 OR claim_expires_at IS NULL)";

/// The statement of [`due`].
pub fn due_sql() -> &'static str {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "SELECT j.id, j.kind, j.subscription_id, j.run_at, j.attempts, f.id IS NOT NULL, {}
             FROM jobs j LEFT JOIN feeds f ON f.id = j.feed_id
             WHERE j.claimed_by IS NULL AND j.run_at <= ?1 ORDER BY j.run_at LIMIT ?2",
            feeds::COLUMNS
        )
    });
    &SQL
}

/// At most `limit` due jobs, the longest due first.
pub fn due(db: &Connection, now: i64, limit: usize) -> Result<Vec<Due>> {
    let mut statement = db.prepare_cached(due_sql())?;
    let rows = statement.query_map(params![now, limit as i64], from_row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The job of this id, due or not, if nobody has claimed it.
pub fn unclaimed(db: &Connection, id: i64) -> Result<Option<Due>> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "SELECT j.id, j.kind, j.subscription_id, j.run_at, j.attempts, f.id IS NOT NULL, {}
             FROM jobs j LEFT JOIN feeds f ON f.id = j.feed_id WHERE j.id = ?1 AND j.claimed_by IS NULL",
            feeds::COLUMNS
        )
    });
    Ok(db.prepare_cached(&SQL)?.query_row([id], from_row).optional()?)
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<Due> {
    let has_feed: bool = row.get(5)?;
    Ok(Due {
        id: row.get(0)?,
        kind: Kind::from_name(row.get_ref(1)?.as_str().unwrap_or("")),
        subscription_id: row.get(2)?,
        run_at: row.get(3)?,
        attempts: row.get(4)?,
        feed: if has_feed { Some(feeds::from_row(row, 6)?) } else { None },
    })
}

/// When the next unclaimed job is due; `None`: there is none. A value in the past says that something is due now.
pub fn next_due(db: &Connection) -> Result<Option<i64>> {
    Ok(db.prepare_cached(NEXT_DUE)?.query_row([], |row| row.get(0)).optional()?)
}

/// When the next unclaimed job after `now` is due.
pub fn next_due_after(db: &Connection, now: i64) -> Result<Option<i64>> {
    Ok(db
        .prepare_cached("SELECT run_at FROM jobs WHERE claimed_by IS NULL AND run_at > ?1 ORDER BY run_at LIMIT 1")?
        .query_row([now], |row| row.get(0))
        .optional()?)
}

/// How many jobs are due.
pub fn count_due(db: &Connection, now: i64) -> Result<i64> {
    Ok(db
        .prepare_cached("SELECT count(*) FROM jobs WHERE claimed_by IS NULL AND run_at <= ?1")?
        .query_row([now], |row| row.get(0))?)
}

/// Claims a job for `worker` until `expires`.
pub fn claim(db: &Connection, due: &Due, worker: &str, expires: i64) -> Result<Claim> {
    db.prepare_cached(
        "UPDATE jobs SET claimed_by = ?2, claim_expires_at = ?3, attempts = attempts + 1
         WHERE id = ?1 AND claimed_by IS NULL",
    )?
    .execute(params![due.id, worker, expires])?;
    Ok(Claim { job_id: due.id, attempts: due.attempts.saturating_add(1), run_at: due.run_at })
}

/// Puts a due job off without claiming it.
pub fn postpone(db: &Connection, job_id: i64, run_at: i64) -> Result<()> {
    db.prepare_cached("UPDATE jobs SET run_at = ?2 WHERE id = ?1 AND claimed_by IS NULL")?
        .execute(params![job_id, run_at])?;
    Ok(())
}

/// Puts a job off if it is still due at `now`.
pub fn postpone_due(db: &Connection, job_id: i64, now: i64, run_at: i64) -> Result<()> {
    db.prepare_cached("UPDATE jobs SET run_at = ?3 WHERE id = ?1 AND claimed_by IS NULL AND run_at <= ?2")?
        .execute(params![job_id, now, run_at])?;
    Ok(())
}

/// Whether the claim is still ours.
pub fn holds(db: &Connection, claim: &Claim, worker: &str) -> Result<bool> {
    Ok(db.prepare_cached("SELECT 1 FROM jobs WHERE id = ?1 AND attempts = ?2 AND claimed_by = ?3")?.exists(params![
        claim.job_id,
        claim.attempts,
        worker
    ])?)
}

/// Ends a claim and sets the next run, unless `run_at` was changed since the claim: then that stands. Answers whether the
/// claim was still there.
pub fn finish(db: &Connection, claim: &Claim, worker: &str, next: i64, error: Option<&str>) -> Result<bool> {
    let changed = db
        .prepare_cached(
            "UPDATE jobs SET claimed_by = NULL, claim_expires_at = NULL, last_error = ?6,
                 run_at = CASE WHEN run_at = ?4 THEN ?5 ELSE run_at END
             WHERE id = ?1 AND attempts = ?2 AND claimed_by = ?3",
        )?
        .execute(params![claim.job_id, claim.attempts, worker, claim.run_at, next, error])?;
    Ok(changed > 0)
}

/// Ends a claim and the job with it; answers whether the claim was still there.
pub fn complete(db: &Connection, claim: &Claim, worker: &str) -> Result<bool> {
    let changed = db
        .prepare_cached("DELETE FROM jobs WHERE id = ?1 AND attempts = ?2 AND claimed_by = ?3")?
        .execute(params![claim.job_id, claim.attempts, worker])?;
    Ok(changed > 0)
}

/// Ends a claim; when the job runs again stands in its row already, and a job that is gone is gone.
pub fn release(db: &Connection, claim: &Claim, worker: &str) -> Result<()> {
    db.prepare_cached(
        "UPDATE jobs SET claimed_by = NULL, claim_expires_at = NULL WHERE id = ?1 AND attempts = ?2 AND claimed_by = ?3",
    )?
    .execute(params![claim.job_id, claim.attempts, worker])?;
    Ok(())
}

/// Removes a job that has nothing to work on.
pub fn remove(db: &Connection, job_id: i64) -> Result<()> {
    db.prepare_cached("DELETE FROM jobs WHERE id = ?1")?.execute([job_id])?;
    Ok(())
}

/// Gives back all that `worker` holds; it is due as before.
pub fn release_all(db: &Connection, worker: &str) -> Result<usize> {
    Ok(db.execute(
        "UPDATE jobs SET claimed_by = NULL, claim_expires_at = NULL WHERE claimed_by IS NOT NULL AND claimed_by = ?1",
        [worker],
    )?)
}

/// Frees claims that ended, and claims that end later than any claim made now would (the clock was set back).
pub fn sweep_expired(db: &Connection, now: i64, longest: i64) -> Result<usize> {
    Ok(db.prepare_cached(SWEEP_EXPIRED)?.execute(params![now, now + longest])?)
}

/// Whether [`sweep_expired`] would find anything.
pub fn any_expired(db: &Connection, now: i64, longest: i64) -> Result<bool> {
    Ok(db
        .prepare_cached(
            "SELECT 1 FROM jobs WHERE claimed_by IS NOT NULL
             AND (claim_expires_at <= ?1 OR claim_expires_at > ?2 OR claim_expires_at IS NULL) LIMIT 1",
        )?
        .exists(params![now, now + longest])?)
}

/// The workers that hold claims.
pub fn claimants(db: &Connection) -> Result<Vec<String>> {
    let mut statement = db.prepare_cached("SELECT DISTINCT claimed_by FROM jobs WHERE claimed_by IS NOT NULL")?;
    let names = statement.query_map([], |row| Ok(row.get::<_, Text>(0)?.0))?.collect::<rusqlite::Result<_>>()?;
    Ok(names)
}

/// Makes sure that every active feed has its job (rows from a client with triggers switched off).
pub fn adopt_feeds(db: &Connection) -> Result<usize> {
    Ok(db.execute(
        "INSERT INTO jobs(kind, feed_id, run_at) SELECT 'fetch', f.id, 0 FROM feeds f WHERE f.state = 'active'
             AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.feed_id = f.id AND j.kind = 'fetch')",
        [],
    )?)
}

/// A number that changes when another connection commits.
pub fn data_version(db: &Connection) -> Result<i64> {
    Ok(db.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?)
}
