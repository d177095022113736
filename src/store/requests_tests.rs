//! A feed's subscription from discovery to its end, the hub played by hand.

use super::*;
use crate::push::answer::unreachable;
use crate::rules::lease::State;
use crate::store::deliveries;
use crate::store::open::SCHEMA;
use crate::store::subscriptions::{by_token, store};

const NOW: i64 = 1_800_000_000;

struct Db(Connection);

impl Db {
    /// One active feed, push switched on.
    fn new() -> Db {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(SCHEMA).unwrap();
        connection.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
        connection
            .execute_batch(
                "INSERT INTO feeds(url) VALUES ('https://a.test/f');
                 UPDATE jobs SET run_at = 4000000000;
                 UPDATE settings SET value = 'https://me.test/cb' WHERE key = 'callback_url'",
            )
            .unwrap();
        Db(connection)
    }

    fn run(&self, sql: &str) {
        self.0.execute_batch(sql).unwrap();
    }

    /// The rows of a query, columns joined by a blank.
    fn rows(&self, sql: &str) -> Vec<String> {
        let mut statement = self.0.prepare(sql).unwrap();
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| {
            let cells = (0..columns).map(|i| match row.get_ref(i).unwrap() {
                rusqlite::types::ValueRef::Null => "-".to_string(),
                rusqlite::types::ValueRef::Integer(value) => value.to_string(),
                other => String::from_utf8_lossy(other.as_bytes().unwrap()).into_owned(),
            });
            Ok(cells.collect::<Vec<_>>().join(" "))
        });
        rows.unwrap().collect::<rusqlite::Result<_>>().unwrap()
    }

    fn subscriptions(&self) -> Vec<String> {
        self.rows("SELECT id, state, hub_url, topic_url FROM subscriptions ORDER BY id")
    }

    fn jobs(&self) -> Vec<String> {
        self.rows(&format!("SELECT kind, subscription_id, run_at - {NOW} FROM jobs WHERE kind <> 'fetch' ORDER BY id"))
    }

    fn named(&self, hubs: &[&str], topic: Option<&str>, now: i64) {
        let hubs: Vec<String> = hubs.iter().map(|hub| hub.to_string()).collect();
        let named = Named { hubs: &hubs, topic, fetched_url: "https://a.test/f" };
        discovered(&self.0, 1, &named, true, now).unwrap();
    }

    fn post(&self, id: i64, kind: &str, now: i64) -> (Ask, Box<Ticket>) {
        match begin(&self.0, id, kind, now).unwrap() {
            Begun::Post { ask, ticket, .. } => (ask, ticket),
            Begun::Nothing => panic!("nothing to post: {:?} {:?}", self.subscriptions(), self.jobs()),
        }
    }

    /// The hub's GET, as the callback program takes it.
    fn verify(&self, id: i64, event: Event, now: i64) -> bool {
        let token = &self.rows(&format!("SELECT callback_token FROM subscriptions WHERE id = {id}"))[0];
        let known = by_token(&self.0, token).unwrap().unwrap();
        let Some(step) = lease::step(&known.life, event, now) else { return false };
        store(&self.0, &known, &step, None, now).unwrap().is_some()
    }

    fn subscribed(hubs: &[&str]) -> Db {
        let db = Db::new();
        db.named(hubs, None, NOW);
        let (_, ticket) = db.post(1, "subscribe", NOW);
        finish(&db.0, &ticket, &over(Event::Accepted), false, NOW).unwrap();
        assert!(db.verify(1, Event::VerifySubscribe { lease: 864_000 }, NOW));
        db
    }
}

fn over(event: Event) -> Outcome {
    let hold_hub = if let Event::Failed { retry_after } = event { retry_after } else { None };
    let message = (event != Event::Accepted).then(|| "the hub said no".to_string());
    Outcome { event, message, hold_hub, moved_to: None }
}

