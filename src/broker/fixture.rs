//! What the unit tests of this folder start from.

use super::statistics::BrokerStatistics;
use crate::mqtt::charge::Budget;
use crate::routing::retained::{Retained, RetainedLimits};
use crate::shard::totals::Totals;
use crate::shard::{PartialShare, SharedState};
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex};

/// Returns the state that shards share, without a bound on memory.
pub fn shared() -> Arc<SharedState> {
    let retained = RetainedLimits { messages: 1_000, bytes: 1 << 20 };
    Arc::new(SharedState {
        retained: Mutex::new(Retained::new(retained)),
        budget: Arc::new(Budget::new(0)),
        partial: PartialShare::new(0),
        store_full: AtomicBool::new(false),
        totals: Totals::default(),
        store_room: AtomicI64::new(i64::MAX),
    })
}

/// Returns counters at zero, for one shard.
pub fn statistics() -> Arc<BrokerStatistics> {
    Arc::new(BrokerStatistics::new(1, shared()))
}
