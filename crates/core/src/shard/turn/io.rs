//! The turn of a shard: the one order in which its effects are carried out, and the trait that
//! carries them out.
//!
//! A shard does no I/O. It calls [`Io`], which stands for the sockets, the store, the peers, the
//! expiry actor and the log. There are three implementations: the driver (`src/broker/driver`), the
//! simulation, and the in-memory tests. All of them run the code of this file, so the simulation
//! checks the order that serves clients. Dispatch is static, and a turn allocates nothing of its
//! own.
//!
//! # The order
//!
//! 1. [`Shard::turn`] begins a new budget and continues work of earlier turns ([`Shard::work`]).
//! 2. [`Shard::flush`] runs up to `ROUNDS` rounds, because a flush makes room, room lets queued
//!    messages out, and these messages are flushed again. One round is:
//!    1. Release what waits for the end of a turn: held messages, dead letters, orphaned queues,
//!       overfull receivers.
//!    2. Report client events. So a client that sees its connection end finds its last-disconnect
//!       record.
//!    3. Send changed retained messages, then the sealed batch, then page requests to the store.
//!    4. Seal and send one batch to each peer. The store has the batch first: a participant's part
//!       of a transaction must not reach the store before the batch that lists it.
//!    5. Write each dirty connection once, until the budget of the turn is used up. Do 3 and 4
//!       again with what the writes led to.
//!    6. Register deadlines, ask the authenticator, read connections that are about to be taken
//!       over, resume paused connections, answer operators.

use crate::durability::read_requests::{DelayedRequest, PageRequest};
use crate::events::client_events::{ClientEvent, DisconnectCause};
use crate::expiry::deadline::Registration;
use crate::login::authentication::AuthRequest;
use crate::mqtt::packet::ReasonCode;
use crate::peers::peer_batch::PeerBatch;
use crate::persistence::records::{Batch, RetainedRecord};
use crate::persistence::write_buffer::SealTime;
use crate::routing::subscription_tree::ShardId;
use crate::session::outbox::Outbox;
use crate::session::trace_steps::TraceSteps;
use crate::shard::clients::connection::Leaves;
use crate::shard::clients::follow_up::go_on_sending;
use crate::shard::clients::pause::Pause;
use crate::shard::clients::session_deadlines::go_on_with_due;
use crate::shard::core::Core;
use crate::shard::delivery::fans::PublicationOrigin;
use crate::shard::delivery::own_messages::{keep_last_disconnect, publish_dead_letters};
use crate::shard::features::hold;
use crate::shard::features::unanswered::PublicationAnswer;
use crate::shard::rules::access_change::{QueueCheck, walk_after_change};
use crate::shard::turn::commits::{go_on_with_commit, release_finished};
use crate::shard::turn::effects::Effects;
use crate::shard::turn::work::Job;
use crate::shard::{Shard, reconfigure};
use crate::slots::ConnectionId;
use crate::time::Instant;

/// Rounds of one flush at most.
const ROUNDS: usize = 16;

/// Carries out the decisions of a shard. No method may call back into the shard.
pub trait Io {
    /// Writes as much of the outbox as the connection's socket takes. Returns `None` if the socket
    /// is gone or failed; the caller then does nothing more with this connection.
    fn write(&mut self, id: ConnectionId, outbox: &mut Outbox) -> Option<Written>;

    /// Reads the clock. Called before the write of a promise, and only in a cluster: the lease is
    /// compared with the time of the write.
    fn read_clock(&mut self) -> Instant;

    /// The socket takes no more bytes: calls [`Shard::flush_connection`] when it does.
    fn await_writable(&mut self, id: ConnectionId);

    /// Everything is written to a connection that ends. Closes the socket at once if the client
    /// said DISCONNECT, and after the client closed its side if the broker ends the connection.
    fn finish(&mut self, id: ConnectionId, leaves: Leaves);

    /// Sends changes of retained messages to the store. The lock on the retained messages is held
    /// during the call, so that the store has the changes of all shards in one order.
    fn store_retained(&mut self, changes: Vec<RetainedRecord>);

    /// Sends a batch to the store, which answers later with [`Shard::committed`].
    fn commit(&mut self, batch: Batch);

    /// Requests stored deliveries, which come back with [`Input::Page`](crate::shard::Input).
    fn read_page(&mut self, request: PageRequest);

    /// Requests stored delayed messages, which come back with `Input::Delayed`.
    fn read_delayed(&mut self, request: DelayedRequest);

