//! Keep Alive of a client whose packet takes longer than its Keep Alive.

use crate::client::{V5, connect, encoded, enter, publication};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::mqtt::packet::{Connect, Packet};
use std::time::Duration;

const S: fn(u64) -> Duration = Duration::from_secs;

/// Connects a client with a Keep Alive of 10 seconds, which ends after 15.
fn client(driver: &mut MemoryDriver) -> LinkId {
    enter(driver, Connect { keep_alive: 10, ..connect("c") })
}

fn driver() -> MemoryDriver {
    let mut settings = driver::settings();
    settings.write_timeout = S(60);
    MemoryDriver::new(&settings, 1)
}

/// Sends the bytes in pieces of this size, one each second. Returns true if the client is still
/// connected.
fn trickles(driver: &mut MemoryDriver, link: LinkId, bytes: &[u8], piece: usize) -> bool {
    for piece in bytes.chunks(piece) {
        driver.send(link, piece);
        driver.advance(S(1));
        if !driver.is_open(link) {
            return false;
        }
    }
    true
}

#[test]
fn a_packet_that_flows_steadily_keeps_its_client_alive() {
    let mut driver = driver();
    let link = client(&mut driver);
    let publish = encoded(&Packet::Publish(publication("t", &[7; 50_000])), V5);
    // 500 s on a link of 100 bytes each second.
    assert!(trickles(&mut driver, link, &publish, 100));
    driver.send(link, b"\xC0\0");
    assert!(driver.links[link].received.ends_with(b"\xD0\0"), "the packet is whole");
    // The next one stops half-way.
    driver.send(link, &publish[..1_500]);
    driver.advance(S(14));
    assert!(driver.is_open(link));
    driver.advance(S(2));
    assert!(!driver.is_open(link));
}

#[test]
fn a_packet_that_trickles_keeps_nobody_alive() {
    for piece in [1, 10, 60] {
        let mut driver = driver();
        let link = client(&mut driver);
        let publish = encoded(&Packet::Publish(publication("t", &[7; 50_000])), V5);
        driver.send(link, &publish[..990]);
        driver.advance(S(1));
        let begun = driver.now;
        assert!(!trickles(&mut driver, link, &publish[990..], piece), "{piece}");
        // A piece of 1 byte may end a thousand once.
        assert!(driver.now.since(begun) <= S(2 * 15 + 1), "{piece}: {:?}", driver.now.since(begun));
    }
}

#[test]
fn a_connect_that_grows_gets_no_more_time() {
    let mut driver = driver();
    let link = driver.open();
    let long = encoded(
        &Packet::Connect(Box::new(Connect {
            password: Some(&[7; 20_000]),
            user_name: Some("u"),
            ..connect("c")
        })),
        V5,
    );
    assert!(!trickles(&mut driver, link, &long, 1_000), "network.connect_timeout holds");
    assert!(driver.now.since(homing::time::Instant::ZERO) <= S(60));
}
