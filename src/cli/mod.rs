//! The commands, one file each: they print, and decide nothing.
//!
//! What is asked for goes to standard output ([`output`]), errors as one line to standard error ([`report`]), events of
//! the worker to the log ([`log`]). The command line and the environment are read in [`args`] only.

pub mod add;
pub mod args;
pub mod canonical;
pub mod check;
pub mod discover;
pub mod help;
pub mod init;
pub mod log;
pub mod output;
pub mod revert;
pub mod run;
pub mod status;
pub mod trace;

use crate::error::{EXIT_OK, Error, Result};
use crate::fetch::{Limits, Network, NetworkOptions};
use crate::rules::failure::clean_line;
use crate::task::FetchLimits;
use crate::worker::perform::{ParseGate, Tools};
use args::{Command, Invocation};
use output::Output;
use std::io::Write;
use std::time::Duration;

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
        Command::Trace { url } => trace::run(url, &mut out),
        Command::Discover { url } => discover::run(url, &mut out),
        Command::Init => init::run(&invocation.db, &mut out),
        Command::Run { once, threads } => run::run(&invocation.db, *once, *threads),
        Command::Add { urls } => add::run(&invocation.db, urls, &mut out),
        Command::Status { json } => status::run(&invocation.db, *json, &mut out),
        Command::Check { callback } => check::run(&invocation.db, *callback, &mut out),
        Command::Revert { feed_id } => revert::run(&invocation.db, *feed_id, &mut out),
    }
}

/// The root certificates that `SSL_CERT_FILE` names, which replace the bundled ones.
fn roots() -> Result<Option<Vec<u8>>> {
    match std::env::var_os("SSL_CERT_FILE").filter(|path| !path.is_empty()) {
        None => Ok(None),
        Some(path) => match std::fs::read(&path) {
            Ok(pem) => Ok(Some(pem)),
            Err(error) => Err(Error::Io(format!("SSL_CERT_FILE: {}", path.to_string_lossy()), error)),
        },
    }
}

/// What the commands that look at one URL need: the default settings, no database.
fn tools() -> Result<(Tools, FetchLimits)> {
    let user_agent = concat!("feedmill/", env!("CARGO_PKG_VERSION")).to_string();
    let options = NetworkOptions { user_agent, extra_roots_pem: roots()?, ..NetworkOptions::default() };
    let network = Network::new(options).map_err(Error::Failed)?;
    let http = Limits {
        connect_timeout: Duration::from_secs(10),
        chain_timeout: Duration::from_secs(60),
        max_redirects: 10,
        max_body_bytes: 16 << 20,
    };
    Ok((Tools { network, gate: ParseGate::new(1) }, FetchLimits { http, max_items: 20_000 }))
}

/// One line on standard error that does not end the command.
fn complain(text: &str) {
    let line = format!("feedmill: {}\n", clean_line(text, 1000));
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Prints an error as one line on standard error and gives its exit code. A standard error that is closed or full
/// changes nothing: the code still tells.
pub fn report(error: &Error) -> u8 {
    complain(&error.to_string());
    error.exit_code()
}
