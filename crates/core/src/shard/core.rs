//! The lowest layer of a shard: sessions, connections, and the components that every packet needs.
//!
//! `Core` knows neither subscriptions nor shared groups. Each field is a type that owns its part of
//! the state, with private fields. The methods here are those that need several fields. `Core`
//! cannot publish. A message that follows from its work, such as a dead letter, waits in a list
//! until an upper layer publishes it.

use crate::durability::gates::Durability;
use crate::events::drop_reports::DropReceiver;
use crate::letters::dead_letters::DeadLetters;
use crate::login::access_rules::AccessRules;
use crate::mqtt::codec::PacketType;
use crate::mqtt::owner::Owner;
use crate::mqtt::packet::ReasonCode;
use crate::mqtt::publisher_name::PublisherName;
use crate::mqtt::retained_message::RetainedSource;
use crate::mqtt::topic::TopicFilter;
use crate::peers::Peers;
use crate::routing::subscription_tree::{SessionSlot, ShardId, ShardSet};
use crate::session::counters::Counters;
use crate::session::drops::{Dropped, ReceiverState};
use crate::session::outbound::sender::PUMPED_AT_ONCE;
use crate::shard::admission::{Change, Want};
use crate::shard::clients::connection::Leaves;
use crate::shard::clients::connections::Connections;
use crate::shard::clients::pause::Pause;
use crate::shard::clients::session_entry::SessionEntry;
use crate::shard::clients::sessions::Sessions;
use crate::shard::features::unanswered::UnansweredPublications;
use crate::shard::observe::gauges::ClientFigures;
use crate::shard::observe::tracer::{Recorder, Tracer};
use crate::shard::settings::ShardSettings;
use crate::shard::turn::Turn;
use crate::shard::turn::effects::Effects;
use crate::shard::turn::scratch::Scratch;
use crate::shared::SharedState;
use crate::slots::{ConnectionId, SessionId};
use crate::time::Instant;
use std::sync::Arc;

/// The lowest layer of a shard.
#[derive(Debug)]
pub(crate) struct Core {
    pub(super) settings: ShardSettings,
    pub(super) shared: Arc<SharedState>,
    pub(super) connections: Connections,
    pub(super) sessions: Sessions,
    pub(super) access: AccessRules,
    pub(super) peers: Peers,
    pub(super) durability: Durability,
    pub(super) dead_letters: DeadLetters,
    pub(super) unanswered: UnansweredPublications,
    pub(super) counters: Counters,
    pub(super) figures: ClientFigures,
    pub(super) tracer: Tracer,
    pub(super) turn: Turn,
    pub(super) effects: Effects,
    pub(super) scratch: Scratch,
}

impl Core {
    /// Returns the core of the shard `here` of `shards`.
    pub(crate) fn new(here: ShardId, shards: u8, settings: ShardSettings, shared: Arc<SharedState>) -> Core {
        let sessions = Sessions::new(&settings);
        Core {
            access: AccessRules::new(&settings.access),
            connections: Connections::new(&settings),
            dead_letters: DeadLetters::new(sessions.rules().keep_dead_letters()),
            sessions,
            unanswered: UnansweredPublications::default(),
            peers: Peers::new(here, shards),
            durability: Durability::default(),
            counters: Counters::new(&settings.objectives),
            figures: ClientFigures::default(),
            tracer: Tracer::default(),
            turn: Turn::new(settings.steps_per_turn),
            effects: Effects::default(),
            scratch: Scratch::default(),
            settings,
            shared,
        }
    }

