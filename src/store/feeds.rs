//! The rows of `feeds`, the history of their URLs, and what is waiting or held about them.

use super::text::Text;
use crate::error::Result;
use crate::rules::failure::Failure;
use crate::rules::moved::{PendingMove, Reason};
use rusqlite::{Connection, OptionalExtension, Row, params};

/// A row of `feeds` as the worker needs it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoredFeed {
    pub id: i64,
    pub url: String,
    pub pretty_url: Option<String>,
    pub site_url: Option<String>,
    pub title: Option<String>,
    pub folder: Option<String>,
    pub state: String,
    pub merged_into: Option<i64>,
    pub keep_url: bool,
    pub interval_seconds: Option<i64>,
    pub hub_url: Option<String>,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    pub validators_url: Option<String>,
    pub last_success_at: Option<i64>,
    pub failure_kind: Option<String>,
    pub failure_count: i64,
    pub failing_since: Option<i64>,
    pub rewritten_at: Option<i64>,
    pub url_key: Option<String>,
    pub body_hash: Option<i64>,
}

/// The columns of [`StoredFeed`] in its order, of the table alias `f`.
pub(super) const COLUMNS: &str = "f.id, f.url, f.pretty_url, f.site_url, f.title, f.folder, f.state, f.merged_into, \
     f.keep_url, f.interval_seconds, f.hub_url, f.etag, f.last_modified, f.validators_url, f.last_success_at, \
     f.failure_kind, f.failure_count, f.failing_since, f.rewritten_at, f.url_key, f.body_hash";

/// Reads [`COLUMNS`] that begin at column `at`.
pub(super) fn from_row(row: &Row<'_>, at: usize) -> rusqlite::Result<StoredFeed> {
    let text = |i: usize| row.get::<_, Text>(at + i).map(|text| text.0);
    let optional = |i: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<Text>>(at + i)?.map(|text| text.0));
    Ok(StoredFeed {
        id: row.get(at)?,
        url: text(1)?,
        pretty_url: optional(2)?,
        site_url: optional(3)?,
        title: optional(4)?,
        folder: optional(5)?,
        state: text(6)?,
        merged_into: row.get(at + 7)?,
        keep_url: row.get(at + 8)?,
        interval_seconds: row.get(at + 9)?,
        hub_url: optional(10)?,
        etag: optional(11)?,
        last_modified: optional(12)?,
        validators_url: optional(13)?,
        last_success_at: row.get(at + 14)?,
        failure_kind: optional(15)?,
        failure_count: row.get(at + 16)?,
        failing_since: row.get(at + 17)?,
        rewritten_at: row.get(at + 18)?,
        url_key: optional(19)?,
        body_hash: row.get(at + 20)?,
    })
}

/// The feed with this id, if it is still there.
pub fn by_id(db: &Connection, id: i64) -> Result<Option<StoredFeed>> {
    use std::sync::LazyLock;
    static SQL: LazyLock<String> = LazyLock::new(|| format!("SELECT {COLUMNS} FROM feeds f WHERE f.id = ?1"));
    Ok(db.prepare_cached(&SQL)?.query_row([id], |row| from_row(row, 0)).optional()?)
}

/// Adds a feed unless its URL stands there already; answers whether it is new.
pub fn add(db: &Connection, url: &str, now: i64) -> Result<bool> {
    let mut statement =
        db.prepare_cached("INSERT INTO feeds(url, created_at) VALUES (?1, ?2) ON CONFLICT (url) DO NOTHING")?;
    Ok(statement.execute(params![url, now])? > 0)
}

