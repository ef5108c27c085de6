//! Names, topics and filters at their limits: what a turn does with them spends steps by their
//! bytes, and what many messages share is kept once.

use crate::access::acl;
use crate::client::{connect, encoded, enter, publication, publish, send, subscribe};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::access::bans::{BanList, Banned};
use homing::clock;
use homing::login::access_rules::RetainSourceCheck;
use homing::mqtt::packet::{
    Connect, ConnectProperties, Packet, PacketId, Properties, ProtocolVersion, Publish, QoS, Subscribe,
    SubscribeFilter, SubscriptionOptions, Unsubscribe,
};
use homing::session::drops::DropReason;
use homing::session::objectives::Objective;
use homing::shard::rules::permission_changes::BanCheck;
use homing::shard::turn::STEPS_PER_TURN;
use homing::shard::{ReadProgress, ShardSettings};
use std::sync::Arc;
use std::time::Duration;

/// The default of `limits.client_id`.
const LONGEST: usize = 1_024;

/// The time of one turn that no load of the machine explains. The promise is 5 ms in a release
/// build.
const FAR_TOO_LONG: Duration = Duration::from_secs(1);

const FIRST: PacketId = PacketId::new(1).expect("not 0");

fn long_id() -> String {
    "c".repeat(LONGEST)
}

/// Settings with `patterns` patterns that name user and client.
fn with_patterns(patterns: usize) -> ShardSettings {
    let mut settings = driver::settings();
    let rules: String = (0..patterns).map(|n| format!("pattern readwrite t/%c/{n}/+/%u\n")).collect();
    settings.access.files.broker = Some(acl(&format!("topic readwrite free/#\n{rules}")));
    settings.access.counts_claims = true;
    settings.session.subscriptions.filters = 10_000;
    settings
}

fn long_client(driver: &mut MemoryDriver) -> LinkId {
    let (id, user) = (long_id(), "u".repeat(LONGEST));
    let link = enter(driver, Connect { user_name: Some(&user), ..connect(&id) });
    driver.links[link].received.clear();
    driver.shards[0].take_longest_turn();
    link
}

/// Handles the bytes of one read in one turn. Returns true if the turn was over before its end.
fn exceeds_a_turn(driver: &mut MemoryDriver, link: LinkId, bytes: &[u8]) -> bool {
    let (now, id, shard) = (driver.now, driver.id(link), &mut driver.shards[0]);
    let began = clock::nanos();
    shard.begin_turn();
    let progress = shard.receive(now, id, bytes);
    let took = Duration::from_nanos(clock::nanos() - began);
    assert!(took < FAR_TOO_LONG, "{took:?}");
    progress == ReadProgress::Paused || shard.usage().jobs > 0
}

/// Ends the work that is left, and checks that no turn did more than twice its steps: the last thing
/// that a turn begins is done to its end.
fn assert_turns_are_short(driver: &mut MemoryDriver) {
    driver.settle();
    let (longest, late) = driver.shards[0].take_longest_turn();
    assert!(longest <= 2 * STEPS_PER_TURN && late == 0, "{longest} steps, {late} packets late");
}

#[test]
fn publishes_spend_steps_by_what_the_rules_compare() {
    const PUBLISHES: usize = 2_000;
    let mut driver = MemoryDriver::new(&with_patterns(64), 1);
    let client = long_client(&mut driver);
    let one = |n| {
        let topic = format!("t/{}/{n}/x", long_id());
        encoded(&Packet::Publish(publication(&topic, b"")), ProtocolVersion::V5)
    };
    let bytes: Vec<u8> = (0..PUBLISHES).flat_map(one).collect();
    assert!(exceeds_a_turn(&mut driver, client, &bytes), "each decision compares the names 64 times");
    assert_turns_are_short(&mut driver);
    assert_eq!(driver.shards[0].snapshot().counters.publishes_received.total(), PUBLISHES as u64);
    // A topic that the client wrote before needs no decision.
    let free = encoded(&Packet::Publish(publication("free/x", b"")), ProtocolVersion::V5);
    assert!(!exceeds_a_turn(&mut driver, client, &free.repeat(PUBLISHES)));
}

#[test]
fn subscribe_and_unsubscribe_spend_steps_by_what_the_rules_compare() {
    const FILTERS: usize = 1_000;
    let mut driver = MemoryDriver::new(&with_patterns(8), 1);
    let client = long_client(&mut driver);
    let texts: Vec<String> = (0..FILTERS).map(|n| n.to_string()).collect();
    let options = SubscriptionOptions { qos: QoS::AtLeastOnce, ..Default::default() };
    let filters = texts.iter().map(|filter| SubscribeFilter { filter, options }).collect();
    let packet =
        Subscribe { packet_id: FIRST, subscription_id: None, properties: Properties::EMPTY, filters };
    let bytes = encoded(&Packet::Subscribe(packet), ProtocolVersion::V5);
    assert!(exceeds_a_turn(&mut driver, client, &bytes), "the names are copied and compared 8 times");
    assert_turns_are_short(&mut driver);
    assert!(driver.links[client].received.ends_with(&[0x87; FILTERS]));
    let filters = texts.iter().map(String::as_str).collect();
    let packet = Unsubscribe { packet_id: FIRST, properties: Properties::EMPTY, filters };
    exceeds_a_turn(&mut driver, client, &encoded(&Packet::Unsubscribe(packet), ProtocolVersion::V5));
    assert_turns_are_short(&mut driver);
}

