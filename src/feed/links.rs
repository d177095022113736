//! `Link` header fields (RFC 8288, read tolerantly) and WebSub's choice between them and the document.

use super::Links;
use url::Url;

/// Links beyond this many in the headers of one response are not looked at.
const MAX_LINKS: usize = 200;

/// One link of a `Link` header field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Absolute, http or https.
    pub url: Url,
    /// Lower-case; from the first `rel` only (RFC 8288, 3.3).
    pub rels: Vec<String>,
    pub media_type: Option<String>,
    pub title: Option<String>,
    /// It has an `anchor` that is not the document itself: it speaks of something else.
    pub anchor_differs: bool,
}

impl Link {
    /// Whether it has that relation; `rel` in lower case.
    pub fn has(&self, rel: &str) -> bool {
        self.rels.iter().any(|r| r == rel)
    }
}

/// Reads all `Link` fields in order; `base` is the final URL. Never fails: what can't be read is left out, and takes no
/// neighbour with it. Missing semicolons and quotes, comma lists and unclosed quotes are understood (push D13, D14).
pub fn header_links(headers: &[String], base: &Url) -> Vec<Link> {
    let mut found = Vec::new();
    for header in headers {
        let mut rest = header.as_str();
        while let Some(open) = rest.find('<') {
            rest = &rest[open + 1..];
            let Some(close) = rest.find('>') else { break };
            let target = &rest[..close];
            let (link, left) = parameters(&rest[close + 1..], target, base);
            rest = left;
            found.extend(link);
            if found.len() >= MAX_LINKS {
                return found;
            }
        }
    }
    found
}

/// The parameters behind `<target>` up to the next link: (the link, what is left).
fn parameters<'a>(text: &'a str, target: &str, base: &Url) -> (Option<Link>, &'a str) {
    let (mut rel, mut media_type, mut title, mut anchor) = (None, None, None, None);
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c: char| c == ';' || c.is_whitespace());
        if rest.is_empty() || rest.starts_with([',', '<']) {
            break;
        }
        let end = rest.find(|c: char| matches!(c, '=' | ';' | ',' | '<') || c.is_whitespace()).unwrap_or(rest.len());
        let name = rest[..end].to_ascii_lowercase();
        let mut value = String::new();
        rest = rest[end..].trim_start();
        if let Some(after) = rest.strip_prefix('=') {
            (value, rest) = parameter(after.trim_start(), name.starts_with("title"));
        } else if end == 0 {
            // Nothing that could be a name: over it, so that the loop ends.
            rest = rest.get(rest.chars().next().map_or(0, char::len_utf8)..).unwrap_or("");
        }
        let place = match name.as_str() {
            "rel" => &mut rel,
            "type" => &mut media_type,
            "title" => &mut title,
            "anchor" => &mut anchor,
            _ => continue,
        };
        if place.is_none() {
            *place = Some(value);
        }
    }
    let anchor_differs = anchor.is_some_and(|a| {
        let mut own = base.clone();
        own.set_fragment(None);
        base.join(a.trim()).map_or(true, |anchor| anchor != own && anchor != *base)
    });
    let link = web_url(target, base).map(|url| Link {
        url,
        rels: rel.unwrap_or_default().split_whitespace().map(str::to_ascii_lowercase).collect(),
        media_type: media_type.map(|t| t.trim().to_ascii_lowercase()).filter(|t| !t.is_empty()),
        title: title.and_then(|t| super::text::short(&t)),
        anchor_differs,
    });
    (link, rest)
}

/// A value, quoted or not: (value, rest). Only `free` text may hold what looks like another link.
fn parameter(text: &str, free: bool) -> (String, &str) {
    if let Some(inside) = text.strip_prefix('"') {
        let mut value = String::new();
        let mut chars = inside.char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => return (value, &inside[i + 1..]),
                '\\' => value.extend(chars.next().map(|(_, c)| c)),
                // A quote that never closed has run into the next link.
                '<' if !free && value.trim_end().ends_with(',') => break,
                c => value.push(c),
            }
        }
        let end = inside.find([',', ';']).unwrap_or(inside.len());
        return (inside[..end].trim_end().to_owned(), &inside[end..]);
    }
    let end = text.find(|c: char| matches!(c, ';' | ',') || c.is_whitespace()).unwrap_or(text.len());
    (text[..end].trim_matches(['\'', '"']).to_owned(), &text[end..])
}

/// A reference as an absolute http(s) URL without fragment; `feed:` forms are unwrapped. `None` for anything else.
pub(super) fn web_url(reference: &str, base: &Url) -> Option<Url> {
    let reference = reference.trim();
    let scheme = reference.get(..5).filter(|s| s.eq_ignore_ascii_case("feed:"));
    let mut url = match scheme {
        None => base.join(reference).ok()?,
        Some(_) => {
            let rest = reference[5..].trim_start();
            match rest.strip_prefix("//") {
                Some(host) => Url::parse(&format!("http://{host}")).ok()?,
                None => Url::parse(rest).ok()?,
            }
        }
    };
    url.set_fragment(None);
    (matches!(url.scheme(), "http" | "https") && url.has_host()).then_some(url)
}

