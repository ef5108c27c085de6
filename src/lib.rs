//! Homing: an MQTT 3.1, 3.1.1 and 5.0 broker whose one obsession is delivery. This is the map of its code.
//!
//! # The way of a message
//!
//! ```text
//! socket -> mqtt (bytes to packet) -> session (one client's state) -> routing (who gets it) -> shard -> broker -> socket
//! ```
//!
//! 1. A connection actor ([`broker::connection`]) becomes readable. It reads into a buffer that its thread shares.
//! 2. Its [`shard`] decodes every whole packet ([`mqtt::codec`]) and hands each to the [`session`].
//! 3. The session writes the answers that it can give itself to the outbox, and returns one action for the rest.
//! 4. A PUBLISH sets its retained message ([`routing::retained`]) and is matched ([`routing::subscription_tree`]). It goes into
//!    the outbox of every receiver of this shard, and into one batch for every other shard that has receivers
//!    ([`shard::exchange`]).
//! 5. When every readable connection had its turn, the driver ([`broker::shard_actor`]) makes one write for each connection,
//!    sends one batch to each peer, and registers new deadlines with the expiry actor ([`expiry::actor`]) in one message.
//!
//! Changes of sessions that outlive their connection are recorded on the way ([`persistence::write_buffer`]). They go to the
//! committing thread ([`store::writer`]) as one batch for each turn. Acknowledgements and packets that depend on them wait until
//! they are committed ([`shard::durability`]). A session that ends with its connection records nothing.
//!
//! # Module order
//!
//! A module imports only from the modules to its left; `tests/layers.rs` checks it.
//!
//! `time < mqtt < persistence < session < routing < expiry (queue) < shard < clock < config < store < expiry (actor) < broker <
//! health < load < main`
//!
//! The modules up to `shard` are pure: no clock, no async, no randomness, no log, and no panic on what a peer sent. Time is an
//! argument; [`clock`] is the only file that reads one. So a shard runs in the same way under actix and in the simulation.
//!
//! # Threads
//!
//! - One thread for each shard (`runtime.threads`), as an actix arbiter.
//! - One for the expiry actor, and one for listeners and the order of start and stop.
//! - With a store, one that commits and one that reads back.
//!
//! A session lives in the shard that the hash of its client identifier names. Its socket moves there once, after CONNECT. Shards
//! share three things: the retained messages behind a lock, which only retained publishes and SUBSCRIBE take, since the retained
//! message of a topic needs one order; the figure of memory in use; and the batches that they send each other.
//!
//! # Deliberately absent
//!
//! - Timers in actors, mailbox messages for each packet, and locks on the way of a message that is not retained.
//! - Queues without a bound: a mailbox never pushes back, so each queue has a bound and a policy of its own.
//! - Recovery from a panic: the process ends (`panic = "abort"`), because a half-changed shard must not continue.
//! - Resending to a 5.0 client on a live connection [MQTT-4.4.0-1].
//! - TLS, WebSocket, authentication, clustering, an admin interface.

#![warn(clippy::unwrap_used, reason = "a panic is fatal to the whole broker, so it must be argued for")]

pub mod broker;
pub mod clock;
pub mod config;
pub mod expiry;
pub mod health;
#[cfg(feature = "load")]
pub mod load;
pub mod mqtt;
pub mod persistence;
pub mod routing;
pub mod session;
pub mod shard;
pub mod store;
pub mod time;
