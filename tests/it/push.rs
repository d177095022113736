//! The life of a subscription beyond the cases of `websub`: refusals, silence, switches, what is delivered and when feeds are
//! polled beside it.

use crate::support::binary::{Feedmill, wait_until};
use crate::support::feeds::feed;
use crate::support::hub::{HubAnswer, Method, Post, Verify, signature};
use crate::support::origin::Answer;
use crate::websub::{FEED, HUB, Rig, Setup, pushed_feed, with_hub};
use std::time::Duration;

const DAY: i64 = 86_400;

fn injected() -> Setup {
    Setup { injected: true, ..Setup::default() }
}

/// The fetch job stays where it is put for these tests.
fn no_polls(rig: &Rig) {
    rig.shell.run("UPDATE jobs SET run_at = 4000000000 WHERE kind = 'fetch'");
}

fn next_poll(rig: &Rig) -> i64 {
    rig.number("SELECT run_at FROM jobs WHERE kind = 'fetch'") - rig.clock.now()
}

fn last_error(rig: &Rig) -> String {
    rig.text("SELECT last_error FROM subscriptions ORDER BY id DESC LIMIT 1")
}

fn param<'a>(post: &'a Post, name: &str) -> &'a str {
    post.param(name).unwrap_or("")
}

#[test]
fn a_secret_goes_to_https_and_a_hub_without_is_only_trusted_to_hint() {
    let mut rig = Rig::new(&Setup { https: true, ..injected() }, vec![(FEED, with_hub(1))]);
    rig.insert(FEED);
    rig.settle();
    let post = &rig.hub.posts()[0];
    assert_eq!((post.url.as_str(), param(post, "hub.secret").len()), ("https://h.test/", 64));
    assert_eq!(rig.states(), ["active"]);

    let mut rig = Rig::new(&injected(), vec![(FEED, with_hub(1))]);
    rig.insert(FEED);
    rig.settle();
    assert_eq!((rig.states(), rig.hub.posts()[0].param("hub.secret")), (vec!["active".to_string()], None));
    no_polls(&rig);
    // A poll at once, one more after a quarter of an hour, and no third; the body itself is not read.
    assert_eq!(rig.deliver(feed(9, "x").as_bytes()), 202);
    assert_eq!(rig.number("SELECT run_at FROM jobs WHERE kind = 'fetch'"), 0);
    rig.origin.set(FEED, vec![with_hub(2)]);
    rig.settle();
    assert_eq!(rig.number("SELECT count(*) FROM entries"), 2);
    for _ in 0..3 {
        no_polls(&rig);
        assert_eq!(rig.deliver(b""), 202);
        rig.clock.advance(1);
    }
    let hinted = rig.number("SELECT hinted_at FROM subscriptions") - rig.clock.now();
    assert!((890..900).contains(&hinted), "{hinted}");
    // The poll that a hint caused is no miss of the hub.
    assert_eq!(rig.number("SELECT misses FROM subscriptions"), 0);
    assert_eq!(rig.pushed_entries(), 0);
}

#[test]
fn a_refusal_goes_down_the_ladder_and_on_to_the_next_hub() {
    let document = pushed_feed(1, "x", "atom", &["http://h1.test/", "http://h2.test/"], Some("http://a.test/self"));
    let mut rig = Rig::new(&injected(), vec![(FEED, document)]);
    rig.hub.script(vec![HubAnswer {
        answer: Answer { body: b"not\x07here".to_vec(), ..Answer::status(400) },
        if_param: None,
    }]);
    rig.insert(FEED);
    rig.settle();
    let seen: Vec<(String, String, bool)> = rig
        .hub
        .posts()
        .iter()
        .map(|post| (post.url.clone(), param(post, "hub.topic").into(), post.param("hub.lease_seconds").is_some()))
        .collect();
    let steps = |hub: &str| {
        [("http://a.test/self", true), ("http://a.test/self", false), (FEED, false)]
            .map(|(topic, lease)| (hub.to_string(), topic.to_string(), lease))
    };
    assert_eq!(seen, [steps("http://h1.test/"), steps("http://h2.test/")].concat());
    assert_eq!(rig.states(), ["refused", "refused"]);
    assert_eq!(last_error(&rig), "the hub answered 400: not here");
    assert_eq!(rig.number("SELECT sum(turned_down) FROM hub_status"), 2);
    // Polled as if there were no hub, and asked again after a day.
    assert!(next_poll(&rig) < DAY, "{}", next_poll(&rig));
    let again = rig.number("SELECT min(run_at) FROM jobs WHERE kind = 'subscribe'") - rig.clock.now();
    assert!((DAY - 60..DAY * 9 / 8).contains(&again), "{again}");
    rig.hub.script(vec![HubAnswer::status(202)]);
    for _ in 0..28 {
        rig.pass(3600);
    }
    // The first that asks again gets it; the other one ends instead of being a second.
    let mut states = rig.states();
    states.sort();
    assert_eq!(states, ["active", "ended"]);
}

