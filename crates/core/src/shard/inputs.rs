//! The inputs of a shard, and the queries to it: the functions for a driver. The turn is in `io`,
//! and bytes come in through `receive`. An input whose steps have a file of their own is in that
//! file: commits and pages in `turn/commits`, messages of the broker's own in `own_messages`, a
//! disconnect in `leave`.

use crate::durability::read_requests::{DelayedRequest, PageRequest};
use crate::events::client_events::DisconnectCause;
use crate::events::trace::TraceWatch;
use crate::expiry::deadline::{DeadlineKind, Registration};
use crate::login::arrival::Arrival;
use crate::login::authentication::AuthDecision;
use crate::mqtt::packet::ReasonCode;
use crate::peers::peer_batch::PeerBatch;
use crate::peers::underway::Underway;
use crate::persistence::records::{ReadEntry, StoredDelayed};
use crate::routing::subscription_tree::ShardId;
use crate::session::drops::DropReason;
use crate::session::outbound::stall::SocketView;
use crate::shard::clients::auth_exchange;
use crate::shard::clients::bans::Bans;
use crate::shard::clients::connection::Connection;
use crate::shard::clients::connection_view::ConnectionView;
use crate::shard::clients::deadlines::{DeadlineAction, OverdueAcknowledgement};
use crate::shard::clients::leave::socket_closed;
use crate::shard::clients::pause::Pause;
use crate::shard::clients::session_deadlines::session_deadline_expired;
use crate::shard::core::Core;
use crate::shard::delivery::fans::Fans;
use crate::shard::delivery::own_messages::publish_own;
use crate::shard::features::delayed::Delayed;
use crate::shard::features::letter_keeping;
use crate::shard::observe::snapshot::ShardSnapshot;
use crate::shard::observe::usage::{self, ResourceUsage};
use crate::shard::randomness::Randomness;
use crate::shard::reconfigure;
use crate::shard::recovery::placement::RecoveredShard;
use crate::shard::recovery::recover;
use crate::shard::rules::permission_changes::PermissionChanges;
use crate::shard::settings::OWN_HOUSEKEEPING;
use crate::shard::subscriptions::routes::Routes;
use crate::shard::turn::commits::take_page;
use crate::shard::turn::effects::Effects;
use crate::shard::turn::work::Work;
use crate::shard::{Shard, ShardSettings, SharedState};
use crate::slots::{ConnectionId, Id};
use crate::time::Instant;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
        self.core.durability.keep_in_store(self.core.peers.here(), next_number);
    }

    /// Stores sessions from here on, and takes up the content of the store. Call it before anything
    /// else.
    pub fn take_up(&mut self, now: Instant, share: RecoveredShard) {
        self.keep_in_store(share.next_number);
        self.core.dead_letters.stored.recover(share.letters, &self.core.shared.totals);
        let RecoveredShard { down, progress, sessions, orphaned, in_flight, .. } = share;
        let sessions = sessions.into_iter().inspect(|_| {
            progress.fetch_add(1, Ordering::Relaxed);
        });
        recover(now, down, sessions, orphaned, in_flight, &mut self.routes, &mut self.core);
        self.delayed.recover(now, share.read_until, share.delayed, share.delayed_in_all, &mut self.core);
    }
}

