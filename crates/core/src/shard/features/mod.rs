//! Parts of the shard that a broker could do without, each in a file of its own.
//!
//! | file | concern |
//! |---|---|
//! | `delayed` | messages that are published at a later time |
//! | `letter_keeping` | how dead letters enter and leave the stored letters, with their records |
//! | `hold` | the queue policy `hold`: messages that wait for room in a full queue |
//! | `orphaned_queues` | shared messages that an ended session left and another member may take |
//! | [`unanswered`] | the answers to messages that operators published |
//! | `redelivery_request` | requests of a client about its own redelivery |

pub mod delayed;
pub(crate) mod hold;
pub(crate) mod letter_keeping;
pub(crate) mod orphaned_queues;
pub(crate) mod redelivery_request;
pub mod unanswered;