    /// Sends a batch to a peer, which passes it to [`Shard::take_peer_batch`].
    fn send_to_peer(&mut self, to: ShardId, batch: PeerBatch);

    /// Registers these deadlines with the expiry actor. `batch` is never empty.
    fn register(&mut self, now: Instant, batch: Vec<Registration>);

    /// Reads what the kernel has of this connection, in a later turn, before any connection that is
    /// resumed after this call.
    fn read_now(&mut self, id: ConnectionId);

    /// Reads from this connection again, in a later turn.
    fn resume(&mut self, id: ConnectionId);

    /// Asks the authenticator, whose decision comes back with `Input::Authenticated`. A decision
    /// that comes later than `auth.timeout` is not needed.
    fn authenticate(&mut self, request: AuthRequest);

    /// Passes on the answer to a message that an operator published.
    fn answer_operator(&mut self, answer: PublicationAnswer);

    /// Sends steps to the collector of traces. Never waits: steps without room are counted as lost.
    fn trace(&mut self, steps: TraceSteps);

    /// Passes a client event to its listeners, and returns the publications of two of them.
    fn report(&mut self, now: Instant, event: &ClientEvent) -> EventMessages;
}

/// The result of [`Io::write`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes that were taken from the outbox.
    pub taken: usize,
    /// Bytes that wait for the socket behind the outbox, because TLS or WebSocket sealed them. 0
    /// for plain MQTT.
    pub pending: usize,
    /// True if the socket took bytes.
    pub progressed: bool,
}

impl Written {
    /// Returns the result for a plain connection whose socket took this many bytes.
    pub fn plain(taken: usize) -> Written {
        Written { taken, pending: 0, progressed: taken > 0 }
    }
}

/// Publications of the listeners of one client event: a topic and a payload each.
#[derive(Debug, Default)]
pub struct EventMessages {
    /// For the subscribers of the event topic.
    pub event: Option<(String, String)>,
    /// A last-disconnect record, which is retained.
    pub last_disconnect: Option<(String, String)>,
}

impl Shard {
    /// Begins a turn. The driver calls this before it polls a connection, before it passes a
    /// message in, and in the flusher.
    pub fn begin_turn(&mut self) {
        self.core.turn.begin();
    }

    /// Runs one turn: continues earlier work, then flushes. Returns true if the shard has work for
    /// another turn.
    ///
    /// `now` is read once for the whole turn, which takes 5 ms at most.
    pub fn turn(&mut self, now: Instant, io: &mut impl Io) -> bool {
        self.begin_turn();
        self.core.counters.objectives.advance(now);
        if self.has_jobs() {
            self.work(now);
        }
        self.flush(now, io);
        self.has_work()
    }

    /// Returns true if the turn left something for the driver to do.
    pub fn has_work(&self) -> bool {
        !self.core.effects.is_empty()
            || !self.core.turn.after_deliveries.is_empty()
            || self.has_jobs()
            || !self.core.dead_letters.is_empty()
            || self.routes.orphaned_queues.is_nudged()
            || self.core.peers.has_outgoing()
            || self.core.durability.write_buffer().is_some_and(|l| l.is_due() || l.has_finished())
    }

    /// Returns true if a flush or a job is left: for a driver that runs turns until all work is
    /// done.
    pub fn is_unfinished(&self) -> bool {
        !self.core.effects.dirty.is_empty() || self.has_jobs()
    }

    /// Returns true if work continues in a later turn. The sockets are polled first.
    pub fn has_jobs(&self) -> bool {
        !self.work.is_empty() || !self.fans.is_empty()
    }

    /// Carries out all effects, in rounds, until none makes a connection dirty or the turn is over.
    pub fn flush(&mut self, now: Instant, io: &mut impl Io) {
        for _ in 0..ROUNDS {
            release_for_flush(now, self);
            self.report_events(now, io);
            // First the batches, so that a message is on its way to the peers when its publisher
            // gets PINGRESP or an acknowledgement. The publisher may then tell a client of another
            // shard to subscribe. If the message came to that shard after the SUBSCRIBE, it could
            // be delivered live, with RETAIN 0, although it was retained before.
            send_batches(now, self, io);
            flush_dirty(now, self, io);
            send_batches(now, self, io);
            send_effects(now, &mut self.core.effects, io);
            if self.core.effects.dirty.is_empty() || self.core.turn.is_over() {
                return;
            }
        }
    }

