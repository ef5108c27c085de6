//! Homing: an MQTT 3.1, 3.1.1 and 5.0 broker whose one obsession is delivery. This page is the map
//! of its code.
//!
//! # The way of a message
//!
//! ```text
//! socket -> mqtt (bytes to packet) -> session (one client's state) -> routing (who gets it)
//!        -> shard (the core of one thread) -> broker (actors and sockets) -> socket
//! ```
//!
//! 1. A connection actor ([`broker::connection`]) becomes readable. The actor reads into a buffer
//!    that all connections of its thread share.
//! 2. Its [`shard`] decodes every whole packet ([`mqtt::codec`]) and gives each to the [`session`].
//! 3. The session checks the packet by the rules of the standard, writes acknowledgements to the
//!    outbox, and returns a PUBLISH or SUBSCRIBE to the shard.
//! 4. The shard sets the retained message of a PUBLISH ([`routing::retained`]) and finds the
//!    receivers ([`routing::subscription_tree`]). A receiver of this shard gets the message in its
//!    outbox. Each other shard with receivers gets the message once, in a batch
//!    ([`peers`]).
//! 5. After all readable connections, the flusher of the driver (`broker::driver`) makes one write
//!    for each connection and sends one batch to each peer. One message to the expiry actor
//!    ([`expiry::actor`]) registers all new deadlines.
//!
//! A session that outlives its connection records its changes on the way ([`persistence`]). The
//! thread that commits ([`store::writer`]) gets these records as one batch for each turn.
//! Acknowledgements, and packets that depend on a change, wait until it is committed
//! ([`durability`]). A session that ends with its connection records nothing.
//!
//! Who may connect, and read and write which topics, is decided in [`auth`] (passwords, tokens,
//! rules), [`access`] and [`login`]. A [`bridge`] to another broker and an HTTP [`sink`] are
//! sessions as those of clients, whose connections the broker makes itself (`broker::bridges`,
//! `broker::sinks`). In a [`cluster`] several machines keep one log of records, and
//! [`ownership`] decides which of them serves.
//!
//! # Packages
//!
//! The pure modules are the package `homing-core` (`crates/core`), which knows no clock, no async
//! and no socket. Time is an argument; [`clock`] is the only file that reads one. So a shard runs
//! in the same way under actix and in the simulation. Above the shard, [`operators`] looks at it
//! and changes it for people. A module imports only from the modules before it:
//! `docs/architecture.md` has the order, and `tests/layers.rs` checks it.
//!
//! Two tools are packages of their own, which see `homing-core` alone: the load tester
//! (`crates/load`) behind [`load`], and the translation of mosquitto.conf (`crates/import`) behind
//! [`import`].
//!
//! # Actors
//!
//! - A `ConnectionActor` ([`broker::connection`]) owns the socket of one client. Its inputs are the
//!   readiness of the socket and the orders of its shard.
//! - A `ShardActor` ([`broker::shard_actor`]) owns the shard of one thread. Its messages are
//!   accepted sockets (`Adopt`), the peer batch of another shard (`PeerTurn`), the keys of a bucket
//!   that ended (`ExpiredDeadlines`), and the position of the store (`StoredUpTo`).
//! - The `ExpiryActor` ([`expiry::actor`]) owns the buckets of all deadlines. Its messages are the
//!   new deadlines of one turn (`Register`) and the tick of its `Ticker`.
//!
//! # Threads
//!
//! - One thread for each shard (`runtime.threads`), as an actix arbiter.
//! - One thread for the expiry actor.
//! - One thread for the listeners and for start and stop.
//! - One thread that writes log lines, and one for the HTTP interface ([`admin`]).
//! - With a store: a thread for commits, one that applies them to the database, and one for reads.
//!
//! [`broker`] has the whole list.
//!
//! The hash of a client identifier names the shard in which its session lives. The socket of the
//! client moves there once, after CONNECT. Shards share little ([`shard::SharedState`]), and send
//! each other batches. Only retained publishes and SUBSCRIBE take the lock of the retained
//! messages, because the retained message of a topic needs one order.
//!
//! `docs/architecture.md` says what is deliberately absent, and why.

#![warn(missing_docs, unreachable_pub)]
#![warn(clippy::unwrap_used, reason = "a panic is fatal to the whole broker, so it must be argued for")]

/// Parts of the test kit are compiled into the unit tests, too, and name the library.
#[cfg(test)]
extern crate self as homing;

#[cfg(feature = "admin")]
pub mod admin;
pub mod auth;
pub mod broker;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod doctor;
pub mod expiry;
pub mod file_thread;
pub mod finding;
pub mod framed;
pub mod health;
pub mod host;
#[cfg(any(feature = "http-auth", feature = "otlp", feature = "sinks"))]
pub mod http_client;
pub mod import;
#[cfg(feature = "load")]
pub mod load;
pub mod log;
pub mod net;
pub mod otlp;
pub mod pulse;
pub mod scheduling;
pub mod service;
pub mod store;

pub use homing_core::{
    access, bridge, durability, escape, events, letters, login, mqtt, named_enum, operators, ownership,
    peers, persistence, routing, session, shard, shared, sink, slots, time,
};
