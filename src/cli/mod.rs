//! The commands, one file each: they print, and decide nothing.
//!
//! What is asked for goes to standard output ([`output`]), errors as one line to standard error ([`report`]), events of
//! the worker to the log ([`log`]). The command line and the environment are read in [`args`] only.

pub mod args;
pub mod canonical;
pub mod discover;
pub mod help;
pub mod log;
pub mod output;
pub mod trace;

use crate::error::{EXIT_OK, Error, Result};
use crate::rules::failure::clean_line;
use args::{Command, Invocation};
use output::Output;
use std::io::Write;

/// Runs one command; gives the exit code.
pub fn run(invocation: Invocation) -> Result<u8> {
    log::init(invocation.log, invocation.journal);
    let mut out = Output::stdout();
    match &invocation.command {
        Command::Help(topic) => {
            out.text(&help::text(*topic))?;
            Ok(EXIT_OK)
        }
        Command::Version => {
            out.line(concat!("feedmill ", env!("CARGO_PKG_VERSION")))?;
            Ok(EXIT_OK)
        }
        Command::Canonical { url } => canonical::run(url, &mut out),
        // To be joined with `fetch`: `trace::show` and `discover::show` print what it gives.
        Command::Trace { .. } => missing("trace"),
        Command::Discover { .. } => missing("discover"),
        // To be joined with `store` and `worker`.
        Command::Init => missing("init"),
        Command::Run { .. } => missing("run"),
        Command::Add { .. } => missing("add"),
        Command::Status { .. } => missing("status"),
        Command::Revert { .. } => missing("revert"),
    }
}

fn missing(command: &str) -> Result<u8> {
    Err(Error::Failed(format!("`{command}` is not in this build yet")))
}

/// Prints an error as one line on standard error and gives its exit code. A standard error that is closed or full
/// changes nothing: the code still tells.
pub fn report(error: &Error) -> u8 {
    let line = format!("feedmill: {}\n", clean_line(&error.to_string(), 1000));
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
    error.exit_code()
}
