//! The Packet Identifiers of QoS 2 messages that were dropped after a transmission.
//!
//! The receiver may hold such an identifier, and takes another message with it for a duplicate. So
//! the identifier stays in use until the receiver has finished the exchange, the session ends, or
//! [`MOST_WITHHELD`] newer ones have come.
//!
//! With a PUBREC the identifier leaves this list: the exchange goes on as that of any other
//! message, and its PUBREL is in the row of the PUBRELs until PUBCOMP comes, and is resent with
//! them.
//!
//! Without a PUBREC nothing is sent again when the client returns, because the message is gone. The
//! identifier is not free then either. The PUBREC may have been lost with the old connection, and
//! the standard lets a client keep the identifier until PUBREL. Such a client answers a new message
//! under the identifier with PUBREC and drops it. One identifier of 65,535 costs less than a lost
//! message. PUBREL is not sent unasked, because the standard has it only as the answer to PUBREC.
// 3.1.1 and 5.0, sections 4.3.3 and 4.4

use crate::mqtt::packet::{PacketId, QoS};
use crate::persistence::rows::Entry;
use crate::session::outbound::in_flight_packet::Unacked;
use crate::session::outbound::transmission::packet_id;
use std::collections::VecDeque;

/// Identifiers that one session withholds at most. Past this number the one that was withheld
/// first is free. The bound keeps a client that never answers from filling memory and store.
pub const MOST_WITHHELD: usize = 1024;

/// The withheld identifiers of one session, in the order of their drops. Identifiers from before a
/// restart come first, in the order of their numbers.
#[derive(Debug)]
pub struct WithheldIds(VecDeque<WithheldId>);

/// A Packet Identifier in use without a message.
#[derive(Debug)]
struct WithheldId {
    number: u64,
    /// The row in the store; `None` if the delivery was not stored. Dropping it ends the row.
    stored: Option<Box<Entry>>,
}

impl WithheldIds {
    /// No identifiers.
    pub const NONE: WithheldIds = WithheldIds(VecDeque::new());

    /// Withholds the identifier of a message that is dropped, if its receiver may hold it: a QoS 2
    /// message that was sent. Takes the record in the store out of `dropped` then.
    pub fn withhold(&mut self, dropped: &mut Unacked) {
        if dropped.delivery.qos != QoS::ExactlyOnce || dropped.transmission.transmissions == 0 {
            return;
        }
        let number = dropped.transmission.number();
        let mut stored = dropped.delivery.stored.take();
        if let Some(entry) = &mut stored {
            entry.withheld(number);
        }
        self.restore(number, stored);
    }

    /// Adds a withheld identifier. At [`MOST_WITHHELD`] the oldest withheld identifier is freed.
    /// `stored` is the identifier's record in the store, already marked as withheld; `None` without
    /// a store.
    pub fn restore(&mut self, number: u64, stored: Option<Box<Entry>>) {
        if self.0.len() >= MOST_WITHHELD {
            self.0.pop_front();
        }
        self.0.push_back(WithheldId { number, stored });
    }

    /// Removes the identifier, because its PUBREC came. Returns its running number and its record
    /// in the store, which says from now on that the PUBREC came. Returns `None` if the identifier
    /// is not withheld. Costs a pass over the identifiers.
    pub fn receive(&mut self, id: PacketId) -> Option<(u64, Option<Box<Entry>>)> {
        let at = self.0.iter().position(|withheld| packet_id(withheld.number) == id)?;
        let WithheldId { number, mut stored } = self.0.remove(at)?;
        if let Some(entry) = &mut stored {
            entry.withheld_received(number);
        }
        Some((number, stored))
    }

    /// Frees the identifier, because its receiver has finished the exchange.
    pub fn free(&mut self, id: PacketId) {
        self.0.retain(|withheld| packet_id(withheld.number) != id);
    }

    /// Frees the identifier that was withheld first. Returns true if there was one.
    pub fn pop(&mut self) -> bool {
        self.0.pop_front().is_some()
    }

    /// True if no identifier is withheld.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if the identifier is withheld. Costs a pass over the identifiers.
    pub fn has(&self, id: PacketId) -> bool {
        self.0.iter().any(|withheld| packet_id(withheld.number) == id)
    }

    /// Returns the bytes that the list has allocated, without the records in the store.
    pub fn row(&self) -> usize {
        self.0.capacity() * size_of::<WithheldId>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> PacketId {
        packet_id(number)
    }

    #[test]
    fn beyond_the_bound_the_identifier_that_was_withheld_first_is_free() {
        let mut withheld = WithheldIds::NONE;
        // The order of the drops is not that of the numbers.
        let numbers: Vec<u64> = (0..MOST_WITHHELD as u64).map(|n| n ^ 1).collect();
        numbers.iter().for_each(|number| withheld.restore(*number, None));
        assert!(numbers.iter().all(|number| withheld.has(id(*number))));
        for newer in 0..10 {
            withheld.restore(5_000 + newer, None);
            let freed: Vec<u64> = numbers.iter().copied().filter(|n| !withheld.has(id(*n))).collect();
            assert_eq!(freed, numbers[..=newer as usize]);
            assert!(withheld.has(id(5_000 + newer)));
        }
        let left = std::iter::from_fn(|| withheld.pop().then_some(())).count();
        assert_eq!(left, MOST_WITHHELD);
        assert!(withheld.is_empty());
    }

    #[test]
    fn a_freed_identifier_makes_room_for_another() {
        let mut withheld = WithheldIds::NONE;
        (0..MOST_WITHHELD as u64).for_each(|number| withheld.restore(number, None));
        withheld.free(id(7));
        assert!(!withheld.has(id(7)));
        withheld.restore(5_000, None);
        assert!(withheld.has(id(0)) && withheld.has(id(5_000)));
        withheld.free(id(9_000));
        assert!(withheld.has(id(0)), "an identifier that is not withheld frees nothing");
    }
}
