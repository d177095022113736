//! Where feeds go: what `fixtures/redirects.json` does not cover. Reverting, portals, merges, discovery, FeedBurner, holds.

use crate::support::binary::{Feedmill, Output};
use crate::support::feeds::feed as document;
use crate::support::mill::Mill;
use crate::support::origin::Answer;
use serde_json::{Value, json};

/// A document that names itself as FeedBurner's do.
fn burnt(n: usize, tag: &str, uri: &str) -> Answer {
    let info = format!(
        "<channel><feedburner:info xmlns:feedburner=\"http://rssnamespace.org/feedburner/ext/1.0\" uri=\"{uri}\"/>"
    );
    Answer::body("application/rss+xml", document(n, tag).replacen("<channel>", &info, 1))
}

fn page(links: &str) -> Answer {
    Answer::body("text/html", format!("<!doctype html><html><head><title>p</title>{links}</head><body>p</body></html>"))
}

fn alternate(href: &str, title: &str) -> String {
    format!("<link rel=alternate type='application/rss+xml' title='{title}' href='{href}'>")
}

fn revert(mill: &Mill, feed: i64) -> Output {
    Feedmill::new().run(&["--db", mill.db.to_str().unwrap(), "revert", &feed.to_string()])
}

#[test]
fn revert_goes_back_and_holds_the_target() {
    let (old, new) = ("http://a.test/old", "http://b.test/new");
    let mill = Mill::new(vec![(old, Answer::redirect(301, new)), (new, Answer::feed(3, "x"))]);
    let feed = mill.insert(old);
    mill.run();
    assert_eq!(mill.url(feed), new);
    let output = revert(&mill, feed);
    assert!(output.status == Some(0) && output.stdout.contains(old), "{output:?}");
    assert_eq!((mill.url(feed).as_str(), mill.history(feed)), (old, vec!["moved".to_string(), "reverted".to_string()]));
    assert_eq!(mill.shell.value("SELECT run_at FROM jobs"), 0);
    for _ in 0..4 {
        mill.run_after(24);
    }
    assert_eq!((mill.url(feed).as_str(), mill.count("pending_moves")), (old, 0));
    assert_eq!((mill.of(feed, "failure_kind"), mill.count("entries")), (Value::Null, 3));
    // Once the row is deleted and a month has passed, it may move again.
    mill.shell.run("DELETE FROM held_targets");
    mill.run_after(31 * 24);
    assert_eq!(mill.url(feed), new);
    // Only what was rewritten can be undone.
    let other = mill.insert("http://c.test/");
    assert_eq!((revert(&mill, other).status, revert(&mill, 4711).status), (Some(1), Some(1)));
}

#[test]
fn reverting_a_merge_holds_however_it_came_about() {
    let (burner, named, plain) = ("http://feeds.feedburner.com/name", "http://a.test/f", "http://b.test/f");
    let spelling = "http://feeds2.feedburner.com/Name";
    let mill = Mill::new(vec![
        (burner, burnt(3, "x", "name")),
        (spelling, burnt(3, "x", "name")),
        (named, burnt(3, "x", "name")),
        (plain, Answer::redirect(301, burner)),
    ]);
    let survivor = mill.insert(burner);
    mill.run();
    let movers = [named, plain, spelling].map(|url| mill.insert(url));
    mill.run();
    for mover in movers {
        assert_eq!(mill.of(mover, "merged_into"), survivor, "{}", mill.url(mover));
        assert_eq!(revert(&mill, mover).status, Some(0));
        assert_eq!((mill.of(mover, "state"), mill.of(mover, "merged_into")), (json!("active"), Value::Null));
        mill.run_after(1);
        mill.run_after(24);
        assert_eq!(
            (mill.of(mover, "state"), mill.of(mover, "failure_kind")),
            (json!("active"), Value::Null),
            "{}",
            mill.url(mover)
        );
    }
}

