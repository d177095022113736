//! The database file: two ways to make it, what is refused untouched, plans, and what a hostile client may write.

use crate::support::binary::{Feedmill, wait_until};
use crate::support::mill::Live;
use crate::support::origin::Answer;
use crate::support::shell::Sqlite3Shell;
use feedmill::store::jobs;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

#[test]
fn the_shell_and_init_make_the_same_database() {
    let feedmill = Feedmill::new();
    feedmill.succeed(&["init"]);
    let ours = Sqlite3Shell::new(&feedmill.db());
    let shells = Sqlite3Shell::create(&feedmill.dir().join("shell.db"));
    for sql in [
        "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name",
        "SELECT * FROM settings ORDER BY key",
        "SELECT * FROM sqlite_sequence ORDER BY name",
        "PRAGMA application_id",
        "PRAGMA user_version",
        "PRAGMA journal_mode",
        "PRAGMA page_size",
        "PRAGMA encoding",
        "PRAGMA auto_vacuum",
    ] {
        assert_eq!(ours.rows(sql), shells.rows(sql), "{sql}");
    }
    assert_eq!(
        (ours.value("PRAGMA application_id"), ours.value("PRAGMA user_version")),
        (json!(0x666d_696c), json!(1))
    );
    assert_eq!(ours.value("PRAGMA integrity_check"), "ok");
    // Either is opened by the program, and init changes nothing about it.
    assert!(feedmill.succeed(&["--db", "shell.db", "init"]).contains("up to date"));
    feedmill.succeed(&["--db", "shell.db", "status"]);
}

#[test]
fn every_table_is_strict_and_every_view_can_be_read() {
    let live = Live::new();
    let lax = live.shell.column(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND strict = 0
           AND name NOT LIKE 'sqlite%'",
    );
    assert_eq!(lax, Vec::<Value>::new());
    live.insert("http://a.test/f");
    live.shell.run(
        "INSERT INTO subscriptions(feed_id, hub_url, topic_url) VALUES (1, 'http://hub.test/', 't');
         INSERT INTO hubs(hub_url, next_request_at) VALUES ('http://hub.test/', 9999999999)",
    );
    for view in live.shell.column("SELECT name FROM sqlite_schema WHERE type = 'view'") {
        let view = view.as_str().unwrap();
        assert_eq!(live.shell.rows(&format!("SELECT * FROM {view}")).len(), 1, "{view}");
    }
    assert_eq!(live.shell.value("SELECT condition FROM feed_status"), "not fetched yet");
}

/// Every file with its bytes, but for what SQLite keeps beside a database while it is open.
fn bytes(path: &Path) -> Option<Vec<u8>> {
    std::fs::read(path).ok()
}

#[test]
fn what_is_not_ours_is_refused_untouched() {
    let feedmill = Feedmill::new();
    let path = |name: &str| feedmill.dir().join(name);
    Sqlite3Shell::new(&path("foreign.db")).run("CREATE TABLE feeds(id INTEGER PRIMARY KEY, url TEXT)");
    Sqlite3Shell::new(&path("foreign-wal.db")).run("PRAGMA journal_mode = WAL; CREATE TABLE t(x)");
    Sqlite3Shell::new(&path("other-id.db"))
        .run("PRAGMA application_id = 7; PRAGMA user_version = 1; CREATE TABLE t(x)");
    Sqlite3Shell::create(&path("newer.db")).run("PRAGMA user_version = 99");
    std::fs::write(path("garbage.db"), "not a database, however long it may be. ".repeat(200)).unwrap();
    std::fs::write(path("short.db"), "x").unwrap();
    let mut damaged = bytes(&path("newer.db")).unwrap();
    damaged.truncate(600);
    std::fs::write(path("cut.db"), damaged).unwrap();
    std::fs::create_dir(path("folder.db")).unwrap();
    for (name, says) in [
        ("foreign.db", "not a feedmill database"),
        ("foreign-wal.db", "not a feedmill database"),
        ("other-id.db", "not a feedmill database"),
        ("newer.db", "version 99"),
        ("garbage.db", "not a feedmill database"),
        ("short.db", "not a feedmill database"),
        ("cut.db", ""),
        ("folder.db", ""),
    ] {
        let before = bytes(&path(name));
        for args in
            [&["init"][..], &["run"], &["run", "--once"], &["status"], &["add", "http://a.test/"], &["revert", "1"]]
        {
            let output = feedmill.run(&[&["--db", name], args].concat());
            assert_eq!(output.status, Some(1), "{name} {args:?}: {}", output.stderr);
            assert_eq!(
                (output.stderr.lines().count(), output.stdout.as_str()),
                (1, ""),
                "{name} {args:?}: {}",
                output.stderr
            );
            assert!(output.stderr.contains(name) && output.stderr.contains(says), "{name} {args:?}: {}", output.stderr);
            assert!(bytes(&path(name)) == before, "{name} {args:?} changed the file");
        }
    }
}

