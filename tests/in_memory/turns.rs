//! How much one turn does, counted in steps, and that the rest is done in later ones.

use crate::world::{self, LinkId, World};
use homing::journal::record::Record;
use homing::mqtt::message::{Message, Parts};
use homing::mqtt::packet::QoS;
use homing::routing::retained::{Retained, RetainedLimits};
use homing::routing::shard::Progress;
use homing::time::Instant;
use std::time::Duration;

const STEPS: u32 = 100;

fn world() -> World {
    let mut settings = world::settings();
    settings.steps_per_turn = STEPS;
    World::new(&settings, 1)
}

fn client(world: &mut World, name: u8) -> LinkId {
    let link = world.open();
    world.send(link, &[0x10, 13, 0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0, 0, 0, 1, name]);
    world.links[link].received.clear();
    link
}

/// QoS 0 to `t`, without a payload.
const PUBLISH: [u8; 5] = [0x30, 3, 0, 1, b't'];
const PINGREQ: [u8; 2] = [0xC0, 0];
const PINGRESP: [u8; 2] = [0xD0, 0];

#[test]
fn packets_beyond_the_steps_of_a_turn_are_handled_in_later_turns() {
    let mut world = world();
    let (flood, other) = (client(&mut world, b'f'), client(&mut world, b'o'));
    let flooded = world.id(flood);
    let bytes = PUBLISH.repeat(10 * STEPS as usize);
    let (now, shard) = (world.now, &mut world.shards[0]);
    shard.begin_turn();
    assert_eq!(shard.receive(now, flooded, &bytes), Progress::Paused);
    assert_eq!(shard.figures().received, u64::from(STEPS));
    assert!(!shard.reads(flooded), "it is not read before it has had its next turn");
    // Another client has its turn in between.
    world.send(other, &PINGREQ);
    assert_eq!(world.links[other].received, PINGRESP);
    world.settle();
    let shard = &mut world.shards[0];
    assert_eq!(shard.figures().received, u64::from(10 * STEPS));
    assert!(shard.reads(flooded) && !shard.has_jobs());
    let (longest, late) = shard.take_longest_turn();
    assert!(longest <= STEPS + 20 && late == 0, "a turn of {longest} steps, {late} packets late");
}

/// The PUBLISHes in what came.
fn publishes(mut received: &[u8]) -> usize {
    let mut found = 0;
    while let Some(first) = received.first() {
        found += usize::from(first >> 4 == 3);
        received = first_packet(received).1;
    }
    found
}

#[test]
fn delayed_messages_that_are_due_together_are_published_in_one_tick_over_several_turns() {
    const MESSAGES: usize = 3_000;
    for shards in [1, 2] {
        let mut settings = world::settings();
        settings.steps_per_turn = STEPS;
        settings.delayed.messages = MESSAGES;
        let mut world = World::new(&settings, shards);
        // "s" and "x" have different homes among two.
        let (publisher, subscriber) = (client(&mut world, b'p'), client(&mut world, b's'));
        let other = client(&mut world, b'x');
        for link in [subscriber, other] {
            world.send(link, &[0x82, 6, 0, 1, 0, 1, b't', 0]);
            world.links[link].received.clear();
        }
        let later = b"\x30\x0E\0\x0C$delayed/1/t";
        for _ in 0..MESSAGES {
            world.send(publisher, later);
        }
        for shard in &mut world.shards {
            shard.take_longest_turn();
        }
        // One second, and a tick of 250 ms.
        world.advance(Duration::from_millis(1_250));
        for link in [subscriber, other] {
            assert_eq!(publishes(&world.links[link].received), MESSAGES);
        }
        for shard in &mut world.shards {
            let (longest, _) = shard.take_longest_turn();
            assert!(longest <= STEPS + 20, "a turn of {longest} steps, {shards} shards");
        }
    }
}

