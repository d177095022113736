//! What must hold of the rows whatever crashed, whoever wrote: each promise with the query that finds what breaks it and the
//! statement that mends it. Also what SQLite itself says of the file.

use crate::error::Result;
use rusqlite::Connection;

/// A promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invariant {
    /// As a sentence.
    pub holds: &'static str,
    /// The keys of the rows that break it, in one column.
    pub broken: &'static str,
    /// What a user types to mend it. The worker may be running.
    pub mend: &'static str,
}

/// All of them. `$now` stands for the time, Unix seconds. No claim is given for two hours.
pub const INVARIANTS: [Invariant; 15] = [
    Invariant {
        holds: "every active feed has a fetch job",
        broken: "SELECT id FROM feeds WHERE state = 'active' AND id NOT IN (SELECT feed_id FROM jobs WHERE kind = 'fetch'
                 AND feed_id IS NOT NULL)",
        mend: "INSERT OR IGNORE INTO jobs(kind, feed_id) SELECT 'fetch', id FROM feeds WHERE state = 'active'",
    },
    Invariant {
        holds: "only active feeds have a fetch job",
        broken: "SELECT id FROM jobs WHERE kind = 'fetch' AND (feed_id IS NULL OR subscription_id IS NOT NULL
                 OR feed_id NOT IN (SELECT id FROM feeds WHERE state = 'active'))",
        mend: "DELETE FROM jobs WHERE kind = 'fetch' AND (feed_id IS NULL OR subscription_id IS NOT NULL OR feed_id NOT IN (SELECT id FROM feeds WHERE state = 'active'))",
    },
    Invariant {
        holds: "every job of a hub has its subscription",
        broken: "SELECT id FROM jobs WHERE kind <> 'fetch' AND (subscription_id IS NULL
                 OR subscription_id NOT IN (SELECT id FROM subscriptions))",
        mend: "DELETE FROM jobs WHERE kind <> 'fetch' AND (subscription_id IS NULL OR subscription_id NOT IN (SELECT id FROM subscriptions))",
    },
    Invariant {
        holds: "a claim names its worker and its end, which is near",
        broken: "SELECT id FROM jobs WHERE (claimed_by IS NULL) <> (claim_expires_at IS NULL)
                 OR claim_expires_at > $now + 7200",
        mend: "UPDATE jobs SET claimed_by = NULL, claim_expires_at = NULL WHERE (claimed_by IS NULL) <> (claim_expires_at IS NULL) OR claim_expires_at > CAST(strftime('%s', 'now') AS INTEGER) + 7200",
    },
    Invariant {
        holds: "a merged feed points at the feed that goes on for it",
        broken: "SELECT id FROM feeds WHERE state = 'merged'
                 AND (merged_into IS NULL OR merged_into = id OR merged_into NOT IN (SELECT id FROM feeds))",
        mend: "UPDATE feeds SET merged_into = NULL, state = 'active' WHERE state = 'merged' AND (merged_into IS NULL OR merged_into = id OR merged_into NOT IN (SELECT id FROM feeds))",
    },
    Invariant {
        holds: "every entry has its feed",
        broken: "SELECT id FROM entries WHERE feed_id NOT IN (SELECT id FROM feeds)",
        mend: "DELETE FROM entries WHERE feed_id NOT IN (SELECT id FROM feeds)",
    },
    Invariant {
        holds: "every enclosure has its entry",
        broken: "SELECT entry_id FROM enclosures WHERE entry_id NOT IN (SELECT id FROM entries)",
        mend: "DELETE FROM enclosures WHERE entry_id NOT IN (SELECT id FROM entries)",
    },
    Invariant {
        holds: "every address in the history has its feed",
        broken: "SELECT id FROM feed_urls WHERE feed_id NOT IN (SELECT id FROM feeds)",
        mend: "DELETE FROM feed_urls WHERE feed_id NOT IN (SELECT id FROM feeds)",
    },
    Invariant {
        holds: "every waiting move has its feed",
        broken: "SELECT feed_id FROM pending_moves WHERE feed_id NOT IN (SELECT id FROM feeds)",
        mend: "DELETE FROM pending_moves WHERE feed_id NOT IN (SELECT id FROM feeds)",
    },
    Invariant {
        holds: "every held target has its feed",
        broken: "SELECT feed_id FROM held_targets WHERE feed_id NOT IN (SELECT id FROM feeds)",
        mend: "DELETE FROM held_targets WHERE feed_id NOT IN (SELECT id FROM feeds)",
    },
    Invariant {
        holds: "every discovered feed has the feed it was found with",
        broken: "SELECT feed_id FROM discovered_feeds WHERE feed_id NOT IN (SELECT id FROM feeds)",
        mend: "DELETE FROM discovered_feeds WHERE feed_id NOT IN (SELECT id FROM feeds)",
    },
    Invariant {
        holds: "every hub that a feed names has that feed",
        broken: "SELECT feed_id FROM feed_hubs WHERE feed_id NOT IN (SELECT id FROM feeds)",
        mend: "DELETE FROM feed_hubs WHERE feed_id NOT IN (SELECT id FROM feeds)",
    },
    Invariant {
        holds: "every subscription has its feed, or is being ended",
        broken: "SELECT id FROM subscriptions WHERE hub_url <> 'https://check.invalid/' AND
                 CASE WHEN feed_id IS NULL THEN state NOT IN ('unsubscribing', 'ended')
                 ELSE feed_id NOT IN (SELECT id FROM feeds) END",
        mend: "UPDATE subscriptions SET feed_id = NULL, state = 'unsubscribing' WHERE CASE WHEN feed_id IS NULL THEN state NOT IN ('unsubscribing', 'ended') ELSE feed_id NOT IN (SELECT id FROM feeds) END",
    },
    Invariant {
        holds: "every delivery has its subscription",
        broken: "SELECT id FROM deliveries WHERE subscription_id NOT IN (SELECT id FROM subscriptions)",
        mend: "DELETE FROM deliveries WHERE subscription_id NOT IN (SELECT id FROM subscriptions)",
    },
    Invariant {
        holds: "every delivery has a job that reads it",
        broken: "SELECT id FROM deliveries WHERE subscription_id IN (SELECT id FROM subscriptions)
                 AND subscription_id NOT IN (SELECT subscription_id FROM jobs WHERE kind = 'ingest' AND subscription_id IS NOT NULL)",
        mend: "INSERT OR IGNORE INTO jobs(kind, feed_id, subscription_id) SELECT DISTINCT 'ingest', s.feed_id, s.id FROM deliveries d JOIN subscriptions s ON s.id = d.subscription_id",
    },
];

