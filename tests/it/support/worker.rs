//! The worker on a test's clock, names and certificates.

use super::origin::Name;
use feedmill::clock::Clock;
use std::path::{Path, PathBuf};

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
        unimplemented!("the worker is not joined to the tests yet")
    }
}
