//! The connections of each listener, also of those that a reload has removed.

use crate::shard::arrival::ListenerNumber;
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The connections by the number of their listener. A reload adds numbers, and no number leaves.
#[derive(Debug, Default)]
pub struct ListenerCounts(ArcSwap<Vec<NumberedConnections>>);

/// The connections of one listener, whatever numbers it has or had. A listener that comes back
/// under the same label continues the counts.
#[derive(Debug)]
pub struct ListenerConnections {
    label: String,
    open: AtomicUsize,
    /// Connections since the start.
    opened: AtomicU64,
}

/// The connections under one number.
#[derive(Clone, Debug)]
struct NumberedConnections {
    open: Arc<AtomicUsize>,
    of_listener: Arc<ListenerConnections>,
}

impl ListenerConnections {
    /// Returns the name of the listener, or the address of a listener without one.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the open connections, with those that have not sent CONNECT.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Returns the connections since the start.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }
}

impl ListenerCounts {
    /// Adds the next number, for the listener with this label. Costs a copy of the list.
    pub(super) fn add(&self, label: String) {
        let mut listeners = Vec::clone(&self.0.load());
        let known = listeners.iter().find(|other| other.of_listener.label == label);
        let of_listener = match known {
            Some(known) => Arc::clone(&known.of_listener),
            None => {
                let (open, opened) = (AtomicUsize::new(0), AtomicU64::new(0));
                Arc::new(ListenerConnections { label, open, opened })
            }
        };
        listeners.push(NumberedConnections { open: Arc::default(), of_listener });
        self.0.store(Arc::new(listeners));
    }

    /// Counts an open connection. Returns how many its listener had before; 0 for a number that is
    /// not known.
    pub(super) fn open(&self, number: ListenerNumber) -> usize {
        self.0.load().get(usize::from(number.0)).map_or(0, |of| {
            of.open.fetch_add(1, Ordering::Relaxed);
            of.of_listener.open.fetch_add(1, Ordering::Relaxed)
        })
    }

    /// Counts a connection that no limit refused.
    pub(super) fn opened(&self, number: ListenerNumber) {
        if let Some(of) = self.0.load().get(usize::from(number.0)) {
            of.of_listener.opened.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts an open connection less.
    pub(super) fn close(&self, number: ListenerNumber) {
        if let Some(of) = self.0.load().get(usize::from(number.0)) {
            of.open.fetch_sub(1, Ordering::Relaxed);
            of.of_listener.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns true if connections of this number are open.
    pub(super) fn are_open(&self, number: ListenerNumber) -> bool {
        self.0.load().get(usize::from(number.0)).is_some_and(|of| of.open.load(Ordering::Relaxed) > 0)
    }

    /// Returns the open connections of the listener with this label.
    pub fn open_of(&self, label: &str) -> usize {
        let listeners = self.0.load();
        let listener = listeners.iter().find(|other| other.of_listener.label == label);
        listener.map_or(0, |listener| listener.of_listener.open())
    }

    /// Returns the connections of each listener since the start.
    pub fn all(&self) -> Vec<Arc<ListenerConnections>> {
        let mut all: Vec<Arc<ListenerConnections>> = Vec::new();
        for NumberedConnections { of_listener, .. } in &**self.0.load() {
            if !all.iter().any(|other| Arc::ptr_eq(other, of_listener)) {
                all.push(Arc::clone(of_listener));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::fixture;
    use crate::broker::statistics::{BrokerStatistics, ConnectionLimit};

    #[test]
    fn a_listener_counts_the_connections_of_all_its_numbers_against_its_limit() {
        let statistics = BrokerStatistics::new(1, fixture::shared());
        for label in ["a", "b", "a"] {
            statistics.listeners().add(label.to_owned());
        }
        let [before, other, now] = [0, 1, 2].map(ListenerNumber);
        assert!(statistics.open_connection(before, 9, 2).is_ok());
        assert!(statistics.open_connection(other, 9, 2).is_ok());
        assert!(statistics.open_connection(now, 9, 2).is_ok());
        assert_eq!(statistics.open_connection(now, 9, 2), Err(ConnectionLimit::Listener));
        let counts = |statistics: &BrokerStatistics| -> Vec<(String, usize, u64)> {
            let all = statistics.listeners().all();
            all.iter().map(|one| (one.label().to_owned(), one.open(), one.opened())).collect()
        };
        assert_eq!(counts(&statistics), [("a".to_owned(), 2, 2), ("b".to_owned(), 1, 1)]);
        statistics.connection_closed(before);
        assert!(!statistics.listeners().are_open(before) && statistics.listeners().are_open(now));
        assert!(statistics.open_connection(now, 9, 2).is_ok());
        assert_eq!(counts(&statistics)[0], ("a".to_owned(), 2, 3));
        assert_eq!((statistics.connections(), statistics.opened_connections()), (3, 4));
    }
}
