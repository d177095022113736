//! What may be wrong with a database, its files and the callback, each with the command that mends it. Looks, and changes
//! nothing but the probe of [`callback`].

pub mod callback;
pub mod permissions;

use crate::error::{Error, Result};
use crate::fetch::guard::AllowList;
use crate::store::settings::Settings;
use crate::store::{invariants, open};
use rusqlite::Connection;
use std::path::Path;

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// It is as it should be.
    Well(String),
    /// It is not.
    Wrong {
        what: String,
        /// A command, or a line for a configuration.
        mend: String,
    },
}

impl Finding {
    fn wrong(what: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding::Wrong { what: what.into(), mend: mend.into() }
    }
}

/// The database, its invariants, permissions and settings. Also the settings, where they can be read.
pub fn database(path: &Path, now: i64) -> (Vec<Finding>, Option<Settings>) {
    let mut findings = Vec::new();
    let settings = match open::open_as_is(path) {
        Ok(db) => {
            let settings = Settings::load(&db);
            findings.extend(settings_fit(path, &settings));
            if let Err(error) = content(&db, path, now, &mut findings) {
                findings.push(Finding::wrong(format!("the database cannot be read: {error}"), recover(path)));
            }
            settings.ok()
        }
        Err(error) => {
            findings.push(Finding::wrong(error.to_string(), opening(path, &error)));
            None
        }
    };
    // After the database was opened: its side files stand there now.
    let shared = settings.as_ref().is_some_and(|settings| settings.callback_url.is_some());
    findings.extend(permissions::look(path, shared));
    (findings, settings)
}

fn content(db: &Connection, path: &Path, now: i64, findings: &mut Vec<Finding>) -> Result<()> {
    let damage = invariants::damage(db)?;
    findings.extend(damage.iter().map(|line| Finding::wrong(format!("the file is damaged: {line}"), recover(path))));
    let mode = invariants::journal_mode(db)?;
    if mode != "wal" {
        let mend = format!("sqlite3 {} 'PRAGMA journal_mode = WAL'", shell(path));
        findings.push(Finding::wrong(format!("the journal mode is {mode}, not wal"), mend));
    }
    if damage.is_empty() && mode == "wal" {
        let version = open::SCHEMA_VERSION;
        findings.push(Finding::Well(format!("database: {} of version {version} is sound", path.display())));
    }
    let broken = invariants::broken(db, now)?;
    findings.extend(broken.iter().map(|broken| {
        let what = format!(
            "not so: {} ({} row{}, the first is {})",
            broken.invariant.holds,
            broken.rows,
            if broken.rows == 1 { "" } else { "s" },
            broken.example
        );
        Finding::wrong(what, sql(path, broken.invariant.mend))
    }));
    if broken.is_empty() {
        findings.push(Finding::Well(format!("invariants: all {} hold", invariants::INVARIANTS.len())));
    }
    Ok(())
}

fn settings_fit(path: &Path, settings: &Result<Settings>) -> Vec<Finding> {
    let settings = match settings {
        Ok(settings) => settings,
        Err(error) => return vec![Finding::wrong(error.to_string(), "restore the row from schema.sql")],
    };
    let mut findings = Vec::new();
    let set = |key: &str, value: &str| sql(path, &format!("UPDATE settings SET value = '{value}' WHERE key = '{key}'"));
    if settings.min_interval_s > settings.max_interval_s {
        let (min, max) = (settings.min_interval_s, settings.max_interval_s);
        findings.push(Finding::wrong(
            format!("min_interval_s ({min}) is above max_interval_s ({max})"),
            set("max_interval_s", &min.to_string()),
        ));
    }
    if let Err(error) = AllowList::parse(&settings.allow_addresses) {
        findings.push(Finding::wrong(format!("allow_addresses: {error}"), set("allow_addresses", "")));
    }
    if let Some(Err(error)) = settings.callback_url.as_deref().map(url::Url::parse) {
        let mend = set("callback_url", "https://example.org/feedmill");
        findings.push(Finding::wrong(format!("callback_url cannot be read as a URL: {error}"), mend));
    }
    if findings.is_empty() {
        findings.push(Finding::Well("settings: all are there and fit together".into()));
    }
    findings
}

fn opening(path: &Path, error: &Error) -> String {
    match error {
        _ if !path.exists() => format!("feedmill --db {} init", shell(path)),
        Error::Database(_) => format!(
            "feedmill --db {} init (brings an older one up to date), or name the right file with --db",
            shell(path)
        ),
        _ => "what stands below, then look again".into(),
    }
}

fn recover(path: &Path) -> String {
    format!("sqlite3 {0} .recover | sqlite3 {0}.new", shell(path))
}

fn sql(path: &Path, statement: &str) -> String {
    format!("sqlite3 -cmd '.timeout 5000' {} \"{statement}\"", shell(path))
}

/// A path as a word of the shell.
pub(crate) fn shell(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}
