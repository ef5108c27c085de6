//! What each node tells the others about itself: a row of the engine, written each few seconds.

use super::drift::{self, SharedDigests};
use super::engine::{Engine, EngineError, Row};
use super::messages::{DriverDoor, DriverInput, RowsSeen};
pub use super::view::{ClusterView, SeenRow, StoreFacts};
use super::view::{SeenRows, lock};
use crate::clock;
use crate::ownership::Role;
use crate::time::{Instant, millis};
use bytes::Bytes;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::Builder;
use std::time::Duration;
use tracing::info;

/// The time between two writes.
pub(super) const EVERY: Duration = Duration::from_secs(2);
/// The time for which the log must lack frames that no snapshot has. A server that has just been cut
/// off shows older rows for 20 s.
pub(super) const LACKS: Duration = Duration::from_secs(30);
/// A row that was not written for this time is that of a node that is silent.
pub const SILENT: Duration = Duration::from_secs(15);

/// What a node that has left in order does.
pub const LEFT: &str = "left";

/// The key of the row that describes the cluster.
pub const CLUSTER: &str = "cluster";
/// The key of the row that names the snapshots.
pub(super) const SNAPSHOT: &str = "snapshot";
/// The key of the row with the last position that was reserved for a base.
pub(super) const BASE: &str = "base";
/// The beginning of the keys of nodes.
pub(super) const NODE: &str = "node.";

/// The beginning of the keys of alarms.
pub(super) const ALARM: &str = "alarm.";

/// Returns the key of the alarm about a log. The next log of the cluster has none.
pub fn alarm_key(log: u64) -> String {
    format!("{ALARM}{log:016x}")
}

/// Returns the key of the row that asks a node to leave.
pub(super) fn drain_key(node: &str) -> String {
    format!("drain.{node}")
}

/// The row that asks a node to leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct DrainRow {
    /// The process that is asked. A later process of the node does not obey: whoever typed the
    /// command twice, or typed it for a node that had just ended, did not mean its next start.
    pub process: u64,
}

impl DrainRow {
    /// Reads the row.
    pub(super) fn read(value: &[u8]) -> DrainRow {
        serde_json::from_slice(value).unwrap_or_default()
    }

    /// Returns the row as it is written.
    pub(super) fn bytes(self) -> Bytes {
        serde_json::to_vec(&self).unwrap_or_default().into()
    }
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
    /// The position at which the log has yet to begin, behind a snapshot; `None` if it has.
    #[serde(default)]
    pub begins: Option<u64>,
    /// The logs of which this one has taken the place. A node sets a database of one of them aside.
    #[serde(default)]
    pub previous: Vec<u64>,
}

impl ClusterRow {
    /// Reads the row; `None` if a newer program wrote it.
    pub fn read(value: &[u8]) -> Option<ClusterRow> {
        serde_json::from_slice(value).ok()
    }

    /// Returns the row as it is written.
    pub(super) fn bytes(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

/// The row that names the snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pointer {
    /// The position of the newest snapshot; 0 without one.
    pub position: u64,
    /// The position of the one before it; 0 without one.
    pub before: u64,
}

impl Pointer {
    /// Reads the row.
    pub(super) fn read(value: &[u8]) -> Pointer {
        serde_json::from_slice(value).unwrap_or_default()
    }

