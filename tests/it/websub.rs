//! Push with the real worker, a scripted hub and the real callback program: the `worker` cases of `fixtures/websub.json`.
//! What the keys of a case mean is said at [`Case`]; what the cases do not say is in `push`.

use crate::support::cgi::Cgi;
use crate::support::feeds::feed;
use crate::support::hub::{Hub, HubAnswer, Post, Verify};
use crate::support::origin::{Answer, Origin};
use crate::support::server::panic_text;
use crate::support::shell::{Sqlite3Shell, quoted};
use crate::support::worker::Worker;
use feedmill::clock::Clock;
use serde_json::{Map, Value, json};
use std::net::{SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const CASES: &str = include_str!("../../fixtures/websub.json");
pub const FEED: &str = "http://a.test/f";
pub const HUB: &str = "http://h.test/";
/// Every host that a hub answers for.
const HUBS: [&str; 5] = ["h.test", "h1.test", "h2.test", "c.test", "a.hub.test"];

/// A feed of `n` entries that names hubs and itself: `prefix` is what the Atom namespace is bound to.
pub fn pushed_feed(n: usize, tag: &str, prefix: &str, hubs: &[&str], itself: Option<&str>) -> Answer {
    let mut links = String::new();
    for hub in hubs {
        links += &format!("<{prefix}:link rel=\"hub\" href=\"{hub}\"/>\n");
    }
    if let Some(itself) = itself {
        links += &format!("<{prefix}:link rel=\"self\" href=\"{}\"/>\n", itself.replace('&', "&amp;"));
    }
    let named = feed(n, tag)
        .replace(
            "<rss version=\"2.0\">",
            &format!("<rss version=\"2.0\" xmlns:{prefix}=\"http://www.w3.org/2005/Atom\">"),
        )
        .replace("<channel>\n", &format!("<channel>\n{links}"));
    Answer::body("application/rss+xml", named)
}

/// `n` entries, and the hub of the tests.
pub fn with_hub(n: usize) -> Answer {
    pushed_feed(n, "x", "atom", &[HUB], None)
}

/// How a [`Rig`] is set up.
pub struct Setup {
    /// The callback's clock is the test's: it is called in this process.
    pub injected: bool,
    /// Hosts speak https too. Else nobody listens there, as with many hubs that are advertised by http.
    pub https: bool,
    /// The setting `callback_url` is filled.
    pub callback: bool,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup { injected: false, https: false, callback: true }
    }
}

/// A database, an origin, a hub, the callback behind its web server, and the worker.
pub struct Rig {
    pub shell: Sqlite3Shell,
    pub origin: Origin,
    pub hub: Hub,
    pub cgi: Cgi,
    pub clock: Clock,
    pub worker: Worker,
    _dir: TempDir,
}

/// A port of loopback where nobody listens.
fn closed_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a loopback port")
}

impl Rig {
    /// `answers` as for [`Origin::serve`]; the hosts in them are all there are, beside the hubs.
    pub fn new(setup: &Setup, answers: Vec<(&str, Answer)>) -> Rig {
        let dir = TempDir::new().expect("a folder");
        let db = dir.path().join("feedmill.db");
        let shell = Sqlite3Shell::create(&db);
        let (origin, hub) = (Origin::serve(answers), Hub::start(&HUBS));
        // The program and the triggers know the system's time only, so the test begins there.
        let clock = Clock::set_to(Clock::System.now());
        let cgi = if setup.injected { Cgi::at(&db, clock.clone()) } else { Cgi::start(&db) };
        // The clock stands still between steps: nobody would ever be let in after a delay.
        shell.run("UPDATE settings SET value = 0 WHERE key = 'host_delay_ms'");
        if setup.callback {
            shell.run(&format!("UPDATE settings SET value = {} WHERE key = 'callback_url'", quoted(&cgi.url())));
        }
        let closed = closed_port();
        let names = origin.names().into_iter().chain(hub.names()).map(|mut name| {
            name.https = if setup.https { name.https } else { closed };
            name
        });
        let names = names.collect();
        let worker = Worker::new(&db, clock.clone(), names, &format!("{}{}", origin.ca_pem(), hub.ca_pem()));
        Rig { shell, origin, hub, cgi, clock, worker, _dir: dir }
    }

    /// One feed with one hub, subscribed and verified.
    pub fn subscribed(setup: &Setup) -> Rig {
        let mut rig = Rig::new(setup, vec![(FEED, with_hub(1))]);
        rig.secrets();
        rig.insert(FEED);
        rig.settle();
        assert_eq!(rig.states(), ["active"], "{:?}", rig.shell.rows("SELECT * FROM subscription_status"));
        rig
    }

