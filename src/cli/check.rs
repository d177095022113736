//! `feedmill check [--callback]`: what is wrong, a line each with what mends it.

use super::output::Output;
use crate::check::{self, Finding, callback};
use crate::clock::Clock;
use crate::error::{EXIT_FAILED, EXIT_OK, Error, Result};
use crate::fetch::guard::AllowList;
use crate::fetch::{Limits, Network, NetworkOptions};
use crate::rules::failure::clean_line;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Looks at all of it; with `try_callback` the public callback URL is tried too. The exit code says whether all is well.
pub fn run(database: &Path, try_callback: bool, out: &mut Output<impl Write>) -> Result<u8> {
    let (mut findings, settings) = check::database(database, Clock::System.now());
    show(&findings, out)?;
    if let (true, Some(settings)) = (try_callback, settings) {
        let tried = match &settings.callback_url {
            None => vec![Finding::Wrong {
                what: "there is no callback to try: the setting callback_url is empty".into(),
                mend: "UPDATE settings SET value = 'https://example.org/feedmill' WHERE key = 'callback_url'".into(),
            }],
            Some(url) => {
                let network = Network::new(NetworkOptions {
                    user_agent: settings.user_agent(),
                    allow: AllowList::parse(&settings.allow_addresses).map_err(Error::Failed)?,
                    extra_roots_pem: super::roots()?,
                    ..NetworkOptions::default()
                })
                .map_err(Error::Failed)?;
                let limits = Limits {
                    connect_timeout: settings.connect_timeout,
                    // A large delivery goes out over the user's own line.
                    chain_timeout: settings.fetch_timeout.max(Duration::from_secs(60)),
                    max_redirects: 0,
                    max_body_bytes: 4096,
                };
                callback::look(database, url, &network, &limits)?
            }
        };
        show(&tried, out)?;
        findings.extend(tried);
    }
    if findings.iter().any(|finding| matches!(finding, Finding::Wrong { .. })) {
        return Ok(EXIT_FAILED);
    }
    out.line("all is well")?;
    Ok(EXIT_OK)
}

fn show(findings: &[Finding], out: &mut Output<impl Write>) -> Result<()> {
    for finding in findings {
        let line = match finding {
            Finding::Well(text) => format!("ok     {text}"),
            Finding::Wrong { what, mend } => format!("WRONG  {what}; mend it with: {mend}"),
        };
        out.line(&clean_line(&line, 2000))?;
    }
    Ok(())
}
