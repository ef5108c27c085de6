//! One process of a node, for one cell: the driver of a machine.

use super::frame::{Frame, digest};
use crate::replicated_log::{LogRequestNumber, LogSnapshot};
use bytes::Bytes;
use homing_core::persistence::ownership::{
    AppendId, AppendKind, CellNode, CellOwnership, Claim, Fitness, OwnershipInput, OwnershipOutput, Position,
    Role, SeenKind, Start, Timing,
};
use homing_core::time::Instant;

/// What outlives a process.
#[derive(Clone, Debug, Default)]
pub struct Disk<T> {
    pub position: Position,
    pub digest: u64,
    pub claim: Option<Claim>,
    pub is_released: bool,
    /// The times of the starts that found a Claim of their own.
    crashes: Vec<u64>,
    /// What its occupant has there.
    pub tables: T,
}

impl<T: Default> Disk<T> {
    pub fn apply(&mut self, position: Position, frame_digest: u64, kind: SeenKind) {
        (self.position, self.digest) = (position, frame_digest);
        match kind {
            SeenKind::Claim(claim) => (self.claim, self.is_released) = (Some(claim), false),
            SeenKind::Release => self.is_released = true,
            SeenKind::Other => {}
        }
    }

    /// Returns a snapshot of it.
    pub fn snapshot(&self) -> LogSnapshot {
        // The Claim as a frame, so that there is one form of it.
        let kind = self.claim.map_or(AppendKind::Release, AppendKind::Claim);
        let writer = u64::from(self.is_released);
        let frame =
            Frame { cell: 0, epoch: 0, writer, predecessor: self.digest, kind, content: Bytes::new() };
        LogSnapshot { position: self.position, state: frame.bytes() }
    }

    /// Returns the disk of a node that has a snapshot and nothing else.
    pub fn from_snapshot(snapshot: &LogSnapshot) -> Disk<T> {
        let frame = Frame::read(&snapshot.state);
        let claim = match frame.kind {
            AppendKind::Claim(claim) => Some(claim),
            _ => None,
        };
        Disk {
            position: snapshot.position,
            digest: frame.predecessor,
            claim,
            is_released: frame.writer == 1,
            crashes: Vec::new(),
            tables: T::default(),
        }
    }

    /// Returns what a process finds that starts now.
    pub fn start(&mut self, node: &CellNode, now: u64) -> Start {
        self.crashes.retain(|at| now - at < 60_000);
        if self.claim.is_some_and(|claim| claim.directory == node.directory && claim.boot == node.boot) {
            self.crashes.push(now);
        }
        Start {
            position: self.position,
            claim: self.claim,
            is_released: self.is_released,
            crashes: self.crashes.len() as u32,
        }
    }
}

/// Why a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Append(AppendId),
    ReadNext(AppendId, Position),
    Follow,
    Last,
    GetSnapshot,
    PutSnapshot(Position),
    Trim,
}

pub struct Process<P> {
    pub machine: CellOwnership,
    pub number: u64,
    requests: u64,
    pub outstanding: Vec<(LogRequestNumber, Purpose, Instant)>,
    /// The digest of the last frame that was seen or stored.
    pub tail: u64,
    pub pending: Option<PendingFrame>,
    /// The frame that the last input has shown to be stored.
    pub stored: Option<PendingFrame>,
    /// The frames that are stored, and that the database does not have yet.
    pub unapplied: Vec<(Position, u64, Frame)>,
    pub service: Service,
    /// What the machine was told.
    pub fitness: Fitness,
    pub recovery: u64,
    pub is_flushed: bool,
    /// What its occupant has in memory.
    pub own: P,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    None,
    Open,
    /// Its clients are disconnected.
    Isolated,
    Flushing,
}

pub struct PendingFrame {
    pub id: AppendId,
    pub position: Position,
    pub bytes: Bytes,
    pub digest: u64,
    pub frame: Frame,
    /// The true time of the first attempt.
    pub sent: u64,
}

impl<P: Default> Process<P> {
    pub fn new<T: Default>(
        node: CellNode,
        number: u64,
        disk: &mut Disk<T>,
        real: u64,
        now: Instant,
    ) -> Process<P> {
        let start = disk.start(&node, real);
        let machine = CellOwnership::new(node, Timing::default(), start, now).expect("the default");
        Process {
            machine,
            number,
            requests: 0,
            outstanding: Vec::new(),
            tail: disk.digest,
            pending: None,
            stored: None,
            unapplied: Vec::new(),
            service: Service::None,
            fitness: Fitness::Fit,
            recovery: 0,
            is_flushed: false,
            own: P::default(),
        }
    }

    /// Hands in an input. What is stored by it is the new end of the log before anything follows.
    pub fn handle(&mut self, input: OwnershipInput, now: Instant) -> Vec<OwnershipOutput> {
        let mut outputs = Vec::new();
        self.machine.handle(input, now, &mut outputs);
        if let Some(pending) = self.pending.take_if(|pending| pending.position <= self.machine.position()) {
            self.tail = pending.digest;
            self.unapplied.push((pending.position, pending.digest, pending.frame.clone()));
            self.stored = Some(pending);
        }
        outputs
    }

    /// Makes the frame of an append, at this true time.
    pub fn make(&mut self, cell: usize, id: AppendId, at: (Position, u64), kind: AppendKind, content: Bytes) {
        let epoch = match kind {
            AppendKind::Claim(claim) => claim.epoch,
            _ => self.machine.epoch(),
        };
        let (cell, predecessor) = (cell as u64, self.tail);
        let frame = Frame { cell, epoch, writer: self.number, predecessor, kind, content };
        let bytes = frame.bytes();
        let digest = digest(&bytes);
        let (position, sent) = at;
        self.pending = Some(PendingFrame { id, position, bytes, digest, frame, sent });
    }

    pub fn request(&mut self, purpose: Purpose, now: Instant) -> LogRequestNumber {
        self.requests += 1;
        let number = LogRequestNumber(self.number << 32 | self.requests);
        self.outstanding.push((number, purpose, now));
        number
    }

    /// Takes the purpose of a request whose answer has come. An answer of another process, or that
    /// came before, has none.
    pub fn answered(&mut self, number: LogRequestNumber) -> Option<Purpose> {
        let at = self.outstanding.iter().position(|(sent, ..)| *sent == number)?;
        // A late answer for an append is as true as one in time, so these stay.
        let (_, purpose, _) = self.outstanding[at];
        if !matches!(purpose, Purpose::Append(_)) {
            self.outstanding.swap_remove(at);
        }
        Some(purpose)
    }

    pub fn is_following(&self) -> bool {
        self.machine.role() == Role::Following
    }

    pub fn asks_for(&self, purpose: Purpose) -> bool {
        self.outstanding.iter().any(|(_, of, _)| *of == purpose)
    }
}
