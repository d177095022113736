//! The worker's part of push: requests to hubs, and the deliveries that the callback took.
//!
//! What is asked and what an answer means is decided in `rules::lease` and `push`; rows are written by `store::requests` and
//! `store::deliveries`. Here the two halves meet the network: [`ask`] and [`read`] run on pool threads, the rest in the loop's
//! transaction. Called by `worker`.

use super::apply::Context;
use super::perform::Tools;
use crate::error::Result;
use crate::feed::parse::{self, ParseLimits};
use crate::fetch::{Limits, Network, Post, charset};
use crate::push::answer::{self, Outcome, Verdict};
use crate::push::request::{Ask, REDIRECTS_MAX};
use crate::rules::failure::FailureKind;
use crate::rules::lease::Event;
use crate::store::deliveries::{self, Waiting};
use crate::store::jobs::{self, Claim, Due, Kind};
use crate::store::requests::{self, Begun};
use crate::store::{entries, feeds};
use crate::task::{AskTask, Asked, FetchLimits, IngestTask, Ingested, Pushed, Work};
use rusqlite::Connection;
use std::sync::Arc;
use std::time::{Duration, Instant};
use url::Url;

/// For one request to a hub with its redirects. Some hubs verify inside of it and take 4 s and more (measured).
const ASK_TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of deliveries that one job takes into memory.
const MOUTHFUL: usize = 8 << 20;

/// What a due job of a subscription comes to: `None` when there is nothing to be sent or read, and its row says when to look
/// again.
pub fn begin(db: &Connection, due: &Due, limits: &Arc<FetchLimits>, now: i64) -> Result<Option<Work>> {
    let Some(subscription_id) = due.subscription_id else {
        jobs::remove(db, due.id)?;
        return Ok(None);
    };
    if due.kind == Kind::Ingest {
        let Waiting { feed_id, deliveries } = deliveries::waiting(db, subscription_id, MOUTHFUL)?;
        let feed = feed_id.map(|id| feeds::by_id(db, id)).transpose()?.flatten();
        let (Some(feed), false) = (feed, deliveries.is_empty()) else {
            let ids: Vec<i64> = deliveries.iter().map(|delivery| delivery.id).collect();
            deliveries::applied(db, subscription_id, &ids, ids.len(), now)?;
            return Ok(None);
        };
        let task = IngestTask {
            subscription_id,
            feed_id: feed.id,
            feed_url: feed.url,
            deliveries,
            limits: Arc::clone(limits),
        };
        return Ok(Some(Work::Ingest(Box::new(task))));
    }
    match requests::begin(db, subscription_id, due.kind.name(), now)? {
        Begun::Nothing => Ok(None),
        Begun::Post { ask, ticket, trusted } => {
            let feed_url = due.feed.as_ref().map(|feed| feed.url.clone());
            let connect_timeout = limits.http.connect_timeout;
            Ok(Some(Work::Ask(Box::new(AskTask { ask, ticket, feed_url, trusted, connect_timeout, now }))))
        }
    }
}

/// Posts a request and follows where the hub redirects it.
pub fn ask(task: AskTask, network: &Network) -> Asked {
    let deadline = Instant::now() + ASK_TIMEOUT;
    let limits = Limits {
        connect_timeout: task.connect_timeout,
        chain_timeout: ASK_TIMEOUT,
        max_redirects: REDIRECTS_MAX as u32,
        max_body_bytes: 4096,
    };
    // A public feed's hub is never a private address; one that the user typed may be, and so may the hub of a feed on a LAN.
    let trusted = task.trusted
        || task
            .feed_url
            .as_deref()
            .and_then(|url| Url::parse(url).ok())
            .is_some_and(|url| network.is_private(&url, &limits));
    let (mut unreachable, mut private) = (false, false);
    let outcome = match post(&task, network, &limits, trusted, deadline, &mut unreachable, &mut private) {
        Ok(outcome) => outcome,
        Err(what) => answer::unreachable(&what),
    };
    Asked { ask: task.ask, ticket: task.ticket, outcome, unreachable, private }
}

