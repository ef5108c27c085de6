//! SUBSCRIBE and UNSUBSCRIBE to both sides.

use super::outcome::LinkEnd;
use crate::mqtt::codec::encode;
use crate::mqtt::packet::{
    Packet, PacketId, Properties, ProtocolVersion, QoS, Subscribe, SubscribeFilter, SubscriptionOptions,
    Unsubscribe,
};

/// The Packet Identifier of SUBSCRIBE. A message of the shard with the same identifier waits for
/// the SUBACK of the other broker. 5.0 [MQTT-2.2.1-3], 3.1.1 [MQTT-2.3.1-2]
pub(super) const SUBSCRIBE_ID: u16 = u16::MAX;

/// The Subscription Identifier of the filters of a session that has never been connected with the
/// other broker. Such a session numbers its messages anew, while the other broker may remember QoS 2
/// identifiers of an earlier session. The mark is stored with the filters, so it outlives crashes.
pub const FRESH_SESSION: u32 = 1;

/// Appends UNSUBSCRIBE and SUBSCRIBE to the shard. `highest` is the highest QoS of the other
/// broker. `mark` is [`FRESH_SESSION`] or nothing.
///
/// # Errors
/// A filter is longer than the protocol allows.
pub fn put_filters_here(
    filters: &[(&str, SubscriptionOptions)],
    stale: &[String],
    highest: QoS,
    mark: Option<u32>,
    out: &mut Vec<u8>,
) -> Result<(), LinkEnd> {
    if let (false, Some(packet_id)) = (stale.is_empty(), PacketId::new(SUBSCRIBE_ID - 1)) {
        let filters = stale.iter().map(String::as_str).collect();
        let unsubscribe = Unsubscribe { packet_id, properties: Properties::EMPTY, filters };
        encode(&Packet::Unsubscribe(unsubscribe), ProtocolVersion::V5, out)?;
    }
    if filters.is_empty() {
        return Ok(());
    }
    put_subscribe(filters, highest, ProtocolVersion::V5, mark, out)
}

pub(super) fn put_subscribe(
    filters: &[(&str, SubscriptionOptions)],
    highest: QoS,
    version: ProtocolVersion,
    subscription_id: Option<u32>,
    out: &mut Vec<u8>,
) -> Result<(), LinkEnd> {
    let Some(packet_id) = PacketId::new(SUBSCRIBE_ID) else { return Ok(()) };
    let filters = filters.iter().map(|(filter, options)| {
        let options = SubscriptionOptions { qos: options.qos.min(highest), ..*options };
        // 3.x has the QoS alone.
        let of_v3 = SubscriptionOptions { qos: options.qos, ..SubscriptionOptions::default() };
        SubscribeFilter { filter, options: if version.is_v5() { options } else { of_v3 } }
    });
    let subscribe =
        Subscribe { packet_id, subscription_id, properties: Properties::EMPTY, filters: filters.collect() };
    Ok(encode(&Packet::Subscribe(subscribe), version, out)?)
}
