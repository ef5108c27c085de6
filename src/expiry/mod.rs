//! Deadlines: one bucketed queue for all deadlines of the broker, and the actor that polls the
//! queue.
//!
//! The owner of a deadline stores its true value. The owner registers a deadline with the expiry
//! actor only if the new deadline is in an earlier bucket than the registered one ([`lazy`]). The
//! queue returns the key when its bucket is due. Then the owner compares with the true deadline,
//! and acts or registers again.
//!
//! [`queue`], [`lazy`], [`slot`] and [`deadline`] are pure and know only [`crate::time`]; the shard
//! imports them. The actor with its messages and figures is in [`actor`], [`message`] and
//! [`statistics`]; the broker imports these.

pub mod actor;
pub mod deadline;
pub mod lazy;
pub mod message;
pub mod queue;
pub mod slot;
pub mod statistics;
