//! The claiming half of a round: which due jobs start now, and what they are told.
//!
//! Runs in the loop's transaction, each job in a savepoint of its own. A feed's URL is read for the first time here. Called by
//! `worker` only.

use super::alive::LifeSign;
use super::hosts::{Hosts, Turn};
use super::{Claims, MOST_WAITING, apply, passing, push};
use crate::error::{Error, Result};
use crate::fetch::Validators;
use crate::rules::canonical::{self, canonical};
use crate::rules::failure::Failure;
use crate::rules::moved::{self, Reason};
use crate::rules::schedule;
use crate::store::feeds::{self, StoredFeed};
use crate::store::jobs::{self, Due, Kind};
use crate::store::transaction::savepoint;
use crate::task::{FetchLimits, FetchTask, Task, Work};
use rusqlite::Connection;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use url::Url;

/// The claiming half of a round.
pub(super) struct Claim<'a> {
    pub db: &'a Connection,
    pub life: &'a LifeSign,
    pub limits: &'a Arc<FetchLimits>,
    pub hosts: &'a mut Hosts,
    pub holds: &'a HashMap<String, i64>,
    pub now: i64,
    pub claims: Claims,
    pub longest: i64,
    pub next_slot: &'a mut Option<Instant>,
    pub asking: &'a mut usize,
    pub most_asking: usize,
}

/// What became of a due job.
struct Step {
    task: Option<Task>,
    /// It is still due, and was not claimed.
    stays: bool,
}

impl Step {
    /// Put off, or gone.
    const GONE: Step = Step { task: None, stays: false };
}

