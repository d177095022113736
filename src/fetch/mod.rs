//! The network, never the database: a chain of hops, each one request; the address guard; bodies with their limits.
//!
//! Called by `worker` on pool threads and by `trace` and `discover`. ureq fetches one hop at a time and never follows a
//! redirect itself: the loop in [`chain`] is ours.

use crate::rules::failure::Failure;
use crate::rules::moved::Hop;
use std::time::Duration;
use url::Url;

/// Bounds of one chain, from the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// For name lookup, connect and TLS of one hop.
    pub connect_timeout: Duration,
    /// For the whole chain, bodies included.
    pub chain_timeout: Duration,
    /// Hops beyond the first request.
    pub max_redirects: u32,
    /// On the wire and again decoded, in bytes.
    pub max_body_bytes: u64,
}

/// ETag and Last-Modified with the URL that issued them: they are sent to that URL only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Validators {
    pub url: String,
    /// As it came, quotes and `W/` included; bytes above 0x7F as the Latin-1 characters of the same number.
    pub etag: Option<String>,
    pub last_modified: Option<String>,
}

/// What a chain is asked to do.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// As stored: user and password in it become an Authorization header.
    pub url: &'a Url,
    pub validators: Option<&'a Validators>,
    /// The user typed this URL: its own private address may be fetched and may lead to others. `false` for what a server
    /// said (a discovered link).
    pub trusted: bool,
    /// Ends with the chain; `None`: now + `chain_timeout`.
    pub deadline: Option<std::time::Instant>,
}

/// All responses of one fetch in order, and how it ended.
#[derive(Debug)]
pub struct Chain {
    pub hops: Vec<Hop>,
    pub end: End,
    pub duration: Duration,
    /// Body bytes that came over the wire.
    pub wire_bytes: u64,
    /// The address that the first hop reached was a private one.
    pub private: bool,
}

#[derive(Debug)]
pub enum End {
    /// 200 with a body, still encoded as it came: [`Document::decode`] is the costly part and is left to the caller.
    Document(Document),
    /// 304 to validators that this very URL issued.
    NotModified {
        headers: Freshness,
        validators: Validators,
    },
    Failed {
        failure: Failure,
        headers: Freshness,
    },
}

/// A final response.
#[derive(Debug)]
pub struct Document {
    /// Where it came from, without credentials and fragment.
    pub url: Url,
    pub content_type: Option<String>,
    pub content_encoding: Option<String>,
    /// All `Link` header fields in order, as text.
    pub link_headers: Vec<String>,
    pub headers: Freshness,
    pub validators: Validators,
    pub body: Vec<u8>,
}

/// Response headers that say when to come again, unparsed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Freshness {
    pub cache_control: Option<String>,
    pub expires: Option<String>,
    pub age: Option<String>,
    pub date: Option<String>,
    pub retry_after: Option<String>,
}
