//! The world of one seed: nodes with their clocks, faults, and the order of all events. What a
//! process does with its cell, and for which clients, is up to the occupant.

use super::driver::READ;
use super::engine::Engine;
use super::node::{Disk, Process, Purpose, Service};
use super::oracle::Oracle;
use super::rng::Rng;
use super::schedule::Schedule;
use crate::memory_store::{Image, Memory};
use crate::replicated_log::{LogRequest, LogRequestNumber};
use bytes::Bytes;
use homing::persistence::records::{Committed, Recovered};
use homing::store::frame::Head;
use homing::store::frame::cluster::{FrameKind, check_sign, put_sign};
use homing::store::{Boot, Moment};
use homing_core::ownership::{CellNode, OwnershipInput, Position, Role};
use homing_core::time::Instant;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

pub const NODES: usize = 3;
/// A cell has an owner again after this time at the latest, if nothing else happens.
const FAIL_OVER: u64 = 13_000;
/// The next owner of a drained cell begins to recover after this time at the latest.
const DRAIN: u64 = 500;
const TICK: u64 = 250;
/// The time between two looks at the rows of all nodes.
const ROWS: u64 = 5000;
/// The tables are compared at each position that this divides.
const COMPARED: u64 = 4;
/// No will goes out before this time has passed since a fail-over.
pub(super) const WILL_GRACE: Duration = Duration::from_secs(10);
/// The wall clocks of nodes are wrong by up to this time.
const SKEW: u64 = 20 * 24 * 60 * 60 * 1000;

/// What the processes of a world do with the cells that they own.
pub trait Occupant: Sized + Default {
    /// Something of its own that happens at a time.
    type Event;
    /// Whether nodes keep snapshots, and trim the log.
    const HAS_SNAPSHOTS: bool;
    /// What a process has in memory for a cell.
    type Memory: Default;

    /// The world begins.
    fn begin(world: &mut World<Self>, cells: usize);

    /// Returns the node that has to run for an event.
    fn node_of(event: &Self::Event) -> Option<usize>;

    fn happen(world: &mut World<Self>, event: Self::Event);

    /// A batch is committed: what waited for it may leave.
    fn committed(world: &mut World<Self>, node: usize, cell: usize, committed: Committed);

    /// The service of a process has changed.
    fn service_changed(world: &mut World<Self>, node: usize, cell: usize);

    /// Returns true if a process that flushes has nothing left to commit.
    fn is_flushed(world: &mut World<Self>, node: usize, cell: usize) -> bool;

    /// A frame is in the log.
    fn logged(_: &mut World<Self>, _: usize, _: Position) {}

    /// The lease of a process may be another one.
    fn lease_changed(_: &mut World<Self>, _: usize, _: usize) {}

    /// An owner has read its store, and will serve.
    fn recovered(_: &mut World<Self>, _: usize, _: usize, _: Recovered) {}

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
    /// The databases of all snapshots, also of those that were broken off.
    pub(super) copies: Vec<Memory>,
    /// A digest of the tables at positions of cells.
    tables: BTreeMap<(usize, u64), u64>,
    pub tables_compared: u64,
    /// False with `acks = "commit"`: no node ever has a lease.
    pub by_lease: bool,
}

pub struct Node<O: Occupant> {
    /// Milliseconds of its clock in a thousand true ones.
    rate: u64,
    offset: u64,
    /// How wrong its wall clock is.
    skew: u64,
    pub(super) boot: u64,
    directory: u64,
    pub(super) stopped_until: u64,
    /// How long its clock has stood still, and for each cell the true time at which it went on.
    /// Until an append of a later time is stored, the lease may look valid and be none.
    frozen: u64,
    fooled_since: Vec<Option<u64>>,
    pub(super) hangs_until: u64,
    /// The time that its last recovery took.
    pub(super) recovery: u64,
    pub(super) disk_full_from: u64,
    pub(super) disk_full_until: u64,
    pub(super) disks: Vec<Disk>,
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
    Tick {
        node: usize,
        cell: usize,
    },
    Wake {
        node: usize,
        cell: usize,
        process: u64,
    },
    Timeout {
        node: usize,
        cell: usize,
        request: LogRequestNumber,
    },
    /// The next part of a standby's database is written.
    Write {
        node: usize,
        cell: usize,
        process: u64,
    },
    Recovered {
        node: usize,
        cell: usize,
        process: u64,
    },
    /// A node that has all frames asks for more.
    Follow {
        node: usize,
        cell: usize,
        process: u64,
        at: u64,
    },
    /// A database is copied for a snapshot.
    Copied {
        node: usize,
        cell: usize,
        process: u64,
        position: Position,
        copy: usize,
    },
    Start {
        node: usize,
        cell: usize,
    },
    Own(E),
}

