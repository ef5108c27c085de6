//! Releases after a commit: outboxes, tickets, publishers' acknowledgements; and pages read back
//! from the store.

use crate::durability::gates::{Opened, Waits};
use crate::durability::read_requests::PageRequest;
use crate::mqtt::outcome::Outcome;
use crate::peers::peer_batch::ReportTo;
use crate::persistence::records::{Lsn, ReadEntry};
use crate::shard::Shard;
use crate::shard::core::Core;
use crate::shard::rules::access_change::QueueCheck;
use crate::shard::turn::work::Job;
use crate::slots::NoSession;
use crate::time::Instant;

impl Shard {
    /// Gives `outcome` to the owner of a gate: a publisher's acknowledgement, an orphaned queue, or
    /// a peer.
    pub(crate) fn answer_gate(&mut self, now: Instant, gate: ReportTo, outcome: Outcome) {
        match gate {
            ReportTo::Here { session, token } => {
                if let Err((id, violation)) = self.core.answer(now, session, token, outcome) {
                    self.fail(now, id, violation);
                }
            }
            ReportTo::OrphanedQueue => self.routes.orphaned_queue_answered(now, outcome, &mut self.core),
            ReportTo::Operator(number) => {
                self.core.unanswered.answer(number, outcome, &mut self.core.effects);
            }
            ReportTo::Peer { shard, number, index } => {
                if let Some(peer) = self.core.peers.peer(shard) {
                    peer.send_late(number, index, outcome);
                }
            }
        }
    }

    /// Gives `outcome` to the owner of a gate, once everything recorded so far is committed.
    pub(crate) fn answer_when_committed(&mut self, now: Instant, gate: ReportTo, outcome: Outcome) {
        if !self.core.durability.gate_answer(gate, outcome) {
            self.answer_gate(now, gate, outcome);
        }
    }

    /// Handles the commit of all batches up to `lsn`. Releases outboxes, tickets and publishers'
    /// acknowledgements that waited for the commit.
    pub fn committed(&mut self, now: Instant, lsn: Lsn) {
        let core = &mut self.core;
        if core.tracer.is_on() {
            core.recorder().add_commits(now, lsn);
        }
        core.durability.committed(lsn, &mut core.effects.reads);
        core.peers.committed(lsn);
        // A job that is left from an earlier commit goes on with this one.
        if !core.durability.begin_opening() {
            let left = go_on_with_commit(now, self);
            self.work.later(left);
        }
    }
}

/// Releases outboxes and acknowledgements that waited for a commit, until this turn is over.
/// After a sync of 3 s there may be 150,000 of them. Returns the job that is left.
pub(crate) fn go_on_with_commit(now: Instant, shard: &mut Shard) -> Option<Job> {
    while let Some(opened) = shard.core.durability.next_opened() {
        shard.core.turn.spend(1);
        match opened {
            Opened::Connection(id) => shard.core.release_committed(now, id),
            Opened::ReportTo(Waits::Publisher { gate, outcome }) => shard.answer_gate(now, gate, outcome),
            // `peers.committed` releases tickets, because the part of a peer knows
            // their order.
            Opened::ReportTo(Waits::Ticket { .. }) => {}
        }
        if shard.core.turn.is_over() {
            return Some(Job::Committed);
        }
    }
    shard.core.durability.end_opening();
    None
}

/// Opens the gates of messages that every receiver has finished before the commit. The drop of
/// the last [`Entry`](crate::persistence::rows::Entry) drops the
/// [`Body`](crate::persistence::rows::Body), whose `Drop` reports the gate as finished.
pub(crate) fn release_finished(now: Instant, shard: &mut Shard) {
    for waits in shard.core.durability.take_finished() {
        match waits {
            Waits::Publisher { gate, outcome } => shard.answer_gate(now, gate, outcome),
            Waits::Ticket { peer, number } => {
                if let Some(peer) = shard.core.peers.peer(peer) {
                    peer.finished_one(number);
                }
            }
        }
    }
}

/// Handles a page that was read back. Then requests pages for the sessions that waited because
/// only one page is read at a time.
pub(crate) fn take_page(now: Instant, request: &PageRequest, read: Vec<ReadEntry>, shard: &mut Shard) {
    shard.core.durability.page_came();
    take_in_page(now, request, read, shard);
    // Each session either requests its page, or waits again behind the others.
    for _ in 0..shard.core.durability.waiting_to_fetch() {
        let Some(id) = shard.core.durability.next_to_fetch() else { return };
        let Some(session_entry) = shard.core.sessions.get_mut(id) else { continue };
        if let Some(queue) = session_entry.session.sender.queue.get_mut() {
            queue.page_waited_for();
        }
        shard.core.fetch(id);
        if shard.core.durability.is_reading() && shard.core.shared.budget.is_nearly_exceeded() {
            return;
        }
    }
}

/// Puts the messages of a page into their queue, and sends as many as the window takes.
fn take_in_page(now: Instant, request: &PageRequest, read: Vec<ReadEntry>, shard: &mut Shard) {
    let Core { sessions, counters, figures, durability, .. } = &mut shard.core;
    if request.session == NoSession::Drops.id() {
        figures.drops.topics_came(&read);
        return durability.topics_came();
    }
    let Some(session_entry) = sessions.get_mut(request.session) else {
        return shard.routes.take_page_of_orphaned_queue(now, request, read, &mut shard.core);
    };
    if let Some(queue) = session_entry.session.sender.queue.get_mut() {
        queue.take_page(&request.wanted, read, &mut counters.drops);
    }
    shard.core.report_drops(request.session);
    // The rules and the user of the session may have changed since the messages were stored.
    let Core { sessions, access, .. } = &mut shard.core;
    if let Some(session_entry) = sessions.get_mut(request.session).filter(|_| access.are_on()) {
        session_entry.mark_unchecked();
        let connection = session_entry.connection;
        QueueCheck { now, session: request.session }.begin(connection, shard);
    }
    // Without a connection nothing is sent, and no place in the queue becomes free. The next
    // page is read when the client returns.
    let Some(mut client) = shard.core.client_of(request.session) else { return };
    client.pump(now);
    shard.after_session_change(now, request.session);
}
