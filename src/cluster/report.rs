//! The state of a cluster for operators: who serves, how far each node is, and what is wrong. The
//! pages, the HTTP interface and the commands show the same.

use super::drift::Drift;
use super::engine::Bounds;
use super::row::{LEFT, SeenRow};
use super::view::ClusterView;
use crate::time::Instant;
use crate::time::duration::seconds;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::time::Duration;

/// A clock that is ahead or behind by more than this is worth a look, in milliseconds.
pub const SKEW: u64 = 1_000;
/// The role of a node without a row.
const UNSEEN: &str = "unseen";

/// The state of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "admin", derive(utoipa::ToSchema), schema(as = Cluster))]
pub struct ClusterReport {
    /// The name; null without `[cluster]`, and before this node has joined.
    #[cfg_attr(feature = "admin", schema(required))]
    pub cluster: Option<String>,
    /// The name of the node that answers.
    #[cfg_attr(feature = "admin", schema(required))]
    pub node: Option<String>,
    /// The node that serves, by the last Claim; null if nobody does.
    #[cfg_attr(feature = "admin", schema(required))]
    pub owner: Option<String>,
    /// Why nobody serves until a person has decided; null without an alarm.
    #[cfg_attr(feature = "admin", schema(required))]
    pub alarm: Option<String>,
    /// The log as its leader says; null if it does not answer.
    #[cfg_attr(feature = "admin", schema(required))]
    pub log: Option<LogReport>,
    /// Seconds within which 99 % of the last frames of the owner were stored; null without any.
    #[cfg_attr(feature = "admin", schema(required))]
    pub append_p99: Option<f64>,
    /// The nodes, in the order of `cluster.nodes`.
    pub nodes: Vec<NodeReport>,
}

/// The log of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "admin", derive(utoipa::ToSchema), schema(as = ClusterLog))]
pub struct LogReport {
    /// The first frame that was not purged.
    pub first: u64,
    /// The last frame.
    pub last: u64,
    /// The size of the frames.
    pub bytes: u64,
    /// The size at which the log is full.
    pub capacity: u64,
    /// The server of NATS that leads the log; null if there is none.
    #[cfg_attr(feature = "admin", schema(required))]
    pub leader: Option<String>,
}

/// A node, by the row that it writes each two seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "admin", derive(utoipa::ToSchema), schema(as = ClusterNode))]
pub struct NodeReport {
    /// The name.
    pub node: String,
    /// `following`, `claiming`, `recovering`, `holding` (it serves), `releasing`, `released`, `lost`,
    /// `left` (in order), `alarmed`, or `unseen`.
    pub role: String,
    /// The epoch of the last Claim that it knows.
    pub epoch: u64,
    /// The last frame that it has.
    pub position: u64,
    /// Frames by which it is behind the log.
    pub lag: u64,
    /// The last frame that its database has. A disk that hangs shows here.
    pub database: u64,
    /// Seconds until the end of its lease.
    pub lease: f64,
    /// Seconds for which a frame of this node is not stored.
    pub undecided: f64,
    /// True if this node serves and refuses QoS 1 and 2 messages for want of room.
    pub full: bool,
    /// Seconds for which the oldest change of this node is not committed. Nothing behind it is
    /// acknowledged.
    pub uncommitted: f64,
    /// The version of its program.
    pub version: String,
    /// Seconds by which its clock is ahead of that of NATS; null if nobody knows.
    #[cfg_attr(feature = "admin", schema(required))]
    pub skew: Option<f64>,
    /// Seconds since it wrote its row; null if it never did.
    #[cfg_attr(feature = "admin", schema(required))]
    pub seen_ago: Option<f64>,
    /// True if that is 15 s or more, or if it has no row.
    pub is_silent: bool,
    /// The URL of its pages; null if no browser reaches them.
    #[cfg_attr(feature = "admin", schema(required))]
    pub pages: Option<String>,
    /// The keys in which it differs from the owner, or from the node that answers if nobody serves.
    pub drift_keys: Vec<String>,
    /// The keys that name files whose content differs.
    pub drift_files: Vec<String>,
}

