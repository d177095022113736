//! When `feeds.url` changes: where a chain of redirects leads for good, and whether that is believed.
//!
//! Never sees the network or the database: it is given the chain and what is known of the feed. Called by `worker` when an
//! outcome is applied, and by `trace`.

use crate::rules::canonical;
use url::Url;

/// Sightings of one target before it is believed without other proof ...
pub const SIGHTINGS: i64 = 3;
/// ... and the time they must span, in seconds.
pub const SIGHTINGS_SPAN: i64 = 24 * 3600;
/// A URL left less than this many seconds ago is not returned to.
pub const FLAPPING_SPAN: i64 = 30 * 86400;
/// A rewrite is regretted when the new address fails within this many seconds.
pub const REGRET_SPAN: i64 = 7 * 86400;
/// Feeds of so many different hosts that wait for one new host are a portal or a parked domain, not moves.
pub const PORTAL_HOSTS: usize = 3;

/// One response of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// What was asked for, without credentials and fragment.
    pub url: Url,
    pub status: u16,
    /// For a redirect that can be followed: the target, resolved against `url` (WHATWG), without credentials.
    pub location: Option<Url>,
}

/// Where the unbroken run of permanent redirects (301, 308) from the first response on leads; `None` when the first response
/// is none. What follows the run does not matter here.
pub fn permanent_target(hops: &[Hop]) -> Option<&Url> {
    hops.iter().take_while(|hop| matches!(hop.status, 301 | 308)).map_while(|hop| hop.location.as_ref()).last()
}

/// The statuses of a chain as they stand in `feed_urls` and `fetches`: `301,301,302,200`.
pub fn statuses(hops: &[Hop]) -> String {
    hops.iter().map(|hop| hop.status.to_string()).collect::<Vec<_>>().join(",")
}

/// Why a URL changed, as in `feed_urls.reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Canonical,
    Discovered,
    Moved,
    Merged,
    Reverted,
    Edited,
}

impl Reason {
    const ALL: [Reason; 6] =
        [Reason::Canonical, Reason::Discovered, Reason::Moved, Reason::Merged, Reason::Reverted, Reason::Edited];

    /// The name in `feed_urls.reason`.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Canonical => "canonical",
            Reason::Discovered => "discovered",
            Reason::Moved => "moved",
            Reason::Merged => "merged",
            Reason::Reverted => "reverted",
            Reason::Edited => "edited",
        }
    }

    /// The reason with this name.
    pub fn from_name(name: &str) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

/// A row of `pending_moves`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingMove {
    pub target: String,
    pub first_seen_at: i64,
    pub sightings: i64,
    /// The user accepts it.
    pub approved: bool,
    /// Something was stored for the feed before the first sighting.
    pub had_entries: bool,
}

/// What is known when a chain that ended well has a target other than the stored URL.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// The stored URL, parsed.
    pub stored: &'a Url,
    pub target: &'a Url,
    pub reason: Reason,
    pub keep_url: bool,
    /// The user or the worker took the feed back from this target.
    pub held: bool,
    /// URLs that the feed left within [`FLAPPING_SPAN`].
    pub left: &'a [String],
    /// The chain ended in 304 to validators which its last URL issued: that document was parsed once.
    pub not_modified: bool,
    /// Entries are stored for the feed.
    pub has_entries: bool,
    /// The document shares an entry (guid, link, or title and date) with what was stored before the redirect was first seen.
    pub shares_entry: bool,
    pub pending: Option<&'a PendingMove>,
    /// Hosts (with port) of the feeds that wait for the target's host.
    pub waiting_hosts: &'a [String],
    pub now: i64,
}

/// What to do about a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The stored URL becomes the target.
    Rewrite,
    /// Not yet: this is to be written to `pending_moves`, with the reason for people.
    Wait(PendingMove, String),
    /// Never, as things are; the redirect is followed and nothing is stored.
    Stay(&'static str),
}

