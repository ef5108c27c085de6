//! Snapshots: whole databases in the engine, so that the log before them can go, and a node with an
//! empty disk can join.
//!
//! A standby makes them, because it has the time; the owner only if no standby does
//! (`snapshot_turn`). Two are kept. The log loses the frames before the older snapshot, whichever
//! node sees first that it can. So a node that fetches the newer one finds all frames behind it. If
//! the log is nearly full, it loses those before the newer one, too.

use super::engine::{Bounds, Engine, EngineError, SnapshotError};
use super::row::{ClusterRow, ClusterView, Pointer, SNAPSHOT};
use super::snapshot_turn::{SnapshotTurn, is_due, is_near, purged_up_to};
use crate::clock;
use crate::ownership::Role;
use crate::scheduling;
use crate::store::StoreError;
use crate::store::files;
use crate::store::sqlite::Mark;
use crate::store::sqlite::base::{adopt, copy_database, directory_of, mark_of};
use crate::store::sqlite::directory::{Directory, database_in};
use crate::time::Instant;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;
use tracing::{info, warn};

/// The time between two looks.
const EVERY: Duration = Duration::from_secs(5);

/// Why a snapshot was not made or fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum SnapshotFailure {
    #[error("{0}")]
    Snapshot(#[from] SnapshotError),
    #[error("{0}")]
    Engine(#[from] EngineError),
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{0}")]
    File(#[from] io::Error),
    #[error(
        "this node's database has the frames up to {position}, and the newest snapshot those up to {newest}: see if the disk of this node hangs"
    )]
    Behind { position: u64, newest: u64 },
    #[error("the snapshot of position {0} is of another log, or of another position")]
    Foreign(u64),
    #[error("the snapshot of position {position} is no database: {error}")]
    Unreadable { position: u64, error: StoreError },
    #[error("the log begins at {first}, and the newest snapshot is that of {position}")]
    Gap { first: u64, position: u64 },
}

/// The thread `homing-snapshot`.
struct Snapshots {
    engine: Arc<dyn Engine>,
    view: Arc<ClusterView>,
    data: PathBuf,
    /// The identifier of the cluster's log.
    log: u64,
    turn: SnapshotTurn,
}

/// Starts the thread that makes snapshots of a node's database.
///
/// # Errors
/// The system refuses a thread.
pub(super) fn start(
    engine: Arc<dyn Engine>,
    view: Arc<ClusterView>,
    data: PathBuf,
    log: u64,
) -> io::Result<()> {
    let mut snapshots = Snapshots { engine, view, data, log, turn: SnapshotTurn::new(clock::now()) };
    let run = move || {
        scheduling::yield_to_traffic();
        loop {
            std::thread::sleep(EVERY);
            let now = clock::now();
            if snapshots.turn.rests(now) {
                continue;
            }
            match snapshots.look(now) {
                Ok(()) => snapshots.turn.worked(),
                Err(error) => {
                    let again = snapshots.turn.failed(clock::now()).as_secs();
                    warn!(event = "cluster.snapshot_failed", %error, again, "no snapshot was made: the log grows until one is");
                }
            }
        }
    };
    Builder::new().name("homing-snapshot".into()).spawn(run).map(drop)
}

impl Snapshots {
    fn look(&mut self, now: Instant) -> Result<(), SnapshotFailure> {
        if !matches!(self.view.facts().role, Role::Following | Role::Holding) {
            return Ok(());
        }
        // An engine that is away is reported elsewhere.
        let (Ok(bounds), Ok(row)) = (self.engine.bounds(), self.engine.row(SNAPSHOT)) else { return Ok(()) };
        let (pointer, revision) =
            row.map_or((Pointer::default(), 0), |row| (Pointer::read(&row.value), row.revision));
        let database = fs::metadata(database_in(&self.data))?.len();
        let since_last = self.turn.newest_is(pointer.position, now);
        if !is_due(&bounds, pointer, database, since_last) {
            self.turn.is_not_due();
            return self.purge(&bounds, pointer);
        }
        let others = self.view.before_in_turn(|row| is_near(row, &bounds, pointer, database));
        // A node whose database is far behind waits, too: it may come near while the others fail.
        let before = others.as_ref().map_or(usize::MAX, Vec::len);
        let is_my_turn = self.turn.is_due(before, &bounds, now);
        let Some(others) = others.filter(|_| is_my_turn) else { return self.purge(&bounds, pointer) };
        if !others.is_empty() {
            warn!(
                event = "cluster.snapshot_overdue",
                nodes = others.join(", "),
                "these nodes have made no snapshot though one is due, so this node does: see if their disks hang"
            );
        }
        let path = self.data.join("snapshot.db");
        copy_database(&database_in(&self.data), &path, || true)?;
        let made = put(&*self.engine, &path, self.log, pointer, revision);
        let _ = fs::remove_file(&path);
        let pointer = made?;
        self.engine.remove_snapshots(pointer.before)?;
        self.purge(&bounds, pointer)
    }

