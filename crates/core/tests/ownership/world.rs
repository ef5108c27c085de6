//! The world of one seed: nodes with their clocks, faults, and the order of all events. What a
//! process does with its cell, and for which clients, is up to the occupant.

use super::engine::Engine;
use super::frame::Frame;
use super::node::{Disk, Process, Purpose, Service};
use super::oracle::Oracle;
use super::rng::Rng;
use super::schedule::Schedule;
use crate::replicated_log::LogRequestNumber;
use bytes::Bytes;
use homing_core::persistence::ownership::{
    AppendKind, CellNode, Fitness, OwnershipInput, Position, Progress, Role, Timing,
};
use homing_core::time::Instant;
use std::time::Duration;

pub const NODES: usize = 3;
/// A cell has an owner again after this time at the latest, if nothing else happens.
const FAIL_OVER: u64 = 13_000;
/// The next owner of a drained cell begins to recover after this time at the latest.
const DRAIN: u64 = 500;
const TICK: u64 = 250;

/// What the processes of a world do with the cells that they own.
pub trait Occupant: Sized + Default {
    /// Something of its own that happens at a time.
    type Event;
    /// What a node has on its disk for a cell.
    type Tables: Clone + Default;
    /// What a process has in memory for a cell.
    type Memory: Default;
    /// Whether nodes keep snapshots, and trim the log.
    const HAS_SNAPSHOTS: bool;

    /// The world begins.
    fn begin(world: &mut World<Self>, cells: usize);

    /// Returns the node that has to run for an event.
    fn node_of(event: &Self::Event) -> Option<usize>;

    fn happen(world: &mut World<Self>, event: Self::Event);

    /// Returns the content of the group that is appended now.
    fn group(world: &mut World<Self>, node: usize, cell: usize) -> Bytes;

    /// The group of a frame is stored: what waited for it may leave.
    fn group_stored(world: &mut World<Self>, node: usize, cell: usize, frame: &Frame);

    /// The log has no room for the group of a frame.
    fn group_full(world: &mut World<Self>, node: usize, cell: usize, frame: &Frame);

    /// The service of a process has changed.
    fn service_changed(world: &mut World<Self>, node: usize, cell: usize);

    /// Returns true if a process that flushes has nothing left to append.
    fn is_flushed(world: &mut World<Self>, node: usize, cell: usize) -> bool;

    /// A frame was committed.
    fn committed(world: &mut World<Self>, cell: usize, position: Position, frame: &Frame);

    /// The lease of a process may be another one.
    fn lease_changed(_: &mut World<Self>, _: usize, _: usize) {}

    /// An owner has read its tables, and will serve.
    fn recovered(_: &mut World<Self>, _: usize, _: usize) {}

    /// A frame is applied to the tables of a node and a cell.
    fn applied(_: &mut World<Self>, _: (usize, usize), _: &mut Self::Tables, _: (Position, &Frame)) {}

    /// A quarter of a second has passed for a process.
    fn tick(_: &mut World<Self>, _: usize, _: usize) {}

    /// A process ends.
    fn ends(_: &mut World<Self>, _: usize, _: usize) {}
}

pub struct World<O: Occupant> {
    pub now: u64,
    pub engine: Engine,
    pub oracle: Oracle,
    pub rng: Rng,
    cells: usize,
    pub(super) nodes: Vec<Node<O>>,
    pub(super) events: Schedule<Event<O::Event>>,
    processes: u64,
    pub occupant: O,
    /// The cells with an alarm.
    pub alarms: Vec<bool>,
    /// The newest snapshot of each cell that is certain to be kept.
    pub(super) snapshots: Vec<Position>,
}

pub struct Node<O: Occupant> {
    /// Milliseconds of its clock in a thousand true ones.
    rate: u64,
    offset: u64,
    pub(super) boot: u64,
    directory: u64,
    pub(super) stopped_until: u64,
    /// How long its clock has stood still, and for each cell the true time at which it went on.
    /// Until an append of a later time is stored, the lease may look valid and be none.
    frozen: u64,
    fooled_since: Vec<Option<u64>>,
    hangs_until: u64,
    pub(super) disk_full_until: u64,
    pub(super) disks: Vec<Disk<O::Tables>>,
    pub(super) processes: Vec<Option<Process<O::Memory>>>,
}

impl<O: Occupant> Node<O> {
    /// Returns true if the clock of the node stood still since its last stored append for a cell. No
    /// rule bounds what it promises by its lease then.
    pub fn is_fooled(&self, cell: usize) -> bool {
        self.fooled_since[cell].is_some()
    }
}

