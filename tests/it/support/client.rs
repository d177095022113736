//! The plainest HTTP client: one request over a TcpStream, as hubs and web servers' visitors send it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use url::Url;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// Sends one http request to `addr` (or where `url` says) and reads to the end. The error is for people.
pub fn send(
    method: &str,
    url: &str,
    addr: Option<SocketAddr>,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Response, String> {
    let parsed = Url::parse(url).map_err(|error| format!("{url}: {error}"))?;
    assert_eq!(parsed.scheme(), "http", "this client speaks http only: {url}");
    let addrs = match addr {
        Some(addr) => vec![addr],
        None => parsed.socket_addrs(|| None).map_err(|error| format!("{url}: {error}"))?,
    };
    let mut head = format!("{method} {}", parsed.path());
    if let Some(query) = parsed.query() {
        head += &format!("?{query}");
    }
    let host = parsed.host_str().unwrap_or_default();
    let port = parsed.port().map(|port| format!(":{port}")).unwrap_or_default();
    head += &format!(" HTTP/1.1\r\nHost: {host}{port}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if method == "POST" {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    let exchange = || -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(&addrs[..])?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.write_all(format!("{head}\r\n").as_bytes())?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    };
    let answer = exchange().map_err(|error| format!("{url}: {error}"))?;
    parse(&answer).ok_or_else(|| format!("{url}: not HTTP: {:?}", String::from_utf8_lossy(&answer)))
}

/// Reads an answer; `None`: it is not HTTP.
pub fn parse(answer: &[u8]) -> Option<Response> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&answer[..end]);
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_string()))
        .collect();
    let mut body = answer[end + 4..].to_vec();
    if headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked") {
        body = unchunk(&body)?;
    }
    Some(Response { status, headers, body })
}

fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..end]).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(end + 2..end + 2 + size)?);
        rest = rest.get(end + 2 + size + 2..)?;
    }
}
