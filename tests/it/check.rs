//! `feedmill check`: every fault is named, and the command it prints mends it.

use crate::support::binary::Feedmill;
use crate::support::shell::Sqlite3Shell;
use crate::support::webserver::{Kind, OWNER, Server, Site};
use std::process::{Command, Output};

/// What `check` printed.
struct Report {
    code: Option<i32>,
    lines: Vec<String>,
}

impl Report {
    fn of(output: &Output) -> Report {
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect();
        Report { code: output.status.code(), lines }
    }

    fn is_well(&self) -> bool {
        self.code == Some(0) && self.lines.last().is_some_and(|line| line == "all is well")
    }

    /// The only fault: its text holds `what`. The command that mends it.
    fn fault(&self, what: &str) -> String {
        let wrong: Vec<&String> = self.lines.iter().filter(|line| line.starts_with("WRONG")).collect();
        assert_eq!((self.code, wrong.len()), (Some(1), 1), "{what}: {:#?}", self.lines);
        let (said, mend) = wrong[0].split_once("; mend it with: ").unwrap();
        assert!(said.contains(what), "{what}: {said}");
        mend.to_string()
    }
}

fn shell(command: &str) {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{command}: {output:?}");
}

fn check(program: &Feedmill) -> Report {
    let output = Command::new(env!("CARGO_BIN_EXE_feedmill")).arg("--db").arg(program.db()).arg("check").output();
    Report::of(&output.unwrap())
}

#[test]
fn a_new_database_is_well() {
    let program = Feedmill::new();
    program.succeed(&["init"]);
    let report = check(&program);
    assert!(report.is_well(), "{:#?}", report.lines);
    for subject in ["database", "invariants", "settings", "permissions"] {
        assert!(report.lines.iter().any(|line| line.starts_with(&format!("ok     {subject}: "))), "{subject}");
    }
}

#[test]
fn broken_rows_are_named_and_mended() {
    let program = Feedmill::new();
    program.succeed(&["init"]);
    let db = Sqlite3Shell::new(&program.db());
    db.run(
        "INSERT INTO feeds(url) VALUES ('http://a.test/'), ('http://b.test/');
         INSERT INTO subscriptions(feed_id, hub_url, topic_url) VALUES (1, 'http://h.test/', 'http://a.test/')",
    );
    for (what, sql) in [
        ("every active feed has a fetch job", "DELETE FROM jobs WHERE feed_id = 1"),
        ("only active feeds have a fetch job", "INSERT INTO jobs(kind, feed_id) VALUES ('fetch', 99)"),
        ("every job of a hub", "INSERT INTO jobs(kind, subscription_id) VALUES ('renew', 99)"),
        ("a claim names its worker", "UPDATE jobs SET claimed_by = '1-1' WHERE feed_id = 1"),
        ("a claim names", "UPDATE jobs SET claimed_by = '1-1', claim_expires_at = 4000000000 WHERE feed_id = 1"),
        ("a merged feed points", "UPDATE feeds SET state = 'merged', merged_into = 99 WHERE id = 2"),
        (
            "every entry has its feed",
            "INSERT INTO entries(feed_id, guid, first_seen_at, changed_at) VALUES (99, 'x', 1, 1)",
        ),
        ("every enclosure", "INSERT INTO enclosures(entry_id, url) VALUES (99, 'x')"),
        ("in the history", "INSERT INTO feed_urls VALUES (1, 99, 'a', 'b', 'moved', NULL, 1)"),
        (
            "waiting move",
            "INSERT INTO pending_moves(feed_id, target_url, first_seen_at, why, target_host) VALUES (99, 'x', 1, 'x', 'x')",
        ),
        ("held target", "INSERT INTO held_targets VALUES (99, 'x', 1)"),
        ("discovered feed", "INSERT INTO discovered_feeds VALUES (99, 'x', NULL, NULL, 1)"),
        ("every hub that a feed names", "INSERT INTO feed_hubs VALUES (99, 1, 'x', 'x', 'x')"),
        ("every subscription", "UPDATE subscriptions SET feed_id = 99"),
        (
            "every delivery has its subscription",
            "INSERT INTO deliveries(subscription_id, received_at, body) VALUES (99, 1, x'00')",
        ),
        ("every delivery has a job", "INSERT INTO deliveries(subscription_id, received_at, body) VALUES (1, 1, x'00')"),
        (
            "min_interval_s (7200) is above",
            "UPDATE settings SET value = CASE key WHEN 'min_interval_s' THEN '7200' ELSE '3600' END WHERE key GLOB 'm*_interval_s'",
        ),
        ("allow_addresses", "UPDATE settings SET value = 'a/b/c' WHERE key = 'allow_addresses'"),
        ("journal mode", "PRAGMA journal_mode = DELETE"),
    ] {
        db.run(sql);
        shell_quietly(&check(&program).fault(what));
        let report = check(&program);
        assert!(report.is_well(), "{what}: {:#?}", report.lines);
    }
}

fn shell_quietly(command: &str) {
    assert!(command.starts_with("sqlite3 "), "{command}");
    shell(command);
}

#[test]
fn files_that_are_no_database_of_ours() {
    let program = Feedmill::new();
    let mend = check(&program).fault("there is no database");
    assert_eq!(mend, format!("feedmill --db {} init", program.db().display()));
    program.succeed(&["init"]);
    Sqlite3Shell::new(&program.db()).run("PRAGMA user_version = 99");
    check(&program).fault("version 99");
    std::fs::remove_file(program.db()).unwrap();
    std::fs::write(program.db(), "this is a text and no database, whatever its name says").unwrap();
    check(&program).fault("is not a feedmill database");
}

