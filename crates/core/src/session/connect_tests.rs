//! What a CONNECT and the operator's bounds come to.

use super::*;
use crate::mqtt::packet::ConnectProperties;
use crate::session::policy::SessionPolicy;
use crate::session::policy::tests::policy;
use ProtocolVersion::{V3_1, V3_1_1, V5};

pub(crate) fn connect(version: ProtocolVersion) -> Connect<'static> {
    Connect {
        version,
        clean_start: true,
        keep_alive: 30,
        properties: ConnectProperties::default(),
        client_id: "c",
        will: None,
        user_name: None,
        password: None,
    }
}

/// Returns the Keep Alive that is granted to this request.
fn keep_alive(version: ProtocolVersion, requested: u16, maximum: u16, allow_never: bool) -> u16 {
    let mut policy = policy();
    (policy.connect.keep_alive_maximum, policy.connect.allow_never) = (maximum, allow_never);
    negotiated(&Connect { keep_alive: requested, ..connect(version) }, &policy).keep_alive_secs
}

#[test]
fn mqtt3_1_3_7_an_empty_client_id_needs_a_clean_session_of_3_1_1() {
    let empty = |version, clean_start| Connect { client_id: "", clean_start, ..connect(version) };
    for (version, clean, accepted) in
        [(V3_1, true, false), (V3_1_1, false, false), (V3_1_1, true, true), (V5, false, true)]
    {
        let reason = check(&empty(version, clean), &policy().connect).map_err(|refusal| refusal.reason);
        let expected = if accepted { Ok(()) } else { Err(ReasonCode::CLIENT_IDENTIFIER_NOT_VALID) };
        assert_eq!(reason, expected, "{version:?} {clean}");
    }
}

// 5.0 and 3.1.1 [MQTT-3.1.3-5]
#[test]
fn a_client_id_beyond_the_bound_is_refused_in_every_version() {
    let long = "c".repeat(101);
    for version in [V3_1, V3_1_1, V5] {
        let of_length = |bytes| Connect { client_id: &long[..bytes], ..connect(version) };
        assert_eq!(check(&of_length(100), &policy().connect), Ok(()));
        let reason = check(&of_length(101), &policy().connect).map_err(|refusal| refusal.reason);
        assert_eq!(reason, Err(ReasonCode::CLIENT_IDENTIFIER_NOT_VALID), "{version:?}");
    }
}

// 5.0 [MQTT-3.2.2-22]
#[test]
fn keep_alive_is_bounded_where_the_client_can_be_told() {
    for version in [V3_1, V3_1_1, V5] {
        assert_eq!(keep_alive(version, 30, 60, true), 30);
        assert_eq!(keep_alive(version, 0, 0, false), 0, "no maximum");
    }
    assert_eq!((keep_alive(V5, 90, 60, true), keep_alive(V5, 0, 60, true)), (60, 60));
    assert_eq!((keep_alive(V5, 0, 60, false), keep_alive(V3_1_1, 0, 60, true)), (60, 0));
}

#[test]
fn a_3_x_client_whose_keep_alive_is_too_long_is_refused() {
    let refused = |version, requested, maximum, allow_never| {
        let bounds = ConnectPolicy { keep_alive_maximum: maximum, allow_never, ..policy().connect };
        let connect = Connect { keep_alive: requested, ..connect(version) };
        check(&connect, &bounds).err().map(|refusal| refusal.reason)
    };
    let too_long = Some(ReasonCode::CLIENT_IDENTIFIER_NOT_VALID);
    for version in [V3_1, V3_1_1] {
        assert_eq!(refused(version, 60, 60, false), None);
        assert_eq!(refused(version, 61, 60, true), too_long);
        assert_eq!((refused(version, 0, 60, true), refused(version, 0, 60, false)), (None, too_long));
        assert_eq!((refused(version, 61, 0, true), refused(version, 0, 0, false)), (None, None));
    }
    assert_eq!((refused(V5, 61, 60, false), refused(V5, 0, 60, false)), (None, None), "CONNACK tells it");
}

