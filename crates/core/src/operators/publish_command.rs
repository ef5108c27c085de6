//! The command of an operator to publish a message.

use crate::mqtt::codec::{self, DecodeError, Decoded, EncodeError};
use crate::mqtt::packet::{Packet, PacketId, ProtocolVersion, Publish, QoS, ReasonCode};
use crate::operators::command::{CarriedOut, Command};
use crate::session::drops::DropReason;
use crate::session::outbound::stall::SocketView;
use crate::shard::Shard;
use crate::time::Instant;
use std::sync::Arc;

pub use crate::peers::peer_batch::PublicationNumber;
pub use crate::shard::control::NotPublished;
pub use crate::shard::features::unanswered::{
    PublicationAnswer, TooManyUnanswered, UNANSWERED, UNANSWERED_OF_ONE,
};

/// Publishes a message. The answer is reported later, with the returned number. A clone shares the
/// packet, because a shard that is busy is asked again every few milliseconds.
#[derive(Clone, Debug)]
pub struct PublishCommand {
    /// The PUBLISH of MQTT 5.0 that a client would send. So the rules of the codec hold for it.
    packet: Arc<[u8]>,
    publisher: Arc<str>,
}

/// The reasons why a message is no PUBLISH.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPublish {
    /// The message has a field that no packet can have.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The packet breaks a rule of the standard.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl NoPublish {
    /// Returns the reason code that says so.
    pub fn reason(&self) -> ReasonCode {
        match self {
            NoPublish::Encode(_) => ReasonCode::PACKET_TOO_LARGE,
            NoPublish::Decode(error) => error.reason_code(),
        }
    }
}

impl PublishCommand {
    /// Returns the command to publish a message for the operator `publisher`. The Packet Identifier
    /// of `publish` does not matter.
    ///
    /// # Errors
    /// No client could send such a PUBLISH.
    pub fn new(publisher: &str, publish: Publish<'_>) -> Result<PublishCommand, NoPublish> {
        let packet_id = (publish.qos != QoS::AtMostOnce).then(|| PacketId::new(1)).flatten();
        let packet = Packet::Publish(Publish { packet_id, ..publish });
        let mut bytes = Vec::new();
        codec::encode(&packet, ProtocolVersion::V5, &mut bytes)?;
        codec::decode(&bytes, ProtocolVersion::V5, codec::LARGEST_PACKET)?;
        Ok(PublishCommand { packet: bytes.into(), publisher: publisher.into() })
    }
}

impl Command for PublishCommand {
    type Outcome = Result<PublicationNumber, NotPublished>;

    fn carry_out(&self, now: Instant, _: SocketView, shard: &mut Shard) -> CarriedOut<Self::Outcome> {
        let mut shard = shard.control(now);
        let most = shard.view().packet_size();
        let outcome = match codec::decode(&self.packet, ProtocolVersion::V5, most) {
            Ok(Decoded::Packet { packet: Packet::Publish(publish), .. }) => {
                shard.publish(&publish, &self.publisher)
            }
            Err(DecodeError::PacketTooLarge { .. }) => {
                Err(NotPublished::Refused(ReasonCode::PACKET_TOO_LARGE, DropReason::TooLarge))
            }
            // The constructor has decoded it.
            _ => Err(NotPublished::Refused(ReasonCode::MALFORMED_PACKET, DropReason::TooLarge)),
        };
        // The answer comes after the commit.
        CarriedOut { outcome, commit: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::packet::PublishProperties;

    #[test]
    fn a_clone_copies_no_payload() {
        let publish = Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: false,
            topic: "t",
            packet_id: None,
            properties: PublishProperties::default(),
            payload: b"on",
        };
        let command = PublishCommand::new("http:app", publish).expect("a message");
        assert!(Arc::ptr_eq(&command.packet, &command.clone().packet));
    }
}
