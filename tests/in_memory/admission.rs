//! Requests that are refused while memory or disk is short, in each version, and requests that are
//! not.

use crate::client::{packet, string};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::mqtt::charge::Charge;
use homing::persistence::records::Record;
use homing::session::drops::DropReason;
use std::sync::atomic::Ordering;

/// The resource that is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Short {
    Memory,
    Disk,
    /// Not full, and there will be no room for a burst.
    DiskSoon,
}

const BOTH: [Short; 2] = [Short::Memory, Short::Disk];
const DISK: [Short; 2] = [Short::Disk, Short::DiskSoon];
const LEVELS: [u8; 3] = [3, 4, 5];

fn driver(shards: u8) -> MemoryDriver {
    let mut settings = driver::settings();
    settings.session.connect.topic_alias_maximum = 10;
    let mut driver = MemoryDriver::new(&settings, shards);
    driver.keep_in_store();
    driver
}

fn run_short(driver: &MemoryDriver, of: Short) {
    match of {
        Short::Memory => {
            driver.shared.budget.limit(1);
            std::mem::forget(Charge::new(1 << 20));
        }
        Short::Disk => driver.shared.store_full.store(true, Ordering::Relaxed),
        Short::DiskSoon => driver.shared.store_room.store(0, Ordering::Relaxed),
    }
}

fn has_room_again(driver: &MemoryDriver) {
    driver.shared.budget.limit(u64::MAX);
    driver.shared.store_full.store(false, Ordering::Relaxed);
    driver.shared.store_room.store(i64::MAX, Ordering::Relaxed);
}

/// 5.0 has a byte more in most packets: no properties.
fn none(level: u8) -> &'static [u8] {
    if level == 5 { &[0] } else { &[] }
}

/// A CONNECT; `will`: bytes of its payload.
fn connect(level: u8, client_id: &str, clean: bool, will: Option<usize>) -> Vec<u8> {
    let name: &[u8] = if level == 3 { b"MQIsdp" } else { b"MQTT" };
    let flags = u8::from(clean) << 1 | u8::from(will.is_some()) << 2;
    let expiry: &[u8] = match (level, clean) {
        (5, false) => &[5, 0x11, 0, 0, 0x0E, 0x10],
        (5, true) => &[0],
        _ => &[],
    };
    let mut rest =
        [&string(name)[..], &[level, flags, 0, 60], expiry, &string(client_id.as_bytes())].concat();
    if let Some(bytes) = will {
        rest.extend([none(level), &string(b"will"), &string(vec![b'w'; bytes])].concat());
    }
    packet(0x10, &rest)
}

/// Opens a connection and sends a CONNECT; the answer's code.
fn enter(driver: &mut MemoryDriver, connect: &[u8]) -> (LinkId, Option<u8>) {
    let link = driver.open();
    driver.send(link, connect);
    let code = driver.links[link].received.get(3).copied();
    driver.links[link].received.clear();
    (link, code)
}

fn accepted(driver: &mut MemoryDriver, connect: &[u8]) -> LinkId {
    let (link, code) = enter(driver, connect);
    assert_eq!(code, Some(0));
    link
}

fn subscribe(driver: &mut MemoryDriver, link: LinkId, level: u8, filter: &str) -> u8 {
    driver.links[link].received.clear();
    driver.send(link, &packet(0x82, &[&[0, 1], none(level), &string(filter.as_bytes()), &[1]].concat()));
    let received = std::mem::take(&mut driver.links[link].received);
    assert_eq!(received[0], 0x90, "{received:?}");
    received[4 + usize::from(level == 5)]
}

fn publish(level: u8, flags: u8, topic: &str, payload: &[u8]) -> Vec<u8> {
    let id: &[u8] = if flags & 6 == 0 { &[] } else { &[0, 7] };
    packet(0x30 | flags, &[&string(topic.as_bytes())[..], id, none(level), payload].concat())
}

