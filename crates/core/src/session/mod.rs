//! The Session State of one client, split by concern of the standard.
//!
//! [`Session::handle`] takes one packet and the time. The session writes the responses that it can
//! give alone to the connection's [`wire::Wire`], and returns one [`Action`] for the rest, such as
//! a subscription to enter. [`Session::admit`] takes a PUBLISH, and says if it is to be routed. A
//! session never sees another session.
//!
//! Pure.
//!
//! | file | concern |
//! |---|---|
//! | `connect` | CONNECT: checks, negotiation, CONNACK |
//! | `authentication` | from a CONNECT: may the client enter, or who has to be asked |
//! | `client_id_rule` | the form that the client identifiers of a listener have |
//! | `disconnect` | DISCONNECT in both directions, and the end of a connection |
//! | `inbound` | incoming QoS 1 and 2, and pending acknowledgements |
//! | `id_set` | a compact set of Packet Identifiers |
//! | `publish_refusal` | the answer to a PUBLISH that is not routed |
//! | [`outbound`] | outgoing: queue, in-flight window, retransmission |
//! | `policy` | the operator's settings that hold for every session |
//! | `redelivery_policy` | the settings of one message, and when its packet is due again |
//! | `redelivery_rule`, `redelivery_rules` | the operator's rules by client, user and topic |
//! | `session_redelivery` | the settings of one session, and of its messages by topic |
//! | `redelivery_request` | a client's request for its own retry interval or ack timeout |
//! | `granted_topic` | the topic of the granted redelivery time |
//! | `ack_wait` | how long this session waits for an acknowledgement |
//! | `keep_alive` | when a silent client is disconnected |
//! | `mount_point` | the prefix that the topics of a listener's clients have |
//! | `topic_alias` | Topic Aliases in both directions |
//! | `subscriptions` | the session's own Topic Filters, and the checks of SUBSCRIBE |
//! | `violation` | a protocol rule that a client broke |
//! | `will` | when the Will Message is published |
//! | `frame` | a PUBLISH as bytes that several receivers share |
//! | `wire` | the outbox of a connection, and the limits of its client |
//! | `outbox` | bytes that wait to be written |
//! | `packet_counts` | packets of a client by type and QoS |
//! | `counters` | counts of what sessions did |
//! | `drops` | why a message was dropped |
//! | [`objectives`] | deliveries that were acknowledged in time, by objective |
//! | [`slow_deliveries`] | deliveries that took more than a second |
//! | `trace_steps` | the steps of traced messages and of traced clients' packets |

pub mod ack_wait;
pub mod authentication;
pub mod client_id_rule;
pub mod connect;
pub mod counters;
pub mod disconnect;
pub mod drops;
pub mod frame;
pub mod granted_topic;
mod id_set;
pub mod inbound;
pub mod keep_alive;
pub mod mount_point;
pub mod objectives;
pub mod outbound;
pub mod outbox;
pub mod packet_counts;
pub mod policy;
pub mod publish_refusal;
pub mod redelivery_policy;
pub mod redelivery_request;
pub mod redelivery_rule;
pub mod redelivery_rules;
pub mod session_redelivery;
pub mod slow_deliveries;
pub mod subscriptions;
pub mod topic_alias;
pub mod trace_steps;
pub mod violation;
pub mod will;
pub mod wire;

use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::codec::{AckKind, PacketType};
use crate::mqtt::outcome::Outcome;
use crate::mqtt::packet::{
    Acknowledgement, Auth, Disconnect, Packet, PacketId, ProtocolVersion, Publish, QoS, ReasonCode,
    Subscribe, Unsubscribe,
};
use crate::mqtt::will::Will;
use crate::persistence::rows::SessionRow;
use crate::session::ack_wait::AckWait;
use crate::session::counters::Counters;
use crate::session::inbound::{AckToken, Admission, Due, Receiver};
use crate::session::outbound::queue::QueueLimits;
use crate::session::outbound::retry::Outlives;
use crate::session::outbound::sender::Sender;
use crate::session::packet_counts::PacketCounts;
use crate::session::policy::SendPolicy;
pub use crate::session::policy::SessionPolicy;
use crate::session::session_redelivery::SessionRedelivery;
use crate::session::subscriptions::Subscriptions;
pub use crate::session::violation::Violation;
use crate::time::Instant;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use wire::Wire;

