//! Work that clients cause with one packet, one return or one commit, at its limits: expired
//! queues, gates, large packets. A turn does a portion of it, and later turns do the rest.

use crate::client::{self, client, connect, encoded, enter, publication, subscribe, take, take_packets};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::mqtt::outcome::Outcome;
use homing::mqtt::packet::{Connect, ConnectProperties, Packet, PacketId, Publish, PublishProperties, QoS};
use homing::peers::outbound::{Needs, Peer, Readiness, Waiter};
use homing::peers::peer_batch::{Item, ReportTo};
use homing::persistence::records::Lsn;
use homing::routing::subscription_tree::ShardId;
use homing::session::drops::DropReason;
use homing::session::inbound::{AnnouncedLimits, Receiver};
use homing::session::outbound::queue::QueuePolicy;
use homing::shard::ReadProgress;
use homing::shard::turn::STEPS_PER_TURN;
use std::time::Duration;

const STEPS: u32 = 200;

fn driver(messages: usize, policy: QueuePolicy) -> MemoryDriver {
    let mut settings = driver::settings();
    settings.steps_per_turn = STEPS;
    settings.session.receive_maximum = u16::MAX;
    settings.session.send.queue.messages = messages;
    settings.session.send.queue.policy = policy;
    MemoryDriver::new(&settings, 1)
}

/// A client whose session outlives its connection.
fn lasting(driver: &mut MemoryDriver, name: &str) -> LinkId {
    let properties = ConnectProperties { session_expiry: Some(1_000), ..Default::default() };
    enter(driver, Connect { properties, clean_start: false, ..connect(name) })
}

/// Clients with subscriptions to `t` at QoS 1, which have left.
fn leave(driver: &mut MemoryDriver, clients: usize) {
    for n in 0..clients {
        let link = lasting(driver, &format!("away {n}"));
        subscribe(driver, link, &["t"], QoS::AtLeastOnce);
        driver.close(link);
    }
}

/// A PUBLISH to `t` at QoS 1 that expires after a second, or never.
fn message(id: usize, expiry: Option<u32>, payload: &[u8]) -> Vec<u8> {
    let properties = PublishProperties { message_expiry: expiry, ..Default::default() };
    let packet_id = PacketId::new((id % 60_000 + 1) as u16);
    let publish = Publish { qos: QoS::AtLeastOnce, packet_id, properties, ..publication("t", payload) };
    encoded(&Packet::Publish(publish), client::V5)
}

fn drops(driver: &MemoryDriver, cause: DropReason) -> u64 {
    driver.shards[0].snapshot().counters.drops.of(cause)
}

/// Runs turns until there is no work. No turn drops more than `most` expired messages.
fn settle(driver: &mut MemoryDriver, mut before: u64, most: u64) {
    loop {
        let now = drops(driver, DropReason::Expired);
        assert!(now - before <= most, "{} expired messages in one turn", now - before);
        if !driver.shards[0].has_work() {
            return;
        }
        before = now;
        driver.turn();
    }
}

/// The longest turn, in steps, since the last call.
fn longest(driver: &mut MemoryDriver) -> u32 {
    let (longest, late) = driver.shards[0].take_longest_turn();
    assert_eq!(late, 0, "packets that began in a turn that was over");
    longest
}

#[test]
fn a_publish_to_full_queues_of_expired_messages_drops_them_in_portions() {
    const AWAY: usize = 100;
    const QUEUED: usize = 64;
    for stored in [false, true] {
        let mut driver = driver(QUEUED, QueuePolicy::Refuse);
        if stored {
            driver.keep_in_store();
        }
        leave(&mut driver, AWAY);
        let publisher = client(&mut driver, "p", 10);
        for n in 0..QUEUED {
            driver.send(publisher, &message(n, Some(1), b"old"));
        }
        driver.advance(Duration::from_secs(2));
        driver.links[publisher].received.clear();
        longest(&mut driver);
        // As many again: each takes the place of one that has expired, and none is refused.
        for n in 0..QUEUED {
            let before = drops(&driver, DropReason::Expired);
            driver.send_unsettled(publisher, &message(n, None, b"new"));
            settle(&mut driver, before, u64::from(STEPS) + 8);
        }
        assert_eq!(drops(&driver, DropReason::Expired), (AWAY * QUEUED) as u64);
        assert_eq!(drops(&driver, DropReason::QueueRefused), 0);
        let mut taken = 0;
        take_packets(&mut driver, publisher, client::V5, |packet| match packet {
            Packet::Puback(ack) => taken += usize::from(!ack.reason.is_error()),
            other => panic!("{other:?}"),
        });
        assert_eq!(taken, QUEUED);
        let longest = longest(&mut driver);
        assert!(longest <= STEPS + STEPS / 2 + 40, "a turn of {longest} steps");
    }
}