fn drops(driver: &MemoryDriver, cause: DropReason) -> u64 {
    driver.shards.iter().map(|shard| shard.snapshot().counters.drops.of(cause)).sum()
}

/// Sends and takes what comes back.
fn exchange(driver: &mut MemoryDriver, link: LinkId, bytes: &[u8]) -> Vec<u8> {
    driver.links[link].received.clear();
    driver.send(link, bytes);
    std::mem::take(&mut driver.links[link].received)
}

/// The code of a CONNACK that refuses for want of room.
fn refusal(level: u8) -> u8 {
    if level == 5 { 0x97 } else { 3 }
}

#[test]
fn a_connect_for_a_new_stored_session_is_refused_and_one_for_a_small_clean_one_is_not() {
    for (level, short) in
        LEVELS.into_iter().flat_map(|l| [Short::Memory, Short::Disk, Short::DiskSoon].map(|s| (l, s)))
    {
        let mut driver = driver(1);
        run_short(&driver, short);
        let (refused, code) = enter(&mut driver, &connect(level, "new", false, None));
        assert_eq!((code, driver.is_open(refused)), (Some(refusal(level)), false), "{level} {short:?}");
        let clean = accepted(&mut driver, &connect(level, "clean", true, None));
        assert_eq!(exchange(&mut driver, clean, &[0xC0, 0]), [0xD0, 0]);
        let (_, with_will) = enter(&mut driver, &connect(level, "will", true, Some(10)));
        // A will of a session that ends with its connection is in memory alone.
        let expected = if short == Short::Memory { refusal(level) } else { 0 };
        assert_eq!(with_will, Some(expected), "{level} {short:?}");
        let snapshot = driver.shards[0].snapshot();
        assert_eq!(snapshot.counters.refused_connects, 1 + u64::from(expected != 0));
        has_room_again(&driver);
        accepted(&mut driver, &connect(level, "new", false, Some(10)));
    }
}

#[test]
fn a_known_session_returns_with_its_will_and_may_not_bring_a_larger_one() {
    for (level, short) in LEVELS.into_iter().flat_map(|l| BOTH.map(|s| (l, s))) {
        let mut driver = driver(1);
        let first = accepted(&mut driver, &connect(level, "back", false, Some(10_000)));
        assert_eq!(subscribe(&mut driver, first, level, "t"), 1);
        driver.delays_commits = short == Short::Disk;
        run_short(&driver, short);
        // Taken over while it is connected, so that the will is held.
        for (will, code) in [(Some(10_000), 0), (Some(60_000), refusal(level)), (Some(4_000), 0), (None, 0)] {
            let (link, answer) = enter(&mut driver, &connect(level, "back", false, will));
            let waits = answer.is_none();
            // A change of the will is answered when it is committed.
            assert_eq!(
                waits,
                short == Short::Disk && code == 0 && will != Some(10_000),
                "{level} {short:?} {will:?}"
            );
            assert!(waits || answer == Some(code), "{level} {short:?} {will:?}: {answer:?}");
            if answer == Some(0) && short == Short::Memory {
                assert_eq!(subscribe(&mut driver, link, level, "t"), 1, "it knows that filter");
            }
        }
    }
}

#[test]
fn a_known_session_is_answered_while_nothing_can_be_committed() {
    for level in LEVELS {
        let mut driver = driver(2);
        let link = accepted(&mut driver, &connect(level, "back", false, None));
        subscribe(&mut driver, link, level, "t");
        let publisher = accepted(&mut driver, &connect(level, "publisher", true, None));
        driver.send(link, &[0xE0, 0]);
        driver.send(publisher, &publish(level, 2, "t", b"x"));
        run_short(&driver, Short::Disk);
        driver.delays_commits = true;
        let back = driver.open();
        driver.send(back, &connect(level, "back", false, None));
        let received = &driver.links[back].received;
        assert_eq!(received[..1], [0x20], "{level}: CONNACK and its message");
        assert!(received.windows(4).any(|w| w == [0, 1, b't', 0]), "{level}: {received:?}");
    }
}

