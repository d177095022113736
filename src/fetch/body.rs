//! Bodies: read with a cap on the wire, decoded with a cap on the result.
//!
//! ureq is built without its decoders: they know exactly `gzip` and `br`, and fail on what servers really send (other
//! spellings, doubled, plain bodies with a label, padding after the end).

use super::Document;
use crate::rules::failure::{Failure, FailureKind};
use std::borrow::Cow;
use std::io::{self, Read};

/// Encodings upon each other that are undone; more is nobody's feed.
const MAX_LAYERS: usize = 2;

/// At most this is reserved on the server's word (Content-Length), in bytes; more comes with the bytes themselves.
const FIRST_RESERVE: u64 = 64 * 1024;

/// Reads all of a body, at most `limit` bytes; one byte more is `too_large`. `announced` is Content-Length; `came` is
/// raised by what was read, failure or not. Errors of the connection go through `broken`.
pub(super) fn read(
    reader: impl Read,
    announced: Option<u64>,
    limit: u64,
    came: &mut u64,
    broken: impl FnOnce(io::Error) -> Failure,
) -> Result<Vec<u8>, Failure> {
    if announced.is_some_and(|length| length > limit) {
        return Err(too_large(limit, "the body"));
    }
    let reserve = announced.map_or(0, |length| length.min(FIRST_RESERVE));
    let mut body = Vec::with_capacity(usize::try_from(reserve).unwrap_or_default());
    let read = reader.take(limit.saturating_add(1)).read_to_end(&mut body);
    *came += body.len() as u64;
    match read {
        Ok(_) if body.len() as u64 > limit => Err(too_large(limit, "the body")),
        Ok(_) => Ok(body),
        Err(error) => Err(broken(error)),
    }
}

impl Document {
    /// The body without its Content-Encoding, at most `limit` bytes (more: `too_large`, stopped there). Borrows when
    /// there is nothing to undo. A cut or damaged encoding is `protocol`; a label that is not true is forgiven.
    pub fn decode(&self, limit: u64) -> Result<Cow<'_, [u8]>, Failure> {
        decode(&self.body, self.content_encoding.as_deref().unwrap_or(""), limit)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Gzip,
    Deflate,
    Brotli,
}

fn decode<'a>(body: &'a [u8], labels: &str, limit: u64) -> Result<Cow<'a, [u8]>, Failure> {
    let codings = codings(labels)?;
    let mut layers = codings.len();
    let mut body = Cow::Borrowed(body);
    // The last one named was put on last.
    for coding in codings.into_iter().rev() {
        if let Some(decoded) = undo(&body, coding, limit)? {
            body = Cow::Owned(decoded);
        } else {
            layers -= 1;
        }
    }
    // A file of gzip served as it lies on the disk, or zipped once more than it says. No feed begins like this.
    while layers < MAX_LAYERS && is_gzip(&body) {
        body = Cow::Owned(gunzip(&body, limit)?);
        layers += 1;
    }
    if body.len() as u64 > limit {
        return Err(too_large(limit, "the decoded body"));
    }
    Ok(body)
}

/// What is to be undone, in the order it was applied. Tokens that are no encoding ("utf-8", "none") stand there often
/// enough.
fn codings(labels: &str) -> Result<Vec<Coding>, Failure> {
    let mut codings = Vec::new();
    for label in labels.split(',').map(str::trim) {
        match label.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => codings.push(Coding::Gzip),
            "deflate" => codings.push(Coding::Deflate),
            "br" => codings.push(Coding::Brotli),
            "zstd" | "compress" | "x-compress" | "dcb" | "dcz" => {
                let message = format!("the body is encoded as {label}, which was not asked for");
                return Err(Failure::new(FailureKind::Protocol, message));
            }
            _ => {}
        }
    }
    if codings.len() > MAX_LAYERS {
        return Err(Failure::new(FailureKind::Protocol, "the body is encoded more than twice over"));
    }
    Ok(codings)
}

