//! All SQL. Each file wraps one part of `schema.sql`; transactions are begun by the caller, and always IMMEDIATE: a read that
//! is upgraded to a write fails at once under load (measured).
//!
//! Never touches the network and starts no thread. Called by `worker`, by the commands and, for `open`,
//! `deliveries` and `subscriptions` alone, by the callback program.

pub mod deliveries;
#[cfg(feature = "worker")]
pub mod entries;
#[cfg(feature = "worker")]
pub mod feeds;
#[cfg(feature = "worker")]
pub mod invariants;
#[cfg(feature = "worker")]
pub mod jobs;
#[cfg(feature = "worker")]
pub mod log;
pub mod open;
#[cfg(feature = "worker")]
pub mod probe;
#[cfg(feature = "worker")]
pub mod requests;
#[cfg(feature = "worker")]
pub mod settings;
#[cfg(feature = "worker")]
pub mod status;
pub mod subscriptions;
#[cfg(feature = "worker")]
mod text;
#[cfg(feature = "worker")]
pub mod transaction;
