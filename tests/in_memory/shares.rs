//! The choice in a shared group, over whole shards: fair within 10 %, whoever publishes, and past
//! members that cannot take more.

use crate::client::{client, named_at, publication, publish, send, subscribe, take};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::mqtt::codec;
use homing::mqtt::packet::{
    Connect, ConnectProperties, Packet, PacketId, Properties, ProtocolVersion, Publish, PublishProperties,
    QoS, Subscribe, SubscribeFilter, SubscriptionOptions,
};
use homing::persistence::records::{
    RecoveredSession, SessionKey, StoredAccess, StoredSession, StoredSubscription,
};
use homing::session::drops::DropReason;
use homing::shard::recovery::placement::RecoveredShard;
use homing::shard::shard_of;
use homing::time::Instant;
use std::time::Duration;

const MEMBERS: usize = 5;
const PUBLISHERS: usize = 3;
/// By each publisher.
const MESSAGES: usize = 400;

fn member(driver: &mut MemoryDriver, n: usize) -> LinkId {
    let link = client(driver, &format!("member {n}"), 1);
    subscribe(driver, link, &["$share/group/t"], QoS::AtLeastOnce);
    link
}

/// Returns how many messages each member got. The member `stuck` acknowledges nothing.
fn shares(shards: u8, stuck: Option<usize>) -> Vec<usize> {
    let mut settings = driver::settings();
    settings.session.send.queue.messages = 2;
    let mut driver = MemoryDriver::new(&settings, shards);
    let members: Vec<LinkId> = (0..MEMBERS).map(|n| member(&mut driver, n)).collect();
    let publishers: Vec<LinkId> =
        (0..PUBLISHERS).map(|n| client(&mut driver, &format!("publisher {n}"), 100)).collect();
    let mut counts = vec![0; MEMBERS];
    for n in 0..MESSAGES {
        for publisher in &publishers {
            publish(&mut driver, *publisher, "t", QoS::AtLeastOnce, n as u16 + 1);
            for (n, link) in members.iter().enumerate() {
                counts[n] += take(&mut driver, *link, Some(n) != stuck).len();
            }
        }
    }
    counts
}

fn assert_even(counts: &[usize], total: usize) {
    let mean = total / counts.len();
    assert_eq!(counts.iter().sum::<usize>(), total, "{counts:?}");
    assert!(counts.iter().all(|n| n.abs_diff(mean) * 10 <= mean), "{counts:?}");
}

// 5.0 [MQTT-4.8.2-1]
#[test]
fn v5_members_get_even_shares_whichever_shards_they_and_the_publishers_are_on() {
    for shards in [1, 3] {
        assert_even(&shares(shards, None), PUBLISHERS * MESSAGES);
    }
}

#[test]
fn a_member_that_cannot_take_more_is_passed_over_and_the_others_share_evenly() {
    for shards in [1, 3] {
        for stuck in [0, 3] {
            let mut counts = shares(shards, Some(stuck));
            // The others got what it refused; two wait in its queue.
            assert_eq!(counts.remove(stuck), 1);
            assert_even(&counts, PUBLISHERS * MESSAGES - 3);
        }
    }
}

#[test]
fn what_was_on_its_way_to_a_session_goes_to_the_one_that_takes_its_place() {
    for shards in [2, 3] {
        let mut driver = MemoryDriver::new(&driver::settings(), shards);
        // A member that lives in another shard than the publisher.
        let names: Vec<_> = (0..50).map(|n| format!("member {n}")).collect();
        let here = shard_of("publisher 0", shards);
        let far = names.iter().position(|name| shard_of(name, shards) != here).expect("some live elsewhere");
        member(&mut driver, far);
        let publisher = client(&mut driver, "publisher 0", 100);
        driver.delays_peer_batches = true;
        publish(&mut driver, publisher, "t", QoS::AtLeastOnce, 1);
        let afresh = member(&mut driver, far);
        driver.delays_peer_batches = false;
        driver.settle();
        assert_eq!(take(&mut driver, afresh, true).len(), 1);
    }
}

