//! The budget of one turn, and the work that continues in a later turn.
//!
//! A turn is what a thread does without polling its sockets. One turn handles one connection's
//! task, one message to the shard, or one run of the flusher. The driver begins each turn
//! ([`Shard::begin_turn`]). All work that a client can make grow charges steps to the turn. When
//! the steps are used up, no further packet is begun, and loops over many things stop. The rest
//! becomes a `Job`, and [`Shard::work`] continues it in the next run of the flusher. `io.rs` has
//! the order in which a turn carries out its effects.
//!
//! # Writing a job
//!
//! 1. A loop over many things charges one step for each (`Turn::charge`).
//! 2. After each thing the loop asks [`Turn::is_over`], so that each portion makes progress.
//! 3. If the loop stops early, it pauses the connection that waits for it with [`Pause::Work`], and
//!    calls `Shard::later` with its position.
//! 4. [`Shard::work`] calls the job again with a portion of a turn. The job returns what is left of
//!    it, or ends the pause (`Shard::unpause`).
//!
//! Anything may change between two portions. So a job names connections and sessions with their
//! generation, and looks each of them up again.

use crate::shard::Shard;
use crate::shard::connection::Pause;
use crate::shard::ended::EndedSession;
use crate::shard::slots::ConnectionId;
use crate::shard::suback::RetainedDelivery;
use crate::shard::subscribe::SubscribeRequest;
use crate::time::Instant;
use std::collections::VecDeque;

/// Steps of a turn. One step handles a small packet, delivers a message, visits a node of the
/// subscription tree, or inserts a filter. A step took 20 to 250 ns on the machines of the
/// measurement. So a turn of 10,000 steps takes 0.2 to 2.5 ms; the promise is 5 ms.
pub const STEPS_PER_TURN: u32 = 10_000;

/// Steps that one write to a socket costs: a system call of 1 to 3 us.
const WRITE: u32 = 16;

/// Bytes that are copied for one step.
const BYTES: usize = 1024;

/// A job gets one part in `PORTIONS` of a turn, then the next job gets its part.
pub(super) const PORTIONS: u32 = 4;

/// The budget of the present turn, in steps.
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
}

impl Turn {
    pub(super) fn new(most: u32) -> Turn {
        Turn { steps: 0, until: most, most, longest: 0, late: 0 }
    }

    fn begin(&mut self) {
        self.longest = self.longest.max(self.steps);
        self.steps = 0;
        self.until = self.most;
    }

    /// Counts steps. The caller may do so before or after the work.
    pub(super) fn charge(&mut self, steps: u32) {
        self.steps = self.steps.saturating_add(steps);
    }

    /// Counts a packet. No packet may begin in a turn that is over; the tests check this.
    pub(super) fn begin_packet(&mut self) {
        self.late += u32::from(self.is_over());
        self.charge(1);
    }

    /// Counts copied bytes.
    pub(super) fn charge_bytes(&mut self, bytes: usize) {
        self.charge(u32::try_from(bytes / BYTES).unwrap_or(u32::MAX));
    }

    /// Counts one write to a socket.
    pub(super) fn charge_write(&mut self, bytes: usize) {
        self.charge(WRITE);
        self.charge_bytes(bytes);
    }

    /// Returns true if nothing further may begin in this turn.
    pub fn is_over(&self) -> bool {
        self.steps >= self.until
    }

    /// Returns the steps that one publication may take at once. These are the steps that are left,
    /// but at least a portion, so that each publication makes progress.
    pub(super) fn at_once(&self) -> u32 {
        self.left().max(self.most / PORTIONS)
    }

    /// Returns the steps that are left.
    pub fn left(&self) -> u32 {
        self.until.saturating_sub(self.steps)
    }
}

/// Work that continues in a later turn.
#[derive(Debug)]
pub(super) enum Job {
    /// The connection's packets used up a turn: continues to read it.
    Read(ConnectionId),
    /// Publishes delayed messages that are due.
    Delayed,
    /// Handles sessions with an expired deadline.
    Due,
    /// Inserts or removes the filters of a SUBSCRIBE or UNSUBSCRIBE.
    Request(Box<SubscribeRequest>),
    /// Queues the retained messages for a SUBSCRIBE.
    Retained(Box<RetainedDelivery>),
    /// Hands on what an ended session leaves.
    End(Box<EndedSession>),
}

impl Shard {
    /// Begins a turn. The driver calls this before it polls a connection, before it passes a
    /// message in, and in the flusher.
    pub fn begin_turn(&mut self) {
        self.turn.begin();
    }

    /// Returns the largest number of steps of a turn since the last call, and the number of packets
    /// that began after their turn was over. The second number must be 0. For tests.
    pub fn take_longest_turn(&mut self) -> (u32, u32) {
        let longest = std::mem::take(&mut self.turn.longest).max(self.turn.steps);
        (longest, std::mem::take(&mut self.turn.late))
    }

    /// Returns true if there is work for [`Self::work`]. The sockets are polled first.
    pub fn has_jobs(&self) -> bool {
        !self.jobs.is_empty() || self.fans.any()
    }

    /// Returns true if a publication takes more than one turn, and is not complete. For tests.
    pub fn is_fanning(&self) -> bool {
        self.fans.present.is_some()
    }

    /// Continues what earlier turns left. Each job gets a portion of this turn, in the order in
    /// which the jobs were put off, until the turn is over.
    pub fn work(&mut self, now: Instant) {
        let turn = self.turn.most;
        if !self.dead_letters.is_empty() {
            // The store gets no batch until they are published.
            self.turn.until = turn.div_ceil(PORTIONS);
            self.publish_dead_letters(now);
        }
        if self.fans.any() {
            // A large publication gets what the jobs leave, because other publications wait for it.
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

    /// Runs one portion of a job. Returns what is left of the job, or `None` if it is complete.
    fn go_on(&mut self, now: Instant, job: Job) -> Option<Job> {
        match job {
            Job::Read(id) => {
                self.turn.charge(1);
                self.unpause(now, id, Pause::Turn);
                None
            }
            Job::Delayed => self.publish_due(now),
            Job::Due => self.go_on_with_due(now),
            Job::End(ended) => self.go_on_with_end(now, ended),
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

    /// Reads the connection again if nothing is left of the work that it waits for. Returns the
    /// rest of the work.
    fn end_pause(&mut self, now: Instant, id: ConnectionId, left: Option<Job>) -> Option<Job> {
        if left.is_none() {
            self.unpause(now, id, Pause::Work);
        }
        left
    }

    /// Puts off a job to a later turn.
    pub(super) fn later(&mut self, job: Job) {
        self.jobs.push_back(job);
    }

    /// Pauses a connection whose packets used up the turn, and continues with it in a later turn.
    pub(super) fn read_later(&mut self, now: Instant, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if !connection.pauses.has(Pause::Turn) {
            connection.pause(Pause::Turn, now);
            self.later(Job::Read(id));
        }
    }
}

/// Jobs in the order in which they were put off.
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
