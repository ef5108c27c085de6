//! Entries in unordered lists of fixed chunks: what the ring's buckets are made of.
//!
//! A list is a chain of chunks, all full but the last, so a bucket has at most one chunk of slack where a vector has
//! up to as much again as it holds, and nothing is ever copied to grow. An entry's location is a
//! plain `u32` over all chunks. An emptied chunk goes to a few spares, beyond those to the allocator.

/// Location or chunk that does not exist.
pub(super) const NONE: u32 = u32::MAX;

/// Entries per chunk: 384 bytes, an exact size class of jemalloc.
const CHUNK: u32 = 32;
/// Emptied chunks kept for the next need: 24 KiB.
const SPARES: usize = 64;

/// One registered key. Its deadline is the list it is in and how often the ring passes before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entry {
    pub slot: u32,
    pub generation: u32,
    pub round: u32,
}

pub(super) struct Lists {
    lists: Box<[List]>,
    chunks: Vec<Chunk>,
    /// First of the chunk numbers out of use, chained by `previous`.
    unused: u32,
    spares: Vec<Box<[Entry]>>,
    sweep: Option<Sweep>,
}

#[derive(Clone, Copy)]
struct List {
    tail: u32,
    len: u32,
}

struct Chunk {
    /// [`CHUNK`] entries; none while the number is out of use.
    entries: Box<[Entry]>,
    list: u32,
    previous: u32,
}

/// How far a walk over one list has come: entries below `left` in `chunk`, and those in the chunks
/// before it, are yet to be seen. From the tail down, so that filling a hole with the last entry never hides one.
struct Sweep {
    chunk: u32,
    left: u32,
}

impl Lists {
    pub fn new(count: u32) -> Lists {
        Lists {
            lists: vec![List { tail: NONE, len: 0 }; count as usize].into_boxed_slice(),
            chunks: Vec::new(),
            unused: NONE,
            spares: Vec::new(),
            sweep: None,
        }
    }

    pub fn len(&self, list: u32) -> usize {
        self.lists[list as usize].len as usize
    }

    pub fn entry(&self, location: u32) -> Entry {
        self.chunks[(location / CHUNK) as usize].entries[(location % CHUNK) as usize]
    }

    pub fn entry_mut(&mut self, location: u32) -> &mut Entry {
        &mut self.chunks[(location / CHUNK) as usize].entries[(location % CHUNK) as usize]
    }

    /// The list that the entry at `location` is in.
    pub fn list_of(&self, location: u32) -> u32 {
        self.chunks[(location / CHUNK) as usize].list
    }

    /// Appends; answers the location.
    pub fn push(&mut self, list: u32, entry: Entry) -> u32 {
        let at = self.lists[list as usize].len % CHUNK;
        if at == 0 {
            self.add_chunk(list);
        }
        let head = &mut self.lists[list as usize];
        head.len += 1;
        self.chunks[head.tail as usize].entries[at as usize] = entry;
        head.tail * CHUNK + at
    }

    /// Takes out the last entry of a list.
    pub fn pop(&mut self, list: u32) -> Option<Entry> {
        let List { tail, len } = self.lists[list as usize];
        if len == 0 {
            return None;
        }
        let location = tail * CHUNK + (len - 1) % CHUNK;
        let entry = self.entry(location);
        self.swap_remove(location);
        Some(entry)
    }

    /// Takes out an entry; the last of its list, if another, fills the hole. Answers the slot of that one.
    pub fn swap_remove(&mut self, location: u32) -> Option<u32> {
        let list = self.list_of(location);
        let head = &mut self.lists[list as usize];
        head.len -= 1;
        let (tail, last) = (head.tail, head.len % CHUNK);
        let moved = (tail * CHUNK + last != location).then(|| {
            let entry = self.chunks[tail as usize].entries[last as usize];
            *self.entry_mut(location) = entry;
            entry.slot
        });
        let previous = if last == 0 { self.drop_tail(list) } else { tail };
        self.pull_back_sweep(tail, last, previous);
        moved
    }

