//! CONNECT packets that the authenticator decides: what waits, and what a decision leads to.

use crate::client::{connect, encoded, publication};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::access::identity::{Identity, IdentitySource};
use homing::mqtt::packet::{Connect, Packet, ProtocolVersion, ReasonCode};
use homing::persistence::records::Record;
use homing::session::authentication::{Anonymous, AuthMethod, AuthPolicy};
use homing::shard::arrival::{Arrival, Reach};
use homing::shard::authentication::AuthDecision;
use homing::shard::shard_of;
use std::sync::Arc;
use std::time::Duration;

const S: fn(u64) -> Duration = Duration::from_secs;
const V5: ProtocolVersion = ProtocolVersion::V5;
const V3: ProtocolVersion = ProtocolVersion::V3_1_1;

/// CONNACK of 3.1.1 without Session Present.
const ACCEPTED: [u8; 4] = [0x20, 2, 0, 0];

/// A driver that asks about each user name. Clients without one may enter.
fn driver(shards: u8) -> MemoryDriver {
    let mut settings = driver::settings();
    settings.auth = AuthPolicy { anonymous: Anonymous::Loopback, methods: vec![AuthMethod::Password] };
    MemoryDriver::new(&settings, shards)
}

fn ann(name: &str, version: ProtocolVersion) -> Vec<u8> {
    let (user_name, password) = (Some("ann"), Some(&b"secret"[..]));
    encoded(&Packet::Connect(Box::new(Connect { version, user_name, password, ..connect(name) })), version)
}

fn anonymous(name: &str) -> Vec<u8> {
    encoded(&Packet::Connect(Box::new(Connect { version: V3, ..connect(name) })), V3)
}

fn opened(driver: &mut MemoryDriver, bytes: &[u8]) -> LinkId {
    let link = driver.open();
    driver.send(link, bytes);
    link
}

fn allow() -> AuthDecision {
    AuthDecision::Allow(Arc::new(Identity::new("ann", IdentitySource::Password)))
}

fn received(driver: &MemoryDriver, link: LinkId) -> &[u8] {
    &driver.links[link].received
}

#[test]
fn connect_and_what_follows_wait_for_the_decision() {
    let mut driver = driver(1);
    let watcher = opened(&mut driver, &anonymous("w"));
    driver.send(watcher, b"\x82\x06\0\x01\0\x01t\0");
    let seen = received(&driver, watcher).len();
    let publish = encoded(&Packet::Publish(publication("t", b"x")), V5);
    let link = opened(&mut driver, &[ann("c", V5), publish].concat());
    assert_eq!((received(&driver, link), received(&driver, watcher).len()), (&[][..], seen));
    let (_, request) = &driver.auth_requests[0];
    assert_eq!((&*request.client_id, request.user_name.as_deref()), ("c", Some("ann")));
    assert_eq!(request.password.as_ref().map(|secret| secret.bytes()), Some(&b"secret"[..]));
    assert!(!format!("{request:?}").contains("115, 101") && format!("{request:?}").contains("(secret)"));
    driver.decide(allow());
    assert_eq!((received(&driver, link)[0], received(&driver, link)[3]), (0x20, 0));
    assert_eq!(&received(&driver, watcher)[seen..], b"\x30\x04\0\x01tx");
}

#[test]
fn anonymous_clients_enter_without_a_request() {
    let mut driver = driver(1);
    let link = opened(&mut driver, &anonymous("c"));
    assert_eq!((received(&driver, link), driver.auth_requests.len()), (&ACCEPTED[..], 0));
}

#[test]
fn a_client_without_credentials_is_refused_where_anonymous_clients_may_not_enter() {
    let mut driver = driver(1);
    let far = Arrival { reach: Reach::Network, ..Arrival::local() };
    let link = driver.open_from(far);
    driver.send(link, &anonymous("c"));
    assert_eq!((received(&driver, link), driver.is_open(link)), (&[0x20, 2, 0, 5][..], false));
}