/// `None`: it is not encoded in this way, whatever the label says.
fn undo(body: &[u8], coding: Coding, limit: u64) -> Result<Option<Vec<u8>>, Failure> {
    match coding {
        // Whatever the label: these three bytes begin nothing else.
        _ if is_gzip(body) => gunzip(body, limit).map(Some),
        // 0x78 (`x`) is what all zlib writers begin with; no document does.
        Coding::Gzip if body.first() == Some(&0x78) && is_zlib(body) => {
            drain(flate2::bufread::ZlibDecoder::new(body), limit, "deflate").map(Some)
        }
        Coding::Gzip => Ok(None),
        // "deflate" means zlib; many send the bare stream.
        Coding::Deflate => match body {
            _ if is_zlib(body) => drain(flate2::bufread::ZlibDecoder::new(body), limit, "deflate").map(Some),
            _ if is_text(body) => Ok(None),
            _ => drain(flate2::bufread::DeflateDecoder::new(body), limit, "deflate").map(Some),
        },
        // Brotli has no magic number: what fails and looks like a document is one.
        Coding::Brotli => match drain(brotli_decompressor::Decompressor::new(body, 4096), limit, "brotli") {
            Err(failure) if failure.kind == FailureKind::Protocol && is_text(body) => Ok(None),
            decoded => decoded.map(Some),
        },
    }
}

/// A zlib header is a number divisible by 31 that names the method 8.
fn is_zlib(body: &[u8]) -> bool {
    matches!(body, [first, second, ..]
        if first & 15 == 8 && (u32::from(*first) << 8 | u32::from(*second)) % 31 == 0)
}

fn is_gzip(body: &[u8]) -> bool {
    body.starts_with(&[0x1f, 0x8b, 8])
}

/// Begins as documents do, perhaps after a byte order mark.
fn is_text(body: &[u8]) -> bool {
    let start = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
    matches!(start, [] | [b'<' | b'{', ..] | [0xfe, 0xff, ..] | [0xff, 0xfe, ..])
}

/// All members of a gzip body. What follows a whole member and is none itself (padding, stray lines) is ignored.
fn gunzip(mut body: &[u8], limit: u64) -> Result<Vec<u8>, Failure> {
    let mut all = Vec::new();
    while is_gzip(body) {
        let mut member = flate2::bufread::GzDecoder::new(body);
        let room = limit.saturating_sub(all.len() as u64);
        all.append(&mut drain(&mut member, room, "gzip").map_err(|failure| match failure.kind {
            FailureKind::TooLarge => too_large(limit, "the decoded body"),
            _ => failure,
        })?);
        body = member.into_inner();
    }
    Ok(all)
}

fn drain(decoder: impl Read, limit: u64, name: &str) -> Result<Vec<u8>, Failure> {
    let mut decoded = Vec::new();
    match decoder.take(limit.saturating_add(1)).read_to_end(&mut decoded) {
        Ok(_) if decoded.len() as u64 > limit => Err(too_large(limit, "the decoded body")),
        Ok(_) => Ok(decoded),
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
            Err(Failure::local(FailureKind::Protocol, "not enough memory to decode the body"))
        }
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(Failure::new(FailureKind::Protocol, format!("the body's {name} encoding ends too early: it was cut")))
        }
        Err(error) => {
            Err(Failure::new(FailureKind::Protocol, format!("the body's {name} encoding is damaged: {error}")))
        }
    }
}

