//! A hash table whose changes take a bounded time, however many entries it has.
//!
//! A plain hash table that grows or shrinks moves all of its entries in one step. With 1,000,000
//! entries this step takes 30 to 270 ms. A split table moves at most about 6,400 entries in a step:
//!
//! - Up to `ALONE` entries are in one plain table. A look-up costs one branch more than in a plain
//!   table.
//! - More entries are in several plain tables, the *parts*. The hash says which part has an entry.
//! - Each time that the parts have `PART` entries each on average, one part is split in two. If
//!   they have a quarter of this, two parts are merged into one. The parts are split in their
//!   order, and merged in the opposite order. So the number of parts says which parts are split
//!   already, and no list is needed. This method is known as linear hashing.
//!
//! Small tables have one more advantage over one large table. The allocator returns the pages of a
//! table that was freed to the kernel. For a table of 100 MB this takes 10 ms.
//!
//! The table does not hash its entries. The caller passes the hash, as for
//! [`hashbrown::HashTable`].

use hashbrown::HashTable;

/// The largest mean number of entries of a part. A part that is next to be split has twice as many
/// entries: 3,200 on average, and hardly ever more than 3,584, for which 4,096 buckets suffice. To
/// split such a part of the largest tables takes 0.3 to 0.8 ms.
const PART: usize = 1_600;

/// The smallest number of parts.
const FEWEST: usize = 4;

/// The largest number of entries of a table without parts. These entries fit in 8,192 buckets. To
/// make the first parts takes 0.3 to 1.2 ms.
const ALONE: usize = FEWEST * PART;

/// Tables of no more than this capacity are not shrunk.
const SMALL: usize = 64;

/// The entries, found by a 64-bit hash.
#[derive(Debug)]
pub(super) struct SplitTable<T> {
    /// All entries, if there are no parts; else empty.
    alone: HashTable<T>,
    /// The parts: none, or at least [`FEWEST`].
    parts: Vec<HashTable<T>>,
    /// The smallest number of the form 2^n - 1 that is no less than the index of the last part.
    mask: usize,
    /// The number of entries.
    len: usize,
    /// The bytes that the tables have allocated.
    bytes: usize,
}

impl<T> Default for SplitTable<T> {
    fn default() -> SplitTable<T> {
        SplitTable { alone: HashTable::new(), parts: Vec::new(), mask: 0, len: 0, bytes: 0 }
    }
}

/// Returns the bits of a hash that choose the part. Within a part, the table uses the lowest bits
/// and the highest 7 bits.
fn part_bits(hash: u64) -> usize {
    (hash >> 24) as usize
}

impl<T> SplitTable<T> {
    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is no entry.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the entry with this hash for which `is_it` is true.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<&T> {
        let table = if self.parts.is_empty() { &self.alone } else { self.parts.get(self.part_of(hash))? };
        table.find(hash, is_it)
    }

    /// Returns the same to change it. The change must not affect the hash.
    pub(super) fn find_mut(&mut self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<&mut T> {
        let at = self.part_of(hash);
        self.parts.get_mut(at).unwrap_or(&mut self.alone).find_mut(hash, is_it)
    }

    /// Returns the entry with this hash for which `is_it` is true. Otherwise inserts the entry that
    /// `new` makes, and returns it. `hasher` returns the hash of an entry. The tables grow only if
    /// an entry is inserted.
    pub(super) fn entry(
        &mut self,
        hash: u64,
        is_it: impl Fn(&T) -> bool,
        hasher: impl Fn(&T) -> u64,
        new: impl FnOnce() -> T,
    ) -> &mut T {
        if self.find(hash, &is_it).is_none() {
            self.make_room(hash, &hasher);
        }
        let at = self.part_of(hash);
        let table = self.parts.get_mut(at).unwrap_or(&mut self.alone);
        match table.find_entry(hash, is_it) {
            Ok(entry) => entry.into_mut(),
            Err(absent) => {
                self.len += 1;
                absent.into_table().insert_unique(hash, new(), hasher).into_mut()
            }
        }
    }

    /// Inserts an entry. The caller knows that no entry is equal to it.
    pub(super) fn insert_unique(&mut self, hash: u64, value: T, hasher: impl Fn(&T) -> u64) {
        self.make_room(hash, &hasher);
        let at = self.part_of(hash);
        self.parts.get_mut(at).unwrap_or(&mut self.alone).insert_unique(hash, value, hasher);
        self.len += 1;
    }

    /// Removes the entry with this hash for which `is_it` is true, and returns it.
    pub(super) fn remove(
        &mut self,
        hash: u64,
        is_it: impl FnMut(&T) -> bool,
        hasher: impl Fn(&T) -> u64,
    ) -> Option<T> {
        let at = self.part_of(hash);
        let table = self.parts.get_mut(at).unwrap_or(&mut self.alone);
        let (removed, _) = table.find_entry(hash, is_it).ok()?.remove();
        if table.capacity() > SMALL && table.len() * 4 <= table.capacity() {
            let before = table.allocation_size();
            table.shrink_to(table.len() * 2, &hasher);
            self.bytes -= before - table.allocation_size();
        }
        self.len -= 1;
        if self.parts.len() > FEWEST && self.len * 4 < self.parts.len() * PART {
            self.merge_last(hasher);
        } else if !self.parts.is_empty() && self.len <= PART {
            self.merge_all(hasher);
        }
        Some(removed)
    }

    /// Returns every entry, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.alone.iter().chain(self.parts.iter().flatten())
    }

