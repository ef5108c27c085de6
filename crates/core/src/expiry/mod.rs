//! Deadlines: one bucketed queue for all deadlines of the broker.
//!
//! The owner of a deadline stores its true value. The owner registers a deadline with the expiry
//! actor only if the new deadline is in an earlier bucket than the registered one ([`lazy`]). The
//! queue returns the key when its bucket is due. Then the owner compares with the true deadline,
//! and acts or registers again. The actor that polls the queue is in the package `homing`.

pub mod deadline;
pub mod lazy;
pub mod queue;
pub mod slot;