    /// Starts a walk over `list`, unless one is under way: at most one at a time.
    pub fn begin_sweep(&mut self, list: u32) {
        let List { tail, len } = self.lists[list as usize];
        if self.sweep.is_none() && len > 0 {
            self.sweep = Some(Sweep { chunk: tail, left: (len - 1) % CHUNK + 1 });
        }
    }

    pub fn is_sweeping(&self) -> bool {
        self.sweep.is_some()
    }

    /// Whether the walk has entries yet to see; ends it if not.
    pub fn sweep_has_more(&mut self) -> bool {
        let Some(sweep) = &mut self.sweep else { return false };
        if sweep.left == 0 {
            sweep.chunk = self.chunks[sweep.chunk as usize].previous;
            sweep.left = CHUNK;
        }
        if sweep.chunk == NONE {
            self.sweep = None;
        }
        self.sweep.is_some()
    }

    /// The next entry of the walk and where it is. It may be taken out before the walk goes on.
    pub fn step_sweep(&mut self) -> Option<(u32, Entry)> {
        if !self.sweep_has_more() {
            return None;
        }
        let sweep = self.sweep.as_mut()?;
        sweep.left -= 1;
        let location = sweep.chunk * CHUNK + sweep.left;
        Some((location, self.entry(location)))
    }

    /// Every entry of a list, in no order.
    pub fn iter(&self, list: u32) -> impl Iterator<Item = &Entry> {
        let List { tail, len } = self.lists[list as usize];
        let mut chunk = tail;
        let mut take = if len == 0 { 0 } else { (len - 1) % CHUNK + 1 };
        std::iter::from_fn(move || {
            let this = self.chunks.get(chunk as usize)?;
            let entries = &this.entries[..take as usize];
            (chunk, take) = (this.previous, CHUNK);
            Some(entries)
        })
        .flatten()
    }

    /// Bytes allocated, as asked of the allocator.
    pub fn allocated(&self) -> usize {
        let entries: usize = self
            .chunks
            .iter()
            .map(|c| &c.entries)
            .chain(&self.spares)
            .map(|e| size_of_val::<[Entry]>(e))
            .sum();
        entries
            + size_of_val::<[List]>(&self.lists)
            + self.chunks.capacity() * size_of::<Chunk>()
            + self.spares.capacity() * size_of::<Box<[Entry]>>()
    }

    fn add_chunk(&mut self, list: u32) {
        let entries =
            self.spares.pop().unwrap_or_else(|| vec![Entry::default(); CHUNK as usize].into_boxed_slice());
        let head = &mut self.lists[list as usize];
        let chunk = Chunk { entries, list, previous: head.tail };
        if self.unused == NONE {
            // A location is 32 bits wide: 4 Gi entries, as many as there are slots.
            head.tail = self.chunks.len() as u32;
            self.chunks.push(chunk);
        } else {
            head.tail = self.unused;
            let old = &mut self.chunks[self.unused as usize];
            self.unused = old.previous;
            *old = chunk;
        }
    }

    /// Gives up the emptied last chunk of a list; answers the one before it.
    fn drop_tail(&mut self, list: u32) -> u32 {
        let head = &mut self.lists[list as usize];
        let tail = head.tail;
        let chunk = &mut self.chunks[tail as usize];
        head.tail = chunk.previous;
        let entries = std::mem::take(&mut chunk.entries);
        if self.spares.len() < SPARES {
            self.spares.push(entries);
        }
        chunk.previous = self.unused;
        self.unused = tail;
        head.tail
    }

    /// Keeps the walk inside its list after `tail` shrank to `last` entries (`previous` is the tail now).
    fn pull_back_sweep(&mut self, tail: u32, last: u32, previous: u32) {
        let Some(sweep) = &mut self.sweep else { return };
        if sweep.chunk != tail {
            return;
        }
        if last > 0 {
            sweep.left = sweep.left.min(last);
        } else if previous == NONE {
            self.sweep = None;
        } else {
            (sweep.chunk, sweep.left) = (previous, CHUNK);
        }
    }
}
