//! The answer to a PUBLISH that is not routed.

use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::{PacketId, ProtocolVersion, QoS, ReasonCode};
use crate::session::drops::DropReason;
use crate::session::inbound::{Due, Receiver};
use crate::session::violation::Violation;

/// Returns the violation that ends a connection whose PUBLISH is not routed for `cause`. The publisher
/// `discards_refused` messages if it takes each acknowledgement for a positive one: 3.x has no reason
/// codes, and a bridge passes them on to a broker that gives the message up whatever the code.
///
/// If the broker has no room for the message, it closes the connection, so that the publisher keeps
/// the message. For other causes the message is acknowledged and dropped; the shard closes the
/// connection itself if `acl.on_denied_publish` says so. Returns `None` then, and for a publisher that
/// gets the reason.
// 3.1.1 [MQTT-3.3.5-2]
pub fn ends_connection(
    discards_refused: bool,
    reason: ReasonCode,
    cause: Option<DropReason>,
) -> Option<Violation> {
    if !discards_refused {
        return None;
    }
    match cause? {
        cause @ (DropReason::MemoryBudget | DropReason::StoreFull | DropReason::DelayedFull) => {
            Some(Violation { reason, what: bound(cause) })
        }
        _ => None,
    }
}

/// Returns the bound for which a message is refused, for operators: the text names the
/// configuration key.
pub const fn bound(cause: DropReason) -> &'static str {
    match cause {
        DropReason::MemoryBudget => "the broker's memory budget is used up (limits.memory)",
        DropReason::StoreFull => "the store has no room (store.size_limit, or the disk)",
        DropReason::DelayedFull => "limits.delayed_messages, delayed_bytes or delayed_horizon is reached",
        DropReason::TooLarge => "the payload exceeds limits.payload_size",
        DropReason::TopicTooDeep => {
            "the topic has more levels than limits.topic_levels, or is too long behind the mount point"
        }
        DropReason::ReservedTopic => "the topic is reserved for the broker",
        DropReason::RetainedFull => {
            "limits.retained_messages or retained_bytes is reached, so the message is not retained"
        }
        _ => "",
    }
}

impl Receiver {
    /// Records that a PUBLISH is not routed. Returns its acknowledgement, or `None` if the
    /// acknowledgement must wait behind older ones. A 5.0 client gets the reason; 3.x has no code.
    pub fn decline(
        &mut self,
        version: ProtocolVersion,
        packet_id: PacketId,
        qos: QoS,
        reason: ReasonCode,
    ) -> Option<Due> {
        let refused = Some(reason).filter(|reason| version.is_v5() && reason.is_error());
        self.report(packet_id, qos, Outcome::Taken, 0, refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ProtocolVersion::{V3_1_1, V5};

    #[test]
    fn mqtt3_3_3_5_2_a_3_x_publisher_is_acknowledged_unless_the_message_would_be_lost() {
        use DropReason::{DelayedFull, MemoryBudget, ReservedTopic, StoreFull, TopicTooDeep};
        let quota = ReasonCode::QUOTA_EXCEEDED;
        for cause in [MemoryBudget, StoreFull, DelayedFull] {
            assert_eq!(ends_connection(true, quota, Some(cause)).map(|v| v.reason), Some(quota));
            assert_eq!(ends_connection(false, quota, Some(cause)), None);
        }
        for cause in [None, Some(ReservedTopic), Some(TopicTooDeep)] {
            assert_eq!(ends_connection(true, ReasonCode::NOT_AUTHORIZED, cause), None);
        }
    }

    #[test]
    fn only_a_5_0_publisher_gets_the_reason() {
        let id = PacketId::new(1).expect("not zero");
        let mut receiver = Receiver::default();
        let mut reason =
            |version, reason| receiver.decline(version, id, QoS::AtLeastOnce, reason).map(|d| d.reason);
        assert_eq!(reason(V5, ReasonCode::NOT_AUTHORIZED), Some(ReasonCode::NOT_AUTHORIZED));
        assert_eq!(reason(V5, ReasonCode::SUCCESS), Some(Outcome::Taken.reason()));
        assert_eq!(reason(V3_1_1, ReasonCode::NOT_AUTHORIZED), Some(Outcome::Taken.reason()));
    }
}
