//! The protocol, pure: packets, their bytes, topics, and the session state machine. No clock, no async, no I/O.

pub mod charge;
pub mod codec;
pub mod keyed;
pub mod message;
pub mod outbox;
pub mod packet;
pub mod session;
pub mod topic;
