//! What a body is, by its bytes: the content type is wrong too often (knowledge: hubs deliver Atom as `text/html`).

use super::text;
use memchr::memmem;

/// What a document is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// RSS, RDF or Atom, or what looks enough like it to try.
    Feed,
    JsonFeed,
    /// A page, XHTML included.
    Html,
    /// Nothing but blanks and comments.
    Empty,
    /// Something else, in a few words for messages ("a PDF file").
    Other(&'static str),
}

/// How far junk before the root is skipped, in bytes (a PHP warning, a stray `<br />`).
const JUNK: usize = 8 * 1024;

/// Names of roots and what they are.
const ROOTS: [(&str, Kind); 16] = [
    ("rss", Kind::Feed),
    ("feed", Kind::Feed),
    ("rdf", Kind::Feed),
    ("channel", Kind::Feed),
    ("entry", Kind::Feed),
    ("html", Kind::Html),
    ("head", Kind::Html),
    ("body", Kind::Html),
    ("opml", Kind::Other("an OPML list")),
    ("urlset", Kind::Other("a sitemap")),
    ("sitemapindex", Kind::Other("a sitemap")),
    ("svg", Kind::Other("an SVG image")),
    ("error", Kind::Other("an XML error message")),
    // FeedBurner says so when a feed was deleted.
    ("redirect", Kind::Other("an XML redirect document")),
    ("manifest", Kind::Other("a manifest")),
    ("service", Kind::Other("an Atom service document")),
];

/// First bytes of what is often served in a feed's place.
const MAGIC: [(&str, &str); 8] = [
    ("%PDF-", "a PDF file"),
    ("\u{89}PNG", "a PNG image"),
    ("GIF8", "a GIF image"),
    ("PK\u{3}\u{4}", "a ZIP file"),
    ("\u{1f}\u{8b}", "gzip data"),
    ("ID3", "an MP3 file"),
    ("BEGIN:VCALENDAR", "a calendar"),
    ("#EXTM3U", "a playlist"),
];

/// Looks at a body that has been decoded to text. Constant time but for long comments and JSON.
pub fn sniff(text: &str) -> Kind {
    let body = trim_start(text);
    if body.is_empty() {
        return Kind::Empty;
    }
    if body.starts_with(['{', '[']) {
        let feed = body.starts_with('{') && memmem::find(body.as_bytes(), b"jsonfeed.org").is_some();
        return if feed { Kind::JsonFeed } else { Kind::Other("JSON, but no JSON Feed") };
    }
    if let Some((_, what)) = MAGIC.iter().find(|(magic, _)| body.starts_with(magic)) {
        return Kind::Other(what);
    }
    let Some(root) = root(body) else { return Kind::Empty };
    match known(root) {
        Some(kind) => kind,
        // An unknown root or text before one.
        None => match feed_start(body) {
            Some(_) => Kind::Feed,
            None if root.starts_with("<!") || looks_like_html(root) => Kind::Html,
            None if root.starts_with('<') => Kind::Other("XML, but no feed"),
            None => Kind::Other("text"),
        },
    }
}

/// Without byte order marks, blanks and NULs at the front.
pub(super) fn trim_start(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '\u{feff}' | '\0' | '\u{fffe}' | '\u{200b}'))
}

/// From the root on: comments, processing instructions and DOCTYPE skipped. `None` when nothing follows.
fn root(mut body: &str) -> Option<&str> {
    loop {
        body = trim_start(body);
        let end = if body.starts_with("<!--") {
            memmem::find(body.as_bytes(), b"-->")? + 3
        } else if body.starts_with("<?") {
            body.find('>')? + 1
        } else if body.get(..9).is_some_and(|d| d.eq_ignore_ascii_case("<!doctype")) {
            if body[9..].trim_start().get(..4).is_some_and(|n| n.eq_ignore_ascii_case("html")) {
                // A doctype of HTML decides, whatever stands below it.
                return Some("<html>");
            }
            let (close, open) = (body.find('>')?, body.find('['));
            match open {
                Some(open) if open < close => memmem::find(body.as_bytes(), b"]>").unwrap_or(close - 1) + 2,
                _ => close + 1,
            }
        } else {
            return (!body.is_empty()).then_some(body);
        };
        body = body.get(end..)?;
    }
}

