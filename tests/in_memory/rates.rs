//! Clients that send more than their rate allows: they are not read for a while, and nothing is
//! lost. The driver's deadlines expire at ticks of 250 ms, as those of the broker.

use crate::client::{client, connect, encoded, enter, publication, subscribe};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::access::meter::{MeteredRate, TrafficRates};
use homing::mqtt::packet::{Connect, Packet, ProtocolVersion, QoS};
use std::time::Duration;

const V5: ProtocolVersion = ProtocolVersion::V5;
const TICK: Duration = Duration::from_millis(250);
/// PUBLISH at QoS 0 to `t`, with a payload of one byte.
const PUBLISH: &[u8] = b"\x30\x05\0\x01t\0x";

/// A shard whose clients may send so many messages and bytes a second; 0 is no limit.
fn limited(messages: u64, bytes: u64) -> MemoryDriver {
    let mut settings = driver::settings();
    let rate = |per_second| MeteredRate::new(per_second, TICK * 5 / 4);
    settings.rates = Some(TrafficRates { messages: rate(messages), bytes: rate(bytes) });
    settings.session.send.outbox = 1 << 30;
    MemoryDriver::new(&settings, 1)
}

/// Returns the number of PUBLISH packets that the subscriber has got.
fn received(driver: &MemoryDriver, subscriber: LinkId) -> usize {
    let bytes = &driver.links[subscriber].received;
    bytes.windows(PUBLISH.len()).filter(|window| *window == PUBLISH).count()
}

fn pair(driver: &mut MemoryDriver) -> (LinkId, LinkId) {
    let subscriber = client(driver, "subscriber", 1_000);
    subscribe(driver, subscriber, &["t"], QoS::AtMostOnce);
    let publisher = enter(driver, Connect { keep_alive: 1, ..connect("publisher") });
    (subscriber, publisher)
}

#[test]
fn a_flood_is_slowed_to_the_rate_within_5_percent_and_loses_nothing() {
    for rate in [20, 100, 1_000] {
        let mut driver = limited(rate, 0);
        let (subscriber, publisher) = pair(&mut driver);
        let sent = usize::try_from(rate).expect("small") * 25;
        driver.send(publisher, &PUBLISH.repeat(sent));
        let mut before = 0;
        for window in 0..2 {
            driver.advance(Duration::from_secs(10));
            let count = received(&driver, subscriber);
            let ratio = (count - before) as f64 / (rate * 10) as f64;
            assert!((0.95..=1.05).contains(&ratio), "{rate} a second, window {window}: {ratio}");
            before = count;
        }
        assert!(driver.is_open(publisher), "its Keep Alive of 1 s stood still");
        driver.advance(Duration::from_secs(10));
        assert_eq!(received(&driver, subscriber), sent);
        assert!(!driver.is_open(publisher), "Keep Alive runs again");
        assert!(driver.shards[0].snapshot().counters.rate_pauses > 20);
    }
}

#[test]
fn bytes_count_in_packets_of_any_kind() {
    let mut driver = limited(0, 1_000);
    let link = client(&mut driver, "c", 10);
    let pings = 15_000 / 2;
    driver.send(link, &b"\xC0\0".repeat(pings));
    let pongs = |driver: &MemoryDriver| driver.links[link].received.iter().filter(|b| **b == 0xD0).count();
    // What is handled during a pause may be ahead of the rate once more.
    driver.advance(Duration::from_secs(2));
    let before = pongs(&driver);
    driver.advance(Duration::from_secs(10));
    let count = pongs(&driver) - before;
    assert!((4_750..=5_250).contains(&count), "{count}");
    driver.advance(Duration::from_secs(4));
    assert_eq!(pongs(&driver), pings);
}

#[test]
fn one_large_packet_makes_a_long_pause_and_no_disconnect() {
    let mut driver = limited(0, 1_000);
    let (subscriber, publisher) = pair(&mut driver);
    let large = encoded(&Packet::Publish(publication("t", &[7; 20_000])), V5);
    driver.send(publisher, &[&large, PUBLISH].concat());
    driver.advance(Duration::from_secs(19));
    assert_eq!(received(&driver, subscriber), 0);
    driver.advance(Duration::from_secs(2));
    assert_eq!(received(&driver, subscriber), 1);
    assert!(driver.is_open(publisher));
}