#[test]
fn a_returning_client_waits_for_the_commit_of_each_qos_2_identifier_and_for_nothing_else() {
    for level in LEVELS {
        let mut driver = driver(1);
        let link = accepted(&mut driver, &connect(level, "back", false, None));
        driver.send(link, &packet(0x82, &[&[0, 1], none(level), &string(b"t"), &[2]].concat()));
        let publisher = accepted(&mut driver, &connect(level, "publisher", true, None));
        driver.send(publisher, &publish(level, 4, "t", b"the first"));
        driver.send(publisher, &[0x62, 2, 0, 7]);
        driver.delays_commits = true;
        driver.send(publisher, &publish(level, 4, "t", b"the second"));
        run_short(&driver, Short::Disk);
        driver.send(link, &[0xE0, 0]);
        let back = driver.open();
        driver.send(back, &connect(level, "back", false, None));
        let has = |driver: &MemoryDriver, payload: &[u8]| {
            driver.links[back].received.windows(payload.len()).any(|w| w == payload)
        };
        assert!(has(&driver, b"the first"), "{level}");
        assert!(!has(&driver, b"the second"), "{level}: its identifier may be given again after a crash");
        driver.commit();
        assert!(has(&driver, b"the second"), "{level}");
    }
}

#[test]
fn a_subscription_that_is_new_is_refused_and_a_known_one_and_unsubscribe_are_not() {
    for (level, short) in
        LEVELS.into_iter().flat_map(|l| [Short::Memory, Short::Disk, Short::DiskSoon].map(|s| (l, s)))
    {
        let mut driver = driver(1);
        let stored = accepted(&mut driver, &connect(level, "stored", false, None));
        let clean = accepted(&mut driver, &connect(level, "clean", true, None));
        for link in [stored, clean] {
            assert_eq!(subscribe(&mut driver, link, level, "known"), 1);
        }
        run_short(&driver, short);
        let refused = if level == 5 { 0x97 } else { 0x80 };
        assert_eq!(subscribe(&mut driver, stored, level, "new"), refused, "{level} {short:?}");
        let in_memory = if short == Short::Memory { refused } else { 1 };
        assert_eq!(subscribe(&mut driver, clean, level, "new"), in_memory, "{level} {short:?}");
        let snapshot = driver.shards[0].snapshot();
        assert_eq!(
            snapshot.counters.refused_subscriptions.iter().sum::<u64>(),
            1 + u64::from(in_memory != 1)
        );
        for link in [stored, clean] {
            assert_eq!(subscribe(&mut driver, link, level, "known"), 1);
            let unsubscribe = packet(0xA2, &[&[0, 1], none(level), &string(b"known")].concat());
            assert_eq!(exchange(&mut driver, link, &unsubscribe)[0], 0xB0);
        }
    }
}

#[test]
fn a_publish_that_has_to_be_kept_is_refused_and_acknowledgements_and_pings_go_on() {
    for (level, short) in LEVELS.into_iter().flat_map(|l| BOTH.map(|s| (l, s))) {
        for (flags, acknowledgement) in [(2, 0x40), (4, 0x50)] {
            for topic in ["t", "$delayed/5/t"] {
                let mut driver = driver(1);
                let link = accepted(&mut driver, &connect(level, "publisher", true, None));
                run_short(&driver, short);
                let answer = exchange(&mut driver, link, &publish(level, flags, topic, b"x"));
                if level == 5 {
                    assert_eq!(answer[..5], [acknowledgement, 3, 0, 7, 0x97], "{short:?}");
                    assert_eq!(exchange(&mut driver, link, &[0xC0, 0]), [0xD0, 0]);
                } else {
                    // It has no code for it, and must not take it for kept.
                    assert!(answer.is_empty() && !driver.is_open(link), "{level} {short:?} {answer:?}");
                }
                let cause =
                    if short == Short::Memory { DropReason::MemoryBudget } else { DropReason::StoreFull };
                assert_eq!(drops(&driver, cause), 1);
            }
        }
    }
}