/// An input from outside that returns nothing. The inputs on the way of each message are methods of
/// their own: [`Shard::take_in`], [`Shard::take_peer_batch`], [`Shard::committed`]. So are two that
/// tests and the start call: [`Shard::replace_settings`] and [`Shard::announce`].
#[derive(Debug)]
pub enum Input<'a> {
    /// The authenticator has decided about a CONNECT or a re-authentication. After CONNECT, the
    /// connection is read again, and its CONNECT is handled. Ignored if the connection does not
    /// wait for a decision any more.
    Authenticated(ConnectionId, AuthDecision),
    /// The socket of a connection is gone: closed by the peer, failed, or finished after
    /// [`Shard::disconnect`]. The text says why.
    Closed(ConnectionId, &'a str),
    /// The last bytes that were taken from an outbox did not leave the process: this many. Comes
    /// before [`Self::Closed`].
    DidNotLeave(ConnectionId, usize),
    /// Bytes that came with a connection from another shard. The next [`Shard::receive`] handles
    /// them.
    Unread(ConnectionId, Vec<u8>),
    /// A part of a TLS record or WebSocket frame has just come if `has_partial`; otherwise none
    /// waits for its rest. The rest has the same deadline as that of a packet.
    AwaitRest {
        /// The connection.
        id: ConnectionId,
        /// True if a rest is to come.
        has_partial: bool,
    },
    /// Unacknowledged packets of a connection are due: a 3.x client gets the packets again that its
    /// kernel has, a 5.0 client is reported or disconnected. With the socket's view of the bytes
    /// that were written to it.
    AcknowledgementDue(ConnectionId, SocketView),
    /// The time of delayed messages has come. To publish all may take several turns.
    DelayedDue,
    /// Delayed messages were read from the store. Messages of other shards are among them.
    Delayed(DelayedRequest, Vec<StoredDelayed>),
    /// A page was read back from the store.
    Page(PageRequest, Vec<ReadEntry>),
    /// Data that is expired or above a bound is to be dropped, drops to be reported, and the gauges
    /// to be counted. Comes again at `next`.
    Housekeeping {
        /// The time of the next one.
        next: Instant,
    },
    /// The machine was suspended until now. Deadlines of peers begin anew: Keep Alive, write
    /// timeout, acknowledgements. Peers could not speak, and their bytes have yet to be read. Other
    /// deadlines count the time that passed: session expiry, will delay, message expiry, delayed
    /// messages.
    Woke,
    /// The time of day, in milliseconds since 1970. For readers, never for a deadline.
    WallClock(u64),
    /// The clients and topics that operators' traces follow; `None` for nothing.
    Traces(Option<Arc<TraceWatch>>),
    /// A retained message of the broker's own, at QoS 0: its topic and its payload.
    Own(&'a str, &'a [u8]),
    /// The broker has shut its clients out, because it cannot reach the log of its cell. Every
    /// connection ends, as at a stop, and clients may come back later.
    ShutOut,
    /// The broker stops. Every connection ends, and records go to the store at once from here on.
    Stop,
}

/// Inputs.
impl Shard {
    /// Takes an input in.
    pub fn input(&mut self, now: Instant, input: Input<'_>) {
        let Shard { core, routes, fans, work, delayed, .. } = self;
        match input {
            Input::Authenticated(id, decision) => authenticated(now, id, decision, self),
            Input::Closed(id, why) => socket_closed(now, id, why, self),
            Input::DidNotLeave(id, bytes) => {
                if let Some(connection) = core.connections.get_mut(id) {
                    connection.wire.outbox.did_not_leave(bytes);
                }
            }
            Input::Unread(id, unread) => core.connections.keep_unread(id, unread),
            Input::AwaitRest { id, has_partial } => {
                core.connections.await_rest(now, id, has_partial, &mut core.effects);
            }
            Input::AcknowledgementDue(connection, view) => {
                OverdueAcknowledgement { now, connection, view }.handle(self);
            }
            Input::DelayedDue => work.later(delayed.expired(now, fans, routes, core)),
            Input::Delayed(request, read) => delayed.take_read(now, request, read, core),
            Input::Page(request, read) => take_page(now, &request, read, self),
            Input::Housekeeping { next } => housekeeping(now, next, self),
            Input::Woke => core.connections.woke(now),
            Input::WallClock(unix_millis) => core.dead_letters.set_wall_clock(now, unix_millis),
            Input::Traces(watch) => core.recorder().follow(watch),
            Input::Own(topic, payload) => publish_own(now, topic, payload, self),
            Input::ShutOut => self.shut_out(now),
            Input::Stop => {
                core.durability.begin_to_stop();
                self.shut_out(now);
            }
        }
    }

    /// Disconnects every client. At a stop in order, the wills of sessions that end with their
    /// connection are published ([`crate::session::will`]).
    fn shut_out(&mut self, now: Instant) {
        for id in self.connection_ids() {
            let reason = Some(ReasonCode::SERVER_SHUTTING_DOWN);
            self.disconnect(now, id, reason, DisconnectCause::Shutdown);
        }
    }

    /// Adds a connection whose socket was accepted, or came from another shard. The time for its
    /// CONNECT runs from `accepted`.
    pub fn accept(&mut self, accepted: Instant, mut arrival: Arrival) -> ConnectionId {
        if self.core.settings.rates_of(&arrival.listener).are_unlimited() {
            arrival.host = None;
        }
        let seed = self.randomness.spread() as u32;
        self.core.connections.accept(accepted, arrival, seed, &mut self.core.effects)
    }

