//! Steps of [`super::repair`] that look at whole items of RSS and RDF: where they stand, and which of their children
//! must stand in for a title, a link or a date that is missing.

use super::losses::OTHER_DATES;
use super::tags::{Tag, Tags, attribute, attributes, name, split};
use super::{dates, text};
use std::ops::Range;

/// A direct child of an item.
struct Child<'a> {
    full: &'a str,
    inner: &'a str,
    /// From its start tag to past its end tag.
    range: Range<usize>,
    /// What stands between them.
    content: &'a str,
}

impl Child<'_> {
    fn is(&self, prefix: &str, local: &str) -> bool {
        split(self.full) == (prefix, local)
    }

    /// Its text, markup taken off.
    fn text(&self) -> &str {
        let text = self.content.trim();
        text.strip_prefix("<![CDATA[").and_then(|t| t.strip_suffix("]]>")).unwrap_or(text).trim()
    }
}

/// An item and what is in it.
struct Item<'a> {
    inner: &'a str,
    /// Its prefix with the colon, or "".
    prefix: &'a str,
    range: Range<usize>,
    /// Where its content begins.
    start: usize,
    /// An empty element has no content to add to.
    empty: bool,
    depth: usize,
    /// Whether its parent is the channel.
    parent: &'a str,
    children: Vec<Child<'a>>,
}

/// All items in order. A document whose tags do not match gives those up to there; items in items are not looked for.
fn items(text: &str) -> Vec<Item<'_>> {
    let (mut open, mut found): (Vec<&str>, Vec<Item>) = (Vec::new(), Vec::new());
    let (mut item, mut child): (Option<Item>, Option<Child>) = (None, None);
    for (range, tag) in Tags::new(text) {
        match tag {
            Tag::Start { inner, empty } => {
                let full = name(inner);
                match &mut item {
                    None if split(full).1 == "item" => {
                        let new = Item {
                            inner,
                            prefix: full.find(':').map_or("", |colon| &full[..=colon]),
                            range: range.clone(),
                            start: range.end,
                            empty,
                            depth: open.len(),
                            parent: open.last().copied().unwrap_or(""),
                            children: Vec::new(),
                        };
                        match empty {
                            true => found.push(new),
                            false => item = Some(new),
                        }
                    }
                    Some(item) if open.len() == item.depth + 1 => {
                        let new = Child { full, inner, range: range.clone(), content: &text[range.end..range.end] };
                        match empty {
                            true => item.children.push(new),
                            false => child = Some(new),
                        }
                    }
                    _ => {}
                }
                if !empty {
                    open.push(full);
                }
            }
            Tag::End { inner } => {
                if open.pop() != Some(inner) {
                    return found;
                }
                let Some(current) = &mut item else { continue };
                if open.len() == current.depth + 1 {
                    if let Some(mut ended) = child.take() {
                        // The content is empty so far and lies right behind the start tag.
                        let start = ended.range.end;
                        ended.content = &text[start..range.start];
                        ended.range.end = range.end;
                        current.children.push(ended);
                    }
                } else if open.len() == current.depth {
                    current.range.end = range.end;
                    found.extend(item.take());
                }
            }
            _ => {}
        }
    }
    found
}

/// Puts texts into places, which may be empty ranges; `None` when there are none. Later overlapping ones are left out.
fn splice(text: &str, mut edits: Vec<(Range<usize>, String)>) -> Option<String> {
    if edits.is_empty() {
        return None;
    }
    edits.sort_by_key(|(range, _)| range.start);
    let added: usize = edits.iter().map(|(_, new)| new.len()).sum();
    let (mut out, mut at) = (String::with_capacity(text.len() + added), 0);
    for (range, new) in edits.into_iter() {
        if range.start < at {
            continue;
        }
        out.push_str(&text[at..range.start]);
        out.push_str(&new);
        at = range.end;
    }
    out.push_str(&text[at..]);
    Some(out)
}