#[test]
fn delayed_messages_wait_while_a_peer_has_as_much_as_it_should_and_then_go_on() {
    const MESSAGES: usize = 10_000;
    let mut settings = world::settings();
    settings.delayed.messages = MESSAGES;
    let mut world = World::new(&settings, 2);
    // One of them has another home than the publisher.
    let [publisher, one, other] = [b'p', b's', b'x'].map(|name| client(&mut world, name));
    for link in [one, other] {
        world.send(link, &[0x82, 6, 0, 1, 0, 1, b't', 0]);
        world.links[link].received.clear();
    }
    world.send(publisher, &b"\x30\x0E\0\x0C$delayed/1/t".repeat(MESSAGES));
    world.holds_parcels = true;
    world.advance(Duration::from_millis(1_250));
    let outstanding = |world: &World| world.shards.iter().map(|s| s.census().outstanding).sum::<usize>();
    assert!((1_000..MESSAGES).contains(&outstanding(&world)), "{}", outstanding(&world));
    world.holds_parcels = false;
    world.settle();
    for link in [one, other] {
        assert_eq!(publishes(&world.links[link].received), MESSAGES);
    }
    assert!(world.shards.iter().all(|s| s.census().jobs == 0));
}

/// A packet with a body of any length.
fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![first];
    let mut length = body.len();
    loop {
        let more = if length > 127 { 0x80 } else { 0 };
        packet.push((length & 127) as u8 | more);
        length >>= 7;
        if more == 0 {
            break;
        }
    }
    [&packet[..], body].concat()
}

/// SUBSCRIBE at QoS 1 (0x82), or UNSUBSCRIBE (0xA2).
fn naming(first: u8, filters: &[String]) -> Vec<u8> {
    let mut body = vec![0, 1];
    for filter in filters {
        body.extend((filter.len() as u16).to_be_bytes());
        body.extend(filter.as_bytes());
        body.extend((first == 0x82).then_some(1));
    }
    packet(first, &body)
}

/// The body of the first packet that came, and what came behind it.
fn first_packet(received: &[u8]) -> (&[u8], &[u8]) {
    let (mut at, mut length) = (1, 0);
    while let Some(byte) = received.get(at) {
        length |= usize::from(byte & 127) << (7 * (at - 1));
        at += 1;
        if byte & 0x80 == 0 {
            break;
        }
    }
    received[at..].split_at(length)
}

/// So many messages are retained, of QoS 0 or 1.
fn retain(world: &mut World, messages: usize, qos: QoS) {
    let mut retained = world.common.retained();
    *retained = Retained::new(RetainedLimits::UNLIMITED);
    for n in 0..messages {
        let topic = format!("retained/{n}");
        let parts = Parts {
            qos,
            retain: true,
            expires: Instant::NEVER,
            topic: &topic,
            forwarded: &[],
            payload: b"x",
        };
        retained.set(Message::new(parts, &mut Vec::new()), Instant::ZERO).expect("room");
    }
}

fn short_turns(shards: u8) -> World {
    let mut settings = world::settings();
    settings.steps_per_turn = STEPS;
    settings.subscriptions_per_client = 3_000;
    World::new(&settings, shards)
}

fn assert_no_long_turn(world: &mut World) {
    for shard in &mut world.shards {
        let (longest, late) = shard.take_longest_turn();
        assert!(longest <= 2 * STEPS && late == 0, "a turn of {longest} steps, {late} packets late");
    }
}

#[test]
fn mqtt5_3_8_4_5_filters_beyond_the_steps_of_a_turn_are_entered_and_taken_out_in_later_turns() {
    const FILTERS: usize = 2_500;
    for shards in [1, 2] {
        let mut world = short_turns(shards);
        let [subscriber, publisher] = [b's', b'p'].map(|name| client(&mut world, name));
        let filters: Vec<String> = (0..FILTERS).map(|n| format!("f/{n}")).collect();
        world.shards.iter_mut().for_each(|shard| _ = shard.take_longest_turn());
        // What it pipelines behind is answered behind.
        world.send(subscriber, &[&naming(0x82, &filters)[..], &PINGREQ].concat());
        let (suback, behind) = first_packet(&world.links[subscriber].received);
        assert_eq!(suback, [&[0, 1][..], &[1; FILTERS]].concat());
        assert_eq!(behind, PINGRESP);
        world.links[subscriber].received.clear();
        for n in [0, FILTERS - 1] {
            let topic = format!("f/{n}");
            world.send(publisher, &packet(0x30, &[&[0, topic.len() as u8], topic.as_bytes()].concat()));
        }
        assert_eq!(publishes(&world.links[subscriber].received), 2);
        world.links[subscriber].received.clear();
        world.send(subscriber, &[&naming(0xA2, &filters)[..], &PINGREQ].concat());
        assert_eq!(world.links[subscriber].received, [&[0xB0, 2, 0, 1][..], &PINGRESP].concat());
        assert!(world.shards.iter().all(|s| s.census().index_entries == 0 && s.census().jobs == 0));
        assert_no_long_turn(&mut world);
    }
}

