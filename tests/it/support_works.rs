//! The test support itself: that the scripted servers, feeds and shells do what the tests rely on.

use crate::support::binary::{Feedmill, wait_until};
use crate::support::client::send;
use crate::support::feeds::{expand, expand_with, feed, guid, published, tag_of};
use crate::support::hub::{Hub, HubAnswer, Method, Verify, signature};
use crate::support::origin::{Answer, Origin};
use crate::support::shell::{Sqlite3Shell, quoted};
use serde_json::json;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// A plain GET of a named host.
fn get(origin: &Origin, url: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let response = send("GET", url, Some(origin.http_addr()), headers, b"").unwrap();
    (response.status, String::from_utf8(response.body).unwrap())
}

/// An agent that trusts the origin and finds its names.
fn agent(origin: &Origin) -> ureq::Agent {
    let certificate = Certificate::from_pem(origin.ca_pem().as_bytes()).unwrap();
    let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&[certificate])).build();
    let config = ureq::Agent::config_builder().tls_config(tls).max_redirects(0).http_status_as_error(false).build();
    ureq::Agent::with_parts(config, ureq::unversioned::transport::DefaultConnector::default(), Names::of(origin))
}

#[derive(Debug)]
struct Names(Vec<crate::support::origin::Name>);

impl Names {
    fn of(origin: &Origin) -> Names {
        Names(origin.names())
    }
}

impl ureq::unversioned::resolver::Resolver for Names {
    fn resolve(
        &self,
        uri: &ureq::http::Uri,
        _: &ureq::config::Config,
        _: ureq::unversioned::transport::NextTimeout,
    ) -> Result<ureq::unversioned::resolver::ResolvedSocketAddrs, ureq::Error> {
        let name = self.0.iter().find(|name| Some(name.host.as_str()) == uri.host());
        let name = name.ok_or(ureq::Error::HostNotFound)?;
        let mut found = self.empty();
        found.push(if uri.scheme_str() == Some("https") { name.https } else { name.http });
        Ok(found)
    }
}

#[test]
fn named_hosts_over_http_and_https() {
    let origin = Origin::serve(vec![
        ("http://a.test/f", Answer::feed(1, "plain")),
        ("https://a.test/f", Answer::feed(1, "sealed")),
        ("https://b.test/f?v=2", Answer::body("text/plain", "b")),
    ]);
    let agent = agent(&origin);
    for (url, found) in
        [("http://a.test/f", "urn:plain:1"), ("https://a.test/f", "urn:sealed:1"), ("https://b.test/f?v=2", "b")]
    {
        let body = agent.get(url).call().unwrap().body_mut().read_to_string().unwrap();
        assert!(body.contains(found), "{url}: {body}");
    }
    assert_eq!(agent.get("https://b.test/f").call().unwrap().status(), 404);
    assert_eq!(
        origin.urls(),
        ["http://a.test/f", "https://a.test/f", "https://b.test/f?v=2", "https://b.test/f"].map(String::from)
    );
    let publics: Vec<String> = origin.names().iter().map(|name| format!("{} {}", name.host, name.public)).collect();
    assert_eq!(publics, ["a.test 93.184.216.1", "b.test 93.184.216.2"]);
}

#[test]
fn a_stranger_does_not_trust_the_origin() {
    let origin = Origin::serve(vec![("https://a.test/f", Answer::feed(1, "x"))]);
    let other = Origin::serve(Vec::new());
    let certificate = Certificate::from_pem(other.ca_pem().as_bytes()).unwrap();
    let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&[certificate])).build();
    let config = ureq::Agent::config_builder().tls_config(tls).build();
    let connector = ureq::unversioned::transport::DefaultConnector::default();
    let agent = ureq::Agent::with_parts(config, connector, Names::of(&origin));
    assert!(agent.get("https://a.test/f").call().is_err());
    assert!(origin.requests().is_empty());
}

#[test]
fn a_list_is_used_up_and_the_last_answer_repeats() {
    let origin = Origin::serve(vec![
        ("http://a.test/f", Answer::redirect(301, "/g")),
        ("http://a.test/f", Answer::body("text/plain", "second")),
        ("http://a.test/f", Answer::body("text/plain", "last")),
    ]);
    let statuses: Vec<(u16, String)> = (0..4).map(|_| get(&origin, "http://a.test/f", &[])).collect();
    let bodies: Vec<&str> = statuses.iter().map(|(_, body)| body.as_str()).collect();
    assert_eq!((statuses[0].0, bodies), (301, vec!["", "second", "last", "last"]));
}

#[test]
fn a_cookie_wall_stands_until_the_cookie_comes() {
    let origin = Origin::from_json(&json!({"http://a.test": {"/f": [
        {"status": 302, "location": "/f", "set_cookie": "ok=1", "unless_cookie": "ok=1"},
        {"status": 200, "body": "FEED(1)"},
    ]}}));
    let url = "http://a.test/f";
    assert_eq!(get(&origin, url, &[]).0, 302);
    assert_eq!(get(&origin, url, &[("Cookie", "a=b")]).0, 302);
    assert_eq!(get(&origin, url, &[("Cookie", "a=b; ok=1")]), (200, feed(1, "x")));
    assert_eq!(get(&origin, url, &[]).0, 302);
}

