//! Memory that clients make the broker hold is bounded, also within a turn and for unfinished
//! packets.

use crate::access;
use crate::client::{V5, connect, encoded, enter, named_at, publication, subscribe, will};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::mqtt::packet::{Connect, ConnectProperties, Packet, Publish, QoS, WillMessage};
use homing::operators::query::{Query, QueryAnswer};
use homing::persistence::records::Record;
use homing::routing::subscription_tree::SurveyPlace;
use std::time::Duration;
use tikv_jemalloc_ctl::thread::{allocatedp, deallocatedp};

const KIB: usize = 1024;

/// A client whose session lives so many seconds without it.
fn client(driver: &mut MemoryDriver, name: &str, expiry: u32, will: Option<WillMessage<'_>>) -> LinkId {
    let properties = ConnectProperties { session_expiry: Some(expiry), ..Default::default() };
    enter(driver, Connect { properties, will, ..connect(name) })
}

fn publish(topic: &str, payload: &[u8], retain: bool, out: &mut Vec<u8>) {
    let publish = Publish { retain, ..publication(topic, payload) };
    out.extend(encoded(&Packet::Publish(publish), V5));
}

/// The front of a PUBLISH of this many bytes.
fn begun(bytes: usize) -> Vec<u8> {
    let mut whole = Vec::new();
    publish("t", &vec![0; 200 * KIB], false, &mut whole);
    whole.truncate(bytes);
    whole
}

#[test]
fn an_answer_with_the_subscribers_of_a_filter_ends_after_256_kib_of_client_identifiers() {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    for number in 0..10 {
        let name = format!("{number}{}", "x".repeat(60 * KIB - 1));
        let link = client(&mut driver, &name, 0, None);
        subscribe(&mut driver, link, &["t", "$share/g/t"], QoS::AtLeastOnce);
    }
    let by_filter = |filter: &str| Query::Subscribers { filter: filter.into() };
    let by_topic = Query::Receivers { topic: "t".into(), from: SurveyPlace::default() };
    for query in [by_filter("t"), by_filter("$share/g/t"), by_topic] {
        let QueryAnswer::Receivers(found) = query.answer(driver.now, &driver.shards[0]) else {
            panic!("no receivers: {query:?}");
        };
        let more = found.more || found.next.is_some();
        assert_eq!((found.sessions().len(), more), (5, true), "{query:?}");
    }
}

#[test]
fn a_packet_that_was_begun_has_a_deadline_though_there_is_no_keep_alive() {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    let [slow, stuck] = ["slow", "stuck"].map(|name| client(&mut driver, name, 0, None));
    let whole = begun(usize::MAX);
    for link in [slow, stuck] {
        driver.send(link, &whole[..100 * KIB]);
    }
    // A byte now and then is enough.
    for at in 0..3 {
        driver.advance(Duration::from_secs(20));
        driver.send(slow, &whole[100 * KIB + at..][..1]);
    }
    assert_eq!((driver.is_open(slow), driver.is_open(stuck)), (true, false));
    driver.send(slow, &whole[100 * KIB + 3..]);
    driver.advance(Duration::from_secs(3_600));
    assert!(driver.is_open(slow), "it waits for nothing");
}

#[test]
fn who_holds_most_of_an_unfinished_packet_is_disconnected_and_not_who_reads_next() {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    driver.shared.partial.limit(400 * KIB as u64, 0);
    let hoarders = ["a", "b", "c", "d"].map(|name| client(&mut driver, name, 0, None));
    for hoarder in hoarders {
        driver.send(hoarder, &begun(100 * KIB - 1));
    }
    assert!(hoarders.iter().all(|link| driver.is_open(*link)));
    let honest = client(&mut driver, "honest", 0, None);
    let whole = begun(usize::MAX);
    driver.send(honest, &whole[..60 * KIB]);
    assert!(driver.is_open(honest));
    assert_eq!(hoarders.iter().filter(|link| !driver.is_open(**link)).count(), 1);
    driver.send(honest, &whole[60 * KIB..90 * KIB]);
    driver.send(honest, &whole[90 * KIB..]);
    assert!(driver.is_open(honest));
    assert_eq!(hoarders.iter().filter(|link| !driver.is_open(**link)).count(), 1, "one made room enough");
}

#[test]
fn the_unfinished_connects_of_strangers_cost_no_client_its_packet() {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    driver.shared.partial.limit(400 * KIB as u64, 0);
    let honest = client(&mut driver, "honest", 0, None);
    let whole = begun(usize::MAX);
    driver.send(honest, &whole[..90 * KIB]);
    let half_a_connect = [&b"\x10\xFF\xFF\x03\0\x04MQTT\x05\x02\0\0"[..], &vec![0; 20 * KIB]].concat();
    let strangers: Vec<_> = (0..40)
        .map(|_| {
            let stranger = driver.open();
            driver.send(stranger, &half_a_connect);
            stranger
        })
        .collect();
    driver.send(honest, &whole[90 * KIB..]);
    assert!(driver.is_open(honest), "strangers have taken the place of a client's packet");
    let open = strangers.iter().filter(|link| driver.is_open(**link)).count();
    assert!(open <= 5, "{open} strangers hold more than a quarter of 400 KiB");
}

