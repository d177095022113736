//! The address guard: which addresses a request may reach. Pure; the look-up asks it, so exactly the addresses that
//! were checked are dialled, and a name that resolves differently a moment later (DNS rebinding) gains nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What kind of place an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Anybody's server on the internet.
    Public,
    /// Ours or our neighbours', or no unicast address at all: loopback, private, link-local, shared, multicast,
    /// reserved.
    Private,
    /// A cloud's metadata service, which hands out credentials to whoever asks. Never reached, whoever asks.
    Metadata,
}

/// Metadata services: AWS, Google and most others; AWS container credentials (two); Alibaba.
const METADATA_V4: [Ipv4Addr; 4] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    Ipv4Addr::new(100, 100, 100, 200),
];

/// Metadata services over IPv6: AWS, AWS container credentials, Google, OpenStack.
const METADATA_V6: [Ipv6Addr; 4] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
];

/// The class of an address, looking through the forms that carry an IPv4 address inside an IPv6 one.
pub fn class(address: IpAddr) -> Class {
    match address {
        IpAddr::V4(v4) => class_v4(v4),
        IpAddr::V6(v6) => class_v6(v6),
    }
}

/// Whether an address of this class may be dialled. `may_be_private`: the user typed the address, or the chain has not
/// left the private network it began in. `listed`: `allow_addresses` names it.
pub fn allowed(class: Class, may_be_private: bool, listed: bool) -> bool {
    match class {
        Class::Public => true,
        Class::Private => may_be_private || listed,
        Class::Metadata => false,
    }
}

fn class_v4(v4: Ipv4Addr) -> Class {
    let [a, b, c, _] = v4.octets();
    if METADATA_V4.contains(&v4) {
        return Class::Metadata;
    }
    let private = match (a, b, c) {
        // "This" network, private, loopback.
        (0 | 10 | 127, ..) => true,
        // Shared by a provider's customers (CGNAT).
        (100, 64..=127, _) => true,
        (169, 254, _) => true,
        (172, 16..=31, _) => true,
        // Protocol assignments; documentation; the old 6to4 relays; private.
        (192, 0, 0 | 2) | (192, 88, 99) | (192, 168, _) => true,
        // Benchmarks; documentation.
        (198, 18 | 19, _) | (198, 51, 100) | (203, 0, 113) => true,
        // Multicast, reserved, broadcast.
        (224.., ..) => true,
        _ => false,
    };
    if private { Class::Private } else { Class::Public }
}

fn class_v6(v6: Ipv6Addr) -> Class {
    if METADATA_V6.contains(&v6) {
        return Class::Metadata;
    }
    let inner = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match v6.segments() {
        // Unspecified and loopback, before "compatible" would take them for 0.0.0.0 and 0.0.0.1.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => Class::Private,
        // Mapped, compatible, translated (SIIT).
        [0, 0, 0, 0, 0, 0xffff | 0, high, low] => class_v4(inner(high, low)),
        [0, 0, 0, 0, 0xffff, 0, high, low] => class_v4(inner(high, low)),
        // NAT64. A network with DNS64 reaches every public IPv4 server by it, so it is what it carries.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => class_v4(inner(high, low)),
        // NAT64 within one network: never public, and its embedding may be the same.
        [0x64, 0xff9b, 1, .., high, low] => not_public(class_v4(inner(high, low))),
        // 6to4.
        [0x2002, high, low, ..] => class_v4(inner(high, low)),
        // Teredo: the client's address stands there inverted. Its relays are gone; nothing public is served by it.
        [0x2001, 0, .., high, low] => not_public(class_v4(inner(!high, !low))),
        // Protocol assignments, ORCHID, documentation (two), discard, segment routing.
        [0x2001, 1..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Class::Private,
        [0x100, 0, 0, ..] | [0x5f00, ..] => Class::Private,
        // Of the rest, 2000::/3 alone is global unicast: this leaves out unique local, link-local, site-local,
        // multicast.
        [0x2000..=0x3fff, ..] => Class::Public,
        _ => Class::Private,
    }
}

fn not_public(class: Class) -> Class {
    if class == Class::Public { Class::Private } else { class }
}

/// The setting `allow_addresses`, parsed: private addresses that redirects, hubs and discovered links may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowList(Vec<Item>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    Host { name: String, port: u16 },
    Network { bits: u128, length: u32, port: Option<u16> },
}

impl AllowList {
    /// Items parted by commas or blanks, each `host:port`, an address, `address:port` or a network (`10.0.0.0/8`). The
    /// error names the first bad item and says what it should look like.
    pub fn parse(text: &str) -> Result<AllowList, String> {
        let items = text.split(|c: char| c == ',' || c == ';' || c.is_whitespace()).filter(|item| !item.is_empty());
        items.map(parse_item).collect::<Result<Vec<_>, _>>().map(AllowList)
    }