    /// Returns the bytes on the heap without those that entries own. Costs nothing.
    pub(super) fn memory(&self) -> usize {
        self.bytes + self.parts.capacity() * size_of::<HashTable<T>>()
    }

    /// Counts the same bytes anew.
    pub(super) fn recount(&self) -> usize {
        let parts = self.parts.iter().map(HashTable::allocation_size).sum::<usize>();
        self.alone.allocation_size() + parts + self.parts.capacity() * size_of::<HashTable<T>>()
    }

    /// Returns the index of the part that has the entries with this hash. Returns 0 if there are no
    /// parts.
    fn part_of(&self, hash: u64) -> usize {
        let at = part_bits(hash) & self.mask;
        // The parts beyond the last are not split off yet.
        if at < self.parts.len() { at } else { at & (self.mask >> 1) }
    }

    /// Makes room for one more entry with this hash.
    fn make_room(&mut self, hash: u64, hasher: impl Fn(&T) -> u64) {
        self.make_parts(&hasher);
        let at = self.part_of(hash);
        let table = self.parts.get_mut(at).unwrap_or(&mut self.alone);
        let before = table.allocation_size();
        table.reserve(1, hasher);
        self.bytes += table.allocation_size() - before;
    }

    /// Makes parts or splits one, if there are too many entries.
    fn make_parts(&mut self, hasher: impl Fn(&T) -> u64) {
        if self.parts.is_empty() {
            if self.len >= ALONE {
                let entries = std::mem::take(&mut self.alone);
                self.bytes -= entries.allocation_size();
                self.mask = FEWEST - 1;
                self.parts = self.distribute(entries, FEWEST, |hash| part_bits(hash) % FEWEST, hasher);
            }
        } else if self.len >= self.parts.len() * PART {
            self.split_next(hasher);
        }
    }

    /// Splits the next part in order: moves about half of its entries to a new part.
    fn split_next(&mut self, hasher: impl Fn(&T) -> u64) {
        let new = self.parts.len();
        self.mask = (new + 1).next_power_of_two() - 1;
        let old = new & (self.mask >> 1);
        let mask = self.mask;
        let entries = self.parts.get_mut(old).map(std::mem::take).unwrap_or_default();
        self.bytes -= entries.allocation_size();
        let to = |hash| usize::from(part_bits(hash) & mask == new);
        let mut halves = self.distribute(entries, 2, to, hasher);
        self.parts.append(&mut halves.split_off(1));
        self.parts[old] = halves.remove(0);
    }

    /// Moves the entries of a table to `count` new tables, and counts the bytes of these. `to`
    /// returns the index of the table for a hash.
    fn distribute(
        &mut self,
        entries: HashTable<T>,
        count: usize,
        to: impl Fn(u64) -> usize,
        hasher: impl Fn(&T) -> u64,
    ) -> Vec<HashTable<T>> {
        // The shares are not equal. Of 3,200 entries the larger half has hardly ever more than
        // 1,700. The 2,048 buckets for so many entries have room for 1,792.
        let room = entries.len() * 17 / 16 / count;
        let mut tables: Vec<_> = (0..count).map(|_| HashTable::with_capacity(room)).collect();
        for entry in entries {
            let hash = hasher(&entry);
            tables[to(hash)].insert_unique(hash, entry, &hasher);
        }
        self.bytes += tables.iter().map(HashTable::allocation_size).sum::<usize>();
        tables
    }

