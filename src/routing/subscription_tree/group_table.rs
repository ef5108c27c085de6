//! The shared subscriptions' groups by number, so that a match names one in eight bytes.

use super::filter_map::Groups;
use crate::routing::shared::Group;

/// A group of this index. Not given twice, so that one kept across a turn never names a successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupId {
    index: u32,
    /// Of the place in the table.
    generation: u32,
}

#[derive(Debug, Default)]
struct Place {
    generation: u32,
    /// None in a free place.
    group: Option<Box<Named>>,
}

#[derive(Debug)]
struct Named {
    name: Box<str>,
    group: Group,
}

#[derive(Debug, Default)]
pub(super) struct GroupTable {
    /// 16 bytes each; places stay, so that generations do, but what they held goes.
    places: Vec<Place>,
    free: Vec<u32>,
}

impl GroupTable {
    /// The group of this name among a filter's, or where in them it would go.
    pub fn search(&self, ids: &Groups, name: &str) -> Result<GroupId, usize> {
        let ids = ids.as_deref().map_or(&[][..], Vec::as_slice);
        let at = ids.binary_search_by(|id| self.named(*id).map_or("", |named| &*named.name).cmp(name))?;
        Ok(ids[at])
    }

    pub fn add(&mut self, name: &str) -> GroupId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            (self.places.len() - 1) as u32
        });
        let place = &mut self.places[index as usize];
        place.group = Some(Box::new(Named { name: name.into(), group: Group::default() }));
        GroupId { index, generation: place.generation }
    }

    pub fn remove(&mut self, id: GroupId) {
        let Some(place) = self.places.get_mut(id.index as usize).filter(|p| p.generation == id.generation)
        else {
            return;
        };
        place.group = None;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(id.index);
    }

    pub fn find(&self, id: GroupId) -> Option<&Group> {
        self.named(id).map(|named| &named.group)
    }

    pub fn find_mut(&mut self, id: GroupId) -> Option<&mut Group> {
        let place = self.places.get_mut(id.index as usize).filter(|p| p.generation == id.generation)?;
        place.group.as_mut().map(|named| &mut named.group)
    }

    /// Groups that exist.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Bytes on the heap; looks at every group.
    pub fn memory(&self) -> usize {
        let named = |named: &Named| size_of::<Named>() + named.name.len() + named.group.memory();
        self.places.capacity() * size_of::<Place>()
            + self.free.capacity() * size_of::<u32>()
            + self.places.iter().filter_map(|p| p.group.as_deref()).map(named).sum::<usize>()
    }

    fn named(&self, id: GroupId) -> Option<&Named> {
        let place = self.places.get(id.index as usize).filter(|p| p.generation == id.generation)?;
        place.group.as_deref()
    }
}
