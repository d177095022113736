//! `feedmill-callback`: one request of a hub, by plain CGI/1.1.
//!
//! Environment and standard input → `push::callback` → the store → an answer. It does as little as can be: the token is
//! checked before the body is read, the body is stored as it came, and nothing is answered with 2xx before the COMMIT.
//! What stops us (no database, locked, disk full, a bug) is a 503: a hub tries again after it, but gives up after 404 or
//! 410. Standard error, the web server's log, gets one line then; never a token, secret or body.

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::push::callback::{self, Body, Effect, Known, Length, Response};
use crate::rules::failure::clean_line;
use crate::store::deliveries::{self, Delivery, Taken};
use crate::store::open;
use crate::store::subscriptions::{self, CallbackSettings};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// Hubs are told to come again after this, seconds: when locked out, ...
const RETRY_LOCKED: u32 = 30;
/// ... and when somebody has to mend or make room first.
const RETRY_BROKEN: u32 = 300;
/// Content types and `Link` fields longer than this are nobody's, bytes.
const HEADER_MAX: usize = 4096;
/// Bytes of a body that nobody wants which are read and thrown away after the answer.
const DRAIN_MAX: u64 = 64 << 20;

/// Serves one request: `env` looks up the CGI variables, the answer goes to `stdout` in one piece, trouble as a line to
/// `stderr`. An answer is given whatever happens, a panic included.
///
/// # Errors
/// Only `stdout`'s.
pub fn serve(
    env: &dyn Fn(&str) -> Option<OsString>,
    stdin: &mut dyn Read,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
    clock: &Clock,
) -> std::io::Result<()> {
    let mut stdin = Counted { inner: stdin, count: 0 };
    let answered = catch_unwind(AssertUnwindSafe(|| answer(env, &mut stdin, clock)));
    let panicked = answered.is_err();
    let (response, trouble) = match answered {
        Ok(Ok(response)) => (response, None),
        Ok(Err(error)) => (Response::later(wait_for(&error)), Some(error.to_string())),
        Err(_) => (Response::later(RETRY_BROKEN), Some("a bug stopped the request; please report it".to_string())),
    };
    if let Some(trouble) = trouble {
        // A full log must not cost the answer.
        let _ = writeln!(stderr, "feedmill-callback: {}", clean_line(&trouble, 500));
    }
    let mut out = format!("Status: {}\r\n", response.status_line()).into_bytes();
    for (name, value) in response.headers() {
        out.extend(format!("{name}: {value}\r\n").bytes());
    }
    out.extend(format!("Content-Length: {}\r\n\r\n", response.body.len()).bytes());
    if env("REQUEST_METHOD").is_none_or(|method| method != "HEAD") {
        out.extend(&response.body);
    }
    stdout.write_all(&out)?;
    stdout.flush()?;
    if !panicked {
        drain(env, &mut stdin);
    }
    Ok(())
}

/// Standard input, with the bytes that were read.
struct Counted<'a> {
    inner: &'a mut dyn Read,
    count: u64,
}

impl Read for Counted<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let got = self.inner.read(into)?;
        self.count += got as u64;
        Ok(got)
    }
}

/// Throws away what is left of a body. Under Apache's mod_cgid both directions are one socket: closing it while something is
/// unread destroys the answer, and the hub would see a broken connection in the place of a 404, 410 or 413.
fn drain(env: &dyn Fn(&str) -> Option<OsString>, stdin: &mut Counted<'_>) {
    if env("REQUEST_METHOD").is_none_or(|method| method == "GET" || method == "HEAD") {
        return;
    }
    let length = env("CONTENT_LENGTH").and_then(|length| length.into_string().ok());
    let left = match callback::length(length.as_deref(), DRAIN_MAX) {
        Length::Exactly(length) => length.saturating_sub(stdin.count),
        Length::TooLarge | Length::ToEnd => DRAIN_MAX,
    };
    // The answer is out: what goes wrong now is nobody's concern.
    let _ = std::io::copy(&mut stdin.take(left), &mut std::io::sink());
}

