//! One feed, one URL: what a URL given by a user is read as, and when two URLs mean the same feed.
//!
//! Everywhere but at FeedBurner only that is folded which HTTP and WHATWG say means nothing: case of the host, default
//! port, dot segments, fragment. FeedBurner's own feeds show (`feedburner:info uri`) that case, host alias, trailing
//! slash and query mean nothing there; that a suffix `.xml` or `.rss` means nothing is likely only, so that rule is
//! kept apart ([`Canonical::doubtful`], [`strict_key`]). Cases: `fixtures/canonical.tsv`.
//!
//! Never sees the network or the database. Called by `store` when feeds are compared, by `worker` on a feed's first
//! run, and by the command `canonical`.

use crate::rules::failure::{Failure, FailureKind, clean_line};
use std::fmt;
use url::{Host, Url};

/// The longest URL we take, in bytes, as given and as canonical form. RFC 9110 section 4.1 asks for 8000 at least;
/// servers commonly refuse more.
pub const MAX_URL_BYTES: usize = 8000;

/// The host that stands for all of FeedBurner's.
const FEEDBURNER: &str = "feeds.feedburner.com";

/// Paths at FeedBurner that look like names and are the targets of other sites' broken redirects: never folded.
const NOT_NAMES: [&str; 2] = ["atom.xml", "feed"];

/// What a given URL is read as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Canonical {
    /// What to fetch and store. Keeps the credentials of the given URL: they are the user's.
    pub url: Url,
    /// The publisher's spelling, when it differs from `url` (FeedBurner only), without credentials: for display.
    pub pretty: Option<String>,
    /// What to fetch, in order, when `url` does not give the feed: the given spelling. If one gives it, it is what is
    /// stored. Empty when nothing but sure things were folded.
    pub alternatives: Vec<Url>,
    /// For input without a scheme: the same address over http, to be read (by [`canonical`] again) only if `url`, which
    /// is https, does not connect. An https that answers badly must not lead to plain text.
    pub http_fallback: Option<Url>,
    /// The suffix `.xml` or `.rss` of a FeedBurner name was dropped: a merge by this needs a fetch that shows the same
    /// feed.
    pub doubtful: bool,
}

impl Canonical {
    /// The given spelling, read but not folded: what `trace` asks for.
    pub fn given(&self) -> &Url {
        self.alternatives.first().unwrap_or(&self.url)
    }
}

/// Why a given URL cannot be a feed's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// `BadUrl` or `BadScheme`.
    pub kind: FailureKind,
    /// One line. Never quotes the URL, which may hold a password.
    pub message: String,
}

