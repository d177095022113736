//! The life of a subscription: one pure function from (stored state, event, now) to the next state and what is to be done,
//! and the numbers it goes by.
//!
//! Never sees the network, the database or a clock. The callback program asks it what a hub's GET may change, the worker
//! what a due job or a hub's answer means; `store::subscriptions` writes what comes out. The rules are those of WebSub
//! (W3C, 2 June 2026) sections 5 and 6; where that is silent, the comment gives the reason.

/// What a hub's word is worth at most: a lease of years would never be tested.
pub const LEASE_MAX: i64 = 14 * DAY;
/// Taken where the hub names no lease, 0 or nonsense: 0.3 hubs, and hubs that send `lease_seconds=0` always.
pub const LEASE_ASSUMED: i64 = DAY;
/// A request that was accepted must be verified within this, seconds.
pub const VERIFY_WITHIN: i64 = 600;
/// Accepted requests without verification, after which one with `hub.verify=sync` makes the hub tell why.
pub const ASYNC_TRIES: u32 = 3;
/// First and last wait after a request that failed, seconds.
pub const BACKOFF_MIN: i64 = 900;
pub const BACKOFF_MAX: i64 = 6 * 3600;
/// The most that a `Retry-After` can hold us off, seconds: a hub may not switch us off for a year.
pub const RETRY_AFTER_MAX: i64 = DAY;
/// A hub that refused is asked again after this, seconds, ...
pub const REFUSED_FOR: i64 = DAY;
/// ... one that denied what it had taken, after this.
pub const DENIED_FOR: i64 = 7 * DAY;
/// A renewal is given up this long after the lease has ended, seconds.
pub const GIVE_UP_AFTER_END: i64 = 6 * 3600;
/// An ended subscription still answers late questions for this long, seconds.
pub const TOMBSTONE: i64 = 30 * DAY;
/// A pushed feed is still polled this often, seconds: hubs drop subscribers without a word.
pub const PUSHED_POLL: i64 = DAY;
/// Polls in a row that found what the hub should have sent, after which the feed is polled as if there were no hub.
pub const MISSES_MAX: i64 = 3;

const DAY: i64 = 86_400;
/// No wait inside a live lease is shorter, seconds.
const SHORTEST_WAIT: i64 = 5;
/// Unsubscribe requests that fail or are not verified, after which the row is a tombstone all the same.
const UNSUBSCRIBE_TRIES: u32 = 3;
const UNSUBSCRIBE_FAILURES: u32 = 5;

/// `subscriptions.state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Asked for, not confirmed yet.
    Pending,
    /// Confirmed; a renewal is `Life::renewing` and leaves this state alone.
    Active,
    /// No longer wanted; the hub is being told.
    Unsubscribing,
    /// A tombstone.
    Ended,
    /// The hub said no to what it had taken.
    Denied,
    /// The hub did not take it, or never verified.
    Refused,
}

impl State {
    /// Every state with its name in the database.
    pub const ALL: [(State, &'static str); 6] = [
        (State::Pending, "pending"),
        (State::Active, "active"),
        (State::Unsubscribing, "unsubscribing"),
        (State::Ended, "ended"),
        (State::Denied, "denied"),
        (State::Refused, "refused"),
    ];

    /// The name in `subscriptions.state`.
    pub fn name(self) -> &'static str {
        State::ALL[self as usize].1
    }

    /// The state of that name; `None` for any other text.
    pub fn from_name(name: &str) -> Option<State> {
        State::ALL.iter().find(|(_, known)| *known == name).map(|(state, _)| *state)
    }

    /// Whether a delivery is taken. Before the verification was stored, after a denial (an unsigned GET, so it must not
    /// destroy) and after a refusal (the old lease may still run) a good signature is enough; else the hub is told 410.
    pub fn takes_deliveries(self) -> bool {
        !matches!(self, State::Unsubscribing | State::Ended)
    }
}

/// The form of a request, from the one we like best down: some hubs refuse any lease, some know a feed only by the URL it is
/// fetched from. `subscriptions.rung`.
pub const RUNG_FULL: u8 = 0;
/// Without `hub.lease_seconds`.
pub const RUNG_NO_LEASE: u8 = 1;
/// Without it, and with the fetched URL as topic.
pub const RUNG_FETCHED_TOPIC: u8 = 2;

