//! The feeds that a page announces, best first (RSS Advisory Board "RSS Autodiscovery", M. Pilgrim's Atom
//! autodiscovery, the WHATWG's `rel=feed`; where they are silent the choice is ours and stands at the rule).

use super::links::{header_links, web_url};
use super::{Links, html, text};
use scraper::{Html, Node};
use std::collections::HashSet;
use url::Url;

/// Announced feeds of one page; more are a list of something.
const MAX_FEEDS: usize = 100;
/// Plain links that look like feeds.
const MAX_PLAIN: usize = 4;
/// All guesses together: each costs a request.
const MAX_FALLBACK: usize = 8;
const XHTML: &str = "http://www.w3.org/1999/xhtml";

/// Media types that only feeds have, with the spellings of old pages.
const STRONG: [&str; 14] = [
    "application/rss+xml",
    "application/atom+xml",
    "application/feed+json",
    "application/rdf+xml",
    "application/rss",
    "application/atom",
    "application/x-rss+xml",
    "application/x-atom+xml",
    "application/x.atom+xml",
    "text/rss+xml",
    "text/atom+xml",
    "text/rss",
    "text/atom",
    "text/rdf",
];
/// Media types that feeds have among other things.
const WEAK: [&str; 3] = ["text/xml", "application/xml", "application/json"];

/// Where feeds often are, the likely first.
const WELL_KNOWN: [&str; 6] = ["feed", "rss.xml", "atom.xml", "feed.xml", "index.xml", "feed.json"];

/// A feed that a page offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Absolute, http or https, without fragment; `feed:` unwrapped, otherwise as the page spells it.
    pub url: String,
    /// One line of plain text.
    pub title: Option<String>,
    /// Lower-case, without parameters.
    pub media_type: Option<String>,
}

/// What discovery gets out of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Announced feeds, best first: RSS, Atom, RDF and JSON Feed by their types and `rel=feed`, then `text/xml` and the
    /// like, then `rel=alternate` without a type, then feeds of comments; else document order, `Link` headers last.
    pub feeds: Vec<Candidate>,
    /// Guesses, at most 8, for when none of `feeds` is one: the site's own scheme (YouTube), plain links of this host
    /// that look like feeds (at most 4), well-known paths. To be believed only when the body is a feed.
    pub fallback: Vec<String>,
    /// `rel=hub` and `rel=self` of the head (WebSub 8.1: never of the body, which strangers may write).
    pub links: Links,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Strong,
    Weak,
    Typeless,
    Comments,
}

/// What is known of a link before it is judged.
struct Offer<'a> {
    url: Url,
    rels: &'a [String],
    media_type: Option<String>,
    title: Option<String>,
    /// A translation or another rendering of the page: `hreflang` or `media` stands on it, or it is a plain `a`.
    rendering: bool,
}

impl Offer<'_> {
    fn rank(&self) -> Option<Rank> {
        let has = |rel: &str| self.rels.iter().any(|r| r == rel);
        let kind = self.media_type.as_deref();
        let strong = kind.is_some_and(|k| STRONG.contains(&k));
        let weak = kind.is_some_and(|k| WEAK.contains(&k)) && !self.is_api();
        let rank = if has("feed") {
            if strong || kind.is_none() { Rank::Strong } else { Rank::Weak }
        } else if !has("alternate") || has("stylesheet") {
            return None;
        } else if strong {
            Rank::Strong
        } else if weak {
            Rank::Weak
        } else if kind.is_none() && !self.rendering && !self.rels.iter().any(|r| r.contains('=')) {
            // Some sites forget the type (NetNewsWire keeps these, too). A `=` in rel is a lost quote.
            Rank::Typeless
        } else {
            return None;
        };
        Some(if self.is_comments() { Rank::Comments } else { rank })
    }

    /// WordPress announces its API and oEmbed as `alternate` with `application/json`.
    fn is_api(&self) -> bool {
        let url = self.url.as_str().to_ascii_lowercase();
        url.contains("/wp-json") || url.contains("oembed") || url.contains("rest_route=")
    }

    fn is_comments(&self) -> bool {
        let path = self.url.path().to_ascii_lowercase();
        path.contains("/comments/")
            || path.ends_with("/comments")
            || self.title.as_deref().is_some_and(|t| t.to_lowercase().contains("comment"))
    }
}

