//! The state that all shards of a broker share.

pub mod lease;
pub mod totals;

use crate::login::debts::Debts;
use crate::mqtt::charge::Budget;
use crate::named_enum::named_enum;
use crate::routing::limit_shares::ShareRules;
use crate::routing::retained::Retained;
use crate::shared::lease::Lease;
use crate::shared::totals::Totals;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The state that all shards share. The retained messages of one topic need one order, so they are
/// here and not in a shard. Only retained PUBLISH packets and SUBSCRIBE take their lock.
#[derive(Debug)]
pub struct SharedState {
    /// The retained messages.
    pub retained: Mutex<Retained>,
    /// The bytes that are charged to clients, and their limit `limits.memory`.
    pub budget: Arc<Budget>,
    /// The bytes of partial packets, and their parts of the budget. Partial packets must not starve
    /// messages.
    pub partial: PartialShare,
    /// True while the store has no room. Changes that need the store are refused then.
    pub store_full: AtomicBool,
    /// Counts with a limit for the whole broker.
    pub totals: Totals,
    /// The debts of departed clients to their rates.
    pub debts: Debts,
    /// Bytes that may be on their way to the store before it is full. Negative if there are more.
    /// `i64::MAX` while the store has plenty of room.
    pub store_room: AtomicI64,
    /// Until when promises may leave without an append, in a cluster.
    pub lease: Lease,
    /// The name of this broker in the paths of messages over bridges; `None` without randomness.
    /// A name that is stored would need a store, and a message that crosses a restart makes one more
    /// round at most.
    pub name: Option<Box<str>>,
}

named_enum! {
    /// The two pots of partial packets. Anybody who reaches the port may fill the pot of strangers,
    /// so a full one must not cost a client its packet.
    pub enum Pot {
        /// Connections before CONNACK.
        Strangers = "strangers",
        /// Clients.
        Clients = "clients",
    }
}

/// The bytes of partial packets in all shards, and their limits.
#[derive(Debug, Default)]
pub struct PartialShare {
    strangers: PotShare,
    clients: PotShare,
}

#[derive(Debug, Default)]
struct PotShare {
    /// The sum of the bytes that each shard reported last.
    in_use: AtomicI64,
    most: AtomicI64,
}

impl PartialShare {
    /// Returns a share without bytes, with these limits.
    pub fn new(most: u64, connect: u64) -> PartialShare {
        let share = PartialShare::default();
        share.limit(most, connect);
        share
    }

    /// Changes the limits. Clients have `most` bytes, and strangers a quarter of that beside them,
    /// because a CONNECT is short. `connect` is the largest CONNECT. In any case strangers have
    /// room for an ending and a beginning CONNECT of this size, each in a buffer that has just
    /// doubled.
    pub fn limit(&self, most: u64, connect: u64) {
        let strangers = (most / 4).max(connect.saturating_mul(4));
        for (pot, most) in [(Pot::Clients, most), (Pot::Strangers, strangers)] {
            self.of(pot).most.store(i64::try_from(most).unwrap_or(i64::MAX), Ordering::Relaxed);
        }
    }

    fn of(&self, pot: Pot) -> &PotShare {
        match pot {
            Pot::Strangers => &self.strangers,
            Pot::Clients => &self.clients,
        }
    }

    /// Adds the growth of one shard's partial packets, in bytes. The growth may be negative.
    pub(crate) fn report(&self, pot: Pot, grown: i64) {
        self.of(pot).in_use.fetch_add(grown, Ordering::Relaxed);
    }

    /// Returns true if a shard has to disconnect a connection of this pot: the limit is exceeded,
    /// and the shard itself holds more than its part of the limit, which is one of `shards` equal
    /// parts. `own` are the shard's bytes, and `unreported` their growth since its last report.
    ///
    /// A shard knows only its own connections. Without its part, it would disconnect an honest
    /// client while other shards hold all the bytes. At worst, the shards hold twice the limit.
    pub(crate) fn is_exceeded_by(&self, pot: Pot, own: usize, unreported: i64, shards: u8) -> bool {
        let PotShare { in_use, most } = self.of(pot);
        let most = most.load(Ordering::Relaxed);
        let own = i64::try_from(own).unwrap_or(i64::MAX);
        in_use.load(Ordering::Relaxed) + unreported > most && own > most / i64::from(shards.max(1))
    }
}

impl SharedState {
    /// Locks the retained messages.
    pub fn retained(&self) -> MutexGuard<'_, Retained> {
        // A panic is fatal in this process, so a poisoned lock is never met outside tests.
        self.retained.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the parts of clients and listeners in the limits of retained and delayed messages.
    pub fn limit_shares(&self, rules: &ShareRules) {
        self.retained().limit_shares(rules.clone());
        self.totals.delayed_shares().limit(rules.clone());
    }

    /// Returns true if memory or disk is short, so that a change may be refused. Called for every
    /// PUBLISH. Nearly always false.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.budget.is_exceeded_with(0) || self.store_is_short()
    }

    /// Returns true if the store has no room, or soon will have none.
    pub(crate) fn store_is_short(&self) -> bool {
        self.is_store_full() || self.store_room.load(Ordering::Relaxed) != i64::MAX
    }

    /// Returns true if the store has no room. Callers use this to decide about changes that make
    /// room. A change that needs room is checked by admission.
    pub fn is_store_full(&self) -> bool {
        self.store_full.load(Ordering::Relaxed)
    }

    /// Returns the bytes of the retained message that an erasing PUBLISH to `topic` frees. Returns
    /// 0 if neither memory nor disk is short. Then the size does not matter, and the lock is not
    /// taken.
    pub(crate) fn frees(&self, topic: &str) -> usize {
        if self.is_short() { self.retained().size_of(topic) } else { 0 }
    }
}
