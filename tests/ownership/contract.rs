//! The model of the engine behind the door of the real one, for the suite of what an engine must do.
//! The log is that of the simulation. It has no rows of bytes and no announcements: those are of the
//! other model (`tests/support/memory_engine.rs`).

use crate::engine::Engine as Model;
use crate::engine_contract::CASES;
use crate::memory_engine::{MemoryCluster, MemoryEngine};
use crate::replicated_log::{LogAnswer, LogRequest, LogRequestNumber, ReplicatedLog};
use bytes::Bytes;
use homing::cluster::engine::{Append, Bounds, Check, Engine, EngineError, MAX_FRAME, Row, SnapshotError};
use homing_core::ownership::{AppendReply, Position};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Nodes that a case has at most.
const NODES: usize = 4;

struct Shared {
    model: Model,
    requests: u64,
}

/// A node of a cluster.
struct Door {
    shared: Arc<Mutex<Shared>>,
    node: usize,
    rest: MemoryEngine,
}

impl Door {
    /// Sends a request, and waits for its answer.
    fn ask(&self, request: LogRequest) -> Result<LogAnswer, EngineError> {
        self.rest.bounds()?;
        let mut shared = self.shared.lock().expect("no panic");
        shared.requests += 1;
        let number = LogRequestNumber(shared.requests);
        shared.model.log(self.node, 0).request(number, request);
        while shared.model.run_next().is_none() {}
        let (answered, answer) = shared.model.log(self.node, 0).next_answer().expect("it has come");
        assert_eq!(answered, number);
        Ok(answer)
    }

    fn last(&self) -> Result<u64, EngineError> {
        match self.ask(LogRequest::Last)? {
            LogAnswer::Last(last) => Ok(last.0),
            other => panic!("{other:?}"),
        }
    }
}

impl Engine for Door {
    fn append(&self, last: u64, frame: &Bytes) -> Append {
        if frame.len() > MAX_FRAME {
            return Append::Refused("the frame is too large".to_owned());
        }
        let Ok(bounds) = self.bounds() else { return Append::Unknown("there is no log".to_owned()) };
        {
            let model = &mut self.shared.lock().expect("no panic").model;
            let is_full = bounds.last == last && bounds.bytes + frame.len() as u64 > bounds.capacity;
            model.fill(if is_full { u64::MAX } else { 0 });
        }
        match self.ask(LogRequest::Append { after: Position(last), frame: frame.clone() }) {
            Ok(LogAnswer::Append(AppendReply::Stored)) => Append::Applied(last + 1),
            Ok(LogAnswer::Append(AppendReply::WrongLast)) => Append::NotLast,
            Ok(LogAnswer::Append(AppendReply::Full)) => Append::Full,
            other => panic!("{other:?}"),
        }
    }

    fn read(&self, after: u64, bytes: usize) -> Result<Vec<(u64, Bytes)>, EngineError> {
        match self.ask(LogRequest::Read { from: Position(after.saturating_add(1)), bytes })? {
            LogAnswer::Frames(frames) => Ok(frames.into_iter().map(|(at, bytes)| (at.0, bytes)).collect()),
            other => panic!("{other:?}"),
        }
    }

    fn bounds(&self) -> Result<Bounds, EngineError> {
        let (last, rest) = (self.last()?, self.rest.bounds()?);
        let model = &self.shared.lock().expect("no panic").model;
        let first = model.first(0).0;
        let bytes = (first..=last).map(|at| model.frame(0, Position(at)).len() as u64).sum();
        Ok(Bounds { first, last, bytes, ..rest })
    }

    fn purge(&self, up_to: u64) -> Result<(), EngineError> {
        let last = self.last()?;
        if up_to > last {
            return Err(EngineError::Refused(format!("the log ends at {last}")));
        }
        self.ask(LogRequest::Trim(Position(up_to + 1))).map(drop)
    }

    fn begin_behind(&self, position: u64) -> Result<(), EngineError> {
        self.rest.bounds()?;
        self.shared.lock().expect("no panic").model.begin_behind(0, Position(position));
        Ok(())
    }

    fn announce(&self, position: u64) {
        self.rest.announce(position);
    }

    fn wait_for_tip(&self, after: u64, limit: Duration) -> Option<u64> {
        self.rest.wait_for_tip(after, limit)
    }

    fn put_snapshot(&self, position: u64, from: &mut dyn Read) -> Result<(), SnapshotError> {
        self.rest.put_snapshot(position, from)
    }

    fn get_snapshot(&self, position: u64, into: &mut dyn Write) -> Result<(), SnapshotError> {
        self.rest.get_snapshot(position, into)
    }

    fn snapshots(&self) -> Result<Vec<u64>, EngineError> {
        self.rest.snapshots()
    }

    fn remove_snapshots(&self, position: u64) -> Result<(), EngineError> {
        self.rest.remove_snapshots(position)
    }

    fn row(&self, key: &str) -> Result<Option<Row>, EngineError> {
        self.rest.row(key)
    }

    fn rows(&self) -> Result<Vec<(String, Row)>, EngineError> {
        self.rest.rows()
    }

    fn clock_ms(&self) -> Result<Option<u64>, EngineError> {
        self.rest.clock_ms()
    }

    fn put_row(&self, key: &str, value: Bytes) -> Result<u64, EngineError> {
        self.rest.put_row(key, value)
    }

    fn swap_row(&self, key: &str, expected: u64, value: Bytes) -> Result<Option<u64>, EngineError> {
        self.rest.swap_row(key, expected, value)
    }

    fn remove_row(&self, key: &str) -> Result<(), EngineError> {
        self.rest.remove_row(key)
    }

    fn check(&self) -> Result<Check, EngineError> {
        self.rest.check()
    }

    fn init(&self, log_bytes: u64) -> Result<(), EngineError> {
        self.rest.init(log_bytes)
    }
}

#[test]
fn the_model_does_what_an_engine_must_do() {
    for (seed, (_, case)) in CASES.iter().enumerate() {
        let shared = Shared { model: Model::new(NODES, 1, seed as u64), requests: 0 };
        let (shared, cluster) = (Arc::new(Mutex::new(shared)), MemoryCluster::new());
        let nodes = AtomicUsize::new(0);
        case(&|| {
            let node = nodes.fetch_add(1, Ordering::Relaxed);
            Arc::new(Door { shared: Arc::clone(&shared), node, rest: cluster.node(0) })
        });
    }
}