#[test]
fn a_burst_for_the_store_is_refused_before_it_uses_up_the_reserve() {
    let mut driver = driver(2);
    let away = accepted(&mut driver, &connect(5, "away", false, None));
    subscribe(&mut driver, away, 5, "t");
    let link = accepted(&mut driver, &connect(5, "publisher", true, None));
    driver.shared.store_room.store(100_000, Ordering::Relaxed);
    driver.delays_commits = true;
    for _ in 0..30 {
        exchange(&mut driver, link, &publish(5, 2, "t", &[b'x'; 4000]));
    }
    let taken = 30 - drops(&driver, DropReason::StoreFull);
    // A half of it is another shard's, and 4 KB take 8 at most.
    assert!((4..=6).contains(&taken), "{taken} were taken over with room for 100 kB");
}

#[test]
fn qos_0_retained_without_room_in_the_store_reaches_who_listens_and_leaves_nothing_stale() {
    for short in DISK {
        let mut driver = driver(1);
        let listener = accepted(&mut driver, &connect(5, "listener", true, None));
        subscribe(&mut driver, listener, 5, "#");
        let link = accepted(&mut driver, &connect(4, "publisher", true, None));
        for topic in ["same", "longer"] {
            driver.send(link, &publish(4, 1, topic, b"old"));
        }
        run_short(&driver, short);
        driver.links[listener].received.clear();
        for (topic, payload) in [("same", &b"new"[..]), ("longer", b"newer"), ("fresh", b"x")] {
            driver.send(link, &publish(4, 1, topic, payload));
        }
        assert_eq!(driver.links[listener].received.iter().filter(|byte| **byte == 0x30).count(), 3);
        let retained = driver.shared.retained();
        let value = |topic| retained.find(topic, driver.now).map(|m| m.payload().to_vec());
        assert_eq!(value("same").as_deref(), Some(&b"new"[..]), "{short:?}");
        assert_eq!((value("longer"), value("fresh")), (None, None), "{short:?}");
        drop(retained);
        assert_eq!(drops(&driver, DropReason::StoreFull), 2);
        // A message that erases makes room.
        driver.send(link, &publish(4, 3, "same", b""));
        assert!(driver.is_open(link) && driver.shared.retained().is_empty());
    }
}

#[test]
fn a_retained_message_beyond_the_bytes_takes_the_stale_one_with_it_and_5_is_answered() {
    let large = vec![b'x'; 60_000];
    for (level, flags, code) in [(5, 3, Some(0x97)), (5, 5, Some(0x97)), (4, 3, None), (4, 5, None)] {
        let mut driver = driver(1);
        let link = accepted(&mut driver, &connect(level, "publisher", true, None));
        let listener = accepted(&mut driver, &connect(5, "listener", true, None));
        subscribe(&mut driver, listener, 5, "door");
        driver.send(link, &publish(level, 1, "filler", &large));
        driver.send(link, &publish(level, 1, "door", b"closed"));
        driver.links[listener].received.clear();
        let answer = exchange(&mut driver, link, &publish(level, flags, "door", &large));
        assert_eq!(answer.get(4).copied(), code, "{level} {flags}: {answer:?}");
        assert!(driver.is_open(link));
        // A PUBREC with an error says that nobody has it.
        let is_routed = code.is_none() || flags == 3;
        assert_eq!(!driver.links[listener].received.is_empty(), is_routed, "{level} {flags}");
        assert!(
            driver.shared.retained().find("door", driver.now).is_none(),
            "a value that is known to be wrong"
        );
        assert_eq!(drops(&driver, DropReason::RetainedFull), 1);
    }
}

