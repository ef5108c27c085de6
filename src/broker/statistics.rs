//! Figures that all arbiters share: connections, the memory budget, what each shard counted.

use crate::expiry::statistics::ExpiryStatistics;
use crate::routing::shard::{Common, Figures};
use crate::store::writer::Statistics as StoreStatistics;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Packets that are not whole may use this part of the memory budget: one in so many.
const PARTIAL_SHARE: i64 = 4;

/// Written only when it changes: every publish on every arbiter reads it.
fn set(flag: &AtomicBool, value: bool) {
    if flag.load(Ordering::Relaxed) != value {
        flag.store(value, Ordering::Relaxed);
    }
}

/// Shared by listeners, shards and whoever reports.
#[derive(Debug)]
pub struct Statistics {
    /// Sockets accepted and not yet closed, whatever they have said.
    connections: AtomicUsize,
    /// Bytes of packets that are not whole yet.
    partial: AtomicI64,
    memory_budget: i64,
    common: Arc<Common>,
    pub expiry: Arc<ExpiryStatistics>,
    /// Once the store's threads have started.
    store: OnceLock<Arc<StoreStatistics>>,
    /// Events that no topic was told of, for want of rate.
    events_left_out: AtomicU64,
    /// As of each shard's last chore.
    shards: Vec<Mutex<Figures>>,
}

impl Statistics {
    pub fn new(shards: usize, memory_budget: u64, common: Arc<Common>) -> Statistics {
        Statistics {
            connections: AtomicUsize::new(0),
            partial: AtomicI64::new(0),
            memory_budget: i64::try_from(memory_budget).unwrap_or(i64::MAX),
            common,
            expiry: Arc::default(),
            store: OnceLock::new(),
            events_left_out: AtomicU64::new(0),
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

    /// A shard's partial packets grew or shrank; at most once per turn and shard.
    pub fn partial_changed(&self, grown: i64) {
        let partial = self.partial.fetch_add(grown, Ordering::Relaxed) + grown;
        set(&self.common.over_partial, partial > self.memory_budget / PARTIAL_SHARE);
    }

    /// Bytes on the account of memory.
    pub fn memory(&self) -> u64 {
        self.common.budget.held()
    }

    /// Adds what this thread charged and released to the account.
    pub fn settle(&self) {
        self.common.budget.settle();
    }

    /// The store's threads have started.
    pub fn set_store(&self, statistics: Arc<StoreStatistics>) {
        let _ = self.store.set(statistics);
    }

    /// What the store has done, if there is one.
    pub fn store(&self) -> Option<&StoreStatistics> {
        self.store.get().map(|s| &**s)
    }

    pub fn event_left_out(&self) {
        self.events_left_out.fetch_add(1, Ordering::Relaxed);
    }

    pub fn events_left_out(&self) -> u64 {
        self.events_left_out.load(Ordering::Relaxed)
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
