//! `Origin`: a scripted web of several named hosts, http and https, on loopback.
//!
//! Answers are found by host, path and query. A list of answers is a sequence: one is used up per request, the last one
//! repeats. An answer with `unless_cookie` stands before those that follow it as long as that cookie does not come. What is
//! not scripted is 404; a 304 is given only where the script says so.

use super::certificates::Certificates;
use super::feeds::{expand, feed};
use super::server::{Reply, Request, Server};
use serde_json::Value;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One scripted answer.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    pub status: u16,
    /// Header fields in order, sent as UTF-8.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Given as long as this `name=value` does not come.
    pub unless_cookie: Option<String>,
    pub delay: Duration,
    pub hang: bool,
    /// Only so many bytes of the body are sent, then the connection is closed.
    pub cut: Option<usize>,
}

impl Answer {
    pub fn status(status: u16) -> Answer {
        Answer { status, ..Answer::default() }
    }

    pub fn body(kind: &str, body: impl Into<Vec<u8>>) -> Answer {
        Answer { body: body.into(), ..Answer::status(200).header("Content-Type", kind) }
    }

    /// `FEED(n,tag)`.
    pub fn feed(n: usize, tag: &str) -> Answer {
        Answer::body("application/rss+xml", feed(n, tag))
    }

    pub fn redirect(status: u16, location: &str) -> Answer {
        Answer::status(status).header("Location", location)
    }

    pub fn hang() -> Answer {
        Answer { hang: true, ..Answer::status(200) }
    }

    pub fn header(mut self, name: &str, value: &str) -> Answer {
        self.headers.push((name.to_string(), value.to_string()));
        self
    }

    pub fn delay(mut self, delay: Duration) -> Answer {
        self.delay = delay;
        self
    }

    pub fn cut(mut self, bytes: usize) -> Answer {
        self.cut = Some(bytes);
        self
    }

    /// As the cases write it. A key that is not known fails the test.
    pub fn from_json(json: &Value) -> Answer {
        let mut answer = Answer::status(200);
        let mut typed = false;
        for (key, value) in json.as_object().unwrap_or_else(|| panic!("not an answer: {json}")) {
            match key.as_str() {
                "status" => answer.status = value.as_u64().expect("a status") as u16,
                "location" => answer = answer.headers_of("Location", value),
                "etag" => answer = answer.headers_of("ETag", value),
                "last_modified" => answer = answer.headers_of("Last-Modified", value),
                "set_cookie" => answer = answer.headers_of("Set-Cookie", value),
                "retry_after" => answer = answer.headers_of("Retry-After", value),
                "type" => (typed, answer) = (true, answer.headers_of("Content-Type", value)),
                "headers" => {
                    for line in texts(value) {
                        let (name, value) = line.split_once(':').expect("a header line");
                        answer = answer.header(name, value.trim_start());
                    }
                }
                "body" => answer.body = expand(value.as_str().expect("a body")).into_bytes(),
                "unless_cookie" => answer.unless_cookie = Some(value.as_str().expect("a cookie").to_string()),
                "delay_ms" => answer.delay = Duration::from_millis(value.as_u64().expect("milliseconds")),
                "hang" => answer.hang = value.as_bool().expect("true or false"),
                "cut" => answer.cut = Some(value.as_u64().expect("bytes") as usize),
                other => panic!("an answer has no {other:?}: {json}"),
            }
        }
        if !typed && answer.body.starts_with(b"<?xml") {
            answer = answer.header("Content-Type", "application/rss+xml");
        }
        answer
    }

    fn headers_of(self, name: &str, value: &Value) -> Answer {
        texts(value).iter().fold(self, |answer, text| answer.header(name, text))
    }

    pub(super) fn reply(&self, method: &str) -> Reply {
        let mut bytes = format!("HTTP/1.1 {} Scripted\r\n", self.status).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        let bodiless = matches!(self.status, 204 | 304);
        if !bodiless {
            bytes.extend_from_slice(format!("Content-Length: {}\r\n", self.body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"Connection: close\r\n\r\n");
        if !bodiless && method != "HEAD" {
            bytes.extend_from_slice(&self.body[..self.cut.unwrap_or(usize::MAX).min(self.body.len())]);
        }
        Reply { delay: self.delay, hang: self.hang, bytes, then: None }
    }
}

/// A string, a number or a list of them, as texts.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(list) => list.iter().flat_map(texts).collect(),
        Value::String(text) => vec![text.clone()],
        other => vec![other.to_string()],
    }
}

/// Where a host of a test really is, and the address that the guard is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    pub host: String,
    pub http: SocketAddr,
    pub https: SocketAddr,
    pub public: IpAddr,
}

pub struct Origin {
    script: Arc<Script>,
    certificates: Arc<Certificates>,
    server: Server,
}

type Hook = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Script {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By URL: the sequence, and how many of it are used up.
    answers: HashMap<String, (Vec<Answer>, usize)>,
    hooks: HashMap<String, Hook>,
    requests: Vec<Request>,
}

