//! Clients that are banned.

use crate::client::{client, connect, encoded, enter};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::access::bans::{Ban, BanList, Banned};
use homing::access::identity::{Identity, IdentitySource};
use homing::access::strikes::StrikeRule;
use homing::events::client_events::DisconnectCause;
use homing::login::arrival::Arrival;
use homing::login::authentication::AuthDecision;
use homing::mqtt::packet::{Connect, Packet, PacketId, ProtocolVersion};
use homing::session::authentication::{Anonymous, AuthMethod, AuthPolicy};
use homing::session::outbound::stall::{SocketView, Stall, StallCause};
use homing::shard::{Input, ShardSettings};
use homing::time::age::Age;
use std::sync::Arc;
use std::time::Duration;

const V5: ProtocolVersion = ProtocolVersion::V5;
const V3: ProtocolVersion = ProtocolVersion::V3_1_1;

/// The CONNACK of a ban: without a Reason String.
const BANNED: &[u8] = &[0x20, 3, 0, 0x8A, 0];
const BANNED_3: &[u8] = &[0x20, 2, 0, 5];

/// Returns shards that ask about each user name and have these bans.
fn banning_settings() -> ShardSettings {
    let auth = AuthPolicy { anonymous: Anonymous::Always, methods: vec![AuthMethod::Password] };
    ShardSettings { auth, ..driver::settings() }
}

fn banning(shards: u8, bans: impl IntoIterator<Item = (Banned, Option<u64>)>) -> MemoryDriver {
    let mut driver = MemoryDriver::new(&banning_settings(), shards);
    replace(&mut driver, bans);
    driver
}

fn replace(driver: &mut MemoryDriver, bans: impl IntoIterator<Item = (Banned, Option<u64>)>) {
    let mut list = BanList::default();
    bans.into_iter().for_each(|(banned, end)| list.add(banned, end));
    let list = Some(Arc::new(list));
    driver.shards.iter_mut().for_each(|shard| shard.permission_changes().replace_bans(list.clone()));
}

fn login(version: ProtocolVersion, client_id: &str, user: &str) -> Vec<u8> {
    let (user_name, password) = (Some(user), Some(&b"secret"[..]));
    let connect = Connect { version, user_name, password, ..connect(client_id) };
    encoded(&Packet::Connect(Box::new(connect)), version)
}

fn sent(driver: &mut MemoryDriver, arrival: Arrival, bytes: &[u8]) -> LinkId {
    let link = driver.open_from(arrival);
    driver.send(link, bytes);
    link
}

fn received(driver: &MemoryDriver, link: LinkId) -> &[u8] {
    &driver.links[link].received
}

fn refusals(driver: &MemoryDriver) -> u64 {
    driver.shards.iter().map(|shard| shard.snapshot().counters.banned_connects).sum()
}

#[test]
fn client_id_address_and_certificate_are_refused_before_authentication() {
    let mut driver = banning(2, [(Banned::Clients("test-*".parse().expect("a glob")), None)]);
    for client_id in ["test-1", "test-2", "test-3"] {
        for (version, refusal) in [(V5, BANNED), (V3, BANNED_3)] {
            let link = sent(&mut driver, Arrival::local(), &login(version, client_id, "ann"));
            assert_eq!((received(&driver, link), driver.is_open(link)), (refusal, false));
        }
    }
    for ban in [Ban::Address, Ban::Serial] {
        // Both shards are home to some of these, so the ban moves with the socket.
        for client_id in ["a", "b", "c", "d"] {
            let arrival = Arrival { ban: Some(ban), ..Arrival::local() };
            let link = sent(&mut driver, arrival, &login(V5, client_id, "ann"));
            assert_eq!((received(&driver, link), driver.is_open(link)), (BANNED, false));
        }
    }
    assert_eq!((driver.auth_requests.len(), refusals(&driver)), (0, 14));
    let link = sent(&mut driver, Arrival::local(), &login(V5, "a", "ann"));
    assert!(driver.is_open(link) && driver.auth_requests.len() == 1, "nothing bans this client");
}

#[test]
fn a_banned_user_learns_it_only_with_the_right_credentials() {
    let mut driver = banning(2, [(Banned::User("ann".into()), None)]);
    let allow = |user| AuthDecision::Allow(Arc::new(Identity::new(user, IdentitySource::Password)).into());
    for (user, decision, answer) in [
        ("ann", allow("ann"), BANNED),
        ("ann", AuthDecision::Deny("wrong password"), &[0x20, 3, 0, 0x87, 0]),
        ("bob", AuthDecision::Deny("wrong password"), &[0x20, 3, 0, 0x87, 0]),
    ] {
        let link = sent(&mut driver, Arrival::local(), &login(V5, "c", user));
        driver.decide(decision);
        assert_eq!((received(&driver, link), driver.is_open(link)), (answer, false), "{user}");
    }
    let link = sent(&mut driver, Arrival::local(), &login(V3, "c", "ann"));
    driver.decide(allow("ann"));
    assert_eq!(received(&driver, link), BANNED_3);
    let link = sent(&mut driver, Arrival::local(), &login(V5, "c", "bob"));
    driver.decide(allow("bob"));
    assert_eq!((received(&driver, link)[3], refusals(&driver)), (0, 2));
}

#[test]
fn a_banned_user_does_not_take_over_a_session() {
    let mut driver = banning(2, [(Banned::User("ann".into()), None)]);
    let old = client(&mut driver, "c", 10);
    let new = sent(&mut driver, Arrival::local(), &login(V5, "c", "ann"));
    driver.decide(AuthDecision::Allow(Arc::new(Identity::new("ann", IdentitySource::Password)).into()));
    assert_eq!((driver.is_open(old), driver.is_open(new)), (true, false));
}

