//! Admission: the one place that decides whether a change that needs memory or disk is taken.
//!
//! Every kind of change asks here, and nothing else reads the two flags that all shards share. A
//! refusal names what there is too little of; the caller tells its client and counts it.
//!
//! | change | short of memory | short of disk |
//! |---|---|---|
//! | PUBLISH, will, dead letter | refused | refused at QoS 1 and 2 |
//! | PUBLISH or will that erases | refused where it is larger than what it erases | the same at QoS 1 and 2 |
//! | what of it is retained | | refused where it is larger than what it replaces |
//! | PUBLISH to `$delayed` | refused | refused |
//! | CONNECT without a session to return to | refused, but for a small one without a will that ends with its connection | refused where its session is stored |
//! | CONNECT that returns | refused where its will is larger than the one held, and not small | the same |
//! | SUBSCRIBE to a new filter | refused | refused where its session is stored |
//! | retained message for a subscriber | dropped | dropped at QoS 1 and 2 where its session is stored |
//! | Topic Alias that is new or longer | refused | |
//! | PUBLISH at QoS 2 to a topic of the broker's own | refused | |
//! | PUBLISH to `$homing` | refused | refused where its session is stored |
//! | record of the broker's own | refused | |
//!
//! Always taken: acknowledgements, what ends something, PINGREQ, a subscription that is known. They
//! need no room, or make some. A returning client is taken because its return makes room: it
//! acknowledges what waits for it. A new connection is taken up to `limits.connections`, because
//! nobody knows whose it is before its CONNECT.

use crate::mqtt::packet::{QoS, ReasonCode};
use crate::persistence::records::stored_bytes;
use crate::session::Violation;
use crate::session::drops::DropReason;
use crate::shard::durability::gates::Durability;
use crate::shard::exchange::Exchange;
use crate::shard::shared_state::SharedState;
use std::sync::atomic::Ordering;

/// Bytes of client id or will that are small: a client's own bytes below this never keep it from
/// returning. An arbiter with 100,000 such wills holds 400 MiB of them at the very most, which
/// `limits.sessions` bounds.
pub(crate) const SMALL: usize = 4096;

/// Bytes of the store's reserve that returning clients may use for new small wills. The rest is for
/// what nobody can refuse: places in windows, identifiers, entries.
const GOES_ON: i64 = 8 * 1024 * 1024;

/// Something that the broker would have to hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// A message of so many bytes for whoever is subscribed: from a client, of a will, a dead
    /// letter. `frees`: bytes of the retained message that it erases. It is queued for subscribers
    /// all the same, so it makes room only if it is smaller.
    Publish {
        qos: QoS,
        bytes: usize,
        frees: usize,
    },
    /// A message that the store is to keep as retained, in place of one of so many bytes; 0: of
    /// none.
    Retain {
        bytes: usize,
        replaces: usize,
    },
    /// Retained messages of so many bytes together for the queue of one subscriber. `stored`: the
    /// store would have them.
    Recall {
        bytes: usize,
        stored: bool,
    },
    /// A message of so many bytes that is published later.
    Delayed {
        bytes: usize,
    },
    Connect(Entrant),
    /// One filter. `known`: the session has it; `stored`: the session is in the store.
    Subscribe {
        bytes: usize,
        known: bool,
        stored: bool,
    },
    /// A Topic Alias that the connection does not have, or one for a longer topic.
    Alias,
    /// The Packet Identifier of a QoS 2 PUBLISH that leads to nothing else. A session may have
    /// 65,535 of them, in 8 KiB.
    Identifier,
    /// A time that a client requests for its own redelivery.
    RequestedTime {
        stored: bool,
    },
    /// A record of the broker's own that can be left out.
    Record,
}

/// A client that asks to be let in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entrant {
    /// Bytes of its client id.
    pub client_id: usize,
    /// Bytes of its will; 0 without one.
    pub will: usize,
    /// True if its session would outlive its connection, and if it would be stored.
    pub kept: bool,
    pub stored: bool,
    /// The session it returns to.
    pub held: Option<HeldMemory>,
}

