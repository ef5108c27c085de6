//! The session state machine, split by concern of the standard.
//!
//! [`Session::handle`] takes one packet and the time, writes what it can answer by itself to the wire it is given, and
//! says in one [`Action`] what it cannot: a message to route, a subscription to enter. It never sees another session.
//!
//! | file | concern |
//! |---|---|
//! | `receiver` | incoming QoS 1 and 2, acknowledgements that wait |
//! | `sender` | outgoing: queue, window, retransmission |
//! | `inflight` | the window: Packet Identifiers, PUBLISH and PUBREL in their orders |
//! | `queue` | messages that wait, bounds and policy |
//! | `retry` | intervals, backoff, jitter, ack timeout |
//! | `terms` | which settings hold for one message |
//! | `rules` | the operator's rules by client, user and topic, and what they come to |
//! | `stall` | which acknowledgement is overdue, and who holds the packet |
//! | `patience` | how long one session waits: the client's wish, and what its cuts taught |
//! | `keep_alive` | the read-idle deadline |
//! | `topic_alias` | aliases both ways |
//! | `subscription` | own filters, Subscription Identifiers |
//! | `will` | when the Will Message goes out |
//! | `wire` | the outbox and what the client can take |
//! | `seldom` | parts that most sessions never need |
//! | `loss` | why a message was given up |

pub mod inflight;
pub mod keep_alive;
pub mod loss;
pub mod patience;
pub mod queue;
pub mod receiver;
pub mod retry;
pub mod rules;
pub mod seldom;
pub mod sender;
pub mod stall;
pub mod subscription;
pub mod terms;
pub mod topic_alias;
pub mod will;
pub mod wire;

use crate::journal::ledger::Account;
use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::codec::AckKind;
use crate::mqtt::packet::{
    Acknowledgement, Disconnect, Packet, PacketId, ProtocolVersion, Publish, QoS, ReasonCode, Subscribe,
    Unsubscribe,
};
use crate::time::Instant;
use patience::Patience;
use queue::QueueLimits;
use receiver::{Admission, Due, Receiver};
use sender::{SendPolicy, Sender, Tally};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use subscription::Subscriptions;
use terms::SessionTerms;
use will::Will;
use wire::Wire;

/// Session Expiry Interval that stands for "never".
const NEVER_EXPIRES: u32 = u32::MAX;

/// What the operator settled for all sessions.
#[derive(Clone, Debug)]
pub struct SessionPolicy {
    pub send: SendPolicy,
    /// Unanswered QoS 1 and 2 PUBLISHes from one client at most.
    pub receive_maximum: u16,
}

/// The Session State of one client, and what belongs to its present connection only as far as it is protocol.
#[derive(Debug)]
pub struct Session {
    pub client_id: Box<str>,
    /// Session Expiry Interval, seconds: 0 ends with the connection, 0xFFFF_FFFF never.
    pub expiry: u32,
    /// Of its last connection.
    pub version: ProtocolVersion,
    pub sender: Sender,
    pub receiver: Receiver,
    pub subscriptions: Subscriptions,
    pub will: Option<Arc<Will>>,
    patience: Option<Box<Patience>>,
    /// Of a session that the store has.
    account: Option<Rc<Account>>,
    /// What the session takes by itself, empty.
    charge: Charge,
}

/// Bytes of a session beside its own struct and client id: its slot, its place in the table of clients, its account, and what
/// the allocator rounds up.
const SESSION: usize = 256;

