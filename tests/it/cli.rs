//! The program as the shell sees it: exit codes, one-line errors, pipes that close early.

use crate::support;
use crate::support::binary::Feedmill;
use crate::support::mill::Live;
use crate::support::origin::Answer;
use serde_json::{Value, json};
use std::process::{Command, Output, Stdio};

fn feedmill(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedmill"));
    for name in ["FEEDMILL_DB", "FEEDMILL_LOG", "JOURNAL_STREAM"] {
        command.env_remove(name);
    }
    command.args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = feedmill(args).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn canonical_prints_the_form_and_the_pretty_one_if_it_differs() {
    let two = "http://feeds.feedburner.com/name\nhttp://feeds.feedburner.com/Name\n";
    let (code, out, err) = run(&["canonical", "feed://feeds2.feedburner.com/Name/?format=xml"]);
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), two, ""));
    let (code, out, err) = run(&["canonical", " Example.TEST/Feed#x "]);
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), "https://example.test/Feed\n", ""));
}

#[test]
fn errors_are_one_line_and_the_exit_code_tells_which() {
    for (code, args) in [
        (1, &["canonical", "file:///etc/passwd"][..]),
        (1, &["canonical", ""]),
        (2, &[]),
        (2, &["nonsense"]),
        (2, &["canonical"]),
        (2, &["bad\x1b[31m\nname"]),
        (2, &["--bad\x1b[31m\nname"]),
        (2, &["--log", "loud", "status"]),
    ] {
        let (exit, out, err) = run(args);
        assert_eq!((exit, out.as_str()), (Some(code), ""), "{args:?}");
        assert!(err.starts_with("feedmill: ") && err.ends_with('\n'), "{err:?}");
        assert!(!err.trim_end_matches('\n').contains(char::is_control), "{err:?}");
    }
}

