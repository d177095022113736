//! The settings, typed. Their defaults and ranges stand in `schema.sql`.

use crate::error::{Error, Result};
use rusqlite::Connection;
use std::collections::HashMap;
use std::time::Duration;

/// All settings as the worker obeys them. Units are in the names, as in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `None`: no push.
    pub callback_url: Option<String>,
    pub contact: Option<String>,
    pub threads: usize,
    pub host_concurrency: u32,
    pub host_delay: Duration,
    pub min_interval_s: i64,
    pub max_interval_s: i64,
    pub connect_timeout: Duration,
    pub fetch_timeout: Duration,
    pub max_redirects: u32,
    pub max_body_bytes: u64,
    pub max_items: usize,
    pub lease_s: i64,
    pub secret_over_http: bool,
    pub allow_addresses: String,
    pub sanitize_html: bool,
    pub keep_entries: i64,
    pub fetch_log_days: i64,
}

impl Settings {
    /// Reads the table. Every value was checked when it was written; one that is missing all the same is an error that names
    /// it.
    pub fn load(db: &Connection) -> Result<Settings> {
        let mut statement = db.prepare_cached("SELECT key, value FROM settings")?;
        let values: HashMap<String, String> =
            statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()?;
        let text = |key: &str| {
            values.get(key).cloned().ok_or_else(|| {
                Error::Database(format!(
                    "the setting {key} is missing from the table settings; restore it from schema.sql"
                ))
            })
        };
        let number = |key: &str| {
            text(key)?
                .parse::<i64>()
                .map_err(|_| Error::Database(format!("the setting {key} is not a number; set it with UPDATE settings")))
        };
        let filled = |key: &str| text(key).map(|value| Some(value).filter(|value| !value.is_empty()));
        Ok(Settings {
            callback_url: filled("callback_url")?,
            contact: filled("contact")?,
            threads: number("threads")?.clamp(1, 256) as usize,
            host_concurrency: number("host_concurrency")?.clamp(1, 64) as u32,
            host_delay: Duration::from_millis(number("host_delay_ms")?.max(0) as u64),
            min_interval_s: number("min_interval_s")?,
            max_interval_s: number("max_interval_s")?,
            connect_timeout: Duration::from_secs(number("connect_timeout_s")?.max(1) as u64),
            fetch_timeout: Duration::from_secs(number("fetch_timeout_s")?.max(1) as u64),
            max_redirects: number("max_redirects")?.clamp(0, 50) as u32,
            max_body_bytes: number("max_body_bytes")?.max(1024) as u64,
            max_items: number("max_items")?.max(1) as usize,
            lease_s: number("lease_s")?,
            secret_over_http: number("secret_over_http")? == 1,
            allow_addresses: text("allow_addresses")?,
            sanitize_html: number("sanitize_html")? == 1,
            keep_entries: number("keep_entries")?,
            fetch_log_days: number("fetch_log_days")?,
        })
    }

    /// `feedmill/VERSION`, with the contact where there is one.
    pub fn user_agent(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        match &self.contact {
            Some(contact) => format!("feedmill/{version} (+{contact})"),
            None => format!("feedmill/{version}"),
        }
    }
}
