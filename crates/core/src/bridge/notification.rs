//! The state of a bridge on a topic of the other broker, as mosquitto tells it.

use super::hello::{CONNECTED, DISCONNECTED};
use crate::mqtt::codec::PublishHead;
use crate::mqtt::packet::{ProtocolVersion, QoS};

/// The notifications of one connection. The default has no topic, and writes nothing.
#[derive(Debug, Default)]
pub(super) struct Notification {
    /// The topic, the version, and true for RETAIN.
    on: Option<(Box<str>, ProtocolVersion, bool)>,
    /// True while the topic has `1`.
    is_announced: bool,
}

impl Notification {
    /// Returns the notifications on a topic. `retain` is false if the other broker takes no
    /// retained messages.
    pub(super) fn new(topic: &str, version: ProtocolVersion, retain: bool) -> Notification {
        Notification { on: Some((topic.into(), version, retain)), is_announced: false }
    }

    /// Tells that the bridge is connected.
    pub(super) fn announce(&mut self, out: &mut Vec<u8>) {
        self.is_announced = true;
        self.put(CONNECTED, out);
    }

    /// Tells that the bridge disconnects, if the contrary was told. The other broker discards the
    /// will at a DISCONNECT.
    pub(super) fn revoke(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.is_announced) {
            self.put(DISCONNECTED, out);
        }
    }

    /// Appends a PUBLISH. QoS 0 needs no Packet Identifier: those are the shard's.
    fn put(&self, payload: &[u8], out: &mut Vec<u8>) {
        let Some((topic, version, retain)) = &self.on else { return };
        let head = PublishHead {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: *retain,
            topic,
            packet_id: None,
            topic_alias: None,
            message_expiry: None,
            subscription_ids: &[],
            forwarded: &[],
        };
        head.put(*version, payload.len(), out);
        out.extend_from_slice(payload);
    }
}