/// A promise that is broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    pub invariant: &'static Invariant,
    pub rows: usize,
    /// One of them.
    pub example: i64,
}

/// Tries all of [`INVARIANTS`] on one state of the database.
pub fn broken(db: &Connection, now: i64) -> Result<Vec<Broken>> {
    db.execute_batch("BEGIN")?;
    let mut found = Vec::new();
    for invariant in &INVARIANTS {
        let mut statement = db.prepare(invariant.broken)?;
        let mut rows = match statement.parameter_count() {
            0 => statement.query([])?,
            _ => statement.query([now])?,
        };
        let mut keys = Vec::new();
        while let Some(row) = rows.next()? {
            keys.push(row.get(0)?);
        }
        if let Some(&example) = keys.first() {
            found.push(Broken { invariant, rows: keys.len(), example });
        }
    }
    db.execute_batch("COMMIT")?;
    Ok(found)
}

/// What SQLite finds wrong in the file, a line each.
pub fn damage(db: &Connection) -> Result<Vec<String>> {
    let mut statement = db.prepare("PRAGMA quick_check(20)")?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}

/// `wal`, unless somebody changed it.
pub fn journal_mode(db: &Connection) -> Result<String> {
    Ok(db.pragma_query_value(None, "journal_mode", |row| row.get(0))?)
}
