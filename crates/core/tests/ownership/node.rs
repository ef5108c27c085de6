//! One process of a node, for one cell: the driver of a machine.

use super::frame::{Frame, MessageNumber, digest};
use bytes::Bytes;
use homing_core::persistence::ownership::{
    AppendId, AppendKind, CellNode, CellOwnership, Claim, Fitness, OwnershipInput, OwnershipOutput, Position,
    Role, SeenKind, Start, Timing,
};
use homing_core::persistence::replicated_log::{LogRequestNumber, LogSnapshot};
use homing_core::time::Instant;

/// What outlives a process.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    pub position: Position,
    pub digest: u64,
    pub claim: Option<Claim>,
    pub is_released: bool,
    /// The times of the starts that found a Claim of their own.
    crashes: Vec<u64>,
}

impl Disk {
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
        let (released, none) = (u64::from(self.is_released), Vec::new());
        let frame =
            Frame { cell: 0, epoch: 0, writer: released, predecessor: self.digest, kind, messages: none };
        LogSnapshot { position: self.position, state: frame.bytes() }
    }

    /// Returns the disk of a node that has a snapshot and nothing else.
    pub fn from_snapshot(snapshot: &LogSnapshot) -> Disk {
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

pub struct Process {
    pub machine: CellOwnership,
    pub number: u64,
    requests: u64,
    pub outstanding: Vec<(LogRequestNumber, Purpose, Instant)>,
    /// The digest of the last frame that was seen or stored.
    pub tail: u64,
    pub pending: Option<PendingFrame>,
    /// Messages for the next group.
    pub open: Vec<MessageNumber>,
    /// The frames that are stored, and that the database does not have yet.
    pub unapplied: Vec<(Position, u64, SeenKind)>,
    pub service: Service,
    /// What the machine was told.
    pub fitness: Fitness,
    pub recovery: u64,
    pub is_flushed: bool,
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
}

impl Process {
    pub fn new(node: CellNode, number: u64, disk: &mut Disk, real: u64, now: Instant) -> Process {
        let start = disk.start(&node, real);
        let machine = CellOwnership::new(node, Timing::default(), start, now).expect("the default");
        Process {
            machine,
            number,
            requests: 0,
            outstanding: Vec::new(),
            tail: disk.digest,
            pending: None,
            open: Vec::new(),
            unapplied: Vec::new(),
            service: Service::None,
            fitness: Fitness::Fit,
            recovery: 0,
            is_flushed: false,
        }
    }

    /// Hands in an input. What is stored by it is the new end of the log before anything follows.
    pub fn handle(&mut self, input: OwnershipInput, now: Instant) -> Vec<OwnershipOutput> {
        let mut outputs = Vec::new();
        self.machine.handle(input, now, &mut outputs);
        if let Some(pending) = self.pending.as_ref().filter(|p| p.position <= self.machine.position()) {
            self.tail = pending.digest;
            self.unapplied.push((pending.position, pending.digest, pending.frame.seen()));
        }
        outputs
    }

    /// Makes the frame of an append.
    pub fn make(&mut self, cell: usize, id: AppendId, position: Position, kind: AppendKind) -> Bytes {
        let epoch = match kind {
            AppendKind::Claim(claim) => claim.epoch,
            _ => self.machine.epoch(),
        };
        let messages = if kind == AppendKind::Group { std::mem::take(&mut self.open) } else { Vec::new() };
        let (cell, predecessor) = (cell as u64, self.tail);
        let frame = Frame { cell, epoch, writer: self.number, predecessor, kind, messages };
        let bytes = frame.bytes();
        let digest = digest(&bytes);
        self.pending = Some(PendingFrame { id, position, bytes: bytes.clone(), digest, frame });
        bytes
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
