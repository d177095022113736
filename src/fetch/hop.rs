//! One request, one response. Everything that ureq must not decide is taken from it: it gets addresses that were looked
//! up and checked, one connection for one request, our headers, and never a redirect, a proxy, a cookie or a decoder.
//!
//! A request has an `Agent` of its own: its deadlines then are the agent's, and not "request-level" settings, for which
//! ureq builds a new TLS configuration (some 150 root certificates, no resumed sessions) on every connection. The TLS
//! connector with its configuration is shared by all of them.

use super::Network;
use super::guard::Class;
use super::lookup::{self, Target};
use crate::rules::failure::{Failure, FailureKind};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use ureq::config::AutoHeaderValue;
use ureq::http::{HeaderMap, Method, Request, Response, Uri};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{ConnectionDetails, Connector, NextTimeout, TcpConnector, Transport};
use ureq::{Agent, Body, Error, Timeout};
use url::Url;

/// Bytes of the response header that are taken. Must be below the input buffer: else ureq reports a header that does
/// not fit as "peer disconnected".
const MAX_HEADER: usize = 31 * 1024;
/// ureq's own default is 128 KiB for each of the two, and TLS doubles them.
const INPUT_BUFFER: usize = 32 * 1024;
/// Each header we send fits: validators and cookies are bounded. The request line may need more, see below.
const OUTPUT_BUFFER: usize = 8 * 1024;

/// A request to be made.
pub(super) struct Ask<'a> {
    /// Clean: no credentials, no fragment; http or https.
    pub url: &'a Url,
    /// All headers but Host and Content-Length.
    pub headers: HeaderMap,
    /// `Some`: a POST of this.
    pub form: Option<&'a [u8]>,
    pub may_be_private: bool,
    /// For the response with its body.
    pub deadline: Instant,
    /// For look-up, connect and TLS together.
    pub connect_timeout: Duration,
}

/// What came of it.
pub(super) struct Answer {
    /// The class of the address that was dialled last; `None`: none was.
    pub reached: Option<Class>,
    pub result: Result<Response<Body>, Failure>,
}

/// Makes the request and reads the response's header. The body is left on the connection: dropping it closes that.
pub(super) fn send(network: &Network, ask: Ask) -> Answer {
    let begun = Instant::now();
    let connect_until = begun.checked_add(ask.connect_timeout).map_or(ask.deadline, |until| until.min(ask.deadline));
    if is_late(ask.deadline) {
        return Answer { reached: None, result: Err(out_of_time(ask.url, Stage::Lookup)) };
    }
    let targets = match lookup::targets(network, ask.url, ask.may_be_private, connect_until) {
        Ok(targets) => targets,
        Err(failure) => return Answer { reached: None, result: Err(failure) },
    };
    let now = Instant::now();
    let progress = Arc::new(Progress::default());
    let config = ureq::config::Config::builder()
        .max_redirects(0)
        .http_status_as_error(false)
        .proxy(None)
        .max_idle_connections(0)
        .max_response_header_size(MAX_HEADER)
        .input_buffer_size(INPUT_BUFFER)
        .output_buffer_size(OUTPUT_BUFFER.max(ask.url.as_str().len() + 1024))
        .user_agent(AutoHeaderValue::None)
        .accept(AutoHeaderValue::None)
        .accept_encoding(AutoHeaderValue::None)
        .tls_config(network.tls_config.clone())
        .timeout_connect(Some(connect_until.saturating_duration_since(now)))
        .timeout_global(Some(ask.deadline.saturating_duration_since(now)))
        .build();
    let dial = Dial { tls: Arc::clone(&network.tls), progress: Arc::clone(&progress) };
    let agent = Agent::with_parts(config, dial, Checked(targets.clone()));
    let result = call(&agent, &ask);
    let reached = targets.get(progress.tried.load(Ordering::Relaxed).wrapping_sub(1));
    let result = result.map_err(|error| {
        let late = is_late(ask.deadline);
        failure(error, progress.stage(), ask.url, late)
    });
    Answer { reached: reached.map(|target| target.class), result }
}

fn call(agent: &Agent, ask: &Ask) -> Result<Response<Body>, Error> {
    let mut request = Request::new(());
    *request.method_mut() = if ask.form.is_some() { Method::POST } else { Method::GET };
    *request.uri_mut() = ask.url.as_str().parse::<Uri>().map_err(|error| Error::BadUri(error.to_string()))?;
    *request.headers_mut() = ask.headers.clone();
    match ask.form {
        Some(form) => agent.run(request.map(|()| form)),
        None => agent.run(request),
    }
}

/// How far a request came; with it the same I/O error means different things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Lookup,
    Connect,
    Tls,
    Http,
}

#[derive(Debug, Default)]
struct Progress {
    stage: AtomicU8,
    /// Addresses dialled.
    tried: AtomicUsize,
}

