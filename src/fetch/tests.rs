//! Chains against raw sockets on 127.0.0.1: what real and broken servers do.

use super::*;
use crate::rules::failure::FailureKind;
use crate::rules::moved::statuses;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::time::Instant;

/// Answers each request with what `reply` writes; keeps the requests' headers.
struct Origin {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    fn new(reply: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let head = head(&mut stream);
                seen.lock().unwrap().push(head.clone());
                reply(&head, &mut stream);
            }
        });
        Origin { address, requests }
    }

    /// Path → whole response; others are 404.
    fn of(pages: &'static [(&'static str, &'static str)]) -> Origin {
        Origin::new(move |head, stream| {
            let path = head.split(' ').nth(1).unwrap_or_default();
            let page = pages.iter().find(|(name, _)| *name == path).map(|(_, page)| *page);
            let _ = stream.write_all(page.unwrap_or("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").as_bytes());
        })
    }

    fn url(&self, path: &str) -> Url {
        Url::parse(&format!("http://{}{path}", self.address)).unwrap()
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn head(stream: &mut impl Read) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

fn limits() -> Limits {
    Limits {
        connect_timeout: Duration::from_secs(2),
        chain_timeout: Duration::from_secs(5),
        max_redirects: 10,
        max_body_bytes: 100_000,
    }
}

fn network(names: Option<TestNames>) -> Network {
    Network::new(NetworkOptions { user_agent: "feedmill/test".to_string(), names, ..NetworkOptions::default() })
        .unwrap()
}

fn request(url: &Url) -> Request<'_> {
    Request { url, validators: None, trusted: true, deadline: None }
}

fn fetch(url: &Url) -> Chain {
    network(None).chain(&request(url), &limits())
}

fn document(chain: &Chain) -> &Document {
    match &chain.end {
        End::Document(document) => document,
        other => panic!("{other:?}"),
    }
}

fn failure(chain: &Chain) -> FailureKind {
    match &chain.end {
        End::Failed { failure, .. } => failure.kind,
        other => panic!("{other:?}"),
    }
}

#[test]
fn redirect_then_document() {
    let origin = Origin::of(&[
        ("/f", "HTTP/1.1 302 Found\r\nLocation:  g#x\r\nContent-Length: 0\r\n\r\n"),
        (
            "/g",
            "HTTP/1.1 200 OK\r\nETag: \"\u{e9}\"\r\nLink: <h>; rel=hub\r\nLink: <s>; rel=self\r\nContent-Type: a/b\r\n\
             Cache-Control: a\r\nCache-Control: b\r\nContent-Length: 6\r\n\r\n<rss/>extra",
        ),
    ]);
    let mut url = origin.url("/f#part");
    url.set_username("u").unwrap();
    url.set_password(Some("p%20q")).unwrap();
    let chain = fetch(&url);
    let document = document(&chain);
    assert_eq!(statuses(&chain.hops), "302,200");
    assert_eq!(chain.hops[0].url, origin.url("/f"));
    assert_eq!(chain.hops[0].location, Some(origin.url("/g")));
    assert_eq!(document.url, origin.url("/g"));
    assert_eq!(document.body, b"<rss/>");
    assert_eq!(chain.wire_bytes, 6);
    assert!(chain.private);
    assert_eq!(document.validators.etag.as_deref(), Some("\"\u{c3}\u{a9}\""));
    assert_eq!(document.link_headers, ["<h>; rel=hub", "<s>; rel=self"]);
    assert_eq!(document.headers.cache_control.as_deref(), Some("a, b"));
    let requests = origin.requests();
    assert!(requests[1].starts_with("GET /g HTTP/1.1\r\n"));
    let names: Vec<_> = requests[1].lines().skip(1).filter_map(|line| line.split(':').next()).collect();
    let mut names: Vec<_> =
        names.iter().map(|name| name.to_ascii_lowercase()).filter(|name| !name.is_empty()).collect();
    names.sort();
    assert_eq!(names, ["accept", "accept-encoding", "authorization", "host", "user-agent"]);
    assert!(requests[1].contains("Basic dTpwIHE="));
}

