//! Feeds and bodies as the cases write them: `FEED(3)`, `FEED(3,x)`, `SIZE(5000)`, `A*1025`.
//!
//! Guid, link, title and date of an entry are made of its tag and number, so that feeds of two tags share nothing.

use std::time::{Duration, SystemTime};

/// A valid RSS 2.0 feed with the entries `n` to 1 of `tag`.
pub fn feed(n: usize, tag: &str) -> String {
    let mut items = String::new();
    for i in (1..=n).rev() {
        let date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(published(tag, i) as u64));
        items += &format!(
            "<item><title>{}</title><link>{}</link><guid isPermaLink=\"false\">{}</guid><pubDate>{date}</pubDate></item>\n",
            title(tag, i),
            link(tag, i),
            guid(tag, i),
        );
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<rss version=\"2.0\"><channel>\n<title>Feed {tag}</title>\
         <link>http://entries.test/{tag}/</link><description>Entries of {tag}</description>\n{items}</channel></rss>\n"
    )
}

pub fn guid(tag: &str, i: usize) -> String {
    format!("urn:{tag}:{i}")
}

pub fn link(tag: &str, i: usize) -> String {
    format!("http://entries.test/{tag}/{i}")
}

pub fn title(tag: &str, i: usize) -> String {
    format!("Entry {i} of {tag}")
}

/// Unix seconds in 2024: the tag says the day and second, the number the hour.
pub fn published(tag: &str, i: usize) -> i64 {
    let hash = tag.bytes().fold(17_u32, |hash, b| hash.wrapping_mul(31).wrapping_add(b.into()));
    1_704_067_200 + i64::from(hash % 200) * 86_400 + i as i64 * 3600 + i64::from(hash % 3599)
}

/// The tag of a guid that [`guid`] made.
pub fn tag_of(guid: &str) -> &str {
    guid.strip_prefix("urn:").and_then(|rest| rest.rsplit_once(':')).map_or(guid, |(tag, _)| tag)
}

/// A body or query as a case writes it, written out.
pub fn expand(text: &str) -> String {
    expand_with(text, None)
}

/// The same where `max` in `SIZE(max+1)` means a limit.
pub fn expand_with(text: &str, max: Option<usize>) -> String {
    if let Some(count) = text.rsplit_once("A*").map(|(_, count)| count).filter(|c| c.parse::<usize>().is_ok()) {
        let before = text.len() - count.len() - 2;
        return text[..before].to_string() + &"A".repeat(count.parse().expect("a number"));
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some((at, size)) =
        [("FEED(", false), ("SIZE(", true)].iter().filter_map(|(word, size)| Some((rest.find(word)?, *size))).min()
    {
        let Some((inner, after)) = rest[at + 5..].split_once(')') else { break };
        out += &rest[..at];
        if size {
            out += &"x".repeat(number(inner, max));
        } else {
            let (n, tag) = inner.split_once(',').unwrap_or((inner, "x"));
            out += &feed(number(n, None), tag.trim());
        }
        rest = after;
    }
    out + rest
}

fn number(text: &str, max: Option<usize>) -> usize {
    text.split('+')
        .map(|part| match part.trim() {
            "max" => max.expect("a limit for `max`"),
            digits => digits.parse().unwrap_or_else(|_| panic!("not a number: {text}")),
        })
        .sum()
}