impl Progress {
    fn reach(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    fn stage(&self) -> Stage {
        let reached = self.stage.load(Ordering::Relaxed);
        [Stage::Connect, Stage::Tls, Stage::Http]
            .into_iter()
            .find(|stage| *stage as u8 == reached)
            .unwrap_or(Stage::Lookup)
    }
}

/// Hands out the addresses that were checked, and does no look-up of its own.
#[derive(Debug)]
struct Checked(Vec<Target>);

impl Resolver for Checked {
    fn resolve(&self, _: &Uri, _: &ureq::config::Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let mut addresses = self.empty();
        for target in &self.0 {
            addresses.push(target.address);
        }
        Ok(addresses)
    }
}

/// TCP, then TLS for https, noting how far it came.
struct Dial {
    tls: Arc<ureq::unversioned::transport::RustlsConnector>,
    progress: Arc<Progress>,
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dial")
    }
}

impl Connector<()> for Dial {
    type Out = Box<dyn Transport>;

    fn connect(&self, details: &ConnectionDetails, _: Option<()>) -> Result<Option<Self::Out>, Error> {
        self.progress.reach(Stage::Connect);
        let tcp = self.dial(details)?;
        if !details.needs_tls() {
            self.progress.reach(Stage::Http);
            return Ok(Some(tcp));
        }
        self.progress.reach(Stage::Tls);
        let tls = self.tls.connect(details, Some(tcp))?;
        self.progress.reach(Stage::Http);
        Ok(tls.map(|tls| Box::new(tls) as Box<dyn Transport>))
    }
}

impl Dial {
    /// The first address that answers. Each gets an equal share of the time that is left: ureq would give the first of
    /// two two thirds, which a black hole then eats.
    fn dial(&self, details: &ConnectionDetails) -> Result<Box<dyn Transport>, Error> {
        let until = Instant::now().checked_add(*details.timeout.after);
        let mut last = Error::HostNotFound;
        for (at, address) in details.addrs.iter().enumerate() {
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            let others = u32::try_from(details.addrs.len() - at).unwrap_or(1).max(1);
            if left.is_zero() {
                return Err(Error::Timeout(Timeout::Connect));
            }
            let mut addrs = details.resolver.empty();
            addrs.push(*address);
            let share = NextTimeout { after: (left / others).into(), ..details.timeout };
            let one = ConnectionDetails {
                uri: details.uri,
                addrs,
                resolver: details.resolver,
                config: details.config,
                request_level: details.request_level,
                now: (details.current_time)(),
                timeout: share,
                current_time: Arc::clone(&details.current_time),
                run_connector: Arc::clone(&details.run_connector),
                register_shutdown: Arc::clone(&details.register_shutdown),
            };
            self.progress.tried.store(at + 1, Ordering::Relaxed);
            last = match TcpConnector::default().connect(&one, None::<()>) {
                Ok(Some(transport)) => return Ok(Box::new(transport)),
                Ok(None) => Error::ConnectionFailed,
                // Nothing to do with the address: the next would fail alike.
                Err(Error::Io(error)) if is_local(&error) => return Err(Error::Io(error)),
                Err(error) => error,
            };
        }
        Err(last)
    }
}

/// Descriptors, memory, threads, ports of our own machine are out. That a network is unreachable is not among them: it
/// may be one address's (IPv6 without a route), and when it is ours, the worker sees that every connection fails.
pub(super) fn is_local(error: &io::Error) -> bool {
    const ENOBUFS: i32 = if cfg!(any(target_os = "linux", target_os = "android")) { 105 } else { 55 };
    // ENFILE and EMFILE have no ErrorKind of their own.
    matches!(error.raw_os_error(), Some(23 | 24 | ENOBUFS)) || error.kind() == io::ErrorKind::OutOfMemory
}

/// What an error while a body is read means: the connection stood, so it is never `connect`.
pub(super) fn broken_body(error: io::Error, url: &Url, deadline: Instant) -> Failure {
    let failure = failure(Error::from(error), Stage::Http, url, is_late(deadline));
    let kind = if failure.kind == FailureKind::Connect { FailureKind::Protocol } else { failure.kind };
    Failure { kind, ..failure }
}

/// The chain's time is over, or so nearly that whichever timeout came first means that.
fn is_late(deadline: Instant) -> bool {
    deadline.saturating_duration_since(Instant::now()) < Duration::from_millis(20)
}

fn out_of_time(url: &Url, stage: Stage) -> Failure {
    let what = match stage {
        Stage::Lookup => "before the request was made",
        Stage::Connect => "while connecting",
        Stage::Tls => "during the TLS handshake",
        Stage::Http => "before the response was complete",
    };
    Failure::new(FailureKind::Timeout, format!("the time for the fetch was over {what}: {}", place(url)))
}

/// Host and port, for messages.
fn place(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    format!("{host}:{}", url.port_or_known_default().unwrap_or_default())
}

