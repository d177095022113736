//! How workers know of each other: each holds an advisory lock on a small file of its own beside the database. The system
//! drops it when the process ends, however it ends, so the claims of a dead worker are free at once.
//!
//! Never on the database's own files: closing a descriptor there would drop SQLite's locks.

use crate::error::{Error, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

/// Our own life sign; removed on drop.
#[derive(Debug)]
pub struct LifeSign {
    name: String,
    path: PathBuf,
    _lock: File,
}

impl LifeSign {
    /// Takes a name that no other worker of this database has.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn new(database: &Path) -> Result<LifeSign> {
        let process = std::process::id();
        for number in 1..1000 {
            let name = format!("{process}-{number}");
            let path = path_of(database, &name);
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(|error| {
                Error::Io(format!("cannot make {}; the worker needs to write its folder", path.display()), error)
            })?;
            // One that can be locked is left from a dead process of the same number, or just made.
            if file.try_lock().is_ok() {
                return Ok(LifeSign { name, path, _lock: file });
            }
        }
        Err(Error::Failed(format!("too many workers have files beside {}", database.display())))
    }

    /// What stands in `jobs.claimed_by`.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for LifeSign {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn path_of(database: &Path, name: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(format!(".worker-{name}"));
    PathBuf::from(path)
}

/// Whether the worker of this name lives. Its file is removed when it does not.
pub fn lives(database: &Path, name: &str) -> bool {
    // The name comes from a table that anybody may write.
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
        return false;
    }
    let path = path_of(database, name);
    let Ok(file) = OpenOptions::new().write(true).open(&path) else { return false };
    match file.try_lock() {
        Ok(()) => {
            let _ = std::fs::remove_file(&path);
            false
        }
        Err(TryLockError::WouldBlock) => true,
        // In doubt its claims run out by themselves.
        Err(TryLockError::Error(_)) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_lives_as_long_as_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("f.db");
        let one = LifeSign::new(&database).unwrap();
        let two = LifeSign::new(&database).unwrap();
        assert_ne!(one.name(), two.name());
        assert!(lives(&database, one.name()));
        let name = one.name().to_string();
        drop(one);
        assert!(!lives(&database, &name));
        assert!(!lives(&database, "../../etc/passwd"));
        assert!(!lives(&database, ""));
        drop(two);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