    /// Secrets go to http hubs too.
    pub fn secrets(&self) {
        self.shell.run("UPDATE settings SET value = 1 WHERE key = 'secret_over_http'");
    }

    pub fn insert(&self, url: &str) -> i64 {
        self.shell.run(&format!("INSERT INTO feeds(url) VALUES({})", quoted(url)));
        self.number(&format!("SELECT id FROM feeds WHERE url = {}", quoted(url)))
    }

    /// Works until nothing of push is to be done within three seconds; the clock moves on by the seconds between requests to one
    /// hub.
    pub fn settle(&mut self) {
        for _ in 0..60 {
            self.step();
            let soon = self.clock.now() + 3;
            if self.number(&format!("SELECT count(*) FROM jobs WHERE kind <> 'fetch' AND run_at <= {soon}")) == 0 {
                return;
            }
            self.clock.advance(1);
        }
        panic!("push does not settle: {:?}", self.shell.rows("SELECT * FROM jobs"));
    }

    /// All that is due now, and the verifications that come of it.
    pub fn step(&mut self) {
        self.worker.run_due();
        crate::support::binary::wait_until("the hub has verified", || self.hub.is_idle());
    }

    /// The feed is polled now, and what follows from it is done.
    pub fn poll(&mut self) {
        self.shell.run("UPDATE jobs SET run_at = 0 WHERE kind = 'fetch'");
        self.settle();
    }

    /// Time passes; what comes due on the way is done at its second.
    pub fn pass(&mut self, seconds: i64) {
        let end = self.clock.now() + seconds;
        while let Some(next) = self.next_job().filter(|next| *next <= end) {
            self.clock.advance((next - self.clock.now()).max(0));
            self.step();
        }
        self.clock.advance(end - self.clock.now());
    }

    fn next_job(&self) -> Option<i64> {
        self.shell.value("SELECT min(run_at) FROM jobs").as_i64()
    }

    pub fn number(&self, sql: &str) -> i64 {
        let value = self.shell.value(sql);
        value.as_i64().unwrap_or_else(|| panic!("{sql}: not a number: {value}"))
    }

    pub fn text(&self, sql: &str) -> String {
        let value = self.shell.value(sql);
        value.as_str().unwrap_or_else(|| panic!("{sql}: not a text: {value}")).to_string()
    }

    /// The states of all subscriptions, oldest first.
    pub fn states(&self) -> Vec<String> {
        let states = self.shell.column("SELECT state FROM subscriptions ORDER BY id");
        states.iter().map(|state| state.as_str().unwrap_or_default().to_string()).collect()
    }

    /// The requests to hubs: mode and topic.
    pub fn asked(&self) -> Vec<(String, String)> {
        let param = |post: &Post, name: &str| post.param(name).unwrap_or_default().to_string();
        self.hub.posts().iter().map(|post| (param(post, "hub.mode"), param(post, "hub.topic"))).collect()
    }

    /// Delivers as the hub of the last subscribe request.
    pub fn deliver(&self, body: &[u8]) -> u16 {
        let posts = self.hub.posts();
        let post = posts.iter().rfind(|post| post.param("hub.mode") == Some("subscribe")).expect("a subscription");
        self.hub.deliver(post, "application/rss+xml", body).expect("an answer of the callback").status
    }

    pub fn pushed_entries(&self) -> i64 {
        self.number("SELECT count(*) FROM entries WHERE arrived_by = 'push'")
    }

