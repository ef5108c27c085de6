//! The result of handling one packet.

use crate::routing::subscription_tree::ShardId;

/// The result of one packet.
pub(crate) enum Flow {
    /// The packet is handled, and the next one may come.
    Continue,
    /// The connection ends, and nothing more is read.
    Closed,
    /// The session lives in this shard. The socket moves there.
    Home(ShardId),
    /// CONNECT has led to an exchange of AUTH packets. CONNECT is handled again at the end of the
    /// exchange.
    Challenged,
    /// The packet is not handled yet, and comes again in a later turn.
    Wait,
}
