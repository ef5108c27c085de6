//! Stored dead letters: each dead letter stays in its shard until an operator republishes or
//! deletes it, or until it is among the oldest and there is no room for it.
//!
//! A letter lives in the shard where its message was dropped, which is the shard of its receiver.
//! So a republication to the receiver needs no other shard. With a store, the letter is recorded in
//! the batch that records the end of the dropped message. All letters are also in memory, so a
//! listing reads nothing back.
//!
//! # Bounds
//!
//! `limits.dead_letters` and `limits.dead_letter_bytes` bound the letters of all shards together.
//! Each shard has an equal part of both bounds. A shard may hold more than its part while the
//! others hold less. When all letters together exceed a bound, the shards above their part drop
//! their oldest letters: at once if the new letter is their own, else at their housekeeping. The
//! part is one letter at least. Otherwise, under a bound below the number of shards, a shard would
//! drop its newest letter while another shard keeps older ones. A shard drops `DROPPED_AT_ONCE`
//! letters at once at most. The housekeeping of each second continues.

use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::persistence::letter::{LetterNumber, LetterPlace, StoredLetter};
use crate::persistence::records::Record;
use crate::persistence::write_buffer::WriteBuffer;
use crate::routing::subscription_tree::ShardSet;
use crate::shared::totals::{Total, Totals};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// The limits of stored dead letters, for all shards together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetterLimits {
    /// Maximum number of letters; 0 if none is stored.
    pub letters: usize,
    /// Maximum bytes.
    pub bytes: usize,
}

impl LetterLimits {
    /// Returns true if a letter of `bytes` bytes can be stored: it must fit the part of one of
    /// `shards` shards.
    pub(crate) fn admit(self, bytes: usize, shards: u8) -> bool {
        self.letters > 0 && bytes <= self.bytes / usize::from(shards.max(1))
    }
}

/// Bytes of an entry in the tree, if each node is half full.
const ENTRY: usize = 48;

/// Maximum number of letters that are dropped at once. More are above a bound only after the bound
/// was lowered.
const DROPPED_AT_ONCE: usize = 1_000;

/// The dead letters of one shard.
#[derive(Debug, Default)]
pub(crate) struct StoredLetters {
    letters: BTreeMap<LetterPlace, Arc<StoredLetter>>,
    /// The sum of [`StoredLetter::size`].
    bytes: usize,
    /// The last number. Only used without a store, because a store gives the numbers otherwise.
    next: u64,
    /// The charge of the tree and of the letters, without their messages.
    charge: Charge,
}

impl StoredLetters {
    /// Returns the letter at this place.
    pub(crate) fn find(&self, place: LetterPlace) -> Option<&Arc<StoredLetter>> {
        self.letters.get(&place)
    }

    /// Iterates over the letters before a place, the newest first; over all of them for `None`.
    pub(crate) fn newest_before(
        &self,
        place: Option<LetterPlace>,
    ) -> impl Iterator<Item = &Arc<StoredLetter>> {
        let letters = match place {
            Some(place) => self.letters.range(..place),
            None => self.letters.range(..),
        };
        letters.rev().map(|(_, letter)| letter)
    }

    /// Returns the time of the newest letter, in milliseconds since 1970; 0 without letters.
    pub(crate) fn newest_ms(&self) -> u64 {
        self.letters.last_key_value().map_or(0, |(place, _)| place.dropped_ms)
    }

    /// Adds the letters that were read at the start of the broker.
    pub(crate) fn recover(&mut self, letters: Vec<StoredLetter>, totals: &Totals) {
        for letter in letters {
            self.insert(Arc::new(letter), totals);
        }
    }

    /// Adds a letter, without a record.
    pub(crate) fn insert(&mut self, letter: Arc<StoredLetter>, totals: &Totals) {
        let size = letter.size();
        totals.letters.add(1);
        totals.letter_bytes.add(size);
        self.bytes += size;
        self.charge.add(letter.overhead() + ENTRY);
        self.letters.insert(letter.place, letter);
    }

