//! The queue under fire: two workers, lost claims, killed processes, signals, locks.

use crate::support::binary::{Running, wait_until};
use crate::support::mill::{Live, Mill};
use crate::support::origin::Answer;
use feedmill::clock::Clock;
use serde_json::json;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A server for every loopback address on one port: a feed for each request, and how often each path was asked for.
fn everywhere() -> (u16, Arc<Mutex<HashMap<String, usize>>>) {
    let listener = TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let seen: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    for _ in 0..4 {
        let (listener, seen) = (listener.try_clone().expect("a second handle"), seen.clone());
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let mut request = Vec::new();
                let mut some = [0; 2048];
                while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                    match stream.read(&mut some) {
                        Ok(n @ 1..) => request.extend_from_slice(&some[..n]),
                        _ => break,
                    }
                }
                let request = String::from_utf8_lossy(&request).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default().to_string();
                let body = format!(
                    "<rss version='2.0'><channel><title>t</title><item><guid>{path}</guid><title>e</title></item></channel></rss>"
                );
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
                let _ = stream.write_all((head + &body).as_bytes());
                *seen.lock().unwrap().entry(path).or_default() += 1;
            }
        });
    }
    (port, seen)
}

#[test]
fn two_workers_do_ten_thousand_jobs_once_each() {
    let live = Live::new();
    let (port, seen) = everywhere();
    live.shell.run(&format!(
        "WITH n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 9999)
         INSERT INTO feeds(url) SELECT 'http://127.1.' || (i / 250) || '.' || (i % 250 + 1) || ':{port}/' || i FROM n"
    ));
    let workers = [0, 1].map(|_| live.feedmill.spawn(&["run", "--once", "--threads", "16", "--log", "warn"]));
    for worker in workers {
        let output = worker.wait();
        assert!(output.status == Some(0) && !output.stderr.contains("ERROR"), "{}", output.stderr);
    }
    let seen = seen.lock().unwrap();
    assert_eq!((seen.len(), seen.values().filter(|times| **times != 1).count()), (10_000, 0));
    assert_eq!(
        live.count("jobs WHERE attempts = 1 AND claimed_by IS NULL AND last_error IS NULL AND run_at > 0"),
        10_000
    );
    assert_eq!(live.count("fetches WHERE outcome = 'new'"), 10_000);
    assert_eq!(live.shell.value("SELECT count(DISTINCT feed_id) FROM fetches"), 10_000);
    assert_eq!(live.count("entries"), 10_000);
    assert_eq!(std::fs::read_dir(live.feedmill.dir()).unwrap().count(), 1, "the folder is tidy");
}

#[test]
fn a_result_that_comes_after_its_claim_was_lost_is_dropped() {
    let url = "http://a.test/f";
    let mill = Mill::new(vec![(url, Answer::feed(1, "x"))]);
    mill.origin.add(url, Answer::feed(2, "x"));
    let feed = mill.insert(url);
    let shell = mill.shell.clone();
    // As if the claim had run out and another worker had claimed and finished it meanwhile.
    mill.origin.on_request(url, move || {
        shell.run(
            "UPDATE jobs SET attempts = attempts + 1, claimed_by = NULL, claim_expires_at = NULL, run_at = 9999999999",
        );
    });
    mill.run();
    assert_eq!((mill.count("entries"), mill.count("fetches")), (0, 0));
    assert_eq!(mill.of(feed, "last_fetched_at"), json!(null));
    assert_eq!(mill.shell.value("SELECT attempts || ' ' || run_at FROM jobs"), "2 9999999999");
}

#[test]
fn a_job_set_to_zero_during_its_fetch_runs_once_more() {
    let url = "http://a.test/f";
    let mill = Mill::new(vec![(url, Answer::feed(1, "x"))]);
    mill.insert(url);
    mill.run();
    mill.shell.run("UPDATE jobs SET run_at = 1000");
    let shell = mill.shell.clone();
    mill.origin.on_request(url, move || drop(shell.run("UPDATE jobs SET run_at = 0")));
    mill.run();
    assert_eq!(mill.asked(url), 3);
}

#[test]
fn claims_that_ran_out_are_free_again() {
    let url = "http://a.test/f";
    let mill = Mill::new(vec![(url, Answer::feed(1, "x"))]);
    let feed = mill.insert(url);
    // A worker that lives as far as anybody can tell: this one.
    let other = feedmill::worker::alive::LifeSign::new(&mill.db).unwrap();
    let now = mill.clock.now();
    let claim = |expires: &str| {
        mill.shell
            .run(&format!("UPDATE jobs SET claimed_by = '{}', claim_expires_at = {expires}, run_at = 0", other.name()));
    };
    claim(&(now + 60).to_string());
    mill.run();
    assert_eq!(mill.asked(url), 0);
    for (asked, expires) in (1..).zip(["0", "NULL", "9223372036854775807"]) {
        claim(expires);
        mill.run();
        assert_eq!(mill.asked(url), asked, "{expires}");
    }
    assert_eq!(mill.of(feed, "failure_count"), 0);
}

