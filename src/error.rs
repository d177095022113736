//! The one error type of the commands and the store, and the exit codes. What goes wrong with a *feed* is not an error of
//! ours: see `rules::failure`.

use std::fmt;

/// Done.
pub const EXIT_OK: u8 = 0;
/// It failed; standard error says why in one line.
pub const EXIT_FAILED: u8 = 1;
/// The command line was not understood.
pub const EXIT_USAGE: u8 = 2;

pub type Result<T> = std::result::Result<T, Error>;

/// What can stop a command. `Display` is one line: what is wrong and, where there is something, what to do.
#[derive(Debug)]
pub enum Error {
    /// The command line is wrong.
    Usage(String),
    /// The file is not a feedmill database, or one of another version; nothing was touched.
    Database(String),
    /// SQLite failed.
    Sqlite(rusqlite::Error),
    /// A file or stream failed; the text names it.
    Io(String, std::io::Error),
    /// Anything else worth a sentence.
    Failed(String),
}

impl Error {
    /// The exit code that goes with it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) => EXIT_USAGE,
            _ => EXIT_FAILED,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(text) => write!(f, "{text} (try --help)"),
            Error::Database(text) | Error::Failed(text) => f.write_str(text),
            Error::Sqlite(error) => match error.sqlite_error_code() {
                Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => {
                    f.write_str("the database is locked by another program; end its transaction and try again")
                }
                Some(rusqlite::ErrorCode::DiskFull) => f.write_str("the disk is full; make room and try again"),
                Some(rusqlite::ErrorCode::ReadOnly) => {
                    f.write_str("the database or its folder cannot be written; check owner and mode of both")
                }
                _ => write!(f, "the database failed: {error}"),
            },
            Error::Io(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Error {
        Error::Sqlite(error)
    }
}