fn too_large(limit: u64, what: &str) -> Failure {
    Failure::new(FailureKind::TooLarge, format!("{what} is larger than {limit} bytes (setting max_body_bytes)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use std::io::Write;

    const TEXT: &[u8] = b"<rss><channel><title>one two three two one</title></channel></rss>";

    /// `TEXT` in brotli, stored without compression: window of 16 bits, one raw block of 66 bytes, an empty last block.
    fn brotli(text: &[u8]) -> Vec<u8> {
        let length = (text.len() - 1) as u32;
        let header: u32 = length << 4 | 1 << 20;
        let mut out = header.to_le_bytes()[..3].to_vec();
        out.extend_from_slice(text);
        out.push(3);
        out
    }

    pub(crate) fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn kind(body: &[u8], labels: &str, limit: u64) -> FailureKind {
        decode(body, labels, limit).unwrap_err().kind
    }

    #[test]
    fn what_servers_send() {
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), Compression::default());
        zlib.write_all(TEXT).unwrap();
        let zlib = zlib.finish().unwrap();
        let raw = &zlib[2..zlib.len() - 4];
        let (half, rest) = TEXT.split_at(20);
        for (labels, body) in [
            ("gzip", gzip(TEXT)),
            ("GZIP", gzip(TEXT)),
            ("x-gzip", gzip(TEXT)),
            ("gzip, gzip", gzip(&gzip(TEXT))),
            ("gzip, gzip", gzip(TEXT)),
            ("gzip", gzip(&gzip(TEXT))),
            ("gzip, identity", gzip(TEXT)),
            ("", gzip(TEXT)),
            ("utf-8", TEXT.to_vec()),
            ("gzip", TEXT.to_vec()),
            ("deflate", TEXT.to_vec()),
            ("br", TEXT.to_vec()),
            ("br", brotli(TEXT)),
            ("gzip, br", brotli(&gzip(TEXT))),
            ("deflate", zlib.clone()),
            ("deflate", raw.to_vec()),
            ("deflate,gzip", gzip(&zlib)),
            // Mislabelled.
            ("deflate", gzip(TEXT)),
            ("br", gzip(TEXT)),
            ("gzip", zlib.clone()),
            ("x-gzip , deflate", zlib.clone()),
            // With something behind the end.
            ("deflate", [&zlib[..], b"\0\0"].concat()),
            ("deflate", [raw, b"\r\n"].concat()),
            ("br", [&brotli(TEXT)[..], b"\n"].concat()),
            ("gzip", [gzip(TEXT), vec![0; 512]].concat()),
            ("gzip", [gzip(TEXT), b"\r\n<!-- cached -->".to_vec()].concat()),
            ("gzip", [gzip(half), gzip(rest)].concat()),
        ] {
            assert_eq!(decode(&body, labels, 1000).as_deref(), Ok(TEXT), "{labels}");
        }
        assert!(matches!(decode(TEXT, "identity", 1000), Ok(Cow::Borrowed(_))));
        assert_eq!(decode(b"", "gzip", 1000).as_deref(), Ok(&b""[..]));
    }

    #[test]
    fn cut_damaged_and_foreign() {
        let whole = gzip(TEXT);
        for length in [12, whole.len() / 2, whole.len() - 9, whole.len() - 1] {
            assert_eq!(kind(&whole[..length], "gzip", 1000), FailureKind::Protocol, "{length}");
        }
        let mut damaged = whole.clone();
        damaged[20] ^= 0x55;
        assert_eq!(kind(&damaged, "gzip", 1000), FailureKind::Protocol);
        let br = brotli(TEXT);
        assert_eq!(kind(&br[..br.len() - 8], "br", 1000), FailureKind::Protocol);
        assert_eq!(kind(TEXT, "zstd", 1000), FailureKind::Protocol);
        assert_eq!(kind(TEXT, "gzip, gzip, gzip", 1000), FailureKind::Protocol);
    }

    #[test]
    fn limits_are_exact_and_stop_bombs() {
        let exact = TEXT.len() as u64;
        for (labels, body) in [("gzip", gzip(TEXT)), ("", TEXT.to_vec()), ("br", brotli(TEXT))] {
            assert!(decode(&body, labels, exact).is_ok());
            assert_eq!(kind(&body, labels, exact - 1), FailureKind::TooLarge);
        }
        let bomb = gzip(&vec![b' '; 20_000_000]);
        assert!(bomb.len() < 30_000);
        assert_eq!(kind(&bomb, "gzip", 1_000_000), FailureKind::TooLarge);
        assert_eq!(kind(&gzip(&bomb), "gzip", 1_000_000), FailureKind::TooLarge);
    }

    #[test]
    fn reading_is_capped() {
        let never = |_| unreachable!();
        let mut came = 0;
        assert_eq!(read(TEXT, None, TEXT.len() as u64, &mut came, never).as_deref(), Ok(TEXT));
        assert_eq!(read(TEXT, None, 10, &mut came, never).unwrap_err().kind, FailureKind::TooLarge);
        assert_eq!(read(io::repeat(1), None, 1000, &mut came, never).unwrap_err().kind, FailureKind::TooLarge);
        assert_eq!(read(io::empty(), Some(1001), 1000, &mut came, never).unwrap_err().kind, FailureKind::TooLarge);
        assert_eq!(came, TEXT.len() as u64 + 11 + 1001);
    }
}