#[test]
fn a_missing_or_empty_file_is_made_by_init_only() {
    let feedmill = Feedmill::new();
    std::fs::write(feedmill.dir().join("empty.db"), "").unwrap();
    for name in ["missing.db", "empty.db"] {
        for args in [&["run", "--once"][..], &["status"], &["add", "http://a.test/"]] {
            let output = feedmill.run(&[&["--db", name], args].concat());
            assert_eq!(output.status, Some(1), "{name} {args:?}");
            assert!(output.stderr.contains(name) && output.stderr.contains("init"), "{}", output.stderr);
        }
    }
    assert_eq!(bytes(&feedmill.dir().join("missing.db")), None);
    assert_eq!(bytes(&feedmill.dir().join("empty.db")), Some(Vec::new()));
    for name in ["missing.db", "empty.db", "no/such/folder.db"] {
        let output = feedmill.run(&["--db", name, "init"]);
        assert_eq!(output.status, Some(i32::from(name.contains('/'))), "{}", output.stderr);
        assert_eq!(output.stderr.lines().count(), usize::from(name.contains('/')), "{}", output.stderr);
    }
    feedmill.succeed(&["--db", "empty.db", "run", "--once"]);
}

#[test]
fn the_queue_is_read_by_its_partial_indexes() {
    let feedmill = Feedmill::new();
    let shell = Sqlite3Shell::create(&feedmill.db());
    for analyzed in [false, true] {
        if analyzed {
            shell.run(
                "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
                 INSERT INTO feeds(url) SELECT 'http://a.test/' || i FROM n;
                 UPDATE jobs SET run_at = id * 1000000; ANALYZE",
            );
        }
        let plan = |sql: &str| {
            let sql = sql.replace("?1", "5").replace("?2", "6");
            shell.run(&format!("EXPLAIN QUERY PLAN {sql}")).join("\n")
        };
        let due = plan(jobs::due_sql());
        assert!(due.contains("INDEX jobs_due (run_at<?)") && !due.contains("B-TREE"), "{due}");
        let next = plan(jobs::NEXT_DUE);
        assert!(next.contains("INDEX jobs_due"), "{next}");
        let sweep = plan(jobs::SWEEP_EXPIRED);
        assert!(sweep.contains("jobs_claimed") && !sweep.contains("B-TREE"), "{sweep}");
    }
}

#[test]
fn every_setting_has_its_range() {
    let feedmill = Feedmill::new();
    let shell = Sqlite3Shell::create(&feedmill.db());
    let settings = shell.rows("SELECT key, value, description FROM settings");
    assert!(settings.len() >= 21, "{}", settings.len());
    for setting in &settings {
        let (key, value) = (setting["key"].as_str().unwrap(), setting["value"].as_str().unwrap());
        let set = |value: &str| shell.try_run(&format!("UPDATE settings SET value = {value} WHERE key = '{key}'"));
        set(&format!("'{value}'")).unwrap_or_else(|error| panic!("{key}: {error}"));
        assert!(!setting["description"].as_str().unwrap().is_empty());
        let wrong: &[&str] = match key {
            "callback_url" => &["'ftp://a.test'", "'http://a.test/'", "'http://a.test?x'", "'http://a b'", "'x'"],
            "contact" => &["'a' || char(10)", "'ä'", "'a)'"],
            "allow_addresses" => &["'a;b'", "'ä'", "'%'"],
            _ => &[
                "-1",
                "''",
                "'x'",
                "'1e3'",
                "1.5",
                "999999999999",
                "9999999999999999999999",
                "' 1'",
                "char(0)",
                "'1' || char(0)",
            ],
        };
        for wrong in wrong {
            let error = set(wrong).expect_err(&format!("{key} = {wrong}"));
            assert!(error.contains(key) || error.contains("settings: value must be"), "{key} = {wrong}: {error}");
        }
        set("NULL").unwrap_err();
        assert_eq!(shell.value(&format!("SELECT value FROM settings WHERE key = '{key}'")), json!(value), "{key}");
    }
    for (sql, says) in [
        ("DELETE FROM settings WHERE key = 'threads'", "cannot be deleted"),
        ("DELETE FROM settings", "cannot be deleted"),
        ("INSERT INTO settings VALUES ('nonsense', '1', '')", "no such setting"),
        ("INSERT OR REPLACE INTO settings VALUES ('threads', '9999', '')", "use UPDATE"),
        ("UPDATE settings SET key = 'x' WHERE key = 'threads'", "key cannot be changed"),
        ("UPDATE OR REPLACE settings SET key = 'threads' WHERE key = 'contact'", "key cannot be changed"),
    ] {
        let error = shell.try_run(sql).unwrap_err();
        assert!(error.contains(says), "{sql}: {error}");
    }
}

