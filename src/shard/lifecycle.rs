//! The upper layer of a shard: the steps that follow when a session, a connection or a message
//! changes.
//!
//! | file | methods |
//! |---|---|
//! | `lifecycle` | steps after a change of one session; gates; the broker's own messages |
//! | `leave` | connections and sessions that end, and their wills |
//! | [`super::access_change`] | queues after a change of the rules or of the user |

use crate::mqtt::message::Parts;
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::{QoS, ReasonCode};
use crate::persistence::records::{Lsn, ReadEntry};
use crate::session::drops::DropReason;
use crate::session::inbound::AckToken;
use crate::shard::admission::Change;
use crate::shard::connection::Pause;
use crate::shard::core::Core;
use crate::shard::durability::gates::{Opened, Waits};
use crate::shard::effects::PageRequest;
use crate::shard::exchange::outbound::Gate;
use crate::shard::fans::Fans;
use crate::shard::features::dead_letters::DeadLetter;
use crate::shard::features::delayed::Delayed;
use crate::shard::features::hold;
use crate::shard::features::letter_keeping;
use crate::shard::observe::client_counts::SessionEnd;
use crate::shard::observe::client_events::DisconnectCause;
use crate::shard::own_publications::OwnProgress;
use crate::shard::publication::Publication;
use crate::shard::route::Routing;
use crate::shard::routes::Routes;
use crate::shard::slots::{ConnectionId, SessionId};
use crate::shard::work::{Job, Work};
use crate::time::Instant;

/// The upper layer of a shard, borrowed for one input or one portion of work.
#[derive(Debug)]
pub(crate) struct Lifecycle<'a> {
    pub core: &'a mut Core,
    pub routes: &'a mut Routes,
    pub fans: &'a mut Fans,
    pub work: &'a mut Work,
    pub delayed: &'a mut Delayed,
}