#[test]
fn an_idle_worker_takes_over_from_a_dead_one() {
    let live = Live::new();
    let url = live.serve("/f", Answer::hang());
    live.origin.add(&url, Answer::feed(1, "x"));
    let feed = live.insert(&url);
    let mut first = live.start();
    wait_until("it is asked for", || live.asked(&url) == 1);
    let mut second = live.start();
    first.kill();
    wait_until("the other has fetched it", || live.of(feed, "last_success_at") != json!(null));
    assert!(second.is_running());
    assert_eq!((live.asked(&url), live.of(feed, "failure_count")), (2, json!(0)));
}

#[test]
fn after_a_kill_the_next_worker_goes_on_at_once() {
    let live = Live::new();
    let urls: Vec<String> = (0..3).map(|i| live.serve(&format!("/{i}"), Answer::hang())).collect();
    live.shell.run("UPDATE settings SET value = 8 WHERE key = 'host_concurrency'");
    for url in &urls {
        live.origin.add(url, Answer::feed(1, "x"));
        live.insert(url);
    }
    let mut running = live.start();
    wait_until("all are asked for", || live.origin.requests().len() == 3);
    running.kill();
    wait_until("it is dead", || !running.is_running());
    assert_eq!(live.count("jobs WHERE claimed_by IS NOT NULL"), 3);
    let begun = Instant::now();
    let _running = live.start();
    wait_until("all are fetched", || live.count("feeds WHERE last_success_at IS NOT NULL") == 3);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!(live.count("jobs WHERE attempts = 2"), 3);
    assert_eq!(live.shell.value("PRAGMA integrity_check"), "ok");
}

/// Voluntary context switches and CPU time (in ticks of 10 ms) of all threads of a process.
fn activity(process: u32) -> (u64, u64) {
    let (mut switches, mut ticks) = (0, 0);
    for task in std::fs::read_dir(format!("/proc/{process}/task")).expect("its threads").flatten() {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        switches += line.map_or(0, |number| number.trim().parse::<u64>().expect("a number"));
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        ticks += fields.get(11..13).map_or(0, |two| two.iter().map(|n| n.parse::<u64>().expect("ticks")).sum());
    }
    (switches, ticks)
}

/// What a process does in so many seconds, a second.
fn activity_a_second(running: &Running, seconds: u64) -> (u64, u64) {
    let before = activity(running.id());
    thread::sleep(Duration::from_secs(seconds));
    let after = activity(running.id());
    ((after.0 - before.0) / seconds, (after.1 - before.1) / seconds)
}

#[cfg(target_os = "linux")]
#[test]
fn waiting_costs_next_to_nothing() {
    let live = Live::new();
    let url = live.serve("/f", Answer::feed(1, "x"));
    let feed = live.insert(&url);
    let running = live.start();
    wait_until("it was fetched", || live.of(feed, "last_success_at") != json!(null));
    live.settled();
    // rayon's threads fall asleep by and by.
    wait_until("its threads sleep", || activity_a_second(&running, 1).0 <= 8);
    let (switches, ticks) = activity_a_second(&running, 2);
    assert!(switches <= 8 && ticks <= 2, "idle: {switches} switches, {ticks} ticks a second");

    // The same while jobs wait for the delay of their host.
    live.shell.run("UPDATE settings SET value = 900 WHERE key = 'host_delay_ms'");
    for i in 0..30 {
        live.insert(&live.serve(&format!("/{i}"), Answer::feed(1, "x")));
    }
    wait_until("the first was fetched", || live.count("fetches") > 1);
    let (switches, ticks) = activity_a_second(&running, 3);
    assert!(switches <= 200 && ticks <= 20, "polite: {switches} switches, {ticks} ticks a second");
}

#[test]
fn hosts_get_their_delay_and_no_more_than_so_many_fetches_at_a_time() {
    let live = Live::new();
    live.shell.run("UPDATE settings SET value = 200 WHERE key = 'host_delay_ms'");
    for i in 0..6 {
        live.insert(&live.serve(&format!("/{i}"), Answer::feed(1, "x").delay(Duration::from_millis(700))));
    }
    let begun = Instant::now();
    live.feedmill.succeed(&["run", "--once"]);
    assert!(begun.elapsed() >= Duration::from_millis(5 * 200));
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    let site = format!("http://{}", live.origin.http_addr());
    assert_eq!((live.origin.max_in_flight(&site), live.origin.requests().len()), (2, 6));
}

