//! The callback program behind the five web servers that `contrib/webserver/` has snippets for: as www-data, on a database
//! of another user.

use crate::support::binary::wait_until;
use crate::support::client::Response;
use crate::support::webserver::{Kind, OWNER, Server, Site};
use hmac::{Hmac, KeyInit, Mac};
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

const TOKEN: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const SECRET: &str = "5ec5ec5ec";

/// What one server does in its own way.
struct Facts {
    kind: Kind,
    /// The status of a signed chunked delivery.
    chunked: u16,
    /// ... and of a POST without length or chunks.
    no_length: u16,
    /// ... and of a query of 9 kB.
    long_query: u16,
    /// ... and of PUT.
    put: u16,
}

#[test]
fn nginx_with_fcgiwrap() {
    all(&Facts { kind: Kind::Nginx, chunked: 202, no_length: 403, long_query: 414, put: 405 });
}

#[test]
fn apache() {
    all(&Facts { kind: Kind::Apache, chunked: 202, no_length: 403, long_query: 414, put: 405 });
}

#[test]
fn lighttpd() {
    all(&Facts { kind: Kind::Lighttpd, chunked: 202, no_length: 411, long_query: 431, put: 405 });
}

#[test]
fn caddy_with_fcgiwrap() {
    all(&Facts { kind: Kind::Caddy, chunked: 202, no_length: 403, long_query: 404, put: 405 });
}

#[test]
fn busybox_httpd() {
    all(&Facts { kind: Kind::Busybox, chunked: 403, no_length: 403, long_query: 400, put: 405 });
}

fn all(facts: &Facts) {
    let site = Site::new();
    site.sql(
        OWNER,
        &format!(
            "INSERT INTO feeds(url) VALUES ('http://a.test/f');
             UPDATE jobs SET run_at = 4000000000;
             INSERT INTO subscriptions(feed_id, hub_url, topic_url, callback_token, secret, state, requested_at)
               VALUES (1, 'https://h.test/', 'http://a.test/f?x=1', '{TOKEN}', '{SECRET}', 'pending', 1);"
        ),
    );
    let server = site.serve(facts.kind);
    verification(&site, &server, facts);
    // The callback made these: the worker must be able to go on with them.
    sidecars_are_shared(&site);
    deliveries(&site, &server, facts);
    refusals(&site, &server, facts);
    cut(&site, &server, facts);
    many_at_once(&site, &server, facts);
    sidecars_are_shared(&site);
    if facts.kind == Kind::Lighttpd {
        the_worker_reads_them(&site, &server);
    }
}

fn path(server: &Server) -> String {
    format!("{}/{TOKEN}", server.prefix)
}

fn verification(site: &Site, server: &Server, facts: &Facts) {
    let topic = "http%3A%2F%2Fa.test%2Ff%3Fx%3D1";
    let query = |challenge: &str, padding: usize| {
        let padding = "p".repeat(padding);
        format!(
            "{}?hub.mode=subscribe&hub.topic={topic}&hub.challenge={challenge}&hub.lease_seconds=864000&p={padding}",
            path(server)
        )
    };
    let kind = facts.kind;
    let state = || site.sql(OWNER, "SELECT state FROM subscriptions");
    let head = server.send("HEAD", &query("a%2Bb%2Fc=", 0), &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0), "{kind:?} {head:?}: {}", server.log());
    assert_eq!(state(), "pending", "HEAD has no effect");
    let answer = server.get(&query("a%2Bb%2Fc=", 0));
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"a+b/c="[..]), "{kind:?}: {}", server.log());
    for (name, value) in [
        ("content-type", "application/octet-stream"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "default-src 'none'"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{kind:?}: {answer:?}");
    }
    assert_eq!(state(), "active");
    let long = server.get(&query("long", 7000));
    assert_eq!((long.status, long.body.as_slice()), (200, &b"long"[..]), "{kind:?}: 7 kB pass everywhere");
    let unknown = server.get(&query("x", 9000).replace(TOKEN, &"f".repeat(64)));
    assert_eq!(unknown.status, facts.long_query, "{kind:?}: 9 kB");
    let wrong_topic = server.get(&query("x", 0).replace("a.test", "b.test"));
    assert_eq!((wrong_topic.status, wrong_topic.body.len()), (404, 0), "{kind:?} {wrong_topic:?}");
    let unknown = server.get(&query("x", 0).replace(TOKEN, &"f".repeat(64)));
    assert_eq!(unknown.status, 404, "{kind:?}");
    let none = server.get(server.prefix);
    assert!(!(200..400).contains(&none.status), "{kind:?}: no redirect, no page without a token: {none:?}");
}

