//! What an acknowledgement means: what waits for the store, what does not, and what is there after a restart.
//!
//! The store is one in memory whose commits the test holds back and lets go, and whose image is what a broker that was
//! killed leaves behind.

mod faults;
mod gated;

mod interruptions;
mod queues;
mod restart;
mod waiting;

use crate::launch::{TestBroker, start_stored};
use crate::support::{Connect, RawClient, V5, Version};
use gated::{Gate, Gated};
use homing::config::Config;
use homing::routing::shard::home_of;
use homing::store::memory::{Image, Memory};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// How long it is watched that nothing comes while a commit is held back.
const WATCHED: Duration = Duration::from_millis(60);

/// A broker, its store, and the gate before the store's commits.
struct Stored {
    broker: TestBroker,
    memory: Memory,
    gate: Arc<Gate>,
    arbiters: u8,
}

impl Stored {
    fn new(arbiters: u8) -> Stored {
        Stored::on(Memory::default(), arbiters, Duration::ZERO)
    }

    /// On what a killed broker left, so much later.
    fn after_a_crash(image: Image, arbiters: u8, later: Duration) -> Stored {
        Stored::on(Memory::from_image(image), arbiters, later)
    }

    fn on(memory: Memory, arbiters: u8, later: Duration) -> Stored {
        Stored::configured(memory, arbiters, later, |_| {})
    }

    fn configured(memory: Memory, arbiters: u8, later: Duration, set: impl FnOnce(&mut Config)) -> Stored {
        let gate = Arc::new(Gate::default());
        let store = Gated::new(memory.clone(), Arc::clone(&gate), later);
        let broker = start_stored(Box::new(store), |config| {
            config.runtime.arbiters = arbiters.into();
            set(config);
        });
        Stored { broker, memory, gate, arbiters }
    }

    /// What it would leave if it were killed now.
    fn image(&self) -> Image {
        self.memory.image()
    }

    /// A client id of a session that lives in this shard, or in the first where there are fewer.
    fn id(&self, name: &str, shard: u8) -> String {
        let here = |id: &String| home_of(id, self.arbiters).0 == shard % self.arbiters;
        (0..).map(|n| format!("{name}{n}")).find(here).expect("some id lives there")
    }

    /// With a session that ends with its connection, in the first shard.
    fn passing(&self, name: &str) -> RawClient {
        self.broker.connect(&Connect::new(V5, &self.id(name, 0)))
    }

    /// With a session that outlives its connection, in a shard that is, if it can, not the first.
    fn durable(&self, version: Version, name: &str) -> RawClient {
        self.broker.persistent(version, &self.id(name, 1))
    }
}

impl Deref for Stored {
    type Target = TestBroker;

    fn deref(&self) -> &TestBroker {
        &self.broker
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        // It commits what it has before it ends.
        self.gate.open();
    }
}

/// In one thread, and across several.
fn on_one_and_three(test: impl Fn(&Stored)) {
    for arbiters in [1, 3] {
        println!("{arbiters} arbiters");
        test(&Stored::new(arbiters));
    }
}
