//! Cookies of one chain. Some sites redirect to the same URL until they see their own cookie again; nothing else is
//! wanted of cookies here, so they are sent back to the host that set them and forgotten with the chain.

use std::time::{Duration, SystemTime};
use url::Url;

/// Bytes of one `Cookie` header; a cookie that does not fit is not kept. Well under the output buffer.
const MAX_HEADER: usize = 4096;
/// Cookies of one host.
const MAX_COOKIES: usize = 30;

#[derive(Debug, Default)]
pub(super) struct Jar(Vec<Cookie>);

#[derive(Debug)]
struct Cookie {
    host: String,
    secure: bool,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Jar {
    /// Takes one `Set-Cookie` field that came from `url`. `now` is the server's own Date, if it sent one.
    pub(super) fn set(&mut self, url: &Url, field: &[u8], now: Option<SystemTime>) {
        let mut parts = field.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let Some((name, value)) = parts.next().and_then(pair) else { return };
        let (Some(host), false) = (url.host_str(), name.is_empty()) else { return };
        if field.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
            return;
        }
        let (mut secure, mut ended, mut ended_by_age) = (false, false, None);
        for part in parts {
            let (key, value) = pair(part).unwrap_or((part, b""));
            if key.eq_ignore_ascii_case(b"secure") {
                secure = true;
            } else if key.eq_ignore_ascii_case(b"max-age") {
                ended_by_age = Some(value.starts_with(b"-") || value == b"0");
            } else if key.eq_ignore_ascii_case(b"expires") {
                ended = is_past(value, now);
            }
        }
        if secure && url.scheme() != "https" {
            return;
        }
        self.0.retain(|cookie| cookie.host != host || cookie.name != name);
        let others = self.0.iter().filter(|cookie| cookie.host == host);
        let (count, bytes) = others.fold((0, 0), |(count, bytes), cookie| (count + 1, bytes + cookie.size()));
        let cookie = Cookie { host: host.to_string(), secure, name: name.to_vec(), value: value.to_vec() };
        // Max-Age wins over Expires (RFC 6265, 5.3).
        if !ended_by_age.unwrap_or(ended) && count < MAX_COOKIES && bytes + cookie.size() <= MAX_HEADER {
            self.0.push(cookie);
        }
    }

    /// The `Cookie` header for a request to `url`; empty: none.
    pub(super) fn header(&self, url: &Url) -> Vec<u8> {
        let mut header = Vec::new();
        let host = url.host_str();
        for cookie in self.0.iter().filter(|cookie| Some(cookie.host.as_str()) == host) {
            if cookie.secure && url.scheme() != "https" {
                continue;
            }
            if !header.is_empty() {
                header.extend_from_slice(b"; ");
            }
            header.extend_from_slice(&cookie.name);
            header.push(b'=');
            header.extend_from_slice(&cookie.value);
        }
        header
    }
}

impl Cookie {
    fn size(&self) -> usize {
        self.name.len() + self.value.len() + 3
    }
}

fn pair(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == b'=')?;
    Some((text[..at].trim_ascii(), text[at + 1..].trim_ascii()))
}

/// A date before the server's own; without that, one in the first years of the epoch, which is how deletion is written.
fn is_past(date: &[u8], now: Option<SystemTime>) -> bool {
    // Netscape's form has dashes in the date, which is no date of HTTP.
    let text = String::from_utf8_lossy(date).replace('-', " ");
    let limit = now.unwrap_or(SystemTime::UNIX_EPOCH + Duration::from_secs(20 * 365 * 86_400));
    httpdate::parse_http_date(text.trim()).is_ok_and(|date| date <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn set_replace_delete() {
        let mut jar = Jar::default();
        let a = url("http://a.test/x");
        jar.set(&a, b"one=1; Path=/other; HttpOnly", None);
        jar.set(&a, b" two = \"2\" ; Domain=.test", None);
        assert_eq!(jar.header(&a), b"one=1; two=\"2\"");
        assert_eq!(jar.header(&url("http://a.test:81/")), b"one=1; two=\"2\"");
        assert_eq!(jar.header(&url("http://b.a.test/")), b"");
        jar.set(&a, b"one=3", None);
        jar.set(&a, b"two=; Expires=Thu, 01-Jan-1970 00:00:01 GMT", None);
        assert_eq!(jar.header(&a), b"one=3");
        let now = httpdate::parse_http_date("Sun, 06 Nov 2044 08:49:37 GMT").ok();
        jar.set(&a, b"one=4; expires=Sat, 05 Nov 2044 08:49:37 GMT; max-age=60", now);
        assert_eq!(jar.header(&a), b"one=4");
        jar.set(&a, b"one=4; expires=Sat, 05 Nov 2044 08:49:37 GMT", now);
        assert_eq!(jar.header(&a), b"");
        jar.set(&a, b"one=1", None);
        jar.set(&a, b"one=1; Max-Age=0", None);
        jar.set(&a, b"no pair", None);
        jar.set(&a, b"=nameless", None);
        jar.set(&a, b"bad=a\x01b", None);
        assert_eq!(jar.header(&a), b"");
    }

    #[test]
    fn secure_stays_on_https() {
        let mut jar = Jar::default();
        jar.set(&url("http://a.test/"), b"no=1; Secure", None);
        jar.set(&url("https://a.test/"), b"yes=1; secure", None);
        assert_eq!(jar.header(&url("http://a.test/")), b"");
        assert_eq!(jar.header(&url("https://a.test/")), b"yes=1");
    }

    #[test]
    fn bounded() {
        let mut jar = Jar::default();
        let a = url("http://a.test/");
        for n in 0..1000 {
            jar.set(&a, format!("n{n}={}", "x".repeat(200)).as_bytes(), None);
        }
        jar.set(&a, format!("big={}", "x".repeat(5000)).as_bytes(), None);
        assert!(jar.header(&a).len() <= MAX_HEADER);
    }
}
