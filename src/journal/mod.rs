//! From a shard's changes to what has to be written, pure.
//!
//! | file | what |
//! |---|---|
//! | `record` | the changes, the batches they are committed in, and what is found at the start |
//! | `ledger` | the shard's side: what it changed since its last batch |
//! | `group` | what several batches come to |
//! | `backlog` | which batches may be committed together |

pub mod backlog;
pub mod group;
pub mod ledger;
pub mod record;