/// What a report is made of.
pub(super) struct Seen<'a> {
    pub cluster: &'a str,
    pub node: &'a str,
    pub nodes: &'a [String],
    pub owner: Option<&'a str>,
    pub alarm: Option<String>,
    pub rows: &'a [SeenRow],
    pub bounds: Option<Bounds>,
    pub drift: &'a BTreeMap<String, Drift>,
}

impl ClusterReport {
    /// Returns the state of the cluster as a node sees it.
    pub fn of_view(view: &ClusterView, now: Instant) -> ClusterReport {
        let (facts, seen) = (view.facts(), view.seen());
        let owner = view.owner_among(&seen.rows);
        ClusterReport::new(
            Seen {
                cluster: &view.name,
                node: &view.node,
                nodes: &view.nodes,
                owner: owner.as_deref(),
                alarm: Some(facts.alarm).filter(|alarm| !alarm.is_empty()),
                rows: &seen.rows,
                bounds: seen.bounds.clone().and_then(Result::ok),
                drift: &seen.drift,
            },
            now,
        )
    }

    pub(super) fn new(seen: Seen<'_>, now: Instant) -> ClusterReport {
        let newest = seen.rows.iter().map(|seen| seen.row.epoch).max().unwrap_or(0);
        let last = seen.bounds.as_ref().map(|bounds| bounds.last);
        let row_of = |node: &str| seen.rows.iter().find(|seen| seen.row.node == node);
        let node = |name: &String| match row_of(name) {
            Some(row) => {
                let drift = seen.drift.get(name).cloned().unwrap_or_default();
                NodeReport::new(row, drift, newest, last, now)
            }
            None => NodeReport {
                node: name.clone(),
                role: UNSEEN.to_owned(),
                is_silent: true,
                ..NodeReport::default()
            },
        };
        let owner = seen.owner.and_then(row_of).map(|owner| owner.row.append_p99_us);
        ClusterReport {
            cluster: Some(seen.cluster.to_owned()),
            node: Some(seen.node.to_owned()),
            owner: seen.owner.map(str::to_owned),
            alarm: seen.alarm,
            append_p99: owner
                .filter(|micros| *micros > 0)
                .map(|micros| Duration::from_micros(micros).as_secs_f64()),
            nodes: seen.nodes.iter().map(node).collect(),
            log: seen.bounds.map(|bounds| {
                let Bounds { first, last, bytes, capacity, leader } = bounds;
                LogReport { first, last, bytes, capacity, leader }
            }),
        }
    }

    /// Returns the node that serves, if its row says so.
    pub fn serving(&self) -> Option<&NodeReport> {
        let owner = self.owner.as_ref()?;
        self.nodes.iter().find(|node| node.node == *owner && node.role == "holding" && !node.is_silent)
    }

    /// Returns true if a node serves and stores, the log answers, nobody has an alarm, and no node
    /// differs. `lease` bounds the time for which a frame may not be stored.
    pub fn is_good(&self, lease: Duration) -> bool {
        let stores = |node: &NodeReport| node.not_stored() <= lease.as_secs_f64() && !node.full;
        let drifts = self.nodes.iter().any(NodeReport::drifts);
        self.serving().is_some_and(stores) && self.log.is_some() && self.alarm.is_none() && !drifts
    }
}

impl NodeReport {
    fn new(seen: &SeenRow, drift: Drift, newest: u64, last: Option<u64>, now: Instant) -> NodeReport {
        let row = &seen.row;
        let of_ms = |ms: u64| Duration::from_millis(ms).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a difference for people")]
        let skew = seen.skew_ms.map(|ms| ms as f64 / 1_000.0);
        NodeReport {
            node: row.node.clone(),
            role: row.shown_role(newest).to_owned(),
            epoch: row.epoch,
            position: row.position,
            lag: last.unwrap_or(row.position).saturating_sub(row.position),
            database: row.database,
            lease: of_ms(row.lease_ms),
            undecided: of_ms(row.undecided_ms),
            full: row.full,
            uncommitted: of_ms(row.uncommitted_ms),
            version: row.version.clone(),
            skew,
            seen_ago: Some(seen.seen_ago(now).as_secs_f64()),
            is_silent: seen.is_silent(now),
            pages: row.pages().map(str::to_owned),
            drift_keys: drift.keys,
            drift_files: drift.files,
        }
    }

