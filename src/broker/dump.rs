//! Writes the dump of SIGUSR1: the expiry queue by thread, and the sessions with the oldest
//! unacknowledged messages.
//!
//! A dump costs a walk over every deadline and every session. Its length is bounded.

use super::events::ClientText;
use crate::clock;
use crate::expiry::deadline::DeadlineKind;
use crate::expiry::message::{ExpiryInspection, RegisteredDeadlines};
use crate::expiry::statistics::{AHEAD, ExpiryStatistics};
use crate::operators::longest_wait::LongestWait;
use crate::session::outbound::stall::Stall;
use crate::shard::ShardSnapshot;
use crate::time::Instant;
use crate::time::histogram::SharedHistogram;
use actix::Message;
use std::fmt::{self, Write};
use std::time::Duration;

/// Maximum number of sessions in a dump.
pub(super) const SESSIONS: usize = 20;

/// Maximum number of buckets in a dump.
const BUCKETS: usize = 10;

/// Requests the part of a shard in a dump.
#[derive(Debug)]
pub struct InspectShard;

impl Message for InspectShard {
    type Result = ShardInspection;
}

/// The part of one shard.
#[derive(Debug)]
pub struct ShardInspection {
    /// The counters of the shard.
    pub snapshot: ShardSnapshot,
    /// Open sockets, with those that have not sent CONNECT.
    pub open: usize,
    /// The sessions with the oldest unacknowledged messages, oldest first. Each says if its socket
    /// was diagnosed.
    pub waiting: Vec<(LongestWait, Diagnosis)>,
}

/// Says if the socket of a session was diagnosed, so that the cause of the stall is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Diagnosis {
    /// The cause is known.
    Done,
    /// There is no socket, so the cause is not known.
    NoSocket,
}

/// Returns the whole dump, as lines.
pub(super) fn render(
    expiry: &ExpiryInspection,
    statistics: &ExpiryStatistics,
    shards: Vec<ShardInspection>,
    now: Instant,
) -> String {
    let mut text = String::new();
    let put = &mut text;
    // Writing to a string cannot fail.
    let _ = heading(put, now)
        .and_then(|()| queue(put, expiry, statistics, now))
        .and_then(|()| threads(put, expiry, &shards, now))
        .and_then(|()| sessions(put, shards, now));
    text
}

fn heading(put: &mut String, now: Instant) -> fmt::Result {
    let (unix_ms, up) = (clock::unix_millis(), seconds(now.since(Instant::ZERO)));
    writeln!(put, "homing {}: dump at {unix_ms} ms since 1970, up {up}", env!("CARGO_PKG_VERSION"))
}

fn queue(
    put: &mut String,
    expiry: &ExpiryInspection,
    statistics: &ExpiryStatistics,
    now: Instant,
) -> fmt::Result {
    let (keys, buckets, interval) = (expiry.keys, expiry.buckets.len(), expiry.interval.as_millis());
    writeln!(put, "expiry queue: {keys} keys in {buckets} buckets of {interval} ms")?;
    write!(put, "  due in")?;
    for ahead in AHEAD {
        let until = now + Duration::from_secs(ahead);
        let due: usize = expiry.buckets.iter().filter(|(end, _)| *end <= until).map(|(_, size)| size).sum();
        write!(put, "  {ahead} s: {due}")?;
    }
    writeln!(put)?;
    write!(put, "  next buckets")?;
    for (end, size) in expiry.buckets.iter().take(BUCKETS) {
        write!(put, "  in {}: {size}", seconds(end.since(now)))?;
    }
    writeln!(put)?;
    write!(put, "  fired since the start")?;
    for kind in DeadlineKind::ALL {
        write!(put, "  {}: {}", kind.name(), statistics.fired(kind))?;
    }
    writeln!(put, "  in {} ticks", statistics.ticks())?;
    lateness(put, "ticks", &statistics.lateness)?;
    lateness(put, "expired deadlines in a shard's mailbox", &statistics.expired_lag)?;
    lateness(put, "registrations in the expiry actor's mailbox", &statistics.registration_lag)
}

fn lateness(put: &mut String, what: &str, late: &SharedHistogram) -> fmt::Result {
    let (max, p99) = (late.max().as_millis(), late.p99().as_millis());
    writeln!(put, "  late, {what}: at most {max} ms, 99 % below {p99} ms")
}

fn threads(
    put: &mut String,
    expiry: &ExpiryInspection,
    shards: &[ShardInspection],
    now: Instant,
) -> fmt::Result {
    for (number, (shard, registered)) in shards.iter().zip(&expiry.shards).enumerate() {
        let ShardSnapshot { connected, sessions, counters, .. } = &shard.snapshot;
        write!(put, "thread {number}: {} sockets, {connected} clients, {sessions} sessions", shard.open)?;
        let (redelivered, stalled, disconnected) =
            (counters.redelivered.total(), counters.stalled.total(), counters.disconnected);
        writeln!(put, "; redelivered {redelivered}, stalled {stalled}, disconnected {disconnected}")?;
        for kind in DeadlineKind::ALL {
            let RegisteredDeadlines { keys, first } = registered[kind as usize];
            if let Some(first) = first {
                let (name, first) = (kind.name(), seconds(first.since(now)));
                writeln!(put, "  {name:<12} {keys:>9} keys, the first in {first}")?;
            }
        }
    }
    Ok(())
}

fn sessions(put: &mut String, shards: Vec<ShardInspection>, now: Instant) -> fmt::Result {
    let mut waiting: Vec<_> = shards.into_iter().flat_map(|shard| shard.waiting).collect();
    waiting.sort_by_key(|(waiting, _)| std::cmp::Reverse(waiting.stall.age));
    waiting.truncate(SESSIONS);
    if waiting.is_empty() {
        return writeln!(put, "no session has anything unacknowledged");
    }
    writeln!(put, "sessions with the oldest unacknowledged messages, {SESSIONS} at most:")?;
    waiting.iter().try_for_each(|(waiting, diagnosis)| session(put, waiting, *diagnosis, now))
}

fn session(put: &mut String, waiting: &LongestWait, diagnosis: Diagnosis, now: Instant) -> fmt::Result {
    let Stall { packet_id, age, transmissions, cause, view, .. } = waiting.stall;
    let row = &waiting.session;
    let (client_id, id) = (ClientText(&row.client_id), packet_id.get());
    match row.connection {
        Some(_) => write!(put, "  {client_id} ({}): ", row.version)?,
        None => write!(put, "  {client_id} (away): ")?,
    }
    match &waiting.message {
        Some(message) => {
            let (qos, topic) = (message.qos as u8, ClientText(&message.topic));
            write!(put, "PUBLISH {id}, QoS {qos}, topic {topic}")?;
        }
        None => write!(put, "PUBREL {id}")?,
    }
    write!(put, ", for {}{}, sent {transmissions}x", age.over(), seconds(age.least))?;
    if diagnosis == Diagnosis::Done {
        write!(put, "; {}: {}", cause.holder(), waiting.stall.detail())?;
        if view.unsent > 0 {
            write!(put, " ({} bytes unsent)", view.unsent)?;
        }
    }
    if !row.due.is_never() {
        write!(put, "; next deadline in {}", seconds(row.due.since(now)))?;
    }
    writeln!(put, "; {} in flight, {} queued", row.in_flight, row.queued)
}

fn seconds(duration: Duration) -> String {
    format!("{:.3} s", duration.as_secs_f64())
}
