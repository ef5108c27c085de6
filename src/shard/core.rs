//! The lowest layer of a shard: sessions, connections, and the components that every packet needs.
//!
//! `Core` knows neither subscriptions nor shared groups. Each field is a type that owns its part of
//! the state, with private fields. The methods here are those that need several fields. `Core`
//! cannot publish. A message that follows from its work, such as a dead letter, waits in a list
//! until an upper layer publishes it.

use crate::access::bans::BanList;
use crate::expiry::deadline::DeadlineKind;
use crate::mqtt::codec::PacketType;
use crate::mqtt::message::Message;
use crate::mqtt::owner::Owner;
use crate::mqtt::packet::ReasonCode;
use crate::mqtt::publisher_name::PublisherName;
use crate::mqtt::retained_message::{RetainedMessage, RetainedSource};
use crate::mqtt::topic::TopicFilter;
use crate::persistence::records::stored_bytes;
use crate::routing::retained;
use crate::routing::subscription_tree::{SessionSlot, ShardId, ShardSet};
use crate::session::counters::Counters;
use crate::session::drops::{DropReason, Dropped, ReceiverState};
use crate::session::outbound::sender::PUMPED_AT_ONCE;
use crate::shard::access::AccessRules;
use crate::shard::admission::{Change, Want};
use crate::shard::after_deliveries::AfterDeliveries;
use crate::shard::arrival::ListenerNumber;
use crate::shard::connection::{Leaves, Pause};
use crate::shard::connections::Connections;
use crate::shard::drops::{DropReceiver, DropReports};
use crate::shard::durability::gates::Durability;
use crate::shard::effects::Effects;
use crate::shard::exchange::Exchange;
use crate::shard::features::dead_letters::DeadLetters;
use crate::shard::features::stored_letters::StoredLetters;
use crate::shard::flapping::{self, Flapping};
use crate::shard::observe::client_counts::ClientCounts;
use crate::shard::observe::gauges::Gauges;
use crate::shard::observe::recent_drops::RecentDrops;
use crate::shard::observe::tracer::{Recorder, Tracer};
use crate::shard::publication::Publication;
use crate::shard::randomness::Randomness;
use crate::shard::retained_order::RetainedOrder;
use crate::shard::scratch::Scratch;
use crate::shard::session_entry::SessionEntry;
use crate::shard::sessions::Sessions;
use crate::shard::settings::ShardSettings;
use crate::shard::shared_state::SharedState;
use crate::shard::slots::{ConnectionId, SessionId};
use crate::shard::turn::Turn;
use crate::time::Instant;
use std::sync::Arc;

/// The lowest layer of a shard.
#[derive(Debug)]
pub(crate) struct Core {
    pub here: ShardId,
    pub settings: ShardSettings,
    pub shared: Arc<SharedState>,
    pub connections: Connections,
    pub sessions: Sessions,
    pub access: AccessRules,
    /// `None` if no ban is configured.
    pub bans: Option<Arc<BanList>>,
    /// `None` if clients may connect as often as they like.
    pub flapping: Option<Flapping>,
    pub exchange: Exchange,
    pub durability: Durability,
    pub drop_reports: DropReports,
    pub recent_drops: RecentDrops,
    pub dead_letters: DeadLetters,
    pub letters: StoredLetters,
    pub after_deliveries: AfterDeliveries,
    pub counters: Counters,
    pub clients: ClientCounts,
    pub gauges: Gauges,
    pub tracer: Tracer,
    pub turn: Turn,
    pub effects: Effects,
    pub scratch: Scratch,
    pub randomness: Randomness,
    pub retained_order: RetainedOrder,
}

/// The result of retaining a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetainedUpdate {
    /// True if the store has to commit the change before the publisher is acknowledged.
    pub waits: bool,
    /// False if there was no room for the message.
    pub kept: bool,
}

