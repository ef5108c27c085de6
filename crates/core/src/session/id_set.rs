//! A set of Packet Identifiers that is small in the usual case and bounded in the worst.
//!
//! A hash set of all 65,535 identifiers would take about 400 KiB; this set takes 8 KiB at most.

use crate::mqtt::charge::Charge;
use crate::mqtt::packet::PacketId;
use std::collections::VecDeque;

/// A set of identifiers. A small set, the usual case, is a short row; a large one is a bitmap of 8
/// KiB.
#[derive(Debug)]
pub(super) struct IdSet {
    ids: Ids,
    /// Changes with the shape alone: a row is charged as if it were full.
    pub charge: Charge,
}

#[derive(Debug)]
enum Ids {
    Few(VecDeque<u16>),
    Many { bits: Box<[u64; 1024]>, len: usize },
}

const FEW: usize = 128;

impl Default for IdSet {
    fn default() -> IdSet {
        let mut set = IdSet { ids: Ids::Few(VecDeque::new()), charge: Charge::NONE };
        set.charge.set(set.in_use());
        set
    }
}

impl IdSet {
    /// Returns the number of identifiers.
    pub(super) fn len(&self) -> usize {
        match &self.ids {
            Ids::Few(ids) => ids.len(),
            Ids::Many { len, .. } => *len,
        }
    }

    /// Returns the bytes that the set is charged with.
    pub(super) fn in_use(&self) -> usize {
        let ids = match &self.ids {
            Ids::Few(_) => FEW * size_of::<u16>(),
            Ids::Many { .. } => size_of::<[u64; 1024]>(),
        };
        size_of::<IdSet>() + ids
    }

    /// True if the set has the identifier.
    pub(super) fn contains(&self, id: PacketId) -> bool {
        match &self.ids {
            Ids::Few(ids) => ids.contains(&id.get()),
            Ids::Many { bits, .. } => bits[usize::from(id.get() >> 6)] >> (id.get() & 63) & 1 == 1,
        }
    }

    /// Calls `each` for every identifier. Costs 65,535 steps if the set is large.
    pub(super) fn for_each(&self, mut each: impl FnMut(PacketId)) {
        match &self.ids {
            Ids::Few(ids) => ids.iter().filter_map(|id| PacketId::new(*id)).for_each(&mut each),
            Ids::Many { .. } => {
                let all = (1..=u16::MAX).filter_map(PacketId::new);
                all.filter(|id| self.contains(*id)).for_each(&mut each);
            }
        }
    }

    /// Inserts an identifier. Returns true if the identifier is new.
    pub(super) fn insert(&mut self, id: PacketId) -> bool {
        let absent = !self.contains(id);
        if absent {
            self.insert_absent(id);
        }
        absent
    }

    /// Inserts an identifier that is known to be absent.
    pub(super) fn insert_absent(&mut self, id: PacketId) {
        if let Ids::Few(ids) = &mut self.ids {
            if ids.len() < FEW {
                return ids.push_back(id.get());
            }
            let mut bits = Box::new([0u64; 1024]);
            for id in ids.iter() {
                bits[usize::from(id >> 6)] |= 1 << (id & 63);
            }
            self.reshape(Ids::Many { bits, len: FEW });
        }
        if let Ids::Many { bits, len } = &mut self.ids {
            bits[usize::from(id.get() >> 6)] |= 1 << (id.get() & 63);
            *len += 1;
        }
    }

    /// Removes an identifier. Returns true if the set had it.
    pub(super) fn remove(&mut self, id: PacketId) -> bool {
        match &mut self.ids {
            Ids::Few(ids) => {
                // PUBRELs come in the order of the PUBLISHes, so the identifier is at the front.
                let Some(at) = ids.iter().position(|i| *i == id.get()) else { return false };
                ids.remove(at);
                true
            }
            Ids::Many { bits, len } => {
                let word = &mut bits[usize::from(id.get() >> 6)];
                let bit = 1 << (id.get() & 63);
                let was = *word & bit != 0;
                *word &= !bit;
                *len -= usize::from(was);
                if *len == 0 {
                    self.reshape(Ids::Few(VecDeque::new()));
                }
                was
            }
        }
    }

    #[cold]
    fn reshape(&mut self, ids: Ids) {
        self.ids = ids;
        self.charge.set(self.in_use());
    }
}
