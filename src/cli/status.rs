//! `feedmill status [--json]`: feeds, queue, failures and hosts on hold, at a glance.

use super::log::rfc3339;
use super::output::Output;
use crate::clock::Clock;
use crate::error::{EXIT_OK, Result};
use crate::rules::failure::clean_line;
use crate::store::{open, status};
use serde_json::json;
use std::io::Write;
use std::path::Path;

/// Failing feeds and waiting moves that are named one by one.
const NAMED: usize = 10;

/// Prints the status; as one JSON object where asked.
pub fn run(database: &Path, as_json: bool, out: &mut Output<impl Write>) -> Result<u8> {
    let db = open::open(database)?;
    let now = Clock::System.now();
    let status = status::read(&db, now, NAMED)?;
    if as_json {
        out.line(&to_json(&status).to_string())?;
    } else {
        out.text(&to_text(&status, now))?;
    }
    Ok(EXIT_OK)
}

fn to_json(status: &status::Status) -> serde_json::Value {
    json!({
        "feeds": status.states.iter().map(|(state, count)| (state.clone(), json!(count))).collect::<serde_json::Map<_, _>>(),
        "failing": status.failing,
        "entries": status.entries,
        "queue": { "due": status.due, "running": status.running, "next_at": status.next_at },
        "failures": status.failures.iter().map(|f| json!({
            "feed_id": f.feed_id, "url": f.url, "kind": f.kind, "message": f.message, "count": f.count,
        })).collect::<Vec<_>>(),
        "pending_moves": status.moves.iter().map(|m| json!({
            "feed_id": m.feed_id, "url": m.url, "target_url": m.target, "why": m.why,
        })).collect::<Vec<_>>(),
        "hosts_on_hold": status.holds.iter().map(|h| json!({
            "host": h.host, "hold_until": h.until, "reason": h.reason,
        })).collect::<Vec<_>>(),
        "subscriptions": status.subscriptions.iter().map(|(state, count)| (state.clone(), json!(count)))
            .collect::<serde_json::Map<_, _>>(),
        "deliveries_waiting": status.deliveries,
        "callback_url": status.callback_url,
    })
}

fn to_text(status: &status::Status, now: i64) -> String {
    let mut lines = Vec::new();
    let total: i64 = status.states.iter().map(|(_, count)| count).sum();
    let states: Vec<String> = status.states.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let states = if states.is_empty() { String::new() } else { format!(": {}", states.join(", ")) };
    lines.push(format!("feeds     {total}{states}"));
    lines.push(format!("entries   {}", status.entries));
    let next = match status.next_at {
        Some(at) if at > now => format!(", next at {}", rfc3339(at)),
        _ => String::new(),
    };
    lines.push(format!("queue     {} due, {} running{next}", status.due, status.running));
    let push: Vec<String> = status.subscriptions.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let off = if status.callback_url.is_none() { "off: the setting callback_url is empty" } else { "" };
    let counts = format!("{}, {} deliveries waiting", push.join(", "), status.deliveries);
    lines.push(match (off, push.is_empty()) {
        ("", true) => "push      no feed has a hub yet".to_string(),
        (off, true) => format!("push      {off}"),
        ("", false) => format!("push      {counts}"),
        (off, false) => format!("push      {off}; {counts}"),
    });
    if status.failing > 0 {
        lines.push(format!("failing   {}", status.failing));
        for failure in &status.failures {
            lines.push(format!(
                "  {} {} ({} x{}): {}",
                failure.feed_id, failure.url, failure.kind, failure.count, failure.message
            ));
        }
        if status.failing > status.failures.len() as i64 {
            lines.push("  ... all: SELECT * FROM feed_status WHERE condition <> 'ok'".to_string());
        }
    }
    for waiting in &status.moves {
        lines.push(format!("waiting   {} {} -> {}: {}", waiting.feed_id, waiting.url, waiting.target, waiting.why));
    }
    for hold in &status.holds {
        lines.push(format!("on hold   {} until {}: {}", hold.host, rfc3339(hold.until), hold.reason));
    }
    // What stands in the lines came from servers; the indent is ours.
    let printable = |line: &String| {
        let indent = if line.starts_with("  ") { "  " } else { "" };
        format!("{indent}{}\n", clean_line(line, 1000))
    };
    lines.iter().map(printable).collect()
}
