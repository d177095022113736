//! WebSub and PubSubHubbub 0.3/0.4, the subscriber's side, as data: what to post, what an answer means, what the callback
//! answers, signatures. No I/O, no SQL, no clock.
//!
//! The worker uses `request` and `answer`, the callback program `callback`, `query` and `signature`. When something is done
//! is decided in `rules::lease`.

pub mod answer;
pub mod callback;
pub mod query;
pub mod request;
pub mod signature;