    fn purge(&self, bounds: &Bounds, pointer: Pointer) -> Result<(), SnapshotFailure> {
        let up_to = purged_up_to(bounds, pointer);
        if up_to >= bounds.first && up_to < bounds.last {
            self.engine.purge(up_to)?;
            info!(
                event = "cluster.purged",
                up_to, "the log has no frames up to here any more: a snapshot has them"
            );
        }
        Ok(())
    }
}

/// Puts a copy into the engine, then moves the pointer: never back. A copy of another log than the
/// cluster's is not put there: no node could use it, and the log would be purged up to it.
fn put(
    engine: &dyn Engine,
    path: &Path,
    log: u64,
    before: Pointer,
    revision: u64,
) -> Result<Pointer, SnapshotFailure> {
    let (applied, Mark { position, .. }) = mark_of(path)?;
    if applied.id != Some(log) {
        return Err(SnapshotFailure::Foreign(position));
    }
    if position <= before.position {
        return Err(SnapshotFailure::Behind { position, newest: before.position });
    }
    let mut file = File::open(path)?;
    let bytes = file.metadata()?.len();
    engine.put_snapshot(position, &mut file)?;
    let pointer = Pointer { position, before: before.position };
    if engine.swap_row(SNAPSHOT, revision, pointer.bytes())?.is_none() {
        // Another node was faster, and its pointer counts.
        return Ok(before);
    }
    info!(event = "cluster.snapshot", position, bytes, "a snapshot of this node's database is in the engine");
    Ok(pointer)
}

/// Puts a snapshot in place of a database that is behind the log's beginning, or of a log of which this
/// one has taken the place: the newest, or the one before it if the newest is damaged. A database of
/// another log is set aside. Does nothing if the database has everything before the first frame of the
/// log, or is none of this cluster. `new_id` is the directory's identifier if it has none.
///
/// # Errors
/// There is no snapshot that fits, or it cannot be stored. The database is as before.
pub(super) fn catch_up(
    engine: &dyn Engine,
    data: &Path,
    cluster: &ClusterRow,
    new_id: u64,
) -> Result<(), SnapshotFailure> {
    let directory = Directory::open(data)?;
    let database = directory.database();
    let has_database = fs::metadata(&database).is_ok_and(|file| file.len() > 0);
    let (own, id, replaced) = match has_database {
        true => {
            let (applied, mark) = mark_of(&database)?;
            let replaced = applied.id.filter(|log| cluster.previous.contains(log));
            let is_new = applied.id.is_none() && mark.is_new();
            if replaced.is_none() && applied.id != Some(cluster.log) && !is_new {
                return Ok(());
            }
            (mark.position, directory_of(&database)?, replaced)
        }
        false => (0, 0, None),
    };
    let Bounds { first, .. } = engine.bounds()?;
    if own + 1 >= first && replaced.is_none() {
        return Ok(());
    }
    let pointer = engine.row(SNAPSHOT)?.map_or(Pointer::default(), |row| Pointer::read(&row.value));
    let path = data.join("fetched.db");
    let mut failure = SnapshotFailure::Gap { first, position: pointer.position };
    for position in [pointer.position, pointer.before].into_iter().filter(|position| position + 1 >= first) {
        info!(
            event = "cluster.fetches",
            position, own, first, "the log begins behind this node's database: fetching a snapshot"
        );
        match fetch(engine, &path, cluster.log, position) {
            Ok(()) => {
                // Before the database has its name: two directories with one identifier would be one owner.
                adopt(&path, if id == 0 { new_id } else { id })?;
                if let Some(log) = replaced {
                    set_aside(data, &database, log)?;
                }
                return put_in_place(&path, &database);
            }
            // Another snapshot does not help against an engine that is away or a disk without room.
            Err(error @ (SnapshotFailure::Engine(_) | SnapshotFailure::File(_))) => return Err(error),
            Err(error) => {
                warn!(event = "cluster.snapshot_unusable", position, %error, "a snapshot in the engine cannot be used: the one before it is tried");
                failure = error;
            }
        }
    }
    Err(failure)
}