#[test]
fn nothing_a_client_writes_stops_the_worker() {
    let live = Live::new();
    let mut running = live.start();
    for refused in [
        "INSERT INTO feeds(url) VALUES (x'ff00fe')",
        "INSERT INTO feeds(url) VALUES (NULL)",
        "INSERT INTO feeds(url, state) VALUES ('http://a.test/', 'nonsense')",
        "INSERT INTO feeds(url, interval_seconds) VALUES ('http://a.test/', -5)",
        "INSERT INTO feeds(url, keep_url) VALUES ('http://a.test/', 2)",
        "INSERT INTO feeds(url, title) VALUES ('http://a.test/', x'00')",
        "INSERT INTO jobs(kind, run_at) VALUES ('fetch', datetime('now'))",
        "INSERT INTO jobs(kind) VALUES ('nonsense')",
        "INSERT INTO pending_moves(feed_id, target_url, first_seen_at, why, target_host, approved) VALUES (1, 'u', 0, 'w', 'h', 7)",
    ] {
        live.shell.try_run(refused).expect_err(refused);
    }
    let first = live.serve("/first", Answer::redirect(301, "/target"));
    live.serve("/target", Answer::feed(3, "x"));
    for odd in [
        "INSERT INTO feeds(url) VALUES ('')",
        "INSERT INTO feeds(url) VALUES ('http://a.test/' || char(0) || 'x')",
        "INSERT INTO feeds(url) VALUES (char(0))",
        "INSERT INTO feeds(url) VALUES (CAST(x'ff00fe41' AS TEXT))",
        "INSERT INTO feeds(url) VALUES (CAST(x'687474703a2f2f612e746573742fff' AS TEXT))",
        "INSERT INTO feeds(url) VALUES ('http://' || replace(hex(zeroblob(1000000)), '0', 'a'))",
        "INSERT INTO feeds(url) VALUES ('\u{1f600}'), ('http://\u{1f600}.test/'), ('javascript:alert(1)'), ('file:///etc/passwd')",
        "INSERT INTO feeds(id, url) VALUES (-5, 'ftp://a.test/')",
        "INSERT INTO feeds(id, url, state) VALUES (9000, 'http://b.invalid/', 'merged')",
        "INSERT INTO feeds(url, state, merged_into) VALUES ('http://c.invalid/', 'merged', 9000)",
        "UPDATE feeds SET merged_into = (SELECT id FROM feeds WHERE url = 'http://c.invalid/') WHERE id = 9000",
        "INSERT INTO feeds(url, created_at, failure_count) VALUES ('http://127.0.0.1:1/x', -9000000000000000000, -3)",
        "INSERT INTO feeds(url, title, etag, validators_url) VALUES ('http://127.0.0.1:1/y', CAST(x'fe' AS TEXT), CAST(x'0d0a' AS TEXT), 'http://127.0.0.1:1/y')",
        "INSERT INTO jobs(kind, feed_id, run_at) VALUES ('fetch', 4711, -9223372036854775808)",
        "INSERT INTO jobs(kind, feed_id) VALUES ('fetch', NULL)",
        "INSERT INTO jobs(kind, subscription_id) VALUES ('subscribe', 12), ('renew', NULL), ('ingest', -1)",
        "INSERT INTO jobs(kind, feed_id, attempts) VALUES ('fetch', 4712, 9223372036854775807)",
        "UPDATE jobs SET attempts = 9223372036854775807 WHERE feed_id = (SELECT id FROM feeds WHERE url LIKE '%:1/x')",
        "UPDATE feeds SET failing_since = -9223372036854775808, rewritten_at = -9223372036854775808, failure_count = 9223372036854775807 WHERE url LIKE '%:1/y'",
        "UPDATE jobs SET run_at = 0",
        "INSERT INTO jobs(kind, feed_id, claimed_by, claim_expires_at) VALUES ('fetch', 4713, '../../x', 9223372036854775807)",
        "INSERT INTO jobs(kind, feed_id, claimed_by, claim_expires_at) VALUES ('fetch', 4714, CAST(x'ff' AS TEXT), NULL)",
        "INSERT INTO hosts VALUES ('x', 9223372036854775807, 'r'), (CAST(x'ff' AS TEXT), 9223372036854775807, 'r')",
        "INSERT INTO held_targets VALUES (1, CAST(x'ff' AS TEXT), -1)",
        "UPDATE settings SET value = '10.0.0.0/99 [ ] :' WHERE key = 'allow_addresses'",
    ] {
        live.shell.try_run(odd).unwrap_or_else(|error| panic!("{odd}: {error}"));
    }
    let feed = live.insert(&first);
    live.shell.run(&format!(
        "INSERT INTO feed_urls(feed_id, old_url, new_url, reason, changed_at) VALUES ({feed}, CAST(x'ff' AS TEXT), '', 'moved', -1);
         INSERT INTO entries(feed_id, guid, title, first_seen_at, changed_at) VALUES ({feed}, CAST(x'ff' AS TEXT), CAST(x'fe' AS TEXT), -1, 9223372036854775807);
         INSERT INTO entries(feed_id, guid, title, published_at, first_seen_at, changed_at) VALUES ({feed}, 'g', 't', -9223372036854775808, 0, 0)",
    ));
    wait_until("the sound feed was fetched", || live.of(feed, "last_success_at") != json!(null));
    live.settled();
    assert!(running.is_running(), "{}", running.stderr_so_far());
    assert_eq!(live.count(&format!("entries WHERE feed_id = {feed} AND arrived_by = 'fetch'")), 5);
    assert_eq!(live.count("feeds WHERE state = 'invalid' AND failure_message IS NULL"), 0);
    assert!(live.count("feeds WHERE state = 'invalid'") >= 8);
    live.feedmill.succeed(&["status"]);
    let status: Value = serde_json::from_str(&live.feedmill.succeed(&["status", "--json"])).unwrap();
    assert!(status["feeds"]["invalid"].as_i64().unwrap() >= 8);
}

