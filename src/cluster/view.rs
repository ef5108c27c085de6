//! The cluster as a node sees it: its own facts, the rows of all nodes, and the ends of the log.

use super::append_times::AppendTimes;
use super::drift::{Drift, SharedDigests};
use super::engine::{Bounds, EngineError, Row};
use super::messages::NodeFacts;
use super::row::{NodeRow, SILENT};
use crate::clock;
use crate::config::{Cluster, Config, SharedSettings};
use crate::ownership::Role;
use crate::time::Instant;
use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// A row as this node sees it.
#[derive(Clone, Debug)]
pub struct SeenRow {
    /// The row.
    pub row: NodeRow,
    pub(super) revision: u64,
    /// The time at which its last change was seen.
    changed: Instant,
    /// The age that it had then.
    age: Duration,
    /// Milliseconds by which the clock of its node is ahead of that of the engine's leader.
    pub skew_ms: Option<i64>,
}

impl SeenRow {
    /// Returns a row that was seen just now. `engine_ms` is the present time by the clock of the
    /// engine, in milliseconds since 1970: a node that has just started sees rows of days ago.
    pub(super) fn new(row: NodeRow, found: &Row, now: Instant, engine_ms: u64) -> SeenRow {
        let stored = found.stored_ms;
        let age = stored.map_or(0, |stored| engine_ms.saturating_sub(stored));
        let skew_ms = stored.map(|stored| row.unix_ms.cast_signed().saturating_sub(stored.cast_signed()));
        let (revision, age) = (found.revision, Duration::from_millis(age));
        SeenRow { row, revision, changed: now, age, skew_ms }
    }

    /// Returns the row with at least this age.
    pub(super) fn at_least(self, age: Duration) -> SeenRow {
        SeenRow { age: self.age.max(age), ..self }
    }

    /// Returns the time since the node has written its row.
    pub fn seen_ago(&self, now: Instant) -> Duration {
        self.age + now.since(self.changed)
    }

    /// Returns true if the node has not written its row for [`SILENT`].
    pub fn is_silent(&self, now: Instant) -> bool {
        self.seen_ago(now) >= SILENT
    }
}

/// What the store of an owner says beside the log: a full log, a database that hangs and a group
/// that never fits are not in the driver's facts, because beats are stored meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFacts {
    /// QoS 1 and 2 messages are refused for want of room.
    pub is_full: bool,
    /// The age of the oldest change that is not committed.
    pub uncommitted: Duration,
    /// The position of the last frame that was written into the database; 0 before the first.
    pub database: u64,
}

/// Returns the facts of the present moment.
type LookAtStore = Box<dyn Fn() -> StoreFacts + Send + Sync>;

/// The cluster as this node sees it.
pub struct ClusterView {
    /// The name of the cluster.
    pub name: String,
    /// The name of this node.
    pub node: String,
    /// The names of all nodes.
    pub nodes: Vec<String>,
    /// The time without a stored frame after which the owner counts as isolated.
    isolation: Duration,
    pub(super) facts: Arc<Mutex<NodeFacts>>,
    pub(super) appends: Arc<AppendTimes>,
    /// Where browsers reach the pages of this node; empty until the interface runs.
    pages: OnceLock<String>,
    /// Where the facts of the store come from; empty until this node serves.
    store: OnceLock<LookAtStore>,
    rows: Mutex<SeenRows>,
    /// What this node has in common with the others, and when that was looked at last.
    shared: Mutex<(Option<Arc<SharedDigests>>, Instant)>,
    /// To the thread that makes these digests.
    settings: Sender<SharedSettings>,
    /// To the thread of the rows.
    wakes: Sender<()>,
    leaving: Mutex<Leaving>,
    left: Condvar,
}

/// What the last look at the rows has shown.
#[derive(Default)]
pub(super) struct SeenRows {
    pub(super) rows: Vec<SeenRow>,
    /// Where each node differs from the reference; none without a difference.
    pub(super) drift: BTreeMap<String, Drift>,
    /// The ends of the log; `None` before the first look.
    pub(super) bounds: Option<Result<Bounds, EngineError>>,
}

/// The last row of a node that leaves in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Leaving {
    #[default]
    No,
    /// The next row says it.
    Leaves,
    /// The row is written.
    Left,
}

impl ClusterView {
    pub(super) fn new(
        settings: &Cluster,
        facts: Arc<Mutex<NodeFacts>>,
        to_digests: Sender<SharedSettings>,
        wakes: Sender<()>,
    ) -> ClusterView {
        let Cluster { name, node, nodes, isolation_timeout, .. } = settings.clone();
        ClusterView {
            name,
            node,
            nodes,
            isolation: isolation_timeout,
            facts,
            appends: Arc::default(),
            pages: OnceLock::new(),
            store: OnceLock::new(),
            rows: Mutex::default(),
            shared: Mutex::new((None, clock::now())),
            settings: to_digests,
            wakes,
            leaving: Mutex::default(),
            left: Condvar::new(),
        }
    }

