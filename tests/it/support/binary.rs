//! The real `feedmill` program in a folder of its own.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What a program that ended left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// `None`: ended by a signal.
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

pub struct Feedmill {
    dir: TempDir,
    env: Vec<(String, String)>,
}

impl Feedmill {
    /// In a new folder, where `feedmill.db` is the database unless the arguments say otherwise.
    pub fn new() -> Feedmill {
        Feedmill { dir: TempDir::new().expect("a folder"), env: Vec::new() }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn db(&self) -> PathBuf {
        self.dir.path().join("feedmill.db")
    }

    /// An environment variable of every run that follows.
    pub fn env(mut self, name: &str, value: &str) -> Feedmill {
        self.env.push((name.to_string(), value.to_string()));
        self
    }

    /// Runs it to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        self.spawn(args).wait()
    }

    /// Runs it to its end; the test fails unless it ends well. Its standard output.
    pub fn succeed(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status, Some(0), "feedmill {args:?}: {}", output.stderr);
        output.stdout
    }

    /// Starts it.
    pub fn spawn(&self, args: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_feedmill"));
        command.args(args).current_dir(self.dir()).env_remove("FEEDMILL_DB").env_remove("FEEDMILL_LOG");
        command.envs(self.env.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("feedmill starts");
        let stdout = Collected::from(child.stdout.take().expect("its output"));
        let stderr = Collected::from(child.stderr.take().expect("its errors"));
        Running { child, stdout, stderr }
    }
}

/// A program that runs. Dropping it kills it.
pub struct Running {
    child: Child,
    stdout: Collected,
    stderr: Collected,
}

impl Running {
    /// As a power cut does it (SIGKILL).
    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// As a service manager does it (SIGTERM).
    pub fn terminate(&self) {
        let status = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(status.expect("the `kill` program").success(), "feedmill has ended already");
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("its state").is_none()
    }

    pub fn stderr_so_far(&self) -> String {
        self.stderr.text()
    }

    /// Waits for its end, at most a minute.
    pub fn wait(mut self) -> Output {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.is_running() {
            assert!(Instant::now() < deadline, "feedmill does not end: {}", self.stderr.text());
            thread::sleep(Duration::from_millis(5));
        }
        let status = self.child.wait().expect("its status").code();
        Output { status, stdout: self.stdout.finish(), stderr: self.stderr.finish() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A stream that a thread reads to its end.
struct Collected {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Collected {
    fn from(mut stream: impl Read + Send + 'static) -> Collected {
        let bytes: Arc<Mutex<Vec<u8>>> = Arc::default();
        let into = bytes.clone();
        let reader = thread::spawn(move || {
            let mut some = [0; 8192];
            while let Ok(n @ 1..) = stream.read(&mut some) {
                into.lock().unwrap().extend_from_slice(&some[..n]);
            }
        });
        Collected { bytes, reader: Some(reader) }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    fn finish(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        self.text()
    }
}

/// Looks every 10 ms whether it has come true; the test fails after 10 s.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "waited 10 s in vain until {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
