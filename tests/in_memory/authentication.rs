//! CONNECT packets that the authenticator decides: what waits, and what a decision leads to.

use crate::client::{connect, encoded, publication};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::access::grant::{Grant, SessionRules};
use homing::access::identity::{Identity, IdentitySource};
use homing::access::ordered::{OrderedRule, OrderedRules};
use homing::access::permit::{Permit, RuleLists, UserRules};
use homing::access::rule::{Access, RuleFilter};
use homing::events::trace::{TraceWatch, TracedPayloads};
use homing::login::arrival::Arrival;
use homing::login::authentication::AuthDecision;
use homing::mqtt::packet::{Connect, Packet, ProtocolVersion, QoS, ReasonCode, WillMessage};
use homing::persistence::records::Record;
use homing::session::authentication::Reach;
use homing::session::authentication::{Anonymous, AuthMethod, AuthPolicy};
use homing::shard::Input;
use homing::shard::rules::permission_changes::RevokedPortion;
use homing::shard::shard_of;
use homing::time::Instant;
use std::borrow::Cow;
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
    AuthDecision::Allow(Arc::new(Identity::new("ann", IdentitySource::Password)).into())
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
fn the_event_of_a_refusal_has_no_user_name_that_may_be_a_token() {
    let mut settings = driver::settings();
    settings.auth.methods = vec![AuthMethod::Password, AuthMethod::Jwt];
    let other = || {
        let identity = Arc::new(Identity::new("eve", IdentitySource::Jwt));
        AuthDecision::Allow(identity.into())
    };
    for (tokens, denied, verified) in [(false, Some("ann"), Some("eve")), (true, None, Some("eve"))] {
        settings.user_names_are_tokens = tokens;
        let mut driver = MemoryDriver::new(&settings, 1);
        let link = opened(&mut driver, &ann("c", V5));
        driver.decide(AuthDecision::Deny("wrong token"));
        assert_eq!(driver.links[link].refused_as.as_deref(), denied);
        opened(&mut driver, &ann("c", V5));
        driver.decide(allow());
        let link = opened(&mut driver, &ann("c", V5));
        driver.decide(other());
        assert_eq!(received(&driver, link)[3], 0x85, "the session is Ann's");
        assert_eq!(driver.links[link].refused_as.as_deref(), verified);
    }
}