fn deliveries(site: &Site, server: &Server, facts: &Facts) {
    let kind = facts.kind;
    let large = feed("large", 3_000_000);
    let answer = deliver(server, &large);
    assert_eq!(answer.status, 202, "{kind:?}: 3 MB: {answer:?} {}", server.log());
    assert!(answer.body.is_empty());
    // Just under our own limit: the server's must be above it.
    let largest = feed("largest", 8_388_608);
    assert_eq!(deliver(server, &largest).status, 202, "{kind:?}: 8 MiB: {}", server.log());
    let stored = site.sql(OWNER, "SELECT group_concat(length(body) || ' ' || content_type, ', ') FROM deliveries");
    assert_eq!(stored, format!("{} application/rss+xml, 8388608 application/rss+xml", large.len()), "{kind:?}");
    empty(site);

    let small = feed("chunked", 50_000);
    let mut request = head(server, &small, "Transfer-Encoding: chunked\r\n").into_bytes();
    for chunk in small.chunks(7001) {
        request.extend(format!("{:x}\r\n", chunk.len()).bytes());
        request.extend(chunk);
        request.extend(b"\r\n");
    }
    request.extend(b"0\r\n\r\n");
    let answer = server.raw(&request, false).map(|answer| answer.status);
    assert_eq!(answer, Some(facts.chunked), "{kind:?}: chunked: {}", server.log());
    let stored = if facts.chunked == 202 { "50000" } else { "" };
    assert_eq!(site.sql(OWNER, "SELECT length(body) FROM deliveries"), stored, "{kind:?}");
    empty(site);
}

fn refusals(site: &Site, server: &Server, facts: &Facts) {
    let kind = facts.kind;
    let body = feed("refused", 2000);
    let wrong = format!("sha256={}", "0".repeat(64));
    for (headers, status) in [(&[("X-Hub-Signature", wrong.as_str())][..], 403), (&[], 403)] {
        assert_eq!(server.send("POST", &path(server), headers, &body).status, status, "{kind:?} {headers:?}");
    }
    let unknown = path(server).replace(TOKEN, &"f".repeat(64));
    assert_eq!(server.send("POST", &unknown, &[("X-Hub-Signature", &sign(&body))], &body).status, 404, "{kind:?}");
    let put = head(server, b"", "Content-Length: 0\r\n").replacen("POST", "PUT", 1);
    assert_eq!(server.raw(put.as_bytes(), false).map(|answer| answer.status), Some(facts.put), "{kind:?}: PUT");
    let none = head(server, b"x", "");
    let answer = server.raw(none.as_bytes(), false).map(|answer| answer.status);
    assert_eq!(answer, Some(facts.no_length), "{kind:?}: no length: {}", server.log());

    let bad_pushes = || site.sql(OWNER, "SELECT bad_pushes FROM subscriptions").parse::<i64>().unwrap();
    let before = bad_pushes();
    // Over our limit, within the server's: the program sees it, and has the feed polled.
    let answer = deliver_raw(server, &feed("too large", 9_000_000));
    assert_eq!(answer, Some(413), "{kind:?}: 9 MB: {}", server.log());
    assert_eq!(bad_pushes(), before + 1, "{kind:?}: 9 MB");
    // Over both. A server that closes the connection while the body is still coming may lose its answer on the way.
    let answer = deliver_raw(server, &feed("huge", 10_000_000));
    assert!(answer.is_none_or(|status| status == 413), "{kind:?}: 10 MB: {answer:?}");
    assert_eq!(waiting(site), 0, "{kind:?}");
}

