//! CONNECT: the checks of one packet, the negotiation, and CONNACK.
//!
//! [`check`] refuses a packet that breaks a rule. [`negotiate`] settles the values for the
//! connection and the session. The shard asks in between if there is room, and finds the session.

use crate::mqtt::packet::{
    Connack, ConnackProperties, Connect, ConnectReturnCode, Packet, ProtocolVersion, ReasonCode,
};
use crate::mqtt::will::Will;
use crate::session::Session;
use crate::session::outbound::retry::Outlives;
use crate::session::policy::ConnectPolicy;
use crate::session::will::Ending;
use crate::session::wire::{ClientLimits, Wire};

/// A CONNECT that is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectRefusal {
    /// The reason code for CONNACK. A 3.x client gets the return code with this meaning.
    pub reason: ReasonCode,
    /// The text for the log and the Reason String.
    pub what: &'static str,
    /// False if the text is for the log alone, because a Reason String would help an attacker.
    pub is_told: bool,
}

impl ConnectRefusal {
    /// Returns a refusal whose text is for the log and the Reason String.
    pub const fn new(reason: ReasonCode, what: &'static str) -> ConnectRefusal {
        ConnectRefusal { reason, what, is_told: true }
    }

    /// Returns a refusal whose text is for the log alone.
    pub const fn unexplained(reason: ReasonCode, what: &'static str) -> ConnectRefusal {
        ConnectRefusal { reason, what, is_told: false }
    }
}

/// The values that hold after a CONNECT was negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The protocol version of the connection.
    pub version: ProtocolVersion,
    /// The Keep Alive in seconds; 0 is off.
    pub keep_alive_secs: u16,
    /// The Session Expiry Interval in seconds.
    pub session_expiry: u32,
    /// The limits of packets to the client.
    pub limits: ClientLimits,
    /// The operator's bounds, which CONNACK tells the client.
    pub bounds: ConnectPolicy,
}

/// Checks a CONNECT by itself and by the operator's bounds.
///
/// # Errors
/// [`ConnectRefusal`] for a client identifier that is too long, or empty against the version's
/// rules; for a Keep Alive above the limit, because CONNACK of 3.x has no Server Keep Alive; and
/// for a will that cannot be retained.
pub fn check(connect: &Connect<'_>, bounds: &ConnectPolicy) -> Result<(), ConnectRefusal> {
    let refuse = |reason, what| Err(ConnectRefusal::new(reason, what));
    // 5.0 [MQTT-3.1.3-5], [MQTT-3.1.3-6]; 3.1.1 [MQTT-3.1.3-5]: 23 bytes are always allowed.
    if connect.client_id.len() > bounds.client_id {
        return refuse(
            ReasonCode::CLIENT_IDENTIFIER_NOT_VALID,
            "the client id is longer than limits.client_id allows",
        );
    }
    if connect.client_id.is_empty() {
        // 3.1.1 [MQTT-3.1.3-7], [MQTT-3.1.3-8]; 3.1 has no empty client ids at all.
        let clean = connect.clean_start && connect.version == ProtocolVersion::V3_1_1;
        if !clean && !connect.version.is_v5() {
            return refuse(
                ReasonCode::CLIENT_IDENTIFIER_NOT_VALID,
                "an empty client id needs Clean Session 1 and MQTT 3.1.1 or later",
            );
        }
    }
    // CONNACK of 3.x has no Server Keep Alive. mosquitto 2.1 refuses with the same code.
    let is_longer = match connect.keep_alive {
        0 => !bounds.allow_never,
        seconds => seconds > bounds.keep_alive_maximum,
    };
    if bounds.keep_alive_maximum > 0 && is_longer && !connect.version.is_v5() {
        return refuse(
            ReasonCode::CLIENT_IDENTIFIER_NOT_VALID,
            "the Keep Alive is longer than keep_alive.maximum, which 3.x clients cannot be told",
        );
    }
    // 5.0 [MQTT-3.2.2-13]; 3.x has no such code, and its will is published without being retained.
    if !bounds.retain_available
        && connect.version.is_v5()
        && connect.will.as_ref().is_some_and(|will| will.retain)
    {
        return refuse(
            ReasonCode::RETAIN_NOT_SUPPORTED,
            "the will has Retain 1, and limits.retained_messages is off",
        );
    }
    Ok(())
}

/// Settles the values of a CONNECT within the operator's bounds. `in_flight` is the maximum number
/// of unfinished deliveries.
pub fn negotiate(connect: &Connect<'_>, bounds: ConnectPolicy, in_flight: u16) -> Negotiated {
    let properties = &connect.properties;
    Negotiated {
        version: connect.version,
        keep_alive_secs: keep_alive_secs(connect, &bounds),
        session_expiry: session_expiry(connect, bounds.session_expiry),
        limits: ClientLimits {
            version: connect.version,
            window: properties.receive_maximum.unwrap_or(u16::MAX).min(in_flight),
            maximum_packet_size: properties.maximum_packet_size,
            alias_maximum: properties.topic_alias_maximum.unwrap_or(0),
            problem_information: properties.request_problem_information.unwrap_or(true),
        },
        bounds,
    }
}

// 5.0 [MQTT-3.1.2-21], [MQTT-3.2.2-22]
fn keep_alive_secs(connect: &Connect<'_>, policy: &ConnectPolicy) -> u16 {
    let maximum = policy.keep_alive_maximum;
    match connect.keep_alive {
        requested if maximum == 0 => requested,
        0 if connect.version.is_v5() => maximum,
        requested if connect.version.is_v5() => requested.min(maximum),
        // [`check`] refuses a 3.x client with a longer one.
        requested => requested,
    }
}