    /// Whether the host (as it stands in the URL) and port, or the address, are listed.
    pub fn lists(&self, host: &str, port: u16, address: IpAddr) -> bool {
        let bits = bits(address);
        self.0.iter().any(|item| match item {
            Item::Host { name, port: wanted } => *wanted == port && name.eq_ignore_ascii_case(host),
            Item::Network { bits: network, length, port: wanted } => {
                wanted.is_none_or(|wanted| wanted == port) && masked(bits, *length) == *network
            }
        })
    }
}

fn parse_item(item: &str) -> Result<Item, String> {
    let network = |address: IpAddr, port| Item::Network { bits: bits(address), length: 128, port };
    if let Ok(address) = item.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return Ok(network(address, None));
    }
    if let Ok(address) = item.parse::<SocketAddr>() {
        return Ok(network(address.ip(), Some(address.port())));
    }
    if let Some((address, length)) = item.split_once('/') {
        let bad = || format!("`{item}` is no network: write it as 192.168.0.0/16 or fd00::/8");
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let length: u32 = length.parse().map_err(|_| bad())?;
        let (width, above) = if address.is_ipv4() { (32, 96) } else { (128, 0) };
        if length > width {
            return Err(bad());
        }
        return Ok(Item::Network { bits: masked(bits(address), length + above), length: length + above, port: None });
    }
    let Some((name, port)) = item.rsplit_once(':') else {
        return Err(format!("`{item}` is neither an address, a network nor host:port: write a host as {item}:80"));
    };
    let port = port.parse::<u16>().ok().filter(|port| *port > 0);
    let port = port.ok_or_else(|| format!("`{item}` has no port from 1 to 65535 after the colon"))?;
    match url::Host::parse(name) {
        Ok(url::Host::Domain(name)) => Ok(Item::Host { name, port }),
        Ok(url::Host::Ipv4(address)) => Ok(network(address.into(), Some(port))),
        Ok(url::Host::Ipv6(address)) => Ok(network(address.into(), Some(port))),
        Err(_) => Err(format!("`{item}` is neither an address, a network nor host:port")),
    }
}

/// IPv4 as its mapped IPv6 form, so that both compare alike.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn masked(bits: u128, length: u32) -> u128 {
    // A shift by the full width overflows: length 0 keeps nothing.
    bits & u128::MAX.checked_shl(128 - length).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Class {
        class(text.parse().unwrap())
    }

    #[test]
    fn classes() {
        for public in [
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
        ] {
            assert_eq!(of(public), Class::Public, "{public}");
        }
        for private in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "::ffff:0:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::8.8.8.8",
            "2002:7f00:1::",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:db8::1",
            "3fff::1",
            "100::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "4000::1",
        ] {
            assert_eq!(of(private), Class::Private, "{private}");
        }
        for metadata in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::a9fe:a9fe",
            "2002:a9fe:a9fe::",
            "2001:0:1:2:3:4:5601:5601",
            "fd00:ec2::254",
        ] {
            assert_eq!(of(metadata), Class::Metadata, "{metadata}");
        }
    }

    #[test]
    fn policy() {
        assert!(allowed(Class::Public, false, false));
        assert!(!allowed(Class::Private, false, false));
        assert!(allowed(Class::Private, true, false));
        assert!(allowed(Class::Private, false, true));
        assert!(!allowed(Class::Metadata, true, true));
    }

    #[test]
    fn allow_list() {
        let list = AllowList::parse("NAS.local:8080, 10.1.0.0/16 [fd00::5] 192.168.1.9:81,fd12::/16").unwrap();
        let lists = |host: &str, port, ip: &str| list.lists(host, port, ip.parse().unwrap());
        assert!(lists("nas.local", 8080, "192.168.7.7"));
        assert!(!lists("nas.local", 80, "192.168.7.7"));
        assert!(lists("x", 1, "10.1.255.1"));
        assert!(lists("x", 1, "::ffff:10.1.255.1"));
        assert!(!lists("x", 1, "10.2.0.1"));
        assert!(lists("x", 1, "fd00::5"));
        assert!(lists("x", 81, "192.168.1.9"));
        assert!(!lists("x", 80, "192.168.1.9"));
        assert!(lists("x", 1, "fd12::9"));
        assert!(AllowList::parse(" ").unwrap().0.is_empty());
        assert!(AllowList::parse("0.0.0.0/0").unwrap().lists("x", 1, "1.2.3.4".parse().unwrap()));
        assert!(!AllowList::parse("0.0.0.0/0").unwrap().lists("x", 1, "fd00::1".parse().unwrap()));
        for bad in ["nas", "10.0.0.0/33", "nas:0", "nas:x", "10.0.0.0/", "a b:/", "nas:99999", "http://nas:80"] {
            assert!(AllowList::parse(bad).is_err(), "{bad}");
        }
    }
}
