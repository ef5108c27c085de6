//! What a session is subscribed to, and which Subscription Identifiers a delivery carries.

use crate::mqtt::keyed::Keyed;
use hashbrown::HashSet;

/// The filters of one session, `$share/...` ones in full. The options stand in the subscription index; this is what
/// a session needs to be taken out of it again.
///
/// Most sessions have one: a table for it would cost ten times what the filter does.
#[derive(Debug, Default)]
pub enum Subscriptions {
    #[default]
    None,
    One(Box<str>),
    Several(Box<Filters>),
}

type Filters = HashSet<Box<str>, Keyed>;

impl Subscriptions {
    pub fn len(&self) -> usize {
        match self {
            Subscriptions::None => 0,
            Subscriptions::One(_) => 1,
            Subscriptions::Several(filters) => filters.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn contains(&self, filter: &str) -> bool {
        match self {
            Subscriptions::None => false,
            Subscriptions::One(only) => **only == *filter,
            Subscriptions::Several(filters) => filters.contains(filter),
        }
    }

    /// Whether it was not there.
    pub fn insert(&mut self, filter: &str) -> bool {
        if self.contains(filter) {
            return false;
        }
        *self = match std::mem::take(self) {
            Subscriptions::None => Subscriptions::One(filter.into()),
            Subscriptions::One(only) => {
                Subscriptions::Several(Box::new(Filters::from_iter([only, filter.into()])))
            }
            Subscriptions::Several(mut filters) => {
                filters.insert(filter.into());
                Subscriptions::Several(filters)
            }
        };
        true
    }

    pub fn remove(&mut self, filter: &str) -> bool {
        match self {
            Subscriptions::Several(filters) => filters.remove(filter),
            Subscriptions::One(only) if **only == *filter => {
                *self = Subscriptions::None;
                true
            }
            _ => false,
        }
    }

    /// Takes them all out.
    pub fn drain(&mut self) -> Vec<Box<str>> {
        match std::mem::take(self) {
            Subscriptions::None => Vec::new(),
            Subscriptions::One(only) => vec![only],
            Subscriptions::Several(filters) => filters.into_iter().collect(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let (only, several) = match self {
            Subscriptions::None => (None, None),
            Subscriptions::One(only) => (Some(only), None),
            Subscriptions::Several(filters) => (None, Some(filters.iter())),
        };
        only.into_iter().chain(several.into_iter().flatten()).map(AsRef::as_ref)
    }
}

/// Subscription Identifiers of one delivery: none or one nearly always, several where filters overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SubscriptionIds {
    #[default]
    None,
    One(u32),
    Several(Box<[u32]>),
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
            _ => SubscriptionIds::Several(ids.into()),
        }
    }

    pub fn as_slice(&self) -> &[u32] {
        match self {
            SubscriptionIds::None => &[],
            SubscriptionIds::One(id) => std::slice::from_ref(id),
            SubscriptionIds::Several(ids) => ids,
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