fn local_name(root: &str) -> Option<&str> {
    let inner = root.strip_prefix('<')?;
    let end = inner.find(|c: char| !c.is_alphanumeric() && !matches!(c, ':' | '-' | '_' | '.')).unwrap_or(inner.len());
    let name = &inner[..end];
    Some(name.rsplit_once(':').map_or(name, |(_, local)| local))
}

fn known(root: &str) -> Option<Kind> {
    let name = local_name(root)?;
    ROOTS.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, kind)| *kind)
}

fn looks_like_html(root: &str) -> bool {
    const TAGS: [&str; 16] = [
        "div", "p", "script", "meta", "title", "link", "a", "center", "table", "h1", "style", "br", "b", "font",
        "noscript", "iframe",
    ];
    local_name(root).is_some_and(|name| TAGS.iter().any(|t| name.eq_ignore_ascii_case(t)))
}

/// Where a feed's root (or the XML declaration before it) begins behind junk, within the first 8 KiB; never inside a
/// page.
pub(super) fn feed_start(body: &str) -> Option<usize> {
    let mut declaration = None;
    let window = &body[..text::floor(body, JUNK)];
    for (at, _) in window.match_indices('<') {
        let here = &body[at..];
        if here.starts_with("<?xml") {
            declaration = declaration.or(Some(at));
        }
        match local_name(here).map(str::to_ascii_lowercase).as_deref() {
            Some("rss" | "feed" | "rdf") => return declaration.or(Some(at)),
            Some("html" | "body") => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_by_the_bytes() {
        for (text, want) in [
            ("<rss version='2.0'>", Kind::Feed),
            ("\u{feff} \n<?xml version='1.0'?><!-- x --><?y?><!DOCTYPE rss [<!ENTITY z \"<html>\">]><rss>", Kind::Feed),
            ("<!DOCTYPE rss PUBLIC '-//N//DTD RSS 0.91//EN' 'http://x/rss-0.91.dtd'>\n<rss>", Kind::Feed),
            ("<atom:feed>", Kind::Feed),
            ("<RDF:rdf>", Kind::Feed),
            ("<channel>", Kind::Feed),
            ("<entry/>", Kind::Feed),
            ("<br />\n<b>Warning</b>: x in <b>y</b><br />\n<?xml version='1.0'?>\n<rss>", Kind::Feed),
            ("notice: x <rss>", Kind::Feed),
            ("{\"version\":\"https://jsonfeed.org/version/1.1\"}", Kind::JsonFeed),
            ("{\"a\":1}", Kind::Other("JSON, but no JSON Feed")),
            ("<!DOCTYPE html><html><body><feed>", Kind::Html),
            ("<?xml version='1.0'?>\n<!DOCTYPE html PUBLIC 'x'>\n<html>", Kind::Html),
            ("<?xml version='1.0'?><html>", Kind::Html),
            ("<div><p>x <feed>", Kind::Feed),
            ("<title>x</title><link>", Kind::Html),
            ("<html><pre><rss></pre></html>", Kind::Html),
            ("", Kind::Empty),
            (" \u{feff}\0\n<!-- x -->", Kind::Empty),
            ("<opml>", Kind::Other("an OPML list")),
            ("<foo>", Kind::Other("XML, but no feed")),
            ("hello", Kind::Other("text")),
            ("%PDF-1.4", Kind::Other("a PDF file")),
            ("<", Kind::Other("XML, but no feed")),
        ] {
            assert_eq!(sniff(text), want, "{text}");
        }
    }
}
