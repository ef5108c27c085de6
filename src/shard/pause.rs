//! The causes for which the requests of a client wait.

/// The causes of a pause, as a set of bits. All packets of the client are handled when the set is
/// empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses(u8);

/// A cause of a pause. While it lasts, requests of the client wait: PUBLISH, SUBSCRIBE, UNSUBSCRIBE
/// and AUTH. Acknowledgements and PINGREQ are handled all the same (`read_ahead`), except before
/// CONNACK and for the rest of a turn that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Pause {
    /// The outbox is full, because the client requests more answers than it reads.
    Outbox = 1,
    /// The client has as many unacknowledged PUBLISH packets as it may have.
    Unanswered = 2,
    /// A peer has too many unanswered messages of this shard.
    Peer = 4,
    /// The client's SUBSCRIBE or UNSUBSCRIBE is not in force in every shard yet. The packets behind
    /// it wait.
    PeerBarrier = 8,
    /// The client's packets used up a turn. Reading continues in a later one.
    Turn = 16,
    /// The last packet needs more work than one turn, or the next one waits for the end of a large
    /// publication. Reading continues when the work is complete.
    Work = 32,
    /// The authenticator has not decided about CONNECT yet.
    Authentication = 64,
    /// The client has sent more than its rate allows.
    Rate = 128,
}

impl Pause {
    /// Every cause, in the order of its number.
    pub const ALL: [Pause; 8] = [
        Pause::Outbox,
        Pause::Unanswered,
        Pause::Peer,
        Pause::PeerBarrier,
        Pause::Turn,
        Pause::Work,
        Pause::Authentication,
        Pause::Rate,
    ];

    /// Returns the place in [`Pause::ALL`].
    pub const fn number(self) -> usize {
        (self as u8).trailing_zeros() as usize
    }

    /// Returns the label in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Pause::Outbox => "outbox",
            Pause::Unanswered => "unanswered",
            Pause::Peer => "peer",
            Pause::PeerBarrier => "peer_barrier",
            Pause::Turn => "turn",
            Pause::Work => "work",
            Pause::Authentication => "authentication",
            Pause::Rate => "rate",
        }
    }
}

impl Pauses {
    /// Adds a cause.
    pub fn set(&mut self, cause: Pause) {
        self.0 |= cause as u8;
    }

    /// Removes a cause. Returns true if this was the last one.
    pub fn clear(&mut self, cause: Pause) -> bool {
        let had = self.0 & cause as u8 != 0;
        self.0 &= !(cause as u8);
        had && self.0 == 0
    }

    /// Returns true if this cause holds.
    pub fn has(self, cause: Pause) -> bool {
        self.0 & cause as u8 != 0
    }

    /// Returns true if requests wait, and acknowledgements are handled. In the rest of a turn that is
    /// used up nothing is handled.
    pub fn hold_requests(self) -> bool {
        self.any() && self.0 & (Pause::Turn as u8 | Pause::Authentication as u8) == 0
    }

    /// Returns true if any cause holds.
    pub fn any(self) -> bool {
        self.0 != 0
    }
}