impl Core {
    /// Returns the core of the shard `here` of `shards`.
    pub(crate) fn new(
        here: ShardId,
        shards: u8,
        settings: ShardSettings,
        shared: Arc<SharedState>,
        randomness: Randomness,
    ) -> Core {
        let sessions = Sessions::new(&settings);
        Core {
            here,
            access: AccessRules::new(&settings.access),
            bans: None,
            flapping: flapping::counted(settings.flapping),
            connections: Connections::new(&settings),
            dead_letters: DeadLetters::new(sessions.rules().keep_dead_letters()),
            sessions,
            exchange: Exchange::new(here, shards),
            durability: Durability::default(),
            drop_reports: DropReports::default(),
            recent_drops: RecentDrops::default(),
            letters: StoredLetters::default(),
            after_deliveries: AfterDeliveries::default(),
            counters: Counters::new(&settings.objectives),
            clients: ClientCounts::default(),
            gauges: Gauges::default(),
            tracer: Tracer::default(),
            turn: Turn::new(settings.steps_per_turn),
            effects: Effects::default(),
            scratch: Scratch::default(),
            randomness,
            retained_order: RetainedOrder::new(here),
            settings,
            shared,
        }
    }

    /// Returns the recorder of drops and of steps. Called for a drop, while something is traced,
    /// and when a trace begins or ends.
    #[cold]
    pub(crate) fn recorder(&mut self) -> Recorder<'_> {
        let Core { tracer, sessions, connections, durability, counters, shared, effects, .. } = self;
        let Core { drop_reports, recent_drops, dead_letters, .. } = self;
        Recorder {
            tracer,
            sessions,
            connections,
            durability,
            counters,
            shared,
            effects,
            drop_reports,
            recent_drops,
            dead_letters,
        }
    }

    /// Checks that the broker has room for a change.
    ///
    /// # Errors
    /// The resource that is short.
    pub(crate) fn admits(&self, change: Change) -> Result<(), Want> {
        change.check(&self.shared, &self.durability, &self.exchange)
    }

    /// Returns true if a message of a topic may be delivered to the session that uses a slot now,
    /// or if no session does. Costs one branch if no rules are in force.
    pub(crate) fn may_read(&mut self, session: SessionSlot, topic: &str) -> bool {
        let Core { sessions, access, turn, .. } = self;
        let at = |(_, entry): (_, &mut SessionEntry)| entry.may_read(access, topic, turn);
        !access.are_on() || sessions.at_mut(session.0).is_none_or(at)
    }

    /// Returns the same for a message whose receiver was chosen before: by a peer, or in an earlier
    /// turn. The session may have left the filter since, and an unguarded session has only filters
    /// that it may read.
    pub(crate) fn permits_read(&mut self, session: SessionSlot, topic: &str) -> bool {
        let Core { sessions, access, turn, .. } = self;
        let at = |(_, entry): (_, &mut SessionEntry)| entry.permits_read(access, topic, turn);
        !access.are_on() || sessions.at_mut(session.0).is_none_or(at)
    }

    /// Returns true if neither a batch nor a peer batch may be sealed, because a dead letter of a
    /// stored message is not published yet.
    pub(crate) fn dead_letters_hold_seals(&self) -> bool {
        self.durability.is_on() && !self.dead_letters.is_empty()
    }

    /// Returns true if there is a store and dead letters wait to be published in this turn. They
    /// are committed with the open batch, which is then sealed even if nothing else is recorded. An
    /// acknowledgement that depends on a dead letter waits for that batch.
    pub(crate) fn has_dead_letters(&self) -> bool {
        if !self.dead_letters_hold_seals() {
            return false;
        }
        self.durability.begin();
        true
    }

    /// Returns the client identifier of a publisher if messages keep it. The messages of one
    /// connection share it.
    #[inline(never)]
    pub(crate) fn publisher_name(&mut self, session: SessionId) -> Option<PublisherName> {
        let Core { sessions, connections, dead_letters, .. } = self;
        let session_entry = sessions.get(session).filter(|_| dead_letters.keep_publisher())?;
        let name = || PublisherName::new(&session_entry.session.client_id);
        let connection = session_entry.connection.and_then(|id| connections.get_mut(id));
        Some(match connection {
            Some(connection) => connection.rare_mut().publisher.get_or_insert_with(name).clone(),
            None => name(),
        })
    }

    /// Returns the client of a session as the source of a retained message. Returns `None` if
    /// nobody asks for sources, or if the session is gone.
    pub(crate) fn retained_source(&mut self, session: SessionId) -> Option<Arc<RetainedSource>> {
        if !self.access.checks_retain_source() {
            return None;
        }
        self.sessions.get_mut(session)?.retained_source(&self.access)
    }

    /// Returns the client of a session as the one for which its retained and delayed messages count.
    /// The messages of one connection share the value, as they share [`Self::publisher_name`].
    pub(crate) fn owner_of(&mut self, session: SessionId) -> Option<Arc<Owner>> {
        let Core { sessions, connections, settings, .. } = self;
        let session_entry = sessions.get(session)?;
        let session = &session_entry.session;
        let listener = session.came_by.number().map(ListenerNumber);
        let listener = listener.map_or("", |listener| settings.listener_name(listener));
        let connection = session_entry.connection.and_then(|id| connections.get_mut(id));
        let Some(connection) = connection else { return Some(Owner::new(&session.client_id, listener)) };
        let known = &mut connection.rare_mut().owner;
        // A reload may give the listener another name.
        let owner = match known.take().filter(|owner| owner.listener() == listener) {
            Some(owner) => owner,
            None => Owner::new(&session.client_id, listener),
        };
        Some(Arc::clone(known.insert(owner)))
    }

    /// Sets, replaces or erases the retained message of a topic.
    ///
    /// If there is no room for the message, the old retained message is erased all the same. A
    /// subscriber is better served with no value than with a value that is known to be old.
    ///
    /// `source` is the client that published the message, from [`Self::retained_source`], and
    /// `owner` the client for which it counts, from [`Self::owner_of`].
    // 3.1.1 [MQTT-3.3.1-5], [MQTT-3.3.1-7], [MQTT-3.3.1-10], [MQTT-3.3.1-11];
    // 5.0 [MQTT-3.3.1-5], [MQTT-3.3.1-6], [MQTT-3.3.1-7]
    pub(crate) fn retain(
        &mut self,
        now: Instant,
        publication: &mut Publication<'_>,
        source: Option<Arc<RetainedSource>>,
        owner: Option<Arc<Owner>>,
    ) -> RetainedUpdate {
        let topic = publication.parts.topic;
        let stored = self.durability.is_on() && retained::is_kept(topic);
        let refused = if publication.parts.payload.is_empty() {
            self.shared.retained().remove(topic);
            None
        } else {
            let message = publication.message(&mut self.scratch.bytes).clone();
            let mut retained = self.shared.retained();
            let bytes = message.size();
            let want = if stored && self.shared.store_is_short() {
                self.admits(Change::Retain { bytes, replaces: retained.size_of(topic) }).err()
            } else {
                None
            };
            match want {
                Some(want) => {
                    retained.remove(topic);
                    Some(want.cause())
                }
                None => {
                    let mark = self.retained_order.set();
                    let set = retained.set_by(mark, RetainedMessage { message, source, owner }, now);
                    publication.set_mark = mark;
                    set.err().map(|_| DropReason::RetainedFull)
                }
            }
        };
        if let Some(cause) = refused {
            self.counters.drops.count(cause);
        }
        if stored && let Some(write_buffer) = self.durability.write_buffer() {
            // The change is recorded in the list of retained changes, whose order all shards share.
            // The open batch of this shard must be committed after it, so it is sealed even if it
            // is empty.
            write_buffer.begin();
            if refused.is_none() {
                write_buffer.weigh(stored_bytes(topic.len() + publication.parts.payload.len()));
            }
            self.effects.retained = true;
        }
        RetainedUpdate { waits: stored, kept: refused.is_none() }
    }
}

