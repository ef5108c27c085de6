//! `homing ctl status`: the totals of a broker, as an operator reads them.

use super::listings::{seconds, text};
use crate::admin::routes::overview::{
    ExpiryTotals, LongQueue, Overview, ProblemRow, QueuedTotals, RecentRates, StoreFigures,
};
use crate::finding::size;
use std::fmt::Display;

/// Columns of the names of the lines.
const NAMES: usize = 12;

/// Returns the totals as lines, and the present problems first.
pub(super) fn totals(overview: Overview) -> String {
    let mut lines = vec![heading(&overview)];
    let problem = |problem: &ProblemRow| format!("! {} {}", text(&problem.text), text(&problem.advice));
    lines.extend(overview.problems.iter().map(problem));
    let Overview { clients, queued, publishes, redelivery, recent, memory, .. } = &overview;
    let mut add = |name: &str, value: String| lines.push(format!("{name:<NAMES$} {value}"));
    let (connected, away, subscriptions) = (clients.connected, clients.away, overview.subscriptions);
    add("clients", format!("connected {connected}, away {away}, subscriptions {subscriptions}"));
    add("messages", format!("received {}, sent {}{}", publishes.received, publishes.sent, rates(recent)));
    let QueuedTotals { messages, bytes, held, oldest } = queued;
    let oldest = ago(*oldest).map(|age| format!(", the oldest for {age}")).unwrap_or_default();
    let (size_of_all, in_flight) = (size(*bytes), overview.in_flight);
    add(
        "queued",
        format!(
            "messages {messages} ({size_of_all}){oldest}, waiting for room {held}, in flight {in_flight}"
        ),
    );
    add("longest", list(overview.longest_queues.iter().map(long_queue)));
    let (retained, delayed) = (overview.retained_messages, overview.delayed_messages);
    let letters = overview.dead_letters_stored;
    add("kept", format!("retained {retained}, delayed {delayed}, dead letters {letters}"));
    let (resent, stalled, closed) = (redelivery.redelivered, redelivery.stalled, redelivery.disconnected);
    add("redelivery", format!("sent again {resent}, stalled {stalled}, disconnected {closed}"));
    let last = ago(overview.last_drop_ago).map(|ago| format!(", the last {ago} ago")).unwrap_or_default();
    add("dropped", format!("{}{last}", overview.dropped));
    add("in time", acknowledgements(recent));
    add("memory", format!("{} of {} (limits.memory)", size(memory.bytes), size(memory.limit)));
    add("store", store(overview.store.as_ref()));
    add("deadlines", deadlines(&overview.expiry));
    add("listeners", list(overview.listeners.iter().map(text)));
    lines.join("\n")
}

/// Returns the version, the time since the start, and the threads that hang.
fn heading(overview: &Overview) -> String {
    let threads = match overview.alive {
        true => "every thread works".to_owned(),
        false => format!("threads that hang: {}", list(overview.late_threads.iter().map(text))),
    };
    format!("Homing {}, up {}, {threads}", text(&overview.version), seconds(overview.uptime as f64))
}

/// Returns a number of seconds as people say it.
fn ago(secs: Option<u64>) -> Option<String> {
    secs.map(|secs| seconds(secs as f64))
}

/// Returns the rates of the last seconds; empty right after the start.
fn rates(recent: &RecentRates) -> String {
    let both = recent.received_per_second.zip(recent.sent_per_second);
    both.map(|(received, sent)| format!("; now {received:.0} and {sent:.0} a second")).unwrap_or_default()
}

/// Returns a client with a long queue, and its messages.
fn long_queue(queue: &LongQueue) -> String {
    format!("{} {}", text(&queue.client_id), queue.messages)
}

/// Returns how fast 99 % of the acknowledgements of the last minute came.
fn acknowledgements(recent: &RecentRates) -> String {
    match recent.ack_p99 {
        Some(p99) => format!("99 % of the acknowledgements of the last minute came within {}", short(p99)),
        None => "no acknowledgement came in the last minute".to_owned(),
    }
}

