//! The budget of a turn, the work for its end, and the work that continues in a later turn.
//!
//! A turn is the work of a thread between two polls of its sockets. A turn handles one connection's
//! task, one message to the shard, or one run of the flusher. The driver begins each turn
//! ([`crate::shard::Shard::begin_turn`]). All work that a client can make grow spends steps of the
//! turn. When the steps are used up, no further packet is begun, and loops over many things stop.
//! The rest becomes a `Job` (`work.rs`), which continues in the next run of the flusher. `io.rs`
//! has the order in which a turn carries out its effects.

pub(crate) mod commits;
pub mod effects;
pub(crate) mod flow;
pub mod io;
pub(crate) mod scratch;
pub(crate) mod work;

use crate::access::permit::Decision;
use crate::slots::{ConnectionId, SessionId};

/// Steps of a turn. One step handles a small packet, delivers a message, visits a node of the
/// subscription tree, or inserts a filter. A step took 20 to 250 ns on the machines of the
/// measurement. So a turn of 10,000 steps takes 0.2 to 2.5 ms; the promise is 5 ms.
pub const STEPS_PER_TURN: u32 = 10_000;

/// Steps that one write to a socket costs: a system call of 1 to 3 us.
const WRITE: u32 = 16;

/// Bytes that are copied for one step.
const BYTES: usize = 1024;

/// Bytes of a packet, without the payload of a PUBLISH, that are decoded for one step: 25 to 60 of
/// the smallest properties or filters. These bytes take 0.3 to 0.7 us.
const DECODED: usize = 128;

/// Bytes of a filter that is added to the subscription tree, or removed from it, for one step.
/// Among 1,000,000 filters a new one of 25 bytes takes 2 to 3 us, which is 7 steps. A removal
/// visits the same nodes.
const FILTER_BYTES: usize = 4;

/// Bytes of a name that globs look at for one step: an automaton takes 2 ns for each.
const GLOB_BYTES: usize = 64;

/// Steps for one microsecond, where the time of the work is known.
const MICROSECOND: u64 = 4;

/// A job gets one part in `PORTIONS` of a turn, then the next job gets its part.
pub(crate) const PORTIONS: u32 = 4;

/// Returns the steps of globs that look at these bytes of names.
pub(crate) fn glob_steps(bytes: usize) -> u32 {
    u32::try_from(bytes / GLOB_BYTES).unwrap_or(u32::MAX)
}

/// The budget of the present turn, in steps, and the work for its end.
#[derive(Debug)]
pub struct Turn {
    /// Steps used so far.
    steps: u32,
    /// The turn, or the portion of a job, is over at this number of steps.
    until: u32,
    /// Steps of a whole turn.
    most: u32,
    /// The largest number of steps of an earlier turn, since the last call of `take_longest_turn`.
    longest: u32,
    /// Packets that were begun after the turn was over.
    late: u32,
    pub(super) after_deliveries: AfterDeliveries,
}

/// Receivers that deliveries found full. Such receivers are handled at the end of the turn, because
/// a will or an acknowledgement would lead to another publication in the midst of the present one.
#[derive(Debug, Default)]
pub(crate) struct AfterDeliveries {
    /// Receivers to disconnect, under the policy `disconnect`.
    pub overfull: Vec<ConnectionId>,
    /// Receivers whose queue may have room for held messages.
    pub to_admit: Vec<SessionId>,
    /// Connected receivers that lost as many messages of their queues as one turn drops. Messages
    /// behind these may have to be sent.
    pub to_send: Vec<SessionId>,
}

impl AfterDeliveries {
    /// Returns true without such a receiver.
    pub(crate) fn is_empty(&self) -> bool {
        self.overfull.is_empty() && self.to_admit.is_empty() && self.to_send.is_empty()
    }
}

impl Turn {
    /// Returns the budget of turns of `most` steps.
    pub(crate) fn new(most: u32) -> Turn {
        Turn {
            steps: 0,
            until: most,
            most,
            longest: 0,
            late: 0,
            after_deliveries: AfterDeliveries::default(),
        }
    }

    /// Begins a turn, with no steps used.
    pub(crate) fn begin(&mut self) {
        self.longest = self.longest.max(self.steps);
        self.steps = 0;
        self.until = self.most;
    }

    /// Counts steps. The caller may do so before or after the work.
    pub(crate) fn spend(&mut self, steps: u32) {
        self.steps = self.steps.saturating_add(steps);
    }

    /// Counts a packet. No packet may begin in a turn that is over; the tests check this.
    pub(crate) fn begin_packet(&mut self) {
        self.late += u32::from(self.is_over());
        self.spend(1);
    }

    /// Counts copied bytes.
    pub(crate) fn spend_bytes(&mut self, bytes: usize) {
        if bytes >= BYTES {
            self.spend_whole(bytes / BYTES);
        }
    }