#[test]
fn a_named_hub_is_subscribed_to_once() {
    let db = Db::new();
    db.named(&["https://h.test/"], Some("https://a.test/self"), NOW);
    look_after(&db.0, 1, NOW).unwrap();
    db.named(&["https://h.test/"], Some("https://a.test/self"), NOW);
    assert_eq!(db.subscriptions(), ["1 pending https://h.test/ https://a.test/self"]);
    assert_eq!(db.jobs(), ["subscribe 1 0"]);
    let (ask, ticket) = db.post(1, "subscribe", NOW);
    assert_eq!((ask.lease_seconds, ask.secret.as_ref().map(String::len), ask.sync), (Some(864_000), Some(64), false));
    assert!(ask.callback.starts_with("https://me.test/cb/") && ask.callback.len() == 19 + 64);
    assert_eq!(db.rows("SELECT secret FROM subscriptions"), [ask.secret.clone().unwrap()]);
    // Looked at again when the hub should have verified, also if nobody records an answer.
    assert_eq!(db.jobs(), ["subscribe 1 600"]);
    finish(&db.0, &ticket, &over(Event::Accepted), false, NOW + 1).unwrap();
    assert_eq!(db.subscriptions(), ["1 pending https://h.test/ https://a.test/self"]);
    assert!(db.verify(1, Event::VerifySubscribe { lease: 60 }, NOW + 2));
    assert_eq!(db.subscriptions(), ["1 active https://h.test/ https://a.test/self"]);
    assert_eq!(db.jobs(), ["renew 1 32"]);
    assert_eq!(db.rows("SELECT url FROM feeds"), ["https://a.test/f"]);
}

#[test]
fn a_hub_that_verifies_before_it_answers_stays_active() {
    for event in [Event::Accepted, Event::Refused, Event::Failed { retry_after: None }, Event::HubGone] {
        let db = Db::new();
        db.named(&["https://h.test/"], None, NOW);
        let (_, ticket) = db.post(1, "subscribe", NOW);
        assert!(db.verify(1, Event::VerifySubscribe { lease: 86_400 }, NOW));
        finish(&db.0, &ticket, &over(event), false, NOW + 1).unwrap();
        assert_eq!(db.subscriptions(), ["1 active https://h.test/ https://a.test/f"], "{event:?}");
        assert_eq!(db.jobs().len(), 1, "{event:?}");
        assert!(db.jobs()[0].starts_with("renew 1 "), "{event:?}");
    }
}

#[test]
fn without_a_callback_url_nothing_is_asked() {
    let db = Db::new();
    db.run("UPDATE settings SET value = '' WHERE key = 'callback_url'");
    db.named(&["https://h.test/"], None, NOW);
    assert!(db.subscriptions().is_empty());
    // Switched off while one is pending.
    let db = Db::new();
    db.named(&["https://h.test/"], None, NOW);
    db.run("UPDATE settings SET value = '' WHERE key = 'callback_url'");
    assert!(matches!(begin(&db.0, 1, "subscribe", NOW).unwrap(), Begun::Nothing));
    assert!(db.jobs().is_empty());
    // Switched on again, a 304 is enough.
    db.run("UPDATE settings SET value = 'https://me.test/cb' WHERE key = 'callback_url'");
    look_after(&db.0, 1, NOW).unwrap();
    assert_eq!(db.subscriptions().len(), 2);
}

#[test]
fn one_request_to_a_hub_at_a_time_and_a_second_apart() {
    let db = Db::new();
    db.run("INSERT INTO feeds(url) VALUES ('https://a.test/g')");
    db.named(&["https://h.test/"], None, NOW);
    let hubs = ["https://h.test/".to_string()];
    let named = Named { hubs: &hubs, topic: None, fetched_url: "https://a.test/g" };
    discovered(&db.0, 2, &named, true, NOW).unwrap();
    let (_, ticket) = db.post(1, "subscribe", NOW);
    assert!(matches!(begin(&db.0, 2, "subscribe", NOW).unwrap(), Begun::Nothing));
    assert_eq!(db.jobs()[1], "subscribe 2 1");
    finish(&db.0, &ticket, &over(Event::Accepted), false, NOW + 5).unwrap();
    assert!(matches!(begin(&db.0, 2, "subscribe", NOW + 5).unwrap(), Begun::Nothing));
    assert_eq!(db.jobs()[1], "subscribe 2 6");
    let (_, ticket) = db.post(2, "subscribe", NOW + 6);
    finish(&db.0, &ticket, &over(Event::Failed { retry_after: Some(120) }), false, NOW + 6).unwrap();
    assert_eq!(
        db.rows(&format!("SELECT next_request_at - {NOW}, failures, last_error FROM hubs")),
        ["126 1 the hub said no"]
    );
}

