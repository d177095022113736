//! What feed-rs reads without complaint and yet loses, seen while [`super::scan`] walks over the tags: the signs that
//! send a document through [`super::repair`] although it parses.

use super::dates;
use super::scan::Root;
use super::tags::attributes;
use memchr::memmem;

/// Prefixes that feeds use so regularly that they forget to declare them, and what they mean. feed-rs takes an element
/// with an undeclared prefix as one without: `media:title` then replaces the title.
pub(super) const PREFIXES: [(&str, &str); 14] = [
    ("media", "http://search.yahoo.com/mrss/"),
    ("itunes", "http://www.itunes.com/dtds/podcast-1.0.dtd"),
    ("dc", "http://purl.org/dc/elements/1.1/"),
    ("content", "http://purl.org/rss/1.0/modules/content/"),
    ("atom", "http://www.w3.org/2005/Atom"),
    ("podcast", "https://podcastindex.org/namespace/1.0"),
    ("googleplay", "http://www.google.com/schemas/play-podcasts/1.0"),
    ("sy", "http://purl.org/rss/1.0/modules/syndication/"),
    ("slash", "http://purl.org/rss/1.0/modules/slash/"),
    ("wfw", "http://wellformedweb.org/CommentAPI/"),
    ("feedburner", "http://rssnamespace.org/feedburner/ext/1.0"),
    ("georss", "http://www.georss.org/georss"),
    ("dcterms", "http://purl.org/dc/terms/"),
    ("thr", "http://purl.org/syndication/thread/1.0"),
];

/// Elements of RSS whose content feed-rs takes as one piece of text, up to the first tag in it.
pub(super) fn is_text(prefix: &str, local: &str) -> bool {
    match local {
        "title" | "author" | "summary" => prefix.is_empty(),
        "description" => matches!(prefix, "" | "dc"),
        "creator" => prefix == "dc",
        "encoded" => prefix == "content",
        _ => false,
    }
}

/// Atom's text constructs, unless they say that they hold markup or something foreign.
pub(super) fn is_atom_text(local: &str, inner: &str) -> bool {
    let kind = || attributes(inner).find(|(key, _)| *key == "type").map_or("", |(_, value)| value.trim());
    matches!(local, "title" | "subtitle" | "summary" | "content" | "rights")
        && matches!(kind(), "" | "text" | "html" | "text/plain" | "text/html")
}

/// Dates of an item beside `pubDate` and `dc:date`, which feed-rs reads: publication first.
pub(super) const OTHER_DATES: [(&str, &str); 8] = [
    ("dcterms", "issued"),
    ("", "published"),
    ("atom", "published"),
    ("dcterms", "created"),
    ("", "issued"),
    ("", "date"),
    ("dcterms", "modified"),
    ("", "modified"),
];

/// The state of the search; once something was found it rests.
#[derive(Debug)]
pub(super) struct Losses<'a> {
    text: &'a str,
    pub found: bool,
    /// One bit for each of [`PREFIXES`] that was met.
    prefixes: u16,
    /// Depth of the children of an open text element.
    in_text: Option<usize>,
    /// Depth of the children of the open item.
    in_item: Option<usize>,
    title: bool,
    other_title: bool,
    link: bool,
    other_link: bool,
    other_date: bool,
    date: Option<&'a str>,
}