/// The session of a client that returns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldMemory {
    /// True if it outlives its connection, and if it is stored.
    pub kept: bool,
    pub stored: bool,
    /// Bytes of its will; 0 without one.
    pub will: usize,
}

/// Room that a change needs in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disk {
    None,
    /// So many bytes, for what goes on while the store is full.
    Reserved(usize),
    /// So many bytes, for something new.
    Wanted(usize),
}

/// The resource that is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    Memory,
    Disk,
}

impl Want {
    /// As messages are counted that are refused for it.
    pub(crate) fn cause(self) -> DropReason {
        match self {
            Want::Memory => DropReason::MemoryBudget,
            Want::Disk => DropReason::StoreFull,
        }
    }

    /// For the log, and the Reason String.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Want::Memory => "the broker's memory budget is used up (limits.memory)",
            Want::Disk => "the store has no room (store.size_limit, or the disk)",
        }
    }

    /// For a connection that cannot go on without it.
    pub(crate) fn violation(self) -> Violation {
        Violation { reason: ReasonCode::QUOTA_EXCEEDED, what: self.text() }
    }
}

impl Change {
    fn needs_memory(&self) -> bool {
        match *self {
            Change::Publish { bytes, frees, .. } => bytes > frees,
            // Its body was admitted with its PUBLISH.
            Change::Retain { .. } => false,
            Change::Connect(entrant) => entrant.needs_memory(),
            Change::Subscribe { known, .. } => !known,
            Change::Recall { .. }
            | Change::Delayed { .. }
            | Change::Alias
            | Change::Identifier
            | Change::RequestedTime { .. }
            | Change::Record => true,
        }
    }

    /// Room in the store.
    fn disk(&self) -> Disk {
        let wanted = |needed: bool, bytes: usize| if needed { Disk::Wanted(bytes) } else { Disk::None };
        match *self {
            // What nobody has to keep needs no store.
            Change::Publish { qos, bytes, frees } => wanted(qos != QoS::AtMostOnce && bytes > frees, bytes),
            Change::Retain { bytes, replaces } => wanted(bytes > replaces, bytes),
            Change::Connect(entrant) => entrant.disk(),
            Change::Subscribe { bytes, known, stored } => wanted(!known && stored, bytes),
            Change::Recall { bytes, stored } => wanted(stored, bytes),
            Change::RequestedTime { stored } => wanted(stored, 0),
            Change::Delayed { bytes } => Disk::Wanted(bytes),
            Change::Alias | Change::Identifier | Change::Record => Disk::None,
        }
    }
}

impl Entrant {
    fn needs_memory(&self) -> bool {
        match self.held {
            // Of a session that ends with its connection one that stays is made only where there is
            // room for a new one.
            Some(held) => self.grows(held) || self.kept && !held.kept,
            None => self.kept || self.will > 0 || self.client_id > SMALL,
        }
    }

    fn disk(&self) -> Disk {
        if !self.stored {
            return Disk::None;
        }
        let bytes = self.client_id + self.will;
        match self.held.filter(|held| held.stored) {
            Some(held) if self.will <= held.will => Disk::None,
            Some(held) if !self.grows(held) => Disk::Reserved(bytes),
            _ => Disk::Wanted(bytes),
        }
    }

    fn grows(&self, held: HeldMemory) -> bool {
        self.will > held.will.max(SMALL)
    }
}

impl Change {
    /// Checks that the broker has room for a change.
    ///
    /// # Errors
    /// The resource that is short. Memory is named first if both are.
    pub(crate) fn check(
        &self,
        shared: &SharedState,
        durability: &Durability,
        exchange: &Exchange,
    ) -> Result<(), Want> {
        if shared.budget.is_exceeded() && self.needs_memory() {
            return Err(Want::Memory);
        }
        // Nearly always the store has plenty of room, or there is none.
        if !shared.store_is_short() {
            return Ok(());
        }
        let fits = match self.disk() {
            Disk::None => true,
            Disk::Reserved(bytes) => store_takes(bytes, GOES_ON, shared, durability, exchange),
            Disk::Wanted(bytes) => {
                !shared.is_store_full() && store_takes(bytes, 0, shared, durability, exchange)
            }
        };
        if fits { Ok(()) } else { Err(Want::Disk) }
    }
}

