//! The durable state of a shard: changes are recorded, and whatever depends on them waits for the
//! commit.
//!
//! | file | concern |
//! |---|---|
//! | `gates` | acknowledgements, answers and packets that wait for a commit; pages read back |
//! | `session_records` | the records of sessions and subscriptions |
//! | `recovery` | rebuilds sessions, queues and retained messages from the store at the start |
//! | `placement` | which shard a stored session belongs to, when the number of threads changed |

pub mod gates;
pub mod placement;
pub mod recovery;
pub(crate) mod session_records;
