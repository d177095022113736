//! What goes to a pool thread and what comes back: plain data, no handles, no references to the database.

use crate::feed::Feed;
use crate::feed::discover::Candidate;
use crate::fetch::{Freshness, Limits, Validators};
use crate::push::answer;
use crate::push::request::Ask;
use crate::rules::canonical::Canonical;
use crate::rules::failure::Failure;
use crate::rules::moved::Hop;
use crate::store::deliveries::Delivery;
use crate::store::jobs::Claim;
use crate::store::requests::Ticket;
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
    /// Ask a hub.
    Ask(Box<AskTask>),
    /// Read what a hub delivered.
    Ingest(Box<IngestTask>),
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
    /// It was a request to a hub.
    pub asks: bool,
    pub result: Done,
}

#[derive(Debug)]
pub enum Done {
    Fetch(Box<FetchOutcome>),
    Ask(Box<Asked>),
    Ingest(Box<Ingested>),
    /// A push job panicked: it runs again when its row or its claim says so.
    Panicked,
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

/// One request to a hub.
#[derive(Debug)]
pub struct AskTask {
    pub ask: Ask,
    pub ticket: Box<Ticket>,
    /// The feed's URL: where it is private, its hub may be.
    pub feed_url: Option<String>,
    /// It may be at a private address though the feed is not.
    pub trusted: bool,
    pub connect_timeout: Duration,
    /// Unix seconds when the job was claimed, for a Retry-After that is a date.
    pub now: i64,
}

/// What came of it.
#[derive(Debug)]
pub struct Asked {
    pub ask: Ask,
    pub ticket: Box<Ticket>,
    pub outcome: answer::Outcome,
    /// The hub's first address could not be connected to.
    pub unreachable: bool,
    /// It was a private one.
    pub private: bool,
}

/// Deliveries of one subscription.
#[derive(Debug)]
pub struct IngestTask {
    pub subscription_id: i64,
    pub feed_id: i64,
    pub feed_url: String,
    pub deliveries: Vec<Delivery>,
    pub limits: Arc<FetchLimits>,
}

/// What was in them.
#[derive(Debug)]
pub struct Ingested {
    pub subscription_id: i64,
    pub feed_id: i64,
    pub pushed: Vec<Pushed>,
}

/// One delivery.
#[derive(Debug)]
pub struct Pushed {
    pub delivery_id: i64,
    /// `None`: it was no feed, a mere ping.
    pub feed: Option<Feed>,
}
