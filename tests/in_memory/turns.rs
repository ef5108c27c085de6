//! The work of one turn is bounded, counted in steps. Later turns do the rest.

use crate::client::{connect_3_1_1, packet, string};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::expiry::deadline::DeadlineKind;
use homing::login::arrival::Arrival;
use homing::mqtt::message::{Message, Parts};
use homing::mqtt::packet::QoS;
use homing::persistence::records::Record;
use homing::routing::retained::{Retained, RetainedLimits};
use homing::session::drops::{DropReason, DropReasons};
use homing::shard::{Input, ReadProgress, Shard};
use homing::time::Instant;
use std::time::Duration;

const STEPS: u32 = 100;

fn driver() -> MemoryDriver {
    let mut settings = driver::settings();
    settings.steps_per_turn = STEPS;
    MemoryDriver::new(&settings, 1)
}

fn client(driver: &mut MemoryDriver, name: u8) -> LinkId {
    named(driver, &char::from(name).to_string())
}

/// QoS 0 to `t`, without a payload.
const PUBLISH: [u8; 5] = [0x30, 3, 0, 1, b't'];
const PINGREQ: [u8; 2] = [0xC0, 0];
const PINGRESP: [u8; 2] = [0xD0, 0];
const UNSUBACK: [u8; 4] = [0xB0, 2, 0, 1];

#[test]
fn packets_beyond_the_steps_of_a_turn_are_handled_in_later_turns() {
    let mut driver = driver();
    let (flood, other) = (client(&mut driver, b'f'), client(&mut driver, b'o'));
    let flooded = driver.id(flood);
    let bytes = PUBLISH.repeat(10 * STEPS as usize);
    let (now, shard) = (driver.now, &mut driver.shards[0]);
    shard.begin_turn();
    assert_eq!(shard.receive(now, flooded, &bytes), ReadProgress::Paused);
    assert_eq!(shard.snapshot().counters.publishes_received.total(), u64::from(STEPS));
    assert!(!shard.connection(flooded).reads(), "it is not read before it has had its next turn");
    // Another client has its turn in between.
    driver.send(other, &PINGREQ);
    assert_eq!(driver.links[other].received, PINGRESP);
    driver.settle();
    let shard = &mut driver.shards[0];
    assert_eq!(shard.snapshot().counters.publishes_received.total(), u64::from(10 * STEPS));
    assert!(shard.connection(flooded).reads() && !shard.has_jobs());
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
        let mut settings = driver::settings();
        settings.steps_per_turn = STEPS;
        settings.delayed.messages = MESSAGES;
        let mut driver = MemoryDriver::new(&settings, shards);
        // "s" and "x" live in different ones of two shards.
        let (publisher, subscriber) = (client(&mut driver, b'p'), client(&mut driver, b's'));
        let other = client(&mut driver, b'x');
        for link in [subscriber, other] {
            driver.send(link, &[0x82, 6, 0, 1, 0, 1, b't', 0]);
            driver.links[link].received.clear();
        }
        let later = b"\x30\x0E\0\x0C$delayed/1/t";
        for _ in 0..MESSAGES {
            driver.send(publisher, later);
        }
        for shard in &mut driver.shards {
            shard.take_longest_turn();
        }
        // One second, and a tick of 250 ms.
        driver.advance(Duration::from_millis(1_250));
        for link in [subscriber, other] {
            assert_eq!(publishes(&driver.links[link].received), MESSAGES);
        }
        for shard in &mut driver.shards {
            let (longest, _) = shard.take_longest_turn();
            assert!(longest <= STEPS + 20, "a turn of {longest} steps, {shards} shards");
        }
    }
}