#[test]
fn feeds_of_three_hosts_that_wait_for_one_need_approval() {
    let portal = "http://portal.test/feed";
    let urls = ["http://a.test/f", "http://b.test/f", "http://c.test/f"];
    let mill = Mill::new(vec![(portal, Answer::feed(3, "portal"))]);
    let feeds = urls.map(|url| {
        mill.origin.add(url, Answer::feed(2, &url[7..8]));
        mill.origin.add(url, Answer::redirect(301, portal));
        mill.insert(url)
    });
    mill.run();
    for _ in 0..5 {
        mill.run_after(13);
    }
    assert_eq!(feeds.map(|feed| mill.url(feed)), urls);
    assert_eq!(mill.count("pending_moves WHERE why LIKE '%approved = 1%' AND sightings >= 3"), 3);
    // One that shares an entry with what is stored is not held up.
    let proven = "http://d.test/f";
    mill.origin.add(proven, Answer::feed(1, "portal"));
    mill.origin.add(proven, Answer::redirect(301, portal));
    let fourth = mill.insert(proven);
    mill.run();
    mill.run_after(1);
    assert_eq!(mill.url(fourth), portal);
    // The approved one goes; it merges with the row that is there now.
    mill.shell.run(&format!("UPDATE pending_moves SET approved = 1 WHERE feed_id = {}", feeds[1]));
    mill.run_after(1);
    assert_eq!((mill.of(feeds[1], "state"), mill.of(feeds[1], "merged_into")), (json!("merged"), json!(fourth)));
}

#[test]
fn two_waiting_feeds_are_no_portal() {
    let target = "http://new.test/feed";
    let mill = Mill::new(vec![(target, Answer::feed(3, "n"))]);
    let urls = ["http://a.test/f", "http://b.test/f", "http://b.test/g"];
    let feeds = urls.map(|url| {
        mill.origin.add(url, Answer::feed(2, "old"));
        mill.origin.add(url, Answer::redirect(301, target));
        mill.insert(url)
    });
    mill.run();
    for _ in 0..3 {
        mill.run_after(13);
    }
    assert_eq!(mill.count(&format!("feeds WHERE state = 'active' AND url = '{target}'")), 1);
    assert_eq!(mill.count("feeds WHERE state = 'merged'"), feeds.len() as i64 - 1);
    assert_eq!(mill.count("pending_moves"), 0);
}

#[test]
fn a_feed_that_moves_to_a_row_merged_into_it_swaps_urls_with_it() {
    let (a, b) = ("http://a.test/f", "http://b.test/f");
    let mill = Mill::new(vec![(a, Answer::feed(3, "x")), (b, Answer::redirect(301, a))]);
    let (survivor, merged) = (mill.insert(a), mill.insert(b));
    mill.run();
    assert_eq!(mill.of(merged, "merged_into"), survivor);
    mill.origin.set(a, vec![Answer::redirect(301, b)]);
    mill.origin.set(b, vec![Answer::feed(4, "x").header("ETag", "\"b\"")]);
    mill.run_after(1);
    assert_eq!((mill.url(survivor).as_str(), mill.url(merged).as_str()), (b, a));
    assert_eq!((mill.of(survivor, "state"), mill.of(merged, "state")), (json!("active"), json!("merged")));
    assert_eq!((mill.count("feeds"), mill.count("jobs"), mill.count("entries")), (2, 1, 4));
    assert_eq!((mill.history(survivor), mill.history(merged)), (vec!["moved".to_string()], vec!["merged".to_string()]));
    // And not back again within the month.
    mill.origin.set(b, vec![Answer::redirect(301, a)]);
    mill.origin.set(a, vec![Answer::feed(4, "x")]);
    mill.run_after(1);
    assert_eq!(mill.url(survivor), b);
    // Both can be asked for again as they stand: the merged one's URL is known.
    mill.shell.try_run(&format!("INSERT INTO feeds(url) VALUES('{a}')")).unwrap_err();
}

