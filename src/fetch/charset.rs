//! Bytes → text. Feeds lie about their character set, so the bytes are asked first.

use encoding_rs::{Encoding, REPLACEMENT, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252, X_USER_DEFINED};
use std::borrow::Cow;

/// How far in an XML declaration or a `meta` is looked for, in bytes.
const HEAD: usize = 4096;

/// The body as text, without its byte order mark. Borrows when it is valid UTF-8, which most bodies are. An XML
/// declaration is left as it stands, so whoever parses the text must not believe the encoding named there.
///
/// In this order: byte order mark; UTF-16 or UTF-32 seen by the zero bytes around the first character; valid UTF-8,
/// whatever the labels say; the charset of `content_type` (the first known one, broken quoting or not); the XML
/// declaration; with `html`, a `meta`; then UTF-8 with replacement characters if more sequences are good than bad, else
/// windows-1252.
pub fn to_utf8<'a>(body: &'a [u8], content_type: Option<&str>, html: bool) -> Cow<'a, str> {
    if let Some(text) = by_mark(body).or_else(|| by_zeros(body)) {
        return text;
    }
    let http = || content_type.and_then(http_charset);
    match std::str::from_utf8(body) {
        // All ASCII, yet not text as it stands: ISO-2022-JP shifts by escapes.
        Ok(_) if body.contains(&0x1b) && http().or_else(|| xml_charset(body)) == Some(encoding_rs::ISO_2022_JP) => {
            return encoding_rs::ISO_2022_JP.decode_without_bom_handling(body).0;
        }
        Ok(text) => return Cow::Borrowed(text),
        Err(_) => {}
    }
    // UTF-16 cannot be: there are no zero bytes where it would have them. UTF-8 it is not, or not wholly.
    let usable = |encoding: &&'static Encoding| ![UTF_8, UTF_16LE, UTF_16BE].contains(encoding);
    let labels = [http(), xml_charset(body), html.then(|| meta_charset(body)).flatten()];
    let first = labels.iter().flatten().next().copied();
    let other = labels.into_iter().flatten().find(usable);
    if let Some(encoding) = other
        && (Some(encoding) == first || !mostly_utf8(body))
    {
        return encoding.decode_without_bom_handling(body).0;
    }
    if mostly_utf8(body) {
        return String::from_utf8_lossy(body);
    }
    WINDOWS_1252.decode_without_bom_handling(body).0
}

fn by_mark(body: &[u8]) -> Option<Cow<'_, str>> {
    match body {
        [0xef, 0xbb, 0xbf, rest @ ..] => Some(String::from_utf8_lossy(rest)),
        // UTF-32's little-endian mark begins with UTF-16's.
        [0xff, 0xfe, 0, 0, rest @ ..] => Some(utf_32(rest, u32::from_le_bytes)),
        [0, 0, 0xfe, 0xff, rest @ ..] => Some(utf_32(rest, u32::from_be_bytes)),
        [0xff, 0xfe, rest @ ..] => Some(UTF_16LE.decode_without_bom_handling(rest).0),
        [0xfe, 0xff, rest @ ..] => Some(UTF_16BE.decode_without_bom_handling(rest).0),
        _ => None,
    }
}

/// A feed begins with an ASCII character (`<`, `{`, a blank), so its zero bytes give the width away.
fn by_zeros(body: &[u8]) -> Option<Cow<'_, str>> {
    match body {
        [1..=0x7f, 0, 0, 0, ..] => Some(utf_32(body, u32::from_le_bytes)),
        [0, 0, 0, 1..=0x7f, ..] => Some(utf_32(body, u32::from_be_bytes)),
        [1..=0x7f, 0, second, high, ..] if (*second, *high) != (0, 0) => {
            Some(UTF_16LE.decode_without_bom_handling(body).0)
        }
        [0, 1..=0x7f, high, second, ..] if (*high, *second) != (0, 0) => {
            Some(UTF_16BE.decode_without_bom_handling(body).0)
        }
        _ => None,
    }
}

fn utf_32(body: &[u8], number: fn([u8; 4]) -> u32) -> Cow<'_, str> {
    let units = body.as_chunks::<4>().0;
    units.iter().map(|unit| char::from_u32(number(*unit)).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

/// More good sequences of several bytes than bad ones.
fn mostly_utf8(body: &[u8]) -> bool {
    let (mut good, mut bad) = (0, 0);
    for chunk in body.utf8_chunks() {
        // Only the first bytes of sequences: neither ASCII nor continuations.
        good += chunk.valid().bytes().filter(|byte| *byte >= 0xc2).count();
        bad += usize::from(!chunk.invalid().is_empty());
    }
    good > bad
}

/// The first charset that is known, of a header that may have several, quoted in either way, or wrongly parted.
fn http_charset(content_type: &str) -> Option<&'static Encoding> {
    let lower = content_type.to_ascii_lowercase();
    lower.match_indices("charset").find_map(|(at, word)| {
        let value = lower[at + word.len()..].trim_start().strip_prefix('=')?;
        let value = value.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\'));
        let end = value.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\' | ';' | ','));
        known(&value.as_bytes()[..end.unwrap_or(value.len())])
    })
}

/// `encoding` in the XML declaration, which may be late (blanks, a comment, a warning of PHP's before it) and long.
fn xml_charset(body: &[u8]) -> Option<&'static Encoding> {
    let head = &body[..body.len().min(HEAD)];
    let start = find(head, b"<?xml")? + 5;
    let declaration = &head[start..start + find(&head[start..], b"?>").unwrap_or(head.len() - start)];
    attribute(declaration, b"encoding").and_then(known)
}

