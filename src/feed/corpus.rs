//! Tests over `fixtures/feeds/`: each document beside its expected result (`NAME.expected.json`), then thousands of
//! mutants of all of them, which must end in a value.

use super::parse::{ParseError, ParseLimits, parse};
use super::{Feed, discover, sniff};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use url::Url;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/feeds");

fn base() -> Url {
    Url::parse("https://base.example/dir/feed").unwrap()
}

fn documents() -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = std::fs::read_dir(FOLDER)
        .unwrap()
        .filter_map(|file| {
            let path = file.unwrap().path();
            let name = path.file_name()?.to_str()?.to_owned();
            (!name.ends_with(".expected.json")).then(|| (name, std::fs::read_to_string(&path).unwrap()))
        })
        .collect();
    found.sort();
    found
}

/// The result in short: what is absent or empty is left out.
fn summary(result: &Result<Feed, ParseError>) -> Value {
    let feed = match result {
        Ok(feed) => feed,
        Err(error) => return json!({ "error": error.to_string() }),
    };
    let first = feed.entries.first().map(|e| {
        pruned(json!({
            "guid": e.guid, "url": e.url, "title": e.title, "author": e.author, "summary": e.summary,
            "content": e.content, "published_at": e.published_at, "updated_at": e.updated_at,
            "enclosures": e.enclosures.iter().map(|x| json!([x.url, x.media_type, x.length])).collect::<Vec<_>>(),
        }))
    });
    pruned(json!({
        "title": feed.title, "site_url": feed.site_url, "entries": feed.entries.len(), "first": first,
        "hubs": feed.links.hubs, "self": feed.links.self_url, "feedburner_uri": feed.feedburner_uri,
        "ttl_seconds": feed.rhythm.ttl_seconds,
        "skip_hours": feed.rhythm.skip_hours, "skip_days": feed.rhythm.skip_days,
        "guids": feed.entries.iter().map(|e| e.guid.as_deref()).collect::<Vec<_>>(),
        "urls": feed.entries.iter().map(|e| e.url.as_deref()).collect::<Vec<_>>(),
        "titles": feed.entries.iter().map(|e| e.title.as_deref()).collect::<Vec<_>>(),
        "published": feed.entries.iter().map(|e| e.published_at).collect::<Vec<_>>(),
    }))
}

fn pruned(value: Value) -> Value {
    let Value::Object(map) = value else { return value };
    map.into_iter().filter(|(_, v)| !v.is_null() && v.as_array().is_none_or(|a| !a.is_empty())).collect()
}

/// With `FEEDMILL_WRITE_EXPECTED` set what was found is written down where it differs: for new documents, to be read
/// before it is committed.
#[test]
fn documents_give_what_stands_beside_them() {
    let mut failed = Vec::new();
    for (name, text) in documents() {
        let expected = std::fs::read_to_string(format!("{FOLDER}/{name}.expected.json")).unwrap_or_default();
        let expected: Value = serde_json::from_str(&expected).unwrap_or_default();
        let found = summary(&parse(&text, &base(), &ParseLimits::default()));
        if found != expected {
            if std::env::var_os("FEEDMILL_WRITE_EXPECTED").is_some() {
                let text = serde_json::to_string_pretty(&found).unwrap().replace("  ", " ") + "\n";
                std::fs::write(format!("{FOLDER}/{name}.expected.json"), text).unwrap();
                continue;
            }
            failed.push(format!("{name}: {}", serde_json::to_string_pretty(&found).unwrap()));
        }
    }
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}

