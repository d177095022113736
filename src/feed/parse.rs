//! Text → [`Feed`]. feed-rs does the reading behind three guards, each against something it really does (3.0.0): a scan
//! for depth and counts (nested `media:group` overflow the stack, millions of items eat the memory), a parser of its
//! own for each document (a second use after a failure panics), and `catch_unwind` (e-mail slicing, long durations).
//! What fails, gives less entries than there are items, or is known to lose something gets a second try through
//! [`super::repair`].

use super::scan::{Root, Scan, scan};
use super::sniff::{Kind, sniff, trim_start};
use super::{Feed, convert, dates, json, repair, text};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime};
use url::Url;

/// Bounds of one document. Its bytes are bounded where they are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseLimits {
    /// Items or entries (`max_items` of the settings).
    pub max_items: usize,
    /// Open elements. Real feeds have up to 12; feed-rs overflows a 2 MiB stack at 194 (debug build) of the worst kind.
    pub max_depth: usize,
}

impl Default for ParseLimits {
    fn default() -> Self {
        ParseLimits { max_items: 20_000, max_depth: 100 }
    }
}

/// Why a document gave no feed. `Display` is one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParseError {
    /// Beyond a fixed bound; says which.
    TooLarge(&'static str),
    /// More items than the limit.
    TooManyItems(usize),
    /// More open elements than the limit.
    TooDeep(usize),
    /// Something else, or damaged beyond repair; says what.
    NotAFeed(String),
    /// A defect in the parser; the document is bad luck, not our fault or the network's.
    Panicked,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseError::TooLarge(what) => write!(f, "too large: {what}"),
            ParseError::TooManyItems(max) => write!(f, "more than {max} entries (setting max_items)"),
            ParseError::TooDeep(max) => write!(f, "elements nested deeper than {max}"),
            ParseError::NotAFeed(what) => write!(f, "not a feed: {what}"),
            ParseError::Panicked => write!(f, "the feed parser failed on this document"),
        }
    }
}

impl std::error::Error for ParseError {}

/// Reads a feed that has been decoded to UTF-8; an XML declaration and its encoding are ignored. `base` is the URL it
/// came from, after redirects. Dates in the future are kept.
///
/// # Errors
/// See [`ParseError`]. Every input ends in a value: no panic leaves this function and the stack does not overflow.
pub fn parse(text: &str, base: &Url, limits: &ParseLimits) -> Result<Feed, ParseError> {
    let body = trim_start(text);
    match sniff(body) {
        Kind::Feed => xml(body, base, limits),
        Kind::JsonFeed => json::parse(body, base, limits),
        Kind::Html => Err(ParseError::NotAFeed("an HTML page".into())),
        Kind::Empty => Err(ParseError::NotAFeed("an empty document".into())),
        Kind::Other(what) => Err(ParseError::NotAFeed(what.into())),
    }
}

fn xml(body: &str, base: &Url, limits: &ParseLimits) -> Result<Feed, ParseError> {
    let plain = scan(body, base, limits).and_then(|scan| attempt(body, &scan, base).map(|feed| (feed, scan)));
    let first = match plain {
        Ok((feed, scan)) if feed.entries.len() >= scan.items && !scan.lossy => return Ok(feed),
        // Bounds are final: a repair would not make it smaller.
        Err(error @ (ParseError::TooLarge(_) | ParseError::TooManyItems(_) | ParseError::TooDeep(_))) => {
            return Err(error);
        }
        Ok((feed, _)) => Ok(feed),
        Err(error) => Err(error),
    };
    let mended = repair::mend(body, |text| {
        let scan = scan(text, base, limits)?;
        let feed = attempt(text, &scan, base)?;
        if feed.entries.is_empty() && scan.items > 0 {
            return Err(ParseError::NotAFeed("none of its entries can be read".into()));
        }
        Ok(feed)
    });
    match (mended, first) {
        // Mending must not cost an entry that was there without it.
        (Ok(mended), Ok(first)) if mended.entries.len() < first.entries.len() => Ok(first),
        (Ok(mended), _) => Ok(mended),
        (Err(_), first) => first,
    }
}

/// One run of feed-rs over a scanned text.
fn attempt(text: &str, scan: &Scan, base: &Url) -> Result<Feed, ParseError> {
    if scan.root == Root::Other && scan.items == 0 {
        return Err(ParseError::NotAFeed("XML, but no feed".into()));
    }
    let clean = scan.cleaned(text);
    let parsed = catch_unwind(AssertUnwindSafe(|| {
        let parser = feed_rs::parser::Builder::new()
            .base_uri(Some(base.as_str()))
            .sanitize_content(false)
            // Ids that the document does not give stay absent: feed-rs would hash title and link, or roll dice.
            .id_generator(|_, _, _| String::new())
            .timestamp_parser(|text| Some(system_time(dates::parse(text)?).into()))
            .build();
        parser.parse(clean.trim_ascii_start().as_bytes())
    }));
    match parsed {
        Ok(Ok(feed)) => Ok(convert::feed(feed, scan, base)),
        Ok(Err(error)) => Err(ParseError::NotAFeed(text::clip(&error.to_string(), 200))),
        Err(_) => Err(ParseError::Panicked),
    }
}

fn system_time(at: i64) -> SystemTime {
    let distance = Duration::from_secs(at.unsigned_abs());
    if at < 0 { SystemTime::UNIX_EPOCH - distance } else { SystemTime::UNIX_EPOCH + distance }
}