#[test]
fn a_hub_that_refuses_leases_is_remembered() {
    let other = "http://a.test/g";
    let mut rig = Rig::new(&injected(), vec![(FEED, with_hub(1)), (other, with_hub(1))]);
    let refusal = HubAnswer { answer: Answer::status(400), if_param: Some("hub.lease_seconds".into()) };
    rig.hub.script(vec![refusal, HubAnswer::status(202)]);
    // It verifies before it answers: what the answer then teaches is still learnt.
    rig.hub.verify(Verify::First);
    rig.insert(FEED);
    rig.settle();
    assert_eq!(rig.hub.posts().len(), 2);
    rig.insert(other);
    rig.settle();
    assert_eq!((rig.hub.posts().len(), rig.states().len()), (3, 2));
    assert_eq!(rig.states(), ["active", "active"]);
}

#[test]
fn a_hub_that_is_gone_gives_way_to_the_next() {
    let document = pushed_feed(1, "x", "atom", &["http://h1.test/", "http://h2.test/"], None);
    let mut rig = Rig::new(&injected(), vec![(FEED, document)]);
    rig.hub.script(vec![HubAnswer::status(410), HubAnswer::status(202)]);
    rig.insert(FEED);
    rig.settle();
    assert_eq!(rig.states(), ["refused", "active"]);
    assert_eq!(rig.hub.posts().len(), 2);
}

#[test]
fn silence_is_asked_three_times_and_then_why() {
    let mut rig = Rig::new(&injected(), vec![(FEED, with_hub(1))]);
    let why = Answer { body: b"callback: certificate has expired".to_vec(), ..Answer::status(400) };
    let mut script = vec![HubAnswer::status(202); 3];
    script.push(HubAnswer { answer: why, if_param: None });
    rig.hub.script(script);
    rig.hub.verify(Verify::Never);
    rig.insert(FEED);
    rig.settle();
    rig.pass(3 * 3600);
    let verify: Vec<String> = rig.hub.posts().iter().map(|post| param(post, "hub.verify").to_string()).collect();
    assert_eq!(verify, ["async", "async", "async", "sync"]);
    assert_eq!(rig.states(), ["refused"]);
    assert_eq!(last_error(&rig), "the hub answered 400: callback: certificate has expired");
    assert!(next_poll(&rig) < DAY);
    assert!(rig.number("SELECT count(*) FROM fetches") >= 2, "polling did not go on");

    // One that never says a word: then we do.
    let mut rig = Rig::new(&injected(), vec![(FEED, with_hub(1))]);
    rig.hub.verify(Verify::Never);
    rig.insert(FEED);
    rig.settle();
    rig.pass(6 * 3600);
    assert_eq!((rig.states(), rig.hub.posts().len()), (vec!["refused".to_string()], 4));
    assert!(last_error(&rig).contains("can the hub reach callback_url?"), "{}", last_error(&rig));
}

