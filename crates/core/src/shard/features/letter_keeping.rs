//! Dead letters enter and leave the stored letters of a shard, each with its record.

use crate::letters::dead_letters::DeadLetter;
use crate::mqtt::message::Message;
use crate::persistence::letter::{LetterPlace, StoredLetter, letter_size};
use crate::persistence::records::Record;
use crate::session::drops::DropReason;
use crate::shard::core::Core;
use crate::time::Instant;
use std::sync::Arc;

/// Returns true if the dead letter of a parked message would be stored.
pub(crate) fn is_kept(receiver: &str, message: &Message, core: &Core) -> bool {
    let bytes = letter_size(message, receiver, DropReason::Parked.name());
    core.settings.letters.admit(bytes, core.peers.shards())
}

/// Stores a dead letter that is being published, in the open batch. A letter that is too large is
/// counted as dropped.
pub(crate) fn keep(now: Instant, dead_letter: &DeadLetter, core: &mut Core) {
    let limits = core.settings.letters;
    if limits.letters == 0 {
        return;
    }
    let (here, shards) = (core.peers.here().0, core.peers.shards());
    let Core { durability, dead_letters, shared, .. } = core;
    let wall = dead_letters.wall();
    let letters = &mut dead_letters.stored;
    let (store, totals) = (durability.write_buffer(), &shared.totals);
    let number = letters.next_number(here, store);
    let mut letter = dead_letter.to_store(now, number, wall);
    // The wall clock may have been set back. The newest letter must still be dropped last.
    letter.place.dropped_ms = letter.place.dropped_ms.max(letters.newest_ms());
    if !limits.admit(letter.size(), shards) {
        totals.letters_dropped.add(1);
        return;
    }
    let letter = Arc::new(letter);
    if let Some(write_buffer) = store {
        write_buffer.record(Record::Letter(Arc::clone(&letter)));
    }
    letters.insert(letter, totals);
    letters.drop_oldest(limits, shards, totals, store);
}

/// Drops the oldest letters that are above the bounds: after another shard added some, or after the
/// bounds were lowered. Part of the housekeeping.
pub(crate) fn drop_oldest(core: &mut Core) {
    let (limits, shards) = (core.settings.letters, core.peers.shards());
    if limits.letters == 0 {
        // New letters are not stored, and the old ones stay until somebody deletes them.
        return;
    }
    let Core { dead_letters, durability, shared, .. } = core;
    dead_letters.stored.drop_oldest(limits, shards, &shared.totals, durability.write_buffer());
}

/// Removes a letter, and records its end in the open batch. Returns `None` if it is not there.
pub(crate) fn remove(place: LetterPlace, core: &mut Core) -> Option<Arc<StoredLetter>> {
    let Core { dead_letters, durability, shared, .. } = core;
    dead_letters.stored.remove(place, &shared.totals, durability.write_buffer())
}