#[test]
fn session_expiry_is_requested_in_5_0_and_the_maximum_with_clean_session_0() {
    let granted = |connect: &Connect<'_>| negotiated(connect, &policy()).session_expiry;
    let mut v5 = connect(V5);
    assert_eq!(granted(&v5), 0);
    for (requested, expected) in [(10, 10), (u32::MAX, 3_600)] {
        v5.properties.session_expiry = Some(requested);
        assert_eq!(granted(&v5), expected);
    }
    assert_eq!(granted(&connect(V3_1_1)), 0);
    assert_eq!(granted(&Connect { clean_start: false, ..connect(V3_1_1) }), 3_600);
}

#[test]
fn the_window_is_the_lower_of_receive_maximum_and_the_operators_bound() {
    let mut v5 = connect(V5);
    for (announced, window) in [(None, 20), (Some(3), 3), (Some(500), 20)] {
        v5.properties.receive_maximum = announced;
        assert_eq!(negotiated(&v5, &policy()).limits.window, window);
    }
}

#[test]
fn connack_tells_a_5_0_client_what_differs_from_its_request() {
    let policy = policy();
    let mut v5 = connect(V5);
    (v5.keep_alive, v5.properties.session_expiry) = (90, Some(7_200));
    let connack = negotiated(&v5, &policy).connack(&v5, policy.receive_maximum, Some("homing-1"));
    let expected = ConnackProperties {
        assigned_client_id: Some("homing-1"),
        receive_maximum: Some(100),
        maximum_packet_size: Some(1_000),
        server_keep_alive: Some(60),
        session_expiry: Some(3_600),
        ..ConnackProperties::default()
    };
    assert_eq!(connack.properties, expected);
    let v3 = connect(V3_1_1);
    let connack = negotiated(&v3, &policy).connack(&v3, policy.receive_maximum, Some("homing-1"));
    assert_eq!(connack.properties, ConnackProperties::default());
}

// 5.0 [MQTT-3.1.2-4]
#[test]
fn a_session_begins_afresh_on_request_or_if_it_ends_with_its_connection() {
    let resumes = Connect { clean_start: false, ..connect(V5) };
    assert_eq!(end_of_old(&connect(V5), Outlives::Yes), Ending::TakenOverAfresh);
    assert_eq!(end_of_old(&resumes, Outlives::No), Ending::TakenOverAfresh);
    assert_eq!(end_of_old(&resumes, Outlives::Yes), Ending::TakenOverResumed);
}

/// A connection whose client takes packets of so many bytes.
fn wire(version: ProtocolVersion, maximum_packet_size: u32) -> Wire {
    let mut wire = Wire::new(version, 0);
    let mut connect = connect(version);
    connect.properties.maximum_packet_size = Some(maximum_packet_size);
    wire.set_limits(&negotiated(&connect, &policy()).limits);
    wire
}

// 5.0 [MQTT-3.2.2-20]
#[test]
fn connack_leaves_out_user_properties_that_the_client_cannot_take() {
    let mut properties = ConnackProperties::default();
    properties.user_properties.push(("name", "a long value that does not fit"));
    let connack = Connack { session_present: false, reason: ReasonCode::SUCCESS, properties };
    for (size, fits, len) in [(1_000, true, 44), (10, true, 5), (4, false, 0)] {
        let mut wire = wire(V5, size);
        assert_eq!((wire.put_connack(connack.clone()), wire.outbox.len()), (fits, len));
    }
}

// 5.0 [MQTT-3.2.2-19]
#[test]
fn a_refusal_leaves_out_the_reason_string_that_the_client_cannot_take() {
    let refusal = ConnectRefusal::new(ReasonCode::BAD_AUTHENTICATION_METHOD, "no such method");
    for (version, size, len) in [(V5, 1_000, 22), (V5, 10, 5), (V5, 4, 0), (V3_1_1, 1_000, 0)] {
        let mut wire = wire(version, size);
        wire.put_refusal(&refusal);
        assert_eq!(wire.outbox.len(), len, "{version:?} {size}");
    }
}

/// Settles the values of a CONNECT within this policy.
fn negotiated(connect: &Connect<'_>, policy: &SessionPolicy) -> Negotiated {
    negotiate(connect, policy.connect, policy.send.in_flight)
}
