//! When a feed is fetched next.
//!
//! Pure: the row, what came, the settings and the time go in, a time comes out. Jitter is drawn from the feed's id and the
//! number of the attempt, so that a herd stays spread and tests can repeat it. Called by `worker` when an outcome is applied.

use crate::rules::failure::FailureKind;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

const HOUR: i64 = 3600;
const DAY: i64 = 86400;

/// Bounds from the settings, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub min_interval: i64,
    pub max_interval: i64,
}

/// What the next time depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub feed_id: i64,
    pub attempts: i64,
    /// The user's own interval, which beats the bounds.
    pub interval_seconds: Option<i64>,
    pub now: i64,
}

/// After a success: the interval, spread by up to a tenth of it.
pub fn after_success(run: &Run, bounds: &Bounds) -> i64 {
    let interval = interval(run, bounds);
    run.now + interval + spread(run, interval / 10)
}

/// After the failure number `count` in a row (1 = the first): twice the interval with each one, from the start that fits the
/// kind, at most a day (a week after 30 failures), spread by a fifth either way.
pub fn after_failure(run: &Run, bounds: &Bounds, kind: FailureKind, count: i64) -> i64 {
    let first = match kind {
        // Somebody has to change something; asking often only annoys.
        FailureKind::Auth => DAY,
        FailureKind::Forbidden | FailureKind::Challenge => 6 * HOUR,
        // Confirmed once after a day.
        FailureKind::Gone => return run.now + DAY + spread(run, HOUR),
        _ => interval(run, bounds),
    };
    let most = if count > 30 { 7 * DAY } else { DAY }.max(first);
    let doubled = first.saturating_mul(1 << count.saturating_sub(1).clamp(0, 20)).min(most);
    run.now + doubled - doubled / 5 + spread(run, doubled * 2 / 5)
}

fn interval(run: &Run, bounds: &Bounds) -> i64 {
    run.interval_seconds.unwrap_or(bounds.min_interval.min(bounds.max_interval)).max(1)
}

/// Whether a 410 is the confirmation of an earlier one: the feed is then gone. The two must lie most of a day apart.
pub fn gone_confirmed(was: Option<&str>, failing_since: Option<i64>, now: i64) -> bool {
    was == Some(FailureKind::Gone.name()) && failing_since.is_some_and(|since| now.saturating_sub(since) >= DAY - HOUR)
}

/// 0 to `most` seconds, from the feed and the attempt.
pub fn spread(run: &Run, most: i64) -> i64 {
    let mut hasher = SipHasher13::new();
    hasher.write(&run.feed_id.to_le_bytes());
    hasher.write(&run.attempts.to_le_bytes());
    (hasher.finish() % (most.max(0) as u64 + 1)) as i64
}

/// Seconds to leave a host alone after Retry-After, between a minute and a day: whole seconds, or one of the three HTTP dates,
/// which counts from the response's own Date. `None`: there was none that can be read (RFC 9110 §10.2.3).
pub fn retry_after(value: Option<&str>, date: Option<&str>, now: i64) -> Option<i64> {
    let value = value?.trim();
    let seconds = match value.parse::<u64>() {
        Ok(seconds) => i64::try_from(seconds).unwrap_or(DAY),
        Err(_) => {
            let from = date.and_then(unix_time).unwrap_or(now);
            let seconds = unix_time(value)? - from;
            if seconds <= 0 {
                return None;
            }
            seconds
        }
    };
    Some(seconds.clamp(60, DAY))
}

fn unix_time(date: &str) -> Option<i64> {
    let at = httpdate::parse_http_date(date.trim()).ok()?;
    Some(at.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { min_interval: HOUR, max_interval: DAY };
    const RUN: Run = Run { feed_id: 7, attempts: 1, interval_seconds: None, now: 1_000_000 };

    #[test]
    fn success_comes_again_after_the_interval_and_at_most_a_tenth_more() {
        for (own, expected) in [(None, HOUR), (Some(600), 600), (Some(7 * DAY), 7 * DAY)] {
            for attempts in 0..200 {
                let run = Run { interval_seconds: own, attempts, ..RUN };
                let wait = after_success(&run, &BOUNDS) - run.now;
                assert!((expected..=expected + expected / 10).contains(&wait), "{own:?}: {wait}");
            }
        }
    }

    #[test]
    fn failures_back_off_to_a_day_and_then_to_a_week() {
        use FailureKind::*;
        let rows = [
            (Timeout, 1, HOUR),
            (Timeout, 2, 2 * HOUR),
            (Timeout, 4, 8 * HOUR),
            (Timeout, 9, DAY),
            (Timeout, 31, 7 * DAY),
            (NotFound, 1, HOUR),
            (Forbidden, 1, 6 * HOUR),
            (Auth, 1, DAY),
            (Auth, 12, DAY),
        ];
        for (kind, count, expected) in rows {
            for attempts in 0..50 {
                let wait = after_failure(&Run { attempts, ..RUN }, &BOUNDS, kind, count) - RUN.now;
                let (low, high) = (expected * 4 / 5, expected * 6 / 5);
                assert!((low..=high).contains(&wait), "{kind} {count}: {wait} is not in {low}..{high}");
            }
        }
        let wait = after_failure(&RUN, &BOUNDS, Gone, 1) - RUN.now;
        assert!((DAY..=DAY + HOUR).contains(&wait));
    }

    #[test]
    fn gone_needs_two_answers_a_day_apart() {
        assert!(!gone_confirmed(None, None, 100));
        assert!(!gone_confirmed(Some("gone"), Some(0), HOUR));
        assert!(gone_confirmed(Some("gone"), Some(0), 25 * HOUR));
        assert!(!gone_confirmed(Some("not_found"), Some(0), 25 * HOUR));
    }

    #[test]
    fn retry_after_in_all_its_forms() {
        let date = Some("Mon, 30 Nov 2026 10:00:00 GMT");
        let rows = [
            (Some("120"), Some(120)),
            (Some(" 5 "), Some(60)),
            (Some("999999999999999999999999"), None),
            (Some("99999999"), Some(DAY)),
            (Some("-5"), None),
            (Some("1.5"), None),
            (Some("soon"), None),
            (Some("Mon, 30 Nov 2026 10:10:00 GMT"), Some(600)),
            (Some("Monday, 30-Nov-26 10:10:00 GMT"), Some(600)),
            (Some("Mon Nov 30 10:10:00 2026"), Some(600)),
            (Some("Mon, 30 Nov 2026 09:00:00 GMT"), None),
            (None, None),
        ];
        for (value, expected) in rows {
            assert_eq!(retry_after(value, date, 0), expected, "{value:?}");
        }
    }
}
