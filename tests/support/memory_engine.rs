//! A model of the engine in memory, with the faults that the real one has.
//!
//! | fault | here |
//! |---|---|
//! | a request or its answer is lost | [`Fate::LostRequest`], [`Fate::LostAnswer`] |
//! | the leader has taken a frame, and does not get it to a majority | [`Fate::Pending`], then [`MemoryCluster::settle`] |
//! | no leader | [`MemoryCluster::set_leaderless`] |
//! | a replica that lags | [`MemoryCluster::set_lag`] |
//! | frames that were applied, and are gone or changed | [`MemoryCluster::lose`], [`MemoryCluster::change`] |
//!
//! A fault lasts until a test ends it, and nothing waits but [`Engine::wait_for_tip`].

use bytes::Bytes;
use homing::clock;
use homing::cluster::engine::{
    Append, Bounds, Check, Engine, EngineError, MAX_FRAME, MAX_ROW, Row, SnapshotError, check_key,
};
use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What happens to an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It never reaches the leader. Its sender learns nothing.
    LostRequest,
    /// It is applied. Its sender learns nothing.
    LostAnswer,
    /// The leader takes it, and it is neither applied nor forgotten. Its sender learns nothing.
    Pending,
}

/// What all nodes of a cluster share.
#[derive(Default)]
pub struct MemoryCluster {
    state: Mutex<State>,
    announced: Condvar,
}

#[derive(Default)]
struct State {
    cells: BTreeMap<u16, Cell>,
    rows: BTreeMap<String, Row>,
    revision: u64,
    is_leaderless: bool,
    lag: u64,
    /// Milliseconds by which the clock of the leader is ahead of that of this machine.
    ahead_ms: i64,
    /// Nodes so far, which are their numbers.
    nodes: usize,
}

#[derive(Default)]
struct Cell {
    capacity: u64,
    /// Frames with their positions. Those that were purged are missing at the beginning.
    frames: VecDeque<Bytes>,
    first: u64,
    bytes: u64,
    pending: Option<Bytes>,
    fates: VecDeque<Fate>,
    snapshots: BTreeMap<u64, Bytes>,
    /// What was announced, with its sender, and how often.
    tip: Option<(usize, u64)>,
    announcements: u64,
}

impl Cell {
    fn last(&self) -> u64 {
        self.first + self.frames.len() as u64 - 1
    }

    fn apply(&mut self, frame: Bytes) {
        self.bytes += frame.len() as u64;
        self.frames.push_back(frame);
    }

    fn append(&mut self, last: u64, frame: &Bytes) -> Append {
        let unknown = || Append::Unknown("no answer".to_owned());
        let fate = self.fates.pop_front();
        if fate == Some(Fate::LostRequest) {
            return unknown();
        }
        if last != self.last() + u64::from(self.pending.is_some()) {
            return Append::NotLast;
        }
        if self.bytes + frame.len() as u64 > self.capacity {
            return Append::Full;
        }
        // Behind a frame that no majority takes, no other is applied.
        if fate == Some(Fate::Pending) || self.pending.is_some() {
            self.pending.get_or_insert_with(|| frame.clone());
            return unknown();
        }
        self.apply(frame.clone());
        if fate.is_some() { unknown() } else { Append::Applied(last + 1) }
    }

    fn purge(&mut self, up_to: u64) {
        while self.first <= up_to && !self.frames.is_empty() {
            self.bytes -= self.frames.pop_front().map_or(0, |frame| frame.len() as u64);
            self.first += 1;
        }
    }
}

impl MemoryCluster {
    /// Returns a cluster that was not initialized.
    pub fn new() -> Arc<MemoryCluster> {
        Arc::default()
    }

    /// Returns a cluster whose cell 0 has room for much.
    pub fn initialized() -> Arc<MemoryCluster> {
        let cluster = MemoryCluster::new();
        cluster.node(0).init(1 << 40).expect("it was not there");
        cluster
    }

    /// Returns another node of this cluster.
    pub fn node(self: &Arc<MemoryCluster>, cell: u16) -> MemoryEngine {
        let mut state = self.state();
        state.nodes += 1;
        MemoryEngine { cluster: Arc::clone(self), cell, number: state.nodes, heard: Mutex::new(0) }
    }

    /// The fates of the next appends to a cell, behind those that were given before.
    pub fn decide(&self, cell: u16, fates: &[Fate]) {
        self.cell(cell, |cell| cell.fates.extend(fates));
    }

