//! The clients of one shard: sessions, connections, and the components that every packet needs.
//!
//! `Core` is the lowest layer. It knows neither subscriptions nor shared groups. Each field has an
//! owner, a type with private fields of its own; the methods here are those that need several of
//! them. A message that `Core` cannot deliver by itself, such as a dead letter, waits in a list
//! until an upper layer publishes it.

use crate::expiry::deadline::DeadlineKind;
use crate::mqtt::message::Message;
use crate::mqtt::packet::ReasonCode;
use crate::mqtt::topic::TopicFilter;
use crate::persistence::records::stored_bytes;
use crate::routing::retained;
use crate::routing::subscription_tree::{ShardId, ShardSet};
use crate::session::counters::Counters;
use crate::session::drops::{DropReason, Dropped};
use crate::session::outbound::retry::splitmix64;
use crate::session::session_redelivery::SessionRedelivery;
use crate::shard::admission::{Change, Want};
use crate::shard::after_deliveries::AfterDeliveries;
use crate::shard::connection::{Leaves, Pause};
use crate::shard::connections::Connections;
use crate::shard::drops::DropReports;
use crate::shard::durability::gates::Durability;
use crate::shard::effects::Effects;
use crate::shard::exchange::Exchange;
use crate::shard::features::dead_letters::{DeadLetter, DeadLetters};
use crate::shard::publication::Publication;
use crate::shard::scratch::Scratch;
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
    pub exchange: Exchange,
    pub durability: Durability,
    pub drop_reports: DropReports,
    pub dead_letters: DeadLetters,
    pub after_deliveries: AfterDeliveries,
    pub counters: Counters,
    /// PUBLISH packets received.
    pub received: u64,
    pub turn: Turn,
    pub effects: Effects,
    pub scratch: Scratch,
    /// State of the random numbers.
    seed: u64,
}

/// The result of retaining a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetainedUpdate {
    /// True if the store has to commit the change, so that the publisher waits.
    pub waits: bool,
    /// False if there was no room for the message.
    pub kept: bool,
}

impl Core {
    /// Returns the core of the shard `here` of `shards`. `seed` determines all random numbers.
    pub(crate) fn new(
        here: ShardId,
        shards: u8,
        settings: ShardSettings,
        shared: Arc<SharedState>,
        seed: u64,
    ) -> Core {
        let sessions = Sessions::new(&settings);
        Core {
            here,
            connections: Connections::new(&settings),
            dead_letters: DeadLetters::new(sessions.rules().keep_dead_letters()),
            sessions,
            exchange: Exchange::new(here, shards),
            durability: Durability::default(),
            drop_reports: DropReports::default(),
            after_deliveries: AfterDeliveries::default(),
            counters: Counters::default(),
            received: 0,
            turn: Turn::new(settings.steps_per_turn),
            effects: Effects::default(),
            scratch: Scratch::default(),
            seed,
            settings,
            shared,
        }
    }

    /// Returns the next random number.
    pub(crate) fn random(&mut self) -> u64 {
        splitmix64(&mut self.seed)
    }

    /// Checks that the broker has room for a change.
    ///
    /// # Errors
    /// The resource that is short.
    pub(crate) fn admits(&self, change: Change) -> Result<(), Want> {
        change.check(&self.shared, &self.durability, &self.exchange)
    }

    /// Returns true if neither a batch nor a peer batch may be sealed, because a dead letter of a
    /// stored message is not published yet.
    pub(crate) fn dead_letters_hold_seals(&self) -> bool {
        self.durability.is_on() && !self.dead_letters.is_empty()
    }

    /// Returns true if dead letters wait for the end of this turn and there is a store. They are
    /// committed with the present batch, so whoever waits for that batch waits for them.
    pub(crate) fn has_dead_letters(&self) -> bool {
        if !self.dead_letters_hold_seals() {
            return false;
        }
        self.durability.begin();
        true
    }

    /// Returns the client identifier of a publisher if messages keep it, else an empty string. The
    /// string is lent: the caller puts it back into `scratch.publisher`.
    pub(crate) fn publisher_name(&mut self, session: SessionId) -> String {
        let mut name = std::mem::take(&mut self.scratch.publisher);
        name.clear();
        if self.dead_letters.keep_publisher()
            && let Some(session_entry) = self.sessions.get(session)
        {
            name.push_str(&session_entry.session.client_id);
        }
        name
    }