fn wait_for(error: &Error) -> u32 {
    match error {
        Error::Sqlite(error) if is_busy(error) => RETRY_LOCKED,
        _ => RETRY_BROKEN,
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

fn answer(env: &dyn Fn(&str) -> Option<OsString>, stdin: &mut dyn Read, clock: &Clock) -> Result<Response> {
    let text = |name: &str| env(name).and_then(|value| value.into_string().ok());
    let Some(method) = text("REQUEST_METHOD") else {
        return Err(Error::Failed("this is a CGI program: a web server starts it (REQUEST_METHOD is not set)".into()));
    };
    let reading = matches!(method.as_str(), "GET" | "HEAD");
    if !reading && method != "POST" {
        return Ok(Response::empty(405));
    }
    let path_info = text("PATH_INFO").unwrap_or_default();
    let Some(token) = callback::token(&path_info) else { return Ok(Response::empty(404)) };
    let Some(file) = env("FEEDMILL_DB").filter(|file| !file.is_empty()) else {
        return Err(Error::Failed("FEEDMILL_DB is not set: name the database there".into()));
    };
    let mut connection = open::open_as_is(Path::new(&file))?;
    // A hub waits for each of us: the worker checkpoints, not whoever closes last.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // One read transaction for all of it, over before the body is waited for.
    let reads = connection.transaction()?;
    let settings = subscriptions::callback_settings(&reads)?;
    let known = subscriptions::by_token(&reads, token)?;
    drop(reads);
    let Some(known) = known else { return Ok(Response::empty(404)) };

    if reading {
        let query = env("QUERY_STRING").map(OsString::into_encoded_bytes).unwrap_or_default();
        let (response, effect) = callback::get(&query, &known, clock.now());
        if method == "HEAD" || effect == Effect::None {
            return Ok(response);
        }
        return write(&mut connection, token, &settings, clock, None, &|known, now| callback::get(&query, known, now));
    }

    if !callback::wanted(&known) {
        return Ok(Response::empty(410));
    }
    let read =
        read_body(stdin, callback::length(text("CONTENT_LENGTH").as_deref(), settings.max_delivery_bytes), &settings)?;
    let header = |name: &str| text(name).filter(|value| !value.is_empty() && value.len() <= HEADER_MAX);
    let signature = header("HTTP_X_HUB_SIGNATURE");
    let delivery = Delivery {
        id: 0,
        content_type: header("CONTENT_TYPE"),
        link: header("HTTP_LINK"),
        body: match read {
            Ok(body) => body,
            Err(trouble) => {
                let body = trouble;
                return match callback::post(&known, None, body) {
                    (response, Effect::None) => Ok(response),
                    _ => write(&mut connection, token, &settings, clock, None, &|known, _| {
                        callback::post(known, None, body)
                    }),
                };
            }
        },
    };
    // The hash of a large body is not worked out while others wait for the lock: again only if the secrets have changed.
    let first = callback::post(&known, signature.as_deref(), Body::Whole(&delivery.body));
    let secrets = |known: &Known| (known.secret.clone(), known.previous_secret.clone());
    let written = write(&mut connection, token, &settings, clock, Some(&delivery), &|now_known, _| {
        if secrets(now_known) == secrets(&known) && callback::wanted(now_known) {
            return first.clone();
        }
        callback::post(now_known, signature.as_deref(), Body::Whole(&delivery.body))
    });
    // No transaction is open and the process ends now: closing would only take the parsed schema to pieces.
    std::mem::forget(connection);
    written
}

/// The body, or why there is none to judge.
fn read_body(
    stdin: &mut dyn Read,
    length: Length,
    settings: &CallbackSettings,
) -> Result<std::result::Result<Vec<u8>, Body<'static>>> {
    let limit = match length {
        Length::TooLarge => return Ok(Err(Body::TooLarge)),
        Length::Exactly(length) => length,
        Length::ToEnd => settings.max_delivery_bytes + 1,
    };
    let mut body = Vec::new();
    if let Length::Exactly(length) = length {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        body.try_reserve_exact(length).map_err(|_| Error::Failed("there is no memory for a delivery".into()))?;
    }
    match stdin.take(limit).read_to_end(&mut body) {
        Ok(_) => {}
        // The hub or the web server went away in the middle.
        Err(_) => return Ok(Err(Body::Cut)),
    }
    let got = body.len() as u64;
    Ok(match length {
        Length::Exactly(length) if got < length => Err(Body::Cut),
        Length::ToEnd if got > settings.max_delivery_bytes => Err(Body::TooLarge),
        _ => Ok(body),
    })
}

/// The one short transaction: looks the token up again under the lock, decides on what stands there now, writes, commits.
fn write(
    connection: &mut Connection,
    token: &str,
    settings: &CallbackSettings,
    clock: &Clock,
    delivery: Option<&Delivery>,
    decide: &dyn Fn(&Known, i64) -> (Response, Effect),
) -> Result<Response> {
    let transaction = begin(connection, Duration::from_millis(settings.callback_wait_ms))?;
    let now = clock.now();
    let Some(known) = subscriptions::by_token(&transaction, token)? else { return Ok(Response::empty(404)) };
    let (response, effect) = decide(&known, now);
    match (effect, delivery) {
        (Effect::Step { step, reason }, _) => {
            subscriptions::store(&transaction, &known, &step, reason.as_deref(), now)?;
        }
        (Effect::Hint { refused }, _) => deliveries::hint(&transaction, &known, refused, now)?,
        (Effect::Deliver { current }, Some(delivery)) => {
            match deliveries::deliver(&transaction, &known, delivery, current, settings, now)? {
                Taken::Stored => {}
                Taken::Full => {
                    return Err(Error::Failed(format!(
                        "{} deliveries wait already (max_pending_deliveries): is the worker running?",
                        settings.max_pending_deliveries
                    )));
                }
            }
        }
        (Effect::Deliver { .. }, None) | (Effect::None, _) => return Ok(response),
    }
    transaction.commit()?;
    Ok(response)
}

/// BEGIN IMMEDIATE, tried in short steps until `wait` is over: SQLite's own waiting sleeps up to a tenth of a second, and
/// of 64 deliveries at once the unlucky ones would never be served.
fn begin(connection: &mut Connection, wait: Duration) -> Result<Transaction<'_>> {
    connection.busy_timeout(Duration::ZERO)?;
    let until = Instant::now() + wait;
    // Different in each process, so that they do not knock all at once.
    let mut step = 1 + u64::from(std::process::id()) % 4;
    loop {
        match Transaction::new_unchecked(connection, TransactionBehavior::Immediate) {
            Ok(transaction) => return Ok(transaction),
            Err(error) if is_busy(&error) && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(step).min(until.saturating_duration_since(Instant::now())));
                step = 1 + (step * 5 + 3) % 8;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
