//! `feedmill canonical URL`: the canonical form and, if different, the pretty form. Touches neither network nor
//! database.

use super::output::Output;
use crate::error::{EXIT_OK, Error, Result};
use crate::rules::canonical::canonical;
use std::io::Write;

/// One line or two. Fails when the URL cannot be a feed's.
pub fn run(given: &str, out: &mut Output<impl Write>) -> Result<u8> {
    let read = canonical(given).map_err(|refusal| Error::Failed(refusal.message))?;
    out.line(read.url.as_str())?;
    if let Some(pretty) = &read.pretty {
        out.line(pretty)?;
    }
    Ok(EXIT_OK)
}
