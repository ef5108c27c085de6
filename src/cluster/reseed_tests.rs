//! A new base of a cluster, and commands that are killed at each call to the engine.

use super::commands::{InitialSessions, init};
use super::engine::{Append, Bounds, Check, Engine, EngineError, Row, SnapshotError};
use super::follower_tests::{LATE, LOG, Node, Owner, directories, open};
use super::memory_engine::{MemoryCluster, MemoryEngine};
use super::reseed::reseed;
use super::row::{CLUSTER, ClusterRow, NodeRow, alarm_key, node_key};
use super::snapshots::catch_up;
use crate::config::Cluster;
use crate::store::log::new_id;
use crate::store::sqlite::base::mark_of;
use crate::store::sqlite::directory::database_in;
use crate::store::tests::rows;
use bytes::Bytes;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// What happens to the call at which a command is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    IsLost,
    IsDone,
}

/// An engine of a command that is killed at one of its calls: nothing of it is heard any more.
struct Mortal {
    engine: MemoryEngine,
    calls_left: AtomicU32,
    last: Last,
}

impl Mortal {
    fn call<T>(&self, act: impl FnOnce(&MemoryEngine) -> Result<T, EngineError>) -> Result<T, EngineError> {
        let dead = Err(EngineError::TimedOut("killed".to_owned()));
        let left = self.calls_left.load(Ordering::Relaxed);
        self.calls_left.store(left.saturating_sub(1), Ordering::Relaxed);
        match left {
            0 => dead,
            1 if self.last == Last::IsLost => dead,
            1 => act(&self.engine).and(dead),
            _ => act(&self.engine),
        }
    }
}

impl Engine for Mortal {
    fn append(&self, _: u64, _: &Bytes) -> Append {
        unreachable!("a command appends no frame")
    }
    fn read(&self, after: u64, bytes: usize) -> Result<Vec<(u64, Bytes)>, EngineError> {
        self.call(|engine| engine.read(after, bytes))
    }
    fn bounds(&self) -> Result<Bounds, EngineError> {
        self.call(Engine::bounds)
    }
    fn purge(&self, up_to: u64) -> Result<(), EngineError> {
        self.call(|engine| engine.purge(up_to))
    }
    fn begin_behind(&self, position: u64) -> Result<(), EngineError> {
        self.call(|engine| engine.begin_behind(position))
    }
    fn announce(&self, _: u64) {}
    fn wait_for_tip(&self, _: u64, _: Duration) -> Option<u64> {
        None
    }
    fn put_snapshot(&self, position: u64, from: &mut dyn Read) -> Result<(), SnapshotError> {
        let mut content = Vec::new();
        from.read_to_end(&mut content)?;
        let put = |engine: &MemoryEngine| {
            engine.put_snapshot(position, &mut content.as_slice()).expect("stored");
            Ok(())
        };
        Ok(self.call(put)?)
    }
    fn get_snapshot(&self, position: u64, into: &mut dyn Write) -> Result<(), SnapshotError> {
        self.engine.get_snapshot(position, into)
    }
    fn snapshots(&self) -> Result<Vec<u64>, EngineError> {
        self.call(Engine::snapshots)
    }
    fn remove_snapshots(&self, position: u64) -> Result<(), EngineError> {
        self.call(|engine| engine.remove_snapshots(position))
    }
    fn row(&self, key: &str) -> Result<Option<Row>, EngineError> {
        self.call(|engine| engine.row(key))
    }
    fn rows(&self) -> Result<Vec<(String, Row)>, EngineError> {
        self.call(Engine::rows)
    }
    fn clock_ms(&self) -> Result<Option<u64>, EngineError> {
        self.call(Engine::clock_ms)
    }
    fn put_row(&self, key: &str, value: Bytes) -> Result<u64, EngineError> {
        self.call(|engine| engine.put_row(key, value))
    }
    fn swap_row(&self, key: &str, expected: u64, value: Bytes) -> Result<Option<u64>, EngineError> {
        self.call(|engine| engine.swap_row(key, expected, value))
    }
    fn remove_row(&self, key: &str) -> Result<(), EngineError> {
        self.call(|engine| engine.remove_row(key))
    }
    fn check(&self) -> Result<Check, EngineError> {
        self.call(Engine::check)
    }
    fn init(&self, log_bytes: u64) -> Result<(), EngineError> {
        self.call(|engine| engine.init(log_bytes))
    }
}