#[test]
fn permissions_are_named_and_mended() {
    let site = Site::new();
    site.sql(OWNER, "UPDATE settings SET value = 'http://127.0.0.1:9/feedmill' WHERE key = 'callback_url'");
    let report = Report::of(&site.feedmill(&["check"]));
    assert!(report.is_well(), "{:#?}", report.lines);
    let (folder, db) = (site.path("db"), site.db());
    let (folder, db) = (folder.display(), db.display());
    for (what, command) in [
        ("has mode 2755", format!("chmod 0755 {folder}")),
        ("has mode 770", format!("chmod 0770 {folder} && chmod g-s {folder}")),
        ("has mode 2750", format!("chmod 2750 {folder}")),
        ("has mode 640", format!("chmod 0640 {db}")),
        ("has mode 664", format!("chmod 0664 {db}")),
        ("belongs to the group www-data", format!("chgrp www-data {db}")),
        ("belongs to root", format!("chown root {db}")),
        ("belongs to root's group", format!("chgrp root {folder}")),
    ] {
        shell(&command);
        // As root, who can open it all the same: a -wal made now is given what the file has.
        let look = || {
            let output = Command::new(site.path("feedmill")).arg("--db").arg(site.db()).arg("check").output();
            Report::of(&output.unwrap())
        };
        for _ in 0..3 {
            let report = look();
            if report.is_well() {
                break;
            }
            let wrong = report.lines.iter().find(|line| line.starts_with("WRONG")).unwrap();
            let mend = wrong.split_once("; mend it with: ").unwrap().1;
            if report.lines.iter().filter(|line| line.starts_with("WRONG")).count() == 1 {
                report.fault(what);
            }
            // The recipe names the usual place.
            shell(mend);
        }
        let report = look();
        assert!(report.is_well(), "{command}: {:#?}", report.lines);
        site.sql(OWNER, "UPDATE feeds SET folder = 'x'");
        site.sql("www-data", "UPDATE feeds SET folder = 'y'");
    }
}

fn callback(site: &Site, url: &str) -> Report {
    site.sql(OWNER, &format!("UPDATE settings SET value = '{url}' WHERE key = 'callback_url'"));
    let report = Report::of(&site.feedmill(&["check", "--callback"]));
    let left =
        "SELECT (SELECT count(*) FROM subscriptions) + (SELECT count(*) FROM deliveries) + (SELECT count(*) FROM jobs)";
    assert_eq!(site.sql(OWNER, left), "0", "the probe leaves nothing: {:#?}", report.lines);
    report
}

#[test]
fn a_callback_that_works_behind_every_server() {
    for kind in [Kind::Lighttpd, Kind::Nginx, Kind::Apache, Kind::Caddy, Kind::Busybox] {
        let site = Site::new();
        let server = site.serve(kind);
        let report = callback(&site, &server.callback_url());
        assert!(report.is_well(), "{kind:?}: {:#?} {}", report.lines, server.log());
        assert!(report.lines.iter().any(|line| line.contains("8388096 bytes is taken")), "{:#?}", report.lines);
    }
}

#[test]
fn what_is_wrong_with_a_callback_is_said() {
    let site = Site::new();
    assert!(callback(&site, "").fault("callback_url is empty").contains("UPDATE settings"));
    callback(&site, "http://127.0.0.1:1/feedmill").fault("no connection to 127.0.0.1:1");
    callback(&site, "http://no-such-name.invalid/feedmill").fault("no-such-name.invalid");

    let edited = |find: &'static str, by: &'static str| -> Server {
        site.serve_edited(Kind::Nginx, &move |text| {
            assert!(text.contains(find), "{find}");
            text.replace(find, by)
        })
    };
    let server = edited("client_max_body_size 9m;", "");
    let mend = callback(&site, &server.callback_url()).fault("refuses a delivery of 8388096 bytes (413)");
    assert!(mend.contains("client_max_body_size 9m;"), "{mend}");
    let elsewhere = server.callback_url().replace("/feedmill", "/elsewhere");
    callback(&site, &elsewhere).fault("is answered with 404: the path does not lead");
    let tls = server.callback_url().replace("http:", "https:");
    assert!(callback(&site, &tls).fault("TLS").contains("certificate"));
    drop(server);
    let server = edited("client_max_body_size 9m;", "return 301 https://a.test$request_uri;");
    callback(&site, &server.callback_url()).fault("is redirected (301 to https://a.test)");
    drop(server);
    let server = edited("client_max_body_size 9m;", "return 401;");
    callback(&site, &server.callback_url()).fault("wants a password");
    drop(server);
    let server = edited("client_max_body_size 9m;", "if ($request_method = GET) { return 200 hello; }");
    callback(&site, &server.callback_url()).fault("another page has that path");
    drop(server);
    let server = site.serve(Kind::Lighttpd);
    // The worker's user alone may enter: the callback cannot open the database.
    let output = Command::new("chmod").arg("2700").arg(site.path("db")).output().unwrap();
    assert!(output.status.success());
    let report = callback(&site, &server.callback_url());
    let said = |what: &str| report.lines.iter().any(|line| line.starts_with("WRONG") && line.contains(what));
    assert!(said("has mode 2700") && said("is answered with 503"), "{:#?}", report.lines);
    assert!(said("usermod -aG feedmill www-data"), "{:#?}", report.lines);
}