#[test]
fn loops_and_bad_redirects() {
    let origin = Origin::of(&[
        ("/a", "HTTP/1.1 301 M\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n"),
        ("/b", "HTTP/1.1 302 M\r\nLocation: /a#again\r\nContent-Length: 0\r\n\r\n"),
        ("/none", "HTTP/1.1 301 M\r\nContent-Length: 0\r\n\r\n"),
        ("/two", "HTTP/1.1 301 M\r\nLocation: /a\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n"),
        ("/file", "HTTP/1.1 301 M\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n"),
        ("/300", "HTTP/1.1 300 M\r\nLocation: /a\r\nContent-Length: 0\r\n\r\n"),
        ("/429", "HTTP/1.1 429 M\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"),
        ("/503", "HTTP/1.1 503 M\r\nContent-Length: 0\r\n\r\n"),
        ("/cf", "HTTP/1.1 403 M\r\ncf-mitigated: challenge\r\nContent-Length: 0\r\n\r\n"),
    ]);
    for (path, kind, hops) in [
        ("/a", FailureKind::RedirectLoop, "301,302"),
        ("/none", FailureKind::BadLocation, "301"),
        ("/two", FailureKind::BadLocation, "301"),
        ("/file", FailureKind::BadLocation, "301"),
        ("/300", FailureKind::HttpError, "300"),
        ("/429", FailureKind::RateLimited, "429"),
        ("/503", FailureKind::ServerError, "503"),
        ("/cf", FailureKind::Challenge, "403"),
        ("/nowhere", FailureKind::NotFound, "404"),
    ] {
        let chain = fetch(&origin.url(path));
        assert_eq!((failure(&chain), statuses(&chain.hops).as_str()), (kind, hops), "{path}");
        let End::Failed { headers, .. } = chain.end else { unreachable!() };
        assert_eq!(headers.retry_after.is_some(), path == "/429");
    }
    let chain = network(None).chain(&request(&origin.url("/a")), &Limits { max_redirects: 0, ..limits() });
    assert_eq!(failure(&chain), FailureKind::TooManyRedirects);
    assert_eq!(failure(&fetch(&Url::parse("ftp://a.test/").unwrap())), FailureKind::BadScheme);
}

#[test]
fn a_cookie_wall_and_a_counter() {
    let origin = Origin::new(|head, stream| {
        let reply = match head.split(' ').nth(1) {
            Some("/wall") if head.contains("ok=1") => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}".to_string(),
            Some("/wall") => "HTTP/1.1 302 F\r\nSet-Cookie: ok=1; path=/\r\nLocation: /wall\r\n\r\n".to_string(),
            _ => format!("HTTP/1.1 302 F\r\nSet-Cookie: n={}\r\nLocation: /n\r\n\r\n", head.len()),
        };
        let _ = stream.write_all(reply.as_bytes());
    });
    let chain = fetch(&origin.url("/wall"));
    assert_eq!(document(&chain).body, b"{}");
    assert_eq!(statuses(&chain.hops), "302,200");
    assert_eq!(failure(&fetch(&origin.url("/n"))), FailureKind::RedirectLoop);
}