/// Drops.
impl Core {
    /// Reports the drops that the last call to this session recorded: to the log and as dead
    /// letters.
    #[inline]
    pub(crate) fn report_drops(&mut self, id: SessionId) {
        if self.counters.drops.are_unreported() {
            self.report_drops_of(id);
        }
    }

    /// Reports what a packet of this session led to: drops, and acknowledgements of traced messages.
    #[cold]
    pub(crate) fn report(&mut self, now: Instant, id: SessionId) {
        self.report_drops(id);
        self.recorder().collect_acknowledgements(now, id);
    }

    #[cold]
    fn report_drops_of(&mut self, id: SessionId) {
        let mut drops = self.counters.drops.take_unreported();
        self.turn.charge(u32::try_from(drops.len()).unwrap_or(u32::MAX));
        self.turn.charge_bytes(self.counters.drops.take_bytes());
        let is_portion = drops.len() >= PUMPED_AT_ONCE;
        let mut recorder = self.recorder();
        if let Some(session_entry) = recorder.sessions.get(id) {
            let receiver = DropReceiver::of(session_entry);
            drops.drain(..).for_each(|dropped| recorder.record_drop(&receiver, dropped));
            if is_portion && receiver.state == ReceiverState::Connected {
                // Nothing may have been sent, and then no write and no acknowledgement leads to the
                // messages behind these.
                self.after_deliveries.to_send.push(id);
            }
        }
        self.counters.drops.give_back(drops);
    }

