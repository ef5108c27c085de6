//! A model of the engine: the logs of all cells, and everything that may go wrong on the way to
//! them and back. No clock: the world says which time it is, in milliseconds.
//!
//! | fault | here |
//! |---|---|
//! | lost, late and doubled answers; late requests | [`Link`] |
//! | a leader that goes, with and without what it had not committed | [`Engine::elect`] |
//! | a leader that is cut off, with some nodes on its side | [`Engine::elect`] |
//! | an engine that takes appends and decides nothing | [`Engine::stall`] |
//! | a server that lags behind for direct reads | [`Engine::lag`] |
//! | a full log | [`Engine::fill`] |
//! | frames that were stored, and are gone or changed | [`Engine::lose`], [`Engine::change`] |
//! | a node that is cut off | [`Link::cut_until`] |

use super::rng::Rng;
use super::schedule::Schedule;
use crate::replicated_log::{LogAnswer, LogRequest, LogRequestNumber, LogSnapshot, ReplicatedLog};
use bytes::Bytes;
use homing_core::ownership::{AppendReply, Position};
use std::collections::VecDeque;

const SERVERS: usize = 3;

/// The way between one node and the engine.
#[derive(Clone, Debug, Default)]
pub struct Link {
    /// Nothing passes before this time.
    pub cut_until: u64,
    /// The link is slow until this time.
    pub slow_until: u64,
    /// Answers are lost, late and doubled until this time.
    pub lossy_until: u64,
}

pub struct Engine {
    pub now: u64,
    pub links: Vec<Link>,
    rng: Rng,
    cells: Vec<CellLog>,
    leader: Leader,
    stalled_until: u64,
    full_until: u64,
    lags_until: [u64; SERVERS],
    happenings: Schedule<Happening>,
    /// The commits since the world looked last: the cell, the position, and the process that sent it.
    pub commits: Vec<(usize, Position, u64)>,
}

/// Who may commit.
struct Leader {
    /// Elections so far. A proposal of an earlier leader is not committed any more.
    term: u64,
    /// There is no leader before this time.
    absent_until: u64,
    /// The nodes that reach the leader that was, and the time until which it believes to be one.
    former_until: u64,
    former_side: Vec<usize>,
}

#[derive(Default)]
struct CellLog {
    frames: Vec<Bytes>,
    /// The first position that is not trimmed.
    first: u64,
    /// What the leader has taken and not committed.
    proposed: VecDeque<Proposal>,
    /// The same of a leader that is cut off, and the end of its log.
    former_proposed: u64,
    former_end: u64,
    /// What each server shows to direct reads.
    shown: [usize; SERVERS],
    snapshot: Option<LogSnapshot>,
    /// What has come for each node.
    arrived: Vec<VecDeque<(LogRequestNumber, LogAnswer)>>,
    /// The positions in the rows of the nodes.
    rows: Vec<Position>,
}

struct Proposal {
    frame: Bytes,
    writer: u64,
    reply_to: Option<(usize, LogRequestNumber)>,
}

enum Happening {
    Arrive { node: usize, cell: usize, number: LogRequestNumber, request: LogRequest },
    Commit { cell: usize, term: u64 },
    Answer { node: usize, cell: usize, number: LogRequestNumber, answer: LogAnswer },
}

impl Engine {
    pub fn new(nodes: usize, cells: usize, seed: u64) -> Engine {
        let log = || CellLog {
            first: 1,
            arrived: vec![VecDeque::new(); nodes],
            rows: vec![Position(0); nodes],
            ..CellLog::default()
        };
        Engine {
            now: 0,
            links: vec![Link::default(); nodes],
            rng: Rng::new(seed ^ 0xE791),
            cells: (0..cells).map(|_| log()).collect(),
            leader: Leader { term: 0, absent_until: 0, former_until: 0, former_side: Vec::new() },
            stalled_until: 0,
            full_until: 0,
            lags_until: [0; SERVERS],
            happenings: Schedule::new(),
            commits: Vec::new(),
        }
    }

    /// Returns the time of the next event.
    pub fn next_at(&self) -> Option<u64> {
        self.happenings.next_at()
    }

    /// Lets the next event happen. Returns the node and cell that got an answer.
    pub fn run_next(&mut self) -> Option<(usize, usize)> {
        let (at, happening) = self.happenings.pop()?;
        self.now = at;
        match happening {
            Happening::Arrive { node, cell, number, request } => self.arrive(node, cell, number, request),
            Happening::Commit { cell, term } => self.commit(cell, term),
            Happening::Answer { node, cell, number, answer } => {
                self.cells[cell].arrived[node].push_back((number, answer));
                return Some((node, cell));
            }
        }
        None
    }