#[test]
fn a_large_message_to_full_queues_of_small_ones_drops_them_in_portions() {
    const AWAY: usize = 10;
    const QUEUED: usize = 1_000;
    for (policy, cause) in
        [(QueuePolicy::Refuse, DropReason::Expired), (QueuePolicy::DropOldest, DropReason::QueueOverflow)]
    {
        let mut settings = driver::settings();
        settings.steps_per_turn = STEPS;
        settings.session.receive_maximum = u16::MAX;
        settings.session.send.queue.messages = QUEUED;
        let size = 200 * QUEUED;
        (settings.session.send.queue.bytes, settings.session.send.queue.policy) = (size, policy);
        let mut driver = MemoryDriver::new(&settings, 1);
        leave(&mut driver, AWAY);
        let publisher = client(&mut driver, "p", 10);
        let expiry = (cause == DropReason::Expired).then_some(1);
        (0..QUEUED).for_each(|n| driver.send(publisher, &message(n, expiry, b"old")));
        driver.advance(Duration::from_secs(2));
        driver.links[publisher].received.clear();
        driver.send_unsettled(publisher, &message(1, None, &vec![b'n'; size - 1_000]));
        // Those of one receiver are dropped at once, in proportion to the bytes of the new one.
        let most = (QUEUED + STEPS as usize) as u64;
        assert!(drops(&driver, cause) <= most, "{} in one turn", drops(&driver, cause));
        driver.settle();
        assert!(drops(&driver, cause) > (AWAY * QUEUED * 9 / 10) as u64);
        assert_eq!(drops(&driver, DropReason::QueueRefused), 0);
    }
}

#[test]
fn a_client_that_returns_to_very_many_expired_messages_drops_them_in_portions() {
    const QUEUED: usize = 5_000;
    let mut driver = driver(QUEUED + 1, QueuePolicy::Refuse);
    leave(&mut driver, 1);
    let publisher = client(&mut driver, "p", 10);
    (0..QUEUED).for_each(|n| driver.send(publisher, &message(n, Some(1), b"old")));
    driver.send(publisher, &message(1, None, b"new"));
    driver.advance(Duration::from_secs(2));
    longest(&mut driver);
    let link = driver.open();
    let properties = ConnectProperties { session_expiry: Some(1_000), ..Default::default() };
    let connect = Connect { properties, clean_start: false, ..connect("away 0") };
    driver.send_unsettled(link, &encoded(&Packet::Connect(Box::new(connect)), client::V5));
    settle(&mut driver, 0, 1_024);
    assert_eq!(drops(&driver, DropReason::Expired), QUEUED as u64);
    assert_eq!(take(&mut driver, link, true), ["t"], "the one that has not expired");
    let longest = longest(&mut driver);
    assert!(longest <= STEPS + 1_024 + 40, "a turn of {longest} steps");
}

#[test]
fn a_client_that_returns_to_very_many_messages_is_sent_them_in_portions() {
    const QUEUED: usize = 5_000;
    let mut settings = driver::settings();
    settings.session.receive_maximum = u16::MAX;
    settings.session.send.queue.messages = QUEUED;
    settings.session.send.in_flight = u16::MAX;
    settings.steps_per_turn = STEPS;
    let mut driver = MemoryDriver::new(&settings, 1);
    leave(&mut driver, 1);
    let publisher = client(&mut driver, "p", 10);
    (0..QUEUED).for_each(|n| driver.send(publisher, &message(n, None, b"new")));
    longest(&mut driver);
    // First from the queue, and then again from the window.
    for _ in 0..2 {
        let link = lasting(&mut driver, "away 0");
        let mut came = 0;
        take_packets(&mut driver, link, client::V5, |packet| {
            came += usize::from(matches!(packet, Packet::Publish(_)));
        });
        assert_eq!(came, QUEUED);
        driver.close(link);
    }
    let longest = longest(&mut driver);
    assert!((1_000..2_500).contains(&longest), "a turn of {longest} steps");
}