    /// Returns the seconds for which a frame is not stored, or a change not committed. Frames
    /// without changes may be stored while no change is.
    fn not_stored(&self) -> f64 {
        self.undecided.max(self.uncommitted)
    }

    /// Returns true if it stores frames, but no change for a second.
    fn commits_nothing(&self) -> bool {
        self.undecided < 1.0 && self.uncommitted >= 1.0
    }

    /// Returns true if it differs from the owner.
    pub fn drifts(&self) -> bool {
        !self.drift_keys.is_empty() || !self.drift_files.is_empty()
    }

    /// Returns where it differs, in words; empty if it does not.
    pub fn drift(&self) -> String {
        Drift { keys: self.drift_keys.clone(), files: self.drift_files.clone() }.to_string()
    }

    /// Returns what it does, in one word: a row of a node that is silent says what it did.
    pub fn state(&self) -> &str {
        if self.is_silent && self.role != LEFT && self.role != UNSEEN { "silent" } else { &self.role }
    }

    /// Returns by how much its clock is ahead, in words; empty if nobody knows.
    pub fn clock(&self) -> String {
        let Some(skew) = self.skew else { return String::new() };
        let size = seconds(Duration::try_from_secs_f64(skew.abs()).unwrap_or_default());
        if skew < 0.0 { format!("-{size}") } else { format!("+{size}") }
    }

    /// Returns true if its clock is ahead or behind by more than [`SKEW`].
    pub fn is_skewed(&self) -> bool {
        self.skew.is_some_and(|skew| {
            Duration::try_from_secs_f64(skew.abs()).is_ok_and(|skew| skew > Duration::from_millis(SKEW))
        })
    }

    /// Returns the time since its row was written, in words.
    pub fn age(&self) -> String {
        self.seen_ago.map_or_else(|| "never".to_owned(), |ago| seconds(tenths(ago)))
    }
}

impl NodeReport {
    /// Writes why an owner does not store what it should, and what to do.
    fn fmt_store(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = &self.node;
        if self.full {
            writeln!(
                f,
                "FULL     {node} refuses QoS 1 and 2 messages: the log of the cluster or the disk of {node} has no room; \
                 see store.full in its log, and cluster.snapshot_failed in the log of each node"
            )?;
        }
        if self.commits_nothing() {
            writeln!(
                f,
                "WAITS    {node} commits no change, though the log takes frames: its disk is slow, hangs or has no room, \
                 or the log has no room; see store.behind and store.full in its log"
            )?;
        }
        Ok(())
    }
}

/// Returns seconds as a duration of whole tenths: more is noise to people.
fn tenths(of: f64) -> Duration {
    let whole = Duration::try_from_secs_f64(of).unwrap_or_default();
    let rounded = whole.as_millis() / 100 * 100;
    Duration::from_millis(u64::try_from(rounded).unwrap_or(u64::MAX))
}

impl fmt::Display for ClusterReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.cluster.as_deref().unwrap_or_default();
        match self.serving() {
            Some(owner @ NodeReport { node, epoch, lease, .. }) => {
                let (lease, not_stored) =
                    (Duration::from_secs_f64(*lease), Duration::from_secs_f64(owner.not_stored()));
                let state = match not_stored.as_secs() {
                    0 => format!("lease {} ms left", lease.as_millis()),
                    whole => format!("NOTHING STORED for {whole} s"),
                };
                writeln!(f, "cluster  {name}: {node} serves, epoch {epoch}, {state}")?;
            }
            None => writeln!(f, "cluster  {name}: NOBODY SERVES")?,
        }
        match &self.log {
            Some(log) => writeln!(f, "log      {log}{}", self.appends())?,
            None => writeln!(f, "log      the engine does not say where it ends")?,
        }
        if let Some(alarm) = &self.alarm {
            writeln!(
                f,
                "ALARM    {alarm}: nobody serves until a person has decided; see docs/cluster.md, and `homing cluster reseed`"
            )?;
        }
        if let Some(owner) = self.serving() {
            owner.fmt_store(f)?;
        }
        let reference = self.owner.as_deref().or(self.node.as_deref()).unwrap_or("the others");
        for node in self.nodes.iter().filter(|node| node.drifts()) {
            writeln!(f, "DRIFT    {} differs from {reference} in {}", node.node, node.drift())?;
        }
        f.write_str(
            "\nnode      role        epoch  position    lag   database  version  clock    last seen",
        )?;
        self.nodes.iter().try_for_each(|node| write!(f, "\n{node}"))
    }
}

