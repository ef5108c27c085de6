//! `homing ctl status`: the totals of a broker, as an operator reads them.
//!
//! The totals are read field by field, so that those of another version are shown as far as they
//! go.

use super::listings::{seconds, text};
use crate::finding::size;
use serde_json::Value;
use std::fmt::Display;

/// Columns of the names of the lines.
const NAMES: usize = 12;

/// Returns the totals as lines, and the present problems first.
pub(super) fn totals(overview: Value) -> String {
    let mut lines = vec![heading(&overview)];
    lines.extend(overview["problems"].as_array().into_iter().flatten().map(|problem| {
        format!("! {} {}", text(word(&problem["text"])), text(word(&problem["advice"]))).trim_end().to_owned()
    }));
    let mut add = |name: &str, value: String| lines.push(format!("{name:<NAMES$} {value}"));
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let (clients, published) = (&overview["clients"], &overview["publishes"]);
    let (connected, away) = (number(&clients["connected"]), number(&clients["away"]));
    let subscriptions = number(&overview["subscriptions"]);
    add("clients", format!("connected {connected}, away {away}, subscriptions {subscriptions}"));
    let (received, sent) = (number(&published["received"]), number(&published["sent"]));
    add("messages", format!("received {received}, sent {sent}{}", rates(&overview["recent"])));
    let queued = &overview["queued"];
    if queued.is_object() {
        let [messages, bytes, held] = ["messages", "bytes", "held"].map(|field| number(&queued[field]));
        let in_flight = number(&overview["in_flight"]);
        let size = size(bytes);
        let oldest = queued["oldest"].as_f64().map(|age| format!(", the oldest for {}", seconds(age)));
        let oldest = oldest.unwrap_or_default();
        let text =
            format!("messages {messages} ({size}){oldest}, waiting for room {held}, in flight {in_flight}");
        add("queued", text);
        let longest = overview["longest_queues"].as_array().into_iter().flatten();
        add("longest", list(longest.map(long_queue)));
    }
    let kept = ["retained_messages", "delayed_messages", "dead_letters_stored"];
    let [retained, delayed, letters] = kept.map(|field| number(&overview[field]));
    add("kept", format!("retained {retained}, delayed {delayed}, dead letters {letters}"));
    let redelivery = &overview["redelivery"];
    let counts = ["redelivered", "stalled", "disconnected"].map(|field| number(&redelivery[field]));
    let [resent, stalled, closed] = counts;
    add("redelivery", format!("sent again {resent}, stalled {stalled}, disconnected {closed}"));
    let last = overview["last_drop_ago"].as_f64().map(|ago| format!(", the last {} ago", seconds(ago)));
    add("dropped", format!("{}{}", number(&overview["dropped"]), last.unwrap_or_default()));
    add("in time", acknowledgements(&overview["recent"]));
    let memory = &overview["memory"];
    let (used, limit) = (size(number(&memory["bytes"])), size(number(&memory["limit"])));
    add("memory", format!("{used} of {limit} (limits.memory)"));
    add("store", store(&overview["store"]));
    add("deadlines", deadlines(&overview["expiry"]));
    let listeners = overview["listeners"].as_array().into_iter().flatten();
    add("listeners", list(listeners.map(|listener| text(word(listener)))));
    lines.join("\n")
}

/// Returns the version, the time since the start, and the threads that hang.
fn heading(overview: &Value) -> String {
    let late = list(overview["late_threads"].as_array().into_iter().flatten().map(|name| text(word(name))));
    let threads = match overview["alive"].as_bool() {
        Some(true) => "every thread works".to_owned(),
        _ => format!("threads that hang: {late}"),
    };
    let up = overview["uptime"].as_f64().map(seconds).unwrap_or_default();
    format!("Homing {}, up {up}, {threads}", text(word(&overview["version"])))
}

/// Returns the rates of the last seconds; empty right after the start.
fn rates(recent: &Value) -> String {
    let rate = |field: &str| recent[field].as_f64();
    let both = rate("received_per_second").zip(rate("sent_per_second"));
    both.map(|(received, sent)| format!("; now {received:.0} and {sent:.0} a second")).unwrap_or_default()
}

/// Returns a client with a long queue, and its messages.
fn long_queue(queue: &Value) -> String {
    let messages = queue["messages"].as_u64().unwrap_or_default();
    format!("{} {messages}", text(word(&queue["client_id"])))
}

/// Returns how fast 99 % of the acknowledgements of the last minute came.
fn acknowledgements(recent: &Value) -> String {
    match recent["ack_p99"].as_f64() {
        Some(p99) => format!("99 % of the acknowledgements of the last minute came within {}", short(p99)),
        None => "no acknowledgement came in the last minute".to_owned(),
    }
}

