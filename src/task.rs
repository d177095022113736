//! What goes to a pool thread and what comes back: plain data, no handles, no references to the database.

use crate::feed::Feed;
use crate::feed::discover::Candidate;
use crate::fetch::{Freshness, Limits, Validators};
use crate::rules::canonical::Canonical;
use crate::rules::failure::Failure;
use crate::rules::moved::Hop;
use crate::store::jobs::Claim;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// A claimed job with all that is needed to do it.
#[derive(Debug)]
pub struct Task {
    pub claim: Claim,
    /// Host (with port) of the first request: what `host_concurrency` counts by.
    pub host: String,
    pub work: Work,
}

/// What is to be done.
#[derive(Debug)]
pub enum Work {
    Fetch(Box<FetchTask>),
}

/// Fetch one feed.
#[derive(Debug)]
pub struct FetchTask {
    pub feed_id: i64,
    /// `feeds.url` when the job was claimed: what the outcome is guarded by.
    pub url: String,
    /// `url`, parsed.
    pub start: Url,
    /// The feed never came from this URL yet: its spellings are tried.
    pub spellings: Option<Canonical>,
    pub validators: Option<Validators>,
    /// Hash of the document that was parsed last.
    pub body_hash: Option<i64>,
    /// An HTML page may be looked through for the feeds it names.
    pub may_discover: bool,
    /// `keep_url` is set: a page is read through to its feed each time.
    pub keep_url: bool,
    /// The address that the feed left lately: tried when the new one fails.
    pub regret: Option<String>,
    pub limits: Arc<FetchLimits>,
}

/// Bounds that all fetches share.
#[derive(Debug, PartialEq, Eq)]
pub struct FetchLimits {
    pub http: Limits,
    pub max_items: usize,
}

/// What came of a task.
#[derive(Debug)]
pub struct Outcome {
    pub claim: Claim,
    pub host: String,
    pub result: Done,
}

#[derive(Debug)]
pub enum Done {
    Fetch(Box<FetchOutcome>),
}

/// What came of fetching one feed.
#[derive(Debug)]
pub struct FetchOutcome {
    pub feed_id: i64,
    /// `feeds.url` when the job was claimed.
    pub url: String,
    /// How the reading that counts went: the one that gave the feed, else the first.
    pub reading: Reading,
    /// The page that named the feed, where it was found by discovery.
    pub page: Option<Page>,
    /// The new address failed and the one before gives a feed again.
    pub regret: Option<(String, Reading)>,
    /// Everything together.
    pub wire_bytes: u64,
    pub duration: Duration,
}

/// One chain and what its document was.
#[derive(Debug)]
pub struct Reading {
    /// What was asked for first.
    pub start: Url,
    pub hops: Vec<Hop>,
    pub headers: Freshness,
    /// The first hop reached a private address.
    pub private: bool,
    pub result: Result<Content, Failure>,
}

impl Reading {
    /// The status of the last response, if any came.
    pub fn last_status(&self) -> Option<u16> {
        self.hops.last().map(|hop| hop.status)
    }
}

/// What a good answer held.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // almost always the large one
pub enum Content {
    Feed {
        feed: Feed,
        body_hash: i64,
        validators: Validators,
    },
    /// 200 with the very bytes that were parsed last time.
    SameBytes {
        validators: Validators,
    },
    /// 304 to validators that this URL issued.
    NotModified {
        validators: Validators,
    },
}

/// A page that named feeds.
#[derive(Debug)]
pub struct Page {
    /// Where it is for good.
    pub url: Url,
    /// The feeds that were not chosen, best first.
    pub others: Vec<Candidate>,
}
