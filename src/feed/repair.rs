//! The second try, for documents that feed-rs refuses, reads in part, or reads with losses: each step mends one habit of
//! real feeds. Steps that look at whole items are in [`super::items`], those for markup in text in [`super::markup`].
//!
//! A step is `fn(&str) -> Option<String>`: the mended text, or `None` when it had nothing to do. Steps run in the order
//! of [`STEPS`], each on the result of the one before; to add one, write the function and give it its place there. Only
//! if the outcome still fails are items cut out one by one ([`complete_items`]). Steps are linear in the text.

use super::cut::complete_items;
use super::scan::is_atom;
use super::tags::{Tag, Tags, attributes, name, split};
use super::{Feed, items, markup, parse::ParseError, sniff, text};
use std::borrow::Cow;
use url::Url;

type Step = fn(&str) -> Option<String>;

const STEPS: [Step; 23] = [
    // First: what is cut off before the root may be the DOCTYPE.
    markup::own_entities,
    junk_before_root,
    control_characters,
    references,
    markup::rss_prefix,
    rss_root,
    rdf_root,
    rss_namespace,
    atom_namespace,
    markup::missing_declarations,
    markup::base64_text,
    atom_03,
    atom_types,
    items::stray_items,
    items::rdf_items_in_channel,
    markup::inline_markup,
    items::item_ids,
    items::item_links,
    items::item_titles,
    items::item_dates,
    fatal_extras,
    mail_addresses,
    durations,
];

const ATOM: &str = "http://www.w3.org/2005/Atom";
const RSS1: &str = "http://purl.org/rss/1.0/";

/// Mends the text and parses it with `attempt`; if that fails, once more with the complete items only.
///
/// # Errors
/// The last error of `attempt`.
pub(super) fn mend(body: &str, attempt: impl Fn(&str) -> Result<Feed, ParseError>) -> Result<Feed, ParseError> {
    let mut doc = Cow::Borrowed(body);
    for step in STEPS {
        if let Some(mended) = step(&doc) {
            doc = Cow::Owned(mended);
        }
    }
    attempt(&doc).or_else(|error| match error {
        // A bound: fewer items would not be the same document.
        ParseError::TooLarge(_) | ParseError::TooManyItems(_) | ParseError::TooDeep(_) => Err(error),
        ParseError::NotAFeed(_) | ParseError::Panicked => match complete_items(&doc) {
            Some(cut) => attempt(&cut),
            None => Err(error),
        },
    })
}

/// Rewrites the text tag by tag: `change` gives what stands for a tag (its text with brackets), `None` leaves it.
pub(super) fn edit<'a>(text: &'a str, mut change: impl FnMut(Tag<'a>) -> Option<String>) -> Option<String> {
    let (mut out, mut at) = (String::new(), 0);
    for (range, tag) in Tags::new(text) {
        if let Some(new) = change(tag) {
            out.push_str(&text[at..range.start]);
            out.push_str(&new);
            at = range.end;
        }
    }
    if at == 0 {
        return None;
    }
    out.push_str(&text[at..]);
    Some(out)
}

/// A start tag with new attributes: `change` maps (name, raw value) to the value, `None` drops the attribute.
pub(super) fn start(new_name: &str, inner: &str, empty: bool, change: impl Fn(&str, &str) -> Option<String>) -> String {
    let mut tag = format!("<{new_name}");
    for (key, value) in attributes(inner).filter(|(key, _)| !key.is_empty()) {
        if let Some(value) = change(key, value) {
            let quote = if value.contains('"') { '\'' } else { '"' };
            tag.extend([" ", key, "="]);
            tag.push(quote);
            tag.push_str(&value);
            tag.push(quote);
        }
    }
    tag.push_str(if empty { "/>" } else { ">" });
    tag
}

/// (name as written, inner, empty) of the root.
pub(super) fn root(text: &str) -> Option<(&str, &str)> {
    Tags::new(text).find_map(|(_, tag)| match tag {
        Tag::Start { inner, .. } => Some((name(inner), inner)),
        _ => None,
    })
}

