//! Readiness: clients can connect, every thread that they need works, and the store commits and has
//! room. A node of a cluster is ready if it serves. For probes, and for the header of the pages.

use super::state::AdminState;
use super::store_state::{LATE, StoreState};
use crate::broker::observer::Observer;
use crate::clock;
use crate::cluster::row::ClusterView;
use crate::named_enum::named_enum;
use crate::ownership::Role;
use crate::pulse::LateThread;
use crate::time::duration::long;
use crate::time::{Instant, millis};
use actix_web::web::Data;
use serde::Serialize;
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};
use utoipa::ToSchema;

/// Time without a sign of life from which a thread hangs. With [`ASKS`], a probe reports the thread
/// within 5 s. A turn takes 5 ms at most, and a commit on a busy disk a second.
pub(super) const SILENT: Duration = Duration::from_millis(3_500);

/// The time between two questions to each thread. A probe asks, too.
const ASKS: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BrokerReadiness {
    phase: BrokerPhase,
    store: StoreCheck,
    /// The threads that hang. While the broker starts or stops, its threads are not asked.
    late: Vec<LateThread>,
}

named_enum! {
    /// The phase of the broker.
    pub(super) enum BrokerPhase {
        /// Clients cannot connect yet.
        Starting = "starting",
        Stopping = "stopping",
        /// A node of a cluster that does not serve.
        Standby = "standby",
        /// The engine of the cluster has stored nothing for `cluster.isolation_timeout`.
        Isolated = "isolated",
        /// Frames of the cluster were lost or changed, so nobody serves.
        Alarmed = "alarmed",
        Running = "ready",
    }

    /// The check of the store.
    pub(super) enum StoreCheck {
        Ok = "ok",
        /// The store takes no new messages.
        Full = "full",
        /// A change has waited for its commit for longer than [`LATE`].
        Late = "late",
    }

    pub(super) enum ThreadCheck {
        Ok = "ok",
        /// A thread gave no sign of life for [`SILENT`].
        Late = "late",
    }
}

/// The results of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct ReadinessChecks {
    phase: BrokerPhase,
    /// `late`: a change has waited for its commit for more than 10 s.
    store: StoreCheck,
    /// `late`: a thread gave no sign of life for 3.5 s.
    threads: ThreadCheck,
}

impl BrokerReadiness {
    /// Asks the threads, and returns the readiness now.
    pub(super) fn of(state: &AdminState, now: Instant) -> BrokerReadiness {
        BrokerReadiness::seen_by(state.observer(), state.cluster(), now)
    }

    /// `observer` is `None` while the broker starts or stands by, `cluster` without a cluster.
    fn seen_by(observer: Option<&Observer>, cluster: Option<&ClusterView>, now: Instant) -> BrokerReadiness {
        let only = |phase| BrokerReadiness { phase, store: StoreCheck::Ok, late: Vec::new() };
        if cluster.is_some_and(|view| view.facts().role == Role::Alarmed) {
            return only(BrokerPhase::Alarmed);
        }
        let Some(observer) = observer else {
            return only(cluster.map_or(BrokerPhase::Starting, |_| BrokerPhase::Standby));
        };
        if observer.statistics().is_stopping() {
            return only(BrokerPhase::Stopping);
        }
        if cluster.is_some_and(|view| view.is_isolated(now)) {
            return only(BrokerPhase::Isolated);
        }
        observer.statistics().pulses().ask(now);
        BrokerReadiness {
            phase: BrokerPhase::Running,
            store: StoreState::of(observer, now).map_or(StoreCheck::Ok, StoreCheck::of),
            late: late_threads(observer, now),
        }
    }

    /// Returns true if clients can connect, every thread works and the store commits.
    pub(super) fn is_ready(&self) -> bool {
        self.phase == BrokerPhase::Running && self.store == StoreCheck::Ok && self.late.is_empty()
    }

    /// Returns the results of the checks.
    pub(super) fn checks(&self) -> ReadinessChecks {
        let threads = if self.late.is_empty() { ThreadCheck::Ok } else { ThreadCheck::Late };
        ReadinessChecks { phase: self.phase, store: self.store, threads }
    }

    /// Returns each reason why the broker is not ready, for people.
    pub(super) fn reasons(&self) -> Vec<String> {
        let phase = match self.phase {
            BrokerPhase::Starting => Some("the broker starts".to_owned()),
            BrokerPhase::Stopping => Some("the broker stops".to_owned()),
            BrokerPhase::Standby => Some("this node stands by: `homing cluster status`".to_owned()),
            BrokerPhase::Isolated => Some("the engine of the cluster stores nothing".to_owned()),
            BrokerPhase::Alarmed => Some("the cluster has an alarm: `homing cluster status`".to_owned()),
            BrokerPhase::Running => None,
        };
        let store = match self.store {
            StoreCheck::Ok => None,
            StoreCheck::Full => Some("the store has no room".to_owned()),
            StoreCheck::Late => Some(format!("a change has waited {} for its commit", long(LATE))),
        };
        let late = self
            .late
            .iter()
            .map(|late| format!("the thread {} has not worked for {}", late.name, long(late.since)));
        phase.into_iter().chain(store).chain(late).collect()
    }