#[test]
fn v5_a_topic_alias_over_the_memory_budget_ends_the_connection_with_0x97() {
    let mut driver = driver(1);
    let link = accepted(&mut driver, &connect(5, "publisher", true, None));
    let with_alias = |topic: &str, alias: u8| {
        packet(0x30, &[&string(topic.as_bytes())[..], &[3, 0x23, 0, alias], b"x"].concat())
    };
    assert!(exchange(&mut driver, link, &with_alias("topic", 1)).is_empty());
    run_short(&driver, Short::Memory);
    for known in ["topic", "", "other"] {
        assert!(exchange(&mut driver, link, &with_alias(known, 1)).is_empty(), "{known}");
        assert!(driver.is_open(link));
    }
    let answer = exchange(&mut driver, link, &with_alias("t", 2));
    assert_eq!((answer[0], answer[2], driver.is_open(link)), (0xE0, 0x97, false), "{answer:?}");
}

#[test]
fn a_redelivery_request_is_refused_if_it_cannot_be_stored() {
    for (short, clean, code) in
        [(Short::Memory, true, 0x97), (Short::Disk, false, 0x97), (Short::Disk, true, 0)]
    {
        let mut driver = driver(1);
        let link = accepted(&mut driver, &connect(5, "client", clean, None));
        run_short(&driver, short);
        let answer = exchange(&mut driver, link, &publish(5, 2, "$homing/session/ack-timeout", b"5s"));
        assert_eq!(answer.get(4).copied().unwrap_or(0), code, "{short:?} {clean} {answer:?}");
    }
}

/// Six clients, each publishing to the next, while the store has no room and a will that is to be
/// stored waits for it.
#[test]
fn qos_0_between_clean_sessions_goes_on_while_nothing_can_be_committed() {
    const MESSAGES: usize = 20_000;
    let mut driver = driver(2);
    let away = accepted(&mut driver, &connect(5, "away", false, None));
    subscribe(&mut driver, away, 5, "will");
    let leaver = accepted(&mut driver, &connect(5, "leaver", false, Some(10)));
    let clients: Vec<LinkId> =
        (0..6).map(|n| accepted(&mut driver, &connect(4, &format!("client {n}"), true, None))).collect();
    for (n, link) in clients.iter().enumerate() {
        subscribe(&mut driver, *link, 4, &format!("to/{n}"));
    }
    driver.delays_commits = true;
    driver.close(leaver);
    // QoS 1 that is to be stored waits, too.
    driver.send(clients[0], &publish(4, 2, "will", b"x"));
    driver.send(clients[1], &publish(4, 2, "will", b"x"));
    let burst = publish(4, 0, "to/0", b"x").len();
    for round in 0..MESSAGES / 100 {
        for n in 0..6 {
            let topic = format!("to/{}", (n + 1) % 6);
            driver.send(clients[n], &publish(4, 0, &topic, b"x").repeat(100));
            let received = std::mem::take(&mut driver.links[clients[(n + 1) % 6]].received);
            let publishes = received.len() / burst;
            assert_eq!(publishes, 100, "round {round}: {n} waits for a ticket");
        }
    }
    for link in clients {
        assert_eq!(exchange(&mut driver, link, &[0xC0, 0]), [0xD0, 0]);
    }
}

/// A 5.0 PUBLISH with a User Property of so many bytes; its payload is empty, or `x`.
fn with_property(flags: u8, topic: &str, bytes: usize, payload: &[u8]) -> Vec<u8> {
    let property = [&[0x26][..], &string(b"k"), &string(vec![b'v'; bytes])].concat();
    let mut length = packet(0, &property);
    length.remove(0);
    packet(0x30 | flags, &[&string(topic.as_bytes())[..], &[0, 7], &length, payload].concat())
}