#[test]
fn merges_of_merges_lead_to_the_last_survivor() {
    let [a, b, c, d] = ["http://a.test/f", "http://b.test/f", "http://c.test/f", "http://d.test/f"];
    let mill = Mill::new(vec![
        (a, Answer::feed(3, "x")),
        (b, Answer::feed(3, "x")),
        (c, Answer::redirect(301, b)),
        (d, Answer::redirect(308, c)),
    ]);
    let [ia, ib, ic] = [a, b, c].map(|url| mill.insert(url));
    mill.run();
    assert_eq!((mill.of(ic, "merged_into"), mill.of(ib, "state")), (json!(ib), json!("active")));
    mill.origin.set(b, vec![Answer::redirect(301, a)]);
    mill.run_after(1);
    assert_eq!((mill.of(ib, "merged_into"), mill.of(ic, "merged_into")), (json!(ia), json!(ia)));
    let id = mill.insert(d);
    mill.run();
    assert_eq!(mill.of(id, "merged_into"), ia);
    assert_eq!((mill.count("feeds"), mill.count("jobs"), mill.count("entries")), (4, 1, 3));
    assert_eq!(mill.count("entries WHERE feed_id <> 1"), 0);
    // Again changes nothing.
    let before =
        mill.shell.run("SELECT * FROM feeds WHERE state = 'merged'; SELECT * FROM entries; SELECT * FROM feed_urls");
    mill.run_after(1);
    assert_eq!(
        mill.shell.run("SELECT * FROM feeds WHERE state = 'merged'; SELECT * FROM entries; SELECT * FROM feed_urls"),
        before
    );
    // Deleting the survivor takes them all.
    mill.shell.run(&format!("DELETE FROM feeds WHERE id = {ia}"));
    for table in ["feeds", "jobs", "entries", "feed_urls"] {
        assert_eq!(mill.count(table), 0, "{table}");
    }
}

#[test]
fn a_merge_keeps_what_the_user_wrote() {
    let (old, new) = ("http://a.test/old", "http://b.test/new");
    let mill = Mill::new(vec![(old, Answer::redirect(301, new)), (new, Answer::feed(3, "x"))]);
    let holder = mill.insert(new);
    mill.run();
    mill.shell.run("UPDATE feeds SET state = 'paused', title = 'holder', interval_seconds = NULL; UPDATE entries SET title = 'own'");
    let mover = mill.insert(old);
    mill.shell.run(&format!(
        "UPDATE feeds SET title = 'mover', folder = 'f', interval_seconds = 600, hub_url = 'http://hub.test/' WHERE id = {mover};
         INSERT INTO entries(feed_id, guid, title, first_seen_at, changed_at) VALUES ({mover}, 'urn:x:1', 'theirs', 1, 1), ({mover}, 'mine', 'm', 1, 1);
         INSERT INTO subscriptions(feed_id, hub_url, topic_url, state) VALUES ({mover}, 'http://hub.test/', 't', 'active')"
    ));
    mill.run();
    let row = &mill.shell.rows(&format!("SELECT * FROM feeds WHERE id = {holder}"))[0];
    for (column, value) in [
        ("url", json!(new)),
        ("state", json!("active")),
        ("title", json!("holder")),
        ("folder", json!("f")),
        ("interval_seconds", json!(600)),
        ("hub_url", json!("http://hub.test/")),
    ] {
        assert_eq!(row[column], value, "{column}");
    }
    assert_eq!((mill.of(mover, "state"), mill.url(mover).as_str()), (json!("merged"), old));
    assert_eq!(mill.count(&format!("jobs WHERE kind = 'fetch' AND feed_id = {holder}")), 1);
    assert_eq!(mill.count(&format!("jobs WHERE kind = 'fetch' AND feed_id = {mover}")), 0);
    assert_eq!(
        (mill.count("entries"), mill.count(&format!("entries WHERE feed_id = {holder} AND guid = 'mine'"))),
        (4, 1)
    );
    assert_eq!(mill.shell.value("SELECT state FROM subscriptions"), "unsubscribing");
}

