//! What plain SQL does, from the `sqlite3` shell, while the real program works and while it does not.

use crate::support::binary::wait_until;
use crate::support::mill::{Live, Mill};
use crate::support::origin::Answer;
use crate::support::shell::quoted;
use serde_json::json;
use std::time::{Duration, Instant};

#[test]
fn a_new_feed_is_fetched_within_a_second() {
    let live = Live::new();
    let _running = live.start();
    let url = live.serve("/f", Answer::feed(3, "a"));
    let feed = live.insert(&url);
    let inserted = Instant::now();
    wait_until("it is asked for", || live.asked(&url) == 1);
    assert!(inserted.elapsed() < Duration::from_secs(1), "{:?}", inserted.elapsed());
    live.settled();
    assert_eq!(live.count(&format!("entries WHERE feed_id = {feed} AND arrived_by = 'fetch'")), 3);
    assert_eq!(live.of(feed, "title"), "Feed a");
}

#[test]
fn the_same_url_again_is_refused_as_usual() {
    let live = Live::new();
    live.insert("https://a.test/f");
    let refused = live.shell.try_run("INSERT INTO feeds(url) VALUES('https://a.test/f')").unwrap_err();
    assert!(refused.contains("UNIQUE constraint failed: feeds.url"), "{refused}");
    live.shell.run("INSERT OR IGNORE INTO feeds(url) VALUES('https://a.test/f')");
    assert_eq!((live.count("feeds"), live.count("jobs")), (1, 1));
}

#[test]
fn another_spelling_merges_without_a_second_poll() {
    let feed = "http://feeds.feedburner.com/name";
    let plain = "http://a.test/f";
    let mill = Mill::new(vec![(feed, Answer::feed(2, "x")), (plain, Answer::feed(2, "y"))]);
    let (first, other) = (mill.insert(feed), mill.insert(plain));
    mill.run();
    let worker = mill.start();
    let spellings = ["http://feeds2.feedburner.com/Name/", "https://feedproxy.google.com/NAME", "feed://A.TEST:80/f#x"];
    let ids = spellings.map(|spelling| mill.insert(spelling));
    wait_until("they are merged", || mill.count("feeds WHERE state = 'merged'") == 3);
    drop(worker);
    for (id, survivor) in ids.into_iter().zip([first, first, other]) {
        assert_eq!(mill.of(id, "merged_into"), survivor);
        assert_eq!(mill.count(&format!("jobs WHERE feed_id = {id}")), 0);
        assert_eq!(mill.history(id), ["merged"]);
    }
    assert_eq!(spellings.map(|spelling| mill.count(&format!("feeds WHERE url = {}", quoted(spelling)))), [1, 1, 1]);
    assert_eq!(mill.origin.requests().len(), 2);
    assert_eq!(mill.count("jobs"), 2);
}

#[test]
fn an_address_that_a_feed_left_merges_when_its_redirect_says_so() {
    let (old, new) = ("http://a.test/old", "http://b.test/new");
    let mill = Mill::new(vec![(old, Answer::redirect(301, new)), (new, Answer::feed(3, "x"))]);
    let first = mill.insert(old);
    mill.run();
    assert_eq!(mill.url(first), new);
    let again = mill.insert(old);
    mill.run();
    assert_eq!((mill.of(again, "state"), mill.of(again, "merged_into")), (json!("merged"), json!(first)));
    assert_eq!(mill.asked(old), 2);
    assert_eq!((mill.url(again).as_str(), mill.count("entries")), (old, 3));
    // Its server thinks better of it: the row is a feed of its own as soon as the user says so.
    mill.origin.set(old, vec![Answer::feed(1, "y")]);
    mill.shell.run(&format!("UPDATE feeds SET state = 'active' WHERE id = {again}"));
    mill.run();
    assert_eq!(mill.of(again, "state"), "active");
    assert_eq!(mill.count(&format!("entries WHERE feed_id = {again}")), 1);
    // Then it does not go with the row that it was merged into before.
    assert_eq!(mill.of(again, "merged_into"), json!(null));
    mill.shell.run(&format!("DELETE FROM feeds WHERE id = {first}"));
    assert_eq!((mill.of(again, "state"), mill.count("entries"), mill.count("jobs")), (json!("active"), 1, 1));
}