#[test]
fn a_client_is_not_disconnected_for_the_unfinished_packets_of_another_shard() {
    let mut driver = MemoryDriver::new(&driver::settings(), 2);
    driver.shared.partial.limit(400 * KIB as u64, 0);
    let hoarders = [0, 1, 2, 3, 4, 5].map(|n| {
        let name = named_at(&format!("hoarder-{n}"), 1, 2);
        client(&mut driver, &name, 0, None)
    });
    for hoarder in hoarders {
        driver.send(hoarder, &begun(100 * KIB - 1));
    }
    let honest = client(&mut driver, &named_at("honest", 0, 2), 0, None);
    let whole = begun(usize::MAX);
    driver.send(honest, &whole[..60 * KIB]);
    driver.send(honest, &whole[60 * KIB..]);
    assert!(driver.is_open(honest));
    assert_eq!(hoarders.iter().filter(|link| driver.is_open(**link)).count(), 4, "the limit holds");
}

#[test]
fn the_bound_of_memory_holds_within_one_read_of_many_packets() {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    let publisher = client(&mut driver, "p", 0, None);
    let limit = driver.shared.budget.in_use() + 2 * KIB as u64;
    driver.shared.budget.limit(limit);
    let mut packets = Vec::new();
    for n in 0..50 {
        publish(&format!("t/{n}"), &[0; 500], true, &mut packets);
    }
    // All in one turn: the driver updates the total only at its end.
    driver.send(publisher, &packets);
    let in_use = driver.shared.budget.in_use();
    assert!(in_use < limit + 2 * KIB as u64, "{in_use} bytes of {limit}");
    assert!((2..5).contains(&driver.shared.retained().len()));
}

#[test]
fn redelivery_requests_without_end_are_one_record_of_the_session_in_each_batch_and_share_its_will() {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    driver.keep_in_store();
    let payload = vec![0; 60 * KIB];
    let will = will("w", &payload, 0);
    let requester = client(&mut driver, "c", 3_600, Some(will));
    let before = driver.shared.budget.in_use();
    assert!(before > 60 * KIB as u64, "its will is on the account");
    let mut packets = Vec::new();
    for n in 0..500 {
        let text = format!("{}s", 5 + n % 2);
        publish("$homing/session/ack-timeout", text.as_bytes(), false, &mut packets);
    }
    driver.batches.clear();
    driver.send(requester, &packets);
    let sessions =
        driver.batches.iter().map(|b| b.records.iter().filter(|r| matches!(r, Record::Session(_))).count());
    assert!(sessions.clone().max() == Some(1), "{:?}", sessions.collect::<Vec<_>>());
    let grown = driver.shared.budget.in_use() - before;
    assert!(grown < 50 * KIB as u64, "{grown} bytes");
}

/// Returns the bytes that this thread has allocated and not freed.
fn in_use() -> i64 {
    let allocated = allocatedp::read().expect("jemalloc has statistics").get();
    let freed = deallocatedp::read().expect("jemalloc has statistics").get();
    allocated as i64 - freed as i64
}

#[test]
fn a_client_that_is_away_holds_no_memory_for_the_topics_that_it_and_its_will_wrote() {
    const CLIENTS: usize = 100;
    let mut driver = MemoryDriver::new(&access::settings(10), 1);
    driver.links.reserve(4 * CLIENTS);
    // All clients come, write and leave, and then their wills are published.
    let mut growth = |length: usize| {
        let before = in_use();
        let topics: Vec<String> = (0..5).map(|n| n.to_string().repeat(length)).collect();
        for n in 0..CLIENTS {
            let (name, will) = (format!("client {n:03}"), will(&topics[0], b"x", 1));
            let properties = ConnectProperties { session_expiry: Some(3_600), ..Default::default() };
            let (will, user_name) = (Some(will), Some("reader"));
            let link = enter(&mut driver, Connect { properties, will, user_name, ..connect(&name) });
            let mut packets = Vec::new();
            topics[1..].iter().for_each(|topic| publish(topic, b"x", false, &mut packets));
            driver.send(link, &packets);
            driver.close(link);
            driver.links[link].received = Vec::new();
        }
        driver.advance(Duration::from_secs(2));
        driver.writes = Vec::new();
        drop(topics);
        in_use() - before
    };
    // Topics of more than 128 bytes are not remembered, so these rounds fill everything else.
    (0..2).for_each(|_| _ = growth(200));
    let grown = growth(100);
    assert!(grown < 50 * CLIENTS as i64, "{grown} bytes for {CLIENTS} clients");
}