    /// The frame that is pending is applied, or forgotten.
    pub fn settle(&self, cell: u16, is_applied: bool) {
        self.cell(cell, |cell| {
            let pending = cell.pending.take().filter(|_| is_applied);
            pending.into_iter().for_each(|frame| cell.apply(frame));
        });
    }

    /// There is no leader, so that only reads of frames are answered.
    pub fn set_leaderless(&self, is_leaderless: bool) {
        self.state().is_leaderless = is_leaderless;
    }

    /// Reads do not show this many frames at the end of a log, as at a replica that lags, and a leader
    /// that does not answer.
    pub fn set_lag(&self, frames: u64) {
        self.state().lag = frames;
    }

    /// Sets the clock of the leader, in milliseconds by which it is ahead of that of this machine.
    pub fn set_clock(&self, ahead_ms: i64) {
        self.state().ahead_ms = ahead_ms;
    }

    /// The last frames of a cell are gone, although they were applied.
    pub fn lose(&self, cell: u16, frames: usize) {
        self.cell(cell, |cell| {
            for _ in 0..frames {
                cell.bytes -= cell.frames.pop_back().map_or(0, |frame| frame.len() as u64);
            }
        });
    }

    /// A frame of a cell is another one.
    pub fn change(&self, cell: u16, position: u64, frame: Bytes) {
        self.cell(cell, |cell| {
            let at = usize::try_from(position - cell.first).expect("a place");
            cell.frames[at] = frame;
        });
    }

