//! Where the entry of each slot is: four bytes a slot, in segments, so that growing copies nothing.

use super::lists::NONE;

/// Slots per segment: 16 KiB, made when a slot in it is first registered.
const SEGMENT: usize = 4096;

/// Location by slot. Never shrinks: its bound is the highest slot ever used, four bytes for each.
#[derive(Default)]
pub(super) struct Positions {
    segments: Vec<Option<Box<[u32; SEGMENT]>>>,
}

impl Positions {
    /// [`NONE`] if the slot has no entry.
    pub fn of(&self, slot: u32) -> u32 {
        let slot = slot as usize;
        match self.segments.get(slot / SEGMENT) {
            Some(Some(segment)) => segment[slot % SEGMENT],
            _ => NONE,
        }
    }

    pub fn set(&mut self, slot: u32, location: u32) {
        let slot = slot as usize;
        if slot / SEGMENT >= self.segments.len() {
            self.segments.resize(slot / SEGMENT + 1, None);
        }
        let segment = self.segments[slot / SEGMENT].get_or_insert_with(|| Box::new([NONE; SEGMENT]));
        segment[slot % SEGMENT] = location;
    }

    /// Bytes allocated, as asked of the allocator.
    pub fn allocated(&self) -> usize {
        let made = self.segments.iter().flatten().count();
        made * size_of::<[u32; SEGMENT]>()
            + self.segments.capacity() * size_of::<Option<Box<[u32; SEGMENT]>>>()
    }
}
