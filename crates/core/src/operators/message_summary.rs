//! A message in an answer to an operator.

use crate::mqtt::message::Message;
use crate::mqtt::packet::QoS;
use crate::session::outbound::delivery::Delivery;
use crate::time::Instant;

/// A message that waits for its receiver.
#[derive(Clone, Debug)]
pub struct MessageSummary {
    /// The Topic Name in full, because operators name messages by it.
    pub topic: Box<str>,
    /// The QoS of the delivery.
    pub qos: QoS,
    /// Bytes of the payload.
    pub payload: usize,
    /// The RETAIN flag.
    pub retain: bool,
    /// The time at which the message expires; [`Instant::NEVER`] without an interval.
    pub expires: Instant,
}

impl MessageSummary {
    /// Returns the summary of a message that is no delivery yet.
    pub(super) fn of_message(message: &Message) -> MessageSummary {
        let header = message.header();
        MessageSummary {
            topic: message.topic().into(),
            qos: header.qos,
            payload: message.payload().len(),
            retain: header.retain,
            expires: header.expires,
        }
    }

    /// Returns the summary of a delivery.
    pub(super) fn of(delivery: &Delivery) -> MessageSummary {
        let of_message = MessageSummary::of_message(&delivery.message);
        MessageSummary { qos: delivery.qos, retain: delivery.retain, ..of_message }
    }
}