#[test]
fn help_and_version_everywhere() {
    let (code, out, err) = run(&["--help"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for command in ["init", "run", "add", "trace", "discover", "canonical", "status", "check", "revert"] {
        assert!(out.contains(&format!("\n  {command} ")), "{command} in\n{out}");
        let (code, help, err) = run(&[command, "--help"]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{command}");
        assert!(help.contains("Usage: ") && help.contains("Example"), "{help}");
        let version = concat!("feedmill ", env!("CARGO_PKG_VERSION"), "\n");
        assert_eq!(run(&[command, "--version"]), (Some(0), version.to_string(), String::new()));
    }
}

#[test]
fn a_reader_that_left_is_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = feedmill(&["--help"]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

#[cfg(target_os = "linux")]
#[test]
fn full_outputs_do_not_panic() {
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = feedmill(&["--help"]).stdout(full()).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.starts_with(b"feedmill: cannot write to standard output: "));
    for stderr in [Stdio::from(full()), Stdio::null()] {
        assert_eq!(feedmill(&["nonsense"]).stderr(stderr).status().unwrap().code(), Some(2));
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(feedmill(&["nonsense"]).stderr(writer).status().unwrap().code(), Some(2));
}

/// A command that failed: one line on standard error, nothing else.
fn assert_one_line(output: &support::binary::Output, code: i32, says: &str) {
    assert_eq!((output.status, output.stdout.as_str()), (Some(code), ""), "{}", output.stderr);
    let line = output.stderr.strip_suffix('\n').unwrap_or_default();
    assert!(line.starts_with("feedmill: ") && !line.contains(char::is_control), "{line:?}");
    assert!(line.contains(says), "{line:?} does not say {says:?}");
}

#[test]
fn add_takes_what_can_be_a_url_and_names_the_rest() {
    let live = Live::new();
    let out = live.feedmill.succeed(&["add", "http://a.test/f", " b.test/g ", "http://a.test/f"]);
    assert_eq!(out, "added: http://a.test/f\nadded: b.test/g\nthere already: http://a.test/f\n");
    let output = live.feedmill.run(&["add", "http://c.test/f", "ftp://d.test/", ""]);
    assert_eq!((output.status, output.stdout.as_str()), (Some(1), "added: http://c.test/f\n"));
    assert_eq!(output.stderr.lines().count(), 2, "{}", output.stderr);
    assert!(output.stderr.lines().all(|line| line.starts_with("feedmill: ")), "{}", output.stderr);
    assert_eq!((live.count("feeds"), live.count("jobs WHERE run_at = 0")), (3, 3));
    // A dash begins an option, not a URL.
    assert_one_line(&live.feedmill.run(&["add", "--nonsense"]), 2, "--nonsense");
    assert_one_line(&live.feedmill.run(&["add"]), 2, "");
}

#[test]
fn once_ends_well_though_feeds_failed_and_status_says_so() {
    let live = Live::new();
    let good = live.serve("/good", Answer::feed(3, "x"));
    let missing = live.origin.url("/missing");
    let cut = live.serve("/cut", Answer::feed(3, "y").cut(200));
    for url in
        [good.as_str(), missing.as_str(), cut.as_str(), "http://127.0.0.1:1/", "http://", "http://nowhere.invalid/"]
    {
        live.insert(url);
    }
    live.feedmill.succeed(&["run", "--once"]);
    let text = live.feedmill.succeed(&["status"]);
    assert!(text.contains("feeds     6: 5 active, 1 invalid") && text.contains("entries   3"), "{text}");
    assert!(text.contains(&missing) && text.contains("not_found x1"), "{text}");
    let json: Value = serde_json::from_str(&live.feedmill.succeed(&["status", "--json"])).expect("JSON");
    assert_eq!(
        (&json["feeds"]["active"], &json["feeds"]["invalid"], &json["entries"]),
        (&json!(5), &json!(1), &json!(3))
    );
    assert_eq!((&json["queue"]["due"], &json["queue"]["running"]), (&json!(0), &json!(0)));
    let kinds: Vec<&str> = json["failures"].as_array().unwrap().iter().map(|f| f["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"not_found") && kinds.contains(&"connect") && kinds.contains(&"bad_url"), "{kinds:?}");
}

#[test]
fn trace_shows_the_chain_and_touches_no_database() {
    let live = Live::new();
    let feedmill = Feedmill::new();
    let a = live.serve("/a", Answer::redirect(301, "/b"));
    let b = live.serve("/b", Answer::redirect(302, "/c"));
    let c = live.serve("/c", Answer::feed(1, "x"));
    let out = feedmill.succeed(&["trace", &a]);
    assert_eq!(out, format!("301 {a} -> {b}\n302 {b} -> {c}\n200 {c}\npermanent: {b}\n"));
    let round = live.serve("/round", Answer::redirect(301, "/round"));
    let output = feedmill.run(&["trace", &round]);
    assert_eq!(output.status, Some(1));
    assert!(output.stderr.contains("redirect_loop") && output.stderr.lines().count() == 1, "{}", output.stderr);
    assert!(output.stdout.starts_with(&format!("301 {round} -> {round}\n")), "{}", output.stdout);
    let output = feedmill.run(&["trace", "http://127.0.0.1:1/"]);
    assert!(output.status == Some(1) && output.stderr.contains("connect"), "{output:?}");
    assert_one_line(&feedmill.run(&["trace", "ftp://a.test/"]), 1, "ftp");
    assert_eq!(std::fs::read_dir(feedmill.dir()).unwrap().count(), 0);
}

#[test]
fn discover_prints_addresses_and_nothing_else() {
    let live = Live::new();
    let feedmill = Feedmill::new();
    let page = "<!doctype html><html><head><link rel=alternate type='application/rss+xml' href='/f'>\
                <link rel=alternate type='application/atom+xml' href='/comments/feed'></head></html>";
    let url = live.serve("/", Answer::body("text/html", page));
    let out = feedmill.succeed(&["discover", &url]);
    assert_eq!(out.lines().next(), Some(live.origin.url("/f").as_str()), "{out}");
    assert_eq!(out.lines().count(), 2, "{out}");
    let feed = live.serve("/feed-itself", Answer::feed(1, "x"));
    assert_eq!(feedmill.succeed(&["discover", &feed]), format!("{feed}\n"));
    let bare = live.serve("/bare/", Answer::body("text/html", "<!doctype html><html><body>none</body></html>"));
    assert_one_line(&feedmill.run(&["discover", &bare]), 1, "names no feed");
    let missing = live.origin.url("/missing");
    assert_one_line(&feedmill.run(&["discover", &missing]), 1, "not_found");
}

#[test]
fn revert_answers_in_one_line() {
    let live = Live::new();
    let old = live.serve("/old", Answer::redirect(301, "/new"));
    let new = live.serve("/new", Answer::feed(1, "x"));
    let feed = live.insert(&old);
    live.feedmill.succeed(&["run", "--once"]);
    assert_eq!(live.of(feed, "url"), json!(new));
    let out = live.feedmill.succeed(&["revert", &feed.to_string()]);
    assert!(out.contains(&old) && out.lines().count() == 1, "{out}");
    assert_eq!(live.of(feed, "url"), json!(old));
    assert_one_line(&live.feedmill.run(&["revert", "99"]), 1, "no feed 99");
    for wrong in ["x", "-1", "1.5", "", "99999999999999999999"] {
        let output = live.feedmill.run(&["revert", wrong]);
        assert!(matches!(output.status, Some(1 | 2)), "{wrong}: {output:?}");
        assert_eq!(output.stderr.lines().count(), 1, "{wrong}: {output:?}");
    }
}

#[test]
fn the_database_is_named_by_option_or_environment() {
    let feedmill = Feedmill::new().env("FEEDMILL_DB", "by-env.db");
    feedmill.succeed(&["init"]);
    feedmill.succeed(&["--db", "by-option.db", "init"]);
    let mut names: Vec<_> = std::fs::read_dir(feedmill.dir()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["by-env.db", "by-option.db"]);
    for args in [
        &["--db"][..],
        &["run", "--threads", "0"],
        &["run", "--threads", "x"],
        &["run", "extra"],
        &["status", "--nonsense"],
    ] {
        assert_one_line(&feedmill.run(args), 2, "--help");
    }
}

#[test]
fn commands_whose_reader_left_end_well() {
    let live = Live::new();
    live.insert("http://a.test/");
    let url = live.serve("/f", Answer::feed(1, "x"));
    for args in
        [&["status"][..], &["status", "--json"], &["add", "http://b.test/"], &["trace", &url], &["discover", &url]]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output =
            feedmill(args).current_dir(live.feedmill.dir()).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), error.as_str()), (Some(0), ""), "{args:?}");
    }
    assert_eq!(live.count("feeds"), 2);
}
