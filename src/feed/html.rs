//! Bounds for HTML before html5ever sees it: it is quadratic in nesting (servo/html5ever#788), in the number of
//! attributes of a tag, and in formatting elements that stay open.

use super::text;
use memchr::{memchr, memmem};

/// Pages are read up to here, in bytes; feeds are announced in the head.
pub(super) const MAX_BYTES: usize = 1024 * 1024;
/// Open elements; the page is cut where it nests deeper. Browsers stop at 512, too.
const MAX_OPEN: usize = 512;
/// Attributes of one tag, roughly.
const MAX_ATTRIBUTES: usize = 512;
/// Sum over all tags of the formatting elements open at each: every block may open all of them again.
const MAX_REOPENED: usize = 1_000_000;

/// No end tag, no children.
const VOID: [&str; 17] = [
    "area", "base", "basefont", "bgsound", "br", "col", "embed", "frame", "hr", "img", "input", "keygen", "link",
    "meta", "param", "source", "track",
];
/// The end tag may be left out; they nest only through others, which are counted.
const OPTIONAL: [&str; 17] = [
    "p", "li", "dt", "dd", "option", "optgroup", "tr", "td", "th", "thead", "tbody", "tfoot", "colgroup", "rb", "rt",
    "rp", "wbr",
];
/// Their content is text.
const RAW: [&str; 9] = ["script", "style", "title", "textarea", "noscript", "iframe", "xmp", "noembed", "noframes"];
const FORMATTING: [&str; 14] =
    ["a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"];
/// An end tag does not reach out of these.
const SCOPE: [&str; 9] = ["table", "template", "marquee", "object", "applet", "svg", "math", "select", "button"];

fn is(list: &[&str], name: &str) -> bool {
    list.iter().any(|n| n.eq_ignore_ascii_case(name))
}

/// The part of a page that is safe to parse: a prefix that ends before a tag. Linear in its length.
pub(super) fn bounded(html: &str) -> &str {
    let html = &html[..text::floor(html, MAX_BYTES)];
    let (mut open, mut formatting, mut reopened) = (Vec::<&str>::new(), 0usize, 0usize);
    let mut at = 0;
    while let Some(start) = memchr(b'<', &html.as_bytes()[at..]).map(|i| at + i) {
        let rest = &html[start + 1..];
        at = start + 1;
        match rest.as_bytes().first() {
            Some(b'!' | b'?') => {
                // A comment that ends early for one reader and late for another is no danger: what is skipped here is
                // not longer than what the parser skips.
                let end = if rest.starts_with("!--") { comment_end(rest) } else { rest.find('>').map(|i| i + 1) };
                at += end.unwrap_or(rest.len());
            }
            Some(b'/') => {
                let name = tag_name(&rest[1..]);
                at += memchr(b'>', rest.as_bytes()).map_or(rest.len(), |i| i + 1);
                if is(&FORMATTING, name) {
                    formatting = formatting.saturating_sub(1);
                }
                if !is(&OPTIONAL, name) {
                    close(&mut open, name);
                }
            }
            Some(b) if b.is_ascii_alphabetic() => {
                let Some((len, attributes)) = tag(rest) else { return &html[..start] };
                let name = tag_name(rest);
                at += len;
                reopened += formatting;
                if attributes > MAX_ATTRIBUTES || reopened > MAX_REOPENED {
                    return &html[..start];
                }
                if is(&RAW, name) {
                    at += raw_end(&html[at..], name);
                } else if !is(&VOID, name) && !is(&OPTIONAL, name) {
                    if open.len() >= MAX_OPEN {
                        return &html[..start];
                    }
                    formatting += usize::from(is(&FORMATTING, name));
                    // Empty-element slashes count only in SVG; taking them as open errs on the safe side, but there are
                    // many of them there.
                    let inside = open.iter().rev().take(16).any(|n| is(&["svg", "math"], n));
                    if !(inside && rest[..len].ends_with("/>")) {
                        open.push(name);
                    }
                }
            }
            _ => {}
        }
    }
    html
}

/// Past `-->` or `--!>`; `<!-->` and `<!--->` are whole comments.
fn comment_end(rest: &str) -> Option<usize> {
    let bytes = rest.as_bytes();
    match &bytes[3..] {
        [b'>', ..] => return Some(4),
        [b'-', b'>', ..] => return Some(5),
        _ => {}
    }
    memmem::find_iter(&bytes[3..], b"--").find_map(|i| match &bytes[3 + i + 2..] {
        [b'>', ..] => Some(3 + i + 3),
        [b'!', b'>', ..] => Some(3 + i + 4),
        _ => None,
    })
}

fn tag_name(text: &str) -> &str {
    let end = text.bytes().position(|b| b.is_ascii_whitespace() || matches!(b, b'/' | b'>')).unwrap_or(text.len());
    &text[..end]
}

/// (length past `>`, attributes at most) of a start tag. Quotes hide the `>` only as values.
fn tag(rest: &str) -> Option<(usize, usize)> {
    let (mut quote, mut value, mut attributes) = (0u8, false, 0);
    for (i, b) in rest.bytes().enumerate() {
        match b {
            _ if quote != 0 => quote = if b == quote { 0 } else { quote },
            b'>' => return Some((i + 1, attributes)),
            b'"' | b'\'' if value => (quote, value) = (b, false),
            b'=' => {
                value = true;
                attributes += 1;
            }
            b if b.is_ascii_whitespace() || b == b'/' => attributes += 1,
            _ => value = false,
        }
    }
    None
}

/// Pops up to the element that an end tag closes, if it is in reach.
fn close(open: &mut Vec<&str>, name: &str) {
    for i in (0..open.len()).rev() {
        if open[i].eq_ignore_ascii_case(name) {
            open.truncate(i);
            return;
        }
        if is(&SCOPE, open[i]) {
            return;
        }
    }
}

/// Up to the end tag of a raw text element.
fn raw_end(text: &str, name: &str) -> usize {
    let bytes = text.as_bytes();
    memmem::find_iter(bytes, b"</")
        .find(|i| bytes.get(i + 2..i + 2 + name.len()).is_some_and(|n| n.eq_ignore_ascii_case(name.as_bytes())))
        .unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_pages_stay_whole() {
        let sloppy = format!("<html><body>{}<ul>{}</ul>", "<p>a <br> <img src=x> b".repeat(2000), "<li>x".repeat(2000));
        assert_eq!(bounded(&sloppy), sloppy);
        let script = "<script>if (a < b) document.write('<div><div>'.repeat(9))</script><p>".repeat(600);
        assert_eq!(bounded(&script), script);
        let svg = format!("<svg>{}</svg>", "<path d='x'/>".repeat(1000));
        assert_eq!(bounded(&svg), svg);
    }

    #[test]
    fn nesting_is_cut() {
        for unit in
            ["<div>", "<b></div>", "<div><table><tr><td></div>", "<span/>", "<!----><i>", "<a b='>'>", "<b><p></i>"]
        {
            let cut = bounded(&unit.repeat(100_000)).len();
            assert!(cut <= 1_000_000, "{unit} {cut}");
            assert!(bounded(&unit.repeat(10_000)).matches('<').count() <= 4 * 513, "{unit}");
        }
        assert_eq!(bounded(&format!("<p><x{}>", " a".repeat(10_000))), "<p>");
        let fonts: String = (0..500).map(|i| format!("<font color={i}>")).collect();
        assert!(bounded(&format!("{fonts}{}", "</div><p>x".repeat(20_000))).len() < 50_000);
    }
}