pub(super) fn root_is(text: &str, want: &str) -> bool {
    root(text).is_some_and(|(name, _)| split(name).1.eq_ignore_ascii_case(want))
}

/// PHP warnings, stray tags before `<?xml` or the root.
fn junk_before_root(text: &str) -> Option<String> {
    sniff::feed_start(text).filter(|at| *at > 0).map(|at| text[at..].to_owned())
}

/// Not allowed in XML 1.0, however written.
fn control_characters(text: &str) -> Option<String> {
    text.chars().any(text::is_control).then(|| text.chars().filter(|c| !text::is_control(*c)).collect())
}

/// Outside CDATA and comments: a bare `&` becomes `&amp;`, HTML's entities become characters, impossible numbers go.
fn references(text: &str) -> Option<String> {
    let (mut out, mut at, mut changed) = (String::with_capacity(text.len() + 64), 0, false);
    let mut mend = |part: &str, out: &mut String| {
        let mut rest = part;
        while let Some(i) = rest.find('&') {
            out.push_str(&rest[..i]);
            rest = &rest[i..];
            let found = text::reference(rest);
            let len = found.map_or(1, |(_, len)| len);
            match found.and_then(|(body, _)| Some((body, text::resolve(body)?))) {
                Some(("amp" | "lt" | "gt" | "quot" | "apos", _)) => out.push_str(&rest[..len]),
                // `&#38;` and the like would turn into markup.
                Some((_, chars)) if matches!(&*chars, "&" | "<" | ">" | "\"" | "'") => out.push_str(&rest[..len]),
                Some((_, chars)) => {
                    changed = true;
                    out.push_str(&chars);
                }
                None => {
                    changed = true;
                    out.push_str("&amp;");
                    rest = &rest[1..];
                    continue;
                }
            }
            rest = &rest[len..];
        }
        out.push_str(rest);
    };
    for (range, tag) in Tags::new(text) {
        if matches!(tag, Tag::CData | Tag::Comment | Tag::Odd) {
            mend(&text[at..range.start], &mut out);
            out.push_str(&text[range.clone()]);
            at = range.end;
        }
    }
    mend(&text[at..], &mut out);
    changed.then_some(out)
}

/// The names of RSS as feed-rs wants them.
const RSS_NAMES: [&str; 18] = [
    "rss",
    "channel",
    "item",
    "title",
    "link",
    "description",
    "pubDate",
    "guid",
    "author",
    "category",
    "enclosure",
    "comments",
    "ttl",
    "image",
    "url",
    "lastBuildDate",
    "language",
    "managingEditor",
];

/// `<rss>` of any version, in any case, and a `<channel>` without it.
fn rss_root(text: &str) -> Option<String> {
    let (root_name, inner) = root(text)?;
    if root_name.eq_ignore_ascii_case("channel") {
        let body = Tags::new(text).find(|(_, tag)| matches!(tag, Tag::Start { .. }))?.0.start;
        // Without a version, so that the names below are looked at, too: `Channel` is RSS 1.1.
        let wrapped = format!("<rss>{}</rss>", &text[body..]);
        return rss_root(&wrapped);
    }
    if !split(root_name).1.eq_ignore_ascii_case("rss") {
        return None;
    }
    let version = attributes(inner).find(|(key, _)| *key == "version").map(|(_, value)| value);
    let known = matches!(version, Some("2.0" | "0.91" | "0.92" | "")) && inner.contains(['"', '\'']);
    if root_name == "rss" && known {
        return None;
    }
    let respell = |name: &str| RSS_NAMES.iter().find(|known| name.eq_ignore_ascii_case(known)).copied();
    edit(text, |tag| match tag {
        Tag::Start { inner, empty } if split(name(inner)).1.eq_ignore_ascii_case("rss") => {
            let keep = |key: &str, value: &str| (!key.eq_ignore_ascii_case("version")).then(|| value.to_owned());
            let tag = start("rss version=\"2.0\"", inner, empty, keep);
            Some(tag)
        }
        Tag::Start { inner, empty } => {
            let old = name(inner);
            let new = respell(old).filter(|new| *new != old)?;
            Some(start(new, inner, empty, |_, value| Some(value.to_owned())))
        }
        Tag::End { inner } if split(inner).1.eq_ignore_ascii_case("rss") => Some("</rss>".into()),
        Tag::End { inner } => respell(inner).filter(|new| *new != inner).map(|new| format!("</{new}>")),
        _ => None,
    })
}