#[test]
fn acknowledgements_that_waited_for_one_commit_leave_in_portions_and_in_their_order() {
    const MESSAGES: usize = 5_000;
    let mut driver = driver(MESSAGES + 1, QueuePolicy::Refuse);
    driver.keep_in_store();
    leave(&mut driver, 1);
    let publisher = client(&mut driver, "p", 10);
    driver.links[publisher].received.clear();
    driver.delays_commits = true;
    // The first batch waits for its commit, and the second has all the others.
    (0..=MESSAGES).for_each(|n| driver.send(publisher, &message(n, None, b"new")));
    let (now, id) = (driver.now, driver.id(publisher));
    for _ in 0..2 {
        let lsn = driver.batches.last().expect("a batch").lsn;
        let shard = &mut driver.shards[0];
        shard.take_longest_turn();
        shard.begin_turn();
        shard.committed(now, lsn);
        let answered = shard.outbox(id).map_or(0, |outbox| outbox.writable()) / 4;
        assert!(answered <= STEPS as usize, "{answered} acknowledgements in one turn");
        driver.settle();
    }
    let mut acknowledged = Vec::new();
    take_packets(&mut driver, publisher, client::V5, |packet| {
        if let Packet::Puback(ack) = packet {
            acknowledged.push(usize::from(ack.packet_id.get()) - 1);
        }
    });
    assert_eq!(acknowledged, (0..=MESSAGES).collect::<Vec<_>>());
    let longest = longest(&mut driver);
    assert!(longest <= STEPS + 40, "a turn of {longest} steps");
    driver.commit();
    assert!(driver.shards[0].usage().jobs == 0 && driver.shards[0].recount().is_ok());
}

#[test]
fn held_messages_for_which_room_comes_at_once_are_admitted_in_portions() {
    const MESSAGES: usize = 1_000;
    let mut driver = driver(MESSAGES, QueuePolicy::Hold);
    leave(&mut driver, 1);
    let (publisher, other) = (client(&mut driver, "p", 10), client(&mut driver, "o", 10));
    (0..MESSAGES).for_each(|n| driver.send(publisher, &message(n, Some(1), b"old")));
    driver.links[publisher].received.clear();
    (0..MESSAGES).for_each(|n| driver.send(publisher, &message(n, None, b"new")));
    assert!(driver.links[publisher].received.is_empty(), "they are held");
    driver.now = driver.now + Duration::from_secs(2);
    longest(&mut driver);
    driver.send_unsettled(other, &message(1, None, b"last"));
    driver.turn();
    let answered = driver.links[publisher].received.len() / 4;
    assert!(answered <= 2 * STEPS as usize, "{answered} at once");
    driver.settle();
    assert_eq!(driver.links[publisher].received.len() / 4, MESSAGES);
    let longest = longest(&mut driver);
    assert!(longest <= 2 * STEPS, "a turn of {longest} steps");
}

/// A PUBLISH with this number of empty User Properties, and a PINGREQ behind it.
fn with_user_properties(properties: usize) -> Vec<u8> {
    let block = [0x26, 0, 0, 0, 0].repeat(properties);
    let publish = client::packet(0x30, &[b"\0\x01t", &client::packet(0, &block)[1..]].concat());
    [&publish[..], &[0xC0, 0]].concat()
}