impl ClusterReport {
    /// Returns how long appends take, as the end of a sentence.
    pub fn appends(&self) -> String {
        let mut text = String::new();
        if let Some(p99) = self.append_p99 {
            let _ = write!(text, ", 99 % of the appends took {:.1} ms at most", p99 * 1_000.0);
        }
        text
    }
}

impl fmt::Display for LogReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LogReport { first, last, bytes, capacity, leader } = self;
        #[expect(clippy::cast_precision_loss, reason = "a share for people")]
        let used = *bytes as f64 / (*capacity).max(1) as f64 * 100.0;
        let leader = leader.as_deref().unwrap_or("nobody");
        write!(f, "frames {first} to {last}, {used:.1} % of {} MiB used, led by {leader}", capacity >> 20)
    }
}

impl fmt::Display for NodeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NodeReport { node, epoch, position, lag, database, version, .. } = self;
        if self.seen_ago.is_none() {
            return write!(f, "{node:<9} never seen");
        }
        let (state, clock, age) = (self.state(), self.clock(), self.age());
        write!(
            f,
            "{node:<9} {state:<11} {epoch:>5} {position:>9} {lag:>6} {database:>10}  {version:<7}  {clock:<7}  {age}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::cluster::engine::Row;
    use crate::cluster::row::NodeRow;

    const NOW: u64 = 1_700_000_000_000;

    fn seen(node: &str, role: &str, epoch: u64, (stored_ago, ahead): (u64, i64)) -> SeenRow {
        let stored = NOW - stored_ago;
        let row = NodeRow {
            node: node.to_owned(),
            role: role.to_owned(),
            epoch,
            position: 4,
            database: 3,
            version: "0.1.0".to_owned(),
            unix_ms: stored.saturating_add_signed(ahead),
            append_p99_us: 1_240,
            pages: "https://10.0.0.11:11883/".to_owned(),
            ..NodeRow::default()
        };
        let found = Row { value: bytes::Bytes::new(), revision: 1, stored_ms: Some(stored) };
        SeenRow::new(row, &found, clock::now(), NOW)
    }

    fn report(rows: &[SeenRow], owner: Option<&str>, drift: &BTreeMap<String, Drift>) -> ClusterReport {
        let nodes = ["a", "b", "c"].map(str::to_owned);
        let bounds =
            Bounds { first: 1, last: 6, bytes: 1 << 20, capacity: 64 << 20, leader: Some("n2".to_owned()) };
        let seen = Seen {
            cluster: "plant",
            node: "a",
            nodes: &nodes,
            owner,
            alarm: None,
            rows,
            bounds: Some(bounds),
            drift,
        };
        ClusterReport::new(seen, clock::now())
    }

    #[test]
    fn a_report_says_who_serves_who_is_silent_and_who_was_never_seen() {
        let rows = [seen("a", "holding", 2, (0, 20)), seen("b", "following", 2, (20_000, -3_000))];
        let report = report(&rows, Some("a"), &BTreeMap::new());
        assert!(report.is_good(Duration::from_secs(4)), "{report}");
        let text = report.to_string();
        for line in [
            "cluster  plant: a serves, epoch 2, lease 0 ms left\n",
            "log      frames 1 to 6, 1.6 % of 64 MiB used, led by n2, 99 % of the appends took 1.2 ms at most\n",
            "a         holding         2         4      2          3  0.1.0    +20 ms   ",
            "b         silent          2         4      2          3  0.1.0    -3.0 s   20.",
            "\nc         never seen",
        ] {
            assert!(text.contains(line), "{line}\nin\n{text}");
        }
        let [a, b, c] = &report.nodes[..] else { panic!("three nodes") };
        assert!(!a.is_skewed() && b.is_skewed() && !c.is_skewed());
        assert_eq!(a.pages.as_deref(), Some("https://10.0.0.11:11883"));
        assert_eq!((c.role.as_str(), c.is_silent, c.seen_ago), ("unseen", true, None));
    }

    #[test]
    fn the_row_of_a_node_that_was_killed_or_has_left_does_not_say_that_it_serves() {
        let rows = [
            seen("a", "holding", 2, (0, 0)),
            seen("b", "holding", 3, (0, 0)),
            seen("c", "left", 2, (60_000, 0)),
        ];
        let report = report(&rows, Some("b"), &BTreeMap::new());
        let states: Vec<&str> = report.nodes.iter().map(NodeReport::state).collect();
        assert_eq!(states, ["lost", "holding", "left"]);
        assert_eq!(report.serving().map(|node| &*node.node), Some("b"));
    }

    #[test]
    fn drift_is_named_and_not_good_and_so_is_a_cluster_that_nobody_serves() {
        let rows = [seen("a", "holding", 2, (0, 0)), seen("b", "following", 2, (0, 0))];
        let drift = Drift { keys: vec!["limits.sessions".to_owned()], files: vec!["acl.file".to_owned()] };
        let of_b = BTreeMap::from([("b".to_owned(), drift)]);
        let report = report(&rows, Some("a"), &of_b);
        assert!(!report.is_good(Duration::from_secs(4)));
        let line = "DRIFT    b differs from a in limits.sessions, the content of acl.file\n";
        assert!(report.to_string().contains(line), "{report}");
        let nobody = super::tests::report(&rows[1..], None, &BTreeMap::new());
        assert!(nobody.to_string().contains("NOBODY SERVES") && !nobody.is_good(Duration::from_secs(4)));
    }

    #[test]
    fn an_owner_that_stores_beats_and_no_messages_is_not_good_and_the_report_says_why() {
        let lease = Duration::from_secs(4);
        let with = |change: &dyn Fn(&mut NodeRow)| {
            let mut owner = seen("a", "holding", 2, (0, 0));
            change(&mut owner.row);
            report(&[owner, seen("b", "following", 2, (0, 0))], Some("a"), &BTreeMap::new())
        };
        let full = with(&|row| row.full = true);
        assert!(!full.is_good(lease));
        let line = "FULL     a refuses QoS 1 and 2 messages: the log of the cluster or the disk of a has no room; see store.full";
        assert!(full.to_string().contains(line), "{full}");
        let blocked = with(&|row| row.uncommitted_ms = 12_300);
        assert!(!blocked.is_good(lease));
        let text = blocked.to_string();
        assert!(text.contains("a serves, epoch 2, NOTHING STORED for 12 s\n"), "{text}");
        assert!(text.contains("WAITS    a commits no change, though the log takes frames: "), "{text}");
        let busy = with(&|row| row.uncommitted_ms = 40);
        assert!(busy.is_good(lease) && !busy.to_string().contains("WAITS"), "{busy}");
        // The engine is what it waits for: another line says that.
        let undecided = with(&|row| (row.uncommitted_ms, row.undecided_ms) = (9_000, 9_000));
        assert!(!undecided.is_good(lease) && !undecided.to_string().contains("WAITS"), "{undecided}");
    }

    #[test]
    fn a_page_of_another_node_is_a_link_only_if_it_is_a_url() {
        let row = |pages: &str| NodeRow { pages: pages.to_owned(), ..NodeRow::default() };
        assert_eq!(row("javascript:alert(1)").pages(), None);
        assert_eq!(row("").pages(), None);
        assert_eq!(row("http://127.0.0.1:11883").pages(), Some("http://127.0.0.1:11883"));
    }
}
