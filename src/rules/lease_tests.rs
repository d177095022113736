//! The life's table of cases, and lives lived by stepping `now`.

use super::*;

const NOW: i64 = 1_800_000_000;

fn life(state: State) -> Life {
    Life {
        id: 7,
        state,
        renewing: false,
        requests: 0,
        failures: 0,
        rung: RUNG_FULL,
        lease_seconds: None,
        lease_expires_at: None,
        requested_at: Some(NOW - 10),
        ended_at: None,
        has_fallback: true,
        lease_refused: false,
        superseded: false,
    }
}

fn live(left: i64) -> Life {
    Life { lease_seconds: Some(864_000), lease_expires_at: Some(NOW + left), ..life(State::Active) }
}

/// An effect as the table writes it: schedules as a range of seconds from now.
fn matches(effect: &Effect, wanted: &str) -> bool {
    match effect {
        Effect::Schedule(job, at) => {
            let Some((name, range)) = wanted.split_once('@') else { return false };
            let (low, high) = range.split_once("..").unwrap_or((range, range));
            let (low, high): (i64, i64) = (low.parse().unwrap(), high.parse().unwrap());
            name == job.name() && (low..=high).contains(&(at - NOW))
        }
        other => format!("{other:?}") == wanted,
    }
}

#[test]
fn every_state_meets_every_event() {
    use Event::{Accepted, Deny, Due, Failed, HubGone, Unwanted, VerifySubscribe, VerifyUnsubscribe};
    use State::*;
    let failed = Failed { retry_after: None };
    let later = Failed { retry_after: Some(120) };
    let verify = VerifySubscribe { lease: 864_000 };
    const ASK: &str = "Subscribe { with_lease: true, sync: false }";
    const BARE: &str = "Subscribe { with_lease: false, sync: false }";
    const SYNC: &str = "Subscribe { with_lease: true, sync: true }";
    let day = "subscribe@86400..97200";
    let week = "subscribe@604800..691200";
    let renewal = "renew@432000..648000";
    type Case = (&'static str, Life, Event, Option<(State, Vec<&'static str>)>);
    let none = None;
    let cases: Vec<Case> = vec![
        ("first request", life(Pending), Due, Some((Pending, vec![ASK, "subscribe@600"]))),
        ("second try", Life { requests: 1, ..life(Pending) }, Due, Some((Pending, vec![ASK, "subscribe@900..1013"]))),
        (
            "after three tries, sync once",
            Life { requests: 3, ..life(Pending) },
            Due,
            Some((Pending, vec![SYNC, "subscribe@3600..4050"])),
        ),
        ("then polling", Life { requests: 4, ..life(Pending) }, Due, Some((Refused, vec![day, "NextHub"]))),
        (
            "this hub refuses leases",
            Life { lease_refused: true, ..life(Pending) },
            Due,
            Some((Pending, vec![BARE, "subscribe@600"])),
        ),
        ("accepted is not active", life(Pending), Accepted, Some((Pending, vec![]))),
        (
            "accepted without lease",
            Life { rung: RUNG_NO_LEASE, ..life(Pending) },
            Accepted,
            Some((Pending, vec!["RememberNoLease"])),
        ),
        (
            "refused when asked why it did not verify",
            Life { requests: 4, ..life(Pending) },
            Event::Refused,
            Some((Refused, vec![day, "NextHub"])),
        ),
        ("refused: without lease", life(Pending), Event::Refused, Some((Pending, vec!["subscribe@0"]))),
        (
            "refused: fetched URL",
            Life { rung: RUNG_NO_LEASE, ..life(Pending) },
            Event::Refused,
            Some((Pending, vec!["UseFetchedTopic", "subscribe@0"])),
        ),
        (
            "lease known to be refused: straight to the fetched URL",
            Life { lease_refused: true, ..life(Pending) },
            Event::Refused,
            Some((Pending, vec!["UseFetchedTopic", "subscribe@0"])),
        ),
        (
            "refused: no other topic",
            Life { rung: RUNG_NO_LEASE, has_fallback: false, ..life(Pending) },
            Event::Refused,
            Some((Refused, vec![day, "NextHub"])),
        ),
        (
            "refused: end of the ladder",
            Life { rung: RUNG_FETCHED_TOPIC, ..life(Pending) },
            Event::Refused,
            Some((Refused, vec![day, "NextHub"])),
        ),
        ("failed", life(Pending), failed, Some((Pending, vec!["subscribe@900..1012"]))),
        ("failed often", Life { failures: 40, ..life(Pending) }, failed, Some((Pending, vec!["subscribe@21600"]))),
        ("Retry-After beats backoff", life(Pending), later, Some((Pending, vec!["subscribe@120..150"]))),
        (
            "Retry-After of a year",
            life(Pending),
            Failed { retry_after: Some(31_536_000) },
            Some((Pending, vec!["subscribe@86400..108000"])),
        ),
        ("hub gone", life(Pending), HubGone, Some((Refused, vec![day, "NextHub"]))),
        ("verified", life(Pending), verify, Some((Active, vec![renewal, "Cancel(Subscribe)", "EndReplaced"]))),
        ("pending, unsubscribe", life(Pending), VerifyUnsubscribe, none.clone()),
        ("denied", life(Pending), Deny, Some((Denied, vec!["Cancel(Renew)", week, "NextHub", "Poll"]))),
        (
            "unwanted",
            life(Pending),
            Unwanted,
            Some((Unsubscribing, vec!["Cancel(Subscribe)", "Cancel(Renew)", "unsubscribe@0"])),
        ),
        ("renewal", live(400_000), Due, Some((Active, vec![ASK, "renew@600"]))),
        ("renewal of a short lease", live(20), Due, Some((Active, vec![ASK, "renew@10"]))),
        ("woke after the end", live(-864_000), Due, Some((Active, vec!["Poll", ASK, "renew@600"]))),
        (
            "end + 6 h",
            Life { requests: 3, renewing: true, ..live(-21_600) },
            Due,
            Some((Refused, vec![day, "NextHub", "Cancel(Renew)", "Poll"])),
        ),
        (
            "end + 5 h",
            Life { requests: 3, renewing: true, ..live(-18_000) },
            Due,
            Some((Active, vec![SYNC, "renew@3600..4050"])),
        ),
        ("renewal accepted", Life { renewing: true, ..live(99) }, Accepted, Some((Active, vec![]))),
        ("renewal refused", live(400_000), Event::Refused, Some((Active, vec!["renew@0"]))),
        (
            "renewal refused without lease too: the topic of a live row stays",
            Life { rung: RUNG_NO_LEASE, ..live(400_000) },
            Event::Refused,
            Some((Active, vec!["renew@900..1012"])),
        ),
        ("renewal failed", live(400_000), failed, Some((Active, vec!["renew@900..1012"]))),
        ("renewal: Retry-After", live(400_000), later, Some((Active, vec!["renew@120..180"]))),
        (
            "hub gone under a live row",
            live(400_000),
            HubGone,
            Some((Refused, vec![day, "NextHub", "Cancel(Renew)", "Poll"])),
        ),
        ("verified again", live(1000), verify, Some((Active, vec![renewal]))),
        ("unasked unsubscribe", live(1000), VerifyUnsubscribe, none.clone()),
        ("live, denied", live(1000), Deny, Some((Denied, vec!["Cancel(Renew)", week, "NextHub", "Poll"]))),
        (
            "live, unwanted",
            live(1000),
            Unwanted,
            Some((Unsubscribing, vec!["Cancel(Subscribe)", "Cancel(Renew)", "unsubscribe@0"])),
        ),
        ("unsubscribe", life(Unsubscribing), Due, Some((Unsubscribing, vec!["Unsubscribe", "unsubscribe@600"]))),
        (
            "the hub never heard of it",
            Life { requested_at: None, ..life(Unsubscribing) },
            Due,
            Some((Ended, vec!["Cancel(Unsubscribe)"])),
        ),
        (
            "never verified",
            Life { requests: 3, ..life(Unsubscribing) },
            Due,
            Some((Ended, vec!["Cancel(Unsubscribe)"])),
        ),
        ("unsubscribe accepted", life(Unsubscribing), Accepted, Some((Unsubscribing, vec![]))),
        ("unsubscribe unknown", life(Unsubscribing), Event::Refused, Some((Ended, vec!["Cancel(Unsubscribe)"]))),
        ("unsubscribe, hub gone", life(Unsubscribing), HubGone, Some((Ended, vec!["Cancel(Unsubscribe)"]))),
        ("unsubscribe failed", life(Unsubscribing), failed, Some((Unsubscribing, vec!["unsubscribe@900..1012"]))),
        (
            "unsubscribe failed often",
            Life { failures: 4, ..life(Unsubscribing) },
            later,
            Some((Ended, vec!["Cancel(Unsubscribe)"])),
        ),
        ("unsubscribe verified", life(Unsubscribing), VerifyUnsubscribe, Some((Ended, vec!["Cancel(Unsubscribe)"]))),
        ("unsubscribing, subscribe", life(Unsubscribing), verify, none.clone()),
        ("unsubscribing, denied", life(Unsubscribing), Deny, none.clone()),
        ("unsubscribing, unwanted", life(Unsubscribing), Unwanted, none.clone()),
        ("ended, asked again", life(Ended), VerifyUnsubscribe, Some((Ended, vec![]))),
        ("ended, subscribe", life(Ended), verify, none.clone()),
        ("ended, denied", life(Ended), Deny, none.clone()),
        (
            "ended, a job was left",
            life(Ended),
            Due,
            Some((Ended, vec!["Cancel(Subscribe)", "Cancel(Renew)", "Cancel(Unsubscribe)"])),
        ),
        ("ended, a late answer", life(Ended), Accepted, none.clone()),
        ("denied, a week later", life(Denied), Due, Some((Pending, vec!["UseNamedTopic", ASK, "subscribe@600"]))),
        ("denied twice", life(Denied), Deny, Some((Denied, vec![]))),
        ("denied, subscribe", life(Denied), verify, none.clone()),
        (
            "refused, a day later, from the top of the ladder",
            Life { rung: RUNG_FETCHED_TOPIC, ..life(Refused) },
            Due,
            Some((Pending, vec!["UseNamedTopic", ASK, "subscribe@600"])),
        ),
        (
            "refused, and another hub has taken over",
            Life { superseded: true, ..life(Refused) },
            Due,
            Some((Ended, vec!["Cancel(Subscribe)"])),
        ),
        ("refused, subscribe", life(Refused), verify, none.clone()),
        ("refused, unsubscribe", life(Refused), VerifyUnsubscribe, none.clone()),
        ("refused, a late answer", life(Refused), Accepted, none.clone()),
        ("refused, unwanted", life(Refused), Unwanted, Some((Ended, vec!["Cancel(Subscribe)"]))),
    ];
    for (name, before, event, wanted) in cases {
        let got = step(&before, event, NOW);
        match (&got, &wanted) {
            (None, None) => {}
            (Some(step), Some((state, effects))) => {
                assert_eq!(step.life.state, *state, "{name}");
                let same = step.effects.len() == effects.len()
                    && step.effects.iter().zip(effects).all(|(effect, text)| matches(effect, text));
                assert!(same, "{name}: {:?} is not {effects:?}", step.effects);
            }
            _ => panic!("{name}: {got:?} is not {wanted:?}"),
        }
    }
}

