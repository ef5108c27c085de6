//! Finds the deliveries of a page: in the changes that the database does not have yet, or in the
//! database. Knows no thread and no file.

use crate::mqtt::message::Message;
use crate::persistence::records::{BodyNumber, EntryNumber, ReadEntry, Record, StoredEntry};
use crate::store::coalesce::CommitGroup;
use crate::store::operation::Operation;

/// A delivery that only memory has.
#[derive(Debug)]
pub struct Recent {
    /// Its place in the request.
    pub place: usize,
    /// The delivery.
    pub entry: ReadEntry,
    /// The file time of the message, in milliseconds.
    pub recorded_ms: u64,
}

/// Where the deliveries of a page are.
#[derive(Debug)]
pub enum Lookup {
    /// Deleted deliveries are in neither list.
    Found {
        /// The deliveries that are in memory.
        in_memory: Vec<Recent>,
        /// The places of those that only the database can have.
        in_database: Vec<usize>,
    },
    /// A delivery is in memory and its message is not. Rare: a message that was handed over.
    Apart,
}

/// Looks for deliveries in groups that the database does not have yet. `groups` returns them, the
/// latest first.
pub fn look<'a, I: Iterator<Item = &'a CommitGroup>>(
    groups: impl Fn() -> I,
    wanted: &[(EntryNumber, BodyNumber)],
) -> Lookup {
    let (mut in_memory, mut in_database) = (Vec::new(), Vec::new());
    for (place, (number, body)) in wanted.iter().enumerate() {
        let changes = groups().filter_map(|group| group.on_entry(*number));
        // A later group may have a change of a delivery that an earlier one puts.
        let mut changes = changes.map(|operation| &operation.record);
        match changes.find(|record| !matches!(record, Record::Sent { .. } | Record::Received(_))) {
            Some(Record::Entry(entry)) => match groups().find_map(|group| group.on_body(*body)) {
                Some(Operation { record: Record::Body { message, .. }, frame_ms, .. }) => {
                    let entry = read(entry, message);
                    in_memory.push(Recent { place, entry, recorded_ms: *frame_ms });
                }
                Some(_) => {}
                None => return Lookup::Apart,
            },
            Some(Record::EntryDone(_) | Record::EntryAcknowledged(_)) => {}
            _ => in_database.push(place),
        }
    }
    Lookup::Found { in_memory, in_database }
}

/// Returns the deliveries of a page in the order of `wanted`: those that were found in memory, and
/// those that the database has.
pub fn merge(
    wanted: &[(EntryNumber, BodyNumber)],
    in_memory: Vec<Recent>,
    in_database: Vec<ReadEntry>,
) -> Vec<ReadEntry> {
    let mut read = in_database.into_iter().peekable();
    let mut entries = Vec::with_capacity(wanted.len());
    let mut in_memory = in_memory.into_iter().peekable();
    for (place, (number, _)) in wanted.iter().enumerate() {
        if let Some(recent) = in_memory.next_if(|recent| recent.place == place) {
            entries.push(recent.entry);
        } else if let Some(entry) = read.next_if(|entry| entry.number == *number) {
            entries.push(entry);
        }
    }
    entries
}

fn read(entry: &StoredEntry, message: &Message) -> ReadEntry {
    ReadEntry {
        number: entry.number,
        message: message.clone(),
        qos: entry.qos,
        retain: entry.retain,
        ids: entry.ids.clone(),
        share: entry.share.clone(),
    }
}
