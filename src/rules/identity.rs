//! Which entry is which: inside a feed, never across feeds (sister feeds share guids).
//!
//! An entry is known by its own id; else by its link; else by its first enclosure; else by its date; else by a hash of its
//! words. A title is part of an identity only where there is nothing else. Called by `store` and, for the proof of a move, by
//! `worker`.

use crate::feed::Entry;
use siphasher::sip::SipHasher13;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};

/// An entry with its identity and the hash of all that is stored of it.
#[derive(Debug)]
pub struct Keyed<'a> {
    pub guid: String,
    pub fingerprint: i64,
    pub entry: &'a Entry,
}

/// A stored entry, as far as it identifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub guid: String,
    pub url: Option<String>,
    pub title: Option<String>,
    pub published_at: Option<i64>,
}

/// The entries of one document with their identities, in document order. Where one id stands on several entries with
/// different links, the link is added to it, not the position, which changes from poll to poll; of entries that are then still
/// alike, the first one counts (feeds list the newest first).
pub fn keyed(entries: &[Entry]) -> Vec<Keyed<'_>> {
    let mut links: HashMap<&str, HashSet<Option<&str>>> = HashMap::with_capacity(entries.len());
    for entry in entries {
        if let Some(guid) = own_id(entry) {
            links.entry(guid).or_default().insert(entry.url.as_deref());
        }
    }
    let mut seen = HashSet::with_capacity(entries.len());
    let mut keyed = Vec::with_capacity(entries.len());
    for entry in entries {
        let guid = match (own_id(entry), entry.url.as_deref()) {
            (Some(guid), Some(url)) if links.get(guid).is_some_and(|links| links.len() > 1) => format!("{guid} {url}"),
            (Some(guid), _) => guid.to_string(),
            (None, Some(url)) => url.to_string(),
            (None, None) => invented(entry),
        };
        if seen.insert(guid.clone()) {
            keyed.push(Keyed { guid, fingerprint: fingerprint(entry), entry });
        }
    }
    keyed
}

fn own_id(entry: &Entry) -> Option<&str> {
    entry.guid.as_deref().map(str::trim).filter(|guid| !guid.is_empty())
}

/// For an entry without id and link.
fn invented(entry: &Entry) -> String {
    let mut hasher = SipHasher13::new();
    match (entry.enclosures.first(), entry.published_at) {
        (Some(enclosure), _) => enclosure.url.hash(&mut hasher),
        (None, Some(at)) => at.hash(&mut hasher),
        (None, None) => (&entry.title, &entry.summary, &entry.content).hash(&mut hasher),
    }
    format!("feedmill:{:016x}", hasher.finish())
}

/// A hash of everything that is stored of an entry; the same in every version of this program.
pub fn fingerprint(entry: &Entry) -> i64 {
    let mut hasher = SipHasher13::new();
    let mut text = |text: Option<&str>| {
        // Lengths delimit the parts; `Hash` for str is not promised to stay as it is.
        hasher.write(&text.map_or(u64::MAX, |text| text.len() as u64).to_le_bytes());
        hasher.write(text.unwrap_or("").as_bytes());
    };
    text(entry.url.as_deref());
    text(entry.title.as_deref());
    text(entry.author.as_deref());
    text(entry.summary.as_deref());
    text(entry.content.as_deref());
    for enclosure in &entry.enclosures {
        text(Some(&enclosure.url));
        text(enclosure.media_type.as_deref());
    }
    for number in [entry.published_at, entry.updated_at].into_iter().chain(entry.enclosures.iter().map(|e| e.length)) {
        hasher.write(&number.unwrap_or(i64::MIN).to_le_bytes());
    }
    hasher.finish() as i64
}

/// A stable 64-bit hash of bytes: document bodies.
pub fn hash_bytes(bytes: &[u8]) -> i64 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish() as i64
}

/// The same guid with http and https exchanged; `None` for one that is no such URL.
pub fn other_scheme(guid: &str) -> Option<String> {
    match (guid.strip_prefix("http://"), guid.strip_prefix("https://")) {
        (Some(rest), _) => Some(format!("https://{rest}")),
        (_, Some(rest)) => Some(format!("http://{rest}")),
        _ => None,
    }
}

