//! What a node waits for before it joins its cluster, and what it refuses: other settings, an engine
//! that may lose frames, a data directory of another cluster, and a second node of its name.

use super::base;
use super::driver_core::CoreStart;
use super::engine::{Engine, EngineError};
use super::row::{self, CLUSTER, ClusterRow, node_key, read_node};
use super::secret;
use super::snapshots::{self, SnapshotFailure};
use crate::clock;
use crate::config::{Cluster, ClusterAcks, DurabilityLevel};
use crate::ownership::{CellNode, EXIT_REFUSED, Position, Start};
use crate::store::StoreError;
use crate::store::sqlite::{Sqlite, SqliteOptions};
use crate::time::Instant;
use std::path::Path;
use std::time::Duration;
use tracing::warn;

/// The time between two log lines about an engine that is away.
const SAY_AGAIN: Duration = Duration::from_secs(10);
/// The time between two questions of a start.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// The time for which a row of the same name must not change before another directory takes it.
const QUIET: Duration = Duration::from_secs(6);

/// Why a node does not join. The process ends with [`EXIT_REFUSED`].
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// A setting or the engine is not as it has to be.
    #[error("{0}")]
    Refused(String),
    /// The data directory cannot be used.
    #[error("{0}")]
    Store(#[from] StoreError),
}

impl JoinError {
    /// Returns the exit code.
    pub fn code(&self) -> u8 {
        match self {
            JoinError::Refused(_) => EXIT_REFUSED,
            JoinError::Store(_) => 1,
        }
    }
}

fn refused<T>(why: impl Into<String>) -> Result<T, JoinError> {
    Err(JoinError::Refused(why.into()))
}

/// What a node has that may join.
pub(super) struct Membership {
    pub core: CoreStart,
    pub database: Sqlite,
}

impl Membership {
    /// Makes the data directory one of a node of the cluster, with everything that the engine has no
    /// more. Waits as long as the engine is away.
    ///
    /// # Errors
    /// The settings, the engine or the directory are not as they have to be.
    pub(super) fn take(
        settings: &Cluster,
        engine: &dyn Engine,
        data: &Path,
    ) -> Result<Membership, JoinError> {
        let timing = settings.timing().map_err(|error| JoinError::Refused(format!("cluster.{error}")))?;
        let Some(place) = settings.place() else {
            return refused(format!("cluster.node {:?} is not in cluster.nodes", settings.node));
        };
        let cluster = wait_until_whole(engine, settings, data)?;
        let options = SqliteOptions { durability: DurabilityLevel::Os, size_limit: None };
        let mut database = Sqlite::open(data, options)?;
        let directory = take_directory(&mut database, &cluster, data)?;
        refuse_twin(engine, &settings.node, directory)?;
        secret::share(engine, data);
        let mark = database.applied()?.1;
        let boot = clock::boot().map_or(0, |(id, _)| id);
        let nodes = u16::try_from(settings.nodes.len()).unwrap_or(u16::MAX);
        let core = CoreStart {
            node: CellNode { cell: 0, node: place, nodes, directory, boot },
            timing,
            start: Start {
                position: Position(mark.position),
                claim: mark.owner.map(|owner| owner.claim),
                is_released: mark.owner.is_some_and(|owner| owner.is_released),
                crashes: note_start(data, boot),
            },
            log: cluster.log,
            by_lease: settings.acks == ClusterAcks::Lease,
            now: clock::now(),
        };
        Ok(Membership { core, database })
    }
}

/// Waits until the engine says what cluster it has.
fn wait_for_cluster(engine: &dyn Engine, settings: &Cluster) -> Result<ClusterRow, JoinError> {
    let mut say_at = clock::now();
    loop {
        match engine.row(CLUSTER) {
            Ok(Some(row)) => return check_cluster(&row.value, settings),
            Ok(None) | Err(EngineError::Missing(_)) => {
                return refused(format!(
                    "the engine has no cluster {:?}: `homing cluster init` makes it, once",
                    settings.name
                ));
            }
            Err(error @ EngineError::Refused(_)) => {
                return refused(format!("the engine refuses this node: {error}"));
            }
            Err(error) => {
                let now = clock::now();
                if now >= say_at {
                    say_at = now + SAY_AGAIN;
                    warn!(event = "cluster.engine_away", %error, "waiting for the engine of the cluster; see cluster.nats");
                }
                std::thread::sleep(ASK_AGAIN);
            }
        }
    }
}

fn check_cluster(value: &[u8], settings: &Cluster) -> Result<ClusterRow, JoinError> {
    let Some(cluster) = ClusterRow::read(value) else {
        return refused(
            "the row of the cluster in the engine cannot be read: a newer program may have written it",
        );
    };
    if cluster.name != settings.name {
        return refused(format!(
            "the engine has the cluster {:?}, and cluster.name is {:?}",
            cluster.name, settings.name
        ));
    }
    if cluster.cells != 1 {
        return refused(format!("the cluster has {} cells, and this program serves 1", cluster.cells));
    }
    Ok(cluster)
}

/// Refuses an engine whose settings may lose frames.
fn check_engine(engine: &dyn Engine) -> Result<(), JoinError> {
    let check = loop {
        match engine.check() {
            Ok(check) => break check,
            Err(EngineError::Missing(_)) => {
                return refused("the engine has no log: run `homing cluster init`");
            }
            Err(error @ EngineError::Refused(_)) => {
                return refused(format!("the engine refuses this node: {error}"));
            }
            Err(error) => {
                warn!(event = "cluster.engine_away", %error, "the settings of the engine cannot be checked yet");
                std::thread::sleep(ASK_AGAIN);
            }
        }
    };
    for warning in &check.warnings {
        warn!(event = "cluster.engine_unchecked", "{warning}");
    }
    match check.problems.is_empty() {
        true => Ok(()),
        false => refused(check.problems.join("; ")),
    }
}

