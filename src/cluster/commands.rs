//! What `homing cluster` does. The commands ask the engine alone, so they work from any machine that
//! reaches it, whether a node runs or not.

use super::base::{self, Base, BaseError};
use super::drift;
use super::engine::{Bounds, Engine, EngineError};
use super::observed::{ObservedRows, observe};
use super::report::{ClusterReport, Seen};
use super::row::{BASE, CLUSTER, ClusterRow, DrainRow, LEFT, SeenRow, alarm_key};
use super::secret;
use super::tail::Tail;
use crate::config::{Cluster, DurabilityLevel};
use crate::store::StoreError;
use crate::store::log::new_id;
use crate::store::sqlite::base::{directory_of, mark_of};
use crate::store::sqlite::directory::{database_in, refuse_following};
use crate::store::sqlite::{Mark, Sqlite, SqliteOptions};
use crate::time::Instant;
use crate::time::duration::seconds;
use std::path::Path;
use std::time::Duration;

/// Bytes of the log that are read at once.
const READ: usize = 4 << 20;
/// A standby may lag by this many frames and still take over at once.
const MOST_LAG: u64 = 1_000;

/// How a command opens a data directory.
const OPTIONS: SqliteOptions = SqliteOptions { durability: DurabilityLevel::Commit, size_limit: None };

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
    /// A file or a snapshot failed on the way.
    #[error("{0}")]
    Failed(String),
}

impl From<BaseError> for CommandError {
    fn from(error: BaseError) -> CommandError {
        match error {
            BaseError::Engine(error) => error.into(),
            BaseError::Store(error) => error.into(),
            BaseError::Overtaken => CommandError::Refused(error.to_string()),
            error @ (BaseError::Snapshot(_) | BaseError::File(..)) => CommandError::Failed(error.to_string()),
        }
    }
}

