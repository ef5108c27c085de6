//! The machine is suspended and wakes. Times that a peer is waited for begin anew. Expiry times go
//! on.

use crate::driver::{self, LinkId, MemoryDriver};
use std::time::Duration;

const S: fn(u64) -> Duration = Duration::from_secs;
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// Connects at 5.0 with a session of 30 days. Returns true beside the link if there was a session.
fn connect(driver: &mut MemoryDriver, name: &[u8; 1], keep_alive: u8) -> (LinkId, bool) {
    let link = driver.open();
    let expiry = (30 * 24 * 3600_u32).to_be_bytes();
    let fixed = [b"\x10\x13\0\x04MQTT\x05\0\0", &[keep_alive][..], b"\x05\x11", &expiry, b"\0\x01", name];
    driver.send(link, &fixed.concat());
    let connack = &driver.links[link].received;
    assert_eq!((connack[0], connack[3]), (0x20, 0));
    (link, connack[2] == 1)
}

/// SUBSCRIBE to `t` at QoS 1.
fn subscribe(driver: &mut MemoryDriver, link: LinkId) {
    driver.send(link, b"\x82\x07\0\x01\0\0\x01t\x01");
}

fn driver() -> MemoryDriver {
    let mut settings = driver::settings();
    settings.session.connect.session_expiry = 60 * 24 * 3600;
    MemoryDriver::new(&settings, 1)
}

#[test]
fn who_was_connected_has_the_whole_keep_alive_after_a_suspend() {
    let mut driver = driver();
    let (client, _) = connect(&mut driver, b"c", 10);
    driver.advance(S(14));
    driver.suspend(WEEK);
    driver.advance(S(14));
    assert!(driver.is_open(client), "it could not speak before");
    driver.advance(S(2));
    assert!(!driver.is_open(client));
}

#[test]
fn who_owes_an_acknowledgement_has_its_whole_time_after_a_suspend() {
    let mut driver = driver();
    let (client, _) = connect(&mut driver, b"c", 0);
    let (publisher, _) = connect(&mut driver, b"p", 0);
    subscribe(&mut driver, client);
    driver.send(publisher, b"\x32\x07\0\x01t\0\x01\0x");
    driver.advance(S(30));
    driver.suspend(WEEK);
    driver.advance(S(50));
    assert!(driver.is_open(client), "the timeout is of 60 s");
    driver.advance(S(20));
    assert!(!driver.is_open(client));
}

#[test]
fn sessions_and_messages_expire_by_the_time_that_passed_in_a_suspend() {
    let mut driver = driver();
    let (client, _) = connect(&mut driver, b"c", 0);
    let (publisher, _) = connect(&mut driver, b"p", 0);
    subscribe(&mut driver, client);
    driver.close(client);
    // One message expires in an hour, the other does not expire.
    driver.send(publisher, b"\x32\x0C\0\x01t\0\x01\x05\x02\0\0\x0E\x10h\x32\x07\0\x01t\0\x02\0x");
    driver.suspend(WEEK);
    let (back, present) = connect(&mut driver, b"c", 0);
    assert!(present, "30 days have not passed");
    let received = &driver.links[back].received;
    assert_eq!(received.iter().filter(|byte| **byte == b't').count(), 1, "{received:?}");
    assert!(received.ends_with(b"x"));
    driver.close(back);
    (0..5).for_each(|_| driver.suspend(WEEK));
    assert!(!connect(&mut driver, b"c", 0).1, "30 days have passed");
}
