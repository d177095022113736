//! A hub that others wrote: Flask-WebSub, with the real `feedmill run` as worker and the real callback program.
//!
//! Two kinds of it: "eager" verifies before it answers the request; with Celery and Redis it answers first. Both run on
//! loopback by http, so the secret goes over http and the feed is at a private address that the user typed. Needs what
//! `contrib/test-setup` installs.

use crate::support::binary::{Feedmill, Running, wait_until};
use crate::support::cgi::Cgi;
use crate::support::client;
use crate::support::shell::{Sqlite3Shell, quoted};
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/hub/hub.py");
/// What the hub grants, seconds: renewed after four to six.
const LEASE: &str = "8";

/// A program that is killed when the test ends.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn python() -> PathBuf {
    let path = std::env::var_os("FEEDMILL_TEST_PYTHON")
        .map(PathBuf::from)
        .expect("FEEDMILL_TEST_PYTHON is not set: run eval \"$(contrib/test-setup)\" first, or contrib/test");
    assert!(path.exists(), "FEEDMILL_TEST_PYTHON names {}, which is not there: run contrib/test-setup", path.display());
    path
}

/// The hub, which is the publisher too.
struct RealHub {
    site: String,
    _services: Vec<Service>,
    _dir: TempDir,
}

impl RealHub {
    fn start(asynchronous: bool) -> RealHub {
        let dir = TempDir::new().expect("a folder");
        let mut services = Vec::new();
        let broker = asynchronous.then(|| {
            let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
            let redis = Command::new("redis-server")
                .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port.to_string(), "--dir"])
                .arg(dir.path())
                .stdout(Stdio::null())
                .spawn();
            services.push(Service(redis.expect("redis-server starts: run contrib/test-setup")));
            wait_until("redis listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
            format!("redis://127.0.0.1:{port}/0")
        });
        let start = |mode: &str, stdout: Stdio| {
            let mut command = Command::new(python());
            command.args([SCRIPT, mode]).arg(dir.path().join("hub.db")).args(&broker).env("LEASE", LEASE);
            let log = std::fs::File::create(dir.path().join(format!("{mode}.log"))).expect("a log");
            command.current_dir(dir.path()).stdin(Stdio::null()).stdout(stdout).stderr(log);
            command.spawn().expect("Python starts")
        };
        let mut hub = start("serve", Stdio::piped());
        let mut port = String::new();
        BufReader::new(hub.stdout.take().expect("its output")).read_line(&mut port).expect("its port");
        services.push(Service(hub));
        let log = std::fs::read_to_string(dir.path().join("serve.log")).unwrap_or_default();
        assert!(!port.trim().is_empty(), "the hub does not start: {log}");
        // Not before: two that make the hub's database at once are in each other's way.
        if asynchronous {
            services.push(Service(start("work", Stdio::null())));
        }
        RealHub { site: format!("http://127.0.0.1:{}", port.trim()), _services: services, _dir: dir }
    }

    fn feed(&self) -> String {
        format!("{}/feed", self.site)
    }

    /// There are `n` entries now, and the hub is told.
    fn publish(&self, n: usize) {
        let answer = client::send("POST", &format!("{}/publish?n={n}", self.site), None, &[], b"").expect("an answer");
        assert_eq!(answer.status, 204);
    }

    fn subscribers(&self) -> Vec<String> {
        let answer = client::send("GET", &format!("{}/subscribers", self.site), None, &[], b"").expect("an answer");
        String::from_utf8(answer.body).expect("callbacks").lines().map(str::to_string).collect()
    }
}

fn connect(db: &Path) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(db).expect("the database");
    connection.busy_timeout(Duration::from_secs(5)).expect("a timeout");
    connection
}