impl Refusal {
    fn bad_url(message: impl Into<String>) -> Refusal {
        Refusal { kind: FailureKind::BadUrl, message: message.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::new(refusal.kind, refusal.message)
    }
}

/// Reads a URL as a user types or pastes it. The canonical form of a canonical form is itself.
pub fn canonical(given: &str) -> Result<Canonical, Refusal> {
    let (given, bare) = read(given)?;
    let http_fallback = if bare { with_scheme(&given, "http") } else { None };
    let Some((folded, pretty, doubtful)) = fold(&given) else {
        return Ok(Canonical { url: given, pretty: None, alternatives: Vec::new(), http_fallback, doubtful: false });
    };
    let pretty = (pretty.path() != folded.path()).then(|| without_credentials(&pretty).to_string());
    let alternatives = if folded == given { Vec::new() } else { vec![given] };
    Ok(Canonical { url: folded, pretty, alternatives, http_fallback, doubtful })
}

/// What two URLs of one feed have in common: host, port, path and query, without scheme (http and https are one feed),
/// default port of either scheme, credentials and fragment. FeedBurner URLs fold to their canonical form, suffix
/// dropped; equal only by that, two feeds need a fetch to be merged: see [`strict_key`].
pub fn key(url: &Url) -> String {
    match Name::of_url(url) {
        Some(name) => format!("{FEEDBURNER}/{}", name.stem.to_ascii_lowercase()),
        None => plain_key(url),
    }
}

/// As [`key`], but the suffix of a FeedBurner name counts: feeds equal by this merge without a poll.
pub fn strict_key(url: &Url) -> String {
    match Name::of_url(url) {
        Some(name) => format!("{FEEDBURNER}/{}{}", name.stem, name.suffix).to_ascii_lowercase(),
        None => plain_key(url),
    }
}

/// The address of the feed that calls itself `uri` (`feedburner:info uri`): lower-case, at FeedBurner's first host. A
/// suffix stays: when the feed itself names it, it is part of the name. `None` when `uri` is no name, or `scheme` not
/// http or https.
pub fn feedburner_url(uri: &str, scheme: &str) -> Option<Url> {
    if !matches!(scheme, "http" | "https") {
        return None;
    }
    let uri = uri.trim();
    let name = Name::of_path(uri).filter(|_| uri.len() <= MAX_URL_BYTES / 2)?;
    Url::parse(&format!("{scheme}://{FEEDBURNER}/{}{}", name.stem, name.suffix).to_ascii_lowercase()).ok()
}

/// The URL without user and password: for history, logs, and what a server said.
pub fn without_credentials(url: &Url) -> Url {
    let mut url = url.clone();
    // Both fail only for URLs without a host, which have no credentials.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
}

/// Given text → URL with all sure folds, and whether the scheme was missing (then https is put in, and http is to be
/// tried).
fn read(given: &str) -> Result<(Url, bool), Refusal> {
    // The WHATWG parser would trim ASCII blanks and controls; pasted text also brings no-break blanks and byte order
    // marks.
    let text = given.trim_matches(|c: char| c.is_whitespace() || c.is_control() || c == '\u{feff}');
    if text.is_empty() {
        return Err(Refusal::bad_url("the URL is empty"));
    }
    if text.len() > MAX_URL_BYTES {
        return Err(too_long());
    }
    // That parser removes tabs and line breaks inside, which would make one wrong URL of two pasted lines.
    if text.chars().any(char::is_control) {
        return Err(Refusal::bad_url("the URL has a line break or another control character inside"));
    }
    // What stands for bytes that were no text: the address is lost.
    if text.contains(char::REPLACEMENT_CHARACTER) {
        return Err(Refusal::bad_url("the URL is not UTF-8, or was damaged on its way here"));
    }
    let (absolute, bare) = with_known_scheme(text)?;
    let mut url = Url::parse(&absolute).map_err(|error| Refusal::bad_url(format!("not a URL: {error}")))?;
    url.set_fragment(None);
    match url.host() {
        // A path like `./feed.xml` is read as a host of dots.
        Some(Host::Domain(name)) if name.chars().all(|c| c == '.') => Err(Refusal::bad_url("the URL has no host")),
        None => Err(Refusal::bad_url("the URL has no host")),
        // Percent-encoding makes it longer.
        Some(_) if url.as_str().len() > MAX_URL_BYTES => Err(too_long()),
        // `host:80` names http by its port, `host:443` https.
        Some(_) if bare && url.port() == Some(80) => Ok((with_scheme(&url, "http").unwrap_or(url), false)),
        Some(_) => Ok((url, bare && !names_port_443(&absolute))),
    }
}

fn too_long() -> Refusal {
    Refusal::bad_url(format!("the URL is longer than {MAX_URL_BYTES} bytes"))
}

/// Puts the scheme right: `feed:` undone, https where there is none (`true`), all but http and https refused.
fn with_known_scheme(text: &str) -> Result<(String, bool), Refusal> {
    let text = match text.split_at_checked(5) {
        Some((prefix, rest)) if prefix.eq_ignore_ascii_case("feed:") && !is_port(rest) => {
            let address = rest.strip_prefix("//").unwrap_or(rest);
            // `feed:` says nothing of the scheme; it is older than https, and publishers who have that write it out.
            if scheme_of(address).is_none() {
                return Ok((format!("http://{address}"), false));
            }
            address
        }
        _ => text,
    };
    match scheme_of(text) {
        Some(scheme) if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https") => {
            Ok((text.to_string(), false))
        }
        Some(scheme) => Err(Refusal {
            kind: FailureKind::BadScheme,
            message: format!("only http and https can be fetched, not {}:", clean_line(scheme, 30)),
        }),
        None => {
            let address = text.strip_prefix("//").unwrap_or(text);
            // The WHATWG parser skips these and would take the first folder of a path for the host.
            if address.starts_with(['/', '\\']) {
                return Err(Refusal::bad_url("the URL has no host"));
            }
            Ok((format!("https://{address}"), true))
        }
    }
}

/// The scheme that `text` begins with. `host:port` has none, although by the letter of RFC 3986 `host` would be one.
fn scheme_of(text: &str) -> Option<&str> {
    let (scheme, rest) = text.split_once(':')?;
    let valid = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    (valid && !is_port(rest)).then_some(scheme)
}

/// What follows a colon is a port: digits up to the end of the authority.
fn is_port(rest: &str) -> bool {
    let digits = rest.split(['/', '\\', '?', '#']).next().unwrap_or("");
    !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit())
}

