//! Deadlines: one bucketed queue for every one of them, and the actor that ticks it.

pub mod queue;
