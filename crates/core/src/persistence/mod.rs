//! The changes that a shard wants on disk, as plain data. Pure.
//!
//! Sessions and shards record changes here, and the store (`src/store`) writes them. Nothing
//! here does I/O. Imports [`crate::mqtt`] and [`crate::time`] alone.
//!
//! | file | concern |
//! |---|---|
//! | `letter` | stored dead letters |
//! | `records` | the changes, the batches in which they are committed, and what a start recovers |
//! | `rows` | one value for each row of the store; dropping it records the end of the row |
//! | `open_batch` | the records of one open batch |
//! | `transactions` | the transactions of one open batch, and this shard's parts of others |
//! | `unread_drops` | the rows of dropped messages until their topics were read |
//! | `write_buffer` | the records of one shard since its last batch, and their commits |

pub mod letter;
mod open_batch;
pub mod records;
pub mod rows;
mod transactions;
mod unread_drops;
pub mod write_buffer;
