//! `feedmill trace URL`: the chain, one hop a line, then the true location. Touches no database.

use super::output::Output;
use crate::error::{EXIT_OK, Error, Result};
use crate::fetch::{Chain, End, Request};
use crate::rules::canonical::{canonical, without_credentials};
use crate::rules::moved::{Hop, permanent_target};
use std::io::Write;
use url::Url;

/// Follows where a URL leads and prints the way.
pub fn run(url: &str, out: &mut Output<impl Write>) -> Result<u8> {
    let (tools, limits) = super::tools()?;
    let spellings = canonical(url).map_err(|refusal| Error::Failed(refusal.to_string()))?;
    let follow = |url: &Url| {
        let request = Request { url, validators: None, trusted: true, deadline: None };
        tools.network.chain(&request, &limits.http)
    };
    let chain = follow(spellings.given());
    match &spellings.http_fallback {
        Some(plain) if chain.hops.is_empty() => show(plain, &follow(plain), out),
        _ => show(spellings.given(), &chain, out),
    }
}

/// Prints a chain that began at `asked`. When the chain failed, the hops up to there are printed too, and the failure
/// is the error.
pub fn show(asked: &Url, chain: &Chain, out: &mut Output<impl Write>) -> Result<u8> {
    out.text(&hops(&chain.hops))?;
    out.line(&location(asked, &chain.hops))?;
    match &chain.end {
        End::Failed { failure, .. } => Err(Error::Failed(format!("{}: {}", failure.kind, failure.message))),
        End::Document(_) | End::NotModified { .. } => Ok(EXIT_OK),
    }
}

/// One line a hop: status, URL and, for a redirect, `-> ` and its resolved Location.
pub fn hops(hops: &[Hop]) -> String {
    let line = |hop: &Hop| match (&hop.location, hop.status) {
        (Some(location), status) => format!("{status} {} -> {location}\n", hop.url),
        (None, status @ (301 | 302 | 303 | 307 | 308)) => format!("{status} {} -> (no usable Location)\n", hop.url),
        (None, status) => format!("{status} {}\n", hop.url),
    };
    hops.iter().map(line).collect()
}

/// `permanent: URL`: where the permanent redirects lead, or `asked` itself, without credentials. The last line, so that
/// scripts find it.
pub fn location(asked: &Url, hops: &[Hop]) -> String {
    match permanent_target(hops) {
        Some(target) => format!("permanent: {target}"),
        None => format!("permanent: {}", without_credentials(asked)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::Freshness;
    use crate::rules::failure::{Failure, FailureKind};
    use std::time::Duration;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn hop(status: u16, at: &str, location: Option<&str>) -> Hop {
        Hop { url: url(at), status, location: location.map(url) }
    }

    #[test]
    fn a_hop_a_line_then_the_permanent_location() {
        let chain = [
            hop(301, "http://old.test/f", Some("https://old.test/f")),
            hop(308, "https://old.test/f", Some("https://new.test/f")),
            hop(302, "https://new.test/f", Some("https://cdn.test/f?s=1")),
            hop(200, "https://cdn.test/f?s=1", None),
        ];
        let expected = "301 http://old.test/f -> https://old.test/f\n\
                        308 https://old.test/f -> https://new.test/f\n\
                        302 https://new.test/f -> https://cdn.test/f?s=1\n\
                        200 https://cdn.test/f?s=1\n";
        assert_eq!(hops(&chain), expected);
        assert_eq!(location(&url("http://old.test/f"), &chain), "permanent: https://new.test/f");
    }

    #[test]
    fn what_did_not_move_stays_where_it_was_asked_for() {
        let asked = url("https://user:pw@a.test/f");
        let chain = [hop(302, "https://a.test/f", Some("https://b.test/f")), hop(404, "https://b.test/f", None)];
        assert_eq!(location(&asked, &chain), "permanent: https://a.test/f");
        assert_eq!(location(&asked, &[]), "permanent: https://a.test/f");
        assert_eq!(hops(&[]), "");
        assert_eq!(hops(&[hop(301, "https://a.test/f", None)]), "301 https://a.test/f -> (no usable Location)\n");
    }

    #[test]
    fn a_failed_chain_is_shown_and_fails() {
        let chain = Chain {
            hops: vec![hop(301, "http://a.test/f", Some("http://gone.test/f"))],
            end: End::Failed { failure: Failure::new(FailureKind::Dns, "no such host"), headers: Freshness::default() },
            duration: Duration::ZERO,
            wire_bytes: 0,
            private: false,
        };
        let mut printed = Vec::new();
        let error = show(&url("http://a.test/f"), &chain, &mut Output::new(&mut printed)).unwrap_err();
        assert_eq!(error.to_string(), "dns: no such host");
        let expected = "301 http://a.test/f -> http://gone.test/f\npermanent: http://gone.test/f\n";
        assert_eq!(String::from_utf8(printed).unwrap(), expected);
    }
}
