//! `feedmill discover URL`: the feeds that a page announces, best first. Touches no database.

use super::output::Output;
use crate::error::{EXIT_FAILED, EXIT_OK, Error, Result};
use crate::rules::canonical::canonical;
use crate::worker::perform;
use std::io::Write;

/// Reads the page and prints what it announces; where it announces nothing, the first well-known address that is a feed. A URL
/// that is a feed itself is its own answer.
pub fn run(url: &str, out: &mut Output<impl Write>) -> Result<u8> {
    let (tools, limits) = super::tools()?;
    let spellings = canonical(url).map_err(|refusal| Error::Failed(refusal.to_string()))?;
    let mut given = spellings.given().clone();
    let mut found = perform::announced(&given, &tools, &limits);
    if let (Err(_), Some(plain)) = (&found, &spellings.http_fallback) {
        given = plain.clone();
        found = perform::announced(&given, &tools, &limits);
    }
    match found.map_err(|failure| Error::Failed(format!("{}: {}", failure.kind, failure.message)))? {
        None => show([given.as_str()], out),
        Some((_, page)) if !page.feeds.is_empty() => show(page.feeds.iter().map(|feed| feed.url.as_str()), out),
        Some((page_url, page)) => {
            let guess = perform::first_feed(&page.fallback, &tools, &limits);
            match &guess {
                Some(url) => show([url.as_str()], out),
                None => Err(Error::Failed(format!("{page_url} names no feed"))),
            }
        }
    }
}

/// Prints the feeds' URLs in the order given, one a line and nothing else, so that `feedmill discover URL | head -1` is
/// an address to use. Exit code 1, and no word, when there is none.
pub fn show<'a>(feeds: impl IntoIterator<Item = &'a str>, out: &mut Output<impl Write>) -> Result<u8> {
    let lines = lines(feeds);
    out.text(&lines)?;
    Ok(if lines.is_empty() { EXIT_FAILED } else { EXIT_OK })
}

/// One URL a line.
pub fn lines<'a>(feeds: impl IntoIterator<Item = &'a str>) -> String {
    feeds.into_iter().flat_map(|url| [url, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_line_and_exit_code_1_for_none() {
        let mut printed = Vec::new();
        let feeds = ["https://a.test/f", "https://a.test/g"];
        assert_eq!(show(feeds, &mut Output::new(&mut printed)).unwrap(), EXIT_OK);
        assert_eq!(show([], &mut Output::new(&mut printed)).unwrap(), EXIT_FAILED);
        assert_eq!(String::from_utf8(printed).unwrap(), "https://a.test/f\nhttps://a.test/g\n");
    }
}