#[test]
fn a_target_is_stored_without_what_it_says_of_users() {
    let (old, new) = ("http://a.test/old", "http://b.test/new");
    let target = "http://user:secret@b.test/new";
    let mill = Mill::new(vec![(old, Answer::redirect(301, target)), (new, Answer::feed(3, "x"))]);
    let feed = mill.insert(old);
    mill.run();
    assert_eq!(mill.url(feed), new);
    assert!(mill.origin.requests().iter().all(|request| request.header("authorization").is_none()));
    let dump = mill.shell.run("SELECT * FROM feeds; SELECT * FROM feed_urls; SELECT * FROM fetches");
    assert!(!dump.join("\n").contains("secret"), "{dump:?}");
}

#[test]
fn https_is_not_given_up() {
    let (old, new, newest) = ("https://a.test/f", "http://b.test/f", "https://c.test/f");
    let mill =
        Mill::new(vec![(old, Answer::redirect(301, new)), (new, Answer::feed(3, "x")), (newest, Answer::feed(4, "x"))]);
    let feed = mill.insert(old);
    mill.run();
    assert_eq!((mill.url(feed).as_str(), mill.count("entries"), mill.count("pending_moves")), (old, 3, 0));
    mill.origin.set(new, vec![Answer::redirect(301, newest)]);
    mill.run_after(1);
    assert_eq!((mill.url(feed).as_str(), mill.count("entries")), (newest, 4));
}

#[test]
fn a_kept_page_is_read_through_each_time() {
    let (url, feed_url) = ("http://a.test/", "http://a.test/feed");
    let mill = Mill::new(vec![(url, page(&alternate("/feed", "f"))), (feed_url, Answer::feed(2, "x"))]);
    mill.origin.add(feed_url, Answer::feed(3, "x"));
    let feed = mill.insert(url);
    mill.shell.run("UPDATE feeds SET keep_url = 1");
    mill.run();
    mill.run_after(24);
    assert_eq!((mill.url(feed).as_str(), mill.count("entries"), mill.history(feed).len()), (url, 3, 0));
    assert_eq!(mill.origin.urls(), [url, feed_url, url, feed_url]);
    assert_eq!((mill.of(feed, "failure_kind"), mill.count("pending_moves")), (Value::Null, 0));
}

#[test]
fn not_modified_proves_a_move_at_once() {
    let (old, new) = ("http://a.test/old", "http://b.test/new");
    let mill = Mill::new(vec![
        (old, Answer::redirect(302, new)),
        (old, Answer::redirect(301, new)),
        (new, Answer::feed(3, "x").header("ETag", "\"1\"")),
        (new, Answer::status(304).header("ETag", "\"1\"")),
    ]);
    let feed = mill.insert(old);
    mill.run();
    assert_eq!((mill.url(feed).as_str(), mill.of(feed, "validators_url")), (old, json!(new)));
    mill.run_after(1);
    assert_eq!((mill.url(feed).as_str(), mill.origin.if_none_match_seen_by(new).as_deref()), (new, Some("\"1\"")));
    assert_eq!(mill.origin.if_none_match_seen_by(old), None);
    assert_eq!(mill.shell.value("SELECT statuses FROM feed_urls"), "301,304");
}

#[test]
fn a_target_that_was_regretted_is_held() {
    let (old, new) = ("http://a.test/old", "http://b.test/new");
    let mill = Mill::new(vec![
        (old, Answer::redirect(301, new)),
        (old, Answer::feed(4, "x")),
        (old, Answer::redirect(301, new)),
        (new, Answer::feed(3, "x")),
        (new, Answer::status(404)),
        (new, Answer::feed(5, "x")),
    ]);
    let feed = mill.insert(old);
    mill.run();
    assert_eq!(mill.url(feed), new);
    mill.run_after(24);
    assert_eq!((mill.url(feed).as_str(), mill.of(feed, "failure_count"), mill.count("entries")), (old, json!(0), 4));
    mill.run_after(24);
    mill.run_after(60 * 24);
    assert_eq!((mill.url(feed).as_str(), mill.count("entries")), (old, 5));
    assert_eq!(mill.history(feed), ["moved", "reverted"]);
}

