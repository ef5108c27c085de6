//! The committing thread of an owner, and the tables that each node makes of the log. The groups,
//! their queue and their bytes are the broker's own code.

use crate::broker::{BrokerEvent, Brokers};
use crate::frame::Frame;
use crate::memory_store::{Image, Memory};
use crate::world::World;
use bytes::Bytes;
use homing::persistence::records::{Batch, Committed, RetainedRecord};
use homing::store::coalesce::CommitGroup;
use homing::store::commit_queue::{Bounds, CommitQueue};
use homing::store::frame::{self, Head};
use homing::store::wall::{FileTime, Heartbeat};
use homing::store::{Boot, Moment};
use homing::time::Instant;
use homing_core::persistence::ownership::{OwnershipInput, Position};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// The identifier of the log in the groups.
const LOG: u64 = 7;

/// The tables are compared at each position that this divides.
const COMPARED: u64 = 16;

/// The tables of a cell on the disk of a node.
#[derive(Default)]
pub struct Tables(pub Memory);

/// A clone of the store would be a second handle of the same tables.
impl Clone for Tables {
    fn clone(&self) -> Tables {
        Tables(self.0.copied())
    }
}

#[derive(Default)]
pub struct Writer {
    queue: CommitQueue,
    group: CommitGroup,
    waiters: Vec<Committed>,
    /// True while a group is to be appended, or its append is not decided.
    is_appending: bool,
    pub time: FileTime,
    pub highest_number: u64,
}

impl Writer {
    pub fn new(time: FileTime, highest_number: u64) -> Writer {
        Writer { time, highest_number, ..Writer::default() }
    }

    pub fn take(&mut self, batches: Vec<Batch>, retained: Vec<RetainedRecord>) {
        retained.into_iter().for_each(|record| self.group.retain(record));
        batches.into_iter().for_each(|batch| self.queue.push(Instant::ZERO, batch));
    }

    pub fn is_idle(&self) -> bool {
        !self.is_appending && self.queue.is_empty() && self.group.recorded() == 0 && self.waiters.is_empty()
    }

    /// Folds all that has come into the group. Returns true if there is anything to commit.
    fn gather(&mut self) -> bool {
        let bounds = Bounds { records: u64::MAX, bytes: usize::MAX };
        self.queue.take(bounds, &mut self.group, &mut self.waiters);
        self.group.seal();
        self.group.recorded() > 0 || !self.waiters.is_empty()
    }
}

impl World<Brokers> {
    /// The moment by all clocks of a node.
    pub fn moment(&self, node: usize) -> Moment {
        let monotonic = self.local(node);
        let boot = Boot { id: self.nodes[node].boot >> 1, millis: monotonic.as_millis() };
        Moment { monotonic, unix_millis: 1_800_000_000_000 + self.now, boot: Some(boot) }
    }

    /// The committing thread looks what has come. A group that comes to nothing needs no append, but
    /// the lease. Without it, it becomes one.
    pub fn write(&mut self, node: usize, cell: usize) {
        let (now, has_leases) = (self.local(node), !self.occupant.by_appends_alone);
        let Some(process) = self.process(node, cell) else { return };
        let may_promise = has_leases && process.machine.may_promise(now);
        let Some(broker) = process.own.as_mut().filter(|broker| !broker.writer.is_appending) else { return };
        if !broker.writer.gather() {
            return;
        }
        let is_empty = broker.writer.group.is_empty();
        if is_empty && may_promise {
            self.report(node, cell);
            return self.tell(node, cell, OwnershipInput::Promised);
        }
        broker.writer.is_appending = true;
        self.occupant.promises.totals.empty_groups += u64::from(is_empty);
        self.tell(node, cell, OwnershipInput::GroupReady);
    }

    /// Returns the group that is appended now, with what has come meanwhile.
    pub fn content(&mut self, node: usize, cell: usize) -> Bytes {
        let moment = self.moment(node);
        let Some(broker) = self.process(node, cell).and_then(|process| process.own.as_mut()) else {
            return Bytes::new();
        };
        let writer = &mut broker.writer;
        writer.gather();
        writer.highest_number = writer.highest_number.max(writer.group.highest_number());
        let head = Head {
            moment: Heartbeat::at(moment, writer.time),
            next_number: writer.highest_number + 1,
            log: LOG,
            ..Head::default()
        };
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, &head, &writer.group, writer.time);
        bytes.into()
    }

    /// The group is stored, or needs no append: its shards are told.
    pub fn report(&mut self, node: usize, cell: usize) {
        let Some(process) = self.process(node, cell) else { return };
        let (number, Some(broker)) = (process.number, process.own.as_mut()) else { return };
        broker.writer.is_appending = false;
        broker.writer.group.clear();
        for committed in std::mem::take(&mut broker.writer.waiters) {
            let at = self.now + 1;
            self.schedule(at, BrokerEvent::Committed { node, cell, process: number, committed });
        }
    }

    /// The log has no room: the group stays, and is tried again at the next tick.
    pub fn keep_group(&mut self, node: usize, cell: usize) {
        if let Some(broker) = self.process(node, cell).and_then(|process| process.own.as_mut()) {
            broker.writer.is_appending = false;
        }
    }

    /// A node makes tables of a frame. Nodes have equal tables at equal positions.
    pub fn make_tables(
        &mut self,
        (node, cell): (usize, usize),
        Tables(memory): &mut Tables,
        (position, frame): (Position, &Frame),
    ) {
        let moment = self.moment(node);
        if !frame.content.is_empty() {
            let read = frame::check(&frame.content, LOG).and_then(frame::read).expect("a group");
            let mut group = CommitGroup::default();
            group.absorb_all(read.operations, read.retained, read.head.moment.file_millis);
            group.seal();
            memory.write(&group);
            // A standby goes on with the file's time by its own clocks.
            let Moment { unix_millis, boot, .. } = moment;
            let heartbeat = Heartbeat { file_millis: read.head.moment.file_millis, unix_millis, boot };
            memory.reaches(read.head.next_number - 1, heartbeat);
        }
        if position.0 % COMPARED == 0 {
            // The first line has the clocks of the node.
            let lines = memory.look(Image::lines).split_off(1);
            let digest = BuildHasherDefault::<DefaultHasher>::default().hash_one(lines);
            let first = *self.occupant.tables.entry((cell, position)).or_insert(digest);
            assert_eq!(first, digest, "the tables of node {node} differ at {position:?} of cell {cell}");
            self.occupant.promises.totals.tables_compared += 1;
        }
    }
}