/// Reads a page. `page` is its URL after redirects, `link_headers` its `Link` fields in order. At most 1 MiB and 512
/// open elements are looked at. Never fails; a page that says nothing gives empty lists but for the well-known paths.
pub fn page_feeds(html: &str, page: &Url, link_headers: &[String]) -> Page {
    let document = Html::parse_document(html::bounded(html));
    let mut own = page.clone();
    own.set_fragment(None);
    let base = base(&document, page);
    let mut found: Vec<(Rank, Candidate)> = Vec::new();
    let mut seen = HashSet::from([own.to_string()]);
    let mut plain: Vec<String> = Vec::new();
    let mut links = Links::default();
    let mut offer = |offer: Offer| {
        if let Some(rank) = offer.rank()
            && found.len() < MAX_FEEDS
            && seen.insert(offer.url.to_string())
        {
            let Offer { url, title, media_type, .. } = offer;
            found.push((rank, Candidate { url: url.into(), title, media_type }));
        }
    };
    for node in document.tree.root().descendants() {
        let Node::Element(element) = node.value() else { continue };
        let name = element.name();
        if !matches!(name, "link" | "a" | "area") || &*element.name.ns != XHTML {
            continue;
        }
        let Some(url) = element.attr("href").filter(|h| !h.trim().is_empty()).and_then(|h| web_url(h, &base)) else {
            continue;
        };
        let rels: Vec<String> =
            element.attr("rel").unwrap_or("").split_whitespace().map(str::to_ascii_lowercase).collect();
        if rels.is_empty() {
            if name == "a" && plain.len() < MAX_PLAIN * 4 && looks_like_feed(&url, page) {
                plain.push(url.into());
            }
            continue;
        }
        let within = |what: &str| node.ancestors().any(|n| n.value().as_element().is_some_and(|e| e.name() == what));
        let announces = rels.iter().any(|r| matches!(r.as_str(), "feed" | "alternate"));
        let subscribes = name == "link" && rels.iter().any(|r| matches!(r.as_str(), "hub" | "self"));
        if !announces && !subscribes || within("template") {
            continue;
        }
        if subscribes && within("head") {
            if rels.iter().any(|r| r == "hub") && !links.hubs.iter().any(|h| h == url.as_str()) {
                links.hubs.push(url.to_string());
            }
            if rels.iter().any(|r| r == "self") && links.self_url.is_none() {
                links.self_url = Some(url.to_string());
            }
        }
        let rendering = name != "link" || ["hreflang", "media"].iter().any(|a| element.attr(a).is_some());
        let title = element.attr("title").and_then(text::short);
        offer(Offer { url, rels: &rels, media_type: element.attr("type").and_then(essence), title, rendering });
    }
    for link in header_links(link_headers, page).into_iter().filter(|l| !l.anchor_differs) {
        let media_type = link.media_type.as_deref().and_then(essence);
        // Typeless alternates in headers are translations and AMP pages.
        offer(Offer { url: link.url, rels: &link.rels, media_type, title: link.title, rendering: true });
    }
    found.sort_by_key(|(rank, _)| *rank);
    let feeds: Vec<Candidate> = found.into_iter().map(|(_, candidate)| candidate).collect();
    let fallback = fallback(page, plain, seen);
    Page { feeds, fallback, links }
}

/// The first `<base href>`, wherever it stands (HTML), resolved against the page.
fn base(document: &Html, page: &Url) -> Url {
    let mut bases = document.tree.root().descendants().filter_map(|node| {
        let element = node.value().as_element()?;
        (element.name() == "base" && &*element.name.ns == XHTML).then(|| element.attr("href"))?
    });
    let base = bases.next().and_then(|href| page.join(href.trim()).ok());
    base.filter(|b| matches!(b.scheme(), "http" | "https")).unwrap_or_else(|| page.clone())
}

/// `Application/RSS+XML; charset=x` → `application/rss+xml`.
fn essence(media_type: &str) -> Option<String> {
    let essence = media_type.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    (!essence.is_empty()).then_some(essence)
}