#[test]
fn regret_does_not_trust_a_stranger_at_the_old_address() {
    let (old, new) = ("http://a.test/old", "http://b.test/new");
    let mill = Mill::new(vec![
        (old, Answer::redirect(301, new)),
        (old, Answer::feed(4, "squatter")),
        (new, Answer::feed(3, "x")),
        (new, Answer::status(404)),
    ]);
    let feed = mill.insert(old);
    mill.run();
    mill.run_after(24);
    assert_eq!(
        (mill.url(feed).as_str(), mill.of(feed, "failure_kind"), mill.count("entries")),
        (new, json!("not_found"), 3)
    );
}

#[test]
fn a_page_gives_way_to_its_feed_on_the_first_success() {
    let url = "http://a.test/";
    let links = alternate("/broken", "b") + &alternate("/feed", "f") + &alternate("/comments/feed", "comments");
    let mill = Mill::new(vec![
        (url, Answer::status(503)),
        (url, page(&links)),
        ("http://a.test/broken", Answer::status(404)),
        ("http://a.test/feed", Answer::feed(2, "x")),
        ("http://a.test/comments/feed", Answer::feed(2, "c")),
    ]);
    let feed = mill.insert(url);
    mill.run();
    assert_eq!((mill.url(feed).as_str(), mill.of(feed, "failure_kind")), (url, json!("server_error")));
    mill.run_after(24);
    assert_eq!((mill.url(feed).as_str(), mill.of(feed, "site_url")), ("http://a.test/feed", json!(url)));
    assert_eq!(mill.history(feed), ["discovered"]);
    assert_eq!(mill.shell.value("SELECT outcome FROM fetches ORDER BY id DESC"), "discovered");
    let others = mill.shell.column("SELECT url FROM discovered_feeds ORDER BY position");
    assert_eq!(others, ["http://a.test/broken", "http://a.test/comments/feed"]);
    assert_eq!((mill.count("entries"), mill.of(feed, "failure_count")), (2, json!(0)));
}

#[test]
fn a_feed_that_turns_into_a_page_fails_for_a_week() {
    let url = "http://a.test/feed";
    let mill = Mill::new(vec![
        (url, Answer::feed(2, "x")),
        (url, page(&(alternate("/ads", "ads") + &alternate("/new", "f")))),
        ("http://a.test/ads", Answer::feed(2, "ads")),
        ("http://a.test/new", Answer::feed(3, "x")),
    ]);
    let feed = mill.insert(url);
    mill.run();
    for day in 0..7 {
        mill.run_after(24);
        assert_eq!((mill.url(feed).as_str(), mill.of(feed, "failure_kind")), (url, json!("not_a_feed")), "day {day}");
    }
    assert_eq!(mill.asked("http://a.test/ads"), 0);
    mill.run_after(24);
    // What the page names first is no feed of ours: it waits.
    assert_eq!(mill.url(feed), url);
    mill.origin.set(url, vec![page(&alternate("/new", "f"))]);
    mill.shell.run("UPDATE feeds SET failing_since = failing_since - 8 * 86400 WHERE failing_since IS NOT NULL");
    for _ in 0..9 {
        mill.run_after(24);
    }
    assert_eq!(mill.url(feed), "http://a.test/new");
}