impl<'a> Losses<'a> {
    pub fn new(text: &'a str) -> Losses<'a> {
        Losses {
            text,
            found: false,
            prefixes: 0,
            in_text: None,
            in_item: None,
            title: false,
            other_title: false,
            link: false,
            other_link: false,
            other_date: false,
            date: None,
        }
    }

    /// A start tag with `depth` elements open above it; `tag` is whether it is empty and where its content begins.
    pub fn start(&mut self, root: Root, depth: usize, (prefix, local): (&str, &str), inner: &str, tag: (bool, usize)) {
        let (empty, after) = tag;
        if self.found {
            return;
        }
        if let Some(i) = (!prefix.is_empty()).then(|| PREFIXES.iter().position(|(p, _)| *p == prefix)).flatten() {
            self.prefixes |= 1 << i;
        }
        if self.in_text.is_some_and(|d| depth >= d) {
            self.found = true;
            return;
        }
        let text = match root {
            Root::Rss | Root::Rdf => is_text(prefix, local),
            Root::Atom => depth > 0 && is_atom_text(local, inner),
            Root::Other => false,
        };
        if text && !empty {
            self.in_text = Some(depth + 1);
        }
        if matches!(root, Root::Rss | Root::Rdf) {
            if local == "item" {
                self.in_item = (!empty).then_some(depth + 1);
                (self.title, self.other_title, self.link, self.other_link) = (false, false, false, false);
                (self.other_date, self.date) = (false, None);
            } else if self.in_item == Some(depth) {
                self.child(prefix, local, inner, after);
            }
        }
    }

    /// A child of an item.
    fn child(&mut self, prefix: &str, local: &str, inner: &str, after: usize) {
        // By the local name first: most are none of these.
        match local {
            "title" => match prefix {
                "" => self.title = true,
                "dc" | "media" | "itunes" => self.other_title = true,
                _ => {}
            },
            // As an attribute, which feed-rs does not look at.
            "link" if prefix.is_empty() => match attributes(inner).any(|(key, _)| key == "href") {
                true => self.other_link = true,
                false => self.link = true,
            },
            "link" if prefix == "atom" => self.other_link = true,
            "origLink" => self.other_link = true,
            "guid" => self.other_link |= attributes(inner).any(|(_, value)| value.eq_ignore_ascii_case("true")),
            "pubDate" | "date" if local == "pubDate" || prefix == "dc" => self.read_date(after),
            "date" | "issued" | "published" | "created" | "modified" => {
                self.other_date |= OTHER_DATES.contains(&(prefix, local));
            }
            _ => {}
        }
    }

    /// A second date beside the first: the last one wins in feed-rs, readable or not.
    fn read_date(&mut self, after: usize) {
        let text = &self.text[after..];
        let text = &text[..memchr::memchr(b'<', text.as_bytes()).unwrap_or(0)];
        match self.date {
            Some(first) => self.found |= first.trim() != text.trim() && dates::parse(first) != dates::parse(text),
            None => self.date = Some(text),
        }
    }

    /// An end tag that leaves `depth` elements open.
    pub fn end(&mut self, depth: usize) {
        if self.in_text == Some(depth + 1) {
            self.in_text = None;
        } else if self.in_item == Some(depth + 1) {
            self.in_item = None;
            self.found |= self.other_title && !self.title
                || self.other_link && !self.link
                || self.other_date && self.date.is_none();
        }
    }

    /// The document is over: are its prefixes declared?
    pub fn finish(&mut self) {
        let met = PREFIXES.iter().enumerate().filter(|(i, _)| self.prefixes & 1 << i != 0);
        for (_, (prefix, _)) in met {
            self.found = self.found || undeclared(self.text, prefix);
        }
    }
}

/// Whether the prefix is declared nowhere.
pub(super) fn undeclared(text: &str, prefix: &str) -> bool {
    let declaration = format!("xmlns:{prefix}");
    !memmem::find_iter(text.as_bytes(), declaration.as_bytes()).any(|at| {
        let after = text.as_bytes().get(at + declaration.len());
        after.is_some_and(|b| *b == b'=' || b.is_ascii_whitespace())
    })
}

#[cfg(test)]
mod tests {
    use crate::feed::parse::ParseLimits;
    use crate::feed::scan::scan;
    use url::Url;

    fn lossy(item: &str) -> bool {
        let head = "<rss version='2.0' xmlns:dc='http://purl.org/dc/elements/1.1/'><channel>";
        let text = format!("{head}<item>{item}</item></channel></rss>");
        scan(&text, &Url::parse("https://x.example/").unwrap(), &ParseLimits::default()).unwrap().lossy
    }

    #[test]
    fn signs_of_a_loss() {
        let date = "<pubDate>Wed, 10 Jan 2024 10:00:00 GMT</pubDate>";
        for (item, want) in [
            ("<title>a</title><link>b</link><guid isPermaLink=\"true\">c</guid>".to_owned(), false),
            ("<title>a</title><description><![CDATA[<b>b</b>]]></description>".to_owned(), false),
            ("<description>a <b>b</b> c</description>".to_owned(), true),
            ("<dc:title>a</dc:title>".to_owned(), true),
            ("<dc:title>a</dc:title><title>b</title>".to_owned(), false),
            ("<link href='x'/>".to_owned(), true),
            ("<media:thumbnail url='x'/>".to_owned(), true),
            ("<published>2024-01-10</published>".to_owned(), true),
            (format!("{date}<published>2024-01-10</published>"), false),
            (format!("{date}<dc:date>2024-01-10T10:00:00Z</dc:date>"), false),
            (format!("{date}<dc:date>soon</dc:date>"), true),
        ] {
            assert_eq!(lossy(&item), want, "{item}");
        }
    }
}