    /// Reports a message that was dropped because its session ended, or that a shared group lost.
    pub(crate) fn drop_for(&mut self, receiver: &DropReceiver<'_>, dropped: Dropped) {
        self.counters.drops.count(dropped.cause);
        self.recorder().record_drop(receiver, dropped);
    }

    /// Reports a dropped message whose client is not known any more.
    pub(crate) fn drop_of_unknown(&mut self, cause: DropReason) {
        self.counters.drops.count(cause);
        self.drop_reports.note("", cause);
    }

    /// Reports a message that no member of a shared group took. `share` is the full filter of the
    /// group. `stored` is true if the message comes from a record of the present batch.
    pub(crate) fn drop_of_group(
        &mut self,
        share: &str,
        cause: DropReason,
        message: Option<Message>,
        stored: bool,
    ) {
        let name = TopicFilter::parse(share, usize::MAX).ok().and_then(|filter| filter.share_name);
        let client_id = &*format!("$share/{}", name.unwrap_or_default());
        let redelivery = &*Arc::clone(self.sessions.rules().nobody());
        let receiver = DropReceiver { client_id, redelivery, stored, state: ReceiverState::None };
        self.drop_for(&receiver, Dropped::new(cause, message));
    }
}

/// One connection and its session.
impl Core {
    /// Charges the steps that senders used since the last call.
    #[inline]
    pub(crate) fn charge_senders(&mut self) {
        self.turn.charge(std::mem::take(&mut self.counters.steps));
    }

    /// Marks a connection as dirty if it has something to write, or is closing. The turn flushes
    /// it.
    pub(crate) fn touch(&mut self, id: ConnectionId) {
        self.connections.touch(id, &mut self.effects);
    }

    /// Ends one cause of a pause. Reading continues after the last one.
    pub(crate) fn unpause(&mut self, now: Instant, id: ConnectionId, cause: Pause) {
        self.connections.unpause(now, id, cause, &mut self.effects);
    }

    /// Pauses a publisher until every peer in `full` has room. Does nothing if it waits for peers
    /// already.
    pub(crate) fn wait_for_peers(&mut self, now: Instant, id: ConnectionId, full: ShardSet) {
        if self.connections.pause(id, Pause::Peer, now) {
            self.exchange.wait_for(id, full);
        }
    }

    /// Writes DISCONNECT to a 5.0 client. Writes nothing in 3.x or before CONNACK.
    pub(crate) fn write_disconnect(&mut self, id: ConnectionId, reason: ReasonCode, text: Option<&str>) {
        let is_written = self.connections.write_disconnect(id, reason, text, &mut self.scratch.pool);
        self.counters.packets_sent.add(PacketType::Disconnect, u64::from(is_written));
    }

    /// Begins to close a connection. `leaves` is the side that ends it.
    pub(crate) fn begin_closing(&mut self, now: Instant, id: ConnectionId, leaves: Leaves) {
        self.connections.begin_closing(now, id, leaves, &mut self.effects);
    }