/// Each ends in an error, soon, and on the 2 MiB stack that threads have.
#[test]
fn hostile_documents_end_in_an_error() {
    let nested = |element: &str, n: usize| {
        let head = "<rss version='2.0' xmlns:media='http://search.yahoo.com/mrss/' \
            xmlns:itunes='http://www.itunes.com/dtds/podcast-1.0.dtd'><channel><item>";
        format!("{head}{}", format!("<{element}>").repeat(n))
    };
    let hidden = format!("<!DOCTYPE a [ <!-- ' --> <!ENTITY b '>'> {}", nested("media:group", 20_000));
    let cases = [
        ("media:group", nested("media:group", 20_000)),
        ("media:content", nested("media:content url='x'", 20_000)),
        ("itunes:category", nested("itunes:category", 20_000)),
        ("behind a doctype", hidden),
        ("items", format!("<rss version='2.0'><channel>{}</channel></rss>", "<item/>".repeat(3_000_000))),
        ("attributes", format!("<rss version='2.0'{}><channel><item/></channel></rss>", " a='b'".repeat(100_000))),
        ("elements", format!("<rss version='2.0'><channel>{}</channel></rss>", "<link>x</link>".repeat(600_000))),
        ("brackets", format!("<rss version='2.0'>{}", "<".repeat(1_000_000))),
        ("json", format!("{{\"version\":\"https://jsonfeed.org/version/1\",\"items\":{}", "[".repeat(1_000_000))),
    ];
    let run = move || {
        for (name, text) in cases {
            let start = Instant::now();
            let result = parse(&text, &base(), &ParseLimits::default());
            assert!(result.is_err(), "{name}");
            assert!(start.elapsed() < Duration::from_secs(5), "{name}: {:?}", start.elapsed());
        }
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
}

#[test]
fn depth_up_to_the_limit_does_not_overflow() {
    let open = "<media:group>".repeat(96);
    let text = format!(
        "<rss version='2.0' xmlns:media='http://search.yahoo.com/mrss/'><channel><item>{open}\
         <media:title>t</media:title>\
         <media:content url='http://x.example/'/>{}</item></channel></rss>",
        "</media:group>".repeat(96)
    );
    let run = move || parse(&text, &base(), &ParseLimits::default()).unwrap().entries.len();
    assert_eq!(std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap(), 1);
}

/// Documents that take every step of the repair, each many times over: twice the text may take twice the time, no more.
#[test]
fn repairs_are_linear() {
    let rss = |inside: String| format!("<rss version='9'><channel><title>t</title>{inside}");
    let units = [
        ("channels", "</channel><channel><item><title>a</title></item>"),
        ("strays", "<x><item><guid isPermaLink='true'>a</guid></item></x>"),
        ("markup", "<item><title>a <b>b</b> &nbsp; & c</title></item>"),
        ("dates", "<item><pubDate>soon</pubDate><pubDate>2024-01-10</pubDate></item>"),
        ("prefixes", "<item><media:title>a</media:title><itunes:x/></item>"),
        ("mail", "<item><author>é@b.c</author><media:duration>99999999999999999999</media:duration></item>"),
        ("cdata", "<item><description><b/><![CDATA[a]]></description></item>"),
    ];
    for (name, unit) in units {
        let run = |times: usize| {
            let text = rss(unit.repeat(times));
            let start = Instant::now();
            let _ = parse(&text, &base(), &ParseLimits::default());
            start.elapsed()
        };
        // A busy machine may disturb one of them.
        let linear = (0..3).any(|_| run(4_000) < run(1_000) * 12 + Duration::from_millis(500));
        assert!(linear, "{name}");
    }
    let start = Instant::now();
    assert!(super::text::title(&"<script><a".repeat(200_000), true).is_some());
    assert!(super::text::title(&"<script>&amp<b".repeat(200_000), false).is_some());
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

struct XorShift(u64);

impl XorShift {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}

/// Replaces, deletes, doubles and splices; the outcome is made text again as the decoder would.
fn mutate(random: &mut XorShift, corpus: &[(String, String)]) -> String {
    const PIECES: [&str; 22] = [
        "<",
        ">",
        "&",
        "]]>",
        "<![CDATA[",
        "<!--",
        "-->",
        "<?",
        "?>",
        "<item>",
        "</item>",
        "<entry>",
        "\"",
        "'",
        "\0",
        "é",
        "（",
        "xmlns='",
        "&#x",
        "<!DOCTYPE x [",
        "<media:group>",
        "9999999999999999999",
    ];
    let pick = random.below(corpus.len());
    let mut bytes = corpus[pick].1.clone().into_bytes();
    for _ in 0..=random.below(3) {
        let (at, len) = (random.below(bytes.len()), random.below(40));
        let end = (at + len).min(bytes.len());
        match random.below(6) {
            0 => drop(bytes.drain(at..end)),
            1 => bytes[at] = random.below(256) as u8,
            2 => bytes.truncate(at.max(1)),
            3 => {
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            4 => {
                let other = corpus[random.below(corpus.len())].1.as_bytes();
                let from = random.below(other.len());
                bytes.splice(at..end, other[from..(from + len).min(other.len())].iter().copied());
            }
            _ => drop(bytes.splice(at..at, PIECES[random.below(PIECES.len())].bytes())),
        }
        if bytes.is_empty() {
            bytes.push(b'<');
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn mutants_end_in_a_value() {
    let corpus = documents();
    let mut random = XorShift(0x9e37_79b9_7f4a_7c15);
    let (start, mut runs, mut feeds, mut panicked) = (Instant::now(), 0, 0, 0);
    // The same mutants each time; a slow machine stops earlier.
    while runs < 5000 && start.elapsed() < Duration::from_secs(10) {
        let text = mutate(&mut random, &corpus);
        let one = Instant::now();
        match parse(&text, &base(), &ParseLimits::default()) {
            Ok(feed) => {
                feeds += 1;
                for entry in &feed.entries {
                    let texts = [&entry.guid, &entry.title, &entry.url, &entry.author, &entry.summary, &entry.content];
                    assert!(!texts.into_iter().flatten().any(|t| t.chars().any(super::text::is_control)), "{text}");
                }
            }
            Err(ParseError::Panicked) => panicked += 1,
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        }
        sniff::sniff(&text);
        if runs % 16 == 0 {
            discover::page_feeds(&text, &base(), std::slice::from_ref(&text));
        }
        assert!(one.elapsed() < Duration::from_secs(3), "{:?} for {text}", one.elapsed());
        runs += 1;
    }
    assert!(feeds > runs / 4, "{feeds} of {runs} ({panicked} panics)");
}
