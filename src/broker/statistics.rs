//! Figures that all arbiters share: connections, the memory budget, what each shard counted.

use crate::routing::shard::{Common, Figures};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Shared by listeners, shards and whoever reports.
#[derive(Debug)]
pub struct Statistics {
    /// Sockets accepted and not yet closed, whatever they have said.
    connections: AtomicUsize,
    /// Bytes of message bodies (retained ones among them) and of packets that are not whole yet.
    memory: AtomicI64,
    memory_budget: i64,
    common: Arc<Common>,
    /// As of each shard's last chore.
    shards: Vec<Mutex<Figures>>,
}

impl Statistics {
    pub fn new(shards: usize, memory_budget: u64, common: Arc<Common>) -> Statistics {
        Statistics {
            connections: AtomicUsize::new(0),
            memory: AtomicI64::new(0),
            memory_budget: i64::try_from(memory_budget).unwrap_or(i64::MAX),
            common,
            shards: (0..shards).map(|_| Mutex::default()).collect(),
        }
    }

    /// Takes a place for a connection, if there are fewer than `limit`.
    pub fn open_connection(&self, limit: usize) -> bool {
        if self.connections.fetch_add(1, Ordering::Relaxed) < limit {
            return true;
        }
        self.connection_closed();
        false
    }

    pub fn connection_closed(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// A shard's bodies and partial packets grew or shrank; at most once per turn and shard.
    pub fn memory_changed(&self, delta: i64) {
        let total = self.memory.fetch_add(delta, Ordering::Relaxed) + delta;
        let over = total > self.memory_budget;
        // Written only when it changes: every publish on every arbiter reads it.
        if self.common.over_budget.load(Ordering::Relaxed) != over {
            self.common.over_budget.store(over, Ordering::Relaxed);
        }
    }

    pub fn memory(&self) -> i64 {
        self.memory.load(Ordering::Relaxed)
    }

    pub fn report(&self, shard: usize, figures: Figures) {
        if let Some(place) = self.shards.get(shard) {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = figures;
        }
    }

    /// All shards together.
    pub fn total(&self) -> Figures {
        let mut total = Figures::default();
        for shard in &self.shards {
            total.add(&shard.lock().unwrap_or_else(PoisonError::into_inner));
        }
        total
    }
}