/// The row that stands for `key` (or for this very `url`) beside feed `except`: merged rows lead to their survivor. When that
/// survivor is `except` itself, the merged row is answered, since the two then swap URLs.
pub fn holder(db: &Connection, key: &str, url: &str, except: i64) -> Result<Option<StoredFeed>> {
    let found: Option<i64> = db
        .prepare_cached(
            "SELECT id FROM feeds WHERE (url_key = ?1 OR url = ?2) AND id <> ?3
             ORDER BY state = 'merged', url <> ?2, id LIMIT 1",
        )?
        .query_row(params![key, url, except], |row| row.get(0))
        .optional()?;
    let Some(mut id) = found else { return Ok(None) };
    let mut last = by_id(db, id)?;
    // Chains of merges are short; the bound is for rows that a user made point at each other.
    for _ in 0..20 {
        match last.as_ref().and_then(|feed| feed.merged_into.filter(|_| feed.state == "merged")) {
            Some(next) if next == except => return Ok(last),
            Some(next) if next != id => {
                let Some(survivor) = by_id(db, next)? else { return Ok(last) };
                id = next;
                last = Some(survivor);
            }
            _ => return Ok(last),
        }
    }
    Ok(None)
}

/// Remembers how the URL is compared with others.
pub fn set_key(db: &Connection, id: i64, key: &str) -> Result<()> {
    db.prepare_cached("UPDATE feeds SET url_key = ?2 WHERE id = ?1")?.execute(params![id, key])?;
    Ok(())
}

/// Gives the feed another URL, if it still has `old`; answers whether it had. Writes the history row.
#[allow(clippy::too_many_arguments)]
pub fn rewrite(
    db: &Connection,
    feed: &StoredFeed,
    new_url: &str,
    key: &str,
    reason: Reason,
    statuses: &str,
    now: i64,
) -> Result<bool> {
    let mut update = db.prepare_cached(
        "UPDATE feeds SET url = ?3, url_key = ?4, rewrites = rewrites + 1, rewritten_at = ?5 WHERE id = ?1 AND url = ?2",
    )?;
    if update.execute(params![feed.id, feed.url, new_url, key, now])? == 0 {
        return Ok(false);
    }
    history(db, feed.id, &feed.url, new_url, reason, statuses, now)?;
    Ok(true)
}

fn history(
    db: &Connection,
    feed_id: i64,
    old: &str,
    new: &str,
    reason: Reason,
    statuses: &str,
    now: i64,
) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO feed_urls(feed_id, old_url, new_url, reason, statuses, changed_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![feed_id, old, new, reason.name(), (!statuses.is_empty()).then_some(statuses), now])?;
    Ok(())
}

/// Fills what the feed itself says of its title and page where the user wrote nothing, and the publisher's spelling.
pub fn describe(db: &Connection, id: i64, title: Option<&str>, site: Option<&str>, pretty: Option<&str>) -> Result<()> {
    db.prepare_cached(
        "UPDATE feeds SET title = coalesce(title, ?2), site_url = coalesce(site_url, ?3), pretty_url = coalesce(?4, pretty_url)
         WHERE id = ?1 AND (title IS NULL AND ?2 IS NOT NULL OR site_url IS NULL AND ?3 IS NOT NULL OR ?4 IS NOT NULL)",
    )?
    .execute(params![id, title, site, pretty])?;
    Ok(())
}

/// What a good answer leaves in the row.
#[derive(Debug, Clone, Default)]
pub struct Success<'a> {
    pub status: Option<u16>,
    /// `Some`: the pair of validators as it is now; `None`: they stay.
    pub validators: Option<&'a crate::fetch::Validators>,
    /// `Some`: the hash of the document that was parsed.
    pub body_hash: Option<i64>,
}

/// Books a success.
pub fn succeeded(db: &Connection, id: i64, success: &Success<'_>, now: i64) -> Result<()> {
    db.prepare_cached(
        "UPDATE feeds SET last_fetched_at = ?2, last_success_at = ?2, last_status = ?3, failure_kind = NULL,
             failure_message = NULL, failure_count = 0, failing_since = NULL, body_hash = coalesce(?4, body_hash)
         WHERE id = ?1",
    )?
    .execute(params![id, now, success.status, success.body_hash])?;
    if let Some(validators) = success.validators {
        // Compared first: a 304 that repeats its ETag need not touch the row again.
        let any = validators.etag.is_some() || validators.last_modified.is_some();
        db.prepare_cached(
            "UPDATE feeds SET etag = ?2, last_modified = ?3, validators_url = ?4
             WHERE id = ?1 AND (etag IS NOT ?2 OR last_modified IS NOT ?3 OR validators_url IS NOT ?4)",
        )?
        .execute(params![id, validators.etag, validators.last_modified, any.then_some(&validators.url)])?;
    }
    Ok(())
}