fn settings() -> Cluster {
    let nodes = ["a", "b"].map(str::to_owned).to_vec();
    Cluster { name: "plant".to_owned(), node: "a".to_owned(), nodes, ..Cluster::default() }
}

/// A cluster whose log has lost its end, with an alarm, and the data directory of its node `a`.
struct Plant {
    cluster: Arc<MemoryCluster>,
    a: TempDir,
    b: TempDir,
}

impl Plant {
    fn alarmed() -> Plant {
        let (cluster, [a, b]) = (MemoryCluster::initialized(), directories());
        let engine = cluster.node(0);
        let row = ClusterRow { name: "plant".into(), log: LOG, cells: 1, begins: None, previous: Vec::new() };
        engine.swap_row(CLUSTER, 0, row.bytes()).expect("written");
        let mut owner = Owner::new();
        owner.group(10, usize::MAX >> 1);
        owner.group(20, usize::MAX >> 1);
        for (last, made) in owner.frames.iter().enumerate() {
            assert_eq!(engine.append(last as u64, &made.bytes), Append::Applied(last as u64 + 1));
        }
        for (data, id) in [(&a, 5), (&b, 6)] {
            let mut database = open(data.path());
            database.set_log_id(LOG).expect("written");
            database.join_cluster(id).expect("written");
            drop(database);
            let mut node = Node::start(data.path());
            node.follow(&owner.frames, LATE).expect("the log continues");
            drop(node.follower.finish().expect("applied"));
        }
        cluster.lose(0, 2);
        engine.put_row(&alarm_key(LOG), Bytes::from_static(b"frames are gone")).expect("written");
        Plant { cluster, a, b }
    }

    fn says(&self, node: &str, role: &str, position: u64) {
        let unix_ms = crate::clock::unix_millis();
        let row = NodeRow { node: node.into(), role: role.into(), position, unix_ms, ..NodeRow::default() };
        let bytes = serde_json::to_vec(&row).expect("JSON");
        self.cluster.node(0).put_row(&node_key(node), bytes.into()).expect("written");
    }

    fn row(&self) -> ClusterRow {
        let row = self.cluster.node(0).row(CLUSTER).expect("an answer").expect("a cluster");
        ClusterRow::read(&row.value).expect("JSON")
    }

    fn reseed(&self, engine: &dyn Engine, confirm: Option<&str>) -> Result<String, String> {
        let done = reseed(engine, &settings(), self.a.path(), confirm);
        done.map(|report| report.text).map_err(|error| error.to_string())
    }

    /// The cluster goes on with what `a` had, and each node has it after its start.
    fn is_whole(&self, what: &str) {
        let (engine, row) = (self.cluster.node(0), self.row());
        assert!(row.log != LOG && row.previous == [LOG] && row.begins.is_none(), "{what}: {row:?}");
        let bounds = engine.bounds().expect("both ends");
        assert_eq!((bounds.first, bounds.last % (1 << 20)), (bounds.last + 1, 0), "{what}");
        assert_eq!(engine.snapshots().expect("a list").last(), Some(&bounds.last), "{what}");
        let alarms = engine.rows().expect("rows").into_iter().filter(|(key, _)| *key == alarm_key(row.log));
        assert_eq!(alarms.count(), 0, "{what}");
        let before = tables(self.a.path());
        for data in [&self.a, &self.b] {
            catch_up(&engine, data.path(), &row, new_id()).expect("fetched");
            assert_eq!(tables(data.path()), before, "{what}");
            let (applied, mark) = mark_of(&database_in(data.path())).expect("a mark");
            assert_eq!((applied.id, mark.position), (Some(row.log), bounds.last), "{what}");
            let aside = data.path().join(format!("homing-{LOG:016x}.db"));
            assert_eq!(mark_of(&aside).expect("set aside").0.id, Some(LOG), "{what}");
        }
    }
}

/// What a database has, without its place in a log.
fn tables(data: &Path) -> Vec<String> {
    let rows = rows(data);
    let found: Vec<String> = rows.into_iter().filter(|row| !row.starts_with("meta")).collect();
    assert!(found.iter().any(|row| row.starts_with("entry")), "{found:?}");
    found
}

