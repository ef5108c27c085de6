//! Figures that all arbiters share: connections, the memory budget, what each shard counted.

use crate::expiry::statistics::ExpiryStatistics;
use crate::routing::shard::{Common, Figures};
use crate::store::writer::Statistics as StoreStatistics;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Shared by listeners, shards and whoever reports.
#[derive(Debug)]
pub struct Statistics {
    /// Sockets accepted and not yet closed, whatever they have said.
    connections: AtomicUsize,
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
    pub fn new(shards: usize, common: Arc<Common>) -> Statistics {
        Statistics {
            connections: AtomicUsize::new(0),
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

    /// Bytes on the account of memory.
    pub fn memory(&self) -> u64 {
        self.common.budget.held()
    }

    /// Bytes that may be.
    pub fn memory_limit(&self) -> u64 {
        self.common.budget.most()
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