/// The Session Expiry Interval that means "never".
const NEVER_EXPIRES: u32 = u32::MAX;

/// The Session State of one client, with the protocol part of its present connection.
#[derive(Debug)]
pub struct Session {
    /// The Client Identifier.
    pub client_id: Box<str>,
    /// The Session Expiry Interval in seconds. 0 ends the session with its connection; 0xFFFF_FFFF
    /// is never.
    pub expiry: u32,
    /// True if the CONNECT of the present connection asked for a Session Expiry Interval above 0,
    /// whatever the operator granted.
    wants_to_outlive: bool,
    /// The protocol version of the last connection.
    pub version: ProtocolVersion,
    /// The sending half: queue and in-flight window.
    pub sender: Sender,
    /// The receiving half: QoS 2 identifiers and pending acknowledgements.
    pub receiver: Receiver,
    /// The session's Topic Filters.
    pub subscriptions: Subscriptions,
    /// The Will Message of the present or last connection, until it is published or discarded.
    pub will: Option<Arc<Will>>,
    ack_wait: Option<Box<AckWait>>,
    /// The row in the store; `None` for a session that ends with its connection.
    row: Option<Rc<SessionRow>>,
    /// The charge of the empty session. Queue, window and filters have charges of their own.
    charge: Charge,
}

/// Bytes of a session beside its own struct and Client Identifier: its slot, its place in the table
/// of clients, its row, and the allocator's rounding.
const SESSION: usize = 256;

