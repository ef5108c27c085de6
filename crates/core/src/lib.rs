//! The core of Homing: all rules of the broker, and nothing that does I/O.
//!
//! No clock, no async, no randomness, no log, and no panic on bytes from a peer. Time is an
//! argument. So a shard runs in the same way under actix and in the simulation. Cargo is the wall:
//! this crate depends on no runtime, and the package `homing` above it has the actors, sockets, the
//! store and the commands.
//!
//! `docs/architecture.md` has the order of the modules, and `tests/layers.rs` checks it.

#![warn(missing_docs, unreachable_pub)]
#![warn(clippy::unwrap_used, reason = "a panic is fatal to the whole broker, so it must be argued for")]

pub mod access;
pub mod bridge;
pub mod durability;
pub mod escape;
pub mod events;
pub mod expiry;
pub mod letters;
pub mod login;
pub mod mqtt;
pub mod named_enum;
pub mod operators;
pub mod ownership;
pub mod peers;
pub mod persistence;
pub mod routing;
#[cfg(feature = "schema")]
pub mod schema;
pub mod session;
pub mod shard;
pub mod shared;
pub mod sink;
pub mod slots;
pub mod time;
