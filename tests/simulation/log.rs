//! The disk, as `src/store/logged` has it: the log, whose frames are safe at once, and the database
//! behind it, which has them some time later. The frames, the fold and the look for a page are the
//! broker's own code.

use crate::memory_store::{Image, Memory};
use homing::persistence::records::{BodyNumber, EntryNumber, ReadEntry};
use homing::store::StoreReader;
use homing::store::coalesce::CommitGroup;
use homing::store::frame::{self, Digest, Head};
use homing::store::lagging::lookup::{Lookup, look, merge};
use homing::store::wall::FileTime;

/// The identifier of the log.
const LOG: u64 = 7;

/// What is on the disk, and what the process knows of it.
#[derive(Default)]
pub struct Log {
    /// The database, and the position that it has.
    database: Memory,
    applied: u64,
    /// The frames behind that position.
    frames: Vec<Vec<u8>>,
    digest: Digest,
    /// The changes of the frames: those that grow, and those that are being applied with the last
    /// position in them.
    open: CommitGroup,
    taken: Option<(CommitGroup, u64)>,
}

/// Where a page was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Memory,
    Database,
    Both,
}

impl Log {
    /// The log of a process that has just opened this database.
    pub fn opened(database: Memory) -> Log {
        Log { database, ..Log::default() }
    }

    fn position(&self) -> u64 {
        self.applied + self.frames.len() as u64
    }

    /// Appends the frame that `put` writes, and folds its group. What is left of the group is
    /// empty. `of` has the times and the numbers of the process.
    pub fn append(
        &mut self,
        of: &Memory,
        group: &mut CommitGroup,
        put: impl FnOnce(&mut Vec<u8>, &Head, FileTime, &CommitGroup) -> Digest,
    ) {
        let head = Head {
            cell: 0,
            epoch: 0,
            position: self.position() + 1,
            moment: of.look(Image::heartbeat).unwrap_or_default(),
            next_number: of.look(Image::highest_number).max(group.highest_number()) + 1,
            synced: self.position(),
            log: LOG,
            predecessor: self.digest,
        };
        let mut bytes = Vec::new();
        self.digest = put(&mut bytes, &head, of.time(), group);
        self.frames.push(bytes);
        self.open.absorb(group, head.moment.file_millis);
    }

    /// The applying thread takes what there is. Returns false if it has nothing to do.
    pub fn take(&mut self) -> bool {
        if self.taken.is_some() || self.applied == self.position() {
            return false;
        }
        let mut group = std::mem::take(&mut self.open);
        group.seal();
        self.taken = Some((group, self.position()));
        true
    }

    /// The transaction of the database with what was taken is done.
    pub fn apply(&mut self) {
        let Some((group, position)) = self.taken.take() else { return };
        self.database.write(&group);
        let mut frames = self.frames.drain(..(position - self.applied) as usize);
        let last = frames.next_back().expect("something was taken");
        let (_, head, _) = frame::check(&last, LOG).expect("a frame");
        self.database.reaches(head.next_number - 1, head.moment);
        self.applied = position;
    }

    /// The database has everything.
    pub fn apply_all(&mut self) {
        self.apply();
        if self.take() {
            self.apply();
        }
    }

    /// What a start finds: the database, and the frames behind it.
    pub fn recovered(&self) -> Result<Image, String> {
        let database = Memory::from_image(self.database.image());
        let mut group = CommitGroup::default();
        let mut position = self.applied;
        for bytes in &self.frames {
            let frame::Frame { head, operations, retained, .. } = frame::check(bytes, LOG)
                .and_then(frame::read)
                .map_err(|error| format!("frame {}: {error}", position + 1))?;
            position += 1;
            if head.position != position {
                return Err(format!("the log has frame {} in place of {position}", head.position));
            }
            group.absorb_all(operations, retained, head.moment.file_millis);
            database.reaches(head.next_number - 1, head.moment);
        }
        group.seal();
        database.write(&group);
        Ok(database.image())
    }

    /// Reads a page as the reading thread does.
    pub fn read(&mut self, wanted: &[(EntryNumber, BodyNumber)]) -> (Vec<ReadEntry>, Source) {
        let groups = || [Some(&self.open), self.taken.as_ref().map(|(group, _)| group)].into_iter().flatten();
        match look(groups, wanted) {
            Lookup::Found { in_memory, in_database } => {
                let source = match (in_memory.is_empty(), in_database.is_empty()) {
                    (true, _) => Source::Database,
                    (false, true) => Source::Memory,
                    (false, false) => Source::Both,
                };
                let left: Vec<_> = in_database.iter().map(|at| wanted[*at]).collect();
                let read = self.database.entries(&left).expect("memory does not fail");
                (merge(wanted, in_memory, read), source)
            }
            Lookup::Apart => {
                self.apply_all();
                (self.database.entries(wanted).expect("memory does not fail"), Source::Database)
            }
        }
    }

    /// The database, once it has everything.
    pub fn up_to_date(&mut self) -> &mut Memory {
        self.apply_all();
        &mut self.database
    }
}