/// `<rdf>` in any case: feed-rs knows `RDF`.
fn rdf_root(text: &str) -> Option<String> {
    let (full, _) = root(text)?;
    let (prefix, local) = split(full);
    if !local.eq_ignore_ascii_case("rdf") || local == "RDF" {
        return None;
    }
    let new = if prefix.is_empty() { "RDF".to_owned() } else { format!("{prefix}:RDF") };
    edit(text, |tag| match tag {
        Tag::Start { inner, empty } if name(inner) == full => {
            Some(start(&new, inner, empty, |_, value| Some(value.to_owned())))
        }
        Tag::End { inner } if inner == full => Some(format!("</{new}>")),
        _ => None,
    })
}

/// RSS has no namespace; one given as the default hides all its elements. RDF has one, RSS 0.90's is another.
fn rss_namespace(text: &str) -> Option<String> {
    let rdf = root_is(text, "rdf");
    if !rdf && !root_is(text, "rss") {
        return None;
    }
    edit(text, |tag| match tag {
        Tag::Start { inner, empty } => {
            let tag_name = name(inner);
            let ours = matches!(split(tag_name).1, "rss" | "RDF" | "channel" | "item");
            let wrong = |key: &str, value: &str| key == "xmlns" && value != RSS1;
            if !ours || !attributes(inner).any(|(key, value)| wrong(key, value)) {
                return None;
            }
            Some(start(tag_name, inner, empty, |key, value| match (wrong(key, value), rdf) {
                (true, true) => Some(RSS1.to_owned()),
                (true, false) => None,
                (false, _) => Some(value.to_owned()),
            }))
        }
        _ => None,
    })
}

/// Atom's namespace in a wrong case, with https or a slash, and that of 0.3.
fn atom_namespace(text: &str) -> Option<String> {
    let wrong = |key: &str, value: &str| key.starts_with("xmlns") && value != ATOM && is_atom(value);
    edit(text, |tag| match tag {
        Tag::Start { inner, empty } if attributes(inner).any(|(key, value)| wrong(key, value)) => {
            let change = |key: &str, value: &str| Some(if wrong(key, value) { ATOM } else { value }.to_owned());
            Some(start(name(inner), inner, empty, change))
        }
        _ => None,
    })
}

/// The elements that Atom 0.3 called otherwise.
fn atom_03(text: &str) -> Option<String> {
    if !root_is(text, "feed") {
        return None;
    }
    let issued = text.contains("issued>");
    let rename = |old: &str| {
        let (prefix, local) = split(old);
        let new = match local {
            "modified" => "updated",
            "issued" => "published",
            "created" if !issued => "published",
            "tagline" => "subtitle",
            "copyright" => "rights",
            // RSS's word in Atom's place.
            "item" => "entry",
            _ => return None,
        };
        Some(if prefix.is_empty() { new.to_owned() } else { format!("{prefix}:{new}") })
    };
    edit(text, |tag| match tag {
        Tag::Start { inner, empty } => {
            Some(start(&rename(name(inner))?, inner, empty, |_, value| Some(value.to_owned())))
        }
        Tag::End { inner } => rename(inner).map(|new| format!("</{new}>")),
        _ => None,
    })
}