#[test]
fn answers_as_the_cases_write_them() {
    let origin = Origin::from_json(&json!({"http://a.test": {"/f": [
        {"status": 301, "location": ["/g", "/é x"], "retry_after": 120, "headers": ["X-One: 1"]},
        {"status": 304, "etag": "\"1\"", "last_modified": "Mon, 01 Jan 2024 00:00:00 GMT"},
        {"type": "text/html", "body": "SIZE(10)", "cut": 4},
    ]}}));
    let send = || send("GET", "http://a.test/f", Some(origin.http_addr()), &[], b"").unwrap();
    let first = send();
    let locations: Vec<&str> =
        first.headers.iter().filter(|(name, _)| name == "location").map(|(_, value)| value.as_str()).collect();
    assert_eq!(locations, ["/g", "/é x"]);
    assert_eq!((first.header("retry-after"), first.header("x-one")), (Some("120"), Some("1")));
    let second = send();
    assert_eq!((second.status, second.header("etag"), second.header("content-length")), (304, Some("\"1\""), None));
    let third = send();
    assert_eq!((third.header("content-length"), third.body.as_slice()), (Some("10"), &b"xxxx"[..]));
    assert_eq!(third.header("content-type"), Some("text/html"));
}

#[test]
#[should_panic(expected = "an answer has no \"stauts\"")]
fn an_unknown_key_of_an_answer_fails() {
    Answer::from_json(&json!({"stauts": 200}));
}

#[test]
fn what_was_asked_is_recorded() {
    let origin = Origin::serve(vec![("http://a.test/f", Answer::feed(1, "x"))]);
    get(&origin, "http://a.test/f", &[("If-None-Match", "\"1\"")]);
    assert_eq!(origin.if_none_match_seen_by("http://a.test/f").as_deref(), Some("\"1\""));
    get(&origin, "http://a.test/f", &[]);
    assert_eq!(origin.if_none_match_seen_by("http://a.test/f"), None);
    let direct = origin.url("/post");
    send("POST", &direct, None, &[], b"body").unwrap();
    let last = origin.requests().pop().unwrap();
    assert_eq!((last.method.as_str(), last.url, last.body.as_slice()), ("POST", direct, &b"body"[..]));
}

#[test]
fn a_hook_runs_once_before_the_answer() {
    let origin = Origin::serve(vec![("http://a.test/f", Answer::feed(1, "x"))]);
    let (told, heard) = mpsc::channel();
    origin.on_request("http://a.test/f", move || told.send(()).unwrap());
    get(&origin, "http://a.test/f", &[]);
    assert!(heard.try_recv().is_ok());
    get(&origin, "http://a.test/f", &[]);
}

#[test]
#[should_panic(expected = "the hook's complaint")]
fn a_hook_that_panics_fails_the_test() {
    let origin = Origin::serve(vec![("http://a.test/f", Answer::feed(1, "x"))]);
    origin.on_request("http://a.test/f", || panic!("the hook's complaint"));
    let _ = send("GET", "http://a.test/f", Some(origin.http_addr()), &[], b"");
    drop(origin);
}

