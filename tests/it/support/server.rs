//! The core of every scripted server: HTTP/1.1 on loopback, plain and TLS, a thread a connection, one request a connection.
//!
//! It knows nothing of scripts: a handler makes a [`Reply`] of each [`Request`]. It ends when it is dropped, and then fails
//! the test if a handler panicked.

use super::certificates::Certificates;
use rustls::{ServerConnection, StreamOwned};
use std::any::Any;
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Request {
    /// By scheme, Host header and request target; without the default port.
    pub url: String,
    pub method: String,
    /// Names in lower case; bytes above 0x7F as the Latin-1 characters of the same number.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Whether a Cookie header carries this `name=value`.
    pub fn has_cookie(&self, cookie: &str) -> bool {
        let of_name = self.headers.iter().filter(|(name, _)| name == "cookie");
        of_name.flat_map(|(_, value)| value.split(';')).any(|one| one.trim() == cookie)
    }

    /// Scheme and host, as `http://a.test`.
    fn site(&self) -> String {
        self.url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/")
    }
}

/// What the server does with a request.
#[derive(Default)]
pub struct Reply {
    /// Waited before anything is sent.
    pub delay: Duration,
    /// Nothing is ever sent; the connection stays open until the client goes or the server is dropped.
    pub hang: bool,
    /// Sent as it is: status line, headers and body.
    pub bytes: Vec<u8>,
    /// Run when the answer is out and the connection is closed.
    pub then: Option<Box<dyn FnOnce() + Send>>,
}

pub type Handler = dyn Fn(&Request) -> Reply + Send + Sync;

/// A server on two ports.
pub struct Server {
    pub http: SocketAddr,
    pub https: SocketAddr,
    shared: Arc<Shared>,
    accepting: Vec<JoinHandle<()>>,
}

struct Shared {
    handler: Box<Handler>,
    certificates: Arc<Certificates>,
    stop: AtomicBool,
    next_id: AtomicU64,
    open: Mutex<HashMap<u64, TcpStream>>,
    /// By site: requests being answered, and the most there ever were.
    in_flight: Mutex<HashMap<String, (usize, usize)>>,
    panics: Mutex<Vec<String>>,
}

impl Server {
    pub fn start(certificates: Arc<Certificates>, handler: Box<Handler>) -> Server {
        let shared = Arc::new(Shared {
            handler,
            certificates,
            stop: AtomicBool::new(false),
            next_id: AtomicU64::new(0),
            open: Mutex::default(),
            in_flight: Mutex::default(),
            panics: Mutex::default(),
        });
        let (http, plain) = accept(&shared, false);
        let (https, tls) = accept(&shared, true);
        Server { http, https, shared, accepting: vec![plain, tls] }
    }

    /// Closes every connection that is open.
    pub fn hang_up(&self) {
        for stream in self.shared.open.lock().unwrap().values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// The most requests to `site` (as `http://a.test`) that were in flight at one time.
    pub fn max_in_flight(&self, site: &str) -> usize {
        self.shared.in_flight.lock().unwrap().get(site).map_or(0, |(_, most)| *most)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for addr in [self.http, self.https] {
            let _ = TcpStream::connect(addr); // wakes `accept`
        }
        for thread in self.accepting.drain(..) {
            let _ = thread.join();
        }
        for stream in self.shared.open.lock().unwrap().values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        while !self.shared.open.lock().unwrap().is_empty() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        let panics = self.shared.panics.lock().unwrap();
        if !panics.is_empty() && !thread::panicking() {
            panic!("a scripted server failed: {}", panics.join("; "));
        }
    }
}

/// What a caught panic said.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string())).unwrap_or_default()
}