#[test]
fn a_filter_that_a_subscribe_names_many_times_is_sent_its_retained_messages_once() {
    const RETAINED: usize = 50;
    for shards in [1, 2] {
        let mut world = short_turns(shards);
        let subscriber = client(&mut world, b's');
        retain(&mut world, RETAINED, QoS::AtMostOnce);
        world.shards.iter_mut().for_each(|shard| _ = shard.take_longest_turn());
        world.send(subscriber, &naming(0x82, &vec!["#".to_owned(); 5_000]));
        let (suback, behind) = first_packet(&world.links[subscriber].received);
        // No more are looked at than there can be different ones.
        assert_eq!(suback, [&[0, 1][..], &[1; 3_000], &[0x80; 2_000]].concat());
        assert_eq!(publishes(behind), RETAINED);
        assert_no_long_turn(&mut world);
    }
}

#[test]
fn retained_messages_beyond_the_steps_of_a_turn_are_sent_in_later_turns_and_others_have_theirs() {
    const RETAINED: usize = 3_000;
    let mut world = short_turns(1);
    let (subscriber, other) = (client(&mut world, b's'), client(&mut world, b'o'));
    retain(&mut world, RETAINED, QoS::AtMostOnce);
    let (now, id) = (world.now, world.id(subscriber));
    let shard = &mut world.shards[0];
    shard.take_longest_turn();
    shard.begin_turn();
    shard.receive(now, id, &[&naming(0x82, &["#".to_owned()])[..], &PINGREQ].concat());
    assert!(!shard.reads(id), "what it pipelined behind waits");
    world.turn();
    // Retained in the meantime, ahead and behind: it comes once, live or read.
    for topic in [b"\x0Aretained/!", b"\x0Aretained/~"] {
        world.send_unsettled(other, &packet(0x31, &[&[0], &topic[..], b"x"].concat()));
    }
    world.send_unsettled(other, &PINGREQ);
    world.turn();
    assert_eq!(world.links[other].received, PINGRESP);
    let so_far = publishes(first_packet(&world.links[subscriber].received).1);
    assert!(so_far < RETAINED, "{so_far}");
    world.settle();
    let received = &world.links[subscriber].received;
    let (suback, behind) = first_packet(received);
    assert_eq!(suback, [0, 1, 1]);
    // One is read as well: it was ahead.
    assert_eq!(publishes(behind), RETAINED + 3);
    assert!(behind.ends_with(&PINGRESP));
    assert!(world.shards[0].reads(id) && world.shards[0].census().jobs == 0);
    assert_no_long_turn(&mut world);
}

#[test]
fn a_stored_session_has_its_suback_when_all_that_is_retained_is_committed() {
    const RETAINED: usize = 500;
    for shards in [1, 2] {
        let mut world = short_turns(shards);
        world.keep_in_store();
        let subscriber = world.open();
        // 3.1.1 without Clean Session.
        world.send(subscriber, &[0x10, 13, 0, 4, b'M', b'Q', b'T', b'T', 4, 0, 0, 0, 0, 1, b's']);
        world.links[subscriber].received.clear();
        retain(&mut world, RETAINED, QoS::AtLeastOnce);
        world.batches.clear();
        world.send_unsettled(subscriber, &naming(0x82, &["#".to_owned()]));
        let is_entry = |r: &&Record| matches!(r, Record::Entry(_));
        while world.links[subscriber].received.is_empty() {
            let owed: usize = world.batches.iter().map(|b| b.records.iter().filter(is_entry).count()).sum();
            world.turn();
            world.deliver_parcels();
            assert!(world.links[subscriber].received.is_empty() || owed == RETAINED, "{owed} are committed");
        }
        assert!(world.batches.len() > 3, "it took several turns");
        // Gone in the midst of it: the session is owed all of it all the same.
        world.settle();
        world.send_unsettled(subscriber, &naming(0x82, &["#".to_owned()]));
        for _ in 0..3 {
            world.turn();
            world.deliver_parcels();
        }
        world.close(subscriber);
        let queued: usize = world
            .shards
            .iter()
            .map(|s| s.census().longest_queue + s.census().widest_window)
            .max()
            .unwrap_or(0);
        assert_eq!(queued, 2 * RETAINED);
        assert!(world.shards.iter().all(|s| s.census().jobs == 0));
    }
}

