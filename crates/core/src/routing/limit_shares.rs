//! The shares of clients and listeners in a limit of the whole broker, so that one client cannot
//! fill it for all others.
//!
//! A limit has two measures, messages and bytes. A client may have a part of each, in percent, and
//! so may a listener. The first message of a client or listener is always within its part, because
//! a part of a small limit may be less than one message.

use crate::mqtt::charge::Charge;
use crate::mqtt::keyed::Keyed;
use crate::mqtt::owner::Owner;
use hashbrown::HashMap;
use std::sync::Arc;

/// Bytes of the count of a client: its place in the table, which is half full at worst.
const CLIENT: usize = 96;

/// All of a limit, in percent.
const ALL: u16 = 100;

/// The parts of a limit that one client and each listener may have, in percent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareRules {
    /// The part of each client.
    pub client: u16,
    /// The parts of listeners by name or address. Others may have all.
    pub listeners: Vec<(Box<str>, u16)>,
}

impl Default for ShareRules {
    /// Everybody may have all.
    fn default() -> ShareRules {
        ShareRules { client: ALL, listeners: Vec::new() }
    }
}

/// A number of messages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// The number of messages.
    pub messages: usize,
    /// The sum of their sizes.
    pub bytes: usize,
}

impl Amount {
    /// Returns the amount of one message.
    pub fn one(bytes: usize) -> Amount {
        Amount { messages: 1, bytes }
    }

    fn add(&mut self, other: Amount) {
        self.messages += other.messages;
        self.bytes += other.bytes;
    }

    /// Subtracts an amount that was added before. A debug build panics if less was.
    fn sub(&mut self, other: Amount) {
        debug_assert!(self.messages >= other.messages && self.bytes >= other.bytes, "{other:?} of {self:?}");
        self.messages = self.messages.saturating_sub(other.messages);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }

    /// Returns true if this and `more` are within a part of `most`.
    fn admits(self, more: Amount, most: Amount, percent: u16) -> bool {
        let within = |in_use: usize, more: usize, most: usize| {
            (in_use as u128 + more as u128) * u128::from(ALL) <= most as u128 * u128::from(percent)
        };
        percent >= ALL
            || self.messages == 0
            || within(self.messages, more.messages, most.messages)
                && within(self.bytes, more.bytes, most.bytes)
    }
}

/// The use of a limit by each client and each listener.
#[derive(Debug, Default)]
pub struct LimitShares {
    rules: ShareRules,
    clients: HashMap<Arc<Owner>, Amount, Keyed>,
    listeners: HashMap<Box<str>, Amount, Keyed>,
    charge: Charge,
}

impl LimitShares {
    /// Changes the rules. Messages above a new limit stay.
    pub fn limit(&mut self, rules: ShareRules) {
        self.rules = rules;
    }

    /// Returns true if `more` is within the parts of a client and of its listener. `most` is the
    /// limit of the whole broker.
    pub fn admits(&self, owner: &Owner, more: Amount, most: Amount) -> bool {
        let client = self.clients.get(owner).copied().unwrap_or_default();
        let listener = self.listeners.get(owner.listener()).copied().unwrap_or_default();
        let part = self.rules.listeners.iter().find(|(name, _)| **name == *owner.listener());
        client.admits(more, most, self.rules.client)
            && listener.admits(more, most, part.map_or(ALL, |(_, percent)| *percent))
    }

    /// Counts a message. Returns the stored equal owner, so that all its messages share one value.
    pub fn add(&mut self, owner: Arc<Owner>, bytes: usize) -> Arc<Owner> {
        let owner = self.known(owner);
        self.clients.entry(Arc::clone(&owner)).or_default().add(Amount::one(bytes));
        match self.listeners.get_mut(owner.listener()) {
            Some(listener) => listener.add(Amount::one(bytes)),
            None => drop(self.listeners.insert(owner.listener().into(), Amount::one(bytes))),
        }
        self.charge.set(self.clients.len() * CLIENT);
        owner
    }

    /// Returns the stored equal owner.
    pub fn known(&self, owner: Arc<Owner>) -> Arc<Owner> {
        self.clients.get_key_value(&*owner).map_or(owner, |(known, _)| Arc::clone(known))
    }

    /// Takes back a message that was counted.
    pub fn remove(&mut self, owner: &Owner, bytes: usize) {
        if let Some(client) = self.clients.get_mut(owner) {
            client.sub(Amount::one(bytes));
            if client.messages == 0 {
                self.clients.remove(owner);
            }
        }
        if let Some(listener) = self.listeners.get_mut(owner.listener()) {
            listener.sub(Amount::one(bytes));
            if listener.messages == 0 {
                self.listeners.remove(owner.listener());
            }
        }
        self.charge.set(self.clients.len() * CLIENT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Amount = Amount { messages: 100, bytes: 10_000 };

    fn shares(client: u16, listener: u16) -> LimitShares {
        let listeners = vec![("guests".into(), listener)];
        LimitShares { rules: ShareRules { client, listeners }, ..LimitShares::default() }
    }

    /// Returns the number of messages that are admitted.
    fn fill(shares: &mut LimitShares, owner: &Arc<Owner>, bytes: usize) -> usize {
        let admitted = |shares: &mut LimitShares| {
            let is_admitted = shares.admits(owner, Amount::one(bytes), MOST);
            is_admitted.then(|| shares.add(Arc::clone(owner), bytes))
        };
        std::iter::from_fn(|| admitted(shares)).take(1_000).count()
    }

    #[test]
    fn a_client_and_a_listener_have_their_parts_and_no_more() {
        let mut shares = shares(25, 50);
        let [a, b, c] = ["a", "b", "c"].map(|id| Owner::new(id, "guests"));
        assert_eq!([&a, &b, &c].map(|owner| fill(&mut shares, owner, 10)), [25, 25, 0]);
        assert_eq!(fill(&mut shares, &Owner::new("a", "devices"), 10), 25, "another client");
        for _ in 0..25 {
            shares.remove(&b, 10);
        }
        assert_eq!(fill(&mut shares, &c, 10), 25);
    }

    #[test]
    fn bytes_have_a_part_and_the_first_message_is_always_within_it() {
        let mut shares = shares(25, 100);
        let [a, b] = ["a", "b"].map(|id| Owner::new(id, "guests"));
        assert_eq!((fill(&mut shares, &a, 1_000), fill(&mut shares, &b, 9_000)), (2, 1));
        shares.remove(&b, 9_000);
        assert_eq!(shares.clients.len(), 1);
        assert!(Arc::ptr_eq(&shares.known(Owner::new("a", "guests")), &a), "its messages share one value");
    }
}
