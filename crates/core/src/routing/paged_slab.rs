//! Values in numbered places, whose changes take a bounded time.
//!
//! A plain vector that grows copies all of its values in one step. A vector with many free places
//! can shrink only if the values get new numbers. A paged slab avoids both in this way:
//!
//! - The first `NEAR` places are a plain vector, whose growth takes less than 0.1 ms. A look-up is
//!   as fast as in a plain vector. The vector is freed with the last value.
//! - Further places are in pages of 128. A page with many values has one for each place, with the
//!   default value in free places. A look-up costs one load more. A page with few values has them
//!   without gaps, so that it takes little memory. Then a look-up also counts the bits that tell
//!   which lower places are in use.
//! - So a change moves at most 128 values, a removal frees memory, and a value keeps its number.
//!
//! Beside its values, the slab takes 64 bytes for each page until the last value is removed.

use std::ops::{Index, IndexMut};

/// Places that are in no page.
const NEAR: usize = 2_048;

/// Places in a page: the bits of a `u128`.
const PLACES: usize = 128;

/// A page with all places that has no more values becomes a page without gaps.
const FEW: usize = PLACES / 4;

/// The end of the list of pages with free places.
const END: u32 = u32::MAX;

/// Values by number. A new value gets the number of a free place, or the next number.
#[derive(Debug)]
pub(super) struct PagedSlab<T> {
    /// The values of the first places. A free place has the default value.
    near: Vec<T>,
    /// The numbers of free places in `near`.
    free: Vec<u32>,
    /// The values of the further places, a vector for each page. A vector of [`PLACES`] values has
    /// one for each place.
    pages: Vec<Vec<T>>,
    /// The places in use of each page. This list is apart from the values, because a look-up
    /// in a full page does not need it.
    places: Vec<Places>,
    /// The first page with free places, or [`END`].
    open: u32,
    /// The number of values.
    len: usize,
    /// The bytes that the pages have allocated for values.
    bytes: usize,
}

impl<T> Default for PagedSlab<T> {
    fn default() -> PagedSlab<T> {
        PagedSlab {
            near: Vec::new(),
            free: Vec::new(),
            pages: Vec::new(),
            places: Vec::new(),
            open: END,
            len: 0,
            bytes: 0,
        }
    }
}

/// The places of one page.
#[derive(Debug)]
struct Places {
    /// A bit for each place in use, the lowest for the first place.
    used: u128,
    /// The next page with free places, or [`END`].
    next_open: u32,
}

impl Places {
    fn is_used(&self, place: usize) -> bool {
        self.used >> place & 1 == 1
    }

    /// Returns the index of a place's value: the number of places in use below it.
    fn index(&self, place: usize) -> usize {
        (self.used & ((1 << place) - 1)).count_ones() as usize
    }
}

/// Returns the page of a number beyond the first places, and the place in the page.
fn place_of(number: u32) -> (usize, usize) {
    let beyond = (number as usize).wrapping_sub(NEAR);
    (beyond / PLACES, beyond % PLACES)
}

fn allocated<T>(page: &Vec<T>) -> usize {
    page.capacity() * size_of::<T>()
}

impl<T: Default> PagedSlab<T> {
    /// Returns the number of values.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is no value.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Inserts a value, and returns its number. The first value of an empty slab gets the number 0.
    pub(super) fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        if let Some(number) = self.free.pop() {
            self.near[number as usize] = value;
            return number;
        }
        if self.near.len() < NEAR {
            self.near.push(value);
            return (self.near.len() - 1) as u32;
        }
        self.insert_in_page(value)
    }

    fn insert_in_page(&mut self, value: T) -> u32 {
        if self.open == END {
            self.open = self.pages.len() as u32;
            self.pages.push(Vec::new());
            self.places.push(Places { used: 0, next_open: END });
        }
        let at = self.open as usize;
        let (page, places) = (&mut self.pages[at], &mut self.places[at]);
        // All places below the first free place are in use, so it is also the index.
        let place = places.used.trailing_ones() as usize;
        let before = allocated(page);
        if page.len() == PLACES {
            page[place] = value;
        } else {
            page.insert(place, value);
        }
        places.used |= 1 << place;
        self.bytes += allocated(page) - before;
        if places.used == u128::MAX {
            self.open = places.next_open;
        }
        // Less than 2^32, because a value takes at least 8 bytes of memory.
        (NEAR + at * PLACES + place) as u32
    }

    /// Removes the value of a number that is in use, and returns it.
    pub(super) fn remove(&mut self, number: u32) -> T {
        let removed = if (number as usize) < NEAR {
            self.free.push(number);
            std::mem::take(&mut self.near[number as usize])
        } else {
            self.remove_from_page(number)
        };
        self.len -= 1;
        if self.len == 0 {
            *self = PagedSlab::default();
        }
        removed
    }

    fn remove_from_page(&mut self, number: u32) -> T {
        let (at, place) = place_of(number);
        let (page, places) = (&mut self.pages[at], &mut self.places[at]);
        if places.used == u128::MAX {
            places.next_open = self.open;
            self.open = at as u32;
        }
        let before = allocated(page);
        let index = if page.len() == PLACES { place } else { places.index(place) };
        places.used &= !(1 << place);
        let removed = if page.len() < PLACES { page.remove(index) } else { std::mem::take(&mut page[index]) };
        if page.len() == PLACES && places.used.count_ones() as usize <= FEW {
            let mut place = 0;
            page.retain(|_| {
                place += 1;
                places.is_used(place - 1)
            });
        }
        if page.len() * 4 <= page.capacity() {
            page.shrink_to(page.len() * 2);
        }
        self.bytes -= before - allocated(page);
        removed
    }

    /// Returns the value of a number. For a free place, returns `None` or a default value.
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        if (number as usize) < NEAR {
            return self.near.get(number as usize);
        }
        let (page, place) = place_of(number);
        self.places.get(page).filter(|places| places.is_used(place))?;
        self.pages.get(page)?.get(self.index_in_page(page, place))
    }

    /// Returns the same to change it.
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        if (number as usize) < NEAR {
            return self.near.get_mut(number as usize);
        }
        let (page, place) = place_of(number);
        self.places.get(page).filter(|places| places.is_used(place))?;
        let index = self.index_in_page(page, place);
        self.pages.get_mut(page)?.get_mut(index)
    }

    /// Returns a number above all that are in use.
    pub(super) fn end(&self) -> u32 {
        let places = if self.pages.is_empty() { self.near.len() } else { NEAR + self.pages.len() * PLACES };
        u32::try_from(places).unwrap_or(u32::MAX)
    }

    /// Returns every value in the order of the numbers, and a default value for some free places.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.near.iter().chain(self.pages.iter().flatten())
    }

    /// Returns the bytes on the heap without those that values own. Costs nothing.
    pub(super) fn memory(&self) -> usize {
        self.bytes + self.vectors()
    }

    /// Counts the same bytes anew.
    pub(super) fn recount(&self) -> usize {
        let values = self.pages.iter().map(allocated).sum::<usize>();
        values + self.vectors()
    }

    fn vectors(&self) -> usize {
        self.near.capacity() * size_of::<T>()
            + self.free.capacity() * size_of::<u32>()
            + self.pages.capacity() * size_of::<Vec<T>>()
            + self.places.capacity() * size_of::<Places>()
    }

    /// Returns the value of a place in a page. Not inlined, so that it takes no registers from the
    /// look-up of the first places.
    #[inline(never)]
    fn in_page(&self, number: u32) -> &T {
        let (page, place) = place_of(number);
        &self.pages[page][self.index_in_page(page, place)]
    }

    /// Returns the index in its page of a place's value.
    fn index_in_page(&self, page: usize, place: usize) -> usize {
        if self.pages[page].len() == PLACES { place } else { self.places[page].index(place) }
    }
}

