//! What the callback answers a hub: from the request and what the store knows of the token to a response and what is to be
//! written before it is given.
//!
//! Pure: `cgi` reads the request, asks the store, and writes. Everything unknown or unfitting gets the same empty 404, so
//! that a stranger learns nothing (WebSub 5.3.1).

use super::query::Query;
use super::signature;
use crate::rules::failure::clean_line;
use crate::rules::lease::{self, Event, Life};

/// The longest challenge that is echoed, bytes (WebSub 8.2 asks for a bound; the longest seen has 64).
pub const CHALLENGE_MAX: usize = 1024;
/// The longest reason that is kept, characters.
const REASON_MAX: usize = 300;

/// What the store knows of a callback token.
#[derive(Clone)]
pub struct Known {
    pub life: Life,
    /// `None`: the feed was deleted.
    pub feed_id: Option<i64>,
    pub topic_url: String,
    pub secret: Option<String>,
    /// Valid beside `secret` around a change of it.
    pub previous_secret: Option<String>,
    pub verify_token: String,
}

/// An answer to a hub. Every header but Content-Length stands in [`Response::headers`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub body: Vec<u8>,
    /// Seconds, for a 503.
    pub retry_after: Option<u32>,
}

impl Response {
    /// An answer without a body.
    pub fn empty(status: u16) -> Response {
        Response { status, body: Vec::new(), retry_after: None }
    }

    /// The queue cannot be used now: never a 2xx, and never a 404 or 410, which would end the subscription.
    pub fn later(seconds: u32) -> Response {
        Response { retry_after: Some(seconds), ..Response::empty(503) }
    }

    /// The status with its reason phrase, as CGI's `Status` wants it.
    pub fn status_line(&self) -> &'static str {
        match self.status {
            200 => "200 OK",
            202 => "202 Accepted",
            400 => "400 Bad Request",
            403 => "403 Forbidden",
            404 => "404 Not Found",
            405 => "405 Method Not Allowed",
            410 => "410 Gone",
            413 => "413 Content Too Large",
            _ => "503 Service Unavailable",
        }
    }

    /// The headers beside Status and Content-Length. The media type is safe whatever a challenge holds, and no browser may
    /// guess another (WebSub 5.3.1 and 8.2, June 2026): a hub's challenge is anyone's text.
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = vec![
            ("Content-Type", "application/octet-stream".to_string()),
            ("X-Content-Type-Options", "nosniff".to_string()),
            ("Content-Security-Policy", "default-src 'none'".to_string()),
            ("Cache-Control", "no-store".to_string()),
        ];
        if let Some(seconds) = self.retry_after {
            headers.push(("Retry-After", seconds.to_string()));
        }
        if self.status == 405 {
            headers.push(("Allow", "GET, HEAD, POST".to_string()));
        }
        headers
    }
}

/// What must be committed before the answer is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    None,
    /// The hub's GET moved the life on: store the step. `reason` is a denial's, one printable line.
    Step {
        step: lease::Step,
        reason: Option<String>,
    },
    /// Store the delivery. `current`: it was signed with the current secret, so a previous one has served its time.
    Deliver {
        current: bool,
    },
    /// Nothing to keep, but a reason to poll the feed. `refused`: count it as a bad push, and why.
    Hint {
        refused: Option<&'static str>,
    },
}

/// The token of `PATH_INFO`: `/` and 16 to 128 characters of base64url. Anything else is nobody's token.
pub fn token(path_info: &str) -> Option<&str> {
    let token = path_info.strip_prefix('/')?;
    let fits = (16..=128).contains(&token.len())
        && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    fits.then_some(token)
}

/// Answers a GET (verification or denial). For HEAD the caller drops body and effect.
pub fn get(query: &[u8], known: &Known, now: i64) -> (Response, Effect) {
    verification(query, known, now).unwrap_or((Response::empty(404), Effect::None))
}

