//! What a hub's answer to a request means (WebSub 5.1.2).

use super::request::{Mode, REDIRECTS_MAX};
use crate::rules::failure::clean_line;
use crate::rules::lease::Event;

/// The first words of a hub's reason are kept, characters.
pub const REASON_MAX: usize = 300;

/// What came back, or that nothing did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<'a> {
    pub status: u16,
    /// Of a redirect, as it came.
    pub location: Option<&'a str>,
    pub retry_after: Option<&'a str>,
    /// At most `request::ANSWER_MAX` bytes.
    pub body: &'a [u8],
}

/// What it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// POST the same form again to this `Location`, which is still to be resolved against the URL that gave it and to pass
    /// the address guard. `stored`: so far only 308s, so the hub lives there for good.
    Again { location: String, stored: bool },
    /// The request is over.
    Over(Outcome),
}

/// The end of a request: what `rules::lease` is told, and a line for `last_error`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub event: Event,
    /// Status and first words of the hub's reason, printable; `None`: it went well.
    pub message: Option<String>,
    /// The hub as a whole is to be left alone so long, seconds: it said so, or it is ill.
    pub hold_hub: Option<i64>,
    /// The hub's new address, when 308s alone led there; the caller fills it in.
    pub moved_to: Option<String>,
}

/// Reads an answer. `hops`: how many redirects were followed before it; `only_308`: all of them were 308. `now`: Unix
/// seconds, for a `Retry-After` that is a date.
pub fn read(mode: Mode, answer: &Answer<'_>, hops: usize, only_308: bool, now: i64) -> Verdict {
    let over = |event, quote: bool| {
        let message = quote.then(|| reason(answer));
        Verdict::Over(Outcome { event, message, hold_hub: None, moved_to: None })
    };
    match answer.status {
        // 204 to a subscribe claims that it was verified already (0.3): if so the GET was seen, and that is what counts.
        200..=299 => over(Event::Accepted, false),
        // 307 and 308 repeat the POST. So do 301 and 302 here: a GET makes no sense, and the W3C's own test report names
        // these two for the same case.
        301 | 302 | 307 | 308 if hops < REDIRECTS_MAX => match answer.location.map(str::trim) {
            Some(location) if !location.is_empty() => {
                Verdict::Again { location: location.to_string(), stored: answer.status == 308 && only_308 }
            }
            _ => over(Event::Refused, true),
        },
        410 if mode == Mode::Subscribe => over(Event::HubGone, true),
        429 | 500..=599 => {
            let retry_after = answer.retry_after.and_then(|value| retry_after(value, now));
            Verdict::Over(Outcome {
                event: Event::Failed { retry_after },
                message: Some(reason(answer)),
                hold_hub: retry_after,
                moved_to: None,
            })
        }
        // A hub that asks for time with 4xx (408, 425) is rare; it gets the ladder as any other refusal.
        _ => over(Event::Refused, true),
    }
}

/// The request did not reach the hub, or no answer came: `what` says why.
pub fn unreachable(what: &str) -> Outcome {
    Outcome {
        event: Event::Failed { retry_after: None },
        message: Some(clean_line(what, REASON_MAX)),
        hold_hub: None,
        moved_to: None,
    }
}

/// `Retry-After` in seconds from now, at least 0; `None` when it is neither a number nor a date.
pub fn retry_after(value: &str, now: i64) -> Option<i64> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(value.parse().unwrap_or(i64::MAX));
    }
    date(value).map(|at| (at - now).max(0))
}

#[cfg(feature = "worker")]
fn date(value: &str) -> Option<i64> {
    let at = httpdate::parse_http_date(value).ok()?;
    at.duration_since(std::time::UNIX_EPOCH).ok().and_then(|since| i64::try_from(since.as_secs()).ok())
}

/// The callback program asks nobody, so it needs no dates.
#[cfg(not(feature = "worker"))]
fn date(_: &str) -> Option<i64> {
    None
}

fn reason(answer: &Answer<'_>) -> String {
    let body = &answer.body[..answer.body.len().min(4 * REASON_MAX)];
    let text = clean_line(&String::from_utf8_lossy(body), REASON_MAX);
    match text.as_str() {
        "" => format!("the hub answered {}", answer.status),
        text => format!("the hub answered {}: {text}", answer.status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(mode: Mode, status: u16, location: Option<&str>, retry_after: Option<&str>, hops: usize) -> Verdict {
        read(mode, &Answer { status, location, retry_after, body: b"no\x1b[31m good" }, hops, true, 784_111_777 - 60)
    }

    #[test]
    fn answers() {
        use Event::{Accepted, Failed, HubGone, Refused};
        for (mode, status, retry, event) in [
            (Mode::Subscribe, 202, None, Accepted),
            (Mode::Subscribe, 204, None, Accepted),
            (Mode::Subscribe, 200, None, Accepted),
            (Mode::Subscribe, 299, None, Accepted),
            (Mode::Unsubscribe, 204, None, Accepted),
            (Mode::Subscribe, 303, None, Refused),
            (Mode::Subscribe, 304, None, Refused),
            (Mode::Subscribe, 400, None, Refused),
            (Mode::Subscribe, 404, None, Refused),
            (Mode::Subscribe, 410, None, HubGone),
            (Mode::Unsubscribe, 410, None, Refused),
            (Mode::Unsubscribe, 404, None, Refused),
            (Mode::Subscribe, 429, Some("120"), Failed { retry_after: Some(120) }),
            (Mode::Subscribe, 503, Some("Sun, 06 Nov 1994 08:49:37 GMT"), Failed { retry_after: Some(60) }),
            (Mode::Subscribe, 503, Some("soon"), Failed { retry_after: None }),
            (Mode::Subscribe, 503, Some("99999999999999999999"), Failed { retry_after: Some(i64::MAX) }),
            (Mode::Subscribe, 500, None, Failed { retry_after: None }),
            (Mode::Subscribe, 999, None, Refused),
        ] {
            if !cfg!(feature = "worker") && retry.is_some_and(|value| value.ends_with("GMT")) {
                continue;
            }
            let Verdict::Over(outcome) = verdict(mode, status, Some("http://x.test/"), retry, 0) else {
                panic!("{status}: not over")
            };
            assert_eq!(outcome.event, event, "{status}");
            match event {
                Accepted => assert_eq!(outcome.message, None),
                _ => assert_eq!(outcome.message.unwrap(), format!("the hub answered {status}: no [31m good")),
            }
        }
    }

    #[test]
    fn a_redirect_repeats_the_post() {
        for (status, stored) in [(301, false), (302, false), (307, false), (308, true)] {
            let again = Verdict::Again { location: "/hub2".into(), stored };
            assert_eq!(verdict(Mode::Subscribe, status, Some(" /hub2 "), None, 4), again);
            assert!(matches!(verdict(Mode::Subscribe, status, Some("/hub2"), None, 5), Verdict::Over(_)));
            assert!(matches!(verdict(Mode::Subscribe, status, None, None, 0), Verdict::Over(_)));
        }
    }

    #[test]
    fn a_308_after_a_307_is_not_stored() {
        let answer = Answer { status: 308, location: Some("/x"), retry_after: None, body: b"" };
        let again = Verdict::Again { location: "/x".into(), stored: false };
        assert_eq!(read(Mode::Subscribe, &answer, 1, false, 0), again);
    }
}
