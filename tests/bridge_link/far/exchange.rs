//! The exchanges of single messages, and what the standard says of the bridge's part in them.

use super::{Connection, Far, Session};
use crate::client::{encoded, number_of};
use crate::oracle::Side;
use crate::plan::{HERE, THERE};
use crate::world::World;
use homing::mqtt::packet::{Acknowledgement, Packet, PacketId, Properties, Publish, QoS, ReasonCode};

impl World {
    /// A message of the bridge.
    pub(super) fn far_has(&mut self, line: usize, publish: &Publish<'_>) {
        let (Some(session), Some(connection)) = (&mut self.far.session, &mut self.far.connection) else {
            return;
        };
        let number = number_of(publish);
        assert!(publish.qos <= self.plan.far_maximum_qos, "message {number} is above Maximum QoS");
        assert!(
            !publish.dup || connection.session_present,
            "message {number} has DUP, and the session is new"
        );
        let size = encoded(&Packet::Publish(publish.clone()), self.far.version).len();
        let most = self.plan.far_packet_size.unwrap_or(u32::MAX);
        assert!(
            size <= usize::try_from(most).expect("32 bits"),
            "message {number} is above Maximum Packet Size"
        );
        let message = self.oracle.message(number);
        assert_eq!(message.from, Side::Here, "message {number} comes back as {}", publish.topic);
        assert_eq!(publish.qos, message.qos, "message {number} has another QoS");
        let name = HERE[message.topic].other;
        let Some(id) = publish.packet_id else {
            return self.oracle.arrives(self.now, Side::There, number, publish.topic, name);
        };
        assert!(connection.open.insert(id), "identifier {id} is in use on this connection");
        let most = usize::from(self.plan.far_receive_maximum);
        assert!(connection.open.len() <= most, "message {number} is beyond Receive Maximum");
        let known = session.received.get(&id).copied();
        if let Some(known) = known.flatten() {
            assert_eq!(known, number, "identifier {id} is in use for another message");
            assert!(publish.dup, "message {number} is sent again without DUP");
        }
        let is_exactly_once = publish.qos == QoS::ExactlyOnce;
        if !is_exactly_once || known.is_none() {
            if self.rng.percent(self.plan.refuses) {
                self.oracle.totals.refused += 1;
                connection.open.remove(&id);
                self.oracle.message(number).is_excepted = true;
                let reason = ReasonCode::QUOTA_EXCEEDED;
                let ack = Acknowledgement { packet_id: id, reason, properties: Properties::EMPTY };
                return self.far_says(line, acknowledgement(is_exactly_once, ack));
            }
            self.oracle.arrives(self.now, Side::There, number, publish.topic, name);
        }
        if is_exactly_once {
            session.received.insert(id, Some(number));
        } else {
            connection.open.remove(&id);
        }
        self.far_says(line, acknowledgement(is_exactly_once, Acknowledgement::success(id)));
    }

    pub(super) fn far_releases(&mut self, line: usize, id: PacketId) {
        let (Some(session), Some(connection)) = (&mut self.far.session, &mut self.far.connection) else {
            return;
        };
        connection.open.remove(&id);
        let is_known = session.received.remove(&id).is_some();
        let is_v5 = self.far.version.is_v5();
        let reason =
            if is_known || !is_v5 { ReasonCode::SUCCESS } else { ReasonCode::PACKET_IDENTIFIER_NOT_FOUND };
        let ack = Acknowledgement { packet_id: id, reason, properties: Properties::EMPTY };
        self.far_says(line, Packet::Pubcomp(ack));
    }

    /// PUBACK or PUBCOMP.
    pub(super) fn far_is_acknowledged(&mut self, ack: &Acknowledgement<'_>, qos: QoS) {
        let id = ack.packet_id;
        let Some((session, connection, at)) = in_flight(&mut self.far, id, "acknowledged") else { return };
        let flight = &session.flight[at];
        assert_eq!(flight.qos, qos, "{id} has an acknowledgement of another QoS");
        assert!(qos != QoS::ExactlyOnce || flight.is_released, "PUBCOMP comes before PUBREL");
        let number = flight.number;
        session.flight.remove(at);
        connection.sent.remove(&id);
        // A repeated PUBREL may find nothing.
        if ack.reason.is_error() && ack.reason != ReasonCode::PACKET_IDENTIFIER_NOT_FOUND {
            assert!(
                ack.reason == ReasonCode::TOPIC_NAME_INVALID || ack.reason == ReasonCode::NOT_AUTHORIZED,
                "{ack:?}"
            );
            assert_eq!(THERE[self.oracle.message(number).topic].other, None, "message {number} is refused");
        }
        if THERE[self.oracle.message(number).topic].other.is_some() {
            self.oracle.acknowledged(number);
        }
        self.far_sends();
    }

    pub(super) fn far_is_received(&mut self, line: usize, ack: &Acknowledgement<'_>) {
        let id = ack.packet_id;
        let is_v5 = self.far.version.is_v5();
        let Some((session, connection, at)) = in_flight(&mut self.far, id, "received") else { return };
        let number = session.flight[at].number;
        assert_eq!(session.flight[at].qos, QoS::ExactlyOnce, "PUBREC for a message of another QoS");
        let is_ruled = THERE[self.oracle.message(number).topic].other.is_some();
        if ack.reason.is_error() {
            assert!(!is_ruled, "message {number} is refused: {ack:?}");
            assert!(is_v5, "3.1.1 knows no refusal");
            session.flight.remove(at);
            connection.sent.remove(&id);
            return self.far_sends();
        }
        session.flight[at].is_released = true;
        if is_ruled {
            self.oracle.acknowledged(number);
        }
        self.far_says(line, Packet::Pubrel(Acknowledgement::success(id)));
    }
}

fn acknowledgement(is_exactly_once: bool, ack: Acknowledgement<'_>) -> Packet<'_> {
    if is_exactly_once { Packet::Pubrec(ack) } else { Packet::Puback(ack) }
}

/// Returns the place of a message in the session; `None` if its acknowledgement may come once more.
fn in_flight<'a>(
    far: &'a mut Far,
    id: PacketId,
    done: &str,
) -> Option<(&'a mut Session, &'a mut Connection, usize)> {
    let (Some(session), Some(connection)) = (&mut far.session, &mut far.connection) else { return None };
    let at = session.flight.iter().position(|flight| flight.id == id && connection.sent.contains(&id));
    assert!(
        at.is_some() || connection.twice.contains(&id),
        "{id} is {done}, and nothing has this identifier"
    );
    at.map(|at| (session, connection, at))
}