#[test]
fn an_edited_url_starts_anew() {
    let live = Live::new();
    let running = live.start();
    let one = live.serve("/one", Answer::feed(2, "x").header("ETag", "\"1\""));
    let two = live.serve("/two", Answer::redirect(301, "/three"));
    let three = live.serve("/three", Answer::feed(2, "y"));
    let feed = live.insert(&one);
    wait_until("it has validators", || live.of(feed, "etag") == "\"1\"");
    live.shell.run(&format!("UPDATE feeds SET state = 'paused' WHERE id = {feed}"));
    live.shell.run(&format!("UPDATE feeds SET url = {} WHERE id = {feed}", quoted(&two)));
    wait_until("it moved on", || live.of(feed, "url") == json!(three) || live.count("pending_moves") == 1);
    live.settled();
    drop(running);
    assert_eq!(live.origin.if_none_match_seen_by(&two), None);
    assert_eq!(live.of(feed, "state"), "active");
    let history = live.shell.rows(&format!("SELECT old_url, new_url, reason FROM feed_urls WHERE feed_id = {feed}"));
    assert_eq!(history[0]["reason"], "edited");
    assert_eq!((&history[0]["old_url"], &history[0]["new_url"]), (&json!(one), &json!(two)));
    // The worker's own rewrites are not booked as edits.
    assert_eq!(live.count("feed_urls WHERE reason = 'edited'"), 1);
}

#[test]
fn an_edit_says_what_it_clears_without_a_worker() {
    let live = Live::new();
    let feed = live.insert("http://a.test/one");
    live.shell.run(&format!(
        "UPDATE feeds SET etag = 'e', last_modified = 'l', validators_url = 'v', failure_kind = 'dns',
           failure_message = 'm', failure_count = 3, failing_since = 1, pretty_url = 'p', state = 'gone'
         WHERE id = {feed};
         UPDATE feeds SET url = 'http://a.test/two' WHERE id = {feed}"
    ));
    let row = &live.shell.rows("SELECT * FROM feeds")[0];
    for column in ["etag", "last_modified", "validators_url", "failure_kind", "failure_message", "pretty_url"] {
        assert_eq!(row[column], json!(null), "{column}");
    }
    assert_eq!((&row["state"], &row["failure_count"]), (&json!("active"), &json!(0)));
    assert_eq!(live.shell.value("SELECT run_at FROM jobs"), 0);
    // To the same URL is no edit, and neither is any other column.
    live.shell.run("UPDATE feeds SET url = url, title = 'mine', folder = 'f'");
    assert_eq!(live.count("feed_urls"), 1);
    // To another row's URL is the usual error.
    live.insert("http://a.test/three");
    assert!(live.shell.try_run("UPDATE feeds SET url = 'http://a.test/three' WHERE id = 1").is_err());
    assert_eq!(live.count("feed_urls"), 1);
}

#[test]
fn paused_is_not_fetched_and_active_is_due_now() {
    let live = Live::new();
    let _running = live.start();
    let url = live.serve("/f", Answer::feed(1, "x"));
    let feed = live.insert(&url);
    wait_until("it was fetched", || live.of(feed, "last_success_at") != json!(null));
    live.shell.run(&format!("UPDATE feeds SET state = 'paused' WHERE id = {feed}"));
    live.shell.run(&format!("UPDATE jobs SET run_at = 0 WHERE feed_id = {feed}"));
    assert_eq!(live.count("jobs"), 0);
    // A second feed shows that the worker has looked.
    let other = live.insert(&live.serve("/g", Answer::feed(1, "y")));
    wait_until("the other was fetched", || live.of(other, "last_success_at") != json!(null));
    assert_eq!(live.asked(&url), 1);
    live.shell.run(&format!("UPDATE feeds SET state = 'active' WHERE id = {feed}"));
    wait_until("it was fetched again", || live.asked(&url) == 2);
}

#[test]
fn pausing_while_it_is_fetched_keeps_it_paused() {
    let live = Live::new();
    let url = live.serve("/f", Answer::feed(1, "x").delay(Duration::from_millis(300)));
    let feed = live.insert(&url);
    let shell = live.shell.clone();
    live.origin.on_request(&url, move || drop(shell.run("UPDATE feeds SET state = 'paused'")));
    live.feedmill.succeed(&["run", "--once"]);
    assert_eq!((live.of(feed, "state"), live.count("jobs")), (json!("paused"), 0));
}

