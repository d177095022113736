//! The markup of an XML text, cut exactly as quick-xml 0.42 does: quotes count inside tags, a `<` in text always opens
//! one. The guard in [`super::scan`] rests on that.

use super::text;
use memchr::{memchr, memchr3_iter, memmem};
use std::ops::Range;

/// What stands between `<` and `>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag<'a> {
    /// `inner` is name and attributes, without the slash of an empty element.
    Start {
        inner: &'a str,
        empty: bool,
    },
    /// `inner` is the name.
    End {
        inner: &'a str,
    },
    CData,
    Comment,
    /// DOCTYPE, processing instruction, unknown.
    Odd,
}

/// Iterates over the markup of a text: (range from `<` past `>`, kind). Stops before an unfinished tag.
pub(super) struct Tags<'a> {
    text: &'a str,
    at: usize,
    /// Where an unfinished tag begins, once the end was reached inside of it.
    pub unfinished: Option<usize>,
}

impl<'a> Tags<'a> {
    pub fn new(text: &'a str) -> Tags<'a> {
        Tags { text, at: 0, unfinished: None }
    }

    fn special(&self, start: usize) -> Option<(usize, Tag<'a>)> {
        let rest = &self.text.as_bytes()[start..];
        let until = |from: usize, needle: &[u8]| {
            memmem::find(rest.get(from..)?, needle).map(|i| start + from + i + needle.len())
        };
        if rest.starts_with(b"<!--") {
            Some((until(4, b"-->")?, Tag::Comment))
        } else if rest.starts_with(b"<![CDATA[") {
            Some((until(9, b"]]>")?, Tag::CData))
        } else if rest.starts_with(b"<?") {
            Some((until(2, b"?>")?, Tag::Odd))
        } else if rest.len() >= 9 && rest[2..9].eq_ignore_ascii_case(b"DOCTYPE") {
            Some((start + doctype_end(rest)?, Tag::Odd))
        } else {
            Some((until(2, b">")?, Tag::Odd))
        }
    }
}

impl<'a> Iterator for Tags<'a> {
    type Item = (Range<usize>, Tag<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.text.as_bytes();
        let start = self.at + memchr(b'<', &bytes[self.at..])?;
        let found = match bytes.get(start + 1) {
            None => None,
            Some(b'!' | b'?') => self.special(start),
            Some(first) => tag_end(&bytes[start + 1..]).map(|len| {
                let inner = &self.text[start + 1..start + 1 + len];
                let tag = match (first, inner.strip_suffix('/')) {
                    (b'/', _) => Tag::End { inner: inner[1..].trim_ascii_end() },
                    (_, Some(inner)) => Tag::Start { inner, empty: true },
                    (_, None) => Tag::Start { inner, empty: false },
                };
                (start + len + 2, tag)
            }),
        };
        match found {
            Some((end, tag)) => {
                self.at = end;
                Some((start..end, tag))
            }
            None => {
                self.unfinished = Some(start);
                self.at = bytes.len();
                None
            }
        }
    }
}

/// Where the `>` is that ends a tag; quotes hide it.
fn tag_end(bytes: &[u8]) -> Option<usize> {
    let mut quote = 0;
    for i in memchr3_iter(b'>', b'"', b'\'', bytes) {
        match bytes[i] {
            b'>' if quote == 0 => return Some(i),
            b'>' => {}
            q if quote == 0 => quote = q,
            q if q == quote => quote = 0,
            _ => {}
        }
    }
    None
}

/// Past the `>` of a DOCTYPE: brackets and quotes hide it, and comments inside the brackets.
fn doctype_end(bytes: &[u8]) -> Option<usize> {
    let (mut quote, mut subset, mut i) = (0, false, 9);
    while let Some(&b) = bytes.get(i) {
        match b {
            _ if quote != 0 => quote = if b == quote { 0 } else { quote },
            b'<' if bytes[i..].starts_with(b"<!--") => i += 3 + memmem::find(&bytes[i + 4..], b"-->")? + 3,
            b'"' | b'\'' => quote = b,
            b'[' => subset = true,
            b']' => subset = false,
            b'>' if !subset => return Some(i + 1),
            _ => {}
        }
        i += 1;
    }
    None
}

/// The name of a tag: up to the first blank.
pub(super) fn name(inner: &str) -> &str {
    let end = inner.bytes().position(|b| b.is_ascii_whitespace()).unwrap_or(inner.len());
    &inner[..end]
}

/// (prefix or "", local name).
pub(super) fn split(name: &str) -> (&str, &str) {
    name.split_once(':').unwrap_or(("", name))
}

/// The attributes of a start tag, names as written, values not decoded; quotes may be missing.
pub(super) fn attributes(inner: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = &inner[name(inner).len()..];
    std::iter::from_fn(move || {
        rest = rest.trim_ascii_start();
        let end = rest.find(|c: char| c == '=' || c.is_ascii_whitespace()).unwrap_or(rest.len());
        let key = &rest[..end];
        if key.is_empty() && !rest.starts_with('=') {
            return None;
        }
        let after = rest[end..].trim_ascii_start();
        let Some(after) = after.strip_prefix('=') else {
            rest = after;
            return Some((key, ""));
        };
        let after = after.trim_ascii_start();
        let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''));
        let (value, left) = match quote {
            Some(q) => after[1..].split_once(q).unwrap_or((&after[1..], "")),
            None => after.split_at(after.find(|c: char| c.is_ascii_whitespace()).unwrap_or(after.len())),
        };
        rest = left;
        Some((key, value))
    })
}

/// The value of one attribute by local name in any case, decoded and trimmed.
pub(super) fn attribute(inner: &str, local: &str) -> Option<String> {
    let (_, value) = attributes(inner).find(|(key, _)| split(key).1.eq_ignore_ascii_case(local))?;
    Some(text::decode(value).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_end_where_quick_xml_ends_them() {
        let text = "<a b='>' c=\">\"/>x<!-- <d> --><![CDATA[<e>]]><?f > ?></g ><!DOCTYPE h [<!ENTITY i \">\"> ]><j";
        let mut tags = Tags::new(text);
        let found: Vec<Tag> = tags.by_ref().map(|(_, tag)| tag).collect();
        let start = Tag::Start { inner: "a b='>' c=\">\"", empty: true };
        assert_eq!(found, [start, Tag::Comment, Tag::CData, Tag::Odd, Tag::End { inner: "g" }, Tag::Odd]);
        assert_eq!(tags.unfinished, Some(text.len() - 2));
    }

    #[test]
    fn attributes_with_and_without_quotes() {
        let found: Vec<_> = attributes("link rel = 'a b' href=x/y\n t=\"1\"z=\"2\" bare").collect();
        assert_eq!(found, [("rel", "a b"), ("href", "x/y"), ("t", "1"), ("z", "2"), ("bare", "")]);
        assert_eq!(attributes("a ='x'").collect::<Vec<_>>(), [("", "x")]);
    }
}
