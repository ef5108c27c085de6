//! The logins that wait for a thread, and the cost of their checks.
//!
//! A login enters only if all work before it and its own fit into `auth.timeout`. One login of each
//! kind of check enters even if its own work alone does not fit. Its check is the only measurement
//! that can lower an average which a busy machine has raised.

use super::checks::{ChainPlace, CheckCost};
use super::decided::{Decided, Proof};
use crate::login::authentication::{AuthDecision, AuthRequest};
use crate::time::Instant;
use actix::Recipient;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

/// Bytes of names and passwords that may wait.
pub(super) const QUEUED_BYTES: usize = 16 << 20;

/// The part of a new measurement in the average, as one in so many.
const SMOOTHING: f64 = 8.0;

/// A login that is being decided.
pub(super) struct AuthJob {
    /// The credentials.
    pub(super) request: AuthRequest,
    /// The bytes that the client sent.
    pub(super) bytes: usize,
    /// The time at which the shard decides by itself.
    pub(super) due: Instant,
    /// The client's address; `None` for a Unix socket.
    pub(super) peer: Option<IpAddr>,
    /// The address whose failures count; `None` for a client on this machine, and for one whose
    /// address only its proxy knows.
    pub(super) address: Option<IpAddr>,
    /// The shard that waits.
    pub(super) reply: Recipient<Decided>,
}

pub(super) struct QueuedJob {
    pub(super) job: Box<AuthJob>,
    /// The next method.
    pub(super) place: ChainPlace,
    /// The time that its checks will take.
    expected: Duration,
    kinds: CheckKinds,
}

/// The part of the queue's bounds that one login takes until its checks are done.
#[derive(Clone, Copy)]
pub(super) struct QueueShare {
    expected: Duration,
    kinds: CheckKinds,
    bytes: usize,
}

/// The kinds of check that a login needs, by [`CheckCost::place`].
#[derive(Clone, Copy, Debug)]
struct CheckKinds([bool; CheckCost::KINDS]);

/// The logins that wait for a thread.
#[derive(Default)]
pub(super) struct AuthQueue {
    jobs: VecDeque<QueuedJob>,
    /// The time that the jobs will take on one thread.
    pending: Duration,
    /// For each kind of check, the logins that need it and are not decided.
    pending_kinds: [usize; CheckCost::KINDS],
    bytes: usize,
    averages: Averages,
    stopping: bool,
}

/// For each kind of check, the measured time as a multiple of the estimate.
#[derive(Clone, Copy, Debug)]
struct Averages([f64; CheckCost::KINDS]);

impl AuthJob {
    /// Sends a decision that rests on no file.
    pub(super) fn decided(&self, decision: AuthDecision) {
        self.proven(decision, None);
    }

    /// Sends a decision with the file on which it rests.
    pub(super) fn proven(&self, decision: AuthDecision, proof: Option<Proof>) {
        self.reply.do_send(Decided { connection: self.request.connection, decision, proof });
    }
}

impl QueuedJob {
    /// Returns its part of the bounds.
    pub(super) fn share(&self) -> QueueShare {
        QueueShare { expected: self.expected, kinds: self.kinds, bytes: self.job.bytes }
    }
}

impl CheckKinds {
    fn of(costs: &[CheckCost]) -> CheckKinds {
        let mut kinds = [false; CheckCost::KINDS];
        for cost in costs {
            kinds[cost.place()] = true;
        }
        CheckKinds(kinds)
    }

    /// Returns the number of pending logins of each kind that is needed, to change it.
    fn counts(self, pending: &mut [usize; CheckCost::KINDS]) -> impl Iterator<Item = &mut usize> {
        pending.iter_mut().zip(self.0).filter_map(|(count, is_needed)| is_needed.then_some(count))
    }
}

impl AuthQueue {
    /// Puts a login at the end, whose checks cost so much. `workers` threads share the work.
    /// Errors: the login, if the work before it takes longer than `timeout`, if its own work does
    /// not fit into the rest and others of its kind are pending, or if it takes too many bytes.
    pub(super) fn push(
        &mut self,
        job: Box<AuthJob>,
        place: ChainPlace,
        costs: &[CheckCost],
        timeout: Duration,
        workers: u32,
    ) -> Result<(), Box<AuthJob>> {
        let expected: Duration = costs.iter().map(|cost| self.averages.expected(*cost)).sum();
        let kinds = CheckKinds::of(costs);
        let wait = self.pending / workers;
        // A refused login is not measured. So an average above the timeout would refuse its kind
        // until a restart, long after the load that raised the average is gone. One login of the
        // kind at a time is checked nevertheless, and measures. An average that decays with time
        // would need a clock and a rate, and would admit a burst of logins that are too slow. At
        // most one login of each kind exceeds the bound, so the queue stays bounded in time.
        let measures = wait <= timeout && kinds.counts(&mut self.pending_kinds).any(|count| *count == 0);
        let fits = wait + expected <= timeout || measures;
        if !fits || self.bytes + job.bytes > QUEUED_BYTES {
            return Err(job);
        }
        self.pending += expected;
        self.bytes += job.bytes;
        kinds.counts(&mut self.pending_kinds).for_each(|count| *count += 1);
        self.jobs.push_back(QueuedJob { job, place, expected, kinds });
        Ok(())
    }

    /// Removes and returns the first login. Its work counts as pending until [`AuthQueue::done`].
    pub(super) fn pop(&mut self) -> Option<QueuedJob> {
        self.jobs.pop_front()
    }

    /// Notes that the checks of a login are done, and how long each of them took.
    pub(super) fn done(&mut self, share: QueueShare, took: &[(CheckCost, Duration)]) {
        self.pending = self.pending.saturating_sub(share.expected);
        self.bytes -= share.bytes;
        share.kinds.counts(&mut self.pending_kinds).for_each(|count| *count -= 1);
        for (cost, took) in took {
            self.averages.add(*cost, *took);
        }
    }

    /// Ends the threads.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
    }

    /// Returns true if the threads have to end.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping
    }
}

impl Default for Averages {
    fn default() -> Averages {
        Averages([1.0; CheckCost::KINDS])
    }
}

impl Averages {
    /// Returns the expected time of a check, if known.
    fn expected(&self, cost: CheckCost) -> Duration {
        cost.estimate().mul_f64(self.0[cost.place()])
    }

    fn add(&mut self, cost: CheckCost, took: Duration) {
        let factor = took.as_secs_f64() / cost.estimate().as_secs_f64();
        let average = &mut self.0[cost.place()];
        // A thread that was not scheduled for a while must not raise the average for long.
        *average += (factor.clamp(0.01, 100.0) - *average) / SMOOTHING;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::password::hash::{HashCost, HashKind};

    #[test]
    fn the_queue_takes_what_fits_into_the_timeout() {
        let mut averages = Averages::default();
        let cost = CheckCost::Hash(HashCost { kind: HashKind::Argon2, estimated_us: 40_000 });
        assert_eq!(averages.expected(cost), Duration::from_millis(40));
        for _ in 0..100 {
            averages.add(cost, Duration::from_millis(80));
        }
        assert!(averages.expected(cost) > Duration::from_millis(79));
        let other = CheckCost::Hash(HashCost { kind: HashKind::Sha512, estimated_us: 10 });
        assert_eq!(averages.expected(other), Duration::from_micros(10));
    }
}