/// The part of a packet's handling that the session leaves to the shard.
#[derive(Debug, PartialEq)]
pub enum Action<'a> {
    /// Nothing is left to do. A response, if there is one, is in the outbox.
    None,
    /// The client subscribes. The shard answers with SUBACK.
    Subscribe(Subscribe<'a>),
    /// The client unsubscribes. The shard answers with UNSUBACK.
    Unsubscribe(Unsubscribe<'a>),
    /// The client sent DISCONNECT.
    Disconnect(Disconnect<'a>),
    /// The client sent AUTH. The shard knows the Authentication Method of the connection.
    Authenticate(Box<Auth<'a>>),
    /// The client broke a rule. The connection ends, in 5.0 with this reason code.
    Fail(Violation),
    /// The client acknowledged a packet in flight with the wrong kind of acknowledgement. The
    /// connection ends, and the packet is sent again when the client returns.
    Contradiction {
        /// The Packet Identifier of the packet in flight.
        packet_id: PacketId,
        /// The rule that the client broke.
        violation: Violation,
    },
}

/// The decision about an incoming PUBLISH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// The message is new. Route it, then report the outcome to the [`Receiver`]. The token names
    /// the acknowledgement, if the PUBLISH gets one.
    ToRoute(Option<AckToken>),
    /// The message came before. The response, if one is due, is in the outbox.
    Known,
    /// The client broke a rule.
    Fail(Violation),
}

impl Session {
    /// Creates an empty session, without a connection and without a row in the store.
    pub fn new(client_id: &str, expiry: u32, redelivery: Arc<SessionRedelivery>) -> Session {
        Session {
            client_id: client_id.into(),
            expiry,
            wants_to_outlive: false,
            version: ProtocolVersion::V3_1_1,
            sender: Sender::new(redelivery),
            receiver: Receiver::default(),
            subscriptions: Subscriptions::default(),
            will: None,
            ack_wait: None,
            row: None,
            charge: Charge::new(size_of::<Session>() + SESSION + client_id.len()),
        }
    }

    /// Returns the session's row in the store, or `None` if the session is not stored.
    pub fn row(&self) -> Option<&SessionRow> {
        self.row.as_deref()
    }

    /// Returns the sending half, and the row under which its deliveries are stored.
    pub fn sender_and_row(&mut self) -> (&mut Sender, Option<&SessionRow>) {
        (&mut self.sender, self.row.as_deref())
    }

    /// Returns the bounds of the session's queue. A stored queue may be longer than one in memory.
    pub fn queue_limits<'a>(&self, policy: &'a SendPolicy) -> &'a QueueLimits {
        if self.row.is_some() { &policy.stored_queue } else { &policy.queue }
    }

    /// Sets the row of a session that is stored from now on.
    pub fn set_row(&mut self, row: SessionRow) {
        let row = Rc::new(row);
        self.receiver.set_row(Rc::clone(&row));
        self.row = Some(row);
    }

    /// True if the session ends with its connection (Session Expiry Interval 0).
    pub fn ends_with_connection(&self) -> bool {
        self.expiry == 0
    }

    /// Returns if the session outlives its connection.
    pub fn outlives(&self) -> Outlives {
        if self.ends_with_connection() { Outlives::No } else { Outlives::Yes }
    }

    /// Returns how long the session outlives its connection; [`Duration::MAX`] if it never expires.
    pub fn expiry_interval(&self) -> Duration {
        if self.expiry == NEVER_EXPIRES { Duration::MAX } else { Duration::from_secs(self.expiry.into()) }
    }

    /// Handles one packet of an established connection. PUBLISH goes to [`Self::admit`] instead.
    pub fn handle<'a>(
        &mut self,
        now: Instant,
        packet: Packet<'a>,
        wire: &mut Wire,
        policy: &SessionPolicy,
        counters: &mut Counters,
    ) -> Action<'a> {
        // Each arm has a constant place, so that a count costs one instruction.
        match packet {
            Packet::Puback(ack) => self.acknowledged(now, &ack, wire, policy, counters),
            Packet::Pubrec(ack) => {
                counters.count_received(PacketType::Pubrec);
                self.received(now, &ack, wire, policy, counters)
            }
            Packet::Pubrel(ack) => {
                counters.count_received(PacketType::Pubrel);
                self.release(ack, wire, &mut counters.packets_sent)
            }
            Packet::Pubcomp(ack) => {
                counters.count_received(PacketType::Pubcomp);
                self.completed(now, ack.packet_id, wire, policy, counters)
            }
            Packet::Pingreq => {
                counters.count_received(PacketType::Pingreq);
                // 3.1.1 and 5.0 [MQTT-3.12.4-1]
                let _ = wire.put(&Packet::Pingresp);
                counters.packets_sent.count(PacketType::Pingresp);
                Action::None
            }
            Packet::Subscribe(subscribe) => {
                counters.count_received(PacketType::Subscribe);
                subscriptions::check(&subscribe).map_or_else(Action::Fail, |()| Action::Subscribe(subscribe))
            }
            Packet::Unsubscribe(unsubscribe) => {
                counters.count_received(PacketType::Unsubscribe);
                Action::Unsubscribe(unsubscribe)
            }
            Packet::Disconnect(disconnect) => {
                counters.count_received(PacketType::Disconnect);
                self.check_disconnect(&disconnect)
                    .map_or_else(Action::Fail, |()| Action::Disconnect(disconnect))
            }
            // 3.1.1 and 5.0 [MQTT-3.1.0-2]
            Packet::Connect(_) => {
                counters.count_received(PacketType::Connect);
                violation(ReasonCode::PROTOCOL_ERROR, "a second CONNECT")
            }
            Packet::Auth(auth) => {
                counters.count_received(PacketType::Auth);
                Action::Authenticate(Box::new(auth))
            }
            Packet::Publish(_) => {
                debug_assert!(false, "a PUBLISH is admitted");
                Action::None
            }
            Packet::Connack(_) | Packet::Suback(_) | Packet::Unsuback(_) | Packet::Pingresp => {
                violation(ReasonCode::PROTOCOL_ERROR, "a packet that only a server sends")
            }
        }
    }

    /// Handles a PUBACK.
    #[inline]
    fn acknowledged<'a>(
        &mut self,
        now: Instant,
        ack: &Acknowledgement<'_>,
        wire: &mut Wire,
        policy: &SessionPolicy,
        counters: &mut Counters,
    ) -> Action<'a> {
        // An identifier that is not in flight is a late answer to a resend, or means nothing. Both
        // are harmless.
        if !self.sender.acknowledge(now, ack, &self.client_id, counters) {
            counters.count_received(PacketType::Puback);
            if let Some(awaited) = self.sender.contradicts(AckKind::Puback, ack.packet_id) {
                return contradiction(AckKind::Puback, awaited, ack.packet_id, counters);
            }
        }
        self.sender.pump(now, wire, &policy.send, counters);
        Action::None
    }

    /// Handles a PUBREC.
    #[inline]
    fn received<'a>(
        &mut self,
        now: Instant,
        ack: &Acknowledgement<'_>,
        wire: &mut Wire,
        policy: &SessionPolicy,
        counters: &mut Counters,
    ) -> Action<'a> {
        if !self.sender.receive(now, ack, &self.client_id, wire, counters) {
            if let Some(awaited) = self.sender.contradicts(AckKind::Pubrec, ack.packet_id) {
                return contradiction(AckKind::Pubrec, awaited, ack.packet_id, counters);
            }
            if !ack.reason.is_error() {
                // 3.x has no reason code for this. The PUBREL still lets the client finish.
                let reason = ReasonCode::PACKET_IDENTIFIER_NOT_FOUND;
                wire.put_acknowledgement(AckKind::Pubrel, ack.packet_id, reason);
                counters.packets_sent.count(PacketType::Pubrel);
            }
        }
        if ack.reason.is_error() {
            self.sender.pump(now, wire, &policy.send, counters);
        }
        Action::None
    }

    /// Handles a PUBCOMP.
    #[inline]
    fn completed<'a>(
        &mut self,
        now: Instant,
        id: PacketId,
        wire: &mut Wire,
        policy: &SessionPolicy,
        counters: &mut Counters,
    ) -> Action<'a> {
        if !self.sender.window.get_mut().is_some_and(|window| window.complete(id))
            && let Some(awaited) = self.sender.contradicts(AckKind::Pubcomp, id)
        {
            return contradiction(AckKind::Pubcomp, awaited, id, counters);
        }
        self.sender.pump(now, wire, &policy.send, counters);
        Action::None
    }

    /// Decides about an incoming PUBLISH. The packet is passed by reference because it is large and
    /// frequent.
    #[inline]
    pub fn admit(&mut self, publish: &Publish<'_>, wire: &mut Wire, sent: &mut PacketCounts) -> Admitted {
        if !publish.properties.subscription_ids.is_empty() {
            // 5.0 [MQTT-3.3.4-6]
            return Admitted::Fail(Violation {
                reason: ReasonCode::PROTOCOL_ERROR,
                what: "a Subscription Identifier in a PUBLISH from a client",
            });
        }
        let Some(id) = publish.packet_id else { return Admitted::ToRoute(None) };
        let known = || publish.qos == QoS::ExactlyOnce && self.receiver.is_known(id);
        if wire.version.is_v5() && self.receiver.is_at_maximum() && !known() {
            // 5.0 [MQTT-3.3.4-7]
            return Admitted::Fail(Violation {
                reason: ReasonCode::RECEIVE_MAXIMUM_EXCEEDED,
                what: "more unacknowledged PUBLISHes than Receive Maximum",
            });
        }
        if publish.qos == QoS::ExactlyOnce {
            match self.receiver.admit(id) {
                Admission::New => {}
                Admission::Repeated => {
                    wire.put_acknowledgement(AckKind::Pubrec, id, ReasonCode::SUCCESS);
                    sent.count(PacketType::Pubrec);
                    return Admitted::Known;
                }
                Admission::Pending => {
                    // The gates may have opened while the client had no connection.
                    return match self.answer_due(wire, sent) {
                        Ok(()) => Admitted::Known,
                        Err(violation) => Admitted::Fail(violation),
                    };
                }
            }
        }
        Admitted::ToRoute(Some(self.receiver.next_token()))
    }

    fn release<'a>(
        &mut self,
        ack: Acknowledgement<'_>,
        wire: &mut Wire,
        sent: &mut PacketCounts,
    ) -> Action<'a> {
        let known = self.receiver.release(ack.packet_id);
        let reason = if known { ReasonCode::SUCCESS } else { ReasonCode::PACKET_IDENTIFIER_NOT_FOUND };
        if let Some(lsn) = self.row.as_ref().and_then(|a| a.pending()) {
            // PUBCOMP frees the identifier, so it waits until that is committed.
            wire.outbox.gate_until_commit(lsn);
        }
        wire.put_acknowledgement(AckKind::Pubcomp, ack.packet_id, reason);
        sent.count(PacketType::Pubcomp);
        Action::None
    }

    /// Writes one due acknowledgement, and counts it in `sent`.
    #[inline]
    pub fn answer(due: Due, wire: &mut Wire, sent: &mut PacketCounts) {
        let kind = if due.qos == QoS::AtLeastOnce { AckKind::Puback } else { AckKind::Pubrec };
        sent.count(kind.packet_type());
        if let Some(lsn) = due.waits {
            wire.outbox.gate_until_commit(lsn);
        }
        wire.put_acknowledgement(kind, due.packet_id, due.reason);
        if due.again > 0 {
            Session::answer_again(&due, kind, wire, sent);
        }
    }

    /// Writes an acknowledgement once more for each repetition of its packet.
    #[cold]
    fn answer_again(due: &Due, kind: AckKind, wire: &mut Wire, sent: &mut PacketCounts) {
        for _ in 0..due.again {
            sent.count(kind.packet_type());
            wire.put_acknowledgement(kind, due.packet_id, due.reason);
        }
    }

    /// Gives the outcome of one gate to a PUBLISH that is not acknowledged. Writes every pending
    /// acknowledgement that is due then, and counts it in `sent`. Returns true if the client may
    /// send another PUBLISH.
    ///
    /// # Errors
    /// [`Violation`] if a message was held too long for a 3.x client. 3.x has no reason code in
    /// PUBACK and PUBREC, so the broker can only close the connection.
    pub fn gate_answered(
        &mut self,
        token: AckToken,
        outcome: Outcome,
        wire: &mut Wire,
        sent: &mut PacketCounts,
    ) -> Result<bool, Violation> {
        self.receiver.answer(token, outcome);
        self.answer_due(wire, sent)?;
        Ok(!self.receiver.owes_the_most())
    }

    /// Writes every pending acknowledgement that is due, and counts it in `sent`.
    ///
    /// # Errors
    /// As [`Self::gate_answered`].
    fn answer_due(&mut self, wire: &mut Wire, sent: &mut PacketCounts) -> Result<(), Violation> {
        while let Some(due) = self.receiver.next_due() {
            if due.held_too_long && !wire.version.is_v5() {
                let what = "a receiver's queue had no room within limits.hold_timeout";
                return Err(Violation { reason: ReasonCode::QUOTA_EXCEEDED, what });
            }
            Session::answer(due, wire, sent);
        }
        Ok(())
    }
}

