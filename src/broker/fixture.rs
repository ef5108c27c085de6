//! Fixtures of the unit tests of this folder.

use super::listener_plan::ListenerPlan;
use super::settings::settings;
use super::statistics::BrokerStatistics;
use crate::config::Config;
use crate::login::debts::Debts;
use crate::mqtt::charge::Budget;
use crate::routing::retained::{Retained, RetainedLimits};
use crate::routing::subscription_tree::ShardId;
use crate::shard::randomness::Randomness;
use crate::shard::{PartialShare, Shard, SharedState};
use crate::shared::lease::Lease;
use crate::shared::totals::Totals;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex};

/// Returns the state that shards share, with 1 GiB of memory.
pub(super) fn shared() -> Arc<SharedState> {
    let retained = RetainedLimits { messages: 1_000, bytes: 1 << 20 };
    Arc::new(SharedState {
        retained: Mutex::new(Retained::new(retained)),
        budget: Arc::new(Budget::new(1 << 30)),
        partial: PartialShare::new(1 << 28, 0),
        store_full: AtomicBool::new(false),
        totals: Totals::default(),
        debts: Debts::default(),
        store_room: AtomicI64::new(i64::MAX),
        lease: Lease::default(),
        name: None,
    })
}

/// Returns counters at zero, for one shard.
pub(super) fn statistics(shared: &Arc<SharedState>) -> Arc<BrokerStatistics> {
    Arc::new(BrokerStatistics::new(1, Arc::clone(shared)))
}

/// Returns shard 0 of `shards`, with the settings of an empty configuration file.
pub(super) fn shard(shards: u8, shared: Arc<SharedState>) -> Shard {
    Shard::new(
        ShardId(0),
        shards,
        settings(&Config::default(), &ListenerPlan::at_start(&[])),
        shared,
        Randomness::reproducible(1),
    )
}
