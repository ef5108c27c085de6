//! The further parts of the overview: the bytes that passed and are held, and counts by kind. All
//! are sums that the shards report once a second.

use crate::admin::failed::Failed;
use crate::admin::request::named_once;
use crate::broker::observer::Observer;
use crate::expiry::deadline::DeadlineKind;
use crate::mqtt::codec::PacketType;
use crate::mqtt::packet::QoS;
use crate::session::drops::DropReason;
use crate::session::packet_counts::{PacketCounts, PublishCounts};
use crate::shard::ShardSnapshot;
use serde_json::{Map, Value, json};
use std::sync::atomic::Ordering;

/// A further part of the overview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OverviewDetail {
    Sizes,
    Kinds,
}

impl OverviewDetail {
    /// Reads names with commas between them; none for no parameter.
    ///
    /// # Errors
    /// A name is neither of the two, or comes twice.
    pub(super) fn read(names: Option<&str>) -> Result<Vec<OverviewDetail>, Failed> {
        let all = [OverviewDetail::Sizes, OverviewDetail::Kinds];
        let read = |names| named_once("detail", names, &all, OverviewDetail::name);
        names.map_or(Ok(Vec::new()), read)
    }

    /// Returns the name of the part in the answer.
    pub(super) fn name(self) -> &'static str {
        match self {
            OverviewDetail::Sizes => "sizes",
            OverviewDetail::Kinds => "kinds",
        }
    }

    /// Returns the part.
    pub(super) fn of(self, observer: &Observer, total: &ShardSnapshot) -> Value {
        match self {
            OverviewDetail::Sizes => sizes(observer, total),
            OverviewDetail::Kinds => kinds(observer, total),
        }
    }
}

/// Has the mean size of a payload. A histogram would be one more count on the way of each message.
fn sizes(observer: &Observer, total: &ShardSnapshot) -> Value {
    let (statistics, shared) = (observer.statistics(), observer.shared());
    let direction = |bytes: u64, publishes: &PublishCounts| {
        let mean = publishes.bytes().checked_div(publishes.total());
        json!({ "bytes": bytes, "payload_bytes": publishes.bytes(), "mean_payload_bytes": mean })
    };
    json!({
        "received": direction(statistics.received_bytes(), &total.counters.publishes_received),
        "sent": direction(statistics.sent_bytes(), &total.counters.sent),
        "queued_bytes": total.session_totals.queued_bytes,
        "retained_bytes": shared.retained().bytes(),
        "delayed_bytes": shared.totals.delayed_bytes.get(),
        "dead_letter_bytes": shared.totals.letter_bytes.get(),
        "store_bytes": statistics.store().map(|store| store.bytes.load(Ordering::Relaxed)),
    })
}

fn kinds(observer: &Observer, total: &ShardSnapshot) -> Value {
    let (counters, expiry) = (&total.counters, &observer.statistics().expiry);
    let dropped = DropReason::ALL.into_iter().map(|cause| (cause.name(), counters.drops.of(cause)));
    let deadlines = DeadlineKind::ALL.into_iter().map(|kind| (kind.name(), expiry.keys_of(kind)));
    json!({
        "packets_received": packets(&counters.packets_received(), &counters.publishes_received),
        "packets_sent": packets(&counters.packets_sent, &counters.sent),
        "publishes_received": publishes(&counters.publishes_received),
        "publishes_sent": publishes(&counters.sent),
        "dropped": object(dropped),
        "deadlines": object(deadlines),
    })
}

fn object(counts: impl Iterator<Item = (impl Into<String>, u64)>) -> Map<String, Value> {
    counts.map(|(name, count)| (name.into(), count.into())).collect()
}

/// Returns packets by the name of their type.
fn packets(counts: &PacketCounts, publishes: &PublishCounts) -> Map<String, Value> {
    let name = |packet: PacketType| packet.name().to_ascii_lowercase();
    let others = PacketCounts::beside_publish().map(|packet| (name(packet), counts.of(packet)));
    object(others.chain([(name(PacketType::Publish), publishes.total())]))
}

/// Returns PUBLISH packets by QoS.
fn publishes(counts: &PublishCounts) -> Map<String, Value> {
    let all = [("0", QoS::AtMostOnce), ("1", QoS::AtLeastOnce), ("2", QoS::ExactlyOnce)];
    object(all.into_iter().map(|(name, qos)| (name, counts.of(qos))))
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
