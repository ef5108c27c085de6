//! From a publication to its receivers, pure: the subscription index, retained messages, shared groups, and the
//! exchange of batches and tickets between shards.

pub use crate::mqtt::message;
pub mod presence;
pub mod retained;
pub mod shard;
pub mod shared;
pub mod subscription_tree;
