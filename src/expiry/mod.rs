//! The actor that polls the queue of all deadlines, with its messages and figures. The queue is in
//! the core ([`queue`]).

pub mod actor;
pub mod message;
pub mod statistics;

pub use homing_core::expiry::{deadline, lazy, queue, slot};
