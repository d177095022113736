//! What an outcome does to the database, inside the caller's transaction and savepoint: wholly or not at all.
//!
//! The decisions are `rules`'; here they are fed from the store and written back. Called by the loop in `worker`.

use super::perform::settled;
use crate::error::Result;
use crate::feed::Feed;
use crate::rules::canonical::{self, canonical, strict_key};
use crate::rules::failure::{Failure, FailureKind};
use crate::rules::moved::{self, Facts, Reason, Verdict};
use crate::rules::{identity, lease, schedule};
use crate::store::entries::{self, Written};
use crate::store::feeds::{self, StoredFeed, Success};
use crate::store::jobs::{self, Claim};
use crate::store::log::{self as fetch_log, Fetched};
use crate::store::requests;
use crate::store::settings::Settings;
use crate::task::{Content, FetchOutcome, Page, Reading};
use rusqlite::Connection;
use url::Url;

/// A job is tried again so many seconds after a fault of our own machine.
const LOCAL_FAULT_WAIT: i64 = 60;
/// A host that says 429 without Retry-After is left alone for so many seconds.
const UNNAMED_HOLD: i64 = 900;
/// A feed that has failed for so many seconds may be looked for again on the page that answers in its place.
pub const REDISCOVERY_SPAN: i64 = 7 * 86400;

/// What applying needs to know beside the outcome.
pub struct Context<'a> {
    pub db: &'a Connection,
    pub worker: &'a str,
    pub settings: &'a Settings,
    pub now: i64,
}

/// Where the entries of a good answer go, and what became of the URL.
struct Placed {
    /// The row that goes on: the feed, or the survivor of a merge.
    feed_id: i64,
    outcome: Option<&'static str>,
    message: Option<String>,
}

