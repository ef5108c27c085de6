//! The inputs of a shard, and the queries to it: the functions for a driver. The turn is in `io`,
//! and bytes come in through `receive`. An input whose steps have a file of their own is in that
//! file: commits and pages in `commits`, messages of the broker's own in `own_messages`, a
//! disconnect in `leave`.

use crate::expiry::deadline::{DeadlineKind, Registration};
use crate::mqtt::packet::ReasonCode;
use crate::persistence::records::StoredDelayed;
use crate::routing::subscription_tree::ShardId;
use crate::session::drops::DropReason;
use crate::session::outbound::stall::SocketView;
use crate::shard::clients::connection::Connection;
use crate::shard::clients::connection_view::ConnectionView;
use crate::shard::clients::deadlines::{DeadlineAction, OverdueAcknowledgement, OverdueConnection};
use crate::shard::clients::pause::Pause;
use crate::shard::clients::slots::{ConnectionId, Id};
use crate::shard::core::Core;
use crate::shard::delivery::fans::Fans;
use crate::shard::durability::placement::RecoveredShard;
use crate::shard::durability::recovery::recover;
use crate::shard::features::delayed::Delayed;
use crate::shard::features::letter_keeping;
use crate::shard::login::arrival::Arrival;
use crate::shard::login::auth_exchange;
use crate::shard::login::authentication::AuthDecision;
use crate::shard::login::bans::Bans;
use crate::shard::observe::client_events::DisconnectCause;
use crate::shard::observe::snapshot::ShardSnapshot;
use crate::shard::observe::trace::TraceWatch;
use crate::shard::observe::usage::{self, ResourceUsage};
use crate::shard::peers::peer_batch::PeerBatch;
use crate::shard::peers::underway::Underway;
use crate::shard::randomness::Randomness;
use crate::shard::reconfigure;
use crate::shard::rules::access_control::AccessControl;
use crate::shard::settings::OWN_HOUSEKEEPING;
use crate::shard::subscriptions::routes::Routes;
use crate::shard::turn::effects::{DelayedRequest, Effects};
use crate::shard::turn::work::Work;
use crate::shard::{Pot, Shard, ShardSettings, SharedState};
use crate::time::Instant;
use std::sync::Arc;

impl Shard {
    /// Returns the shard `here` of `shards`.
    pub fn new(
        here: ShardId,
        shards: u8,
        settings: ShardSettings,
        shared: Arc<SharedState>,
        randomness: Randomness,
    ) -> Shard {
        Shard {
            bans: Bans::new(settings.flapping),
            core: Core::new(here, shards, settings, shared),
            routes: Routes::new(here),
            fans: Fans::default(),
            work: Work::default(),
            delayed: Delayed::default(),
            randomness,
        }
    }

    /// Stores sessions that outlive their connections from here on. Call it before anything else.
    /// `next_number` is above every number that the store has seen.
    pub fn keep_in_store(&mut self, next_number: u64) {
        self.core.durability.keep_in_store(self.core.here, next_number);
    }

    /// Stores sessions from here on, and takes up the content of the store. Call it before anything
    /// else.
    pub fn take_up(&mut self, now: Instant, share: RecoveredShard) {
        self.keep_in_store(share.next_number);
        self.core.dead_letters.stored.recover(share.letters, &self.core.shared.totals);
        let RecoveredShard { down, sessions, orphaned, in_flight, .. } = share;
        recover(now, down, sessions, orphaned, in_flight, &mut self.routes, &mut self.core);
        self.delayed.recover(now, share.read_until, share.delayed, share.delayed_in_all, &mut self.core);
    }
}

/// Inputs: connections.
impl Shard {
    /// Adds a connection whose socket was accepted, or came from another shard. The time for its
    /// CONNECT runs from `accepted`.
    pub fn accept(&mut self, accepted: Instant, mut arrival: Arrival) -> ConnectionId {
        if self.core.settings.rates_of(&arrival.listener).are_unlimited() {
            arrival.host = None;
        }
        let seed = self.randomness.spread();
        self.core.connections.accept(accepted, arrival, seed, &mut self.core.effects)
    }