// Seed 26306; the mutation `expired_on_its_way_is_shared`. 5.0 [MQTT-3.3.2-5]
#[test]
fn v5_a_message_of_an_ended_session_that_expires_on_its_way_to_another_shard_is_dropped() {
    for (seconds, expected) in [(1, 1), (3, 0)] {
        let mut driver = MemoryDriver::new(&driver::settings(), 2);
        let [first, next] = [0, 1].map(|shard| client(&mut driver, &named_at("member", shard, 2), 1));
        let publisher = client(&mut driver, "publisher", 100);
        subscribe(&mut driver, first, &["$share/group/t"], QoS::AtLeastOnce);
        let properties = PublishProperties { message_expiry: Some(2), ..Default::default() };
        let publish = Publish {
            qos: QoS::AtLeastOnce,
            packet_id: PacketId::new(1),
            properties,
            ..publication("t", b"x")
        };
        send(&mut driver, publisher, &Packet::Publish(publish));
        assert_eq!(take(&mut driver, first, false).len(), 1);
        subscribe(&mut driver, next, &["$share/group/t"], QoS::AtLeastOnce);
        driver.links[next].received.clear();
        driver.delays_peer_batches = true;
        driver.close(first);
        driver.now = driver.now + Duration::from_secs(seconds);
        driver.delays_peer_batches = false;
        driver.settle();
        assert_eq!(take(&mut driver, next, true).len(), expected, "after {seconds} of 2 s");
        let expired = driver.shards[1].snapshot().counters.drops.of(DropReason::Expired);
        assert_eq!(expired, 1 - expected as u64, "after {seconds} of 2 s");
    }
}

/// So many filters, each shared.
fn shared_filters(n: usize) -> Vec<String> {
    (0..n).map(|n| format!("$share/group/filter/{n}")).collect()
}

#[test]
fn a_start_tells_peers_of_a_restored_shared_subscription_once() {
    const FILTERS: usize = 1_000;
    let mut driver = MemoryDriver::new(&driver::settings(), 2);
    let name =
        (0..).map(|n| format!("member {n}")).find(|name| shard_of(name, 2).0 == 0).expect("some live there");
    let session = StoredSession {
        key: SessionKey(1),
        client_id: name.as_str().into(),
        version: ProtocolVersion::V5,
        expiry: u32::MAX,
        connected: true,
        ends: Instant::NEVER,
        will: None,
        will_due: Instant::NEVER,
        retry_interval: None,
        ack_timeout: None,
        user_name: None,
        access: StoredAccess::default(),
    };
    let stored = |filter: &String| StoredSubscription {
        session: session.key,
        filter: filter.as_str().into(),
        options: 1,
        subscription_id: 0,
    };
    let subscriptions = shared_filters(FILTERS).iter().map(stored).collect();
    let recovered = RecoveredSession { session, subscriptions, incoming: Vec::new(), entries: Vec::new() };
    let share = RecoveredShard { next_number: 10, sessions: vec![recovered], ..RecoveredShard::default() };
    driver.shards[0].take_up(Instant::ZERO, share);
    driver.settle();
    assert_eq!(driver.sent_items, FILTERS);
    // It is chosen only as one that is away, and no more so once it is back.
    let publisher = client(&mut driver, "publisher", 100);
    publish(&mut driver, publisher, "filter/7", QoS::AtMostOnce, 0);
    assert_eq!(driver.shards[0].snapshot().counters.drops.total(), 0);
    publish(&mut driver, publisher, "filter/7", QoS::AtLeastOnce, 1);
    assert_eq!(driver.shards[0].usage().longest_queue, 1);
}

