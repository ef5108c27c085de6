//! What each node tells the others about itself: a row of the engine, written each few seconds.

use super::engine::Engine;
use super::messages::{DriverDoor, DriverInput, NodeFacts, RowsSeen};
use crate::clock;
use crate::config::Cluster;
use crate::persistence::ownership::Role;
use crate::time::{Instant, millis};
use bytes::Bytes;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;
use tracing::info;

/// The time between two writes.
const EVERY: Duration = Duration::from_secs(2);
/// A row that was not written for this time is that of a node that is silent.
pub const SILENT: Duration = Duration::from_secs(15);

/// The key of the row that describes the cluster.
pub const CLUSTER: &str = "cluster";
/// The key of the alarm.
pub const ALARM: &str = "alarm";
/// The key of the row that names the snapshots.
pub(super) const SNAPSHOT: &str = "snapshot";
/// The beginning of the keys of nodes.
const NODE: &str = "node.";

/// Returns the key of the row that asks a node to leave.
pub(super) fn drain_key(node: &str) -> String {
    format!("drain.{node}")
}

/// Returns the key of a node's row.
pub fn node_key(node: &str) -> String {
    format!("{NODE}{node}")
}

/// The row that describes a cluster, which `homing cluster init` writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRow {
    /// The name.
    pub name: String,
    /// The identifier of the log.
    pub log: u64,
    /// The number of cells.
    pub cells: u16,
}

/// The row of a node. Unknown fields of a newer program are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeRow {
    /// The name.
    pub node: String,
    /// The identifier of its directory.
    pub directory: u64,
    /// What it does, by the words of [`crate::persistence::ownership::Role`].
    pub role: String,
    /// The epoch of the last Claim that it knows.
    pub epoch: u64,
    /// The place of the owner by that Claim in the list of nodes.
    pub owner: Option<u16>,
    /// The last position that it has read or written.
    pub position: u64,
    /// The digest of the frame there.
    pub digest: String,
    /// Milliseconds until the end of its lease.
    pub lease_ms: u64,
    /// Milliseconds for which an append has no outcome; 0 without one.
    pub undecided_ms: u64,
    /// The version of the program.
    pub version: String,
    /// Milliseconds since 1970 by its wall clock.
    pub unix_ms: u64,
}

/// A row as this node sees it.
#[derive(Clone, Debug)]
pub struct SeenRow {
    /// The row.
    pub row: NodeRow,
    revision: u64,
    /// The time at which its last change was seen.
    pub changed: Instant,
}

impl SeenRow {
    /// Returns true if the node has not written its row for [`SILENT`].
    pub fn is_silent(&self, now: Instant) -> bool {
        now.since(self.changed) >= SILENT
    }
}

/// The cluster as this node sees it.
#[derive(Debug)]
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
    rows: Mutex<Vec<SeenRow>>,
}

/// Makes the next write of the row come at once.
pub(super) type WakeRows = Sender<()>;

impl ClusterView {
    pub(super) fn new(settings: &Cluster, facts: Arc<Mutex<NodeFacts>>) -> ClusterView {
        let Cluster { name, node, nodes, isolation_timeout, .. } = settings.clone();
        ClusterView { name, node, nodes, isolation: isolation_timeout, facts, rows: Mutex::default() }
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

    /// Returns the name of the owner by the last Claim that this node knows; `None` before the first
    /// Claim and after a Release.
    pub fn owner(&self) -> Option<&str> {
        let place = self.facts().owner?;
        self.nodes.get(usize::from(place)).map(String::as_str)
    }

    /// Returns the rows of all nodes, by name.
    pub fn rows(&self) -> Vec<SeenRow> {
        lock(&self.rows).clone()
    }
}

/// Starts the thread `homing-rows`.
///
/// # Errors
/// The system refuses a thread.
pub(super) fn start(
    engine: Arc<dyn Engine>,
    view: Arc<ClusterView>,
    directory: u64,
    driver: DriverDoor,
    wakes: Receiver<()>,
) -> io::Result<()> {
    let run = move || {
        let mut written_alarm = false;
        loop {
            let row = row_of(&view, directory);
            let put =
                serde_json::to_vec(&row).map(|bytes| engine.put_row(&node_key(&view.node), bytes.into()));
            if let Ok(Err(error)) = put {
                tracing::debug!(event = "cluster.row_not_written", %error, "the row of this node is not written");
            }
            let alarm = lock(&view.facts).alarm.clone();
            if !alarm.is_empty() && !written_alarm {
                // Only the first alarm counts.
                written_alarm = engine.swap_row(ALARM, 0, Bytes::from(alarm)).is_ok();
            }
            if let Ok(rows) = engine.rows() {
                let drain = drain_key(&view.node);
                let is_asked = rows.iter().any(|(key, _)| *key == drain);
                driver.tell(DriverInput::Rows(view.take(rows)));
                // The signal is the way on which all parts of the process end in order.
                if is_asked && engine.remove_row(&drain).is_ok() {
                    info!(event = "cluster.drained", "this node is asked to leave");
                    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::TERM);
                }
            }
            // The driver wakes it, and lives as long as the process.
            if let Err(RecvTimeoutError::Disconnected) = wakes.recv_timeout(EVERY) {
                std::thread::sleep(EVERY);
            }
        }
    };
    Builder::new().name("homing-rows".into()).spawn(run).map(drop)
}

/// Returns the word for a role, as rows have it.
pub fn role_word(role: Role) -> String {
    format!("{role:?}").to_lowercase()
}

/// Reads the row of a node.
pub fn read_node(value: &[u8]) -> Option<NodeRow> {
    serde_json::from_slice(value).ok()
}

fn row_of(view: &ClusterView, directory: u64) -> NodeRow {
    let facts = view.facts();
    let now = clock::now();
    NodeRow {
        node: view.node.clone(),
        directory,
        role: role_word(facts.role),
        epoch: facts.epoch,
        owner: facts.owner,
        position: facts.position,
        digest: facts.digest.to_string(),
        lease_ms: millis(facts.lease_until.since(now)),
        undecided_ms: millis(now.since(facts.undecided_since)),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        unix_ms: clock::unix_millis(),
    }
}

impl ClusterView {
    /// Takes the rows of the engine.
    fn take(&self, rows: Vec<(String, super::engine::Row)>) -> RowsSeen {
        let now = clock::now();
        let mut seen = lock(&self.rows);
        let before = std::mem::take(&mut *seen);
        let mut alarm = None;
        for (key, row) in rows {
            if key == ALARM {
                alarm = Some(String::from_utf8_lossy(&row.value).into_owned());
            }
            let Some(node) = key.strip_prefix(NODE) else { continue };
            let Some(found) = read_node(&row.value).filter(|found| found.node == node) else { continue };
            let is_same = |seen: &&SeenRow| seen.row.node == node && seen.revision == row.revision;
            let changed = before.iter().find(is_same).map_or(now, |seen| seen.changed);
            seen.push(SeenRow { row: found, revision: row.revision, changed });
        }
        RowsSeen { reported: seen.iter().map(|seen| seen.row.position).max().unwrap_or(0), alarm }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