    fn cell<T>(&self, cell: u16, change: impl FnOnce(&mut Cell) -> T) -> T {
        change(self.state().cells.get_mut(&cell).expect("it is initialized"))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One node's door to the model.
pub struct MemoryEngine {
    cluster: Arc<MemoryCluster>,
    cell: u16,
    number: usize,
    /// Announcements that it has heard.
    heard: Mutex<u64>,
}

impl MemoryEngine {
    /// Does something that needs a leader.
    fn lead<T>(&self, act: impl FnOnce(&mut State) -> Result<T, EngineError>) -> Result<T, EngineError> {
        let mut state = self.cluster.state();
        if state.is_leaderless {
            return Err(EngineError::Unavailable("there is no leader".to_owned()));
        }
        if state.cells.is_empty() {
            return Err(EngineError::Missing("the cluster".to_owned()));
        }
        act(&mut state)
    }

    fn cell<T>(&self, act: impl FnOnce(&mut Cell) -> Result<T, EngineError>) -> Result<T, EngineError> {
        self.lead(|state| match state.cells.get_mut(&self.cell) {
            Some(cell) => act(cell),
            None => Err(EngineError::Missing(format!("the log of cell {}", self.cell))),
        })
    }
}

fn check_row(key: &str, value: &Bytes) -> Result<(), EngineError> {
    check_key(key)?;
    let is_small = value.len() <= MAX_ROW;
    is_small.then_some(()).ok_or_else(|| EngineError::Refused(format!("the row {key} is too large")))
}

impl State {
    fn write(&mut self, key: &str, value: Bytes) -> u64 {
        self.revision += 1;
        self.rows
            .insert(key.to_owned(), Row { value, revision: self.revision, stored_ms: Some(self.clock_ms()) });
        self.revision
    }

    fn clock_ms(&self) -> u64 {
        clock::unix_millis().saturating_add_signed(self.ahead_ms)
    }
}

impl Engine for MemoryEngine {
    fn append(&self, last: u64, frame: &Bytes) -> Append {
        if frame.len() > MAX_FRAME {
            return Append::Refused("the frame is too large".to_owned());
        }
        self.cell(|cell| Ok(cell.append(last, frame)))
            .unwrap_or_else(|error| Append::Unknown(error.to_string()))
    }

    fn read(&self, after: u64, bytes: usize) -> Result<Vec<(u64, Bytes)>, EngineError> {
        let state = self.cluster.state();
        let cell = state.cells.get(&self.cell);
        let cell = cell.ok_or_else(|| EngineError::Unavailable("nobody serves the log".to_owned()))?;
        let mut left = bytes;
        let shown = (cell.first..).zip(&cell.frames).take_while(|(at, _)| *at + state.lag <= cell.last());
        let wanted = shown.filter(|(position, _)| *position > after);
        let fitting = wanted.enumerate().take_while(|(number, (_, frame))| {
            let fits = *number == 0 || frame.len() <= left;
            left = left.saturating_sub(frame.len());
            fits
        });
        Ok(fitting.map(|(_, (position, frame))| (position, frame.clone())).collect())
    }

    fn bounds(&self) -> Result<Bounds, EngineError> {
        self.cell(|cell| {
            let (first, last) = (cell.first, cell.last());
            Ok(Bounds { first, last, bytes: cell.bytes, capacity: cell.capacity, leader: None })
        })
    }

    fn purge(&self, up_to: u64) -> Result<(), EngineError> {
        self.cell(|cell| {
            if up_to > cell.last() {
                return Err(EngineError::Refused(format!("the log ends at {}", cell.last())));
            }
            cell.purge(up_to);
            Ok(())
        })
    }

    fn begin_behind(&self, position: u64) -> Result<(), EngineError> {
        self.cell(|cell| {
            cell.purge(position);
            if cell.last() < position {
                (cell.first, cell.bytes) = (position + 1, 0);
            }
            Ok(())
        })
    }

    fn announce(&self, position: u64) {
        if let Some(cell) = self.cluster.state().cells.get_mut(&self.cell) {
            cell.tip = Some((self.number, position));
            cell.announcements += 1;
        }
        self.cluster.announced.notify_all();
    }

    fn wait_for_tip(&self, after: u64, limit: Duration) -> Option<u64> {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = None;
        let is_waiting = |state: &mut State| {
            let Some(cell) = state.cells.get(&self.cell) else { return true };
            let is_new = cell.announcements > *heard;
            found = cell.tip.filter(|(sender, tip)| is_new && *sender != self.number && *tip > after);
            if found.is_some() {
                *heard = cell.announcements;
            }
            found.is_none()
        };
        let state = self.cluster.state();
        drop(self.cluster.announced.wait_timeout_while(state, limit, is_waiting));
        found.map(|(_, tip)| tip)
    }

    fn put_snapshot(&self, position: u64, from: &mut dyn Read) -> Result<(), SnapshotError> {
        let mut content = Vec::new();
        from.read_to_end(&mut content)?;
        self.cell(|cell| {
            cell.snapshots.insert(position, content.into());
            Ok(())
        })?;
        Ok(())
    }

    fn get_snapshot(&self, position: u64, into: &mut dyn Write) -> Result<(), SnapshotError> {
        let content = self.cell(|cell| Ok(cell.snapshots.get(&position).cloned()))?;
        into.write_all(&content.ok_or(SnapshotError::Missing(position))?)?;
        Ok(())
    }

    fn snapshots(&self) -> Result<Vec<u64>, EngineError> {
        self.cell(|cell| Ok(cell.snapshots.keys().copied().collect()))
    }

    fn remove_snapshots(&self, position: u64) -> Result<(), EngineError> {
        self.cell(|cell| {
            cell.snapshots.retain(|at, _| *at >= position);
            Ok(())
        })
    }

    fn row(&self, key: &str) -> Result<Option<Row>, EngineError> {
        check_key(key)?;
        self.lead(|state| Ok(state.rows.get(key).cloned()))
    }

    fn rows(&self) -> Result<Vec<(String, Row)>, EngineError> {
        self.lead(|state| Ok(state.rows.iter().map(|(key, row)| (key.clone(), row.clone())).collect()))
    }

    fn clock_ms(&self) -> Result<Option<u64>, EngineError> {
        self.lead(|state| Ok(Some(state.clock_ms())))
    }

    fn put_row(&self, key: &str, value: Bytes) -> Result<u64, EngineError> {
        check_row(key, &value)?;
        self.lead(|state| Ok(state.write(key, value)))
    }

    fn swap_row(&self, key: &str, expected: u64, value: Bytes) -> Result<Option<u64>, EngineError> {
        check_row(key, &value)?;
        self.lead(|state| {
            let is_expected = state.rows.get(key).map_or(0, |row| row.revision) == expected;
            Ok(is_expected.then(|| state.write(key, value)))
        })
    }

    fn remove_row(&self, key: &str) -> Result<(), EngineError> {
        check_key(key)?;
        self.lead(|state| {
            state.rows.remove(key);
            Ok(())
        })
    }

    fn check(&self) -> Result<Check, EngineError> {
        self.cell(|_| Ok(Check::default()))
    }

    fn init(&self, log_bytes: u64) -> Result<(), EngineError> {
        let mut state = self.cluster.state();
        if state.is_leaderless {
            return Err(EngineError::Unavailable("there is no leader".to_owned()));
        }
        let was_used = |cell: &Cell| cell.last() > 0 || !state.rows.is_empty();
        if state.cells.get(&self.cell).is_some_and(was_used) {
            return Err(EngineError::Refused("the log is there already".to_owned()));
        }
        state.cells.insert(self.cell, Cell { capacity: log_bytes, first: 1, ..Cell::default() });
        Ok(())
    }
}
