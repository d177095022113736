//! What can go wrong with a feed, by name.
//!
//! The names stand in `feeds.failure_kind` and are part of the public interface. A fault of our own machine (disk, memory,
//! descriptors, our network) is none of these: it is `LocalFault`, and is never booked as a feed's failure.

use std::fmt;

/// Why a feed could not be read. [`FailureKind::name`] is what users see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// The name does not resolve.
    Dns,
    /// No TCP connection: refused, unreachable, reset before a byte came.
    Connect,
    /// The certificate or the handshake was not acceptable.
    Tls,
    /// The deadline of the whole chain passed.
    Timeout,
    /// What came is not HTTP as it should be (broken framing, cut body, bad header).
    Protocol,
    /// Over `max_body_bytes` on the wire or decoded, or over `max_items`.
    TooLarge,
    /// A document came that is no feed and names none.
    NotAFeed,
    /// A URL was visited twice with the same cookies.
    RedirectLoop,
    /// More than `max_redirects` hops.
    TooManyRedirects,
    /// A redirect without Location, with several, or with one that cannot be followed.
    BadLocation,
    /// The stored URL has a scheme other than http and https.
    BadScheme,
    /// The stored URL cannot be read as a URL.
    BadUrl,
    /// The address guard refused the address.
    BlockedAddress,
    /// 401 or 407.
    Auth,
    /// 403.
    Forbidden,
    /// 403 or 503 with a bot check.
    Challenge,
    /// 404.
    NotFound,
    /// 410.
    Gone,
    /// 429, or 503 with Retry-After.
    RateLimited,
    /// Any other 5xx.
    ServerError,
    /// Any other status.
    HttpError,
    /// A bug in us or a library: the job panicked.
    Panic,
}

impl FailureKind {
    /// The name in `feeds.failure_kind`.
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::Dns => "dns",
            FailureKind::Connect => "connect",
            FailureKind::Tls => "tls",
            FailureKind::Timeout => "timeout",
            FailureKind::Protocol => "protocol",
            FailureKind::TooLarge => "too_large",
            FailureKind::NotAFeed => "not_a_feed",
            FailureKind::RedirectLoop => "redirect_loop",
            FailureKind::TooManyRedirects => "too_many_redirects",
            FailureKind::BadLocation => "bad_location",
            FailureKind::BadScheme => "bad_scheme",
            FailureKind::BadUrl => "bad_url",
            FailureKind::BlockedAddress => "blocked_address",
            FailureKind::Auth => "auth",
            FailureKind::Forbidden => "forbidden",
            FailureKind::Challenge => "challenge",
            FailureKind::NotFound => "not_found",
            FailureKind::Gone => "gone",
            FailureKind::RateLimited => "rate_limited",
            FailureKind::ServerError => "server_error",
            FailureKind::HttpError => "http_error",
            FailureKind::Panic => "panic",
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A failure as it is shown: its kind and one line for people, without control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub kind: FailureKind,
    /// One line, what was wrong and, where the user can do something, what. At most 300 characters.
    pub message: String,
    /// `Some` when the fault is our own machine's (descriptors, memory, threads): then nothing is booked and the job runs
    /// again soon.
    pub local: bool,
}

impl Failure {
    /// A failure of the feed. Control characters become blanks and the text is cut at 300 characters: messages quote servers.
    pub fn new(kind: FailureKind, message: impl AsRef<str>) -> Failure {
        Failure { kind, message: clean_line(message.as_ref(), 300), local: false }
    }

    /// A fault of our own machine.
    pub fn local(kind: FailureKind, message: impl AsRef<str>) -> Failure {
        Failure { local: true, ..Failure::new(kind, message) }
    }
}

/// One printable line of at most `max` characters: control characters (terminal escapes among them) become blanks.
pub fn clean_line(text: &str, max: usize) -> String {
    let line: String = text.chars().take(max + 1).map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(max) {
        None => line.trim().to_string(),
        Some((cut, _)) => format!("{}…", line[..cut].trim_end()),
    }
}
