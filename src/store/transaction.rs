//! Transactions of the worker: always IMMEDIATE, with a savepoint for each outcome.

use crate::error::Result;
use rusqlite::Connection;

/// Runs `work` in one IMMEDIATE transaction: all of it is committed, or nothing.
pub fn immediate<T>(db: &Connection, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
    db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let done = work(db).and_then(|value| {
        db.prepare_cached("COMMIT")?.execute([])?;
        Ok(value)
    });
    // Errors such as a full disk may have rolled it back already.
    if done.is_err() && !db.is_autocommit() {
        db.execute_batch("ROLLBACK")?;
    }
    done
}

/// Runs `work` inside the open transaction, wholly or not at all.
pub fn savepoint<T>(db: &Connection, work: impl FnOnce() -> Result<T>) -> Result<T> {
    db.prepare_cached("SAVEPOINT outcome")?.execute([])?;
    let done = work();
    if done.is_err() && !db.is_autocommit() {
        db.execute_batch("ROLLBACK TO outcome")?;
    }
    if !db.is_autocommit() {
        db.prepare_cached("RELEASE outcome")?.execute([])?;
    }
    done
}

/// Moves the write-ahead log into the database file and empties it, as far as readers allow.
pub fn checkpoint(db: &Connection) -> Result<()> {
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}
