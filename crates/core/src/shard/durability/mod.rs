//! The durable state of a shard. Changes are recorded, and packets that depend on a record wait for
//! its commit.
//!
//! | file | concern |
//! |---|---|
//! | `gates` | acknowledgements, tickets, packets and page requests that wait for a commit |
//! | `commits` | what a commit releases, and pages read back from the store |
//! | `session_records` | the record of one delivery to a stored session |
//! | `recovery` | rebuilds sessions, queues and retained messages from the store at the start |
//! | `transaction` | publications that several shards commit together or not at all |
//! | `placement` | gives each stored session to a shard when the number of threads changed |

pub(crate) mod commits;
pub mod gates;
pub mod placement;
pub mod recovery;
pub(crate) mod session_records;
pub(crate) mod transaction;
