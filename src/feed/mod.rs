//! Bytes → feed: what a document is, its entries, the feeds a page announces, the hub and topic it names.
//!
//! Never touches the network or the database. Called by `worker` (on pool threads) and by the commands that look at one
//! URL. Whatever comes in, a value comes out: no input may panic past this module or overflow the stack.

mod convert;
#[cfg(test)]
mod corpus;
mod cut;
mod dates;
pub mod discover;
mod html;
mod items;
mod json;
pub mod links;
mod losses;
mod markup;
pub mod parse;
mod repair;
mod scan;
pub mod sniff;
mod tags;
mod text;

/// A parsed feed: plain data, UTF-8, without control characters other than line feeds and tabs in long texts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Feed {
    pub title: Option<String>,
    /// The page the feed belongs to (RSS `link`, Atom `link rel=alternate`), absolute, http or https only.
    pub site_url: Option<String>,
    pub entries: Vec<Entry>,
    /// Hub and topic as the document names them.
    pub links: Links,
    /// `feedburner:info uri`, when the feed carries it: FeedBurner's own name of the feed.
    pub feedburner_uri: Option<String>,
    /// What the document says of its own rhythm.
    pub rhythm: Rhythm,
}

/// An RSS item or Atom entry.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Entry {
    /// RSS `guid`, Atom `id`, JSON Feed `id`, RDF `rdf:about`, trimmed; `None` when the document gives none.
    /// Never one that the parser invented.
    pub guid: Option<String>,
    /// The article's address, absolute; alternate link first, else the guid when it is an http(s) URL.
    pub url: Option<String>,
    pub title: Option<String>,
    pub author: Option<String>,
    pub summary: Option<String>,
    pub content: Option<String>,
    /// Unix seconds.
    pub published_at: Option<i64>,
    /// Unix seconds.
    pub updated_at: Option<i64>,
    pub enclosures: Vec<Enclosure>,
}

/// A file that comes with an entry (a podcast episode).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Enclosure {
    /// Absolute.
    pub url: String,
    pub media_type: Option<String>,
    /// Bytes, as announced.
    pub length: Option<i64>,
}

/// WebSub discovery: all hubs in order, and the topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Links {
    /// Absolute http(s) URLs in document order, without duplicates.
    pub hubs: Vec<String>,
    /// rel=self, absolute.
    pub self_url: Option<String>,
}

/// The feed's own hints when to come again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rhythm {
    /// RSS `ttl` or the period of `sy:updatePeriod` / `sy:updateFrequency`, whichever is longer, in seconds.
    pub ttl_seconds: Option<i64>,
    /// RSS `skipHours`, 0–23, GMT.
    pub skip_hours: Vec<u8>,
    /// RSS `skipDays`, 0 = Monday … 6 = Sunday, GMT.
    pub skip_days: Vec<u8>,
}