pub enum Event<E> {
    Tick { node: usize, cell: usize },
    Wake { node: usize, cell: usize, process: u64 },
    Timeout { node: usize, cell: usize, request: LogRequestNumber },
    Recovered { node: usize, cell: usize, process: u64 },
    Start { node: usize, cell: usize },
    Own(E),
}

impl<E> Event<E> {
    fn node(&self, of_own: impl FnOnce(&E) -> Option<usize>) -> Option<usize> {
        match self {
            Event::Tick { node, .. }
            | Event::Wake { node, .. }
            | Event::Timeout { node, .. }
            | Event::Recovered { node, .. }
            | Event::Start { node, .. } => Some(*node),
            Event::Own(event) => of_own(event),
        }
    }
}

impl<O: Occupant> World<O> {
    pub fn new(seed: u64, cells: usize) -> World<O> {
        let mut rng = Rng::new(seed);
        let nodes = (0..NODES)
            .map(|_| Node {
                rate: rng.between(900, 1100),
                offset: rng.between(0, 1_000_000),
                boot: rng.next(),
                directory: rng.next(),
                stopped_until: 0,
                frozen: 0,
                fooled_since: vec![None; cells],
                hangs_until: 0,
                disk_full_until: 0,
                disks: vec![Disk::default(); cells],
                processes: (0..cells).map(|_| None).collect(),
            })
            .collect();
        let mut world = World {
            now: 0,
            engine: Engine::new(NODES, cells, seed),
            oracle: Oracle::new(cells),
            rng,
            cells,
            nodes,
            events: Schedule::new(),
            processes: 0,
            occupant: O::default(),
            alarms: vec![false; cells],
            snapshots: vec![Position(1); cells],
        };
        for node in 0..NODES {
            for cell in 0..cells {
                let at = world.rng.below(1000);
                world.events.add(at, Event::Start { node, cell });
                world.events.add(at, Event::Tick { node, cell });
            }
        }
        O::begin(&mut world, cells);
        world
    }

    /// Plays all events up to a time.
    pub fn run_until(&mut self, end: u64) {
        loop {
            let own = self.events.next_at().unwrap_or(u64::MAX);
            let of_engine = self.engine.next_at().unwrap_or(u64::MAX);
            if own.min(of_engine) > end {
                break;
            }
            if of_engine <= own {
                self.now = of_engine;
                let answered = self.engine.run_next();
                self.note_commits();
                if let Some((node, cell)) = answered {
                    self.take_answers(node, cell);
                }
                continue;
            }
            let (at, event) = self.events.pop().expect("it is before the end");
            (self.now, self.engine.now) = (at, at);
            let node = event.node(O::node_of);
            match node.map(|node| self.nodes[node].stopped_until).filter(|until| *until > at) {
                Some(until) => self.events.add(until, event),
                None => self.play(event),
            }
        }
        (self.now, self.engine.now) = (end, end);
    }

    /// Lets something of the occupant happen at a time.
    pub fn schedule(&mut self, at: u64, event: O::Event) {
        self.events.add(at, Event::Own(event));
    }

    fn play(&mut self, event: Event<O::Event>) {
        match event {
            Event::Tick { node, cell } => self.tick(node, cell),
            Event::Wake { node, cell, process } if self.is_running(node, cell, process) => {
                self.tell(node, cell, OwnershipInput::Tick(self.progress(node)));
            }
            Event::Recovered { node, cell, process } if self.is_running(node, cell, process) => {
                O::recovered(self, node, cell);
                self.tell(node, cell, OwnershipInput::Recovered);
            }
            Event::Timeout { node, cell, request } => self.time_out(node, cell, request),
            Event::Wake { .. } | Event::Recovered { .. } => {}
            Event::Start { node, cell } => self.start(node, cell),
            Event::Own(event) => O::happen(self, event),
        }
    }

    fn start(&mut self, node: usize, cell: usize) {
        if self.nodes[node].processes[cell].is_some() {
            return;
        }
        let now = self.local(node);
        self.processes += 1;
        let of = &mut self.nodes[node];
        let me = CellNode {
            cell: cell as u16,
            node: node as u16,
            nodes: NODES as u16,
            directory: of.directory,
            boot: of.boot,
        };
        let process = Process::new(me, self.processes, &mut of.disks[cell], self.now, now);
        of.processes[cell] = Some(process);
        self.engine.forget_answers(node, cell);
    }

    pub fn is_running(&self, node: usize, cell: usize, process: u64) -> bool {
        self.nodes[node].processes[cell].as_ref().is_some_and(|running| running.number == process)
    }