#[test]
fn each_decision_has_its_answer() {
    let cases = [
        (AuthDecision::Deny("wrong password"), 5, 0x87),
        (AuthDecision::Deny("no such user"), 5, 0x87),
        (AuthDecision::Blocked, 5, 0x8A),
        (AuthDecision::Busy, 3, 0x89),
        (AuthDecision::Unavailable("down"), 3, 0x88),
    ];
    for (decision, code, reason) in cases {
        let mut driver = driver(1);
        let old = opened(&mut driver, &ann("c", V3));
        driver.decide(decision.clone());
        assert_eq!(received(&driver, old), [0x20, 2, 0, code]);
        let new = opened(&mut driver, &ann("c", V5));
        driver.decide(decision.clone());
        assert_eq!(received(&driver, new)[3], reason);
        if let AuthDecision::Deny(_) = decision {
            // The whole packet: it has no Reason String.
            assert_eq!(received(&driver, new), [0x20, 3, 0, 0x87, 0]);
        }
        assert!(!driver.is_open(old) && !driver.is_open(new));
        assert_eq!(driver.shards[0].snapshot().sessions, 0);
    }
}

#[test]
fn silence_ends_at_the_timeout_and_a_late_decision_changes_nothing() {
    let mut driver = driver(1);
    let link = opened(&mut driver, &ann("c", V3));
    driver.advance(S(4));
    assert!(received(&driver, link).is_empty());
    driver.advance(S(2));
    assert_eq!(received(&driver, link), [0x20, 2, 0, 3]);
    assert!(driver.auth_requests[0].1.is_abandoned());
    driver.decide(allow());
    assert_eq!((received(&driver, link), driver.is_open(link)), (&[0x20, 2, 0, 3][..], false));
    assert_eq!(driver.shards[0].snapshot().sessions, 0);
}

#[test]
fn the_time_of_the_authenticator_is_not_the_clients_silence() {
    let mut settings = driver::settings();
    settings.auth.methods = vec![AuthMethod::Password];
    (settings.auth_timeout, settings.connect_timeout) = (S(60), S(10));
    let mut driver = MemoryDriver::new(&settings, 1);
    let link = opened(&mut driver, &ann("c", V3));
    driver.advance(S(30));
    driver.decide(allow());
    assert_eq!(received(&driver, link), ACCEPTED);
}

#[test]
fn a_connection_is_taken_over_only_after_the_decision() {
    let mut driver = driver(1);
    let old = opened(&mut driver, &anonymous("c"));
    let thief = opened(&mut driver, &ann("c", V3));
    assert!(driver.is_open(old));
    driver.decide(AuthDecision::Deny("wrong password"));
    assert!(driver.is_open(old) && !driver.is_open(thief));
    let new = opened(&mut driver, &ann("c", V3));
    assert!(driver.is_open(old));
    driver.decide(allow());
    assert!(!driver.is_open(old) && driver.is_open(new));
    assert_eq!(received(&driver, new), ACCEPTED);
}

#[test]
fn two_connections_of_one_client_take_over_as_their_decisions_come() {
    let mut driver = driver(1);
    let links = [opened(&mut driver, &ann("c", V3)), opened(&mut driver, &ann("c", V3))];
    driver.decide(allow());
    assert_eq!(links.map(|link| driver.is_open(link)), [true, true]);
    driver.decide(allow());
    assert_eq!(links.map(|link| driver.is_open(link)), [false, true]);
    assert_eq!(driver.shards[0].snapshot().sessions, 1);
}

#[test]
fn a_decision_for_a_closed_connection_does_not_reach_its_successor() {
    let mut driver = driver(1);
    let gone = opened(&mut driver, &ann("c", V3));
    driver.close(gone);
    assert!(driver.auth_requests[0].1.is_abandoned());
    let next = opened(&mut driver, &ann("d", V3));
    assert_eq!(driver.id(gone).slot, driver.id(next).slot);
    driver.decide(allow());
    assert!(received(&driver, next).is_empty());
    driver.decide(AuthDecision::Deny("wrong password"));
    assert_eq!(received(&driver, next), [0x20, 2, 0, 5]);
}

#[test]
fn only_the_shard_of_the_session_asks() {
    let mut driver = driver(2);
    let names = ["a", "b", "c", "d", "e", "f"];
    for name in names {
        let link = opened(&mut driver, &ann(name, V3));
        assert_eq!(driver.auth_requests.len(), 1);
        assert_eq!(driver.auth_requests[0].0, usize::from(shard_of(name, 2).0));
        driver.decide(allow());
        assert_eq!(received(&driver, link), ACCEPTED);
    }
}

#[test]
fn a_certificate_moves_with_its_connection() {
    let mut settings = driver::settings();
    settings.auth = AuthPolicy { anonymous: Anonymous::Never, methods: vec![AuthMethod::Certificate] };
    let mut driver = MemoryDriver::new(&settings, 2);
    for name in ["a", "b", "c", "d"] {
        let link = driver.open_from(Arrival { certificate_user: Some("ann".into()), ..Arrival::default() });
        driver.send(link, &anonymous(name));
        assert_eq!(received(&driver, link), ACCEPTED);
        let bare = opened(&mut driver, &anonymous(name));
        assert_eq!(received(&driver, bare), [0x20, 2, 0, 4], "no usable certificate");
    }
}

