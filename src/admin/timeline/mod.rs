//! The timeline of redelivery: the fate, in the last 15 minutes, of messages that clients did not
//! acknowledge in time.
//!
//! The shards send moments through one bounded channel. A task on the thread of the interface takes
//! them into a ring. While a client has an overdue message, the task asks its shard once a second
//! if the message is acknowledged. Without such clients the task sleeps.

pub(super) mod collector;

use crate::broker::events::moments::{MomentKind, TimelineMoment};
use crate::clock;
use crate::time::{Instant, millis};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::broadcast;

/// Time for which a moment is kept.
pub(super) const KEPT: Duration = Duration::from_mins(15);

/// Moments that are kept at most. The oldest make room.
const MOMENTS: usize = 2_000;

/// Bytes of client identifiers and texts that are kept at most.
const BYTES: usize = 1 << 20;

/// Clients with an overdue message that the task follows at most.
const FOLLOWED: usize = 256;

/// Clients that the task asks for in one second.
const ASKED: usize = 8;

/// Moments that a live page may be behind before it is told so.
const BEHIND: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NumberedMoment {
    /// Counts up from 1.
    pub(super) number: u64,
    pub(super) moment: TimelineMoment,
}

/// The moments of the last 15 minutes, and the watchers of new moments.
pub(super) struct Timeline {
    ring: Mutex<MomentRing>,
    watchers: broadcast::Sender<Arc<NumberedMoment>>,
    /// The time of the start, in milliseconds since 1970: it tells processes apart.
    process: u64,
}

impl Default for Timeline {
    fn default() -> Timeline {
        let process = clock::unix_millis();
        Timeline { ring: Mutex::default(), watchers: broadcast::Sender::new(BEHIND), process }
    }
}

impl Timeline {
    /// Returns the moments behind the number `after`, the oldest first.
    pub(super) fn since(&self, after: u64) -> Vec<Arc<NumberedMoment>> {
        let mut ring = self.ring();
        ring.forget(clock::unix_millis());
        ring.entries.iter().filter(|entry| entry.number > after).cloned().collect()
    }

    /// Returns the moments of one client, the oldest first.
    pub(super) fn of_client(&self, client_id: &str) -> Vec<Arc<NumberedMoment>> {
        let all = self.since(0);
        all.into_iter().filter(|entry| *entry.moment.client_id == *client_id).collect()
    }

    /// Returns the new moments from now on.
    pub(super) fn watch(&self) -> broadcast::Receiver<Arc<NumberedMoment>> {
        self.watchers.subscribe()
    }

    /// Returns the id of the event of a moment, for `Last-Event-ID`.
    pub(super) fn id_of(&self, number: u64) -> String {
        format!("{:x}-{number}", self.process)
    }

    /// Returns the number of an id. An id of another process counts as 0, so that its reader gets
    /// every moment.
    pub(super) fn number_of(&self, id: &str) -> u64 {
        let number = id.strip_prefix(&format!("{:x}-", self.process)).and_then(|rest| rest.parse().ok());
        number.unwrap_or(0)
    }

    /// Takes a moment in, and passes it on to the watchers.
    fn take(&self, now: Instant, moment: TimelineMoment) {
        let entry = self.ring().take(now, moment);
        if let Some(entry) = entry {
            // Nobody may watch.
            let _ = self.watchers.send(entry);
        }
    }

    fn ring(&self) -> MutexGuard<'_, MomentRing> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The moments, and the clients that have an overdue message.
#[derive(Default)]
struct MomentRing {
    entries: VecDeque<Arc<NumberedMoment>>,
    bytes: usize,
    last: u64,
    /// The time of the first moment of each client whose message is still overdue.
    overdue: HashMap<Box<str>, Instant>,
    /// The clients that the task asks for next.
    to_ask: VecDeque<Box<str>>,
}

impl MomentRing {
    /// Takes a moment in. Returns `None` if it is about a connection of a client that has nothing
    /// overdue.
    fn take(&mut self, now: Instant, moment: TimelineMoment) -> Option<Arc<NumberedMoment>> {
        let is_followed = self.overdue.contains_key(&moment.client_id);
        match moment.kind {
            _ if moment.is_overdue => self.follow(now, &moment.client_id),
            MomentKind::Disconnected | MomentKind::Returned if !is_followed => return None,
            MomentKind::Acknowledged => drop(self.overdue.remove(&moment.client_id)),
            _ => {}
        }
        self.last += 1;
        self.bytes += size_of_moment(&moment);
        let unix_ms = moment.unix_ms;
        let entry = Arc::new(NumberedMoment { number: self.last, moment });
        self.entries.push_back(Arc::clone(&entry));
        self.forget(unix_ms);
        Some(entry)
    }