/// Reports an acknowledgement of another kind than the one that its identifier waits for.
// 5.0 [MQTT-4.13.1-1], 3.1.1 [MQTT-4.8.0-1]: such a packet breaks the exchanges of [MQTT-4.3.2-4]
// and [MQTT-4.3.3-8] to [MQTT-4.3.3-11].
#[cold]
fn contradiction<'a>(
    came: AckKind,
    awaited: AckKind,
    packet_id: PacketId,
    counters: &mut Counters,
) -> Action<'a> {
    counters.contradictions += 1;
    let what = match (came, awaited) {
        (AckKind::Pubrec, AckKind::Puback) => "PUBREC for a QoS 1 PUBLISH, which waits for PUBACK",
        (_, AckKind::Puback) => "PUBCOMP for a QoS 1 PUBLISH, which waits for PUBACK",
        (AckKind::Puback, AckKind::Pubrec) => "PUBACK for a QoS 2 PUBLISH, which waits for PUBREC",
        (_, AckKind::Pubrec) => "PUBCOMP for a QoS 2 PUBLISH, which waits for PUBREC",
        _ => "PUBACK for a PUBREL, which waits for PUBCOMP",
    };
    Action::Contradiction { packet_id, violation: Violation { reason: ReasonCode::PROTOCOL_ERROR, what } }
}

impl Recount for Session {
    fn recount(&self) -> Recounted {
        let in_use = size_of::<Session>() + SESSION + self.client_id.len();
        Recounted { in_use, charged: self.charge.bytes() }
    }
}

fn violation<'a>(reason: ReasonCode, what: &'static str) -> Action<'a> {
    Action::Fail(Violation { reason, what })
}
