//! The present problems of the broker, the worst first: for the header of the pages, the overview
//! and `GET /api/v1/overview`.

use super::far_problems::far_problems;
use super::views::{in_sentence, seconds, view_of};
use crate::admin::advice;
use crate::admin::listing::{FoundClients, ListedRow};
use crate::admin::queries::stuck::stuck_clients;
use crate::admin::readiness::late_threads;
use crate::admin::rows::refused::RefusedRow;
use crate::admin::segment::segment;
use crate::admin::state::State;
use crate::admin::store_state::{SLOW, StoreState, lag_of};
use crate::bridge;
use crate::broker::observer::Observer;
use crate::clock;
use crate::named_enum::named_enum;
use crate::shard::ShardSnapshot;
use crate::sink;
use crate::store::ship::ShipFigures;
use crate::time::Instant;
use std::time::Duration;

/// Time for which a drop is a problem.
const LATELY: Duration = Duration::from_mins(10);

/// Characters of a client identifier in a text.
const NAME: usize = 64;

/// A present problem of the broker.
#[derive(Clone, Debug)]
pub(crate) struct BrokerProblem {
    pub(crate) kind: BrokerProblemKind,
    /// The fact, as a sentence.
    pub(crate) text: String,
    /// The page that shows more; `None` if no page does.
    pub(super) link: Option<String>,
}

/// Returns true for the session of a bridge or a sink.
fn is_far_side(client_id: &str) -> bool {
    client_id.starts_with(bridge::CLIENT_ID_PREFIX) || client_id.starts_with(sink::CLIENT_ID_PREFIX)
}

named_enum! {
    /// The kinds of problems, the worst first.
    #[derive(PartialOrd, Ord)]
    pub(crate) enum BrokerProblemKind {
        StoreFull = "store_full",
        StoreLate = "store_late",
        StoreDamaged = "store_damaged",
        ThreadHangs = "thread_hangs",
        Memory = "memory",
        StuckClients = "stuck_clients",
        BridgeDown = "bridge_down",
        SinkRefused = "sink_refused",
        SinkDown = "sink_down",
        BridgeStuck = "bridge_stuck",
        SinkStuck = "sink_stuck",
        BridgeRefused = "bridge_refused",
        SinkFilters = "sink_filters",
        Drops = "drops",
        Refusals = "refusals",
        SinkDeadLetters = "sink_dead_letters",
        BridgeSessionLost = "bridge_session_lost",
        Objective = "objective",
        SlowCommits = "slow_commits",
        CopyLate = "copy_late",
        StoreBehind = "store_behind",
        LateDeadlines = "late_deadlines",
        ReloadRefused = "reload_refused",
        RestartPending = "restart_pending",
        ExportFails = "export_fails",
    }
}