#[test]
fn no_state_panics_and_names_return() {
    let events = [
        Event::Due,
        Event::Accepted,
        Event::Refused,
        Event::Failed { retry_after: Some(i64::MAX) },
        Event::Failed { retry_after: Some(i64::MIN) },
        Event::HubGone,
        Event::VerifySubscribe { lease: LEASE_MAX },
        Event::VerifyUnsubscribe,
        Event::Deny,
        Event::Unwanted,
    ];
    for (state, name) in State::ALL {
        assert_eq!(State::from_name(name), Some(state));
        assert_eq!(state.name(), name);
        for event in events {
            for rung in 0..=3 {
                let odd = Life { requests: u32::MAX, failures: u32::MAX - 1, rung, id: i64::MAX, ..life(state) };
                step(&odd, event, NOW);
                step(&Life { id: -1, lease_expires_at: Some(i64::MAX), ..odd }, event, 0);
            }
        }
    }
}

#[test]
fn leases_count_as_given() {
    for (given, lease) in [
        (None, 86_400),
        (Some(""), 86_400),
        (Some("0"), 86_400),
        (Some("000"), 86_400),
        (Some("-5"), 86_400),
        (Some("1e3"), 86_400),
        (Some("10.5"), 86_400),
        (Some("1"), 1),
        (Some("60"), 60),
        (Some(" 864000 "), 864_000),
        (Some("1209600"), 1_209_600),
        (Some("1209601"), 1_209_600),
        (Some("315360000"), 1_209_600),
        (Some("99999999999999999999999999"), 1_209_600),
    ] {
        assert_eq!(granted(given.map(str::as_bytes)), lease, "{given:?}");
    }
}