/// The hub goes away in the middle: with a length and with chunks.
fn cut(site: &Site, server: &Server, facts: &Facts) {
    let body = feed("cut", 100_000);
    let with_length = head(server, &body, "Content-Length: 100000\r\n").into_bytes();
    let chunked = head(server, &body, "Transfer-Encoding: chunked\r\n").into_bytes();
    server.raw(&[&with_length, &body[..60_000]].concat(), true);
    server.raw(&[&chunked, &b"ea60\r\n"[..], &body[..60_000]].concat(), true);
    // A good one after them: when it is stored, those before it had their time.
    thread::sleep(Duration::from_millis(300));
    assert_eq!(deliver(server, &feed("after", 1000)).status, 202, "{:?}: {}", facts.kind, server.log());
    assert_eq!(site.sql(OWNER, "SELECT length(body) FROM deliveries"), "1000", "{:?}", facts.kind);
    empty(site);
}

/// All are answered with 2xx and stored. busybox httpd has room for nine waiting connections and breaks others off: a hub
/// comes again then, and what was stored before its answer was lost is not stored twice.
fn many_at_once(site: &Site, server: &Server, facts: &Facts) {
    let tries = if facts.kind == Kind::Busybox { 5 } else { 1 };
    let one = |number: usize| {
        let body = feed(&format!("n{number}"), 4000);
        let answers = (0..tries).map(|_| deliver_raw(server, &body));
        answers.flatten().next()
    };
    let statuses: Vec<Option<u16>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..64).map(|number| scope.spawn(move || one(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(statuses, [Some(202); 64], "{:?}: {}", facts.kind, server.log());
    assert_eq!(waiting(site), 64);
}

/// Both users write, in turn and while the other has the database open.
fn sidecars_are_shared(site: &Site) {
    let group = std::fs::metadata(site.path("db")).unwrap().gid();
    for suffix in ["", "-wal", "-shm"] {
        let Ok(file) = std::fs::metadata(site.path(&format!("db/feedmill.db{suffix}"))) else { continue };
        assert_eq!((file.mode() & 0o777, file.gid()), (0o660, group), "{suffix}");
    }
    for user in [OWNER, "www-data", OWNER] {
        site.sql(user, "UPDATE feeds SET folder = coalesce(folder, '') || 'x'");
    }
}

fn the_worker_reads_them(site: &Site, server: &Server) {
    let ran = site.feedmill(&["run", "--once"]);
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(waiting(site), 0);
    let entries = site.sql(OWNER, "SELECT count(*), min(arrived_by) FROM entries");
    assert_eq!(entries, "64|push");
    // And hubs are still answered after the worker closed the database.
    assert_eq!(deliver(server, &feed("later", 1000)).status, 202, "{}", server.log());
    wait_until("the delivery is there", || waiting(site) == 1);
}

fn head(server: &Server, signed: &[u8], length: &str) -> String {
    format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/rss+xml\r\n\
         X-Hub-Signature: {}\r\n{length}\r\n",
        path(server),
        server.addr,
        sign(signed)
    )
}

fn deliver(server: &Server, body: &[u8]) -> Response {
    let headers = [("Content-Type", "application/rss+xml"), ("X-Hub-Signature", &sign(body))];
    server.send("POST", &path(server), &headers, body)
}

fn deliver_raw(server: &Server, body: &[u8]) -> Option<u16> {
    let head = head(server, body, &format!("Content-Length: {}\r\n", body.len()));
    server.raw(&[head.as_bytes(), body].concat(), false).map(|answer| answer.status)
}

fn waiting(site: &Site) -> i64 {
    site.sql(OWNER, "SELECT count(*) FROM deliveries").parse().unwrap()
}

fn empty(site: &Site) {
    site.sql(OWNER, "DELETE FROM deliveries; DELETE FROM jobs WHERE kind = 'ingest'");
}

/// An RSS document of one entry and exactly so many bytes.
fn feed(name: &str, bytes: usize) -> Vec<u8> {
    let start = format!(
        "<rss version=\"2.0\"><channel><title>a</title><item><guid isPermaLink=\"false\">{name}</guid><title>{name}</title>\
         <description>"
    );
    let end = "</description></item></channel></rss>\n";
    (start.clone() + &"t".repeat(bytes - start.len() - end.len()) + end).into_bytes()
}

fn sign(body: &[u8]) -> String {
    let mac = <Hmac<sha2::Sha256> as KeyInit>::new_from_slice(SECRET.as_bytes()).unwrap().chain_update(body);
    mac.finalize().into_bytes().iter().fold("sha256=".to_string(), |text, byte| format!("{text}{byte:02x}"))
}
