//! feedmill keeps feed subscriptions alive in one SQLite file. This crate is private to its two programs: the public
//! interface is `schema.sql`.
//!
//! The floors, top to bottom; a module may use what stands below it, never above:
//!
//! * `cli`: one file a command; prints, decides nothing.
//! * `worker`: the loop claim → perform on the pool → apply; the only holder of the worker's connection.
//! * `check`: what may be wrong with a database, its permissions and the callback, and what mends it.
//! * `cgi`: what `feedmill-callback` does: environment and standard input → `push::callback` → `store` → an answer.
//! * `task`: the plain data that goes to a pool thread and comes back.
//! * `store`: all SQL.
//! * `fetch`: the network: one hop, the chain over it, the address guard, bodies.
//! * `feed`: bytes → feed.
//! * `push`: WebSub as data.
//! * `rules`: pure decisions.
//! * `clock`, `error`.

pub mod cgi;
#[cfg(feature = "worker")]
pub mod check;
#[cfg(feature = "worker")]
pub mod cli;
pub mod clock;
pub mod error;
#[cfg(feature = "worker")]
pub mod feed;
#[cfg(feature = "worker")]
pub mod fetch;
pub mod push;
pub mod rules;
pub mod store;
#[cfg(feature = "worker")]
pub mod task;
#[cfg(feature = "worker")]
pub mod worker;