/// Books a failure. `gone`: the feed is given up.
pub fn failed(db: &Connection, id: i64, status: Option<u16>, failure: &Failure, gone: bool, now: i64) -> Result<()> {
    db.prepare_cached(
        "UPDATE feeds SET last_fetched_at = ?2, last_status = ?3, failure_kind = ?4, failure_message = ?5,
             failure_count = failure_count + 1, failing_since = coalesce(failing_since, ?2),
             state = CASE WHEN ?6 THEN 'gone' ELSE state END
         WHERE id = ?1",
    )?
    .execute(params![id, now, status, failure.kind.name(), failure.message, gone])?;
    Ok(())
}

/// Marks a row whose URL cannot be used.
pub fn invalid(db: &Connection, id: i64, failure: &Failure, now: i64) -> Result<()> {
    db.prepare_cached(
        "UPDATE feeds SET state = 'invalid', failure_kind = ?3, failure_message = ?4, failure_count = failure_count + 1,
             failing_since = coalesce(failing_since, ?2) WHERE id = ?1",
    )?
    .execute(params![id, now, failure.kind.name(), failure.message])?;
    Ok(())
}

/// Makes `mover` one with `survivor`, which holds the address: entries move over (the survivor's own copy wins), the user's
/// columns fill the survivor's empty ones, an active mover revives a paused or gone survivor, the mover becomes `merged` and
/// keeps its URL. Merging twice changes nothing.
pub fn merge(db: &Connection, mover: &StoredFeed, survivor: &StoredFeed, statuses: &str, now: i64) -> Result<()> {
    db.execute("UPDATE OR IGNORE entries SET feed_id = ?2 WHERE feed_id = ?1", [mover.id, survivor.id])?;
    db.execute("DELETE FROM entries WHERE feed_id = ?1", [mover.id])?;
    db.execute(
        "UPDATE feeds AS f SET title = coalesce(f.title, m.title), folder = coalesce(f.folder, m.folder),
             interval_seconds = coalesce(f.interval_seconds, m.interval_seconds), hub_url = coalesce(f.hub_url, m.hub_url),
             pretty_url = coalesce(f.pretty_url, m.pretty_url), site_url = coalesce(f.site_url, m.site_url),
             keep_url = max(f.keep_url, m.keep_url),
             state = CASE WHEN m.state = 'active' AND f.state IN ('paused', 'gone') THEN 'active' ELSE f.state END
         FROM feeds m WHERE f.id = ?2 AND m.id = ?1",
        [mover.id, survivor.id],
    )?;
    db.execute(
        "UPDATE feeds SET state = 'merged', merged_into = ?2, failure_kind = NULL, failure_message = NULL,
             failure_count = 0, failing_since = NULL WHERE id = ?1",
        [mover.id, survivor.id],
    )?;
    // What was merged into the mover before now stands one step nearer to the survivor.
    db.execute("UPDATE feeds SET merged_into = ?2 WHERE merged_into = ?1 AND id <> ?2", [mover.id, survivor.id])?;
    db.execute(
        "UPDATE subscriptions SET state = 'unsubscribing' WHERE feed_id = ?1 AND state IN ('pending', 'active')",
        [mover.id],
    )?;
    clear_pending(db, mover.id)?;
    history(db, mover.id, &mover.url, &survivor.url, Reason::Merged, statuses, now)
}

