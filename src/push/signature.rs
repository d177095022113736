//! `X-Hub-Signature` (WebSub 7.1): who signed a delivery.

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Sha256, Sha384, Sha512};

/// The position in `secrets` of the one that `header` (`method=hexdigits`) proves for `body`, the bytes as received.
/// `None`: another method than sha1, sha256, sha384 and sha512 (8.3 forbids weaker ones), not hexadecimal, not the length
/// of that method's digest, or the digest of none of them. Names and digits are taken in either case; digests are compared
/// in constant time, their length first.
pub fn proven_by(header: &str, body: &[u8], secrets: &[&str]) -> Option<usize> {
    let (method, digits) = header.trim().split_once('=')?;
    let methods: [(&str, usize, Verify); 4] = [
        ("sha1", 20, verify::<Hmac<Sha1>>),
        ("sha256", 32, verify::<Hmac<Sha256>>),
        ("sha384", 48, verify::<Hmac<Sha384>>),
        ("sha512", 64, verify::<Hmac<Sha512>>),
    ];
    let (_, length, verify) = methods.into_iter().find(|(name, ..)| method.eq_ignore_ascii_case(name))?;
    let digest = from_hex(digits, length)?;
    secrets.iter().position(|secret| !secret.is_empty() && verify(secret, body, &digest))
}

/// Whether a secret, a body and a digest belong together.
type Verify = fn(&str, &[u8], &[u8]) -> bool;

/// The header's value for `body` under `secret`, as a hub makes it with sha256.
#[cfg(feature = "worker")]
pub fn sha256(secret: &str, body: &[u8]) -> String {
    // HMAC takes keys of any length, so the error case is never met.
    let digest = <Hmac<Sha256> as KeyInit>::new_from_slice(secret.as_bytes())
        .map(|mac| mac.chain_update(body).finalize().into_bytes())
        .unwrap_or_default();
    digest.iter().fold("sha256=".to_string(), |text, byte| format!("{text}{byte:02x}"))
}

fn verify<M: Mac + KeyInit>(secret: &str, body: &[u8], digest: &[u8]) -> bool {
    // HMAC takes keys of any length, so the error case is never met.
    <M as KeyInit>::new_from_slice(secret.as_bytes())
        .is_ok_and(|mac| mac.chain_update(body).verify_slice(digest).is_ok())
}

/// Exactly `length` bytes from twice as many digits.
fn from_hex(digits: &str, length: usize) -> Option<Vec<u8>> {
    if digits.len() != 2 * length {
        return None;
    }
    let value = |digit: u8| char::from(digit).to_digit(16);
    let byte = |pair: &[u8]| Some((value(pair[0])? << 4 | value(pair[1])?) as u8);
    digits.as_bytes().chunks_exact(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // From RFC 2202 case 2 and RFC 4231 case 2: key "Jefe".
    const TEXT: &[u8] = b"what do ya want for nothing?";
    const SHA1: &str = "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79";
    const SHA256: &str = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
    const SHA384: &str =
        "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649";
    const SHA512: &str = "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737";

    #[test]
    fn the_four_methods() {
        for (method, digest) in [("sha1", SHA1), ("sha256", SHA256), ("sha384", SHA384), ("sha512", SHA512)] {
            let header = format!("{method}={digest}");
            assert_eq!(proven_by(&header, TEXT, &["Jefe"]), Some(0));
            assert_eq!(proven_by(&header.to_uppercase(), TEXT, &["other", "Jefe"]), Some(1));
            assert_eq!(proven_by(&format!(" {header} "), TEXT, &["Jefe"]), Some(0));
            assert_eq!(proven_by(&header, TEXT, &["jefe", ""]), None);
            assert_eq!(proven_by(&header, b"what do ya want", &["Jefe"]), None);
            assert_eq!(proven_by(&format!("{header}00"), TEXT, &["Jefe"]), None);
            assert_eq!(proven_by(&header[..header.len() - 1], TEXT, &["Jefe"]), None);
        }
    }

    #[cfg(feature = "worker")]
    #[test]
    fn a_signature_of_ours() {
        assert_eq!(sha256("Jefe", TEXT), format!("sha256={SHA256}"));
    }

    #[test]
    fn anything_else_proves_nothing() {
        for header in [
            "",
            "=",
            "sha256",
            "sha256=",
            "md5=750c783e6ab0b503eaa86e310a5db738",
            &format!("sha1={SHA256}"),
            &format!("sha256={}", "zz".repeat(32)),
            &format!("sha256={}", "ü".repeat(32)),
            &format!("sha256 ={SHA256}"),
            &format!("sha256=sha256={SHA256}"),
        ] {
            assert_eq!(proven_by(header, TEXT, &["Jefe"]), None, "{header}");
        }
        assert_eq!(proven_by(&format!("sha256={SHA256}"), TEXT, &[]), None);
    }
}
