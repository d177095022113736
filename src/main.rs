//! The program `feedmill`: arguments → command → exit code.

use feedmill::cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    let invocation = cli::args::parse(std::env::args_os().skip(1), |name| std::env::var_os(name));
    let code = invocation.and_then(cli::run).unwrap_or_else(|error| cli::report(&error));
    ExitCode::from(code)
}
