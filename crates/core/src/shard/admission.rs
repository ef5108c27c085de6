//! Admission decides if the broker has the memory and the disk for a change.
//!
//! Every kind of change is checked here. Numbers are not: `limits.sessions` is checked in
//! `clients/connect_checks.rs`. The checks read values that all shards share: the memory
//! budget, and the room in the store. A refusal names the resource that is short. The caller
//! informs the client, and counts the refusal. Admitted work reads the same values, for
//! its pace: `delivery/deliver.rs` (a slow receiver gets no more QoS 0), `durability/gates.rs` (one
//! page is read at a time), `turn/io.rs` (batches are sealed at once), `core.rs` (CONNACK does not
//! wait for room), `rules/access_change.rs` (a session is recorded later).
//!
//! | change | short of memory | short of disk |
//! |---|---|---|
//! | PUBLISH, will, dead letter | refused | refused at QoS 1 and 2 |
//! | PUBLISH or will that erases a retained message | refused if larger | the same at QoS 1, 2 |
//! | retained copy of a message | | refused if larger than the old one |
//! | PUBLISH to `$delayed` | refused | refused |
//! | CONNECT of a client without a session | refused (1) | refused if its session is stored |
//! | CONNECT of a client with a session | refused (2) | the same, if its session is stored |
//! | SUBSCRIBE to a new filter | refused | refused if its session is stored |
//! | retained message for a subscriber | dropped | dropped at QoS 1, 2 if stored |
//! | Topic Alias that is new or longer | refused | |
//! | PUBLISH at QoS 2 to a topic of the broker's own | refused | |
//! | PUBLISH to `$homing` | refused | refused if its session is stored |
//! | record of the broker's own | refused | |
//!
//! 1. Not refused: a session that ends with its connection, without a will and with a small client
//!    identifier.
//! 2. If its new will is larger than the old one and not small, or if its session newly outlives
//!    the connection.
//!
//! Always admitted: acknowledgements, packets that end something, PINGREQ, and a SUBSCRIBE to a
//! known filter. These changes need no room, or make some. A returning client is admitted because
//! it will acknowledge its messages, which makes room. A new connection is admitted up to
//! `limits.connections`, because its client is unknown before CONNECT.

use crate::durability::gates::Durability;
use crate::mqtt::packet::{QoS, ReasonCode};
use crate::peers::Peers;
use crate::persistence::records::stored_bytes;
use crate::session::Violation;
use crate::session::drops::DropReason;
use crate::session::publish_refusal;
use crate::shared::SharedState;
use std::sync::atomic::Ordering;

/// Bytes of a will or client identifier that count as small. A small will never keeps a client from
/// returning to its session. So a shard with 100,000 sessions may hold 400 MiB of small wills at
/// most; `limits.sessions` bounds their number.
pub(crate) const SMALL: usize = 4096;

/// Bytes of the store's reserve that returning clients may use for new small wills. The rest is for
/// records that cannot be refused: places in windows, Packet Identifiers, entries.
const GOES_ON: i64 = 8 * 1024 * 1024;

/// A change that needs memory or disk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// A message of `bytes` bytes for the subscribers: from a client, from a will, or a dead
    /// letter. `frees` is the size of the retained message that it erases. The message is queued
    /// for subscribers in any case, so it makes room only if it is smaller.
    Publish {
        qos: QoS,
        bytes: usize,
        frees: usize,
    },
    /// A retained message of `bytes` bytes for the store. `replaces` is the size of the message
    /// that it replaces, or 0 without one.
    Retain {
        bytes: usize,
        replaces: usize,
    },
    /// Retained messages of `bytes` bytes together, for the queue of one subscriber. `stored` is
    /// true if the deliveries are stored.
    Recall {
        bytes: usize,
        stored: bool,
    },
    /// A delayed message of `bytes` bytes.
    Delayed {
        bytes: usize,
    },
    Connect(Entrant),
    /// One filter of `bytes` bytes. `known` is true if the session is subscribed to it already.
    /// `stored` is true if the session is stored.
    Subscribe {
        bytes: usize,
        known: bool,
        stored: bool,
    },
    /// A Topic Alias that is new on the connection, or that gets a longer topic.
    Alias,
    /// The Packet Identifier of a QoS 2 PUBLISH that is not routed. A session may have 65,535 of
    /// them, in 8 KiB.
    Identifier,
    /// A client's redelivery request. `stored` is true if its session is stored.
    RequestedTime {
        stored: bool,
    },
    /// A record of the broker's own that may be left out, such as a last-disconnect record.
    Record,
}

/// A client that sent CONNECT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entrant {
    /// Bytes of the client identifier.
    pub client_id: usize,
    /// Bytes of the will in CONNECT; 0 without one.
    pub will: usize,
    /// True if the session will outlive its connection.
    pub kept: bool,
    /// True if the session will be stored.
    pub stored: bool,
    /// The session that the client returns to, if there is one.
    pub existing: Option<ExistingSession>,
}

/// The existing session of a client that sent CONNECT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExistingSession {
    /// True if the session outlives its connection.
    pub kept: bool,
    /// True if the session is stored.
    pub stored: bool,
    /// Bytes of the session's will; 0 without one.
    pub will: usize,
}

