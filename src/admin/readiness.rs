//! Can clients connect, and does the store commit? For probes, and for the header of the pages.

use crate::broker::observer::Observer;
use crate::time::Instant;
use std::time::Duration;

/// Age of the oldest uncommitted change from which the broker is not ready. A healthy disk commits
/// within milliseconds, and a busy one within a second. A broker gives a client the same time for
/// its CONNECT (`network.connect_timeout`), so by then clients give up waiting for their CONNACK.
pub(super) const LATE: Duration = Duration::from_secs(10);

/// The readiness of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BrokerReadiness {
    /// Clients cannot connect yet.
    Starting,
    Stopping,
    /// The store takes no new messages.
    StoreFull,
    /// A change has waited for its commit for longer than [`LATE`].
    StoreLate,
    Ready,
}

/// The state of the store, as of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreState {
    /// True while the store has no room.
    pub is_full: bool,
    /// The age of the oldest uncommitted change.
    pub oldest_uncommitted: Duration,
    /// The time within which 99 % of the commits since the start were done.
    pub commit_p99: Duration,
}

impl BrokerReadiness {
    /// Returns the readiness now. `observer` is `None` while the broker starts.
    pub(super) fn of(observer: Option<&Observer>, now: Instant) -> BrokerReadiness {
        let Some(observer) = observer else { return BrokerReadiness::Starting };
        if observer.statistics().is_stopping() {
            return BrokerReadiness::Stopping;
        }
        StoreState::of(observer, now).map_or(BrokerReadiness::Ready, StoreState::readiness)
    }

    /// Returns true if clients can connect and the store commits.
    pub(super) fn is_ready(self) -> bool {
        self == BrokerReadiness::Ready
    }

    /// Returns the names of the phase and of the state of the store.
    pub(super) fn checks(self) -> (&'static str, &'static str) {
        match self {
            BrokerReadiness::Starting => ("starting", "ok"),
            BrokerReadiness::Stopping => ("stopping", "ok"),
            BrokerReadiness::StoreFull => ("ready", "full"),
            BrokerReadiness::StoreLate => ("ready", "late"),
            BrokerReadiness::Ready => ("ready", "ok"),
        }
    }

    /// Returns the words for people.
    pub(super) fn title(self) -> &'static str {
        match self {
            BrokerReadiness::Starting => "Starting",
            BrokerReadiness::Stopping => "Stopping",
            BrokerReadiness::StoreFull | BrokerReadiness::StoreLate => "Not ready",
            BrokerReadiness::Ready => "Ready",
        }
    }
}

impl StoreState {
    /// Returns the state of the store; `None` without a store.
    pub(super) fn of(observer: &Observer, now: Instant) -> Option<StoreState> {
        let store = observer.statistics().store()?;
        Some(StoreState {
            is_full: observer.shared().is_store_full(),
            oldest_uncommitted: store.oldest_uncommitted(now),
            commit_p99: store.commit_time.p99(),
        })
    }

    /// Returns true if a change has waited for its commit for longer than [`LATE`].
    pub(super) fn is_late(self) -> bool {
        self.oldest_uncommitted > LATE
    }

    fn readiness(self) -> BrokerReadiness {
        // A full store says what to do; its changes wait for room, so they are late as well.
        match (self.is_full, self.is_late()) {
            (true, _) => BrokerReadiness::StoreFull,
            (false, true) => BrokerReadiness::StoreLate,
            (false, false) => BrokerReadiness::Ready,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_ready_while_it_has_room_and_no_change_waits_longer_than_the_bound() {
        let store = |is_full, oldest_uncommitted| {
            StoreState { is_full, oldest_uncommitted, ..StoreState::default() }.readiness().checks()
        };
        assert_eq!(store(false, Duration::ZERO), ("ready", "ok"));
        assert_eq!(store(false, LATE), ("ready", "ok"));
        assert_eq!(store(false, LATE + Duration::from_millis(1)), ("ready", "late"));
        assert_eq!(store(true, LATE * 2), ("ready", "full"));
    }
}
