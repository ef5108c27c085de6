//! Publishers that wait for peers.

use crate::client::{connect_3_1_1, named_at};
use crate::world::{self, LinkId, World};
use homing::routing::subscription_tree::ShardId;

/// A client whose session lives in this shard of three.
fn client(world: &mut World, shard: u8, role: &str) -> LinkId {
    let link = world.open();
    world.send(link, &connect_3_1_1(&named_at(role, shard, 3)));
    assert!(world.links[link].version.is_some());
    link
}

#[test]
fn a_publisher_goes_on_when_the_peer_that_it_waits_for_has_room_whatever_others_have() {
    let mut world = World::new(&world::settings(), 3);
    let to_one = client(&mut world, 0, "p");
    let to_two = client(&mut world, 0, "q");
    let one = client(&mut world, 1, "s");
    let two = client(&mut world, 2, "s");
    world.send(one, b"\x82\x06\0\x01\0\x01a\0");
    world.send(two, b"\x82\x06\0\x01\0\x01b\0");
    let reads = |world: &World, link: LinkId| world.shards[0].reads(world.id(link));
    world.holds_peer_batches = true;
    for (publisher, publish) in [(to_one, b"\x30\x04\0\x01ax"), (to_two, b"\x30\x04\0\x01bx")] {
        // Beyond what a peer may owe answers for.
        world.send(publisher, &publish.repeat(10_000));
        assert!(!reads(&world, publisher));
    }
    // The first of them answers, the second does not.
    world.holds_peer_batches = false;
    world.busy = Some(ShardId(2));
    world.settle();
    assert!(reads(&world, to_one) && !reads(&world, to_two));
    world.busy = None;
    world.settle();
    assert!(reads(&world, to_one) && reads(&world, to_two));
    for link in [one, two] {
        let publishes = world.links[link].received.iter().filter(|byte| **byte == b'x').count();
        assert_eq!(publishes, 10_000);
    }
}
