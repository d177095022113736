//! One linear walk over the tags of an XML feed before feed-rs sees it. It guards (depth, items, sizes) and picks up
//! what feed-rs does not give: hub and self, rhythm, FeedBurner's name, `rdf:about`.
//!
//! The guard only holds while both sides agree on where a tag begins and ends ([`super::tags`]); whatever is easy to
//! read in two ways (DOCTYPE, processing instructions, unknown `<!`) is listed in [`Scan::cuts`] and never reaches
//! feed-rs.

use super::losses::Losses;
use super::parse::{ParseError, ParseLimits};
use super::tags::{Tag, Tags, attribute, attributes, name, split};
use super::{Links, Rhythm, dates, links, text};
use memchr::memmem;
use std::ops::Range;
use url::Url;

/// A start tag longer than this is an attack or a broken quote; real ones stay below 10 KB.
const MAX_TAG_BYTES: usize = 256 * 1024;
/// feed-rs keeps 100 to 300 bytes for many kinds of element; the fullest real feeds have some 100,000.
const MAX_TAGS: usize = 500_000;
/// More hubs than this are a mistake.
const MAX_HUBS: usize = 8;
/// How far the text of a small element (ttl, skipHours) is looked at, in bytes.
const SMALL_TEXT: usize = 2048;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Root {
    Rss,
    Atom,
    Rdf,
    #[default]
    Other,
}

/// What the walk found.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub root: Root,
    /// `item` and `entry` elements, by local name.
    pub items: usize,
    /// Parts that feed-rs must not see, in order.
    pub cuts: Vec<Range<usize>>,
    pub links: Links,
    pub feedburner_uri: Option<String>,
    pub rhythm: Rhythm,
    /// `rdf:about` of each item in order (RDF only).
    pub abouts: Vec<Option<String>>,
    /// The document ends inside an element.
    pub truncated: bool,
    /// feed-rs would leave something out without a word ([`super::losses`]).
    pub lossy: bool,
}

impl Scan {
    /// The text without [`Scan::cuts`]; a blank stands for each, so that no new markup can form.
    pub fn cleaned<'a>(&self, text: &'a str) -> std::borrow::Cow<'a, str> {
        if self.cuts.is_empty() {
            return text.into();
        }
        let (mut out, mut at) = (String::with_capacity(text.len()), 0);
        for cut in &self.cuts {
            out.push_str(&text[at..cut.start]);
            out.push(' ');
            at = cut.end;
        }
        out.push_str(&text[at..]);
        out.into()
    }
}

/// Walks a feed. Linear in its length.
///
/// # Errors
/// `TooDeep`, `TooManyItems`, `TooLarge` when it goes beyond a bound.
pub(super) fn scan(text: &str, base: &Url, limits: &ParseLimits) -> Result<Scan, ParseError> {
    let mut walk = Walk::new(text, base);
    let mut losses = Losses::new(text);
    let mut tags = Tags::new(text);
    let (mut depth, mut seen) = (0usize, 0usize);
    for (range, tag) in tags.by_ref() {
        match tag {
            Tag::Start { inner, empty } => {
                seen += 1;
                if range.len() > MAX_TAG_BYTES {
                    return Err(ParseError::TooLarge("a tag of more than 256 KiB"));
                }
                if seen > MAX_TAGS {
                    return Err(ParseError::TooLarge("more than 500000 elements"));
                }
                if depth >= limits.max_depth {
                    return Err(ParseError::TooDeep(limits.max_depth));
                }
                let split = split(name(inner));
                walk.start(depth, split, inner, range.end);
                losses.start(walk.scan.root, depth, split, inner, (empty, range.end));
                if walk.scan.items > limits.max_items {
                    return Err(ParseError::TooManyItems(limits.max_items));
                }
                if !empty {
                    depth += 1;
                }
            }
            Tag::End { inner } => {
                depth = depth.saturating_sub(1);
                walk.end(depth, inner);
                losses.end(depth);
            }
            Tag::Odd => {
                // Entities of its own: feed-rs would leave their references as they stand.
                losses.found |= memmem::find(&text.as_bytes()[range.clone()], b"<!ENTITY").is_some();
                walk.scan.cuts.push(range);
            }
            Tag::CData | Tag::Comment => {}
        }
    }
    losses.finish();
    let mut scan = walk.finish();
    scan.lossy = losses.found;
    if let Some(start) = tags.unfinished {
        scan.cuts.push(start..text.len());
    }
    scan.truncated = depth > 0 || tags.unfinished.is_some();
    Ok(scan)
}