#[test]
fn validators_go_to_their_own_url() {
    let origin = Origin::new(|head, stream| {
        let reply = match head.split(' ').nth(1) {
            Some("/moved") => "HTTP/1.1 301 M\r\nLocation: /f\r\nContent-Length: 0\r\n\r\n",
            Some("/f") if head.to_ascii_lowercase().contains("if-none-match: \"1\"") => {
                "HTTP/1.1 304 N\r\nETag: \"2\"\r\nContent-Encoding: gzip\r\n\r\n"
            }
            _ => "HTTP/1.1 304 N\r\n\r\n",
        };
        let _ = stream.write_all(reply.as_bytes());
    });
    let validators = Validators {
        url: origin.url("/f").to_string(),
        etag: Some("\"1\"".to_string()),
        last_modified: Some("bad\nline".to_string()),
    };
    let url = origin.url("/moved");
    let chain = network(None).chain(&Request { validators: Some(&validators), ..request(&url) }, &limits());
    let End::NotModified { validators: now, .. } = &chain.end else { panic!("{:?}", chain.end) };
    assert_eq!((now.url.as_str(), now.etag.as_deref()), (validators.url.as_str(), Some("\"2\"")));
    assert_eq!(now.last_modified, validators.last_modified);
    assert!(!origin.requests()[0].to_ascii_lowercase().contains("if-none-match"));
    let chain = fetch(&origin.url("/f"));
    assert_eq!((failure(&chain), statuses(&chain.hops).as_str()), (FailureKind::Protocol, "304,304"));
}

#[test]
fn bodies_cut_large_encoded() {
    let origin = Origin::new(|head, stream| {
        let zipped = |text: &[u8]| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        };
        let (header, body): (&str, Vec<u8>) = match head.split(' ').nth(1) {
            Some("/gzip") => ("Content-Encoding: gzip\r\n", zipped(b"<rss/>")),
            Some("/bomb") => ("Content-Encoding: gzip\r\n", zipped(&vec![b' '; 10_000_000])),
            Some("/cut") => ("Content-Length: 1000\r\n", b"<rss>".to_vec()),
            Some("/chunk") => ("Transfer-Encoding: chunked\r\n", b"5\r\n<rss>\r\n7\r\nab".to_vec()),
            Some("/announced") => ("Content-Length: 100001\r\n", Vec::new()),
            _ => ("", vec![b'x'; 100_001]),
        };
        let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\n{header}\r\n").as_bytes());
        let _ = stream.write_all(&body);
    });
    let chain = fetch(&origin.url("/gzip"));
    assert_eq!(document(&chain).decode(1000).as_deref(), Ok(&b"<rss/>"[..]));
    let chain = fetch(&origin.url("/bomb"));
    assert_eq!(document(&chain).decode(100_000).unwrap_err().kind, FailureKind::TooLarge);
    for (path, kind) in [
        ("/cut", FailureKind::Protocol),
        ("/chunk", FailureKind::Protocol),
        ("/announced", FailureKind::TooLarge),
        ("/large", FailureKind::TooLarge),
    ] {
        assert_eq!(failure(&fetch(&origin.url(path))), kind, "{path}");
    }
}

#[test]
fn an_endless_redirect_body_is_not_read() {
    let origin = Origin::new(|head, stream| {
        if head.starts_with("GET /f ") {
            let _ = stream.write_all(b"HTTP/1.1 301 M\r\nLocation: /g\r\n\r\n");
            let mut sent = 0_u64;
            while stream.write_all(&[b'x'; 65536]).is_ok() {
                sent += 65536;
                assert!(sent < 100_000_000);
            }
        } else {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        }
    });
    assert_eq!(document(&fetch(&origin.url("/f"))).body, b"{}");
}

