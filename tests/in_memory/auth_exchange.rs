//! AUTH packets: the exchange between CONNECT and CONNACK, and re-authentication.

use crate::client::{connect, encoded, publication};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::access::identity::{Identity, IdentitySource};
use homing::login::authentication::{AuthDecision, AuthExchange, Challenge, ExchangeStep};
use homing::mqtt::packet::{
    Auth, Connect, ConnectProperties, Disconnect, Packet, ProtocolVersion, ReasonCode,
};
use homing::session::authentication::{Anonymous, AuthMethod, AuthPolicy};
use std::sync::Arc;
use std::time::Duration;

const S: fn(u64) -> Duration = Duration::from_secs;
const V5: ProtocolVersion = ProtocolVersion::V5;
const METHOD: &str = "SCRAM-SHA-256";

/// AUTH 0x18 with the method and the data `why`.
const CHALLENGE: &[u8] = b"\xF0\x18\x18\x16\x15\0\x0DSCRAM-SHA-256\x16\0\x03why";

/// An exchange that asks again after `again`, and knows this user by `right`.
#[derive(Debug)]
struct Scripted(&'static str);

impl AuthExchange for Scripted {
    fn user(&self) -> &str {
        self.0
    }

    fn answer(&self, data: &[u8]) -> ExchangeStep {
        let decision = match data {
            b"again" => return ExchangeStep::Challenge(challenge_of(self.0)),
            b"right" => AuthDecision::Allow(Arc::new(Identity::new(self.0, IdentitySource::Password)).into()),
            _ => AuthDecision::Deny("wrong password"),
        };
        ExchangeStep::Decided { decision, data: b"welcome".as_slice().into() }
    }
}

fn challenge_of(user: &'static str) -> Challenge {
    Challenge { data: b"why".as_slice().into(), exchange: Arc::new(Scripted(user)) }
}

fn challenged_as(user: &'static str) -> AuthDecision {
    AuthDecision::Challenge(challenge_of(user))
}

fn driver() -> MemoryDriver {
    let mut settings = driver::settings();
    let methods = vec![AuthMethod::Scram, AuthMethod::Password];
    settings.auth = AuthPolicy { anonymous: Anonymous::Loopback, methods };
    (settings.connect_timeout, settings.auth_timeout) = (S(10), S(5));
    MemoryDriver::new(&settings, 1)
}

fn first_packet(name: &str) -> Vec<u8> {
    let properties = ConnectProperties {
        authentication_method: Some(METHOD),
        authentication_data: Some(b"first"),
        ..ConnectProperties::default()
    };
    encoded(&Packet::Connect(Box::new(Connect { version: V5, properties, ..connect(name) })), V5)
}

fn auth(reason: ReasonCode, method: &str, data: &[u8]) -> Vec<u8> {
    let (method, data) = (Some(method), Some(data));
    encoded(
        &Packet::Auth(Auth { reason, method, data, reason_string: None, user_properties: Vec::new() }),
        V5,
    )
}

fn answer(data: &[u8]) -> Vec<u8> {
    auth(ReasonCode::CONTINUE_AUTHENTICATION, METHOD, data)
}

/// A client that has been challenged as Ann.
fn challenged(driver: &mut MemoryDriver) -> LinkId {
    let link = driver.open();
    driver.send(link, &first_packet("c"));
    driver.decide(challenged_as("ann"));
    assert_eq!(driver.links[link].received, CHALLENGE);
    driver.links[link].received.clear();
    link
}

/// A client that has proven to be Ann.
fn proven(driver: &mut MemoryDriver) -> LinkId {
    let link = challenged(driver);
    driver.send(link, &answer(b"right"));
    driver.links[link].received.clear();
    link
}

/// Takes the bytes that the client has received.
fn taken(driver: &mut MemoryDriver, link: LinkId) -> Vec<u8> {
    std::mem::take(&mut driver.links[link].received)
}

fn ends_with(bytes: &[u8], end: &[u8]) {
    assert!(bytes.ends_with(end), "{bytes:x?}");
}

// 5.0 [MQTT-4.12.0-2], [MQTT-4.12.0-5]
#[test]
fn a_challenge_comes_before_connack_and_both_name_the_method() {
    let mut driver = driver();
    let link = driver.open();
    driver.send(link, &first_packet("c"));
    let (_, request) = &driver.auth_requests[0];
    let start = request.exchange.as_ref().expect("an exchange");
    assert_eq!((start.method.name(), &*start.data), (METHOD, &b"first"[..]));
    driver.decide(challenged_as("ann"));
    assert_eq!(taken(&mut driver, link), CHALLENGE);
    driver.send(link, &answer(b"again"));
    assert_eq!(taken(&mut driver, link), CHALLENGE);
    assert_eq!(driver.shards[0].snapshot().sessions, 0);
    let publish = encoded(&Packet::Publish(publication("t", b"x")), V5);
    driver.send(link, &[answer(b"right"), publish].concat());
    let connack = taken(&mut driver, link);
    assert_eq!((connack[0], connack[3]), (0x20, 0));
    ends_with(&connack, b"\x15\0\x0DSCRAM-SHA-256\x16\0\x07welcome");
    assert!(driver.is_open(link));
    driver.shards[0].recount().expect("the memory is counted");
}

#[test]
fn an_answer_may_come_byte_by_byte() {
    let mut driver = driver();
    let link = challenged(&mut driver);
    for byte in answer(b"right") {
        driver.send(link, &[byte]);
        driver.shards[0].recount().expect("the memory is counted");
    }
    assert_eq!(taken(&mut driver, link)[0], 0x20);
    assert_eq!(driver.shards[0].snapshot().partial_bytes, 0);
}

// 5.0 [MQTT-3.1.2-30], [MQTT-4.12.0-3], [MQTT-4.12.0-5]
#[test]
fn only_an_answer_or_disconnect_may_follow_a_challenge() {
    let publish = encoded(&Packet::Publish(publication("t", b"x")), V5);
    let cases = [
        (publish, 0x82),
        (encoded(&Packet::Pingreq, V5), 0x82),
        (first_packet("c"), 0x82),
        (auth(ReasonCode::RE_AUTHENTICATE, METHOD, b"right"), 0x82),
        (auth(ReasonCode::SUCCESS, METHOD, b"right"), 0x82),
        (auth(ReasonCode::CONTINUE_AUTHENTICATION, "PLAIN", b"right"), 0x82),
        (vec![0xF0, 0], 0x82),
        (vec![0xF1, 0], 0x81),
        (answer(&[b'x'; 5_000]), 0x95),
        (answer(b"wrong"), 0x87),
    ];
    for (bytes, reason) in cases {
        let mut driver = driver();
        let link = challenged(&mut driver);
        driver.send(link, &bytes);
        let connack = taken(&mut driver, link);
        assert_eq!((connack[0], connack[3], driver.is_open(link)), (0x20, reason, false), "{bytes:x?}");
        let snapshot = driver.shards[0].snapshot();
        assert_eq!((snapshot.sessions, snapshot.partial_bytes), (0, 0));
    }
    let mut driver = driver();
    let link = challenged(&mut driver);
    let leave = Packet::Disconnect(Disconnect::new(ReasonCode::NORMAL_DISCONNECTION));
    driver.send(link, &encoded(&leave, V5));
    assert_eq!((taken(&mut driver, link), driver.is_open(link)), (Vec::new(), false));
}

#[test]
fn a_wrong_proof_looks_like_a_wrong_password() {
    let mut driver = driver();
    let link = challenged(&mut driver);
    driver.send(link, &answer(b"wrong"));
    assert_eq!(taken(&mut driver, link), [0x20, 3, 0, 0x87, 0]);
}

#[test]
fn no_stage_restarts_the_time_of_connect() {
    let mut driver = driver();
    let link = challenged(&mut driver);
    for _ in 0..3 {
        driver.advance(S(3));
        driver.send(link, &answer(b"again"));
        assert_eq!(taken(&mut driver, link), CHALLENGE);
    }
    driver.advance(S(2));
    let connack = taken(&mut driver, link);
    assert_eq!((connack[0], connack[3], driver.is_open(link)), (0x20, 0x87, false));
}

#[test]
fn the_user_of_connect_must_be_the_one_that_is_proven() {
    for (name, reason) in [("ann", 0), ("bob", 0x87)] {
        let mut driver = driver();
        let link = driver.open();
        let properties =
            ConnectProperties { authentication_method: Some(METHOD), ..ConnectProperties::default() };
        let connect = Connect { version: V5, properties, user_name: Some(name), ..connect("c") };
        driver.send(link, &encoded(&Packet::Connect(Box::new(connect)), V5));
        driver.decide(challenged_as("ann"));
        driver.links[link].received.clear();
        driver.send(link, &answer(b"right"));
        assert_eq!(taken(&mut driver, link)[3], reason, "{name}");
    }
}

#[test]
fn a_session_is_taken_over_only_by_its_owner_and_after_the_proof() {
    let mut driver = driver();
    let old = proven(&mut driver);
    for (user, data, reason) in [("ann", &b"wrong"[..], 0x87), ("bob", b"right", 0x85)] {
        let thief = driver.open();
        driver.send(thief, &first_packet("c"));
        driver.decide(challenged_as(user));
        driver.links[thief].received.clear();
        driver.send(thief, &answer(data));
        assert_eq!((taken(&mut driver, thief)[3], driver.is_open(old)), (reason, true), "{user}");
    }
    let new = challenged(&mut driver);
    assert!(driver.is_open(old) && taken(&mut driver, old).is_empty());
    driver.send(new, &answer(b"right"));
    assert!(driver.is_open(new) && !driver.is_open(old));
    assert_eq!(taken(&mut driver, old)[2], 0x8E);
}

#[test]
fn traffic_continues_during_a_re_authentication() {
    let mut driver = driver();
    let link = proven(&mut driver);
    let ping = encoded(&Packet::Pingreq, V5);
    driver.send(link, &[auth(ReasonCode::RE_AUTHENTICATE, METHOD, b"first"), ping.clone()].concat());
    assert_eq!(taken(&mut driver, link), [0xD0, 0]);
    driver.decide(challenged_as("ann"));
    assert_eq!(taken(&mut driver, link), CHALLENGE);
    driver.send(link, &[ping, answer(b"right")].concat());
    let received = taken(&mut driver, link);
    assert_eq!(received[..2], [0xD0, 0]);
    assert_eq!((received[2], received[4]), (0xF0, 0));
    ends_with(&received, b"\x15\0\x0DSCRAM-SHA-256\x16\0\x07welcome");
    driver.advance(S(20));
    assert!(driver.is_open(link));
    // It may come again.
    driver.send(link, &auth(ReasonCode::RE_AUTHENTICATE, METHOD, b"first"));
    driver.decide(challenged_as("ann"));
    assert_eq!(taken(&mut driver, link), CHALLENGE);
}

// 5.0 [MQTT-4.12.1-2]
#[test]
fn a_failed_re_authentication_ends_the_connection() {
    let cases = [
        (challenged_as("ann"), &b"wrong"[..], 0x87),
        (challenged_as("bob"), b"right", 0x87),
        (AuthDecision::Deny("no such user"), b"", 0x87),
        (AuthDecision::Blocked, b"", 0x87),
        (AuthDecision::Busy, b"", 0x89),
        (AuthDecision::Unavailable("down"), b"", 0x89),
    ];
    for (decision, data, reason) in cases {
        let mut driver = driver();
        let link = proven(&mut driver);
        driver.send(link, &auth(ReasonCode::RE_AUTHENTICATE, METHOD, b"first"));
        let is_challenge = matches!(decision, AuthDecision::Challenge(_));
        driver.decide(decision);
        if is_challenge {
            assert_eq!(taken(&mut driver, link), CHALLENGE);
            driver.send(link, &answer(data));
        }
        let received = taken(&mut driver, link);
        assert_eq!((received[0], received[2], driver.is_open(link)), (0xE0, reason, false));
    }
}

#[test]
fn a_re_authentication_has_the_time_of_a_connect() {
    for decides in [false, true] {
        let mut driver = driver();
        let link = proven(&mut driver);
        driver.send(link, &auth(ReasonCode::RE_AUTHENTICATE, METHOD, b"first"));
        if decides {
            driver.decide(challenged_as("ann"));
            assert_eq!(taken(&mut driver, link), CHALLENGE);
        }
        driver.advance(S(9));
        assert!(driver.is_open(link));
        driver.advance(S(2));
        let received = taken(&mut driver, link);
        assert_eq!((received[0], received[2], driver.is_open(link)), (0xE0, 0x87, false));
    }
}

// 5.0 [MQTT-4.12.0-7], [MQTT-4.12.1-1]
#[test]
fn an_auth_that_belongs_to_no_exchange_is_a_protocol_error() {
    let again = auth(ReasonCode::RE_AUTHENTICATE, METHOD, b"first");
    let cases = [
        answer(b"right"),
        auth(ReasonCode::SUCCESS, METHOD, b""),
        auth(ReasonCode::RE_AUTHENTICATE, "PLAIN", b"first"),
        [again.clone(), again.clone()].concat(),
        [again.clone(), answer(b"right")].concat(),
        vec![0xF0, 0],
    ];
    for bytes in cases {
        let mut driver = driver();
        let link = proven(&mut driver);
        driver.send(link, &bytes);
        let received = taken(&mut driver, link);
        assert_eq!((received[0], received[2], driver.is_open(link)), (0xE0, 0x82, false), "{bytes:x?}");
    }
    let mut driver = driver();
    let link = driver.open();
    driver.send(link, &encoded(&Packet::Connect(Box::new(Connect { version: V5, ..connect("c") })), V5));
    driver.links[link].received.clear();
    driver.send(link, &again);
    assert_eq!(taken(&mut driver, link)[2], 0x82);
}
