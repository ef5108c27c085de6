//! What `homing cluster` does. The commands ask the engine alone, so they work from any machine that
//! reaches it, whether a node runs or not.

use super::drift;
use super::engine::{Bounds, Engine, EngineError};
use super::report::{ClusterReport, Seen};
use super::row::{ALARM, CLUSTER, ClusterRow, NodeRow, SILENT, SeenRow, node_key, read_node};
use super::secret;
use super::tail::Tail;
use crate::clock;
use crate::config::{Cluster, DurabilityLevel};
use crate::store::StoreError;
use crate::store::log::new_id;
use crate::store::sqlite::{Mark, Sqlite, SqliteOptions};
use std::path::Path;

/// Bytes of the log that are read at once.
const READ: usize = 4 << 20;
/// A standby may lag by this many frames and still take over at once.
const MOST_LAG: u64 = 1_000;

/// What a command prints, and whether all is well.
#[derive(Debug)]
pub struct Report {
    /// The lines.
    pub text: String,
    /// False for an alarm, no owner or a setting that may lose frames.
    pub is_good: bool,
}

/// Why a command did nothing.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The engine did not do it.
    #[error("{0}")]
    Engine(#[from] EngineError),
    /// It makes no sense now.
    #[error("{0}")]
    Refused(String),
    /// The data directory cannot be used.
    #[error("{0}")]
    Store(#[from] StoreError),
}

/// Makes the log of a new cluster, and what belongs to it.
///
/// # Errors
/// There is one already, or the engine does not do it.
pub fn init(engine: &dyn Engine, settings: &Cluster) -> Result<Report, CommandError> {
    match engine.row(CLUSTER) {
        Ok(Some(_)) => {
            return Err(CommandError::Refused(format!(
                "the cluster {:?} is there already: `homing cluster status` shows it",
                settings.name
            )));
        }
        Ok(None) | Err(EngineError::Missing(_)) => {}
        Err(error) => return Err(error.into()),
    }
    engine.init(settings.log_size.bytes())?;
    let row = ClusterRow { name: settings.name.clone(), log: new_id(), cells: 1 };
    let bytes = serde_json::to_vec(&row).map_err(|error| CommandError::Refused(error.to_string()))?;
    if engine.swap_row(CLUSTER, 0, bytes.into())?.is_none() {
        return Err(CommandError::Refused("another `homing cluster init` came first".into()));
    }
    // Without it, the first node makes it.
    let _ = secret::of_cluster(engine);
    let nodes = settings.nodes.join(", ");
    let text = format!(
        "the cluster {:?} is made, with a log of {}: start the nodes {nodes}",
        settings.name, settings.log_size
    );
    Ok(Report { text, is_good: true })
}

/// Describes the cluster: who serves, how far each node is, and how full the log is.
///
/// # Errors
/// The engine does not answer, or has no cluster.
pub fn status(engine: &dyn Engine, settings: &Cluster) -> Result<Report, CommandError> {
    let rows = engine.rows()?;
    let find = |key: &str| rows.iter().find(|(found, _)| found == key).map(|(_, row)| &row.value);
    if find(CLUSTER).is_none() {
        return Err(EngineError::Missing(format!("the cluster {:?}", settings.name)).into());
    }
    let (now, newest) = (clock::now(), clock::unix_millis());
    let seen: Vec<SeenRow> = rows
        .iter()
        .filter_map(|(key, row)| {
            let found = read_node(&row.value).filter(|found| *key == node_key(&found.node))?;
            Some(SeenRow::new(found, row, now, newest))
        })
        .collect();
    // The row of a node that was killed or has left is still there: the last Claim counts.
    let owner = seen
        .iter()
        .filter(|seen| seen.row.role == "holding" && !seen.is_silent(now))
        .max_by_key(|seen| seen.row.epoch)
        .map(|seen| &*seen.row.node);
    let reference = owner.unwrap_or(&settings.node);
    let report = ClusterReport::new(
        Seen {
            cluster: &settings.name,
            node: &settings.node,
            nodes: &settings.nodes,
            owner,
            alarm: find(ALARM).map(|value| String::from_utf8_lossy(value).into_owned()),
            rows: &seen,
            bounds: engine.bounds().ok(),
            drift: &drift::among(&seen, &settings.nodes, reference),
        },
        now,
    );
    Ok(Report { text: report.to_string(), is_good: report.is_good(settings.lease) })
}

/// Checks the settings of the engine, and the chain of all frames that it has.
///
/// # Errors
/// The engine does not answer, or has no cluster.
pub fn verify(engine: &dyn Engine, settings: &Cluster) -> Result<Report, CommandError> {
    let row = engine.row(CLUSTER)?;
    let row = row.ok_or_else(|| EngineError::Missing(format!("the cluster {:?}", settings.name)))?;
    let cluster: ClusterRow = serde_json::from_slice(&row.value)
        .map_err(|error| CommandError::Refused(format!("the row of the cluster: {error}")))?;
    let check = engine.check()?;
    let mut lines: Vec<String> = check.problems.iter().map(|problem| format!("PROBLEM  {problem}")).collect();
    lines.extend(check.warnings.iter().map(|warning| format!("warning  {warning}")));
    let mut is_good = check.problems.is_empty();
    let Bounds { first, last, .. } = engine.bounds()?;
    let mut tail: Option<Tail> = None;
    let mut position = first.saturating_sub(1);
    let mut checked = 0_u64;
    'log: while position < last {
        let frames = engine.read(position, READ)?;
        if frames.is_empty() {
            lines.push(format!("PROBLEM  no server has frame {}, and the log ends at {last}", position + 1));
            is_good = false;
            break;
        }
        for (at, bytes) in frames {
            let known = tail.get_or_insert_with(|| Tail::before(cluster.log, 0, at, &bytes));
            match known.check(at, &bytes) {
                Ok(((_, head, digest), kind)) => known.advance(&head, digest, kind),
                Err(unfit) => {
                    lines.push(format!("PROBLEM  frame {at}: {unfit}"));
                    is_good = false;
                    break 'log;
                }
            }
            (position, checked) = (at, checked + 1);
        }
    }
    lines.push(format!("{checked} frames checked, {first} to {position}"));
    Ok(Report { text: lines.join("\n"), is_good })
}