/// Publishes the `n`th entry and waits until it stands in `entries`; how long that took.
fn publish_and_wait(hub: &RealHub, db: &rusqlite::Connection, n: usize) -> Duration {
    let began = Instant::now();
    hub.publish(n);
    let guid = format!("urn:real:{n}");
    let there = || {
        db.query_row("SELECT count(*) FROM entries WHERE guid = ?1 AND arrived_by = 'push'", [&guid], |r| r.get(0))
            .is_ok_and(|count: i64| count == 1)
    };
    while !there() {
        assert!(began.elapsed() < Duration::from_secs(10), "entry {n} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
    began.elapsed()
}

fn whole_life(asynchronous: bool) {
    let hub = RealHub::start(asynchronous);
    let feedmill = Feedmill::new();
    feedmill.succeed(&["init"]);
    let shell = Sqlite3Shell::new(&feedmill.db());
    let cgi = Cgi::start(&feedmill.db());
    shell.run(&format!(
        "UPDATE settings SET value = {} WHERE key = 'callback_url';
         UPDATE settings SET value = 1 WHERE key = 'secret_over_http';",
        quoted(&cgi.url())
    ));
    let mut worker: Running = feedmill.spawn(&["run"]);
    // Polling is off, but for the first time.
    shell.run(&format!("INSERT INTO feeds(url, interval_seconds) VALUES ({}, 31536000)", quoted(&hub.feed())));
    let value = |sql: &str| shell.value(sql);
    wait_until("the hub has verified", || value("SELECT state FROM subscriptions") == "active");
    wait_until("the hub knows it", || hub.subscribers().len() == 1);
    assert_eq!(value("SELECT lease_seconds FROM subscriptions").to_string(), LEASE);

    let db = connect(&feedmill.db());
    let mut delays: Vec<Duration> = (2..=4).map(|n| publish_and_wait(&hub, &db, n)).collect();

    // Renewed, and it goes on after the end of the first lease, with the same callback and secret.
    let first_end = value("SELECT lease_expires_at FROM subscriptions").as_i64().expect("an end");
    wait_until("the lease is renewed", || {
        value("SELECT lease_expires_at FROM subscriptions").as_i64().is_some_and(|end| end > first_end)
    });
    let now = || feedmill::clock::Clock::System.now();
    wait_until("the first lease is over", || now() > first_end);
    delays.push(publish_and_wait(&hub, &db, 5));
    assert_eq!(hub.subscribers().len(), 1);
    let slowest = delays.iter().max().copied().unwrap_or_default();
    println!("asynchronous: {asynchronous}; from publishing to the entry: {delays:?}");
    assert!(slowest < Duration::from_secs(1), "an entry took {slowest:?}");
    let fetches = value("SELECT count(*) FROM fetches");
    assert_eq!(fetches, 1, "polled although polling is off");
    assert_eq!(value("SELECT count(*) FROM subscriptions WHERE good_pushes >= 4 AND bad_pushes = 0"), 1);

    // A worker that is away for a while loses nothing: the callback takes what comes.
    worker.kill();
    worker.wait();
    hub.publish(6);
    wait_until("the delivery waits", || value("SELECT count(*) FROM deliveries") == 1);
    let mut worker = feedmill.spawn(&["run"]);
    wait_until("it is read", || value("SELECT count(*) FROM entries WHERE guid = 'urn:real:6'") == 1);
    wait_until("it goes on", || hub.subscribers().len() == 1);

    for row in [shell.rows("SELECT * FROM subscription_status"), shell.rows("SELECT * FROM hub_status")].concat() {
        println!("{row:?}");
    }
    let status = feedmill.succeed(&["status"]);
    assert!(status.contains("push      1 active, 0 deliveries waiting"), "{status}");

    // The lease would end by itself: that the hub asked shows that it was told.
    let questions = || cgi.served().iter().filter(|served| served.method == "GET").count();
    let before = questions();
    shell.run("DELETE FROM feeds");
    wait_until("the hub was answered", || value("SELECT state FROM subscriptions") == "ended");
    wait_until("the hub has let go", || hub.subscribers().is_empty());
    assert_eq!(questions(), before + 1, "{:?}", cgi.served());
    assert!(worker.is_running(), "{}", worker.stderr_so_far());
    worker.terminate();
    let ended = worker.wait();
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert!(cgi.served().iter().all(|served| served.status < 300), "{:?}", cgi.served());
}

#[test]
fn a_hub_that_verifies_before_it_answers() {
    whole_life(false);
}

#[test]
fn a_hub_that_answers_before_it_verifies() {
    whole_life(true);
}
