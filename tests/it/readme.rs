//! README.md keeps its word: its SQL runs as it stands, and it names all that exists.

use crate::support::shell::Sqlite3Shell;
use feedmill::cli::help::TOPICS;
use std::path::Path;

const README: &str = include_str!("../../README.md");

/// The text of the fenced blocks of one language, in order.
fn blocks(language: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Option<(bool, String)> = None;
    for line in README.lines() {
        match (open.take(), line.strip_prefix("```")) {
            (None, Some(named)) => open = Some((named == language, String::new())),
            (None, None) => {}
            (Some((wanted, text)), Some(_)) => found.extend(wanted.then_some(text)),
            (Some((wanted, text)), None) => open = Some((wanted, text + line + "\n")),
        }
    }
    assert!(open.is_none(), "a block is not closed");
    found
}

/// The first column of the tables under a heading cell, without back-ticks and marks.
fn rows_under(heading: &str) -> Vec<&'static str> {
    let start = format!("| {heading} |");
    let cell = |line: &'static str| line.split('|').nth(1).unwrap_or_default().trim().trim_end_matches(" *");
    let rows = README.lines().skip_while(|line| !line.starts_with(&start)).skip(2);
    rows.take_while(|line| line.starts_with('|')).map(|line| cell(line).trim_matches('`')).collect()
}

fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort();
    items
}

#[test]
fn the_sql_runs_as_it_stands() {
    let blocks = blocks("sql");
    assert!(blocks.len() >= 10, "{}", blocks.len());
    let folder = tempfile::tempdir().unwrap();
    let shell = Sqlite3Shell::create(&folder.path().join("feedmill.db"));
    for block in &blocks {
        if let Err(error) = shell.try_run(block) {
            panic!("{error} in\n{block}");
        }
    }
    let edited = shell.value("SELECT url FROM feeds WHERE id = 1");
    assert_eq!(edited, "https://example.org/atom.xml", "the tour did something");
}

#[test]
fn every_setting_stands_there_with_its_default() {
    let folder = tempfile::tempdir().unwrap();
    let shell = Sqlite3Shell::create(&folder.path().join("feedmill.db"));
    let lines = shell.run("SELECT key || '|' || value FROM settings ORDER BY key");
    assert_eq!(sorted(rows_under("key")), lines.iter().map(|l| l.split('|').next().unwrap()).collect::<Vec<_>>());
    for line in &lines {
        let (key, value) = line.split_once('|').unwrap();
        let value = if value.is_empty() { String::new() } else { format!("{value} ") };
        let found = README.lines().any(|line| {
            [format!("| `{key}` | {value}|"), format!("| `{key}` * | {value}|")].iter().any(|row| line.starts_with(row))
        });
        assert!(found, "{key} with its default {value}");
    }
}

#[test]
fn every_command_stands_there() {
    let documented: Vec<&str> =
        rows_under("command").iter().filter_map(|row| row.split(' ').next()).collect::<Vec<_>>();
    for topic in &TOPICS {
        assert!(documented.contains(&topic.name), "{}", topic.name);
    }
    for name in documented {
        assert!(TOPICS.iter().any(|topic| topic.name == name), "{name} is no command");
    }
}

#[test]
fn every_failure_kind_stands_there_and_no_other() {
    // The enum cannot be walked; its names stand in one match.
    let source = include_str!("../../src/rules/failure.rs");
    let names: Vec<&str> = source
        .lines()
        .filter(|line| line.trim_start().starts_with("FailureKind::"))
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    assert!(names.len() > 20, "{names:?}");
    assert_eq!(sorted(rows_under("failure_kind")), sorted(names));
}

#[test]
fn what_it_links_to_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let links = README.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let scripts = README.split(|c: char| c.is_whitespace() || c == '`').filter(|word| word.starts_with("contrib/"));
    for file in links.chain(scripts).map(|file| file.trim_end_matches([',', '.', ';'])) {
        assert!(root.join(file).exists(), "{file}");
    }
}