#[test]
fn replaced_rows_leave_harmless_orphans() {
    let live = Live::new();
    let url = live.serve("/f", Answer::feed(2, "x"));
    let first = live.insert(&url);
    live.feedmill.succeed(&["run", "--once"]);
    live.shell.run(&format!("INSERT OR REPLACE INTO feeds(url) VALUES ('{url}')"));
    live.shell.run("UPDATE jobs SET run_at = 0");
    live.feedmill.succeed(&["run", "--once"]);
    let second = live.shell.value("SELECT id FROM feeds").as_i64().unwrap();
    assert_ne!(first, second);
    assert_eq!(live.count(&format!("entries WHERE feed_id = {second}")), 2);
    assert_eq!(live.count(&format!("jobs WHERE feed_id <> {second}")), 0);
    assert_eq!(live.asked(&url), 2);
}

#[test]
fn the_schema_keeps_to_its_floor() {
    let schema = include_str!("../../schema.sql");
    for newer in ["->>", "unixepoch()", "octet_length", " IS DISTINCT FROM", "FULL JOIN", "RETURNING", "concat("] {
        assert!(!schema.contains(newer), "{newer} is not in SQLite 3.37");
    }
    let made = Command::new("sqlite3").arg(":memory:").arg("SELECT 1").output().unwrap();
    assert!(made.status.success());
}
