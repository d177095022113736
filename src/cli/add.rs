//! `feedmill add URL…`: what INSERT INTO feeds(url) does, and the word at once when a URL cannot be one.

use super::output::Output;
use crate::clock::Clock;
use crate::error::{EXIT_FAILED, EXIT_OK, Result};
use crate::rules::canonical::canonical;
use crate::store::transaction::immediate;
use crate::store::{feeds, open};
use std::io::Write;
use std::path::Path;

/// Adds them all in one transaction; those that cannot be read as URLs are named on standard error and not added, and the exit
/// code says so.
pub fn run(database: &Path, urls: &[String], out: &mut Output<impl Write>) -> Result<u8> {
    let db = open::open(database)?;
    let now = Clock::System.now();
    let mut code = EXIT_OK;
    let mut lines = Vec::new();
    immediate(&db, |db| {
        for url in urls {
            let url = url.trim();
            if let Err(refusal) = canonical(url) {
                super::complain(&format!("{url}: {refusal}"));
                code = EXIT_FAILED;
                continue;
            }
            let word = if feeds::add(db, url, now)? { "added" } else { "there already" };
            lines.push(format!("{word}: {url}"));
        }
        Ok(())
    })?;
    for line in lines {
        out.line(&line)?;
    }
    Ok(code)
}