/// Subscribes to a filter at QoS 1.
fn subscribe(world: &mut World, link: LinkId, filter: &str) {
    let mut packet = vec![0x82];
    let length = 2 + 2 + filter.len() + 1;
    assert!(length < 128 * 128);
    if length < 128 {
        packet.push(length as u8);
    } else {
        packet.extend([(length % 128) as u8 | 0x80, (length / 128) as u8]);
    }
    packet.extend([0, 1, (filter.len() >> 8) as u8, filter.len() as u8]);
    packet.extend(filter.bytes());
    packet.push(1);
    world.send(link, &packet);
    world.links[link].received.clear();
}

fn named(world: &mut World, name: &str) -> LinkId {
    let link = world.open();
    let mut connect = vec![0x10, 12 + name.len() as u8, 0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0, 0, 0];
    connect.push(name.len() as u8);
    connect.extend(name.bytes());
    world.send(link, &connect);
    world.links[link].received.clear();
    link
}

/// QoS 1 to `t` under an identifier, with a payload of one byte.
fn at_least_once(id: u8, payload: u8) -> [u8; 8] {
    [0x32, 6, 0, 1, b't', 0, id, payload]
}

fn assert_turns_are_short(world: &mut World) {
    let (longest, late) = world.shards[0].take_longest_turn();
    // The last thing that is begun, and what it writes.
    assert!(longest <= STEPS + 40 && late == 0, "a turn of {longest} steps, {late} packets late");
}

/// A world with subscribers to `t`, and the turn that has a PUBLISH to them.
fn fan(receivers: usize) -> (World, LinkId, Vec<LinkId>) {
    let mut world = world();
    let links: Vec<_> = (0..receivers).map(|n| named(&mut world, &format!("r{n}"))).collect();
    for link in &links {
        subscribe(&mut world, *link, "t");
    }
    let publisher = named(&mut world, "publisher");
    world.shards[0].take_longest_turn();
    (world, publisher, links)
}

#[test]
fn a_publish_to_very_many_is_delivered_in_portions_and_acknowledged_after_the_last() {
    const RECEIVERS: usize = 950;
    let (mut world, publisher, receivers) = fan(RECEIVERS);
    let (other, second) = (named(&mut world, "other"), named(&mut world, "second"));
    let (now, ids) = (world.now, [world.id(publisher), world.id(second)]);
    let shard = &mut world.shards[0];
    for (id, payload) in ids.iter().zip([b'1', b'3']) {
        shard.begin_turn();
        let bytes = [at_least_once(1, payload), at_least_once(2, payload + 1)].concat();
        assert_eq!(shard.receive(now, *id, &bytes), Progress::Paused);
    }
    // Another client has its turn in the midst of it.
    shard.begin_turn();
    shard.work(now);
    let id = world.id(other);
    let shard = &mut world.shards[0];
    shard.begin_turn();
    assert_eq!(shard.receive(now, id, &PINGREQ), Progress::All);
    let sent = shard.figures().tally.sent;
    assert!((50..=u64::from(STEPS)).contains(&sent), "{sent} deliveries in one turn");
    assert!(world.links[publisher].received.is_empty(), "it is not acknowledged before all have it");
    world.settle();
    assert_eq!(world.links[publisher].received, [0x40, 2, 0, 1, 0x40, 2, 0, 2]);
    assert_eq!(world.links[second].received, [0x40, 2, 0, 1, 0x40, 2, 0, 2]);
    assert_eq!(world.links[other].received, PINGRESP);
    for link in receivers {
        let payloads: Vec<_> = world.links[link].received.chunks(8).map(|publish| publish[7]).collect();
        let of = |from: &[u8]| payloads.iter().copied().filter(|p| from.contains(p)).collect::<Vec<_>>();
        assert_eq!((of(b"12"), of(b"34"), payloads.len()), (b"12".to_vec(), b"34".to_vec(), 4));
    }
    assert_turns_are_short(&mut world);
}