/// Hub and topic of a response: header fields, then what the document says (WebSub 4; push D2, D3).
///
/// Hubs in the headers win over the document's; without a topic beside them it comes from the document. A topic in the
/// headers without a hub decides nothing: the document is asked, and only lends its place where the document has none.
/// `self_url` stays `None` when nobody names it; the topic is then the final URL (D6).
pub fn hub_and_self(headers: &[String], document: &Links, final_url: &Url) -> Links {
    let links: Vec<Link> = header_links(headers, final_url).into_iter().filter(|l| !l.anchor_differs).collect();
    let mut hubs: Vec<String> = Vec::new();
    for link in links.iter().filter(|l| l.has("hub")) {
        if !hubs.iter().any(|h| h == link.url.as_str()) {
            hubs.push(link.url.to_string());
        }
    }
    let topic = links.iter().find(|l| l.has("self")).map(|l| l.url.to_string());
    if hubs.is_empty() {
        let self_url = match document.hubs.is_empty() {
            true => topic.or_else(|| document.self_url.clone()),
            false => document.self_url.clone().or(topic),
        };
        return Links { hubs: document.hubs.clone(), self_url };
    }
    Links { hubs, self_url: topic.or_else(|| document.self_url.clone()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Url {
        Url::parse("https://site.example/blog/feed").unwrap()
    }

    fn read(header: &str) -> Vec<(String, String)> {
        let links = header_links(&[header.to_owned()], &base());
        links.into_iter().map(|l| (l.url.to_string(), l.rels.join(" "))).collect()
    }

    #[test]
    fn tolerant_of_what_servers_send() {
        let (h, s) = ("https://hub.example/", "https://site.example/s");
        for (header, want) in [
            ("<https://hub.example/>; rel=\"hub\", </s>; rel=self", vec![(h, "hub"), (s, "self")]),
            ("<https://hub.example/> rel=\"hub\",</s> rel='self'", vec![(h, "hub"), (s, "self")]),
            ("<https://hub.example/>;rel=\"Self HUB\"", vec![(h, "self hub")]),
            ("<https://hub.example/>; title=\"a, <b>; c\\\"\"; rel=hub", vec![(h, "hub")]),
            ("<https://hub.example/>; rel=\"hub, </s>; rel=self", vec![(h, "hub"), (s, "self")]),
            ("<https://hub.example/>; rel=\"hub, </s>; rel=\"self\"", vec![(h, "hub"), (s, "self")]),
            ("<javascript:x>; rel=hub, </s>; rel=self", vec![(s, "self")]),
            ("<https://hub.example/>; rel = hub ; rel=self ; ;=;", vec![(h, "hub")]),
            ("garbage, </s>", vec![(s, "")]),
            ("<unfinished", vec![]),
        ] {
            let want: Vec<_> = want.into_iter().map(|(u, r)| (u.to_owned(), r.to_owned())).collect();
            assert_eq!(read(header), want, "{header}");
        }
    }

    #[test]
    fn a_foreign_anchor_is_skipped() {
        let headers = ["<https://hub.example/>; rel=hub; anchor=\"/other\"".to_owned()];
        assert!(header_links(&headers, &base())[0].anchor_differs);
        assert_eq!(hub_and_self(&headers, &Links::default(), &base()), Links::default());
        let own = ["<https://hub.example/>; rel=hub; anchor=\"#x\", </s>; rel=self; anchor=feed".to_owned()];
        let found = hub_and_self(&own, &Links::default(), &base());
        assert_eq!(found.self_url.as_deref(), Some("https://site.example/s"));
    }

    #[test]
    fn headers_win_but_a_lone_self_does_not() {
        let document =
            Links { hubs: vec!["https://doc.example/".into()], self_url: Some("https://doc.example/self".into()) };
        let run = |header: &str| hub_and_self(&[header.to_owned()], &document, &base());
        assert_eq!(run("<https://h.example/>; rel=hub").hubs, ["https://h.example/"]);
        assert_eq!(run("<https://h.example/>; rel=hub").self_url, document.self_url);
        assert_eq!(run("</s>; rel=\"hub self\"").self_url.as_deref(), Some("https://site.example/s"));
        assert_eq!(run("</s>; rel=self"), document);
        let hubless = Links { hubs: vec![], ..document };
        let lone = hub_and_self(&["</s>; rel=self".to_owned()], &hubless, &base());
        assert_eq!(lone.self_url.as_deref(), Some("https://site.example/s"));
    }

    #[test]
    fn feed_schemes_are_unwrapped() {
        for (reference, want) in [
            ("feed://x.example/f#y", Some("http://x.example/f")),
            ("FEED:https://x.example/g", Some("https://x.example/g")),
            ("feed:x.example", None),
            (" g ", Some("https://site.example/blog/g")),
            ("data:text/xml,x", None),
            ("https://", None),
        ] {
            assert_eq!(web_url(reference, &base()).as_ref().map(Url::as_str), want, "{reference}");
        }
    }
}
