//! What a session is subscribed to, and which Subscription Identifiers a delivery carries.

use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::keyed::Keyed;
use crate::mqtt::topic;
use hashbrown::HashSet;
use std::sync::Arc;

/// The filters of one session, `$share/...` ones in full. The options stand in the subscription index; this is what
/// a session needs to be taken out of it again.
///
/// Most sessions have one: a table for it would cost ten times what the filter does.
#[derive(Debug, Default)]
pub struct Subscriptions {
    filters: Own,
    /// Levels of those with wildcards together: what they may have of the index.
    levels: u32,
    charge: Charge,
}

/// Bytes of a filter beside its text: its place in a table that is half full, and what the allocator rounds up.
const FILTER: usize = 48;

#[derive(Debug, Default)]
enum Own {
    #[default]
    None,
    One(Box<str>),
    Several(Box<Filters>),
}

type Filters = HashSet<Box<str>, Keyed>;

impl Subscriptions {
    pub fn len(&self) -> usize {
        match &self.filters {
            Own::None => 0,
            Own::One(_) => 1,
            Own::Several(filters) => filters.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn contains(&self, filter: &str) -> bool {
        match &self.filters {
            Own::None => false,
            Own::One(only) => **only == *filter,
            Own::Several(filters) => filters.contains(filter),
        }
    }

    /// Levels of its filters with wildcards together, once it has this one too.
    pub fn levels_with(&self, filter: &str) -> u32 {
        self.levels.saturating_add(wild_levels(filter))
    }

    /// Whether it was not there.
    pub fn insert(&mut self, filter: &str) -> bool {
        if self.contains(filter) {
            return false;
        }
        self.filters = match std::mem::take(&mut self.filters) {
            Own::None => Own::One(filter.into()),
            Own::One(only) => Own::Several(Box::new(Filters::from_iter([only, filter.into()]))),
            Own::Several(mut filters) => {
                filters.insert(filter.into());
                Own::Several(filters)
            }
        };
        self.levels = self.levels_with(filter);
        self.charge.add(filter.len() + FILTER);
        true
    }

    pub fn remove(&mut self, filter: &str) -> bool {
        let removed = match &mut self.filters {
            Own::Several(filters) => filters.remove(filter),
            Own::One(only) if **only == *filter => {
                self.filters = Own::None;
                true
            }
            _ => false,
        };
        if removed {
            self.levels = self.levels.saturating_sub(wild_levels(filter));
            self.charge.sub(filter.len() + FILTER);
        }
        removed
    }

    /// Takes them all out.
    pub fn drain(&mut self) -> Vec<Box<str>> {
        match std::mem::take(self).filters {
            Own::None => Vec::new(),
            Own::One(only) => vec![only],
            Own::Several(filters) => filters.into_iter().collect(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let (only, several) = match &self.filters {
            Own::None => (None, None),
            Own::One(only) => (Some(only), None),
            Own::Several(filters) => (None, Some(filters.iter())),
        };
        only.into_iter().chain(several.into_iter().flatten()).map(AsRef::as_ref)
    }
}

/// Levels of a filter with wildcards, which may have a node of the index each; one without has none.
fn wild_levels(filter: &str) -> u32 {
    if topic::has_wildcard(filter) { u32::try_from(topic::levels(filter)).unwrap_or(u32::MAX) } else { 0 }
}

impl Recount for Subscriptions {
    fn recount(&self) -> Recounted {
        let held = self.iter().map(|filter| filter.len() + FILTER).sum();
        Recounted { held, charged: self.charge.bytes() }
    }
}

/// Subscription Identifiers of one delivery: none or one nearly always, several where filters overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SubscriptionIds {
    #[default]
    None,
    One(u32),
    Several(Arc<Several>),
}

/// Identifiers that a delivery shares with what the store is told of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Several {
    ids: Box<[u32]>,
    charge: Charge,
}

impl SubscriptionIds {
    /// From an identifier as the index keeps it: 0 is none.
    pub fn from_index(id: u32) -> SubscriptionIds {
        if id == 0 { SubscriptionIds::None } else { SubscriptionIds::One(id) }
    }

    pub fn from_several(ids: &[u32]) -> SubscriptionIds {
        match ids {
            [] => SubscriptionIds::None,
            [id] => SubscriptionIds::One(*id),
            _ => {
                let charge = Charge::new(size_of_val(ids) + size_of::<Several>());
                SubscriptionIds::Several(Arc::new(Several { ids: ids.into(), charge }))
            }
        }
    }

    pub fn as_slice(&self) -> &[u32] {
        match self {
            SubscriptionIds::None => &[],
            SubscriptionIds::One(id) => std::slice::from_ref(id),
            SubscriptionIds::Several(several) => &several.ids,
        }
    }

    /// Bytes that a delivery is charged with for them, wherever it is counted.
    pub fn size(&self) -> usize {
        match self {
            SubscriptionIds::None | SubscriptionIds::One(_) => 0,
            SubscriptionIds::Several(several) => several.charge.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_come_and_go_in_any_number() {
        let mut s = Subscriptions::default();
        for (filter, len) in [("a", 1), ("b", 2), ("c", 3)] {
            assert!(s.insert(filter) && !s.insert(filter) && s.contains(filter));
            assert_eq!((s.len(), s.iter().count()), (len, len));
        }
        assert!(s.remove("b") && !s.remove("b") && !s.contains("b"));
        let mut rest = s.drain();
        rest.sort();
        assert_eq!(rest, ["a".into(), "c".into()]);
        assert!(s.is_empty() && s.insert("a") && s.remove("a") && s.is_empty());
    }
}
