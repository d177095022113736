//! `Hub`: a scripted WebSub hub on loopback. It records what is posted to it, verifies when it is told to, and delivers.

use super::certificates::Certificates;
use super::client::{self, Response};
use super::origin::{Answer, Name, names};
use super::server::{Reply, Request, Server};
use serde_json::Value;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use url::form_urlencoded;

/// What the hub says to a subscription request.
#[derive(Debug, Clone)]
pub struct HubAnswer {
    pub answer: Answer,
    /// Given to every request with this parameter and never used up.
    pub if_param: Option<String>,
}

impl HubAnswer {
    pub fn status(status: u16) -> HubAnswer {
        HubAnswer { answer: Answer::status(status), if_param: None }
    }

    /// As the cases write it: what an origin's answer may have, and `if_param`.
    pub fn from_json(json: &Value) -> HubAnswer {
        let mut json = json.clone();
        let if_param = json.as_object_mut().and_then(|object| object.remove("if_param"));
        let if_param = if_param.map(|param| param.as_str().expect("a parameter").to_string());
        HubAnswer { answer: Answer::from_json(&json), if_param }
    }
}

/// When the hub asks the callback about an accepted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// Before it answers the request.
    First,
    /// When the request is answered.
    After,
    Never,
    /// Never, and the request is not answered either.
    Hang,
}

/// A request to the hub, with its form read.
#[derive(Debug, Clone)]
pub struct Post {
    pub url: String,
    pub form: Vec<(String, String)>,
}

impl From<&Request> for Post {
    fn from(request: &Request) -> Post {
        let form = form_urlencoded::parse(&request.body).into_owned().collect();
        Post { url: request.url.clone(), form }
    }
}