/// Panics if the number is not in use.
impl<T: Default> Index<u32> for PagedSlab<T> {
    type Output = T;

    #[inline]
    fn index(&self, number: u32) -> &T {
        match self.near.get(number as usize) {
            Some(value) => value,
            None => self.in_page(number),
        }
    }
}

/// Panics if the number is not in use.
impl<T: Default> IndexMut<u32> for PagedSlab<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        if (number as usize) < NEAR {
            return &mut self.near[number as usize];
        }
        let (page, place) = place_of(number);
        let index = self.index_in_page(page, place);
        &mut self.pages[page][index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const MANY: u32 = 200_000;

    #[test]
    fn no_vector_of_values_grows_beyond_its_bound() {
        let mut slab = PagedSlab::default();
        for n in 0..MANY {
            assert_eq!(slab.insert(u64::from(n)), n);
        }
        // A vector that grows or loses a value moves no more values than it has.
        assert!(slab.near.capacity() <= NEAR);
        assert!(slab.pages.iter().all(|page| page.capacity() <= PLACES));
        assert!((0..MANY).all(|n| slab[n] == u64::from(n)));
        // 56 bytes a page, and the vectors of pages may be half full.
        let values = MANY as usize * size_of::<u64>();
        assert!(slab.memory() < values + MANY as usize / PLACES * 2 * 64 + NEAR * 8, "{}", slab.memory());
    }

    #[test]
    fn values_keep_their_numbers_and_free_places_are_used_again() {
        let mut slab = PagedSlab::default();
        (0..MANY).for_each(|n| _ = slab.insert(u64::from(n)));
        let full = slab.memory();
        for n in (0..MANY).filter(|n| n % 100 != 7) {
            assert_eq!(slab.remove(n), u64::from(n));
        }
        assert!(slab.memory() < full / 5, "{} of {full}", slab.memory());
        for n in (0..MANY).filter(|n| n % 100 == 7) {
            assert_eq!((slab[n], slab.get(n)), (u64::from(n), Some(&u64::from(n))));
        }
        let again: Vec<_> = (0..MANY - MANY / 100).map(|_| slab.insert(1)).collect();
        assert!(again.iter().all(|n| *n < MANY && n % 100 != 7) && slab.len() == MANY as usize);
        (0..MANY).for_each(|n| _ = slab.remove(n));
        assert_eq!((slab.len(), slab.memory()), (0, 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_row_of_changes_leaves_what_the_model_has(
            begin in prop::sample::select(vec![0_usize, NEAR - 3, NEAR + 300]),
            steps in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..300),
        ) {
            let mut slab = PagedSlab::default();
            let mut model = BTreeMap::new();
            for value in 1..=begin as u64 {
                model.insert(slab.insert(value), value);
            }
            for (value, (index, is_insertion)) in (1_000_000..).zip(steps) {
                if is_insertion || model.is_empty() {
                    prop_assert_eq!(model.insert(slab.insert(value), value), None);
                } else {
                    // Mostly of the pages, whose values move.
                    let numbers: Vec<_> = model.keys().rev().take(400).copied().collect();
                    let number = *index.get(&numbers);
                    prop_assert_eq!(Some(slab.remove(number)), model.remove(&number));
                    prop_assert_eq!(slab.get(number).copied().unwrap_or_default(), 0);
                }
                prop_assert_eq!(slab.memory(), slab.recount());
            }
            prop_assert_eq!(slab.len(), model.len());
            for (number, value) in model {
                prop_assert_eq!(slab[number], value);
                slab[number] += 1;
                prop_assert_eq!(slab.get_mut(number).copied(), Some(value + 1));
            }
        }
    }
}
