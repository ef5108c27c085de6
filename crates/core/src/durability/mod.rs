//! The durable state of a shard. Changes are recorded, and packets that depend on a record wait for
//! its commit.
//!
//! | file | concern |
//! |---|---|
//! | [`gates`] | acknowledgements, tickets, packets and page requests that wait for a commit |
//! | `publication` | a message on its way in one shard, with its body and its transaction |
//! | `transaction` | publications that several shards commit together or not at all |
//! | [`read_requests`] | requests to read back from the store |
//!
//! `shard/turn/commits.rs` carries out what a commit releases, and `shard/recovery` rebuilds the
//! state at the start.

pub mod gates;
pub(crate) mod publication;
pub mod read_requests;
pub(crate) mod transaction;
