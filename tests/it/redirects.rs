//! Where a feed's URL goes when its server redirects: every case of `fixtures/redirects.json`, against scripted servers, the
//! `sqlite3` shell and a real database file. What the keys of a case mean is said at [`Case`].

use crate::support::feeds::{guid, link, published, tag_of, title};
use crate::support::origin::Origin;
use crate::support::server::panic_text;
use crate::support::shell::{Sqlite3Shell, quoted};
use crate::support::worker::Worker;
use feedmill::clock::Clock;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tempfile::TempDir;

const CASES: &str = include_str!("../../fixtures/redirects.json");

/// What a case can expect; `Harness::observe` says what each of them is.
const EXPECTATIONS: &[&str] = &[
    "url",
    "state",
    "statuses",
    "entries",
    "entries_kept",
    "failure_kind",
    "failure_count",
    "pending_target",
    "history_reasons",
    "active_rows",
    "merged_rows",
    "survivor",
    "survivor_url",
    "entry_tags",
    "fetch_jobs",
    "requests",
    "if_none_match_seen_by",
];

/// One case as written.
#[derive(Debug, Default)]
struct Case {
    name: String,
    /// Site → path → answers.
    hosts: Value,
    url: String,
    /// Entries 1 to 3 of this tag are in the database before the first run.
    stored: Option<String>,
    keep_url: bool,
    other_feed: Option<OtherFeed>,
    /// The user sets this URL while the first answer is awaited.
    edit_during_fetch: Option<String>,
    /// The user approves the waiting move before this run (1 = first).
    approve_before_run: Option<usize>,
    runs: Vec<Run>,
    /// After the last run.
    expect: Map<String, Value>,
}

/// A feed that holds another URL already.
#[derive(Debug, Default)]
struct OtherFeed {
    url: String,
    stored: Option<String>,
    state: Option<String>,
}

/// The clock moves on by `hours`, the feed is made due, holds end, the worker runs once.
#[derive(Debug, Default)]
struct Run {
    hours: i64,
    expect: Map<String, Value>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}")).to_string()
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap_or_else(|| panic!("not an object: {value}"))
}

fn expectations(json: &Value) -> Map<String, Value> {
    let expect = object(json).clone();
    for key in expect.keys() {
        assert!(EXPECTATIONS.contains(&key.as_str()), "nothing can be expected of {key:?}");
    }
    expect
}

impl Case {
    fn from_json(json: &Value) -> Case {
        let mut case = Case::default();
        for (key, value) in object(json) {
            match key.as_str() {
                "name" => case.name = text(value),
                "hosts" => case.hosts = value.clone(),
                "url" => case.url = text(value),
                "stored" => case.stored = Some(text(value)),
                "keep_url" => case.keep_url = value == 1,
                "other_feed" => case.other_feed = Some(OtherFeed::from_json(value)),
                "edit_during_fetch" => case.edit_during_fetch = Some(text(value)),
                "approve_before_run" => case.approve_before_run = value.as_u64().map(|run| run as usize),
                "runs" => case.runs = value.as_array().expect("a list of runs").iter().map(Run::from_json).collect(),
                "expect" => case.expect = expectations(value),
                other => panic!("a case has no {other:?}"),
            }
        }
        case
    }
}

impl OtherFeed {
    fn from_json(json: &Value) -> OtherFeed {
        let mut other = OtherFeed::default();
        for (key, value) in object(json) {
            match key.as_str() {
                "url" => other.url = text(value),
                "stored" => other.stored = Some(text(value)),
                "state" => other.state = Some(text(value)),
                unknown => panic!("another feed has no {unknown:?}"),
            }
        }
        other
    }
}

impl Run {
    fn from_json(json: &Value) -> Run {
        let mut run = Run::default();
        for (key, value) in object(json) {
            match key.as_str() {
                "hours" => run.hours = value.as_i64().expect("hours"),
                "expect" => run.expect = expectations(value),
                other => panic!("a run has no {other:?}"),
            }
        }
        run
    }
}

/// A database, the servers and the worker of one case.
struct Harness {
    shell: Sqlite3Shell,
    origin: Origin,
    clock: Clock,
    worker: Worker,
    /// The feed that the case is about.
    feed: i64,
    /// The one that held another URL before.
    holder: Option<i64>,
    _dir: TempDir,
}

