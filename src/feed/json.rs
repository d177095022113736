//! JSON Feed 1.0 and 1.1. An own reader: feed-rs refuses the feed for a numeric id, a missing title, a `null` tag or an
//! attachment without a type, and does not give the hubs.

use super::parse::{ParseError, ParseLimits};
use super::{Enclosure, Entry, Feed, dates, links, text};
use serde_json::Value;
use url::Url;

/// A JSON value takes some 32 bytes of memory; the fullest real feeds have some 50,000.
const MAX_VALUES: usize = 1_000_000;

/// Reads a JSON Feed.
///
/// # Errors
/// `NotAFeed` when it is no JSON or has no items, and the bounds.
pub(super) fn parse(body: &str, base: &Url, limits: &ParseLimits) -> Result<Feed, ParseError> {
    guard(body, limits)?;
    // Raw line feeds and the like inside strings are no JSON, but common.
    let root = read(body).or_else(|error| {
        let mended = body.contains(|c: char| c < ' ').then(|| body.replace(|c: char| c < ' ', " "));
        mended.map_or(Err(error), |mended| read(&mended))
    })?;
    let version = root.get("version").and_then(Value::as_str).unwrap_or("");
    let Some(items) = root.get("items").and_then(Value::as_array).filter(|_| version.contains("jsonfeed.org")) else {
        return Err(ParseError::NotAFeed("JSON, but no JSON Feed".into()));
    };
    if items.len() > limits.max_items {
        return Err(ParseError::TooManyItems(limits.max_items));
    }
    let author = author(&root);
    let mut feed = Feed {
        title: root.get("title").and_then(Value::as_str).and_then(|t| text::title(t, false)),
        site_url: url(&root, "home_page_url", base),
        entries: items.iter().filter(|item| item.is_object()).map(|item| entry(item, base, author.as_ref())).collect(),
        ..Feed::default()
    };
    feed.links.self_url = url(&root, "feed_url", base);
    for hub in root.get("hubs").and_then(Value::as_array).into_iter().flatten() {
        // Also rssCloud stands there; the name of the other type was never defined, WebSub is what everybody writes.
        let websub = hub.get("type").and_then(Value::as_str).is_some_and(|t| t.trim().eq_ignore_ascii_case("websub"));
        if let Some(hub) = url(hub, "url", base).filter(|_| websub)
            && !feed.links.hubs.contains(&hub)
        {
            feed.links.hubs.push(hub);
        }
    }
    Ok(feed)
}

/// The first value of the text; what follows it is ignored.
fn read(body: &str) -> Result<Value, ParseError> {
    match serde_json::Deserializer::from_str(body).into_iter::<Value>().next() {
        Some(Ok(root)) => Ok(root),
        Some(Err(error)) => Err(ParseError::NotAFeed(text::clip(&format!("broken JSON: {error}"), 200))),
        None => Err(ParseError::NotAFeed("an empty document".into())),
    }
}

/// Depth and number of values, without building them.
fn guard(body: &str, limits: &ParseLimits) -> Result<(), ParseError> {
    let (mut depth, mut values, mut quoted, mut escaped) = (0usize, 0usize, false, false);
    for b in body.bytes() {
        match b {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => {
                depth += 1;
                values += 1;
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            _ => {}
        }
        if depth > limits.max_depth {
            return Err(ParseError::TooDeep(limits.max_depth));
        }
        if values > MAX_VALUES {
            return Err(ParseError::TooLarge("more than 1000000 JSON values"));
        }
    }
    Ok(())
}

fn url(value: &Value, key: &str, base: &Url) -> Option<String> {
    let reference = value.get(key)?.as_str().filter(|r| !r.trim().is_empty())?;
    links::web_url(reference, base).map(String::from)
}

/// The first author with a name; objects, lists of them, and plain strings.
fn author(value: &Value) -> Option<String> {
    let name = |author: &Value| author.as_str().or_else(|| author.get("name")?.as_str()).and_then(text::short);
    let many = value.get("authors").and_then(Value::as_array);
    many.and_then(|list| list.iter().find_map(name)).or_else(|| value.get("author").and_then(name))
}

fn entry(item: &Value, base: &Url, inherited: Option<&String>) -> Entry {
    let string = |key: &str| item.get(key).and_then(Value::as_str);
    let guid = match item.get("id") {
        Some(Value::String(id)) => text::short(id),
        Some(Value::Number(id)) => Some(id.to_string()),
        _ => None,
    };
    let at = |key: &str| string(key).and_then(dates::parse);
    let (html, plain) = (string("content_html").and_then(text::long), string("content_text").and_then(text::long));
    let summary = string("summary").and_then(text::long);
    Entry {
        url: url(item, "url", base).or_else(|| url(item, "external_url", base)).or_else(|| web(guid.as_deref())),
        title: string("title").and_then(|t| text::title(t, false)),
        author: author(item).or_else(|| inherited.cloned()),
        summary: summary.or_else(|| plain.clone().filter(|_| html.is_some())),
        content: html.or(plain),
        published_at: at("date_published"),
        updated_at: at("date_modified"),
        enclosures: item
            .get("attachments")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|a| {
                Some(Enclosure {
                    url: url(a, "url", base)?,
                    media_type: a.get("mime_type").and_then(Value::as_str).and_then(text::short),
                    length: a.get("size_in_bytes").and_then(size),
                })
            })
            .collect(),
        guid,
    }
}

fn size(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.trim().parse().ok()).filter(|n| *n >= 0)
}

/// An id that is an address serves as one.
fn web(guid: Option<&str>) -> Option<String> {
    Url::parse(guid?).ok().filter(|u| matches!(u.scheme(), "http" | "https")).map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sloppy_feeds_are_read() {
        let body = r#"{"version":"http://jsonfeed.org/version/1","items":[{"id":7,"title":"a
b","url":"/a","tags":[null],"author":"Ann",
            "attachments":[{"url":"/a.mp3","size_in_bytes":"12"}]}, null, {"id":"https://x.example/b"}],
            "hubs":[{"type":"rssCloud","url":"/no"},{"type":"websub","url":"/hub"}],"feed_url":"/feed.json"}"#;
        let base = Url::parse("https://site.example/").unwrap();
        let feed = parse(body, &base, &ParseLimits::default()).unwrap();
        let first = &feed.entries[0];
        assert_eq!((first.guid.as_deref(), first.url.as_deref()), (Some("7"), Some("https://site.example/a")));
        assert_eq!((first.author.as_deref(), first.enclosures[0].length), (Some("Ann"), Some(12)));
        assert_eq!(feed.entries[1].url.as_deref(), Some("https://x.example/b"));
        assert_eq!(feed.links.hubs, ["https://site.example/hub"]);
        assert_eq!(feed.links.self_url.as_deref(), Some("https://site.example/feed.json"));
    }

    #[test]
    fn bounds() {
        let base = Url::parse("https://site.example/").unwrap();
        let run = |body: &str| parse(body, &base, &ParseLimits::default());
        assert!(matches!(run(&"[".repeat(1_000_000)), Err(ParseError::TooDeep(100))));
        let many = format!("{{\"version\":\"https://jsonfeed.org/version/1\",\"items\":[{}1]}}", "{},".repeat(20_000));
        assert!(matches!(run(&many), Err(ParseError::TooManyItems(20_000))));
        assert!(matches!(run(&format!("[{}1]", "1,".repeat(1_000_001))), Err(ParseError::TooLarge(_))));
    }
}