    /// Registers the due time of the first unacknowledged packet of a connection.
    ///
    /// Nearly every call ends at the first test, because the registered deadline is early enough.
    /// If a deadline is registered, only the packets sent since then can be due before it. Their
    /// due time is [`Sender::newest_due`](crate::session::outbound::sender::Sender::newest_due),
    /// which costs no search. If nothing is registered, the whole window is searched, because
    /// backoff may put older packets behind newer ones.
    pub(crate) fn register_retransmit(&mut self, now: Instant, id: ConnectionId) {
        let Some(connection) = self.connections.get(id) else { return };
        let Some(session) = connection.session.and_then(|s| self.sessions.get(s)) else { return };
        let sender = &session.session.sender;
        if connection.deadline_covers_newest(sender, self.settings.expiry_interval) {
            return;
        }
        let by_topic = sender.redelivery().differ_by_topic();
        if connection.wire.ack_wait().is_zero() && !by_topic {
            return;
        }
        // If the redelivery policy depends on the topic, the newest packet may be due after another
        // packet of the same turn. Then the window is always searched.
        let known = connection.retransmit.is_registered() && !by_topic;
        let deadline = if known { sender.newest_due() } else { sender.earliest_due() };
        // A tick resends a limited number of packets, so some may be overdue here. They wait for
        // the next tick, because an immediate deadline would resend all of them at once.
        self.connections.register(DeadlineKind::Retransmit, id, deadline.max(now), &mut self.effects);
    }

    /// Releases the bytes in an outbox that waited for a commit which is done. If the first bytes
    /// wait for a later commit, the connection waits with them.
    pub(crate) fn release_committed(&mut self, now: Instant, id: ConnectionId) {
        let Core { connections, durability, effects, .. } = self;
        let Some(write_buffer) = durability.write_buffer() else { return };
        if !connections.release_committed(now, id, write_buffer.last_committed(), effects) {
            durability.hold(id);
        }
    }

    /// Returns when the first unacknowledged packet of a connection is due, or [`Instant::NEVER`].
    pub(crate) fn earliest_due(&self, id: ConnectionId) -> Instant {
        let session = self.connections.get(id).and_then(|c| c.session).and_then(|s| self.sessions.get(s));
        session.map_or(Instant::NEVER, |r| r.session.sender.earliest_due())
    }

    /// Records the session, if there is a store and the session outlives its connection.
    pub(crate) fn record_session(&mut self, id: SessionId) {
        self.sessions.record(id, self.durability.write_buffer());
    }

    /// Holds back the bytes that are appended to a connection's outbox from now on, until
    /// everything recorded so far is committed.
    pub(crate) fn hold_until_commit(&mut self, id: ConnectionId) {
        if let (Some(lsn), Some(connection)) = (self.durability.pending(), self.connections.get_mut(id)) {
            connection.wire.outbox.hold_until_commit(lsn);
        }
    }

    /// Holds back CONNACK and the packets behind it until the session's records are committed.
    ///
    /// While the store has no room, CONNACK waits only for the last complete record of the session.
    /// For a known session, that record is committed as a rule. A returning client must not wait
    /// for room, because its acknowledgements make room. If the broker dies before there is room,
    /// Session Expiry may count from a time before this connection.
    pub(crate) fn hold_connack(&mut self, id: ConnectionId, session: SessionId) {
        if !self.shared.is_store_full() {
            return self.hold_until_commit(id);
        }
        let Some(row) = self.sessions.get(session).and_then(|r| r.session.row()) else { return };
        let (settled, committed) = (row.settled.get(), row.write_buffer.last_committed());
        if settled > committed
            && let Some(connection) = self.connections.get_mut(id)
        {
            connection.wire.outbox.hold_until_commit(settled);
        }
    }

    /// Requests the next page of a session's queue, if the queue needs one and there is a store.
    pub(crate) fn fetch(&mut self, id: SessionId) {
        if self.durability.is_on()
            && let Some(session_entry) = self.sessions.get_mut(id)
        {
            let sender = &mut session_entry.session.sender;
            self.durability.fetch(id, sender, &self.shared.budget, &mut self.effects);
        }
    }
}
