//! Where each slot is registered: sixteen bytes a slot, in segments, so that growing copies nothing and emptied
//! stretches of slots go back to the allocator.

/// Slots per segment: 16 KiB, so that a lone slot that comes and goes costs no more than that to make.
pub(super) const SEGMENT: usize = 1024;

/// One slot's registration.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))] // Four to a cache line, none across two.
pub(super) struct Cell {
    /// The number of the bucket, or [`Cell::LATE`], or that of [`Cell::NOTHING`].
    pub tick: u64,
    pub generation: u32,
    /// In the bucket.
    pub position: u32,
}

impl Cell {
    /// Instead of the number of a bucket already polled: before all others, which count from 1.
    pub const LATE: u64 = 0;
    /// Not registered: in the bucket that never comes.
    pub const NOTHING: Cell = Cell { tick: u64::MAX, generation: 0, position: 0 };

    pub fn is_registered(self) -> bool {
        self.tick != Self::NOTHING.tick
    }
}

/// Registration by slot. Its bound is 16 KiB for every 1,024 neighbours any of which is registered.
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
    pub fn cell(&self, slot: u32) -> Cell {
        let slot = slot as usize;
        let segment = self.segments.get(slot / SEGMENT);
        segment.and_then(|segment| segment.cells.get(slot % SEGMENT)).copied().unwrap_or(Cell::NOTHING)
    }

    /// The cell of a registered slot.
    pub fn cell_mut(&mut self, slot: u32) -> &mut Cell {
        &mut self.segments[slot as usize / SEGMENT].cells[slot as usize % SEGMENT]
    }

    /// Registers a slot that is not.
    pub fn insert(&mut self, slot: u32, cell: Cell) {
        let number = slot as usize / SEGMENT;
        if self.segments.get(number).is_none_or(|segment| segment.registered == 0) {
            self.add_segment(number);
        }
        self.segments[number].registered += 1;
        *self.cell_mut(slot) = cell;
    }

    /// Forgets a registered slot.
    pub fn remove(&mut self, slot: u32) {
        self.take_due(slot, u64::MAX);
    }

    /// Forgets a registered slot if its bucket is no later than `passed`; answers its generation.
    pub fn take_due(&mut self, slot: u32, passed: u64) -> Option<u32> {
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

    /// Every registration with its slot, in the order of the slots.
    pub fn registered(&self) -> impl Iterator<Item = (u32, &Cell)> {
        self.registered_from(0, usize::MAX)
    }

    /// Where the stretch of slots ends that begins with segment `first` and has so many; nothing if there are no more after it.
    pub fn stretch_end(&self, first: usize, segments: usize) -> Option<usize> {
        Some(first + segments).filter(|end| *end < self.segments.len())
    }

    /// Those in so many segments from the one of this number on.
    pub fn registered_from(&self, first: usize, segments: usize) -> impl Iterator<Item = (u32, &Cell)> {
        let segments = self.segments.iter().enumerate().skip(first).take(segments);
        let cells = segments.flat_map(|(number, segment)| {
            let first = number * SEGMENT;
            segment.cells.iter().enumerate().map(move |(at, cell)| ((first + at) as u32, cell))
        });
        cells.filter(|(_, cell)| cell.is_registered())
    }

    /// Bytes allocated, as asked of the allocator.
    pub fn allocated(&self) -> usize {
        let cells: usize = self.segments.iter().map(|segment| size_of_val::<[Cell]>(&segment.cells)).sum();
        cells + self.segments.capacity() * size_of::<Segment>()
    }

    // An array instead of a vector, inlined into `update`, has every call probe a segment's worth of stack: 60 ns.
    #[cold]
    fn add_segment(&mut self, number: usize) {
        if number >= self.segments.len() {
            self.segments.resize_with(number + 1, Segment::default);
        }
        self.segments[number].cells = vec![Cell::NOTHING; SEGMENT].into_boxed_slice();
    }
}