/// A 3.x session with Clean Session 0 expires like any other, after the operator's maximum.
fn session_expiry(connect: &Connect<'_>, maximum: u32) -> u32 {
    if connect.version.is_v5() {
        return connect.properties.session_expiry.unwrap_or(0).min(maximum);
    }
    if connect.clean_start { 0 } else { maximum }
}

impl Negotiated {
    /// Begins a connection of the session: the values of its CONNECT hold from now on.
    pub fn begin_connection(&self, session: &mut Session, connect: &Connect<'_>, wire: &mut Wire) {
        session.expiry = self.session_expiry;
        session.wants_to_outlive = connect.properties.session_expiry.is_some_and(|asked| asked > 0);
        session.version = self.version;
        session.will = connect.will.as_ref().map(|will| Will::of(will).shared());
        session.begin_ack_wait(wire);
    }

    /// Returns the CONNACK of an accepted CONNECT. A 5.0 client is told each value that differs
    /// from its request. `receive_maximum` is the broker's, and `assigned` is the client identifier
    /// that the broker chose, if it chose one. Session Present is 0: the caller sets it for a
    /// resumed session.
    pub fn connack<'a>(
        &self,
        connect: &Connect<'_>,
        receive_maximum: u16,
        assigned: Option<&'a str>,
    ) -> Connack<'a> {
        let mut properties = ConnackProperties::default();
        if self.version.is_v5() {
            let ConnectPolicy { packet_size, topic_alias_maximum, retain_available, .. } = self.bounds;
            // 5.0 [MQTT-3.2.2-16]
            properties.assigned_client_id = assigned;
            properties.receive_maximum = (receive_maximum < u16::MAX).then_some(receive_maximum);
            properties.maximum_packet_size = Some(packet_size);
            properties.retain_available = (!retain_available).then_some(false);
            properties.topic_alias_maximum = (topic_alias_maximum > 0).then_some(topic_alias_maximum);
            let granted = self.keep_alive_secs;
            properties.server_keep_alive = (granted != connect.keep_alive).then_some(granted);
            let requested = connect.properties.session_expiry.unwrap_or(0);
            properties.session_expiry = (self.session_expiry != requested).then_some(self.session_expiry);
        }
        Connack { session_present: false, reason: ReasonCode::SUCCESS, properties }
    }
}

/// Returns how a CONNECT of the same client ends the present connection of a session. The session
/// begins afresh if the client requests it, or if `old` does not outlive its connection, which ends
/// first.
// 5.0 [MQTT-3.1.4-3], [MQTT-3.1.2-4], [MQTT-3.1.2-5]; 3.1.1 [MQTT-3.1.4-2], [MQTT-3.1.2-4],
// [MQTT-3.1.2-6]
pub fn end_of_old(connect: &Connect<'_>, old: Outlives) -> Ending {
    let afresh = connect.clean_start || old == Outlives::No;
    if afresh { Ending::TakenOverAfresh } else { Ending::TakenOverResumed }
}

impl Wire {
    /// Checks that the client can take this CONNACK, which has no User Properties yet.
    ///
    /// # Errors
    /// The refusal, if it cannot. The bare CONNACK of the refusal takes 5 bytes, and may fit.
    // 5.0 [MQTT-3.1.2-24]
    pub fn check_connack(&mut self, connack: Connack<'_>) -> Result<(), ConnectRefusal> {
        let what = "the client's Maximum Packet Size is too small for a CONNACK";
        let fits = self.takes(&Packet::Connack(Box::new(connack)));
        fits.then_some(()).ok_or(ConnectRefusal::new(ReasonCode::PACKET_TOO_LARGE, what))
    }

    /// Writes the CONNACK of an accepted CONNECT, without its User Properties if the client's
    /// Maximum Packet Size does not allow them. Returns false if the client cannot take a CONNACK
    /// at all; then nothing is written. [`Self::check_connack`] rules this out.
    // 5.0 [MQTT-3.2.2-20]
    pub fn put_connack(&mut self, connack: Connack<'_>) -> bool {
        let mut packet = Packet::Connack(Box::new(connack));
        if self.put(&packet).is_ok() {
            return true;
        }
        match &mut packet {
            Packet::Connack(connack) if !connack.properties.user_properties.is_empty() => {
                connack.properties.user_properties.clear();
            }
            _ => return false,
        }
        self.put(&packet).is_ok()
    }

    /// Writes the CONNACK of a refused CONNECT. Nothing is written for a reason that 3.x has no
    /// return code for, and for a 5.0 client that cannot take even the bare packet. Returns true if
    /// a CONNACK was written.
    // 3.1.1 [MQTT-3.2.2-4], [MQTT-3.2.2-5]; 5.0 [MQTT-3.1.4-2], [MQTT-3.2.2-6], [MQTT-3.2.2-7]
    pub fn put_refusal(&mut self, refusal: &ConnectRefusal) -> bool {
        let ConnectRefusal { reason, what, is_told } = *refusal;
        if !self.version.is_v5() && ConnectReturnCode::from_reason(reason).is_none() {
            return false;
        }
        let connack = |reason_string| {
            let properties = ConnackProperties { reason_string, ..Default::default() };
            Packet::Connack(Box::new(Connack { session_present: false, reason, properties }))
        };
        // 5.0 [MQTT-3.2.2-19]
        let text = (self.version.is_v5() && is_told).then_some(what);
        self.put(&connack(text)).or_else(|_| self.put(&connack(None))).is_ok()
    }
}

#[cfg(test)]
#[path = "connect_tests.rs"]
pub(super) mod tests;