    /// Takes in the decision about a CONNECT or a re-authentication. After CONNECT, the connection
    /// is read again then, and its CONNECT is handled. Does nothing if the connection does not wait
    /// for a decision any more.
    pub fn authenticated(&mut self, now: Instant, id: ConnectionId, decision: AuthDecision) {
        if self.core.connections.get(id).is_some_and(Connection::is_established) {
            return auth_exchange::reauthentication_decided(now, id, decision, self);
        }
        if self.core.connections.decide(id, decision) {
            self.core.unpause(now, id, Pause::Authentication);
        }
    }

    /// Removes a connection whose socket is gone: closed by the peer, failed, or finished after
    /// [`Self::disconnect`].
    pub fn closed(&mut self, now: Instant, id: ConnectionId, network: &str) {
        self.socket_closed(now, id, network);
        self.core.connections.remove(id);
    }

    /// Notes that the last `bytes` bytes that were taken from an outbox did not leave the process.
    /// Called before [`Self::closed`].
    pub fn did_not_leave(&mut self, id: ConnectionId, bytes: usize) {
        if let Some(connection) = self.core.connections.get_mut(id) {
            connection.wire.outbox.did_not_leave(bytes);
        }
    }

    /// Removes a connection whose socket moves to another shard. Returns the time at which the
    /// connection was accepted and its arrival, for [`Self::accept`] of that shard. Returns `None`
    /// if there is no such connection.
    pub fn moved(&mut self, id: ConnectionId) -> Option<(Instant, Arrival)> {
        let connection = self.core.connections.remove(id)?;
        // No packet was handled yet, so nothing was heard since.
        Some((connection.keep_alive.last_heard(), connection.into_arrival()))
    }

    /// Keeps bytes that came with a connection from another shard. The next [`Self::receive`]
    /// handles them.
    pub fn keep_unread(&mut self, id: ConnectionId, unread: Vec<u8>) {
        self.core.connections.keep_unread(id, unread);
    }

    /// Ends every connection because the broker stops. Records go to the store at once from here
    /// on.
    pub fn stop(&mut self, now: Instant) {
        self.core.durability.begin_to_stop();
        for id in self.connection_ids() {
            self.disconnect(now, id, Some(ReasonCode::SERVER_SHUTTING_DOWN), DisconnectCause::Shutdown);
        }
    }

    /// Returns the rules of access, to change them.
    pub fn access_control(&mut self) -> AccessControl<'_> {
        AccessControl::new(self)
    }

    /// Replaces the settings between two turns. The new settings hold for connections before
    /// CONNECT and for all later packets.
    ///
    /// The caller leaves the packet size of connected clients unchanged, because 5.0 clients were
    /// told it. The rules of the ACL file do not change.
    pub fn replace_settings(&mut self, settings: ShardSettings) {
        let are_new_rules = self.core.access.replace_settings(&settings.access);
        self.work.later(reconfigure::replace_settings(settings, &mut self.bans, &mut self.core));
        if are_new_rules {
            self.access_control().rules_changed();
        }
    }

    /// Sets the clients and topics that operators' traces follow; `None` for nothing.
    pub fn set_trace(&mut self, watch: Option<Arc<TraceWatch>>) {
        self.core.recorder().follow(watch);
    }

    /// Adds the growth of this shard's partial packets to the total of all shards.
    pub fn report_partial(&mut self) {
        self.core.connections.report_partial(&self.core.shared.partial);
    }
}