    pub(super) fn local(&self, node: usize) -> Instant {
        let Node { rate, offset, frozen, .. } = &self.nodes[node];
        Instant::from_millis(offset + self.now.saturating_sub(*frozen) * rate / 1000)
    }

    /// Returns the first true time at which the clock of a node has gone on by `duration`.
    pub(super) fn after(&self, node: usize, duration: Duration) -> u64 {
        self.now + (duration.as_millis() as u64 * 1000).div_ceil(self.nodes[node].rate) + 1
    }

    pub(super) fn fitness(&self, node: usize) -> Fitness {
        if self.nodes[node].disk_full_until > self.now { Fitness::Unfit } else { Fitness::Fit }
    }

    fn progress(&self, node: usize) -> Progress {
        if self.nodes[node].hangs_until > self.now { Progress::Stuck } else { Progress::Moving }
    }

    /// An append that a node sent at this true time is stored, if there is one.
    pub(super) fn note_stored(&mut self, node: usize, cell: usize, sent: Option<u64>) {
        let fooled_since = &mut self.nodes[node].fooled_since[cell];
        fooled_since.take_if(|since| sent.is_some_and(|sent| sent >= *since));
    }

    pub(super) fn process(&mut self, node: usize, cell: usize) -> Option<&mut Process<O::Memory>> {
        self.nodes[node].processes[cell].as_mut()
    }

    fn tick(&mut self, node: usize, cell: usize) {
        self.events.add(self.now + TICK, Event::Tick { node, cell });
        if self.nodes[node].processes[cell].is_none() {
            return;
        }
        self.take_answers(node, cell);
        self.write_down(node, cell);
        let (now, reaches) = (self.local(node), self.engine.links[node].cut_until <= self.now);
        let progress = self.progress(node);
        let Some(process) = self.process(node, cell) else { return };
        let timeout = Timing::default().append_timeout;
        let is_late = |sent: &Instant| now.since(*sent) > timeout;
        let late = process
            .outstanding
            .iter()
            .filter(|(_, purpose, sent)| matches!(purpose, Purpose::Last | Purpose::Follow) && is_late(sent));
        let late_last = late.clone().any(|(_, purpose, _)| *purpose == Purpose::Last);
        let late: Vec<_> = late.map(|(number, ..)| *number).collect();
        process.outstanding.retain(|(number, ..)| !late.contains(number));
        if late_last {
            self.tell(node, cell, OwnershipInput::LastUnknown);
        }
        if self.alarms[cell] && reaches {
            self.tell(node, cell, OwnershipInput::AlarmRead);
        }
        O::tick(self, node, cell);
        self.tell(node, cell, OwnershipInput::Tick(progress));
    }

    /// The database follows, and each five seconds the row of the node.
    fn write_down(&mut self, node: usize, cell: usize) {
        let is_full = self.nodes[node].disk_full_until > self.now;
        if is_full && self.process(node, cell).is_some_and(|process| !process.unapplied.is_empty()) {
            return self.end(node, cell);
        }
        self.apply(node, cell);
        let Some(process) = self.process(node, cell) else { return };
        let (position, follows) = (process.machine.position(), process.is_following());
        if self.now % 5000 < TICK {
            self.engine.write_row(node, cell, position);
        }
        if O::HAS_SNAPSHOTS && self.now % 8000 < TICK && follows && self.rng.percent(30) {
            self.put_snapshot(node, cell);
        }
    }

    /// The database has all that was read or stored.
    pub(super) fn apply(&mut self, node: usize, cell: usize) {
        let Some(process) = self.process(node, cell) else { return };
        for (position, digest, frame) in std::mem::take(&mut process.unapplied) {
            let disk = &mut self.nodes[node].disks[cell];
            disk.apply(position, digest, frame.seen());
            let mut tables = std::mem::take(&mut disk.tables);
            O::applied(self, (node, cell), &mut tables, (position, &frame));
            self.nodes[node].disks[cell].tables = tables;
        }
    }

    /// Each commit is checked, and its owner's message brings the standbys to read.
    fn note_commits(&mut self) {
        for (cell, position) in std::mem::take(&mut self.engine.commits) {
            self.oracle.committed(cell, position, &self.engine);
            let frame = Frame::read(self.engine.frame(cell, position));
            O::committed(self, cell, position, &frame);
            if matches!(frame.kind, AppendKind::Claim(_)) {
                self.check_leases(cell, frame.writer);
            }
            for node in 0..NODES {
                if self.engine.links[node].cut_until <= self.now && self.rng.percent(90) {
                    self.read_on(node, cell, position);
                }
            }
        }
    }