    /// Returns the row as it is written.
    pub(super) fn bytes(self) -> Bytes {
        serde_json::to_vec(&self).unwrap_or_default().into()
    }
}

/// The row of a node. Unknown fields of a newer program are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeRow {
    /// The name.
    pub node: String,
    /// The identifier of its directory.
    pub directory: u64,
    /// The number of its process, made anew at each start.
    pub process: u64,
    /// What it does, by the words of [`crate::ownership::Role`], or [`LEFT`].
    pub role: String,
    /// The epoch of the last Claim that it knows.
    pub epoch: u64,
    /// The place of the owner by that Claim in the list of nodes.
    pub owner: Option<u16>,
    /// The last position that it has read or written.
    pub position: u64,
    /// The digest of the frame there.
    pub digest: String,
    /// The last position that its database has. A disk that hangs shows here.
    pub database: u64,
    /// Milliseconds until the end of its lease.
    pub lease_ms: u64,
    /// Milliseconds for which an append has no outcome; 0 without one.
    pub undecided_ms: u64,
    /// Why nothing is stored; empty if frames are.
    pub trouble: String,
    /// True if the owner refuses QoS 1 and 2 messages for want of room.
    pub full: bool,
    /// Milliseconds for which the oldest change of the owner is not committed; 0 without one.
    pub uncommitted_ms: u64,
    /// The version of the program.
    pub version: String,
    /// Milliseconds since 1970 by its wall clock.
    pub unix_ms: u64,
    /// Where browsers reach its pages; empty if they do not.
    pub pages: String,
    /// The time within which 99 % of its last appends were stored, in microseconds; 0 without any.
    pub append_p99_us: u64,
    /// What it has in common with the others; `None` of a program that does not say it.
    pub shared: Option<SharedDigests>,
}

impl NodeRow {
    /// Returns the URL of the pages. A row is written by another process, so a text that is no such
    /// URL is left out: it becomes a link.
    pub fn pages(&self) -> Option<&str> {
        let is_url = |url: &&str| url.starts_with("http://") || url.starts_with("https://");
        Some(self.pages.trim_end_matches('/')).filter(is_url)
    }

    /// Returns what the node does, as others have to see it. The row of a node that was killed still
    /// says that it serves: `newest` is the highest epoch of all rows.
    pub fn shown_role(&self, newest: u64) -> &str {
        match &*self.role {
            "holding" | "recovering" if self.epoch < newest => "lost",
            role => role,
        }
    }
}

/// Makes the next write of the row come at once.
pub(super) type WakeRows = Sender<()>;

/// What the thread of the rows needs.
pub(super) struct RowsStart {
    pub engine: Arc<dyn Engine>,
    pub view: Arc<ClusterView>,
    pub directory: u64,
    /// The number of this process.
    pub process: u64,
    /// The log that this node follows.
    pub log: u64,
    pub driver: DriverDoor,
    pub wakes: Receiver<()>,
}

/// The thread `homing-rows`.
struct Rows {
    start: RowsStart,
    has_written_alarm: bool,
    /// The time since which the log lacks frames that no snapshot has.
    lacks_since: Instant,
}

/// Starts the thread `homing-rows`.
///
/// # Errors
/// The system refuses a thread.
pub(super) fn start(start: RowsStart) -> io::Result<()> {
    let mut rows = Rows { start, has_written_alarm: false, lacks_since: Instant::NEVER };
    let run = move || {
        loop {
            rows.write();
            rows.look();
            // The driver wakes it, and lives as long as the process.
            if let Err(RecvTimeoutError::Disconnected) = rows.start.wakes.recv_timeout(EVERY) {
                std::thread::sleep(EVERY);
            }
            // What came while the engine did not answer asks for the same.
            rows.start.wakes.try_iter().for_each(drop);
        }
    };
    Builder::new().name("homing-rows".into()).spawn(run).map(drop)
}

impl Rows {
    /// Writes the row of this node, and the alarm if there is a new one.
    fn write(&mut self) {
        let RowsStart { engine, view, directory, process, log, .. } = &self.start;
        // Before the row is made, so that the last row says it.
        let is_leaving = view.is_leaving();
        let row = row_of(view, *directory, *process);
        let put = serde_json::to_vec(&row).map(|bytes| engine.put_row(&node_key(&view.node), bytes.into()));
        if let Ok(Err(error)) = put {
            tracing::debug!(event = "cluster.row_not_written", %error, "the row of this node is not written");
        } else if is_leaving {
            view.has_left();
        }
        let alarm = lock(&view.facts).alarm.clone();
        if !alarm.is_empty() && !self.has_written_alarm {
            // Only the first alarm counts.
            self.has_written_alarm = raise(&**engine, *log, alarm).is_ok();
        }
    }