#[test]
fn once_ends_although_jobs_that_waited_are_gone() {
    let live = Live::new();
    live.shell.run("UPDATE settings SET value = 1500 WHERE key = 'host_delay_ms'");
    let urls: Vec<String> = (0..4).map(|i| live.serve(&format!("/{i}"), Answer::feed(1, "x"))).collect();
    for url in &urls {
        live.insert(url);
    }
    let shell = live.shell.clone();
    live.origin.on_request(&urls[1], move || {
        drop(shell.run("DELETE FROM feeds WHERE id = 3; UPDATE feeds SET state = 'paused' WHERE id = 4"));
    });
    let begun = Instant::now();
    live.feedmill.succeed(&["run", "--once"]);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(live.origin.requests().len(), 2);
}

#[test]
fn a_term_signal_gives_back_what_hangs() {
    let live = Live::new();
    let url = live.serve("/f", Answer::hang());
    let feed = live.insert(&url);
    let running = live.start();
    wait_until("it is asked for", || live.asked(&url) == 1);
    let begun = Instant::now();
    running.terminate();
    let output = running.wait();
    assert_eq!(output.status, Some(0), "{}", output.stderr);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(live.count("jobs WHERE claimed_by IS NULL AND claim_expires_at IS NULL AND run_at = 0"), 1);
    assert_eq!((live.of(feed, "failure_count"), live.count("fetches")), (json!(0), 0));
    assert_eq!(std::fs::read_dir(live.feedmill.dir()).unwrap().count(), 1, "the folder is tidy");
}

#[test]
fn a_term_signal_lets_a_fetch_end() {
    let live = Live::new();
    let url = live.serve("/f", Answer::feed(2, "x").delay(Duration::from_secs(1)));
    live.insert(&url);
    let running = live.start();
    wait_until("it is asked for", || live.asked(&url) == 1);
    running.terminate();
    assert_eq!(running.wait().status, Some(0));
    assert_eq!(live.count("entries"), 2);
}

