//! Where a redirect leads, and what goes with a URL: its clean form, its credentials.

use url::Url;

/// The URL as it is asked for and shown: without credentials and fragment.
pub(super) fn clean(url: &Url) -> Url {
    let mut clean = url.clone();
    clean.set_fragment(None);
    // These two fail only for URLs without a host, which have no credentials.
    let _ = clean.set_username("");
    let _ = clean.set_password(None);
    clean
}

/// The target of a redirect from `base`, clean; the error says for people what is wrong. `fields` are all Location
/// headers.
pub(super) fn target<'a>(base: &Url, fields: impl IntoIterator<Item = &'a [u8]>) -> Result<Url, String> {
    let mut fields = fields.into_iter().map(<[u8]>::trim_ascii);
    let Some(first) = fields.next() else { return Err("the redirect has no Location".to_string()) };
    if fields.any(|other| other != first) {
        return Err("the redirect has several different Locations".to_string());
    }
    if first.is_empty() {
        return Err("the redirect's Location is empty".to_string());
    }
    let text = escaped(first);
    let target = base.join(&text).map_err(|error| format!("the redirect's Location `{text}` is no URL: {error}"))?;
    if !matches!(target.scheme(), "http" | "https") {
        return Err(format!("the redirect leads to `{text}`, which is neither http nor https"));
    }
    Ok(clean(&target))
}

/// UTF-8 as it is, any other byte above ASCII as `%XX`: to guess its character set would change the address.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// The Authorization header for the user and password in `stored`, when `url` may see them: same origin, or the same
/// host moved from http to https on the default ports.
pub(super) fn authorization(stored: &Url, url: &Url) -> Option<String> {
    if stored.username().is_empty() && stored.password().is_none() {
        return None;
    }
    let origin = |url: &Url| (url.scheme() == "https", url.port_or_known_default());
    let secured = origin(stored) == (false, Some(80)) && origin(url) == (true, Some(443));
    if stored.host_str() != url.host_str() || (origin(stored) != origin(url) && !secured) {
        return None;
    }
    let mut pair = unescaped(stored.username());
    pair.push(b':');
    pair.extend(unescaped(stored.password().unwrap_or("")));
    Some(format!("Basic {}", base64(&pair)))
}

fn unescaped(text: &str) -> Vec<u8> {
    let hex = |byte: u8| char::from(byte).to_digit(16);
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        let mut byte = *first;
        if let (b'%', [high, low, after @ ..]) = (first, after)
            && let (Some(high), Some(low)) = (hex(*high), hex(*low))
        {
            // Two hexadecimal digits are at most 255.
            byte = (high << 4 | low) as u8;
            rest = after;
        }
        bytes.push(byte);
    }
    bytes
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at > chunk.len() { '=' } else { char::from(letter) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn to(base: &str, location: &[u8]) -> String {
        target(&url(base), [location]).unwrap().to_string()
    }

    #[test]
    fn locations() {
        let base = "http://a.test/x/y/f.xml?old=1#part";
        for (location, expected) in [
            (&b"new.xml"[..], "http://a.test/x/y/new.xml"),
            (b"?v=2", "http://a.test/x/y/f.xml?v=2"),
            (b"#only", "http://a.test/x/y/f.xml?old=1"),
            (b"//b.test/f", "http://b.test/f"),
            (b"../../../../up", "http://a.test/up"),
            (b" \t/f\t ", "http://a.test/f"),
            (b"/a\nb", "http://a.test/ab"),
            (b"/a b{\"", "http://a.test/a%20b%7B%22"),
            (b"/caf\xc3\xa9", "http://a.test/caf%C3%A9"),
            (b"/caf\xe9", "http://a.test/caf%E9"),
            (b"/caf\xc3\xa9/\xe9\xff", "http://a.test/caf%C3%A9/%E9%FF"),
            (b"https://u:p@B.test:443/f#x", "https://b.test/f"),
            (b"http://\xe4\xb8\xad.test/", "http://xn--fiq.test/"),
        ] {
            assert_eq!(to(base, location), expected, "{}", String::from_utf8_lossy(location));
        }
        let same: [&[u8]; 2] = [b"/g", b" /g"];
        assert_eq!(target(&url(base), same).unwrap().path(), "/g");
    }

    #[test]
    fn bad_locations() {
        let base = url("http://a.test/");
        assert!(target(&base, []).is_err());
        assert!(target(&base, [&b"/g"[..], b"/h"]).is_err());
        for bad in
            [&b""[..], b"  ", b"file:///etc/passwd", b"javascript:x", b"data:,x", b"feed:x", b"http://", b"ftp://a/"]
        {
            assert!(target(&base, [bad]).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn credentials() {
        let header = |stored: &str, to: &str| authorization(&url(stored), &url(to));
        let expected = Some("Basic dXNlcjpwYTpzcw==".to_string());
        assert_eq!(header("http://user:pa%3Ass@a.test/f", "http://a.test/g"), expected);
        assert_eq!(header("http://user:pa%3Ass@a.test/f", "https://a.test/g"), expected);
        assert_eq!(header("http://user:pa%3Ass@a.test:81/f", "https://a.test/g"), None);
        assert_eq!(header("https://user:pa%3Ass@a.test/f", "http://a.test/g"), None);
        assert_eq!(header("http://user:pa%3Ass@a.test/f", "http://b.test/g"), None);
        assert_eq!(header("http://a.test/f", "http://a.test/f"), None);
        assert_eq!(header("http://u@a.test/f", "http://a.test/f"), Some("Basic dTo=".to_string()));
        assert_eq!(unescaped("a%2"), b"a%2");
        assert_eq!(unescaped("%zz%+f%C3%A9"), b"%zz%+f\xc3\xa9");
        assert_eq!(base64(b"abc"), "YWJj");
        assert_eq!(base64(b""), "");
    }
}
