//! Tries the public callback URL as a hub would: asked, delivered to, and asked what it must refuse.

use super::Finding;
use super::permissions::name_of;
use crate::error::{Error, Result};
use crate::fetch::{Answer, Limits, Network, Single};
use crate::push::request;
use crate::push::signature;
use crate::rules::failure::{Failure, FailureKind};
use crate::store::probe::{self, Probe};
use crate::store::transaction::immediate;
use crate::store::{open, subscriptions};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use url::Url;

/// Bytes of the small delivery.
const SMALL: usize = 2000;
/// Characters of the long query: hubs put topic, challenge and more there.
const LONG_QUERY: usize = 6000;
/// Bytes that a server counts beside the body do not matter; some leave no room at all.
const BELOW_LIMIT: u64 = 512;
const CHALLENGE: &str = "feedmill-check-0123456789abcdef";

/// What a delivery is tried with.
struct Trial<'a> {
    base: &'a str,
    probe: &'a Probe,
    network: &'a Network,
    limits: &'a Limits,
    database: &'a Path,
}

/// Inserts the probe, asks, and removes it, whatever came of it.
pub fn look(database: &Path, callback_url: &str, network: &Network, limits: &Limits) -> Result<Vec<Finding>> {
    let db = open::open_as_is(database)?;
    let max = subscriptions::callback_settings(&db)?.max_delivery_bytes;
    let probe = immediate(&db, probe::begin)?;
    let trial = Trial { base: callback_url, probe: &probe, network, limits, database };
    let findings = trial.run(max);
    immediate(&db, probe::end)?;
    findings
}