#[test]
fn a_drip_is_cut_by_the_deadline() {
    let origin = Origin::new(|head, stream| {
        if head.starts_with("GET /body ") {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        }
        while stream.write_all(b"H").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    for path in ["/body", "/header"] {
        let url = origin.url(path);
        let begun = Instant::now();
        let deadline = Some(begun + Duration::from_millis(400));
        let chain = network(None).chain(&Request { deadline, ..request(&url) }, &limits());
        // Garbage in the place of a header may be refused before.
        assert!(matches!(failure(&chain), FailureKind::Timeout | FailureKind::Protocol), "{:?}", chain.end);
        assert!(begun.elapsed() < Duration::from_millis(1500));
    }
    let begun = Instant::now();
    let chain = network(None).chain(&Request { deadline: Some(begun), ..request(&origin.url("/")) }, &limits());
    assert_eq!(failure(&chain), FailureKind::Timeout);
}

#[test]
fn private_addresses() {
    let origin = Origin::new(|head, stream| {
        let host = |name: &str| head.to_ascii_lowercase().contains(&format!("host: {name}\r\n"));
        let reply = if host("public.test") {
            "HTTP/1.1 301 M\r\nLocation: http://lan.test/\r\n\r\n"
        } else if host("meta.test") || head.starts_with("GET /meta ") {
            "HTTP/1.1 301 M\r\nLocation: http://169.254.169.254/latest\r\n\r\n"
        } else if head.starts_with("GET /to-lan ") {
            "HTTP/1.1 301 M\r\nLocation: http://lan2.test/\r\n\r\n"
        } else {
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
        };
        let _ = stream.write_all(reply.as_bytes());
    });
    let entry = |name: &str, ip: [u8; 4]| (name.to_string(), (origin.address, IpAddr::V4(Ipv4Addr::from(ip))));
    let names: TestNames = [
        entry("public.test", [93, 184, 216, 34]),
        entry("lan.test", [192, 168, 1, 5]),
        entry("lan2.test:80", [10, 0, 0, 1]),
        entry("meta.test", [169, 254, 169, 254]),
    ]
    .into();
    let network = network(Some(names.clone()));
    let run = |network: &Network, text: &str, trusted| {
        let url = Url::parse(text).unwrap();
        let chain = network.chain(&Request { trusted, ..request(&url) }, &limits());
        let kind = if let End::Failed { failure, .. } = &chain.end { Some(failure.kind) } else { None };
        (kind, statuses(&chain.hops), chain.private)
    };
    let blocked = Some(FailureKind::BlockedAddress);
    assert_eq!(run(&network, "http://public.test/", true), (blocked, "301".to_string(), false));
    assert_eq!(run(&network, "http://lan.test/to-lan", true), (None, "301,200".to_string(), true));
    assert_eq!(run(&network, "http://lan.test/", false), (blocked, String::new(), false));
    assert_eq!(run(&network, "http://lan.test/meta", true), (blocked, "301".to_string(), true));
    assert_eq!(run(&network, "http://meta.test/", true), (blocked, String::new(), false));
    assert_eq!(run(&network, "http://[::ffff:169.254.169.254]/", true), (blocked, String::new(), false));
    assert_eq!(run(&network, "http://other.test/", true).0, Some(FailureKind::Dns));
    let allow = guard::AllowList::parse("lan.test:80").unwrap();
    let open = Network::new(NetworkOptions {
        user_agent: "x".to_string(),
        allow,
        names: Some(names),
        ..NetworkOptions::default()
    });
    assert_eq!(run(&open.unwrap(), "http://public.test/", true).0, None);
}

#[test]
fn no_server_and_no_http() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(failure(&fetch(&Url::parse(&format!("http://{closed}/")).unwrap())), FailureKind::Connect);
    let origin = Origin::new(|head, stream| {
        let reply = match head.split(' ').nth(1) {
            Some("/large") => format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(40_000)),
            Some("/icy") => "ICY 200 OK\r\n\r\n".to_string(),
            _ => String::new(),
        };
        let _ = stream.write_all(reply.as_bytes());
    });
    for path in ["/large", "/icy", "/nothing"] {
        assert_eq!(failure(&fetch(&origin.url(path))), FailureKind::Protocol, "{path}");
    }
    // TLS to a server that speaks none.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Url::parse(&format!("https://{}/", listener.local_addr().unwrap())).unwrap();
    std::thread::spawn(move || listener.accept().unwrap().0.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
    assert_eq!(failure(&fetch(&url)), FailureKind::Tls);
    let long = format!("/{}", "a".repeat(20_000));
    assert_eq!(failure(&fetch(&origin.url(&long))), FailureKind::Protocol);
    assert_eq!(origin.requests().pop().unwrap().split(' ').nth(1), Some(long.as_str()));
}

#[test]
fn https_with_roots_of_ones_own() {
    let key = rcgen::generate_simple_self_signed(["a.test".to_string()]).unwrap();
    let server = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], key.signing_key.serialize_der().try_into().unwrap())
        .unwrap();
    let server = Arc::new(server);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let session = rustls::ServerConnection::new(Arc::clone(&server)).unwrap();
            let mut stream = rustls::StreamOwned::new(session, stream.unwrap());
            head(&mut stream);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        }
    });
    let ip = IpAddr::V4(Ipv4Addr::new(93, 184, 216, 34));
    let names: TestNames = ["a.test", "b.test"].map(|name| (name.to_string(), (address, ip))).into();
    let options = NetworkOptions {
        user_agent: "x".to_string(),
        names: Some(names),
        extra_roots_pem: Some(key.cert.pem().into_bytes()),
        ..NetworkOptions::default()
    };
    let trusting = Network::new(options.clone()).unwrap();
    let plain = Network::new(NetworkOptions { extra_roots_pem: None, ..options }).unwrap();
    let run = |network: &Network, text: &str| network.chain(&request(&Url::parse(text).unwrap()), &limits());
    for _ in 0..2 {
        assert_eq!(document(&run(&trusting, "https://a.test/")).body, b"{}");
    }
    let wrong_host = run(&trusting, "https://b.test/");
    assert_eq!(failure(&wrong_host), FailureKind::Tls);
    assert_eq!(statuses(&wrong_host.hops), "");
    assert_eq!(failure(&run(&plain, "https://a.test/")), FailureKind::Tls);
}