/// RSS only: items beside the channel, in a second one, or in a wrapper (`items` of RSS 1.1) move to the end of the
/// first; where there is none, one is made.
pub(super) fn stray_items(text: &str) -> Option<String> {
    let root = Tags::new(text).find_map(|(range, tag)| match tag {
        Tag::Start { inner, empty: false } => Some((range, name(inner))),
        _ => None,
    });
    let (root, root_name) = root.filter(|(_, root)| *root == "rss")?;
    let strays: Vec<Item> = items(text).into_iter().filter(|i| i.depth != 2 || i.parent != "channel").collect();
    let (mut depth, mut end, mut first, mut second) = (0usize, None, None, Vec::<Range<usize>>::new());
    for (range, tag) in Tags::new(text) {
        match tag {
            Tag::Start { inner, empty } => {
                if depth == 1 && name(inner) == "channel" && !empty {
                    match first {
                        None => first = Some(range.clone()),
                        Some(_) => second.push(range.clone()),
                    }
                }
                depth += usize::from(!empty);
            }
            Tag::End { inner } => {
                depth = depth.saturating_sub(1);
                if depth == 1 && inner == "channel" {
                    match (second.last_mut(), &end) {
                        (Some(later), _) => later.end = range.end,
                        (None, None) => end = Some(range.start),
                        _ => {}
                    }
                } else if depth == 0 && inner == root_name && first.is_none() {
                    // No channel at all: the root's content is one.
                    let open = (root.end..root.end, "<channel>".to_owned());
                    let moved = splice(text, vec![open, (range.start..range.start, "</channel>".to_owned())])?;
                    return Some(moved);
                }
            }
            _ => {}
        }
    }
    let of_second = items(text).into_iter().filter(|i| within(&second, i.range.start));
    let mut moved: Vec<Range<usize>> = strays.into_iter().chain(of_second).map(|i| i.range).collect();
    moved.sort_by_key(|range| range.start);
    moved.dedup();
    if moved.is_empty() {
        return None;
    }
    let end = end?;
    let all: String = moved.iter().map(|range| &text[range.clone()]).collect();
    let gone = moved.into_iter().filter(|m| !within(&second, m.start));
    let edits = gone.chain(second.iter().cloned()).map(|range| (range, String::new())).collect();
    // Cutting out first keeps the places before them valid when they stand after `end`.
    splice(text, [vec![(end..end, all)], edits].concat())
}

/// RDF only: its items stand beside the channel; those inside it, as in RSS, move to the end of the root.
pub(super) fn rdf_items_in_channel(text: &str) -> Option<String> {
    if !super::repair::root_is(text, "rdf") {
        return None;
    }
    let moved: Vec<Range<usize>> = items(text).into_iter().filter(|i| i.depth > 1).map(|i| i.range).collect();
    let all: String = moved.iter().map(|range| &text[range.clone()]).collect();
    let end = Tags::new(text).filter(|(_, tag)| matches!(tag, Tag::End { .. })).last()?.0.start;
    if moved.is_empty() || end < moved.last()?.end {
        return None;
    }
    let gone = moved.into_iter().map(|range| (range, String::new()));
    splice(text, gone.chain([(end..end, all)]).collect())
}

/// Whether one of the ranges, which are in order, contains it.
fn within(ranges: &[Range<usize>], at: usize) -> bool {
    let before = ranges.partition_point(|range| range.start <= at);
    ranges[..before].last().is_some_and(|range| range.contains(&at))
}

/// Items without a link: `href` of a `link`, FeedBurner's original, a guid that says it is one, `rdf:about`, CDF's `href`. feed-rs
/// drops items of RDF that have none, so these get one that says nothing.
pub(super) fn item_links(text: &str) -> Option<String> {
    let rdf = super::repair::root_is(text, "rdf");
    if !rdf && !super::repair::root_is(text, "rss") {
        return None;
    }
    let edits = items(text).into_iter().filter_map(|item| {
        let prefix = item.prefix.trim_end_matches(':');
        let plain = |c: &Child| (c.is(prefix, "link") || c.is("", "link")) && !c.text().is_empty();
        if item.children.iter().any(plain) {
            return None;
        }
        let href = |c: &Child| {
            let rel = attribute(c.inner, "rel");
            let article = rel.is_none_or(|rel| rel.is_empty() || rel.eq_ignore_ascii_case("alternate"));
            let link = split(c.full).1 == "link" && matches!(split(c.full).0, "" | "atom" | "a10");
            attributes(c.inner).find(|(key, _)| *key == "href" && link && article).map(|(_, value)| value.to_owned())
        };
        let text_of =
            |c: &Child| text::short(&text::decode(c.text())).map(|t| quick_xml::escape::escape(&*t).into_owned());
        let original = |c: &Child| c.is("feedburner", "origLink").then(|| text_of(c)).flatten();
        let permalink = |c: &Child| {
            let says = attribute(c.inner, "isPermaLink").is_some_and(|v| v.eq_ignore_ascii_case("true"));
            (says && split(c.full).1 == "guid").then(|| text_of(c)).flatten()
        };
        let own = |wanted: &str| {
            let found = attributes(item.inner).find(|(key, _)| split(key).1.eq_ignore_ascii_case(wanted));
            found.map(|(_, value)| value.to_owned())
        };
        let found = item.children.iter().find_map(href);
        let found = found.or_else(|| item.children.iter().find_map(original));
        let found = found.or_else(|| item.children.iter().find_map(permalink));
        let link = match rdf {
            true => found.or_else(|| own("about")).unwrap_or_else(|| "urn:none".into()),
            false => found.or_else(|| own("href"))?,
        };
        add(&item, "link", &link)
    });
    splice(text, edits.collect())
}