#[test]
fn the_ladder_ends_at_the_next_hub() {
    let db = Db::new();
    db.named(&["https://h.test/", "https://i.test/"], Some("https://a.test/self"), NOW);
    let mut forms = vec![];
    for now in (NOW..).step_by(10).take(3) {
        let (ask, ticket) = db.post(1, "subscribe", now);
        forms.push((ask.lease_seconds.is_some(), ask.topic));
        finish(&db.0, &ticket, &over(Event::Refused), false, now).unwrap();
    }
    let (named, fetched) = ("https://a.test/self".to_string(), "https://a.test/f".to_string());
    assert_eq!(forms, [(true, named.clone()), (false, named), (false, fetched)]);
    assert_eq!(
        db.subscriptions(),
        ["1 refused https://h.test/ https://a.test/f", "2 pending https://i.test/ https://a.test/self"]
    );
    assert_eq!(db.rows("SELECT last_error FROM subscriptions WHERE id = 1"), ["the hub said no"]);
    // A day later the second serves the feed, so the first is let go.
    let (_, ticket) = db.post(2, "subscribe", NOW + 40);
    finish(&db.0, &ticket, &over(Event::Accepted), false, NOW + 40).unwrap();
    assert!(matches!(begin(&db.0, 1, "subscribe", NOW + 100_000).unwrap(), Begun::Nothing));
    assert!(db.subscriptions()[0].starts_with("1 ended"));
}

#[test]
fn a_hub_that_refuses_leases_is_remembered() {
    let db = Db::new();
    db.named(&["https://h.test/"], None, NOW);
    let (_, ticket) = db.post(1, "subscribe", NOW);
    finish(&db.0, &ticket, &over(Event::Refused), false, NOW).unwrap();
    let (ask, ticket) = db.post(1, "subscribe", NOW + 1);
    assert_eq!(ask.lease_seconds, None);
    finish(&db.0, &ticket, &over(Event::Accepted), false, NOW + 1).unwrap();
    assert_eq!(db.rows("SELECT hub_url, without_lease FROM hubs"), ["https://h.test/ 1"]);
}

#[test]
fn a_308_moves_the_hub_for_all_its_feeds() {
    let db = Db::new();
    db.named(&["https://h.test/"], None, NOW);
    let (_, ticket) = db.post(1, "subscribe", NOW);
    let moved = Outcome { moved_to: Some("https://h.test/hub2".into()), ..over(Event::Accepted) };
    finish(&db.0, &ticket, &moved, false, NOW).unwrap();
    assert_eq!(db.subscriptions(), ["1 pending https://h.test/hub2 https://a.test/f"]);
    // The feed still names the old address: that is the same hub.
    db.named(&["https://h.test/"], None, NOW);
    assert_eq!(db.subscriptions().len(), 1);
    assert_eq!(db.post(1, "subscribe", NOW + 600).0.hub_url, "https://h.test/hub2");
}