    /// Returns the facts about this node.
    pub fn facts(&self) -> NodeFacts {
        lock(&self.facts).clone()
    }

    /// Returns true if this node serves, and nothing was stored for so long that it may be cut off.
    pub fn is_isolated(&self, now: Instant) -> bool {
        let facts = self.facts();
        facts.role == Role::Holding && now.since(facts.undecided_since) >= self.isolation
    }

    /// Returns the name of the owner by the last Claim that this node knows, or by the row of a node
    /// that serves in a later epoch; `None` before the first Claim and after a Release.
    pub fn owner(&self) -> Option<String> {
        self.owner_among(&lock(&self.rows).rows)
    }

    /// Returns the owner as [`Self::owner`] does, by these rows.
    pub(super) fn owner_among(&self, rows: &[SeenRow]) -> Option<String> {
        let (facts, now) = (self.facts(), clock::now());
        // A node that has just started reads the Claim later than the row of its owner.
        let is_later = |seen: &&SeenRow| {
            seen.row.role == "holding" && seen.row.epoch > facts.epoch && !seen.is_silent(now)
        };
        let later = rows.iter().filter(is_later).max_by_key(|seen| seen.row.epoch);
        match (later, facts.owner) {
            (Some(later), _) => Some(later.row.node.clone()),
            (None, place) => self.nodes.get(usize::from(place?)).cloned(),
        }
    }

    /// Returns the URL of the owner's pages, as its row has it.
    pub fn owner_pages(&self) -> Option<String> {
        let rows = lock(&self.rows);
        let owner = self.owner_among(&rows.rows)?;
        let row = rows.rows.iter().find(|seen| seen.row.node == owner)?;
        row.row.pages().map(str::to_owned)
    }

    /// Returns the rows of all nodes, by name.
    pub fn rows(&self) -> Vec<SeenRow> {
        lock(&self.rows).rows.clone()
    }

    /// Returns where a node differs from the owner, or from this node if nobody serves.
    pub fn drift_of(&self, node: &str) -> Drift {
        lock(&self.rows).drift.get(node).cloned().unwrap_or_default()
    }

    /// Returns the ends of the log as its leader said in the last seconds; `None` without an answer.
    pub fn bounds(&self) -> Option<Bounds> {
        lock(&self.rows).bounds.clone()?.ok()
    }

    /// Returns the time within which 99 % of the last appends of this node were stored; `None` if it
    /// has made none.
    pub fn append_p99(&self) -> Option<Duration> {
        self.appends.p99()
    }

    /// Notes the configuration that is in force. The files that it names are compared, too.
    pub fn note_config(&self, config: &Config) {
        // A thread that has ended compares nothing, and `looked_at` says so.
        let _ = self.settings.send(config.shared_settings());
    }

    /// Notes where browsers reach the pages of this node. The first call counts.
    pub fn note_pages(&self, url: String) {
        let _ = self.pages.set(url);
    }

    /// Notes where the facts of the store come from. The first call counts.
    pub fn note_store(&self, look: impl Fn() -> StoreFacts + Send + Sync + 'static) {
        let _ = self.store.set(Box::new(look));
    }

    /// Returns the facts of the store; the default before this node serves.
    pub(super) fn store_facts(&self) -> StoreFacts {
        self.store.get().map(|look| look()).unwrap_or_default()
    }

    /// Writes in the row of this node that it leaves, and waits until that is done, `limit` at most.
    pub fn leave(&self, limit: Duration) {
        let mut leaving = lock(&self.leaving);
        *leaving = Leaving::Leaves;
        let _ = self.wakes.send(());
        let waits = |leaving: &mut Leaving| *leaving != Leaving::Left;
        drop(self.left.wait_timeout_while(leaving, limit, waits));
    }

    /// Returns true if the next row is the last one.
    pub(super) fn is_leaving(&self) -> bool {
        *lock(&self.leaving) != Leaving::No
    }

    /// Notes that the last row is written.
    pub(super) fn has_left(&self) {
        *lock(&self.leaving) = Leaving::Left;
        self.left.notify_all();
    }

    pub(super) fn pages(&self) -> String {
        self.pages.get().cloned().unwrap_or_default()
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, SeenRows> {
        lock(&self.rows)
    }

    /// Returns what this node has in common with the others; `None` before the first look.
    pub(super) fn shared(&self) -> Option<Arc<SharedDigests>> {
        lock(&self.shared).0.clone()
    }

    /// Returns the time of the last look at the files.
    pub fn looked_at(&self) -> Instant {
        lock(&self.shared).1
    }

    /// Takes the result of a look at the files.
    pub(super) fn looked(&self, digests: SharedDigests) {
        let mut shared = lock(&self.shared);
        let is_new = shared.0.as_deref() != Some(&digests);
        shared.1 = clock::now();
        if is_new {
            shared.0 = Some(Arc::new(digests));
            // The others hear of it now, and not with the next row.
            let _ = self.wakes.send(());
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
