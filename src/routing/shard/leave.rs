//! Connections and sessions that end, and the wills they leave.

use super::admission::{Change, Want};
use super::connection::{Leaves, Phase};
use super::effects::{Event, Why};
use super::last_disconnect::Record;
use super::route::Publication;
use super::{ConnectionId, SessionId, Shard};
use crate::journal::record;
use crate::mqtt::message::Parts;
use crate::mqtt::packet::{Disconnect, Packet, QoS, ReasonCode};
use crate::mqtt::session::loss::{LossCause, Lost};
use crate::mqtt::session::queue::Delivery;
use crate::mqtt::session::will::{Ending, Will, WillTime, will_time};
use crate::mqtt::topic::TopicFilter;
use crate::routing::shared::{MemberAddress, Presence};
use crate::routing::subscription_tree::SessionSlot;
use crate::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How long a closing connection may take to read what it was told, and to close in turn: a close with unread input
/// makes the kernel throw away what the peer has not read yet.
const LINGER: Duration = Duration::from_secs(2);

impl Shard {
    /// The socket is gone: closed by the peer, failed, or finished after [`Self::cut`].
    pub fn closed(&mut self, now: Instant, id: ConnectionId, network: &str) {
        if self.connections.get(id).is_some_and(|c| c.session.is_some()) {
            let record = self.note_disconnected(now, id, Why::Network(network.into()));
            self.note_unwritten(id);
            self.part(now, id, Ending::Abnormal);
            self.keep_last_disconnect(now, record);
        }
        if let Some(connection) = self.connections.remove(id) {
            self.partial_bytes -= connection.partial.len();
        }
    }

    /// The socket is gone with bytes that it never took. Not said where the broker ends a connection: what waits then is
    /// still written.
    fn note_unwritten(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(id) else { return };
        let written = connection.wire.outbox.written();
        if let Some(resident) = connection.session.and_then(|s| self.sessions.get_mut(s)) {
            resident.session.sender.end_connection(written);
        }
    }

    /// The connection's socket moved to another shard.
    pub fn moved(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.remove(id) {
            self.partial_bytes -= connection.partial.len();
        }
    }

    /// Ends a connection from this side; `reason` is for DISCONNECT, where the version has one.
    pub fn cut(&mut self, now: Instant, id: ConnectionId, reason: Option<ReasonCode>, why: Why) {
        if self.connections.get(id).is_none_or(|c| c.is_closing()) {
            return;
        }
        if let Some(reason) = reason {
            let text = match &why {
                Why::Violation(_, what) => Some(what.clone()),
                Why::AckTimeout(stall) => Some(stall.to_string().into()),
                _ => None,
            };
            self.say_disconnect(id, reason, text.as_deref());
        }
        let ending = if why == Why::Shutdown { Ending::Shutdown } else { Ending::Abnormal };
        self.report_cut(now, id, &why);
        let record = self.note_disconnected(now, id, why);
        self.part(now, id, ending);
        self.keep_last_disconnect(now, record);
        self.begin_closing(now, id, Leaves::Broker);
    }

    /// The broker stops.
    pub fn shut_down(&mut self, now: Instant, id: ConnectionId) {
        self.cut(now, id, Some(ReasonCode::SERVER_SHUTTING_DOWN), Why::Shutdown);
    }

    /// DISCONNECT came.
    pub(super) fn client_leaves(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session: SessionId,
        disconnect: &Disconnect<'_>,
    ) {
        let most = self.settings.session_expiry;
        if let Some(resident) = self.sessions.get_mut(session)
            && let Some(expiry) = disconnect.session_expiry
        {
            resident.session.expiry = expiry.min(most);
        }
        // 3.1.1 and 5.0 [MQTT-3.14.4-3]: only a plain DISCONNECT throws the will away.
        let normal = disconnect.reason == ReasonCode::NORMAL_DISCONNECTION;
        let ending = if normal { Ending::Normal } else { Ending::Abnormal };
        let record = self.note_disconnected(now, id, Why::Client(disconnect.reason));
        self.part(now, id, ending);
        self.keep_last_disconnect(now, record);
        self.begin_closing(now, id, Leaves::Client);
    }