/// The authority ends in `:443`. Asked of the text, since the parser drops a default port.
fn names_port_443(absolute: &str) -> bool {
    let authority = absolute.strip_prefix("https://").and_then(|rest| rest.split(['/', '\\', '?', '#']).next());
    authority.is_some_and(|authority| authority.ends_with(":443"))
}

fn with_scheme(url: &Url, scheme: &str) -> Option<Url> {
    let mut url = url.clone();
    url.set_scheme(scheme).ok().map(|()| url)
}

/// The port, unless it is the default of either scheme.
fn significant_port(url: &Url) -> Option<u16> {
    url.port().filter(|port| !matches!(port, 80 | 443))
}

fn plain_key(url: &Url) -> String {
    let mut key = url.host_str().unwrap_or("").to_ascii_lowercase();
    if let Some(port) = significant_port(url) {
        key.push_str(&format!(":{port}"));
    }
    key.push_str(url.path());
    if let Some(query) = url.query() {
        key.push('?');
        key.push_str(query);
    }
    key
}

/// A FeedBurner URL's canonical form, the same in the publisher's spelling, and whether a suffix was dropped. `None`
/// for all others, and for what is no feed's name at FeedBurner.
fn fold(url: &Url) -> Option<(Url, Url, bool)> {
    let name = Name::of_url(url)?;
    let mut pretty = url.clone();
    pretty.set_host(Some(FEEDBURNER)).ok()?;
    pretty.set_path(name.stem);
    pretty.set_query(None);
    let mut folded = pretty.clone();
    folded.set_path(&name.stem.to_ascii_lowercase());
    Some((folded, pretty, !name.suffix.is_empty()))
}

/// A feed's name at FeedBurner, as spelled: letters, digits, `-` and `_` between slashes, perhaps with a suffix.
struct Name<'a> {
    stem: &'a str,
    /// `.xml`, `.rss` in any case, or empty.
    suffix: &'a str,
}

