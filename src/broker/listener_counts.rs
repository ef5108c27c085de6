//! The connections of each listener, also of those that a reload has removed.

use crate::login::listener_terms::ListenerConnections;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The connections of each label that a listener has or had. No label leaves.
#[derive(Debug, Default)]
pub struct ListenerCounts(Mutex<Vec<Arc<ListenerConnections>>>);

impl ListenerCounts {
    /// Adds a listener, if its counts are not here already.
    pub(super) fn add(&self, listener: &Arc<ListenerConnections>) {
        if self.of_label(listener.label()).is_none() {
            self.lock().push(Arc::clone(listener));
        }
    }

    /// Returns the connections of the listener with this label; `None` if no listener ever had it.
    pub fn of_label(&self, label: &str) -> Option<Arc<ListenerConnections>> {
        self.lock().iter().find(|listener| listener.label() == label).cloned()
    }

    /// Returns the connections of each listener since the start.
    pub fn all(&self) -> Vec<Arc<ListenerConnections>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<ListenerConnections>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::fixture;
    use crate::broker::statistics::{BrokerStatistics, ConnectionLimit};

    #[test]
    fn a_listener_counts_the_connections_of_its_label_against_its_limit() {
        let statistics = BrokerStatistics::new(1, fixture::shared());
        let [a, b] = ["a", "b"].map(|label| Arc::new(ListenerConnections::new(label.to_owned())));
        [&a, &b, &a].into_iter().for_each(|listener| statistics.listeners().add(listener));
        assert!(statistics.open_connection(&a, 9, 2).is_ok());
        assert!(statistics.open_connection(&b, 9, 2).is_ok());
        assert!(statistics.open_connection(&a, 9, 2).is_ok());
        assert_eq!(statistics.open_connection(&a, 9, 2), Err(ConnectionLimit::Listener));
        let counts = || -> Vec<(String, usize, u64)> {
            let all = statistics.listeners().all();
            all.iter().map(|one| (one.label().to_owned(), one.open(), one.opened())).collect()
        };
        assert_eq!(counts(), [("a".to_owned(), 2, 2), ("b".to_owned(), 1, 1)]);
        statistics.connection_closed(&a);
        assert!(statistics.open_connection(&a, 9, 2).is_ok());
        assert_eq!(counts()[0], ("a".to_owned(), 2, 3));
        assert_eq!((statistics.connections(), statistics.opened_connections()), (3, 4));
    }
}
