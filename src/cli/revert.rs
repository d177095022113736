//! `feedmill revert FEED_ID`: undoes the last rewrite of a feed's URL, and holds it.

use super::output::Output;
use crate::clock::Clock;
use crate::error::{EXIT_OK, Error, Result};
use crate::rules::canonical::{canonical, strict_key};
use crate::rules::moved::Reason;
use crate::store::transaction::immediate;
use crate::store::{feeds, open};
use std::io::Write;
use std::path::Path;

/// Goes back to the URL before the last rewrite; a merged feed becomes one of its own again (its old entries stay with the
/// survivor). The address it came from is held: the feed is not moved there again.
pub fn run(database: &Path, feed_id: i64, out: &mut Output<impl Write>) -> Result<u8> {
    let db = open::open(database)?;
    let now = Clock::System.now();
    let line = immediate(&db, |db| {
        let feed = feeds::by_id(db, feed_id)?
            .ok_or_else(|| Error::Failed(format!("there is no feed {feed_id}; see SELECT id, url FROM feeds")))?;
        if feed.state == "merged" {
            let survivor = feed.merged_into.map(|id| feeds::by_id(db, id)).transpose()?.flatten();
            feeds::unmerge(db, &feed, survivor.as_ref().map(|survivor| survivor.url.as_str()), now)?;
            return Ok(format!("feed {feed_id} is a feed of its own again: {}", feed.url));
        }
        let Some((old, _)) = feeds::last_rewrite(db, feed_id, &feed.url)? else {
            return Err(Error::Failed(format!("feed {feed_id} was not rewritten to {}; nothing to undo", feed.url)));
        };
        let key = canonical(&old).map(|canonical| strict_key(&canonical.url)).unwrap_or_default();
        if feeds::holder(db, &key, &old, feed_id)?.is_some_and(|holder| holder.url == old) {
            return Err(Error::Failed(format!("another feed has the URL {old} now; delete one of the two first")));
        }
        feeds::rewrite(db, &feed, &old, &key, Reason::Reverted, "", now)?;
        feeds::hold_target(db, feed_id, &feed.url, now)?;
        feeds::due_now(db, feed_id)?;
        Ok(format!("feed {feed_id}: {} -> {old}; not moved there again while held_targets says so", feed.url))
    })?;
    out.line(&line)?;
    Ok(EXIT_OK)
}