impl Harness {
    fn new(case: &Case) -> Harness {
        let dir = TempDir::new().expect("a folder");
        let db = dir.path().join("feedmill.db");
        let shell = Sqlite3Shell::create(&db);
        // The clock stands still while a case runs: nobody would ever be let in after a delay.
        shell.run("UPDATE settings SET value = 0 WHERE key = 'host_delay_ms'");
        let origin = Origin::from_json(&case.hosts);
        // The triggers know the system's time only, so the test begins there.
        let clock = Clock::set_to(Clock::System.now());
        let worker = Worker::new(&db, clock.clone(), origin.names(), origin.ca_pem());
        let mut harness = Harness { shell, origin, clock, worker, feed: 0, holder: None, _dir: dir };
        harness.feed = harness.insert_feed(&case.url, case.stored.as_deref());
        if case.keep_url {
            harness.shell.run(&format!("UPDATE feeds SET keep_url = 1 WHERE id = {}", harness.feed));
        }
        if let Some(other) = &case.other_feed {
            harness.holder = Some(harness.insert_other(other));
        }
        harness
    }

    fn insert_feed(&self, url: &str, stored: Option<&str>) -> i64 {
        self.shell.run(&format!("INSERT INTO feeds(url) VALUES({})", quoted(url)));
        let id = self.number(&format!("SELECT id FROM feeds WHERE url = {}", quoted(url)));
        if let Some(tag) = stored {
            self.store_entries(id, tag);
        }
        id
    }

    /// The other feed is not due in any run: it is there only to hold its URL.
    fn insert_other(&self, other: &OtherFeed) -> i64 {
        let id = self.insert_feed(&other.url, other.stored.as_deref());
        if let Some(state) = &other.state {
            self.shell.run(&format!("UPDATE feeds SET state = {} WHERE id = {id}", quoted(state)));
        }
        let far = self.clock.now() + 10 * 365 * 86_400;
        self.shell.run(&format!("UPDATE jobs SET run_at = {far} WHERE feed_id = {id}"));
        id
    }

    /// Entries 1 to 3 of `tag`, as a good fetch of yesterday left them.
    fn store_entries(&self, feed: i64, tag: &str) {
        let yesterday = self.clock.now() - 86_400;
        for i in 1..=3 {
            self.shell.run(&format!(
                "INSERT INTO entries(feed_id, guid, url, title, published_at, first_seen_at, changed_at, arrived_by) \
                 VALUES({feed}, {}, {}, {}, {}, {yesterday}, {yesterday}, 'fetch')",
                quoted(&guid(tag, i)),
                quoted(&link(tag, i)),
                quoted(&title(tag, i)),
                published(tag, i),
            ));
        }
        self.shell.run(&format!(
            "UPDATE feeds SET last_fetched_at = {yesterday}, last_success_at = {yesterday}, last_status = 200 \
             WHERE id = {feed}"
        ));
    }

    fn edit_during_fetch(&self, url: &str, new_url: &str) {
        let edit = format!("UPDATE feeds SET url = {} WHERE id = {}", quoted(new_url), self.feed);
        let shell = self.shell.clone();
        self.origin.on_request(url, move || drop(shell.run(&edit)));
    }

    fn approve(&self) {
        self.shell.run(&format!("UPDATE pending_moves SET approved = 1 WHERE feed_id = {}", self.feed));
    }

    fn run(&mut self, hours: i64) {
        self.clock.advance(hours * 3600);
        self.shell.run(&format!("UPDATE jobs SET run_at = 0 WHERE kind = 'fetch' AND feed_id = {}", self.feed));
        self.shell.run("DELETE FROM hosts");
        self.worker.run_due();
    }