fn store(store: &Value) -> String {
    if store.is_null() {
        return "none: sessions and messages end with the process".to_owned();
    }
    let seconds_of = |field: &str| store[field].as_f64().unwrap_or_default();
    let room = if store["full"].as_bool() == Some(true) { "full: it takes no new messages; " } else { "" };
    let bytes = store["bytes"].as_u64().zip(store["room"].as_u64());
    let bytes =
        bytes.map(|(bytes, room)| format!("{}, room for {}; ", size(bytes), size(room))).unwrap_or_default();
    let waits = match seconds_of("oldest_uncommitted") {
        oldest if oldest >= 1.0 => format!("; a change waits for its commit for {}", seconds(oldest)),
        _ => String::new(),
    };
    format!("{room}{bytes}99 % of the commits took {} at most{waits}", short(seconds_of("commit_p99")))
}

/// Returns the number of deadlines, and those that are due soon, the nearest first.
fn deadlines(expiry: &Value) -> String {
    let due = expiry["due_within"].as_object().into_iter().flatten();
    let mut due: Vec<(u64, u64)> = due
        .filter_map(|(within, keys)| Some((within.trim_end_matches('s').parse().ok()?, keys.as_u64()?)))
        .collect();
    due.sort_unstable();
    let due = list(due.into_iter().map(|(within, keys)| format!("{keys} within {within} s")));
    format!("{}; due: {due}", expiry["keys"].as_u64().unwrap_or_default())
}

/// Returns a time below a second in milliseconds.
fn short(time: f64) -> String {
    if time < 1.0 { format!("{:.0} ms", time * 1_000.0) } else { seconds(time) }
}

fn list(items: impl Iterator<Item = impl Display>) -> String {
    let items: Vec<String> = items.map(|item| item.to_string()).collect();
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_totals_are_lines_with_times_and_sizes_for_people() {
        let overview = json!({
            "version": "0.1.0", "alive": true, "late_threads": [], "uptime": 270_000,
            "problems": [{ "kind": "stuck_clients", "text": "One client is stuck.", "advice": "See it." }],
            "clients": { "connected": 5_200, "away": 22 }, "subscriptions": 5_310,
            "retained_messages": 1, "delayed_messages": 2, "dead_letters_stored": 3,
            "publishes": { "received": 12, "sent": 24 },
            "redelivery": { "redelivered": 4, "stalled": 1, "disconnected": 5, "dead_letters": 3 },
            "dropped": 7, "last_drop_ago": 125,
            "recent": { "received_per_second": 10.2, "sent_per_second": 20.0, "ack_p99": 0.002 },
            "memory": { "bytes": 29_360_128, "limit": 1_073_741_824 },
            "queued": { "messages": 200, "bytes": 2_048, "held": 1, "oldest": 90 }, "in_flight": 6,
            "longest_queues": [{ "client_id": "pump-7", "messages": 150 }, { "client_id": "pump-8", "messages": 50 }],
            "store": { "full": false, "bytes": 2_097_152, "room": 1_048_576, "oldest_uncommitted": 12.25, "commit_p99": 0.004 },
            "expiry": { "keys": 9, "due_within": { "10s": 3, "1s": 2, "60s": 8 } },
            "listeners": ["127.0.0.1:1883"],
        });
        let expected = "\
Homing 0.1.0, up 3 d 3 h, every thread works
! One client is stuck. See it.
clients      connected 5200, away 22, subscriptions 5310
messages     received 12, sent 24; now 10 and 20 a second
queued       messages 200 (2.0 KiB), the oldest for 1 min 30 s, waiting for room 1, in flight 6
longest      pump-7 150, pump-8 50
kept         retained 1, delayed 2, dead letters 3
redelivery   sent again 4, stalled 1, disconnected 5
dropped      7, the last 2 min 5 s ago
in time      99 % of the acknowledgements of the last minute came within 2 ms
memory       28.0 MiB of 1.0 GiB (limits.memory)
store        2.0 MiB, room for 1.0 MiB; 99 % of the commits took 4 ms at most; a change waits for its commit for 12.2 s
deadlines    9; due: 2 within 1 s, 3 within 10 s, 8 within 60 s
listeners    127.0.0.1:1883";
        assert_eq!(totals(overview), expected);
    }

    #[test]
    fn the_totals_of_another_version_are_shown_as_far_as_they_go_and_write_nothing_on_the_terminal() {
        let shown = totals(json!({ "version": "9\u{1b}[2J", "store": null }));
        assert!(shown.starts_with("Homing 9\\u{1b}[2J, up "), "{shown}");
        assert!(shown.contains("store        none: "), "{shown}");
    }
}