/// The state of the walk above the items.
struct Walk<'a> {
    text: &'a str,
    scan: Scan,
    /// Of the root: its `xml:base`, else the document's URL.
    base: Url,
    /// Prefixes bound to the Atom namespace on the root or the channel; "" is the default namespace.
    atom: Vec<String>,
    /// Inside `channel`, at the depth of its children.
    channel: Option<usize>,
    ttl: Option<i64>,
    period: Option<i64>,
    frequency: Option<i64>,
}

impl<'a> Walk<'a> {
    fn new(text: &'a str, base: &Url) -> Walk<'a> {
        Walk {
            text,
            scan: Scan::default(),
            base: base.clone(),
            atom: Vec::new(),
            channel: None,
            ttl: None,
            period: None,
            frequency: None,
        }
    }

    /// A start tag with `depth` open elements above it; `after` is where its content begins.
    fn start(&mut self, depth: usize, (prefix, local): (&str, &str), inner: &str, after: usize) {
        if local.eq_ignore_ascii_case("item") || local.eq_ignore_ascii_case("entry") {
            self.scan.items += 1;
            if self.scan.root == Root::Rdf {
                self.scan.abouts.push(attribute(inner, "about").filter(|a| !a.is_empty()));
            }
            return;
        }
        if depth > 2 {
            return;
        }
        if depth == 0 {
            self.scan.root = match local.to_ascii_lowercase().as_str() {
                "rss" => Root::Rss,
                "feed" => Root::Atom,
                "rdf" => Root::Rdf,
                _ => Root::Other,
            };
            if let Some(base) = attributes(inner).find(|(key, _)| *key == "xml:base") {
                self.base = self.base.join(base.1.trim()).unwrap_or_else(|_| self.base.clone());
            }
        }
        let channel = depth <= 1 && local.eq_ignore_ascii_case("channel");
        if depth == 0 || channel {
            for (key, value) in attributes(inner) {
                if let Some(bound) = key.strip_prefix("xmlns")
                    && is_atom(value)
                    && self.atom.len() < MAX_HUBS
                {
                    self.atom.push(bound.trim_start_matches(':').to_owned());
                }
            }
            self.channel = self.channel.or(channel.then_some(depth + 1));
            return;
        }
        let head = match self.scan.root {
            Root::Atom => depth == 1,
            // Some put `atom:link` beside the channel of RDF.
            Root::Rdf => depth == 1 || self.channel == Some(depth),
            _ => self.channel == Some(depth),
        };
        if head {
            self.head(prefix, local, inner, after);
        }
    }

    fn end(&mut self, depth: usize, inner: &str) {
        if self.channel == Some(depth + 1) && split(name(inner)).1.eq_ignore_ascii_case("channel") {
            self.channel = None;
        }
    }

    /// A child of the channel or of the Atom feed.
    fn head(&mut self, prefix: &str, local: &str, inner: &str, after: usize) {
        match local.len() {
            4 if local == "link" => self.link(prefix, inner),
            3 if local == "ttl" => self.ttl = self.small_number(after).map(|minutes| minutes.saturating_mul(60)),
            4 if local == "info" && prefix.eq_ignore_ascii_case("feedburner") => {
                self.scan.feedburner_uri = attribute(inner, "uri").and_then(|u| text::short(&u));
            }
            12 if local == "updatePeriod" => {
                self.period = match self.small(after).to_ascii_lowercase().as_str() {
                    "hourly" => Some(3600),
                    "daily" => Some(86400),
                    "weekly" => Some(7 * 86400),
                    "monthly" => Some(30 * 86400),
                    "yearly" => Some(365 * 86400),
                    _ => None,
                }
            }
            15 if local == "updateFrequency" => self.frequency = self.small_number(after).filter(|n| *n > 0),
            9 if local == "skipHours" => self.scan.rhythm.skip_hours = self.skip_hours(after),
            8 if local == "skipDays" => self.scan.rhythm.skip_days = self.skip_days(after),
            _ => {}
        }
    }

    /// `rel=hub` and `rel=self`, in any prefix bound to Atom (push D8, D9). Undeclared conventional prefixes count too.
    fn link(&mut self, prefix: &str, inner: &str) {
        let own = attributes(inner).any(|(key, value)| {
            is_atom(value) && key.strip_prefix("xmlns").is_some_and(|p| p.trim_start_matches(':') == prefix)
        });
        let bound = own
            || self.atom.iter().any(|p| p == prefix)
            || matches!(prefix, "atom" | "atom10" | "a10")
            || prefix.is_empty() && self.scan.root == Root::Atom;
        let Some(rel) = attribute(inner, "rel").filter(|_| bound) else { return };
        let Some(href) = attribute(inner, "href").filter(|h| !h.is_empty()) else { return };
        let base = attributes(inner).find(|(key, _)| *key == "xml:base").and_then(|(_, b)| self.base.join(b).ok());
        let Some(url) = links::web_url(&href, base.as_ref().unwrap_or(&self.base)) else { return };
        for token in rel.split_ascii_whitespace() {
            let found = &mut self.scan.links;
            if token.eq_ignore_ascii_case("hub") {
                if found.hubs.len() < MAX_HUBS && !found.hubs.iter().any(|h| h == url.as_str()) {
                    found.hubs.push(url.to_string());
                }
            } else if token.eq_ignore_ascii_case("self") && found.self_url.is_none() {
                found.self_url = Some(url.to_string());
            }
        }
    }

    /// The text of a small element, up to the next tag.
    fn small(&self, after: usize) -> &'a str {
        let mut rest = self.text.get(after..).unwrap_or("");
        rest = rest.trim_ascii_start();
        rest = rest.strip_prefix("<![CDATA[").unwrap_or(rest);
        let end = rest.bytes().take(SMALL_TEXT).position(|b| matches!(b, b'<' | b']')).unwrap_or(0);
        rest[..end].trim_ascii()
    }