/// Asks a node to leave, so that another one serves at once. Refused without one, unless `force`.
///
/// # Errors
/// There is no such node, or no other that could serve.
pub fn drain(
    engine: &dyn Engine,
    settings: &Cluster,
    node: &str,
    force: bool,
) -> Result<Report, CommandError> {
    if !settings.nodes.iter().any(|known| known == node) {
        return Err(CommandError::Refused(format!("{node:?} is not in cluster.nodes")));
    }
    let last = engine.bounds()?.last;
    let rows = engine.rows()?;
    let nodes: Vec<NodeRow> = rows.iter().filter_map(|(_, row)| read_node(&row.value)).collect();
    let is_ready = |row: &&NodeRow| {
        row.node != node
            && row.role == "following"
            && !is_silent(row)
            && last.saturating_sub(row.position) <= MOST_LAG
    };
    if !force && nodes.iter().find(is_ready).is_none() {
        return Err(CommandError::Refused(format!(
            "no other node stands by within {MOST_LAG} frames, so nobody would serve: --force drains all the same"
        )));
    }
    engine.put_row(&super::row::drain_key(node), bytes::Bytes::from_static(b"1"))?;
    let text = format!("{node} is told to leave; `homing cluster status` shows who serves");
    Ok(Report { text, is_good: true })
}

/// Makes a data directory that of a broker by itself again.
///
/// # Errors
/// The directory cannot be used, or is of no cluster.
pub fn leave(data: &Path) -> Result<Report, CommandError> {
    let options = SqliteOptions { durability: DurabilityLevel::Commit, size_limit: None };
    let mut database = Sqlite::open(data, options)?;
    if database.cluster_directory()? == 0 {
        return Err(CommandError::Refused(format!("{} is of no cluster", data.display())));
    }
    let Mark { position, .. } = database.applied()?.1;
    database.leave_cluster()?;
    let text = format!(
        "{} is the store of a broker by itself now, as of frame {position}: do not start it in the cluster again",
        data.display()
    );
    Ok(Report { text, is_good: true })
}

/// Returns the age of a row in milliseconds, by the wall clocks of both machines.
fn age_of(row: &NodeRow) -> u64 {
    clock::unix_millis().saturating_sub(row.unix_ms)
}

fn is_silent(row: &NodeRow) -> bool {
    u128::from(age_of(row)) > SILENT.as_millis()
}
