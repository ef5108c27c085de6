//! The QoS 2 identifiers that the other broker may remember of an earlier session here.
//!
//! A session that begins here numbers its messages anew. A broker that has kept its session may
//! remember some of these numbers, would take new messages for repetitions, and they would be lost.
//! A clean session there would forget the numbers, and with them all messages that it keeps for the
//! bridge. PUBREL frees an identifier, known or not: 5.0 [MQTT-4.3.3-12], 3.1.1 4.3.3. So the first
//! connection sends one for each identifier, 256 KiB in all, and its session here stays unused.

use crate::mqtt::codec::{AckKind, put_acknowledgement};
use crate::mqtt::packet::{PacketId, ProtocolVersion, ReasonCode};

/// PUBRELs that are sent at once: 16 KiB.
const AT_ONCE: u16 = 4_096;

/// The identifiers that are freed one after the other.
#[derive(Debug, Default)]
pub(super) struct Freeing {
    /// The highest identifier for which a PUBREL was sent.
    sent: u16,
    /// PUBRELs without an answer.
    unanswered: u16,
}

impl Freeing {
    /// Appends the next PUBRELs. Returns false if none is left.
    pub(super) fn put_next(&mut self, version: ProtocolVersion, out: &mut Vec<u8>) -> bool {
        let first = self.sent;
        self.sent = first.saturating_add(AT_ONCE);
        self.unanswered = self.sent - first;
        for id in (first..self.sent).filter_map(|before| PacketId::new(before + 1)) {
            put_acknowledgement(out, AckKind::Pubrel, id, ReasonCode::SUCCESS, version);
        }
        self.unanswered > 0
    }

    /// Notes an answer. Returns true if there was one to each PUBREL. A broker that does not know the
    /// identifier answers as well: 5.0 with 0x92.
    pub(super) fn is_answered(&mut self) -> bool {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.unanswered == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::codec::short_acknowledgement;

    #[test]
    fn each_identifier_is_freed_once_and_a_part_follows_the_answers_to_the_one_before() {
        let (mut freeing, mut next, mut parts) = (Freeing::default(), 1, 0);
        loop {
            let mut out = Vec::new();
            if !freeing.put_next(ProtocolVersion::V5, &mut out) {
                break;
            }
            parts += 1;
            let count = out.len() / 4;
            for packet in out.chunks(4) {
                let (kind, id) = short_acknowledgement(packet).expect("a whole packet");
                assert_eq!((kind, u32::from(id.get())), (AckKind::Pubrel, next));
                next += 1;
            }
            let answers: Vec<bool> = (0..count).map(|_| freeing.is_answered()).collect();
            assert_eq!(answers.iter().position(|all| *all), Some(count - 1));
        }
        assert_eq!((parts, next), (16, 65_536));
    }
}
