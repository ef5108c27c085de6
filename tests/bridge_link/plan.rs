//! What a seed settles beforehand.

use crate::rng::Rng;
use homing::bridge::rules::{Direction, RetainedAtStart, TopicRule, TopicRules};
use homing::mqtt::packet::{ProtocolVersion, QoS};

/// The messages that either side publishes in one play.
pub const MESSAGES: u64 = 60;

/// The time in which faults begin, in milliseconds.
pub const FAULTS_UNTIL: u64 = 40_000;

/// A topic of publishers here or there, with its name at the other side.
#[derive(Clone, Copy)]
pub struct Topic {
    pub name: &'static str,
    /// `None` if no rule names it.
    pub other: Option<&'static str>,
}

const fn topic(name: &'static str, other: Option<&'static str>) -> Topic {
    Topic { name, other }
}

/// The topics that are published here.
pub const HERE: [Topic; 4] = [
    topic("up/0", Some("plant/up/0")),
    topic("up/1", Some("plant/up/1")),
    topic("alarms/0", Some("alarms/0")),
    topic("other/0", None),
];

/// The topics that are published at the other broker.
pub const THERE: [Topic; 4] = [
    topic("down/0", Some("cloud/down/0")),
    topic("down/1", Some("cloud/down/1")),
    topic("alarms/1", Some("alarms/1")),
    topic("secret/0", None),
];

pub struct Plan {
    pub version: ProtocolVersion,
    pub shards: u8,
    /// The QoS of the rules.
    pub qos: QoS,
    pub in_flight: u16,
    pub receive_maximum: u16,
    /// The most bytes that wait in a socket, and in the pump before it reads no more.
    pub socket: usize,
    pub enough: usize,
    /// The terms of the other broker.
    pub far_receive_maximum: u16,
    pub far_maximum_qos: QoS,
    pub far_packet_size: Option<u32>,
    /// Of 100 crashes of the other broker, those after which it has no session.
    pub forgets: u64,
    /// The other broker has a session of an earlier bridge with this client identifier.
    pub has_old_session: bool,
    /// Of 100 acknowledgements, those that the other broker refuses; 5.0 alone.
    pub refuses: u64,
}

impl Plan {
    pub fn new(rng: &mut Rng) -> Plan {
        let version = rng.pick(&[ProtocolVersion::V5, ProtocolVersion::V5, ProtocolVersion::V3_1_1]);
        let is_v5 = version.is_v5();
        let maximum = rng.pick(&[QoS::ExactlyOnce, QoS::ExactlyOnce, QoS::AtLeastOnce, QoS::AtMostOnce]);
        Plan {
            version,
            shards: rng.pick(&[1, 1, 2]),
            qos: rng.pick(&[QoS::ExactlyOnce, QoS::ExactlyOnce, QoS::AtLeastOnce]),
            in_flight: rng.pick(&[1, 3, 20]),
            receive_maximum: rng.pick(&[2, 5, 100]),
            socket: rng.pick(&[100, 2_000, 200_000]),
            enough: rng.pick(&[200, 256 << 10]),
            far_receive_maximum: if is_v5 { rng.pick(&[1, 4, u16::MAX]) } else { u16::MAX },
            far_maximum_qos: if is_v5 { maximum } else { QoS::ExactlyOnce },
            far_packet_size: if is_v5 { rng.pick(&[None, None, Some(200)]) } else { None },
            forgets: rng.pick(&[0, 0, 30]),
            has_old_session: rng.percent(10),
            refuses: if is_v5 { rng.pick(&[0, 0, 5]) } else { 0 },
        }
    }

    pub fn rules(&self) -> TopicRules {
        let rule = |direction, local: &str, filter: &str, remote: &str| TopicRule {
            direction,
            filter: filter.to_owned(),
            qos: self.qos,
            local_prefix: local.to_owned(),
            remote_prefix: remote.to_owned(),
            retain: RetainedAtStart::Never,
        };
        TopicRules::new([
            rule(Direction::Out, "", "up/#", "plant/"),
            rule(Direction::In, "cloud/", "down/#", ""),
            rule(Direction::Both, "", "alarms/#", ""),
        ])
    }

    /// Returns the QoS with which a message of this QoS leaves.
    pub fn qos_out(&self, qos: QoS) -> QoS {
        qos.min(self.qos).min(self.far_maximum_qos)
    }
}