/// Room that a change needs in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disk {
    None,
    /// Bytes that may come from the store's reserve, even while the store is full.
    Reserved(usize),
    /// Bytes of something new, which needs room outside the reserve.
    Wanted(usize),
}

/// The resource that is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    Memory,
    Disk,
}

impl Want {
    /// Returns the reason under which messages are counted that are refused for this resource.
    pub(crate) fn cause(self) -> DropReason {
        match self {
            Want::Memory => DropReason::MemoryBudget,
            Want::Disk => DropReason::StoreFull,
        }
    }

    /// Returns the text for the log and for the Reason String. The text names the configuration
    /// key.
    pub(crate) fn text(self) -> &'static str {
        publish_refusal::bound(self.cause())
    }

    /// Returns the violation for a connection that cannot continue without this resource.
    pub(crate) fn violation(self) -> Violation {
        Violation { reason: ReasonCode::QUOTA_EXCEEDED, what: self.text() }
    }
}

impl Change {
    /// Returns true if the change is refused while the memory budget is exceeded.
    fn needs_memory(&self) -> bool {
        match *self {
            Change::Publish { bytes, frees, .. } => bytes > frees,
            // The message was admitted with its PUBLISH, and the retained copy shares its bytes.
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

    /// Returns the room that the change needs in the store.
    fn disk(&self) -> Disk {
        let wanted = |needed: bool, bytes: usize| if needed { Disk::Wanted(bytes) } else { Disk::None };
        match *self {
            // A QoS 0 message is never stored.
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
        match self.existing {
            // The old session ends with its connection, and the new one outlives it. The new
            // session stays in memory, so it needs room like a first one.
            Some(existing) => self.grows(existing) || self.kept && !existing.kept,
            None => self.kept || self.will > 0 || self.client_id > SMALL,
        }
    }

    fn disk(&self) -> Disk {
        if !self.stored {
            return Disk::None;
        }
        let bytes = self.client_id + self.will;
        match self.existing.filter(|existing| existing.stored) {
            Some(existing) if self.will <= existing.will => Disk::None,
            Some(existing) if !self.grows(existing) => Disk::Reserved(bytes),
            _ => Disk::Wanted(bytes),
        }
    }

    /// Returns true if the new will is not small, and larger than the old one.
    fn grows(&self, existing: ExistingSession) -> bool {
        self.will > existing.will.max(SMALL)
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
        peers: &Peers,
    ) -> Result<(), Want> {
        if shared.budget.is_exceeded_with(0) && self.needs_memory() {
            return Err(Want::Memory);
        }
        // The store nearly always has plenty of room. A broker without a store ends here too.
        if !shared.store_is_short() {
            return Ok(());
        }
        let fits = match self.disk() {
            Disk::None => true,
            Disk::Reserved(bytes) => store_takes(bytes, GOES_ON, shared, durability, peers),
            Disk::Wanted(bytes) => {
                !shared.is_store_full() && store_takes(bytes, 0, shared, durability, peers)
            }
        };
        if fits { Ok(()) } else { Err(Want::Disk) }
    }
}

/// Returns true if `bytes` more bytes may be on their way to the store. `beyond` is added to the
/// room.
///
/// Each shard has an equal part of the room. A shard compares its part with the bytes that it has
/// recorded or handed to peers, and whose commit it has not seen yet. So a burst between two
/// measurements of the store cannot use up the reserve: a commit reduces both the room and the
/// bytes on their way. Each receiver also needs an entry of some 100 bytes, which the reserve has
/// to bear.
fn store_takes(
    bytes: usize,
    beyond: i64,
    shared: &SharedState,
    durability: &Durability,
    peers: &Peers,
) -> bool {
    let room = shared.store_room.load(Ordering::Relaxed);
    if room == i64::MAX {
        return true;
    }
    let recorded = durability.write_buffer().map_or(0, |write_buffer| write_buffer.uncommitted());
    let pending = recorded + peers.unsettled_bytes() as u64 + stored_bytes(bytes);
    let part = room.saturating_add(beyond) / i64::from(peers.shards().max(1));
    i64::try_from(pending).is_ok_and(|pending| pending <= part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entrant(will: usize, stored: bool, existing: Option<ExistingSession>) -> Entrant {
        Entrant { client_id: 10, will, kept: stored, stored, existing }
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
        let existing = Some(ExistingSession { kept: true, stored: true, will: 10_000 });
        for will in [0, SMALL, 10_000] {
            let back = entrant(will, true, existing);
            assert!(!back.needs_memory() && !matches!(back.disk(), Disk::Wanted(_)), "{will}");
        }
        let larger = entrant(10_001, true, existing);
        assert!(larger.needs_memory() && matches!(larger.disk(), Disk::Wanted(_)));
        let first = entrant(SMALL + 1, true, Some(ExistingSession { kept: true, stored: true, will: 0 }));
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
        let clean = Some(ExistingSession { kept: false, stored: false, will: 0 });
        assert!(matches!(entrant(0, true, clean).disk(), Disk::Wanted(_)));
        assert!(entrant(0, true, clean).needs_memory() && !entrant(10, false, clean).needs_memory());
        assert!(Entrant { stored: false, ..entrant(0, true, None) }.needs_memory(), "in memory alone");
    }
}
