//! Durability: packets that wait for a commit, packets that do not, and the state after a restart.
//!
//! The store is in memory. The test holds its commits back and releases them. Its image is the
//! state that a killed broker leaves.

mod faults;
mod gated;

mod interruptions;
mod queues;
mod restart;
mod waiting;

use crate::support::launch::{TestBroker, start_stored, with_one_and_three_threads};
use crate::support::memory_store::{Image, Memory};
use crate::support::{Connect, Message, RawClient, V5, Version};
use gated::{Gate, Gated};
use homing::config::Config;
use homing::shard::shard_of;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// A broker, its store, and the gate before the store's commits.
struct Stored {
    broker: TestBroker,
    memory: Memory,
    gate: Arc<Gate>,
    threads: u8,
}

impl Stored {
    fn new(threads: u8) -> Stored {
        Stored::on(Memory::default(), threads, Duration::ZERO)
    }

    /// On what a killed broker left, so much later.
    fn after_a_crash(image: Image, threads: u8, later: Duration) -> Stored {
        Stored::on(Memory::from_image(image), threads, later)
    }

    fn on(memory: Memory, threads: u8, later: Duration) -> Stored {
        Stored::configured(memory, threads, later, |_| {})
    }

    fn configured(memory: Memory, threads: u8, later: Duration, set: impl FnOnce(&mut Config)) -> Stored {
        let gate = Arc::new(Gate::default());
        let store = Gated::new(memory.clone(), Arc::clone(&gate), later);
        let broker = start_stored(Box::new(store), |config| {
            config.runtime.threads = threads.into();
            set(config);
        });
        Stored { broker, memory, gate, threads }
    }

    /// Asserts that nothing has come to these clients, while a commit is stopped.
    ///
    /// Before the sockets are looked at, each thread has passed two later messages on to each other
    /// thread. So the assertion means the same on a busy machine: what was to leave with an earlier
    /// turn has left.
    fn assert_nothing_came<'a>(&self, clients: impl IntoIterator<Item = &'a mut RawClient>) {
        let witness = |shard| self.broker.connect(&Connect::new(V5, &self.id("witness", shard)));
        let mut witnesses: Vec<RawClient> = (0..self.threads).map(witness).collect();
        witnesses.iter_mut().for_each(|w| assert_eq!(w.subscribe(&[("witness", 0)]), [0]));
        for from in (0..witnesses.len()).chain(0..witnesses.len()) {
            witnesses[from].publish(&Message::new("witness", ""));
            witnesses.iter_mut().for_each(|w| _ = w.expect_publish());
        }
        clients.into_iter().for_each(|client| client.expect_nothing_for(Duration::from_millis(1)));
    }

    /// Returns the state that the broker would leave if it were killed now.
    fn image(&self) -> Image {
        self.memory.image()
    }

    /// A client id of a session that lives in this shard, or in the first where there are fewer.
    fn id(&self, name: &str, shard: u8) -> String {
        let here = |id: &String| shard_of(id, self.threads).0 == shard % self.threads;
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

/// Runs a test against stored brokers of one and of three threads.
fn on_stored_brokers(test: impl Fn(&Stored)) {
    with_one_and_three_threads(|threads| test(&Stored::new(threads)));
}