/// `mover` moves to the address that a row merged into it still holds: the two swap URLs.
#[allow(clippy::too_many_arguments)]
pub fn swap(
    db: &Connection,
    mover: &StoredFeed,
    merged: &StoredFeed,
    reason: Reason,
    statuses: &str,
    now: i64,
) -> Result<()> {
    let put = "UPDATE feeds SET url = ?2, url_key = ?3, rewrites = rewrites + 1, rewritten_at = ?4 WHERE id = ?1";
    // UNIQUE holds at every step, so one of them stands aside for a moment.
    db.execute(put, params![merged.id, format!("swapping {}", merged.id), Option::<String>::None, now])?;
    db.execute(put, params![mover.id, merged.url, merged.url_key, now])?;
    db.execute(put, params![merged.id, mover.url, mover.url_key, now])?;
    history(db, mover.id, &mover.url, &merged.url, reason, statuses, now)
}

/// Makes a merged feed one of its own again, and holds the address of its survivor.
pub fn unmerge(db: &Connection, feed: &StoredFeed, survivor_url: Option<&str>, now: i64) -> Result<()> {
    db.execute(
        "UPDATE feeds SET state = 'active', merged_into = NULL, etag = NULL, last_modified = NULL, validators_url = NULL,
             body_hash = NULL WHERE id = ?1",
        [feed.id],
    )?;
    if let Some(url) = survivor_url {
        hold_target(db, feed.id, url, now)?;
        history(db, feed.id, url, &feed.url, Reason::Reverted, "", now)?;
    }
    Ok(())
}

/// The feed's job is due at once.
pub fn due_now(db: &Connection, feed_id: i64) -> Result<()> {
    db.execute("UPDATE jobs SET run_at = 0 WHERE feed_id = ?1 AND kind = 'fetch'", [feed_id])?;
    Ok(())
}

/// The move this feed waits for.
pub fn pending(db: &Connection, feed_id: i64) -> Result<Option<PendingMove>> {
    Ok(db
        .prepare_cached(
            "SELECT target_url, first_seen_at, sightings, approved, had_entries FROM pending_moves WHERE feed_id = ?1",
        )?
        .query_row([feed_id], |row| {
            Ok(PendingMove {
                target: row.get::<_, Text>(0)?.0,
                first_seen_at: row.get(1)?,
                sightings: row.get(2)?,
                approved: row.get(3)?,
                had_entries: row.get(4)?,
            })
        })
        .optional()?)
}

/// Writes the move this feed waits for, in place of any other.
pub fn set_pending(db: &Connection, feed_id: i64, pending: &PendingMove, host: &str, why: &str) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO pending_moves(feed_id, target_url, first_seen_at, sightings, approved, had_entries, target_host, why)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
         ON CONFLICT (feed_id) DO UPDATE SET target_url = ?2, first_seen_at = ?3, sightings = ?4, approved = ?5,
             had_entries = ?6, target_host = ?7, why = ?8",
    )?
    .execute(params![
        feed_id,
        pending.target,
        pending.first_seen_at,
        pending.sightings,
        pending.approved,
        pending.had_entries,
        host,
        why
    ])?;
    Ok(())
}

/// The feed no longer waits for a move.
pub fn clear_pending(db: &Connection, feed_id: i64) -> Result<()> {
    db.prepare_cached("DELETE FROM pending_moves WHERE feed_id = ?1")?.execute([feed_id])?;
    Ok(())
}

/// URLs of the feeds that wait for a move to `host`, at most 100.
pub fn waiting_for_host(db: &Connection, host: &str) -> Result<Vec<String>> {
    let mut statement = db.prepare_cached(
        "SELECT f.url FROM pending_moves p JOIN feeds f ON f.id = p.feed_id WHERE p.target_host = ?1 LIMIT 100",
    )?;
    let urls = statement.query_map([host], |row| Ok(row.get::<_, Text>(0)?.0))?.collect::<rusqlite::Result<_>>()?;
    Ok(urls)
}

/// The URLs that the feed had and left since `since`.
pub fn left_since(db: &Connection, feed_id: i64, since: i64) -> Result<Vec<String>> {
    let mut statement = db.prepare_cached(
        "SELECT old_url FROM feed_urls WHERE feed_id = ?1 AND changed_at >= ?2 AND reason NOT IN ('merged', 'canonical')",
    )?;
    let urls = statement
        .query_map(params![feed_id, since], |row| Ok(row.get::<_, Text>(0)?.0))?
        .collect::<rusqlite::Result<_>>()?;
    Ok(urls)
}

