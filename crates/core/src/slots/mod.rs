//! Dense slots with generations. An id is cheap to copy, and never reaches a later value in the
//! same slot.

pub(crate) mod client_table;

use std::fmt;
use std::marker::PhantomData;

/// A slot and its generation. Two ids with the same slot and different generations name two
/// different values.
pub struct Id<Of> {
    /// The index of the slot. Slots are reused.
    pub slot: u32,
    /// The life of the slot: the number of values that were in it before, wrapping.
    pub generation: u32,
    of: PhantomData<fn() -> Of>,
}

impl<Of> Id<Of> {
    /// Returns the id of a slot and a generation.
    pub const fn new(slot: u32, generation: u32) -> Id<Of> {
        Id { slot, generation, of: PhantomData }
    }
}

impl<Of> Clone for Id<Of> {
    fn clone(&self) -> Id<Of> {
        *self
    }
}

impl<Of> Copy for Id<Of> {}

impl<Of> PartialEq for Id<Of> {
    fn eq(&self, other: &Id<Of>) -> bool {
        self.slot == other.slot && self.generation == other.generation
    }
}

impl<Of> Eq for Id<Of> {}

impl<Of> fmt::Debug for Id<Of> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.generation)
    }
}

/// Marks ids of connections, so that they are not mistaken for ids of sessions.
#[derive(Debug)]
pub enum OfConnection {}

/// Marks ids of sessions.
#[derive(Debug)]
pub enum OfSession {}

/// The id of one connection of a shard, and of no later connection in its slot.
pub type ConnectionId = Id<OfConnection>;

/// The id of one session of a shard, and of no later session in its slot.
pub type SessionId = Id<OfSession>;

/// The readers of stored entries that are no sessions. Each has an id of its own, so that the page
/// of one never comes to another. No shard has so many sessions that one has the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSession {
    /// The orphaned queue of messages that no member of their group had room for.
    RefusedByAll,
    /// The orphaned queue of messages that were left before the start.
    BeforeTheStart,
    /// The topics of messages that queues have dropped.
    Drops,
}

impl NoSession {
    /// Returns the id in place of a session's.
    pub(crate) const fn id(self) -> SessionId {
        Id::new(u32::MAX, self as u32)
    }
}

/// Values in slots. Each value has an allocation of its own, so that growth copies pointers and not
/// values.
#[derive(Debug)]
pub struct Slots<T, Of> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    /// Slots without a value that are not free yet.
    retired: usize,
    of: PhantomData<fn() -> Of>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<Box<T>>,
}

impl<T, Of> Default for Slots<T, Of> {
    fn default() -> Slots<T, Of> {
        Slots { slots: Vec::new(), free: Vec::new(), retired: 0, of: PhantomData }
    }
}

impl<T, Of> Slots<T, Of> {
    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len() - self.retired
    }

    /// Returns one more than the highest slot that was ever used.
    pub fn end(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns true if there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts a value into a free slot. At most 2^32 - 1 values fit, which is more than memory has.
    pub fn insert(&mut self, value: T) -> Id<Of> {
        let value = Some(Box::new(value));
        if let Some(slot) = self.free.pop()
            && let Some(s) = self.slots.get_mut(slot as usize)
        {
            s.value = value;
            return Id::new(slot, s.generation);
        }
        self.slots.push(Slot { generation: 0, value });
        Id::new((self.slots.len() - 1) as u32, 0)
    }

    /// Returns the value of an id, or `None` if it was removed.
    pub fn get(&self, id: Id<Of>) -> Option<&T> {
        self.slots.get(id.slot as usize).filter(|s| s.generation == id.generation)?.value.as_deref()
    }

    /// As [`Self::get`], to change the value.
    pub fn get_mut(&mut self, id: Id<Of>) -> Option<&mut T> {
        self.slots.get_mut(id.slot as usize).filter(|s| s.generation == id.generation)?.value.as_deref_mut()
    }

    /// Returns the present value of a slot with its id, whatever its generation.
    pub fn at(&self, slot: u32) -> Option<(Id<Of>, &T)> {
        let s = self.slots.get(slot as usize)?;
        Some((Id::new(slot, s.generation), s.value.as_deref()?))
    }

    /// As [`Self::at`], to change the value.
    pub fn at_mut(&mut self, slot: u32) -> Option<(Id<Of>, &mut T)> {
        let s = self.slots.get_mut(slot as usize)?;
        Some((Id::new(slot, s.generation), s.value.as_deref_mut()?))
    }

    /// Removes and returns the value of an id. The slot is free at once.
    pub fn remove(&mut self, id: Id<Of>) -> Option<T> {
        let value = self.retire(id)?;
        self.release(id.slot);
        Some(*value)
    }

    /// Removes and returns the value of an id. The slot stays in use until [`Self::release`], which
    /// the caller must call once.
    pub fn retire(&mut self, id: Id<Of>) -> Option<Box<T>> {
        let s = self.slots.get_mut(id.slot as usize).filter(|s| s.generation == id.generation)?;
        let value = s.value.take()?;
        s.generation = s.generation.wrapping_add(1);
        self.retired += 1;
        Some(value)
    }

    /// Frees a retired slot, because nothing names it any more.
    pub fn release(&mut self, slot: u32) {
        self.retired -= 1;
        self.free.push(slot);
    }

    /// Iterates over all values with their ids, in the order of the slots.
    pub fn iter(&self) -> impl Iterator<Item = (Id<Of>, &T)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(slot, s)| Some((Id::new(slot as u32, s.generation), s.value.as_deref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_never_reaches_the_successor_in_its_slot() {
        let mut slots = Slots::<char, OfSession>::default();
        let a = slots.insert('a');
        assert_eq!(slots.remove(a), Some('a'));
        let b = slots.insert('b');
        assert_eq!(b.slot, a.slot);
        assert_eq!(slots.remove(a), None);
        assert_eq!((slots.get(a), slots.get(b)), (None, Some(&'b')));
        assert_eq!(slots.len(), 1);
    }

    #[test]
    fn a_retired_slot_has_no_value_and_no_successor_before_it_is_released() {
        let mut slots = Slots::<char, OfSession>::default();
        let a = slots.insert('a');
        assert_eq!((slots.retire(a), slots.len()), (Some(Box::new('a')), 0));
        let b = slots.insert('b');
        assert_ne!(b.slot, a.slot);
        assert!(slots.at(a.slot).is_none() && slots.retire(a).is_none());
        slots.release(a.slot);
        assert_eq!((slots.insert('c').slot, slots.len()), (a.slot, 2));
    }
}