#[test]
fn a_denied_feed_is_polled() {
    let mut rig = Rig::subscribed(&injected());
    no_polls(&rig);
    rig.hub.deny(&rig.hub.posts()[0], "no such topic").expect("an answer");
    assert_eq!((rig.states(), last_error(&rig)), (vec!["denied".to_string()], "denied: no such topic".to_string()));
    assert_eq!(rig.number("SELECT run_at FROM jobs WHERE kind = 'fetch'"), 0);
    rig.settle();
    assert_eq!((rig.text("SELECT state FROM feeds"), rig.number("SELECT count(*) FROM fetches")), ("active".into(), 2));
    assert!(next_poll(&rig) < DAY);
    assert_eq!(rig.hub.posts().len(), 1, "asked again at once");
}

#[test]
fn two_secrets_are_good_around_a_renewal() {
    let mut rig = Rig::subscribed(&injected());
    let post = rig.hub.posts()[0].clone();
    let (callback, secret) = (param(&post, "hub.callback").to_string(), param(&post, "hub.secret").to_string());
    let deliver = |rig: &Rig, secret: &str, n: usize| {
        let body = feed(n, "x");
        let signed = signature(Method::Sha1, secret, body.as_bytes());
        let sent = rig.hub.deliver_to(&callback, HUB, FEED, "text/html", Some(&signed), body.as_bytes());
        sent.expect("an answer").status
    };
    // Rotated by hand: the hub learns the new one with the renewal.
    rig.hub.verify(Verify::Never);
    rig.shell.run("UPDATE subscriptions SET previous_secret = secret, secret = 'another', renewing = 1");
    rig.shell.run("UPDATE jobs SET run_at = 0 WHERE kind = 'renew'");
    rig.settle();
    let renewal = rig.hub.posts().last().cloned().expect("a renewal");
    assert_eq!((param(&renewal, "hub.secret"), param(&renewal, "hub.callback")), ("another", callback.as_str()));
    assert_eq!([deliver(&rig, &secret, 2), deliver(&rig, "another", 3), deliver(&rig, &secret, 4)], [202; 3]);
    assert!(rig.hub.verify_now(&renewal).confirmed);
    assert_eq!([deliver(&rig, &secret, 5), deliver(&rig, "another", 6), deliver(&rig, &secret, 7)], [202, 202, 403]);
    rig.settle();
    assert_eq!(rig.pushed_entries(), 5);
}

#[test]
fn a_feed_that_is_stopped_is_unsubscribed_and_subscribes_again() {
    let mut rig = Rig::subscribed(&injected());
    rig.shell.run("UPDATE feeds SET state = 'paused'");
    rig.settle();
    assert_eq!(rig.states(), ["ended"]);
    assert_eq!(rig.asked()[1], ("unsubscribe".to_string(), FEED.to_string()));
    assert_eq!(rig.deliver(feed(2, "x").as_bytes()), 410);
    rig.shell.run("UPDATE feeds SET state = 'active'");
    rig.settle();
    assert_eq!(rig.states(), ["ended", "active"]);
    let posts = rig.hub.posts();
    assert_ne!(posts[0].param("hub.callback"), posts[2].param("hub.callback"));
    assert_eq!(rig.deliver(feed(2, "x").as_bytes()), 202);
    rig.settle();
    assert_eq!(rig.pushed_entries(), 1);
}

#[test]
fn a_feed_that_is_merged_is_unsubscribed_and_what_waits_goes_to_the_survivor() {
    let other = "http://b.test/f";
    let mut rig = Rig::new(&injected(), vec![(FEED, with_hub(1)), (other, with_hub(1))]);
    rig.secrets();
    rig.insert(FEED);
    rig.settle();
    rig.insert(other);
    rig.settle();
    assert_eq!(rig.states(), ["active", "active"]);
    let first = rig.hub.posts()[0].clone();
    let deliver = |n: usize| rig.hub.deliver(&first, "text/xml", feed(n, "x").as_bytes()).expect("an answer").status;
    assert_eq!(deliver(2), 202);
    rig.shell.run("UPDATE feeds SET state = 'merged', merged_into = 2 WHERE id = 1");
    assert_eq!(deliver(3), 410);
    rig.settle();
    assert_eq!(rig.shell.column("SELECT feed_id FROM entries WHERE arrived_by = 'push'"), [2]);
    assert_eq!(rig.states(), ["ended", "active"]);
    assert_eq!(rig.asked()[2], ("unsubscribe".to_string(), FEED.to_string()));
}