/// The last rewrite by the worker that still stands: (old URL, new URL).
pub fn last_rewrite(db: &Connection, feed_id: i64, url: &str) -> Result<Option<(String, Reason)>> {
    Ok(db
        .prepare_cached(
            "SELECT old_url, reason FROM feed_urls WHERE feed_id = ?1 AND new_url = ?2
                 AND reason IN ('moved', 'canonical', 'discovered', 'reverted')
             ORDER BY changed_at DESC, id DESC LIMIT 1",
        )?
        .query_row(params![feed_id, url], |row| Ok((row.get::<_, Text>(0)?.0, row.get::<_, Text>(1)?.0)))
        .optional()?
        .and_then(|(old, reason)| Reason::from_name(&reason).map(|reason| (old, reason))))
}

/// Holds a target: the feed is not moved there again.
pub fn hold_target(db: &Connection, feed_id: i64, target: &str, now: i64) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO held_targets(feed_id, target_url, held_at) VALUES (?1, ?2, ?3)
         ON CONFLICT (feed_id, target_url) DO UPDATE SET held_at = ?3",
    )?
    .execute(params![feed_id, target, now])?;
    Ok(())
}

/// Whether the feed was taken back from this address.
pub fn is_held(db: &Connection, feed_id: i64, target: &str) -> Result<bool> {
    Ok(db
        .prepare_cached("SELECT 1 FROM held_targets WHERE feed_id = ?1 AND target_url = ?2")?
        .exists(params![feed_id, target])?)
}

/// Validators belong to the URL that issued them: after a rewrite to another they say nothing.
pub fn forget_validators(db: &Connection, feed_id: i64) -> Result<()> {
    db.prepare_cached(
        "UPDATE feeds SET etag = NULL, last_modified = NULL, validators_url = NULL, body_hash = NULL WHERE id = ?1",
    )?
    .execute([feed_id])?;
    Ok(())
}

/// The same bytes at the next poll are to be parsed all the same.
pub fn forget_body(db: &Connection, feed_id: i64) -> Result<()> {
    db.prepare_cached("UPDATE feeds SET body_hash = NULL WHERE id = ?1")?.execute([feed_id])?;
    Ok(())
}

/// One more feed that a page named: (URL, title, media type).
pub type Offered = (String, Option<String>, Option<String>);

/// Replaces what a page offered beside the chosen feed, best first.
pub fn set_discovered(db: &Connection, feed_id: i64, others: &[Offered]) -> Result<()> {
    db.prepare_cached("DELETE FROM discovered_feeds WHERE feed_id = ?1")?.execute([feed_id])?;
    let mut insert = db.prepare_cached(
        "INSERT OR IGNORE INTO discovered_feeds(feed_id, url, title, media_type, position) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for (position, (url, title, media_type)) in others.iter().enumerate() {
        insert.execute(params![feed_id, url, title, media_type, position as i64 + 1])?;
    }
    Ok(())
}

/// Rows of tables about feeds that are no longer there (INSERT OR REPLACE fires no delete trigger in the users' shell).
pub fn sweep_orphans(db: &Connection) -> Result<usize> {
    let mut swept = 0;
    for table in ["entries", "feed_urls", "pending_moves", "held_targets", "discovered_feeds", "feed_hubs"] {
        let sql = format!("DELETE FROM {table} WHERE feed_id NOT IN (SELECT id FROM feeds)");
        swept += db.execute(&sql, [])?;
    }
    swept += db.execute("DELETE FROM jobs WHERE kind = 'fetch' AND feed_id NOT IN (SELECT id FROM feeds)", [])?;
    swept += db.execute(
        "UPDATE subscriptions SET feed_id = NULL, state = CASE WHEN state IN ('pending', 'active') THEN 'unsubscribing'
             ELSE state END WHERE feed_id IS NOT NULL AND feed_id NOT IN (SELECT id FROM feeds)",
        [],
    )?;
    Ok(swept)
}