impl Origin {
    /// Answers by URL; the same URL again goes on with its sequence.
    pub fn serve(answers: Vec<(&str, Answer)>) -> Origin {
        let certificates = Certificates::new();
        let script = Arc::new(Script::default());
        let handler = script.clone();
        let server = Server::start(certificates.clone(), Box::new(move |request| handler.answer(request)));
        let origin = Origin { script, certificates, server };
        for (url, answer) in answers {
            origin.add(url, answer);
        }
        origin
    }

    /// The `hosts` of a case: site → path → list of answers.
    pub fn from_json(hosts: &Value) -> Origin {
        let origin = Origin::serve(Vec::new());
        for (site, paths) in hosts.as_object().expect("hosts") {
            for (path, answers) in paths.as_object().expect("paths") {
                for answer in answers.as_array().expect("a list of answers") {
                    origin.add(&format!("{site}{path}"), Answer::from_json(answer));
                }
            }
        }
        origin
    }

    /// Adds to the sequence of `url`.
    pub fn add(&self, url: &str, answer: Answer) {
        self.script.state.lock().unwrap().answers.entry(url.to_string()).or_default().0.push(answer);
    }

    /// Begins a new sequence for `url`.
    pub fn set(&self, url: &str, answers: Vec<Answer>) {
        self.script.state.lock().unwrap().answers.insert(url.to_string(), (answers, 0));
    }

    /// The URL of a path on the loopback address itself, for programs that no names can be given to.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.http_addr())
    }

    pub fn http_addr(&self) -> SocketAddr {
        self.server.http
    }

    pub fn https_addr(&self) -> SocketAddr {
        self.server.https
    }

    /// What a client must trust to reach the https hosts.
    pub fn ca_pem(&self) -> &str {
        self.certificates.ca_pem()
    }

    /// Every named host that is scripted, each with a made-up public address.
    pub fn names(&self) -> Vec<Name> {
        let state = self.script.state.lock().unwrap();
        let hosts = state.answers.keys().filter_map(|url| Some(url::Url::parse(url).ok()?.domain()?.to_string()));
        let hosts: std::collections::BTreeSet<String> = hosts.collect();
        names(hosts, &self.server)
    }

    /// Runs `hook` when `url` is asked for next, before it is answered.
    pub fn on_request(&self, url: &str, hook: impl FnOnce() + Send + 'static) {
        self.script.state.lock().unwrap().hooks.insert(url.to_string(), Box::new(hook));
    }

    /// All requests so far, in the order they came.
    pub fn requests(&self) -> Vec<Request> {
        self.script.state.lock().unwrap().requests.clone()
    }

    /// The URLs of all requests so far.
    pub fn urls(&self) -> Vec<String> {
        self.script.state.lock().unwrap().requests.iter().map(|request| request.url.clone()).collect()
    }

    /// The If-None-Match of the last request for `url`; fails the test if there was no request.
    pub fn if_none_match_seen_by(&self, url: &str) -> Option<String> {
        let state = self.script.state.lock().unwrap();
        let last = state.requests.iter().rfind(|request| request.url == url);
        last.unwrap_or_else(|| panic!("{url} was never asked for")).header("if-none-match").map(str::to_string)
    }

    /// The most requests to `site` (as `http://a.test`) in flight at one time.
    pub fn max_in_flight(&self, site: &str) -> usize {
        self.server.max_in_flight(site)
    }
}

impl Script {
    fn answer(&self, request: &Request) -> Reply {
        let hook = {
            let mut state = self.state.lock().unwrap();
            state.requests.push(request.clone());
            state.hooks.remove(&request.url)
        };
        if let Some(hook) = hook {
            hook();
        }
        let mut state = self.state.lock().unwrap();
        match state.answers.get_mut(&request.url) {
            Some((list, used)) => {
                let open = |answer: &Answer| answer.unless_cookie.as_deref().is_none_or(|c| request.has_cookie(c));
                next(list, used, open).reply(&request.method)
            }
            None => {
                Answer::body("text/plain", format!("nothing at {}", request.url)).not_found().reply(&request.method)
            }
        }
    }
}

impl Answer {
    fn not_found(mut self) -> Answer {
        self.status = 404;
        self
    }
}

/// The next of a sequence. One with a condition is given while `open` says no and is never used up; the others are used up
/// one by one, but for the last.
fn next<'a>(list: &'a [Answer], used: &mut usize, open: impl Fn(&Answer) -> bool) -> &'a Answer {
    let steps = list.iter().filter(|answer| answer.unless_cookie.is_none()).count();
    let mut step = 0;
    for answer in list {
        if answer.unless_cookie.is_some() {
            if !open(answer) {
                return answer;
            }
        } else if step == *used || step + 1 == steps {
            *used += 1;
            return answer;
        } else {
            step += 1;
        }
    }
    list.last().expect("an answer")
}

/// Hosts of one server, with addresses out of a public network.
pub(super) fn names(hosts: impl IntoIterator<Item = String>, server: &Server) -> Vec<Name> {
    let numbered = hosts.into_iter().zip(1..);
    numbered
        .map(|(host, i)| Name {
            host,
            http: server.http,
            https: server.https,
            public: IpAddr::V4(Ipv4Addr::new(93, 184, 216, i)),
        })
        .collect()
}