#[test]
fn a_packet_of_very_many_properties_or_filters_uses_up_its_turn() {
    const MOST: usize = 65_535;
    let filters = [&[0, 1, 0][..], &[0, 1, b't', 0].repeat(MOST)].concat();
    for bytes in [with_user_properties(MOST), [client::packet(0x82, &filters), vec![0xC0, 0]].concat()] {
        let mut driver = driver(10, QueuePolicy::Refuse);
        let link = client(&mut driver, "c", 10);
        driver.links[link].received.clear();
        let (now, id) = (driver.now, driver.id(link));
        let shard = &mut driver.shards[0];
        shard.take_longest_turn();
        shard.begin_turn();
        assert_eq!(shard.receive(now, id, &bytes), ReadProgress::Paused, "PINGREQ waits");
        let (steps, _) = shard.take_longest_turn();
        // 0.6 to 2.3 ms, of the 5 ms of a turn.
        assert!((STEPS_PER_TURN / 5..STEPS_PER_TURN).contains(&steps), "{steps} steps");
        driver.settle();
        assert!(driver.links[link].received.windows(2).any(|two| two == [0xD0, 0]));
    }
    let mut driver = driver(10, QueuePolicy::Refuse);
    let link = client(&mut driver, "c", 10);
    driver.links[link].received.clear();
    driver.send(link, &with_user_properties(MOST + 1));
    assert!(driver.links[link].received.starts_with(&[0xE0]) && !driver.is_open(link));
    assert_eq!(driver.links[link].received.get(2), Some(&0x97));
}

/// Longer than any of these takes in a build without optimization, on a busy machine: 0.02 to 0.2 s
/// of work. With a walk over all at each step, they took 8 to 120 s of work.
const NO_WALK: Duration = Duration::from_secs(6);

#[test]
fn a_publish_behind_very_many_unanswered_ones_costs_no_walk() {
    const UNANSWERED: u16 = 40_000;
    let begun = homing::clock::nanos();
    let mut receiver = Receiver::default();
    receiver.begin_connection(AnnouncedLimits { receive_maximum: u16::MAX, topic_alias_maximum: 0 });
    let id = |n: u16| PacketId::new(n + 1).expect("not 0");
    let mut tokens = Vec::new();
    // Those of the connection before, which no PUBLISH repeats, stand in front of the others.
    for connection in 0..2 {
        for n in 0..UNANSWERED {
            assert!(!receiver.is_at_maximum() && !receiver.owes_the_most());
            tokens.push(receiver.next_token());
            assert_eq!(receiver.report(id(n), QoS::AtLeastOnce, Outcome::Taken, 1, None), None);
        }
        if connection == 0 {
            tokens.clear();
            receiver.end_connection();
        }
    }
    for (n, token) in tokens.into_iter().enumerate() {
        receiver.answer(token, Outcome::Taken);
        assert_eq!(receiver.next_due().map(|due| due.packet_id), Some(id(n as u16)));
    }
    let took = Duration::from_nanos(homing::clock::nanos() - begun);
    assert!(took < NO_WALK, "{took:?}");
}

#[test]
fn late_answers_behind_very_many_tickets_cost_no_walk_each() {
    const TICKETS: u64 = 4_000;
    let begun = homing::clock::nanos();
    let mut peer = Peer::default();
    for number in 1..=TICKETS {
        let mut needs = Needs::default();
        needs.add(Readiness::Finished(Lsn(number)));
        needs.add(Readiness::Finished(Lsn(number)));
        peer.answer(number, Item::Ticket { number, not_taken: Vec::new(), deferred: Vec::new() }, needs);
    }
    for number in (1..=TICKETS).rev() {
        (0..4).for_each(|index| peer.send_late(number, index, Outcome::Taken));
        peer.finished_one(number);
    }
    // Each commit lets the first ticket go, and its answers behind it.
    let mut leaving = |lsn| {
        peer.committed(Lsn(lsn));
        peer.seal(ShardId(0)).map_or(0, |batch| batch.items.len())
    };
    (1..=TICKETS / 8).for_each(|number| assert_eq!(leaving(number), 5));
    assert_eq!(leaving(TICKETS) as u64, 5 * (TICKETS - TICKETS / 8));
    // The other side finds the publication of each answer.
    for index in 0..20_000 {
        peer.defer(1, &Waiter { index, report_to: ReportTo::OrphanedQueue }, 1, Outcome::Unmatched);
    }
    assert!((0..20_000).rev().all(|index| peer.late(1, index, Outcome::Taken).is_some()));
    let took = Duration::from_nanos(homing::clock::nanos() - begun);
    assert!(took < NO_WALK, "{took:?}");
}