/// What the session asks of those around it.
#[derive(Debug, PartialEq)]
pub enum Action<'a> {
    /// Nothing: what there was to answer is on the wire.
    None,
    /// Route this message; then tell [`Receiver`] what became of it.
    Publish(Publish<'a>),
    Subscribe(Subscribe<'a>),
    Unsubscribe(Unsubscribe<'a>),
    /// The client leaves.
    Disconnect(Disconnect<'a>),
    /// The client broke a rule: the connection ends, in 5.0 with this reason.
    Fail(Violation),
    /// The client answered what is in flight with an acknowledgement of another kind: the connection ends, and what is in
    /// flight is sent again when the client returns.
    Contradiction {
        packet_id: PacketId,
        violation: Violation,
    },
}

/// A rule that a client broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    pub reason: ReasonCode,
    /// For the log and the Reason String.
    pub what: &'static str,
}

impl Session {
    pub fn new(client_id: &str, expiry: u32, terms: Arc<SessionTerms>) -> Session {
        Session {
            client_id: client_id.into(),
            expiry,
            version: ProtocolVersion::V3_1_1,
            sender: Sender::new(terms),
            receiver: Receiver::default(),
            subscriptions: Subscriptions::default(),
            will: None,
            patience: None,
            account: None,
            charge: Charge::new(size_of::<Session>() + SESSION + client_id.len()),
        }
    }

    /// Its account in the store, if it is there.
    pub fn account(&self) -> Option<&Rc<Account>> {
        self.account.as_ref()
    }

    /// The bounds of its queue: what is in the store may be longer.
    pub fn queue_limits<'a>(&self, policy: &'a SendPolicy) -> &'a QueueLimits {
        if self.account.is_some() { &policy.stored_queue } else { &policy.queue }
    }

    /// It is in the store from here on.
    pub fn keep_account(&mut self, account: Account) {
        let account = Rc::new(account);
        self.receiver.keep_account(Rc::clone(&account));
        self.account = Some(account);
    }

    /// Whether it ends with its connection.
    pub fn ends_with_connection(&self) -> bool {
        self.expiry == 0
    }

    /// How long it outlives its connection; [`Duration::MAX`] for ever.
    pub fn expiry_interval(&self) -> Duration {
        if self.expiry == NEVER_EXPIRES { Duration::MAX } else { Duration::from_secs(self.expiry.into()) }
    }

    /// Takes one packet of an established connection.
    pub fn handle<'a>(
        &mut self,
        now: Instant,
        packet: Packet<'a>,
        wire: &mut Wire,
        policy: &SessionPolicy,
        tally: &mut Tally,
    ) -> Action<'a> {
        match packet {
            Packet::Publish(publish) => self.publish(publish, wire, policy),
            Packet::Puback(ack) => {
                // An identifier that is not in flight is a late answer to a resend, or nothing at all: both are harmless.
                if !self.sender.acknowledge(ack.packet_id, ack.reason, &mut tally.losses)
                    && let Some(awaited) = self.sender.contradicts(AckKind::Puback, ack.packet_id)
                {
                    return contradiction(AckKind::Puback, awaited, ack.packet_id, tally);
                }
                self.sender.pump(now, wire, &policy.send, tally);
                Action::None
            }
            Packet::Pubrec(ack) => {
                let losses = &mut tally.losses;
                if !self.sender.receive(now, ack.packet_id, ack.reason, wire, losses) {
                    if let Some(awaited) = self.sender.contradicts(AckKind::Pubrec, ack.packet_id) {
                        return contradiction(AckKind::Pubrec, awaited, ack.packet_id, tally);
                    }
                    if !ack.reason.is_error() {
                        // 3.x has no code for it; PUBREL lets the client finish all the same.
                        let reason = ReasonCode::PACKET_IDENTIFIER_NOT_FOUND;
                        wire.put_acknowledgement(AckKind::Pubrel, ack.packet_id, reason);
                    }
                }
                if ack.reason.is_error() {
                    self.sender.pump(now, wire, &policy.send, tally);
                }
                Action::None
            }
            Packet::Pubrel(ack) => self.release(ack, wire),
            Packet::Pubcomp(ack) => {
                if !self.sender.complete(ack.packet_id)
                    && let Some(awaited) = self.sender.contradicts(AckKind::Pubcomp, ack.packet_id)
                {
                    return contradiction(AckKind::Pubcomp, awaited, ack.packet_id, tally);
                }
                self.sender.pump(now, wire, &policy.send, tally);
                Action::None
            }
            Packet::Pingreq => {
                // 3.1.1 and 5.0 [MQTT-3.12.4-1]
                let _ = wire.put(&Packet::Pingresp);
                Action::None
            }
            Packet::Subscribe(subscribe) => Action::Subscribe(subscribe),
            Packet::Unsubscribe(unsubscribe) => Action::Unsubscribe(unsubscribe),
            Packet::Disconnect(disconnect) => self.disconnect(disconnect),
            // 3.1.1 and 5.0 [MQTT-3.1.0-2]
            Packet::Connect(_) => violation(ReasonCode::PROTOCOL_ERROR, "a second CONNECT"),
            // 5.0 [MQTT-4.12.0-7]: no enhanced authentication is offered, so no AUTH is in place.
            Packet::Auth(_) => violation(ReasonCode::PROTOCOL_ERROR, "AUTH without an authentication method"),
            Packet::Connack(_) | Packet::Suback(_) | Packet::Unsuback(_) | Packet::Pingresp => {
                violation(ReasonCode::PROTOCOL_ERROR, "a packet that only a server sends")
            }
        }
    }

    fn publish<'a>(&mut self, publish: Publish<'a>, wire: &mut Wire, policy: &SessionPolicy) -> Action<'a> {
        if !publish.properties.subscription_ids.is_empty() {
            // 5.0 [MQTT-3.3.4-6]
            return violation(
                ReasonCode::PROTOCOL_ERROR,
                "a Subscription Identifier in a PUBLISH from a client",
            );
        }
        let Some(id) = publish.packet_id else { return Action::Publish(publish) };
        let known = publish.qos == QoS::ExactlyOnce && self.receiver.is_known(id);
        if wire.version.is_v5() && !known && self.receiver.unfinished() >= usize::from(policy.receive_maximum)
        {
            // 5.0 [MQTT-3.3.4-7]
            return violation(
                ReasonCode::RECEIVE_MAXIMUM_EXCEEDED,
                "more unacknowledged PUBLISHes than Receive Maximum",
            );
        }
        if publish.qos == QoS::ExactlyOnce {
            match self.receiver.admit(id) {
                Admission::New => {}
                Admission::Repeated => {
                    wire.put_acknowledgement(AckKind::Pubrec, id, ReasonCode::SUCCESS);
                    return Action::None;
                }
                Admission::Pending => {
                    // Its gates may have answered while there was nobody to tell.
                    return match self.answer_due(wire) {
                        Ok(()) => Action::None,
                        Err(violation) => Action::Fail(violation),
                    };
                }
            }
        }
        Action::Publish(publish)
    }

    fn release<'a>(&mut self, ack: Acknowledgement<'_>, wire: &mut Wire) -> Action<'a> {
        let known = self.receiver.release(ack.packet_id);
        let reason = if known { ReasonCode::SUCCESS } else { ReasonCode::PACKET_IDENTIFIER_NOT_FOUND };
        if let Some(lsn) = self.account.as_ref().and_then(|a| a.pending()) {
            // That the identifier is free is recorded first.
            wire.outbox.fence(lsn);
        }
        wire.put_acknowledgement(AckKind::Pubcomp, ack.packet_id, reason);
        Action::None
    }

    fn disconnect<'a>(&mut self, disconnect: Disconnect<'a>) -> Action<'a> {
        if let Some(expiry) = disconnect.session_expiry
            && expiry > 0
            && self.expiry == 0
        {
            // 5.0, section 3.14.2.2.2: it cannot be raised from 0.
            return violation(ReasonCode::PROTOCOL_ERROR, "DISCONNECT raises a Session Expiry Interval of 0");
        }
        Action::Disconnect(disconnect)
    }

    /// Writes an acknowledgement that is due.
    pub fn answer(due: Due, wire: &mut Wire) {
        let kind = if due.qos == QoS::AtLeastOnce { AckKind::Puback } else { AckKind::Pubrec };
        if let Some(lsn) = due.waits {
            wire.outbox.fence(lsn);
        }
        for _ in 0..=due.again {
            wire.put_acknowledgement(kind, due.packet_id, due.reason);
        }
    }

    /// Writes every waiting acknowledgement that is due.
    ///
    /// # Errors
    /// A 3.x client has waited in vain: there is no way to tell it but to close.
    pub fn answer_due(&mut self, wire: &mut Wire) -> Result<(), Violation> {
        while let Some(due) = self.receiver.next_due() {
            if due.held_too_long && !wire.version.is_v5() {
                let what = "a receiver's queue had no room within limits.hold_timeout";
                return Err(Violation { reason: ReasonCode::QUOTA_EXCEEDED, what });
            }
            Session::answer(due, wire);
        }
        Ok(())
    }
}

/// An acknowledgement of another kind than the one that is awaited for its identifier.
// 5.0 [MQTT-4.13.1-1], 3.1.1 [MQTT-4.8.0-1]: it breaks the exchanges of [MQTT-4.3.2-4] and [MQTT-4.3.3-8] to [MQTT-4.3.3-11].
#[cold]
fn contradiction<'a>(came: AckKind, awaited: AckKind, packet_id: PacketId, tally: &mut Tally) -> Action<'a> {
    tally.contradictions += 1;
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
        let held = size_of::<Session>() + SESSION + self.client_id.len();
        Recounted { held, charged: self.charge.bytes() }
    }
}

fn violation<'a>(reason: ReasonCode, what: &'static str) -> Action<'a> {
    Action::Fail(Violation { reason, what })
}
