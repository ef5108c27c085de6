//! Publishers that wait for peers.

use crate::client::{connect_3_1_1, named_at};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::routing::subscription_tree::ShardId;

/// A client whose session lives in this shard of three.
fn client(driver: &mut MemoryDriver, shard: u8, role: &str) -> LinkId {
    let link = driver.open();
    driver.send(link, &connect_3_1_1(&named_at(role, shard, 3)));
    assert!(driver.links[link].version.is_some());
    link
}

#[test]
fn a_publisher_goes_on_when_the_peer_that_it_waits_for_has_room_whatever_others_have() {
    let mut driver = MemoryDriver::new(&driver::settings(), 3);
    let to_one = client(&mut driver, 0, "p");
    let to_two = client(&mut driver, 0, "q");
    let one = client(&mut driver, 1, "s");
    let two = client(&mut driver, 2, "s");
    driver.send(one, b"\x82\x06\0\x01\0\x01a\0");
    driver.send(two, b"\x82\x06\0\x01\0\x01b\0");
    let reads = |driver: &MemoryDriver, link: LinkId| driver.shards[0].connection(driver.id(link)).reads();
    driver.delays_peer_batches = true;
    for (publisher, publish) in [(to_one, b"\x30\x04\0\x01ax"), (to_two, b"\x30\x04\0\x01bx")] {
        // Beyond what a peer may owe answers for.
        driver.send(publisher, &publish.repeat(10_000));
        assert!(!reads(&driver, publisher));
    }
    // The first of them answers, the second does not.
    driver.delays_peer_batches = false;
    driver.busy = Some(ShardId(2));
    driver.settle();
    assert!(reads(&driver, to_one) && !reads(&driver, to_two));
    driver.busy = None;
    driver.settle();
    assert!(reads(&driver, to_one) && reads(&driver, to_two));
    for link in [one, two] {
        let publishes = driver.links[link].received.iter().filter(|byte| **byte == b'x').count();
        assert_eq!(publishes, 10_000);
    }
}