#[test]
fn the_old_hub_delivers_until_the_new_one_has_verified() {
    let mut rig = Rig::subscribed(&injected());
    let old = rig.hub.posts()[0].clone();
    let deliver =
        |rig: &Rig, n: usize| rig.hub.deliver(&old, "text/xml", feed(n, "x").as_bytes()).expect("an answer").status;
    rig.hub.verify(Verify::Never);
    rig.origin.set(FEED, vec![pushed_feed(1, "x", "atom", &["http://h2.test/"], None)]);
    rig.poll();
    assert_eq!(rig.states(), ["active", "pending"]);
    assert_eq!(deliver(&rig, 2), 202);
    let new = rig.hub.posts()[1].clone();
    assert_ne!(old.param("hub.callback"), new.param("hub.callback"));
    assert!(rig.hub.verify_now(&new).confirmed);
    rig.hub.verify(Verify::After);
    rig.settle();
    assert_eq!(rig.states(), ["ended", "active"]);
    let last = rig.hub.posts().pop().expect("a request");
    assert_eq!((param(&last, "hub.mode"), last.url.as_str()), ("unsubscribe", HUB));
    assert_eq!(last.param("hub.callback"), old.param("hub.callback"));
    assert_eq!(deliver(&rig, 3), 410);
    // What came before is not lost with it.
    assert_eq!(rig.pushed_entries(), 1);
    // And the feed that names nobody for two polls is nobody's.
    rig.origin.set(FEED, vec![Answer::feed(3, "x"), Answer::feed(4, "x")]);
    rig.poll();
    assert_eq!(rig.states(), ["ended", "active"]);
    rig.poll();
    assert_eq!(rig.states(), ["ended", "ended"]);
}

#[test]
fn a_hub_that_moved_is_asked_there_from_then_on() {
    for (status, stored) in [(308, "http://h.test/hub2"), (307, HUB)] {
        let mut rig = Rig::new(&injected(), vec![(FEED, with_hub(1))]);
        let redirect = HubAnswer { answer: Answer::redirect(status, "/hub2"), if_param: None };
        rig.hub.script(vec![redirect, HubAnswer::status(202)]);
        rig.insert(FEED);
        rig.settle();
        assert_eq!(rig.states(), ["active"], "{status}");
        let posts = rig.hub.posts();
        assert_eq!((posts.len(), &posts[0].form), (2, &posts[1].form), "{status}");
        assert_eq!(rig.text("SELECT hub_url FROM subscriptions"), stored, "{status}");
        // The feed still names the old address: that is the same hub, and renewals go where it is.
        rig.poll();
        rig.shell.run("UPDATE jobs SET run_at = 0 WHERE kind = 'renew'");
        rig.settle();
        assert_eq!(rig.states(), ["active"], "{status}");
        assert_eq!(rig.hub.posts().last().map(|post| post.url.clone()).as_deref(), Some(stored), "{status}");
        assert_eq!(rig.hub.posts().len(), 3, "{status}");
    }
}

#[test]
fn a_hub_is_asked_once_a_second_and_the_others_are_not_held_up() {
    let urls: Vec<String> = (0..12).map(|n| format!("http://a.test/f{n}")).collect();
    let mut rig = Rig::new(&injected(), urls.iter().map(|url| (url.as_str(), with_hub(1))).collect());
    for url in &urls {
        rig.insert(url);
    }
    let began = rig.clock.now();
    rig.settle();
    assert_eq!(rig.states(), vec!["active"; 12]);
    assert_eq!(rig.hub.max_in_flight("http://h.test"), 1);
    assert_eq!(rig.number("SELECT count(DISTINCT requested_at) FROM subscriptions"), 12);
    let took = rig.clock.now() - began;
    assert!((11..40).contains(&took), "{took} s for twelve requests");
}