impl Trial<'_> {
    fn run(&self, max: u64) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        let question = self.question(probe::TOPIC, 0)?;
        match self.ask(&question, None, &[]) {
            Ok(answer) if answer.status == 200 && answer.text == CHALLENGE => {
                findings.push(Finding::Well(format!("callback: {} answers a hub's question", self.base)));
            }
            // Nothing else can go well then.
            other => return Ok(vec![self.wrong("a hub's question", other)]),
        }
        let other = self.ask(&self.question("https://check.invalid/other", 0)?, None, &[]);
        if !matches!(&other, Ok(answer) if answer.status == 404) {
            findings.push(self.wrong("a question for another topic, which must be refused with 404", other));
        }
        let long = self.ask(&self.question(probe::TOPIC, LONG_QUERY)?, None, &[]);
        match long {
            Ok(answer) if answer.status == 200 => findings.push(Finding::Well("callback: long queries pass".into())),
            Ok(Answer { status: status @ (400 | 414 | 431), .. }) => findings.push(Finding::wrong(
                format!("the web server refuses a query of {LONG_QUERY} characters ({status})"),
                "let it take request lines of 8 kB (nginx: large_client_header_buffers 4 8k; Apache: LimitRequestLine 8190)",
            )),
            other => findings.push(self.wrong("a long query", other)),
        }
        let small = self.deliver(&vec![b'x'; SMALL])?;
        match small {
            Ok(answer) if answer.status == 202 => findings.push(Finding::Well("callback: a delivery is taken".into())),
            other => findings.push(self.wrong("a small delivery", other)),
        }
        let length = usize::try_from(max.saturating_sub(BELOW_LIMIT)).unwrap_or(usize::MAX);
        match self.deliver(&vec![b'x'; length])? {
            Ok(answer) if answer.status == 202 => {
                findings.push(Finding::Well(format!("callback: a delivery of {length} bytes is taken")));
            }
            Ok(Answer { status: 413, .. }) => findings.push(body_limit(length, "413", max)),
            // Some servers just close the connection on a body that is too large for them.
            Err(Failure { kind: FailureKind::Connect | FailureKind::Protocol, message, .. }) => {
                findings.push(body_limit(length, &message, max));
            }
            other => findings.push(self.wrong("a large delivery", other)),
        }
        Ok(findings)
    }

    fn question(&self, topic: &str, padding: usize) -> Result<Url> {
        let mut text = request::callback_url(self.base, &self.probe.token);
        text += "?hub.mode=subscribe&hub.lease_seconds=1209600&hub.challenge=";
        text += CHALLENGE;
        text += "&hub.topic=";
        request::encode(topic, &mut text);
        if padding > 0 {
            text += "&padding=";
            text.extend(std::iter::repeat_n('p', padding));
        }
        parse(&text)
    }

    fn deliver(&self, body: &[u8]) -> Result<std::result::Result<Answer, Failure>> {
        let url = parse(&request::callback_url(self.base, &self.probe.token))?;
        let signature = signature::sha256(&self.probe.secret, body);
        let headers = [("content-type", "application/octet-stream"), ("x-hub-signature", signature.as_str())];
        Ok(self.ask(&url, Some(body), &headers))
    }

    fn ask(
        &self,
        url: &Url,
        body: Option<&[u8]>,
        headers: &[(&'static str, &str)],
    ) -> std::result::Result<Answer, Failure> {
        // The user typed it: it may be a private address, as behind a home's router.
        let single = Single { url, body, headers, trusted: true, deadline: None };
        self.network.single(&single, self.limits)
    }

    /// What an answer says that should not have come.
    fn wrong(&self, tried: &str, answer: std::result::Result<Answer, Failure>) -> Finding {
        let base = self.base;
        let snippet = "paste the snippet of your web server from contrib/webserver/ and reload it";
        match answer {
            Err(failure) => {
                let mend = match failure.kind {
                    FailureKind::Dns => "set callback_url to a name that resolves, or make it resolve".to_string(),
                    FailureKind::Tls => {
                        format!("get {base} a certificate that is valid for its name: hubs check it (certbot renew)")
                    }
                    FailureKind::Timeout => {
                        "see the web server's error log: the program or a firewall hangs".to_string()
                    }
                    _ => "start the web server, open its port in the firewall, or correct callback_url".to_string(),
                };
                Finding::wrong(format!("{tried} at {base} failed: {}", failure.message), mend)
            }
            Ok(Answer { status: status @ 300..=399, location, .. }) => {
                let to = location.map(|url| format!(" to {}", url.origin().ascii_serialization())).unwrap_or_default();
                Finding::wrong(
                    format!("{tried} at {base} is redirected ({status}{to}): most hubs do not follow"),
                    "set callback_url to the address that answers itself, or take the path out of the redirect",
                )
            }
            Ok(Answer { status: 200, .. }) => Finding::wrong(
                format!(
                    "{tried} at {base} is answered with 200, but not by feedmill-callback: another page has that path"
                ),
                snippet,
            ),
            Ok(Answer { status: 404, .. }) => Finding::wrong(
                format!(
                    "{tried} at {base} is answered with 404: the path does not lead to feedmill-callback, or its FEEDMILL_DB \
                     is another database"
                ),
                format!("{snippet}; FEEDMILL_DB is to be {}", self.database.display()),
            ),
            Ok(Answer { status: 403, .. }) => Finding::wrong(
                format!(
                    "{tried} at {base} is answered with 403: the web server may not run the program, or something between \
                     changes the body or drops X-Hub-Signature"
                ),
                "chmod 755 /usr/local/bin/feedmill-callback, and see the web server's error log",
            ),
            Ok(Answer { status: 401, .. }) => Finding::wrong(
                format!("{tried} at {base} wants a password (401): no hub has one"),
                "take the path out of the password protection",
            ),
            Ok(Answer { status: status @ 500..=599, .. }) => Finding::wrong(
                format!(
                    "{tried} at {base} is answered with {status}: the program cannot be run, or cannot write the database"
                ),
                format!("{}; the web server's error log says more", self.group_command()),
            ),
            Ok(answer) => Finding::wrong(
                format!("{tried} at {base} is answered with {}", answer.status),
                format!("{snippet}; its error log says more"),
            ),
        }
    }

    /// The command that lets the web server's user write the database.
    fn group_command(&self) -> String {
        match fs::metadata(self.database) {
            Ok(file) => {
                format!("usermod -aG {} www-data and restart the web server", name_of("/etc/group", file.gid()))
            }
            Err(_) => "usermod -aG feedmill www-data and restart the web server".to_string(),
        }
    }
}

fn body_limit(length: usize, how: &str, max: u64) -> Finding {
    let (megabytes, kilobytes) = (max.div_ceil(1 << 20) + 1, (max.div_ceil(1 << 20) + 1) << 10);
    Finding::wrong(
        format!("the web server refuses a delivery of {length} bytes ({how}), which max_delivery_bytes allows"),
        format!(
            "nginx: client_max_body_size {megabytes}m;  Apache: LimitRequestBody {}  lighttpd: server.max-request-size = \
             {kilobytes}  Caddy: request_body {{ max_size {megabytes}MiB }}",
            megabytes << 20
        ),
    )
}

fn parse(text: &str) -> Result<Url> {
    Url::parse(text)
        .map_err(|error| Error::Failed(format!("the setting callback_url cannot be read as a URL: {error}")))
}