#[test]
fn a_filter_that_would_take_longer_than_a_turn_is_granted_and_its_messages_are_checked() {
    let mut settings = driver::settings();
    let rules: String = (0..400).map(|n| format!("topic read g/{n}/+\ntopic deny g/{n}/x\n")).collect();
    settings.access.files.broker = Some(acl(&format!("topic write #\n{rules}")));
    let mut driver = MemoryDriver::new(&settings, 1);
    let client = enter(&mut driver, connect("c"));
    driver.links[client].received.clear();
    driver.shards[0].take_longest_turn();
    subscribe(&mut driver, client, &["g/#"], QoS::AtMostOnce);
    assert!(driver.links[client].received.ends_with(&[0]), "granted");
    assert_turns_are_short(&mut driver);
    driver.links[client].received.clear();
    publish(&mut driver, client, "g/7/x", QoS::AtMostOnce, 0);
    assert!(driver.links[client].received.is_empty(), "denied");
    publish(&mut driver, client, "g/7/y", QoS::AtMostOnce, 0);
    assert!(!driver.links[client].received.is_empty(), "granted");
}

#[test]
fn a_message_to_many_whom_the_rules_decide_about_goes_out_in_portions() {
    const RECEIVERS: usize = 600;
    let mut settings = driver::settings();
    let rules: String = (0..200).map(|n| format!("topic read +/{n}/y\n")).collect();
    settings.access.files.broker = Some(acl(&format!("topic write #\ntopic read +/x\n{rules}")));
    let mut driver = MemoryDriver::new(&settings, 1);
    let receivers: Vec<LinkId> = (0..RECEIVERS)
        .map(|n| {
            let link = enter(&mut driver, connect(&n.to_string()));
            subscribe(&mut driver, link, &["#"], QoS::AtMostOnce);
            driver.links[link].received.clear();
            link
        })
        .collect();
    let publisher = enter(&mut driver, connect("publisher"));
    let bytes = encoded(&Packet::Publish(publication("a/x", b"")), ProtocolVersion::V5);
    exceeds_a_turn(&mut driver, publisher, &bytes);
    let sent = driver.shards[0].snapshot().counters.sent.total();
    assert!(sent < RECEIVERS as u64, "{sent} in the first turn");
    assert_turns_are_short(&mut driver);
    assert!(receivers.iter().all(|link| !driver.links[*link].received.is_empty()));
}

#[test]
fn a_connect_spends_steps_by_the_globs_that_look_at_its_client_id() {
    let mut settings = driver::settings();
    let objective = |n: usize| Objective {
        name: n.to_string(),
        topic: "t".into(),
        client_id: format!("*{n}*x").parse().ok(),
        within: Duration::from_secs(5),
        target: 0.99,
    };
    settings.objectives = (0..16).map(objective).collect();
    let mut driver = MemoryDriver::new(&settings, 1);
    let mut bans = BanList::default();
    (0..256).for_each(|n| bans.add(Banned::Clients(format!("*{n}*x").parse().expect("a glob")), None));
    driver.shards[0].permission_changes().replace_bans(Some(Arc::new(bans)));
    driver.shards[0].take_longest_turn();
    enter(&mut driver, connect(&long_id()));
    let (longest, _) = driver.shards[0].take_longest_turn();
    let looked_at = (256 + 16) * LONGEST as u32;
    assert!((looked_at / 64..2 * STEPS_PER_TURN).contains(&longest), "{longest} steps");
}

/// Returns 256 globs that match no client id of these tests, and then these.
fn globs(further: &[&str]) -> Arc<BanList> {
    let mut bans = BanList::default();
    let all =
        (0..256 - further.len()).map(|n| format!("*{n}*x")).chain(further.iter().map(|&glob| glob.into()));
    all.for_each(|glob: String| bans.add(Banned::Clients(glob.parse().expect("a glob")), None));
    Arc::new(bans)
}

/// Returns the longest Client Identifier that a packet can have.
fn longest_id() -> String {
    "c".repeat(usize::from(u16::MAX))
}