    /// A worker that runs while `during` does, on a thread of its own.
    pub fn while_running<T>(&self, during: impl FnOnce() -> T) -> T {
        let stop = Arc::new(AtomicBool::new(false));
        let (options, stopped) = (self.worker.options(), stop.clone());
        let running = thread::spawn(move || {
            let mut worker = feedmill::worker::Worker::new(options).expect("the worker");
            worker.run(&stopped).expect("the worker");
        });
        let done = catch_unwind(AssertUnwindSafe(during));
        stop.store(true, Ordering::SeqCst);
        running.join().expect("the worker ends");
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// One case as written.
#[derive(Debug, Default)]
struct Case {
    name: String,
    /// Where the feed is; `http://a.test/f` unless it is said.
    url: Option<String>,
    /// Header lines of the feed's answer.
    headers: Vec<String>,
    /// What the document names. Where neither headers nor document name anything, it is `http://h.test/`.
    body_hub: Option<String>,
    body_self: Option<String>,
    /// The prefix of Atom's namespace in the RSS document.
    rss_prefix: Option<String>,
    /// The feed is a JSON Feed with these `hubs`.
    json_hubs: Option<Value>,
    hub: Script,
    /// So many hours pass after the first requests.
    hours: i64,
    /// The hub's answers are those to a renewal; the first subscription went well.
    renewal: bool,
    /// So many feeds of this hub.
    feeds: usize,
    /// The feed moves for good, and its topic with it.
    moved: bool,
    /// The feed names another hub.
    hub_changes: bool,
    /// The lease that the hub grants.
    lease: Option<i64>,
    /// So many minutes pass, second by second where something is due.
    minutes: i64,
    delete_feed: bool,
    /// So many polls find an entry that the hub never sent, after a first good push.
    misses: i64,
    /// `callback_url` is empty.
    no_callback: bool,
    expect: Map<String, Value>,
}

#[derive(Debug, Default)]
enum Script {
    /// 202, then it verifies.
    #[default]
    Good,
    VerifiesFirst,
    Hangs,
    Answers(Vec<Value>),
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}")).to_string()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().unwrap_or_else(|| panic!("not a list: {value}")).iter().map(text).collect()
}

fn int(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("not a number: {value}"))
}

impl Case {
    fn from_json(json: &Value) -> Case {
        let mut case = Case { feeds: 1, ..Case::default() };
        for (key, value) in json.as_object().expect("a case") {
            match key.as_str() {
                "name" => case.name = text(value),
                "url" => case.url = Some(text(value)),
                "headers" => case.headers = texts(value),
                "body_hub" => case.body_hub = Some(text(value)),
                "body_self" => case.body_self = Some(text(value)),
                "rss_prefix" => case.rss_prefix = Some(text(value)),
                "json_hubs" => case.json_hubs = Some(value.clone()),
                "hub" if value == "verifies_first" => case.hub = Script::VerifiesFirst,
                "hub" if value == "hangs" => case.hub = Script::Hangs,
                "hub" => case.hub = Script::Answers(value.as_array().expect("the hub's answers").clone()),
                "hours" => case.hours = int(value),
                "renewal" => case.renewal = value == true,
                "feeds" => case.feeds = usize::try_from(int(value)).expect("a count"),
                "moved" => case.moved = value == true,
                "hub_changes" => case.hub_changes = value == true,
                "lease" => case.lease = Some(int(value)),
                "minutes" => case.minutes = int(value),
                "delete_feed" => case.delete_feed = value == true,
                "misses" => case.misses = int(value),
                "callback_url" if value.is_null() => case.no_callback = true,
                "expect" => case.expect = value.as_object().expect("expectations").clone(),
                other => panic!("a case has no {other:?}: {value}"),
            }
        }
        case
    }

    fn url(&self) -> &str {
        self.url.as_deref().unwrap_or(FEED)
    }

    fn document(&self) -> Answer {
        let hub = match &self.body_hub {
            Some(hub) => vec![hub.as_str()],
            None if self.headers.is_empty() && self.json_hubs.is_none() => vec![HUB],
            None => vec![],
        };
        let prefix = self.rss_prefix.as_deref().unwrap_or("atom");
        let mut answer = pushed_feed(1, "x", prefix, &hub, self.body_self.as_deref());
        if let Some(hubs) = &self.json_hubs {
            let items = json!([{"id": "1", "title": "One", "content_text": "x", "url": "http://a.test/1"}]);
            let document =
                json!({"version": "https://jsonfeed.org/version/1.1", "title": "J", "hubs": hubs, "items": items});
            answer = Answer::body("application/feed+json", document.to_string());
        }
        for line in &self.headers {
            let (name, value) = line.split_once(':').expect("a header line");
            answer = answer.header(name, value.trim());
        }
        answer
    }

    /// Whether time passes that the program behind the web server must see pass.
    fn injected(&self) -> bool {
        self.hours > 0 || self.minutes > 0 || self.misses > 0 || self.moved || self.hub_changes
    }
}

/// Another feed that the cases with several of them have.
fn nth_feed(n: usize) -> String {
    if n == 0 { FEED.to_string() } else { format!("http://a.test/f{n}") }
}

