//! The groups of shared subscriptions by number. A match names a group in eight bytes.

use super::address::GroupId;
use super::receivers::Groups;
use crate::routing::paged_slab::PagedSlab;
use crate::routing::shared_group::{Member, SharedGroup};

#[derive(Debug)]
struct NamedGroup {
    serial: u32,
    name: Box<str>,
    group: SharedGroup,
}

/// Bytes of a group beside its struct and name: its place, its id at the filter, and the
/// allocator's rounding.
const GROUP: usize = 64;

#[derive(Debug, Default)]
pub(super) struct GroupTable {
    /// `None` in a free place.
    places: PagedSlab<Option<Box<NamedGroup>>>,
    serial: u32,
    /// Bytes of all names.
    text: usize,
}

impl GroupTable {
    /// Returns the group of this name among a filter's groups. Otherwise returns the place in `ids`
    /// where it belongs.
    ///
    /// # Errors
    /// The place, if the filter has no group of this name.
    pub(super) fn search(&self, ids: &Groups, name: &str) -> Result<GroupId, usize> {
        let at = self.place(ids, name)?;
        ids.as_deref().and_then(|ids| ids.get(at)).copied().ok_or(at)
    }

    /// Returns the place in `ids` of the group of this name.
    ///
    /// # Errors
    /// The place where the group belongs, if the filter has no group of this name.
    pub(super) fn place(&self, ids: &Groups, name: &str) -> Result<usize, usize> {
        let ids = ids.as_deref().map_or(&[][..], Vec::as_slice);
        ids.binary_search_by(|id| self.named(*id).map_or("", |named| &*named.name).cmp(name))
    }

    /// Makes an empty group, and returns its id.
    pub(super) fn add(&mut self, name: &str) -> GroupId {
        self.serial = self.serial.wrapping_add(1);
        self.text += name.len();
        let named = NamedGroup { serial: self.serial, name: name.into(), group: SharedGroup::default() };
        let index = self.places.insert(Some(Box::new(named)));
        GroupId { index, serial: self.serial }
    }

    /// Removes a group.
    pub(super) fn remove(&mut self, id: GroupId) {
        let Some(named) = self.named(id) else { return };
        self.text -= named.name.len();
        self.places.remove(id.index);
    }

    /// Returns the group of an id, or `None` if the group was removed.
    pub(super) fn find(&self, id: GroupId) -> Option<&SharedGroup> {
        self.named(id).map(|named| &named.group)
    }

    /// Returns the id of the group at a place; `None` at a free place.
    pub(super) fn at(&self, index: u32) -> Option<GroupId> {
        let serial = self.places.get(index)?.as_deref()?.serial;
        Some(GroupId { index, serial })
    }

    /// Returns a number above the places of all groups.
    pub(super) fn end(&self) -> u32 {
        self.places.end()
    }

    /// Returns the same to change it.
    pub(super) fn find_mut(&mut self, id: GroupId) -> Option<&mut SharedGroup> {
        let named = self.places.get_mut(id.index)?.as_deref_mut()?;
        (named.serial == id.serial).then_some(&mut named.group)
    }

    /// Returns the number of groups.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the bytes on the heap without those of the members. Costs nothing.
    pub(super) fn in_use(&self) -> usize {
        self.len() * (size_of::<NamedGroup>() + GROUP) + self.text
    }

    /// Returns every member of every group.
    pub(super) fn members(&self) -> impl Iterator<Item = &Member> {
        self.places.iter().flatten().flat_map(|named| named.group.members())
    }

    /// Returns the bytes on the heap. Looks at every group.
    pub(super) fn memory(&self) -> usize {
        let named = |named: &NamedGroup| size_of::<NamedGroup>() + named.name.len() + named.group.memory();
        self.places.memory()
            + self.places.iter().filter_map(|place| place.as_deref()).map(named).sum::<usize>()
    }

    fn named(&self, id: GroupId) -> Option<&NamedGroup> {
        let named = self.places.get(id.index)?.as_deref()?;
        (named.serial == id.serial).then_some(named)
    }
}
