//! What a pool thread does with a task: network and parsing, no database, no clock but deadlines.
//!
//! Called by the loop in `worker` through [`perform`]; a panic in here is caught there and costs this attempt only.

use crate::feed::discover::{self, Page as Announced};
use crate::feed::parse::{self, ParseError, ParseLimits};
use crate::feed::sniff::{self, Kind};
use crate::feed::{Entry, Feed};
use crate::fetch::{Document, End, Network, Request, Validators, charset};
use crate::rules::canonical::{self, Canonical};
use crate::rules::failure::{Failure, FailureKind};
use crate::rules::identity::{self, Known};
use crate::rules::moved;
use crate::task::{Content, FetchLimits, FetchOutcome, FetchTask, Page, Reading};
use std::borrow::Cow;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use url::Url;

/// Requests that looking through one page may cost.
const DISCOVERY_REQUESTS: usize = 12;

/// Lets so many threads unpack and parse at a time: parses in flight, not threads, are what costs memory.
#[derive(Debug)]
pub struct ParseGate {
    free: Mutex<usize>,
    freed: Condvar,
}

impl ParseGate {
    pub fn new(width: usize) -> ParseGate {
        ParseGate { free: Mutex::new(width.max(1)), freed: Condvar::new() }
    }

    /// Runs `work` when there is room. The place is given back even if `work` panics.
    pub fn pass<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Place<'a>(&'a ParseGate);
        impl Drop for Place<'_> {
            fn drop(&mut self) {
                *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                self.0.freed.notify_one();
            }
        }
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        drop(free);
        let _place = Place(self);
        work()
    }
}

/// What pool threads share.
#[derive(Debug)]
pub struct Tools {
    pub network: Network,
    pub gate: ParseGate,
}

/// What a chain led to, before anything is decided.
enum Found {
    Content(Content),
    /// An HTML page and what it announces.
    Page(Url, Announced),
    Failed(Failure),
}

/// One task being worked on.
struct Job<'a> {
    tools: &'a Tools,
    limits: &'a FetchLimits,
    deadline: Instant,
    wire_bytes: u64,
}

/// Fetches a feed by the URLs that may give it.
pub fn perform(task: &FetchTask, tools: &Tools) -> FetchOutcome {
    let began = Instant::now();
    let mut job = Job { tools, limits: &task.limits, deadline: began + task.limits.http.chain_timeout, wire_bytes: 0 };
    let (reading, page) = match &task.spellings {
        Some(spellings) => job.spellings(task, spellings),
        None => job.attempt(task, &task.start),
    };
    let regret = match (&reading.result, &task.regret) {
        (Err(failure), Some(old)) if regrettable(failure) => job.regret(old),
        _ => None,
    };
    FetchOutcome {
        feed_id: task.feed_id,
        url: task.url.clone(),
        reading,
        page,
        regret,
        wire_bytes: job.wire_bytes,
        duration: began.elapsed(),
    }
}

/// Reads one URL as a user's: the feed it gives, or the failure. For `discover`, which shows what is announced.
///
/// # Errors
/// The failure of the chain, or that what came is neither a feed nor a page.
pub fn announced(url: &Url, tools: &Tools, limits: &FetchLimits) -> Result<Option<(Url, Announced)>, Failure> {
    let mut job = Job { tools, limits, deadline: Instant::now() + limits.http.chain_timeout, wire_bytes: 0 };
    match job.read(url, true, None, None).1 {
        Found::Page(url, page) => Ok(Some((url, page))),
        Found::Content(_) => Ok(None),
        Found::Failed(failure) => Err(failure),
    }
}

/// Whether one of the page's last resorts is a feed, for `discover`.
pub fn first_feed(candidates: &[String], tools: &Tools, limits: &FetchLimits) -> Option<String> {
    let mut job = Job { tools, limits, deadline: Instant::now() + limits.http.chain_timeout, wire_bytes: 0 };
    candidates.iter().find(|url| job.candidate(url, true).is_some()).cloned()
}

fn regrettable(failure: &Failure) -> bool {
    use FailureKind::*;
    !failure.local && matches!(failure.kind, NotFound | Gone | Dns | Tls | NotAFeed)
}