impl Lifecycle<'_> {
    /// Returns the middle layer.
    #[inline]
    pub(crate) fn routing(&mut self) -> Routing<'_> {
        Routing { core: self.core, routes: self.routes }
    }

    /// Does the steps that follow after messages of a session were sent, dropped or read back. The
    /// order matters. Drops are reported first, because the list of drops belongs to the last
    /// session. Then held messages take the places that became free. Only then are the bytes to
    /// write, the earliest deadline and the next page known.
    ///
    /// Each step costs a look-up of the session or its connection. A step without a change does
    /// nothing.
    pub(crate) fn after_session_change(&mut self, now: Instant, session: SessionId) {
        self.core.report_drops(session);
        hold::admit(now, session, self);
        if let Some(id) = self.core.sessions.get(session).and_then(|entry| entry.connection) {
            self.core.touch(id);
            self.core.register_retransmit(now, id);
        }
        self.core.fetch(session);
        self.core.charge_senders();
    }

    /// Does the steps of [`Self::after_session_change`] after a packet that the session handled
    /// alone. Such a packet is nearly always an acknowledgement. This is the hot path, so it leaves
    /// out each step that is not needed. The caller has marked the connection as dirty and reported
    /// drops. `appended` is the number of bytes that the packet added to the outbox. `holds` is
    /// true if messages wait for room.
    #[inline]
    pub(crate) fn after_acknowledgement(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        appended: usize,
        holds: bool,
    ) {
        if holds {
            hold::admit(now, session, self);
        }
        // A new packet may be due before all others. An acknowledgement without a new packet only
        // ends deadlines, and a deadline that ends needs no registration.
        if holds || appended > 0 {
            self.core.register_retransmit(now, id);
        }
        if self.core.durability.is_on() {
            self.core.fetch(session);
        }
        if !self.routes.orphaned_queues.is_empty() {
            self.routing().has_room_for_orphaned_queues(now, session);
        }
    }

    /// Gives the outcome of one gate to the publisher's acknowledgement. Sends the acknowledgements
    /// that are due then.
    pub(crate) fn gate_answered(
        &mut self,
        now: Instant,
        session: SessionId,
        token: AckToken,
        outcome: Outcome,
    ) {
        let Core { connections, sessions, scratch, counters, .. } = &mut *self.core;
        let Some(session_entry) = sessions.get_mut(session) else { return };
        session_entry.session.receiver.answer(token, outcome);
        let Some(id) = session_entry.connection else {
            // Without a connection, due acknowledgements are discarded. The client sends its
            // PUBLISH again when it returns.
            while session_entry.session.receiver.next_due().is_some() {}
            return;
        };
        let Some(connection) = connections.get_mut(id) else { return };
        connection.wire.outbox.lend(&mut scratch.pool);
        let answered = session_entry.session.answer_due(&mut connection.wire, &mut counters.packets_sent);
        let room = !session_entry.session.receiver.owes_the_most();
        self.core.touch(id);
        if let Err(violation) = answered {
            self.fail(now, id, violation);
        } else if room {
            self.core.unpause(now, id, Pause::Unanswered);
        }
    }

    /// Continues the work that waited for room in a connection's outbox: the client's requests, the
    /// queue, and held messages. Requests go first: a queue that takes all room at once would keep
    /// the client from publishing. The queue follows at the next write.
    pub(crate) fn outbox_has_room(&mut self, now: Instant, id: ConnectionId) {
        let Core { connections, sessions, settings, counters, scratch, .. } = &mut *self.core;
        let Some(connection) = connections.get_mut(id) else { return };
        let Some(session) = connection.session else { return };
        let Some(session_entry) = sessions.get_mut(session) else { return };
        let waits = session_entry.session.sender.has_waiting() || session_entry.holds();
        let paused = connection.pauses.has(Pause::Outbox);
        if !waits && !paused {
            return;
        }
        let policy = &settings.session.send;
        if connection.wire.outbox.len() >= policy.outbox {
            return;
        }
        if paused {
            return self.core.unpause(now, id, Pause::Outbox);
        }
        connection.wire.outbox.lend(&mut scratch.pool);
        session_entry.session.sender.pump(now, &mut connection.wire, policy, counters);
        self.after_session_change(now, session);
    }

    /// Pauses a client whose next packet must wait until a large publication is complete.
    pub(crate) fn read_behind_fan(&mut self, now: Instant, id: ConnectionId) {
        if self.core.connections.pause(id, Pause::Work, now) {
            self.fans.wait(id);
        }
    }

    /// If `left` is a job, queues the job, and pauses the connection until the job is complete.
    pub(crate) fn pause_for(&mut self, now: Instant, id: ConnectionId, left: Option<Job>) {
        let Some(job) = left else { return };
        if let Some(connection) = self.core.connections.get_mut(id) {
            connection.pause(Pause::Work, now);
        }
        self.work.later(job);
    }

    /// Resumes reading of a connection if `left` is `None`. Returns `left`.
    pub(crate) fn end_pause(&mut self, now: Instant, id: ConnectionId, left: Option<Job>) -> Option<Job> {
        if left.is_none() {
            self.core.unpause(now, id, Pause::Work);
        }
        left
    }

    /// Handles as many sessions with an expired deadline as this turn has steps for. Returns the
    /// job that is left. If a session leads to a large publication, the remaining sessions wait for
    /// its end.
    pub(crate) fn go_on_with_due(&mut self, now: Instant) -> Option<Job> {
        while self.work.has_due() {
            if self.core.turn.is_over() || self.fans.holds_own() {
                return Some(Job::Due);
            }
            self.core.turn.charge(1);
            if let Some(id) = self.work.pop_due() {
                self.session_deadline_expired(now, id);
            }
        }
        None
    }

    /// Gives `outcome` to the owner of a gate: a publisher's acknowledgement, an orphaned queue, or
    /// a peer.
    pub(crate) fn answer_gate(&mut self, now: Instant, gate: Gate, outcome: Outcome) {
        match gate {
            Gate::Here { session, token } => self.gate_answered(now, session, token, outcome),
            Gate::OrphanedQueue => self.routing().orphaned_queue_answered(now, outcome),
            Gate::Peer { shard, number, index } => {
                if let Some(peer) = self.core.exchange.peer(shard) {
                    peer.send_late(number, index, outcome);
                }
            }
        }
    }

    /// Gives `outcome` to the owner of a gate, once everything recorded so far is committed.
    pub(crate) fn answer_when_committed(&mut self, now: Instant, gate: Gate, outcome: Outcome) {
        if !self.core.durability.gate_answer(gate, outcome) {
            self.answer_gate(now, gate, outcome);
        }
    }

    /// Handles the commit of all batches up to `lsn`. Releases outboxes, tickets and publishers'
    /// acknowledgements that waited for it.
    pub(crate) fn committed(&mut self, now: Instant, lsn: Lsn) {
        let core = &mut *self.core;
        if core.tracer.is_on() {
            core.recorder().add_commits(now, lsn);
        }
        core.durability.committed(lsn, &mut core.effects);
        core.exchange.committed(lsn);
        // A job that is left from an earlier commit goes on with this one.
        if !core.durability.set_opening(true)
            && let Some(job) = self.go_on_with_commit(now)
        {
            self.work.later(job);
        }
    }

    /// Releases outboxes and acknowledgements that waited for a commit, until this turn is over.
    /// After a sync of 3 s there may be 150,000 of them. Returns the job that is left.
    pub(crate) fn go_on_with_commit(&mut self, now: Instant) -> Option<Job> {
        while let Some(opened) = self.core.durability.next_opened() {
            self.core.turn.charge(1);
            match opened {
                Opened::Connection(id) => self.core.release_committed(now, id),
                Opened::Gate(Waits::Publisher { gate, outcome }) => self.answer_gate(now, gate, outcome),
                // `exchange.committed` releases tickets, because the exchange with a peer knows
                // their order.
                Opened::Gate(Waits::Ticket { .. }) => {}
            }
            if self.core.turn.is_over() {
                return Some(Job::Committed);
            }
        }
        self.core.durability.set_opening(false);
        None
    }

    /// Opens the gates of messages that every receiver has finished before the commit. The drop of
    /// the last [`Entry`](crate::persistence::rows::Entry) drops the
    /// [`Body`](crate::persistence::rows::Body), whose `Drop` reports the gate as finished.
    pub(crate) fn release_finished(&mut self, now: Instant) {
        for waits in self.core.durability.take_finished() {
            match waits {
                Waits::Publisher { gate, outcome } => self.answer_gate(now, gate, outcome),
                Waits::Ticket { peer, number } => {
                    if let Some(peer) = self.core.exchange.peer(peer) {
                        peer.finished_one(number);
                    }
                }
            }
        }
    }

    /// Handles a page that was read back. Then requests pages for the sessions that waited because
    /// only one page is read at a time.
    pub(crate) fn take_page(&mut self, now: Instant, request: &PageRequest, read: Vec<ReadEntry>) {
        self.core.durability.page_came();
        self.take_in_page(now, request, read);
        // Each session either requests its page, or waits again behind the others.
        for _ in 0..self.core.durability.waiting_to_fetch() {
            let Some(id) = self.core.durability.next_to_fetch() else { return };
            let Some(session_entry) = self.core.sessions.get_mut(id) else { continue };
            session_entry.session.sender.backlog.page_waited_for();
            self.core.fetch(id);
            if self.core.durability.is_reading() && self.core.shared.budget.is_nearly_exceeded() {
                return;
            }
        }
    }

    /// Puts the messages of a page into their queue, and sends as many as the window takes.
    fn take_in_page(&mut self, now: Instant, request: &PageRequest, read: Vec<ReadEntry>) {
        let Core { sessions, counters, .. } = &mut *self.core;
        let Some(session_entry) = sessions.get_mut(request.session) else {
            return self.routing().take_page_of_orphaned_queue(now, request, read);
        };
        session_entry.session.sender.backlog.take_page(&request.wanted, read, &mut counters.drops);
        self.core.report_drops(request.session);
        // The rules and the user of the session may have changed since the messages were stored.
        let Core { sessions, access, .. } = &mut *self.core;
        if let Some(session_entry) = sessions.get_mut(request.session).filter(|_| access.are_on()) {
            session_entry.check_again();
            let connection = session_entry.connection;
            self.check_queue(now, request.session, connection);
        }
        let Core { connections, sessions, settings, counters, scratch, .. } = &mut *self.core;
        let Some(session_entry) = sessions.get_mut(request.session) else { return };
        let at = session_entry.connection.and_then(|id| connections.get_mut(id));
        // Without a connection nothing is sent, and no place in the queue becomes free. The next
        // page is read when the client returns.
        let Some(connection) = at else { return self.core.report_drops(request.session) };
        connection.wire.outbox.lend(&mut scratch.pool);
        session_entry.session.sender.pump(now, &mut connection.wire, &settings.session.send, counters);
        self.after_session_change(now, request.session);
    }

    /// Publishes a retained message of the broker's own, at QoS 0.
    pub(crate) fn publish_own(&mut self, now: Instant, topic: &str, payload: &[u8]) {
        let mut publication = Publication::new(own_parts(topic, payload, true), None, self.core.here);
        self.core.retain(now, &mut publication, None, None);
        self.fans.route_own(
            now,
            &mut publication,
            None,
            &mut Routing { core: self.core, routes: self.routes },
        );
    }

    /// Publishes a message of the broker's own, not retained. At QoS 0 no receiver can be overdue
    /// with it, so an event about a client never causes another event.
    pub(crate) fn announce(&mut self, now: Instant, topic: &str, payload: &[u8]) {
        let mut publication = Publication::new(own_parts(topic, payload, false), None, self.core.here);
        self.fans.route_own(
            now,
            &mut publication,
            None,
            &mut Routing { core: self.core, routes: self.routes },
        );
    }

    /// Publishes dead letters before the batch of this turn is sealed: as many as the turn has
    /// steps for, and at least one. If some are left, the batch is not sealed in this turn. A
    /// dropped dead letter becomes no further dead letter.
    pub(crate) fn publish_dead_letters(&mut self, now: Instant) {
        while let Some(dead_letter) = self.core.dead_letters.pop() {
            if !self.publish_dead_letter(now, &dead_letter) {
                return self.core.dead_letters.put_back(dead_letter);
            }
            if self.core.turn.is_over() {
                return;
            }
        }
    }

    /// Publishes a dead letter. Returns false, and publishes nothing, if the dead letter needs
    /// several turns while another publication takes several turns.
    fn publish_dead_letter(&mut self, now: Instant, dead_letter: &DeadLetter) -> bool {
        let qos = dead_letter.message.header().qos.max(QoS::AtLeastOnce);
        self.core.turn.charge(1);
        if u16::try_from(dead_letter.topic.len()).is_err() {
            self.core.counters.drops.count(DropReason::TooLarge);
            return true;
        }
        let forwarded = dead_letter.properties(self.core.dead_letters.wall());
        // The topic and the properties are longer than those of the dropped message.
        let bytes = dead_letter.topic.len() + forwarded.len() + dead_letter.message.payload().len();
        // A message was parked only if there was room, and it would be lost here.
        if dead_letter.cause != DropReason::Parked
            && let Err(want) = self.core.admits(Change::Publish { qos, bytes, frees: 0 })
        {
            self.core.counters.drops.count(want.cause());
            return true;
        }
        let parts = Parts {
            qos,
            retain: false,
            expires: Instant::NEVER,
            topic: &dead_letter.topic,
            forwarded: &forwarded,
            payload: dead_letter.message.payload(),
        };
        let mut publication = Publication::new(parts, None, self.core.here);
        // The end of the dropped message is committed together with the deliveries of the dead
        // letter.
        publication.atomic = dead_letter.stored;
        publication.audit = dead_letter.message.audit();
        if publication.audit.is_some() {
            self.core.recorder().add_dead_letter(now, publication.audit, &dead_letter.topic);
        }
        let mut routing = Routing { core: self.core, routes: self.routes };
        let progress = self.fans.route_own_now(now, &mut publication, &mut routing);
        let is_published = progress != OwnProgress::Waits;
        if is_published {
            self.core.counters.dead_letters.add(dead_letter.cause, 1);
            letter_keeping::keep(now, dead_letter, self.core);
        }
        is_published
    }

    /// Publishes a retained last-disconnect record. Removes the oldest record if there are then
    /// more than the maximum. Does nothing if the memory budget is exceeded.
    pub(crate) fn keep_last_disconnect(&mut self, now: Instant, topic: &str, text: &str) {
        if self.core.settings.last_disconnects == 0 || self.core.admits(Change::Record).is_err() {
            return;
        }
        self.publish_own(now, topic, text.as_bytes());
        let oldest =
            self.core.shared.totals.last_disconnects().keep(topic, self.core.settings.last_disconnects);
        if let Some(oldest) = oldest {
            self.core.shared.retained().remove(&oldest);
        }
    }

    /// Handles an expired deadline of a session: will, held messages, and session expiry.
    pub(crate) fn session_deadline_expired(&mut self, now: Instant, id: SessionId) {
        let Some(session_entry) = self.core.sessions.get_mut(id) else { return };
        session_entry.registered.fired();
        if session_entry.will_due <= now {
            session_entry.will_due = Instant::NEVER;
            let will = session_entry.session.will.take();
            self.publish_will(now, id, will);
            self.core.record_session(id);
        }
        hold::refuse_overdue(now, id, self);
        if self.core.sessions.get(id).is_some_and(|r| r.ends <= now) {
            self.end_session(now, id, SessionEnd::Expired);
            return;
        }
        self.core.sessions.register(id, &mut self.core.effects);
    }

    /// Puts off to later turns what is to be sent behind messages that were dropped.
    pub(crate) fn send_later(&mut self) {
        for id in std::mem::take(&mut self.core.after_deliveries.to_send) {
            self.work.later(Job::Send(id));
        }
    }

    /// Sends the next messages of a queue. Returns the job that is left. More jobs follow while all
    /// messages are dropped.
    pub(crate) fn go_on_sending(&mut self, now: Instant, id: SessionId) -> Option<Job> {
        self.core.turn.charge(1);
        // The dead letters of the last portion are published before the next portion adds more.
        if !self.core.dead_letters.is_empty() {
            return Some(Job::Send(id));
        }
        let Core { connections, sessions, settings, counters, scratch, .. } = &mut *self.core;
        let session_entry = sessions.get_mut(id)?;
        let connection = session_entry.connection.and_then(|id| connections.get_mut(id))?;
        connection.wire.outbox.lend(&mut scratch.pool);
        session_entry.session.sender.pump(now, &mut connection.wire, &settings.session.send, counters);
        self.after_session_change(now, id);
        None
    }

    /// Admits held messages of the receivers whose queues were full in this turn.
    pub(crate) fn admit_held_of_all(&mut self, now: Instant) {
        for id in std::mem::take(&mut self.core.after_deliveries.to_admit) {
            hold::admit(now, id, self);
        }
    }

    /// Disconnects the receivers whose queues are full, under the policy `disconnect`. Their
    /// sessions stay, so the messages in their queues are kept.
    pub(crate) fn disconnect_overfull(&mut self, now: Instant) {
        for id in std::mem::take(&mut self.core.after_deliveries.overfull) {
            self.disconnect(now, id, Some(ReasonCode::QUOTA_EXCEEDED), DisconnectCause::QueueFull);
        }
    }
}

fn own_parts<'a>(topic: &'a str, payload: &'a [u8], retain: bool) -> Parts<'a> {
    let (qos, expires) = (QoS::AtMostOnce, Instant::NEVER);
    Parts { qos, retain, expires, topic, forwarded: &[], payload }
}
