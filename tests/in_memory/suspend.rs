//! The machine is suspended and wakes. Times that a peer is waited for begin anew. Expiry times go
//! on.

use crate::world::{self, LinkId, World};
use std::time::Duration;

const S: fn(u64) -> Duration = Duration::from_secs;
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// Connects at 5.0 with a session of 30 days. Returns true beside the link if there was a session.
fn connect(world: &mut World, name: &[u8; 1], keep_alive: u8) -> (LinkId, bool) {
    let link = world.open();
    let expiry = (30 * 24 * 3600_u32).to_be_bytes();
    let fixed = [b"\x10\x13\0\x04MQTT\x05\0\0", &[keep_alive][..], b"\x05\x11", &expiry, b"\0\x01", name];
    world.send(link, &fixed.concat());
    let connack = &world.links[link].received;
    assert_eq!((connack[0], connack[3]), (0x20, 0));
    (link, connack[2] == 1)
}

/// SUBSCRIBE to `t` at QoS 1.
fn subscribe(world: &mut World, link: LinkId) {
    world.send(link, b"\x82\x07\0\x01\0\0\x01t\x01");
}

fn world() -> World {
    let mut settings = world::settings();
    settings.session.connect.session_expiry = 60 * 24 * 3600;
    World::new(&settings, 1)
}

#[test]
fn who_was_connected_has_the_whole_keep_alive_after_a_suspend() {
    let mut world = world();
    let (client, _) = connect(&mut world, b"c", 10);
    world.advance(S(14));
    world.suspend(WEEK);
    world.advance(S(14));
    assert!(world.is_open(client), "it could not speak before");
    world.advance(S(2));
    assert!(!world.is_open(client));
}

#[test]
fn who_owes_an_acknowledgement_has_its_whole_time_after_a_suspend() {
    let mut world = world();
    let (client, _) = connect(&mut world, b"c", 0);
    let (publisher, _) = connect(&mut world, b"p", 0);
    subscribe(&mut world, client);
    world.send(publisher, b"\x32\x07\0\x01t\0\x01\0x");
    world.advance(S(30));
    world.suspend(WEEK);
    world.advance(S(50));
    assert!(world.is_open(client), "the timeout is of 60 s");
    world.advance(S(20));
    assert!(!world.is_open(client));
}

#[test]
fn sessions_and_messages_expire_by_the_time_that_passed_in_a_suspend() {
    let mut world = world();
    let (client, _) = connect(&mut world, b"c", 0);
    let (publisher, _) = connect(&mut world, b"p", 0);
    subscribe(&mut world, client);
    world.close(client);
    // One message expires in an hour, the other does not expire.
    world.send(publisher, b"\x32\x0C\0\x01t\0\x01\x05\x02\0\0\x0E\x10h\x32\x07\0\x01t\0\x02\0x");
    world.suspend(WEEK);
    let (back, present) = connect(&mut world, b"c", 0);
    assert!(present, "30 days have not passed");
    let received = &world.links[back].received;
    assert_eq!(received.iter().filter(|byte| **byte == b't').count(), 1, "{received:?}");
    assert!(received.ends_with(b"x"));
    world.close(back);
    (0..5).for_each(|_| world.suspend(WEEK));
    assert!(!connect(&mut world, b"c", 0).1, "30 days have passed");
}