impl Post {
    /// The first parameter of that name.
    pub fn param(&self, name: &str) -> Option<&str> {
        self.form.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// How a callback answered a verification.
#[derive(Debug, Clone)]
pub struct Verification {
    pub mode: String,
    pub response: Result<Response, String>,
    /// 2xx and the challenge, byte for byte.
    pub confirmed: bool,
}

/// How a delivery is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

/// `sha256=…`: method and digest of `body` under `secret`, as X-Hub-Signature has it.
pub fn signature(method: Method, secret: &str, body: &[u8]) -> String {
    let (name, algorithm) = match method {
        Method::Sha1 => ("sha1", ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
        Method::Sha256 => ("sha256", ring::hmac::HMAC_SHA256),
        Method::Sha384 => ("sha384", ring::hmac::HMAC_SHA384),
        Method::Sha512 => ("sha512", ring::hmac::HMAC_SHA512),
    };
    let tag = ring::hmac::sign(&ring::hmac::Key::new(algorithm, secret.as_bytes()), body);
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name}={hex}")
}

pub struct Hub {
    core: Arc<Core>,
    certificates: Arc<Certificates>,
    server: Server,
    hosts: Vec<String>,
}

struct Core {
    state: Mutex<State>,
}

struct State {
    script: Vec<HubAnswer>,
    used: usize,
    verify: Verify,
    /// The lease that is granted; `None`: none is named.
    lease: Option<i64>,
    /// Where hosts of callbacks are, by host and port as the URL has them.
    callbacks: HashMap<String, SocketAddr>,
    posts: Vec<Post>,
    verifications: Vec<Verification>,
    challenges: u32,
    /// Verifications that are still to be made.
    owed: usize,
}

impl Hub {
    /// A hub that is reached under each of `hosts` (and by its address), gives 202 and verifies afterwards.
    pub fn start(hosts: &[&str]) -> Hub {
        let core = Arc::new(Core {
            state: Mutex::new(State {
                script: vec![HubAnswer::status(202)],
                used: 0,
                verify: Verify::After,
                lease: Some(864_000),
                callbacks: HashMap::new(),
                posts: Vec::new(),
                verifications: Vec::new(),
                challenges: 0,
                owed: 0,
            }),
        });
        let certificates = Certificates::new();
        let handler = core.clone();
        let server = Server::start(certificates.clone(), Box::new(move |request| Core::answer(&handler, request)));
        Hub { core, certificates, server, hosts: hosts.iter().map(|host| host.to_string()).collect() }
    }

    /// The sequence of its answers; the last one repeats.
    pub fn script(&self, answers: Vec<HubAnswer>) {
        let mut state = self.core.state.lock().unwrap();
        (state.script, state.used) = (answers, 0);
    }

    pub fn verify(&self, when: Verify) {
        self.core.state.lock().unwrap().verify = when;
    }

    pub fn lease(&self, seconds: Option<i64>) {
        self.core.state.lock().unwrap().lease = seconds;
    }

    /// Callbacks on `host` (with its port, if the URL has one) are reached at `addr`.
    pub fn callback_at(&self, host: &str, addr: SocketAddr) {
        self.core.state.lock().unwrap().callbacks.insert(host.to_string(), addr);
    }

    /// The hub's URL on the loopback address itself.
    pub fn url(&self) -> String {
        format!("http://{}/", self.server.http)
    }

    pub fn ca_pem(&self) -> &str {
        self.certificates.ca_pem()
    }

    pub fn names(&self) -> Vec<Name> {
        names(self.hosts.clone(), &self.server)
    }

    /// All requests so far, in order.
    pub fn posts(&self) -> Vec<Post> {
        self.core.state.lock().unwrap().posts.clone()
    }

    /// All verifications so far, in order.
    pub fn verifications(&self) -> Vec<Verification> {
        self.core.state.lock().unwrap().verifications.clone()
    }

    /// Whoever waits for an answer gets none: connections are closed from now on until the hub is told otherwise.
    pub fn release(&self) {
        self.verify(Verify::Never);
        self.server.hang_up();
    }

    /// Whether every accepted request has been verified that is to be.
    pub fn is_idle(&self) -> bool {
        self.core.state.lock().unwrap().owed == 0
    }

    /// The most requests to `site` (as `http://h.test`) in flight at one time.
    pub fn max_in_flight(&self, site: &str) -> usize {
        self.server.max_in_flight(site)
    }

    /// Asks the callback of `post` now whether the subscriber meant it.
    pub fn verify_now(&self, post: &Post) -> Verification {
        self.core.verify_intent(post)
    }

    /// Tells the callback of `post` that the subscription is denied.
    pub fn deny(&self, post: &Post, reason: &str) -> Result<Response, String> {
        let topic = post.param("hub.topic").unwrap_or_default();
        let query = [("hub.mode", "denied"), ("hub.topic", topic), ("hub.reason", reason)];
        self.core.get(post.param("hub.callback").expect("a callback"), &query)
    }

    /// Delivers `body` to the callback of `post`, signed with its secret if it gave one.
    pub fn deliver(&self, post: &Post, kind: &str, body: &[u8]) -> Result<Response, String> {
        let signed = post.param("hub.secret").map(|secret| signature(Method::Sha256, secret, body));
        let callback = post.param("hub.callback").expect("a callback");
        self.deliver_to(
            callback,
            &self.url(),
            post.param("hub.topic").unwrap_or_default(),
            kind,
            signed.as_deref(),
            body,
        )
    }

    /// The same with every part given.
    pub fn deliver_to(
        &self,
        callback: &str,
        hub: &str,
        topic: &str,
        kind: &str,
        signature: Option<&str>,
        body: &[u8],
    ) -> Result<Response, String> {
        let links = format!("<{hub}>; rel=\"hub\", <{topic}>; rel=\"self\"");
        let mut headers = vec![("Content-Type", kind), ("Link", &links)];
        headers.extend(signature.map(|text| ("X-Hub-Signature", text)));
        client::send("POST", callback, self.core.address_of(callback), &headers, body)
    }
}

impl Core {
    fn answer(self: &Arc<Core>, request: &Request) -> Reply {
        let post = Post::from(request);
        let (mut reply, accepted, when) = {
            let mut state = self.state.lock().unwrap();
            if request.method != "POST" {
                return Answer::status(405).reply(&request.method);
            }
            state.posts.push(post.clone());
            let answer = state.next(&post);
            if state.verify == Verify::After && (200..300).contains(&answer.status) {
                state.owed += 1;
            }
            (answer.reply("POST"), (200..300).contains(&answer.status), state.verify)
        };
        match when {
            Verify::Hang => reply.hang = true,
            Verify::First if accepted => drop(self.verify_intent(&post)),
            Verify::After if accepted => {
                let core = self.clone();
                reply.then = Some(Box::new(move || {
                    core.verify_intent(&post);
                    core.state.lock().unwrap().owed -= 1;
                }));
            }
            _ => {}
        }
        reply
    }

    fn verify_intent(&self, post: &Post) -> Verification {
        let mode = post.param("hub.mode").unwrap_or_default().to_string();
        let (challenge, lease) = {
            let mut state = self.state.lock().unwrap();
            state.challenges += 1;
            (format!("challenge-{}", state.challenges), state.lease.map(|seconds| seconds.to_string()))
        };
        let topic = post.param("hub.topic").unwrap_or_default();
        let mut query = vec![("hub.mode", mode.as_str()), ("hub.topic", topic), ("hub.challenge", &challenge)];
        query.extend(lease.as_deref().filter(|_| mode == "subscribe").map(|lease| ("hub.lease_seconds", lease)));
        query.extend(post.param("hub.verify_token").map(|token| ("hub.verify_token", token)));
        let response = self.get(post.param("hub.callback").unwrap_or_default(), &query);
        let confirmed =
            response.as_ref().is_ok_and(|r| (200..300).contains(&r.status) && r.body == challenge.as_bytes());
        let verification = Verification { mode, response, confirmed };
        self.state.lock().unwrap().verifications.push(verification.clone());
        verification
    }

    fn get(&self, callback: &str, query: &[(&str, &str)]) -> Result<Response, String> {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
        let url = format!("{callback}{}{query}", if callback.contains('?') { '&' } else { '?' });
        client::send("GET", &url, self.address_of(callback), &[], b"")
    }

    fn address_of(&self, callback: &str) -> Option<SocketAddr> {
        let host = callback.split('/').nth(2).unwrap_or_default();
        self.state.lock().unwrap().callbacks.get(host).copied()
    }
}

impl State {
    fn next(&mut self, post: &Post) -> Answer {
        let refusal = |a: &&HubAnswer| a.if_param.as_deref().is_some_and(|param| post.param(param).is_some());
        if let Some(refusal) = self.script.iter().find(refusal) {
            return refusal.answer.clone();
        }
        let steps: Vec<&HubAnswer> = self.script.iter().filter(|answer| answer.if_param.is_none()).collect();
        let step = steps.get(self.used).or(steps.last()).expect("an answer of the hub");
        let answer = step.answer.clone();
        self.used += 1;
        answer
    }
}
