//! The subscription that `feedmill check --callback` tries the callback with. It belongs to no feed and no hub; the worker
//! drops what is delivered to it.

use crate::error::Result;
use rusqlite::Connection;

/// Its hub: a name that is nobody's (RFC 2606).
const HUB: &str = "https://check.invalid/";
/// Its topic.
pub const TOPIC: &str = "https://check.invalid/feed";

/// What the trial needs to play the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    pub token: String,
    pub secret: String,
}

/// Inserts it, as one that waits for its hub; what an interrupted trial left goes first. The caller's transaction.
pub fn begin(db: &Connection) -> Result<Probe> {
    end(db)?;
    // No feed has this id; with NULL, that of a deleted one, every delivery would be turned away.
    let probe = db.query_row(
        "INSERT INTO subscriptions(feed_id, hub_url, topic_url, secret, requested_at)
         VALUES (-1, ?1, ?2, lower(hex(randomblob(32))), CAST(strftime('%s', 'now') AS INTEGER))
         RETURNING callback_token, secret",
        [HUB, TOPIC],
        |row| Ok(Probe { token: row.get(0)?, secret: row.get(1)? }),
    )?;
    Ok(probe)
}

/// Removes it with all that came of it. The caller's transaction.
pub fn end(db: &Connection) -> Result<()> {
    for table in ["deliveries", "jobs"] {
        let sql =
            format!("DELETE FROM {table} WHERE subscription_id IN (SELECT id FROM subscriptions WHERE hub_url = ?1)");
        db.execute(&sql, [HUB])?;
    }
    db.execute("DELETE FROM subscriptions WHERE hub_url = ?1", [HUB])?;
    db.execute("DELETE FROM hubs WHERE hub_url = ?1", [HUB])?;
    Ok(())
}