#[test]
fn a_ban_ends_at_its_end() {
    let mut driver = banning(1, []);
    let now = driver.now;
    driver.shards.iter_mut().for_each(|shard| shard.input(now, Input::WallClock(1_000_000)));
    replace(&mut driver, [(Banned::Client("c".into()), Some(1_010_000))]);
    let link = client(&mut driver, "c", 10);
    assert_eq!(received(&driver, link), BANNED);
    driver.advance(Duration::from_secs(11));
    let link = client(&mut driver, "c", 10);
    assert_eq!(received(&driver, link)[3], 0);
}

#[test]
fn connected_clients_that_become_banned_are_disconnected_with_0x98() {
    let mut driver = banning(1, []);
    let links = ["c", "pump", "far"].map(|client_id| client(&mut driver, client_id, 10));
    let old = enter(&mut driver, Connect { version: V3, ..connect("old") });
    let open = driver.open();
    replace(&mut driver, [(Banned::Client("c".into()), None)]);
    let now = driver.now;
    for (link, origin) in [
        (links[0], None),
        (links[1], None),
        (links[2], Some(Ban::Address)),
        (old, Some(Ban::Serial)),
        (open, None),
    ] {
        let id = driver.id(link);
        driver.shards[0].begin_turn();
        driver.shards[0].permission_changes().disconnect_if_banned(now, id, origin);
        driver.settle();
    }
    for (link, is_banned) in [(links[0], true), (links[1], false), (links[2], true)] {
        assert_eq!(driver.is_open(link), !is_banned);
        assert_eq!(received(&driver, link).windows(3).any(|part| part == [0xE0, 1, 0x98]), is_banned);
    }
    assert!(!driver.is_open(old) && driver.is_open(open));
    assert_eq!(received(&driver, old), [0x20, 2, 0, 0], "3.x has no DISCONNECT of the server");
}

#[test]
fn a_client_that_connects_too_often_is_banned_and_a_stranger_cannot_get_it_banned() {
    const MINUTE: Duration = Duration::from_mins(1);
    let mut driver = banning(1, []);
    let flapping = StrikeRule { limit: 3, window: MINUTE, block: 5 * MINUTE };
    driver.shards[0].replace_settings(ShardSettings { flapping, ..banning_settings() });
    let allow = |user| AuthDecision::Allow(Arc::new(Identity::new(user, IdentitySource::Password)).into());
    let enter = |driver: &mut MemoryDriver, user, decision| {
        let link = sent(driver, Arrival::local(), &login(V5, "c", user));
        driver.decide(decision);
        received(driver, link)[3]
    };
    for _ in 0..10 {
        assert_eq!(enter(&mut driver, "ann", AuthDecision::Deny("wrong password")), 0x87);
        let anonymous = client(&mut driver, "d", 10);
        assert_eq!(received(&driver, anonymous)[3], 0);
    }
    for reason in [0, 0, 0, 0x8A, 0x8A] {
        assert_eq!(enter(&mut driver, "ann", allow("ann")), reason);
    }
    assert_eq!(enter(&mut driver, "ann", AuthDecision::Deny("wrong password")), 0x87);
    let counters = driver.shards[0].snapshot().counters;
    assert_eq!((counters.flapping_bans, counters.banned_connects), (1, 2));
    driver.advance(5 * MINUTE);
    assert_eq!(enter(&mut driver, "ann", allow("ann")), 0);
}

#[test]
fn the_counts_of_connects_outlive_new_settings_with_the_same_rule() {
    let rule = StrikeRule { limit: 3, window: Duration::from_mins(1), block: Duration::from_mins(5) };
    let mut settings = ShardSettings { flapping: rule, ..banning_settings() };
    let mut driver = MemoryDriver::new(&settings, 1);
    let connects = |driver: &mut MemoryDriver, reasons: &[u8]| {
        for reason in reasons {
            let ann = Arc::new(Identity::new("ann", IdentitySource::Password));
            let link = sent(driver, Arrival::local(), &login(V5, "c", "ann"));
            driver.decide(AuthDecision::Allow(ann.into()));
            assert_eq!(received(driver, link)[3], *reason);
        }
    };
    connects(&mut driver, &[0, 0]);
    driver.shards[0].replace_settings(settings.clone());
    connects(&mut driver, &[0, 0x8A]);
    driver.shards[0].replace_settings(settings.clone());
    connects(&mut driver, &[0x8A]);
    settings.flapping.limit = 4;
    driver.shards[0].replace_settings(settings);
    connects(&mut driver, &[0]);
}

#[test]
fn a_disconnect_for_an_overdue_acknowledgement_does_not_count() {
    let mut driver = banning(1, []);
    let flapping = StrikeRule { limit: 3, window: Duration::from_mins(1), block: Duration::from_mins(5) };
    driver.shards[0].replace_settings(ShardSettings { flapping, ..banning_settings() });
    let stall = Stall {
        packet_id: PacketId::new(1).expect("not 0"),
        age: Age { least: Duration::from_secs(1), is_over: false },
        transmissions: 1,
        cause: StallCause::Application,
        number: 1,
        late: Duration::ZERO,
        view: SocketView::default(),
    };
    for _ in 0..10 {
        let link = sent(&mut driver, Arrival::local(), &login(V5, "c", "ann"));
        driver.decide(AuthDecision::Allow(Arc::new(Identity::new("ann", IdentitySource::Password)).into()));
        assert_eq!(received(&driver, link)[3], 0);
        let (now, id) = (driver.now, driver.id(link));
        driver.shards[0].begin_turn();
        driver.shards[0].disconnect(now, id, None, DisconnectCause::AckTimeout(stall));
        driver.settle();
    }
    assert_eq!(driver.shards[0].snapshot().counters.flapping_bans, 0);
}