impl<E> Event<E> {
    fn node(&self, of_own: impl FnOnce(&E) -> Option<usize>) -> Option<usize> {
        match self {
            Event::Tick { node, .. }
            | Event::Wake { node, .. }
            | Event::Timeout { node, .. }
            | Event::Write { node, .. }
            | Event::Recovered { node, .. }
            | Event::Follow { node, .. }
            | Event::Copied { node, .. }
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
                skew: rng.below(SKEW),
                boot: rng.next(),
                directory: rng.next(),
                stopped_until: 0,
                frozen: 0,
                fooled_since: vec![None; cells],
                hangs_until: 0,
                recovery: 0,
                disk_full_from: 0,
                disk_full_until: 0,
                disks: (0..cells).map(|_| Disk::default()).collect(),
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
            copies: Vec::new(),
            tables: BTreeMap::new(),
            tables_compared: 0,
            by_lease: true,
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
                self.pass_time(node, cell);
            }
            Event::Write { node, cell, process } if self.is_running(node, cell, process) => {
                self.write(node, cell);
            }
            Event::Recovered { node, cell, process } if self.is_running(node, cell, process) => {
                self.has_recovered(node, cell);
            }
            Event::Follow { node, cell, process, at } if self.is_running(node, cell, process) => {
                self.read_on(node, cell, Some(at));
            }
            Event::Copied { node, cell, process, position, copy } if self.is_running(node, cell, process) => {
                self.put_snapshot(node, cell, (position, copy));
            }
            Event::Timeout { node, cell, request } => self.time_out(node, cell, request),
            Event::Wake { .. }
            | Event::Write { .. }
            | Event::Recovered { .. }
            | Event::Follow { .. }
            | Event::Copied { .. } => {}
            Event::Start { node, cell } => self.start(node, cell),
            Event::Own(event) => O::happen(self, event),
        }
    }

    fn start(&mut self, node: usize, cell: usize) {
        if self.nodes[node].processes[cell].is_some() {
            return;
        }
        // The frames behind its database may be gone: it begins with the snapshot.
        let has = self.nodes[node].disks[cell].database.mark().position;
        if self.engine.first(cell).0 > has + 1 {
            let is_cut = self.engine.links[node].cut_until > self.now;
            let Some(copy) = self.engine.snapshot(cell).filter(|_| !is_cut) else {
                return self.events.add(self.now + 1000, Event::Start { node, cell });
            };
            self.nodes[node].disks[cell] = Disk::with(self.copies[copy].copied().without_clocks());
        }
        let (now, real, by_lease) = (self.local(node), self.now, self.by_lease);
        self.processes += 1;
        let of = &mut self.nodes[node];
        let me = CellNode {
            cell: cell as u16,
            node: node as u16,
            nodes: NODES as u16,
            directory: of.directory,
            boot: of.boot,
        };
        let process = Process::new(me, self.processes, by_lease, &mut of.disks[cell], (real, now));
        of.processes[cell] = Some(process);
        self.engine.forget_answers(node, cell);
        self.set_disk(node, cell);
        self.look_at_rows(node, cell);
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

    /// The moment by all clocks of a node.
    pub fn moment(&self, node: usize) -> Moment {
        let monotonic = self.local(node);
        let Node { boot, skew, .. } = &self.nodes[node];
        let boot = Boot { id: boot >> 1, millis: monotonic.as_millis() };
        Moment { monotonic, unix_millis: 1_800_000_000_000 + self.now + skew, boot: Some(boot) }
    }

    /// An append that a node sent at this true time is stored, if there is one.
    pub(super) fn note_stored(&mut self, node: usize, cell: usize, sent: u64) {
        let fooled_since = &mut self.nodes[node].fooled_since[cell];
        fooled_since.take_if(|since| sent >= *since);
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
        O::tick(self, node, cell);
        self.work(node, cell);
        self.pass_time(node, cell);
    }

    /// The database follows, and each five seconds the rows are written and read.
    fn write_down(&mut self, node: usize, cell: usize) {
        self.set_disk(node, cell);
        let follows = self.process(node, cell).is_some_and(|process| process.is_following());
        if let Some(owner) = self.process(node, cell).and_then(|process| process.owner.as_mut()) {
            owner.apply();
        }
        self.compare_tables(node, cell);
        if self.now % ROWS < TICK {
            self.look_at_rows(node, cell);
        }
        if O::HAS_SNAPSHOTS && self.now % 8000 < TICK && follows && self.rng.percent(30) {
            self.begin_snapshot(node, cell);
        }
    }

    /// The disk of a process has room, or not. It may be locked while its owner applies.
    pub(super) fn set_disk(&mut self, node: usize, cell: usize) {
        let is_full = self.nodes[node].disk_full_until > self.now;
        let hangs = self.nodes[node].hangs_until > self.now;
        let owns = self.process(node, cell).is_some_and(|process| process.owner.is_some());
        self.nodes[node].disks[cell].database.disk().set(is_full, owns && hangs);
    }

    /// A node writes its row and reads those of all, if it reaches the engine.
    pub fn look_at_rows(&mut self, node: usize, cell: usize) {
        if self.engine.links[node].cut_until > self.now {
            return;
        }
        let now = self.moment(node);
        let Some(position) = self.process(node, cell).map(|process| process.position()) else { return };
        self.engine.write_row(node, cell, position);
        let (reported, alarm) = (self.engine.reported(cell).0, self.alarms[cell].then_some("written"));
        self.call(node, cell, |core| core.rows_seen(reported, alarm, now.monotonic, now));
    }

    /// Nodes have equal tables at equal positions.
    fn compare_tables(&mut self, node: usize, cell: usize) {
        let Disk { database, compared, .. } = &mut self.nodes[node].disks[cell];
        let position = database.mark().position;
        if position % COMPARED != 0 || std::mem::replace(compared, position) == position {
            return;
        }
        // The first line has the clocks of the node.
        let lines = database.look(Image::lines).split_off(1);
        let digest = BuildHasherDefault::<DefaultHasher>::default().hash_one(&lines);
        let first = *self.tables.entry((cell, position)).or_insert(digest);
        assert_eq!(first, digest, "the tables of node {node} differ at {position} of cell {cell}: {lines:?}");
        self.tables_compared += 1;
    }

    /// A node that waits for an announcement reads on: now, or because it has waited until `at`.
    fn read_on(&mut self, node: usize, cell: usize, at: Option<u64>) {
        let Some(process) = self.process(node, cell) else { return };
        let waits = process.waits.take_if(|(until, _)| at.is_none_or(|at| at == *until));
        if let Some((_, from)) = waits {
            self.ask(node, cell, Purpose::Follow, LogRequest::Read { from, bytes: READ });
        }
    }

    /// Each commit is checked, and its owner's message brings the standbys to read.
    fn note_commits(&mut self) {
        for (cell, position, writer) in std::mem::take(&mut self.engine.commits) {
            let claim = self.oracle.committed(cell, (position, writer), &self.engine);
            O::logged(self, cell, position);
            if let Some(passed) = claim {
                self.check_leases(cell, writer);
                self.check_time(cell, (position, writer), passed);
            }
            for node in 0..NODES {
                let reaches = self.engine.links[node].cut_until <= self.now;
                let runs = self.nodes[node].stopped_until <= self.now;
                if reaches && runs && self.rng.percent(90) {
                    self.read_on(node, cell, None);
                }
            }
        }
    }

    /// The time of the log goes on at a Claim by the clock of its node, which no wall clock moves. A
    /// node that has read the last frame late does not know when it was made.
    fn check_time(&self, cell: usize, (position, writer): (Position, u64), (by_file, truly): (u64, u64)) {
        let mut processes = self.nodes.iter().filter_map(|node| node.processes[cell].as_ref());
        let Some(process) = processes.find(|process| process.number == writer) else { return };
        if process.caught_up.is_some_and(|caught_up| caught_up.next() < position) {
            // The engine may have had the frame before for a while when its reader saw it.
            assert!(
                by_file <= truly * 5 / 4 + 500,
                "{by_file} ms have passed by the file, and {truly} in truth"
            );
        }
    }

    /// When a Claim is committed, nobody else may promise.
    fn check_leases(&self, cell: usize, writer: u64) {
        for node in (0..NODES).filter(|node| !self.nodes[*node].is_fooled(cell)) {
            let others = self.nodes[node].processes[cell].iter().filter(|process| process.number != writer);
            for process in others {
                assert!(!process.may_promise(self.local(node)), "two nodes with a lease");
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
        self.nodes[node].disks.iter_mut().for_each(|disk| *disk = Disk::default());
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
        self.nodes[node].disk_full_from = self.now;
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
                let machine = process.machine();
                machine.role() == Role::Holding && self.local(*node) < machine.lease_until()
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
                let position = node.processes[cell].as_ref().map_or(0, |process| process.position().0);
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

    /// Returns what a node does for a cell.
    pub fn role(&self, node: usize, cell: usize) -> Option<Role> {
        self.nodes[node].processes[cell].as_ref().map(|process| process.machine().role())
    }

    /// Returns another frame that is whole, and would continue the log in place of one.
    pub fn another_frame(&self, cell: usize, position: Position) -> Bytes {
        let ((_, head, _), _) = check_sign(self.engine.frame(cell, position)).expect("a frame");
        let mut bytes = Vec::new();
        put_sign(&mut bytes, &Head { next_number: head.next_number + 1, ..head }, FrameKind::Beat);
        bytes.into()
    }

    pub fn is_anybody_serving(&self, cell: usize) -> bool {
        let of_cell = |node: &Node<O>| node.processes[cell].as_ref().map(|process| process.machine().role());
        self.nodes.iter().any(|node| of_cell(node) == Some(Role::Holding))
    }
}
