//! Deadlines: one bucketed queue for every one of them, and the actor that ticks it.
//!
//! An owner keeps its true deadline itself and tells the expiry actor only when that deadline falls
//! into an earlier bucket than the one already registered ([`lazy`]). The queue hands the key back
//! once its bucket is due; the owner compares with its true deadline, acts or registers again.
//!
//! Pure: [`queue`], [`lazy`], [`slot`], [`deadline`]. The actor and what it says: [`actor`], [`message`], [`statistics`].

pub mod actor;
pub mod deadline;
pub mod lazy;
pub mod message;
pub mod queue;
pub mod slot;
pub mod statistics;