fn verification(raw: &[u8], known: &Known, now: i64) -> Option<(Response, Effect)> {
    let query = Query::parse(raw);
    let topic = std::str::from_utf8(query.only("hub.topic").ok()??).ok()?;
    if !same_topic(topic, &known.topic_url) {
        return None;
    }
    let mode = query.only("hub.mode").ok()??;
    if mode == b"denied" {
        let step = lease::step(&known.life, Event::Deny, now)?;
        let reason = String::from_utf8_lossy(query.last("hub.reason").unwrap_or_default()).into_owned();
        let reason = format!("denied: {}", clean_line(&reason, REASON_MAX));
        return Some((Response::empty(200), Effect::Step { step, reason: Some(reason) }));
    }
    // Sent always, required never (hubs of 0.4 and later drop it); but a wrong one answers somebody else's request.
    if query.last("hub.verify_token").is_some_and(|given| !given.is_empty() && given != known.verify_token.as_bytes()) {
        return None;
    }
    let challenge = query.only("hub.challenge").ok()??;
    if challenge.is_empty() || challenge.len() > CHALLENGE_MAX || !challenge.iter().all(|&b| challenge_byte(b)) {
        return None;
    }
    let event = match mode {
        b"subscribe" => Event::VerifySubscribe { lease: lease::granted(query.last("hub.lease_seconds")) },
        b"unsubscribe" => Event::VerifyUnsubscribe,
        _ => return None,
    };
    let step = lease::step(&known.life, event, now)?;
    Some((Response { body: challenge.to_vec(), ..Response::empty(200) }, Effect::Step { step, reason: None }))
}

/// The characters a challenge may have (WebSub 5.3, June 2026).
fn challenge_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.' | b'/' | b'=' | b'_')
}

/// Byte-equal, or the same URL: scheme and host in another case, a default port, an empty path, another spelling of the
/// escapes.
fn same_topic(given: &str, ours: &str) -> bool {
    given == ours || normal(given).is_some_and(|given| normal(ours) == Some(given))
}

/// One spelling for equal http(s) URLs (RFC 3986 6.2.2 and 6.2.3), just for comparing; `None`: not such a URL.
fn normal(url: &str) -> Option<Vec<u8>> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let port = match scheme.as_str() {
        "http" => ":80",
        "https" => ":443",
        _ => return None,
    };
    let rest = rest.split('#').next().unwrap_or_default();
    let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (user, host) = authority.rsplit_once('@').map_or(("", authority), |(user, host)| (user, host));
    let host = host.to_ascii_lowercase();
    let host = host.strip_suffix(port).or(host.strip_suffix(':')).unwrap_or(&host);
    let slash = if tail.starts_with('/') { "" } else { "/" };
    let mut out = format!("{scheme}://{user}@{host}{slash}").into_bytes();
    let bytes = tail.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let digit = |at: usize| bytes.get(at).and_then(|&digit| char::from(digit).to_digit(16));
        match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                let byte = (high << 4 | low) as u8;
                if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
                    out.push(byte);
                } else {
                    out.extend(format!("%{byte:02X}").bytes());
                }
                at += 3;
            }
            // Some hubs send a topic with its non-ASCII characters unescaped.
            (byte @ 0x80.., ..) => {
                out.extend(format!("%{byte:02X}").bytes());
                at += 1;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    Some(out)
}

/// How a body is read (CGI/1.1, and what web servers make of chunked requests).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// So many bytes; fewer are a cut request, 400.
    Exactly(u64),
    /// Over the limit: 413 without reading.
    TooLarge,
    /// No length known (absent, empty, Caddy's `-1`): to the end, at most the limit.
    ToEnd,
}

/// Reads `CONTENT_LENGTH` under a limit of `max` bytes.
pub fn length(content_length: Option<&str>, max: u64) -> Length {
    let text = content_length.unwrap_or_default().trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Length::ToEnd;
    }
    match text.parse() {
        Ok(length) if length <= max => Length::Exactly(length),
        _ => Length::TooLarge,
    }
}

/// What a POST's body came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    Whole(&'a [u8]),
    /// Fewer bytes came than were promised.
    Cut,
    TooLarge,
}