/// Inputs: time.
impl Shard {
    /// Handles a deadline that the expiry actor reports as expired. Returns the action of the
    /// connection's actor, if one is due.
    pub fn expired_deadline(
        &mut self,
        now: Instant,
        kind: DeadlineKind,
        slot: u32,
        generation: u32,
    ) -> Option<DeadlineAction> {
        if kind == DeadlineKind::Session {
            let id = Id::new(slot, generation);
            if self.core.turn.is_over() || self.fans.blocks_own() || self.work.has_due() {
                self.work.session_due(id);
            } else {
                self.session_deadline_expired(now, id);
            }
            return None;
        }
        let id = Id::new(slot, generation);
        let client = self.core.client(id);
        let unacknowledged =
            client.map_or(Instant::NEVER, |client| client.entry.session.sender.window.earliest_due());
        let due = self.core.connections.expired(kind, id, unacknowledged)?;
        if kind == DeadlineKind::ReadIdle
            && self.core.connections.end_rate_pause(now, id, &mut self.core.effects)
        {
            return None;
        }
        if due > now {
            self.core.connections.register(kind, id, due, &mut self.core.effects);
            return None;
        }
        Some(match kind {
            DeadlineKind::Retransmit => DeadlineAction::Retransmit(id),
            _ => DeadlineAction::Disconnect(id),
        })
    }

    /// Handles unacknowledged packets of a connection that are due: a 3.x client gets the packets
    /// again that its kernel has, a 5.0 client is reported or disconnected. `view` is the socket's
    /// view of the bytes that were written to it.
    pub fn acknowledgement_due(&mut self, now: Instant, id: ConnectionId, view: SocketView) {
        OverdueAcknowledgement { now, connection: id, view }.handle(self);
    }

    /// Disconnects a connection whose read or write deadline has passed by now. The caller has read
    /// the bytes of a silent one.
    pub fn disconnect_if_due(&mut self, now: Instant, id: ConnectionId) -> OverdueConnection {
        OverdueConnection::check(now, id, self)
    }

    /// Publishes delayed messages whose time has come, in as many turns as that takes.
    pub fn publish_delayed(&mut self, now: Instant) {
        let Shard { core, routes, fans, work, delayed, .. } = self;
        work.later(delayed.expired(now, fans, routes, core));
    }

    /// Drops data that is expired or above a bound, asks for orphaned queues, reads delayed
    /// messages ahead, reports drops, recounts the gauges, and registers the next time.
    pub fn housekeeping(&mut self, now: Instant, next: Instant) {
        const EXPIRED_AT_ONCE: usize = 1_000;
        self.core.counters.objectives.advance(now);
        self.delayed.look_ahead(now, &mut self.core);
        self.routes.ask_for_orphaned_queues(now, &mut self.core);
        letter_keeping::drop_oldest(&mut self.core);
        let next_number = self.core.durability.write_buffer().map(|buffer| buffer.upcoming_number());
        let Core { here, shared, counters, effects, figures, sessions, connections, .. } = &mut self.core;
        figures.recount(now, next_number, sessions, connections);
        if here.0 == 0 {
            let gone = shared.retained().expire(now, EXPIRED_AT_ONCE);
            effects.retained |= gone > 0;
            counters.drops.add(DropReason::Expired, gone);
        }
        figures.drops.report(now, effects);
        figures.refusals.report(now, effects);
        effects.registrations.push(Registration {
            kind: DeadlineKind::Housekeeping,
            slot: OWN_HOUSEKEEPING,
            generation: 0,
            deadline: next,
        });
    }

    /// Notes that the machine was suspended until now. Deadlines of peers begin anew: Keep Alive,
    /// write timeout, acknowledgements. Peers could not speak, and their bytes have yet to be read.
    /// Other deadlines count the time that passed: session expiry, will delay, message expiry,
    /// delayed messages.
    pub fn woke(&mut self, now: Instant) {
        self.core.connections.woke(now);
    }

    /// Sets the time of day, in milliseconds since 1970. For readers, never for a deadline.
    pub fn set_wall_clock(&mut self, now: Instant, unix_millis: u64) {
        self.core.dead_letters.set_wall_clock(now, unix_millis);
    }
}