/// Of the page's own host, and by its path or query one of the usual addresses.
fn looks_like_feed(url: &Url, page: &Url) -> bool {
    if url.host() != page.host() || url.port_or_known_default() != page.port_or_known_default() {
        return false;
    }
    let path = url.path().trim_end_matches('/').to_ascii_lowercase();
    let last = path.rsplit('/').next().unwrap_or("");
    let named = |name: &str| matches!(name, "feed" | "feeds" | "rss" | "rss2" | "atom");
    let stem_and_suffix = last.rsplit_once('.');
    let by_path = named(last)
        || stem_and_suffix.is_some_and(|(stem, suffix)| match suffix {
            "rss" | "rdf" | "atom" => true,
            "xml" | "json" | "php" => named(stem) || stem == "index" && suffix == "xml" || stem.ends_with("feed"),
            _ => false,
        });
    by_path
        || url.query_pairs().any(|(key, value)| match &*key {
            "feed" | "format" | "alt" | "type" => matches!(&*value, "rss" | "rss2" | "atom" | "feed" | "rdf"),
            _ => false,
        })
}

/// The guesses, without what is already a candidate.
fn fallback(page: &Url, plain: Vec<String>, mut seen: HashSet<String>) -> Vec<String> {
    let mut guesses: Vec<String> = Vec::new();
    let mut add = |url: String, guesses: &mut Vec<String>| {
        if guesses.len() < MAX_FALLBACK && seen.insert(url.clone()) {
            guesses.push(url);
        }
    };
    if let Some(url) = youtube(page) {
        add(url, &mut guesses);
    }
    let before = guesses.len();
    for url in plain {
        if guesses.len() < before + MAX_PLAIN {
            add(url, &mut guesses);
        }
    }
    let directory = directory(page);
    for name in WELL_KNOWN {
        for dir in [directory.as_str(), "/"] {
            let mut url = page.clone();
            url.set_query(None);
            url.set_fragment(None);
            url.set_path(&format!("{dir}{name}"));
            add(url.into(), &mut guesses);
        }
    }
    guesses
}

/// The page's directory with its slash; `/blog` counts as one, `/blog/post.html` does not.
fn directory(page: &Url) -> String {
    let path = page.path();
    let (parent, last) = path.rsplit_once('/').unwrap_or(("", ""));
    if last.is_empty() || last.contains('.') { format!("{parent}/") } else { format!("{path}/") }
}