    /// Counts decoded bytes: those of a packet without the payload of a PUBLISH.
    #[inline]
    pub(crate) fn spend_decoded(&mut self, bytes: usize) {
        if bytes >= DECODED {
            self.spend_whole(bytes / DECODED);
        }
    }

    /// Counts the whole steps of long copies and packets. A short one has none and does not come
    /// here: a call for each packet and each copy would be 1 % of a small message.
    #[cold]
    fn spend_whole(&mut self, steps: usize) {
        self.spend(u32::try_from(steps).unwrap_or(u32::MAX));
    }

    /// Counts the steps of a decision of the rules. Returns true if it granted.
    pub(crate) fn decide(&mut self, decision: Decision) -> bool {
        self.spend(decision.steps);
        decision.is_granted
    }

    /// Counts the rules that were compared for a reason. Returns the reason.
    pub(crate) fn explain(&mut self, (why, rules): (String, usize)) -> String {
        self.spend_whole(rules);
        why
    }

    /// Counts one filter that is added to the subscription tree, or removed from it.
    pub(crate) fn spend_filter(&mut self, filter: &str) {
        self.spend(1 + (filter.len() / FILTER_BYTES) as u32);
    }

    /// Counts the bytes of names that globs look at.
    pub(crate) fn spend_globs(&mut self, bytes: usize) {
        self.spend(glob_steps(bytes));
    }

    /// Returns the number of globs that may look at a name of this length at once: at least one, so
    /// that each search makes progress.
    pub(crate) fn globs_at_once(&self, name: usize) -> usize {
        (self.at_once() as usize * GLOB_BYTES / name.max(1)).max(1)
    }

    /// Counts work of which the time is known.
    pub(crate) fn spend_micros(&mut self, micros: u64) {
        self.spend(u32::try_from(micros.saturating_mul(MICROSECOND)).unwrap_or(u32::MAX));
    }

    /// Counts one write to a socket.
    pub(crate) fn spend_write(&mut self, bytes: usize) {
        self.spend(WRITE);
        self.spend_bytes(bytes);
    }

    /// Returns true if nothing further may begin in this turn.
    pub fn is_over(&self) -> bool {
        self.steps >= self.until
    }

    /// Returns the maximum number of steps of a publication at once. The result is the rest of the
    /// turn, but at least a portion, so that each publication makes progress.
    pub(crate) fn at_once(&self) -> u32 {
        self.left().max(self.most / PORTIONS)
    }

    /// Returns the number of steps, since the beginning of the turn, after which a publication
    /// stops: a portion from now on.
    pub(crate) fn portion_from_now(&self) -> u32 {
        self.steps.saturating_add(self.most / PORTIONS)
    }

    /// Returns true if more steps than `steps` were used since the beginning of the turn.
    #[inline]
    pub(crate) fn is_beyond(&self, steps: u32) -> bool {
        self.steps > steps
    }

    /// Returns the steps that are left.
    pub fn left(&self) -> u32 {
        self.until.saturating_sub(self.steps)
    }

    /// Begins a portion: the next job may use one part in `PORTIONS` of the turn.
    pub(crate) fn begin_portion(&mut self) {
        self.until = (self.steps + self.most.div_ceil(PORTIONS)).min(self.most);
    }

    /// Begins the portion of a large publication, which gets the steps left by the other `jobs`.
    pub(crate) fn begin_publication(&mut self, jobs: usize) {
        let others = self.most.div_ceil(PORTIONS) * u32::from(jobs > 0);
        self.until = (self.most - others).max(1);
    }

    /// Ends the portions. The rest of the turn has no limit but its own.
    pub(crate) fn end_portions(&mut self) {
        self.until = self.most;
    }

    /// Returns true if all steps of the turn are used, whatever the portion.
    pub(crate) fn is_used_up(&self) -> bool {
        self.steps >= self.most
    }

    /// Returns the largest number of steps of a turn since the last call, and the number of packets
    /// that began after their turn was over.
    pub(crate) fn take_longest(&mut self) -> (u32, u32) {
        let longest = std::mem::take(&mut self.longest).max(self.steps);
        (longest, std::mem::take(&mut self.late))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_over_when_its_steps_are_used_up_and_begins_with_none_used() {
        let mut turn = Turn::new(20);
        turn.spend(3);
        turn.spend_bytes(10 * 1024);
        assert_eq!((turn.is_over(), turn.left()), (false, 7));
        turn.spend_write(0);
        assert!(turn.is_over());
        turn.begin();
        assert_eq!(turn.left(), 20);
        turn.spend(u32::MAX);
        turn.spend(1);
        assert!(turn.is_over());
    }
}
