//! When `feeds.url` changes: where a chain of redirects leads for good, and whether that is believed.
//!
//! Never sees the network or the database: it is given the chain and what is known of the feed. Called by `worker` when an
//! outcome is applied, and by `trace`.

use url::Url;

/// One response of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// What was asked for, without credentials and fragment.
    pub url: Url,
    pub status: u16,
    /// For a redirect that can be followed: the target, resolved against `url` (WHATWG), without credentials.
    pub location: Option<Url>,
}

/// Where the unbroken run of permanent redirects (301, 308) from the first response on leads; `None` when the first response
/// is none. What follows the run does not matter here.
pub fn permanent_target(hops: &[Hop]) -> Option<&Url> {
    hops.iter().take_while(|hop| matches!(hop.status, 301 | 308)).map_while(|hop| hop.location.as_ref()).last()
}

/// The statuses of a chain as they stand in `feed_urls` and `fetches`: `301,301,302,200`.
pub fn statuses(hops: &[Hop]) -> String {
    hops.iter().map(|hop| hop.status.to_string()).collect::<Vec<_>>().join(",")
}
