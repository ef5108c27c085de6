//! The steps that follow when a session, its outbox or a deadline changes.

use crate::mqtt::packet::ReasonCode;
use crate::shard::Shard;
use crate::shard::clients::pause::Pause;
use crate::shard::clients::slots::{ConnectionId, SessionId};
use crate::shard::features::hold;
use crate::shard::observe::client_counts::SessionEnd;
use crate::shard::observe::client_events::DisconnectCause;
use crate::shard::turn::work::Job;
use crate::time::Instant;

impl Shard {
    /// Does the steps that follow after messages of a session were sent, dropped or read back. The
    /// order matters. Drops are reported first, because the list of drops belongs to the last
    /// session. Then held messages take the places that became free. Only then is the next page
    /// known.
    ///
    /// Each step costs a look-up of the session or its connection. A step without a change does
    /// nothing.
    pub(crate) fn after_session_change(&mut self, now: Instant, session: SessionId) {
        self.core.report_drops(session);
        hold::admit(now, session, self);
        if let Some(mut client) = self.core.client_of(session) {
            client.flush_later();
        }
        self.core.fetch(session);
        self.core.spend_senders();
    }

    /// Does the steps of [`Self::after_session_change`] after a packet that the session handled
    /// alone. Such a packet is nearly always an acknowledgement. The function is on the hot path,
    /// so it leaves out each step that is not needed. The caller has reported drops and
    /// admitted held messages.
    #[inline]
    pub(crate) fn after_acknowledgement(&mut self, now: Instant, session: SessionId) {
        if self.core.durability.is_on() {
            self.core.fetch(session);
        }
        if !self.routes.orphaned_queues.is_empty() {
            self.routes.has_room_for_orphaned_queues(now, session, &mut self.core);
        }
    }

    /// Continues the work that waited for room in a connection's outbox: the client's requests, the
    /// queue, and held messages. Requests go first: a queue that takes all room at once would keep
    /// the client from publishing. The queue follows at the next write.
    pub(crate) fn outbox_has_room(&mut self, now: Instant, id: ConnectionId) {
        // A connection without a session has written its CONNACK or an AUTH.
        let Some(mut client) = self.core.client(id) else { return };
        let waits = client.entry.session.sender.has_waiting() || client.entry.holds();
        let paused = client.connection.pauses.has(Pause::Outbox);
        let is_full = client.connection.wire.outbox.len() >= client.settings.session.send.outbox;
        if !waits && !paused || is_full {
            return;
        }
        if paused {
            return self.core.unpause(now, id, Pause::Outbox);
        }
        client.pump(now);
        let session = client.session_id;
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
        if left.is_some() {
            self.core.connections.pause(id, Pause::Work, now);
        }
        self.work.later(left);
    }

    /// Pauses a connection whose next packet waits for the steps of a later turn.
    pub(crate) fn read_later(&mut self, now: Instant, id: ConnectionId) {
        if self.core.connections.pause(id, Pause::Turn, now) {
            self.work.later([Job::Read(id, Pause::Turn)]);
        }
    }

    /// Continues to read the clients that waited for the end of a large publication.
    pub(crate) fn read_waiting(&mut self) {
        let waiting = self.fans.take_waiting();
        self.work.later(waiting.map(|id| Job::Read(id, Pause::Work)));
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
            if self.core.turn.is_over() || self.fans.blocks_own() {
                return Some(Job::Due);
            }
            self.core.turn.spend(1);
            if let Some(id) = self.work.pop_due() {
                self.session_deadline_expired(now, id);
            }
        }
        None
    }

    /// Handles an expired deadline of a session: will, held messages, and session expiry.
    pub(crate) fn session_deadline_expired(&mut self, now: Instant, id: SessionId) {
        // The session has ended since.
        let Some(session_entry) = self.core.sessions.get_mut(id) else { return };
        session_entry.registered.fired();
        if session_entry.will_due() <= now {
            session_entry.set_will_due(Instant::NEVER);
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

    /// Puts off to later turns the sending of messages behind dropped ones.
    pub(crate) fn send_later(&mut self) {
        self.work.later(self.core.turn.after_deliveries.to_send.drain(..).map(Job::Send));
    }

    /// Sends the next messages of a queue. Returns the job that is left. More jobs follow while all
    /// messages are dropped.
    pub(crate) fn go_on_sending(&mut self, now: Instant, id: SessionId) -> Option<Job> {
        self.core.turn.spend(1);
        // The dead letters of the last portion are published before the next portion adds more.
        if !self.core.dead_letters.is_empty() {
            return Some(Job::Send(id));
        }
        self.core.client_of(id)?.pump(now);
        self.after_session_change(now, id);
        None
    }

    /// Admits held messages of the receivers whose queues were full in this turn.
    pub(crate) fn admit_held_of_all(&mut self, now: Instant) {
        for id in std::mem::take(&mut self.core.turn.after_deliveries.to_admit) {
            hold::admit(now, id, self);
        }
    }

    /// Disconnects the receivers whose queues are full, under the policy `disconnect`. Their
    /// sessions stay, so the messages in their queues are kept.
    pub(crate) fn disconnect_overfull(&mut self, now: Instant) {
        for id in std::mem::take(&mut self.core.turn.after_deliveries.overfull) {
            self.disconnect(now, id, Some(ReasonCode::QUOTA_EXCEEDED), DisconnectCause::QueueFull);
        }
    }
}
