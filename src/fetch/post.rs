//! One request that is not a fetch: a form, for subscribing at hubs, or what a hub sends, to try the callback. What the answer
//! means, and whether a redirect is followed, the caller knows.

use super::guard::Class;
use super::location::{authorization, clean, target};
use super::{Freshness, Limits, Network, chain, hop};
use crate::rules::failure::{Failure, FailureKind};
use std::io::Read;
use std::time::Instant;
use ureq::http::header::{self, HeaderMap, HeaderValue};
use url::Url;

/// Bytes of an answer that are kept: hubs say in a line or two why they refuse.
const MAX_ANSWER: u64 = 4096;

/// A form to be posted.
#[derive(Debug, Clone)]
pub struct Post<'a> {
    pub url: &'a Url,
    /// `application/x-www-form-urlencoded`, as it is to be sent.
    pub form: &'a str,
    /// The user typed this URL: it may be a private address. `false` for what a feed or a redirect names.
    pub trusted: bool,
    /// `None`: now + `chain_timeout`.
    pub deadline: Option<Instant>,
}

/// One request of any kind.
#[derive(Debug, Clone)]
pub struct Single<'a> {
    pub url: &'a Url,
    /// `Some`: a POST of this; `None`: a GET.
    pub body: Option<&'a [u8]>,
    /// Beside User-Agent, Accept and Authorization: names in lower case, visible ASCII.
    pub headers: &'a [(&'static str, &'a str)],
    /// As in [`Post`].
    pub trusted: bool,
    /// `None`: now + `chain_timeout`.
    pub deadline: Option<Instant>,
}

/// A response to a [`Post`] or [`Single`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// For a redirect with one usable Location: resolved, http or https, without credentials and fragment.
    pub location: Option<Url>,
    /// Retry-After among them.
    pub headers: Freshness,
    /// The first 4096 bytes of the body, as text; empty for a redirect.
    pub text: String,
    /// The address was a private one.
    pub private: bool,
}

pub(super) fn run(network: &Network, post: &Post, limits: &Limits) -> Result<Answer, Failure> {
    let single = Single {
        url: post.url,
        body: Some(post.form.as_bytes()),
        headers: &[("content-type", "application/x-www-form-urlencoded")],
        trusted: post.trusted,
        deadline: post.deadline,
    };
    self::single(network, &single, limits)
}

pub(super) fn single(network: &Network, single: &Single, limits: &Limits) -> Result<Answer, Failure> {
    let url = clean(single.url);
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Failure::new(FailureKind::BadScheme, format!("{}: is neither http nor https", url.scheme())));
    }
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(header::USER_AGENT, network.user_agent.clone());
    headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
    for &(name, value) in single.headers {
        let value = HeaderValue::from_str(value)
            .map_err(|_| Failure::new(FailureKind::Protocol, format!("a bad value for the header {name}")))?;
        headers.insert(name, value);
    }
    if let Some(Ok(value)) = authorization(single.url, &url).map(HeaderValue::try_from) {
        headers.insert(header::AUTHORIZATION, value);
    }
    let answer = hop::send(
        network,
        hop::Ask {
            url: &url,
            headers,
            form: single.body,
            may_be_private: single.trusted,
            deadline: chain::deadline(single.deadline, Instant::now(), limits),
            connect_timeout: limits.connect_timeout,
        },
    );
    let (parts, mut body) = answer.result?.into_parts();
    let redirect = parts.status.is_redirection();
    let fields = parts.headers.get_all(header::LOCATION);
    let location =
        Some(fields).filter(|_| redirect).and_then(|f| target(&url, f.iter().map(HeaderValue::as_bytes)).ok());
    let mut text = Vec::new();
    if !redirect {
        // The status has come and is what counts: an answer that is cut after it is kept as far as it came.
        let _ = body.as_reader().take(MAX_ANSWER).read_to_end(&mut text);
    }
    Ok(Answer {
        status: parts.status.as_u16(),
        location,
        headers: chain::freshness(&parts.headers),
        text: String::from_utf8_lossy(&text).into_owned(),
        private: answer.reached == Some(Class::Private),
    })
}