/// Fetches a snapshot into a new file, and checks that it is a database of this position.
fn fetch(engine: &dyn Engine, path: &Path, log: u64, position: u64) -> Result<(), SnapshotFailure> {
    files::delete(path)?;
    let mut file = files::create_new(path)?;
    match engine.get_snapshot(position, &mut file) {
        Err(SnapshotError::Engine(error)) => return Err(error.into()),
        Err(SnapshotError::File(error)) => return Err(error.into()),
        fetched => fetched?,
    }
    file.sync_all()?;
    let unreadable = |error: StoreError| SnapshotFailure::Unreadable { position, error };
    let (applied, mark) = mark_of(path).map_err(unreadable)?;
    if applied.id != Some(log) || mark.position != position {
        return Err(SnapshotFailure::Foreign(position));
    }
    Ok(())
}

/// Gives a fetched database its name.
fn put_in_place(path: &Path, database: &Path) -> Result<(), SnapshotFailure> {
    for suffix in ["-wal", "-shm"] {
        files::delete(&beside(database, suffix))?;
    }
    fs::rename(path, database)?;
    if let Some(data) = database.parent() {
        files::sync(data)?;
    }
    Ok(())
}

/// Gives a database of another log a second name, with what belongs to it. It may have what the cluster
/// has lost. What an attempt has done that was killed stays done.
fn set_aside(data: &Path, database: &Path, log: u64) -> io::Result<()> {
    let aside = data.join(format!("homing-{log:016x}.db"));
    // The log of a broker by itself.
    let (frames, frames_aside) = (data.join("log"), data.join(format!("log-{log:016x}")));
    if frames.exists() && !frames_aside.exists() {
        fs::rename(frames, frames_aside)?;
    }
    for (from, to) in
        [(beside(database, "-wal"), beside(&aside, "-wal")), (database.to_owned(), aside.clone())]
    {
        match fs::hard_link(from, to) {
            Err(error) if !matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {
                return Err(error);
            }
            _ => {}
        }
    }
    files::sync(data)?;
    warn!(
        event = "cluster.set_aside",
        file = %aside.display(),
        "the cluster has a new log: this node's database of the log before is set aside; delete it when you do not need it"
    );
    Ok(())
}

/// Returns the path of a file that SQLite has beside a database.
fn beside(database: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", database.display()))
}

#[cfg(test)]
mod tests {
    use super::super::follower::Follower;
    use super::super::follower_tests::LATE;
    use super::super::memory_engine::MemoryCluster;
    use super::super::messages::NodeFacts;
    use super::super::row::{NodeRow, node_key};
    use super::super::tail::Tail;
    use super::*;
    use crate::config::{Cluster, DurabilityLevel};
    use crate::ownership::{Claim, Start};
    use crate::store::frame::cluster::FrameKind;
    use crate::store::sqlite::{Sqlite, SqliteOptions};
    use crate::store::wall::Heartbeat;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    const LOG: u64 = 77;