    /// Removes a letter, and records its end.
    pub(crate) fn remove(
        &mut self,
        place: LetterPlace,
        totals: &Totals,
        store: Option<&Rc<WriteBuffer>>,
    ) -> Option<Arc<StoredLetter>> {
        let letter = self.letters.remove(&place)?;
        let size = letter.size();
        totals.letters.give_back(1);
        totals.letter_bytes.give_back(size);
        self.bytes -= size;
        self.charge.sub(letter.overhead() + ENTRY);
        if let Some(write_buffer) = store {
            write_buffer.record(Record::LetterDone(place.number));
        }
        Some(letter)
    }

    /// Drops and counts the oldest letters of this shard while all letters exceed a bound, and this
    /// shard exceeds its part of the same bound. Drops [`DROPPED_AT_ONCE`] letters at most.
    pub(crate) fn drop_oldest(
        &mut self,
        limits: LetterLimits,
        shards: u8,
        totals: &Totals,
        store: Option<&Rc<WriteBuffer>>,
    ) {
        let shards = usize::from(shards);
        let is_over = |all: &Total, own: usize, most: usize| all.get() > most && own * shards > most;
        for _ in 0..DROPPED_AT_ONCE {
            let has_older = self.letters.len() > 1;
            let is_above = has_older && is_over(&totals.letters, self.letters.len(), limits.letters)
                || is_over(&totals.letter_bytes, self.bytes, limits.bytes);
            let oldest = self.letters.first_key_value().map(|(place, _)| *place);
            // All letters are within the bounds.
            let Some(oldest) = oldest.filter(|_| is_above) else { return };
            self.remove(oldest, totals, store);
            totals.letters_dropped.add(1);
        }
    }

    /// Returns the number of the next letter of the shard `here`.
    pub(crate) fn next_number(&mut self, here: u8, store: Option<&Rc<WriteBuffer>>) -> LetterNumber {
        if let Some(write_buffer) = store {
            return write_buffer.letter_number();
        }
        self.next += 1;
        // As with a store: no two shards give the same number.
        LetterNumber(self.next * u64::from(ShardSet::MAX_SHARDS) + u64::from(here))
    }
}

