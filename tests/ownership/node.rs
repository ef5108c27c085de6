//! One process of a node, for one cell: the node's own driver, follower and store, without their
//! threads.

use super::owner::Owner;
use crate::memory_store::Memory;
use crate::replicated_log::{LogRequestNumber, LogSnapshot};
use bytes::Bytes;
use homing::cluster::driver_core::{CoreStart, DriverCore};
use homing::cluster::messages::{DatabaseWrite, DriverAction};
use homing::store::Moment;
use homing::store::sqlite::Mark;
use homing_core::ownership::{
    AppendId, CellNode, CellOwnership, OwnershipInput, Position, Role, Start, Timing,
};
use homing_core::time::Instant;

/// The identifier of the cluster's log.
pub const LOG: u64 = 7;

/// What outlives a process.
#[derive(Default)]
pub struct Disk {
    pub database: Memory,
    /// The times of the starts that found a Claim of their own.
    crashes: Vec<u64>,
    /// The last position at which its tables were compared.
    pub compared: u64,
}

impl Disk {
    /// Returns the disk of a node that has a snapshot and nothing else.
    pub fn with(database: Memory) -> Disk {
        Disk { database, ..Disk::default() }
    }

    /// Returns what a process finds that starts now.
    fn start(&mut self, node: &CellNode, now: u64) -> Start {
        let Mark { position, owner, .. } = self.database.mark();
        self.crashes.retain(|at| now - at < 60_000);
        let claim = owner.map(|owner| owner.claim);
        if claim.is_some_and(|claim| claim.directory == node.directory && claim.boot == node.boot) {
            self.crashes.push(now);
        }
        Start {
            position: Position(position),
            claim,
            is_released: owner.is_some_and(|owner| owner.is_released),
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
    PutSnapshot(Position),
    Trim,
}

pub struct Process<P> {
    pub core: DriverCore<Memory>,
    pub number: u64,
    requests: u64,
    pub outstanding: Vec<(LogRequestNumber, Purpose, Instant)>,
    /// The append under way, and the true time of its first attempt.
    pending: Option<(AppendId, Position, u64)>,
    /// The true time of the first attempt of the last stored append; 0 before the first.
    pub stored: u64,
    /// When it asks for the next frames though none is announced, and from where on.
    pub waits: Option<(u64, Position)>,
    /// Its position when it had all frames for the first time.
    pub caught_up: Option<Position>,
    pub service: Service,
    /// The write of a standby's database that is under way.
    pub write: Option<DatabaseWrite<Memory>>,
    /// A cell that is owned and not recovered yet.
    pub cell: Option<(Memory, Mark)>,
    /// What was recovered of it so far.
    pub recovered: u64,
    pub is_flushed: bool,
    /// The store of an owner.
    pub owner: Option<Owner>,
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

impl<P: Default> Process<P> {
    pub fn new(
        node: CellNode,
        number: u64,
        by_lease: bool,
        disk: &mut Disk,
        (real, now): (u64, Instant),
    ) -> Process<P> {
        let start = disk.start(&node, real);
        let start = CoreStart { node, timing: Timing::default(), start, log: LOG, by_lease, now };
        Process {
            core: DriverCore::new(start, disk.database.clone()).expect("the default"),
            number,
            requests: 0,
            outstanding: Vec::new(),
            pending: None,
            stored: 0,
            waits: None,
            caught_up: None,
            service: Service::None,
            write: None,
            cell: None,
            recovered: 0,
            is_flushed: false,
            owner: None,
            own: P::default(),
        }
    }

    /// Calls the driver, and returns what is to be done. `real` is the true time.
    pub fn call(
        &mut self,
        real: u64,
        call: impl FnOnce(&mut DriverCore<Memory>),
    ) -> Vec<DriverAction<Memory>> {
        call(&mut self.core);
        let actions = self.core.take_actions();
        let position = self.position();
        if let Some((.., sent)) = self.pending.take_if(|(_, at, _)| *at <= position) {
            self.stored = sent;
        }
        for action in &actions {
            if let DriverAction::Append(id, at, _) = action {
                let is_new = self.pending.is_none_or(|(pending, ..)| pending != *id);
                if is_new {
                    self.pending = Some((*id, *at, real));
                }
            }
        }
        actions
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

    pub fn machine(&self) -> &CellOwnership {
        self.core.machine()
    }

    pub fn position(&self) -> Position {
        self.core.machine().position()
    }

    pub fn is_following(&self) -> bool {
        self.machine().role() == Role::Following
    }

    /// Returns true if a promise may leave by the lease.
    pub fn may_promise(&self, now: Instant) -> bool {
        now < self.core.lease_until()
    }
}

/// An input that concerns the ownership alone.
pub fn input(input: OwnershipInput, now: Moment) -> impl FnOnce(&mut DriverCore<Memory>) {
    move |core| core.take(input, now)
}

/// A snapshot as the engine keeps it. The model of the engine keeps bytes, so the database itself is
/// kept beside, by its number.
pub fn snapshot(position: Position, number: usize) -> LogSnapshot {
    LogSnapshot { position, state: Bytes::from((number as u64).to_le_bytes().to_vec()) }
}