impl Claim<'_> {
    /// Claims at most `idle` jobs: more would only expire while they wait. Answers whether there are more that may be due.
    pub fn all(&mut self, idle: usize, tasks: &mut Vec<Task>) -> Result<bool> {
        let db = self.db;
        // Those that wait for their hosts stand before the others.
        let limit = idle + self.hosts.waiting().min(MOST_WAITING);
        let mut list = match self.claims {
            // What has become due since is not wanted; what had to wait for its host is, though it was put off.
            Claims::DueAt(began) => jobs::due(db, began.min(self.now), limit)?,
            _ => jobs::due(db, self.now, limit)?,
        };
        let full = list.len() == limit;
        if let Claims::DueAt(_) = self.claims {
            for id in self.hosts.ready(Instant::now()) {
                match jobs::unclaimed(db, id)? {
                    Some(ready) if list.iter().all(|due| due.id != id) => list.push(ready),
                    Some(_) => {}
                    None => self.hosts.forget(id),
                }
            }
        }
        let mut moved_on = false;
        for due in list {
            if tasks.len() >= idle {
                return Ok(true);
            }
            let step = match savepoint(db, || self.one(&due)) {
                Err(Error::Sqlite(error)) if passing(&error) => return Err(Error::Sqlite(error)),
                // A row that somebody filled with nonsense never keeps its neighbours waiting.
                Err(error) => {
                    ::log::error!("job {}: it cannot be started, tried again in an hour: {error}", due.id);
                    self.hosts.forget(due.id);
                    jobs::postpone(db, due.id, self.now + 3600)?;
                    Step::GONE
                }
                Ok(step) => step,
            };
            moved_on |= !step.stays;
            tasks.extend(step.task);
        }
        if let Claims::DueAt(_) = self.claims {
            *self.next_slot = self.hosts.next_slot();
        }
        Ok(full && moved_on)
    }

    fn one(&mut self, due: &Due) -> Result<Step> {
        if due.kind != Kind::Fetch {
            return self.pushed(due);
        }
        let Some(feed) = due.feed.as_ref().filter(|feed| feed.state == "active") else {
            self.hosts.forget(due.id);
            jobs::remove(self.db, due.id)?;
            return Ok(Step::GONE);
        };
        let Some((start, spellings)) = self.addresses(feed)? else {
            self.hosts.forget(due.id);
            return Ok(Step::GONE);
        };
        let host = moved::host(&start);
        if let Some(until) = self.holds.get(&host).copied().filter(|until| *until > self.now) {
            let run = schedule::Run { feed_id: feed.id, attempts: due.attempts, interval_seconds: None, now: self.now };
            self.hosts.forget(due.id);
            jobs::postpone(self.db, due.id, until.saturating_add(schedule::spread(&run, 60)))?;
            return Ok(Step::GONE);
        }
        let now = Instant::now();
        match self.hosts.turn(due.id, &host, now) {
            Turn::Wait(wait) => {
                // The queue knows whole seconds; what waits less stays where it is.
                let seconds = wait.as_secs() as i64;
                if seconds > 0 {
                    jobs::postpone(self.db, due.id, self.now + seconds)?;
                    return Ok(Step::GONE);
                }
                let slot = now + wait;
                *self.next_slot = Some(self.next_slot.map_or(slot, |earlier| earlier.min(slot)));
                Ok(Step { task: None, stays: true })
            }
            Turn::Start => {
                let claimed = jobs::claim(self.db, due, self.life.name(), self.now + self.longest)
                    .and_then(|claim| Ok((claim, self.fetch(feed, start, spellings)?)));
                match claimed {
                    Ok((claim, task)) => {
                        let work = Work::Fetch(Box::new(task));
                        Ok(Step { task: Some(Task { claim, host, work }), stays: false })
                    }
                    Err(error) => {
                        self.hosts.ended(&host, now);
                        Err(error)
                    }
                }
            }
        }
    }

    /// A job of a subscription. Requests to hubs never take more than a quarter of the threads: a hub that hangs must not slow
    /// fetching.
    fn pushed(&mut self, due: &Due) -> Result<Step> {
        let asks = due.kind != Kind::Ingest;
        if asks && *self.asking >= self.most_asking {
            jobs::postpone(self.db, due.id, self.now + 2)?;
            return Ok(Step::GONE);
        }
        let Some(work) = push::begin(self.db, due, self.limits, self.now)? else {
            // Its row says when to look again; were that now, the loop would look for ever.
            jobs::postpone_due(self.db, due.id, self.now, self.now + 60)?;
            return Ok(Step::GONE);
        };
        let claim = jobs::claim(self.db, due, self.life.name(), self.now + self.longest)?;
        *self.asking += usize::from(asks);
        Ok(Step { task: Some(Task { claim, host: String::new(), work }), stays: false })
    }

    /// What to fetch. On a feed's first run its URL is read for the first time: one that cannot be used makes the row invalid,
    /// another spelling of a known feed makes it merged, both without a request.
    fn addresses(&self, feed: &StoredFeed) -> Result<Option<(Url, Option<canonical::Canonical>)>> {
        if feed.last_success_at.is_some()
            && let Ok(url) = Url::parse(&feed.url)
        {
            return Ok(Some((url, None)));
        }
        let spellings = match canonical(&feed.url) {
            Ok(spellings) => spellings,
            Err(refusal) => {
                let failure = Failure::from(refusal);
                ::log::info!("feed {}: invalid: {}", feed.id, failure.message);
                feeds::invalid(self.db, feed.id, &failure, self.now)?;
                return Ok(None);
            }
        };
        if feed.url_key.is_none() {
            let key = canonical::strict_key(spellings.given());
            feeds::set_key(self.db, feed.id, &key)?;
            if let Some(holder) = feeds::holder(self.db, &key, spellings.url.as_str(), feed.id)?
                && holder.state != "merged"
                // A key that came from the feed's own words is no proof.
                && canonical(&holder.url).is_ok_and(|other| canonical::strict_key(other.given()) == key)
                && !feed.keep_url
            {
                feeds::merge(self.db, feed, &holder, "", self.now)?;
                ::log::info!("feed {}: {} is feed {} ({}), merged", feed.id, feed.url, holder.id, holder.url);
                return Ok(None);
            }
        }
        Ok(Some((spellings.url.clone(), Some(spellings))))
    }

    fn fetch(&self, feed: &StoredFeed, start: Url, spellings: Option<canonical::Canonical>) -> Result<FetchTask> {
        let validators = feed.validators_url.as_ref().map(|url| Validators {
            url: url.clone(),
            etag: feed.etag.clone(),
            last_modified: feed.last_modified.clone(),
        });
        let lately = feed.rewritten_at.is_some_and(|at| self.now.saturating_sub(at) <= moved::REGRET_SPAN);
        let regret = match lately {
            true => feeds::last_rewrite(self.db, feed.id, &feed.url)?
                .filter(|(_, reason)| matches!(reason, Reason::Moved | Reason::Canonical))
                .map(|(old, _)| old),
            false => None,
        };
        let failing_long =
            feed.failing_since.is_some_and(|since| self.now.saturating_sub(since) >= apply::REDISCOVERY_SPAN);
        Ok(FetchTask {
            feed_id: feed.id,
            url: feed.url.clone(),
            start,
            spellings,
            validators,
            body_hash: feed.body_hash,
            may_discover: feed.last_success_at.is_none() || failing_long,
            keep_url: feed.keep_url,
            regret,
            limits: Arc::clone(self.limits),
        })
    }
}