#[test]
fn renewal_falls_between_half_and_three_quarters() {
    for lease in [1, 2, 60, 599, 3600, 7200, 9000, 14_400, 86_400, 864_000, 1_209_600] {
        let mut seen = std::collections::HashSet::new();
        for id in 1..500 {
            let at = renew_at(id, lease, NOW) - NOW;
            assert!((lease / 2..=lease * 3 / 4).contains(&at), "{lease}: {at}");
            assert!(at <= (lease - 3600).max(lease / 2), "{lease}: {at}");
            seen.insert(at);
        }
        assert!(lease < 86_400 || seen.len() > 400, "{lease}: no spread");
    }
}

/// Runs a life whose hub verifies `delay` seconds after each request that `answers` lets through.
fn run(mut life: Life, lease: i64, delay: i64, until: i64, mut answers: impl FnMut(u32) -> bool) -> (Life, u32, bool) {
    let (mut due, mut verify) = (Some(NOW), None::<i64>);
    let (mut posts, mut expired) = (0, false);
    loop {
        let now = [due, verify].into_iter().flatten().min().unwrap_or(i64::MAX);
        if now > until {
            return (life, posts, expired);
        }
        let event = if verify == Some(now) {
            verify = None;
            Event::VerifySubscribe { lease }
        } else {
            Event::Due
        };
        if life.state == State::Active && life.lease_expires_at.is_some_and(|end| end <= now) {
            expired = true;
        }
        let Some(step) = step(&life, event, now) else { continue };
        life = step.life;
        for effect in step.effects {
            match effect {
                Effect::Schedule(_, at) => due = Some(at),
                Effect::Subscribe { .. } => {
                    posts += 1;
                    if answers(posts) {
                        verify = Some(now + delay);
                    }
                }
                _ => {}
            }
        }
    }
}