#[test]
fn a_reseed_asks_first_and_then_the_cluster_goes_on_with_the_store_of_the_node() {
    let plant = Plant::alarmed();
    let engine = plant.cluster.node(0);
    plant.says("b", "alarmed", 9);
    let asked = plant.reseed(&engine, None).expect_err("a question");
    assert!(asked.contains("the store of the node a in"), "{asked}");
    assert!(
        asked.contains("node b") && asked.contains("6 frames more than the base, which are lost"),
        "{asked}"
    );
    assert!(asked.ends_with("nothing is done yet: repeat the command with --confirm a-3"), "{asked}");
    let other = plant.reseed(&engine, Some("a-2")).expect_err("another position");
    assert!(other.contains("--confirm a-2 is not about this"), "{other}");
    assert_eq!(plant.row().log, LOG);
    let done = plant.reseed(&engine, Some("a-3")).expect("done");
    assert!(done.contains("goes on with the store of a as of frame 3"), "{done}");
    plant.is_whole("once");
    let again = plant.reseed(&engine, Some("a-3")).expect_err("no alarm any more");
    assert!(again.contains("has no alarm"), "{again}");
    plant.is_whole("twice");
}

#[test]
fn a_reseed_is_refused_where_it_makes_no_sense() {
    let plant = Plant::alarmed();
    let engine = plant.cluster.node(0);
    plant.says("b", "holding", 3);
    let serves = plant.reseed(&engine, Some("a-3")).expect_err("b serves");
    assert!(serves.contains("the node b is holding and does not show the alarm yet"), "{serves}");
    plant.says("b", "alarmed", 3);
    let database = open(plant.a.path());
    plant.says("a", "alarmed", 4);
    let behind = plant.reseed(&engine, None).expect_err("the process has more");
    assert!(behind.contains("has read frame 4, and its store has 3: stop it"), "{behind}");
    drop(database);
    plant.reseed(&engine, Some("a-3")).expect("it does not run any more");
    let row = plant.row();
    engine.put_row(&alarm_key(row.log), Bytes::from_static(b"again")).expect("written");
    let old = plant.reseed(&engine, None).expect_err("a store of before");
    assert!(old.contains("is of the log before the last `homing cluster reseed`"), "{old}");
}

#[test]
fn a_reseed_that_is_killed_at_any_call_has_done_nothing_or_is_finished_by_the_next() {
    for last in [Last::IsLost, Last::IsDone] {
        for calls in 1.. {
            let (plant, what) = (Plant::alarmed(), format!("killed at call {calls}, which {last:?}"));
            let engine = Mortal { engine: plant.cluster.node(0), calls_left: calls.into(), last };
            let killed = plant.reseed(&engine, Some("a-3"));
            let has_counted = plant.row().log != LOG;
            let next = plant.reseed(&plant.cluster.node(0), Some("a-3"));
            match next {
                Ok(_) => {}
                Err(why) => assert!(has_counted && why.contains("of the log before"), "{what}: {why}"),
            }
            plant.is_whole(&what);
            if killed.is_ok() {
                assert!(calls > 8, "{what}");
                break;
            }
        }
    }
}

#[test]
fn an_init_that_is_killed_at_any_call_can_be_repeated() {
    for last in [Last::IsLost, Last::IsDone] {
        for calls in 1.. {
            let (cluster, [data]) = (MemoryCluster::new(), directories());
            let mut node = Node::start(data.path());
            let mut owner = Owner::new();
            owner.group(10, usize::MAX >> 1);
            node.follow(&owner.frames, LATE).expect("the log continues");
            drop(node.follower.finish().expect("applied"));
            let (what, before) = (format!("killed at call {calls}, which {last:?}"), tables(data.path()));
            let engine = Mortal { engine: cluster.node(0), calls_left: calls.into(), last };
            let sessions = || InitialSessions::Of(data.path());
            let killed = init(&engine, &settings(), sessions());
            let engine = cluster.node(0);
            if let Err(why) = init(&engine, &settings(), sessions()) {
                assert!(why.to_string().contains("is there already"), "{what}: {why}");
            }
            let row = engine.row(CLUSTER).expect("an answer").expect("a cluster");
            let row = ClusterRow::read(&row.value).expect("JSON");
            assert_eq!(row.begins, None, "{what}");
            let [new] = directories();
            catch_up(&engine, new.path(), &row, new_id()).expect("fetched");
            assert_eq!(tables(new.path()), before, "{what}");
            if killed.is_ok() {
                catch_up(&engine, data.path(), &row, new_id()).expect("fetched");
                assert_eq!(tables(data.path()), before, "{what}");
                break;
            }
        }
    }
}
