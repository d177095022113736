//! Entries and their enclosures: what is new or changed is written, and nothing else.

use super::text::Text;
use crate::error::Result;
use crate::feed::Entry;
use crate::rules::identity::{self, Keyed, Known};
use rusqlite::{Connection, OptionalExtension, params};

/// What an upsert did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    pub new: usize,
    pub changed: usize,
}

/// Stores the entries of a document under `feed_id`.
///
/// A row is found by its guid, or by the same guid with http and https exchanged. Dates in the future are cut to `now`.
/// Nothing is ever deleted: what a document no longer holds stays.
pub fn upsert(db: &Connection, feed_id: i64, entries: &[Entry], arrived_by: &str, now: i64) -> Result<Written> {
    let mut written = Written::default();
    let mut find = db.prepare_cached("SELECT id, fingerprint FROM entries WHERE feed_id = ?1 AND guid = ?2")?;
    let find_one = |find: &mut rusqlite::CachedStatement<'_>, guid: &str| {
        find.query_row(params![feed_id, guid], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))).optional()
    };
    for Keyed { guid, fingerprint, entry } in identity::keyed(entries) {
        let mut found = find_one(&mut find, &guid)?;
        if found.is_none()
            && let Some(other) = identity::other_scheme(&guid)
        {
            found = find_one(&mut find, &other)?;
        }
        match found {
            Some((_, known)) if known == fingerprint => {}
            Some((id, _)) => {
                update(db, id, entry, fingerprint, now)?;
                written.changed += 1;
            }
            None => {
                insert(db, feed_id, &guid, entry, fingerprint, arrived_by, now)?;
                written.new += 1;
            }
        }
    }
    Ok(written)
}

fn insert(
    db: &Connection,
    feed_id: i64,
    guid: &str,
    entry: &Entry,
    fingerprint: i64,
    arrived_by: &str,
    now: i64,
) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO entries(feed_id, guid, fingerprint, first_seen_at, changed_at, published_at, updated_at, arrived_by,
             url, title, author, summary, content) VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?
    .execute(params![
        feed_id,
        guid,
        fingerprint,
        now,
        entry.published_at.map(|at| at.min(now)),
        entry.updated_at.map(|at| at.min(now)),
        arrived_by,
        entry.url,
        entry.title,
        entry.author,
        entry.summary,
        entry.content
    ])?;
    enclosures(db, db.last_insert_rowid(), entry)
}

fn update(db: &Connection, id: i64, entry: &Entry, fingerprint: i64, now: i64) -> Result<()> {
    db.prepare_cached(
        "UPDATE entries SET fingerprint = ?2, changed_at = ?3, published_at = ?4, updated_at = ?5, url = ?6, title = ?7,
             author = ?8, summary = ?9, content = ?10 WHERE id = ?1",
    )?
    .execute(params![
        id,
        fingerprint,
        now,
        entry.published_at.map(|at| at.min(now)),
        entry.updated_at.map(|at| at.min(now)),
        entry.url,
        entry.title,
        entry.author,
        entry.summary,
        entry.content
    ])?;
    db.prepare_cached("DELETE FROM enclosures WHERE entry_id = ?1")?.execute([id])?;
    enclosures(db, id, entry)
}

fn enclosures(db: &Connection, entry_id: i64, entry: &Entry) -> Result<()> {
    if entry.enclosures.is_empty() {
        return Ok(());
    }
    let mut insert = db.prepare_cached(
        "INSERT OR IGNORE INTO enclosures(entry_id, url, media_type, length) VALUES (?1, ?2, ?3, ?4)",
    )?;
    for enclosure in &entry.enclosures {
        insert.execute(params![entry_id, enclosure.url, enclosure.media_type, enclosure.length])?;
    }
    Ok(())
}

/// Whether anything is stored for the feed.
pub fn any(db: &Connection, feed_id: i64) -> Result<bool> {
    Ok(db.prepare_cached("SELECT 1 FROM entries WHERE feed_id = ?1 LIMIT 1")?.exists([feed_id])?)
}

/// What identifies the stored entries of a feed, the newest 2,000 of those first seen before `before`: for the proof of a move.
pub fn known(db: &Connection, feed_id: i64, before: i64) -> Result<Vec<Known>> {
    let mut statement = db.prepare_cached(
        "SELECT guid, url, title, published_at FROM entries WHERE feed_id = ?1 AND first_seen_at < ?2
         ORDER BY id DESC LIMIT 2000",
    )?;
    let rows = statement.query_map(params![feed_id, before], |row| {
        let optional = |i: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<Text>>(i)?.map(|text| text.0));
        let guid = row.get::<_, Text>(0)?.0;
        Ok(Known { guid, url: optional(1)?, title: optional(2)?, published_at: row.get(3)? })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
