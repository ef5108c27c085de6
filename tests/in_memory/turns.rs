//! How much one turn does, counted in steps, and that the rest is done in later ones.

use crate::world::{self, LinkId, World};
use homing::routing::shard::Progress;
use std::time::Duration;

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

/// The PUBLISHes in what came, none of them longer than 127 bytes.
fn publishes(received: &[u8]) -> usize {
    let mut at = 0;
    let mut found = 0;
    while let Some([first, length]) = received.get(at..at + 2) {
        found += usize::from(first >> 4 == 3);
        at += 2 + usize::from(*length);
    }
    found
}

#[test]
fn delayed_messages_that_are_due_together_are_published_in_one_tick_over_several_turns() {
    const MESSAGES: usize = 3_000;
    for shards in [1, 2] {
        let mut settings = world::settings();
        settings.steps_per_turn = STEPS;
        settings.delayed.messages = MESSAGES;
        let mut world = World::new(&settings, shards);
        // "s" and "x" have different homes among two.
        let (publisher, subscriber) = (client(&mut world, b'p'), client(&mut world, b's'));
        let other = client(&mut world, b'x');
        for link in [subscriber, other] {
            world.send(link, &[0x82, 6, 0, 1, 0, 1, b't', 0]);
            world.links[link].received.clear();
        }
        let later = b"\x30\x0E\0\x0C$delayed/1/t";
        for _ in 0..MESSAGES {
            world.send(publisher, later);
        }
        for shard in &mut world.shards {
            shard.take_longest_turn();
        }
        // One second, and a tick of 250 ms.
        world.advance(Duration::from_millis(1_250));
        for link in [subscriber, other] {
            assert_eq!(publishes(&world.links[link].received), MESSAGES);
        }
        for shard in &mut world.shards {
            let (longest, _) = shard.take_longest_turn();
            assert!(longest <= STEPS + 20, "a turn of {longest} steps, {shards} shards");
        }
    }
}