/// Waits until the engine has the cluster, and this node a database that the log continues.
fn wait_until_whole(engine: &dyn Engine, settings: &Cluster, data: &Path) -> Result<ClusterRow, JoinError> {
    let mut lacks_since = Instant::NEVER;
    loop {
        let cluster = wait_for_cluster(engine, settings)?;
        check_engine(engine)?;
        let begun = base::finish(engine).map_err(SnapshotFailure::from);
        let fetched =
            begun.and_then(|()| snapshots::catch_up(engine, data, &cluster, crate::store::log::new_id()));
        let error = match fetched {
            Ok(()) => return Ok(cluster),
            Err(SnapshotFailure::Store(error)) => return Err(error.into()),
            Err(SnapshotFailure::File(error)) => {
                return Err(StoreError::Failed(format!("{}: {error}", data.display())).into());
            }
            Err(error) => error,
        };
        lacks_since = match &error {
            SnapshotFailure::Gap { first, position } => {
                let since = lacks_since.min(clock::now());
                if clock::now().since(since) >= row::LACKS {
                    // The others have to know that no node can take their place. Tried again below.
                    let _ = row::raise(engine, cluster.log, row::purged_text(*first, *position));
                }
                since
            }
            _ => Instant::NEVER,
        };
        warn!(event = "cluster.not_fetched", %error, "this node cannot follow yet; see `homing cluster status`");
        std::thread::sleep(SAY_AGAIN);
    }
}

/// Makes a new directory one of the cluster, and refuses one of another.
fn take_directory(database: &mut Sqlite, cluster: &ClusterRow, data: &Path) -> Result<u64, JoinError> {
    let (applied, mark) = database.applied()?;
    let directory = database.cluster_directory()?;
    let data = data.display();
    match (directory, applied.id) {
        (0, log) if mark.is_new() && log.is_none_or(|log| log == cluster.log) => {
            let id = crate::store::log::new_id();
            database.set_log_id(cluster.log)?;
            database.join_cluster(id)?;
            Ok(id)
        }
        (0, _) => refused(format!(
            "{data} has the store of a broker by itself: name an empty store.path; `homing cluster init \
             --from-store` makes a new cluster of such a store"
        )),
        (_, log) if log != Some(cluster.log) => refused(format!(
            "{data} is of another cluster, or of one before `init`, or does not say of which log it is: name an \
             empty store.path, and this node fetches everything from the engine"
        )),
        (directory, _) => Ok(directory),
    }
}

/// Notes this start in a file of the directory, and returns the starts of the last minute, this one
/// included.
fn note_start(data: &Path, boot: u64) -> u32 {
    let path = data.join("cluster-starts");
    let now = clock::boot().map_or_else(clock::unix_millis, |(_, millis)| millis);
    let is_recent = |line: &&str| {
        let Some((of, at)) = line.split_once(' ') else { return false };
        let at: u64 = at.parse().unwrap_or(0);
        of == boot.to_string() && now.saturating_sub(at) < 60_000
    };
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let mut recent: Vec<String> = text.lines().filter(is_recent).map(str::to_owned).collect();
    recent.push(format!("{boot} {now}"));
    // Without the file, a node that crashes again and again takes its cell again each time.
    if let Err(error) = std::fs::write(&path, recent.join("\n")) {
        warn!(event = "cluster.starts_not_noted", file = %path.display(), %error, "the starts of this node are not counted");
    }
    recent.len() as u32
}

/// Refuses a second node of the same name. A new directory takes the name of a node that is silent.
fn refuse_twin(engine: &dyn Engine, node: &str, directory: u64) -> Result<(), JoinError> {
    let key = node_key(node);
    let look = || engine.row(&key).ok().flatten();
    let Some(first) = look() else { return Ok(()) };
    let is_other = |value: &[u8]| read_node(value).is_some_and(|row| row.directory != directory);
    if !is_other(&first.value) {
        return Ok(());
    }
    let until = clock::now() + QUIET;
    while clock::now() < until {
        std::thread::sleep(ASK_AGAIN);
        if look().is_some_and(|row| row.revision != first.revision && is_other(&row.value)) {
            return refused(format!(
                "another process is the node {node:?} with another data directory: each node needs a name of its own in cluster.node"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: u64 = 77;

    #[test]
    fn a_directory_of_the_cluster_says_of_which_log_it_is() {
        let data = tempfile::tempdir().expect("a directory");
        let options = SqliteOptions { durability: DurabilityLevel::Os, size_limit: None };
        let mut database = Sqlite::open(data.path(), options).expect("a database");
        let cluster =
            ClusterRow { name: "plant".into(), log: LOG, cells: 1, begins: None, previous: Vec::new() };
        let own = take_directory(&mut database, &cluster, data.path()).expect("a new one joins");
        assert_eq!(take_directory(&mut database, &cluster, data.path()).expect("it is the same"), own);
        // As an older `homing store cut` left it.
        database.leave_log().expect("written");
        let refusal = take_directory(&mut database, &cluster, data.path()).expect_err("of no log");
        assert!(refusal.to_string().contains("name an empty store.path"), "{refusal}");
        database.set_log_id(LOG + 1).expect("written");
        take_directory(&mut database, &cluster, data.path()).expect_err("of another log");
    }
}
