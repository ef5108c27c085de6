//! The work that continues in a later turn: jobs, in the order in which they were put off.
//!
//! # Writing a job
//!
//! 1. A loop over many things spends one step for each
//!    ([`Turn::spend`](crate::shard::turn::Turn)).
//! 2. After each thing the loop checks [`Turn::is_over`](crate::shard::turn::Turn::is_over), so
//!    that each portion makes progress.
//! 3. If the loop stops early, it returns its position as a job. The caller passes the job to
//!    `Work::later`. If a client waits for the job, `Work::pause_for` pauses its connection.
//! 4. A later turn runs the job again with a portion of its steps. The job returns its rest;
//!    without a rest, the pause ends.
//!
//! Anything may change between two portions. So a job names connections and sessions with their
//! generation, and looks each of them up again. A job is data: the code that continues it is in
//! the file of its packet or feature.

use crate::peers::answer::RetainedDelivery;
use crate::shard::clients::connections::Connections;
use crate::shard::clients::ended_session::EndedSession;
use crate::shard::clients::pause::Pause;
use crate::shard::delivery::fans::Fans;
use crate::shard::subscriptions::subscribe_request::SubscribeRequest;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;
use std::collections::VecDeque;

/// Work that continues in a later turn.
#[derive(Debug)]
pub(crate) enum Job {
    /// Continues to read a connection that is paused for this cause: its packets used up a turn, or
    /// its next packet waited for the end of a large publication.
    Read(ConnectionId, Pause),
    /// Publishes delayed messages that are due.
    Delayed,
    /// Handles sessions with an expired deadline.
    Due,
    /// Releases outboxes and acknowledgements that waited for a commit which is done.
    Committed,
    /// Looks at the sessions in the slots from `from` on, because the rules of the ACL have
    /// changed.
    RulesChanged { from: u32 },
    /// Checks the other messages of a session, because its client has returned, or a page has come
    /// from the store.
    QueueCheck(SessionId),
    /// Gives the sessions in the slots from `from` on the redelivery settings that hold now.
    SettingsChanged { from: u32 },
    /// Sends the next messages of a session's queue, because those before them were dropped.
    Send(SessionId),
    /// Inserts or removes the filters of a SUBSCRIBE or UNSUBSCRIBE.
    Request(Box<SubscribeRequest>),
    /// Queues the retained messages for a SUBSCRIBE.
    Retained(Box<RetainedDelivery>),
    /// Hands on the remains of an ended session.
    End(Box<EndedSession>),
}

/// The jobs of one shard, and the sessions with an expired deadline that wait for a later turn.
#[derive(Debug, Default)]
pub(crate) struct Work {
    jobs: VecDeque<Job>,
    /// [`Job::Due`] is among the jobs while this queue is not empty.
    due: VecDeque<SessionId>,
}

impl Work {
    /// Puts off jobs to a later turn: none, one or several.
    pub(crate) fn later(&mut self, jobs: impl IntoIterator<Item = Job>) {
        self.jobs.extend(jobs);
    }

    /// If `left` is a job, queues the job, and pauses the connection until the job is complete.
    pub(crate) fn pause_for(
        &mut self,
        now: Instant,
        id: ConnectionId,
        left: Option<Job>,
        connections: &mut Connections,
    ) {
        if left.is_some() {
            connections.pause(id, Pause::Work, now);
        }
        self.later(left);
    }

    /// Pauses a connection whose next packet waits for the steps of a later turn.
    pub(crate) fn read_later(&mut self, now: Instant, id: ConnectionId, connections: &mut Connections) {
        if connections.pause(id, Pause::Turn, now) {
            self.later([Job::Read(id, Pause::Turn)]);
        }
    }

    /// Continues to read the clients that waited for the end of a large publication.
    pub(crate) fn read_waiting(&mut self, fans: &mut Fans) {
        self.later(fans.take_waiting().map(|id| Job::Read(id, Pause::Work)));
    }

    /// Puts off a session with an expired deadline. Until then the session is unchanged, in the
    /// store too.
    pub(crate) fn session_due(&mut self, id: SessionId) {
        if self.due.is_empty() {
            self.later([Job::Due]);
        }
        self.due.push_back(id);
    }

    /// Returns true if a session with an expired deadline waits.
    pub(crate) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Takes out the first session with an expired deadline.
    pub(crate) fn pop_due(&mut self) -> Option<SessionId> {
        self.due.pop_front()
    }

    /// Takes out the first job.
    pub(crate) fn pop(&mut self) -> Option<Job> {
        self.jobs.pop_front()
    }

    /// Returns the number of jobs.
    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Returns true if there is no job.
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_that_are_due_are_one_job() {
        let mut work = Work::default();
        for slot in 0..3 {
            work.session_due(SessionId::new(slot, 0));
        }
        assert_eq!(work.len(), 1);
        assert!(matches!(work.pop(), Some(Job::Due)) && work.is_empty());
        assert_eq!(work.pop_due().map(|id| id.slot), Some(0));
        assert!(work.has_due());
    }
}
