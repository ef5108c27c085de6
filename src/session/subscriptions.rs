//! The Topic Filters of one session.

use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::keyed::Keyed;
use crate::mqtt::topic;
use hashbrown::{HashSet, hash_set};

/// The Topic Filters of one session, `$share/...` filters in full. The Subscription Options stand
/// in the subscription tree; the session needs the filters to be removed from it.
///
/// Most sessions have one filter. A table for one filter would cost ten times the filter.
#[derive(Debug, Default)]
pub struct Subscriptions {
    filters: Own,
    charge: Charge,
}

/// Bytes of a filter beside its text: its place in a table that is half full, and the allocator's
/// rounding.
const FILTER: usize = 48;

#[derive(Debug, Default)]
enum Own {
    #[default]
    None,
    One(Box<str>),
    /// The filters, and the levels of all with wildcards, which bound their nodes in the subscription
    /// tree. The levels take no room here, where the tag of the enum leaves a gap.
    Several(Box<Filters>, u32),
}

type Filters = HashSet<Box<str>, Keyed>;

impl Subscriptions {
    /// Returns the number of filters.
    pub fn len(&self) -> usize {
        match &self.filters {
            Own::None => 0,
            Own::One(_) => 1,
            Own::Several(filters, _) => filters.len(),
        }
    }

    /// True if the session has no filter.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if the session has this filter.
    pub fn contains(&self, filter: &str) -> bool {
        match &self.filters {
            Own::None => false,
            Own::One(only) => **only == *filter,
            Own::Several(filters, _) => filters.contains(filter),
        }
    }

    /// Returns the levels of all filters with wildcards, with this filter included.
    pub fn levels_with(&self, filter: &str) -> u32 {
        let levels = match &self.filters {
            Own::None => 0,
            Own::One(only) => wild_levels(only),
            Own::Several(_, levels) => *levels,
        };
        levels.saturating_add(wild_levels(filter))
    }

    /// Inserts a filter. Returns true if the filter is new.
    pub fn insert(&mut self, filter: &str) -> bool {
        if self.contains(filter) {
            return false;
        }
        let levels = self.levels_with(filter);
        self.filters = match std::mem::take(&mut self.filters) {
            Own::None => Own::One(filter.into()),
            Own::One(only) => Own::Several(Box::new(Filters::from_iter([only, filter.into()])), levels),
            Own::Several(mut filters, _) => {
                filters.insert(filter.into());
                Own::Several(filters, levels)
            }
        };
        self.charge.add(filter.len() + FILTER);
        true
    }

    /// Removes a filter. Returns true if the session had it.
    pub fn remove(&mut self, filter: &str) -> bool {
        let removed = match &mut self.filters {
            Own::Several(filters, levels) => {
                let removed = filters.remove(filter);
                if removed {
                    *levels = levels.saturating_sub(wild_levels(filter));
                }
                removed
            }
            Own::One(only) if **only == *filter => {
                self.filters = Own::None;
                true
            }
            _ => false,
        };
        if removed {
            self.charge.sub(filter.len() + FILTER);
        }
        removed
    }

    /// Consumes the set and returns its filters one by one.
    pub fn drain(self) -> Drained {
        let (only, several) = match self.filters {
            Own::None => (None, None),
            Own::One(only) => (Some(only), None),
            Own::Several(filters, _) => (None, Some(filters.into_iter())),
        };
        Drained { only, several, _charge: self.charge }
    }

    /// Iterates over the filters, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let (only, several) = match &self.filters {
            Own::None => (None, None),
            Own::One(only) => (Some(only), None),
            Own::Several(filters, _) => (None, Some(filters.iter())),
        };
        only.into_iter().chain(several.into_iter().flatten()).map(AsRef::as_ref)
    }
}

/// Iterator over removed filters. Their charge stays until the iterator is dropped.
#[derive(Debug)]
pub struct Drained {
    only: Option<Box<str>>,
    several: Option<hash_set::IntoIter<Box<str>>>,
    _charge: Charge,
}

impl Iterator for Drained {
    type Item = Box<str>;

    fn next(&mut self) -> Option<Box<str>> {
        self.only.take().or_else(|| self.several.as_mut()?.next())
    }
}

/// Returns the levels of a filter with wildcards, which may have one tree node each; 0 without
/// wildcards.
fn wild_levels(filter: &str) -> u32 {
    if topic::has_wildcard(filter) { u32::try_from(topic::levels(filter)).unwrap_or(u32::MAX) } else { 0 }
}

impl Recount for Subscriptions {
    fn recount(&self) -> Recounted {
        let held = self.iter().map(|filter| filter.len() + FILTER).sum();
        Recounted { held, charged: self.charge.bytes() }
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
        let mut rest: Vec<_> = s.drain().collect();
        rest.sort();
        assert_eq!(rest, ["a".into(), "c".into()]);
        let mut s = Subscriptions::default();
        assert!(s.insert("a") && s.remove("a") && s.is_empty() && s.drain().next().is_none());
    }
}