/// `<meta charset=…>` or `<meta http-equiv=content-type content="…; charset=…">`.
fn meta_charset(body: &[u8]) -> Option<&'static Encoding> {
    let head = body[..body.len().min(HEAD)].to_ascii_lowercase();
    let mut rest = &head[..];
    while let Some(at) = find(rest, b"<meta") {
        rest = &rest[at + 5..];
        let tag = &rest[..rest.iter().position(|byte| *byte == b'>').unwrap_or(rest.len())];
        if let Some(encoding) = attribute(tag, b"charset").and_then(known) {
            return Some(encoding);
        }
    }
    None
}

/// The value after `name` and an equals sign, quoted or not.
fn attribute<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let after = text[find(text, name)? + name.len()..].trim_ascii_start();
    let value = after.strip_prefix(b"=")?.trim_ascii_start();
    let (value, quote) = match value {
        [quote @ (b'"' | b'\''), value @ ..] => (value, Some(*quote)),
        _ => (value, None),
    };
    let ends = |byte: &u8| match quote {
        Some(quote) => *byte == quote,
        None => byte.is_ascii_whitespace() || matches!(byte, b';' | b'"' | b'\'' | b'/' | b'?'),
    };
    Some(&value[..value.iter().position(ends).unwrap_or(value.len())])
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window.eq_ignore_ascii_case(word))
}

/// An encoding of the WHATWG's list that gives text: two of its entries do not.
fn known(label: &[u8]) -> Option<&'static Encoding> {
    Encoding::for_label(label).filter(|encoding| ![REPLACEMENT, X_USER_DEFINED].contains(encoding))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_utf8_is_borrowed_and_beats_labels() {
        for body in ["<rss/>", "<?xml version='1.0' encoding='iso-8859-1'?><a>é</a>"] {
            let text = to_utf8(body.as_bytes(), Some("text/xml; charset=windows-1251"), false);
            assert!(matches!(text, Cow::Borrowed(_)));
            assert_eq!(text, body);
        }
        assert!(matches!(to_utf8(b"\xef\xbb\xbf<a/>", Some("a; charset=iso-8859-1"), false), Cow::Borrowed("<a/>")));
    }

    #[test]
    fn utf_16_and_32_with_and_without_mark() {
        let text = "<a>é😀</a>";
        let wide = |bytes: fn(u32) -> [u8; 4]| text.chars().flat_map(|c| bytes(u32::from(c))).collect::<Vec<u8>>();
        let le: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let be: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for (mark, body) in [
            (&b"\xff\xfe"[..], le),
            (b"\xfe\xff", be),
            (b"\xff\xfe\0\0", wide(u32::to_le_bytes)),
            (b"\0\0\xfe\xff", wide(u32::to_be_bytes)),
        ] {
            assert_eq!(to_utf8(&body, None, false), text);
            assert_eq!(to_utf8(&[mark, &body].concat(), Some("text/xml; charset=utf-8"), false), text);
        }
    }

    #[test]
    fn labels_in_their_order() {
        let russian = b"<a>\xcf\xf0\xe8\xe2\xe5\xf2</a>";
        for header in [
            "text/xml; charset=windows-1251",
            "text/xml;charset=\"windows-1251\"",
            "text/xml; charset='Windows-1251'",
            "text/xml; charset=nonsense; charset = windows-1251",
            "text/xml; charset=windows-1251,utf-8",
            "text/xml; charset=\\\"windows-1251\\\"",
            "text/xml; charset=; charset=windows-1251",
            "text/xml; charset=windows-1251; charset=windows-1251",
            "text/xml; charset=\"windows-1251",
            "text/xml charset=cp1251",
            "TEXT/XML; CHARSET=\"WINDOWS-1251\";",
        ] {
            assert_eq!(to_utf8(russian, Some(header), false), "<a>Привет</a>", "{header}");
        }
        let mut declared =
            format!("\n<?xml version=\"1.0\"{}encoding = 'windows-1251' ?>", " ".repeat(200)).into_bytes();
        declared.extend_from_slice(russian);
        assert!(to_utf8(&declared, Some("text/xml"), false).ends_with("<a>Привет</a>"));
        // A label of UTF-8 is refuted by the bytes; the declaration is not.
        assert!(to_utf8(&declared, Some("text/xml; charset=utf-8"), false).ends_with("<a>Привет</a>"));
        assert!(to_utf8(&declared, Some("text/xml; charset=koi8-r"), false).contains("<a>оПХБЕР</a>"));
        let html = b"<html><meta name=x><meta http-equiv=Content-Type content='text/html; charset=windows-1251'>\xcf";
        assert!(to_utf8(html, None, true).ends_with('П'));
        assert!(to_utf8(html, None, false).ends_with('Ï'));
        assert!(to_utf8(b"<meta charset=\"windows-1251\"/>\xcf", None, true).ends_with('П'));
    }

    #[test]
    fn without_labels() {
        assert_eq!(to_utf8(b"caf\xe9 \x80", None, false), "café €");
        assert_eq!(to_utf8("zwölf Bögen \u{fffd}".as_bytes(), None, false), "zwölf Bögen \u{fffd}");
        let broken = ["zwölf Bögen für".as_bytes(), b" \xff."].concat();
        assert_eq!(to_utf8(&broken, None, false), "zwölf Bögen für \u{fffd}.");
        // An announced UTF-16 that is none; labels that decode to nothing.
        assert_eq!(to_utf8(b"<a>\xe9", Some("text/xml; charset=utf-16"), false), "<a>é");
        assert_eq!(to_utf8(b"<a>\xe9", Some("text/xml; charset=iso-2022-kr"), false), "<a>é");
        assert_eq!(to_utf8(b"<a>\x1b$B$\"\x1b(B", Some("text/xml; charset=iso-2022-jp"), false), "<a>あ");
        assert_eq!(to_utf8(b"", None, true), "");
    }
}