#[test]
fn a_public_feed_does_not_lead_to_a_private_hub() {
    let setup = injected();
    let mut rig = Rig::new(&setup, vec![]);
    let private = rig.hub.url();
    rig.origin.add(FEED, pushed_feed(1, "x", "atom", &[&private], None));
    rig.worker.names.extend(rig.origin.names());
    rig.insert(FEED);
    rig.settle();
    assert!(rig.hub.posts().is_empty(), "{:?}", rig.hub.posts());
    assert!(last_error(&rig).contains("private"), "{}", last_error(&rig));
    // Allowed by the setting ...
    let authority = private.trim_start_matches("http://").trim_end_matches('/');
    rig.shell.run(&format!("UPDATE settings SET value = '{authority}' WHERE key = 'allow_addresses'"));
    rig.shell.run("UPDATE jobs SET run_at = 0 WHERE kind = 'subscribe'");
    rig.settle();
    assert_eq!((rig.hub.posts().len(), rig.states()), (1, vec!["active".to_string()]));

    // ... or because the user typed it, ...
    let mut rig = Rig::new(&setup, vec![(FEED, Answer::feed(1, "x"))]);
    rig.insert(FEED);
    rig.shell.run(&format!("UPDATE feeds SET hub_url = '{}'", rig.hub.url()));
    rig.settle();
    assert_eq!((rig.hub.posts().len(), rig.states()), (1, vec!["active".to_string()]));
    // (and it is told when that is taken back together with the feed)
    rig.shell.run("DELETE FROM feeds");
    rig.settle();
    assert_eq!(rig.states(), ["ended"]);
    assert_eq!(rig.asked()[1].0, "unsubscribe");

    // ... or because the feed is as private.
    let mut rig = Rig::new(&setup, vec![]);
    let private = rig.origin.url("/f");
    rig.origin.add(&private, pushed_feed(1, "x", "atom", &[&rig.hub.url()], None));
    rig.insert(&private);
    rig.settle();
    assert_eq!((rig.hub.posts().len(), rig.states()), (1, vec!["active".to_string()]));
}

#[test]
fn a_feed_that_names_no_hub_gets_the_users() {
    let itself = "http://a.test/videos?channel_id=7&x=y";
    let mut rig = Rig::new(&injected(), vec![(FEED, pushed_feed(1, "x", "atom", &[], Some(itself)))]);
    rig.insert(FEED);
    rig.settle();
    assert!(rig.hub.posts().is_empty());
    // With a running worker this is all a user does; the document is the same as before.
    rig.shell.run(&format!("UPDATE feeds SET hub_url = '{HUB}'"));
    rig.settle();
    assert_eq!(rig.states(), ["active"]);
    rig.poll();
    assert_eq!(rig.asked().len(), 1);
}

#[test]
fn polls_become_daily_with_the_first_good_push_and_usual_with_three_misses() {
    let mut rig = Rig::subscribed(&injected());
    rig.poll();
    assert!(next_poll(&rig) < DAY, "{}", next_poll(&rig));
    assert_eq!(rig.deliver(feed(2, "x").as_bytes()), 202);
    rig.settle();
    for (n, misses) in [(2, 0), (3, 1), (4, 2)] {
        rig.clock.advance(3600);
        rig.origin.set(FEED, vec![with_hub(n)]);
        rig.poll();
        assert_eq!(rig.number("SELECT misses FROM subscriptions"), misses);
        assert!((DAY..=DAY * 11 / 10).contains(&next_poll(&rig)), "{n}: {}", next_poll(&rig));
    }
    rig.clock.advance(3600);
    rig.origin.set(FEED, vec![with_hub(5)]);
    rig.poll();
    assert!(next_poll(&rig) < DAY * 9 / 10, "{}", next_poll(&rig));
    assert_eq!(rig.number("SELECT unreliable FROM hub_status"), 1);
    assert_eq!(rig.deliver(feed(6, "x").as_bytes()), 202);
    rig.settle();
    rig.clock.advance(3600);
    rig.origin.set(FEED, vec![with_hub(6)]);
    rig.poll();
    assert!(next_poll(&rig) >= DAY, "{}", next_poll(&rig));
}

