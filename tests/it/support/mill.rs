//! A database, a scripted web and a worker on them: in the library with names and a clock of the test's own, or as the real
//! program on the loopback address.

use super::binary::{Feedmill, Running, wait_until};
use super::origin::{Answer, Origin};
use super::shell::{Sqlite3Shell, quoted};
use super::worker::Worker;
use feedmill::clock::Clock;
use feedmill::worker;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use tempfile::TempDir;

/// The library's worker, run when the test says so.
pub struct Mill {
    pub shell: Sqlite3Shell,
    pub origin: Origin,
    pub clock: Clock,
    pub db: PathBuf,
    _dir: TempDir,
}

impl Mill {
    pub fn new(answers: Vec<(&str, Answer)>) -> Mill {
        let dir = TempDir::new().expect("a folder");
        let db = dir.path().join("feedmill.db");
        let shell = Sqlite3Shell::create(&db);
        // The clock stands still while the worker runs: nobody would be let in after a delay.
        shell.run("UPDATE settings SET value = 0 WHERE key = 'host_delay_ms'");
        Mill { shell, origin: Origin::serve(answers), clock: Clock::set_to(Clock::System.now()), db, _dir: dir }
    }

    /// Inserts a feed; its id.
    pub fn insert(&self, url: &str) -> i64 {
        insert(&self.shell, url)
    }

    /// Runs all that is due.
    pub fn run(&self) {
        self.worker().run_due();
    }

    /// The clock goes on by `hours`, all feeds are made due, holds end, the worker runs.
    pub fn run_after(&self, hours: i64) {
        self.clock.advance(hours * 3600);
        self.shell.run("UPDATE jobs SET run_at = 0; DELETE FROM hosts");
        self.run();
    }

    pub fn worker(&self) -> Worker {
        Worker::new(&self.db, self.clock.clone(), self.origin.names(), self.origin.ca_pem())
    }

    /// A worker in a thread, on this mill's clock.
    pub fn start(&self) -> Background {
        let options = self.worker().options();
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = thread::spawn(move || {
            worker::Worker::new(options).and_then(|mut worker| worker.run(&told)).expect("the worker");
        });
        Background { stop, thread: Some(thread) }
    }

    pub fn of(&self, feed: i64, column: &str) -> Value {
        self.shell.value(&format!("SELECT {column} FROM feeds WHERE id = {feed}"))
    }

    pub fn url(&self, feed: i64) -> String {
        self.of(feed, "url").as_str().expect("a url").to_string()
    }

    pub fn count(&self, condition: &str) -> i64 {
        count(&self.shell, condition)
    }

    /// How often `url` was asked for.
    pub fn asked(&self, url: &str) -> usize {
        self.origin.urls().iter().filter(|asked| *asked == url).count()
    }

    /// The reasons in the history of a feed, oldest first.
    pub fn history(&self, feed: i64) -> Vec<String> {
        let reasons = self.shell.column(&format!("SELECT reason FROM feed_urls WHERE feed_id = {feed} ORDER BY id"));
        reasons.iter().map(|reason| reason.as_str().expect("a reason").to_string()).collect()
    }
}

/// A worker in a thread; stopped on drop. The test fails if it failed.
pub struct Background {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let ended = self.thread.take().map(JoinHandle::join);
        if !thread::panicking() {
            ended.expect("a thread").expect("the worker ends well");
        }
    }
}

/// The real program with a database of its own.
pub struct Live {
    pub feedmill: Feedmill,
    pub shell: Sqlite3Shell,
    pub origin: Origin,
}

impl Live {
    pub fn new() -> Live {
        let feedmill = Feedmill::new();
        let shell = Sqlite3Shell::create(&feedmill.db());
        shell.run("UPDATE settings SET value = 0 WHERE key = 'host_delay_ms'");
        Live { feedmill, shell, origin: Origin::serve(Vec::new()) }
    }

    /// `feedmill run`, once it works.
    pub fn start(&self) -> Running {
        let running = self.feedmill.spawn(&["run", "--threads", "8"]);
        wait_until("the worker works", || running.stderr_so_far().contains("works on"));
        running
    }

    /// Serves `answer` under a path; the URL.
    pub fn serve(&self, path: &str, answer: Answer) -> String {
        let url = self.origin.url(path);
        self.origin.add(&url, answer);
        url
    }

    pub fn insert(&self, url: &str) -> i64 {
        insert(&self.shell, url)
    }

    pub fn of(&self, feed: i64, column: &str) -> Value {
        self.shell.value(&format!("SELECT {column} FROM feeds WHERE id = {feed}"))
    }

    pub fn count(&self, condition: &str) -> i64 {
        count(&self.shell, condition)
    }

    pub fn asked(&self, url: &str) -> usize {
        self.origin.urls().iter().filter(|asked| *asked == url).count()
    }

    /// Waits until nothing is due and nothing runs.
    pub fn settled(&self) {
        wait_until("nothing is due", || {
            self.count("jobs WHERE claimed_by IS NOT NULL OR run_at <= CAST(strftime('%s', 'now') AS INTEGER)") == 0
        });
    }
}

fn insert(shell: &Sqlite3Shell, url: &str) -> i64 {
    let id = shell.value(&format!("INSERT INTO feeds(url) VALUES({}) RETURNING id", quoted(url)));
    id.as_i64().expect("an id")
}

fn count(shell: &Sqlite3Shell, condition: &str) -> i64 {
    shell.value(&format!("SELECT count(*) FROM {condition}")).as_i64().expect("a number")
}
