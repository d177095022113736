//! `feedmill init`: makes the database, or brings an older one up to date.

use super::output::Output;
use crate::error::{EXIT_OK, Result};
use crate::store::open;
use std::io::Write;
use std::path::Path;

/// Says in one line what was done.
pub fn run(database: &Path, out: &mut Output<impl Write>) -> Result<u8> {
    out.line(&open::init(database)?)?;
    Ok(EXIT_OK)
}