fn accept(shared: &Arc<Shared>, tls: bool) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    let addr = listener.local_addr().expect("its address");
    let shared = shared.clone();
    let thread = thread::spawn(move || {
        for stream in listener.incoming() {
            if shared.stop.load(Ordering::SeqCst) {
                return;
            }
            let Ok(stream) = stream else { continue };
            let id = shared.next_id.fetch_add(1, Ordering::SeqCst);
            shared.open.lock().unwrap().insert(id, stream.try_clone().expect("a second handle"));
            let shared = shared.clone();
            thread::spawn(move || {
                // A client that goes away is none of our errors; a panic is one of the test.
                let done = catch_unwind(AssertUnwindSafe(|| shared.connection(stream, tls)));
                if let Err(panic) = done {
                    shared.panics.lock().unwrap().push(panic_text(&*panic));
                }
                shared.open.lock().unwrap().remove(&id);
            });
        }
    });
    (addr, thread)
}

impl Shared {
    fn connection(&self, tcp: TcpStream, tls: bool) -> io::Result<()> {
        let probe = tcp.try_clone()?;
        let mut wire = match tls {
            false => Wire::Plain(tcp),
            true => {
                let connection = ServerConnection::new(self.certificates.server()).map_err(io::Error::other)?;
                Wire::Tls(Box::new(StreamOwned::new(connection, tcp)))
            }
        };
        let request = read_request(&mut BufReader::new(&mut wire), if tls { "https" } else { "http" })?;
        let site = request.site();
        self.count(&site, true);
        let counted = OnDrop(|| self.count(&site, false));
        let reply = (self.handler)(&request);
        if reply.hang || !reply.delay.is_zero() {
            self.pause(&probe, if reply.hang { Duration::MAX } else { reply.delay })?;
        }
        if !reply.hang {
            wire.write_all(&reply.bytes)?;
            wire.end()?;
        }
        drop(counted);
        drop(wire);
        let _ = probe.shutdown(Shutdown::Both);
        if let Some(then) = reply.then {
            then();
        }
        Ok(())
    }

    /// Waits, but not for a client that has gone or a test that has ended.
    fn pause(&self, probe: &TcpStream, time: Duration) -> io::Result<()> {
        let begin = Instant::now();
        probe.set_read_timeout(Some(Duration::from_millis(10)))?;
        while begin.elapsed() < time {
            let gone = probe.peek(&mut [0]).is_ok();
            if gone || self.stop.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        }
        probe.set_read_timeout(None)
    }

    fn count(&self, site: &str, begin: bool) {
        let mut in_flight = self.in_flight.lock().unwrap();
        let (now, most) = in_flight.entry(site.to_string()).or_default();
        *now = if begin { *now + 1 } else { *now - 1 };
        *most = (*most).max(*now);
    }
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn read_request(wire: &mut impl BufRead, scheme: &str) -> io::Result<Request> {
    let first = read_line(wire)?;
    let mut words = first.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = Vec::new();
    loop {
        let line = read_line(wire)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        headers.push((name.to_ascii_lowercase(), value.trim().to_string()));
    }
    let mut request = Request { url: String::new(), method: method.to_string(), headers, body: Vec::new() };
    assert!(request.header("transfer-encoding").is_none(), "scripted servers read bodies by Content-Length only");
    let length = request.header("content-length").map_or(0, |text| text.parse().expect("a Content-Length"));
    request.body.resize(length, 0);
    wire.read_exact(&mut request.body)?;
    let host = request.header("host").unwrap_or("no-host");
    let port = if scheme == "https" { ":443" } else { ":80" };
    request.url = format!("{scheme}://{}{target}", host.strip_suffix(port).unwrap_or(host));
    Ok(request)
}

/// A line without its end, as Latin-1.
fn read_line(wire: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    if wire.take(65536).read_until(b'\n', &mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.iter().map(|b| *b as char).collect::<String>().trim_end_matches(['\r', '\n']).to_string())
}

enum Wire {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Wire {
    fn end(&mut self) -> io::Result<()> {
        match self {
            Wire::Plain(tcp) => tcp.flush(),
            Wire::Tls(tls) => {
                tls.conn.send_close_notify();
                tls.flush()
            }
        }
    }
}

impl Read for Wire {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(tcp) => tcp.read(buf),
            Wire::Tls(tls) => tls.read(buf),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(tcp) => tcp.write(buf),
            Wire::Tls(tls) => tls.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Wire::Plain(tcp) => tcp.flush(),
            Wire::Tls(tls) => tls.flush(),
        }
    }
}