    pub fn log(&mut self, node: usize, cell: usize) -> LogOfNode<'_> {
        LogOfNode { engine: self, node, cell }
    }

    pub fn end(&self, cell: usize) -> Position {
        Position(self.cells[cell].frames.len() as u64)
    }

    /// Returns the first position that is not trimmed.
    pub fn first(&self, cell: usize) -> Position {
        Position(self.cells[cell].first)
    }

    /// Returns the number of the database that the newest snapshot of a cell is.
    pub fn snapshot(&self, cell: usize) -> Option<usize> {
        let state = &self.cells[cell].snapshot.as_ref()?.state;
        Some(u64::from_le_bytes(state[..].try_into().expect("a number")) as usize)
    }

    pub fn frame(&self, cell: usize, position: Position) -> &Bytes {
        &self.cells[cell].frames[position.0 as usize - 1]
    }

    /// Writes the row of a node, if it reaches the engine.
    pub fn write_row(&mut self, node: usize, cell: usize, position: Position) {
        if self.links[node].cut_until <= self.now {
            self.cells[cell].rows[node] = position;
        }
    }

    /// Returns the highest position of all rows.
    pub fn reported(&self, cell: usize) -> Position {
        self.cells[cell].rows.iter().copied().max().unwrap_or_default()
    }

    /// Forgets what has come for a process that has ended.
    pub fn forget_answers(&mut self, node: usize, cell: usize) {
        self.cells[cell].arrived[node].clear();
    }

    // Faults.

    /// The leader goes, and for `gap` there is none. What it had not committed may survive. It may
    /// be cut off instead, and the nodes of its side reach it for a while.
    pub fn elect(&mut self, gap: u64, side: Vec<usize>) {
        self.leader.term += 1;
        self.leader.absent_until = self.now + gap;
        self.leader.former_until = self.now + gap.min(self.rng.between(500, 3000));
        self.leader.former_side = side;
        for cell in 0..self.cells.len() {
            let log = &mut self.cells[cell];
            log.former_end = log.frames.len() as u64;
            log.former_proposed = log.proposed.len() as u64;
            let survive = self.rng.below(log.proposed.len() as u64 + 1) as usize;
            log.proposed.truncate(survive);
            for proposal in &mut log.proposed {
                proposal.reply_to = None;
            }
            let (at, term) = (self.leader.absent_until, self.leader.term);
            (0..survive).for_each(|_| self.happenings.add(at, Happening::Commit { cell, term }));
        }
    }

    pub fn stall(&mut self, until: u64) {
        self.stalled_until = until;
    }

    pub fn fill(&mut self, until: u64) {
        self.full_until = until;
    }

    pub fn lag(&mut self, server: usize, until: u64) {
        self.lags_until[server] = until;
    }

    /// Breaks the engine's promise: the last frames of a cell are gone.
    pub fn lose(&mut self, cell: usize, frames: usize) {
        self.leader.term += 1;
        let log = &mut self.cells[cell];
        log.frames.truncate(log.frames.len().saturating_sub(frames));
        log.proposed.clear();
        log.shown = log.shown.map(|shown| shown.min(log.frames.len()));
    }

    /// Breaks it in another way: a frame is another one.
    pub fn change(&mut self, cell: usize, position: Position, frame: Bytes) {
        self.cells[cell].frames[position.0 as usize - 1] = frame;
    }

    /// Moves the end of a log to a position, if it is before it, and removes the frames up to there.
    pub fn begin_behind(&mut self, cell: usize, position: Position) {
        let log = &mut self.cells[cell];
        let end = log.frames.len().max(position.0 as usize);
        log.frames.resize(end, Bytes::new());
        log.shown = log.shown.map(|shown| shown.max(position.0 as usize));
        log.first = log.first.max(position.0 + 1);
    }

    // Requests.

    fn delay(&mut self, node: usize) -> u64 {
        let (slow, lossy) = (self.links[node].slow_until > self.now, self.links[node].lossy_until > self.now);
        if lossy && self.rng.percent(20) {
            return self.rng.between(500, 5000);
        }
        if slow { self.rng.between(50, 450) } else { self.rng.below(3) }
    }

    fn arrive(&mut self, node: usize, cell: usize, number: LogRequestNumber, request: LogRequest) {
        if self.links[node].cut_until > self.now {
            return;
        }
        let log = &self.cells[cell];
        let sees_former = self.leader.former_until > self.now && self.leader.former_side.contains(&node);
        let answer = match request {
            LogRequest::Append { after, .. } if sees_former => {
                self.append_to_former(cell, after).map(LogAnswer::Append)
            }
            LogRequest::Last if sees_former => Some(LogAnswer::Last(Position(log.former_end))),
            LogRequest::Append { .. } | LogRequest::Last if self.leader.absent_until > self.now => None,
            LogRequest::Append { after, frame } => {
                self.append(node, cell, number, after, frame).map(LogAnswer::Append)
            }
            LogRequest::Last => Some(LogAnswer::Last(self.end(cell))),
            LogRequest::Read { from, bytes } => {
                Some(LogAnswer::Frames(self.read(cell, from, bytes, sees_former)))
            }
            LogRequest::Trim(before) => {
                let log = &mut self.cells[cell];
                log.first = log.first.max(before.0.min(log.frames.len() as u64 + 1));
                Some(LogAnswer::Done)
            }
            LogRequest::PutSnapshot(snapshot) => {
                let log = &mut self.cells[cell];
                let is_newer = log.snapshot.as_ref().is_none_or(|old| old.position < snapshot.position);
                log.snapshot = if is_newer { Some(snapshot) } else { log.snapshot.take() };
                Some(LogAnswer::Done)
            }
        };
        if let Some(answer) = answer {
            self.answer(node, cell, number, answer);
        }
    }

    fn append(
        &mut self,
        node: usize,
        cell: usize,
        number: LogRequestNumber,
        after: Position,
        frame: Bytes,
    ) -> Option<AppendReply> {
        let is_full = self.full_until > self.now;
        // Either check may come first.
        if is_full && self.rng.percent(50) {
            return Some(AppendReply::Full);
        }
        let log = &mut self.cells[cell];
        let taken = (log.frames.len() + log.proposed.len()) as u64;
        if after.0 != taken {
            return Some(AppendReply::WrongLast);
        }
        if is_full {
            return Some(AppendReply::Full);
        }
        log.proposed.push_back(Proposal { frame, writer: number.0 >> 32, reply_to: Some((node, number)) });
        let at = self.now.max(self.stalled_until) + self.rng.between(1, 3);
        self.happenings.add(at, Happening::Commit { cell, term: self.leader.term });
        None
    }

    /// A leader without a majority takes frames, counts them, and commits nothing.
    fn append_to_former(&mut self, cell: usize, after: Position) -> Option<AppendReply> {
        let log = &mut self.cells[cell];
        if after.0 != log.former_end + log.former_proposed {
            return Some(AppendReply::WrongLast);
        }
        log.former_proposed += 1;
        None
    }

    fn commit(&mut self, cell: usize, term: u64) {
        let log = &mut self.cells[cell];
        if term != self.leader.term {
            return;
        }
        let Some(proposal) = log.proposed.pop_front() else { return };
        log.frames.push(proposal.frame);
        let end = log.frames.len();
        for (shown, lags_until) in log.shown.iter_mut().zip(self.lags_until) {
            *shown = if lags_until > self.now { *shown } else { end };
        }
        self.commits.push((cell, Position(end as u64), proposal.writer));
        if let Some((node, number)) = proposal.reply_to {
            self.answer(node, cell, number, LogAnswer::Append(AppendReply::Stored));
        }
    }

    fn read(
        &mut self,
        cell: usize,
        from: Position,
        bytes: usize,
        sees_former: bool,
    ) -> Vec<(Position, Bytes)> {
        let server = self.rng.below(SERVERS as u64) as usize;
        let log = &mut self.cells[cell];
        if self.lags_until[server] <= self.now {
            log.shown[server] = log.frames.len();
        }
        let end =
            if sees_former { log.former_end.min(log.frames.len() as u64) } else { log.shown[server] as u64 };
        let mut left = bytes;
        let mut frames = Vec::new();
        for position in from.0.max(log.first)..=end {
            let frame = log.frames[position as usize - 1].clone();
            let rest = left.checked_sub(frame.len());
            if rest.is_none() && !frames.is_empty() {
                break;
            }
            left = rest.unwrap_or(0);
            frames.push((Position(position), frame));
        }
        frames
    }

    fn answer(&mut self, node: usize, cell: usize, number: LogRequestNumber, answer: LogAnswer) {
        let lossy = self.links[node].lossy_until > self.now;
        if self.links[node].cut_until > self.now || lossy && self.rng.percent(20) {
            return;
        }
        let copies = if lossy && self.rng.percent(20) { 2 } else { 1 };
        for _ in 0..copies {
            let at = self.now + self.delay(node);
            self.happenings.add(at, Happening::Answer { node, cell, number, answer: answer.clone() });
        }
    }
}

/// The log of a cell, as a node reaches it.
pub struct LogOfNode<'a> {
    engine: &'a mut Engine,
    node: usize,
    cell: usize,
}

impl ReplicatedLog for LogOfNode<'_> {
    fn request(&mut self, number: LogRequestNumber, request: LogRequest) {
        let at = self.engine.now + self.engine.delay(self.node);
        let (node, cell) = (self.node, self.cell);
        self.engine.happenings.add(at, Happening::Arrive { node, cell, number, request });
    }

    fn next_answer(&mut self) -> Option<(LogRequestNumber, LogAnswer)> {
        self.engine.cells[self.cell].arrived[self.node].pop_front()
    }
}