/// Runs one case; what it saw goes to [`observe`].
fn run_case(case: &Case) -> Vec<String> {
    let urls: Vec<String> = (1..case.feeds).map(nth_feed).collect();
    let answers =
        std::iter::once((case.url(), case.document())).chain(urls.iter().map(|url| (url.as_str(), case.document())));
    let setup = Setup { injected: case.injected(), callback: !case.no_callback, ..Setup::default() };
    let mut rig = Rig::new(&setup, answers.collect());
    rig.origin.add("http://a.test/hub", Answer::status(202));
    rig.origin.add("http://b.test/f", pushed_feed(1, "x", "atom", &[HUB], Some("http://b.test/f")));
    rig.worker.names.extend(rig.origin.names().into_iter().filter(|name| name.host == "b.test"));
    if case.misses > 0 || case.delete_feed {
        rig.secrets();
    }
    if let Some(lease) = case.lease {
        rig.hub.lease(Some(lease));
    }
    let script = |rig: &Rig| match &case.hub {
        Script::Good => {}
        Script::VerifiesFirst => rig.hub.verify(Verify::First),
        Script::Hangs => rig.hub.verify(Verify::Hang),
        Script::Answers(answers) => {
            rig.hub.script(answers.iter().map(HubAnswer::from_json).collect());
            if case.hours > 0 {
                rig.hub.verify(Verify::Never);
            }
        }
    };
    if !case.renewal {
        script(&rig);
    }
    rig.insert(case.url());
    for url in &urls {
        rig.insert(url);
    }
    let mut seen = Seen::default();
    if matches!(case.hub, Script::Hangs) {
        let began = Instant::now();
        rig.while_running(|| {
            let fetched = || rig.number("SELECT count(*) FROM feeds WHERE last_success_at IS NOT NULL");
            while fetched() < case.feeds as i64 || rig.hub.posts().is_empty() {
                assert!(began.elapsed() < Duration::from_secs(10), "{} fetches in 10 s", fetched());
                thread::sleep(Duration::from_millis(100));
                rig.clock.advance(1);
            }
            // There is time for a second request while the first is not answered.
            for _ in 0..20 {
                thread::sleep(Duration::from_millis(100));
                rig.clock.advance(1);
            }
            assert_eq!(rig.hub.posts().len(), 1, "asked again while it had not answered");
            rig.hub.release();
        });
    } else {
        rig.settle();
    }
    if case.renewal {
        assert_eq!(rig.states(), ["active"]);
        script(&rig);
        let due = rig.number("SELECT run_at FROM jobs WHERE kind = 'renew'");
        rig.shell.run("UPDATE jobs SET run_at = 4000000000 WHERE kind = 'fetch'");
        rig.clock.advance(due - rig.clock.now());
        rig.step();
    }
    if case.moved {
        seen.before = rig.hub.posts().len();
        rig.origin.set(FEED, vec![Answer::redirect(301, "http://b.test/f")]);
        rig.poll();
    }
    if case.hub_changes {
        seen.before = rig.hub.posts().len();
        rig.origin.set(FEED, vec![pushed_feed(2, "x", "atom", &["http://h2.test/"], None)]);
        rig.poll();
    }
    for _ in 0..case.hours {
        rig.pass(3600);
    }
    let end = rig.clock.now() + 60 * case.minutes;
    while rig.clock.now() < end {
        rig.pass(1);
        let now = rig.clock.now();
        let live = format!("SELECT count(*) FROM subscriptions WHERE state = 'active' AND lease_expires_at > {now}");
        seen.expired |= rig.number(&live) != 1;
    }
    if case.delete_feed {
        seen.before = rig.hub.posts().len();
        rig.shell.run("DELETE FROM feeds");
        rig.settle();
        seen.delivery = rig.deliver(feed(2, "x").as_bytes());
    }
    if case.misses > 0 {
        assert_eq!(rig.deliver(feed(2, "x").as_bytes()), 202);
        rig.settle();
        rig.clock.advance(60);
        rig.origin.set(FEED, vec![with_hub(2)]);
        rig.poll();
        let next = rig.number("SELECT run_at FROM jobs WHERE kind = 'fetch'") - rig.clock.now();
        assert!(next >= 86_400, "not polled daily after a good push: {next}");
    }
    for n in 0..case.misses as usize {
        rig.clock.advance(3600);
        rig.origin.set(FEED, vec![with_hub(3 + n)]);
        rig.poll();
    }
    case.expect.iter().filter_map(|(key, expected)| observe(&rig, case, &seen, key, expected)).collect()
}

#[derive(Debug, Default)]
struct Seen {
    /// Requests to hubs before what the case is about.
    before: usize,
    expired: bool,
    delivery: u16,
}