#[test]
fn a_client_below_its_rate_is_never_paused() {
    let mut driver = limited(10, 1_000);
    let (subscriber, publisher) = pair(&mut driver);
    for _ in 0..50 {
        driver.send(publisher, PUBLISH);
        driver.advance(Duration::from_millis(100));
    }
    assert_eq!(received(&driver, subscriber), 50);
    assert_eq!(driver.shards[0].snapshot().counters.rate_pauses, 0);
}

#[test]
fn a_client_is_not_disconnected_for_acknowledgements_that_are_not_read() {
    let mut driver = limited(0, 1_000);
    let receiver = client(&mut driver, "receiver", 10);
    subscribe(&mut driver, receiver, &["a"], QoS::AtLeastOnce);
    let other = client(&mut driver, "other", 10);
    let large = encoded(&Packet::Publish(publication("t", &[7; 200_000])), V5);
    driver.send(receiver, &large);
    driver.send(other, b"\x32\x06\0\x01a\0\x01\0");
    driver.send(receiver, b"\x40\x02\0\x01");
    // The ack timeout of the driver is 60 s, and the pause takes 200 s.
    driver.advance(Duration::from_secs(150));
    assert!(driver.is_open(receiver));
    driver.advance(Duration::from_secs(150));
    assert!(driver.is_open(receiver), "its PUBACK was read");
}

#[test]
fn a_paused_client_that_closes_or_is_disconnected_leaves_nothing() {
    let mut driver = limited(10, 0);
    let (_, publisher) = pair(&mut driver);
    driver.send(publisher, &PUBLISH.repeat(1_000));
    driver.close(publisher);
    driver.advance(Duration::from_secs(5));
    let (_, publisher) = pair(&mut driver);
    driver.send(publisher, &PUBLISH.repeat(1_000));
    driver.stop();
    driver.advance(Duration::from_secs(5));
    assert!(!driver.is_open(publisher));
    driver.shards[0].recount().expect("every charge is right");
}

/// Connects, sends a burst and leaves, `times` times within a second.
fn connect_again_and_again(driver: &mut MemoryDriver, times: usize, name: impl Fn(usize) -> String) {
    for n in 0..times {
        let publisher = enter(driver, connect(&name(n)));
        driver.send(publisher, &PUBLISH.repeat(20));
        driver.advance(Duration::from_secs(1) / u32::try_from(times).expect("few"));
        driver.close(publisher);
    }
}

#[test]
fn a_client_that_connects_again_and_again_sends_no_more_than_its_rate() {
    let rotating = |n: usize| format!("publisher-{n}");
    let same = |_: usize| "publisher".to_owned();
    for name in [&same as &dyn Fn(usize) -> String, &rotating] {
        let mut driver = limited(10, 0);
        let subscriber = client(&mut driver, "subscriber", 1_000);
        subscribe(&mut driver, subscriber, &["t"], QoS::AtMostOnce);
        connect_again_and_again(&mut driver, 100, name);
        connect_again_and_again(&mut driver, 100, name);
        let count = received(&driver, subscriber);
        assert!((15..=26).contains(&count), "{count} messages in 2 s, at a limit of 10 a second");
    }
}

#[test]
fn a_take_over_keeps_the_debt_and_another_client_of_the_host_keeps_its_rate() {
    let mut driver = limited(10, 0);
    let subscriber = client(&mut driver, "subscriber", 1_000);
    subscribe(&mut driver, subscriber, &["t"], QoS::AtMostOnce);
    for _ in 0..50 {
        let publisher = enter(&mut driver, connect("publisher"));
        driver.send(publisher, &PUBLISH.repeat(20));
        driver.settle();
    }
    let count = received(&driver, subscriber);
    assert!(count <= 6, "{count} messages at once");
    driver.advance(Duration::from_secs(10));
    let before = received(&driver, subscriber);
    let neighbour = enter(&mut driver, connect("neighbour"));
    driver.send(neighbour, PUBLISH);
    driver.settle();
    assert_eq!(received(&driver, subscriber), before + 1, "nobody owes anything any more");
}
