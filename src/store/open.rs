//! Opening, creating and upgrading the database file.
//!
//! The file is only ever opened through SQLite: closing any other descriptor on it would drop SQLite's POSIX locks.

use crate::error::{Error, Result};
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The one copy of the schema.
pub const SCHEMA: &str = include_str!("../../schema.sql");
/// `PRAGMA application_id` of our files: 'fmil'.
pub const APPLICATION_ID: i64 = 0x666d_696c;
/// The schema version this program writes.
pub const SCHEMA_VERSION: i64 = 1;

/// Step `i` takes a database from version `i + 1` to `i + 2`; each ends by setting `user_version`.
const MIGRATIONS: &[&str] = &[];

/// What a file is, told by its header fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Empty,
    Ours(i64),
    Foreign,
}

/// Creates the database at `path` from the schema, or brings an older one up to date. Answers what was done, as a sentence.
///
/// # Errors
/// A file that is another program's, or of a newer version, is refused untouched.
pub fn init(path: &Path) -> Result<String> {
    let new = !path.exists();
    let mut connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    match kind(&connection, path)? {
        Kind::Empty => {
            connection.execute_batch(SCHEMA).map_err(|error| named(path, error))?;
            check_wal(&connection, path)?;
            Ok(format!("{} {}", if new { "created" } else { "filled the empty file" }, path.display()))
        }
        Kind::Ours(SCHEMA_VERSION) => Ok(format!("{} is up to date", path.display())),
        Kind::Ours(version) if version < SCHEMA_VERSION => {
            let copy = migrate(&mut connection, path, version)?;
            Ok(format!(
                "brought {} from version {version} to {SCHEMA_VERSION}; the old one is kept as {}",
                path.display(),
                copy.display()
            ))
        }
        Kind::Ours(version) => Err(newer(path, version)),
        Kind::Foreign => Err(foreign(path)),
    }
}

/// Opens an existing database of this version for reading and writing; an older one is brought up to date first.
///
/// # Errors
/// No such file, not ours, newer than this program, not in WAL mode.
pub fn open(path: &Path) -> Result<Connection> {
    let mut connection = connect_existing(path)?;
    match kind(&connection, path)? {
        Kind::Ours(SCHEMA_VERSION) => {}
        Kind::Ours(version) if version < SCHEMA_VERSION => {
            let copy = migrate(&mut connection, path, version)?;
            log::info!(
                "{} brought from version {version} to {SCHEMA_VERSION}; old copy: {}",
                path.display(),
                copy.display()
            );
        }
        Kind::Ours(version) => return Err(newer(path, version)),
        Kind::Empty => {
            return Err(Error::Database(format!(
                "{} is empty; make the database with: feedmill --db {0} init",
                path.display()
            )));
        }
        Kind::Foreign => return Err(foreign(path)),
    }
    check_wal(&connection, path)?;
    Ok(connection)
}

/// Opens an existing database of exactly this version and never changes its schema: for the callback program.
///
/// # Errors
/// As [`open`], and any other version.
pub fn open_as_is(path: &Path) -> Result<Connection> {
    let connection = connect_existing(path)?;
    match kind(&connection, path)? {
        Kind::Ours(SCHEMA_VERSION) => Ok(connection),
        Kind::Ours(version) => Err(Error::Database(format!(
            "{} has version {version}, this program needs {SCHEMA_VERSION}",
            path.display()
        ))),
        Kind::Empty | Kind::Foreign => Err(foreign(path)),
    }
}

fn connect_existing(path: &Path) -> Result<Connection> {
    if !path.exists() {
        return Err(Error::Database(format!(
            "there is no database at {}; make it with: feedmill --db {0} init",
            path.display()
        )));
    }
    connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
}

/// A connection with the settings that both programs use.
fn connect(path: &Path, flags: OpenFlags) -> Result<Connection> {
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // SQLite takes a file that is too short for a header for an empty one, and would write over what a user has there.
    if std::fs::metadata(path).is_ok_and(|file| file.is_file() && (1..512).contains(&file.len())) {
        return Err(foreign(path));
    }
    let connection = Connection::open_with_flags(path, flags).map_err(|error| named(path, error))?;
    connection.busy_timeout(Duration::from_secs(10))?;
    // FULL: a 2xx to a hub and a secret on its way to one must survive power loss. trusted_schema off: nothing in the file
    // may call functions with side effects. foreign_keys off, as in the users' shell: triggers do that work everywhere.
    connection.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF; PRAGMA foreign_keys = OFF; PRAGMA cell_size_check = ON;
         PRAGMA journal_size_limit = 4194304; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -2000;",
        )
        .map_err(|error| named(path, error))?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

fn kind(connection: &Connection, path: &Path) -> Result<Kind> {
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let id = pragma("application_id").map_err(|error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => foreign(path),
        _ => named(path, error),
    })?;
    let version = pragma("user_version").map_err(|error| named(path, error))?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(|error| named(path, error))?;
    Ok(match (id, version, tables) {
        (APPLICATION_ID, version, tables) if version > 0 && tables > 0 => Kind::Ours(version),
        // schema.sql was cut off after its pragmas, or nothing was ever written.
        (0 | APPLICATION_ID, _, 0) => Kind::Empty,
        _ => Kind::Foreign,
    })
}

/// Runs the missing migrations in one transaction after a copy was made beside the file; answers where the copy is.
fn migrate(connection: &mut Connection, path: &Path, from: i64) -> Result<PathBuf> {
    let mut copy = path.as_os_str().to_owned();
    copy.push(format!(".v{from}.bak"));
    let copy = PathBuf::from(copy);
    if !copy.exists() {
        connection.execute("VACUUM INTO ?1", [copy.to_string_lossy()]).map_err(|error| named(&copy, error))?;
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have done it while we waited for the lock.
    let now_at: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    for step in MIGRATIONS.iter().skip(usize::try_from(now_at - 1).unwrap_or(0)) {
        transaction.execute_batch(step)?;
    }
    transaction.commit()?;
    Ok(copy)
}

/// WAL needs shared memory, which network file systems do not give.
fn check_wal(connection: &Connection, path: &Path) -> Result<()> {
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode == "wal" {
        return Ok(());
    }
    Err(Error::Database(format!(
        "{} cannot be used in WAL mode (got {mode}); put it on a local file system, not on NFS or SMB",
        path.display()
    )))
}

fn named(path: &Path, error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => foreign(path),
        Some(rusqlite::ErrorCode::CannotOpen) => Error::Database(format!(
            "cannot open {}: check that its folder exists and that you may write both",
            path.display()
        )),
        Some(rusqlite::ErrorCode::DatabaseCorrupt) => Error::Database(format!(
            "{} is damaged ({error}); restore a copy, or try the shell's .recover",
            path.display()
        )),
        _ => Error::Sqlite(error),
    }
}

fn foreign(path: &Path) -> Error {
    Error::Database(format!(
        "{} is not a feedmill database; it was left as it is. Name another with --db",
        path.display()
    ))
}

fn newer(path: &Path, version: i64) -> Error {
    Error::Database(format!(
        "{} has schema version {version}, newer than this program's {SCHEMA_VERSION}; install a newer feedmill",
        path.display()
    ))
}