/// The rules of rewriting. The caller has made sure that the chain ended in a feed, or in the 304 of `not_modified`.
pub fn verdict(facts: &Facts<'_>) -> Verdict {
    let (stored, target) = (facts.stored, facts.target);
    let same_address = canonical::key(stored) == canonical::key(target);
    if facts.keep_url {
        return Verdict::Stay("keep_url is set");
    }
    if facts.held {
        return Verdict::Stay("the feed was taken back from there");
    }
    // Another spelling was tried by us, not announced by a server; a URL without a scheme has none to lose.
    if facts.reason == Reason::Canonical {
        return Verdict::Rewrite;
    }
    if !matches!(target.scheme(), "http" | "https") {
        return Verdict::Stay("the target is not http or https");
    }
    if stored.scheme() == "https" && target.scheme() == "http" {
        return Verdict::Stay("https is not given up for http");
    }
    // A change of scheme or spelling alone is no way back.
    if !same_address && facts.left.iter().filter_map(|url| Url::parse(url).ok()).any(|url| same_key(&url, target)) {
        return Verdict::Stay("the feed left that address less than 30 days ago");
    }

    let seen = facts.pending.filter(|pending| pending.target == target.as_str());
    let had_entries = seen.map_or(facts.has_entries, |pending| pending.had_entries);
    let https_of_itself = stored.scheme() == "http" && target.scheme() == "https" && same_address;
    let proven = !had_entries || facts.shares_entry || https_of_itself || facts.not_modified;
    if proven || seen.is_some_and(|pending| pending.approved) {
        return Verdict::Rewrite;
    }

    let pending = match seen {
        Some(pending) => PendingMove { sightings: pending.sightings.saturating_add(1), ..pending.clone() },
        None => PendingMove {
            target: target.to_string(),
            first_seen_at: facts.now,
            sightings: 1,
            approved: false,
            had_entries,
        },
    };
    if portal(facts) {
        let why = format!(
            "feeds of several hosts are redirected to {}; a portal or parked domain? Set approved = 1 if it is right",
            host(target)
        );
        return Verdict::Wait(pending, why);
    }
    if pending.sightings >= SIGHTINGS && facts.now.saturating_sub(pending.first_seen_at) >= SIGHTINGS_SPAN {
        return Verdict::Rewrite;
    }
    let why = format!(
        "no entry in common with what is stored; believed after {SIGHTINGS} sightings over {} hours (now {}), or set approved = 1",
        SIGHTINGS_SPAN / 3600,
        pending.sightings
    );
    Verdict::Wait(pending, why)
}

/// Whether feeds of [`PORTAL_HOSTS`] different hosts, this one among them, wait for the target's host.
fn portal(facts: &Facts<'_>) -> bool {
    let new_host = host(facts.target);
    let own = host(facts.stored);
    let mut hosts: Vec<&str> = facts.waiting_hosts.iter().map(String::as_str).chain([own.as_str()]).collect();
    hosts.retain(|host| *host != new_host);
    hosts.sort_unstable();
    hosts.dedup();
    hosts.len() >= PORTAL_HOSTS
}

fn same_key(one: &Url, other: &Url) -> bool {
    canonical::key(one) == canonical::key(other)
}

/// Host and, where it is not the scheme's own, port: the unit of politeness and of `hosts`.
pub fn host(url: &Url) -> String {
    match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_string(),
        (None, _) => String::new(),
    }
}

/// The target as it is stored: without credentials, except that those of the stored URL stay where the host stays.
pub fn with_own_credentials(stored: &Url, target: &Url) -> Url {
    let mut kept = canonical::without_credentials(target);
    let same_host = stored.host() == target.host() && stored.port() == target.port();
    if same_host && !(stored.scheme() == "https" && target.scheme() == "http") {
        // Both fail only for URLs without a host, which http and https URLs have.
        let _ = kept.set_username(stored.username());
        let _ = kept.set_password(stored.password());
    }
    kept
}