#[test]
fn a_client_with_many_shared_subscriptions_comes_and_goes_with_one_item_to_each_peer() {
    const FILTERS: usize = 1_000;
    let mut settings = driver::settings();
    settings.session.subscriptions.filters = FILTERS;
    let mut driver = MemoryDriver::new(&settings, 3);
    let filters = shared_filters(FILTERS);
    let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
    let stays = |driver: &mut MemoryDriver, clean_start| {
        let link = driver.open();
        let connect = Connect {
            version: ProtocolVersion::V3_1_1,
            clean_start,
            keep_alive: 0,
            properties: ConnectProperties::default(),
            client_id: "many",
            will: None,
            user_name: None,
            password: None,
        };
        let mut bytes = Vec::new();
        let connect = Packet::Connect(Box::new(connect));
        codec::encode(&connect, ProtocolVersion::V3_1_1, &mut bytes).expect("a lawful packet");
        driver.send(link, &bytes);
        link
    };
    let mut link = stays(&mut driver, false);
    let mut bytes = Vec::new();
    let options = SubscriptionOptions { qos: QoS::AtLeastOnce, ..Default::default() };
    let subscribe = Packet::Subscribe(Subscribe {
        packet_id: PacketId::new(1).expect("not 0"),
        subscription_id: None,
        properties: Properties::EMPTY,
        filters: filters.iter().map(|filter| SubscribeFilter { filter, options }).collect(),
    });
    codec::encode(&subscribe, ProtocolVersion::V3_1_1, &mut bytes).expect("a lawful packet");
    driver.send(link, &bytes);
    driver.sent_items = 0;
    for _ in 0..10 {
        driver.close(link);
        link = stays(&mut driver, false);
    }
    assert_eq!(driver.sent_items, 10 * 2 * 2);
    // Every group knows: it is chosen before one that is away, and not while it is away itself.
    let publisher = client(&mut driver, "publisher", 100);
    driver.links[link].received.clear();
    publish(&mut driver, publisher, "filter/999", QoS::AtMostOnce, 0);
    assert!(!driver.links[link].received.is_empty());
    driver.close(link);
    publish(&mut driver, publisher, "filter/999", QoS::AtLeastOnce, 1);
    assert_eq!(driver.shards.iter().map(|s| s.usage().longest_queue).sum::<usize>(), 1);
    // Its session ends: nothing is kept of it.
    let link = stays(&mut driver, true);
    driver.close(link);
    assert!(driver.shards.iter().all(|s| s.usage().index_entries == 0));
}

/// A group of connected members with a message in flight and one in the queue each, who can take no
/// more.
fn full_group(shards: u8, members: usize) -> (MemoryDriver, Vec<LinkId>, LinkId) {
    let mut settings = driver::settings();
    settings.session.send.queue.messages = 1;
    settings.session.receive_maximum = 65_535;
    let mut driver = MemoryDriver::new(&settings, shards);
    let links: Vec<LinkId> = (0..members).map(|n| member(&mut driver, n)).collect();
    let publisher = client(&mut driver, "publisher", 100);
    for (n, link) in links.iter().enumerate() {
        let own = format!("own/{n}");
        subscribe(&mut driver, *link, &[&own], QoS::AtLeastOnce);
        publish(&mut driver, publisher, &own, QoS::AtLeastOnce, n as u16 + 1);
        publish(&mut driver, publisher, &own, QoS::AtLeastOnce, n as u16 + 1);
    }
    (driver, links, publisher)
}

#[test]
fn a_message_to_a_group_of_full_members_is_on_its_way_a_bounded_number_of_times() {
    for (members, at_most) in [(4, 4), (100, 16 + 3 * 4), (400, 16 + 3 * 4)] {
        let (mut driver, _, publisher) = full_group(4, members);
        driver.links[publisher].received.clear();
        for (qos, id) in [(QoS::AtMostOnce, 0), (QoS::AtLeastOnce, 1)] {
            driver.passed_on = 0;
            publish(&mut driver, publisher, "t", qos, id);
            assert!(driver.passed_on <= at_most, "{} times, {members} members", driver.passed_on);
        }
        // 0x97, once and for all.
        assert!(driver.links[publisher].received.ends_with(&[0x40, 3, 0, 1, 0x97]));
    }
}

#[test]
fn the_one_of_many_members_that_can_take_more_is_found_wherever_it_is() {
    for shards in [1, 4] {
        let (mut driver, links, publisher) = full_group(shards, 60);
        for free in [0, 17, 30, 59] {
            // It takes what waits for it, and what is published then.
            while !take(&mut driver, links[free], true).is_empty() {}
            publish(&mut driver, publisher, "t", QoS::AtLeastOnce, 1);
            assert_eq!(take(&mut driver, links[free], false).len(), 1, "{shards} shards, member {free}");
            // And fills up: one in flight, one in the queue.
            publish(&mut driver, publisher, "t", QoS::AtLeastOnce, 1);
        }
        let dropped: u64 = driver.shards.iter().map(|s| s.snapshot().counters.drops.total()).sum();
        assert_eq!(dropped, 0);
    }
}

#[test]
fn a_message_to_a_group_of_full_members_costs_steps_in_proportion_to_them() {
    for members in [100, 400] {
        let (mut driver, _, publisher) = full_group(1, members);
        for (qos, id) in [(QoS::AtMostOnce, 0), (QoS::AtLeastOnce, 1)] {
            driver.shards[0].take_longest_turn();
            publish(&mut driver, publisher, "t", qos, id);
            let (longest, _) = driver.shards[0].take_longest_turn();
            assert!(longest <= 5 * members as u32, "{longest} steps, {members} members");
        }
    }
}
