//! One task on a pool thread, behind a wall: a panic costs that attempt only. Called by `worker` only.

use super::perform::{self, Tools};
use super::push;
use crate::rules::failure::{Failure, FailureKind};
use crate::task::{Done, FetchOutcome, FetchTask, Outcome, Reading, Task, Work};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Does a task on a pool thread. A panic costs this attempt only.
pub(super) fn work(task: Task, tools: &Tools) -> Outcome {
    let Task { claim, host, work } = task;
    let asks = matches!(work, Work::Ask(_));
    let result = match work {
        Work::Fetch(task) => fetched(&task, |task| perform::perform(task, tools)),
        Work::Ask(task) => catch_unwind(AssertUnwindSafe(|| push::ask(*task, &tools.network)))
            .map_or(Done::Panicked, |asked| Done::Ask(Box::new(asked))),
        Work::Ingest(task) => catch_unwind(AssertUnwindSafe(|| push::read(*task, tools)))
            .map_or(Done::Panicked, |ingested| Done::Ingest(Box::new(ingested))),
    };
    Outcome { claim, host, asks, result }
}

fn fetched(task: &FetchTask, fetch: impl FnOnce(&FetchTask) -> FetchOutcome) -> Done {
    let done = catch_unwind(AssertUnwindSafe(|| fetch(task)));
    Done::Fetch(Box::new(done.unwrap_or_else(|panic| panicked(task, panic.as_ref()))))
}

fn panicked(task: &FetchTask, panic: &(dyn std::any::Any + Send)) -> FetchOutcome {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text");
    FetchOutcome {
        feed_id: task.feed_id,
        url: task.url.clone(),
        reading: Reading {
            start: task.start.clone(),
            hops: Vec::new(),
            headers: Default::default(),
            private: false,
            result: Err(Failure::new(FailureKind::Panic, format!("a defect in feedmill, please report it: {text}"))),
        },
        page: None,
        regret: None,
        wire_bytes: 0,
        duration: Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::Limits;
    use crate::task::FetchLimits;
    use std::sync::Arc;
    use url::Url;

    #[test]
    fn a_panic_is_a_failure_of_its_attempt() {
        let url = Url::parse("http://a.test/f").unwrap();
        let limits = FetchLimits {
            http: Limits {
                connect_timeout: Duration::ZERO,
                chain_timeout: Duration::ZERO,
                max_redirects: 0,
                max_body_bytes: 0,
            },
            max_items: 0,
        };
        let fetch = FetchTask {
            feed_id: 7,
            url: url.to_string(),
            start: url,
            spellings: None,
            validators: None,
            body_hash: None,
            may_discover: false,
            keep_url: false,
            regret: None,
            limits: Arc::new(limits),
        };
        let Done::Fetch(outcome) = fetched(&fetch, |_| panic!("number {}", 5)) else { panic!("another kind") };
        let failure = outcome.reading.result.unwrap_err();
        assert_eq!((outcome.feed_id, failure.kind, failure.local), (7, FailureKind::Panic, false));
        assert!(failure.message.ends_with("number 5"), "{}", failure.message);
    }
}
