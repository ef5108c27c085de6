//! The gauges of a shard that need a look at each session: queues, windows and pauses.
//!
//! Nothing counts on the way of a message. Housekeeping walks `SLOTS` slots of sessions and of
//! connections in each second, and publishes the sums at the end of each walk. A shard with fewer
//! slots has new sums every second; a shard with 62,500 sessions has them every 16 s.

use crate::events::number_times::NumberTimes;
use crate::persistence::records::EntryNumber;
use crate::shard::clients::connections::Connections;
use crate::shard::clients::pause::Pause;
use crate::shard::clients::sessions::Sessions;
use crate::time::Instant;

/// Slots of each kind that one call looks at. A slot whose session is not in the cache costs about
/// 200 ns, and the head of its queue as much again, so a call takes less than 2 ms.
const SLOTS: u32 = 4_096;

/// The sums over all sessions and connections of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionTotals {
    /// Messages in flight.
    pub in_flight: u64,
    /// Messages in queues, in memory or in the store.
    pub queued: u64,
    /// Bytes of these messages.
    pub queued_bytes: u64,
    /// Messages that wait for room in a queue.
    pub held: u64,
    /// The time at which the oldest stored delivery of all queues was stored, late by 5 % of its
    /// age at most; `None` if none is stored, and [`Instant::ZERO`] for a time before the start.
    pub oldest_stored: Option<Instant>,
    paused: [u64; Pause::ALL.len()],
}

impl SessionTotals {
    /// Returns the number of connections whose requests wait for this cause.
    pub fn paused(&self, cause: Pause) -> u64 {
        self.paused[cause as usize]
    }

    /// Adds the sums of another shard.
    pub fn merge(&mut self, other: &SessionTotals) {
        // Without `..`: a new sum that is not added does not compile.
        let SessionTotals { in_flight, queued, queued_bytes, held, oldest_stored, paused } = other;
        self.in_flight += in_flight;
        self.queued += queued;
        self.queued_bytes += queued_bytes;
        self.held += held;
        self.oldest_stored = self.oldest_stored.into_iter().chain(*oldest_stored).min();
        self.paused.iter_mut().zip(paused).for_each(|(sum, more)| *sum += more);
    }
}

/// A walk over the slots of a shard, in stretches.
#[derive(Debug, Default)]
pub(crate) struct TotalsWalk {
    /// The next slot.
    next: u32,
    running: SessionTotals,
    /// The lowest number of a stored delivery in a queue so far.
    oldest: Option<EntryNumber>,
    /// The sums of the last whole walk.
    last: SessionTotals,
}

impl TotalsWalk {
    /// Walks one stretch.
    pub(crate) fn step(&mut self, sessions: &Sessions, connections: &Connections, times: &NumberTimes) {
        let end = sessions.end_of_slots().max(connections.end_of_slots());
        let until = end.min(self.next.saturating_add(SLOTS));
        for slot in self.next..until {
            if let Some((_, entry)) = sessions.at(slot) {
                let sender = &entry.session.sender;
                self.running.in_flight += sender.window.len() as u64;
                self.running.queued += sender.queue.len() as u64;
                self.running.queued_bytes += sender.queue.bytes() as u64;
                self.running.held += entry.held_messages() as u64;
                self.oldest = self.oldest.into_iter().chain(sender.queue.oldest_stored()).min();
            }
            if let Some(connection) = connections.at(slot).filter(|c| c.pauses.any()) {
                for cause in Pause::ALL.into_iter().filter(|cause| connection.pauses.has(*cause)) {
                    self.running.paused[cause as usize] += 1;
                }
            }
        }
        self.next = until;
        if until >= end {
            self.last = std::mem::take(&mut self.running);
            self.last.oldest_stored = self.oldest.take().map(|number| times.given(number));
            self.next = 0;
        }
    }

    /// Returns the sums of the last whole walk.
    pub(crate) fn last(&self) -> &SessionTotals {
        &self.last
    }
}
