//! The sequence numbers that have arrived, as one number and some bits.
//!
//! Everything below `base` has arrived, so a stream without gaps costs one number. A stream with a
//! gap costs one bit for each message after the gap, at most [`SPAN`] bits. Beyond that the gap is
//! closed. A message that arrives later in a closed gap counts as repeated.

use std::collections::VecDeque;

/// Maximum number of bits behind the oldest gap: 128 KiB.
const SPAN: u64 = 1 << 20;

/// The sequence numbers that have arrived.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// All numbers below have arrived, or their gap was closed. A multiple of 64.
    base: u64,
    bits: VecDeque<u64>,
    /// The number after the highest that has arrived.
    end: u64,
}

impl Seen {
    /// Returns the number after the highest that has arrived.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Records a number. Returns true if the number has not arrived before.
    pub(crate) fn insert(&mut self, sequence: u64) -> bool {
        self.end = self.end.max(sequence.saturating_add(1));
        let Some(offset) = sequence.checked_sub(self.base) else { return false };
        let (word, bit) = (offset / 64, 1_u64 << (offset % 64));
        if word >= SPAN / 64 {
            self.forget(word - SPAN / 64 + 1);
            return self.insert(sequence);
        }
        let word = usize::try_from(word).unwrap_or(usize::MAX);
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        let Some(bits) = self.bits.get_mut(word) else { return false };
        if *bits & bit != 0 {
            return false;
        }
        *bits |= bit;
        while self.bits.front() == Some(&u64::MAX) {
            self.forget(1);
        }
        true
    }

    fn forget(&mut self, words: u64) {
        for _ in 0..words.min(self.bits.len() as u64) {
            self.bits.pop_front();
        }
        self.base += words * 64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn an_orderly_stream_takes_no_room() {
        let mut seen = Seen::default();
        for sequence in 0..100_000 {
            assert!(seen.insert(sequence));
            assert!(!seen.insert(sequence));
        }
        assert!(seen.bits.len() <= 1);
    }

    #[test]
    fn a_hole_is_forgotten_when_it_is_too_old() {
        let mut seen = Seen::default();
        for sequence in 1..3 * SPAN {
            assert!(seen.insert(sequence));
        }
        assert!(seen.bits.len() as u64 <= SPAN / 64);
        assert!(!seen.insert(0), "too late to tell");
        assert!(seen.insert(u64::MAX / 2), "and a far jump costs no more");
        assert!(seen.bits.len() as u64 <= SPAN / 64);
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_set(sequences in proptest::collection::vec(0_u64..500, 0..1000)) {
            let (mut seen, mut set) = (Seen::default(), HashSet::new());
            for sequence in sequences {
                prop_assert_eq!(seen.insert(sequence), set.insert(sequence));
            }
        }
    }
}