#[test]
fn posts() {
    let origin = Origin::new(|head, stream| {
        let length =
            head.to_ascii_lowercase().split("content-length: ").nth(1).unwrap().split('\r').next().unwrap().to_string();
        let mut form = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut form).unwrap();
        let reply = match head.split(' ').nth(1) {
            Some("/moved") => "HTTP/1.1 307 T\r\nLocation: http://u:p@b.test/hub#f\r\n\r\n".to_string(),
            _ => format!(
                "HTTP/1.1 403 F\r\nRetry-After: 9\r\n\r\n{}{}",
                String::from_utf8(form).unwrap(),
                "x".repeat(9000)
            ),
        };
        let _ = stream.write_all(reply.as_bytes());
    });
    let network = network(None);
    let post = |path, trusted| {
        let url = origin.url(path);
        network.post(&Post { url: &url, form: "hub.mode=subscribe", trusted, deadline: None }, &limits())
    };
    assert_eq!(post("/hub", false).unwrap_err().kind, FailureKind::BlockedAddress);
    let refused = post("/hub", true).unwrap();
    assert_eq!((refused.status, refused.text.len(), refused.location), (403, 4096, None));
    assert!(refused.text.starts_with("hub.mode=subscribex"));
    assert_eq!(refused.headers.retry_after.as_deref(), Some("9"));
    assert_eq!(post("/moved", true).unwrap().location.unwrap().as_str(), "http://b.test/hub");
    assert!(origin.requests()[0].to_ascii_lowercase().contains("content-type: application/x-www-form-urlencoded\r\n"));
}

#[test]
fn bad_options_are_told() {
    for agent in ["", "a\nb", "é", "\u{7f}"] {
        let options = NetworkOptions { user_agent: agent.to_string(), ..NetworkOptions::default() };
        assert!(Network::new(options).is_err(), "{agent:?}");
    }
    for pem in ["", "-----BEGIN CERTIFICATE-----\n???\n-----END CERTIFICATE-----\n"] {
        let options = NetworkOptions {
            user_agent: "x".to_string(),
            extra_roots_pem: Some(pem.as_bytes().to_vec()),
            ..NetworkOptions::default()
        };
        assert!(Network::new(options).is_err(), "{pem}");
    }
}
