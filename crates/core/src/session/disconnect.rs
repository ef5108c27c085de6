//! DISCONNECT, from the client and to the client, and the end of a connection.

use crate::mqtt::codec::DecodeError;
use crate::mqtt::packet::{Disconnect, Packet, ReasonCode};
use crate::session::Session;
use crate::session::policy::ConnectPolicy;
use crate::session::violation::Violation;
use crate::session::will::{Ending, WillTime, will_time};
use crate::session::wire::Wire;

impl Session {
    /// Checks a DISCONNECT from the client.
    ///
    /// # Errors
    /// [`Violation`] if the packet raises a Session Expiry Interval of 0.
    pub(super) fn check_disconnect(&self, disconnect: &Disconnect<'_>) -> Result<(), Violation> {
        if let Some(expiry) = disconnect.session_expiry
            && expiry > 0
            && !self.wants_to_outlive
        {
            // 5.0, section 3.14.2.2.2: an interval of 0 in CONNECT cannot be raised. If CONNECT
            // asked for more and the operator grants 0, the client breaks no rule.
            let what = "DISCONNECT raises a Session Expiry Interval of 0";
            return Err(Violation { reason: ReasonCode::PROTOCOL_ERROR, what });
        }
        Ok(())
    }

    /// Takes a checked DISCONNECT: its Session Expiry Interval holds, within the operator's
    /// maximum. Returns how the connection ends. Only the reason 0x00 discards the Will Message.
    // 3.1.1 and 5.0 [MQTT-3.14.4-3]
    pub fn client_disconnects(&mut self, disconnect: &Disconnect<'_>, policy: &ConnectPolicy) -> Ending {
        if let Some(expiry) = disconnect.session_expiry {
            self.expiry = expiry.min(policy.session_expiry);
        }
        let normal = disconnect.reason == ReasonCode::NORMAL_DISCONNECTION;
        if normal { Ending::Normal } else { Ending::Abnormal }
    }

    /// Ends the connection of the session. Returns when the Will Message is published. A will
    /// that is never published is discarded.
    // 3.1.1 and 5.0 [MQTT-3.1.2-10]
    pub fn end_connection(&mut self, ending: Ending) -> WillTime {
        self.receiver.end_connection();
        let when = match &self.will {
            Some(will) => will_time(will.delay, self.expiry_interval(), ending),
            None => WillTime::Never,
        };
        if when == WillTime::Never {
            self.will = None;
        }
        when
    }
}

impl Wire {
    /// Writes DISCONNECT, without the Reason String if the client's Maximum Packet Size does not
    /// allow it. Only for a client that has its CONNACK. Writes nothing in 3.x, where only a client
    /// sends DISCONNECT. Returns true if a DISCONNECT was written.
    // 5.0 [MQTT-3.14.2-3]
    pub fn put_disconnect(&mut self, reason: ReasonCode, text: Option<&str>) -> bool {
        if !self.version.is_v5() {
            return false;
        }
        let mut disconnect = Disconnect::new(reason);
        disconnect.reason_string = text;
        let whole = self.put(&Packet::Disconnect(disconnect));
        whole.or_else(|_| self.put(&Packet::Disconnect(Disconnect::new(reason)))).is_ok()
    }
}

/// Returns the reason code for DISCONNECT after bytes that cannot be decoded. A second CONNECT is a
/// Protocol Error, whatever version it names: DISCONNECT has no code for a version.
// 5.0 [MQTT-3.1.0-2], [MQTT-3.14.2-1]
pub fn undecodable(error: &DecodeError) -> ReasonCode {
    match error.reason_code() {
        ReasonCode::UNSUPPORTED_PROTOCOL_VERSION => ReasonCode::PROTOCOL_ERROR,
        reason => reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::packet::{ProtocolVersion, QoS, WillMessage};
    use crate::mqtt::will::Will;
    use crate::session::policy::tests::policy;
    use crate::session::session_redelivery::SessionRedelivery;
    use std::borrow::Cow;
    use std::sync::Arc;

    /// Returns a session that lives so many seconds longer than its connection, with a will.
    fn session(expiry: u32) -> Session {
        let redelivery = SessionRedelivery::new(&policy().send.redelivery, Vec::new());
        let mut session = Session::new("c", expiry, Arc::new(redelivery));
        let will = WillMessage {
            qos: QoS::AtMostOnce,
            retain: false,
            topic: "will",
            payload: b"",
            delay: 0,
            message_expiry: None,
            forwarded: Cow::Borrowed(&[]),
        };
        session.will = Some(Will::of(&will).shared());
        session
    }

    fn disconnect(reason: ReasonCode, session_expiry: Option<u32>) -> Disconnect<'static> {
        let mut disconnect = Disconnect::new(reason);
        disconnect.session_expiry = session_expiry;
        disconnect
    }

    #[test]
    fn a_session_expiry_interval_of_0_in_connect_cannot_be_raised_by_disconnect() {
        let normal = ReasonCode::NORMAL_DISCONNECTION;
        for (wants_to_outlive, requested, allowed) in
            [(false, None, true), (false, Some(0), true), (false, Some(1), false), (true, Some(2), true)]
        {
            // The operator may grant 0 in both cases.
            let session = Session { wants_to_outlive, ..session(0) };
            let checked = session.check_disconnect(&disconnect(normal, requested));
            assert_eq!(checked.is_ok(), allowed, "{wants_to_outlive} {requested:?}");
        }
    }

    #[test]
    fn disconnect_sets_the_session_expiry_interval_within_the_maximum() {
        let policy = policy().connect;
        for (requested, expiry) in [(None, 10), (Some(0), 0), (Some(u32::MAX), policy.session_expiry)] {
            let mut session = session(10);
            let packet = disconnect(ReasonCode::NORMAL_DISCONNECTION, requested);
            session.client_disconnects(&packet, &policy);
            assert_eq!(session.expiry, expiry);
        }
    }

    // 5.0 [MQTT-3.14.4-3]
    #[test]
    fn only_a_normal_disconnection_discards_the_will() {
        for (reason, when) in [
            (ReasonCode::NORMAL_DISCONNECTION, WillTime::Never),
            (ReasonCode::DISCONNECT_WITH_WILL_MESSAGE, WillTime::Now),
        ] {
            let mut session = session(10);
            let ending = session.client_disconnects(&disconnect(reason, None), &policy().connect);
            assert_eq!(session.end_connection(ending), when);
            assert_eq!(session.will.is_none(), when == WillTime::Never);
        }
    }

    // 5.0 [MQTT-3.14.2-3]
    #[test]
    fn disconnect_leaves_out_a_reason_string_that_the_client_cannot_take() {
        for (maximum_packet_size, len) in [(100, 13), (10, 3), (2, 0)] {
            let mut wire = Wire::new(ProtocolVersion::V5, 0);
            let limits = crate::session::wire::ClientLimits {
                version: ProtocolVersion::V5,
                window: 1,
                maximum_packet_size: Some(maximum_packet_size),
                alias_maximum: 0,
                problem_information: true,
            };
            wire.set_limits(&limits);
            wire.put_disconnect(ReasonCode::PROTOCOL_ERROR, Some("a text"));
            assert_eq!(wire.outbox.len(), len, "{maximum_packet_size}");
        }
    }
}