#[test]
fn feedburner_names_become_canonical_and_keep_their_spelling() {
    let canonical = "http://feeds.feedburner.com/name";
    let mill = Mill::new(vec![(canonical, Answer::feed(2, "x"))]);
    let feed = mill.insert("http://feeds2.feedburner.com/Name/?format=xml");
    mill.run();
    assert_eq!(
        (mill.url(feed).as_str(), mill.of(feed, "pretty_url")),
        (canonical, json!("http://feeds.feedburner.com/Name"))
    );
    assert_eq!((mill.history(feed), mill.origin.urls()), (vec!["canonical".to_string()], vec![canonical.to_string()]));
}

#[test]
fn a_spelling_that_works_stays_where_the_canonical_form_does_not() {
    let given = "http://feeds.feedburner.com/Name";
    let mill = Mill::new(vec![(given, Answer::feed(2, "x"))]);
    let feed = mill.insert(given);
    mill.run();
    assert_eq!((mill.url(feed).as_str(), mill.count("entries"), mill.history(feed).len()), (given, 2, 0));
    assert_eq!(mill.origin.urls(), ["http://feeds.feedburner.com/name", given]);
    // From then on only the one that works is asked.
    mill.run_after(24);
    assert_eq!((mill.asked(given), mill.of(feed, "failure_kind")), (2, Value::Null));
    assert_eq!(mill.origin.requests().len(), 3);
}

#[test]
fn a_suffix_goes_only_when_a_fetch_shows_the_same_feed() {
    let (given, folded) = ("http://feeds.feedburner.com/name.xml", "http://feeds.feedburner.com/name");
    for (name, at_given, at_folded, expected, requests) in [
        ("it says so itself", burnt(2, "x", "name"), Answer::status(404), folded, 1),
        ("it says that the suffix belongs to it", burnt(2, "x", "name.xml"), Answer::feed(2, "x"), given, 1),
        ("an entry in common", Answer::feed(2, "x"), Answer::feed(3, "x"), folded, 2),
        ("another feed", Answer::feed(2, "x"), Answer::feed(3, "y"), given, 2),
        ("nothing there", Answer::feed(2, "x"), Answer::status(404), given, 2),
        ("only there", Answer::status(404), Answer::feed(2, "x"), folded, 2),
    ] {
        let mill = Mill::new(vec![(given, at_given), (folded, at_folded)]);
        let feed = mill.insert(given);
        mill.run();
        assert_eq!((mill.url(feed).as_str(), mill.origin.requests().len()), (expected, requests), "{name}");
        assert_eq!(mill.of(feed, "failure_kind"), Value::Null, "{name}");
    }
}

#[test]
fn a_name_gives_no_stranger_another_feeds_place() {
    let (victim, stranger) = ("http://feeds.feedburner.com/victim", "http://evil.test/f");
    for stranger_first in [false, true] {
        let mill = Mill::new(vec![(victim, burnt(3, "v", "victim")), (stranger, burnt(3, "evil", "victim"))]);
        let order = if stranger_first { [stranger, victim] } else { [victim, stranger] };
        for url in order {
            mill.insert(url);
            mill.run();
        }
        mill.run_after(24);
        mill.run_after(24);
        assert_eq!(mill.count("feeds WHERE state = 'active' AND failure_kind IS NULL"), 2, "{stranger_first}");
        for (url, tag) in [(victim, "v"), (stranger, "evil")] {
            let of = format!("FROM feeds WHERE url = '{url}'");
            assert_eq!(mill.count(&format!("entries WHERE feed_id = (SELECT id {of}) AND guid LIKE 'urn:{tag}:%'")), 3);
        }
        assert_eq!(mill.count("entries"), 6);
    }
}