    fn follow(&mut self, now: Instant, client_id: &str) {
        if self.overdue.len() < FOLLOWED && !self.overdue.contains_key(client_id) {
            self.overdue.insert(client_id.into(), now);
            self.to_ask.push_back(client_id.into());
        }
    }

    /// Removes moments beyond the age or the number.
    fn forget(&mut self, unix_ms: u64) {
        let oldest = unix_ms.saturating_sub(millis(KEPT));
        while let Some(first) = self.entries.front()
            && (first.moment.unix_ms < oldest || self.entries.len() > MOMENTS || self.bytes > BYTES)
        {
            self.bytes -= size_of_moment(&first.moment);
            self.entries.pop_front();
        }
    }

    /// Returns the next clients to ask for, each with the time since which it has something
    /// overdue.
    fn next_to_ask(&mut self) -> Vec<(Box<str>, Instant)> {
        let mut asked = Vec::new();
        for _ in 0..self.to_ask.len() {
            if asked.len() == ASKED {
                break;
            }
            let Some(client_id) = self.to_ask.pop_front() else { break };
            if let Some(since) = self.overdue.get(&client_id) {
                asked.push((client_id.clone(), *since));
                self.to_ask.push_back(client_id);
            }
        }
        asked
    }
}

fn size_of_moment(moment: &TimelineMoment) -> usize {
    size_of::<NumberedMoment>() + moment.client_id.len() + moment.text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(unix_ms: u64, client_id: &str, kind: MomentKind) -> TimelineMoment {
        let is_overdue = matches!(kind, MomentKind::Stalled | MomentKind::Redelivered);
        TimelineMoment { unix_ms, client_id: client_id.into(), kind, is_overdue, text: "text".into() }
    }

    fn at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }

    #[test]
    fn connections_are_kept_only_for_clients_with_an_overdue_message() {
        let mut ring = MomentRing::default();
        assert!(ring.take(at(1), moment(1, "a", MomentKind::Returned)).is_none());
        assert!(ring.take(at(2), moment(2, "a", MomentKind::Stalled)).is_some());
        assert!(ring.take(at(3), moment(3, "a", MomentKind::Disconnected)).is_some());
        assert!(ring.take(at(4), moment(4, "b", MomentKind::Disconnected)).is_none());
        assert_eq!(ring.next_to_ask(), [("a".into(), at(2))]);
        assert!(ring.take(at(5), moment(5, "a", MomentKind::Acknowledged)).is_some());
        assert!(ring.next_to_ask().is_empty() && ring.to_ask.is_empty());
        assert!(ring.take(at(6), moment(6, "a", MomentKind::Returned)).is_none());
        let numbers: Vec<u64> = ring.entries.iter().map(|entry| entry.number).collect();
        assert_eq!(numbers, [1, 2, 3]);
    }

    #[test]
    fn a_disconnect_for_a_missing_acknowledgement_is_kept_and_its_client_is_asked_for() {
        let mut ring = MomentRing::default();
        let disconnected = moment(1, "a", MomentKind::Disconnected);
        assert!(ring.take(at(1), TimelineMoment { is_overdue: true, ..disconnected }).is_some());
        assert_eq!(ring.next_to_ask(), [("a".into(), at(1))]);
    }

    #[test]
    fn the_ring_forgets_what_is_old_and_what_is_too_much() {
        let mut ring = MomentRing::default();
        ring.take(at(0), moment(0, "a", MomentKind::Stalled));
        ring.take(at(900), moment(900_001, "a", MomentKind::Stalled));
        assert_eq!(ring.entries.len(), 1);
        for n in 0..3_000 {
            ring.take(at(901), moment(901_000, &format!("c{n}"), MomentKind::Redelivered));
        }
        assert_eq!((ring.entries.len(), ring.overdue.len()), (MOMENTS, FOLLOWED));
        let long = "x".repeat(1_000);
        for _ in 0..3_000 {
            ring.take(at(902), moment(902_000, &long, MomentKind::Redelivered));
        }
        assert!(ring.bytes <= BYTES && ring.entries.len() > 100);
        let in_use: usize = ring.entries.iter().map(|entry| size_of_moment(&entry.moment)).sum();
        assert_eq!(in_use, ring.bytes);
    }
}
