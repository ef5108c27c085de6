//! The simplest occupant of a cell: its clients publish numbers, which the store keeps as ends of
//! letters that never were. So a group costs next to nothing.

use super::node::Service;
use super::world::{NODES, Occupant, World};
use homing::persistence::letter::LetterNumber;
use homing::persistence::records::{Batch, Committed, Lsn, Record};
use homing::store::frame::cluster::{FrameKind, check_sign, read_group};
use homing_core::ownership::{OwnershipInput, Position};
use std::collections::{BTreeMap, VecDeque};

/// A number of a message of a client.
type MessageNumber = u64;

/// The clients of all cells, and what they were promised.
#[derive(Default)]
pub struct Numbers {
    messages: MessageNumber,
    cells: Vec<CellMessages>,
    pub acknowledged: u64,
}

#[derive(Default)]
struct CellMessages {
    /// The position of each message.
    stored: BTreeMap<MessageNumber, Position>,
    acknowledged: Vec<MessageNumber>,
}

/// The batches of an owner that are not committed, and the message of each.
#[derive(Default)]
pub struct Open {
    batches: u64,
    messages: VecDeque<(Lsn, MessageNumber)>,
}

pub enum ClientEvent {
    Publish,
    /// What was decided from memory is written to its client.
    Flush {
        node: usize,
        cell: usize,
        process: u64,
        message: MessageNumber,
    },
}

impl Occupant for Numbers {
    type Event = ClientEvent;
    type Memory = Open;
    const HAS_SNAPSHOTS: bool = true;

    fn begin(world: &mut World<Numbers>, cells: usize) {
        world.occupant.cells.resize_with(cells, CellMessages::default);
        world.schedule(1000, ClientEvent::Publish);
    }

    fn node_of(event: &ClientEvent) -> Option<usize> {
        match event {
            ClientEvent::Publish => None,
            ClientEvent::Flush { node, .. } => Some(*node),
        }
    }

    fn happen(world: &mut World<Numbers>, event: ClientEvent) {
        match event {
            ClientEvent::Publish => publish(world),
            ClientEvent::Flush { node, cell, process, message } if world.is_running(node, cell, process) => {
                flush(world, node, cell, message);
            }
            ClientEvent::Flush { .. } => {}
        }
    }

    fn committed(world: &mut World<Numbers>, node: usize, cell: usize, committed: Committed) {
        let open = &mut world.process(node, cell).expect("it has committed").own.messages;
        let left = open.split_off(open.partition_point(|(lsn, _)| *lsn <= committed.lsn));
        for (_, message) in std::mem::replace(open, left) {
            let of_cell = &mut world.occupant.cells[cell];
            assert!(
                of_cell.stored.contains_key(&message),
                "message {message} is acknowledged and not stored"
            );
            of_cell.acknowledged.push(message);
            world.occupant.acknowledged += 1;
        }
    }

    fn service_changed(_: &mut World<Numbers>, _: usize, _: usize) {}

    fn is_flushed(_: &mut World<Numbers>, _: usize, _: usize) -> bool {
        true
    }

    fn logged(world: &mut World<Numbers>, cell: usize, position: Position) {
        for message in messages(world, cell, position) {
            let before = world.occupant.cells[cell].stored.insert(message, position);
            assert_eq!(before, None, "message {message} is stored twice");
        }
    }
}

/// Returns the messages of a frame.
fn messages(world: &World<Numbers>, cell: usize, position: Position) -> Vec<MessageNumber> {
    let (checked, kind) = check_sign(world.engine.frame(cell, position)).expect("a frame");
    if kind != FrameKind::Group {
        return Vec::new();
    }
    let operations = read_group(&[], checked).expect("a group").operations;
    let number = |record: &Record| match record {
        Record::LetterDone(LetterNumber(number)) => Some(*number),
        _ => None,
    };
    operations.iter().filter_map(|operation| number(&operation.record)).collect()
}

impl World<Numbers> {
    /// At the end each acknowledged message is in the log.
    pub fn check_log(&self) {
        for (cell, of_cell) in self.occupant.cells.iter().enumerate() {
            let end = self.engine.end(cell);
            let lost = of_cell.acknowledged.iter().find(|message| {
                let position = of_cell.stored.get(message).filter(|position| **position <= end);
                position.is_none_or(|position| !messages(self, cell, *position).contains(message))
            });
            assert_eq!(lost, None, "acknowledged and not in the log");
        }
    }
}

fn publish(world: &mut World<Numbers>) {
    let at = world.now + world.rng.between(20, 400);
    world.schedule(at, ClientEvent::Publish);
    let cells = world.occupant.cells.len() as u64;
    let cell = world.rng.below(cells) as usize;
    // Some clients are still connected to a node that has lost its cell.
    let serving: Vec<usize> = (0..NODES).filter(|node| world.serves(*node, cell)).collect();
    if serving.is_empty() {
        return;
    }
    let node = world.rng.pick(&serving);
    world.occupant.messages += 1;
    let message = world.occupant.messages;
    let decided_from_memory = world.rng.percent(50);
    let delay = world.rng.below(300);
    if decided_from_memory {
        let process = world.process(node, cell).expect("it serves").number;
        let event = ClientEvent::Flush { node, cell, process, message };
        world.schedule(world.now + delay, event);
    } else {
        send(world, node, cell, message);
    }
}

/// A shard sends the batch of a message, if its thread runs.
fn send(world: &mut World<Numbers>, node: usize, cell: usize, message: MessageNumber) {
    if world.nodes[node].stopped_until > world.now {
        return;
    }
    let now = world.local(node);
    let Some(process) = world.process(node, cell) else { return };
    let Some(owner) = &mut process.owner else { return };
    process.own.batches += 1;
    let lsn = Lsn(process.own.batches);
    process.own.messages.push_back((lsn, message));
    let batch =
        Batch { shard: 0, lsn, records: vec![Record::LetterDone(LetterNumber(message))], ..Batch::default() };
    owner.take(now, vec![batch], Vec::new());
    world.work(node, cell);
}

/// What nobody is owed for leaves by the lease, or waits for an append.
fn flush(world: &mut World<Numbers>, node: usize, cell: usize, message: MessageNumber) {
    let now = world.local(node);
    let Some(process) = world.process(node, cell) else { return };
    if process.service == Service::None {
        return;
    }
    if process.may_promise(now) {
        let epoch = process.machine().epoch();
        if !world.nodes[node].is_fooled(cell) {
            world.oracle.promised(cell, epoch);
        }
        world.tell(node, cell, OwnershipInput::Promised);
    } else if process.service != Service::Flushing {
        send(world, node, cell, message);
    }
}
