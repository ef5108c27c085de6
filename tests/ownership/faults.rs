//! The faults that a round may have.

use super::world::{NODES, Occupant, World};
use homing_core::named_enum::named_enum;

named_enum! {
    /// The faults that a round may have.
    pub enum Fault {
        Crash = "crash",
        Reboot = "reboot",
        Wipe = "wipe",
        Stop = "stop",
        Freeze = "freeze",
        Hang = "hang",
        Cut = "cut",
        Flap = "flap",
        Slow = "slow",
        Lossy = "lossy",
        Elect = "elect",
        Stall = "stall",
        Lag = "lag",
        FullLog = "full log",
        FullDisk = "full disk",
        Drain = "drain",
    }
}

/// Begins a fault, and returns the time of its end.
pub fn begin<O: Occupant>(world: &mut World<O>, fault: Fault) -> u64 {
    let owner = world.owner(0).filter(|_| fault == Fault::Drain || world.rng.percent(70));
    let node = owner.unwrap_or_else(|| world.rng.below(NODES as u64) as usize);
    let until = world.now + world.rng.between(500, 12_000);
    match fault {
        Fault::Crash => world.crash(node, until - world.now),
        Fault::Reboot => world.reboot(node, until - world.now),
        Fault::Wipe => world.wipe(node, until - world.now),
        Fault::Stop => world.stop(node, until),
        Fault::Freeze => world.freeze(node, until),
        Fault::Hang => world.hang(node, until),
        Fault::Cut => world.engine.links[node].cut_until = until,
        Fault::Flap => return flap(world, node),
        Fault::Slow => world.engine.links[node].slow_until = until,
        Fault::Lossy => {
            world.engine.links[node].lossy_until = until;
            // The last request of it may arrive so late.
            return until + 5000;
        }
        Fault::Elect => {
            let gap = world.rng.between(4000, 9000);
            let side = (0..NODES).filter(|_| world.rng.percent(30)).collect();
            world.engine.elect(gap, side);
            return world.now + gap;
        }
        Fault::Stall => world.engine.stall(until),
        Fault::Lag => {
            let server = world.rng.below(3) as usize;
            world.engine.lag(server, until);
        }
        Fault::FullLog => world.engine.fill(until),
        Fault::FullDisk => world.fill_disk(node, until),
        Fault::Drain => {
            world.drain(node);
            return world.now;
        }
    }
    until
}

/// The link comes for moments.
fn flap<O: Occupant>(world: &mut World<O>, node: usize) -> u64 {
    for _ in 0..world.rng.between(2, 5) {
        world.engine.links[node].cut_until = world.now + world.rng.between(500, 4000);
        let gap = world.rng.between(2, 600);
        world.run_until(world.engine.links[node].cut_until + gap);
    }
    world.now
}
