//! What a session is subscribed to, and which Subscription Identifiers a delivery carries.

use hashbrown::HashSet;

/// The filters of one session, `$share/...` ones in full. The options stand in the subscription index; this is what
/// a session needs to be taken out of it again.
#[derive(Debug, Default)]
pub struct Subscriptions(HashSet<Box<str>, foldhash::fast::FixedState>);

impl Subscriptions {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, filter: &str) -> bool {
        self.0.contains(filter)
    }

    /// Whether it was not there.
    pub fn insert(&mut self, filter: &str) -> bool {
        if self.0.contains(filter) {
            return false;
        }
        self.0.insert(filter.into())
    }

    pub fn remove(&mut self, filter: &str) -> bool {
        self.0.remove(filter)
    }

    pub fn drain(&mut self) -> impl Iterator<Item = Box<str>> {
        std::mem::take(&mut self.0).into_iter()
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(AsRef::as_ref)
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
