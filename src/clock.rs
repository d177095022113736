//! The one reader of the time. Everything that needs "now" is handed a [`Clock`] or the number itself, so that tests can set
//! it. (Deadlines of a fetch, delays between hosts and the callback's wait for a lock run on `Instant` where they are: they
//! measure, they do not date.)

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Unix seconds: the system's, or a test's.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    #[default]
    System,
    /// Shows what the test put there.
    Set(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that stands at `now` until it is moved.
    pub fn set_to(now: i64) -> Clock {
        Clock::Set(Arc::new(AtomicI64::new(now)))
    }

    /// Unix seconds. A system clock before 1970 reads as 0.
    pub fn now(&self) -> i64 {
        match self {
            Clock::System => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64),
            Clock::Set(at) => at.load(Ordering::SeqCst),
        }
    }

    /// Moves a set clock on by `seconds` (back, if negative); the system's is left alone.
    pub fn advance(&self, seconds: i64) {
        if let Clock::Set(at) = self {
            at.fetch_add(seconds, Ordering::SeqCst);
        }
    }
}