#[test]
fn a_lease_of_a_minute_is_renewed_a_hundred_times() {
    let (life, posts, expired) = run(life(State::Pending), 60, 1, NOW + 3_200, |_| true);
    assert_eq!(life.state, State::Active);
    assert!((100..110).contains(&posts), "{posts}");
    assert!(!expired);
}

#[test]
fn a_lease_of_a_minute_survives_every_other_request_going_lost() {
    let (life, _, expired) = run(life(State::Pending), 60, 1, NOW + 7_000, |post| post == 1 || post % 2 == 0);
    assert_eq!(life.state, State::Active);
    assert!(!expired);
}

#[test]
fn ten_days_of_a_ten_day_lease_are_two_requests() {
    let (life, posts, expired) = run(life(State::Pending), 864_000, 2, NOW + 864_000, |_| true);
    assert_eq!((life.state, posts, expired), (State::Active, 2, false));
}

#[test]
fn a_silent_hub_is_asked_four_times_in_the_first_two_hours_and_then_daily() {
    let (hour, _, _) = run(life(State::Pending), 60, 1, NOW + 3_600, |_| false);
    assert_eq!(hour.state, State::Pending);
    let (life, posts, _) = run(life(State::Pending), 60, 1, NOW + 3 * 3_600, |_| false);
    assert_eq!((life.state, posts), (State::Refused, 4));
    let (_, posts, _) = run(life, 60, 1, NOW + 10 * 86_400, |_| false);
    assert!(posts <= 40, "{posts}");
}

#[test]
fn a_pushed_feed_is_polled_daily() {
    let good = Health { state: State::Active, lease_expires_at: Some(NOW + 1), good_pushes: 1, misses: 2 };
    assert_eq!(pushed_poll(&good, NOW), Some(86_400));
    for bad in [
        Health { misses: 3, ..good },
        Health { good_pushes: 0, ..good },
        Health { lease_expires_at: Some(NOW), ..good },
        Health { lease_expires_at: None, ..good },
        Health { state: State::Pending, ..good },
        Health { state: State::Denied, ..good },
    ] {
        assert_eq!(pushed_poll(&bad, NOW), None, "{bad:?}");
    }
}
