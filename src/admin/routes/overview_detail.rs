//! The further parts of the overview: the bytes that passed and are held, and counts by kind. All
//! are sums that the shards report once a second.

use crate::admin::failed::Failed;
use crate::admin::request::named_once;
use crate::broker::observer::Observer;
use crate::expiry::deadline::DeadlineKind;
use crate::mqtt::codec::PacketType;
use crate::mqtt::packet::QoS;
use crate::named_enum::named_enum;
use crate::session::drops::DropReason;
use crate::session::packet_counts::{PacketCounts, PublishCounts};
use crate::shard::ShardSnapshot;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

named_enum! {
    /// A further part of the overview.
    pub(super) enum OverviewDetail {
        Sizes = "sizes",
        Kinds = "kinds",
    }
}

impl OverviewDetail {
    /// Reads names with commas between them; none for no parameter. Errors: a name is neither of
    /// the two, or comes twice.
    pub(super) fn read(names: Option<&str>) -> Result<Vec<OverviewDetail>, Failed> {
        let read = |names| named_once("detail", names, &OverviewDetail::ALL, OverviewDetail::name);
        names.map_or(Ok(Vec::new()), read)
    }
}

// The mean size of a payload is enough: a histogram would be one more count on the way of each
// message.
/// Bytes that passed and are held.
#[derive(Deserialize, Serialize, ToSchema)]
pub(super) struct OverviewSizes {
    received: DirectionBytes,
    sent: DirectionBytes,
    retained_bytes: usize,
    delayed_bytes: usize,
    dead_letter_bytes: usize,
}

/// Bytes of one direction.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Traffic)]
struct DirectionBytes {
    /// Of sockets.
    bytes: u64,
    /// Of PUBLISH packets.
    payload_bytes: u64,
    /// Null before the first PUBLISH.
    #[schema(required)]
    mean_payload_bytes: Option<u64>,
}

impl DirectionBytes {
    fn of(bytes: u64, publishes: &PublishCounts) -> DirectionBytes {
        let mean_payload_bytes = publishes.bytes().checked_div(publishes.total());
        DirectionBytes { bytes, payload_bytes: publishes.bytes(), mean_payload_bytes }
    }
}

impl OverviewSizes {
    pub(super) fn of(observer: &Observer, total: &ShardSnapshot) -> OverviewSizes {
        let (statistics, shared) = (observer.statistics(), observer.shared());
        // Not in the expression below, which would hold the lock to its end.
        let retained_bytes = shared.retained().bytes();
        OverviewSizes {
            received: DirectionBytes::of(statistics.received_bytes(), &total.counters.publishes_received),
            sent: DirectionBytes::of(statistics.sent_bytes(), &total.counters.sent),
            retained_bytes,
            delayed_bytes: shared.totals.delayed_bytes.get(),
            dead_letter_bytes: shared.totals.letter_bytes.get(),
        }
    }
}

/// Counts by type of packet, QoS, cause of the drop, and kind of deadline.
#[derive(Deserialize, Serialize, ToSchema)]
pub(super) struct OverviewKinds {
    packets_received: BTreeMap<String, u64>,
    packets_sent: BTreeMap<String, u64>,
    publishes_received: BTreeMap<String, u64>,
    publishes_sent: BTreeMap<String, u64>,
    dropped: BTreeMap<String, u64>,
    deadlines: BTreeMap<String, u64>,
}

impl OverviewKinds {
    pub(super) fn of(observer: &Observer, total: &ShardSnapshot) -> OverviewKinds {
        let (counters, expiry) = (&total.counters, &observer.statistics().expiry);
        let dropped = DropReason::ALL.into_iter().map(|cause| (cause.name(), counters.drops.of(cause)));
        let deadlines = DeadlineKind::ALL.into_iter().map(|kind| (kind.name(), expiry.keys_of(kind)));
        OverviewKinds {
            packets_received: packets(&counters.packets_received(), &counters.publishes_received),
            packets_sent: packets(&counters.packets_sent, &counters.sent),
            publishes_received: publishes(&counters.publishes_received),
            publishes_sent: publishes(&counters.sent),
            dropped: named(dropped),
            deadlines: named(deadlines),
        }
    }
}

fn named(counts: impl Iterator<Item = (impl Into<String>, u64)>) -> BTreeMap<String, u64> {
    counts.map(|(name, count)| (name.into(), count)).collect()
}

/// Returns packets by the name of their type.
fn packets(counts: &PacketCounts, publishes: &PublishCounts) -> BTreeMap<String, u64> {
    let name = |packet: PacketType| packet.name().to_ascii_lowercase();
    let others = PacketCounts::beside_publish().map(|packet| (name(packet), counts.of(packet)));
    named(others.chain([(name(PacketType::Publish), publishes.total())]))
}

/// Returns PUBLISH packets by QoS.
fn publishes(counts: &PublishCounts) -> BTreeMap<String, u64> {
    let all = [("0", QoS::AtMostOnce), ("1", QoS::AtLeastOnce), ("2", QoS::ExactlyOnce)];
    named(all.into_iter().map(|(name, qos)| (name, counts.of(qos))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_details_are_those_that_are_named() {
        let read = |names| OverviewDetail::read(names).ok();
        assert_eq!(read(None), Some(Vec::new()));
        assert_eq!(read(Some("kinds,sizes")), Some(vec![OverviewDetail::Kinds, OverviewDetail::Sizes]));
        for other in ["", "size", "sizes,"] {
            assert_eq!(read(Some(other)), None, "{other}");
        }
    }
}
