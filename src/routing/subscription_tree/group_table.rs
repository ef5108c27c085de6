//! The shared subscriptions' groups by number, so that a match names one in eight bytes.

use super::filter_map::Groups;
use crate::routing::shared::{Group, Member};

/// A group of this index. Not given twice, so that one kept across a turn never names a successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupId {
    index: u32,
    /// Counts the groups ever made; comes round after 2^32 of them, when it matters only to an id as old as
    /// that.
    serial: u32,
}

#[derive(Debug)]
struct Named {
    serial: u32,
    name: Box<str>,
    group: Group,
}

/// Bytes of a group beside itself and its name: its place, its id with its filter, and what the allocator rounds up.
const GROUP: usize = 64;

#[derive(Debug, Default)]
pub(super) struct GroupTable {
    /// None in a free place.
    places: Vec<Option<Box<Named>>>,
    free: Vec<u32>,
    serial: u32,
    /// Bytes of all names.
    text: usize,
}

impl GroupTable {
    /// The group of this name among a filter's, or where in them it would go.
    pub fn search(&self, ids: &Groups, name: &str) -> Result<GroupId, usize> {
        let at = self.place(ids, name)?;
        ids.as_deref().and_then(|ids| ids.get(at)).copied().ok_or(at)
    }

    /// Its place among them, or the one that it would have.
    pub fn place(&self, ids: &Groups, name: &str) -> Result<usize, usize> {
        let ids = ids.as_deref().map_or(&[][..], Vec::as_slice);
        ids.binary_search_by(|id| self.named(*id).map_or("", |named| &*named.name).cmp(name))
    }

    pub fn add(&mut self, name: &str) -> GroupId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            (self.places.len() - 1) as u32
        });
        self.serial = self.serial.wrapping_add(1);
        self.text += name.len();
        let named = Named { serial: self.serial, name: name.into(), group: Group::default() };
        self.places[index as usize] = Some(Box::new(named));
        GroupId { index, serial: self.serial }
    }

    /// A free place costs 12 bytes until the last group is gone.
    pub fn remove(&mut self, id: GroupId) {
        let Some(named) = self.named(id) else { return };
        self.text -= named.name.len();
        self.places[id.index as usize] = None;
        self.free.push(id.index);
        if self.len() == 0 {
            self.places = Vec::new();
            self.free = Vec::new();
        }
    }

    pub fn find(&self, id: GroupId) -> Option<&Group> {
        self.named(id).map(|named| &named.group)
    }

    pub fn find_mut(&mut self, id: GroupId) -> Option<&mut Group> {
        let named = self.places.get_mut(id.index as usize)?.as_deref_mut()?;
        (named.serial == id.serial).then_some(&mut named.group)
    }

    /// Groups that exist.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Bytes on the heap, without those of the members, at no cost.
    pub fn held(&self) -> usize {
        self.len() * (size_of::<Named>() + GROUP) + self.text
    }

    /// Every member of every group.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.places.iter().flatten().flat_map(|named| named.group.members())
    }

    /// Bytes on the heap; looks at every group.
    pub fn memory(&self) -> usize {
        let named = |named: &Named| size_of::<Named>() + named.name.len() + named.group.memory();
        self.places.capacity() * size_of::<Option<Box<Named>>>()
            + self.free.capacity() * size_of::<u32>()
            + self.places.iter().filter_map(|place| place.as_deref()).map(named).sum::<usize>()
    }

    fn named(&self, id: GroupId) -> Option<&Named> {
        let named = self.places.get(id.index as usize)?.as_deref()?;
        (named.serial == id.serial).then_some(named)
    }
}