impl Context<'_> {
    /// Books the outcome of a fetch. What came too late, or for a URL that the user changed meanwhile, is dropped and the job
    /// runs again.
    pub fn fetched(&self, claim: &Claim, outcome: &FetchOutcome) -> Result<()> {
        if !jobs::holds(self.db, claim, self.worker)? {
            ::log::debug!("feed {}: the claim was lost, the result is dropped", outcome.feed_id);
            return Ok(());
        }
        let Some(feed) = feeds::by_id(self.db, outcome.feed_id)? else {
            jobs::complete(self.db, claim, self.worker)?;
            return Ok(());
        };
        if feed.url != outcome.url {
            ::log::debug!("feed {}: its URL was changed during the fetch, the result is dropped", feed.id);
            jobs::finish(self.db, claim, self.worker, 0, None)?;
            return Ok(());
        }
        if let Some((old, reading)) = &outcome.regret
            && let Ok(content) = &reading.result
            && self.regret(&feed, old, outcome, content)?
        {
            let reverted = StoredFeed { url: old.clone(), ..feed };
            let placed =
                Placed { feed_id: reverted.id, outcome: Some("moved"), message: Some(format!("back to {old}")) };
            return self.succeeded(claim, &reverted, outcome, reading, content, placed);
        }
        match &outcome.reading.result {
            Ok(content) => {
                let placed = self.place(&feed, &outcome.reading, outcome.page.as_ref(), content)?;
                self.succeeded(claim, &feed, outcome, &outcome.reading, content, placed)
            }
            Err(failure) if failure.local => {
                ::log::warn!("feed {}: a fault of this machine, tried again in a minute: {}", feed.id, failure.message);
                jobs::finish(self.db, claim, self.worker, self.now + LOCAL_FAULT_WAIT, Some(&failure.message))?;
                Ok(())
            }
            Err(failure) => self.failed(claim, &feed, outcome, failure),
        }
    }

    fn run(&self, claim: &Claim, feed: &StoredFeed) -> schedule::Run {
        schedule::Run {
            feed_id: feed.id,
            attempts: claim.attempts,
            interval_seconds: feed.interval_seconds,
            now: self.now,
        }
    }

    fn bounds(&self) -> schedule::Bounds {
        schedule::Bounds { min_interval: self.settings.min_interval_s, max_interval: self.settings.max_interval_s }
    }

    /// Decides where `feeds.url` goes, and puts it there.
    fn place(&self, feed: &StoredFeed, reading: &Reading, page: Option<&Page>, content: &Content) -> Result<Placed> {
        let stays = Placed { feed_id: feed.id, outcome: None, message: None };
        // A URL that cannot be read was marked invalid when it was claimed.
        let Ok(stored) = Url::parse(&feed.url).or_else(|_| canonical(&feed.url).map(|canonical| canonical.url)) else {
            return Ok(stays);
        };
        let document = match content {
            Content::Feed { feed, .. } => Some(feed),
            _ => None,
        };
        if let Some(placed) = self.same_by_feedburner(feed, reading, document)? {
            return Ok(placed);
        }
        let Some((target, reason)) = target(feed, &stored, reading, page) else {
            feeds::clear_pending(self.db, feed.id)?;
            return Ok(stays);
        };
        let pending = feeds::pending(self.db, feed.id)?;
        let seen_at = pending.as_ref().filter(|p| p.target == target.as_str()).map(|p| p.first_seen_at);
        let known = entries::known(self.db, feed.id, seen_at.unwrap_or(i64::MAX))?;
        let waiting: Vec<String> = feeds::waiting_for_host(self.db, &moved::host(&target))?
            .iter()
            .filter_map(|url| Url::parse(url).ok())
            .map(|url| moved::host(&url))
            .collect();
        let facts = Facts {
            stored: &stored,
            target: &target,
            reason,
            keep_url: feed.keep_url,
            held: feeds::is_held(self.db, feed.id, target.as_str())?,
            left: &feeds::left_since(self.db, feed.id, self.now - moved::FLAPPING_SPAN)?,
            not_modified: matches!(content, Content::NotModified { .. }),
            has_entries: entries::any(self.db, feed.id)?,
            shares_entry: document.is_some_and(|document| identity::shares_entry(&document.entries, &known)),
            pending: pending.as_ref(),
            waiting_hosts: &waiting,
            now: self.now,
        };
        match moved::verdict(&facts) {
            Verdict::Rewrite => self.rewrite(feed, &target, reason, reading, page, document),
            Verdict::Wait(pending, why) => {
                feeds::set_pending(self.db, feed.id, &pending, &moved::host(&target), &why)?;
                if pending.sightings == 1 {
                    ::log::info!("feed {}: redirected to {target}, not believed yet: {why}", feed.id);
                }
                Ok(Placed { message: Some(format!("redirected to {target}, waiting: {why}")), ..stays })
            }
            Verdict::Stay(why) => {
                feeds::clear_pending(self.db, feed.id)?;
                Ok(Placed { message: Some(format!("not moved to {target}: {why}")), ..stays })
            }
        }
    }

    /// FeedBurner names a feed in the feed itself: where another row has that name already and the two share an entry, they
    /// are one. The name alone would let any feed pose as any other.
    fn same_by_feedburner(
        &self,
        feed: &StoredFeed,
        reading: &Reading,
        document: Option<&Feed>,
    ) -> Result<Option<Placed>> {
        let Some((document, uri)) = document.and_then(|d| Some((d, d.feedburner_uri.as_deref()?))) else {
            return Ok(None);
        };
        let Some(name) = canonical::feedburner_url(uri, "https") else { return Ok(None) };
        let key = strict_key(&name);
        if feed.url_key.as_deref() == Some(&key) || feed.keep_url {
            return Ok(None);
        }
        match feeds::holder(self.db, &key, name.as_str(), feed.id)? {
            // The user took the feed back from there.
            Some(holder) if feeds::is_held(self.db, feed.id, &holder.url)? => Ok(None),
            Some(holder) if holder.state != "merged" => {
                let known = entries::known(self.db, holder.id, i64::MAX)?;
                if !identity::shares_entry(&document.entries, &known) {
                    return Ok(None);
                }
                self.merge(feed, &holder, reading).map(Some)
            }
            Some(_) => Ok(None),
            None => {
                // Under this name it is found when the other address comes; then the same proof is asked for.
                if canonical(&feed.url).is_ok_and(|canonical| strict_key(&canonical.url) == key) {
                    return Ok(None);
                }
                feeds::set_key(self.db, feed.id, &key)?;
                Ok(None)
            }
        }
    }

    fn rewrite(
        &self,
        feed: &StoredFeed,
        target: &Url,
        reason: Reason,
        reading: &Reading,
        page: Option<&Page>,
        document: Option<&Feed>,
    ) -> Result<Placed> {
        let key = strict_key(target);
        let statuses = moved::statuses(&reading.hops);
        if let Some(holder) = feeds::holder(self.db, &key, target.as_str(), feed.id)? {
            if holder.state == "merged" {
                feeds::swap(self.db, feed, &holder, reason, &statuses, self.now)?;
                ::log::info!(
                    "feed {}: {} -> {target} ({}), taken from feed {}",
                    feed.id,
                    feed.url,
                    reason.name(),
                    holder.id
                );
                return self.moved(feed, target, reason, page);
            }
            let sure = canonical(&holder.url).is_ok_and(|canonical| strict_key(&canonical.url) == key);
            let proven = || -> Result<bool> {
                let known = entries::known(self.db, holder.id, i64::MAX)?;
                Ok(document.is_some_and(|document| identity::shares_entry(&document.entries, &known)))
            };
            if sure || proven()? {
                return self.merge(feed, &holder, reading);
            }
        }
        feeds::rewrite(self.db, feed, target.as_str(), &key, reason, &statuses, self.now)?;
        ::log::info!("feed {}: {} -> {target} ({})", feed.id, feed.url, reason.name());
        self.moved(feed, target, reason, page)
    }

    /// What goes with a rewrite.
    fn moved(&self, feed: &StoredFeed, target: &Url, reason: Reason, page: Option<&Page>) -> Result<Placed> {
        feeds::clear_pending(self.db, feed.id)?;
        if let Some(page) = page {
            feeds::describe(self.db, feed.id, None, Some(page.url.as_str()), None)?;
            let others: Vec<feeds::Offered> = page
                .others
                .iter()
                .filter(|other| other.url != target.as_str())
                .map(|other| (other.url.clone(), other.title.clone(), other.media_type.clone()))
                .collect();
            feeds::set_discovered(self.db, feed.id, &others)?;
        }
        let outcome = match reason {
            Reason::Discovered => "discovered",
            _ => "moved",
        };
        Ok(Placed { feed_id: feed.id, outcome: Some(outcome), message: Some(format!("{} -> {target}", feed.url)) })
    }

    fn merge(&self, feed: &StoredFeed, holder: &StoredFeed, reading: &Reading) -> Result<Placed> {
        feeds::merge(self.db, feed, holder, &moved::statuses(&reading.hops), self.now)?;
        ::log::info!("feed {}: {} is feed {} ({}), merged", feed.id, feed.url, holder.id, holder.url);
        Ok(Placed {
            feed_id: holder.id,
            outcome: Some("merged"),
            message: Some(format!("the same feed as {}: {}", holder.id, holder.url)),
        })
    }

    /// Goes back to the address that the feed left lately; answers whether that was right.
    fn regret(&self, feed: &StoredFeed, old: &str, outcome: &FetchOutcome, content: &Content) -> Result<bool> {
        let Ok(old_url) = Url::parse(old) else { return Ok(false) };
        let key = strict_key(&old_url);
        // Somebody subscribed to the old address again: that row reads it.
        let taken = feeds::holder(self.db, &key, old, feed.id)?.is_some_and(|holder| holder.url == old);
        if feed.keep_url || taken {
            return Ok(false);
        }
        if let Content::Feed { feed: document, .. } = content
            && entries::any(self.db, feed.id)?
            && !identity::shares_entry(&document.entries, &entries::known(self.db, feed.id, i64::MAX)?)
        {
            return Ok(false);
        }
        let statuses = moved::statuses(&outcome.reading.hops);
        if !feeds::rewrite(self.db, feed, old, &key, Reason::Reverted, &statuses, self.now)? {
            return Ok(false);
        }
        feeds::hold_target(self.db, feed.id, &feed.url, self.now)?;
        ::log::info!("feed {}: {} failed, back to {old} (reverted)", feed.id, feed.url);
        Ok(true)
    }

    /// Entries, validators, the next time and the log of a good answer.
    fn succeeded(
        &self,
        claim: &Claim,
        feed: &StoredFeed,
        outcome: &FetchOutcome,
        reading: &Reading,
        content: &Content,
        placed: Placed,
    ) -> Result<()> {
        let merged = placed.feed_id != feed.id;
        let mut written = Written::default();
        let (validators, body_hash) = match content {
            Content::Feed { feed: document, body_hash, validators } => {
                written = entries::upsert(self.db, placed.feed_id, &document.entries, "fetch", self.now)?;
                let pretty = pretty(&feed.url, reading);
                let site = document.site_url.as_deref();
                feeds::describe(self.db, placed.feed_id, document.title.as_deref(), site, pretty.as_deref())?;
                (validators, Some(*body_hash))
            }
            Content::SameBytes { validators } | Content::NotModified { validators } => (validators, None),
        };
        self.subscribe(feed, placed.feed_id, reading, content, written.new)?;
        if !merged {
            let success = Success { status: reading.last_status(), validators: Some(validators), body_hash };
            feeds::succeeded(self.db, feed.id, &success, self.now)?;
        }
        let next = schedule::after_success(&self.run(claim, feed), &self.bounds());
        let next = next.max(self.pushed_until(feed, claim)?);
        // The job of a merged feed went with its state.
        jobs::finish(self.db, claim, self.worker, next, None)?;
        let changed = written.new + written.changed > 0;
        let named = placed.outcome.unwrap_or(if changed { "new" } else { "unchanged" });
        if written.new > 0 {
            ::log::info!("feed {}: {} new entries", placed.feed_id, written.new);
        }
        self.log(feed, outcome, reading, named, written.new, placed.message.as_deref())
    }

    /// What a good poll says of push: the hubs that the feed names, and whether one of them kept silent about something new.
    fn subscribe(
        &self,
        feed: &StoredFeed,
        placed_id: i64,
        reading: &Reading,
        content: &Content,
        new_entries: usize,
    ) -> Result<()> {
        let push = self.settings.callback_url.is_some();
        match content {
            Content::Feed { feed: document, .. } => {
                if push && new_entries > 0 {
                    requests::missed(self.db, placed_id, feed.last_success_at, self.now)?;
                }
                if push || !document.links.hubs.is_empty() {
                    let fetched = reading.hops.last().map_or(feed.url.as_str(), |hop| hop.url.as_str());
                    let named = requests::Named {
                        hubs: &document.links.hubs,
                        topic: document.links.self_url.as_deref(),
                        fetched_url: fetched,
                    };
                    requests::discovered(self.db, placed_id, &named, true, self.now)?;
                }
            }
            Content::SameBytes { .. } | Content::NotModified { .. } if push => {
                requests::look_after(self.db, placed_id, self.now)?;
            }
            Content::SameBytes { .. } | Content::NotModified { .. } => {}
        }
        Ok(())
    }

    /// The earliest time of the next poll that push allows: a feed whose hub works is polled daily, unless the user set an
    /// interval.
    fn pushed_until(&self, feed: &StoredFeed, claim: &Claim) -> Result<i64> {
        if self.settings.callback_url.is_none() || feed.interval_seconds.is_some() {
            return Ok(0);
        }
        let health = requests::health(self.db, feed.id)?;
        let pushed = health.and_then(|health| lease::pushed_poll(&health, self.now));
        Ok(pushed.map_or(0, |seconds| self.now + seconds + schedule::spread(&self.run(claim, feed), seconds / 10)))
    }

    /// The failure columns, the next try, the hold of a host that asked for one, and the log.
    fn failed(&self, claim: &Claim, feed: &StoredFeed, outcome: &FetchOutcome, failure: &Failure) -> Result<()> {
        let reading = &outcome.reading;
        let gone = failure.kind == FailureKind::Gone
            && schedule::gone_confirmed(feed.failure_kind.as_deref(), feed.failing_since, self.now);
        feeds::failed(self.db, feed.id, reading.last_status(), failure, gone, self.now)?;
        let run = self.run(claim, feed);
        let mut next =
            schedule::after_failure(&run, &self.bounds(), failure.kind, feed.failure_count.saturating_add(1));
        let headers = &reading.headers;
        let asked = schedule::retry_after(headers.retry_after.as_deref(), headers.date.as_deref(), self.now);
        if failure.kind == FailureKind::RateLimited {
            let wait = asked.unwrap_or(UNNAMED_HOLD);
            next = next.max(self.now + wait + schedule::spread(&run, wait / 10));
            // The redirects may have led elsewhere: it is the host that answered which wants rest.
            if let (false, Some(hop)) = (reading.private, reading.hops.last()) {
                let host = moved::host(&hop.url);
                fetch_log::hold_host(self.db, &host, self.now + wait, &failure.message)?;
                ::log::info!("{host} is left alone for {wait} s: {}", failure.message);
            }
        } else if let Some(wait) = asked.filter(|_| failure.kind == FailureKind::ServerError) {
            next = next.max(self.now + wait);
        }
        jobs::finish(self.db, claim, self.worker, next, Some(&failure.message))?;
        match (gone, feed.failure_count) {
            (true, _) => ::log::info!("feed {}: gone (410 twice); set state = 'active' to try again", feed.id),
            (false, 0) => ::log::info!("feed {}: {}: {}", feed.id, failure.kind, failure.message),
            (false, _) => ::log::debug!("feed {}: {}: {}", feed.id, failure.kind, failure.message),
        }
        self.log(feed, outcome, reading, "failed", 0, Some(&failure.message))
    }

    /// The row of this fetch in the log.
    fn log(
        &self,
        feed: &StoredFeed,
        outcome: &FetchOutcome,
        reading: &Reading,
        named: &'static str,
        new_entries: usize,
        message: Option<&str>,
    ) -> Result<()> {
        let last_url = reading.hops.last().map(|hop| hop.url.as_str());
        let fetched = Fetched {
            feed_id: feed.id,
            at: self.now,
            status: reading.last_status(),
            statuses: &moved::statuses(&reading.hops),
            final_url: last_url.filter(|url| *url != feed.url),
            bytes: outcome.wire_bytes,
            duration_ms: outcome.duration.as_millis() as u64,
            outcome: named,
            new_entries,
            message,
        };
        fetch_log::fetched(self.db, &fetched)
    }
}

/// Where the stored URL should go: where the page's feed is, where permanent redirects lead, or the spelling that was read.
fn target(feed: &StoredFeed, stored: &Url, reading: &Reading, page: Option<&Page>) -> Option<(Url, Reason)> {
    let permanent = moved::permanent_target(&reading.hops);
    let (target, reason) = match (page, permanent) {
        (Some(_), _) => (settled(permanent.unwrap_or(&reading.start)), Reason::Discovered),
        (None, Some(target)) => (settled(&moved::with_own_credentials(stored, target)), Reason::Moved),
        (None, None) => (reading.start.clone(), Reason::Canonical),
    };
    (target.as_str() != feed.url).then_some((target, reason))
}

/// The publisher's spelling, where what is stored is FeedBurner's canonical form of it.
fn pretty(given: &str, reading: &Reading) -> Option<String> {
    let moved_to = moved::permanent_target(&reading.hops).map(Url::as_str);
    canonical(moved_to.unwrap_or(given))
        .ok()
        .filter(|canonical| moved_to.is_some() || canonical.url == reading.start)?
        .pretty
}
