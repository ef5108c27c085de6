//! Buffers of a shard that are used again and again, so that no message allocates for them.
//!
//! A buffer has no meaning between two uses. A user that takes a buffer out puts it back; otherwise
//! the next use allocates once.

use crate::session::outbound::outgoing::SendBuffers;
use crate::session::outbox::Pool;

/// The buffers of one shard. None is on the account of `limits.memory`: each is bounded by the
/// largest packet.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The buffers for messages that are sent.
    pub sending: SendBuffers,
    /// The Topic Name of the present PUBLISH's Topic Alias.
    pub topic: String,
    /// The full Topic Name of the present PUBLISH behind a mount point.
    pub mounted: String,
    /// Room for outboxes, lent while there is something in them.
    pub pool: Pool,
}