    /// Returns the recorder of drops and of steps. Called for a drop, while something is traced,
    /// and when a trace begins or ends.
    #[cold]
    pub(crate) fn recorder(&mut self) -> Recorder<'_> {
        let Core { tracer, sessions, connections, durability, counters, shared, effects, .. } = self;
        let (drops, dead_letters) = (&mut self.figures.drops, &mut self.dead_letters);
        Recorder { tracer, sessions, connections, durability, counters, shared, effects, drops, dead_letters }
    }

    /// Checks that the broker has room for a change.
    ///
    /// # Errors
    /// The resource that is short.
    pub(crate) fn admits(&self, change: Change) -> Result<(), Want> {
        change.check(&self.shared, &self.durability, &self.peers)
    }

    /// Returns true if a message of a topic may be delivered to the session that uses a slot now,
    /// or if no session does. Costs one branch if no rules are in force.
    pub(crate) fn may_read(&mut self, session: SessionSlot, topic: &str) -> bool {
        let Core { sessions, access, turn, .. } = self;
        let at = |(_, entry): (_, &mut SessionEntry)| entry.may_read(access, topic, turn);
        !access.are_on() || sessions.at_mut(session.0).is_none_or(at)
    }

    /// As [`Self::may_read`], for a message whose receiver was chosen before: by a peer, or in an
    /// earlier turn. The session may have left the filter since, and an unguarded session has only
    /// filters that it may read.
    pub(crate) fn permits_read(&mut self, session: SessionSlot, topic: &str) -> bool {
        let Core { sessions, access, turn, .. } = self;
        let at = |(_, entry): (_, &mut SessionEntry)| entry.permits_read(access, topic, turn);
        !access.are_on() || sessions.at_mut(session.0).is_none_or(at)
    }

    /// Returns the client identifier of a publisher if messages keep it. The messages of one
    /// connection share the value.
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

    /// Returns the client under which a session's retained and delayed messages count. The messages
    /// of one connection share the value, as they share [`Self::publisher_name`].
    pub(crate) fn owner_of(&mut self, session: SessionId) -> Option<Arc<Owner>> {
        let Core { sessions, connections, .. } = self;
        let session_entry = sessions.get(session)?;
        let session = &session_entry.session;
        let connection = session_entry.connection.and_then(|id| connections.get_mut(id));
        // A client that is away keeps no shared value.
        let Some(connection) = connection else {
            let rules = session_entry.listener().map(|listener| listener.rules.load_full());
            let listener = rules.as_ref().map_or("", |rules| &rules.name);
            return Some(Owner::new(&session.client_id, listener));
        };
        let rules = connection.listener.rules.load();
        let listener = &*rules.name;
        let known = &mut connection.rare_mut().owner;
        // A reload may give the listener another name.
        let owner = match known.take().filter(|owner| owner.listener() == listener) {
            Some(owner) => owner,
            None => Owner::new(&session.client_id, listener),
        };
        Some(Arc::clone(known.insert(owner)))
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

    /// Reports the effects of a packet of this session: drops, and acknowledgements of traced
    /// messages.
    #[cold]
    pub(crate) fn report(&mut self, now: Instant, id: SessionId) {
        self.report_drops(id);
        self.recorder().collect_acknowledgements(now, id);
    }

    #[cold]
    fn report_drops_of(&mut self, id: SessionId) {
        let mut drops = self.counters.drops.take_unreported();
        self.turn.spend(u32::try_from(drops.len()).unwrap_or(u32::MAX));
        self.turn.spend_bytes(self.counters.drops.take_bytes());
        let is_portion = drops.len() >= PUMPED_AT_ONCE;
        let mut recorder = self.recorder();
        if let Some(session_entry) = recorder.sessions.get(id) {
            let receiver = session_entry.drop_receiver();
            drops.drain(..).for_each(|dropped| recorder.record_drop(&receiver, dropped));
            if is_portion && receiver.state == ReceiverState::Connected {
                // Nothing may have been sent, and then no write and no acknowledgement leads to the
                // messages behind these.
                self.turn.after_deliveries.to_send.push(id);
            }
        }
        self.counters.drops.give_back(drops);
    }

    /// Reports a message that was dropped because its session ended, or that a shared group lost.
    pub(crate) fn drop_for(&mut self, receiver: &DropReceiver<'_>, dropped: Dropped) {
        self.counters.drops.count(dropped.cause);
        self.recorder().record_drop(receiver, dropped);
    }

    /// Reports a dropped message that has no receiver, or whose receiver is not known any more.
    pub(crate) fn drop_of_nobody(&mut self, dropped: &Dropped) {
        self.counters.drops.count(dropped.cause);
        self.figures.drops.note("", dropped);
    }

    /// Reports a message that no member of a shared group took. `share` is the full filter of the
    /// group. `stored` is true if the message comes from a record of the present batch.
    pub(crate) fn drop_of_group(&mut self, share: &str, dropped: Dropped, stored: bool) {
        let name = TopicFilter::parse(share, usize::MAX).ok().and_then(|filter| filter.share_name);
        let client_id = &*format!("$share/{}", name.unwrap_or_default());
        let redelivery = &*Arc::clone(self.sessions.rules().nobody());
        let receiver = DropReceiver { client_id, redelivery, stored, state: ReceiverState::None };
        self.drop_for(&receiver, dropped);
    }
}