#[test]
fn a_stop_ends_a_connection_that_waits() {
    let mut driver = driver(1);
    let link = opened(&mut driver, &ann("c", V5));
    driver.stop();
    assert!(!driver.is_open(link) && driver.auth_requests[0].1.is_abandoned());
    driver.decide(allow());
    assert_eq!((received(&driver, link), driver.shards[0].snapshot().sessions), (&[][..], 0));
}

#[test]
fn an_authentication_method_is_refused_before_anybody_is_asked() {
    let mut driver = driver(1);
    let mut connect = Connect { user_name: Some("ann"), ..connect("c") };
    connect.properties.authentication_method = Some("SCRAM-SHA-256");
    let link = opened(&mut driver, &encoded(&Packet::Connect(Box::new(connect)), V5));
    assert_eq!(received(&driver, link)[3], ReasonCode::BAD_AUTHENTICATION_METHOD.byte());
    assert!(driver.auth_requests.is_empty());
}

/// A 3.1.1 CONNECT of a user, which `decide` then verifies.
fn connected_as(driver: &mut MemoryDriver, name: &str, client_id: &str, clean_start: bool) -> LinkId {
    let (user_name, password) = (Some(name), Some(&b"x"[..]));
    let connect = Connect { version: V3, clean_start, user_name, password, ..connect(client_id) };
    let link = opened(driver, &encoded(&Packet::Connect(Box::new(connect)), V3));
    driver.decide(AuthDecision::Allow(Arc::new(Identity::new(name, IdentitySource::Password))));
    link
}

#[test]
fn another_user_can_neither_take_over_nor_end_a_session() {
    let mut driver = driver(1);
    let owner = connected_as(&mut driver, "ann", "c", false);
    for clean_start in [false, true] {
        let thief = connected_as(&mut driver, "bob", "c", clean_start);
        assert_eq!(received(&driver, thief), [0x20, 2, 0, 2]);
        let nobody = opened(&mut driver, &anonymous("c"));
        assert_eq!(received(&driver, nobody), [0x20, 2, 0, 2]);
        assert!(driver.is_open(owner));
    }
    driver.close(owner);
    let thief = connected_as(&mut driver, "bob", "c", true);
    assert_eq!(received(&driver, thief), [0x20, 2, 0, 2]);
    let back = connected_as(&mut driver, "ann", "c", false);
    assert_eq!(received(&driver, back), [0x20, 2, 1, 0], "the session is still there");
    assert_eq!(driver.shards[0].snapshot().counters.foreign_sessions, 5);
}

#[test]
fn a_session_without_an_owner_gets_one() {
    let mut driver = driver(1);
    let connect = Connect { version: V3, clean_start: false, ..connect("c") };
    let made = opened(&mut driver, &encoded(&Packet::Connect(Box::new(connect)), V3));
    driver.close(made);
    let adopted = connected_as(&mut driver, "ann", "c", false);
    assert_eq!(received(&driver, adopted), [0x20, 2, 1, 0]);
    assert_eq!(driver.shards[0].snapshot().counters.adopted_sessions, 1);
    let nobody = opened(&mut driver, &anonymous("c"));
    assert_eq!(received(&driver, nobody), [0x20, 2, 0, 2]);
}

#[test]
fn sessions_have_no_owners_if_the_operator_says_so() {
    let mut settings = driver::settings();
    settings.auth.methods = vec![AuthMethod::Password];
    settings.owners.session_owner = false;
    let mut driver = MemoryDriver::new(&settings, 1);
    connected_as(&mut driver, "ann", "c", false);
    let other = connected_as(&mut driver, "bob", "c", false);
    assert_eq!(received(&driver, other), [0x20, 2, 1, 0]);
}

#[test]
fn the_owner_of_a_session_is_stored() {
    let mut driver = driver(1);
    driver.keep_in_store();
    connected_as(&mut driver, "ann", "c", false);
    let owners: Vec<_> = driver
        .batches
        .iter()
        .flat_map(|batch| &batch.records)
        .filter_map(|record| match record {
            Record::Session(session) => Some(session.user_name.as_deref()),
            _ => None,
        })
        .collect();
    assert_eq!(owners, [Some("ann")]);
}