impl<'a> Name<'a> {
    /// The name in a URL of one of FeedBurner's hosts: `feeds`, `feeds` with a number, and `feedproxy.google.com`,
    /// which took over the names.
    fn of_url(url: &'a Url) -> Option<Name<'a>> {
        let host = url.host_str()?;
        let number = host.strip_prefix("feeds").and_then(|rest| rest.strip_suffix(".feedburner.com"));
        let ours = host == "feedproxy.google.com" || number.is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
        if !ours || significant_port(url).is_some() || !matches!(url.scheme(), "http" | "https") {
            return None;
        }
        Name::of_path(url.path())
    }

    fn of_path(path: &'a str) -> Option<Name<'a>> {
        let path = path.strip_prefix('/').unwrap_or(path);
        let path = path.strip_suffix('/').unwrap_or(path);
        let suffix_at = path.len().checked_sub(4).filter(|at| {
            path.get(*at..).is_some_and(|end| end.eq_ignore_ascii_case(".xml") || end.eq_ignore_ascii_case(".rss"))
        });
        let (stem, suffix) = path.split_at_checked(suffix_at.unwrap_or(path.len()))?;
        let segment = |part: &str| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        let known_wrong = NOT_NAMES.iter().any(|no| path.eq_ignore_ascii_case(no) || stem.eq_ignore_ascii_case(no));
        (!known_wrong && stem.split('/').all(segment)).then_some(Name { stem, suffix })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (input, canonical or `!`, pretty or `-`)
    fn table() -> Vec<(String, String, String)> {
        let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/canonical.tsv")).unwrap();
        let row = |line: &str| {
            let cells: Vec<&str> = line.split('\t').collect();
            assert_eq!(cells.len(), 4, "{line:?}");
            (cells[0].to_string(), cells[1].to_string(), cells[2].to_string())
        };
        text.lines().skip(1).map(row).collect()
    }

    fn read_as(given: &str) -> String {
        canonical(given).map_or_else(|refusal| format!("! {}", refusal.kind), |c| c.url.to_string())
    }

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn the_table_holds() {
        let rows = table();
        assert_eq!(rows.len(), 45, "rows in fixtures/canonical.tsv");
        let mut wrong = Vec::new();
        for (given, expected, pretty) in &rows {
            let got = match canonical(given) {
                Ok(c) => (c.url.to_string(), c.pretty.unwrap_or("-".to_string())),
                Err(_) => ("!".to_string(), "-".to_string()),
            };
            if got != (expected.clone(), pretty.clone()) {
                wrong.push(format!("{given:?}: expected {expected} {pretty}, got {} {}", got.0, got.1));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn canonical_twice_is_canonical_once() {
        let more =
            ["http://u:p@Feeds2.FeedBurner.com/A.xml", "https://a.test/ä b", "a.test:80/f", "a.test:443", "[::1]/f"];
        for given in table().into_iter().map(|row| row.0).chain(more.map(String::from)) {
            let Ok(once) = canonical(&given) else { continue };
            let twice = canonical(once.url.as_str()).unwrap();
            assert_eq!(once.url, twice.url, "{given:?}");
            assert!(twice.alternatives.is_empty() && !twice.doubtful && twice.http_fallback.is_none(), "{given:?}");
            let pretty = once.pretty.as_deref().map(url);
            for other in once.alternatives.iter().chain(&pretty).chain(&once.http_fallback) {
                assert_eq!(key(&once.url), key(other), "{given:?}");
                assert_eq!(canonical(other.as_str()).unwrap().url.path(), once.url.path(), "{given:?}");
            }
        }
    }

    #[test]
    fn all_spellings_have_one_key() {
        for (given, expected, _) in table() {
            if let Ok(c) = canonical(&given) {
                assert_eq!(key(&c.url), key(&url(&expected)), "{given:?}");
                let strict = c.alternatives.first().unwrap_or(&c.url);
                assert_eq!(strict_key(strict) == strict_key(&c.url), !c.doubtful, "{given:?}");
            }
        }
    }

    #[test]
    fn what_is_refused() {
        let too_long = format!("https://a.test/{}", "a".repeat(MAX_URL_BYTES));
        let too_long_encoded = format!("https://a.test/{}", "ä".repeat(MAX_URL_BYTES / 4));
        for given in [
            "\0",
            "/etc/passwd",
            "./feed.xml",
            "../x",
            "\\\\host\\f",
            "//",
            "?q",
            "#f",
            ":80/",
            "hello world",
            "https://a b/f",
            "https://a.test/f\nhttps://b.test/g",
            "https://a.test/\0f",
            "https://a.test/\tf",
            "https://[::1/f",
            "::1",
            "http://a.test:99999/",
            "https://user:pw@/f",
            "https://a%00.test/",
            "feed:",
            "feed://",
            "https://",
            &too_long,
            &too_long_encoded,
        ] {
            assert_eq!(read_as(given), "! bad_url", "{given:?}");
        }
        let bad_schemes = r"
            file:///etc/passwd javascript:alert(1) ftp://a.test/f mailto:joe@a.test C:\feed.xml
            data:,x feed:file:///etc/passwd feed:feed://a.test/f about:blank user:pw@a.test/f
        ";
        for given in bad_schemes.split_whitespace() {
            assert_eq!(read_as(given), "! bad_scheme", "{given:?}");
        }
        let secret = canonical("https://user:hunter2@a b/").unwrap_err().message;
        assert!(!secret.contains("hunter2"), "{secret}");
    }

    #[test]
    fn what_is_read_leniently() {
        for (given, expected) in [
            ("\u{feff}https://a.test/f\u{a0}\r\n", "https://a.test/f"),
            ("https://a.test/a b", "https://a.test/a%20b"),
            ("https://a.test/ä?ö", "https://a.test/%C3%A4?%C3%B6"),
            ("https://a.test/%7ejoe", "https://a.test/%7ejoe"),
            ("https://BÜCHER.test/f", "https://xn--bcher-kva.test/f"),
            ("https://XN--BCHER-KVA.test/f", "https://xn--bcher-kva.test/f"),
            ("https://a.test:443/f", "https://a.test/f"),
            ("http://a.test:443/f", "http://a.test:443/f"),
            ("http://[2001:DB8::1]:80/f", "http://[2001:db8::1]/f"),
            ("http://127.1/f", "http://127.0.0.1/f"),
            ("https://user:pass@A.test/f", "https://user:pass@a.test/f"),
            ("//a.test/f", "https://a.test/f"),
            ("localhost:8080/feed", "https://localhost:8080/feed"),
            ("[::1]:8080/feed", "https://[::1]:8080/feed"),
            ("FEED:HTTPS://a.test/f", "https://a.test/f"),
            ("feed://https://a.test/f", "https://a.test/f"),
            ("feed:a.test/f", "http://a.test/f"),
            ("feed://a.test:8080/f", "http://a.test:8080/f"),
            ("feed:8080/f", "https://feed:8080/f"),
        ] {
            assert_eq!(read_as(given), expected, "{given:?}");
        }
    }

    #[test]
    fn without_a_scheme_http_comes_second() {
        let fallback = |given: &str| canonical(given).unwrap().http_fallback.map(|url| url.to_string());
        assert_eq!(fallback("a.test/f").as_deref(), Some("http://a.test/f"));
        assert_eq!(fallback("a.test:8443/f").as_deref(), Some("http://a.test:8443/f"));
        assert_eq!(fallback("a.test:443/f"), None);
        assert_eq!(fallback("a.test:80/f"), None);
        assert_eq!(read_as("a.test:80/f"), "http://a.test/f");
        assert_eq!(fallback("http://a.test/f"), None);
        assert_eq!(fallback("feed://a.test/f"), None);
    }

    #[test]
    fn feedburner_keeps_what_was_given_as_second_choice() {
        let c = canonical("feeds2.feedburner.com/Name.XML/?format=xml").unwrap();
        assert_eq!(c.url.as_str(), "https://feeds.feedburner.com/name");
        assert_eq!(c.given(), &c.alternatives[0]);
        assert_eq!(c.pretty.unwrap(), "https://feeds.feedburner.com/Name");
        assert_eq!(c.alternatives, [url("https://feeds2.feedburner.com/Name.XML/?format=xml")]);
        assert_eq!(c.http_fallback, Some(url("http://feeds2.feedburner.com/Name.XML/?format=xml")));
        assert!(c.doubtful);
        assert!(!canonical("http://feeds2.feedburner.com/Name/").unwrap().doubtful);

        let private = canonical("http://user:pw@feeds.feedburner.com/Name").unwrap();
        assert_eq!(private.url.as_str(), "http://user:pw@feeds.feedburner.com/name");
        assert_eq!(private.pretty.unwrap(), "http://feeds.feedburner.com/Name");
    }

    #[test]
    fn what_is_no_name_at_feedburner_is_left_alone() {
        let left_alone = "
            http://feeds2.feedburner.com/ http://feeds.feedburner.com/A%20B
            http://feeds.feedburner.com/A//B http://feeds.feedburner.com/A.xml.rss
            http://feeds.feedburner.com/.xml http://feeds.feedburner.com/A.atom
            http://feeds.feedburner.com/feed.xml http://feeds.feedburner.com/FEED
            http://feeds.feedburner.com:8080/A http://feeds2x.feedburner.com/A
            http://feeds.feedburner.com.evil.test/A http://feedproxy.google.com/feed/
        ";
        for given in left_alone.split_whitespace() {
            let c = canonical(given).unwrap();
            assert_eq!(c.url.as_str(), given);
            assert!(c.pretty.is_none() && c.alternatives.is_empty() && !c.doubtful, "{given}");
        }
    }

    #[test]
    fn the_key_leaves_out_what_does_not_count() {
        for same in ["http://a.test/f", "https://a.test:443/f", "https://a.test:80/f", "http://u:p@A.test/f#x"] {
            assert_eq!(key(&url(same)), "a.test/f", "{same}");
        }
        for other in
            ["http://a.test/F", "http://a.test/f/", "http://a.test/f?", "http://www.a.test/f", "http://a.test:81/f"]
        {
            assert_ne!(key(&url(other)), "a.test/f", "{other}");
        }
        assert_eq!(key(&url("http://[::1]:8080/f?q=A")), "[::1]:8080/f?q=A");
        assert_eq!(key(&url("https://feeds3.feedburner.com/A/B.xml?x#y")), "feeds.feedburner.com/a/b");
        assert_eq!(strict_key(&url("https://feeds3.feedburner.com/A/B.XML?x#y")), "feeds.feedburner.com/a/b.xml");
    }

    #[test]
    fn a_feeds_own_name_at_feedburner() {
        let address = |uri: &str| feedburner_url(uri, "https").map(|url| url.to_string());
        assert_eq!(address(" blogspot/RLXA ").as_deref(), Some("https://feeds.feedburner.com/blogspot/rlxa"));
        assert_eq!(address("a/main.xml").as_deref(), Some("https://feeds.feedburner.com/a/main.xml"));
        for no in ["", "~r/a", "a b", "ä", "../x", "a?b", "//evil.test/a", "feed", "日本.xml"] {
            assert_eq!(address(no), None, "{no:?}");
        }
        assert_eq!(feedburner_url("a", "ftp"), None);
    }

    #[test]
    fn credentials_go() {
        assert_eq!(without_credentials(&url("https://u:p@a.test/f")).as_str(), "https://a.test/f");
        assert_eq!(without_credentials(&url("mailto:u@a.test")).as_str(), "mailto:u@a.test");
    }
}
