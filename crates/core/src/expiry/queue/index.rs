//! The registration of each slot: 16 bytes for each slot, in segments.
//!
//! Segments make growth free of copies, and an emptied stretch of slots returns to the allocator.

/// Slots in each segment: 16 KiB. A lone slot that comes and goes costs no more than one such
/// allocation.
pub(super) const SEGMENT: usize = 1024;

/// The registration of one slot.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))] // Four to a cache line, none across two.
pub(super) struct Cell {
    /// The number of the bucket, or [`Cell::LATE`], or the number of [`Cell::NOTHING`].
    pub tick: u64,
    /// The generation that is registered.
    pub generation: u32,
    /// The position of the slot in its bucket.
    pub position: u32,
}

impl Cell {
    /// Replaces the number of a bucket that was already polled. Smaller than all numbers, which
    /// count from 1.
    pub(super) const LATE: u64 = 0;
    /// Not registered: the number of a bucket that never comes.
    pub(super) const NOTHING: Cell = Cell { tick: u64::MAX, generation: 0, position: 0 };

    /// True if the slot is registered.
    pub(super) fn is_registered(self) -> bool {
        self.tick != Self::NOTHING.tick
    }
}

/// Registrations by slot. Takes 16 KiB for every 1,024 neighbours of which any is registered.
#[derive(Default)]
pub(super) struct Index {
    segments: Vec<Segment>,
}

#[derive(Default)]
struct Segment {
    /// [`SEGMENT`] cells, or none where none is registered.
    cells: Box<[Cell]>,
    registered: u32,
}

impl Index {
    /// Returns the registration of a slot, or [`Cell::NOTHING`].
    pub(super) fn cell(&self, slot: u32) -> Cell {
        let slot = slot as usize;
        let segment = self.segments.get(slot / SEGMENT);
        segment.and_then(|segment| segment.cells.get(slot % SEGMENT)).copied().unwrap_or(Cell::NOTHING)
    }

    /// Returns the cell of a slot that must be registered.
    pub(super) fn cell_mut(&mut self, slot: u32) -> &mut Cell {
        &mut self.segments[slot as usize / SEGMENT].cells[slot as usize % SEGMENT]
    }

    /// Registers a slot that must not be registered.
    pub(super) fn insert(&mut self, slot: u32, cell: Cell) {
        let number = slot as usize / SEGMENT;
        if self.segments.get(number).is_none_or(|segment| segment.registered == 0) {
            self.add_segment(number);
        }
        self.segments[number].registered += 1;
        *self.cell_mut(slot) = cell;
    }

    /// Removes the registration of a slot that must be registered.
    pub(super) fn remove(&mut self, slot: u32) {
        self.take_due(slot, u64::MAX);
    }

    /// Removes the registration of a slot if its bucket is `passed` or earlier, and returns its
    /// generation.
    pub(super) fn take_due(&mut self, slot: u32, passed: u64) -> Option<u32> {
        let segment = &mut self.segments[slot as usize / SEGMENT];
        let cell = &mut segment.cells[slot as usize % SEGMENT];
        if cell.tick > passed {
            return None;
        }
        let Cell { generation, .. } = std::mem::replace(cell, Cell::NOTHING);
        segment.registered -= 1;
        if segment.registered == 0 {
            segment.cells = Box::default();
        }
        Some(generation)
    }

    /// Returns every registration with its slot, in the order of the slots.
    pub(super) fn registered(&self) -> impl Iterator<Item = (u32, &Cell)> {
        self.registered_from(0, usize::MAX)
    }

    /// Returns the segment behind a stretch of `segments` segments from `first`; `None` if the
    /// index ends there.
    pub(super) fn stretch_end(&self, first: usize, segments: usize) -> Option<usize> {
        Some(first + segments).filter(|end| *end < self.segments.len())
    }

    /// Returns the registrations in `segments` segments from number `first` on, with their slots.
    pub(super) fn registered_from(
        &self,
        first: usize,
        segments: usize,
    ) -> impl Iterator<Item = (u32, &Cell)> {
        let segments = self.segments.iter().enumerate().skip(first).take(segments);
        let cells = segments.flat_map(|(number, segment)| {
            let first = number * SEGMENT;
            segment.cells.iter().enumerate().map(move |(at, cell)| ((first + at) as u32, cell))
        });
        cells.filter(|(_, cell)| cell.is_registered())
    }

    /// Returns the bytes that were requested from the allocator.
    pub(super) fn allocated(&self) -> usize {
        let cells: usize = self.segments.iter().map(|segment| size_of_val::<[Cell]>(&segment.cells)).sum();
        cells + self.segments.capacity() * size_of::<Segment>()
    }

    // A vector, not an array: inlined into `update`, an array makes every call probe a segment's
    // size of stack, which takes 60 ns.
    #[cold]
    fn add_segment(&mut self, number: usize) {
        if number >= self.segments.len() {
            self.segments.resize_with(number + 1, Segment::default);
        }
        self.segments[number].cells = vec![Cell::NOTHING; SEGMENT].into_boxed_slice();
    }
}