    /// Reports client events, and sends the publications of their listeners. A driver calls this by
    /// itself only when a connection closes, because it knows the address of the client until then.
    pub fn report_events(&mut self, now: Instant, io: &mut impl Io) {
        if self.core.effects.events.is_empty() {
            return;
        }
        // The list is dropped and not kept: a reconnect storm makes it long, and nothing like it
        // may follow.
        for event in std::mem::take(&mut self.core.effects.events) {
            if self.core.tracer.is_on() {
                self.core.recorder().add_event(now, &event);
            }
            let EventMessages { event, last_disconnect } = io.report(now, &event);
            if let Some((topic, text)) = last_disconnect {
                keep_last_disconnect(now, &topic, &text, self);
            }
            if let Some((topic, text)) = event {
                self.announce(now, &topic, text.as_bytes());
            }
        }
    }

    /// Continues work of earlier turns. Each job gets a portion of this turn, in the order in which
    /// the jobs were put off, until the turn is over.
    pub fn work(&mut self, now: Instant) {
        if !self.core.dead_letters.is_empty() {
            // The store gets no batch until they are published.
            self.core.turn.begin_portion();
            publish_dead_letters(now, self);
        }
        if !self.fans.is_empty() {
            // A large publication gets the steps left by the jobs, because other publications wait
            // for it.
            self.core.turn.begin_publication(self.work.len());
            go_on_with_fans(now, self);
        }
        for _ in 0..self.work.len() {
            if self.core.turn.is_used_up() {
                break;
            }
            let Some(job) = self.work.pop() else { break };
            self.core.turn.begin_portion();
            let left = go_on(now, job, self);
            self.work.later(left);
        }
        self.core.turn.end_portions();
    }
}

/// Releases what waits for the end of a turn, before the dirty connections are written.
fn release_for_flush(now: Instant, shard: &mut Shard) {
    debug_assert!(!shard.core.counters.drops.are_unreported(), "each drop is reported with its session");
    for id in std::mem::take(&mut shard.core.turn.after_deliveries.overfull) {
        // Under the policy `disconnect`. The session stays, so the messages in its queue are kept.
        shard.disconnect(now, id, Some(ReasonCode::QUOTA_EXCEEDED), DisconnectCause::QueueFull);
    }
    for id in std::mem::take(&mut shard.core.turn.after_deliveries.to_admit) {
        hold::admit(now, id, shard);
    }
    shard.work.later(shard.core.turn.after_deliveries.to_send.drain(..).map(Job::Send));
    if shard.routes.orphaned_queues.is_nudged() {
        shard.routes.go_on_settling(now, &mut shard.core);
    }
    if !shard.core.dead_letters.is_empty() {
        publish_dead_letters(now, shard);
    }
    release_finished(now, shard);
    shard.routes.retained_order.trim();
    shard.core.effects.unflushed = 0;
}

/// Writes each dirty connection once, in order, until the turn is over. At least one connection
/// is written, so that jobs of many full turns do not stop all writes. The list is taken out
/// meanwhile and put back, so that it is allocated once.
fn flush_dirty(now: Instant, shard: &mut Shard, io: &mut impl Io) {
    let mut dirty = std::mem::take(&mut shard.core.effects.dirty);
    let mut flushed = 0;
    for id in &dirty {
        shard.flush_connection(now, *id, io);
        flushed += 1;
        if shard.core.turn.is_over() {
            break;
        }
    }
    if flushed < dirty.len() {
        dirty.drain(..flushed);
        return shard.core.effects.flush_first(dirty);
    }
    dirty.clear();
    if shard.core.effects.dirty.is_empty() {
        shard.core.effects.dirty = dirty;
    }
}