#[test]
fn a_host_that_says_too_many_is_left_alone() {
    let (one, two) = ("http://a.test/1", "http://a.test/2");
    let other = "http://b.test/";
    let limited = Answer::status(429).header("Retry-After", "7200");
    let mill = Mill::new(vec![
        (one, limited),
        (one, Answer::feed(1, "x")),
        (two, Answer::feed(1, "y")),
        (other, Answer::feed(1, "z")),
    ]);
    let feed = mill.insert(one);
    mill.run();
    let now = mill.clock.now();
    assert_eq!((mill.of(feed, "failure_kind"), mill.of(feed, "last_status")), (json!("rate_limited"), json!(429)));
    assert_eq!(mill.shell.run("SELECT host, hold_until FROM hosts"), [format!("a.test|{}", now + 7200)]);
    assert!(mill.shell.value("SELECT run_at FROM jobs").as_i64().unwrap() >= now + 7200);
    let second = mill.insert(two);
    mill.insert(other);
    mill.shell.run("UPDATE jobs SET run_at = 0");
    mill.run();
    assert_eq!((mill.asked(one), mill.asked(two), mill.asked(other)), (1, 0, 1));
    assert_eq!(mill.of(second, "failure_kind"), Value::Null);
    mill.clock.advance(7200 + 3600);
    mill.run();
    assert_eq!((mill.asked(one), mill.asked(two)), (2, 1));
}

#[test]
fn urls_that_cannot_be_used_say_why() {
    let mill = Mill::new(Vec::new());
    for (url, kind, says) in [
        ("", "bad_url", "empty"),
        ("   ", "bad_url", "empty"),
        ("http://", "bad_url", ""),
        ("ftp://a.test/f", "bad_scheme", "ftp"),
        ("javascript:alert(1)", "bad_scheme", "javascript"),
        ("http://a.test:99999/", "bad_url", "port"),
        ("http://a b.test/", "bad_url", ""),
        ("http://a.test/\nx", "bad_url", "line break"),
        ("http://[::1", "bad_url", ""),
    ] {
        let feed = mill.insert(url);
        mill.run();
        let row = &mill.shell.rows(&format!("SELECT * FROM feeds WHERE id = {feed}"))[0];
        let message = row["failure_message"].as_str().unwrap_or_default();
        assert_eq!(
            (&row["state"], &row["failure_kind"], &row["url"]),
            (&json!("invalid"), &json!(kind), &json!(url)),
            "{url:?}"
        );
        assert!(
            message.contains(says) && message.len() > 8 && !message.contains(char::is_control),
            "{url:?}: {message}"
        );
        assert_eq!(mill.count("jobs"), 0, "{url:?}");
    }
    // Mending the URL mends the row.
    mill.origin.add("http://a.test/f", Answer::feed(1, "x"));
    mill.shell.run("UPDATE feeds SET url = 'http://a.test/f' WHERE id = 4");
    mill.run();
    assert_eq!((mill.of(4, "state"), mill.of(4, "failure_kind")), (json!("active"), Value::Null));
}

#[test]
fn what_has_not_changed_is_not_sent_again() {
    let url = "http://a.test/f";
    let date = "Sat, 01 Jun 2024 00:00:00 GMT";
    let mill = Mill::new(vec![
        (url, Answer::feed(2, "x").header("ETag", "W/\"1\"").header("Last-Modified", date)),
        (url, Answer::status(304)),
        (url, Answer::feed(2, "x")),
        (url, Answer::feed(3, "x")),
    ]);
    let feed = mill.insert(url);
    for _ in 0..4 {
        mill.run_after(2);
    }
    let sent: Vec<(Option<String>, Option<String>)> = mill
        .origin
        .requests()
        .iter()
        .map(|request| {
            let header = |name: &str| request.header(name).map(str::to_string);
            (header("if-none-match"), header("if-modified-since"))
        })
        .collect();
    let both = (Some("W/\"1\"".to_string()), Some(date.to_string()));
    assert_eq!(sent, [(None, None), both.clone(), both, (None, None)]);
    let log = mill.shell.run("SELECT statuses, outcome, new_entries FROM fetches ORDER BY id");
    assert_eq!(log, ["200|new|2", "304|unchanged|0", "200|unchanged|0", "200|new|1"]);
    assert_eq!((mill.of(feed, "etag"), mill.of(feed, "validators_url")), (Value::Null, Value::Null));
}
