//! The loop over hops: what is sent to whom, where a response leads, how it ends.

use super::cookies::Jar;
use super::guard::Class;
use super::location::{authorization, clean, target};
use super::{Chain, Document, End, Freshness, Limits, Network, Request, Validators, body, hop};
use crate::rules::failure::{Failure, FailureKind};
use crate::rules::moved::Hop;
use std::time::{Duration, Instant};
use ureq::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use ureq::http::{Response, StatusCode};
use url::Url;

/// Feeds first; `*/*` because many servers answer 406 without it.
const ACCEPT: HeaderValue = HeaderValue::from_static(
    "application/atom+xml, application/rss+xml, application/feed+json, \
     application/xml;q=0.9, text/xml;q=0.9, */*;q=0.5",
);
const ACCEPT_ENCODING: HeaderValue = HeaderValue::from_static("gzip, deflate, br");
/// Bytes of one validator; a longer one is not sent, and the answer is a whole document.
const MAX_VALIDATOR: usize = 2048;

/// Runs a chain to its end.
pub(super) fn run(network: &Network, request: &Request, limits: &Limits) -> Chain {
    let started = Instant::now();
    let mut walk = Walk {
        network,
        request,
        limits,
        deadline: deadline(request.deadline, started, limits),
        hops: Vec::new(),
        cookies: Jar::default(),
        may_be_private: request.trusted,
        private: false,
        wire_bytes: 0,
    };
    let end = walk.walk().unwrap_or_else(|failure| End::Failed { failure, headers: Freshness::default() });
    Chain { hops: walk.hops, end, duration: started.elapsed(), wire_bytes: walk.wire_bytes, private: walk.private }
}

/// The given deadline, else one from the settings (a day where those are beyond what a clock can count).
pub(super) fn deadline(given: Option<Instant>, started: Instant, limits: &Limits) -> Instant {
    given.or_else(|| started.checked_add(limits.chain_timeout)).unwrap_or_else(|| started + Duration::from_secs(86_400))
}

struct Walk<'a> {
    network: &'a Network,
    request: &'a Request<'a>,
    limits: &'a Limits,
    deadline: Instant,
    hops: Vec<Hop>,
    cookies: Jar,
    /// The user named the first URL, and no hop since was a public one.
    may_be_private: bool,
    private: bool,
    wire_bytes: u64,
}