    /// Tells a 5.0 client why it is disconnected.
    // 5.0 [MQTT-3.14.0-1], [MQTT-3.14.2-3]
    pub(super) fn say_disconnect(&mut self, id: ConnectionId, reason: ReasonCode, text: Option<&str>) {
        let Shard { connections, pool, .. } = self;
        let Some(connection) = connections.get_mut(id) else { return };
        if connection.phase != Phase::Established || !connection.version().is_v5() {
            return;
        }
        connection.wire.outbox.lend(pool);
        let mut disconnect = Disconnect::new(reason);
        disconnect.reason_string = text;
        if connection.wire.put(&Packet::Disconnect(disconnect)).is_err() {
            let _ = connection.wire.put(&Packet::Disconnect(Disconnect::new(reason)));
        }
    }

    /// Nothing more is read; what waits is written, then the socket is closed.
    // 5.0 [MQTT-3.14.4-1], [MQTT-3.14.4-2]
    pub(super) fn begin_closing(&mut self, now: Instant, id: ConnectionId, leaves: Leaves) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.phase =
                Phase::Closing { until: now + LINGER.min(self.settings.write_timeout), leaves };
            self.partial_bytes -= connection.partial.len();
            connection.partial.take();
            connection.aliases = None;
        }
        self.touch(id);
        self.register_write_idle(id);
    }

    /// Takes connection and session apart: will, waiting acknowledgements, expiry.
    pub(super) fn part(&mut self, now: Instant, id: ConnectionId, ending: Ending) {
        self.finish_fan_of(now, id);
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Some(session_id) = connection.session.take() else { return };
        self.connected -= 1;
        let Some(resident) = self.sessions.get_mut(session_id) else { return };
        resident.connection = None;
        resident.session.receiver.end_connection();
        let expiry = resident.session.expiry_interval();
        let outlives = !expiry.is_zero();
        resident.ends = if outlives { now + expiry } else { now };
        let when = match &resident.session.will {
            Some(will) => will_time(will.delay, expiry, ending),
            None => WillTime::Never,
        };
        match when {
            WillTime::Never => resident.session.will = None,
            WillTime::After(delay) => resident.will_due = now + delay,
            // With the session: after its own subscriptions.
            WillTime::Now if !outlives || ending == Ending::TakenOverAfresh => {}
            WillTime::Now => {
                let will = resident.session.will.take();
                self.publish_will(now, session_id, will);
            }
        }
        self.set_presence(session_id, Presence::Offline);
        // A session that is taken over goes on, or is ended by who takes it over.
        let taken_over = matches!(ending, Ending::TakenOverAfresh | Ending::TakenOverResumed);
        if !outlives && !taken_over {
            self.end_session(now, session_id);
        } else {
            // At a stop it stays as it was: to the store it ends as in a crash, and its will waits for the restart. Who takes it
            // over records it in the same batch.
            if ending != Ending::Shutdown && !taken_over {
                self.record_session(session_id);
            }
            self.register_session(session_id);
        }
    }

    /// Ends a session: its will goes out, its subscriptions leave the index, shared messages go to other members, all
    /// else that it had not finished is counted as given up.
    pub(super) fn end_session(&mut self, now: Instant, id: SessionId) {
        let Some(resident) = self.sessions.get_mut(id) else { return };
        let will = resident.session.will.take();
        let filters = resident.session.subscriptions.drain();
        if let Some(account) = resident.session.account() {
            account.ledger.record(record::Record::SessionEnded(account.key));
            let client = super::connect::hash(&resident.session.client_id);
            if let Some(stored) = &mut self.stored {
                stored.session_ended(client);
            }
        }
        for filter in &filters {
            self.leave_filter(id, filter);
        }
        self.publish_will(now, id, will);
        self.forget_client(id);
        self.refuse_held(now, id);
        let Some(mut resident) = self.sessions.remove(id) else { return };
        self.common.totals.sessions.give_back(1);
        self.fans.session_ended(id.slot);
        let (client_id, terms) = (&resident.session.client_id, Arc::clone(resident.session.sender.terms()));
        let stored = resident.session.account().is_some();
        let (in_flight, queued, unread) = resident.session.sender.drain();
        let ended = LossCause::SessionEnded;
        let mut lost = 0;
        for p in in_flight {
            // 5.0 [MQTT-4.8.2-5]: QoS 2 that was begun with this member goes to nobody else.
            let Delivery { message, qos, share, stored: entry, .. } = &p.delivery;
            match share {
                Some(share) if *qos == QoS::AtLeastOnce => {
                    self.share_again_or_keep(now, message.clone(), share, entry.is_some());
                }
                _ => {
                    lost += 1;
                    self.lose_with_session(client_id, &terms, p.lost(ended, None), stored);
                }
            }
        }
        let mut parked = VecDeque::new();
        for d in queued {
            match d.share {
                Some(share) => match d.stored {
                    // Its row stays as it is: nobody has room now.
                    Some(entry) if self.must_wait(now, &d.message, &share) => parked.extend(entry.park()),
                    entry => self.share_again_or_keep(now, d.message, &share, entry.is_some()),
                },
                None => {
                    lost += 1;
                    self.lose_with_session(client_id, &terms, Lost::unsent(ended, d.message), stored);
                }
            }
        }
        lost += self.leave_unread(now, id, client_id, &terms, parked, unread);
        if resident.ends <= now && resident.session.expiry > 0 {
            self.note(Event::SessionExpired { client_id: resident.session.client_id, lost });
        }
    }

    /// Takes the session out of the table of clients.
    fn forget_client(&mut self, id: SessionId) {
        let Some(resident) = self.sessions.get(id) else { return };
        let hash = super::connect::hash(&resident.session.client_id);
        if let Ok(entry) = self.clients.find_entry(hash, |slot| *slot == id.slot) {
            entry.remove();
        }
    }

    /// Takes one filter of a session out of the index, and tells the peers where they must know.
    pub(super) fn leave_filter(&mut self, id: SessionId, full: &str) -> bool {
        let Ok(filter) = TopicFilter::parse(full, usize::MAX) else { return false };
        match filter.share_name {
            Some(group) => {
                let address = MemberAddress { shard: self.here, session: SessionSlot(id.slot) };
                self.leave_group(group, filter.filter, address)
            }
            None => self.leave_index(filter.filter, id),
        }
    }

    /// Publishes a will, if there is one.
    // 3.1.1 [MQTT-3.1.2-8], [MQTT-3.1.2-10]; 5.0 [MQTT-3.1.2-8], [MQTT-3.1.2-10]
    pub(super) fn publish_will(&mut self, now: Instant, id: SessionId, will: Option<Arc<Will>>) {
        let Some(will) = will else { return };
        let change = Change::Publish {
            qos: will.qos,
            bytes: will.size(),
            erases: will.retain && will.payload.is_empty(),
        };
        let refused = self.topic_refusal(&will.topic).or(self.admits(change).err().map(Want::cause));
        if let Some(cause) = refused {
            self.tally.losses.count(cause);
            return;
        }
        let expires = super::publish::expires(now, will.message_expiry);
        let parts = Parts {
            qos: will.qos,
            retain: will.retain,
            expires,
            topic: &will.topic,
            forwarded: &will.forwarded,
            payload: &will.payload,
        };
        let publisher = self.publisher_name(id);
        let mut publication = Publication::new(parts, Some(SessionSlot(id.slot)), self.here);
        publication.publisher_name = &publisher;
        publication.whole = self.is_stored(id);
        if let (true, Some(ledger)) = (publication.whole, self.ledger()) {
            // That it goes out is recorded with what it leads to, in this batch, if not yet: nothing of it leaves before.
            ledger.begin();
        }
        if will.retain {
            self.retain(now, &mut publication);
        }
        self.route(now, &mut publication, None);
        self.publisher = publisher;
    }

    /// Before connection and session are parted; what it answers is kept after, since the client must not get it itself behind
    /// its DISCONNECT.
    pub(super) fn note_disconnected(&mut self, now: Instant, id: ConnectionId, why: Why) -> Option<Record> {
        let record = self.last_disconnect(now, id, &why);
        let connection = self.connections.get(id)?;
        let version = connection.version();
        let session = connection.session.and_then(|s| self.sessions.get(s));
        let client_id = session.map(|r| r.session.client_id.clone());
        self.note(Event::Disconnected { connection: id, client_id, version, why });
        record
    }
}