/// Text constructs whose `type` feed-rs refuses; `src` beside text.
fn atom_types(text: &str) -> Option<String> {
    if !root_is(text, "feed") && !root_is(text, "entry") {
        return None;
    }
    edit(text, |tag| {
        let Tag::Start { inner, empty } = tag else { return None };
        let local = split(name(inner)).1;
        if !matches!(local, "title" | "subtitle" | "summary" | "rights" | "content") {
            return None;
        }
        let value = |want: &str| attributes(inner).find(|(key, _)| *key == want).map(|(_, value)| value.trim());
        let given = value("type")?;
        let mode_xml = value("mode").is_some_and(|m| m.eq_ignore_ascii_case("xml"));
        let wanted = match given.to_ascii_lowercase().as_str() {
            "text" | "text/plain" | "plain" | "" => "text",
            "xhtml" | "application/xhtml+xml" => "xhtml",
            "html" | "text/html" if mode_xml => "xhtml",
            "html" | "text/html" => "html",
            _ if local == "content" => return None,
            _ => "html",
        };
        if wanted == given && value("src").is_none() {
            return None;
        }
        Some(start(name(inner), inner, empty, |key, value| match key {
            "type" => Some(wanted.to_owned()),
            "src" if local == "content" => None,
            _ => Some(value.to_owned()),
        }))
    })
}

/// Optional details for which feed-rs gives up the whole feed: unknown types and roles, empty `media:title` and
/// `media:description`, an `xml:base` that is no URL.
fn fatal_extras(text: &str) -> Option<String> {
    let bad_base = |value: &str| matches!(Url::parse(value), Err(e) if e != url::ParseError::RelativeUrlWithoutBase);
    edit(text, |tag| {
        let Tag::Start { inner, empty } = tag else { return None };
        let full = name(inner);
        let (prefix, local) = split(full);
        let media = prefix.eq_ignore_ascii_case("media") && matches!(local, "title" | "description");
        let podcast = prefix.eq_ignore_ascii_case("podcast") && local == "person";
        let base =
            inner.contains("xml:base") && attributes(inner).any(|(key, value)| key == "xml:base" && bad_base(value));
        if !media && !podcast && !base {
            return None;
        }
        let keep = |key: &str, value: &str| {
            let drop =
                media && key == "type" || podcast && matches!(key, "role" | "group") || key == "xml:base" && base;
            (!drop).then(|| value.to_owned())
        };
        // An empty one is given a blank to live on: dropping it would need its end tag too.
        let blank = if media { " " } else { "" };
        match empty && media {
            true => Some(format!("{} </{full}>", start(full, inner, false, keep))),
            false => Some(start(full, inner, empty, keep) + blank),
        }
    })
}

/// Rewrites the text that follows the start tags that `wanted` names, up to the next end tag.
fn edit_text(text: &str, wanted: impl Fn(&str) -> bool, change: impl Fn(&str) -> Option<String>) -> Option<String> {
    let (mut out, mut at) = (String::new(), 0);
    for (range, tag) in Tags::new(text) {
        let Tag::Start { inner, empty: false } = tag else { continue };
        // The text of the one before may reach over this tag.
        if range.end < at || !wanted(split(name(inner)).1) {
            continue;
        }
        let content = &text[range.end..];
        let content = &content[..content.find("</").unwrap_or(0)];
        if let Some(new) = change(content) {
            out.push_str(&text[at..range.end]);
            out.push_str(&new);
            at = range.end + content.len();
        }
    }
    if at == 0 {
        return None;
    }
    out.push_str(&text[at..]);
    Some(out)
}

/// feed-rs panics where a letter beyond ASCII touches a mail address (it slices one byte beside it): blanks between.
fn mail_addresses(text: &str) -> Option<String> {
    let wanted = |local: &str| matches!(local, "author" | "managingEditor" | "webMaster" | "creator" | "name");
    edit_text(text, wanted, |content| {
        if content.is_ascii() || !content.contains('@') {
            return None;
        }
        let (mut out, mut before) = (String::with_capacity(content.len() + 8), ' ');
        for c in content.chars() {
            if c.is_ascii() != before.is_ascii() {
                out.push(' ');
            }
            out.push(c);
            before = c;
        }
        Some(out)
    })
}

