//! Parts of the shard that a broker could do without, each in a file of its own.
//!
//! | file | concern |
//! |---|---|
//! | `delayed` | messages that are published at a later time |
//! | `dead_letters` | messages that were dropped, published for whoever wants to know |
//! | `hold` | the queue policy `hold`: messages that wait for room in a full queue |
//! | `orphaned_queues` | messages that an ended session of a shared group left in the store |
//! | `redelivery_request` | what a client asks for about its own redelivery |

pub(crate) mod dead_letters;
pub mod delayed;
pub(crate) mod hold;
pub(crate) mod orphaned_queues;
pub(crate) mod redelivery_request;