impl BrokerProblemKind {
    /// Returns the suggested fix.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            BrokerProblemKind::StoreFull => advice::STORE_FULL,
            BrokerProblemKind::StoreLate => advice::STORE_LATE,
            BrokerProblemKind::StoreDamaged => advice::STORE_DAMAGED,
            BrokerProblemKind::StoreBehind => advice::STORE_BEHIND,
            BrokerProblemKind::CopyLate => advice::COPY_LATE,
            BrokerProblemKind::SlowCommits => advice::SLOW_DISK,
            BrokerProblemKind::ThreadHangs => advice::THREAD_HANGS,
            BrokerProblemKind::Memory => advice::MEMORY,
            BrokerProblemKind::StuckClients => {
                "homing ctl clients --stuck 10s lists them, each with where its message is."
            }
            BrokerProblemKind::Drops => advice::DROPS,
            BrokerProblemKind::Refusals => {
                "Correct the client, or the rule or bound: homing ctl dropped lists what was refused."
            }
            BrokerProblemKind::Objective => "homing ctl slow names the clients and topics that are late.",
            BrokerProblemKind::LateDeadlines => advice::LATE_DEADLINES,
            BrokerProblemKind::ReloadRefused => {
                "homing ctl reload --dry-run names the mistakes. The old configuration is in force."
            }
            BrokerProblemKind::RestartPending => {
                "homing ctl config --changed lists the keys. Restart the broker when it suits."
            }
            BrokerProblemKind::ExportFails => advice::EXPORT_FAILS,
            BrokerProblemKind::BridgeDown => advice::BRIDGE_DOWN,
            BrokerProblemKind::BridgeStuck => advice::BRIDGE_STUCK,
            BrokerProblemKind::BridgeRefused => advice::BRIDGE_REFUSED,
            BrokerProblemKind::BridgeSessionLost => advice::BRIDGE_SESSION_LOST,
            BrokerProblemKind::SinkDown => advice::SINK_DOWN,
            BrokerProblemKind::SinkStuck => advice::SINK_STUCK,
            BrokerProblemKind::SinkRefused => advice::SINK_REFUSED,
            BrokerProblemKind::SinkFilters => advice::SINK_FILTERS,
            BrokerProblemKind::SinkDeadLetters => advice::SINK_DEAD_LETTERS,
        }
    }

    /// Returns the suggested fix for people on a page: a sentence, which may be empty, and the path
    /// and the words of a link.
    pub(super) fn help(self) -> (&'static str, Option<(&'static str, &'static str)>) {
        match self {
            BrokerProblemKind::Memory => {
                ("Or raise limits.memory and reload.", Some(("#queues", "The longest queues")))
            }
            BrokerProblemKind::StuckClients => ("", self.page().map(|page| (page, "All stuck clients"))),
            BrokerProblemKind::Drops => ("", Some(("/where", "Find the last ones, with the reasons"))),
            BrokerProblemKind::Refusals => ("Correct the client, or the rule or bound.", None),
            BrokerProblemKind::Objective => ("", Some(("/slow", "The clients and topics that are late"))),
            BrokerProblemKind::ReloadRefused => (
                "The old configuration is in force.",
                Some(("/settings", "The button Check on the page of settings names the mistakes")),
            ),
            BrokerProblemKind::RestartPending => {
                ("Restart the broker when it suits.", self.page().map(|page| (page, "The changed keys")))
            }
            BrokerProblemKind::StoreFull
            | BrokerProblemKind::StoreLate
            | BrokerProblemKind::StoreDamaged
            | BrokerProblemKind::SlowCommits
            | BrokerProblemKind::CopyLate
            | BrokerProblemKind::StoreBehind => (self.advice(), Some(("#store", "The figures of the store"))),
            BrokerProblemKind::ThreadHangs
            | BrokerProblemKind::LateDeadlines
            | BrokerProblemKind::ExportFails => (self.advice(), None),
            BrokerProblemKind::BridgeDown
            | BrokerProblemKind::BridgeStuck
            | BrokerProblemKind::BridgeRefused
            | BrokerProblemKind::BridgeSessionLost => (self.advice(), Some(("/bridges", "All bridges"))),
            BrokerProblemKind::SinkDown
            | BrokerProblemKind::SinkStuck
            | BrokerProblemKind::SinkRefused
            | BrokerProblemKind::SinkFilters => (self.advice(), Some(("/sinks", "All sinks"))),
            BrokerProblemKind::SinkDeadLetters => {
                (self.advice(), Some(("/dead-letters", "The dead letters")))
            }
        }
    }

    /// Returns the page that shows more; `None` if no page does.
    pub(super) fn page(self) -> Option<&'static str> {
        match self {
            BrokerProblemKind::StuckClients => Some("/clients?min_unacked_age=10s&state=connected"),
            BrokerProblemKind::Objective => Some("/objectives"),
            BrokerProblemKind::LateDeadlines => Some("/deadlines"),
            BrokerProblemKind::ReloadRefused | BrokerProblemKind::RestartPending => {
                Some("/settings?show=changed")
            }
            BrokerProblemKind::StoreFull
            | BrokerProblemKind::StoreLate
            | BrokerProblemKind::StoreDamaged
            | BrokerProblemKind::SlowCommits
            | BrokerProblemKind::CopyLate
            | BrokerProblemKind::StoreBehind => Some("/#store"),
            BrokerProblemKind::BridgeDown
            | BrokerProblemKind::BridgeStuck
            | BrokerProblemKind::BridgeRefused
            | BrokerProblemKind::BridgeSessionLost => Some("/bridges"),
            BrokerProblemKind::SinkDown
            | BrokerProblemKind::SinkStuck
            | BrokerProblemKind::SinkRefused
            | BrokerProblemKind::SinkFilters => Some("/sinks"),
            BrokerProblemKind::SinkDeadLetters => Some("/dead-letters"),
            BrokerProblemKind::ThreadHangs
            | BrokerProblemKind::Memory
            | BrokerProblemKind::Drops
            | BrokerProblemKind::Refusals
            | BrokerProblemKind::ExportFails => None,
        }
    }
}

/// Returns the present problems, the worst first. The figures are those of the shards' last
/// reports, and the stuck clients those of the last search.
pub(crate) async fn problems(state: &State, observer: &Observer) -> Vec<BrokerProblem> {
    let (stuck, now) = (stuck_clients(state).await, clock::now());
    let total = observer.statistics().total();
    let mut found = FoundProblems::default();
    found.of_store(StoreState::of(observer, now));
    found.of_threads_and_memory(observer, now);
    found.of_stuck_clients(state, &stuck);
    found.of_deliveries(observer, &total, now);
    found.of_delays(state);
    found.of_configuration(observer);
    #[cfg(feature = "otlp")]
    found.of_export(observer);
    let mut all = found.0;
    all.extend(far_problems(observer, now));
    // A stable order: an objective stays before the next one.
    all.sort_by_key(|problem| problem.kind);
    all
}

#[derive(Default)]
struct FoundProblems(Vec<BrokerProblem>);

impl FoundProblems {
    fn add(&mut self, kind: BrokerProblemKind, text: String) {
        self.0.push(BrokerProblem { kind, text, link: kind.page().map(str::to_owned) });
    }