#[test]
fn delays_and_hanging_end_with_the_origin() {
    let slow = Answer::body("text/plain", "late").delay(Duration::from_millis(50));
    let origin = Origin::serve(vec![("http://a.test/slow", slow), ("http://a.test/hang", Answer::hang())]);
    let begin = Instant::now();
    assert_eq!(get(&origin, "http://a.test/slow", &[]).1, "late");
    assert!(begin.elapsed() >= Duration::from_millis(50));
    let addr = origin.http_addr();
    let hanging = std::thread::spawn(move || send("GET", "http://a.test/hang", Some(addr), &[], b""));
    wait_until("it was asked", || origin.requests().len() == 2);
    drop(origin);
    assert!(hanging.join().unwrap().is_err());
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn feeds_of_two_tags_share_nothing() {
    let (x, new) = (feed(3, "x"), feed(3, "new"));
    for (i, tag) in [(1, "x"), (2, "x"), (3, "x")] {
        assert!(x.contains(&guid(tag, i)) && !new.contains(&guid(tag, i)));
        assert_eq!(tag_of(&guid(tag, i)), tag);
    }
    let dates = |tag| (1..=5).map(move |i| published(tag, i));
    for tag in ["y", "new", "mine"] {
        assert!(dates("x").all(|date| dates(tag).all(|other| date != other)), "{tag}");
    }
    assert_eq!(x.matches("<item>").count(), 3);
    assert_eq!(feed(0, "x").matches("<item>").count(), 0);
}

#[test]
fn bodies_are_written_out() {
    assert_eq!(expand("FEED(2)"), feed(2, "x"));
    assert_eq!(expand("a FEED(1,new) b SIZE(3)"), format!("a {} b xxx", feed(1, "new")));
    assert_eq!(expand_with("SIZE(max+1)", Some(4)), "xxxxx");
    assert_eq!(expand("hub.challenge=A*3"), "hub.challenge=AAA");
    assert_eq!(expand("<p>nothing (to) do</p>"), "<p>nothing (to) do</p>");
}

#[test]
fn the_shell_answers_and_complains() {
    let dir = TempDir::new().unwrap();
    let shell = Sqlite3Shell::new(&dir.path().join("t.db"));
    shell.run("CREATE TABLE t(a, b); INSERT INTO t VALUES(1, NULL), (2, 'two')");
    assert_eq!(shell.run("SELECT a FROM t;"), ["1", "2"]);
    assert_eq!(shell.column("SELECT b FROM t"), [json!(null), json!("two")]);
    assert_eq!(shell.value("SELECT a FROM t WHERE a > 2"), json!(null));
    assert_eq!(shell.value(&format!("SELECT {}", quoted("it's"))), json!("it's"));
    let error = shell.try_run("SELECT c FROM t").unwrap_err();
    assert!(error.contains("no such column: c"), "{error}");
}

#[test]
fn an_open_shell_holds_the_lock() {
    let dir = TempDir::new().unwrap();
    let db = dir.path().join("t.db");
    let shell = Sqlite3Shell::new(&db);
    shell.run("CREATE TABLE t(a)");
    let mut held = shell.lock();
    held.run("INSERT INTO t VALUES(1)");
    let other = rusqlite::Connection::open(&db).unwrap();
    other.busy_timeout(Duration::ZERO).unwrap();
    assert!(other.execute("INSERT INTO t VALUES(2)", []).is_err());
    drop(held);
    other.execute("INSERT INTO t VALUES(3)", []).unwrap();
    assert_eq!(shell.run("SELECT a FROM t"), ["3"]);
}

#[test]
fn a_hub_verifies_and_delivers() {
    let callback = Origin::serve(Vec::new());
    let hub = Hub::start(&["h.test"]);
    hub.callback_at("me.test", callback.http_addr());
    hub.script(vec![
        HubAnswer::from_json(&json!({"status": 400, "if_param": "hub.lease_seconds"})),
        HubAnswer::from_json(&json!({"status": 503, "retry_after": "120"})),
        HubAnswer::status(202),
    ]);
    let form = "hub.mode=subscribe&hub.topic=http%3A%2F%2Fa.test%2Ff&hub.callback=http%3A%2F%2Fme.test%2Fcb%2Ft\
                &hub.secret=key";
    let url = "http://me.test/cb/t?hub.mode=subscribe&hub.topic=http%3A%2F%2Fa.test%2Ff\
               &hub.challenge=challenge-1&hub.lease_seconds=60";
    callback.add(url, Answer::body("text/plain", "challenge-1"));
    hub.lease(Some(60));
    hub.verify(Verify::First);
    let post = |form: &str| send("POST", &hub.url(), None, &[], form.as_bytes()).unwrap();
    assert_eq!(post(&format!("{form}&hub.lease_seconds=1")).status, 400);
    assert_eq!(post(form).header("retry-after"), Some("120"));
    assert!(hub.verifications().is_empty());
    assert_eq!(post(form).status, 202);
    assert!(hub.verifications()[0].confirmed, "{:?}", hub.verifications());
    hub.verify(Verify::After);
    assert_eq!(post(form).status, 202);
    wait_until("it verified", || hub.verifications().len() == 2);
    let posts = hub.posts();
    assert_eq!((posts.len(), posts[2].param("hub.topic")), (4, Some("http://a.test/f")));
    hub.deliver(&posts[2], "text/xml", b"news").unwrap();
    let delivery = callback.requests().pop().unwrap();
    assert_eq!(delivery.header("x-hub-signature"), Some(&*signature(Method::Sha256, "key", b"news")));
    assert_eq!((delivery.url.as_str(), delivery.body.as_slice()), ("http://me.test/cb/t", &b"news"[..]));
}

#[test]
fn signatures_are_the_known_ones() {
    let fox = b"The quick brown fox jumps over the lazy dog";
    assert_eq!(signature(Method::Sha1, "key", fox), "sha1=de7c9b85b8b78aa6bc8a7a36f70a90701c9db4d9");
    assert_eq!(
        signature(Method::Sha256, "key", fox),
        "sha256=f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8"
    );
}

#[test]
fn the_program_starts_in_its_own_folder() {
    let feedmill = Feedmill::new().env("FEEDMILL_LOG", "error");
    let output = feedmill.run(&["--version"]);
    assert_eq!(output.status, Some(0), "{}", output.stderr);
    assert_eq!(feedmill.db().parent(), Some(feedmill.dir()));
}