#[test]
fn a_hub_advertised_by_http_is_asked_by_https_first() {
    let db = Db::new();
    db.named(&["http://h.test/"], None, NOW);
    let (ask, ticket) = db.post(1, "subscribe", NOW);
    assert_eq!((ask.hub_url.as_str(), ask.secret.is_some()), ("https://h.test/", true));
    assert!(no_https(&db.0, &ticket, &ask, NOW).unwrap());
    assert_eq!(db.jobs(), ["subscribe 1 1"]);
    let (ask, ticket) = db.post(1, "subscribe", NOW + 1);
    assert_eq!((ask.hub_url.as_str(), ask.secret), ("http://h.test/", None));
    assert_eq!(db.rows("SELECT secret FROM subscriptions"), ["-"]);
    finish(&db.0, &ticket, &over(Event::Accepted), false, NOW + 1).unwrap();
    // It is remembered, and the feed goes on being one subscription.
    db.named(&["http://h.test/"], None, NOW + 2);
    assert_eq!(db.subscriptions(), ["1 pending http://h.test/ https://a.test/f"]);
    // Told to, we give it a secret all the same.
    db.run("UPDATE settings SET value = '1' WHERE key = 'secret_over_http'");
    assert!(db.post(1, "subscribe", NOW + 700).0.secret.is_some());
}

#[test]
fn a_live_subscription_is_never_downgraded_to_http() {
    let db = Db::subscribed(&["http://h.test/"]);
    let (ask, ticket) = db.post(1, "renew", NOW + 500_000);
    assert!(!no_https(&db.0, &ticket, &ask, NOW + 500_000).unwrap());
    finish(&db.0, &ticket, &unreachable("no connection"), false, NOW + 500_000).unwrap();
    assert_eq!(db.subscriptions(), ["1 active https://h.test/ https://a.test/f"]);
}

#[test]
fn a_renewal_keeps_token_and_secret_and_the_live_row() {
    let db = Db::subscribed(&["https://h.test/"]);
    let before = db.rows("SELECT callback_token, secret, lease_expires_at, state FROM subscriptions");
    let (ask, ticket) = db.post(1, "renew", NOW + 500_000);
    assert!(before[0].contains(&ask.secret.clone().unwrap()) && before[0].contains(&ask.callback[19..]));
    finish(&db.0, &ticket, &over(Event::Failed { retry_after: Some(120) }), false, NOW + 500_000).unwrap();
    assert_eq!(db.rows("SELECT callback_token, secret, lease_expires_at, state FROM subscriptions"), before);
    let wait: i64 = db.jobs()[0].strip_prefix("renew 1 ").unwrap().parse().unwrap();
    assert!((120..=180).contains(&(wait - 500_000)), "{wait}");
}

#[test]
fn another_hub_or_topic_is_subscribed_to_before_the_old_is_left() {
    for (hub, topic) in [("https://new.test/", None), ("https://h.test/", Some("https://a.test/moved"))] {
        let db = Db::subscribed(&["https://h.test/"]);
        db.named(&[hub], topic, NOW + 10);
        let topic = topic.unwrap_or("https://a.test/f");
        let (old, new) = ("1 active https://h.test/ https://a.test/f", format!("2 pending {hub} {topic}"));
        assert_eq!(db.subscriptions(), [old, &new]);
        let (ask, ticket) = db.post(2, "subscribe", NOW + 10);
        assert_eq!((ask.mode, ask.topic.as_str()), (Mode::Subscribe, topic));
        finish(&db.0, &ticket, &over(Event::Accepted), false, NOW + 10).unwrap();
        assert!(db.verify(2, Event::VerifySubscribe { lease: 86_400 }, NOW + 11));
        let (ask, ticket) = db.post(1, "unsubscribe", NOW + 20);
        assert_eq!((ask.mode, ask.topic.as_str()), (Mode::Unsubscribe, "https://a.test/f"));
        assert_eq!(ask.hub_url, "https://h.test/");
        finish(&db.0, &ticket, &over(Event::Accepted), false, NOW + 20).unwrap();
        assert!(db.verify(1, Event::VerifyUnsubscribe, NOW + 21));
        assert!(db.subscriptions()[0].starts_with("1 ended") && db.subscriptions()[1].starts_with("2 active"));
        assert_eq!(db.jobs().len(), 1, "{:?}", db.jobs());
    }
}