/// What differs under a key of `expect`.
fn observe(rig: &Rig, case: &Case, seen: &Seen, key: &str, expected: &Value) -> Option<String> {
    let mut posts = rig.hub.posts();
    // The feed's own server may be its hub.
    posts.extend(rig.origin.requests().iter().filter(|request| request.method == "POST").map(Post::from));
    let found: Value = match key {
        // There it was asked, too.
        "hub" => {
            assert_eq!(Some(posts[0].url.as_str()), expected.as_str());
            rig.shell.value("SELECT hub_url FROM subscriptions")
        }
        "topic" => {
            assert_eq!(posts[0].param("hub.topic"), expected.as_str());
            rig.shell.value("SELECT topic_url FROM subscriptions")
        }
        "feed_url" => rig.shell.value("SELECT url FROM feeds"),
        "hub_url" => rig.shell.value("SELECT hub_url FROM subscriptions"),
        "state" => json!(rig.states().join(",")),
        "posts" if expected.is_number() => json!(posts.len()),
        "posts" => {
            let described = posts[seen.before..].iter().map(|post| described(post, &posts[0]));
            // What is unsubscribed is old where there is nothing new.
            json!(
                described
                    .map(|text| if case.delete_feed { text.replace(" old", "") } else { text })
                    .collect::<Vec<_>>()
            )
        }
        "posts_at_least" => json!((posts.len() as i64).min(int(expected))),
        "second_lacks" => {
            let has = |post: &Post| post.param(&text(expected)).is_some();
            if has(&posts[0]) && !has(&posts[1]) { expected.clone() } else { json!(format!("{posts:?}")) }
        }
        "next_try_between" => {
            let wait = rig.number("SELECT run_at FROM jobs WHERE kind = 'renew'") - rig.clock.now();
            let (from, to) = (int(&expected[0]), int(&expected[1]));
            if (from..=to).contains(&wait) { expected.clone() } else { json!(wait) }
        }
        "max_in_flight_per_hub" => json!(rig.hub.max_in_flight("http://h.test")),
        "fetches_done" => rig.shell.value("SELECT count(*) FROM fetches WHERE status = 200"),
        "never_expired" => json!(!seen.expired),
        "delivery_status" => json!(seen.delivery),
        "polling" => {
            let next = rig.number("SELECT run_at FROM jobs WHERE kind = 'fetch'") - rig.clock.now();
            if next < 80_000 { json!("normal") } else { json!(format!("in {next} s")) }
        }
        "hub_marked" => match rig.number("SELECT unreliable FROM hub_status") {
            0 => json!(rig.shell.rows("SELECT * FROM hub_status")),
            _ => json!("unreliable"),
        },
        other => panic!("nothing can be expected of {other:?}"),
    };
    if case.no_callback {
        let status = crate::support::binary::Feedmill::new();
        let shown = status.succeed(&["--db", rig.worker.db.to_str().expect("a path"), "status"]);
        assert!(shown.contains("callback_url is empty"), "{shown}");
    }
    (found != *expected).then(|| format!("{key} is {found}, expected {expected}"))
}

/// Mode, and whether topic, callback or hub are those of the first request: `unsubscribe old` has all three.
fn described(post: &Post, first: &Post) -> String {
    let mode = post.param("hub.mode").unwrap_or_default();
    let same = ["hub.topic", "hub.callback"].map(|name| post.param(name) == first.param(name));
    match (mode, same, post.url == first.url) {
        ("unsubscribe", [true, true], true) => "unsubscribe old".into(),
        ("subscribe", [_, false], _)
            if post.param("hub.topic") != first.param("hub.topic") || post.url != first.url =>
        {
            "subscribe new".into()
        }
        _ => format!("{mode} {same:?} {}", post.url),
    }
}

#[test]
#[should_panic(expected = "a case has no \"hubb\"")]
fn an_unknown_key_fails() {
    Case::from_json(&json!({"name": "x", "hubb": []}));
}

#[test]
fn worker_cases() {
    let json: Value = serde_json::from_str(CASES).expect("fixtures/websub.json");
    let parts: Vec<&String> = json.as_object().expect("the parts").keys().collect();
    assert_eq!(parts, ["callback_get", "callback_post", "worker"], "a part that nobody reads");
    let mut failures = Vec::new();
    for case in json["worker"].as_array().expect("a list of cases").iter().map(Case::from_json) {
        match catch_unwind(AssertUnwindSafe(|| run_case(&case))) {
            Ok(differences) => failures.extend(differences.iter().map(|line| format!("{}: {line}", case.name))),
            Err(panic) => failures.push(format!("{}: panicked: {}", case.name, panic_text(&*panic))),
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}
