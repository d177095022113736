//! One feed, one URL (coming).