    /// Returns the words for people.
    pub(super) fn title(&self) -> &'static str {
        match self.phase {
            BrokerPhase::Starting => "Starting",
            BrokerPhase::Stopping => "Stopping",
            BrokerPhase::Standby => "Standing by",
            BrokerPhase::Isolated => "Isolated",
            BrokerPhase::Alarmed => "Alarmed",
            BrokerPhase::Running if self.is_ready() => "Ready",
            BrokerPhase::Running => "Not ready",
        }
    }
}

/// Returns the threads that gave no sign of life for `SILENT`.
pub(super) fn late_threads(observer: &Observer, now: Instant) -> Vec<LateThread> {
    observer.statistics().pulses().late(now, SILENT)
}

/// Asks the threads for signs of life once a second, until the interface stops. Logs a thread once
/// when it hangs, and once when it works again.
pub(super) async fn ask_threads(state: Data<AdminState>) {
    let observer = state.started_observer().await;
    let mut ticks = tokio::time::interval(ASKS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut hanging = Vec::new();
    loop {
        ticks.tick().await;
        let now = clock::now();
        observer.statistics().pulses().ask(now);
        hanging = log_changes(hanging, late_threads(observer, now));
    }
}

/// Logs the threads that are late since the last look, and those that are not any more. Returns the
/// former.
fn log_changes(before: Vec<LateThread>, late: Vec<LateThread>) -> Vec<LateThread> {
    let is_in = |threads: &[LateThread], one: &LateThread| threads.iter().any(|other| other.name == one.name);
    for thread in late.iter().filter(|thread| !is_in(&before, thread)) {
        let for_ms = millis(thread.since);
        warn!(event = "broker.thread_hangs", thread = %thread.name, for_ms, "a thread gives no sign of life");
    }
    for thread in before.iter().filter(|thread| !is_in(&late, thread)) {
        info!(event = "broker.thread_works_again", thread = %thread.name, "the thread works again");
    }
    late
}

impl StoreCheck {
    fn of(store: StoreState) -> StoreCheck {
        // `Full` comes first, because it suggests a fix. Changes of a full store wait for room, so
        // they are late as well.
        match (store.is_full, store.is_late()) {
            (true, _) => StoreCheck::Full,
            (false, true) => StoreCheck::Late,
            (false, false) => StoreCheck::Ok,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pulse::ThreadWork;

    fn of(store: StoreState, late: Vec<LateThread>) -> BrokerReadiness {
        BrokerReadiness { phase: BrokerPhase::Running, store: StoreCheck::of(store), late }
    }

    #[test]
    fn a_store_is_ready_while_it_has_room_and_no_change_waits_longer_than_the_bound() {
        let store = |is_full, oldest_uncommitted| {
            of(StoreState { is_full, oldest_uncommitted, ..StoreState::default() }, Vec::new())
                .checks()
                .store
                .name()
        };
        assert_eq!(store(false, Duration::ZERO), "ok");
        assert_eq!(store(false, LATE), "ok");
        assert_eq!(store(false, LATE + Duration::from_millis(1)), "late");
        assert_eq!(store(true, LATE * 2), "full");
    }

    #[test]
    fn every_reason_is_named() {
        let ready = of(StoreState::default(), Vec::new());
        assert_eq!((ready.is_ready(), ready.title(), ready.reasons()), (true, "Ready", Vec::new()));
        let (work, since) = (ThreadWork::Serves, Duration::from_secs(4));
        let late = vec![LateThread { name: "homing-shard-1".into(), work, since }];
        let readiness = of(StoreState { is_full: true, ..StoreState::default() }, late);
        assert_eq!((readiness.is_ready(), readiness.title()), (false, "Not ready"));
        let checks = ReadinessChecks {
            phase: BrokerPhase::Running,
            store: StoreCheck::Full,
            threads: ThreadCheck::Late,
        };
        assert_eq!(readiness.checks(), checks);
        let reasons = ["the store has no room", "the thread homing-shard-1 has not worked for 4 s"];
        assert_eq!(readiness.reasons(), reasons);
        let starting = BrokerReadiness::seen_by(None, None, Instant::ZERO);
        assert_eq!(
            (starting.title(), starting.reasons()),
            ("Starting", vec!["the broker starts".to_owned()])
        );
    }
}