/// feed-rs panics on durations that do not fit in 64 bits; none is kept anyway.
fn durations(text: &str) -> Option<String> {
    edit_text(text, |local| local == "duration", |content| (content.len() > 16).then(String::new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::parse::{ParseLimits, parse};

    fn titles(text: &str) -> Vec<String> {
        let base = Url::parse("https://site.example/feed").unwrap();
        let feed = parse(text, &base, &ParseLimits::default()).unwrap_or_else(|e| panic!("{e}: {text}"));
        feed.entries.into_iter().map(|e| e.title.unwrap_or_default()).collect()
    }

    #[test]
    fn habits_of_rss() {
        let item = "<item><title>a</title></item>";
        for text in [
            format!("<rss><channel>{item}</channel></rss>"),
            format!("<rss version='2.01'><channel>{item}</channel></rss>"),
            format!("<rss version=2.0><channel>{item}</channel></rss>"),
            format!("<RSS VERSION=\"2.0\"><CHANNEL>{}</CHANNEL></RSS>", "<ITEM><TITLE>a</TITLE></ITEM>"),
            format!("<rss version='2.0' xmlns='http://backend.userland.com/rss2'><channel>{item}</channel></rss>"),
            format!("<b>Notice</b>: x\n<?xml version='1.0'?><rss version='2.0'><channel>{item}</channel></rss>"),
            format!("<channel>{item}</channel>"),
            format!("<rss version='2.0'><channel>{item}<item><title>b"),
            format!("<rss version='2.0'><channel>{item}<item><title>b</p></title></item></channel></rss>"),
            format!("<rss version='2.0'><channel><title>x<br></title>{item}</channel></rss>"),
            "<rss version='2.0'><channel><item><title>a<br></title></item></channel></rss>".into(),
            "<rss><channel><item><title>a\u{1}&#0;&#xD800;</title><link>/?a&b</link></item></channel></rss>".into(),
        ] {
            assert_eq!(titles(&text), ["a"], "{text}");
        }
    }

    #[test]
    fn habits_of_atom_and_rdf() {
        let entry = "<entry><title type='text/plain'>a</title><issued>2004-01-01T00:00:00Z</issued></entry>";
        for ns in ["http://purl.org/atom/ns#", "https://www.w3.org/2005/Atom", "http://www.w3.org/2005/atom/"] {
            assert_eq!(titles(&format!("<feed xmlns='{ns}'>{entry}</feed>")), ["a"], "{ns}");
        }
        let rdf = "<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#' \
            xmlns='http://my.netscape.com/rdf/simple/0.9/'><channel><title>t</title></channel>\
            <item><title>a</title><link>https://x.example/</link></item></rdf:RDF>";
        assert_eq!(titles(rdf), ["a"]);
    }

    #[test]
    fn one_bad_detail_does_not_cost_the_feed() {
        let head = "<rss version='2.0' xmlns:media='http://search.yahoo.com/mrss/' \
            xmlns:podcast='https://podcastindex.org/namespace/1.0'><channel><item><title>a</title>";
        for extra in [
            "<media:title type='weird'>x</media:title>",
            "<media:title/>",
            "<media:description></media:description>",
            "<podcast:person role='wizard'>x</podcast:person>",
            "<link xml:base='http://[bad'>x</link>",
        ] {
            assert_eq!(titles(&format!("{head}{extra}</item></channel></rss>")), ["a"], "{extra}");
        }
    }

    #[test]
    fn references_outside_cdata() {
        let text = "a &nbsp;& b &amp; &lt; &#38; &foo; <![CDATA[& &nbsp;]]> &";
        let want = "a \u{a0}&amp; b &amp; &lt; &#38; &amp;foo; <![CDATA[& &nbsp;]]> &amp;";
        assert_eq!(references(text).as_deref(), Some(want));
        assert_eq!(references("&amp; x"), None);
    }
}