/// What the decisions depend on: a row of `subscriptions` and two facts beside it. Times are Unix seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    /// The row; jitter comes from it, so a row keeps its place in the spread.
    pub id: i64,
    pub state: State,
    /// Asked again while active, not confirmed again yet.
    pub renewing: bool,
    /// Requests since the last confirmation that the hub did not answer with a failure.
    pub requests: u32,
    /// Requests in a row that failed.
    pub failures: u32,
    pub rung: u8,
    /// As granted, seconds.
    pub lease_seconds: Option<i64>,
    pub lease_expires_at: Option<i64>,
    /// The last request; `None`: the hub never heard of it.
    pub requested_at: Option<i64>,
    pub ended_at: Option<i64>,
    /// There is a fetched URL that differs from the topic.
    pub has_fallback: bool,
    /// The hub is known to refuse `hub.lease_seconds`.
    pub lease_refused: bool,
    /// Another subscription of the feed is pending or active.
    pub superseded: bool,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The subscription's subscribe, renew or unsubscribe job came due.
    Due,
    /// The hub took the request (any 2xx; 204 too: only the GET counts).
    Accepted,
    /// It did not like the request: 4xx, 303, too many redirects.
    Refused,
    /// It could not be reached, or answered 429 or 5xx; its `Retry-After` in seconds.
    Failed { retry_after: Option<i64> },
    /// 410: there is no hub any more.
    HubGone,
    /// GET with hub.mode=subscribe; the lease as [`granted`] reads it.
    VerifySubscribe { lease: i64 },
    /// GET with hub.mode=unsubscribe.
    VerifyUnsubscribe,
    /// GET with hub.mode=denied.
    Deny,
    /// The feed went, or another subscription took over.
    Unwanted,
}

/// Kinds of job that a life has; at most one of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Job {
    Subscribe,
    Renew,
    Unsubscribe,
}

impl Job {
    /// `jobs.kind`.
    pub fn name(self) -> &'static str {
        match self {
            Job::Subscribe => "subscribe",
            Job::Renew => "renew",
            Job::Unsubscribe => "unsubscribe",
        }
    }
}

/// What is to be done beside storing the new [`Life`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Send a subscribe request, after the commit.
    Subscribe { with_lease: bool, sync: bool },
    /// Send an unsubscribe request, after the commit.
    Unsubscribe,
    /// The job's next time, Unix seconds; it is made if there is none.
    Schedule(Job, i64),
    /// The job goes.
    Cancel(Job),
    /// The fetched URL becomes the topic.
    UseFetchedTopic,
    /// The topic is again what the feed names.
    UseNamedTopic,
    /// The hub refuses leases: remember it for its other feeds.
    RememberNoLease,
    /// The subscription that this one replaces is unwanted now.
    EndReplaced,
    /// The feed's next hub, if it names one, gets its chance.
    NextHub,
    /// Fetch the feed now: pushes may have been lost.
    Poll,
}

/// What follows from an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub life: Life,
    pub effects: Vec<Effect>,
}

