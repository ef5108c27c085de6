//! The changes that a shard wants on disk, as plain data. Pure.
//!
//! Sessions and shards record changes here, and the store ([`crate::store`]) writes them. Nothing
//! here does I/O. Imports [`crate::mqtt`] and [`crate::time`] alone.
//!
//! | file | concern |
//! |---|---|
//! | `records` | the changes, the batches in which they are committed, and what a start recovers |
//! | `transactions` | the transactions of one open batch, and this shard's parts of others |
//! | `write_buffer` | the changes of one shard since its last batch, and who waits for their commit |

pub mod records;
mod transactions;
pub mod write_buffer;
