//! The budget of one turn, and work that goes on in a later one.
//!
//! A turn is what the arbiter does without a look at its sockets: one connection that is polled, one message to the shard, or
//! one run of the flusher. The shell says when one begins ([`Shard::begin_turn`]). Everything that grows with what a client
//! can make grow charges steps to it. When they are used up, no further packet is begun, and work over many things stops:
//! what is left becomes a `Job`, which [`Shard::work`] goes on with in the next run of the flusher.
//!
//! How to write a job: a loop over many things charges one step for each (`Turn::charge`) and asks [`Turn::is_over`] after
//! it, so that each portion makes progress. If it stops early, it pauses the connection that waits for it with
//! [`Pause::Work`], and calls `Shard::later` with where it stands. [`Shard::work`] calls it again, with a portion of a turn
//! of its own; it answers with the job that is left, or ends the pause (`Shard::unpause`). In between anything may change:
//! a job names connections and sessions by their generation, and looks each up anew.

use super::connection::Pause;
use super::suback::Retaining;
use super::subscribe::Request;
use super::{ConnectionId, Shard};
use crate::time::Instant;
use std::collections::VecDeque;

/// Steps of a turn. A step is about as much as a small packet that is handled, a message that is delivered, a node of the
/// subscription index that is visited, or a filter that is entered: 20 to 250 ns on the machines that this was measured on.
/// So a turn of 10,000 takes 0.2 to 2.5 ms; 5 ms are promised.
pub const STEPS_PER_TURN: u32 = 10_000;

/// Steps that one write to a socket counts for: a system call of 1 to 3 us.
const WRITE: u32 = 16;

/// Bytes that are copied for the price of a step.
const BYTES: usize = 1024;

/// A job has this part of a turn before the next one has its.
pub(super) const PORTIONS: u32 = 4;

/// Steps of the present turn.
#[derive(Debug)]
pub struct Turn {
    /// Used so far.
    steps: u32,
    /// When the turn, or the portion of a job, is over.
    until: u32,
    /// Of a whole turn.
    most: u32,
    /// The most that any turn used, since last asked.
    longest: u32,
    /// Packets that were begun after it was over.
    late: u32,
}

impl Turn {
    pub(super) fn new(most: u32) -> Turn {
        Turn { steps: 0, until: most, most, longest: 0, late: 0 }
    }

    fn begin(&mut self) {
        self.steps = 0;
        self.until = self.most;
    }

    /// Counts steps; before or after what they are for.
    pub(super) fn charge(&mut self, steps: u32) {
        self.steps = self.steps.saturating_add(steps);
        self.longest = self.longest.max(self.steps);
    }

    /// Counts a packet, which is not begun in a turn that is over.
    pub(super) fn begin_packet(&mut self) {
        self.late += u32::from(self.is_over());
        self.charge(1);
    }

    /// Counts bytes that are copied.
    pub(super) fn charge_bytes(&mut self, bytes: usize) {
        self.charge(u32::try_from(bytes / BYTES).unwrap_or(u32::MAX));
    }

    /// Counts one write to a socket.
    pub(super) fn charge_write(&mut self, bytes: usize) {
        self.charge(WRITE);
        self.charge_bytes(bytes);
    }

    /// Whether nothing further is to be begun.
    pub fn is_over(&self) -> bool {
        self.steps >= self.until
    }

    /// Steps that are left.
    pub fn left(&self) -> u32 {
        self.until.saturating_sub(self.steps)
    }
}

/// Work that goes on in a later turn.
#[derive(Debug)]
pub(super) enum Job {
    /// The connection's packets used up a turn: it is read on.
    Read(ConnectionId),
    /// Messages whose time has come are published.
    Delayed,
    /// Filters of a SUBSCRIBE or UNSUBSCRIBE are entered or taken out.
    Request(Box<Request>),
    /// Retained messages that a SUBSCRIBE asked for are queued.
    Retained(Box<Retaining>),
}

impl Shard {
    /// A connection is polled, a message to the shard is taken up, or the flusher runs.
    pub fn begin_turn(&mut self) {
        self.turn.begin();
    }

    /// The present turn.
    pub fn turn(&self) -> &Turn {
        &self.turn
    }

    /// The most steps that any turn used since this was last asked, and how many packets were begun after their turn was over,
    /// which is none. For tests.
    pub fn take_longest_turn(&mut self) -> (u32, u32) {
        (std::mem::take(&mut self.turn.longest), std::mem::take(&mut self.turn.late))
    }

    /// Whether there is work for [`Self::work`]. Sockets are looked at before.
    pub fn has_jobs(&self) -> bool {
        !self.jobs.is_empty() || self.fans.any()
    }

    /// Whether a publication is under way that takes more than a turn. For tests.
    pub fn is_fanning(&self) -> bool {
        self.fans.present.is_some()
    }

    /// Goes on with what earlier turns left: each job has a portion of this turn, in the order in which they were put off,
    /// until the turn is over. Called by the flusher before it flushes, in a turn of its own.
    pub fn work(&mut self, now: Instant) {
        let turn = self.turn.most;
        if self.fans.any() {
            // It has what the others leave, and they wait for it.
            let others = turn.div_ceil(PORTIONS) * u32::from(!self.jobs.is_empty());
            self.turn.until = (turn - others).max(1);
            self.go_on_with_fans(now);
        }
        for _ in 0..self.jobs.len() {
            if self.turn.steps >= turn {
                break;
            }
            let Some(job) = self.jobs.pop_front() else { break };
            self.turn.until = (self.turn.steps + turn.div_ceil(PORTIONS)).min(turn);
            if let Some(left) = self.go_on(now, job) {
                self.jobs.push_back(left);
            }
        }
        self.turn.until = turn;
    }

    /// One portion of a job; what is left of it.
    fn go_on(&mut self, now: Instant, job: Job) -> Option<Job> {
        match job {
            Job::Read(id) => {
                self.turn.charge(1);
                self.unpause(now, id, Pause::Turn);
                None
            }
            Job::Delayed => self.publish_due(now),
            Job::Request(request) => {
                let connection = request.connection;
                let left = self.go_on_with_request(now, request);
                self.end_pause(now, connection, left)
            }
            Job::Retained(retaining) => {
                let connection = retaining.connection;
                let left = self.go_on_with_retained(now, retaining);
                self.end_pause(now, connection, left)
            }
        }
    }

    /// If nothing is left of the work that a connection waits for, it is read again.
    fn end_pause(&mut self, now: Instant, id: ConnectionId, left: Option<Job>) -> Option<Job> {
        if left.is_none() {
            self.unpause(now, id, Pause::Work);
        }
        left
    }

    /// Work that goes on in a later turn.
    pub(super) fn later(&mut self, job: Job) {
        self.jobs.push_back(job);
    }

    /// The turn is used up: this connection's packets are handled in a later one.
    pub(super) fn read_later(&mut self, now: Instant, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if !connection.pauses.has(Pause::Turn) {
            connection.pause(Pause::Turn, now);
            self.later(Job::Read(id));
        }
    }
}

/// Jobs in their order.
pub(super) type Jobs = VecDeque<Job>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_over_when_its_steps_are_used_up_and_begins_with_none_used() {
        let mut turn = Turn::new(20);
        turn.charge(3);
        turn.charge_bytes(10 * 1024);
        assert_eq!((turn.is_over(), turn.left()), (false, 7));
        turn.charge_write(0);
        assert!(turn.is_over());
        turn.begin();
        assert_eq!(turn.left(), 20);
        turn.charge(u32::MAX);
        turn.charge(1);
        assert!(turn.is_over());
    }
}