#[test]
fn a_second_signal_leaves_at_once() {
    let live = Live::new();
    let url = live.serve("/f", Answer::hang());
    live.insert(&url);
    let running = live.start();
    wait_until("it is asked for", || live.asked(&url) == 1);
    let begun = Instant::now();
    running.terminate();
    // Two signals at the same moment are one.
    thread::sleep(Duration::from_millis(100));
    running.terminate();
    assert_eq!(running.wait().status, Some(1));
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[test]
fn a_locked_database_does_not_keep_a_worker_from_ending() {
    let live = Live::new();
    let url = live.serve("/f", Answer::feed(2, "x"));
    live.insert(&url);
    let lock = Arc::new(Mutex::new(None));
    let (shell, taken) = (live.shell.clone(), lock.clone());
    live.origin.on_request(&url, move || *taken.lock().unwrap() = Some(shell.lock()));
    let running = live.start();
    wait_until("it is asked for and locked", || lock.lock().unwrap().is_some());
    let begun = Instant::now();
    running.terminate();
    let output = running.wait();
    assert_eq!(output.status, Some(0), "{}", output.stderr);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(live.count("jobs WHERE claimed_by IS NOT NULL"), 1);

    // Neither does it keep the next one from starting, nor from taking over what the first one held.
    let running = live.start();
    drop(lock.lock().unwrap().take());
    wait_until("it is fetched", || live.count("entries") == 2);
    drop(running);
    assert_eq!(live.asked(&url), 2);
}

#[test]
fn rows_are_noticed_while_others_are_fetched() {
    let live = Live::new();
    let _running = live.start();
    let slow = live.serve("/slow", Answer::hang());
    live.insert(&slow);
    wait_until("it is asked for", || live.asked(&slow) == 1);
    for i in 0..5 {
        let url = live.serve(&format!("/{i}"), Answer::feed(1, "x"));
        let inserted = Instant::now();
        live.insert(&url);
        wait_until("it is asked for", || live.asked(&url) == 1);
        assert!(inserted.elapsed() < Duration::from_secs(1), "{i}: {:?}", inserted.elapsed());
    }
}

#[test]
fn a_clock_that_was_set_back_does_not_stop_the_queue() {
    let url = "http://a.test/f";
    let mill = Mill::new(vec![(url, Answer::feed(1, "x"))]);
    let feed = mill.insert(url);
    mill.run();
    let Clock::Set(_) = &mill.clock else { panic!("a set clock") };
    mill.clock.advance(-400 * 86_400);
    mill.run_after(0);
    assert_eq!((mill.asked(url), mill.of(feed, "failure_count")), (2, json!(0)));
}

#[test]
fn kills_and_edits_leave_every_row_in_order() {
    let live = Live::new();
    live.shell.run("UPDATE settings SET value = 16 WHERE key = 'host_concurrency'");
    let mut urls = Vec::new();
    for i in 0..20 {
        live.serve(&format!("/feed/{i}"), Answer::feed(3, &format!("t{i}")).header("ETag", "\"1\""));
        urls.push(live.serve(&format!("/moved/{i}"), Answer::redirect(301, &format!("/feed/{i}"))));
        urls.push(live.serve(&format!("/moved-too/{i}"), Answer::redirect(308, &format!("/moved/{i}"))));
    }
    live.shell.run(&urls.iter().map(|url| format!("INSERT INTO feeds(url) VALUES('{url}');")).collect::<String>());
    for round in 0..6 {
        let before = live.count("fetches");
        let mut one = live.start();
        let two = live.start();
        wait_until("some are fetched", || live.count("fetches") > before + 3);
        live.shell.run(&format!(
            "UPDATE feeds SET state = 'paused' WHERE id % 6 = {round} AND state = 'active';
             UPDATE feeds SET url = url || '?{round}' WHERE id % 7 = {round} AND state <> 'merged' AND url NOT LIKE '%?%';
             DELETE FROM feeds WHERE id = 30 + {round};
             INSERT OR IGNORE INTO feeds(url) SELECT old_url FROM feed_urls ORDER BY id DESC LIMIT 3;
             UPDATE feeds SET state = 'active' WHERE id % 5 = {round} AND state IN ('paused', 'merged');
             UPDATE jobs SET run_at = 0"
        ));
        one.kill();
        two.terminate();
        assert_eq!(two.wait().status, Some(0));
    }
    live.shell.run("UPDATE jobs SET run_at = 0");
    live.feedmill.succeed(&["run", "--once"]);
    for (wrong, count) in [
        ("claims", "jobs WHERE claimed_by IS NOT NULL OR claim_expires_at IS NOT NULL"),
        (
            "jobs of feeds that are not active",
            "jobs j WHERE kind = 'fetch' AND NOT EXISTS (SELECT 1 FROM feeds f WHERE f.id = j.feed_id AND f.state = 'active')",
        ),
        (
            "active feeds without a job",
            "feeds f WHERE state = 'active' AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.feed_id = f.id)",
        ),
        (
            "entries of no living feed",
            "entries e WHERE NOT EXISTS (SELECT 1 FROM feeds f WHERE f.id = e.feed_id AND f.state <> 'merged')",
        ),
        (
            "merged into nothing",
            "feeds f WHERE state = 'merged' AND NOT EXISTS (SELECT 1 FROM feeds s WHERE s.id = f.merged_into AND s.state <> 'merged')",
        ),
        (
            "two rows of one feed",
            "feeds a JOIN feeds b ON a.url_key = b.url_key AND a.id < b.id WHERE a.state = 'active' AND b.state = 'active'",
        ),
        ("history of no feed", "feed_urls h WHERE NOT EXISTS (SELECT 1 FROM feeds f WHERE f.id = h.feed_id)"),
        ("failures of our own making", "feeds WHERE failure_kind IN ('panic', 'protocol', 'timeout')"),
        ("entries of two feeds under one", "(SELECT feed_id FROM entries GROUP BY feed_id HAVING count(*) > 3)"),
    ] {
        assert_eq!(
            live.count(count),
            0,
            "{wrong}: {:?}",
            live.shell.run("SELECT id, url, state, merged_into FROM feeds")
        );
    }
    assert_eq!(live.shell.value("PRAGMA integrity_check"), "ok");
}

#[test]
fn once_does_all_that_was_due_although_more_becomes_due_meanwhile() {
    let urls = ["http://a.test/1", "http://a.test/2", "http://a.test/3"];
    let mill = Mill::new(urls.iter().map(|url| (*url, Answer::feed(1, "x"))).collect());
    mill.shell.run("UPDATE settings SET value = 1100 WHERE key = 'host_delay_ms'");
    for url in urls {
        mill.insert(url);
    }
    mill.shell.run(&format!(
        "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600)
         INSERT INTO feeds(url) SELECT 'http://b.test/' || i FROM n;
         UPDATE jobs SET run_at = {} WHERE feed_id > 3",
        mill.clock.now() + 1
    ));
    let clock = mill.clock.clone();
    mill.origin.on_request(urls[0], move || clock.advance(60));
    mill.run();
    assert_eq!(mill.origin.urls(), urls);
}