/// Counts the letters without their messages, which have charges of their own.
impl Recount for StoredLetters {
    fn recount(&self) -> Recounted {
        let in_use = self.letters.values().map(|letter| letter.overhead() + ENTRY).sum();
        Recounted { in_use, charged: self.charge.bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::message::Message;
    use crate::mqtt::packet::QoS;

    fn letter(number: u64, dropped_ms: u64) -> StoredLetter {
        StoredLetter {
            place: LetterPlace { dropped_ms, number: LetterNumber(number) },
            receiver: "pump".into(),
            cause: "expired".into(),
            code: None,
            attempts: 0,
            sent_ms: None,
            message: Message::sample("t", QoS::AtLeastOnce, b"p"),
        }
    }

    fn numbers(letters: &StoredLetters) -> Vec<u64> {
        letters.newest_before(None).map(|letter| letter.place.number.0).collect()
    }

    /// The letters of two shards with a bound of four letters in all.
    struct TwoShards {
        totals: Totals,
        shards: [StoredLetters; 2],
        next: u64,
    }

    impl TwoShards {
        fn add(&mut self, shard: usize) {
            self.next += 1;
            self.shards[shard].insert(Arc::new(letter(self.next, self.next)), &self.totals);
            self.housekeeping(shard);
        }

        fn housekeeping(&mut self, shard: usize) {
            let limits = LetterLimits { letters: 4, bytes: usize::MAX };
            self.shards[shard].drop_oldest(limits, 2, &self.totals, None);
        }
    }

    #[test]
    fn the_oldest_letter_goes_first_and_is_counted() {
        let mut both = TwoShards { totals: Totals::default(), shards: Default::default(), next: 0 };
        (0..6).for_each(|_| both.add(0));
        assert_eq!(numbers(&both.shards[0]), [6, 5, 4, 3], "a shard alone may use the whole bound");
        assert_eq!((both.totals.letters.get(), both.totals.letters_dropped.get()), (4, 2));
    }

    #[test]
    fn a_shard_above_its_part_makes_room_for_the_others_at_its_housekeeping() {
        let mut both = TwoShards { totals: Totals::default(), shards: Default::default(), next: 0 };
        (0..4).for_each(|_| both.add(0));
        (0..3).for_each(|_| both.add(1));
        assert_eq!(numbers(&both.shards[1]), [7, 6], "its part is two");
        both.housekeeping(0);
        assert_eq!(numbers(&both.shards[0]), [4, 3]);
        assert_eq!(both.totals.letters.get(), 4);
        both.housekeeping(1);
        assert_eq!(both.totals.letters.get(), 4, "nothing goes within the bound");
    }

    #[test]
    fn a_new_letter_stays_though_the_bound_has_no_part_for_its_shard() {
        let (totals, limits) = (Totals::default(), LetterLimits { letters: 1, bytes: usize::MAX });
        let mut shards: [StoredLetters; 2] = Default::default();
        for (shard, number) in [(0, 1), (1, 2), (1, 3)] {
            shards[shard].insert(Arc::new(letter(number, number)), &totals);
            shards[shard].drop_oldest(limits, 2, &totals, None);
        }
        assert_eq!((numbers(&shards[0]), numbers(&shards[1])), (vec![1], vec![3]));
    }

    #[test]
    fn many_letters_above_a_lowered_bound_are_dropped_in_portions() {
        let (totals, mut letters) = (Totals::default(), StoredLetters::default());
        letters.recover((1..=2_500).map(|number| letter(number, number)).collect(), &totals);
        let limits = LetterLimits { letters: 100, bytes: usize::MAX };
        for left in [1_500, 500, 100, 100] {
            letters.drop_oldest(limits, 1, &totals, None);
            assert_eq!((letters.letters.len(), totals.letters_dropped.get()), (left, 2_500 - left));
        }
        assert_eq!(numbers(&letters).last(), Some(&2_401), "the newest stay");
    }

    #[test]
    fn letters_are_bounded_in_bytes_too() {
        let (totals, mut letters) = (Totals::default(), StoredLetters::default());
        let size = letter(1, 1).size();
        letters.recover((1..=5).map(|number| letter(number, number)).collect(), &totals);
        let limits = LetterLimits { letters: 100, bytes: 3 * size };
        letters.drop_oldest(limits, 1, &totals, None);
        assert_eq!((numbers(&letters), totals.letter_bytes.get()), (vec![5, 4, 3], 3 * size));
        assert!(limits.admit(3 * size, 1) && !limits.admit(3 * size, 2));
        assert!(!LetterLimits { letters: 0, bytes: size }.admit(1, 1), "off");
    }

    #[test]
    fn letters_stand_by_time_and_the_charge_follows_them() {
        let (totals, mut letters) = (Totals::default(), StoredLetters::default());
        letters.recover(vec![letter(1, 30), letter(2, 10), letter(3, 20)], &totals);
        assert_eq!(numbers(&letters), [1, 3, 2]);
        let before = LetterPlace { dropped_ms: 20, number: LetterNumber(3) };
        assert_eq!(letters.newest_before(Some(before)).count(), 1, "the letter itself is not before it");
        assert!(letters.remove(before, &totals, None).is_some());
        assert!(letters.find(before).is_none() && letters.remove(before, &totals, None).is_none());
        let Recounted { in_use, charged } = letters.recount();
        assert_eq!(in_use, charged);
        assert_eq!(totals.letters.get(), 2);
    }

    #[test]
    fn without_a_store_no_two_shards_give_the_same_number() {
        let mut letters = StoredLetters::default();
        let first = letters.next_number(3, None);
        assert_eq!((first.0 % 64, letters.next_number(3, None) > first), (3, true));
    }
}