/// Whether a POST to this token is worth reading: else 410, which tells a hub to stop (WebSub 7).
pub fn wanted(known: &Known) -> bool {
    known.feed_id.is_some() && known.life.state.takes_deliveries()
}

/// Answers a POST (content distribution) that is [`wanted`]. Only the token says what feed it is for (WebSub 7), and only a
/// signature makes the body count; without a secret it is a hint that there is something to fetch.
pub fn post(known: &Known, signature: Option<&str>, body: Body<'_>) -> (Response, Effect) {
    if !wanted(known) {
        return (Response::empty(410), Effect::None);
    }
    let body = match body {
        Body::Whole(body) => body,
        Body::Cut => return (Response::empty(400), Effect::None),
        Body::TooLarge => {
            return (Response::empty(413), Effect::Hint { refused: Some("a push over max_delivery_bytes came") });
        }
    };
    let Some(secret) = known.secret.as_deref() else {
        return (Response::empty(202), Effect::Hint { refused: None });
    };
    let refused = |why| (Response::empty(403), Effect::Hint { refused: Some(why) });
    let Some(header) = signature.filter(|header| !header.trim().is_empty()) else {
        return refused("a push without signature came");
    };
    let secrets = [secret, known.previous_secret.as_deref().unwrap_or_default()];
    match signature::proven_by(header, body, &secrets) {
        None => refused("a push with a wrong signature came"),
        // A thin ping: there is something, but not here.
        Some(_) if body.is_empty() => (Response::empty(202), Effect::Hint { refused: None }),
        Some(which) => (Response::empty(202), Effect::Deliver { current: which == 0 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_compare_as_urls() {
        for (given, ours, same) in [
            ("http://a.test/f", "http://a.test/f", true),
            ("HTTP://A.test:80/f", "http://a.test/f", true),
            ("http://a.test", "http://a.test/", true),
            ("http://a.test?x", "http://a.test/?x", true),
            ("https://a.test:443/%7ex%2f", "https://a.test/~x%2F", true),
            ("http://a.test/ü", "http://a.test/%C3%BC", true),
            ("http://a.test/f#x", "http://a.test/f", true),
            ("http://a.test/F", "http://a.test/f", false),
            ("http://a.test/f/", "http://a.test/f", false),
            ("https://a.test/f", "http://a.test/f", false),
            ("http://a.test:443/f", "http://a.test/f", false),
            ("http://a.test/a%2Fb", "http://a.test/a/b", false),
            ("http://b.test@a.test/f", "http://b.test/f", false),
            ("tag:x", "tag:x", true),
            ("tag:x", "tag:y", false),
            ("", "http://a.test/", false),
        ] {
            assert_eq!(same_topic(given, ours), same, "{given} {ours}");
        }
    }

    #[test]
    fn lengths() {
        for (given, wanted) in [
            (None, Length::ToEnd),
            (Some(""), Length::ToEnd),
            (Some("-1"), Length::ToEnd),
            (Some("x"), Length::ToEnd),
            (Some("+5"), Length::ToEnd),
            (Some("0"), Length::Exactly(0)),
            (Some(" 10 "), Length::Exactly(10)),
            (Some("100"), Length::Exactly(100)),
            (Some("101"), Length::TooLarge),
            (Some("99999999999999999999999"), Length::TooLarge),
        ] {
            assert_eq!(length(given, 100), wanted, "{given:?}");
        }
    }

    #[test]
    fn tokens() {
        let hex = "0123456789abcdef".repeat(4);
        assert_eq!(token(&format!("/{hex}")), Some(hex.as_str()));
        for bad in [
            "",
            "/",
            &hex,
            &format!("//{hex}"),
            &format!("/{hex}/"),
            "/short",
            &format!("/{hex}%00"),
            &format!("/{}", "a".repeat(129)),
            &format!("/{hex}'"),
        ] {
            assert_eq!(token(bad), None, "{bad}");
        }
    }
}