impl Walk<'_> {
    fn walk(&mut self) -> Result<End, Failure> {
        let mut url = clean(self.request.url);
        if !matches!(url.scheme(), "http" | "https") {
            let message = format!("only http and https can be fetched, and this is {}:", url.scheme());
            return Err(Failure::new(FailureKind::BadScheme, message));
        }
        let request = self.request;
        // Stored by us, clean; compared clean, for a user may have edited it.
        let stored = request.validators.filter(|validators| conditional(validators));
        let issuer = stored.and_then(|stored| Url::parse(&stored.url).ok()).map(|url| clean(&url));
        let mut visited: Vec<(Url, Vec<u8>)> = Vec::new();
        let (mut redirects, mut asked_again) = (0, false);
        loop {
            visited.push((url.clone(), self.cookies.header(&url)));
            let validators = stored.filter(|_| issuer.as_ref() == Some(&url));
            let response = self.send(&url, validators)?;
            let status = response.status().as_u16();
            self.hops.push(Hop { url: url.clone(), status, location: None });
            let date = text(response.headers(), header::DATE).and_then(|date| httpdate::parse_http_date(&date).ok());
            for field in response.headers().get_all(header::SET_COOKIE) {
                self.cookies.set(&url, field.as_bytes(), date);
            }
            match status {
                200 | 203 | 226 => return Ok(self.document(url, response)),
                304 => {
                    if let Some(old) = validators {
                        return Ok(not_modified(url, old, response.headers()));
                    }
                    if asked_again {
                        let message =
                            format!("{url} answers 304 Not Modified though nothing was said of an older copy");
                        return Ok(failed(FailureKind::Protocol, message, response.headers()));
                    }
                    asked_again = true;
                }
                301 | 302 | 303 | 307 | 308 => {
                    let fields = response.headers().get_all(header::LOCATION);
                    let next = match target(&url, fields.iter().map(HeaderValue::as_bytes)) {
                        Ok(next) => next,
                        Err(why) => {
                            let message = format!("{url} answers {status}: {why}");
                            return Ok(failed(FailureKind::BadLocation, message, response.headers()));
                        }
                    };
                    if let Some(hop) = self.hops.last_mut() {
                        hop.location = Some(next.clone());
                    }
                    let cookie = self.cookies.header(&next);
                    if visited.iter().any(|(seen, sent)| *seen == next && *sent == cookie) {
                        let message = format!("the redirects go in a circle: {url} leads back to {next}");
                        return Ok(failed(FailureKind::RedirectLoop, message, response.headers()));
                    }
                    if redirects >= self.limits.max_redirects {
                        let message = format!("more than {redirects} redirects (setting max_redirects), up to {next}");
                        return Ok(failed(FailureKind::TooManyRedirects, message, response.headers()));
                    }
                    redirects += 1;
                    url = next;
                    // The response is dropped with its connection, and the body was never read.
                }
                _ => {
                    let (kind, message) = refusal(&url, response.status(), response.headers());
                    return Ok(failed(kind, message, response.headers()));
                }
            }
        }
    }

    fn send(&mut self, url: &Url, validators: Option<&Validators>) -> Result<Response<ureq::Body>, Failure> {
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(header::USER_AGENT, self.network.user_agent.clone());
        headers.insert(header::ACCEPT, ACCEPT);
        headers.insert(header::ACCEPT_ENCODING, ACCEPT_ENCODING);
        if let Some(Ok(value)) = authorization(self.request.url, url).map(HeaderValue::try_from) {
            headers.insert(header::AUTHORIZATION, value);
        }
        if let Some(value) = Some(self.cookies.header(url)).filter(|cookies| !cookies.is_empty())
            && let Ok(value) = HeaderValue::from_bytes(&value)
        {
            headers.insert(header::COOKIE, value);
        }
        if let Some(value) = validators.and_then(|validators| sendable(&validators.etag)) {
            headers.insert(header::IF_NONE_MATCH, value);
        }
        if let Some(value) = validators.and_then(|validators| sendable(&validators.last_modified)) {
            headers.insert(header::IF_MODIFIED_SINCE, value);
        }
        let answer = hop::send(
            self.network,
            hop::Ask {
                url,
                headers,
                form: None,
                may_be_private: self.may_be_private,
                deadline: self.deadline,
                connect_timeout: self.limits.connect_timeout,
            },
        );
        let private = answer.reached == Some(Class::Private);
        if self.hops.is_empty() {
            self.private = private;
        }
        // From a public server on, nothing private may follow, even where the chain began in the user's own network.
        self.may_be_private &= private;
        answer.result
    }

    fn document(&mut self, url: Url, response: Response<ureq::Body>) -> End {
        let (parts, mut body) = response.into_parts();
        let announced = body.content_length();
        let deadline = self.deadline;
        let broken = |error| hop::broken_body(error, &url, deadline);
        let read = body::read(body.as_reader(), announced, self.limits.max_body_bytes, &mut self.wire_bytes, broken);
        let headers = freshness(&parts.headers);
        match read {
            Err(failure) => End::Failed { failure, headers },
            Ok(body) => End::Document(Document {
                content_type: text(&parts.headers, header::CONTENT_TYPE),
                content_encoding: all(&parts.headers, header::CONTENT_ENCODING),
                link_headers: parts.headers.get_all(header::LINK).iter().map(readable).collect(),
                headers,
                validators: Validators {
                    url: url.to_string(),
                    etag: text(&parts.headers, header::ETAG),
                    last_modified: text(&parts.headers, header::LAST_MODIFIED),
                },
                url,
                body,
            }),
        }
    }
}