/// What follows from `event` at `now` (Unix seconds). `None`: the event has no business in this state; nothing changes, and
/// a hub that asked gets 404 (WebSub 5.3.1).
pub fn step(before: &Life, event: Event, now: i64) -> Option<Step> {
    use Effect::*;
    let life = before.clone();
    let stay = |effects: Vec<Effect>| Some(Step { life: before.clone(), effects });
    match (before.state, event) {
        (State::Pending, Event::Due) if before.requests > ASYNC_TRIES => Some(refuse(life, Job::Subscribe, now)),
        (State::Pending, Event::Due) => Some(ask(life, Job::Subscribe, vec![], now)),
        // It took the very same form three times: what it tells now is why it did not verify, and no other form helps.
        (State::Pending, Event::Refused) if before.requests > ASYNC_TRIES => Some(refuse(life, Job::Subscribe, now)),
        (State::Pending, Event::Refused) => Some(match next_rung(before) {
            Some(rung) => {
                let mut effects = vec![Schedule(Job::Subscribe, now)];
                if rung == RUNG_FETCHED_TOPIC {
                    effects.insert(0, UseFetchedTopic);
                }
                Step { life: Life { rung, requests: 0, ..life }, effects }
            }
            None => refuse(life, Job::Subscribe, now),
        }),
        (State::Pending, Event::Failed { retry_after }) => Some(fail(life, Job::Subscribe, retry_after, now)),
        (State::Pending, Event::HubGone) => Some(refuse(life, Job::Subscribe, now)),

        // R10: after a long sleep the lease is over but nobody failed: ask again before anything is given up.
        (State::Active, Event::Due) if before.requests >= ASYNC_TRIES && over(before, GIVE_UP_AFTER_END, now) => {
            Some(refuse(life, Job::Renew, now))
        }
        (State::Active, Event::Due) => {
            let lost = over(before, 0, now) && !before.renewing;
            Some(ask(life, Job::Renew, if lost { vec![Poll] } else { vec![] }, now))
        }
        // The topic of a live row is never changed: that would be a second subscription beside it.
        (State::Active, Event::Refused) if next_rung(before) == Some(RUNG_NO_LEASE) => {
            Some(Step { life: Life { rung: RUNG_NO_LEASE, ..life }, effects: vec![Schedule(Job::Renew, now)] })
        }
        (State::Active, Event::Refused) => Some(fail(life, Job::Renew, None, now)),
        (State::Active, Event::Failed { retry_after }) => Some(fail(life, Job::Renew, retry_after, now)),
        (State::Active, Event::HubGone) => Some(refuse(life, Job::Renew, now)),

        (State::Pending | State::Active, Event::Accepted) => {
            let learnt = before.rung == RUNG_NO_LEASE && !before.lease_refused;
            let effects = if learnt { vec![RememberNoLease] } else { vec![] };
            Some(Step { life: Life { failures: 0, ..life }, effects })
        }
        (State::Pending | State::Active, Event::VerifySubscribe { lease }) => {
            let mut effects = vec![Schedule(Job::Renew, renew_at(before.id, lease, now))];
            if before.state == State::Pending {
                effects.extend([Cancel(Job::Subscribe), EndReplaced]);
            }
            Some(Step {
                life: Life {
                    state: State::Active,
                    renewing: false,
                    requests: 0,
                    failures: 0,
                    lease_seconds: Some(lease),
                    lease_expires_at: Some(now + lease),
                    ..life
                },
                effects,
            })
        }
        (State::Pending | State::Active | State::Refused, Event::Deny) => Some(Step {
            life: Life { state: State::Denied, renewing: false, requests: 0, failures: 0, ..life },
            effects: vec![
                Cancel(Job::Renew),
                Schedule(Job::Subscribe, now + DENIED_FOR + spread(before.id, 7, DAY)),
                NextHub,
                Poll,
            ],
        }),
        (State::Denied, Event::Deny) => stay(vec![]),
        (State::Pending | State::Active, Event::Unwanted) => Some(Step {
            life: Life { state: State::Unsubscribing, renewing: false, requests: 0, failures: 0, ..life },
            effects: vec![Cancel(Job::Subscribe), Cancel(Job::Renew), Schedule(Job::Unsubscribe, now)],
        }),
        (State::Denied | State::Refused, Event::Unwanted) => Some(end(life, Job::Subscribe, now)),

        (State::Denied | State::Refused, Event::Due) if before.superseded => Some(end(life, Job::Subscribe, now)),
        (State::Denied | State::Refused, Event::Due) => Some(ask(
            Life { state: State::Pending, rung: RUNG_FULL, requests: 0, failures: 0, ..life },
            Job::Subscribe,
            vec![UseNamedTopic],
            now,
        )),

        (State::Unsubscribing, Event::Due) if before.requested_at.is_none() || before.requests >= UNSUBSCRIBE_TRIES => {
            Some(end(life, Job::Unsubscribe, now))
        }
        (State::Unsubscribing, Event::Due) => {
            let requests = before.requests + 1;
            let at = now + verify_within(requests, before.id);
            Some(Step {
                life: Life { requests, requested_at: Some(now), ..life },
                effects: vec![Unsubscribe, Schedule(Job::Unsubscribe, at)],
            })
        }
        (State::Unsubscribing, Event::Accepted) => stay(vec![]),
        // U2: it does not know us, which is what we wanted.
        (State::Unsubscribing, Event::Refused | Event::HubGone | Event::VerifyUnsubscribe) => {
            Some(end(life, Job::Unsubscribe, now))
        }
        (State::Unsubscribing, Event::Failed { .. }) if before.failures + 1 >= UNSUBSCRIBE_FAILURES => {
            Some(end(life, Job::Unsubscribe, now))
        }
        (State::Unsubscribing, Event::Failed { retry_after }) => Some(fail(life, Job::Unsubscribe, retry_after, now)),
        // A hub that repeats its question is answered as before.
        (State::Ended, Event::VerifyUnsubscribe) => stay(vec![]),
        (State::Ended, Event::Due) => stay(vec![Cancel(Job::Subscribe), Cancel(Job::Renew), Cancel(Job::Unsubscribe)]),
        _ => None,
    }
}

/// A subscribe request goes out; its job comes back when the hub should have verified, so that a crash between commit and
/// POST, or a hub that stays silent, needs nobody else's attention.
fn ask(life: Life, job: Job, mut effects: Vec<Effect>, now: i64) -> Step {
    let sync = life.requests == ASYNC_TRIES;
    let with_lease = life.rung == RUNG_FULL && !life.lease_refused;
    let requests = life.requests.saturating_add(1);
    let wait = inside_lease(&life, verify_within(requests, life.id), now);
    effects.extend([Effect::Subscribe { with_lease, sync }, Effect::Schedule(job, now + wait)]);
    let renewing = life.state == State::Active;
    Step { life: Life { requests, renewing, requested_at: Some(now), ..life }, effects }
}