/// Whether a document shares an entry with what was stored: the same guid, or the same link (scheme apart), or the same title
/// and date.
pub fn shares_entry(document: &[Entry], known: &[Known]) -> bool {
    if known.is_empty() {
        return false;
    }
    let guids: HashSet<&str> = known.iter().map(|k| schemeless(&k.guid)).collect();
    let urls: HashSet<&str> = known.iter().filter_map(|k| k.url.as_deref()).map(schemeless).collect();
    let titles: HashSet<(&str, i64)> =
        known.iter().filter_map(|k| Some((k.title.as_deref().filter(|t| !t.is_empty())?, k.published_at?))).collect();
    keyed(document).iter().any(|Keyed { guid, entry, .. }| {
        guids.contains(schemeless(guid))
            || entry.url.as_deref().is_some_and(|url| urls.contains(schemeless(url)))
            || entry.title.as_deref().zip(entry.published_at).is_some_and(|pair| titles.contains(&pair))
    })
}

fn schemeless(url: &str) -> &str {
    url.strip_prefix("https:").or_else(|| url.strip_prefix("http:")).unwrap_or(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(guid: Option<&str>, url: Option<&str>, title: &str) -> Entry {
        Entry { guid: guid.map(Into::into), url: url.map(Into::into), title: Some(title.into()), ..Entry::default() }
    }

    fn guids(entries: &[Entry]) -> Vec<String> {
        keyed(entries).into_iter().map(|k| k.guid).collect()
    }

    #[test]
    fn a_title_is_no_identity_where_there_is_anything_else() {
        for (guid, url) in [(Some("g"), None), (None, Some("http://a.test/1")), (Some("g"), Some("http://a.test/1"))] {
            assert_eq!(guids(&[entry(guid, url, "before")]), guids(&[entry(guid, url, "after")]));
        }
        let dated = |title| Entry { published_at: Some(5), ..entry(None, None, title) };
        assert_eq!(guids(&[dated("before")]), guids(&[dated("after")]));
        assert_ne!(guids(&[entry(None, None, "before")]), guids(&[entry(None, None, "after")]));
    }

    #[test]
    fn an_id_on_several_entries_is_told_apart_by_their_links_in_any_order() {
        let one = entry(Some("same"), Some("http://a.test/1"), "1");
        let two = entry(Some("same"), Some("http://a.test/2"), "2");
        let mut forth = guids(&[one.clone(), two.clone()]);
        let mut back = guids(&[two, one.clone()]);
        forth.sort();
        back.sort();
        assert_eq!(forth, back);
        assert_eq!(forth.len(), 2);
        assert_eq!(guids(&[one.clone(), one]), ["same"], "the same entry twice is one");
    }

    #[test]
    fn an_entry_is_shared_by_guid_or_link_or_title_with_date() {
        let known = [Known {
            guid: "http://a.test/1".into(),
            url: Some("http://a.test/1.html".into()),
            title: Some("one".into()),
            published_at: Some(7),
        }];
        assert!(shares_entry(&[entry(Some("https://a.test/1"), None, "x")], &known));
        assert!(shares_entry(&[entry(Some("other"), Some("https://a.test/1.html"), "x")], &known));
        assert!(shares_entry(&[Entry { published_at: Some(7), ..entry(Some("other"), None, "one") }], &known));
        assert!(!shares_entry(&[entry(Some("other"), None, "one")], &known), "a title alone says nothing");
        assert!(!shares_entry(&[], &known));
        assert!(!shares_entry(&[entry(Some("http://a.test/1"), None, "x")], &[]));
    }

    #[test]
    fn a_fingerprint_changes_with_every_part() {
        let base = entry(Some("g"), Some("u"), "t");
        let variants = [
            Entry { url: None, ..base.clone() },
            Entry { title: None, ..base.clone() },
            Entry { author: Some("a".into()), ..base.clone() },
            Entry { summary: Some("a".into()), ..base.clone() },
            Entry { content: Some("a".into()), ..base.clone() },
            Entry { published_at: Some(1), ..base.clone() },
            Entry { updated_at: Some(1), ..base.clone() },
            Entry { enclosures: vec![crate::feed::Enclosure::default()], ..base.clone() },
        ];
        let mut prints: Vec<i64> = variants.iter().chain([&base]).map(fingerprint).collect();
        prints.sort_unstable();
        prints.dedup();
        assert_eq!(prints.len(), variants.len() + 1);
        // Stored in databases: it must be the same in every version.
        assert_eq!(fingerprint(&Entry::default()), fingerprint(&Entry::default()));
    }
}