impl Job<'_> {
    /// The canonical form first, then the spelling as given. A FeedBurner name with a suffix is the doubtful case: there the
    /// given one is read first, and gives way if the feed says so itself or if both have an entry in common.
    fn spellings(&mut self, task: &FetchTask, spellings: &Canonical) -> (Reading, Option<Page>) {
        let folded = &spellings.url;
        if spellings.doubtful && spellings.given() != folded {
            let (given, page) = self.attempt(task, spellings.given());
            let Ok(Content::Feed { feed, .. }) = &given.result else {
                let (reading, other_page) = self.attempt(task, folded);
                return if reading.result.is_ok() { (reading, other_page) } else { (given, page) };
            };
            let named = feed.feedburner_uri.as_deref().and_then(|uri| canonical::feedburner_url(uri, folded.scheme()));
            return match named {
                Some(named) if canonical::strict_key(&named) == canonical::strict_key(folded) => {
                    (Reading { start: folded.clone(), ..given }, page)
                }
                Some(_) => (given, page),
                None => {
                    let (reading, other_page) = self.attempt(task, folded);
                    match &reading.result {
                        Ok(Content::Feed { feed: other, .. }) if share(&feed.entries, &other.entries) => {
                            (reading, other_page)
                        }
                        _ => (given, page),
                    }
                }
            };
        }
        let first = self.attempt(task, folded);
        if first.0.result.is_ok() {
            return first;
        }
        for spelling in spellings.alternatives.iter().filter(|spelling| *spelling != folded) {
            let other = self.attempt(task, spelling);
            if other.0.result.is_ok() {
                return other;
            }
        }
        // Only where https did not even connect: an https that answers badly must not lead to plain text.
        let unreachable = first.0.hops.is_empty()
            && matches!(&first.0.result, Err(failure) if matches!(failure.kind,
                FailureKind::Connect | FailureKind::Tls | FailureKind::Timeout));
        if let (true, Some(plain)) = (unreachable, &spellings.http_fallback) {
            let plain = canonical::canonical(plain.as_str()).map_or_else(|_| plain.clone(), |plain| plain.url);
            let other = self.attempt(task, &plain);
            if other.0.result.is_ok() {
                return other;
            }
        }
        first
    }

    /// Reads one URL and, where that is allowed, the feed that its page names.
    fn attempt(&mut self, task: &FetchTask, start: &Url) -> (Reading, Option<Page>) {
        let (mut reading, found) = self.read(start, true, task.validators.as_ref(), task.body_hash);
        let (url, announced) = match found {
            Found::Content(content) => {
                reading.result = Ok(content);
                return (reading, None);
            }
            Found::Failed(failure) => {
                reading.result = Err(failure);
                return (reading, None);
            }
            Found::Page(url, announced) => (url, announced),
        };
        if !task.may_discover && !task.keep_url {
            reading.result =
                Err(Failure::new(FailureKind::NotAFeed, format!("an HTML page came instead of a feed: {url}")));
            return (reading, None);
        }
        match self.discover(&announced, reading.private) {
            Some((mut chosen, position)) => {
                let mut others = announced.feeds;
                if let Some(position) = position {
                    others.remove(position);
                }
                let page = Page { url: moved::permanent_target(&reading.hops).unwrap_or(start).clone(), others };
                // The whole way belongs to the log; the rules of moving see the chosen feed's part only.
                if task.keep_url {
                    chosen.start = start.clone();
                }
                (chosen, Some(page))
            }
            None => {
                let what = if announced.feeds.is_empty() {
                    format!("{url} is a page that names no feed")
                } else {
                    format!("{url} is a page, and none of the {} feeds it names could be read", announced.feeds.len())
                };
                reading.result = Err(Failure::new(FailureKind::NotAFeed, what));
                (reading, None)
            }
        }
    }

    /// The first of the announced feeds that is one, with its position among them; then the last resorts.
    fn discover(&mut self, page: &Announced, private: bool) -> Option<(Reading, Option<usize>)> {
        let announced = page.feeds.iter().enumerate().map(|(position, feed)| (Some(position), &feed.url));
        let guessed = page.fallback.iter().map(|url| (None, url));
        announced
            .chain(guessed)
            .take(DISCOVERY_REQUESTS)
            .find_map(|(position, url)| Some((self.candidate(url, private)?, position)))
    }

    /// Reads a link that a server named; `Some` if it is a feed.
    fn candidate(&mut self, url: &str, private: bool) -> Option<Reading> {
        let url = settled(&Url::parse(url).ok()?);
        // What a public server names never leads to a private address; a page on a private one may name its neighbours.
        let (mut reading, found) = self.read(&url, private, None, None);
        let Found::Content(content) = found else { return None };
        reading.result = Ok(content);
        Some(reading)
    }

    /// The address that the feed left lately, if it gives a feed again.
    fn regret(&mut self, old: &str) -> Option<(String, Reading)> {
        let url = Url::parse(old).ok()?;
        let (mut reading, found) = self.read(&url, true, None, None);
        let Found::Content(content) = found else { return None };
        reading.result = Ok(content);
        Some((old.to_string(), reading))
    }

    /// One chain and its document. The reading's own result is a placeholder until the caller has judged what was found.
    fn read(
        &mut self,
        url: &Url,
        trusted: bool,
        validators: Option<&Validators>,
        body_hash: Option<i64>,
    ) -> (Reading, Found) {
        let request = Request { url, validators, trusted, deadline: Some(self.deadline) };
        let chain = self.tools.network.chain(&request, &self.limits.http);
        self.wire_bytes += chain.wire_bytes;
        let (headers, found) = match chain.end {
            End::Failed { failure, headers } => (headers, Found::Failed(failure)),
            End::NotModified { headers, validators } => (headers, Found::Content(Content::NotModified { validators })),
            End::Document(document) => {
                let headers = document.headers.clone();
                let moving = moved::permanent_target(&chain.hops).is_some();
                let known = body_hash.filter(|_| !moving);
                (headers, self.tools.gate.pass(|| open(document, self.limits, known)))
            }
        };
        let placeholder = Err(Failure::new(FailureKind::NotAFeed, "not judged"));
        (Reading { start: url.clone(), hops: chain.hops, headers, private: chain.private, result: placeholder }, found)
    }
}

