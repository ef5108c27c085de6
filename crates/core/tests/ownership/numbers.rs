//! The simplest occupant of a cell: its clients publish numbers, and a group is a list of them.

use super::engine::Engine;
use super::frame::Frame;
use super::node::Service;
use super::world::{NODES, Occupant, World};
use bytes::Bytes;
use homing_core::persistence::ownership::{OwnershipInput, Position};
use std::collections::BTreeMap;

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
    refused: Vec<MessageNumber>,
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

/// Returns the messages of a group.
fn messages(frame: &Frame) -> impl Iterator<Item = MessageNumber> {
    frame.content.chunks(8).map(|chunk| u64::from_le_bytes(chunk.try_into().expect("8 bytes")))
}

impl Occupant for Numbers {
    type Event = ClientEvent;
    type Tables = ();
    /// Messages for the next group.
    type Memory = Vec<MessageNumber>;
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

    fn group(world: &mut World<Numbers>, node: usize, cell: usize) -> Bytes {
        let open = std::mem::take(&mut world.process(node, cell).expect("it appends").own);
        open.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>().into()
    }

    fn group_stored(world: &mut World<Numbers>, _: usize, cell: usize, frame: &Frame) {
        let of_cell = &mut world.occupant.cells[cell];
        for message in messages(frame) {
            assert!(
                of_cell.stored.contains_key(&message),
                "message {message} is acknowledged and not stored"
            );
            of_cell.acknowledged.push(message);
            world.occupant.acknowledged += 1;
        }
    }

    fn group_full(world: &mut World<Numbers>, _: usize, cell: usize, frame: &Frame) {
        world.occupant.cells[cell].refused.extend(messages(frame));
    }

    fn service_changed(world: &mut World<Numbers>, node: usize, cell: usize) {
        let process = world.process(node, cell).expect("it runs");
        if process.service == Service::Flushing && !process.own.is_empty() {
            world.tell(node, cell, OwnershipInput::GroupReady);
        }
    }

    fn is_flushed(world: &mut World<Numbers>, node: usize, cell: usize) -> bool {
        let process = world.process(node, cell).expect("it runs");
        let waits = process.pending.as_ref().is_some_and(|pending| !pending.frame.content.is_empty());
        process.own.is_empty() && !waits
    }

    fn committed(world: &mut World<Numbers>, cell: usize, position: Position, frame: &Frame) {
        for message in messages(frame) {
            let before = world.occupant.cells[cell].stored.insert(message, position);
            assert_eq!(before, None, "message {message} is stored twice");
        }
    }
}

impl Numbers {
    /// At the end each acknowledged message is in the log, and none that was refused.
    pub fn check_log(&self, engine: &Engine) {
        for (cell, of_cell) in self.cells.iter().enumerate() {
            let mut found = BTreeMap::new();
            for position in 1..=engine.end(cell).0 {
                let frame = Frame::read(engine.frame(cell, Position(position)));
                found.extend(messages(&frame).map(|message| (message, position)));
            }
            let lost = of_cell.acknowledged.iter().find(|message| !found.contains_key(message));
            assert_eq!(lost, None, "acknowledged and not in the log");
            let kept = of_cell.refused.iter().find(|message| found.contains_key(message));
            assert_eq!(kept, None, "refused and in the log");
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
    let process = world.process(node, cell).expect("it serves");
    if decided_from_memory {
        let event = ClientEvent::Flush { node, cell, process: process.number, message };
        world.schedule(world.now + delay, event);
    } else {
        process.own.push(message);
        world.tell_when_running(node, cell, OwnershipInput::GroupReady);
    }
}

/// What nobody is owed for leaves by the lease, or waits for an append.
fn flush(world: &mut World<Numbers>, node: usize, cell: usize, message: MessageNumber) {
    let now = world.local(node);
    let Some(process) = world.process(node, cell) else { return };
    if process.service == Service::None {
        return;
    }
    if process.machine.may_promise(now) {
        let epoch = process.machine.epoch();
        if !world.nodes[node].is_fooled(cell) {
            world.oracle.promised(cell, epoch);
        }
        world.tell(node, cell, OwnershipInput::Promised);
    } else if process.service != Service::Flushing {
        process.own.push(message);
        world.tell(node, cell, OwnershipInput::GroupReady);
    }
}