fn post(
    task: &AskTask,
    network: &Network,
    limits: &Limits,
    trusted: bool,
    deadline: Instant,
    unreachable: &mut bool,
    first_private: &mut bool,
) -> std::result::Result<Outcome, String> {
    let ask: &Ask = &task.ask;
    let mut url = Url::parse(&ask.hub_url).map_err(|error| format!("the hub's URL cannot be read: {error}"))?;
    let (mut hops, mut only_308, mut private) = (0, true, trusted);
    loop {
        let form = ask.body(url.as_str()).ok_or("the hub redirects to http, where the secret must not go")?;
        let request = Post { url: &url, form: &form, trusted: private, deadline: Some(deadline) };
        let answered = match network.post(&request, limits) {
            Ok(answered) => answered,
            Err(failure) => {
                *unreachable = hops == 0 && matches!(failure.kind, FailureKind::Connect | FailureKind::Tls);
                return Err(failure.message);
            }
        };
        *first_private |= hops == 0 && answered.private;
        let location = answered.location.as_ref().map(Url::as_str);
        let reading = answer::Answer {
            status: answered.status,
            location,
            retry_after: answered.headers.retry_after.as_deref(),
            body: answered.text.as_bytes(),
        };
        match answer::read(ask.mode, &reading, hops, only_308, task.now) {
            Verdict::Over(outcome) => {
                // A new address that does not work is none.
                let works = outcome.event == Event::Accepted;
                let moved_to = (hops > 0 && only_308 && works).then(|| url.to_string());
                return Ok(Outcome { moved_to, ..outcome });
            }
            Verdict::Again { location, stored } => {
                url = Url::parse(&location).map_err(|error| format!("the hub's redirect cannot be read: {error}"))?;
                only_308 = stored;
                private = trusted && answered.private;
                hops += 1;
            }
        }
    }
}

/// Parses deliveries. Their content type may be wrong and their encoding label stale: the bytes tell.
pub fn read(task: IngestTask, tools: &Tools) -> Ingested {
    let bounds = ParseLimits { max_items: task.limits.max_items, ..ParseLimits::default() };
    let base = Url::parse(&task.feed_url).ok();
    let pushed = task
        .deliveries
        .into_iter()
        .map(|delivery| {
            let feed = base.as_ref().and_then(|base| {
                tools.gate.pass(|| {
                    let text = charset::to_utf8(&delivery.body, delivery.content_type.as_deref(), false);
                    parse::parse(&text, base, &bounds).ok()
                })
            });
            Pushed { delivery_id: delivery.id, feed }
        })
        .collect();
    Ingested { subscription_id: task.subscription_id, feed_id: task.feed_id, pushed }
}

impl Context<'_> {
    /// Books a hub's answer. It counts even when the claim was lost meanwhile: the row itself tells whether it moved on.
    pub fn asked(&self, claim: &Claim, asked: &Asked) -> Result<()> {
        let retried = asked.unreachable && requests::no_https(self.db, &asked.ticket, &asked.ask, self.now)?;
        if !retried {
            requests::finish(self.db, &asked.ticket, &asked.outcome, asked.private, self.now)?;
        }
        match &asked.outcome.message {
            None => ::log::debug!("hub {}: took {:?}", asked.ask.hub_url, asked.ask.mode),
            Some(message) => ::log::info!("hub {}: {:?}: {message}", asked.ask.hub_url, asked.ask.mode),
        }
        jobs::release(self.db, claim, self.worker)
    }

    /// Stores what was pushed: entries like those of a poll, and nothing else. A push never sets validators, never renames the
    /// feed, never moves it.
    pub fn ingested(&self, claim: &Claim, ingested: &Ingested) -> Result<()> {
        if !jobs::holds(self.db, claim, self.worker)? {
            return Ok(());
        }
        let Some(feed) = feeds::by_id(self.db, ingested.feed_id)? else {
            return jobs::release(self.db, claim, self.worker);
        };
        let (mut good, mut new, mut changed) = (0, 0, 0);
        for pushed in &ingested.pushed {
            let Some(document) = &pushed.feed else { continue };
            let written = entries::upsert(self.db, feed.id, &document.entries, "push", self.now)?;
            good += 1;
            new += written.new;
            changed += written.changed;
        }
        if new + changed > 0 {
            ::log::info!("feed {}: {new} new entries pushed", feed.id);
            // The next poll's document is another than the last one parsed, whatever its bytes.
            feeds::forget_body(self.db, feed.id)?;
        }
        let ids: Vec<i64> = ingested.pushed.iter().map(|pushed| pushed.delivery_id).collect();
        deliveries::applied(self.db, ingested.subscription_id, &ids, good, self.now)?;
        jobs::release(self.db, claim, self.worker)
    }
}