    /// Removes a connection whose socket moves to another shard. Returns the time at which the
    /// connection was accepted and its arrival, for [`Self::accept`] of that shard. Returns `None`
    /// if there is no such connection.
    pub fn moved(&mut self, id: ConnectionId) -> Option<(Instant, Arrival)> {
        let connection = self.core.connections.remove(id)?;
        // No packet was handled yet, so nothing was heard since.
        Some((connection.keep_alive.last_heard(), connection.into_arrival()))
    }

    /// Takes in a batch of a peer. Batches of one peer come in their order. A batch that takes more
    /// than this turn continues in later turns, and later batches wait for its end.
    pub fn take_peer_batch(&mut self, now: Instant, peer_batch: PeerBatch) {
        if !self.fans.is_empty() {
            return self.fans.push_batch(peer_batch);
        }
        Box::new(Underway::new(peer_batch)).take_up(now, self);
    }

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
                session_deadline_expired(now, id, self);
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

    /// Replaces the settings between two turns. The new settings hold for connections before
    /// CONNECT and for all later packets.
    ///
    /// The caller leaves the packet size of connected clients unchanged, because 5.0 clients were
    /// told it. The rules of the ACL file do not change.
    pub fn replace_settings(&mut self, settings: ShardSettings) {
        let are_new_rules = self.core.access.replace_settings(&settings.access);
        self.work.later(reconfigure::replace_settings(settings, &mut self.bans, &mut self.core));
        if are_new_rules {
            self.permission_changes().rules_changed();
        }
    }

    /// Returns this shard, to change the permissions of its clients.
    pub fn permission_changes(&mut self) -> PermissionChanges<'_> {
        PermissionChanges::new(self)
    }
}

/// Queries.
impl Shard {
    /// Returns the number of this shard.
    pub fn here(&self) -> ShardId {
        self.core.peers.here()
    }

    /// Returns the effects of the turn so far.
    pub fn effects(&mut self) -> &mut Effects {
        &mut self.core.effects
    }

    /// Returns a look at one connection.
    #[inline]
    pub fn connection(&self, id: ConnectionId) -> ConnectionView<'_> {
        ConnectionView { id, core: &self.core }
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

/// Takes in the decision about a CONNECT or a re-authentication.
fn authenticated(now: Instant, id: ConnectionId, decision: AuthDecision, shard: &mut Shard) {
    if shard.core.connections.get(id).is_some_and(Connection::is_established) {
        return auth_exchange::reauthentication_decided(now, id, decision, shard);
    }
    if shard.core.connections.decide(id, decision) {
        shard.core.unpause(now, id, Pause::Authentication);
    }
}

/// Drops data that is expired or above a bound, asks for orphaned queues, reads delayed messages
/// ahead, reports drops and reads their topics, recounts the gauges, and registers the next time.
fn housekeeping(now: Instant, next: Instant, shard: &mut Shard) {
    const EXPIRED_AT_ONCE: usize = 1_000;
    shard.core.counters.objectives.advance(now);
    shard.delayed.look_ahead(now, &mut shard.core);
    shard.routes.ask_for_orphaned_queues(now, &mut shard.core);
    letter_keeping::drop_oldest(&mut shard.core);
    let next_number = shard.core.durability.write_buffer().map(|buffer| buffer.upcoming_number());
    let is_first = shard.here() == ShardId(0);
    let Core { shared, counters, effects, figures, sessions, connections, durability, .. } = &mut shard.core;
    figures.recount(now, next_number, sessions, connections);
    if is_first {
        let gone = shared.retained().expire(now, EXPIRED_AT_ONCE);
        effects.retained |= gone > 0;
        counters.drops.add(DropReason::Expired, gone);
    }
    figures.drops.report(now, &mut effects.events);
    figures.refusals.report(now, &mut effects.events);
    effects.registrations.push(Registration {
        kind: DeadlineKind::Housekeeping,
        slot: OWN_HOUSEKEEPING,
        generation: 0,
        deadline: next,
    });
    let is_short = shared.budget.is_nearly_exceeded() || shared.is_store_full();
    durability.read_topics(is_short, &mut effects.reads);
}