    fn small_number(&self, after: usize) -> Option<i64> {
        self.small(after).parse().ok().filter(|n| *n >= 0)
    }

    /// The words of a skipHours or skipDays element.
    fn skipped(&self, after: usize) -> impl Iterator<Item = &'a str> {
        let rest = &self.text.as_bytes()[after..];
        let end = memmem::find(&rest[..rest.len().min(SMALL_TEXT)], b"</skip").unwrap_or(0);
        // An end that was found is ASCII, so the slice is one of characters.
        let inside = self.text.get(after..after + end).unwrap_or("");
        inside.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty())
    }

    /// 24 is what the first version of the specification called midnight.
    fn skip_hours(&self, after: usize) -> Vec<u8> {
        let mut hours: Vec<u8> =
            self.skipped(after).filter_map(|w| w.parse().ok()).filter(|h| *h <= 24).map(|h: u8| h % 24).collect();
        hours.sort_unstable();
        hours.dedup();
        hours
    }

    fn skip_days(&self, after: usize) -> Vec<u8> {
        let mut days: Vec<u8> =
            self.skipped(after).filter(|w| !w.eq_ignore_ascii_case("day")).filter_map(dates::weekday).collect();
        days.sort_unstable();
        days.dedup();
        days
    }

    fn finish(mut self) -> Scan {
        let period = match (self.period, self.frequency) {
            (None, None) => None,
            // The module's defaults: daily, once.
            (period, frequency) => Some((period.unwrap_or(86400) / frequency.unwrap_or(1)).max(1)),
        };
        self.scan.rhythm.ttl_seconds = self.ttl.filter(|t| *t > 0).max(period);
        self.scan
    }
}

