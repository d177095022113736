//! The real callback program with a real database file: the cases of `fixtures/websub.json`, and what they do not say.

use crate::support::certificates::Certificates;
use crate::support::worker::Worker;
use feedmill::clock::Clock;
use hmac::{Hmac, KeyInit, Mac};
use rusqlite::Connection;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_feedmill-callback");
const TOKEN: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const TOPIC: &str = "http://a.test/f?x=1&y=%C3%BC";
const SECRET: &str = "5ec5ec5ec";
const OLD_SECRET: &str = "01d01d01d";
const MAX_BYTES: usize = 65_536;
/// Where a fetch job stands when no poll was asked for.
const FAR: i64 = 4_000_000_000;

/// A database with one feed, which has one subscription unless `state` is `None`.
struct Db {
    folder: PathBuf,
    _guard: Option<tempfile::TempDir>,
}

impl Db {
    fn new(state: Option<&str>) -> Db {
        let guard = tempfile::tempdir().unwrap();
        Db::at(guard.path().to_path_buf(), Some(guard), state)
    }

    fn at(folder: PathBuf, guard: Option<tempfile::TempDir>, state: Option<&str>) -> Db {
        let db = Db { folder, _guard: guard };
        feedmill::store::open::init(&db.path()).unwrap();
        let connection = db.connect();
        connection.execute("INSERT INTO feeds(url) VALUES ('http://a.test/f')", []).unwrap();
        connection
            .execute("UPDATE settings SET value = ?1 WHERE key = 'max_delivery_bytes'", [MAX_BYTES.to_string()])
            .unwrap();
        db.no_poll();
        if let Some(state) = state {
            connection
                .execute(
                    "INSERT INTO subscriptions(feed_id, hub_url, topic_url, callback_token, secret, verify_token, state,
                       requested_at) VALUES (1, 'https://h.test/', ?1, ?2, ?3, 'right', ?4, 1)",
                    (TOPIC, TOKEN, SECRET, state),
                )
                .unwrap();
        }
        db
    }

    fn path(&self) -> PathBuf {
        self.folder.join("feeds.db")
    }

    fn connect(&self) -> Connection {
        let connection = Connection::open(self.path()).unwrap();
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        connection
    }

    fn run(&self, sql: &str) {
        self.connect().execute_batch(sql).unwrap();
    }

    fn number(&self, sql: &str) -> i64 {
        self.connect().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    fn text(&self, sql: &str) -> String {
        self.connect().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    fn no_poll(&self) {
        self.run(&format!("UPDATE jobs SET run_at = {FAR} WHERE kind = 'fetch'"));
    }

    fn poll_at(&self) -> i64 {
        self.number("SELECT run_at FROM jobs WHERE kind = 'fetch'")
    }

    fn waiting(&self) -> i64 {
        self.number("SELECT count(*) FROM deliveries")
    }
}

/// A request as a web server hands it over.
struct Request<'a> {
    method: &'a str,
    path_info: String,
    query: String,
    env: Vec<(&'a str, String)>,
    body: &'a [u8],
}

impl<'a> Request<'a> {
    fn get(query: &str) -> Request<'a> {
        let query = query.replace("TOPIC", &encoded(TOPIC));
        Request { method: "GET", path_info: format!("/{TOKEN}"), query, env: vec![], body: b"" }
    }

    fn post(body: &'a [u8]) -> Request<'a> {
        let env = vec![("CONTENT_LENGTH", body.len().to_string()), ("CONTENT_TYPE", "application/rss+xml".into())];
        Request { method: "POST", path_info: format!("/{TOKEN}"), query: String::new(), env, body }
    }

    fn with(mut self, name: &'a str, value: impl Into<String>) -> Request<'a> {
        self.env.retain(|(known, _)| *known != name);
        self.env.push((name, value.into()));
        self
    }

    fn start(&self, db: &Path) -> Child {
        Command::new(PROGRAM)
            .env_clear()
            .env("FEEDMILL_DB", db)
            .env("GATEWAY_INTERFACE", "CGI/1.1")
            .env("REQUEST_METHOD", self.method)
            .env("PATH_INFO", &self.path_info)
            .env("QUERY_STRING", &self.query)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn send(&self, db: &Path) -> Answer {
        let mut child = self.start(db);
        // The program need not read what it refuses.
        let _ = child.stdin.take().unwrap().write_all(self.body);
        Answer::of(child)
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: HashMap<String, String>,
    body: Vec<u8>,
    log: String,
}

impl Answer {
    fn of(child: Child) -> Answer {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Answer::read(&output.stdout, String::from_utf8(output.stderr).unwrap())
    }

    fn read(raw: &[u8], log: String) -> Answer {
        let end = raw.windows(4).position(|four| four == b"\r\n\r\n").expect("no end of headers");
        let head = String::from_utf8(raw[..end].to_vec()).unwrap();
        let pairs = head.lines().map(|line| line.split_once(": ").unwrap());
        let headers: HashMap<_, _> = pairs.map(|(name, value)| (name.to_lowercase(), value.to_string())).collect();
        let status = headers["status"][..3].parse().unwrap();
        assert!(log.lines().count() <= 1, "{log}");
        for secret in [TOKEN, SECRET, OLD_SECRET] {
            assert!(!log.contains(secret), "{log}");
        }
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["content-type"], "application/octet-stream");
        assert_eq!(headers["content-security-policy"], "default-src 'none'");
        assert_eq!(headers["cache-control"], "no-store");
        Answer { status, headers, body: raw[end + 4..].to_vec(), log }
    }
}

fn encoded(text: &str) -> String {
    let mut out = String::new();
    feedmill::push::request::encode(text, &mut out);
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn digest<M: Mac + KeyInit>(secret: &str, body: &[u8]) -> String {
    hex(&<M as KeyInit>::new_from_slice(secret.as_bytes()).unwrap().chain_update(body).finalize().into_bytes())
}

fn sign(method: &str, secret: &str, body: &[u8]) -> String {
    match method.to_lowercase().as_str() {
        "sha1" => digest::<Hmac<sha1::Sha1>>(secret, body),
        "sha384" => digest::<Hmac<sha2::Sha384>>(secret, body),
        "sha512" => digest::<Hmac<sha2::Sha512>>(secret, body),
        // For methods that are none, any good digest does.
        _ => digest::<Hmac<sha2::Sha256>>(secret, body),
    }
}

/// `sha256=GOOD` and its like with the digest put in.
fn signature(pattern: &str, body: &[u8]) -> String {
    let (method, what) = pattern.split_once('=').unwrap();
    let good = sign(method, SECRET, body);
    let digits = match what {
        "GOOD_OLD" => sign(method, OLD_SECRET, body),
        "GOOD_UPPER" => good.to_uppercase(),
        "BAD" => sign(method, "another", body),
        _ => what.replace("GOOD", &good),
    };
    format!("{method}={digits}")
}

fn body(pattern: &str) -> Vec<u8> {
    let argument = |name: &str| pattern.strip_prefix(name)?.strip_suffix(')');
    if let Some(count) = argument("FEED(") {
        let items: String = (1..=count.parse::<usize>().unwrap())
            .map(|i| format!("<item><guid>x{i}</guid><link>http://a.test/x{i}</link><title>x{i}</title></item>"))
            .collect();
        return format!("<rss version=\"2.0\"><channel><title>x</title>{items}</channel></rss>").into_bytes();
    }
    match argument("SIZE(") {
        Some("max+1") => vec![b'x'; MAX_BYTES + 1],
        Some(size) => vec![b'x'; size.parse().unwrap()],
        None => pattern.as_bytes().to_vec(),
    }
}

fn cases(list: &str) -> Vec<Map<String, Value>> {
    let all: Value = serde_json::from_str(include_str!("../../fixtures/websub.json")).unwrap();
    all[list].as_array().unwrap().iter().map(|case| case.as_object().unwrap().clone()).collect()
}

/// Keys that no branch below understands would be cases that test nothing.
fn known_keys(case: &Map<String, Value>, keys: &[&str]) {
    for key in case.keys() {
        assert!(keys.contains(&key.as_str()), "{}: what is {key}?", case["name"]);
    }
}

/// One value is one case, a list is one each; absent is one case without it.
fn each(case: &Map<String, Value>, key: &str) -> Vec<Option<Value>> {
    match case.get(key) {
        Some(Value::Array(values)) => values.iter().cloned().map(Some).collect(),
        other => vec![other.cloned()],
    }
}

fn lock(db: &Db) -> Connection {
    db.run("UPDATE settings SET value = '200' WHERE key = 'callback_wait_ms'");
    let connection = db.connect();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    connection
}

#[test]
fn get_cases() {
    const KEYS: [&str; 11] =
        ["name", "state", "query", "status", "body", "after", "lease", "headers", "feed_state", "method", "locked"];
    for case in cases("callback_get") {
        known_keys(&case, &KEYS);
        let name = &case["name"];
        let db = Db::new(case["state"].as_str());
        let locked = case.get("locked").map(|_| lock(&db));
        let query = case["query"].as_str().unwrap().replace("A*1025", &"A".repeat(1025));
        let mut request = Request::get(&query);
        request.method = case.get("method").map_or("GET", |method| method.as_str().unwrap());
        let started = now();
        let answer = request.send(&db.path());
        drop(locked);
        assert_eq!(Value::from(answer.status), case["status"], "{name}");
        if let Some(body) = case.get("body") {
            assert_eq!(body.as_str().unwrap().as_bytes(), answer.body, "{name}");
        }
        if answer.status != 200 {
            assert!(answer.body.is_empty(), "{name}");
        }
        for (header, value) in case.get("headers").and_then(Value::as_object).into_iter().flatten() {
            let got = answer.headers.get(header).unwrap_or_else(|| panic!("{name}: no {header}"));
            assert!(value == "*" || value == got.as_str(), "{name}: {header}: {got}");
        }
        if let Some(after) = case.get("after") {
            assert_eq!(&Value::from(db.text("SELECT state FROM subscriptions")), after, "{name}");
        }
        if let Some(lease) = case.get("lease").and_then(Value::as_i64) {
            assert_eq!(db.number("SELECT lease_seconds FROM subscriptions"), lease, "{name}");
            let ends = db.number("SELECT lease_expires_at FROM subscriptions");
            assert!((started..=now()).contains(&(ends - lease)), "{name}: {ends}");
            let renewal = db.number("SELECT run_at FROM jobs WHERE kind = 'renew'") - (ends - lease);
            assert!((lease / 2..=lease * 3 / 4).contains(&renewal), "{name}: {renewal}");
        }
        if let Some(state) = case.get("feed_state") {
            assert_eq!(&Value::from(db.text("SELECT state FROM feeds")), state, "{name}");
        }
    }
}

#[test]
fn post_cases() {
    const KEYS: [&str; 16] = [
        "name",
        "state",
        "signature",
        "body",
        "status",
        "deliveries",
        "poll_queued",
        "renewal",
        "secret",
        "content_length",
        "content_encoding",
        "type",
        "entries_after_ingest",
        "times",
        "locked",
        "disk_full",
    ];
    for case in cases("callback_post") {
        known_keys(&case, &KEYS);
        for pattern in each(&case, "signature") {
            for length in each(&case, "content_length") {
                post_case(&case, pattern.as_ref().and_then(Value::as_str), length.as_ref());
            }
        }
    }
}

fn post_case(case: &Map<String, Value>, pattern: Option<&str>, length: Option<&Value>) {
    let name = format!("{} {pattern:?} {length:?}", case["name"]);
    let full = case.get("disk_full").map(|_| SmallDisk::mount());
    let db = match &full {
        Some(disk) => Db::at(disk.0.path().to_path_buf(), None, case["state"].as_str()),
        None => Db::new(case["state"].as_str()),
    };
    if case.get("secret") == Some(&Value::Null) {
        db.run("UPDATE subscriptions SET secret = NULL");
    }
    if let Some(renewal) = case.get("renewal") {
        assert_eq!(renewal, "pending", "{name}");
        db.run(&format!("UPDATE subscriptions SET renewing = 1, previous_secret = '{OLD_SECRET}'"));
    }
    let bytes = body(case["body"].as_str().unwrap());
    let mut request = Request::post(&bytes);
    if let Some(pattern) = pattern {
        request = request.with("HTTP_X_HUB_SIGNATURE", signature(pattern, &bytes));
    }
    match length {
        None => {}
        Some(Value::Null) => request.env.retain(|(name, _)| *name != "CONTENT_LENGTH"),
        Some(length) => request = request.with("CONTENT_LENGTH", length.as_str().unwrap()),
    }
    if let Some(coding) = case.get("content_encoding") {
        request = request.with("HTTP_CONTENT_ENCODING", coding.as_str().unwrap());
    }
    if let Some(media_type) = case.get("type") {
        request = request.with("CONTENT_TYPE", media_type.as_str().unwrap());
    }
    let locked = case.get("locked").map(|_| lock(&db));
    let open = full.as_ref().map(|disk| {
        // As beside a running worker: the shared memory exists already.
        let connection = db.connect();
        connection.query_row("SELECT count(*) FROM feeds", [], |row| row.get::<_, i64>(0)).unwrap();
        disk.fill();
        connection
    });
    for _ in 0..case.get("times").map_or(1, |times| times.as_i64().unwrap()) {
        let answer = request.send(&db.path());
        assert_eq!(Value::from(answer.status), case["status"], "{name}: {answer:?}");
        assert_eq!(answer.status == 503, answer.headers.contains_key("retry-after"), "{name}");
        assert_eq!(answer.status == 503, !answer.log.is_empty(), "{name}: {}", answer.log);
    }
    drop(locked);
    if let Some(disk) = &full {
        drop(open);
        // Nobody has the database open: now not even the shared memory can be made.
        disk.fill();
        assert_eq!(request.send(&db.path()).status, 503, "{name}");
        disk.empty();
    }
    if let Some(deliveries) = case.get("deliveries") {
        assert_eq!(Value::from(db.waiting()), *deliveries, "{name}");
    }
    let ingest = db.number("SELECT count(*) FROM jobs WHERE kind = 'ingest' AND run_at = 0 AND subscription_id = 1");
    assert_eq!(ingest, i64::from(db.waiting() > 0), "{name}");
    if db.waiting() > 0 {
        let stored: Vec<u8> = db.connect().query_row("SELECT body FROM deliveries", [], |row| row.get(0)).unwrap();
        assert_eq!(stored, bytes, "{name}");
    }
    if let Some(entries) = case.get("entries_after_ingest") {
        assert!(db.waiting() >= 1, "{name}");
        Worker::new(&db.path(), Clock::System, vec![], Certificates::new().ca_pem()).run_due();
        let pushed = db.number("SELECT count(*) FROM entries WHERE feed_id = 1 AND arrived_by = 'push'");
        assert_eq!((Value::from(pushed), db.waiting()), (entries.clone(), 0), "{name}");
        assert_eq!(db.number("SELECT count(*) FROM entries"), pushed, "{name}");
    }
    if case.get("poll_queued") == Some(&Value::Bool(true)) {
        assert_eq!(db.poll_at(), 0, "{name}");
        // Again within the quarter of an hour: once more, but not before it is over; a third adds nothing.
        for _ in 0..2 {
            db.no_poll();
            request.send(&db.path());
        }
        assert_eq!(db.poll_at(), FAR, "{name}");
        let next = db.number("SELECT hinted_at FROM subscriptions");
        assert!((now() + 800..=now() + 900).contains(&next), "{name}: {next}");
    } else if case["status"] != 403 {
        assert_eq!(db.poll_at(), FAR, "{name}");
    }
}

fn now() -> i64 {
    feedmill::clock::Clock::System.now()
}

/// A file system of one megabyte. Tests run as root, where it can be mounted; where not, the test fails rather than skips.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> SmallDisk {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(folder.path()).status();
        assert!(mounted.is_ok_and(|status| status.success()), "cannot mount a tmpfs for the full disk: run as root");
        SmallDisk(folder)
    }

    /// Uses up every block.
    fn fill(&self) {
        let mut file = std::fs::File::options().append(true).create(true).open(self.0.path().join("filler")).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    }

    fn empty(&self) {
        std::fs::remove_file(self.0.path().join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn an_unknown_token_is_answered_before_the_body_is_read() {
    let db = Db::new(None);
    for token in [TOKEN, "short", &format!("{TOKEN}/"), "../../etc/passwd"] {
        let mut request = Request::post(b"").with("CONTENT_LENGTH", "100");
        request.path_info = format!("/{token}");
        // Standard input stays open.
        let mut child = request.start(&db.path());
        let mut pipe = child.stdin.take().unwrap();
        let mut raw = Vec::new();
        while !raw.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
            raw.push(byte[0]);
        }
        let answer = Answer::read(&raw, String::new());
        assert_eq!((answer.status, answer.body.len()), (404, 0), "{token}");
        // It takes what comes of the body: where both ways are one socket, closing it would destroy the answer.
        pipe.write_all(&[b'x'; 100]).unwrap();
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn a_database_that_cannot_be_used_is_a_503() {
    let db = Db::new(Some("active"));
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    std::fs::write(file("text"), "this is no database, and long enough to be one if it were").unwrap();
    std::fs::write(file("empty"), "").unwrap();
    Connection::open(file("foreign")).unwrap().execute_batch("CREATE TABLE t(x); PRAGMA user_version = 1").unwrap();
    std::fs::copy(db.path(), file("newer")).unwrap();
    Connection::open(file("newer")).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    for name in ["missing", "text", "empty", "foreign", "newer", "", "no/folder"] {
        let path = if name.is_empty() { folder.path().to_path_buf() } else { file(name) };
        for request in [Request::post(b"x"), Request::get("hub.mode=subscribe&hub.topic=TOPIC&hub.challenge=c")] {
            let answer = request.send(&path);
            assert_eq!(answer.status, 503, "{name}: {answer:?}");
            assert!(answer.headers.contains_key("retry-after") && !answer.log.is_empty(), "{name}: {answer:?}");
        }
    }
    assert!(!file("missing").exists());
    let unset = Request::post(b"x").send(Path::new(""));
    assert_eq!((unset.status, unset.log.contains("FEEDMILL_DB")), (503, true));
}

#[test]
fn other_methods_are_not_allowed() {
    let db = Db::new(Some("active"));
    for method in ["PUT", "DELETE", "OPTIONS", "get", ""] {
        let mut request = Request::post(b"x");
        request.method = method;
        let answer = request.send(&db.path());
        assert_eq!((answer.status, answer.headers["allow"].as_str()), (405, "GET, HEAD, POST"), "{method}");
    }
}

#[test]
fn questions_that_must_not_be_answered() {
    let c = "hub.challenge=c";
    for query in [
        format!("hub.mode=subscribe&hub.topic=TOPIC&hub.mode=unsubscribe&{c}"),
        format!("hub.mode=subscribe&hub.topic=TOPIC&hub.topic=http%3A%2F%2Fb.test%2F&{c}"),
        "hub.mode=subscribe&hub.topic=TOPIC".into(),
        "hub.mode=subscribe&hub.topic=TOPIC&hub.challenge=".into(),
        "hub.mode=subscribe&hub.topic=TOPIC&hub.challenge=a%00b".into(),
        "hub.mode=subscribe&hub.topic=TOPIC&hub.challenge=a+b".into(),
        format!("hub.mode=subscribe&{c}"),
        format!("hub.mode=subscribe&hub.topic=http%3A%2F%2Fa.test%2F%FF&{c}"),
        format!("hub.mode=publish&hub.topic=TOPIC&{c}"),
        "hub.mode=denied&hub.topic=http%3A%2F%2Fb.test%2F".into(),
        format!("mode=subscribe&topic=TOPIC&challenge=c&{c}"),
    ] {
        let db = Db::new(Some("pending"));
        let answer = Request::get(&query).send(&db.path());
        assert_eq!((answer.status, answer.body.len()), (404, 0), "{query}");
        assert_eq!(db.text("SELECT state FROM subscriptions"), "pending", "{query}");
    }
}

#[test]
fn questions_in_other_spellings_are_answered() {
    for query in [
        "hub%2Emode=subscribe&hub.topic=TOPIC&hub.challenge=c",
        "hub.mode=subscribe&hub.mode=subscribe&hub.topic=TOPIC&hub.challenge=c&hub.challenge=c",
        "hub.mode=subscribe&hub.topic=HTTP%3A%2F%2FA.test%3A80%2Ff%3Fx%3D1%26y%3D%C3%BC&hub.challenge=c",
        "hub.mode=subscribe&hub.topic=TOPIC&hub.challenge=c&hub.verify_token=right",
        "hub.lease_seconds=60&hub.mode=subscribe&hub.topic=TOPIC&hub.challenge=c&hub.lease_seconds=90",
    ] {
        let db = Db::new(Some("pending"));
        let answer = Request::get(query).send(&db.path());
        assert_eq!((answer.status, answer.body.as_slice()), (200, &b"c"[..]), "{query}");
        assert_eq!(db.text("SELECT state FROM subscriptions"), "active", "{query}");
    }
}

#[test]
fn a_denial_is_shown_in_one_clean_line_and_has_the_feed_polled() {
    let db = Db::new(Some("active"));
    let reason = format!("hub.reason=no%1B%5B31m%0Away+{}", "x".repeat(2000));
    let answer = Request::get(&format!("hub.mode=denied&hub.topic=TOPIC&{reason}")).send(&db.path());
    assert_eq!((answer.status, answer.body.len()), (200, 0));
    let error = db.text("SELECT last_error FROM subscriptions");
    assert!(error.starts_with("denied: no [31m way xxx") && error.chars().count() <= 310, "{error}");
    assert_eq!(db.poll_at(), 0);
    let again = db.number("SELECT run_at FROM jobs WHERE kind = 'subscribe'") - now();
    assert!((7 * 86_400 - 60..8 * 86_400 + 60).contains(&again), "{again}");
}

#[test]
fn a_confirmed_replacement_ends_the_old_one_but_not_what_it_delivered() {
    let db = Db::new(Some("pending"));
    db.run(
        "INSERT INTO subscriptions(feed_id, hub_url, topic_url, state, requested_at) VALUES (1, 'https://o.test/', 't', 'active', 1);
         UPDATE subscriptions SET replaces = 2 WHERE id = 1;
         INSERT INTO deliveries(subscription_id, received_at, body) VALUES (2, 1, x'00');
         INSERT INTO jobs(kind, feed_id, subscription_id) VALUES ('ingest', 1, 2), ('renew', 1, 2), ('subscribe', 1, 1)",
    );
    assert_eq!(Request::get("hub.mode=subscribe&hub.topic=TOPIC&hub.challenge=c").send(&db.path()).status, 200);
    assert_eq!(
        db.text("SELECT group_concat(state) FROM (SELECT state FROM subscriptions ORDER BY id)"),
        "active,unsubscribing"
    );
    let jobs =
        "SELECT group_concat(kind || subscription_id) FROM (SELECT * FROM jobs WHERE kind <> 'fetch' ORDER BY kind)";
    assert_eq!(db.text(jobs), "ingest2,renew1,unsubscribe2");
    assert_eq!(db.waiting(), 1);
}

#[test]
fn a_deleted_feed_is_gone_for_its_hub() {
    let db = Db::new(Some("active"));
    db.run("DELETE FROM feeds");
    let bytes = body("FEED(1)");
    let answer = Request::post(&bytes).with("HTTP_X_HUB_SIGNATURE", signature("sha256=GOOD", &bytes)).send(&db.path());
    assert_eq!((answer.status, db.waiting()), (410, 0));
    // Its question whether we mean it is still answered, and once more when it is over.
    for _ in 0..2 {
        let answer = Request::get("hub.mode=unsubscribe&hub.topic=TOPIC&hub.challenge=c").send(&db.path());
        assert_eq!(answer.status, 200);
        assert_eq!(db.text("SELECT state FROM subscriptions"), "ended");
    }
    assert_eq!(db.number("SELECT count(*) FROM jobs"), 0);
}

#[test]
fn a_full_queue_is_a_503_and_the_same_bytes_wait_once() {
    let db = Db::new(Some("active"));
    db.run("UPDATE settings SET value = '2' WHERE key = 'max_pending_deliveries'");
    for (content, status, waiting) in [("a", 202, 1), ("a", 202, 1), ("b", 202, 2), ("c", 503, 2), ("a", 202, 2)] {
        let request = Request::post(content.as_bytes());
        let signed = request.with("HTTP_X_HUB_SIGNATURE", signature("sha1=GOOD", content.as_bytes()));
        let answer = signed.send(&db.path());
        assert_eq!((answer.status, db.waiting()), (status, waiting), "{content}");
    }
}

#[test]
fn a_previous_secret_goes_when_the_new_one_is_seen() {
    let db = Db::new(Some("active"));
    db.run(&format!("UPDATE subscriptions SET previous_secret = '{OLD_SECRET}'"));
    let mut statuses = vec![];
    for (pattern, content) in [("sha256=GOOD_OLD", "a"), ("sha256=GOOD", "b"), ("sha256=GOOD_OLD", "c")] {
        let signed = signature(pattern, content.as_bytes());
        statuses.push(Request::post(content.as_bytes()).with("HTTP_X_HUB_SIGNATURE", signed).send(&db.path()).status);
    }
    assert_eq!(statuses, [202, 202, 403]);
}

#[test]
fn three_refused_pushes_have_the_hub_asked_anew() {
    let db = Db::new(Some("active"));
    db.run(&format!("INSERT INTO jobs(kind, feed_id, subscription_id, run_at) VALUES ('renew', 1, 1, {FAR})"));
    let renewal = || db.number("SELECT run_at FROM jobs WHERE kind = 'renew'");
    for wanted in [FAR, FAR, 0] {
        assert_eq!(Request::post(b"x").send(&db.path()).status, 403);
        assert_eq!(renewal(), wanted);
    }
    assert_eq!(db.number("SELECT bad_pushes FROM subscriptions"), 3);
}

#[test]
fn sixty_four_deliveries_at_once_are_all_taken() {
    let db = Db::new(Some("active"));
    db.run("UPDATE settings SET value = '30000' WHERE key = 'callback_wait_ms'");
    let bodies: Vec<String> = (0..64).map(|i| format!("{i}{}", "x".repeat(4000))).collect();
    let children = bodies.iter().map(|body| {
        let signed = signature("sha256=GOOD", body.as_bytes());
        let mut child = Request::post(body.as_bytes()).with("HTTP_X_HUB_SIGNATURE", signed).start(&db.path());
        child.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
        child
    });
    for child in children.collect::<Vec<_>>() {
        assert_eq!(Answer::of(child).status, 202);
    }
    assert_eq!(db.waiting(), 64);
}

#[test]
fn a_lock_is_waited_for() {
    let db = Db::new(Some("active"));
    let connection = lock(&db);
    drop(connection);
    db.run("UPDATE settings SET value = '20000' WHERE key = 'callback_wait_ms'");
    let connection = db.connect();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let started = Instant::now();
    let mut child = Request::post(b"x").with("HTTP_X_HUB_SIGNATURE", signature("sha256=GOOD", b"x")).start(&db.path());
    child.stdin.take().unwrap().write_all(b"x").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    connection.execute_batch("COMMIT").unwrap();
    assert_eq!(Answer::of(child).status, 202);
    assert!(started.elapsed() >= Duration::from_millis(300));
}

#[test]
fn the_last_one_out_leaves_the_wal_to_the_worker() {
    let db = Db::new(Some("active"));
    Request::post(b"x").with("HTTP_X_HUB_SIGNATURE", signature("sha256=GOOD", b"x")).send(&db.path());
    assert!(std::fs::metadata(db.folder.join("feeds.db-wal")).unwrap().len() > 0);
}

/// Panics in the middle of a body.
struct Bug;

impl Read for Bug {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        panic!("a bug")
    }
}

#[test]
fn a_panic_is_a_503() {
    let db = Db::new(Some("active"));
    let path = db.path();
    let env = |name: &str| match name {
        "REQUEST_METHOD" => Some("POST".into()),
        "PATH_INFO" => Some(format!("/{TOKEN}").into()),
        "FEEDMILL_DB" => Some(path.clone().into()),
        _ => None,
    };
    let (mut out, mut log) = (Vec::new(), Vec::new());
    feedmill::cgi::serve(&env, &mut Bug, &mut out, &mut log, &feedmill::clock::Clock::set_to(1)).unwrap();
    let answer = Answer::read(&out, String::from_utf8(log).unwrap());
    assert_eq!((answer.status, answer.headers["content-length"].as_str()), (503, "0"));
}