#[test]
fn what_is_pushed_is_what_a_poll_would_have_found() {
    let mut rig = Rig::new(&injected(), vec![(FEED, with_hub(3).header("ETag", "\"one\""))]);
    rig.secrets();
    rig.insert(FEED);
    rig.settle();
    let feeds = "SELECT title, url, site_url, etag, last_fetched_at, last_success_at FROM feeds";
    let before = rig.shell.rows(feeds);
    // Another title, fewer entries, one of them new: twice.
    let stub = feed(5, "x").replace("Feed x", "A hub's feed").replace("http://entries.test/x/<", "http://h.test/<");
    let from = stub.find("<item><title>Entry 3").expect("entry 3");
    let stub = format!("{}</channel></rss>", &stub[..from]);
    for _ in 0..2 {
        assert_eq!(rig.deliver(stub.as_bytes()), 202);
        rig.settle();
    }
    assert_eq!(rig.shell.rows(feeds), before);
    assert_eq!(
        rig.shell.column("SELECT arrived_by FROM entries ORDER BY guid"),
        ["fetch", "fetch", "fetch", "push", "push"]
    );
    rig.origin.set(FEED, vec![with_hub(5).header("ETag", "\"two\"")]);
    rig.poll();
    assert_eq!(rig.number("SELECT count(*) FROM entries"), 5);
    assert_eq!(rig.pushed_entries(), 2);
    assert_eq!(rig.origin.if_none_match_seen_by(FEED).as_deref(), Some("\"one\""));
    assert_eq!(
        rig.number("SELECT count(*) FROM deliveries") + rig.number("SELECT count(*) FROM jobs WHERE kind = 'ingest'"),
        0
    );
}

#[test]
fn a_worker_that_is_away_for_an_hour_loses_nothing() {
    let mut rig = Rig::subscribed(&Setup::default());
    for n in 2..=4 {
        assert_eq!(rig.deliver(feed(n, "x").as_bytes()), 202);
    }
    rig.clock.advance(3600);
    assert_eq!((rig.pushed_entries(), rig.number("SELECT count(*) FROM deliveries")), (0, 3));
    rig.worker.run_due();
    assert_eq!((rig.pushed_entries(), rig.number("SELECT count(*) FROM deliveries")), (3, 0));
}

#[test]
fn a_locked_database_has_the_hub_come_again() {
    let rig = Rig::subscribed(&Setup::default());
    rig.shell.run("UPDATE settings SET value = 200 WHERE key = 'callback_wait_ms'");
    no_polls(&rig);
    rig.while_running(|| {
        let lock = rig.shell.lock();
        assert_eq!(rig.deliver(feed(2, "x").as_bytes()), 503);
        drop(lock);
        assert_eq!(rig.deliver(feed(2, "x").as_bytes()), 202);
        wait_until("the entry is there", || rig.pushed_entries() == 1);
        std::thread::sleep(Duration::from_millis(50));
    });
    let statuses: Vec<u16> = rig.cgi.served().iter().filter(|s| s.method == "POST").map(|s| s.status).collect();
    assert_eq!(statuses, [503, 202]);
}

#[test]
fn a_lease_of_a_minute_is_renewed_a_hundred_times() {
    let mut rig = Rig::new(&injected(), vec![(FEED, with_hub(1))]);
    rig.secrets();
    rig.hub.lease(Some(60));
    rig.insert(FEED);
    rig.settle();
    let (callback, secret) = (
        rig.hub.posts()[0].param("hub.callback").map(str::to_string),
        rig.hub.posts()[0].param("hub.secret").map(str::to_string),
    );
    no_polls(&rig);
    while rig.hub.posts().len() <= 100 {
        rig.pass(20);
        let now = rig.clock.now();
        let live = format!("SELECT count(*) FROM subscriptions WHERE state = 'active' AND lease_expires_at > {now}");
        assert_eq!(rig.number(&live), 1, "after {} requests", rig.hub.posts().len());
    }
    for post in rig.hub.posts() {
        assert_eq!((post.param("hub.callback"), post.param("hub.secret")), (callback.as_deref(), secret.as_deref()));
    }
}