#[test]
fn deleting_takes_all_of_a_feed_but_its_tombstone() {
    let live = Live::new();
    let url = live.serve("/f", Answer::feed(2, "x"));
    let (feed, kept) = (live.insert(&url), live.insert(&live.serve("/g", Answer::feed(2, "y"))));
    live.feedmill.succeed(&["run", "--once"]);
    live.shell.run(&format!(
        "INSERT INTO enclosures(entry_id, url) SELECT id, 'http://a.test/e' FROM entries;
         INSERT INTO subscriptions(feed_id, hub_url, topic_url, state) VALUES
           ({feed}, 'http://hub.test/', 't', 'active'), ({feed}, 'http://hub.test/2', 't', 'ended');
         INSERT INTO deliveries(subscription_id, received_at, body) VALUES (1, 0, x'00');
         INSERT INTO jobs(kind, feed_id, subscription_id, run_at) VALUES ('ingest', {feed}, 1, 9999999999);
         INSERT INTO discovered_feeds(feed_id, url, position) VALUES ({feed}, 'u', 1);
         INSERT INTO held_targets VALUES ({feed}, 'u', 0);
         INSERT INTO pending_moves(feed_id, target_url, first_seen_at, why, target_host) VALUES ({feed}, 'u', 0, 'w', 'h');
         UPDATE feeds SET url = url || '2' WHERE id = {feed};
         DELETE FROM feeds WHERE id = {feed}"
    ));
    for table in ["entries", "feed_urls", "discovered_feeds", "held_targets", "pending_moves"] {
        assert_eq!(live.count(&format!("{table} WHERE feed_id = {feed}")), 0, "{table}");
    }
    assert_eq!((live.count("entries"), live.count("enclosures"), live.count("deliveries")), (2, 2, 0));
    let subscriptions = live.shell.rows("SELECT feed_id, state FROM subscriptions ORDER BY id");
    assert_eq!((&subscriptions[0]["feed_id"], &subscriptions[0]["state"]), (&json!(null), &json!("unsubscribing")));
    assert_eq!((&subscriptions[1]["feed_id"], &subscriptions[1]["state"]), (&json!(null), &json!("ended")));
    let jobs = live.shell.rows("SELECT kind, feed_id, subscription_id FROM jobs ORDER BY kind");
    assert_eq!(jobs.len(), 2);
    assert_eq!((&jobs[0]["kind"], &jobs[0]["feed_id"]), (&json!("fetch"), &json!(kept)));
    assert_eq!((&jobs[1]["kind"], &jobs[1]["subscription_id"]), (&json!("unsubscribe"), &json!(1)));
    // Ids are never used again.
    assert!(live.insert(&url) > kept);
}

#[test]
fn deleting_while_it_is_fetched_brings_nothing_back() {
    let live = Live::new();
    let url = live.serve("/f", Answer::feed(2, "x"));
    live.insert(&url);
    let shell = live.shell.clone();
    live.origin.on_request(&url, move || drop(shell.run("DELETE FROM feeds")));
    live.feedmill.succeed(&["run", "--once"]);
    assert_eq!(live.asked(&url), 1);
    assert_eq!((live.count("feeds"), live.count("jobs"), live.count("entries")), (0, 0, 0));
}

#[test]
fn a_job_set_to_zero_runs_now_unless_its_host_is_on_hold() {
    let live = Live::new();
    let _running = live.start();
    let url = live.serve("/f", Answer::feed(1, "x"));
    let feed = live.insert(&url);
    wait_until("it was fetched", || live.of(feed, "last_success_at") != json!(null));
    live.shell.run(&format!("UPDATE jobs SET run_at = 0 WHERE feed_id = {feed}"));
    wait_until("it was fetched again", || live.count("fetches") == 2);
    let host = live.origin.http_addr().to_string();
    live.shell.run(&format!(
        "INSERT INTO hosts(host, hold_until, reason) VALUES({}, strftime('%s', 'now') + 600, 'asked to');
         UPDATE jobs SET run_at = 0 WHERE feed_id = {feed}",
        quoted(&host)
    ));
    wait_until("it is put off", || live.shell.value("SELECT run_at > strftime('%s', 'now') + 500 FROM jobs") == 1);
    assert_eq!(live.asked(&url), 2);
    let status = live.feedmill.succeed(&["status"]);
    let line = status.lines().find(|line| line.starts_with("on hold")).unwrap_or_else(|| panic!("{status}"));
    assert!(line.contains(&host) && line.contains("asked to"), "{line}");
    live.shell.run("DELETE FROM hosts; UPDATE jobs SET run_at = 0");
    wait_until("it is fetched", || live.asked(&url) == 3);
}