fn failure(error: Error, stage: Stage, url: &Url, late: bool) -> Failure {
    use io::ErrorKind as Io;
    let place = place(url);
    let new = |kind, text: String| Failure::new(kind, text);
    match error {
        Error::Timeout(Timeout::Connect) if !late && stage == Stage::Connect => {
            new(FailureKind::Connect, format!("{place} did not answer in time (setting connect_timeout_s)"))
        }
        Error::Timeout(Timeout::Connect) if !late => new(
            FailureKind::Timeout,
            format!("the TLS handshake with {place} did not end in time (setting connect_timeout_s)"),
        ),
        Error::Timeout(_) => out_of_time(url, stage),
        Error::Io(error) if is_local(&error) => {
            Failure::local(FailureKind::Connect, format!("no connection could be opened to {place}: {error}"))
        }
        // A read or write that met its timeout in a place where ureq does not look for it.
        Error::Io(error) if matches!(error.kind(), Io::TimedOut | Io::WouldBlock) && stage != Stage::Connect => {
            out_of_time(url, stage)
        }
        Error::Io(error) => match (stage, error.kind()) {
            (Stage::Lookup | Stage::Connect, _) => {
                new(FailureKind::Connect, format!("no connection to {place}: {error}"))
            }
            (Stage::Tls, Io::UnexpectedEof | Io::ConnectionReset | Io::ConnectionAborted | Io::BrokenPipe) => {
                new(FailureKind::Tls, format!("{place} closed the connection during the TLS handshake"))
            }
            (Stage::Tls, _) => new(FailureKind::Tls, format!("TLS with {place}: {error}")),
            (Stage::Http, Io::ConnectionReset | Io::ConnectionAborted | Io::BrokenPipe) => {
                new(FailureKind::Connect, format!("{place} closed the connection: {error}"))
            }
            (Stage::Http, Io::UnexpectedEof) => {
                new(FailureKind::Protocol, format!("{place} ended the connection before the response was complete"))
            }
            (Stage::Http, _) => new(FailureKind::Protocol, format!("the response of {place} is broken: {error}")),
        },
        Error::HostNotFound | Error::ConnectionFailed => new(FailureKind::Connect, format!("no connection to {place}")),
        Error::Tls(_) | Error::Rustls(_) | Error::Pem(_) | Error::TlsRequired => {
            new(FailureKind::Tls, format!("TLS with {place}: {error}"))
        }
        Error::LargeResponseHeader(..) => {
            new(FailureKind::Protocol, format!("the response header of {place} is larger than {MAX_HEADER} bytes"))
        }
        Error::BadUri(why) => new(FailureKind::BadUrl, format!("the URL cannot be asked for: {why}")),
        error => new(FailureKind::Protocol, format!("{place} does not speak HTTP as it should: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(error: Error, stage: Stage, late: bool) -> (FailureKind, bool) {
        let failure = failure(error, stage, &Url::parse("https://a.test/").unwrap(), late);
        (failure.kind, failure.local)
    }

    #[test]
    fn errors_by_stage() {
        let io = |kind: io::ErrorKind| Error::Io(io::Error::from(kind));
        let os = |number| Error::Io(io::Error::from_raw_os_error(number));
        for (error, stage, late, expected) in [
            (os(111), Stage::Connect, false, (FailureKind::Connect, false)),
            (os(101), Stage::Connect, false, (FailureKind::Connect, false)),
            (os(24), Stage::Connect, false, (FailureKind::Connect, true)),
            (os(23), Stage::Connect, false, (FailureKind::Connect, true)),
            (os(12), Stage::Http, false, (FailureKind::Connect, true)),
            (Error::Timeout(Timeout::Connect), Stage::Connect, false, (FailureKind::Connect, false)),
            (Error::Timeout(Timeout::Connect), Stage::Tls, false, (FailureKind::Timeout, false)),
            (Error::Timeout(Timeout::Connect), Stage::Connect, true, (FailureKind::Timeout, false)),
            (Error::Timeout(Timeout::Global), Stage::Http, true, (FailureKind::Timeout, false)),
            (io(io::ErrorKind::InvalidData), Stage::Tls, false, (FailureKind::Tls, false)),
            (io(io::ErrorKind::UnexpectedEof), Stage::Tls, false, (FailureKind::Tls, false)),
            (io(io::ErrorKind::UnexpectedEof), Stage::Http, false, (FailureKind::Protocol, false)),
            (io(io::ErrorKind::ConnectionReset), Stage::Http, false, (FailureKind::Connect, false)),
            (Error::LargeResponseHeader(1, 2), Stage::Http, false, (FailureKind::Protocol, false)),
        ] {
            let text = format!("{error:?} {stage:?}");
            assert_eq!(kind(error, stage, late), expected, "{text}");
        }
    }
}
