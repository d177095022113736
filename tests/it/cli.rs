//! The program as the shell sees it: exit codes, one-line errors, pipes that close early.

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
    for command in ["init", "run", "add", "trace", "discover", "canonical", "status", "revert"] {
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