    /// When a Claim is committed, nobody else may promise.
    fn check_leases(&self, cell: usize, writer: u64) {
        for node in (0..NODES).filter(|node| !self.nodes[*node].is_fooled(cell)) {
            let others = self.nodes[node].processes[cell].iter().filter(|process| process.number != writer);
            for process in others {
                assert!(!process.machine.may_promise(self.local(node)), "two nodes with a lease");
            }
        }
    }

    /// Returns true if clients may connect to a process of this node.
    pub fn serves(&self, node: usize, cell: usize) -> bool {
        self.nodes[node].processes[cell].as_ref().is_some_and(|process| process.service == Service::Open)
    }

    /// A process that stands still reads nothing.
    pub fn tell_when_running(&mut self, node: usize, cell: usize, input: OwnershipInput) {
        if self.nodes[node].stopped_until <= self.now {
            self.tell(node, cell, input);
        }
    }

    // Faults.

    /// Ends the process of a cell; the service manager starts it again.
    pub(super) fn end(&mut self, node: usize, cell: usize) {
        O::ends(self, node, cell);
        self.nodes[node].processes[cell] = None;
        self.events.add(self.now + 1000, Event::Start { node, cell });
    }

    pub fn crash(&mut self, node: usize, down: u64) {
        for cell in 0..self.cells {
            if self.owner(cell) == Some(node) {
                self.oracle.crashed(cell, self.now);
            }
            O::ends(self, node, cell);
            if self.nodes[node].processes[cell].take().is_some() {
                self.events.add(self.now + down, Event::Start { node, cell });
            }
        }
    }

    pub fn reboot(&mut self, node: usize, down: u64) {
        self.nodes[node].boot = self.rng.next();
        self.crash(node, down);
    }

    /// A node ends, and begins with nothing.
    pub fn wipe(&mut self, node: usize, down: u64) {
        self.reboot(node, down);
        self.nodes[node].directory = self.rng.next();
        self.nodes[node].disks.fill(Disk::default());
    }

    pub fn stop(&mut self, node: usize, until: u64) {
        let stopped_until = &mut self.nodes[node].stopped_until;
        *stopped_until = until.max(*stopped_until);
    }

    /// A virtual machine stands still together with its clock.
    pub fn freeze(&mut self, node: usize, until: u64) {
        self.stop(node, until);
        self.nodes[node].frozen += until - self.now;
        self.nodes[node].fooled_since.fill(Some(until));
    }

    pub fn hang(&mut self, node: usize, until: u64) {
        self.nodes[node].hangs_until = until;
    }

    pub fn fill_disk(&mut self, node: usize, until: u64) {
        self.nodes[node].disk_full_until = until;
    }

    pub fn drain(&mut self, node: usize) {
        for cell in 0..self.cells {
            self.tell_when_running(node, cell, OwnershipInput::Drain);
        }
    }

    // What must hold when all is calm.

    pub fn owner(&self, cell: usize) -> Option<usize> {
        let now_holds = |node: &usize| {
            let process = self.nodes[*node].processes[cell].as_ref();
            process.is_some_and(|process| {
                process.machine.role() == Role::Holding && process.machine.may_promise(self.local(*node))
            })
        };
        (0..NODES).find(now_holds)
    }

    /// Lets the calm last as long as a fail-over may take. Then each cell has an owner, and each
    /// node has its log.
    pub fn calm(&mut self) {
        self.run_until(self.now + FAIL_OVER);
        for cell in 0..self.cells {
            assert!(self.owner(cell).is_some(), "cell {cell} has no owner after {FAIL_OVER} ms of calm");
            let end = self.engine.end(cell).0;
            for node in &self.nodes {
                let position =
                    node.processes[cell].as_ref().map_or(0, |process| process.machine.position().0);
                assert!(position + 10 > end, "a node has {position} of {end} frames after the calm");
            }
        }
    }

    /// After a drain in calm, others follow at once. `before` is the number of earlier drains.
    pub fn check_drains(&self, before: usize) {
        let took = &self.oracle.drains[before..];
        assert!(!took.is_empty(), "nobody followed a drained node");
        assert!(took.iter().all(|took| *took <= DRAIN), "handed over after {took:?} ms");
    }

    pub fn is_anybody_serving(&self, cell: usize) -> bool {
        let of_cell = |node: &Node<O>| node.processes[cell].as_ref().map(|process| process.machine.role());
        self.nodes.iter().any(|node| of_cell(node) == Some(Role::Holding))
    }
}
