//! The network, never the database: a chain of hops, each one request; the address guard; bodies with their limits.
//!
//! Called by `worker` on pool threads and by `trace` and `discover`. ureq fetches one hop at a time and never follows a
//! redirect itself: the loop in `chain` is ours.

mod body;
mod chain;
pub mod charset;
mod cookies;
pub mod guard;
mod hop;
mod location;
mod lookup;
mod post;

pub use lookup::TestNames;
pub use post::{Answer, Post, Single};

use crate::rules::failure::Failure;
use crate::rules::moved::Hop;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use ureq::http::HeaderValue;
use ureq::tls::{PemItem, RootCerts, TlsConfig};
use url::Url;

/// What a [`Network`] is made of.
#[derive(Debug, Clone, Default)]
pub struct NetworkOptions {
    /// `feedmill/VERSION`, with ` (+contact)` when that is set: visible ASCII, at most 500 bytes.
    pub user_agent: String,
    /// Private addresses that servers may lead to, from `allow_addresses`.
    pub allow: guard::AllowList,
    /// For tests: all names there are.
    pub names: Option<TestNames>,
    /// Root certificates (PEM) in the place of the bundled ones, from the file that `SSL_CERT_FILE` names.
    pub extra_roots_pem: Option<Vec<u8>>,
}

/// The way out. One for all threads, behind an `Arc`; what differs by request comes with the request. When `contact` or
/// `allow_addresses` changes, a new one is made; what runs on the old one ends there.
pub struct Network {
    user_agent: HeaderValue,
    allow: guard::AllowList,
    names: Option<TestNames>,
    lookups: lookup::Lookups,
    /// Holds the TLS configuration with its sessions: built at the first https request.
    tls: Arc<ureq::unversioned::transport::RustlsConnector>,
    tls_config: TlsConfig,
}

impl Network {
    /// Fails with a line for people when the User-Agent cannot stand in a header, or the PEM holds no certificate.
    pub fn new(options: NetworkOptions) -> Result<Network, String> {
        let user_agent = options.user_agent.trim();
        let fits =
            (1..=500).contains(&user_agent.len()) && user_agent.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        let user_agent = HeaderValue::from_str(user_agent).ok().filter(|_| fits).ok_or_else(|| {
            format!("`{}` cannot be a User-Agent: visible ASCII only (setting contact)", user_agent.escape_debug())
        })?;
        let mut tls_config = TlsConfig::builder();
        if let Some(pem) = &options.extra_roots_pem {
            tls_config = tls_config.root_certs(RootCerts::Specific(Arc::new(certificates(pem)?)));
        }
        Ok(Network {
            user_agent,
            allow: options.allow,
            names: options.names,
            lookups: lookup::Lookups::default(),
            tls: Arc::default(),
            tls_config: tls_config.build(),
        })
    }

    /// Fetches `request.url` and follows where it leads. Blocks until the deadline at most (a look-up, connect or
    /// handshake that hangs ends with `limits.connect_timeout`). Never panics on what a server sends.
    pub fn chain(&self, request: &Request, limits: &Limits) -> Chain {
        chain::run(self, request, limits)
    }

    /// Whether the host of `url` is at private addresses only. Looks the name up, within `limits.connect_timeout`.
    pub fn is_private(&self, url: &Url, limits: &Limits) -> bool {
        let until = std::time::Instant::now() + limits.connect_timeout;
        let targets = lookup::targets(self, url, true, until).unwrap_or_default();
        !targets.is_empty() && targets.iter().all(|target| target.class == guard::Class::Private)
    }

    /// Posts a form; follows nothing. Any response at all is an [`Answer`], whatever its status.
    pub fn post(&self, post: &Post, limits: &Limits) -> Result<Answer, Failure> {
        post::run(self, post, limits)
    }

    /// Makes one request; follows nothing. As [`Network::post`].
    pub fn single(&self, single: &Single, limits: &Limits) -> Result<Answer, Failure> {
        post::single(self, single, limits)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network")
            .field("user_agent", &self.user_agent)
            .field("allow", &self.allow)
            .finish_non_exhaustive()
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<ureq::tls::Certificate<'static>>, String> {
    let mut certificates = Vec::new();
    for item in ureq::tls::parse_pem(pem) {
        match item {
            Ok(PemItem::Certificate(certificate)) => certificates.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(format!("the root certificates cannot be read: {error}")),
        }
    }
    if certificates.is_empty() {
        return Err("the file of root certificates holds none (PEM is expected)".to_string());
    }
    Ok(certificates)
}

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
    /// Without credentials and fragment.
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
    /// The user typed this URL: its own private address may be fetched and may lead to others. `false` for what a
    /// server said (a discovered link).
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

/// How a chain ended.
#[derive(Debug)]
pub enum End {
    /// 200 with a body, still encoded as it came: [`Document::decode`] is the costly part and is left to the caller.
    Document(Document),
    /// 304 to validators that the URL of the last hop issued: those it has now.
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

#[cfg(test)]
mod tests;