    fn of_store(&mut self, store: Option<StoreState>) {
        let Some(store) = store else { return };
        if store.is_full {
            self.add(BrokerProblemKind::StoreFull, "The store is full: new work is refused.".to_owned());
        } else if store.is_late() {
            let age = seconds(store.oldest_uncommitted);
            let text = format!("A change has waited for its commit for {age}: the store does not commit.");
            self.add(BrokerProblemKind::StoreLate, text);
        }
        if let Some(copy) = store.copy.filter(ShipFigures::is_late) {
            let text = format!("The copy of the store at store.ship_to {}.", lag_of(&copy));
            self.add(BrokerProblemKind::CopyLate, text);
        }
        if store.damaged > 0 {
            let text = format!("Stored messages were damaged when they were read, {} times.", store.damaged);
            self.add(BrokerProblemKind::StoreDamaged, text);
        }
        if store.is_behind() {
            let age = seconds(store.oldest_unapplied);
            let text = format!("A change has waited for the database for {age}: it does not follow the log.");
            self.add(BrokerProblemKind::StoreBehind, text);
        }
    }

    fn of_threads_and_memory(&mut self, observer: &Observer, now: Instant) {
        let statistics = observer.statistics();
        if let Some(late) = late_threads(observer, now).first() {
            let text = format!("The thread {} has not worked for {}.", late.name, seconds(late.since));
            self.add(BrokerProblemKind::ThreadHangs, text);
        }
        let (in_use, limit) = (statistics.memory(), statistics.memory_limit());
        if in_use / 9 >= limit / 10 {
            let text = "More than 90 % of limits.memory is in use: new work is refused soon.";
            self.add(BrokerProblemKind::Memory, text.to_owned());
        }
    }

    /// Adds the client that has waited longest. Bridges and sinks have problems of their own.
    fn of_stuck_clients(&mut self, state: &State, stuck: &FoundClients) {
        let is_client = |row: &&ListedRow| !is_far_side(&row.session.client_id);
        let Some(worst) = stuck.rows.iter().find(is_client) else { return };
        let (view, oldest) = (view_of(state, worst), worst.session.oldest);
        let packet = oldest.map_or(0, |stall| stall.packet_id.get());
        let age = oldest.map(|stall| stall.age.to_string()).unwrap_or_default();
        let name = in_sentence(&view.name.chars().take(NAME).collect::<String>());
        self.0.push(BrokerProblem {
            kind: BrokerProblemKind::StuckClients,
            text: format!("{name} has not acknowledged packet {packet} for {age}: {}.", view.detail),
            link: Some(format!("/clients/{}{}", view.path, view.suffix)),
        });
    }

    fn of_deliveries(&mut self, observer: &Observer, total: &ShardSnapshot, now: Instant) {
        let last = observer.statistics().last_loss().map(|last| now.since(last));
        if let Some(ago) = last.filter(|ago| *ago < LATELY) {
            let text = format!("Messages are dropped, the last one {} ago.", seconds(ago));
            self.add(BrokerProblemKind::Drops, text);
        }
        if let Some(most) = &total.most_refused {
            let row = RefusedRow::of(most);
            let name = in_sentence(&row.client_id.chars().take(NAME).collect::<String>());
            let link = match most.client_id.is_whole() {
                true => format!("/clients/{}", segment(most.client_id.beginning())),
                false => "/where".to_owned(),
            };
            let (kind, text) = (BrokerProblemKind::Refusals, format!("{name} {}", row.sentence()));
            self.0.push(BrokerProblem { kind, text, link: Some(link) });
        }
        for (objective, counts) in total.counters.objectives.counts() {
            if counts.budget_left(objective.target).is_some_and(|left| left < 0.0) {
                let text = format!("The objective {} has used up its error budget.", objective.name);
                self.add(BrokerProblemKind::Objective, text);
            }
        }
    }

    fn of_delays(&mut self, state: &State) {
        let recent = state.recent.view();
        for (kind, p99, what) in [
            (BrokerProblemKind::SlowCommits, recent.commit_p99, "commits of the last minute took"),
            (
                BrokerProblemKind::LateDeadlines,
                recent.lateness_p99,
                "deadlines of the last minute were late by",
            ),
        ] {
            if p99.is_some_and(|p99| p99 > SLOW) {
                self.add(kind, format!("More than 1 % of the {what} {} ms or more.", SLOW.as_millis()));
            }
        }
    }

    fn of_configuration(&mut self, observer: &Observer) {
        let config = &observer.statistics().config;
        if config.is_last_refused() {
            let text = "The last reload was refused: nothing of it is in force.";
            self.add(BrokerProblemKind::ReloadRefused, text.to_owned());
        }
        let pending = config.restart_pending();
        if pending > 0 {
            let keys = if pending == 1 { "key waits" } else { "keys wait" };
            let text = format!("{pending} changed {keys} for a restart.");
            self.add(BrokerProblemKind::RestartPending, text);
        }
    }

    /// Adds the first signal that the collector does not take.
    #[cfg(feature = "otlp")]
    fn of_export(&mut self, observer: &Observer) {
        let counts = observer.statistics().export.get();
        if let Some((signal, reason)) = counts.and_then(|counts| counts.first_failing()) {
            let text = format!("The collector does not take the {} by OTLP: {reason}.", signal.name());
            self.add(BrokerProblemKind::ExportFails, text);
        }
    }
}