/// Returns true if so many bytes more may be on their way to the store. `beyond` is added to the
/// room.
///
/// Each shard has an equal part of the room. It compares its part with the bytes that it has
/// recorded, or handed to peers, and does not know to be committed. So a burst between two looks at
/// the store cannot use up the reserve: a commit reduces both the room and the bytes on their way.
/// An entry for each receiver comes on top. It takes some 100 bytes, which the reserve has to bear.
fn store_takes(
    bytes: usize,
    beyond: i64,
    shared: &SharedState,
    durability: &Durability,
    exchange: &Exchange,
) -> bool {
    let room = shared.store_room.load(Ordering::Relaxed);
    if room == i64::MAX {
        return true;
    }
    let recorded = durability.write_buffer().map_or(0, |write_buffer| write_buffer.uncommitted());
    let owed = recorded + exchange.unsettled_bytes() as u64 + stored_bytes(bytes);
    let part = room.saturating_add(beyond) / i64::from(exchange.shards().max(1));
    i64::try_from(owed).is_ok_and(|owed| owed <= part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entrant(will: usize, stored: bool, held: Option<HeldMemory>) -> Entrant {
        Entrant { client_id: 10, will, kept: stored, stored, held }
    }

    #[test]
    fn what_makes_room_needs_none() {
        for change in [
            Change::Publish { qos: QoS::ExactlyOnce, bytes: 100, frees: 100 },
            Change::Subscribe { bytes: 10, known: true, stored: true },
            Change::Retain { bytes: 100, replaces: 100 },
        ] {
            assert!(!change.needs_memory() && change.disk() == Disk::None, "{change:?}");
        }
    }

    #[test]
    fn a_publish_that_erases_less_than_it_brings_needs_room() {
        for frees in [0, 99] {
            let change = Change::Publish { qos: QoS::AtLeastOnce, bytes: 100, frees };
            assert!(change.needs_memory() && change.disk() == Disk::Wanted(100), "{frees}");
        }
    }

    #[test]
    fn a_known_session_returns_with_a_will_that_is_small_or_no_larger_than_its_last() {
        let held = Some(HeldMemory { kept: true, stored: true, will: 10_000 });
        for will in [0, SMALL, 10_000] {
            let back = entrant(will, true, held);
            assert!(!back.needs_memory() && !matches!(back.disk(), Disk::Wanted(_)), "{will}");
        }
        let larger = entrant(10_001, true, held);
        assert!(larger.needs_memory() && matches!(larger.disk(), Disk::Wanted(_)));
        let first = entrant(SMALL + 1, true, Some(HeldMemory { kept: true, stored: true, will: 0 }));
        assert!(first.needs_memory() && matches!(first.disk(), Disk::Wanted(_)));
    }

    #[test]
    fn without_a_session_to_return_to_only_a_small_clean_one_without_a_will_needs_no_memory() {
        assert!(!entrant(0, false, None).needs_memory());
        assert!(entrant(1, false, None).needs_memory());
        assert!(entrant(0, true, None).needs_memory());
        assert!(Entrant { client_id: SMALL + 1, ..entrant(0, false, None) }.needs_memory());
        assert!(entrant(1 << 20, false, None).disk() == Disk::None, "its will is in memory alone");
        assert!(matches!(entrant(0, true, None).disk(), Disk::Wanted(_)));
        let clean = Some(HeldMemory { kept: false, stored: false, will: 0 });
        assert!(matches!(entrant(0, true, clean).disk(), Disk::Wanted(_)));
        assert!(entrant(0, true, clean).needs_memory() && !entrant(10, false, clean).needs_memory());
        assert!(Entrant { stored: false, ..entrant(0, true, None) }.needs_memory(), "in memory alone");
    }
}