/// Returns how many PUBLISH packets are among these bytes.
fn publishes(mut bytes: &[u8]) -> usize {
    let mut found = 0;
    while let Some((first, rest)) = bytes.split_first() {
        let digits = rest.iter().position(|byte| byte & 0x80 == 0).expect("a length") + 1;
        let length = rest[..digits].iter().rev().fold(0, |sum, byte| sum << 7 | usize::from(byte & 0x7F));
        found += usize::from(first >> 4 == 3);
        bytes = &rest[digits + length..];
    }
    found
}

#[test]
fn an_erasing_publish_is_taken_where_it_makes_room_and_refused_where_it_makes_none() {
    for (level, short) in [4, 5].into_iter().flat_map(|l| BOTH.map(|s| (l, s))) {
        for flags in [3, 5] {
            let mut driver = driver(1);
            let away = accepted(&mut driver, &connect(5, "away", false, None));
            subscribe(&mut driver, away, 5, "#");
            driver.send(away, &[0xE0, 0]);
            let link = accepted(&mut driver, &connect(level, "publisher", true, None));
            driver.send(link, &publish(level, 1, "held", b"1234"));
            driver.send(link, &publish(level, 1, "kept", b"1234"));
            run_short(&driver, short);
            let done = exchange(&mut driver, link, &publish(level, flags, "held", b""));
            assert_eq!(done[1..4], [2, 0, 7], "{level} {short:?} {flags}");
            // Of QoS 2, so that the identifier is free; else it is ignored.
            exchange(&mut driver, link, &packet(0x62, &[0, 7]));
            assert_eq!(driver.shared.retained().len(), 1);
            if level == 5 {
                // It would be queued with its properties.
                let answer = exchange(&mut driver, link, &with_property(3, "kept", 5_000, b""));
                assert_eq!(answer.get(4), Some(&0x97), "{short:?}");
                assert_eq!(driver.shared.retained().len(), 1);
            }
            let answer = exchange(&mut driver, link, &publish(level, flags, "held", b""));
            if level == 5 {
                assert_eq!(answer.get(4), Some(&0x97), "{short:?} {flags}: there is nothing to erase");
            } else {
                assert!(answer.is_empty() && !driver.is_open(link), "{short:?} {flags} {answer:?}");
            }
        }
    }
}

#[test]
fn who_subscribes_again_is_granted_it_and_gets_of_what_is_retained_what_there_is_room_for() {
    for (clean, short, arrives, cause) in [
        (false, Short::Memory, 0, DropReason::MemoryBudget),
        (true, Short::Memory, 0, DropReason::MemoryBudget),
        (false, Short::Disk, 1, DropReason::StoreFull),
        (false, Short::DiskSoon, 1, DropReason::StoreFull),
        (true, Short::Disk, 4, DropReason::StoreFull),
    ] {
        let mut driver = driver(1);
        let publisher = accepted(&mut driver, &connect(4, "publisher", true, None));
        let link = accepted(&mut driver, &connect(5, "subscriber", clean, None));
        assert_eq!(subscribe(&mut driver, link, 5, "r/#"), 1);
        for topic in ["r/1", "r/2", "r/3"] {
            driver.send(publisher, &publish(4, 3, topic, b"x"));
        }
        driver.send(publisher, &publish(4, 1, "r/0", b"at QoS 0"));
        run_short(&driver, short);
        let recorded = driver.batches.len();
        let request = packet(0x82, &[&[0, 2, 0][..], &string(b"r/#"), &[1]].concat());
        let answer = exchange(&mut driver, link, &request);
        assert_eq!((answer[0], answer[5]), (0x90, 1), "{clean} {short:?}");
        assert_eq!(publishes(&answer), arrives, "{clean} {short:?}");
        assert_eq!(drops(&driver, cause), 4 - arrives as u64, "{clean} {short:?}");
        let bodies = |batch: &homing::persistence::records::Batch| {
            let is_body = |r: &Record| matches!(r, Record::Body { .. } | Record::Entry(_));
            batch.records.iter().filter(|r| is_body(r)).count()
        };
        assert_eq!(driver.batches[recorded..].iter().map(bodies).sum::<usize>(), 0);
        has_room_again(&driver);
        let answer = exchange(&mut driver, link, &request);
        assert_eq!(publishes(&answer), 4, "{clean} {short:?}");
    }
}