/// Sends the store the records since the last call, and the requests to read back. Then sends one
/// batch to each peer that waits for one: a part of a transaction never comes before the
/// transaction begins.
fn send_batches(now: Instant, shard: &mut Shard, io: &mut impl Io) {
    let is_stored = shard.core.durability.is_on();
    if is_stored {
        if std::mem::take(&mut shard.core.effects.retained) {
            let mut retained = shard.core.shared.retained();
            let changes = retained.take_changes();
            io.store_retained(changes);
        }
        // Drops since the flush began: a dead letter is in the batch in which its message ends.
        if !shard.core.dead_letters.is_empty() {
            publish_dead_letters(now, shard);
        }
    }
    let Core { dead_letters, durability, effects, peers, shared, .. } = &mut shard.core;
    // A publication that is committed as a whole continues in a later turn.
    if shard.fans.blocks_seals() || is_stored && !dead_letters.is_empty() {
        // The batches grow from turn to turn.
        peers.account();
    } else {
        let is_full = shared.is_store_full();
        let time = if is_full { SealTime::AtOnce } else { SealTime::AfterLastCommit };
        if let Some(batch) = durability.seal(time) {
            io.commit(batch);
        }
        peers.seal(&mut effects.peer_batches);
    }
    effects.reads.pages.drain(..).for_each(|request| io.read_page(request));
    effects.reads.delayed.drain(..).for_each(|request| io.read_delayed(request));
    // Before the peer batches: the collector knows a message before a peer delivers it.
    if !effects.trace.is_empty() {
        let mut steps = std::mem::take(&mut effects.trace);
        // A drop has no time until here.
        steps.steps.iter_mut().filter(|step| step.at.is_never()).for_each(|step| step.at = now);
        io.trace(steps);
    }
    effects.peer_batches.drain(..).for_each(|(to, batch)| io.send_to_peer(to, batch));
}

/// Sends the effects that concern neither the store nor the peers. Nearly always there was only
/// something to write.
fn send_effects(now: Instant, effects: &mut Effects, io: &mut impl Io) {
    if effects.is_empty() {
        return;
    }
    if !effects.registrations.is_empty() {
        io.register(now, std::mem::take(&mut effects.registrations));
    }
    effects.auth_requests.drain(..).for_each(|request| io.authenticate(request));
    effects.read_now.drain(..).for_each(|id| io.read_now(id));
    effects.resume.drain(..).for_each(|id| io.resume(id));
    effects.answered.drain(..).for_each(|answer| io.answer_operator(answer));
}

/// Runs one portion of the large publication, or of the work behind it.
fn go_on_with_fans(now: Instant, shard: &mut Shard) {
    while !shard.core.turn.is_over() {
        if let Some(fan) = shard.fans.take_present() {
            let atomic = fan.atomic;
            // A client that waits for a publication of the broker goes before the next such
            // publication.
            let is_own = matches!(fan.origin, PublicationOrigin::Broker) && shard.fans.has_waiting();
            let left = fan.go_on(now, shard);
            let is_left = left.is_some();
            left.into_iter().for_each(|fan| shard.fans.put_back(fan));
            if is_left || atomic || is_own {
                // The records that a publication delayed are sealed before the next publication
                // begins.
                return;
            }
        } else if let Some(own) = shard.fans.pop_own() {
            own.go_on(now, shard);
        } else if let Some(batch) = shard.fans.pop_batch() {
            batch.take_up(now, shard);
        } else {
            return;
        }
    }
}

/// Runs one portion of a job. Returns the rest of the job, or `None` if the job is complete.
fn go_on(now: Instant, job: Job, shard: &mut Shard) -> Option<Job> {
    match job {
        Job::Read(id, cause) => {
            shard.core.turn.spend(1);
            shard.core.unpause(now, id, cause);
            None
        }
        Job::Delayed => shard.delayed.publish_due(now, &mut shard.fans, &mut shard.routes, &mut shard.core),
        Job::Due => go_on_with_due(now, shard),
        Job::Committed => go_on_with_commit(now, shard),
        Job::RulesChanged { from } => walk_after_change(now, from, shard),
        Job::QueueCheck(session) => QueueCheck { now, session }.go_on(shard),
        Job::SettingsChanged { from } => reconfigure::walk_after_reload(from, &mut shard.core),
        Job::End(ended) => ended.go_on(now, shard),
        Job::Send(session) => go_on_sending(now, session, shard),
        Job::Request(request) => {
            let connection = request.connection;
            let left = request.go_on(now, shard);
            end_pause(now, connection, left, &mut shard.core)
        }
        Job::Retained(retained) => {
            let connection = retained.connection;
            let left = retained.go_on(now, shard);
            end_pause(now, connection, left, &mut shard.core)
        }
    }
}

/// Resumes reading of a connection if `left` is `None`. Returns `left`.
fn end_pause(now: Instant, id: ConnectionId, left: Option<Job>, core: &mut Core) -> Option<Job> {
    if left.is_none() {
        core.unpause(now, id, Pause::Work);
    }
    left
}