/// Inputs: peers and the store.
impl Shard {
    /// Takes in a batch of a peer. Batches of one peer come in their order. A batch that takes more
    /// than this turn continues in later turns, and later batches wait for its end.
    pub fn take_peer_batch(&mut self, now: Instant, peer_batch: PeerBatch) {
        if self.fans.any() {
            return self.fans.push_batch(peer_batch);
        }
        Box::new(Underway::new(peer_batch)).take_up(now, self);
    }

    /// Takes in delayed messages that were read from the store. Messages of other shards are among
    /// them.
    pub fn take_delayed(&mut self, now: Instant, request: DelayedRequest, read: Vec<StoredDelayed>) {
        self.delayed.take_read(now, request, read, &mut self.core);
    }
}

/// Queries.
impl Shard {
    /// Returns the number of this shard.
    pub fn here(&self) -> ShardId {
        self.core.here
    }

    /// Returns the effects of the turn so far.
    pub fn effects(&mut self) -> &mut Effects {
        &mut self.core.effects
    }

    /// Returns true if the turn left something for the driver to do.
    pub fn has_work(&self) -> bool {
        !self.core.effects.is_empty()
            || !self.core.turn.after_deliveries.is_empty()
            || self.has_jobs()
            || !self.core.dead_letters.is_empty()
            || self.routes.orphaned_queues.is_nudged()
            || self.core.peers.has_outgoing()
            || self.core.durability.write_buffer().is_some_and(|l| l.is_due())
    }

    /// Returns true if a flush or a job is left: for a driver that runs turns until all work is
    /// done.
    pub fn is_unfinished(&self) -> bool {
        !self.core.effects.dirty.is_empty() || self.has_jobs()
    }

    /// Returns true if work continues in a later turn. The sockets are polled first.
    pub fn has_jobs(&self) -> bool {
        !self.work.is_empty() || self.fans.any()
    }

    /// Returns a look at one connection.
    #[inline]
    pub fn connection(&self, id: ConnectionId) -> ConnectionView<'_> {
        ConnectionView::new(id, &self.core)
    }

    /// Notes that a part of a TLS record or WebSocket frame has just come, or that none waits for
    /// its rest. The rest has the same deadline as that of a packet.
    pub fn await_rest(&mut self, now: Instant, id: ConnectionId, has_partial: bool) {
        let Core { connections, effects, .. } = &mut self.core;
        connections.await_rest(now, id, has_partial, effects);
    }

    /// Returns the growth of this shard's partial packets, in bytes, since
    /// [`Self::report_partial`], of the pot that has grown more. May be negative.
    pub fn unreported_partial(&self) -> i64 {
        let [one, other] = Pot::ALL.map(|pot| self.core.connections.unreported_partial(pot));
        one.max(other)
    }

    /// Returns the figures of this shard.
    pub fn snapshot(&self) -> ShardSnapshot {
        ShardSnapshot::of(&self.core, &self.routes)
    }

    /// Returns every connection.
    pub fn connection_ids(&self) -> Vec<ConnectionId> {
        self.core.connections.iter().map(|(id, _)| id).collect()
    }

    /// Returns the state that this shard shares with the others.
    pub fn shared(&self) -> Arc<SharedState> {
        Arc::clone(&self.core.shared)
    }

    /// Returns the largest number of steps of a turn since the last call, and the number of packets
    /// that began after their turn was over. The second number must be 0. For tests.
    pub fn take_longest_turn(&mut self) -> (u32, u32) {
        self.core.turn.take_longest()
    }

    /// Returns true if a publication takes more than one turn, and is not complete. For tests.
    pub fn is_fanning(&self) -> bool {
        self.fans.is_fanning()
    }

    /// Counts the resources of this shard. For tests.
    pub fn usage(&self) -> ResourceUsage {
        ResourceUsage::of(&self.core, &self.routes, &self.fans, &self.work)
    }

    /// Counts the memory of each owner anew, between two turns. Returns the bytes that all of them
    /// have charged. For tests.
    ///
    /// # Errors
    /// The first owner whose charge is wrong, with both figures.
    pub fn recount(&self) -> Result<usize, String> {
        usage::recount(&self.core, &self.routes, &self.delayed)
    }
}
