//! `Cgi`: the least a web server does for `feedmill-callback`: HTTP/1.1 on loopback, one process a request, plain CGI/1.1.
//!
//! Where a test's time is injected the same code is called in this process with that clock: the program knows only the
//! system's.

use super::client;
use super::server::panic_text;
use feedmill::clock::Clock;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Where the program is mounted.
const MOUNT: &str = "/cb";

/// What was asked, and the status that the program gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    pub method: String,
    pub path_info: String,
    pub status: u16,
    /// What it wrote to standard error.
    pub log: String,
}

pub struct Cgi {
    addr: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    db: PathBuf,
    /// `Some`: served in this process, with this clock.
    clock: Option<Clock>,
    stop: AtomicBool,
    served: Mutex<Vec<Served>>,
    panics: Mutex<Vec<String>>,
}

impl Cgi {
    /// Runs the real program for each request.
    pub fn start(db: &Path) -> Cgi {
        Cgi::with(db, None)
    }

    /// Serves with a test's clock.
    pub fn at(db: &Path, clock: Clock) -> Cgi {
        Cgi::with(db, Some(clock))
    }

    fn with(db: &Path, clock: Option<Clock>) -> Cgi {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let addr = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            db: db.to_path_buf(),
            clock,
            stop: AtomicBool::new(false),
            served: Mutex::default(),
            panics: Mutex::default(),
        });
        let handler = shared.clone();
        let accepting = thread::spawn(move || {
            for stream in listener.incoming() {
                if handler.stop.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let handler = handler.clone();
                thread::spawn(move || {
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| handler.connection(stream))) {
                        handler.panics.lock().unwrap().push(panic_text(&*panic));
                    }
                });
            }
        });
        Cgi { addr, shared, accepting: Some(accepting) }
    }

    /// What stands in the setting `callback_url`.
    pub fn url(&self) -> String {
        format!("http://{}{MOUNT}", self.addr)
    }

    /// All requests that were answered so far, in the order of their answers.
    pub fn served(&self) -> Vec<Served> {
        self.shared.served.lock().unwrap().clone()
    }

    /// A request of a stranger.
    pub fn send(&self, method: &str, path_info: &str, headers: &[(&str, &str)], body: &[u8]) -> client::Response {
        client::send(method, &format!("{}{path_info}", self.url()), None, headers, body).expect("an answer")
    }
}

impl Drop for Cgi {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.addr); // wakes `accept`
        if let Some(thread) = self.accepting.take() {
            let _ = thread.join();
        }
        let panics = self.shared.panics.lock().unwrap();
        if !panics.is_empty() && !thread::panicking() {
            panic!("the CGI server failed: {}", panics.join("; "));
        }
    }
}

impl Shared {
    fn connection(&self, stream: TcpStream) {
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
        let mut line = || {
            let mut line = String::new();
            reader.read_line(&mut line).map(|_| line.trim_end().to_string())
        };
        let Ok(first) = line() else { return };
        let mut words = first.split(' ');
        let (Some(method), Some(target)) = (words.next(), words.next()) else { return };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut env: Vec<(String, String)> = vec![
            ("FEEDMILL_DB".into(), self.db.to_str().expect("a path in UTF-8").into()),
            ("GATEWAY_INTERFACE".into(), "CGI/1.1".into()),
            ("REQUEST_METHOD".into(), method.into()),
            ("SCRIPT_NAME".into(), MOUNT.into()),
            ("PATH_INFO".into(), path.strip_prefix(MOUNT).unwrap_or_default().into()),
            ("QUERY_STRING".into(), query.into()),
        ];
        let mut length = 0;
        loop {
            let Ok(line) = line() else { return };
            let Some((name, value)) = line.split_once(':') else { break };
            let (name, value) = (name.to_ascii_uppercase().replace('-', "_"), value.trim().to_string());
            match name.as_str() {
                "CONTENT_LENGTH" => {
                    length = value.parse().expect("a Content-Length");
                    env.push((name, value));
                }
                "CONTENT_TYPE" => env.push((name, value)),
                _ => env.push((format!("HTTP_{name}"), value)),
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let (output, log) = self.run(&env, &body);
        let end = output.windows(4).position(|four| four == b"\r\n\r\n").expect("the end of the headers");
        let head = std::str::from_utf8(&output[..end]).expect("headers");
        let (status, headers) = head.split_once("\r\n").expect("more than one header");
        let status = status.strip_prefix("Status: ").expect("the status first");
        let mut answer = format!("HTTP/1.1 {status}\r\n{headers}\r\nConnection: close\r\n\r\n").into_bytes();
        answer.extend_from_slice(&output[end + 4..]);
        self.served.lock().unwrap().push(Served {
            method: method.into(),
            path_info: path.strip_prefix(MOUNT).unwrap_or_default().into(),
            status: status[..3].parse().expect("a status"),
            log,
        });
        // The hub may have gone.
        let _ = (&stream).write_all(&answer);
    }

    /// What the program wrote to standard output and to standard error.
    fn run(&self, env: &[(String, String)], body: &[u8]) -> (Vec<u8>, String) {
        if let Some(clock) = &self.clock {
            let look = |name: &str| env.iter().find(|(known, _)| known == name).map(|(_, value)| OsString::from(value));
            let (mut out, mut log) = (Vec::new(), Vec::new());
            feedmill::cgi::serve(&look, &mut &*body, &mut out, &mut log, clock).expect("an answer");
            return (out, String::from_utf8_lossy(&log).into_owned());
        }
        let mut child = Command::new(env!("CARGO_BIN_EXE_feedmill-callback"))
            .env_clear()
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("feedmill-callback starts");
        // It need not read what it refuses.
        let _ = child.stdin.take().expect("its input").write_all(body);
        let output = child.wait_with_output().expect("its end");
        assert!(output.status.success(), "{output:?}");
        (output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
