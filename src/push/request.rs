//! What is POSTed to a hub (WebSub 5.1, with what 0.3 hubs need beside it).

use std::fmt::Write;

/// `hub.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Subscribe,
    Unsubscribe,
}

impl Mode {
    /// As it is written in the form.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Subscribe => "subscribe",
            Mode::Unsubscribe => "unsubscribe",
        }
    }
}

/// The media type of [`Ask::body`].
pub const CONTENT_TYPE: &str = "application/x-www-form-urlencoded";
/// Answers are read up to this many bytes; a reason needs no more.
pub const ANSWER_MAX: u64 = 4096;
/// Redirects of the POST that are followed.
pub const REDIRECTS_MAX: usize = 5;

/// One request to a hub, complete: nothing else is needed to send it.
#[derive(Clone, PartialEq, Eq)]
pub struct Ask {
    pub mode: Mode,
    /// Where it goes: the hub's own query is kept, a fragment is not.
    pub hub_url: String,
    pub topic: String,
    /// [`callback_url`].
    pub callback: String,
    /// Seconds; `None` leaves the parameter out. Never sent when unsubscribing.
    pub lease_seconds: Option<i64>,
    /// Under 200 bytes (5.1); `None` for hubs that must not get one. Never sent when unsubscribing.
    pub secret: Option<String>,
    pub verify_token: String,
    /// The hub shall verify inside the request and say what is wrong: asked once, when it kept silent.
    pub sync: bool,
    /// The secret may travel over plain http (setting `secret_over_http`).
    pub secret_over_http: bool,
}

impl Ask {
    /// The form for this URL: `hub_url` first, then wherever the hub redirects the POST. `None`: it carries a secret and
    /// `url` is not https, so it must not be sent there; treat it as a failed redirect.
    pub fn body(&self, url: &str) -> Option<String> {
        let subscribing = self.mode == Mode::Subscribe;
        if subscribing && self.secret.is_some() && !self.secret_over_http && !is_https(url) {
            return None;
        }
        let mut form = String::with_capacity(512);
        let mut add = |name: &str, value: &str| {
            if !form.is_empty() {
                form.push('&');
            }
            form.push_str(name);
            form.push('=');
            encode(value, &mut form);
        };
        add("hub.mode", self.mode.name());
        add("hub.topic", &self.topic);
        add("hub.callback", &self.callback);
        // 0.3 hubs refuse a request without it, and take the first they know; others ignore it (5.1).
        for verify in if self.sync { ["sync", "async"] } else { ["async", "sync"] } {
            add("hub.verify", verify);
        }
        add("hub.verify_token", &self.verify_token);
        if subscribing {
            if let Some(lease) = self.lease_seconds {
                add("hub.lease_seconds", &lease.to_string());
            }
            if let Some(secret) = self.secret.as_deref().filter(|secret| !secret.is_empty()) {
                add("hub.secret", secret);
            }
        }
        Some(form)
    }
}

/// Without secret and tokens: this ends up in logs.
impl std::fmt::Debug for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ask")
            .field("mode", &self.mode)
            .field("hub_url", &self.hub_url)
            .field("topic", &self.topic)
            .field("lease_seconds", &self.lease_seconds)
            .field("signed", &self.secret.is_some())
            .field("sync", &self.sync)
            .finish_non_exhaustive()
    }
}

/// Appends `text`, every byte percent-encoded but the unreserved ones of RFC 3986: hubs differ in what else they decode.
pub fn encode(text: &str, to: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            to.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(to, "%{byte:02X}");
        }
    }
}

/// The subscription's own callback: the token in the path, since hubs rebuild queries (Switchboard, the Go hub).
pub fn callback_url(base: &str, token: &str) -> String {
    format!("{}/{token}", base.trim_end_matches('/'))
}

/// Whether a URL's scheme is https.
pub fn is_https(url: &str) -> bool {
    url.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"))
}

/// Where to ask first: an http hub on its default port is tried by https (WebSub 8.2), since many are still advertised by
/// http and a secret needs it. `None`: it is https already, or names a port of its own.
pub fn https_first(hub_url: &str) -> Option<String> {
    let rest = hub_url.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("http://")).map(|_| &hub_url[7..])?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let host = authority.strip_suffix(":80").unwrap_or(authority);
    let named_port = host.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    (!host.is_empty() && !named_port).then(|| format!("https://{host}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask() -> Ask {
        Ask {
            mode: Mode::Subscribe,
            hub_url: "https://h.test/?pushpress=hub".into(),
            topic: "http://a.test/f?x=1&y=ü z".into(),
            callback: callback_url("https://me.test/cb/", "t0k"),
            lease_seconds: Some(864_000),
            secret: Some("5ec".into()),
            verify_token: "v".into(),
            sync: false,
            secret_over_http: false,
        }
    }

    #[test]
    fn the_form() {
        let common =
            "hub.topic=http%3A%2F%2Fa.test%2Ff%3Fx%3D1%26y%3D%C3%BC%20z&hub.callback=https%3A%2F%2Fme.test%2Fcb%2Ft0k";
        let full = ask();
        assert_eq!(
            full.body(&full.hub_url).unwrap(),
            format!(
                "hub.mode=subscribe&{common}&hub.verify=async&hub.verify=sync&hub.verify_token=v\
                 &hub.lease_seconds=864000&hub.secret=5ec"
            )
        );
        let bare = Ask { lease_seconds: None, secret: None, sync: true, ..ask() };
        assert_eq!(
            bare.body("http://h.test/").unwrap(),
            format!("hub.mode=subscribe&{common}&hub.verify=sync&hub.verify=async&hub.verify_token=v")
        );
        let unsubscribe = Ask { mode: Mode::Unsubscribe, ..ask() };
        assert_eq!(
            unsubscribe.body("http://h.test/").unwrap(),
            format!("hub.mode=unsubscribe&{common}&hub.verify=async&hub.verify=sync&hub.verify_token=v")
        );
    }

    #[test]
    fn a_secret_stays_on_https() {
        assert!(ask().body("HTTPS://h.test/").is_some());
        assert_eq!(ask().body("http://h.test/"), None);
        assert!(Ask { secret_over_http: true, ..ask() }.body("http://h.test/").unwrap().contains("hub.secret"));
        assert!(!Ask { secret: Some(String::new()), ..ask() }.body("https://h.test/").unwrap().contains("hub.secret"));
        assert!(!format!("{:?}", ask()).contains("5ec"));
    }

    #[test]
    fn https_is_tried_first() {
        for (hub, wanted) in [
            ("http://h.test/?pushpress=hub", Some("https://h.test/?pushpress=hub")),
            ("HTTP://h.test", Some("https://h.test")),
            ("http://h.test:80/x", Some("https://h.test/x")),
            ("http://h.test:8080/", None),
            ("http://[::1]/", Some("https://[::1]/")),
            ("http://[::1]:81/", None),
            ("https://h.test/", None),
            ("http:///x", None),
            ("ftp://h.test/", None),
            ("", None),
            ("http:/ü", None),
        ] {
            assert_eq!(https_first(hub).as_deref(), wanted, "{hub}");
        }
    }
}
