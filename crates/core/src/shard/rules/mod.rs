//! Mount points, and the effects of changed rules and bans on the clients of a shard.

pub(crate) mod access_change;
pub(crate) mod mounted;
pub mod permission_changes;
