//! What feedmill reads in documents, one JSON line each, for `contrib/corpus/run`.
//!
//! Standard input has one document a line: its base URL, its content type (may be empty) and its path, parted by tabs.
//! The bytes take the worker's way: decoded by `fetch::charset`, parsed by `feed::parse`.

use feedmill::feed::parse::{ParseLimits, parse};
use feedmill::feed::{Entry, Feed};
use feedmill::fetch::charset;
use serde_json::{Value, json};
use std::io::{self, BufRead, Write};
use std::time::Instant;
use url::Url;

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let mut fields = line.splitn(3, '\t');
        let (Some(base), Some(content_type), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a line is: base URL, tab, content type, tab, path",
            ));
        };
        let base = Url::parse(base).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        let bytes = std::fs::read(path)?;
        let start = Instant::now();
        let text = charset::to_utf8(&bytes, Some(content_type).filter(|t| !t.is_empty()), false);
        let mut result = match parse(&text, &base, &ParseLimits::default()) {
            Ok(feed) => read(&feed),
            Err(error) => json!({ "error": error.to_string() }),
        };
        result["path"] = path.into();
        result["microseconds"] = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX).into();
        writeln!(out, "{result}")?;
    }
    Ok(())
}

fn read(feed: &Feed) -> Value {
    let entry = |e: &Entry| {
        json!({
            "guid": e.guid, "url": e.url, "title": e.title, "author": e.author, "summary": e.summary,
            "content": e.content, "published_at": e.published_at, "updated_at": e.updated_at,
            "enclosures": e.enclosures.iter().map(|x| &x.url).collect::<Vec<_>>(),
        })
    };
    json!({
        "title": feed.title, "site_url": feed.site_url, "hubs": feed.links.hubs, "self": feed.links.self_url,
        "entries": feed.entries.iter().map(entry).collect::<Vec<_>>(),
    })
}
