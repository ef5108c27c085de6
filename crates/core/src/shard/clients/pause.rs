//! The causes for which the requests of a client wait.

use crate::named_enum::named_enum;

/// The causes of a pause, as a set of bits. All packets of the client are handled when the set is
/// empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses(u8);

named_enum! {
    /// A cause of a pause. While it lasts, requests of the client wait: PUBLISH, SUBSCRIBE,
    /// UNSUBSCRIBE and AUTH. Acknowledgements and PINGREQ are handled all the same (`read_ahead`),
    /// except before CONNACK and for the rest of a turn that is used up.
    #[repr(u8)]
    pub enum Pause {
        /// The outbox is full, because the client requests more answers than it reads.
        Outbox = "outbox",
        /// The client has as many unacknowledged PUBLISH packets as it may have.
        Unanswered = "unanswered",
        /// A peer has too many unanswered messages of this shard.
        Peer = "peer",
        /// The client's SUBSCRIBE or UNSUBSCRIBE is not in force in every shard yet. The packets
        /// behind it wait.
        PeerBarrier = "peer_barrier",
        /// The client's packets used up a turn. Reading continues in a later one.
        Turn = "turn",
        /// The last packet needs more work than one turn, or the next one waits for the end of a
        /// large publication. Reading continues when the work is complete.
        Work = "work",
        /// The authenticator has not decided about CONNECT yet.
        Authentication = "authentication",
        /// The client has sent more than its rate allows.
        Rate = "rate",
    }
}

impl Pause {
    /// Returns the cause as one bit of a set.
    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl Pauses {
    /// Adds a cause.
    pub fn set(&mut self, cause: Pause) {
        self.0 |= cause.bit();
    }

    /// Removes a cause. Returns true if this was the last one.
    pub fn clear(&mut self, cause: Pause) -> bool {
        let before = self.0;
        self.0 &= !cause.bit();
        self.0 == 0 && before != 0
    }

    /// Returns true if this cause holds.
    pub fn has(self, cause: Pause) -> bool {
        self.0 & cause.bit() != 0
    }

    /// Returns true if requests wait, and acknowledgements are handled. In the rest of a turn that
    /// is used up nothing is handled.
    pub fn requests_wait(self) -> bool {
        self.0 != 0 && self.0 & (Pause::Turn.bit() | Pause::Authentication.bit()) == 0
    }

    /// Returns true if any cause holds.
    pub fn any(self) -> bool {
        self.0 != 0
    }
}