    /// Sets, replaces or erases the retained message of a topic.
    ///
    /// A message that there is no room for still takes the place of the one before, which is
    /// erased: no value is better than a value that is known to be wrong.
    // 3.1.1 [MQTT-3.3.1-5], [MQTT-3.3.1-7], [MQTT-3.3.1-10], [MQTT-3.3.1-11];
    // 5.0 [MQTT-3.3.1-5], [MQTT-3.3.1-6], [MQTT-3.3.1-7]
    pub(crate) fn retain(&mut self, now: Instant, publication: &mut Publication<'_>) -> RetainedUpdate {
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
                None => retained.set(message, now).err().map(|_| DropReason::RetainedFull),
            }
        };
        if let Some(cause) = refused {
            self.counters.drops.count(cause);
        }
        if stored && let Some(write_buffer) = self.durability.write_buffer() {
            // The change itself is in an order that all shards share; this shard's batch follows
            // it.
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
    /// Reports the drops that the last call to this session recorded, if there are any.
    #[inline]
    pub(crate) fn report_drops(&mut self, id: SessionId) {
        if self.counters.drops.are_unreported() {
            self.report_drops_of(id);
        }
    }

    #[cold]
    fn report_drops_of(&mut self, id: SessionId) {
        let mut drops = self.counters.drops.take_unreported();
        if let Some(session_entry) = self.sessions.get(id) {
            let (client_id, redelivery) =
                (&session_entry.session.client_id, session_entry.session.sender.redelivery());
            let stored = session_entry.session.row().is_some();
            for dropped in drops.drain(..) {
                self.drop_reports.note(client_id, dropped.cause);
                self.dead_letters.add(DeadLetter::of(dropped, client_id, redelivery, stored));
            }
        }
        self.counters.drops.give_back(drops);
    }

    /// Reports a message that was dropped because its session ended. `stored` is true if the
    /// session was stored.
    pub(crate) fn drop_with_session(
        &mut self,
        client_id: &str,
        redelivery: &SessionRedelivery,
        dropped: Dropped,
        stored: bool,
    ) {
        self.counters.drops.count(dropped.cause);
        self.drop_reports.note(client_id, dropped.cause);
        self.dead_letters.add(DeadLetter::of(dropped, client_id, redelivery, stored));
    }

    /// Reports a message that was dropped of a client that is not known any more.
    pub(crate) fn drop_of_unknown(&mut self, cause: DropReason) {
        self.counters.drops.count(cause);
        self.drop_reports.note_unknown(cause);
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
        let whose = format!("$share/{}", name.unwrap_or_default());
        self.counters.drops.count(cause);
        self.drop_reports.note(&whose, cause);
        let dropped = Dropped::new(cause, message);
        self.dead_letters.add(DeadLetter::of(dropped, &whose, self.sessions.rules().nobody(), stored));
    }
}

/// One connection and its session.
impl Core {
    /// Adds a connection to the dirty list if it has something to write.
    pub(crate) fn touch(&mut self, id: ConnectionId) {
        self.connections.touch(id, &mut self.effects);
    }

    /// Ends one cause not to read a connection.
    pub(crate) fn unpause(&mut self, now: Instant, id: ConnectionId, cause: Pause) {
        self.connections.unpause(now, id, cause, &mut self.effects);
    }

    /// Lets a publisher wait until each of the peers that its message found full has room.
    pub(crate) fn wait_for_peers(&mut self, now: Instant, id: ConnectionId, full: ShardSet) {
        if self.connections.pause(id, Pause::Peer, now) {
            self.exchange.wait_for(id, full);
        }
    }

    /// Writes DISCONNECT to a 5.0 client.
    pub(crate) fn write_disconnect(&mut self, id: ConnectionId, reason: ReasonCode, text: Option<&str>) {
        self.connections.write_disconnect(id, reason, text, &mut self.scratch.pool);
    }

    /// Begins to close a connection.
    pub(crate) fn begin_closing(&mut self, now: Instant, id: ConnectionId, leaves: Leaves) {
        self.connections.begin_closing(now, id, leaves, &mut self.effects);
    }

    /// Registers when the first unacknowledged packet of a connection is due.
    ///
    /// While a registration stands, only a packet that was just sent can be due earlier than what
    /// it was made for: with backoff, the older ones may be due much later.
    pub(crate) fn register_retransmit(&mut self, now: Instant, id: ConnectionId) {
        let Some(connection) = self.connections.get(id) else { return };
        let Some(session) = connection.session.and_then(|s| self.sessions.get(s)) else { return };
        let sender = &session.session.sender;
        if connection.expects_acknowledgement(sender, self.settings.expiry_interval) {
            return;
        }
        let by_topic = sender.redelivery().differ_by_topic();
        if connection.wire.ack_wait().is_zero() && !by_topic {
            return;
        }
        // With redelivery by topic, a packet that was sent earlier may be due earlier too: then the
        // window is searched.
        let known = connection.retransmit.is_registered() && !by_topic;
        let deadline = if known { sender.newest_due() } else { sender.earliest_due() };
        // Packets that a tick held back are due already. They wait for the next tick, or the tick
        // would spread nothing.
        self.connections.register(DeadlineKind::Retransmit, id, deadline.max(now), &mut self.effects);
    }

    /// Returns when the first unacknowledged packet of a connection is due, or [`Instant::NEVER`].
    pub(crate) fn earliest_due(&self, id: ConnectionId) -> Instant {
        let session = self.connections.get(id).and_then(|c| c.session).and_then(|s| self.sessions.get(s));
        session.map_or(Instant::NEVER, |r| r.session.sender.earliest_due())
    }

    /// Records a session that outlives its connection.
    pub(crate) fn record_session(&mut self, id: SessionId) {
        self.sessions.record(id, self.durability.write_buffer());
    }

    /// Holds everything that is written to a connection from here on until all records so far are
    /// committed.
    pub(crate) fn hold_until_commit(&mut self, id: ConnectionId) {
        if let (Some(lsn), Some(connection)) = (self.durability.pending(), self.connections.get_mut(id)) {
            connection.wire.outbox.hold_until_commit(lsn);
        }
    }

    /// Holds everything that is written to a connection from here on until the promise of its
    /// CONNACK is committed.
    ///
    /// While the store has no room, the promise is only the session's row, which a known session
    /// has: a client whose acknowledgements make room must not wait for room. If the broker dies
    /// before there is any, the client's absence may count from before this connection.
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

    /// Requests the next page of a session's queue, if the queue wants one.
    pub(crate) fn fetch(&mut self, id: SessionId) {
        if self.durability.is_on()
            && let Some(session_entry) = self.sessions.get_mut(id)
        {
            let sender = &mut session_entry.session.sender;
            self.durability.fetch(id, sender, &self.shared.budget, &mut self.effects);
        }
    }
}