    /// Reads the rows of all nodes, and the ends of the log.
    fn look(&mut self) {
        let RowsStart { engine, view, log, driver, .. } = &self.start;
        // Before the rows: the log never loses frames that no snapshot of the rows has.
        let bounds = engine.bounds();
        let first = bounds.as_ref().map_or(0, |bounds| bounds.first);
        let asked = clock::now();
        let rows = engine.rows();
        view.seen().bounds = Some(bounds);
        let rows = match rows {
            Ok(rows) => rows,
            Err(error) => {
                tracing::debug!(event = "cluster.no_rows", %error, "the rows of the nodes cannot be read");
                return;
            }
        };
        let drain = drain_key(&view.node);
        let asked_to_leave =
            rows.iter().find(|(key, _)| *key == drain).map(|(_, row)| DrainRow::read(&row.value));
        let lacks = lacking(first, &rows);
        let cluster =
            rows.iter().find(|(key, _)| key == CLUSTER).and_then(|(_, row)| ClusterRow::read(&row.value));
        if cluster.is_some_and(|cluster| cluster.previous.contains(log)) {
            driver.tell(DriverInput::Replaced);
        }
        let mut seen = view.take(rows, *log, asked);
        let now = clock::now();
        self.lacks_since = if lacks.is_some() { self.lacks_since.min(now) } else { Instant::NEVER };
        if now.since(self.lacks_since) >= LACKS {
            seen.alarm = seen.alarm.or(lacks);
        }
        driver.tell(DriverInput::Rows(seen));
        if asked_to_leave.is_some_and(|asked| self.takes_drain(asked)) {
            info!(event = "cluster.drained", "this node is asked to leave");
            // The signal is the way on which all parts of the process end in order.
            let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::TERM);
        }
    }

    /// Removes a row that asks this node to leave. Returns true if this process is asked, and the
    /// row is gone.
    fn takes_drain(&self, asked: DrainRow) -> bool {
        let RowsStart { engine, view, process, .. } = &self.start;
        let is_gone = engine.remove_row(&drain_key(&view.node)).is_ok();
        if asked.process != *process {
            info!(
                event = "cluster.drain_outdated",
                "an earlier process of this node was asked to leave: this one stays"
            );
            return false;
        }
        is_gone
    }
}

/// Returns the alarm of a log whose first frames are gone, though no snapshot has them.
pub(super) fn lacking(first: u64, rows: &[(String, super::engine::Row)]) -> Option<String> {
    let pointer = rows.iter().find(|(key, _)| key == SNAPSHOT);
    let position = pointer.map_or(0, |(_, row)| Pointer::read(&row.value).position);
    (first > position + 1).then(|| purged_text(first, position))
}

/// Returns the alarm of a log that begins too late for its newest snapshot.
pub(super) fn purged_text(first: u64, position: u64) -> String {
    let missing = position + 1;
    format!("the log was purged: frames {missing} to {} are gone, and no snapshot has them", first - 1)
}

/// Writes an alarm about a log, if there is none yet.
///
/// # Errors
/// The engine does not answer.
pub(super) fn raise(engine: &dyn Engine, log: u64, alarm: String) -> Result<(), EngineError> {
    engine.swap_row(&alarm_key(log), 0, alarm.into()).map(drop)
}

/// Returns the word for a role, as rows have it.
pub fn role_word(role: Role) -> String {
    format!("{role:?}").to_lowercase()
}

/// Reads the row of a node.
pub fn read_node(value: &[u8]) -> Option<NodeRow> {
    serde_json::from_slice(value).ok()
}

