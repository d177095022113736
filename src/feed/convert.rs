//! feed-rs's model and our scan → [`Feed`].

use super::scan::{Root, Scan};
use super::{Enclosure, Entry, Feed, text};
use feed_rs::model::{self, Link, LinkTarget, Text};
use std::collections::HashSet;
use url::Url;

/// Schemes that an article's address may have; anything else (`javascript:`, `data:`) is dropped.
const ARTICLE_SCHEMES: [&str; 6] = ["http", "https", "ftp", "magnet", "gemini", "gopher"];
/// Enclosures of one entry; more are thumbnails gone wild.
const MAX_ENCLOSURES: usize = 100;

pub(super) fn feed(parsed: model::Feed, scan: &Scan, base: &Url) -> Feed {
    // Items that feed-rs dropped would shift the pairing, so `rdf:about` is used only when none is missing.
    let abouts = Some(&scan.abouts).filter(|a| scan.root == Root::Rdf && a.len() == parsed.entries.len());
    let author = match parsed.feed_type {
        // RFC 4287, 4.2.1: entries without an author have the feed's.
        model::FeedType::Atom => person(&parsed.authors),
        _ => None,
    };
    // For RSS feed-rs repeats the publication date there.
    let repeated = parsed.feed_type != model::FeedType::Atom;
    let entries = parsed.entries.into_iter().enumerate().map(|(i, entry)| {
        let about = abouts.and_then(|list| list.get(i)?.as_deref());
        let mut entry = convert(entry, about, author.as_ref(), scan.root == Root::Rdf, base);
        entry.updated_at = entry.updated_at.filter(|at| !repeated || entry.published_at != Some(*at));
        entry
    });
    Feed {
        entries: entries.collect(),
        title: parsed.title.as_ref().and_then(title),
        site_url: choose(&parsed.links).and_then(|href| absolute(href, base, &["http", "https"])),
        links: scan.links.clone(),
        feedburner_uri: scan.feedburner_uri.clone(),
        rhythm: scan.rhythm.clone(),
    }
}

fn convert(entry: model::Entry, about: Option<&str>, author: Option<&String>, rdf: bool, base: &Url) -> Entry {
    let url = choose(&entry.links).and_then(|href| absolute(href, base, &ARTICLE_SCHEMES));
    let given = text::short(&entry.id);
    let guid = given.or_else(|| about.and_then(text::short)).or_else(|| url.clone().filter(|_| rdf));
    let url = url.or_else(|| absolute_only(guid.as_deref()?));
    let media = entry.media.iter().find_map(|m| m.description.as_ref());
    let summary = entry.summary.as_ref().or(media).and_then(|t| text::long(&t.content));
    Entry {
        url,
        title: entry.title.as_ref().or_else(|| entry.media.iter().find_map(|m| m.title.as_ref())).and_then(title),
        author: person(&entry.authors).or_else(|| author.cloned()),
        summary,
        content: entry.content.as_ref().filter(|c| readable(c)).and_then(body),
        published_at: entry.published.map(|d| d.timestamp()),
        updated_at: entry.updated.map(|d| d.timestamp()),
        enclosures: enclosures(&entry, base),
        guid,
    }
}

fn title(text: &Text) -> Option<String> {
    text::title(&text.content, text.content_type.as_str() != "text/plain")
}

/// Text of some kind, no base64 picture.
fn readable(content: &model::Content) -> bool {
    let kind = content.content_type.as_str().to_ascii_lowercase();
    kind.starts_with("text/") || kind.contains("xml") || kind.contains("html")
}

/// feed-rs writes XHTML out with `<br></br>`, which browsers read as two breaks.
fn body(content: &model::Content) -> Option<String> {
    let body = content.body.as_deref()?;
    match content.content_type.as_str() {
        "application/xhtml" => text::long(&body.replace("</br>", "")),
        _ => text::long(body),
    }
}

/// The first with a name, else the first with an address; feed-rs leaves the brackets of `a@x (Ann)` on.
fn person(people: &[model::Person]) -> Option<String> {
    let name = |p: &model::Person| {
        let name = p.name.as_deref()?;
        text::title(name.trim().trim_start_matches(['(', '<', '（']).trim_end_matches([')', '>', '）']), false)
    };
    people.iter().find_map(name).or_else(|| people.iter().find_map(|p| text::short(p.email.as_deref()?)))
}

/// The link that leads to the article or site: alternate (HTML before others), rel-less, then the first that is no file
/// and no machinery.
fn choose(links: &[Link]) -> Option<&str> {
    const OTHER: [&str; 8] = ["enclosure", "self", "edit", "replies", "hub", "next", "license", "via"];
    let plain = || links.iter().filter(|l| l.target.is_none() && !l.href.is_empty());
    let rel = |l: &Link, want: &str| l.rel.as_deref().is_some_and(|r| r.trim().eq_ignore_ascii_case(want));
    let html = |l: &Link| l.media_type.as_deref().is_none_or(|t| t.contains("html"));
    let found = plain()
        .find(|l| rel(l, "alternate") && html(l))
        .or_else(|| plain().find(|l| l.rel.is_none()))
        .or_else(|| plain().find(|l| rel(l, "alternate")))
        .or_else(|| plain().find(|l| !OTHER.iter().any(|o| rel(l, o))));
    found.map(|l| l.href.as_str())
}

/// feed-rs has resolved it already where it could.
fn absolute(href: &str, base: &Url, schemes: &[&str]) -> Option<String> {
    let url = base.join(href.trim()).ok()?;
    schemes.contains(&url.scheme()).then(|| url.into())
}

/// A guid that is an address of its own.
fn absolute_only(guid: &str) -> Option<String> {
    Url::parse(guid).ok().filter(|u| matches!(u.scheme(), "http" | "https")).map(String::from)
}

/// Atom's `rel=enclosure`, RSS's `enclosure` and `media:content` (feed-rs keeps both under `media`).
fn enclosures(entry: &model::Entry, base: &Url) -> Vec<Enclosure> {
    let length = |n: Option<u64>| n.and_then(|n| i64::try_from(n).ok());
    let (mut seen, mut found) = (HashSet::new(), Vec::new());
    let mut push = |enclosure: Enclosure| {
        if found.len() < MAX_ENCLOSURES && seen.insert(enclosure.url.clone()) {
            found.push(enclosure);
        }
    };
    let is_file = |l: &&Link| l.rel.as_deref().is_some_and(|r| r.eq_ignore_ascii_case("enclosure"));
    for link in entry.links.iter().filter(is_file).filter(|l| l.target != Some(LinkTarget::Comments)) {
        if let Some(url) = absolute(&link.href, base, &["http", "https"]) {
            let media_type = link.media_type.as_deref().and_then(text::short);
            push(Enclosure { url, media_type, length: length(link.length) });
        }
    }
    for content in entry.media.iter().flat_map(|m| &m.content) {
        if let Some(url) = content.url.as_ref().filter(|u| matches!(u.scheme(), "http" | "https")) {
            let media_type = content.content_type.as_ref().map(|t| t.to_string());
            push(Enclosure { url: url.to_string(), media_type, length: length(content.size) });
        }
    }
    found
}