/// The request did not get through: it does not count as one the hub left unverified.
fn fail(life: Life, job: Job, retry_after: Option<i64>, now: i64) -> Step {
    let wait = match retry_after {
        Some(asked) => {
            let asked = asked.clamp(1, RETRY_AFTER_MAX);
            asked + spread(life.id, life.failures, asked / 4)
        }
        None => inside_lease(&life, backoff(life.failures, life.id), now),
    };
    // A renewal keeps its count: it tells how often was tried when the lease is over.
    let requests = if life.state == State::Active { life.requests } else { life.requests.saturating_sub(1) };
    let failures = life.failures.saturating_add(1);
    Step { life: Life { requests, failures, ..life }, effects: vec![Effect::Schedule(job, now + wait)] }
}

/// Back to polling; asked again after [`REFUSED_FOR`].
fn refuse(life: Life, job: Job, now: i64) -> Step {
    let again = now + REFUSED_FOR + spread(life.id, 3, REFUSED_FOR / 8);
    let mut effects = vec![Effect::Schedule(Job::Subscribe, again), Effect::NextHub];
    if job == Job::Renew {
        effects.extend([Effect::Cancel(Job::Renew), Effect::Poll]);
    }
    Step { life: Life { state: State::Refused, renewing: false, requests: 0, failures: 0, ..life }, effects }
}

fn end(life: Life, job: Job, now: i64) -> Step {
    Step {
        life: Life { state: State::Ended, renewing: false, requests: 0, failures: 0, ended_at: Some(now), ..life },
        effects: vec![Effect::Cancel(job)],
    }
}

fn next_rung(life: &Life) -> Option<u8> {
    match life.rung {
        RUNG_FULL if !life.lease_refused => Some(RUNG_NO_LEASE),
        RUNG_FULL | RUNG_NO_LEASE if life.has_fallback => Some(RUNG_FETCHED_TOPIC),
        _ => None,
    }
}

/// The lease ended `margin` seconds ago or earlier.
fn over(life: &Life, margin: i64, now: i64) -> bool {
    life.lease_expires_at.is_none_or(|end| now >= end.saturating_add(margin))
}

/// How long the hub has for its `requests`th verification: ten minutes, then longer each time.
fn verify_within(requests: u32, id: i64) -> i64 {
    if requests <= 1 { VERIFY_WITHIN } else { backoff(requests - 2, id) }
}

/// 15 minutes, doubled with each of `failures`, at most six hours; jitter included.
pub fn backoff(failures: u32, id: i64) -> i64 {
    let wait = BACKOFF_MIN << failures.min(5);
    (wait + spread(id, failures, wait / 8)).min(BACKOFF_MAX)
}

/// While a lease runs, no wait is longer than half of what is left of it: a lease of a minute has no quarter of an hour.
fn inside_lease(life: &Life, wait: i64, now: i64) -> i64 {
    match life.lease_expires_at {
        Some(end) if life.state == State::Active && end > now => wait.min(((end - now) / 2).max(SHORTEST_WAIT)),
        _ => wait,
    }
}

/// The lease that a hub grants, seconds: as given, however short; absent, 0 or no number = one day; at most 14 days.
pub fn granted(given: Option<&[u8]>) -> i64 {
    let digits = given.unwrap_or_default().trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return LEASE_ASSUMED;
    }
    let value = digits.iter().fold(0_i64, |sum, digit| sum.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    if value == 0 { LEASE_ASSUMED } else { value.min(LEASE_MAX) }
}

/// When a lease granted at `now` is renewed: between half and three quarters of it, by the row's own jitter, and never later
/// than an hour before its end, or at half of a lease too short for that.
pub fn renew_at(id: i64, lease: i64, now: i64) -> i64 {
    let half = lease / 2;
    now + (half + spread(id, 1, lease / 4)).min((lease - 3600).max(half))
}

/// 0 to `width`, the same for the same row and salt: SplitMix64, so that neighbouring ids land far apart.
fn spread(id: i64, salt: u32, width: i64) -> i64 {
    let mut x = (id as u64).wrapping_add(u64::from(salt).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    // At most 2^32 * width, and no width here exceeds a day.
    ((x >> 32) as i64 * width.max(0)) >> 32
}

/// How a feed's push has worked so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    pub state: State,
    pub lease_expires_at: Option<i64>,
    pub good_pushes: i64,
    /// Polls since the last good push that found what the hub should have sent.
    pub misses: i64,
}

/// The seconds between polls that push allows, if it works: daily. `None`: poll as if there were no hub (no live lease, no
/// good push yet, or three misses since the last).
pub fn pushed_poll(health: &Health, now: i64) -> Option<i64> {
    let live = health.state == State::Active && health.lease_expires_at.is_some_and(|end| end > now);
    (live && health.good_pushes > 0 && health.misses < MISSES_MAX).then_some(PUSHED_POLL)
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