#[test]
fn a_running_worker_obeys_changed_settings() {
    let live = Live::new();
    let running = live.start();
    let url = live.serve("/f", Answer::feed(50, "x"));
    let feed = live.insert(&url);
    wait_until("it was fetched", || live.of(feed, "last_success_at") != json!(null));
    live.shell.run("UPDATE settings SET value = 3 WHERE key = 'max_items'");
    live.shell.run("UPDATE settings SET value = 'me@a.test' WHERE key = 'contact'");
    live.origin.set(&url, vec![Answer::feed(51, "x")]);
    live.shell.run("UPDATE jobs SET run_at = 0");
    wait_until("it is too large", || live.of(feed, "failure_kind") == "too_large");
    let agent = live.origin.requests().last().unwrap().header("user-agent").unwrap().to_string();
    assert!(agent.starts_with("feedmill/") && agent.ends_with(" (+me@a.test)"), "{agent}");
    drop(running);
}

#[test]
fn an_approved_move_is_made_at_the_next_fetch() {
    let live = Live::new();
    let running = live.start();
    let old = live.serve("/old", Answer::feed(2, "x"));
    let new = live.serve("/new", Answer::feed(2, "y"));
    let feed = live.insert(&old);
    wait_until("it was fetched", || live.of(feed, "last_success_at") != json!(null));
    live.origin.set(&old, vec![Answer::redirect(301, "/new")]);
    live.shell.run("UPDATE jobs SET run_at = 0");
    wait_until("it waits", || live.count("pending_moves") == 1);
    live.settled();
    assert_eq!(live.of(feed, "url"), json!(old));
    assert_eq!(live.shell.value("SELECT condition LIKE 'redirected to %/new, waiting: %' FROM feed_status"), 1);
    live.shell.run("UPDATE pending_moves SET approved = 1; UPDATE jobs SET run_at = 0");
    wait_until("it moved", || live.of(feed, "url") == json!(new));
    assert_eq!(live.count("pending_moves"), 0);
    drop(running);
}

#[test]
fn a_long_read_does_not_block_the_worker() {
    let live = Live::new();
    let _running = live.start();
    let mut reader = live.shell.open();
    reader.run("BEGIN; SELECT count(*) FROM feeds;");
    let feed = live.insert(&live.serve("/f", Answer::feed(2, "x")));
    wait_until("it was fetched", || live.of(feed, "last_success_at") != json!(null));
    assert_eq!(reader.run("SELECT count(*) FROM feeds;"), ["0"]);
}

#[test]
fn a_long_write_delays_the_worker_and_blames_no_feed() {
    let live = Live::new();
    let mut running = live.start();
    let urls: Vec<String> = (0..5).map(|i| live.serve(&format!("/{i}"), Answer::feed(2, "x"))).collect();
    let held = live.shell.clone();
    let lock = std::sync::Arc::new(std::sync::Mutex::new(None));
    let taken = lock.clone();
    live.origin.on_request(&urls[0], move || *taken.lock().unwrap() = Some(held.lock()));
    live.shell.run(&urls.iter().map(|url| format!("INSERT INTO feeds(url) VALUES('{url}');")).collect::<String>());
    wait_until("the lock is held", || lock.lock().unwrap().is_some());
    wait_until("the worker says so", || running.stderr_so_far().contains("nothing can be written"));
    assert!(running.is_running());
    drop(lock.lock().unwrap().take());
    wait_until("all are fetched", || live.count("feeds WHERE last_success_at IS NOT NULL") == 5);
    assert_eq!(live.count("feeds WHERE failure_count > 0 OR failure_kind IS NOT NULL"), 0);
    assert_eq!(live.count("fetches WHERE outcome = 'failed'"), 0);
    assert!(urls.iter().all(|url| live.asked(url) == 1), "{:?}", live.origin.urls());
}

#[test]
fn what_was_written_without_a_worker_is_done_by_the_next() {
    let live = Live::new();
    let url = live.serve("/f", Answer::feed(2, "x"));
    let feed = live.insert(&url);
    live.feedmill.succeed(&["run", "--once"]);
    assert_eq!(live.count(&format!("entries WHERE feed_id = {feed}")), 2);
    // Nothing is due: nothing is asked for.
    live.feedmill.succeed(&["run", "--once"]);
    assert_eq!(live.asked(&url), 1);
}
