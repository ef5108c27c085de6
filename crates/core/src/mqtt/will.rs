//! The Will Message of a CONNECT. The session decides when it is published.

use super::charge::{Charge, Recount, Recounted};
use super::packet::{QoS, WillMessage};
use std::sync::Arc;
use std::time::Duration;

/// A message that is published when the connection ends without a plain DISCONNECT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Will {
    /// The Will Topic.
    pub topic: Box<str>,
    /// The Will QoS.
    pub qos: QoS,
    /// The Will Retain flag.
    pub retain: bool,
    /// The Will Payload.
    pub payload: Box<[u8]>,
    /// Encoded Will Properties that are forwarded unchanged, without the length in front.
    pub forwarded: Box<[u8]>,
    /// The Will Delay Interval; zero in 3.x.
    pub delay: Duration,
    /// The Message Expiry Interval in seconds, counted from the publication of the will; `None`
    /// without one.
    pub message_expiry: Option<u32>,
    /// The bytes on the account; [`Will::shared`] sets them.
    pub charge: Charge,
}

impl Will {
    /// Returns the will of a CONNECT. The will is not on the account yet.
    pub fn of(will: &WillMessage<'_>) -> Will {
        Will {
            topic: will.topic.into(),
            qos: will.qos,
            retain: will.retain,
            payload: will.payload.into(),
            forwarded: will.forwarded.as_ref().into(),
            delay: Duration::from_secs(will.delay.into()),
            message_expiry: will.message_expiry,
            charge: Charge::NONE,
        }
    }

    /// Adds the will to the account and makes it shareable. The session shares it with the record
    /// for the store.
    pub fn shared(mut self) -> Arc<Will> {
        self.charge.set(size_of::<Will>() + self.size());
        Arc::new(self)
    }

    /// Returns the bytes that the client sent: topic, payload and forwarded properties.
    pub fn size(&self) -> usize {
        self.topic.len() + self.payload.len() + self.forwarded.len()
    }
}

impl Recount for Will {
    fn recount(&self) -> Recounted {
        Recounted { in_use: size_of::<Will>() + self.size(), charged: self.charge.bytes() }
    }
}