#[test]
fn a_feed_that_changes_back_keeps_its_live_row() {
    let db = Db::subscribed(&["https://h.test/"]);
    db.named(&["https://new.test/"], None, NOW + 10);
    db.named(&["https://h.test/"], None, NOW + 20);
    let states = db.rows("SELECT state FROM subscriptions ORDER BY id");
    assert_eq!(states, ["active", "unsubscribing"]);
    // The hub never heard of the second.
    assert!(matches!(begin(&db.0, 2, "unsubscribe", NOW + 30).unwrap(), Begun::Nothing));
    assert_eq!(db.rows("SELECT state FROM subscriptions ORDER BY id"), ["active", "ended"]);
}

#[test]
fn a_hub_not_named_in_two_polls_is_left() {
    let db = Db::subscribed(&["https://h.test/"]);
    db.named(&[], None, NOW + 1);
    db.named(&["https://h.test/"], None, NOW + 2);
    db.named(&[], None, NOW + 3);
    let nothing = Named { hubs: &[], topic: None, fetched_url: "https://a.test/f" };
    discovered(&db.0, 1, &nothing, false, NOW + 4).unwrap();
    look_after(&db.0, 1, NOW + 4).unwrap();
    assert_eq!(db.rows("SELECT state FROM subscriptions"), ["active"]);
    db.named(&[], None, NOW + 5);
    assert_eq!(db.rows("SELECT state FROM subscriptions"), ["unsubscribing"]);
}

#[test]
fn the_users_hub_goes_before_the_feeds() {
    let db = Db::new();
    db.run("UPDATE feeds SET hub_url = 'https://mine.test/'");
    assert_eq!(db.rows("SELECT run_at FROM jobs WHERE kind = 'fetch'"), ["0"]);
    db.named(&[], Some("https://a.test/self"), NOW);
    assert_eq!(db.subscriptions(), ["1 pending https://mine.test/ https://a.test/self"]);
    db.named(&["https://h.test/"], Some("https://a.test/self"), NOW);
    db.named(&[], Some("https://a.test/self"), NOW);
    db.named(&[], Some("https://a.test/self"), NOW);
    assert_eq!(db.subscriptions(), ["1 pending https://mine.test/ https://a.test/self"]);
}

#[test]
fn a_feed_that_is_stopped_merged_or_edited_is_unsubscribed() {
    for sql in [
        "UPDATE feeds SET state = 'paused'",
        "UPDATE feeds SET state = 'merged', merged_into = 9",
        "UPDATE feeds SET url = 'https://b.test/'",
        "DELETE FROM feeds",
    ] {
        let db = Db::subscribed(&["https://h.test/"]);
        db.run(sql);
        assert_eq!(db.rows("SELECT state FROM subscriptions"), ["unsubscribing"], "{sql}");
        assert_eq!(db.jobs(), [format!("unsubscribe 1 {}", -NOW)], "{sql}");
    }
}

#[test]
fn deliveries_are_read_and_count_as_good_pushes() {
    let db = Db::subscribed(&["https://h.test/"]);
    db.run(
        "INSERT INTO deliveries(subscription_id, received_at, body) VALUES (1, 1, x'aaaa'), (1, 2, x'bbbb'), (1, 3, x'cc');
         INSERT INTO jobs(kind, feed_id, subscription_id) VALUES ('ingest', 1, 1);
         UPDATE subscriptions SET misses = 3",
    );
    let first = deliveries::waiting(&db.0, 1, 4).unwrap();
    let ids: Vec<i64> = first.deliveries.iter().map(|delivery| delivery.id).collect();
    assert_eq!((first.feed_id, ids.as_slice()), (Some(1), &[1, 2][..]));
    assert!(deliveries::applied(&db.0, 1, &ids, 2, NOW).unwrap());
    assert_eq!(db.rows("SELECT good_pushes, misses FROM subscriptions"), ["2 0"]);
    assert_eq!(db.rows("SELECT run_at FROM jobs WHERE kind = 'ingest'"), ["0"]);
    // Signed, but no feed: a hint.
    assert_eq!(deliveries::waiting(&db.0, 1, 0).unwrap().deliveries.len(), 1);
    assert!(!deliveries::applied(&db.0, 1, &[3], 0, NOW).unwrap());
    assert_eq!(db.rows("SELECT run_at FROM jobs WHERE kind = 'fetch'"), ["0"]);
    assert_eq!(db.rows("SELECT count(*) FROM jobs WHERE kind = 'ingest'"), ["0"]);
    assert_eq!(lease::pushed_poll(&health(&db.0, 1).unwrap().unwrap(), NOW), Some(86_400));
}

