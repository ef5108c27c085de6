//! Counts of control packets by type, and of PUBLISH packets by QoS.
//!
//! All counts are plain integers of one shard. One count costs one addition on the way of a
//! message.

use crate::mqtt::codec::PacketType;
use crate::mqtt::packet::QoS;

/// Number of values of the packet type field. The value 0 is reserved.
const TYPES: usize = 16;

/// Control packets of one direction by type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketCounts([u64; TYPES]);

impl PacketCounts {
    /// Returns every packet type except PUBLISH, which [`PublishCounts`] counts.
    pub fn beside_publish() -> impl Iterator<Item = PacketType> {
        PacketType::ALL.into_iter().filter(|packet| *packet != PacketType::Publish)
    }

    /// Counts one packet.
    #[inline]
    pub fn count(&mut self, packet: PacketType) {
        self.add(packet, 1);
    }

    /// Counts this number of packets.
    #[inline]
    pub fn add(&mut self, packet: PacketType, packets: u64) {
        self.0[usize::from(packet as u8) % TYPES] += packets;
    }

    /// Returns the number of packets of this type.
    pub fn of(&self, packet: PacketType) -> u64 {
        self.0[usize::from(packet as u8) % TYPES]
    }

    /// Returns the number of packets of all types.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &PacketCounts) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }
}

/// PUBLISH packets of one direction by QoS, with the bytes of their payloads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishCounts {
    packets: [u64; 3],
    bytes: u64,
}

impl PublishCounts {
    /// Counts one PUBLISH with a payload of this size in bytes.
    #[inline]
    pub fn count(&mut self, qos: QoS, payload: usize) {
        self.packets[qos as usize] += 1;
        self.bytes += payload as u64;
    }

    /// Returns the number of PUBLISH packets of this QoS.
    pub fn of(&self, qos: QoS) -> u64 {
        self.packets[qos as usize]
    }

    /// Returns the number of PUBLISH packets.
    pub fn total(&self) -> u64 {
        self.packets.iter().sum()
    }

    /// Returns the bytes of all payloads.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &PublishCounts) {
        for (count, more) in self.packets.iter_mut().zip(other.packets) {
            *count += more;
        }
        self.bytes += other.bytes;
    }
}

/// The packets that were sent again. A packet that is sent again because the client returned is
/// not live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedeliveryCounts {
    /// PUBLISH packets on a live connection.
    pub live_publishes: u64,
    /// PUBREL packets on a live connection.
    pub live_releases: u64,
    /// PUBLISH packets after the client returned.
    pub returned_publishes: u64,
    /// PUBREL packets after the client returned.
    pub returned_releases: u64,
}

impl RedeliveryCounts {
    /// Returns the number of packets that were sent again.
    pub fn total(&self) -> u64 {
        self.live_publishes + self.live_releases + self.returned_publishes + self.returned_releases
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &RedeliveryCounts) {
        self.live_publishes += other.live_publishes;
        self.live_releases += other.live_releases;
        self.returned_publishes += other.returned_publishes;
        self.returned_releases += other.returned_releases;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_counts_for_its_type() {
        let mut counts = PacketCounts::default();
        for packet in PacketCounts::beside_publish() {
            counts.count(packet);
            counts.add(packet, 2);
            assert_eq!(counts.of(packet), 3, "{packet}");
        }
        assert_eq!((counts.total(), counts.of(PacketType::Publish)), (14 * 3, 0));
    }

    #[test]
    fn a_publish_counts_by_its_qos_with_its_payload() {
        let mut counts = PublishCounts::default();
        counts.count(QoS::AtLeastOnce, 5);
        counts.count(QoS::ExactlyOnce, 7);
        let mut sum = counts.clone();
        sum.merge(&counts);
        assert_eq!(
            (sum.of(QoS::AtMostOnce), sum.of(QoS::AtLeastOnce), sum.total(), sum.bytes()),
            (0, 2, 4, 24)
        );
    }
}