    /// Merges the last part into the part that it was split from.
    fn merge_last(&mut self, hasher: impl Fn(&T) -> u64) {
        let Some(last) = self.parts.pop() else { return };
        let into = self.parts.len() & (self.mask >> 1);
        self.mask = self.parts.len().next_power_of_two() - 1;
        let part = &mut self.parts[into];
        self.bytes -= last.allocation_size() + part.allocation_size();
        part.reserve(last.len(), &hasher);
        for entry in last {
            part.insert_unique(hasher(&entry), entry, &hasher);
        }
        self.bytes += part.allocation_size();
        if self.parts.len() * 4 <= self.parts.capacity() {
            self.parts.shrink_to(self.parts.len() * 2);
        }
    }

    /// Moves the entries of all parts to one table.
    fn merge_all(&mut self, hasher: impl Fn(&T) -> u64) {
        let mut alone = HashTable::with_capacity(self.len);
        for entry in std::mem::take(&mut self.parts).into_iter().flatten() {
            alone.insert_unique(hasher(&entry), entry, &hasher);
        }
        self.bytes = alone.allocation_size();
        self.alone = alone;
        self.mask = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::collections::BTreeSet;

    /// Spreads a number over the bits that a table uses.
    fn hash(n: &u32) -> u64 {
        u64::from(*n).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    fn insert(table: &mut SplitTable<u32>, n: u32) {
        table.insert_unique(hash(&n), n, hash);
    }

    fn remove(table: &mut SplitTable<u32>, n: u32) -> Option<u32> {
        table.remove(hash(&n), |m| *m == n, hash)
    }

    /// A table hashes each entry that it moves. So the calls of the hasher count the moves.
    #[test]
    fn no_change_moves_more_entries_than_a_small_table_has() {
        const MANY: u32 = 200_000;
        let moves = Cell::new(0);
        let hasher = |n: &u32| {
            moves.set(moves.get() + 1);
            hash(n)
        };
        let mut table = SplitTable::default();
        let (mut most, mut most_of_parts) = (0, 0);
        for n in 0..2 * MANY {
            let had_parts = !table.parts.is_empty();
            if n < MANY {
                table.insert_unique(hash(&n), n, hasher);
            } else {
                assert_eq!(table.remove(hash(&(n - MANY)), |m| *m == n - MANY, hasher), Some(n - MANY));
            }
            let moved = moves.take();
            most = most.max(moved);
            most_of_parts = if had_parts { most_of_parts.max(moved) } else { most_of_parts };
        }
        assert!(most <= ALONE + 1, "{most} entries moved at once");
        assert!(most_of_parts <= 5_000, "{most_of_parts} entries moved at once");
        assert!(table.is_empty() && table.parts.is_empty() && table.memory() < 2_048, "{} B", table.memory());
    }

    #[test]
    fn entries_that_come_and_go_make_a_table_at_most_twice_as_large() {
        let mut table = SplitTable::default();
        (0..100_000).for_each(|n| insert(&mut table, n));
        let full = table.memory();
        for n in 0..300_000 {
            assert_eq!(remove(&mut table, n), Some(n));
            insert(&mut table, n + 100_000);
        }
        assert!(table.memory() <= full * 2 && table.len() == 100_000, "{} of {full}", table.memory());
        assert_eq!(table.memory(), table.recount());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn any_row_of_changes_leaves_what_the_model_has(
            begin in prop::sample::select(vec![0_u32, 3_500, 6_300, 6_500, 30_000]),
            steps in prop::collection::vec((0..40_000_u32, 0..3_u8), 0..400),
            removed in 0..30_000_u32,
        ) {
            let mut table = SplitTable::default();
            (0..begin).for_each(|n| insert(&mut table, n));
            let mut model: BTreeSet<_> = (0..begin).collect();
            for n in 0..removed {
                prop_assert_eq!(remove(&mut table, n).is_some(), model.remove(&n));
            }
            for (n, step) in steps {
                if step == 0 {
                    prop_assert_eq!(remove(&mut table, n).is_some(), model.remove(&n));
                } else {
                    prop_assert_eq!(*table.entry(hash(&n), |m| *m == n, hash, || n), n);
                    model.insert(n);
                }
                prop_assert_eq!(table.find(hash(&n), |m| *m == n).is_some(), model.contains(&n));
                let memory = table.memory();
                if model.contains(&n) {
                    prop_assert_eq!(*table.entry(hash(&n), |m| *m == n, hash, || 0), n);
                }
                prop_assert_eq!(table.memory(), memory, "an entry that is there costs nothing");
                prop_assert_eq!(table.find_mut(hash(&n), |m| *m == n).is_some(), model.contains(&n));
                prop_assert_eq!((table.len(), table.memory()), (model.len(), table.recount()));
            }
            prop_assert_eq!(table.iter().copied().collect::<BTreeSet<_>>(), model);
        }
    }
}
