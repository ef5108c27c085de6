//! The beginning of a sink's connection to its shard: CONNECT and its subscriptions.

use super::dispatcher::SinkEnd;
use crate::mqtt::codec::encode;
use crate::mqtt::packet::{
    Connect, ConnectProperties, Packet, PacketId, Properties, ProtocolVersion, QoS, RetainHandling,
    Subscribe, SubscribeFilter, SubscriptionOptions, Unsubscribe,
};

/// The packets that begin a connection: always of 5.0, so that nothing is sent again on a live
/// connection.
#[derive(Clone, Copy, Debug)]
pub struct SinkHello<'a> {
    /// The client identifier.
    pub client_id: &'a str,
    /// The Session Expiry Interval in seconds.
    pub session_expiry: u32,
    /// The most messages that may be unacknowledged.
    pub window: u16,
    /// The filters, and the highest QoS of their messages.
    pub filters: &'a [&'a str],
    /// As above.
    pub qos: QoS,
    /// Filters that the session has from an earlier configuration.
    pub stale: &'a [String],
    /// The salt of the connection: a number by chance, from 1 to 268,435,455. Messages that come
    /// from now on have it as their Subscription Identifier, and in their identifiers. So brokers
    /// that send to one service give different identifiers, and so does a session that was ended
    /// and begun again, or a broker whose store was restored from a copy.
    pub salt: u32,
}

impl SinkHello<'_> {
    /// Appends the packets.
    ///
    /// # Errors
    /// A text is longer than the protocol allows.
    pub fn put(&self, out: &mut Vec<u8>) -> Result<(), SinkEnd> {
        let connect = Connect {
            version: ProtocolVersion::V5,
            clean_start: false,
            keep_alive: 0,
            properties: ConnectProperties {
                session_expiry: Some(self.session_expiry),
                receive_maximum: Some(self.window.max(1)),
                ..ConnectProperties::default()
            },
            client_id: self.client_id,
            will: None,
            user_name: None,
            password: None,
        };
        encode(&Packet::Connect(Box::new(connect)), ProtocolVersion::V5, out)?;
        if let (false, Some(packet_id)) = (self.stale.is_empty(), PacketId::new(1)) {
            let filters = self.stale.iter().map(String::as_str).collect();
            let unsubscribe = Unsubscribe { packet_id, properties: Properties::EMPTY, filters };
            encode(&Packet::Unsubscribe(unsubscribe), ProtocolVersion::V5, out)?;
        }
        let Some(packet_id) = PacketId::new(2) else { return Ok(()) };
        let options = SubscriptionOptions {
            qos: self.qos,
            no_local: false,
            retain_as_published: true,
            retain_handling: RetainHandling::SendIfNew,
        };
        let filters = self.filters.iter().map(|filter| SubscribeFilter { filter, options }).collect();
        let subscription_id = Some(self.salt);
        let subscribe = Subscribe { packet_id, subscription_id, properties: Properties::EMPTY, filters };
        Ok(encode(&Packet::Subscribe(subscribe), ProtocolVersion::V5, out)?)
    }
}