    /// Appends frames, and makes the database that has them.
    fn follow(engine: &dyn Engine, data: &Path, frames: u64) {
        let options = SqliteOptions { durability: DurabilityLevel::Os, size_limit: None };
        let mut database = Sqlite::open(data, options).expect("a database");
        database.set_log_id(LOG).expect("written");
        database.join_cluster(1).expect("written");
        let mut follower = Follower::new(database).expect("a follower");
        let mut tail = Tail::new(LOG, 0, Mark::default());
        for position in 1..=frames {
            let claim = Claim { node: 0, directory: 5, boot: 6, epoch: 1, lease: Duration::from_secs(4) };
            let kind = if position == 1 { FrameKind::Claim(claim) } else { FrameKind::Beat };
            let made = tail.make_sign(kind, Heartbeat::default());
            let _ = engine.append(position - 1, &made.bytes);
            let read = follower.read(&tail, position, &made.bytes).expect("the log continues");
            follower.take(&mut tail, read, &made.bytes, LATE, Instant::ZERO);
        }
        drop(follower.finish().expect("applied"));
    }

    #[test]
    fn a_node_with_nothing_joins_past_a_damaged_snapshot() {
        let [first, second, joins] = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
        let engine = MemoryCluster::initialized().node(0);
        let cluster =
            ClusterRow { name: "plant".into(), log: LOG, cells: 1, begins: None, previous: Vec::new() };
        follow(&engine, first.path(), 3);
        follow(&engine, second.path(), 5);
        let stored = |data: &Path, position| {
            let mut database = File::open(database_in(data)).expect("a file");
            engine.put_snapshot(position, &mut database).expect("stored");
        };
        stored(first.path(), 3);
        let pointer = serde_json::to_vec(&Pointer { position: 5, before: 3 }).expect("text");
        engine.put_row(SNAPSHOT, pointer.into()).expect("written");
        engine.purge(2).expect("purged");
        // Content that is no database, and the database of another position.
        let damages: [&dyn Fn(); 2] =
            [&|| engine.put_snapshot(5, &mut &b"no database"[..]).expect("stored"), &|| {
                stored(first.path(), 5)
            }];
        for damage in damages {
            damage();
            catch_up(&engine, joins.path(), &cluster, 9).expect("the snapshot before");
            assert_eq!(mark_of(&database_in(joins.path())).expect("a database").1.position, 3);
            fs::remove_file(database_in(joins.path())).expect("gone");
        }
        stored(second.path(), 5);
        catch_up(&engine, joins.path(), &cluster, 9).expect("the newest");
        assert_eq!(mark_of(&database_in(joins.path())).expect("a database").1.position, 5);
        assert_eq!(directory_of(&database_in(joins.path())).expect("a database"), 9);
        fs::remove_file(database_in(joins.path())).expect("gone");

        // Where both cannot be used, the node waits.
        engine.put_snapshot(3, &mut &b"no database"[..]).expect("stored");
        engine.put_snapshot(5, &mut &b"no database"[..]).expect("stored");
        let failure = catch_up(&engine, joins.path(), &cluster, 9).expect_err("no snapshot");
        assert!(matches!(failure, SnapshotFailure::Unreadable { position: 3, .. }), "{failure}");
        engine.purge(4).expect("purged");
        let failure = catch_up(&engine, joins.path(), &cluster, 9).expect_err("no snapshot that fits");
        assert!(matches!(failure, SnapshotFailure::Unreadable { position: 5, .. }), "{failure}");
    }

    #[test]
    fn a_database_without_the_identifier_of_the_log_is_no_snapshot() {
        let data = tempfile::tempdir().expect("a directory");
        let engine = MemoryCluster::initialized().node(0);
        follow(&engine, data.path(), 3);
        let (path, none) = (database_in(data.path()), Pointer::default());
        for of_another in [true, false] {
            let options = SqliteOptions { durability: DurabilityLevel::Os, size_limit: None };
            let mut database = Sqlite::open(data.path(), options).expect("a database");
            match of_another {
                true => database.set_log_id(LOG + 1).expect("written"),
                false => database.leave_log().expect("written"),
            }
            drop(database);
            let failure = put(&engine, &path, LOG, none, 0).expect_err("it is of no use");
            assert!(matches!(failure, SnapshotFailure::Foreign(3)), "{failure}");
            assert!(engine.row(SNAPSHOT).expect("an answer").is_none(), "the pointer is where it was");
        }
        let mut database =
            Sqlite::open(data.path(), SqliteOptions { durability: DurabilityLevel::Os, size_limit: None })
                .expect("a database");
        database.set_log_id(LOG).expect("written");
        drop(database);
        let pointer = put(&engine, &path, LOG, none, 0).expect("stored");
        assert_eq!((pointer.position, pointer.before), (3, 0));
    }

