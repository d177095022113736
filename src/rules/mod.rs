//! Pure decisions: no I/O, no SQL, no clock. Each rule stands in one place, with its cases beside it in `fixtures/` or in the
//! module's tests. Called by `worker`, `store`, `fetch` and `push`.

#[cfg(feature = "worker")]
pub mod canonical;
pub mod failure;
#[cfg(feature = "worker")]
pub mod identity;
pub mod lease;
#[cfg(feature = "worker")]
pub mod moved;
#[cfg(feature = "worker")]
pub mod schedule;