fn store(store: Option<&StoreFigures>) -> String {
    let Some(StoreFigures { bytes, room, full, oldest_uncommitted, commit_p99, copy_lag, .. }) = store else {
        return "none: sessions and messages end with the process".to_owned();
    };
    let is_full = if *full { "full: it takes no new messages; " } else { "" };
    let waits = match oldest_uncommitted {
        oldest if *oldest >= 1.0 => format!("; a change waits for its commit for {}", seconds(*oldest)),
        _ => String::new(),
    };
    let copy = match copy_lag {
        Some(lag) if *lag >= 1.0 => format!("; the copy is {} behind", seconds(*lag)),
        _ => String::new(),
    };
    let (bytes, room, p99) = (size(*bytes), size(*room), short(*commit_p99));
    format!("{is_full}{bytes}, room for {room}; 99 % of the commits took {p99} at most{waits}{copy}")
}

/// Returns the number of deadlines, and those that are due soon, the nearest first.
fn deadlines(expiry: &ExpiryTotals) -> String {
    let due = expiry.due_within.iter();
    let mut due: Vec<(u64, u64)> =
        due.filter_map(|(within, keys)| Some((within.trim_end_matches('s').parse().ok()?, *keys))).collect();
    due.sort_unstable();
    let due = list(due.into_iter().map(|(within, keys)| format!("{keys} within {within} s")));
    format!("{}; due: {due}", expiry.keys)
}

/// Returns a time below a second in milliseconds.
fn short(time: f64) -> String {
    if time < 1.0 { format!("{:.0} ms", time * 1_000.0) } else { seconds(time) }
}

fn list(items: impl Iterator<Item = impl Display>) -> String {
    let items: Vec<String> = items.map(|item| item.to_string()).collect();
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
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
            "recent": { "received_per_second": 10.2, "sent_per_second": 20.0, "ack_p99": 0.002, "commit_p99": null },
            "memory": { "bytes": 29_360_128, "limit": 1_073_741_824 },
            "queued": { "messages": 200, "bytes": 2_048, "held": 1, "oldest": 90 }, "in_flight": 6,
            "longest_queues": [
                { "client_id": "pump-7\u{1b}[2J", "connected": true, "messages": 150, "bytes": 1, "oldest": null },
                { "client_id": "pump-8", "connected": false, "messages": 50, "bytes": 1, "oldest": 3 },
            ],
            "store": { "full": false, "bytes": 2_097_152, "room": 1_048_576, "oldest_uncommitted": 12.25, "commit_p99": 0.004, "damaged": 0, "oldest_unapplied": 0.5 },
            "expiry": { "keys": 9, "due_within": { "10s": 3, "1s": 2, "60s": 8 } },
            "listeners": ["127.0.0.1:1883"],
        });
        let expected = "\
Homing 0.1.0, up 3 d 3 h, every thread works
! One client is stuck. See it.
clients      connected 5200, away 22, subscriptions 5310
messages     received 12, sent 24; now 10 and 20 a second
queued       messages 200 (2.0 KiB), the oldest for 1 min 30 s, waiting for room 1, in flight 6
longest      pump-7\\u{1b}[2J 150, pump-8 50
kept         retained 1, delayed 2, dead letters 3
redelivery   sent again 4, stalled 1, disconnected 5
dropped      7, the last 2 min 5 s ago
in time      99 % of the acknowledgements of the last minute came within 2 ms
memory       28.0 MiB of 1.0 GiB (limits.memory)
store        2.0 MiB, room for 1.0 MiB; 99 % of the commits took 4 ms at most; a change waits for its commit for 12.2 s
deadlines    9; due: 2 within 1 s, 3 within 10 s, 8 within 60 s
listeners    127.0.0.1:1883";
        let overview = serde_json::from_value(overview).expect("an answer");
        assert_eq!(totals(overview), expected);
    }
}