    /// The thread of a node that stands by, which sees rows with these databases.
    fn standby(
        engine: &Arc<dyn Engine>,
        data: &Path,
        node: &str,
        databases: &[(&str, &str, u64)],
    ) -> Snapshots {
        let settings = Cluster {
            node: node.to_owned(),
            nodes: databases.iter().map(|(node, ..)| (*node).to_owned()).collect(),
            ..Cluster::default()
        };
        let facts = Arc::new(Mutex::new(NodeFacts::at_start(&Start::default())));
        let view = Arc::new(ClusterView::new(&settings, facts, channel().0, channel().0));
        for (node, role, database) in databases {
            let (node, role) = ((*node).to_owned(), (*role).to_owned());
            let row = NodeRow { node, role, position: 400, database: *database, ..NodeRow::default() };
            let bytes = serde_json::to_vec(&row).expect("JSON");
            engine.put_row(&node_key(&row.node), bytes.into()).expect("written");
        }
        view.take(engine.rows().expect("rows"), LOG, clock::now());
        Snapshots {
            engine: Arc::clone(engine),
            view,
            data: data.to_owned(),
            log: LOG,
            turn: SnapshotTurn::new(clock::now()),
        }
    }

    /// Returns the position of the newest snapshot after each of these looks, seconds after the
    /// start.
    fn newest_after(snapshots: &mut Snapshots, looks: &[u64]) -> Vec<u64> {
        let start = clock::now();
        let look = |seconds: &u64| {
            snapshots.look(start + Duration::from_secs(*seconds)).expect("no failure");
            let row = snapshots.engine.row(SNAPSHOT).expect("an answer");
            row.map_or(0, |row| Pointer::read(&row.value).position)
        };
        looks.iter().map(look).collect()
    }

    /// A small log with 400 frames, of which the snapshot is due, and the database that has them.
    fn due() -> (Arc<dyn Engine>, tempfile::TempDir) {
        let data = tempfile::tempdir().expect("a directory");
        let engine = MemoryCluster::new().node(0);
        engine.init(64 << 10).expect("it was not there");
        follow(&engine, data.path(), 400);
        let bytes = engine.bounds().expect("bounds").bytes;
        assert!(bytes > 26 << 10 && bytes < 48 << 10, "{bytes}");
        (Arc::new(engine), data)
    }

    #[test]
    fn a_standby_whose_database_is_kept_behind_by_its_disk_is_no_maker_and_the_next_one_is_at_once() {
        let (engine, data) = due();
        let rows = [("a", "holding", 400), ("b", "following", 10), ("c", "following", 400)];
        let mut snapshots = standby(&engine, data.path(), "c", &rows);
        assert_eq!(newest_after(&mut snapshots, &[0]), [400]);
    }

    #[test]
    fn a_standby_that_makes_no_snapshot_is_followed_by_the_next_one_after_a_minute() {
        let (engine, data) = due();
        let rows = [("a", "holding", 400), ("b", "following", 400), ("c", "following", 400)];
        let mut snapshots = standby(&engine, data.path(), "c", &rows);
        assert_eq!(newest_after(&mut snapshots, &[0, 59, 60]), [0, 0, 400]);
    }

    #[test]
    fn a_database_that_does_not_go_on_is_a_failure_that_says_so() {
        let (engine, data) = due();
        let snapshots = standby(&engine, data.path(), "c", &[("c", "following", 400)]);
        let newest = Pointer { position: 400, before: 0 };
        let failure =
            put(&*snapshots.engine, &database_in(data.path()), LOG, newest, 0).expect_err("it is no newer");
        assert!(
            failure.to_string().contains("up to 400, and the newest snapshot those up to 400"),
            "{failure}"
        );
    }
}
