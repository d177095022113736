//! `feedmill discover URL`: the feeds that a page announces, best first. Touches no database.

use super::output::Output;
use crate::error::{EXIT_FAILED, EXIT_OK, Result};
use std::io::Write;

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