#[test]
fn delayed_messages_wait_while_a_peer_has_as_much_as_it_should_and_then_go_on() {
    const MESSAGES: usize = 10_000;
    let mut settings = driver::settings();
    settings.delayed.messages = MESSAGES;
    let mut driver = MemoryDriver::new(&settings, 2);
    // One of them lives in another shard than the publisher.
    let [publisher, one, other] = [b'p', b's', b'x'].map(|name| client(&mut driver, name));
    for link in [one, other] {
        driver.send(link, &[0x82, 6, 0, 1, 0, 1, b't', 0]);
        driver.links[link].received.clear();
    }
    driver.send(publisher, &b"\x30\x0E\0\x0C$delayed/1/t".repeat(MESSAGES));
    driver.delays_peer_batches = true;
    driver.advance(Duration::from_millis(1_250));
    let outstanding =
        |driver: &MemoryDriver| driver.shards.iter().map(|s| s.usage().outstanding).sum::<usize>();
    assert!((1_000..MESSAGES).contains(&outstanding(&driver)), "{}", outstanding(&driver));
    driver.delays_peer_batches = false;
    driver.settle();
    for link in [one, other] {
        assert_eq!(publishes(&driver.links[link].received), MESSAGES);
    }
    assert!(driver.shards.iter().all(|s| s.usage().jobs == 0));
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
fn retain(driver: &mut MemoryDriver, messages: usize, qos: QoS) {
    let mut retained = driver.shared.retained();
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

fn short_turns(shards: u8) -> MemoryDriver {
    let mut settings = driver::settings();
    settings.steps_per_turn = STEPS;
    settings.session.subscriptions.filters = 3_000;
    MemoryDriver::new(&settings, shards)
}

fn assert_no_long_turn(driver: &mut MemoryDriver) {
    for shard in &mut driver.shards {
        let (longest, late) = shard.take_longest_turn();
        assert!(longest <= 2 * STEPS && late == 0, "a turn of {longest} steps, {late} packets late");
    }
}

// 5.0 [MQTT-3.8.4-5]
#[test]
fn v5_filters_beyond_the_steps_of_a_turn_are_entered_and_taken_out_in_later_turns() {
    const FILTERS: usize = 2_500;
    for shards in [1, 2] {
        let mut driver = short_turns(shards);
        let [subscriber, publisher] = [b's', b'p'].map(|name| client(&mut driver, name));
        let filters: Vec<String> = (0..FILTERS).map(|n| format!("f/{n}")).collect();
        driver.shards.iter_mut().for_each(|shard| _ = shard.take_longest_turn());
        // A request behind it is answered behind it, and PINGREQ at once.
        let unknown = naming(0xA2, &["unknown".to_owned()]);
        driver.send(subscriber, &[&naming(0x82, &filters)[..], &unknown, &PINGREQ].concat());
        let pong = driver.links[subscriber].received.drain(..2).collect::<Vec<_>>();
        assert_eq!(pong, PINGRESP);
        let (suback, behind) = first_packet(&driver.links[subscriber].received);
        assert_eq!(suback, [&[0, 1][..], &[1; FILTERS]].concat());
        assert_eq!(behind, UNSUBACK);
        driver.links[subscriber].received.clear();
        for n in [0, FILTERS - 1] {
            let topic = format!("f/{n}");
            driver.send(publisher, &packet(0x30, &[&[0, topic.len() as u8], topic.as_bytes()].concat()));
        }
        assert_eq!(publishes(&driver.links[subscriber].received), 2);
        driver.links[subscriber].received.clear();
        driver.send(subscriber, &[&naming(0xA2, &filters)[..], &unknown].concat());
        assert_eq!(driver.links[subscriber].received, [UNSUBACK, UNSUBACK].concat());
        assert!(driver.shards.iter().all(|s| s.usage().index_entries == 0 && s.usage().jobs == 0));
        assert_no_long_turn(&mut driver);
    }
}

#[test]
fn a_filter_that_a_subscribe_names_many_times_is_sent_its_retained_messages_once() {
    const RETAINED: usize = 50;
    for shards in [1, 2] {
        let mut driver = short_turns(shards);
        let subscriber = client(&mut driver, b's');
        retain(&mut driver, RETAINED, QoS::AtMostOnce);
        driver.shards.iter_mut().for_each(|shard| _ = shard.take_longest_turn());
        driver.send(subscriber, &naming(0x82, &vec!["#".to_owned(); 5_000]));
        let (suback, behind) = first_packet(&driver.links[subscriber].received);
        // No more are looked at than there can be different ones.
        assert_eq!(suback, [&[0, 1][..], &[1; 3_000], &[0x80; 2_000]].concat());
        assert_eq!(publishes(behind), RETAINED);
        assert_no_long_turn(&mut driver);
    }
}

#[test]
fn retained_messages_beyond_the_steps_of_a_turn_are_sent_in_later_turns_and_others_have_theirs() {
    const RETAINED: usize = 3_000;
    let mut driver = short_turns(1);
    let (subscriber, other) = (client(&mut driver, b's'), client(&mut driver, b'o'));
    retain(&mut driver, RETAINED, QoS::AtMostOnce);
    let (now, id) = (driver.now, driver.id(subscriber));
    let shard = &mut driver.shards[0];
    shard.take_longest_turn();
    shard.begin_turn();
    let unknown = naming(0xA2, &["unknown".to_owned()]);
    shard.receive(now, id, &[&naming(0x82, &["#".to_owned()])[..], &unknown].concat());
    assert!(!shard.connection(id).reads(), "what it pipelined behind waits");
    driver.turn();
    // Retained in the meantime, ahead and behind: it comes once, live or read.
    for topic in [b"\x0Aretained/!", b"\x0Aretained/~"] {
        driver.send_unsettled(other, &packet(0x31, &[&[0], &topic[..], b"x"].concat()));
    }
    driver.send_unsettled(other, &PINGREQ);
    driver.turn();
    assert_eq!(driver.links[other].received, PINGRESP);
    let so_far = publishes(first_packet(&driver.links[subscriber].received).1);
    assert!(so_far < RETAINED, "{so_far}");
    driver.settle();
    let received = &driver.links[subscriber].received;
    let (suback, behind) = first_packet(received);
    assert_eq!(suback, [0, 1, 1]);
    // None is read as well, although one was ahead.
    assert_eq!(publishes(behind), RETAINED + 2);
    assert!(behind.ends_with(&UNSUBACK));
    assert!(driver.shards[0].connection(id).reads() && driver.shards[0].usage().jobs == 0);
    assert_no_long_turn(&mut driver);
}

#[test]
fn a_stored_session_has_its_suback_when_all_that_is_retained_is_committed() {
    const RETAINED: usize = 500;
    for shards in [1, 2] {
        let mut driver = short_turns(shards);
        driver.keep_in_store();
        let subscriber = driver.open();
        // 3.1.1 without Clean Session.
        driver.send(subscriber, &[0x10, 13, 0, 4, b'M', b'Q', b'T', b'T', 4, 0, 0, 0, 0, 1, b's']);
        driver.links[subscriber].received.clear();
        retain(&mut driver, RETAINED, QoS::AtLeastOnce);
        driver.batches.clear();
        driver.send_unsettled(subscriber, &naming(0x82, &["#".to_owned()]));
        let is_entry = |r: &&Record| matches!(r, Record::Entry(_));
        while driver.links[subscriber].received.is_empty() {
            let committed: usize =
                driver.batches.iter().map(|b| b.records.iter().filter(is_entry).count()).sum();
            driver.turn();
            driver.deliver_peer_batches();
            assert!(
                driver.links[subscriber].received.is_empty() || committed == RETAINED,
                "{committed} are committed"
            );
        }
        assert!(driver.batches.len() > 3, "it took several turns");
        // Gone in the midst of it: the session gets all of it all the same.
        driver.settle();
        driver.send_unsettled(subscriber, &naming(0x82, &["#".to_owned()]));
        for _ in 0..3 {
            driver.turn();
            driver.deliver_peer_batches();
        }
        driver.close(subscriber);
        let queued: usize = driver
            .shards
            .iter()
            .map(|s| s.usage().longest_queue + s.usage().widest_window)
            .max()
            .unwrap_or(0);
        assert_eq!(queued, 2 * RETAINED);
        assert!(driver.shards.iter().all(|s| s.usage().jobs == 0));
    }
}

/// Subscribes to a filter at QoS 1.
fn subscribe(driver: &mut MemoryDriver, link: LinkId, filter: &str) {
    driver.send(link, &packet(0x82, &[&[0, 1], &string(filter)[..], &[1]].concat()));
    driver.links[link].received.clear();
}

fn named(driver: &mut MemoryDriver, name: &str) -> LinkId {
    let link = driver.open();
    driver.send(link, &connect_3_1_1(name));
    driver.links[link].received.clear();
    link
}

/// QoS 1 to `t` under an identifier, with a payload of one byte.
fn at_least_once(id: u8, payload: u8) -> [u8; 8] {
    [0x32, 6, 0, 1, b't', 0, id, payload]
}

fn assert_turns_are_short(driver: &mut MemoryDriver) {
    let (longest, late) = driver.shards[0].take_longest_turn();
    // The last thing that is begun, and what it writes.
    assert!(longest <= STEPS + 40 && late == 0, "a turn of {longest} steps, {late} packets late");
}

/// A driver with subscribers to `t`, and the turn that has a PUBLISH to them.
fn fan(receivers: usize) -> (MemoryDriver, LinkId, Vec<LinkId>) {
    fan_to(receivers, |_| "t".to_owned())
}

/// The same, with the filter of each subscriber.
fn fan_to(receivers: usize, filter: impl Fn(usize) -> String) -> (MemoryDriver, LinkId, Vec<LinkId>) {
    let mut driver = driver();
    let links: Vec<_> = (0..receivers).map(|n| named(&mut driver, &format!("r{n}"))).collect();
    for (n, link) in links.iter().enumerate() {
        subscribe(&mut driver, *link, &filter(n));
    }
    let publisher = named(&mut driver, "publisher");
    driver.shards[0].take_longest_turn();
    (driver, publisher, links)
}

#[test]
fn a_publish_to_very_many_is_delivered_in_portions_and_acknowledged_after_the_last() {
    const RECEIVERS: usize = 950;
    let (mut driver, publisher, receivers) = fan(RECEIVERS);
    let (other, second) = (named(&mut driver, "other"), named(&mut driver, "second"));
    let (now, ids) = (driver.now, [driver.id(publisher), driver.id(second)]);
    let shard = &mut driver.shards[0];
    for (id, payload) in ids.iter().zip([b'1', b'3']) {
        shard.begin_turn();
        let bytes = [at_least_once(1, payload), at_least_once(2, payload + 1)].concat();
        assert_eq!(shard.receive(now, *id, &bytes), ReadProgress::Paused);
    }
    // Another client has its turn in the midst of it.
    shard.begin_turn();
    shard.work(now);
    let id = driver.id(other);
    let shard = &mut driver.shards[0];
    shard.begin_turn();
    assert_eq!(shard.receive(now, id, &PINGREQ), ReadProgress::All);
    let sent = shard.snapshot().counters.sent.total();
    assert!((50..=u64::from(STEPS)).contains(&sent), "{sent} deliveries in one turn");
    assert!(driver.links[publisher].received.is_empty(), "it is not acknowledged before all have it");
    driver.settle();
    assert_eq!(driver.links[publisher].received, [0x40, 2, 0, 1, 0x40, 2, 0, 2]);
    assert_eq!(driver.links[second].received, [0x40, 2, 0, 1, 0x40, 2, 0, 2]);
    assert_eq!(driver.links[other].received, PINGRESP);
    for link in receivers {
        let payloads: Vec<_> = driver.links[link].received.chunks(8).map(|publish| publish[7]).collect();
        let of = |from: &[u8]| payloads.iter().copied().filter(|p| from.contains(p)).collect::<Vec<_>>();
        assert_eq!((of(b"12"), of(b"34"), payloads.len()), (b"12".to_vec(), b"34".to_vec(), 4));
    }
    assert_turns_are_short(&mut driver);
}

#[test]
fn a_publish_to_very_many_groups_is_shared_in_portions_and_acknowledged_after_the_last() {
    const GROUPS: usize = 950;
    let (mut driver, publisher, members) = fan_to(GROUPS, |n| format!("$share/g{n}/t"));
    let (now, id) = (driver.now, driver.id(publisher));
    let shard = &mut driver.shards[0];
    shard.begin_turn();
    assert_eq!(shard.receive(now, id, &at_least_once(1, b'1')), ReadProgress::All);
    shard.begin_turn();
    shard.work(now);
    let sent = shard.snapshot().counters.sent.total();
    assert!((20..=u64::from(STEPS)).contains(&sent), "{sent} deliveries in one turn");
    assert!(shard.is_fanning() && shard.outbox(id).is_none_or(|outbox| outbox.is_empty()));
    driver.settle();
    assert_eq!(driver.links[publisher].received, [0x40, 2, 0, 1]);
    for link in members {
        assert_eq!(driver.links[link].received, at_least_once(1, b'1'), "once");
    }
    assert_turns_are_short(&mut driver);
}

#[test]
fn a_session_that_begins_in_the_slot_of_one_that_ended_gets_nothing_of_what_was_on_its_way() {
    const RECEIVERS: usize = 950;
    let (mut driver, publisher, receivers) = fan(RECEIVERS);
    let (now, id) = (driver.now, driver.id(publisher));
    let shard = &mut driver.shards[0];
    shard.begin_turn();
    assert_eq!(shard.receive(now, id, &at_least_once(1, b'1')), ReadProgress::All);
    assert!(!shard.connection(id).reads() && shard.is_fanning());
    // Straight to the shard, for the driver settles after whatever it does.
    let last = driver.id(receivers[RECEIVERS - 1]);
    let shard = &mut driver.shards[0];
    shard.input(now, Input::Closed(last, "closed"));
    let new = shard.accept(now, Arrival::local());
    shard.begin_turn();
    let connect = [0x10, 13, 0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0, 0, 0, 1, b'n'];
    assert_eq!(shard.receive(now, new, &connect), ReadProgress::All);
    while shard.has_jobs() {
        shard.begin_turn();
        shard.work(now);
    }
    assert_eq!(shard.snapshot().counters.sent.total(), RECEIVERS as u64 - 1);
    let outbox = shard.outbox(new).expect("connected");
    assert_eq!(outbox.front(), [0x20, 2, 0, 0], "its CONNACK alone");
}

#[test]
fn a_publish_into_a_wildcard_bomb_is_matched_in_portions() {
    const LEVELS: u32 = 11;
    let mut settings = driver::settings();
    settings.steps_per_turn = STEPS;
    settings.session.subscriptions.filters = 1 << LEVELS;
    let mut driver = MemoryDriver::new(&settings, 1);
    let (bomb, publisher, receiver) =
        (named(&mut driver, "bomb"), named(&mut driver, "publisher"), named(&mut driver, "receiver"));
    for n in 0..1 << LEVELS {
        let level = |at: u32| if n >> at & 1 == 0 { "a/" } else { "+/" };
        let filter: String = (0..LEVELS).map(level).chain(["b"]).collect();
        subscribe(&mut driver, bomb, &filter);
    }
    subscribe(&mut driver, receiver, "a/#");
    driver.shards[0].take_longest_turn();
    let topic = ["a"; LEVELS as usize + 1].join("/");
    let mut publish = vec![0x30, 2 + topic.len() as u8, 0, topic.len() as u8];
    publish.extend(topic.bytes());
    driver.send(publisher, &publish);
    assert_eq!(driver.links[receiver].received, publish);
    assert_turns_are_short(&mut driver);
}

#[test]
fn filters_with_wildcards_of_more_levels_than_a_session_may_have_are_refused() {
    const LEVELS: usize = 256;
    let mut settings = driver::settings();
    (settings.session.topic_levels, settings.session.subscriptions.filters) = (LEVELS, 1_000);
    settings.session.subscriptions.wildcard_levels = 64 * 1024;
    let mut driver = MemoryDriver::new(&settings, 1);
    let link = named(&mut driver, "bomb");
    let filter = |n: usize| format!("{n}/{}", vec!["+"; LEVELS - 1].join("/"));
    let filters: Vec<String> = (0..600).map(filter).collect();
    driver.send(link, &naming(0x82, &filters));
    let (suback, _) = first_packet(&driver.links[link].received);
    let granted = suback[2..].iter().filter(|code| **code == 1).count();
    assert_eq!((granted, suback.len()), (64 * 1024 / LEVELS, 2 + 600));
    assert!(suback[2 + granted..].iter().all(|code| *code == 0x80));
    // A removed filter makes room, and a filter without a wildcard needs none.
    driver.links[link].received.clear();
    driver.send(link, &naming(0xA2, &filters[..1]));
    driver.links[link].received.clear();
    driver.send(link, &naming(0x82, &[filter(600), filter(601), "a/b".into()]));
    let (suback, _) = first_packet(&driver.links[link].received);
    assert_eq!(suback[2..], [1, 0x80, 1]);
}

/// CONNECT of 3.1.1 under a name, with or without Clean Session.
fn connect(name: &str, clean: bool) -> Vec<u8> {
    let mut connect = vec![0x10, 12 + name.len() as u8, 0, 4, b'M', b'Q', b'T', b'T', 4];
    connect.extend([if clean { 2 } else { 0 }, 0, 0, 0, name.len() as u8]);
    connect.extend(name.bytes());
    connect
}

const FILTERS: usize = 1_000;
const QUEUED: usize = 2_000;

/// A session that its client has left, with [`FILTERS`] filters and [`QUEUED`] messages to `t`, and
/// a publisher.
fn with_much(driver: &mut MemoryDriver, shared: bool) -> LinkId {
    let (gone, publisher) = (driver.open(), named(driver, "publisher"));
    driver.send(gone, &connect("s", false));
    let share = if shared { "$share/g/" } else { "" };
    let filters = (0..FILTERS).map(|n| if n == 0 { format!("{share}t") } else { format!("{share}f/{n}") });
    driver.send(gone, &naming(0x82, &filters.collect::<Vec<_>>()));
    driver.close(gone);
    for n in 0..QUEUED {
        let payload = if n == 0 { b'f' } else { b'm' };
        driver.send(publisher, &at_least_once((n % 200) as u8 + 1, payload));
    }
    driver.shards.iter_mut().for_each(|shard| _ = shard.take_longest_turn());
    publisher
}

fn with_long_queues(shards: u8, stored: bool) -> MemoryDriver {
    let mut settings = driver::settings();
    settings.steps_per_turn = STEPS;
    settings.session.subscriptions.filters = FILTERS;
    settings.session.send.queue.messages = QUEUED;
    let mut driver = MemoryDriver::new(&settings, shards);
    if stored {
        driver.keep_in_store();
    }
    driver
}

// 5.0 [MQTT-3.1.2-4]
#[test]
fn v5_a_session_with_much_ends_in_portions_and_its_client_begins_anew_at_once() {
    for (shards, stored) in [(1, false), (1, true), (2, true)] {
        let mut driver = with_long_queues(shards, stored);
        let publisher = with_much(&mut driver, false);
        let other = named(&mut driver, "other");
        let again = driver.open();
        driver.send_unsettled(again, &connect("s", true));
        let snapshot = |driver: &MemoryDriver| {
            driver
                .shards
                .iter()
                .map(Shard::snapshot)
                .fold((0, 0), |(a, b), f| (a + f.sessions, b + f.subscriptions))
        };
        let (sessions, filters) = snapshot(&driver);
        assert!(sessions == 3 && filters > 0, "{sessions} sessions, {filters} filters: it goes on");
        // Others have their turns in between, and what was of the old session is not of the new
        // one.
        driver.send_unsettled(other, &PINGREQ);
        driver.turn();
        assert_eq!(driver.links[other].received, PINGRESP);
        driver.send(publisher, &at_least_once(250, b'n'));
        assert_eq!(driver.links[again].received, [0x20, 2, 0, 0], "a session that is not present");
        assert_eq!(snapshot(&driver), (3, 0));
        let dropped: u64 =
            driver.shards.iter().map(|s| s.snapshot().counters.drops.of(DropReason::SessionEnded)).sum();
        assert_eq!(dropped, QUEUED as u64);
        assert!(driver.shards.iter().all(|s| s.usage().jobs == 0 && s.recount().is_ok()));
        assert_no_long_turn(&mut driver);
    }
}

#[test]
fn a_session_that_begins_while_another_ends_gets_nothing_by_its_filters() {
    let mut driver = with_long_queues(1, false);
    let publisher = with_much(&mut driver, false);
    let again = driver.open();
    driver.send_unsettled(again, &connect("s", true));
    // Whichever slot these have, the filters of the one that ended do not lead to them.
    let others: Vec<LinkId> = (0..3).map(|_| driver.open()).collect();
    for (link, name) in others.iter().zip(["a", "b", "c"]) {
        driver.send_unsettled(*link, &connect(name, true));
    }
    driver.links[publisher].received.clear();
    for n in 0..FILTERS {
        let topic = format!("f/{n}");
        let publish = packet(0x30, &[&[0, topic.len() as u8], topic.as_bytes()].concat());
        driver.send_unsettled(publisher, &publish);
        if n % 10 == 0 {
            driver.turn();
        }
    }
    driver.settle();
    for link in others.into_iter().chain([again]) {
        assert_eq!(driver.links[link].received, [0x20, 2, 0, 0]);
    }
    assert_no_long_turn(&mut driver);
}

// 5.0 [MQTT-4.8.2-5]
#[test]
fn v5_shared_messages_of_a_session_that_ends_in_portions_go_to_other_members_in_order() {
    // Nothing is read back from a store here.
    for shards in [1, 2] {
        let mut driver = with_long_queues(shards, false);
        // Its member is the only one when they are queued.
        with_much(&mut driver, true);
        let member = named(&mut driver, "member");
        subscribe(&mut driver, member, "$share/g/t");
        driver.shards.iter_mut().for_each(|shard| _ = shard.take_longest_turn());
        let again = driver.open();
        driver.send(again, &connect("s", true));
        assert_eq!(driver.links[again].received, [0x20, 2, 0, 0]);
        let mut taken = 0;
        while !driver.links[member].received.is_empty() {
            let received = std::mem::take(&mut driver.links[member].received);
            let mut acks = Vec::new();
            for publish in received.chunks(8) {
                assert_eq!(publish[7] == b'f', taken == 0, "message {taken}");
                acks.extend([0x40, 2, publish[5], publish[6]]);
                taken += 1;
            }
            driver.send(member, &acks);
        }
        assert_eq!(taken, QUEUED);
        assert!(driver.shards.iter().all(|s| s.usage().jobs == 0 && s.usage().orphaned_queues == 0));
        assert_no_long_turn(&mut driver);
    }
}

/// CONNECT of 5.0 with Session Expiry Interval 100 s and a will to a topic, delayed so many
/// seconds, with its name as payload.
fn connect_with_will(name: &str, topic: &str, delay: u8) -> Vec<u8> {
    let text = |text: &str| [&[0, text.len() as u8], text.as_bytes()].concat();
    let head = [0, 4, b'M', b'Q', b'T', b'T', 5, 0x0E, 0, 0, 5, 0x11, 0, 0, 0, 100];
    let will = [5, 0x18, 0, 0, 0, delay];
    packet(0x10, &[&head[..], &text(name), &will, &text(topic), &text(name)].concat())
}

#[test]
fn what_the_broker_publishes_to_very_many_is_delivered_in_portions() {
    const RECEIVERS: usize = 950;
    for stored in [false, true] {
        let mut settings = driver::settings();
        settings.steps_per_turn = STEPS;
        let mut driver = MemoryDriver::new(&settings, 1);
        if stored {
            driver.keep_in_store();
        }
        let receivers: Vec<_> = (0..RECEIVERS).map(|n| named(&mut driver, &format!("r{n}"))).collect();
        receivers.iter().for_each(|link| subscribe(&mut driver, *link, "t"));
        let (gone, publisher) = (driver.open(), named(&mut driver, "publisher"));
        driver.send(gone, &connect_with_will("gone", "t", 0));
        driver.send(publisher, b"\x30\x0E\0\x0C$delayed/1/t");
        driver.shards[0].take_longest_turn();
        let all_have = |driver: &mut MemoryDriver, times: usize| {
            receivers
                .iter()
                .all(|link| publishes(&std::mem::take(&mut driver.links[*link].received)) == times)
        };
        driver.close(gone);
        assert!(all_have(&mut driver, 1), "a will");
        let now = driver.now;
        driver.shards[0].begin_turn();
        for _ in 0..3 {
            driver.shards[0].announce(now, "t", b"x");
        }
        // Whoever publishes has its turn between them.
        driver.send(publisher, &PUBLISH);
        assert!(all_have(&mut driver, 4), "events");
        driver.advance(Duration::from_millis(1_250));
        assert!(all_have(&mut driver, 1), "a delayed message");
        assert!(driver.shards[0].usage().jobs + driver.shards[0].usage().put_off == 0);
        assert_turns_are_short(&mut driver);
    }
}

#[test]
fn wills_that_are_due_together_go_out_over_several_turns() {
    const WILLS: u32 = 300;
    let mut settings = driver::settings();
    settings.steps_per_turn = STEPS;
    let mut driver = MemoryDriver::new(&settings, 1);
    driver.keep_in_store();
    let receiver = named(&mut driver, "receiver");
    subscribe(&mut driver, receiver, "t");
    for n in 0..WILLS {
        let link = driver.open();
        driver.send(link, &connect_with_will(&format!("w{n:03}"), "t", 1));
        driver.close(link);
    }
    driver.now = driver.now + Duration::from_secs(2);
    let now = driver.now;
    let shard = &mut driver.shards[0];
    shard.take_longest_turn();
    shard.begin_turn();
    for slot in 1..=WILLS {
        shard.expired_deadline(now, DeadlineKind::Session, slot, 0);
    }
    assert!(shard.snapshot().counters.sent.total() <= u64::from(STEPS));
    // The will of a client that is back before its turn goes out all the same, and once.
    let back = driver.open();
    driver.send_unsettled(back, &connect_with_will("w299", "other", 1));
    driver.settle();
    assert_eq!(publishes(&driver.links[receiver].received), WILLS as usize);
    assert_turns_are_short(&mut driver);
}

#[test]
fn a_publication_goes_on_in_portions_when_its_publisher_is_gone_and_its_will_comes_behind_it() {
    const RECEIVERS: usize = 950;
    for clean in [true, false] {
        let (mut driver, _, receivers) = fan(RECEIVERS);
        let mut will = connect("w", clean);
        will[1] += 6;
        will[9] |= 0x0C;
        will.extend([0, 1, b't', 0, 1, b'w']);
        let publisher = driver.open();
        driver.send(publisher, &will);
        let (now, id) = (driver.now, driver.id(publisher));
        let shard = &mut driver.shards[0];
        shard.take_longest_turn();
        shard.begin_turn();
        shard.receive(now, id, &at_least_once(1, b'1'));
        shard.begin_turn();
        shard.work(now);
        shard.begin_turn();
        shard.input(now, Input::Closed(id, "closed"));
        assert!(shard.is_fanning() && shard.snapshot().counters.sent.total() < RECEIVERS as u64);
        // A message that it publishes after its return comes behind both.
        let back = driver.open();
        driver.send(back, &[&connect("w", clean)[..], &at_least_once(1, b'2')].concat());
        for link in receivers {
            let payloads: Vec<u8> = driver.links[link].received.chunks(8).map(|publish| publish[7]).collect();
            assert_eq!(payloads, b"1w2", "clean: {clean}");
        }
        assert_turns_are_short(&mut driver);
    }
}

#[test]
fn dead_letters_of_a_session_with_much_are_posted_in_portions_and_each_batch_waits_for_its_own() {
    const WATCHERS: usize = 20;
    let mut settings = driver::settings();
    settings.steps_per_turn = STEPS;
    settings.session.subscriptions.filters = FILTERS;
    settings.session.send.queue.messages = QUEUED;
    settings.session.send.redelivery.dead_letters = DropReasons::from_iter([DropReason::SessionEnded]);
    settings.session.send.in_flight = 3_000;
    let mut driver = MemoryDriver::new(&settings, 1);
    let watchers: Vec<_> = (0..WATCHERS).map(|n| named(&mut driver, &format!("w{n}"))).collect();
    watchers.iter().for_each(|link| subscribe(&mut driver, *link, "$dead/#"));
    with_much(&mut driver, false);
    let again = driver.open();
    driver.send(again, &connect("s", true));
    for link in watchers {
        assert_eq!(publishes(&driver.links[link].received), QUEUED);
        driver.links[link].received.clear();
    }
    assert_turns_are_short(&mut driver);
}