#[test]
fn three_misses_end_the_trust_in_a_hub() {
    let db = Db::subscribed(&["https://h.test/"]);
    db.run("UPDATE subscriptions SET good_pushes = 1");
    // Entries from before the subscription are no misses.
    missed(&db.0, 1, None, NOW + 1).unwrap();
    missed(&db.0, 1, Some(NOW - 1), NOW + 1).unwrap();
    for misses in 0..=3 {
        let polled = lease::pushed_poll(&health(&db.0, 1).unwrap().unwrap(), NOW + 1);
        assert_eq!(polled.is_some(), misses < 3, "{misses}");
        missed(&db.0, 1, Some(NOW), NOW + 1).unwrap();
    }
    assert_eq!(db.rows("SELECT misses, unreliable FROM hub_status"), ["4 1"]);
}

#[test]
fn tombstones_go_after_thirty_days_and_lost_jobs_return() {
    let db = Db::subscribed(&["https://h.test/"]);
    db.run("DELETE FROM jobs WHERE kind = 'renew'");
    assert_eq!(tidy(&db.0, NOW).unwrap(), 0);
    assert_eq!(db.jobs(), ["renew 1 0"]);
    db.run("DELETE FROM feeds");
    assert!(db.verify(1, Event::VerifyUnsubscribe, NOW));
    assert_eq!(db.rows("SELECT state, ended_at FROM subscriptions"), [format!("ended {NOW}")]);
    assert_eq!(tidy(&db.0, NOW + lease::TOMBSTONE).unwrap(), 0);
    assert_eq!(tidy(&db.0, NOW + lease::TOMBSTONE + 1).unwrap(), 1);
    assert!(db.jobs().is_empty());
}

#[test]
fn a_job_that_was_left_behind_goes() {
    let db = Db::subscribed(&["https://h.test/"]);
    db.run("INSERT INTO jobs(kind, feed_id, subscription_id) VALUES ('subscribe', 1, 1), ('renew', 1, 99)");
    assert!(matches!(begin(&db.0, 1, "subscribe", NOW + 9).unwrap(), Begun::Nothing));
    assert!(matches!(begin(&db.0, 99, "renew", NOW + 9).unwrap(), Begun::Nothing));
    assert_eq!(db.jobs().len(), 1);
    assert_eq!(by_token(&db.0, "none").unwrap().map(|known| known.life.state), None::<State>);
}

#[test]
fn a_thousand_requests_to_one_hub_get_a_second_each() {
    let db = Db::new();
    for id in 1..=1000 {
        db.run(&format!(
            "INSERT OR IGNORE INTO feeds(id, url) VALUES ({id}, 'https://a.test/{id}');
             INSERT INTO subscriptions(id, feed_id, hub_url, topic_url) VALUES ({id}, {id}, 'https://h.test/', 't');
             INSERT INTO jobs(kind, feed_id, subscription_id) VALUES ('subscribe', {id}, {id})"
        ));
    }
    let (mut posts, mut looked_at) = (0, 0);
    for now in NOW..NOW + 1100 {
        let due = format!("SELECT subscription_id FROM jobs WHERE kind = 'subscribe' AND run_at <= {now}");
        for id in db.rows(&due) {
            looked_at += 1;
            if let Begun::Post { ticket, .. } = begin(&db.0, id.parse().unwrap(), "subscribe", now).unwrap() {
                posts += 1;
                let outcome = Outcome { event: Event::HubGone, ..over(Event::Accepted) };
                finish(&db.0, &ticket, &outcome, false, now).unwrap();
            }
        }
    }
    assert_eq!(posts, 1000);
    assert!(looked_at < 2500, "{looked_at}");
}