#[test]
fn the_properties_of_a_delayed_message_need_room_too() {
    let mut driver = driver(1);
    let link = accepted(&mut driver, &connect(5, "publisher", true, None));
    driver.shared.store_room.store(20_000, Ordering::Relaxed);
    let answer = exchange(&mut driver, link, &with_property(2, "$delayed/5/t", 30_000, b"x"));
    assert_eq!(answer.get(4), Some(&0x97), "{answer:?}");
    assert_eq!(exchange(&mut driver, link, &publish(5, 2, "$delayed/5/t", b"x"))[..4], [0x40, 2, 0, 7]);
}

#[test]
fn a_dead_letter_needs_room_for_its_own_topic_and_properties() {
    let mut settings = driver::settings();
    settings.session.send.queue.messages = 1;
    settings.session.send.redelivery.dead_letters = [DropReason::QueueRefused].into_iter().collect();
    let mut driver = MemoryDriver::new(&settings, 1);
    driver.keep_in_store();
    let away = accepted(&mut driver, &connect(5, &"c".repeat(20_000), false, None));
    subscribe(&mut driver, away, 5, "t");
    driver.send(away, &[0xE0, 0]);
    let watcher = accepted(&mut driver, &connect(4, "watcher", true, None));
    subscribe(&mut driver, watcher, 4, "$dead/#");
    for (room, letters) in [(i64::MAX, 1), (10_000, 1), (i64::MAX, 3)] {
        driver.shared.store_room.store(room, Ordering::Relaxed);
        let publisher = accepted(&mut driver, &connect(5, "publisher", true, None));
        // The first fills the queue.
        exchange(&mut driver, publisher, &publish(5, 2, "t", b"x").repeat(2));
        assert_eq!(driver.shards[0].snapshot().counters.dead_letters.total(), letters, "{room}");
    }
}

#[test]
fn over_the_memory_budget_no_session_comes_to_stay_whose_client_had_none_that_stayed() {
    for level in LEVELS {
        for in_store in [false, true] {
            let mut driver = MemoryDriver::new(&driver::settings(), 1);
            if in_store {
                driver.keep_in_store();
            }
            accepted(&mut driver, &connect(level, "clean", true, None));
            accepted(&mut driver, &connect(level, "known", false, None));
            run_short(&driver, Short::Memory);
            for (client_id, code) in [("new", refusal(level)), ("clean", refusal(level)), ("known", 0)] {
                let (_, answer) = enter(&mut driver, &connect(level, client_id, false, None));
                assert_eq!(answer, Some(code), "{level} {client_id} in a store: {in_store}");
            }
            accepted(&mut driver, &connect(level, "clean", true, None));
        }
    }
}

#[test]
fn over_the_memory_budget_the_identifier_of_a_message_that_is_nobodys_is_refused() {
    for level in LEVELS {
        let mut driver = driver(1);
        let link = accepted(&mut driver, &connect(level, "publisher", true, None));
        let reserved = |id: u8| packet(0x34, &[&string(b"$SYS/x")[..], &[0, id], none(level), b"x"].concat());
        let before = exchange(&mut driver, link, &reserved(1));
        assert_eq!((before[0], before.get(4)), (0x50, (level == 5).then_some(&0x87)));
        run_short(&driver, Short::Memory);
        let answer = exchange(&mut driver, link, &reserved(2));
        if level == 5 {
            assert_eq!(answer.get(4), Some(&0x97));
        } else {
            assert!(answer.is_empty() && !driver.is_open(link), "{level} {answer:?}");
        }
    }
}