fn row_of(view: &ClusterView, directory: u64, process: u64) -> NodeRow {
    let facts = view.facts();
    let (now, store) = (clock::now(), view.store_facts());
    NodeRow {
        node: view.node.clone(),
        directory,
        process,
        role: if view.is_leaving() { LEFT.to_owned() } else { role_word(facts.role) },
        epoch: facts.epoch,
        owner: facts.owner,
        position: facts.position,
        digest: facts.digest.to_string(),
        database: facts.database.max(store.database),
        lease_ms: millis(facts.lease_until.since(now)),
        undecided_ms: millis(now.since(facts.undecided_since)),
        trouble: facts.trouble,
        full: store.is_full,
        uncommitted_ms: millis(store.uncommitted),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        unix_ms: clock::unix_millis(),
        pages: view.pages(),
        append_p99_us: view.append_p99().map_or(0, |p99| u64::try_from(p99.as_micros()).unwrap_or(u64::MAX)),
        shared: view.shared().map(|shared| (*shared).clone()),
    }
}

impl ClusterView {
    /// Takes the rows of the engine, which were asked for at a time. `log` is the log that this node
    /// follows.
    pub(super) fn take(&self, rows: Vec<(String, Row)>, log: u64, asked: Instant) -> RowsSeen {
        let (now, alarm_key) = (clock::now(), alarm_key(log));
        let newest = rows.iter().filter_map(|(_, row)| row.stored_ms).max().unwrap_or(0);
        let mut seen = self.seen();
        let before = std::mem::take(&mut seen.rows);
        let mut alarm = None;
        for (key, row) in rows {
            if key == alarm_key {
                alarm = Some(String::from_utf8_lossy(&row.value).into_owned());
            }
            let Some(node) = key.strip_prefix(NODE) else { continue };
            let Some(found) = read_node(&row.value).filter(|found| found.node == node) else { continue };
            let is_same = |seen: &&SeenRow| seen.row.node == node && seen.revision == row.revision;
            let of_row = match before.iter().find(is_same) {
                Some(known) => known.clone(),
                None => SeenRow::new(found, &row, now, newest),
            };
            seen.rows.push(of_row);
        }
        self.note_drift(&mut seen);
        let reported = seen.rows.iter().map(|seen| seen.row.position).max().unwrap_or(0);
        RowsSeen { reported, alarm, asked }
    }

    /// Compares all nodes with the owner, or with this node if nobody serves.
    fn note_drift(&self, seen: &mut SeenRows) {
        let reference = self.owner_among(&seen.rows).unwrap_or_else(|| self.node.clone());
        let drift = drift::among(&seen.rows, &self.nodes, &reference);
        drift::log_changes(&seen.drift, &drift, &reference);
        seen.drift = drift;
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory_engine::MemoryCluster;
    use super::super::messages::NodeFacts;
    use super::*;
    use crate::config::Cluster;
    use crate::ownership::Start;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    #[test]
    fn only_the_process_that_was_asked_to_leave_does() {
        let engine: Arc<dyn Engine> = Arc::new(MemoryCluster::initialized().node(0));
        let settings = Cluster { node: "c".to_owned(), ..Cluster::default() };
        let ((digests, _of_config), (wake, wakes), (driver, _inputs)) = (channel(), channel(), channel());
        let facts = Arc::new(Mutex::new(NodeFacts::at_start(&Start::default())));
        let view = Arc::new(ClusterView::new(&settings, facts, digests, wake));
        let driver = DriverDoor::new(driver);
        let start =
            RowsStart { engine: Arc::clone(&engine), view, directory: 9, process: 7, log: 1, driver, wakes };
        let mut rows = Rows { start, has_written_alarm: false, lacks_since: Instant::NEVER };
        let key = drain_key("c");
        // Of a process before, and of a command that knew no process.
        for old in [DrainRow { process: 6 }.bytes(), Bytes::from_static(b"1")] {
            engine.put_row(&key, old.clone()).expect("written");
            // A signal would end this test.
            rows.look();
            assert_eq!(engine.row(&key).expect("an answer"), None, "it is there no more");
            assert!(!rows.takes_drain(DrainRow::read(&old)));
        }
        engine.put_row(&key, DrainRow { process: 7 }.bytes()).expect("written");
        assert!(rows.takes_drain(DrainRow { process: 7 }));
        assert_eq!(engine.row(&key).expect("an answer"), None);
    }
}