/// Whether a request with these carries a condition.
fn conditional(validators: &Validators) -> bool {
    sendable(&validators.etag).is_some() || sendable(&validators.last_modified).is_some()
}

/// A stored validator as the bytes it came as. One that cannot stand in a header (users edit them) is not sent.
fn sendable(stored: &Option<String>) -> Option<HeaderValue> {
    let bytes: Option<Vec<u8>> = stored.as_deref()?.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
    let bytes = bytes.filter(|bytes| (1..=MAX_VALIDATOR).contains(&bytes.len()))?;
    HeaderValue::from_bytes(&bytes).ok()
}

/// A 304 may bring new validators; what it does not name stays.
fn not_modified(url: Url, old: &Validators, headers: &HeaderMap) -> End {
    let validators = Validators {
        url: url.to_string(),
        etag: text(headers, header::ETAG).or_else(|| old.etag.clone()),
        last_modified: text(headers, header::LAST_MODIFIED).or_else(|| old.last_modified.clone()),
    };
    End::NotModified { headers: freshness(headers), validators }
}

fn failed(kind: FailureKind, message: String, headers: &HeaderMap) -> End {
    End::Failed { failure: Failure::new(kind, message), headers: freshness(headers) }
}

/// What a status that is neither a document nor a redirect to follow means.
fn refusal(url: &Url, status: StatusCode, headers: &HeaderMap) -> (FailureKind, String) {
    let challenge =
        headers.get("cf-mitigated").is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"challenge"));
    let kind = match status.as_u16() {
        403 | 503 if challenge => FailureKind::Challenge,
        401 | 407 => FailureKind::Auth,
        403 => FailureKind::Forbidden,
        404 => FailureKind::NotFound,
        410 => FailureKind::Gone,
        429 => FailureKind::RateLimited,
        503 if headers.contains_key(header::RETRY_AFTER) => FailureKind::RateLimited,
        500..=599 => FailureKind::ServerError,
        _ => FailureKind::HttpError,
    };
    let advice = match kind {
        FailureKind::Challenge => {
            ": a check for browsers, which no feed reader passes; ask the site to exempt its feed"
        }
        FailureKind::Auth => ": put user and password into the URL (https://user:password@…) if you have them",
        FailureKind::Gone => ": the feed was removed for good",
        FailureKind::RateLimited => ": asked too often, the server wants a pause",
        _ => "",
    };
    let reason = status.canonical_reason().map(|reason| format!(" {reason}")).unwrap_or_default();
    // The advice first: the message is cut at its end, and a URL may be long.
    (kind, format!("the server answers {}{reason}{advice} ({url})", status.as_u16()))
}

/// The headers that say when to come again.
pub(super) fn freshness(headers: &HeaderMap) -> Freshness {
    Freshness {
        cache_control: all(headers, header::CACHE_CONTROL),
        expires: text(headers, header::EXPIRES),
        age: text(headers, header::AGE),
        date: text(headers, header::DATE),
        retry_after: text(headers, header::RETRY_AFTER),
    }
}

/// The first field of that name, each byte as the Latin-1 character of its number.
fn text(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    headers.get(name).map(latin_1)
}

/// All fields of that name as one list.
fn all(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let fields: Vec<String> = headers.get_all(name).iter().map(latin_1).collect();
    if fields.is_empty() { None } else { Some(fields.join(", ")) }
}

fn latin_1(value: &HeaderValue) -> String {
    value.as_bytes().iter().map(|byte| char::from(*byte)).collect()
}

/// For fields with addresses in them: UTF-8 if it is that.
fn readable(value: &HeaderValue) -> String {
    std::str::from_utf8(value.as_bytes()).map_or_else(|_| latin_1(value), str::to_string)
}