/// `rdf:about` of RSS 1.1 and of RSS with borrowed attributes is a guid. (In RDF proper it is read by the scan.)
pub(super) fn item_ids(text: &str) -> Option<String> {
    if !super::repair::root_is(text, "rss") {
        return None;
    }
    let edits = items(text).into_iter().filter(|item| !item.children.iter().any(|c| c.is("", "guid")));
    let edits = edits.filter_map(|item| {
        let (_, about) = attributes(item.inner).find(|(key, value)| *key == "rdf:about" && !value.is_empty())?;
        add(&item, "guid", about)
    });
    splice(text, edits.collect())
}

/// An element at the front of an item; an empty one has no place for it and is spelt out.
fn add(item: &Item, local: &str, content: &str) -> Option<(Range<usize>, String)> {
    let element = format!("<{0}{local}>{content}</{0}{local}>", item.prefix);
    match item.empty {
        true => Some((item.range.clone(), format!("<{0}>{element}</{1}>", item.inner, name(item.inner)))),
        false => Some((item.start..item.start, element)),
    }
}

/// Items without a title of their own: Dublin Core's, Media RSS's, iTunes' as it stands, markup and all.
pub(super) fn item_titles(text: &str) -> Option<String> {
    let edits = items(text).into_iter().filter_map(|item| {
        let prefix = item.prefix.trim_end_matches(':');
        if item.children.iter().any(|c| c.is(prefix, "title") && !c.text().is_empty()) {
            return None;
        }
        let other = |p: &str| item.children.iter().find(|c| c.is(p, "title") && !c.text().is_empty());
        let found = ["dc", "media", "itunes"].into_iter().find_map(other)?;
        add(&item, "title", found.content)
    });
    splice(text, edits.collect())
}

/// Dates of an item: of several the first that can be read stays; where feed-rs would find none, the others are asked.
pub(super) fn item_dates(text: &str) -> Option<String> {
    let mut edits = Vec::new();
    for item in items(text) {
        let known = |c: &&Child| split(c.full).1 == "pubDate" || c.is("dc", "date");
        let given: Vec<&Child> = item.children.iter().filter(known).collect();
        let good = given.iter().position(|c| dates::parse(c.text()).is_some());
        if let Some(good) = good {
            let rest = given.iter().enumerate().filter(|(i, _)| *i != good);
            edits.extend(rest.map(|(_, c)| (c.range.clone(), String::new())));
            continue;
        }
        let other = |(prefix, local): &(&str, &str)| {
            let found = item.children.iter().find(|c| c.is(prefix, local))?;
            dates::parse(found.text()).map(|_| found.content)
        };
        let lastmod = || {
            let (_, value) = attributes(item.inner).find(|(key, _)| key.eq_ignore_ascii_case("lastmod"))?;
            dates::parse(value).map(|_| value)
        };
        if let Some(date) = OTHER_DATES.iter().find_map(other).or_else(lastmod) {
            edits.extend(given.iter().map(|c| (c.range.clone(), String::new())));
            let element = format!("<dc:date xmlns:dc=\"http://purl.org/dc/elements/1.1/\">{date}</dc:date>");
            match item.empty {
                true => edits.push((item.range.clone(), format!("<{0}>{element}</{1}>", item.inner, name(item.inner)))),
                false => edits.push((item.start..item.start, element)),
            }
        }
    }
    splice(text, edits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_move_into_the_channel() {
        let want = "<rss><channel><a>1</a><item>x</item></channel></rss>";
        for text in [
            "<rss><channel><a>1</a></channel><item>x</item></rss>",
            "<rss><item>x</item><channel><a>1</a></channel></rss>",
            "<rss><channel><a>1</a></channel><channel><a>2</a><item>x</item></channel></rss>",
        ] {
            assert_eq!(stray_items(text).as_deref(), Some(want), "{text}");
        }
        assert_eq!(stray_items(want), None);
        let rdf = "<RDF><channel><item>x</item></channel></RDF>";
        assert_eq!(rdf_items_in_channel(rdf).as_deref(), Some("<RDF><channel></channel><item>x</item></RDF>"));
        assert_eq!(stray_items("<rss><item/></rss>").as_deref(), Some("<rss><channel><item/></channel></rss>"));
    }

    #[test]
    fn what_stands_in() {
        let item = |inside: &str| format!("<rss><channel><item>{inside}</item></channel></rss>");
        let guid = "<guid isPermaLink='true'>a?b&amp;c</guid>";
        assert_eq!(item_links(&item(guid)), Some(item(&format!("<link>a?b&amp;c</link>{guid}"))));
        assert_eq!(item_links(&item("<guid>a</guid>")), None);
        let two = "<pubDate>2024-01-10</pubDate><dc:date>soon</dc:date>";
        assert_eq!(item_dates(&item(two)), Some(item("<pubDate>2024-01-10</pubDate>")));
        let rdf = "<RDF><item about='/1'/></RDF>";
        assert_eq!(item_links(rdf).as_deref(), Some("<RDF><item about='/1'><link>/1</link></item></RDF>"));
    }
}
