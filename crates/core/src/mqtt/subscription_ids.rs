//! The Subscription Identifiers that are sent with one delivery (5.0 section 3.3.2.3.8).

use super::charge::Charge;
use std::sync::Arc;

/// The Subscription Identifiers of one delivery. Nearly all deliveries have none or one;
/// overlapping filters give several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SubscriptionIds {
    /// No identifier.
    #[default]
    None,
    /// One identifier, stored in place.
    One(u32),
    /// Two or more identifiers, shared between the delivery and its stored entry.
    Several(Arc<Several>),
}

/// Two or more identifiers. The delivery shares them with the record for the store.
#[derive(Debug, PartialEq, Eq)]
pub struct Several {
    ids: Box<[u32]>,
    charge: Charge,
}

impl SubscriptionIds {
    /// Converts an identifier of the subscription tree, where 0 means none.
    pub fn from_index(id: u32) -> SubscriptionIds {
        if id == 0 { SubscriptionIds::None } else { SubscriptionIds::One(id) }
    }

    /// Copies a list of identifiers. Allocates only for two or more.
    #[inline]
    pub fn from_several(ids: &[u32]) -> SubscriptionIds {
        // Nearly always empty, because few clients set an identifier.
        if ids.is_empty() { SubscriptionIds::None } else { SubscriptionIds::from_some(ids) }
    }

    fn from_some(ids: &[u32]) -> SubscriptionIds {
        match ids {
            [id] => SubscriptionIds::One(*id),
            _ => {
                let charge = Charge::new(SubscriptionIds::size_of(ids.len() as u32));
                SubscriptionIds::Several(Arc::new(Several { ids: ids.into(), charge }))
            }
        }
    }

    /// Returns the charged bytes for `count` identifiers of one delivery. Zero for fewer than two.
    pub fn size_of(count: u32) -> usize {
        if count < 2 { 0 } else { count as usize * size_of::<u32>() + size_of::<Several>() }
    }

    /// Returns the identifiers, in the order in which they are sent.
    pub fn as_slice(&self) -> &[u32] {
        match self {
            SubscriptionIds::None => &[],
            SubscriptionIds::One(id) => std::slice::from_ref(id),
            SubscriptionIds::Several(several) => &several.ids,
        }
    }

    /// Returns the bytes that these identifiers add to a delivery wherever it is counted. Zero for
    /// fewer than two.
    pub fn size(&self) -> usize {
        match self {
            SubscriptionIds::None | SubscriptionIds::One(_) => 0,
            SubscriptionIds::Several(several) => several.charge.bytes(),
        }
    }
}
