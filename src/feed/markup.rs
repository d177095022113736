//! Steps of [`super::repair`] for markup where text should be: tags inside RSS text, declarations that are missing,
//! entities that the document declares itself, text in base64.

use super::losses::{self, PREFIXES, undeclared};
use super::repair::{edit, root, root_is, start};
use super::tags::{Tag, Tags, attributes, name, split};
use super::text;
use std::collections::HashMap;

/// Entities a document may bring, and the length of one in bytes: names for letters, no more.
const MAX_ENTITIES: usize = 256;
const MAX_ENTITY: usize = 256;
/// What all of them together may add, in bytes.
const MAX_GROWTH: usize = 256 * 1024;

/// Tags in text that should have been escaped: the whole content becomes CDATA. Atom's constructs are then HTML.
pub(super) fn inline_markup(doc: &str) -> Option<String> {
    let atom = root_is(doc, "feed") || root_is(doc, "entry");
    let (mut out, mut at) = (String::new(), 0);
    // The open text element: its name, where its tag and its content begin, elements open inside, tags seen.
    let mut open: Option<(&str, &str, usize, usize)> = None;
    let (mut inside, mut tags) = (0usize, false);
    for (range, tag) in Tags::new(doc) {
        match (tag, open) {
            (Tag::Start { inner, empty: false }, None) => {
                let (prefix, local) = split(name(inner));
                let text = if atom { losses::is_atom_text(local, inner) } else { losses::is_text(prefix, local) };
                if text {
                    open = Some((name(inner), inner, range.start, range.end));
                    (inside, tags) = (0, false);
                }
            }
            (Tag::Start { empty, .. }, Some(_)) => {
                inside += usize::from(!empty);
                tags = true;
            }
            (Tag::End { inner }, Some((full, tag, from, content))) => {
                // An element that was left open inside (`<br>`) does not hide the end of the text.
                if inner != full {
                    inside = inside.saturating_sub(1);
                    continue;
                }
                open = None;
                if tags {
                    out.push_str(&doc[at..from]);
                    match atom {
                        true => {
                            let kept = |key: &str, value: &str| (key != "type").then(|| value.to_owned());
                            out.push_str(&start(&format!("{full} type=\"html\""), tag, false, kept));
                        }
                        false => out.push_str(&doc[from..content]),
                    }
                    let inner = doc[content..range.start].replace("<![CDATA[", "").replace("]]>", "");
                    out.extend(["<![CDATA[", &inner, "]]>"]);
                    at = range.start;
                }
            }
            _ => {}
        }
    }
    if at == 0 {
        return None;
    }
    out.push_str(&doc[at..]);
    Some(out)
}

/// Declares the well-known prefixes that are used and declared nowhere, on the root.
pub(super) fn missing_declarations(doc: &str) -> Option<String> {
    let (root_name, _) = root(doc)?;
    let used = |prefix: &str| {
        Tags::new(doc).any(|(_, tag)| matches!(tag, Tag::Start { inner, .. } if split(name(inner)).0 == prefix))
    };
    let missing = PREFIXES.iter().filter(|(prefix, _)| doc.contains(&format!("<{prefix}:")) && undeclared(doc, prefix));
    let added: String =
        missing.filter(|(prefix, _)| used(prefix)).map(|(prefix, uri)| format!(" xmlns:{prefix}=\"{uri}\"")).collect();
    let at = Tags::new(doc).find_map(|(range, tag)| matches!(tag, Tag::Start { .. }).then_some(range.start))?;
    let at = at + 1 + root_name.len();
    (!added.is_empty()).then(|| [&doc[..at], &added, &doc[at..]].concat())
}

/// `<!ENTITY name "literal">` of the DOCTYPE, put in where it is used outside CDATA. One that refers to others, or to
/// a file, stays unknown: nothing can multiply.
pub(super) fn own_entities(doc: &str) -> Option<String> {
    let (range, _) = Tags::new(doc)
        .take_while(|(_, tag)| !matches!(tag, Tag::Start { .. }))
        .find(|(range, _)| doc[range.start..].get(..9).is_some_and(|d| d.eq_ignore_ascii_case("<!doctype")))?;
    let mut entities: HashMap<&str, String> = HashMap::new();
    for declaration in doc[range.clone()].split("<!ENTITY").skip(1).take(MAX_ENTITIES) {
        let declaration = declaration.trim_start();
        let Some((entity, rest)) = declaration.split_once(|c: char| c.is_ascii_whitespace()) else { continue };
        let rest = rest.trim_start();
        let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) else { continue };
        let Some((value, _)) = rest[1..].split_once(quote) else { continue };
        let literal = text::decode(value);
        if value.len() <= MAX_ENTITY && !literal.contains(['<', '&', '%']) {
            // Escaped, because it may land in an attribute.
            entities.entry(entity).or_insert_with(|| quick_xml::escape::escape(&*literal).into_owned());
        }
    }
    if entities.is_empty() {
        return None;
    }
    let (mut out, mut at, mut room) = (doc[..range.end].to_owned(), range.end, MAX_GROWTH);
    let mut fill = |part: &str, out: &mut String| {
        let mut rest = part;
        while let Some(i) = rest.find('&') {
            out.push_str(&rest[..i]);
            rest = &rest[i..];
            let found = text::reference(rest).and_then(|(body, len)| Some((entities.get(body)?, len)));
            match found.filter(|(value, _)| value.len() <= room) {
                Some((value, len)) => {
                    room -= value.len();
                    out.push_str(value);
                    rest = &rest[len..];
                }
                None => {
                    out.push('&');
                    rest = &rest[1..];
                }
            }
        }
        out.push_str(rest);
    };
    for (range, tag) in Tags::new(doc).skip_while(|(r, _)| r.start < range.end) {
        if matches!(tag, Tag::CData | Tag::Comment) {
            fill(&doc[at..range.start], &mut out);
            out.push_str(&doc[range.clone()]);
            at = range.end;
        }
    }
    fill(&doc[at..], &mut out);
    Some(out)
}