    /// What the database and the servers say now under a key of `expect`, in the shape of the expected value.
    fn observe(&self, case: &Case, key: &str, expected: &Value) -> Value {
        let feed = self.feed;
        let of_feed = |column: &str| self.shell.value(&format!("SELECT {column} FROM feeds WHERE id = {feed}"));
        let count = |condition: &str| self.shell.value(&format!("SELECT count(*) FROM {condition}"));
        let list = |sql: String| Value::from(self.shell.column(&sql));
        match key {
            "url" | "state" | "failure_kind" | "failure_count" => of_feed(key),
            "statuses" => self
                .shell
                .value(&format!("SELECT statuses FROM fetches WHERE feed_id = {feed} ORDER BY rowid DESC LIMIT 1")),
            "entries" => count(&format!("entries WHERE feed_id = {feed}")),
            "entries_kept" => {
                let tag = case.stored.as_deref().expect("stored entries");
                let guids: Vec<String> = (1..=3).map(|i| quoted(&guid(tag, i))).collect();
                json!(count(&format!("entries WHERE feed_id = {feed} AND guid IN ({})", guids.join(","))) == 3)
            }
            "pending_target" => {
                self.shell.value(&format!("SELECT target_url FROM pending_moves WHERE feed_id = {feed}"))
            }
            "history_reasons" => list(format!("SELECT reason FROM feed_urls WHERE feed_id = {feed} ORDER BY rowid")),
            "active_rows" => count("feeds WHERE state = 'active'"),
            "merged_rows" => count("feeds WHERE state = 'merged'"),
            "survivor" => match self.merged() {
                Some((_, survivor)) if Some(survivor) == self.holder => json!("holder"),
                Some((_, survivor)) if survivor == feed => json!("mover"),
                Some((_, survivor)) => json!(format!("feed {survivor}")),
                None => Value::Null,
            },
            "survivor_url" => self.of_merged(|_, survivor| format!("SELECT url FROM feeds WHERE id = {survivor}")),
            "entry_tags" => {
                let Some((_, survivor)) = self.merged() else { return Value::Null };
                let guids = self.shell.column(&format!("SELECT guid FROM entries WHERE feed_id = {survivor}"));
                let tags: BTreeSet<String> = guids.iter().map(|guid| tag_of(&text(guid)).to_string()).collect();
                json!(tags)
            }
            "fetch_jobs" => {
                let jobs = |id: i64| format!("SELECT count(*) FROM jobs WHERE kind = 'fetch' AND feed_id = {id}");
                json!({
                    "survivor": self.of_merged(|_, survivor| jobs(survivor)),
                    "merged": self.of_merged(|merged, _| jobs(merged)),
                })
            }
            "requests" => json!(self.origin.urls()),
            "if_none_match_seen_by" => {
                let urls = object(expected).keys();
                urls.map(|url| (url.clone(), json!(self.origin.if_none_match_seen_by(url)))).collect()
            }
            other => panic!("nothing is known of {other:?}"),
        }
    }

    /// The row that became `merged`, and the one it was merged into.
    fn merged(&self) -> Option<(i64, i64)> {
        let rows = self.shell.rows("SELECT id, merged_into FROM feeds WHERE state = 'merged'");
        let row = rows.first()?;
        Some((row["id"].as_i64()?, row["merged_into"].as_i64()?))
    }

    fn of_merged(&self, sql: impl Fn(i64, i64) -> String) -> Value {
        self.merged().map_or(Value::Null, |(merged, survivor)| self.shell.value(&sql(merged, survivor)))
    }

    fn number(&self, sql: &str) -> i64 {
        let value = self.shell.value(sql);
        value.as_i64().unwrap_or_else(|| panic!("{sql}: not a number: {value}"))
    }

    /// What differs from `expect`, a line each.
    fn differences(&self, case: &Case, when: &str, expect: &Map<String, Value>) -> Vec<String> {
        let mut differences = Vec::new();
        for (key, expected) in expect {
            let found = self.observe(case, key, expected);
            if found != *expected {
                differences.push(format!("{when}: {key} is {found}, expected {expected}"));
            }
        }
        differences
    }
}

/// Runs one case; the differences, none if all is well.
fn run_case(case: &Case, harness: &mut Harness) -> Vec<String> {
    let mut differences = Vec::new();
    if let Some(new_url) = &case.edit_during_fetch {
        harness.edit_during_fetch(&case.url, new_url);
    }
    for (number, run) in (1..).zip(&case.runs) {
        if case.approve_before_run == Some(number) {
            harness.approve();
        }
        harness.run(run.hours);
        differences.extend(harness.differences(case, &format!("after run {number}"), &run.expect));
    }
    differences.extend(harness.differences(case, "at the end", &case.expect));
    differences
}

fn cases() -> Vec<Case> {
    let json: Value = serde_json::from_str(CASES).expect("fixtures/redirects.json");
    json.as_array().expect("a list of cases").iter().map(Case::from_json).collect()
}

#[test]
fn the_cases_can_be_read() {
    let cases = cases();
    let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), cases.len(), "two cases have one name");
    for case in &cases {
        assert!(!case.runs.is_empty() && !case.expect.is_empty(), "{}: nothing is run or expected", case.name);
        assert!(!Origin::from_json(&case.hosts).names().is_empty(), "{}: no host", case.name);
    }
}

#[test]
#[should_panic(expected = "nothing can be expected of \"ulr\"")]
fn an_unknown_expectation_fails() {
    Case::from_json(&json!({"name": "x", "runs": [{"expect": {"ulr": "http://a.test/f"}}]}));
}

#[test]
#[should_panic(expected = "a case has no \"store\"")]
fn an_unknown_key_fails() {
    Case::from_json(&json!({"name": "x", "store": "x"}));
}

#[test]
fn redirects() {
    let mut failures = Vec::new();
    for case in cases() {
        let differences = catch_unwind(AssertUnwindSafe(|| run_case(&case, &mut Harness::new(&case))));
        match differences {
            Ok(differences) => failures.extend(differences.iter().map(|line| format!("{}: {line}", case.name))),
            Err(panic) => failures.push(format!("{}: panicked: {}", case.name, panic_text(&*panic))),
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}