/// Atom 1.0's namespace with the spellings seen in the wild, and 0.3's.
pub(super) fn is_atom(namespace: &str) -> bool {
    let rest =
        namespace.trim().trim_start_matches("https://").trim_start_matches("http://").trim_end_matches(['/', '#']);
    rest.eq_ignore_ascii_case("www.w3.org/2005/Atom") || rest.eq_ignore_ascii_case("purl.org/atom/ns")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> Result<Scan, ParseError> {
        scan(text, &Url::parse("https://site.example/feed").unwrap(), &ParseLimits::default())
    }

    #[test]
    fn hub_and_self_by_namespace_not_prefix() {
        let rss = |head: &str, link: &str| format!("<rss {head}><channel>{link}<item>{link}</item></channel></rss>");
        let link = "<q:link rel='self HUB' href='/h'/>";
        let found = run(&rss("xmlns:q='http://www.w3.org/2005/Atom'", link)).unwrap().links;
        assert_eq!(found.hubs, ["https://site.example/h"]);
        assert_eq!(found.self_url.as_deref(), Some("https://site.example/h"));
        assert_eq!(run(&rss("xmlns:q='urn:other'", link)).unwrap().links, Links::default());
        let own = "<link xmlns='http://www.w3.org/2005/Atom' rel='hub' href='http://hub.example/'/>";
        assert_eq!(run(&rss("", own)).unwrap().links.hubs, ["http://hub.example/"]);
        assert_eq!(run(&rss("", "<link rel='hub' href='/no'/>")).unwrap().links, Links::default());
    }

    #[test]
    fn only_children_of_the_atom_feed_name_a_hub() {
        let text = "<feed xmlns='http://www.w3.org/2005/Atom' xml:base='https://b.example/x/'>\
            <entry><link rel='hub' href='/no'/><source><link rel='self' href='/no'/></source></entry>\
            <link rel='hub' href='hub'/><link rel='self' xml:base='https://c.example/' href='s'/></feed>";
        let found = run(text).unwrap().links;
        assert_eq!(found.hubs, ["https://b.example/x/hub"]);
        assert_eq!(found.self_url.as_deref(), Some("https://c.example/s"));
    }

    #[test]
    fn rhythm_of_the_channel() {
        let text = "<rss><channel><ttl>\n 60 \n</ttl><sy:updatePeriod> hourly\n</sy:updatePeriod>\
            <sy:updateFrequency>2</sy:updateFrequency><skipHours><hour>3</hour><hour>24</hour></skipHours>\
            <skipDays><day>Sunday</day><day>mon</day></skipDays></channel></rss>";
        let rhythm = run(text).unwrap().rhythm;
        assert_eq!(rhythm, Rhythm { ttl_seconds: Some(3600), skip_hours: vec![0, 3], skip_days: vec![0, 6] });
    }

    #[test]
    fn bounds() {
        assert!(matches!(run(&"<a>".repeat(101)), Err(ParseError::TooDeep(100))));
        assert!(run(&"<a></a><b/>".repeat(101)).is_ok());
        assert!(matches!(run(&"<item/>".repeat(20_001)), Err(ParseError::TooManyItems(20_000))));
        assert!(matches!(run(&format!("<a{}>", " x='y'".repeat(100_000))), Err(ParseError::TooLarge(_))));
        assert!(run("<a><b").unwrap().truncated);
    }
}
