//! Admission: the one place that decides whether a change that needs memory or disk is taken.
//!
//! Every kind of change asks here, and nothing else reads the two flags that all shards share. A refusal names what there is
//! too little of; the caller tells its client and counts it.
//!
//! | change | short of memory | short of disk |
//! |---|---|---|
//! | PUBLISH, will, dead letter | refused | refused at QoS 1 and 2 |
//! | what of it is retained | | refused where it is larger than what it replaces |
//! | PUBLISH to `$delayed` | refused | refused |
//! | CONNECT without a session to return to | refused, but for a small one without a will that ends with its connection | refused where its session is stored |
//! | CONNECT that returns | refused where its will is larger than the one held, and not small | the same |
//! | SUBSCRIBE to a new filter | refused | refused where its session is stored |
//! | Topic Alias that is new or longer | refused | |
//! | PUBLISH to `$homing` | refused | refused where its session is stored |
//! | record of the broker's own | refused | |
//!
//! Always taken: acknowledgements, what erases or ends something, PINGREQ, a subscription that is known. They need no room, or
//! make some. A returning client is taken because its return makes room: it acknowledges what waits for it. A new connection
//! is taken up to `limits.connections`, because nobody knows whose it is before its CONNECT.

use super::Shard;
use crate::mqtt::packet::{QoS, ReasonCode};
use crate::mqtt::session::Violation;
use crate::mqtt::session::loss::LossCause;
use std::sync::atomic::Ordering;

/// Bytes of client id or will that are small: a client's own bytes below this never keep it from returning. An arbiter with
/// 100,000 such wills holds 400 MiB of them at the very most, which `limits.sessions` bounds.
pub(super) const SMALL: usize = 4096;

/// Something that the broker would have to hold.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// A message for whoever is subscribed: from a client, of a will, a dead letter.
    Publish {
        qos: QoS,
        erases: bool,
    },
    /// A message that the store is to keep as retained, in place of one of so many bytes; 0: of none.
    Retain {
        bytes: usize,
        replaces: usize,
    },
    /// A message that is published later.
    Delayed,
    Connect(Entrant),
    /// One filter. `known`: the session has it; `stored`: the session is in the store.
    Subscribe {
        known: bool,
        stored: bool,
    },
    /// A Topic Alias that the connection does not have, or one for a longer topic.
    Alias,
    /// What a client asks for about its own redelivery, by a publish.
    Wish {
        stored: bool,
    },
    /// A record of the broker's own that can be left out.
    Record,
}

/// A client that asks to be let in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entrant {
    /// Bytes of its client id.
    pub client_id: usize,
    /// Bytes of its will; 0 without one.
    pub will: usize,
    /// Whether its session would be in the store.
    pub stored: bool,
    /// The session it returns to.
    pub held: Option<Held>,
}

/// What the broker has of a client that returns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub stored: bool,
    /// Bytes of its will; 0 without one.
    pub will: usize,
}

/// What there is too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    Memory,
    Disk,
}

impl Want {
    /// As messages are counted that are refused for it.
    pub fn cause(self) -> LossCause {
        match self {
            Want::Memory => LossCause::MemoryBudget,
            Want::Disk => LossCause::StoreFull,
        }
    }

    /// For the log, and the Reason String.
    pub fn text(self) -> &'static str {
        match self {
            Want::Memory => "the broker's memory budget is used up (limits.memory)",
            Want::Disk => "the store has no room (store.size_limit, or the disk)",
        }
    }

    /// For a connection that cannot go on without it.
    pub fn violation(self) -> Violation {
        Violation { reason: ReasonCode::QUOTA_EXCEEDED, what: self.text() }
    }
}

impl Change {
    fn needs_memory(&self) -> bool {
        match *self {
            Change::Publish { erases, .. } => !erases,
            // Its body was admitted with its PUBLISH.
            Change::Retain { .. } => false,
            Change::Connect(entrant) => entrant.needs_memory(),
            Change::Subscribe { known, .. } => !known,
            Change::Delayed | Change::Alias | Change::Wish { .. } | Change::Record => true,
        }
    }

    fn needs_disk(&self) -> bool {
        match *self {
            // What nobody has to keep needs no store.
            Change::Publish { qos, erases } => qos != QoS::AtMostOnce && !erases,
            Change::Retain { bytes, replaces } => bytes > replaces,
            Change::Connect(entrant) => entrant.needs_disk(),
            Change::Subscribe { known, stored } => !known && stored,
            Change::Wish { stored } => stored,
            Change::Delayed => true,
            Change::Alias | Change::Record => false,
        }
    }
}

impl Entrant {
    fn needs_memory(&self) -> bool {
        match self.held {
            Some(held) => self.grows(held),
            None => self.stored || self.will > 0 || self.client_id > SMALL,
        }
    }

    fn needs_disk(&self) -> bool {
        let known = self.held.filter(|held| held.stored);
        self.stored && known.is_none_or(|held| self.grows(held))
    }

    fn grows(&self, held: Held) -> bool {
        self.will > held.will.max(SMALL)
    }
}

impl Shard {
    /// Whether the broker takes a change.
    ///
    /// # Errors
    /// What there is too little of. Memory comes first: with both, that is what is said.
    pub(super) fn admits(&self, change: Change) -> Result<(), Want> {
        if self.common.budget.is_exceeded() && change.needs_memory() {
            return Err(Want::Memory);
        }
        if self.common.store_full.load(Ordering::Relaxed) && change.needs_disk() {
            return Err(Want::Disk);
        }
        Ok(())
    }

    /// Whether the store has no room. For who hurries to make some, not for who wants some.
    pub(super) fn is_store_full(&self) -> bool {
        self.common.store_full.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entrant(will: usize, stored: bool, held: Option<Held>) -> Entrant {
        Entrant { client_id: 10, will, stored, held }
    }

    #[test]
    fn what_makes_room_needs_none() {
        for change in [
            Change::Publish { qos: QoS::ExactlyOnce, erases: true },
            Change::Subscribe { known: true, stored: true },
            Change::Retain { bytes: 100, replaces: 100 },
        ] {
            assert!(!change.needs_memory() && !change.needs_disk(), "{change:?}");
        }
    }

    #[test]
    fn a_known_session_returns_with_a_will_that_is_small_or_no_larger_than_its_last() {
        let held = Some(Held { stored: true, will: 10_000 });
        for will in [0, SMALL, 10_000] {
            let back = entrant(will, true, held);
            assert!(!back.needs_memory() && !back.needs_disk(), "{will}");
        }
        let larger = entrant(10_001, true, held);
        assert!(larger.needs_memory() && larger.needs_disk());
        let first = entrant(SMALL + 1, true, Some(Held { stored: true, will: 0 }));
        assert!(first.needs_memory() && first.needs_disk());
    }

    #[test]
    fn without_a_session_to_return_to_only_a_small_clean_one_without_a_will_needs_no_memory() {
        assert!(!entrant(0, false, None).needs_memory());
        assert!(entrant(1, false, None).needs_memory());
        assert!(entrant(0, true, None).needs_memory());
        assert!(Entrant { client_id: SMALL + 1, ..entrant(0, false, None) }.needs_memory());
        assert!(!entrant(1 << 20, false, None).needs_disk(), "its will is in memory alone");
        assert!(entrant(0, true, None).needs_disk());
        assert!(entrant(0, true, Some(Held { stored: false, will: 0 })).needs_disk());
    }
}
