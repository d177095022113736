//! The CGI program that answers hubs; all it does is in `feedmill::cgi`.

use feedmill::clock::Clock;
use std::process::ExitCode;

fn main() -> ExitCode {
    // One line of `cgi` is enough for the web server's log.
    std::panic::set_hook(Box::new(|_| {}));
    let served = feedmill::cgi::serve(
        &|name| std::env::var_os(name),
        &mut std::io::stdin().lock(),
        &mut std::io::stdout().lock(),
        &mut std::io::stderr().lock(),
        &Clock::System,
    );
    if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