/// The sessions with which a cluster begins.
#[derive(Clone, Copy, Debug)]
pub enum InitialSessions<'p> {
    /// None. The path is the data directory, which must not have any.
    None(Option<&'p Path>),
    /// Those of this data directory, of a broker by itself.
    Of(&'p Path),
}

/// Makes the log of a new cluster, and what belongs to it. Nothing is a cluster before its row is
/// written, so an attempt that was killed before can be repeated.
///
/// # Errors
/// There is one already, the engine does not do it, or the data directory does not fit.
pub fn init(
    engine: &dyn Engine,
    settings: &Cluster,
    sessions: InitialSessions<'_>,
) -> Result<Report, CommandError> {
    match engine.row(CLUSTER) {
        Ok(Some(row)) => return finish_init(engine, settings, ClusterRow::read(&row.value)),
        Ok(None) | Err(EngineError::Missing(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let cluster = ClusterRow {
        name: settings.name.clone(),
        log: new_id(),
        cells: 1,
        begins: None,
        previous: Vec::new(),
    };
    let begins = match sessions {
        InitialSessions::None(data) => {
            begin_empty(engine, settings, &cluster, data)?;
            String::new()
        }
        InitialSessions::Of(data) => {
            begin_with(engine, settings, cluster, data)?;
            format!(", and begins with the sessions and messages of {}", data.display())
        }
    };
    // Without it, the first node makes it.
    let _ = secret::of_cluster(engine);
    let Cluster { name, log_size, nodes, .. } = settings;
    let nodes = nodes.join(", ");
    let text =
        format!("the cluster {name:?} is made, with a log of {log_size}{begins}: start the nodes {nodes}");
    Ok(Report { text, is_good: true })
}

/// Makes a cluster without sessions. `data` is the data directory of this machine.
fn begin_empty(
    engine: &dyn Engine,
    settings: &Cluster,
    cluster: &ClusterRow,
    data: Option<&Path>,
) -> Result<(), CommandError> {
    if let Some(data) = data.filter(|data| has_own_sessions(data)) {
        return Err(CommandError::Refused(format!(
            "{} has the store of a broker by itself: `homing cluster init --from-store` makes the cluster begin \
             with it; for one without sessions, name an empty store.path",
            data.display()
        )));
    }
    make_log(engine, settings)?;
    let made = engine.swap_row(CLUSTER, 0, cluster.bytes())?;
    made.map(drop).ok_or(BaseError::Overtaken.into())
}

/// Makes the log. An attempt that was killed with a base on its way had made it.
fn make_log(engine: &dyn Engine, settings: &Cluster) -> Result<(), EngineError> {
    match engine.row(BASE) {
        Ok(Some(_)) => Ok(()),
        Ok(None) | Err(EngineError::Missing(_)) => engine.init(settings.log_size.bytes()),
        Err(error) => Err(error),
    }
}

/// Refuses to make a cluster that is there. Does what a command has left to do that was killed.
fn finish_init(
    engine: &dyn Engine,
    settings: &Cluster,
    cluster: Option<ClusterRow>,
) -> Result<Report, CommandError> {
    base::finish(engine)?;
    let Cluster { name, nodes, .. } = settings;
    if cluster.is_some_and(|cluster| cluster.begins.is_some()) {
        let text = format!(
            "the cluster {name:?} was made by a command that did not end, and is whole now: start the nodes {}",
            nodes.join(", ")
        );
        return Ok(Report { text, is_good: true });
    }
    Err(CommandError::Refused(format!(
        "the cluster {name:?} is there already: `homing cluster status` shows it"
    )))
}

/// Makes a cluster of the store of a broker by itself. The broker must not run.
fn begin_with(
    engine: &dyn Engine,
    settings: &Cluster,
    mut cluster: ClusterRow,
    data: &Path,
) -> Result<(), CommandError> {
    refuse_following(data)?;
    if !database_in(data).exists() {
        return Err(CommandError::Refused(format!(
            "{}: there is no store: name it by store.path",
            data.display()
        )));
    }
    // Locked to the end: what a broker takes in from now on would not be in the cluster.
    let mut database = Sqlite::open(data, OPTIONS)?;
    if database.cluster_directory()? != 0 {
        return Err(CommandError::Refused(format!(
            "{} is of a cluster already: `homing cluster leave` makes it that of a broker by itself",
            data.display()
        )));
    }
    let base = Base::of_broker(data)?;
    let own_log = database.applied()?.0.id.unwrap_or_else(new_id);
    cluster.previous.push(own_log);
    make_log(engine, settings)?;
    base.put(engine, 0, cluster)?;
    // From here on it is a directory of the cluster, whose next start fetches the base.
    database.set_log_id(own_log)?;
    database.join_cluster(new_id())?;
    Ok(base::finish(engine)?)
}

/// Returns true if a data directory has a store of a broker by itself.
fn has_own_sessions(data: &Path) -> bool {
    let database = database_in(data);
    let is_of_none = || directory_of(&database).is_ok_and(|directory| directory == 0);
    database.metadata().is_ok_and(|file| file.len() > 0)
        && is_of_none()
        && mark_of(&database).is_ok_and(|(_, mark)| !mark.is_new())
}

/// Describes the cluster: who serves, how far each node is, and how full the log is.
///
/// # Errors
/// The engine does not answer, or has no cluster.
pub fn status(engine: &dyn Engine, settings: &Cluster) -> Result<Report, CommandError> {
    let observed = observe(engine)?;
    let cluster = observed.value(CLUSTER).ok_or_else(|| missing(settings))?;
    let cluster = ClusterRow::read(cluster).ok_or_else(unreadable)?;
    let alarm = observed.value(&alarm_key(cluster.log));
    let alarm = alarm.map(|value| String::from_utf8_lossy(value).into_owned());
    let ObservedRows { nodes: seen, now, .. } = observed;
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
            alarm,
            rows: &seen,
            bounds: engine.bounds().ok(),
            drift: &drift::among(&seen, &settings.nodes, reference),
        },
        now,
    );
    let mut text = report.to_string();
    if cluster.begins.is_some() {
        text += "\n\nBEGINS   a command did not end: the first node that starts ends it";
    }
    let trouble = seen.iter().find(|seen| Some(&*seen.row.node) == owner && !seen.row.trouble.is_empty());
    if let Some(seen) = trouble {
        text += &format!("\n\nNOT STORED: {}", seen.row.trouble);
    }
    Ok(Report { text, is_good: report.is_good(settings.lease) })
}

/// Checks the settings of the engine, and the chain of all frames that it has.
///
/// # Errors
/// The engine does not answer, or has no cluster.
pub fn verify(engine: &dyn Engine, settings: &Cluster) -> Result<Report, CommandError> {
    let cluster = row_of_cluster(engine, settings)?.1;
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
/// There is no such node, it does not run, or no other could serve.
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
    let ObservedRows { nodes, now, .. } = observe(engine)?;
    let process = process_to_drain(&nodes, node, now).map_err(CommandError::Failed)?;
    let is_ready = |seen: &&SeenRow| {
        seen.row.node != node
            && seen.row.role == "following"
            && !seen.is_silent(now)
            && last.saturating_sub(seen.row.position) <= MOST_LAG
    };
    if !force && nodes.iter().find(is_ready).is_none() {
        return Err(CommandError::Refused(format!(
            "no other node stands by within {MOST_LAG} frames, so nobody would serve: --force drains all the same"
        )));
    }
    engine.put_row(&super::row::drain_key(node), DrainRow { process }.bytes())?;
    let text = format!("{node} is told to leave; `homing cluster status` shows who serves");
    Ok(Report { text, is_good: true })
}

/// Returns the number of the process of a node that runs.
///
/// # Errors
/// Why there is none: it would find the request at its next start, which nobody means.
fn process_to_drain(nodes: &[SeenRow], node: &str, now: Instant) -> Result<u64, String> {
    match nodes.iter().find(|seen| seen.row.node == node) {
        None => Err(format!("{node} has never run, so nothing is done")),
        Some(seen) if seen.row.role == LEFT => Err(format!("{node} has left already, so nothing is done")),
        Some(seen) if seen.is_silent(now) => Err(format!(
            "{node} does not run, or does not reach NATS: its row is {} old. Nothing is done; if it runs, stop it \
             on its machine",
            seconds(Duration::from_secs(seen.seen_ago(now).as_secs()))
        )),
        Some(seen) => Ok(seen.row.process),
    }
}

/// Makes a data directory that of a broker by itself again.
///
/// # Errors
/// The directory cannot be used, or is of no cluster.
pub fn leave(data: &Path) -> Result<Report, CommandError> {
    let of_none = || CommandError::Refused(format!("{} is of no cluster", data.display()));
    if !database_in(data).exists() {
        return Err(of_none());
    }
    let mut database = Sqlite::open(data, OPTIONS)?;
    if database.cluster_directory()? == 0 {
        return Err(of_none());
    }
    let Mark { position, .. } = database.applied()?.1;
    database.leave_cluster()?;
    let text = format!(
        "{} is the store of a broker by itself now, as of frame {position}: do not start it in the cluster again",
        data.display()
    );
    Ok(Report { text, is_good: true })
}

/// Returns the row of the cluster, with its revision.
pub(super) fn row_of_cluster(
    engine: &dyn Engine,
    settings: &Cluster,
) -> Result<(u64, ClusterRow), CommandError> {
    let row = engine.row(CLUSTER)?.ok_or_else(|| missing(settings))?;
    Ok((row.revision, ClusterRow::read(&row.value).ok_or_else(unreadable)?))
}

fn missing(settings: &Cluster) -> EngineError {
    EngineError::Missing(format!("the cluster {:?}", settings.name))
}

fn unreadable() -> CommandError {
    CommandError::Refused("the row of the cluster cannot be read: a newer program may have written it".into())
}

#[cfg(test)]
mod tests {
    use super::super::memory_engine::MemoryCluster;
    use super::super::row::{DrainRow, NodeRow, drain_key, node_key};
    use super::*;
    use crate::cluster::row::SILENT;

    fn write(engine: &dyn Engine, node: &str, role: &str, process: u64) {
        let row = NodeRow { node: node.to_owned(), role: role.to_owned(), process, ..NodeRow::default() };
        let bytes = serde_json::to_vec(&row).expect("JSON");
        engine.put_row(&node_key(node), bytes.into()).expect("written");
    }

    #[test]
    fn a_node_that_does_not_run_is_not_asked_to_leave_and_one_that_runs_is_asked_as_this_process() {
        let cluster = MemoryCluster::initialized();
        let engine = cluster.node(0);
        let nodes = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        let settings = Cluster { nodes, ..Cluster::default() };
        cluster.set_clock(0);
        write(&engine, "c", "following", 3);
        cluster.set_clock(SILENT.as_millis().try_into().expect("some seconds"));
        write(&engine, "a", "holding", 1);
        write(&engine, "b", "following", 2);
        write(&engine, "d", LEFT, 4);
        for (node, why) in [("c", "does not run, or does not reach NATS: its row is 15"), ("d", "left")] {
            for force in [false, true] {
                let refused = drain(&engine, &settings, node, force).expect_err("it does not run");
                assert!(matches!(refused, CommandError::Failed(_)), "exit code 1: {refused:?}");
                assert!(refused.to_string().contains(why), "{refused}");
                assert_eq!(engine.row(&drain_key(node)).expect("an answer"), None);
            }
        }
        drain(&engine, &settings, "a", false).expect("it runs");
        let row = engine.row(&drain_key("a")).expect("an answer").expect("a row");
        assert_eq!(DrainRow::read(&row.value), DrainRow { process: 1 });
    }
}