#[test]
fn ten_days_pass() {
    let mut rig = Rig::subscribed(&injected());
    assert_eq!(rig.deliver(feed(2, "x").as_bytes()), 202);
    rig.settle();
    let first_end = rig.number("SELECT lease_expires_at FROM subscriptions");
    for _ in 0..10 {
        rig.pass(DAY);
        let left = rig.number("SELECT lease_expires_at FROM subscriptions") - rig.clock.now();
        assert!(left > 3600, "{left}");
    }
    assert!(rig.number("SELECT lease_expires_at FROM subscriptions") > first_end);
    assert_eq!(rig.hub.posts().len(), 2);
    // One as usual, then daily.
    let fetches = rig.number("SELECT count(*) FROM fetches");
    assert!((10..=13).contains(&fetches), "{fetches} polls in ten days");
}

#[test]
fn a_lease_that_ended_while_nobody_was_there_is_asked_for_again_and_the_feed_polled() {
    let mut rig = Rig::subscribed(&injected());
    no_polls(&rig);
    rig.clock.advance(30 * DAY);
    rig.origin.set(FEED, vec![with_hub(3)]);
    rig.settle();
    assert_eq!((rig.states(), rig.number("SELECT count(*) FROM entries")), (vec!["active".to_string()], 3));
    let left = rig.number("SELECT lease_expires_at FROM subscriptions") - rig.clock.now();
    assert!(left > 9 * DAY, "{left}");
}

#[test]
fn the_views_say_how_push_is() {
    let mut rig = Rig::subscribed(&injected());
    assert_eq!(rig.deliver(feed(2, "x").as_bytes()), 202);
    rig.settle();
    let row = &rig.shell.rows("SELECT * FROM subscription_status")[0];
    assert_eq!((&row["feed"], &row["hub"], &row["state"]), (&FEED.into(), &HUB.into(), &"active".into()));
    assert_eq!((&row["good_pushes"], &row["misses"], &row["waiting"]), (&1.into(), &0.into(), &0.into()));
    for time in ["next_step", "lease_ends", "verified", "last_push"] {
        assert!(row[time].as_str().is_some_and(|text| text.starts_with("20")), "{time}: {row:?}");
    }
    rig.shell.run("UPDATE jobs SET run_at = 0 WHERE kind = 'renew'");
    assert_eq!(rig.text("SELECT next_step FROM subscription_status"), "at once");
    let row = &rig.shell.rows("SELECT * FROM hub_status")[0];
    assert_eq!((&row["hub"], &row["active"], &row["unreliable"]), (&HUB.into(), &1.into(), &0.into()));
    let status = |rig: &Rig| Feedmill::new().succeed(&["--db", rig.worker.db.to_str().expect("a path"), "status"]);
    assert!(status(&rig).contains("push      1 active, 0 deliveries waiting"), "{}", status(&rig));
    rig.shell.run("UPDATE settings SET value = '' WHERE key = 'callback_url'");
    assert!(status(&rig).contains("push      off: the setting callback_url is empty; 1 active"), "{}", status(&rig));
}

#[test]
fn without_a_callback_nobody_is_asked_and_with_one_everybody() {
    let mut rig = Rig::new(&Setup { callback: false, ..injected() }, vec![(FEED, with_hub(1))]);
    rig.insert(FEED);
    rig.settle();
    rig.poll();
    assert!(rig.hub.posts().is_empty());
    rig.shell.run(&format!("UPDATE settings SET value = '{}' WHERE key = 'callback_url'", rig.cgi.url()));
    rig.poll();
    assert_eq!(rig.states(), ["active"]);
}