/// Atom text in base64 (`mode="base64"` of 0.3, or a binary type on a title), when it is text below.
pub(super) fn base64_text(doc: &str) -> Option<String> {
    if !root_is(doc, "feed") || !doc.contains("base64") && !doc.contains("application/octet-stream") {
        return None;
    }
    let (mut out, mut at) = (String::new(), 0);
    for (range, tag) in Tags::new(doc) {
        let Tag::Start { inner, empty: false } = tag else { continue };
        let local = split(name(inner)).1;
        let coded = attributes(inner).any(|(key, value)| {
            key == "mode" && value == "base64"
                || key == "type" && value == "application/octet-stream" && local == "title"
        });
        if range.start < at || !coded || !matches!(local, "title" | "tagline" | "summary" | "content" | "subtitle") {
            continue;
        }
        let content = &doc[range.end..];
        let content = &content[..content.find('<').unwrap_or(0)];
        let Some(plain) = unbase64(content).and_then(|bytes| String::from_utf8(bytes).ok()) else { continue };
        out.push_str(&doc[at..range.start]);
        let kept = |key: &str, value: &str| (!matches!(key, "type" | "mode")).then(|| value.to_owned());
        out.push_str(&start(&format!("{} type=\"html\"", name(inner)), inner, false, kept));
        out.push_str(&quick_xml::escape::escape(&*plain));
        at = range.end + content.len();
    }
    if at == 0 {
        return None;
    }
    out.push_str(&doc[at..]);
    Some(out)
}

fn unbase64(text: &str) -> Option<Vec<u8>> {
    let (mut out, mut bits, mut count) = (Vec::with_capacity(text.len() / 4 * 3), 0u32, 0);
    for b in text.bytes().filter(|b| !b.is_ascii_whitespace()) {
        let value = match b {
            b'A'..=b'Z' => b - b'A',
            b'a'..=b'z' => b - b'a' + 26,
            b'0'..=b'9' => b - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => break,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    Some(out)
}

/// The prefix of RSS itself (`<r:rss>`, `<r:item>`) goes: without it the names are RSS's.
pub(super) fn rss_prefix(doc: &str) -> Option<String> {
    let (full, inner) = root(doc)?;
    let (prefix, local) = split(full);
    if prefix.is_empty() || !local.eq_ignore_ascii_case("rss") && local != "Channel" {
        return None;
    }
    let declared = format!("xmlns:{prefix}");
    attributes(inner).find(|(key, _)| *key == declared)?;
    edit(doc, |tag| match tag {
        Tag::Start { inner, empty } if split(name(inner)).0 == prefix => {
            let keep = |key: &str, value: &str| (key != declared).then(|| value.to_owned());
            Some(start(split(name(inner)).1, inner, empty, keep))
        }
        Tag::End { inner } if split(inner).0 == prefix => Some(format!("</{}>", split(inner).1)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_in_text_become_cdata() {
        let text = "<rss><description>a <b>b</b><br> &amp; <![CDATA[c]]></description></rss>";
        let want = "<rss><description><![CDATA[a <b>b</b><br> &amp; c]]></description></rss>";
        assert_eq!(inline_markup(text).as_deref(), Some(want));
        assert_eq!(inline_markup("<rss><description>a</description></rss>"), None);
        let atom = "<feed><title>a <b>b</b></title><content type='xhtml'><div/></content></feed>";
        let want =
            "<feed><title type=\"html\"><![CDATA[a <b>b</b>]]></title><content type='xhtml'><div/></content></feed>";
        assert_eq!(inline_markup(atom).as_deref(), Some(want));
    }

    #[test]
    fn entities_are_filled_in_once() {
        let head = "<!DOCTYPE rss [<!ENTITY a 'x&#233;'><!ENTITY b '&a;&a;'><!ENTITY c SYSTEM 'f'>]>";
        let found = own_entities(&format!("{head}<rss>&a;&b;&c;<![CDATA[&a;]]>&a;</rss>")).unwrap();
        assert_eq!(found.strip_prefix(head), Some("<rss>xé&b;&c;<![CDATA[&a;]]>xé</rss>"));
        let bomb = format!("<!DOCTYPE a [<!ENTITY a '{}'>]><a>{}</a>", "x".repeat(256), "&a;".repeat(1_000_000));
        assert!(own_entities(&bomb).unwrap().len() < 4_000_000);
    }

    #[test]
    fn base64() {
        assert_eq!(unbase64("RXhh\nbXBsZQ==").as_deref(), Some(&b"Example"[..]));
        assert_eq!(unbase64("é"), None);
    }
}