/// Channel and playlist pages; `@handle`, `/user/` and `/c/` can't be mapped without the page's own link.
fn youtube(page: &Url) -> Option<String> {
    if !matches!(page.host_str()?, "youtube.com" | "www.youtube.com" | "m.youtube.com") {
        return None;
    }
    let feed = |key: &str, id: &str| {
        let plain = !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        plain.then(|| format!("https://www.youtube.com/feeds/videos.xml?{key}={id}"))
    };
    let mut segments = page.path_segments()?;
    match segments.next()? {
        "channel" => feed("channel_id", segments.next().filter(|id| id.starts_with("UC"))?),
        "playlist" => feed("playlist_id", &page.query_pairs().find(|(key, _)| key == "list")?.1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn urls(page: &Page) -> Vec<&str> {
        page.feeds.iter().map(|f| f.url.as_str()).collect()
    }

    fn read(html: &str) -> Page {
        page_feeds(html, &Url::parse("https://site.example/blog/").unwrap(), &[])
    }

    #[test]
    fn cases() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/discovery.json");
        let cases: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let cases = cases.as_array().unwrap();
        assert_eq!(cases.len(), 32, "cases were lost or added");
        let failed: Vec<String> = cases
            .iter()
            .filter_map(|case| {
                let page = Url::parse(case["page"].as_str().unwrap()).unwrap();
                let found = page_feeds(case["html"].as_str().unwrap(), &page, &[]);
                let want: Vec<&str> =
                    case["expected"].as_array().unwrap().iter().map(|u| u.as_str().unwrap()).collect();
                (urls(&found) != want).then(|| format!("{}: {:?} instead of {want:?}", case["id"], urls(&found)))
            })
            .collect();
        assert!(failed.is_empty(), "\n{}", failed.join("\n"));
    }

    #[test]
    fn other_namespaces_and_templates_are_not_the_page() {
        let link = "<link rel=alternate type=application/rss+xml href=/no>";
        let a = "<a rel=alternate type=application/rss+xml href=/no>x</a>";
        for html in [
            format!("<head><template>{link}</template></head>"),
            format!("<body><svg>{a}</svg>"),
            "<body><svg><base href='/x/'></base><a rel=feed href=/no></a></svg>".to_owned(),
            format!("<body><script>{link}</script>"),
        ] {
            assert_eq!(urls(&read(&html)), Vec::<&str>::new(), "{html}");
        }
        let html = "<svg><base href='https://evil.example/'/></svg><link rel=feed href=f>";
        assert_eq!(urls(&read(html)), ["https://site.example/blog/f"]);
    }

    #[test]
    fn strong_then_weak_then_typeless_then_comments() {
        let html = "<link rel=alternate href=/typeless><link rel=alternate type=text/xml href=/weak>\
            <link rel=alternate type=application/rss+xml href=/comments/feed>\
            <link rel=alternate type=text/plain href=/no>\
            <link rel=alternate type=application/json href=/wp-json/x>\
            <link rel=alternate type=application/json+oembed href=/o>\
            <link rel=alternate type=application/rss+xml title='A&amp;B' href=/strong#x><link rel=feed href=/blog/>\
            <link rel=alternate type=application/atom+xml href=/strong>";
        let page = read(html);
        assert_eq!(
            urls(&page),
            ["/strong", "/weak", "/typeless", "/comments/feed"].map(|p| format!("https://site.example{p}"))
        );
        assert_eq!(page.feeds[0].title.as_deref(), Some("A&B"));
        assert_eq!(page.feeds[0].media_type.as_deref(), Some("application/rss+xml"));
    }

    #[test]
    fn headers_come_after_the_page() {
        let page = Url::parse("https://site.example/").unwrap();
        let headers =
            ["</h>; rel=alternate; type=\"application/rss+xml\", </de>; rel=alternate; hreflang=de".to_owned()];
        let found = page_feeds("<link rel=feed href=/f>", &page, &headers);
        assert_eq!(urls(&found), ["https://site.example/f", "https://site.example/h"]);
    }

    #[test]
    fn hub_and_self_of_the_head_only() {
        let page = read(
            "<head><base href='https://b.example/'><link rel='HUB self' href='/h'></head>\
             <body><link rel=hub href=/no></body>",
        );
        assert_eq!(page.links.hubs, ["https://b.example/h"]);
        assert_eq!(page.links.self_url.as_deref(), Some("https://b.example/h"));
    }

    #[test]
    fn guesses() {
        let page =
            read("<a href=/x/feed/>RSS</a><a href='https://other.example/feed'>no</a><a href=/about.html>no</a>");
        let site = |p: &str| format!("https://site.example{p}");
        let want = ["/x/feed/", "/blog/feed", "/feed", "/blog/rss.xml", "/rss.xml", "/blog/atom.xml", "/atom.xml"];
        assert_eq!(page.fallback[..7], want.map(site));
        assert_eq!(page.fallback.len(), 8);
        let channel = Url::parse("https://www.youtube.com/channel/UCabc/videos?x").unwrap();
        let guesses = page_feeds("", &channel, &[]).fallback;
        assert_eq!(guesses[0], "https://www.youtube.com/feeds/videos.xml?channel_id=UCabc");
        let list = Url::parse("https://youtube.com/playlist?list=PLx-1").unwrap();
        assert_eq!(youtube(&list).as_deref(), Some("https://www.youtube.com/feeds/videos.xml?playlist_id=PLx-1"));
    }

    #[test]
    fn hostile_pages_end_soon() {
        let start = std::time::Instant::now();
        let attributes: String = (0..150_000).map(|i| format!(" a{i}")).collect();
        let fonts: String = (0..500).map(|i| format!("<font color={i}>")).collect();
        for html in [
            "<div>".repeat(200_000),
            "<b></div>".repeat(100_000),
            "<div><table><tr><td></div>".repeat(40_000),
            format!("<x{attributes}>"),
            format!("<p>{fonts}</p>{}", "<p>x</p>".repeat(100_000)),
            "<a href=x><p>".repeat(80_000),
            "<table>".repeat(150_000),
            "<svg><foreignObject>".repeat(50_000),
            "<!--><div>".repeat(100_000),
            "<b><i><p></b></i>".repeat(50_000),
        ] {
            let one = std::time::Instant::now();
            page_feeds(&html, &Url::parse("https://site.example/").unwrap(), &[]);
            eprintln!("{:>30} {:?}", &html[..html.len().min(30)], one.elapsed());
        }
        assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    }
}
