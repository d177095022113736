//! The last resort of [`super::repair`]: keep the items that are whole.

use super::tags::{Tag, Tags, name, split};

/// The head of the document, those items that are whole and well-formed, and the end tags that close it: for documents
/// cut off on the way and for items with broken markup. `None` when no item is whole.
pub(super) fn complete_items(text: &str) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    let (mut out, mut closers): (String, Vec<&str>) = (String::new(), Vec::new());
    // Of the item at hand: where it begins and how many elements were open above it.
    let mut item: Option<(usize, usize)> = None;
    let (mut whole, mut kept) = (true, 0);
    // The start tags of root and channel, for when the head is broken, too.
    let (mut frame, mut sound): (Vec<(&str, &str)>, bool) = (Vec::new(), true);
    for (range, tag) in Tags::new(text) {
        match tag {
            Tag::Start { inner, empty } => {
                let tag_name = name(inner);
                if matches!(split(tag_name).1, "item" | "entry") && !empty {
                    // A new item inside an item: the one before never ended.
                    open.truncate(item.map_or(open.len(), |(_, depth)| depth));
                    if out.is_empty() {
                        if sound && open.len() <= 2 {
                            closers = open.clone();
                            out.push_str(&text[..range.start]);
                        } else {
                            closers = frame.iter().map(|(tag_name, _)| *tag_name).collect();
                            out.extend(frame.iter().map(|(_, tag)| *tag));
                        }
                    }
                    item = Some((range.start, open.len()));
                    whole = true;
                }
                let framing = frame.is_empty() || frame[0].0 == "rss" && tag_name == "channel" && frame.len() == 1;
                if framing && !empty {
                    frame.push((tag_name, &text[range.clone()]));
                }
                if !empty {
                    open.push(tag_name);
                }
            }
            Tag::End { inner } => {
                let Some((start, depth)) = item else {
                    match open.last() == Some(&inner) {
                        true => drop(open.pop()),
                        false => sound = false,
                    }
                    continue;
                };
                if open.get(depth) == Some(&inner) && (open.len() == depth + 1 || split(inner).1.len() > 3) {
                    if open.len() == depth + 1 && whole {
                        out.push_str(&text[start..range.end]);
                        kept += 1;
                    }
                    open.truncate(depth);
                    item = None;
                } else if open.last() == Some(&inner) {
                    open.pop();
                } else {
                    whole = false;
                }
            }
            _ => {}
        }
    }
    if kept == 0 {
        return None;
    }
    for tag_name in closers.iter().rev() {
        out.extend(["</", tag_name, ">"]);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::complete_items;

    #[test]
    fn whole_items_between_head_and_end_tags() {
        let head = "<rss><channel><title>t</title>";
        let item = "<item><a>1</a></item>";
        let end = "</channel></rss>";
        let want = format!("{head}{item}{item}{end}");
        for text in [
            format!("{head}{item}<item><a>2</item>{item}{end}"),
            format!("{head}{item}<item><a>2</b></a></item>{item}"),
            format!("{head}{item}<item><a>2</a>{item}<item><![CDATA["),
            format!("{head}{item}{item}<ite"),
        ] {
            assert_eq!(complete_items(&text).as_deref(), Some(&*want), "{text}");
        }
        assert_eq!(
            complete_items(&format!("<rss><channel><br>{item}")).as_deref(),
            Some(&*format!("<rss><channel>{item}{end}"))
        );
        assert_eq!(complete_items("<rss><channel><item>"), None);
    }
}
