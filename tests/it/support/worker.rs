//! The worker on a test's clock, names and certificates.

use super::origin::Name;
use feedmill::clock::Clock;
use feedmill::fetch::TestNames;
use feedmill::worker::{self, Options};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

pub struct Worker {
    pub db: PathBuf,
    pub clock: Clock,
    pub names: Vec<Name>,
    pub ca_pem: String,
}

impl Worker {
    pub fn new(db: &Path, clock: Clock, names: Vec<Name>, ca_pem: &str) -> Worker {
        Worker { db: db.to_path_buf(), clock, names, ca_pem: ca_pem.to_string() }
    }

    /// Runs all that is due and returns when nothing is any more, as `run --once` does.
    pub fn run_due(&mut self) {
        let mut worker = worker::Worker::new(self.options()).unwrap_or_else(|error| panic!("the worker: {error}"));
        worker.run_once(&AtomicBool::new(false), &mut |_| {}).unwrap_or_else(|error| panic!("the worker: {error}"));
    }

    /// The same set-up for a worker of the test's own.
    pub fn options(&self) -> Options {
        let mut names = TestNames::new();
        for name in &self.names {
            names.insert(format!("{}:80", name.host), (name.http, name.public));
            names.insert(format!("{}:443", name.host), (name.https, name.public));
        }
        Options {
            database: self.db.clone(),
            threads: Some(4),
            clock: self.clock.clone(),
            names: Some(names),
            roots_pem: Some(self.ca_pem.clone().into_bytes()),
        }
    }
}