#[test]
fn a_session_that_begins_in_the_slot_of_one_that_ended_gets_nothing_of_what_was_on_its_way() {
    const RECEIVERS: usize = 950;
    let (mut world, publisher, receivers) = fan(RECEIVERS);
    let (now, id) = (world.now, world.id(publisher));
    let shard = &mut world.shards[0];
    shard.begin_turn();
    assert_eq!(shard.receive(now, id, &at_least_once(1, b'1')), Progress::All);
    assert!(!shard.reads(id) && shard.is_fanning());
    // Straight to the shard, for the world settles after whatever it does.
    let last = world.id(receivers[RECEIVERS - 1]);
    let shard = &mut world.shards[0];
    shard.closed(now, last, "closed");
    let new = shard.accept(now);
    shard.begin_turn();
    let connect = [0x10, 13, 0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0, 0, 0, 1, b'n'];
    assert_eq!(shard.receive(now, new, &connect), Progress::All);
    while shard.has_jobs() {
        shard.begin_turn();
        shard.work(now);
    }
    assert_eq!(shard.figures().tally.sent, RECEIVERS as u64 - 1);
    let outbox = shard.outbox(new).expect("connected");
    assert_eq!(outbox.front(), [0x20, 2, 0, 0], "its CONNACK alone");
}

#[test]
fn a_publish_into_a_wildcard_bomb_is_matched_in_portions() {
    const LEVELS: u32 = 11;
    let mut settings = world::settings();
    settings.steps_per_turn = STEPS;
    settings.subscriptions_per_client = 1 << LEVELS;
    let mut world = World::new(&settings, 1);
    let (bomb, publisher, receiver) =
        (named(&mut world, "bomb"), named(&mut world, "publisher"), named(&mut world, "receiver"));
    for n in 0..1 << LEVELS {
        let level = |at: u32| if n >> at & 1 == 0 { "a/" } else { "+/" };
        let filter: String = (0..LEVELS).map(level).chain(["b"]).collect();
        subscribe(&mut world, bomb, &filter);
    }
    subscribe(&mut world, receiver, "a/#");
    world.shards[0].take_longest_turn();
    let topic = ["a"; LEVELS as usize + 1].join("/");
    let mut publish = vec![0x30, 2 + topic.len() as u8, 0, topic.len() as u8];
    publish.extend(topic.bytes());
    world.send(publisher, &publish);
    assert_eq!(world.links[receiver].received, publish);
    assert_turns_are_short(&mut world);
}

#[test]
fn filters_with_wildcards_of_more_levels_than_a_session_may_have_are_refused() {
    const LEVELS: usize = 256;
    let mut settings = world::settings();
    (settings.topic_levels, settings.subscriptions_per_client) = (LEVELS, 1_000);
    let mut world = World::new(&settings, 1);
    let link = named(&mut world, "bomb");
    let filter = |n: usize| format!("{n}/{}", vec!["+"; LEVELS - 1].join("/"));
    let filters: Vec<String> = (0..600).map(filter).collect();
    world.send(link, &naming(0x82, &filters));
    let (suback, _) = first_packet(&world.links[link].received);
    let granted = suback[2..].iter().filter(|code| **code == 1).count();
    assert_eq!((granted, suback.len()), (128 * 1024 / LEVELS, 2 + 600));
    assert!(suback[2 + granted..].iter().all(|code| *code == 0x80));
    // What is taken out makes room, and what has no wildcard needs none.
    world.links[link].received.clear();
    world.send(link, &naming(0xA2, &filters[..1]));
    world.links[link].received.clear();
    world.send(link, &naming(0x82, &[filter(600), filter(601), "a/b".into()]));
    let (suback, _) = first_packet(&world.links[link].received);
    assert_eq!(suback[2..], [1, 0x80, 1]);
}
