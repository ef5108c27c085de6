//! `homing ctl status`: the totals of a broker, as an operator reads them.

use super::listings::{seconds, text};
use crate::admin::routes::overview::{
    ExpiryTotals, LongQueue, Overview, ProblemRow, QueuedTotals, RecentRates,
};
use crate::admin::routes::store_figures::{CopyFigures, StoreFigures};
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
    match &overview.store {
        None => add("store", "none: sessions and messages end with the process".to_owned()),
        Some(figures) => {
            add("store", store(figures));
            add("log", log(figures));
            add("copy", figures.copy.as_ref().map_or_else(|| "none (store.ship_to)".to_owned(), copy));
        }
    }
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

/// Returns the size of the store, and its commits.
fn store(store: &StoreFigures) -> String {
    let is_full = if store.full { "full: it takes no new messages; " } else { "" };
    let limit = store.size_limit.map(|limit| format!(" of {} (store.size_limit)", size(limit)));
    let waits = match store.oldest_uncommitted {
        oldest if oldest >= 1.0 => format!("; a change waits for its commit for {}", seconds(oldest)),
        _ => String::new(),
    };
    let (bytes, limit, room) = (size(store.bytes), limit.unwrap_or_default(), size(store.room));
    let p99 = short(store.commit_p99);
    format!("{is_full}{bytes}{limit}, room for {room}; 99 % of the commits took {p99} at most{waits}")
}

/// Returns the position of the log, what the database lacks, and the times of both.
fn log(store: &StoreFigures) -> String {
    let oldest = match store.oldest_unapplied {
        oldest if oldest > 0.0 => format!(" for {}", seconds(oldest)),
        _ => String::new(),
    };
    let took =
        |what, p99: Option<f64>| p99.map(|p99| format!("; 99 % of the {what} took {} at most", short(p99)));
    format!(
        "position {}, {} of {}; {} not in the database{oldest}{}{}",
        store.position,
        size(store.log_bytes),
        size(store.log_limit),
        size(store.unapplied_bytes),
        took("syncs", store.sync_p99).unwrap_or_default(),
        took("writes to the database", store.apply_p99).unwrap_or_default()
    )
}

fn copy(copy: &CopyFigures) -> String {
    let CopyFigures { folder, position, lag, lag_bytes, given_up, begins_again } = copy;
    let state = match (begins_again, *lag > 0.0) {
        (true, _) => format!("begins again with a whole database, {} behind", seconds(*lag)),
        (false, true) => format!("{} and {} behind", seconds(*lag), size(*lag_bytes)),
        (false, false) => "complete".to_owned(),
    };
    format!("{}: position {position}, {state}; began again {given_up} times", text(folder))
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
        let store = json!({
            "full": false, "bytes": 2_097_152, "size_limit": 67_108_864, "room": 1_048_576,
            "position": 1_234, "log_bytes": 3_145_728, "log_limit": 12_582_912,
            "unapplied_bytes": 4_096, "unapplied_limit": 8_388_608, "oldest_unapplied": 0.5,
            "oldest_uncommitted": 12.25, "commit_p99": 0.004, "sync_p99": 0.002, "apply_p99": null, "damaged": 0,
            "copy": { "folder": "/backup\u{1b}[2J", "position": 1_200, "lag": 1.5, "lag_bytes": 2_048, "given_up": 2, "begins_again": false },
        });
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
            "longest_queues": [
                { "client_id": "pump-7\u{1b}[2J", "connected": true, "messages": 150, "bytes": 1, "oldest": null },
                { "client_id": "pump-8", "connected": false, "messages": 50, "bytes": 1, "oldest": 3 },
            ],
            "store": store,
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
store        2.0 MiB of 64.0 MiB (store.size_limit), room for 1.0 MiB; 99 % of the commits took 4 ms at most; a change waits for its commit for 12.2 s
log          position 1234, 3.0 MiB of 12.0 MiB; 4.0 KiB not in the database for 500 ms; 99 % of the syncs took 2 ms at most
copy         /backup\\u{1b}[2J: position 1200, 1.5 s and 2.0 KiB behind; began again 2 times
deadlines    9; due: 2 within 1 s, 3 within 10 s, 8 within 60 s
listeners    127.0.0.1:1883";
        let overview = serde_json::from_value(overview).expect("an answer");
        assert_eq!(totals(overview), expected);
    }
}
