//! Query strings as hubs write them.

/// The decoded parameters of a query string, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query(Vec<(Vec<u8>, Vec<u8>)>);

impl Query {
    /// Reads `application/x-www-form-urlencoded` text: `+` is a blank, `%XX` a byte, in names too; a broken escape stands
    /// for itself. Never fails.
    pub fn parse(raw: &[u8]) -> Query {
        let pairs = raw.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = match pair.iter().position(|&byte| byte == b'=') {
                Some(at) => (&pair[..at], &pair[at + 1..]),
                None => (pair, &[][..]),
            };
            (decode(name), decode(value))
        });
        Query(pairs.collect())
    }

    /// The last value of `name`: what a hub adds stands behind what the URL had before.
    pub fn last(&self, name: &str) -> Option<&[u8]> {
        self.values(name).last()
    }

    /// The only value of `name`. Several equal ones are one; two that differ are an attempt to be read in two ways, and
    /// give the error.
    pub fn only(&self, name: &str) -> Result<Option<&[u8]>, Ambiguous> {
        let mut values = self.values(name);
        let first = values.next();
        if values.all(|value| Some(value) == first) { Ok(first) } else { Err(Ambiguous) }
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(move |(known, _)| known == name.as_bytes()).map(|(_, value)| value.as_slice())
    }
}

/// A parameter stands there with two different values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ambiguous;

fn decode(raw: &[u8]) -> Vec<u8> {
    let value = |at: usize| raw.get(at).and_then(|&digit| char::from(digit).to_digit(16));
    let mut out = Vec::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        match (raw[at], value(at + 1), value(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high << 4 | low) as u8);
                at += 3;
            }
            (byte, ..) => {
                out.push(if byte == b'+' { b' ' } else { byte });
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding() {
        for (raw, name, value) in [
            ("hub.mode=subscribe", "hub.mode", Some(&b"subscribe"[..])),
            ("hub%2Emode=subscribe", "hub.mode", Some(b"subscribe")),
            ("a=1+2%20%2B", "a", Some(b"1 2 +")),
            ("a=%", "a", Some(b"%")),
            ("a=%4", "a", Some(b"%4")),
            ("a=%zz%41", "a", Some(b"%zzA")),
            ("a=%ff", "a", Some(b"\xff")),
            ("a=b=c", "a", Some(b"b=c")),
            ("&&a&", "a", Some(b"")),
            ("", "a", None),
            ("A=1", "a", None),
            ("a=1&a=2", "a", Some(b"2")),
        ] {
            assert_eq!(Query::parse(raw.as_bytes()).last(name), value, "{raw}");
        }
    }

    #[test]
    fn two_values_that_differ() {
        let query = Query::parse(b"a=1&a=1&b=1&b=2&c=1");
        assert_eq!(query.only("a"), Ok(Some(&b"1"[..])));
        assert_eq!(query.only("b"), Err(Ambiguous));
        assert_eq!(query.only("c"), Ok(Some(&b"1"[..])));
        assert_eq!(query.only("d"), Ok(None));
    }
}
