//! The view of a running broker for its operators.
//!
//! The view is cheap to clone and may live on any thread. Figures come from counters that the
//! shards report once a second, so reading them costs the shards nothing.

use super::OpenListener;
use super::statistics::BrokerStatistics;
use crate::shard::SharedState;
use std::sync::Arc;

/// A view of a running broker.
#[derive(Clone)]
pub struct Observer {
    statistics: Arc<BrokerStatistics>,
    shared: Arc<SharedState>,
    listeners: Arc<[OpenListener]>,
}

impl Observer {
    pub(super) fn new(
        statistics: Arc<BrokerStatistics>,
        shared: Arc<SharedState>,
        listeners: Arc<[OpenListener]>,
    ) -> Observer {
        Observer { statistics, shared, listeners }
    }

    /// Returns the counters of the broker, as of the shards' last reports.
    pub fn statistics(&self) -> &BrokerStatistics {
        &self.statistics
    }

    /// Returns the state that all shards share.
    pub fn shared(&self) -> &SharedState {
        &self.shared
    }

    /// Returns the listeners, in their order. The index is the number of the listener.
    pub fn listeners(&self) -> &[OpenListener] {
        &self.listeners
    }
}