/// 256 globs look at 64 KiB each for 30 ms.
#[test]
fn a_connect_with_the_longest_client_id_is_matched_with_globs_in_portions() {
    for (further, connects) in [(&[][..], true), (&["c*c"], false)] {
        let mut driver = MemoryDriver::new(&driver::settings(), 1);
        driver.shards[0].permission_changes().replace_bans(Some(globs(further)));
        driver.shards[0].take_longest_turn();
        let id = longest_id();
        let bytes = encoded(&Packet::Connect(Box::new(connect(&id))), ProtocolVersion::V5);
        let link = driver.open();
        assert!(exceeds_a_turn(&mut driver, link, &bytes), "{further:?}");
        assert!(driver.links[link].received.is_empty(), "the search is not done");
        assert_turns_are_short(&mut driver);
        assert_eq!(driver.is_open(link), connects, "{further:?}");
        let banned = driver.shards[0].snapshot().counters.banned_connects;
        assert_eq!((driver.links[link].received[3], banned), if connects { (0, 0) } else { (0x8A, 1) });
    }
}

#[test]
fn a_search_for_a_ban_begins_anew_with_other_bans() {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    driver.shards[0].permission_changes().replace_bans(Some(globs(&[])));
    let id = longest_id();
    let bytes = encoded(&Packet::Connect(Box::new(connect(&id))), ProtocolVersion::V5);
    let link = driver.open();
    assert!(exceeds_a_turn(&mut driver, link, &bytes));
    // The first glob of the new list is one that the search would have passed.
    let mut bans = BanList::default();
    bans.add(Banned::Clients("c*".parse().expect("a glob")), None);
    (0..255).for_each(|n| bans.add(Banned::Clients(format!("*{n}*x").parse().expect("a glob")), None));
    driver.shards[0].permission_changes().replace_bans(Some(Arc::new(bans)));
    driver.settle();
    assert!(!driver.is_open(link) && driver.links[link].received[3] == 0x8A);
}

#[test]
fn a_connected_client_with_the_longest_id_is_looked_at_in_portions_after_a_reload_of_bans() {
    for (further, stays) in [(&[][..], true), (&["c*c"], false)] {
        let mut driver = MemoryDriver::new(&driver::settings(), 1);
        let link = enter(&mut driver, connect(&longest_id()));
        driver.shards[0].permission_changes().replace_bans(Some(globs(further)));
        let (now, id) = (driver.now, driver.id(link));
        driver.shards[0].take_longest_turn();
        let mut turns = 1;
        loop {
            driver.shards[0].begin_turn();
            if driver.shards[0].permission_changes().disconnect_if_banned(now, id, None) != BanCheck::Later {
                break;
            }
            turns += 1;
        }
        // 64 bytes for a step.
        let least = 256 * u32::from(u16::MAX) / 64 / STEPS_PER_TURN;
        assert!((least..2 * least).contains(&turns), "{turns}");
        assert_turns_are_short(&mut driver);
        assert_eq!(driver.is_open(link), stays, "{further:?}");
    }
}

/// Returns the growth of what is charged while `publishes` messages are published.
fn growth(driver: &mut MemoryDriver, publisher: LinkId, publishes: u16, retain: bool) -> u64 {
    driver.settle();
    let before = driver.shared.budget.in_use();
    for n in 1..=publishes {
        let topic = if retain { format!("free/{n}") } else { "free".to_owned() };
        let (qos, packet_id) = (QoS::AtLeastOnce, PacketId::new(n));
        send(
            driver,
            publisher,
            &Packet::Publish(Publish { qos, packet_id, retain, ..publication(&topic, b"x") }),
        );
    }
    driver.shared.budget.in_use() - before
}

#[test]
fn the_messages_of_a_publisher_share_its_name_for_dead_letters() {
    const MESSAGES: u16 = 1_000;
    let mut settings = driver::settings();
    settings.session.send.redelivery.dead_letters = [DropReason::Expired].into_iter().collect();
    let mut driver = MemoryDriver::new(&settings, 1);
    let properties = ConnectProperties { session_expiry: Some(600), ..Default::default() };
    let away = enter(&mut driver, Connect { properties, ..connect("away") });
    subscribe(&mut driver, away, &["free"], QoS::AtLeastOnce);
    driver.close(away);
    let publisher = enter(&mut driver, connect(&long_id()));
    let grown = growth(&mut driver, publisher, MESSAGES, false);
    assert!(grown < u64::from(MESSAGES) * LONGEST as u64 / 2, "{grown} bytes");
}

#[test]
fn the_retained_messages_of_a_session_share_its_source() {
    const MESSAGES: u16 = 40;
    let mut settings = with_patterns(1);
    settings.access.retain_source = RetainSourceCheck::Check;
    let mut driver = MemoryDriver::new(&settings, 1);
    let publisher = enter(&mut driver, connect(&long_id()));
    let grown = growth(&mut driver, publisher, MESSAGES, true);
    assert!(grown < u64::from(MESSAGES) * LONGEST as u64 / 2, "{grown} bytes");
}
