//! Politeness: when a job may start at its host. In memory only; a restart forgets it, the holds in the table `hosts` stay.
//!
//! A job that has to wait gets a slot of its own, so that ten thousand feeds of one host are each put off once, not looked at
//! again and again. Called by the loop in `worker` when it claims.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// What a due job may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It may start; it has been counted as started.
    Start,
    /// Not before this long.
    Wait(Duration),
}

#[derive(Debug)]
struct Host {
    in_flight: u32,
    /// The first time that is not given to a job yet.
    free_at: Instant,
}

/// All hosts that were busy lately.
#[derive(Debug, Default)]
pub struct Hosts {
    hosts: HashMap<String, Host>,
    /// Jobs that wait, and since when each may start.
    slots: HashMap<i64, Instant>,
    pub concurrency: u32,
    pub delay: Duration,
}

impl Hosts {
    /// Nobody was visited yet.
    pub fn new(concurrency: u32, delay: Duration) -> Hosts {
        Hosts { concurrency, delay, ..Hosts::default() }
    }

    /// Asks for `job` to start at `host` now.
    pub fn turn(&mut self, job: i64, host: &str, now: Instant) -> Turn {
        let (delay, most) = (self.delay, self.concurrency.max(1));
        let state = match self.hosts.get_mut(host) {
            Some(state) => state,
            None => self.hosts.entry(host.to_string()).or_insert(Host { in_flight: 0, free_at: now }),
        };
        let slot = match self.slots.get(&job) {
            Some(slot) => *slot,
            None => {
                let slot = state.free_at.max(now);
                state.free_at = slot + delay;
                slot
            }
        };
        if slot <= now && state.in_flight < most {
            state.in_flight += 1;
            self.slots.remove(&job);
            return Turn::Start;
        }
        if slot > now {
            self.slots.insert(job, slot);
            return Turn::Wait(slot - now);
        }
        // Its time has come and the host is still busy with others: to the end of the line.
        let slot = state.free_at.max(now + delay.max(Duration::from_millis(100)));
        state.free_at = slot + delay;
        self.slots.insert(job, slot);
        Turn::Wait(slot - now)
    }

    /// A start that was counted has ended, or did not happen after all.
    pub fn ended(&mut self, host: &str, now: Instant) {
        if let Some(state) = self.hosts.get_mut(host) {
            state.in_flight = state.in_flight.saturating_sub(1);
        }
        // Hosts without anything to remember would otherwise stay for ever.
        if self.hosts.len() > 1000 {
            self.hosts.retain(|_, state| state.in_flight > 0 || state.free_at > now);
        }
    }

    /// Whether the job waits for its slot.
    pub fn waits(&self, job: i64) -> bool {
        self.slots.contains_key(&job)
    }

    /// How many jobs wait for a slot.
    pub fn waiting(&self) -> usize {
        self.slots.len()
    }

    /// Whether a job is about to get its turn. One that did not come for it was deleted.
    pub fn expects(&self, now: Instant) -> bool {
        self.slots.values().any(|slot| *slot + Duration::from_secs(10) > now)
    }

    /// Waiting jobs whose time has come.
    pub fn ready(&self, now: Instant) -> Vec<i64> {
        self.slots.iter().filter(|(_, slot)| **slot <= now).map(|(job, _)| *job).collect()
    }

    /// The first time that a waiting job may start.
    pub fn next_slot(&self) -> Option<Instant> {
        self.slots.values().min().copied()
    }

    /// The job is gone or goes another way.
    pub fn forget(&mut self, job: i64) {
        self.slots.remove(&job);
    }

    /// Forgets slots that passed long ago: their jobs were deleted.
    pub fn forget_stale(&mut self, now: Instant) {
        self.slots.retain(|_, slot| *slot + Duration::from_secs(600) > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_spaced_and_each_waiting_job_is_put_off_once() {
        let mut hosts = Hosts::new(2, Duration::from_millis(500));
        let t0 = Instant::now();
        assert_eq!(hosts.turn(1, "a", t0), Turn::Start);
        assert_eq!(hosts.turn(2, "a", t0), Turn::Wait(Duration::from_millis(500)));
        assert_eq!(hosts.turn(3, "a", t0), Turn::Wait(Duration::from_millis(1000)));
        assert_eq!(hosts.turn(2, "a", t0), Turn::Wait(Duration::from_millis(500)), "asking again gives the same slot");
        assert_eq!(hosts.turn(4, "b", t0), Turn::Start, "another host does not wait");
        let t1 = t0 + Duration::from_millis(500);
        assert_eq!(hosts.turn(2, "a", t1), Turn::Start);
        let t2 = t0 + Duration::from_millis(1000);
        assert!(matches!(hosts.turn(3, "a", t2), Turn::Wait(_)), "two are in flight");
        hosts.ended("a", t2);
        let t3 = t2 + Duration::from_secs(2);
        assert_eq!(hosts.turn(3, "a", t3), Turn::Start);
        assert_eq!(hosts.waiting(), 0);
    }

    #[test]
    fn without_delay_only_the_number_counts() {
        let mut hosts = Hosts::new(1, Duration::ZERO);
        let t0 = Instant::now();
        assert_eq!(hosts.turn(1, "a", t0), Turn::Start);
        assert!(matches!(hosts.turn(2, "a", t0), Turn::Wait(_)));
        hosts.ended("a", t0);
        assert_eq!(hosts.turn(2, "a", t0 + Duration::from_millis(100)), Turn::Start);
    }
}