/// One connection and its session.
impl Core {
    /// Charges the steps that senders used since the last call.
    #[inline]
    pub(crate) fn spend_senders(&mut self) {
        self.turn.spend(std::mem::take(&mut self.counters.steps));
    }

    /// Ends one cause of a pause. Reading continues after the last one.
    pub(crate) fn unpause(&mut self, now: Instant, id: ConnectionId, cause: Pause) {
        self.connections.unpause(now, id, cause, &mut self.effects);
    }

    /// Pauses a publisher until every peer in `full` has room. Does nothing if it waits for peers
    /// already.
    pub(crate) fn wait_for_peers(&mut self, now: Instant, id: ConnectionId, full: ShardSet) {
        if self.connections.pause(id, Pause::Peer, now) {
            self.peers.wait_for(id, full);
        }
    }

    /// Writes DISCONNECT to a 5.0 client. Writes nothing in 3.x or before CONNACK.
    pub(crate) fn write_disconnect(&mut self, id: ConnectionId, reason: ReasonCode, text: Option<&str>) {
        let is_written = self.connections.write_disconnect(id, reason, text, &mut self.scratch.pool);
        self.counters.packets_sent.add(PacketType::Disconnect, u64::from(is_written));
    }

    /// Begins to close a connection. `leaves` is the side that ends the connection.
    pub(crate) fn begin_closing(&mut self, now: Instant, id: ConnectionId, leaves: Leaves) {
        self.connections.begin_closing(now, id, leaves, &mut self.effects);
    }

    /// Releases the bytes in an outbox that waited for a commit which is done. If the first bytes
    /// wait for a later commit, the connection waits with them.
    pub(crate) fn release_committed(&mut self, now: Instant, id: ConnectionId) {
        let Core { connections, durability, effects, .. } = self;
        // Without a store nothing waits for a commit.
        let Some(write_buffer) = durability.write_buffer() else { return };
        if !connections.release_committed(now, id, write_buffer.last_committed(), effects) {
            durability.gate_outbox(id);
        }
    }

    /// Records the session, if there is a store and the session outlives its connection.
    pub(crate) fn record_session(&mut self, id: SessionId) {
        self.sessions.record(id, self.durability.write_buffer());
    }

    /// Gates the bytes that are appended to a connection's outbox from now on, until
    /// everything recorded so far is committed.
    pub(crate) fn gate_until_commit(&mut self, id: ConnectionId) {
        if let (Some(lsn), Some(connection)) = (self.durability.pending(), self.connections.get_mut(id)) {
            connection.wire.outbox.gate_until_commit(lsn);
        }
    }

    /// Holds the bytes of a connection from a stream offset on until the commit of the open batch,
    /// which begins even if nothing is recorded in it. Without a store there is no cluster.
    pub(crate) fn hold_from(&mut self, id: ConnectionId, from: u64) {
        if let (Some(write_buffer), Some(connection)) =
            (self.durability.write_buffer(), self.connections.get_mut(id))
        {
            write_buffer.begin();
            connection.wire.outbox.hold_from(from, write_buffer.lsn());
        }
    }

    /// Gates CONNACK and the packets behind it until the session's records are committed.
    ///
    /// While the store has no room, CONNACK waits only for the last complete record of the session.
    /// For a known session, that record is committed as a rule. A returning client must not wait
    /// for room, because its acknowledgements make room. If the broker dies before there is room,
    /// Session Expiry may count from a time before this connection.
    pub(crate) fn gate_connack(&mut self, id: ConnectionId, session: SessionId) {
        if !self.shared.is_store_full() {
            return self.gate_until_commit(id);
        }
        // A session that is not stored waits for nothing.
        let Some(row) = self.sessions.get(session).and_then(|r| r.session.row()) else { return };
        let (full_record, committed) = (row.full_record.get(), row.write_buffer.last_committed());
        if full_record > committed
            && let Some(connection) = self.connections.get_mut(id)
        {
            connection.wire.outbox.gate_until_commit(full_record);
        }
    }

    /// Requests the next page of a session's queue, if the queue needs one and there is a store.
    pub(crate) fn fetch(&mut self, id: SessionId) {
        if self.durability.is_on()
            && let Some(session_entry) = self.sessions.get_mut(id)
        {
            let sender = &mut session_entry.session.sender;
            self.durability.fetch(id, sender, &self.shared.budget, &mut self.effects.reads);
        }
    }
}
