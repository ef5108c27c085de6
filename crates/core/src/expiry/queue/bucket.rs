//! An unordered list of slots, from which the ring is made.
//!
//! The slots are in chunks, all full but the last. So a bucket has at most one chunk of slack,
//! where a vector has up to as much again as it holds. Growth copies no slots.

/// Slots in each chunk: 256 bytes. Chunks of four times the size make an update 2 ns faster, and
/// cost a lightly filled ring four times the slack.
const CHUNK: usize = 64;

/// The slots of one bucket, in any order.
#[derive(Default)]
pub(super) struct Bucket {
    #[expect(clippy::vec_box, reason = "unboxed, growing would copy every slot")]
    chunks: Vec<Box<[u32; CHUNK]>>,
    len: u32,
}

impl Bucket {
    /// Returns the number of slots.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Returns the slot at a position below [`Bucket::len`].
    pub(super) fn slot(&self, position: u32) -> u32 {
        let position = position as usize;
        self.chunks[position / CHUNK][position % CHUNK]
    }

    /// Appends a slot and returns its position.
    pub(super) fn push(&mut self, slot: u32) -> u32 {
        let position = self.len as usize;
        if position.is_multiple_of(CHUNK) {
            self.add_chunk();
        }
        self.chunks[position / CHUNK][position % CHUNK] = slot;
        self.len += 1;
        position as u32
    }

    /// Removes the slot at `position` and fills the hole with the last slot. Returns the last slot,
    /// which may be the removed one.
    pub(super) fn swap_remove(&mut self, position: u32) -> u32 {
        let (last, position) = (self.len as usize - 1, position as usize);
        let moved = self.chunks[last / CHUNK][last % CHUNK];
        self.chunks[position / CHUNK][position % CHUNK] = moved;
        self.pop();
        moved
    }

    /// Removes the last slot.
    pub(super) fn pop(&mut self) {
        self.len -= 1;
        if self.len.is_multiple_of(CHUNK as u32) {
            self.drop_chunk();
        }
    }

    #[cold]
    fn add_chunk(&mut self) {
        self.chunks.push(Box::new([0; CHUNK]));
    }

    #[cold]
    fn drop_chunk(&mut self) {
        self.chunks.pop();
        if self.chunks.is_empty() {
            self.chunks = Vec::new();
        }
    }

    /// Returns the bytes that were requested from the allocator.
    pub(super) fn allocated(&self) -> usize {
        self.chunks.len() * size_of::<[u32; CHUNK]>()
            + self.chunks.capacity() * size_of::<Box<[u32; CHUNK]>>()
    }
}