#[test]
fn a_user_who_is_revoked_between_the_decision_and_connect_is_asked_about_again() {
    let mut driver = driver(1);
    let link = opened(&mut driver, &ann("c", V5));
    let (_, request) = driver.auth_requests.remove(0);
    let now = driver.now;
    driver.shards[0].begin_turn();
    driver.shards[0].input(now, Input::Authenticated(request.connection, allow()));
    let portion = driver.shards[0].permission_changes().revoke(now, 0, &|user, _| user.user() == "ann");
    assert_eq!(portion, RevokedPortion { disconnected: 0, next: None }, "nobody is connected yet");
    driver.settle();
    assert!(driver.shards[0].snapshot().sessions == 0 && received(&driver, link).is_empty());
    driver.decide(AuthDecision::Deny("no such user"));
    assert_eq!((received(&driver, link), driver.is_open(link)), (&[0x20, 3, 0, 0x87, 0][..], false));
    // A decision behind the revocation holds.
    let link = opened(&mut driver, &ann("c", V5));
    driver.decide(allow());
    assert!(driver.is_open(link) && received(&driver, link)[3] == 0);
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
    driver.decide(AuthDecision::Allow(Arc::new(Identity::new(name, IdentitySource::Password)).into()));
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

/// A decision for Ann that ends at `ends`, with the rules of this one session.
fn allow_with(rules: Option<SessionRules>, ends: Instant) -> AuthDecision {
    let identity = Arc::new(Identity::new("ann", IdentitySource::Jwt));
    AuthDecision::Allow(Grant { identity, rules, ends })
}

fn rules(own: &[(Access, &str)]) -> Option<SessionRules> {
    let own = own.iter().map(|(access, text)| (*access, RuleFilter::topic(text).unwrap(), 0));
    let rules = UserRules::new(RuleLists::new(own), Arc::default());
    Some(SessionRules::Permit(Permit::Rules(Arc::new(rules))))
}

#[test]
fn a_refusal_by_the_rules_of_a_token_names_the_token_and_the_number_of_the_rule() {
    let rule = |grants, text| {
        let filter = RuleFilter::topic(text).expect("a filter");
        OrderedRule { grants, direction: None, filter }
    };
    let rules = OrderedRules::new([rule(true, "own/#"), rule(false, "own/keys")]);
    let rules = SessionRules::Permit(Permit::Rules(Arc::new(UserRules::ordered(rules))));
    for (topic, why) in [
        ("other", "no rule of the client's token allows it"),
        ("closed/1", "rule 1 of the client's token denies it"),
    ] {
        let rules = match topic {
            "closed/1" => {
                let rules = OrderedRules::new([rule(false, "closed/#"), rule(true, "#")]);
                SessionRules::Permit(Permit::Rules(Arc::new(UserRules::ordered(rules))))
            }
            _ => rules.clone(),
        };
        let mut driver = driver(1);
        let link = opened(&mut driver, &ann("c", V5));
        driver.decide(allow_with(Some(rules), Instant::NEVER));
        driver.send(link, &encoded(&Packet::Publish(publication(topic, b"x")), V5));
        driver.advance(S(1));
        let [refusal] = &*driver.refusals else { panic!("{:?}", driver.refusals) };
        assert_eq!((&*refusal.why.to_string(), &*refusal.topic.to_string()), (why, topic));
        assert_eq!(refusal.user.as_ref().map(ToString::to_string).as_deref(), Some("ann"));
    }
}

#[test]
fn a_connection_ends_when_its_credentials_expire() {
    let mut driver = driver(1);
    for (version, keep_alive) in [(V5, 0), (V5, 60), (V3, 0)] {
        let (user_name, password) = (Some("ann"), Some(&b"token"[..]));
        let connect = Connect { version, keep_alive, user_name, password, ..connect("c") };
        let link = opened(&mut driver, &encoded(&Packet::Connect(Box::new(connect)), version));
        let before = disconnects(&driver, "maximum_connect_time");
        let ends = driver.now + S(30);
        driver.decide(allow_with(None, ends));
        driver.advance(S(29));
        driver.send(link, b"\xC0\0");
        assert!(driver.is_open(link) && received(&driver, link).ends_with(b"\xD0\0"));
        driver.advance(S(3));
        assert!(!driver.is_open(link));
        let received = received(&driver, link);
        let pingresp = received.windows(2).rposition(|bytes| bytes == b"\xD0\0").unwrap();
        match &received[pingresp + 2..] {
            [0xE0, _, 0xA0, ..] => assert_eq!(version, V5),
            other => assert_eq!((version, other), (V3, &[][..])),
        }
        assert_eq!(disconnects(&driver, "maximum_connect_time"), before + 1);
    }
    assert_eq!(disconnects(&driver, "violation"), 0, "the clients broke no rule");
}

/// Returns how many connections of shard 0 ended for a cause.
fn disconnects(driver: &MemoryDriver, cause: &str) -> u64 {
    let snapshot = driver.shards[0].snapshot();
    let found = snapshot.clients.disconnects().find(|(name, _)| *name == cause);
    found.expect("a known cause").1
}

#[test]
fn a_session_may_have_rules_of_its_own() {
    let mut driver = driver(1);
    let never = Instant::NEVER;
    let link = opened(&mut driver, &ann("c", V3));
    driver.decide(allow_with(rules(&[(Access::Read, "in/#"), (Access::Write, "out")]), never));
    driver.send(link, b"\x82\x08\0\x01\0\x03out\0");
    assert!(received(&driver, link).ends_with(b"\x90\x03\0\x01\x80"), "not readable");
    driver.send(link, b"\x82\x06\0\x02\0\x01#\0");
    assert!(received(&driver, link).ends_with(b"\x90\x03\0\x02\0"), "readable in part");
    let before = received(&driver, link).len();
    let other = opened(&mut driver, &anonymous("other"));
    for topic in ["out", "in/x"] {
        driver.send(other, &encoded(&Packet::Publish(publication(topic, b"x")), V3));
        driver.send(link, &encoded(&Packet::Publish(publication(topic, b"y")), V3));
    }
    let expected = encoded(&Packet::Publish(publication("in/x", b"x")), V3);
    assert_eq!(received(&driver, link)[before..], *expected, "it may not write in/x");
    driver.send(other, b"\x82\x06\0\x01\0\x01#\0");
    let before = received(&driver, other).len();
    driver.send(link, &encoded(&Packet::Publish(publication("out", b"y")), V3));
    assert_eq!(received(&driver, other)[before..], *encoded(&Packet::Publish(publication("out", b"y")), V3));
}

#[test]
fn the_rules_of_a_session_change_with_its_credentials() {
    let mut driver = driver(1);
    let connected = |driver: &mut MemoryDriver, rules| {
        let (user_name, password) = (Some("ann"), Some(&b"x"[..]));
        let connect = Connect { version: V3, clean_start: false, user_name, password, ..connect("c") };
        let link = opened(driver, &encoded(&Packet::Connect(Box::new(connect)), V3));
        driver.decide(allow_with(rules, Instant::NEVER));
        link
    };
    let link = connected(&mut driver, rules(&[(Access::Read, "#")]));
    driver.send(link, b"\x82\x06\0\x02\0\x01a\0");
    let other = opened(&mut driver, &anonymous("other"));
    let publish = encoded(&Packet::Publish(publication("a", b"x")), V3);
    for (rules, is_delivered) in [
        (rules(&[(Access::Read, "#")]), true),
        (rules(&[(Access::Read, "b")]), false),
        (Some(SessionRules::Superuser), true),
        (rules(&[]), false),
        (None, true),
    ] {
        let link = connected(&mut driver, rules);
        let before = received(&driver, link).len();
        driver.send(other, &publish);
        assert_eq!(received(&driver, link).len() > before, is_delivered);
    }
}

#[test]
fn only_a_superuser_gets_topics_with_names_of_others() {
    let mut settings = driver::settings();
    settings.auth.methods = vec![AuthMethod::Password];
    settings.access.protects_others = true;
    for (rules, code) in
        [(None, 0x80), (rules(&[(Access::Read, "#")]), 0x80), (Some(SessionRules::Superuser), 0)]
    {
        let mut driver = MemoryDriver::new(&settings, 1);
        let link = opened(&mut driver, &ann("c", V3));
        driver.decide(allow_with(rules, Instant::NEVER));
        driver.send(link, b"\x82\x0C\0\x02\0\x07$dead/#\0");
        assert!(received(&driver, link).ends_with(&[0x90, 3, 0, 2, code]));
    }
}

#[test]
fn a_will_needs_the_rules_of_its_session() {
    for (rules, code) in [(rules(&[(Access::Write, "w")]), 0), (rules(&[]), 5)] {
        let mut driver = driver(1);
        let (user_name, password) = (Some("ann"), Some(&b"x"[..]));
        let will = Some(WillMessage {
            qos: QoS::AtMostOnce,
            retain: false,
            topic: "w",
            payload: b"gone",
            delay: 0,
            message_expiry: None,
            forwarded: Cow::Borrowed(&[]),
        });
        let connect = Connect { version: V3, user_name, password, will, ..connect("c") };
        let link = opened(&mut driver, &encoded(&Packet::Connect(Box::new(connect)), V3));
        driver.decide(allow_with(rules, Instant::NEVER));
        assert_eq!(received(&driver, link), [0x20, 2, 0, code]);
    }
}

/// Returns the watch of a trace of one client.
fn watch(client_id: &str) -> Option<Arc<TraceWatch>> {
    let (clients, filters) = ([client_id.into()].into(), [].into());
    Some(Arc::new(TraceWatch { clients, filters, payloads: TracedPayloads::Hidden }))
}

#[test]
fn a_trace_that_ends_while_the_password_is_checked_does_not_follow_the_client() {
    let mut driver = driver(1);
    driver.shards[0].input(driver.now, Input::Traces(watch("c")));
    let link = opened(&mut driver, &ann("c", V5));
    driver.shards[0].input(driver.now, Input::Traces(watch("another")));
    driver.decide(allow());
    driver.trace_steps.clear();
    driver.send(link, b"\xC0\0");
    assert!(driver.trace_steps.is_empty(), "{:?}", driver.trace_steps);
}

#[test]
fn the_connect_of_a_traced_client_whose_password_is_checked_is_one_step() {
    let mut driver = driver(1);
    driver.shards[0].input(driver.now, Input::Traces(watch("c")));
    let link = opened(&mut driver, &ann("c", V5));
    driver.decide(allow());
    driver.send(link, b"\xC0\0");
    let names = driver.trace_steps.iter().map(|step| step.packet).filter(|packet| !packet.is_empty());
    assert_eq!(names.collect::<Vec<_>>(), ["CONNECT", "CONNACK", "PINGREQ", "PINGRESP"]);
}
