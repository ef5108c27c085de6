//! Homing: an MQTT 3.1, 3.1.1 and 5.0 broker whose one obsession is delivery. This is the map of its code.
//!
//! # The way of a message
//!
//! ```text
//! socket -> codec -> Session::handle(now, packet) -> action -> { outbox -> socket | routing | expiry }
//! ```
//!
//! A connection actor ([`broker::connection`]) becomes readable and reads into a buffer that its arbiter shares. Its shard
//! ([`routing::shard`]) decodes every whole packet in it ([`mqtt::codec`]) and hands each to the session
//! ([`mqtt::session`]), which writes what it can answer to the outbox ([`mqtt::outbox`]) and says in one action what it
//! cannot. A PUBLISH sets its retained message ([`routing::retained`]), is matched
//! ([`routing::subscription_tree`]), and goes into the outbox of every receiver here and into the parcel for every other
//! arbiter that has some ([`routing::shard::exchange`]). When the connections that were readable are through, the flusher
//! ([`broker::shard`]) makes one write for each connection with something to write, sends one parcel to each peer, and
//! tells the expiry actor ([`expiry::actor`]) what deadlines moved to earlier, in one message.
//!
//! What concerns a session that outlives its connection is recorded on the way ([`journal::ledger`]) and goes to the
//! committing thread ([`store::writer`]) as one batch per turn. What may not leave before it is committed waits: acknowledgements
//! in their session, everything else behind a fence in its outbox ([`routing::shard`], `commit`). A session without such a
//! life, and a broker without a store, record nothing.
//!
//! # Layers
//!
//! A module imports only from layers below its own; `tests/layers.rs` checks it.
//!
//! | layer | modules |
//! |---|---|
//! | edge | [`health`], [`load`], the `homing` command |
//! | actors | [`broker`], [`expiry::actor`] |
//! | services | [`config`], [`store`] |
//! | pure | [`mqtt`], [`routing`], [`journal`], [`expiry::queue`], [`expiry::lazy`], [`time`] |
//!
//! The pure rooms know no clock, no async, no chance, no log, and do not panic on what a peer sent; time is an argument.
//! [`clock`] is the only file that reads one. What a shard decides runs under actix and in a simulation alike.
//!
//! # Threads
//!
//! One arbiter per core, each with one shard; one for the expiry actor; one for listeners and the order of start and stop; and,
//! with a store, one thread that commits and one that reads back. A
//! session lives where its client id's hash says, for ever; its socket is moved there once, after CONNECT. Nothing is
//! shared between arbiters but the retained messages (a lock, taken for retained publishes and SUBSCRIBE alone, because a
//! topic's retained message needs one order), the memory figure, and the parcels.
//!
//! # Deliberately absent
//!
//! - Timers in actors, mailbox messages per packet, locks on the way of a message that is not retained.
//! - Queues without a bound: a mailbox never pushes back, so each queue here has a bound and a policy of its own.
//! - Recovery from a panic: the process ends (`panic = "abort"`), because a half-changed shard must not go on.
//! - Resending to a 5.0 client on a live connection [MQTT-4.4.0-1].
//! - TLS, WebSocket, authentication, clustering, an admin interface.

#![warn(clippy::unwrap_used, reason = "a panic is fatal to the whole broker, so it must be argued for")]

pub mod broker;
pub mod clock;
pub mod config;
pub mod expiry;
pub mod health;
pub mod journal;
pub mod load;
pub mod mqtt;
pub mod routing;
pub mod store;
pub mod time;
