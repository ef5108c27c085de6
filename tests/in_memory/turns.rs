//! How much one turn does, counted in steps, and that the rest is done in later ones.

use crate::world::{self, LinkId, World};
use homing::routing::shard::Progress;

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
