//! Small helpers for text that came from a feed: entities, control characters, titles.

use quick_xml::escape::resolve_html5_entity;
use std::borrow::Cow;

/// Longest name of an HTML entity is 31 letters (`CounterClockwiseContourIntegral`).
const LONGEST_ENTITY: usize = 32;

/// What windows-1252 has at 0x80–0x9F: HTML reads numeric references into that range this way.
const C1: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', '\u{90}', '‘', '’',
    '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

/// The body of a reference between `&` and `;` as characters, `None` when it names nothing.
/// Numbers that are no character (0, surrogates, too large) give the empty string: they are dropped.
pub(super) fn resolve(reference: &str) -> Option<Cow<'static, str>> {
    let Some(number) = reference.strip_prefix('#') else {
        return resolve_html5_entity(reference).map(Cow::Borrowed);
    };
    let (digits, radix) = match number.strip_prefix(['x', 'X']) {
        Some(hex) => (hex, 16),
        None => (number, 10),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let code = u32::from_str_radix(digits, radix).unwrap_or(0);
    let c = match code {
        0x80..=0x9f => C1.get(code as usize - 0x80).copied(),
        _ => char::from_u32(code).filter(|c| !is_control(*c)),
    };
    Some(c.map(String::from).unwrap_or_default().into())
}

/// The reference that starts at `text[0] == '&'`: (its body, its length with `&` and `;`).
pub(super) fn reference(text: &str) -> Option<(&str, usize)> {
    let bytes = text.as_bytes();
    let end = bytes.iter().take(LONGEST_ENTITY + 2).position(|b| *b == b';')?;
    let body = text.get(1..end)?;
    let ok = !body.is_empty() && body.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'#');
    ok.then_some((body, end + 1))
}

/// Character and entity references decoded once; what names nothing stays.
pub(super) fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains('&') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        match reference(rest).and_then(|(body, len)| Some((resolve(body)?, len))) {
            Some((chars, len)) => {
                out.push_str(&chars);
                rest = &rest[len..];
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// C0 and C1 but line feed, carriage return and tab; readers of SQLite and JSON choke on them.
pub(super) fn is_control(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\r' | '\t')
}

/// A long text as it is stored: trimmed, without control characters, lines ended by line feeds; `None` when empty.
pub(super) fn long(text: &str) -> Option<String> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    if !text.bytes().any(|b| b < 0x20 && b != b'\n' && b != b'\t' || b == 0x7f || b == 0xc2) {
        return Some(text.to_owned());
    }
    let out: String = text.replace("\r\n", "\n").chars().filter(|c| !is_control(*c) && *c != '\r').collect();
    Some(out).filter(|s| !s.trim().is_empty())
}

/// A short text on one line: blanks folded, control characters gone; `None` when empty.
pub(super) fn short(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        let before = out.len();
        if before > 0 {
            out.push(' ');
        }
        let start = out.len();
        out.extend(word.chars().filter(|c| !is_control(*c)));
        if out.len() == start {
            out.truncate(before);
        }
    }
    Some(out).filter(|s| !s.is_empty())
}

/// A title as plain text: tags dropped, references decoded once (miniflux#1078: many feeds escape twice). Where nothing
/// says that it is `html` (RSS), only tags that are surely meant so go: `Vec<T>` stays.
pub(super) fn title(text: &str, html: bool) -> Option<String> {
    short(&decode(&without_tags(text, html)))
}

/// Elements that stand in titles, with their end tag ...
const INLINE: [&str; 21] = [
    "a", "abbr", "b", "big", "cite", "code", "div", "em", "font", "i", "mark", "p", "q", "s", "small", "span",
    "strong", "sub", "sup", "tt", "u",
];
/// ... without one ...
const ALONE: [&str; 4] = ["br", "hr", "img", "wbr"];
/// ... and those whose content is no text.
const HIDDEN: [&str; 2] = ["script", "style"];

/// Without tags: all of them, or those of [`INLINE`] (if the text has an end tag of that name), [`ALONE`] and
/// [`HIDDEN`].
fn without_tags(text: &str, all: bool) -> Cow<'_, str> {
    if !text.contains('<') {
        return Cow::Borrowed(text);
    }
    let closed = INLINE.map(|name| !all && text.contains(&format!("</{name}>")));
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut unclosed) = (text, false);
    while let Some(at) = rest.find('<') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let name = rest[1..].strip_prefix('/').unwrap_or(&rest[1..]);
        let name = &name[..name.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(name.len())];
        let tag = match all {
            true => rest[1..].starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '!'),
            false => {
                INLINE.iter().zip(closed).any(|(known, closed)| closed && name == *known)
                    || [&ALONE[..], &HIDDEN].iter().any(|list| list.contains(&name))
            }
        };
        if !tag {
            out.push('<');
            rest = &rest[1..];
            continue;
        }
        // Nothing ends here any more; asking again at every `<` would be quadratic.
        let Some(end) = rest.find('>') else { break };
        let close = match HIDDEN.contains(&name) && !unclosed {
            true => rest[end..].find(&format!("</{name}")),
            false => None,
        };
        unclosed |= HIDDEN.contains(&name) && close.is_none();
        rest = &rest[close.map_or(end + 1, |close| end + close)..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The last character boundary at or before `max` (`str::floor_char_boundary` is younger than our Rust).
pub(super) fn floor(text: &str, max: usize) -> usize {
    (0..=max.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0)
}

/// At most `max` bytes of it, on one line, for messages.
pub(super) fn clip(text: &str, max: usize) -> String {
    let mut line = short(text).unwrap_or_default();
    if line.len() > max {
        line.truncate(floor(&line, max));
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_decoded_once() {
        for (text, want) in [
            ("Tom &amp; Jerry", "Tom & Jerry"),
            ("&amp;amp;", "&amp;"),
            ("it&#8217;s&nbsp;&#x41;", "it’s\u{a0}A"),
            ("&#146;", "’"),
            ("a & b &c; &;&#;&#x;", "a & b &c; &;&#;&#x;"),
            ("&#0;&#xD83D;&#99999999999;x", "x"),
        ] {
            assert_eq!(decode(text), want);
        }
    }

    #[test]
    fn titles_are_one_plain_line() {
        assert_eq!(title(" a\n  <b>b</b> &lt;c&gt; ", true).as_deref(), Some("a b <c>"));
        assert_eq!(title("Vec<T> &amp; friends", false).as_deref(), Some("Vec<T> & friends"));
        assert_eq!(title("a <b>c</b><br/> <i> d", false).as_deref(), Some("a c <i> d"));
        assert_eq!(title("x\u{0}\u{8}y \u{1} z", false).as_deref(), Some("xy z"));
        assert_eq!(title(" \u{1} ", false), None);
        assert_eq!(title("1 < 2", true).as_deref(), Some("1 < 2"));
        assert_eq!(title("a<script>alert('<b>')</script> b", true).as_deref(), Some("a b"));
    }

    #[test]
    fn long_texts_keep_their_lines() {
        assert_eq!(long(" a\r\nb\tc\u{0}\u{85} ").as_deref(), Some("a\nb\tc"));
        assert_eq!(long("é"), Some("é".into()));
        assert_eq!(long(" \n "), None);
    }
}