/// Unpacks, decodes and parses a document, or reads the page that it is.
fn open(document: Document, limits: &FetchLimits, known: Option<i64>) -> Found {
    let body = match document.decode(limits.http.max_body_bytes) {
        Ok(body) => body,
        Err(failure) => return Found::Failed(failure),
    };
    let body_hash = identity::hash_bytes(&body);
    if known == Some(body_hash) {
        return Found::Content(Content::SameBytes { validators: document.validators.clone() });
    }
    let mut text: Cow<'_, str> = charset::to_utf8(&body, document.content_type.as_deref(), false);
    if let Kind::Html = sniff::sniff(&text) {
        // A page may name its character set in a way of its own.
        text = charset::to_utf8(&body, document.content_type.as_deref(), true);
        let page = discover::page_feeds(&text, &document.url, &document.link_headers);
        return Found::Page(document.url.clone(), page);
    }
    let bounds = ParseLimits { max_items: limits.max_items, ..ParseLimits::default() };
    match parse::parse(&text, &document.url, &bounds) {
        Ok(feed) => {
            let feed = Feed {
                links: crate::feed::links::hub_and_self(&document.link_headers, &feed.links, &document.url),
                ..feed
            };
            Found::Content(Content::Feed { feed, body_hash, validators: document.validators.clone() })
        }
        Err(error) => {
            let kind = match error {
                ParseError::TooLarge(_) | ParseError::TooManyItems(_) => FailureKind::TooLarge,
                ParseError::TooDeep(_) | ParseError::NotAFeed(_) => FailureKind::NotAFeed,
                ParseError::Panicked => FailureKind::Panic,
            };
            Found::Failed(Failure::new(kind, error.to_string()))
        }
    }
}

/// The canonical form of an address that a server named, unless only the doubtful rule made it that.
pub fn settled(url: &Url) -> Url {
    match canonical::canonical(url.as_str()) {
        Ok(canonical) if !canonical.doubtful => canonical.url,
        _ => url.clone(),
    }
}

fn share(one: &[Entry], other: &[Entry]) -> bool {
    let known: Vec<Known> = identity::keyed(other)
        .into_iter()
        .map(|keyed| Known {
            guid: keyed.guid,
            url: keyed.entry.url.clone(),
            title: keyed.entry.title.clone(),
            published_at: keyed.entry.published_at,
        })
        .collect();
    identity::shares_entry(one, &known)
}

/// How long a claim may take: the chain's deadline covers the network; the rest is waiting for the gate and for the loop.
pub fn longest(chain_timeout: Duration) -> i64 {
    2 * chain_timeout.as_secs() as i64 + 120
}
