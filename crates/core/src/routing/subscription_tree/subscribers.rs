//! The local subscribers of one filter, sorted by session slot.
//!
//! Nearly every filter has one subscriber, which is stored inline: 16 bytes and no allocation. A
//! few subscribers are one sorted vector. More than [`RUN`] subscribers are several sorted runs. So
//! an insertion or removal moves at most `RUN` entries (6 KiB), and a fan-out still copies slices.
//!
//! The order has two reasons. The receivers of a fan-out come in the order of their sessions in
//! memory, and equal input gives equal order in the simulation.

use super::SessionSlot;
use crate::mqtt::packet::{QoS, SubscriptionOptions};

/// The largest number of entries in one run.
const RUN: usize = 512;

/// One local subscription as the tree keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subscriber {
    /// The session that receives the messages.
    pub session: SessionSlot,
    /// The subscription options that a delivery needs.
    pub options: PackedOptions,
    /// The 5.0 Subscription Identifier; 0 without one.
    pub subscription_id: u32,
}

const _: () = assert!(size_of::<Subscriber>() == 12);
const _: () = assert!(size_of::<Subscribers>() == 16);

/// The subscription options that a delivery needs, in the bits of the wire.
///
/// Bits 0 and 1 are the QoS, bit 2 is No Local, bit 3 is Retain As Published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PackedOptions(u8);

impl PackedOptions {
    const NO_LOCAL: u8 = 1 << 2;
    const RETAIN_AS_PUBLISHED: u8 = 1 << 3;

    /// Packs the options of a SUBSCRIBE.
    pub fn new(options: &SubscriptionOptions) -> PackedOptions {
        let no_local = if options.no_local { Self::NO_LOCAL } else { 0 };
        let as_published = if options.retain_as_published { Self::RETAIN_AS_PUBLISHED } else { 0 };
        PackedOptions(options.qos.bits() | no_local | as_published)
    }

    /// Returns the Subscription Options byte of 5.0 without Retain Handling, which only the
    /// SUBSCRIBE itself needs.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns the options of a byte that [`Self::bits`] returned.
    pub const fn from_bits(bits: u8) -> PackedOptions {
        PackedOptions(bits & 0b1111)
    }

    /// Returns the granted QoS.
    pub fn qos(self) -> QoS {
        match self.0 & 3 {
            0 => QoS::AtMostOnce,
            1 => QoS::AtLeastOnce,
            // Made from a `QoS`, so the bits are never 3.
            _ => QoS::ExactlyOnce,
        }
    }

    /// Returns true if the session does not get its own messages.
    pub const fn no_local(self) -> bool {
        self.0 & Self::NO_LOCAL != 0
    }

    /// Returns true if a delivery keeps the RETAIN flag of the PUBLISH.
    pub const fn retain_as_published(self) -> bool {
        self.0 & Self::RETAIN_AS_PUBLISHED != 0
    }
}

impl From<SubscriptionOptions> for PackedOptions {
    fn from(options: SubscriptionOptions) -> PackedOptions {
        PackedOptions::new(&options)
    }
}

/// The local subscribers of one filter. Each session is in it at most once.
#[derive(Debug, Default)]
pub(super) enum Subscribers {
    #[default]
    None,
    One(Subscriber),
    /// 2 to `RUN` subscribers. Boxed, because every filter would pay for a larger variant.
    Few(Box<Run>),
    /// About `RUN / 2` subscribers and more.
    Many(Box<Runs>),
}

impl Subscribers {
    /// Returns true if there is no subscriber.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Subscribers::None)
    }

    /// Adds a session's subscription. Returns the replaced subscription, if the session had one.
    pub(super) fn put(&mut self, subscriber: Subscriber) -> Option<Subscriber> {
        match self {
            Subscribers::None => {
                *self = Subscribers::One(subscriber);
                None
            }
            Subscribers::One(one) if one.session == subscriber.session => {
                Some(std::mem::replace(one, subscriber))
            }
            Subscribers::One(one) => {
                let mut run = Run(vec![*one]);
                run.put(subscriber);
                *self = Subscribers::Few(Box::new(run));
                None
            }
            Subscribers::Few(run) if run.0.len() < RUN => run.put(subscriber),
            Subscribers::Few(run) => {
                let mut runs = Runs(vec![std::mem::take(&mut **run)]);
                let replaced = runs.put(subscriber);
                *self = Subscribers::Many(Box::new(runs));
                replaced
            }
            Subscribers::Many(runs) => runs.put(subscriber),
        }
    }

    /// Removes a session's subscription and returns it.
    pub(super) fn remove(&mut self, session: SessionSlot) -> Option<Subscriber> {
        let removed = match self {
            Subscribers::One(one) if one.session == session => Some(*one),
            Subscribers::None | Subscribers::One(_) => None,
            Subscribers::Few(run) => run.remove(session),
            Subscribers::Many(runs) => runs.remove(session),
        };
        if removed.is_some() {
            self.narrow();
        }
        removed
    }

    /// Changes to the smaller variant once the remaining subscribers fit in it.
    fn narrow(&mut self) {
        match self {
            Subscribers::One(_) => *self = Subscribers::None,
            Subscribers::Few(run) => match run.0[..] {
                [] => *self = Subscribers::None,
                [one] => *self = Subscribers::One(one),
                _ => {}
            },
            Subscribers::Many(runs) => {
                if let [run] = &mut runs.0[..]
                    && run.0.len() <= RUN / 2
                {
                    *self = Subscribers::Few(Box::new(std::mem::take(run)));
                }
            }
            Subscribers::None => {}
        }
    }

    /// Appends all subscribers in ascending order of their slots.
    pub(super) fn copy_to(&self, out: &mut Vec<Subscriber>) {
        match self {
            Subscribers::None => {}
            Subscribers::One(one) => out.push(*one),
            Subscribers::Few(run) => out.extend_from_slice(&run.0),
            Subscribers::Many(runs) => runs.0.iter().for_each(|run| out.extend_from_slice(&run.0)),
        }
    }

    /// Returns the subscribers in ascending order of their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Subscriber> {
        let (few, many): (&[Subscriber], &[Run]) = match self {
            Subscribers::None => (&[], &[]),
            Subscribers::One(one) => (std::slice::from_ref(one), &[]),
            Subscribers::Few(run) => (&run.0, &[]),
            Subscribers::Many(runs) => (&[], &runs.0),
        };
        few.iter().chain(many.iter().flat_map(|run| &run.0))
    }

    /// Returns the subscribers from a slot on, in ascending order. Costs a binary search.
    pub(super) fn iter_from(&self, slot: u32) -> impl Iterator<Item = &Subscriber> {
        let (few, many): (&[Subscriber], &[Run]) = match self {
            Subscribers::None => (&[], &[]),
            Subscribers::One(one) => (std::slice::from_ref(one), &[]),
            Subscribers::Few(run) => (&run.0, &[]),
            Subscribers::Many(runs) => (&[], &runs.0[runs.run_of(SessionSlot(slot))..]),
        };
        let behind = |run: &[Subscriber]| run.partition_point(|s| s.session.0 < slot);
        let first = many.first().map_or(0, |run| behind(&run.0));
        few[behind(few)..].iter().chain(many.iter().flat_map(|run| &run.0).skip(first))
    }

    /// Returns the bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        match self {
            Subscribers::None | Subscribers::One(_) => 0,
            Subscribers::Few(run) => size_of::<Run>() + run.memory(),
            Subscribers::Many(runs) => {
                size_of::<Runs>()
                    + runs.0.capacity() * size_of::<Run>()
                    + runs.0.iter().map(Run::memory).sum::<usize>()
            }
        }
    }
}

/// One sorted run, at most [`RUN`] long.
#[derive(Debug, Default)]
pub(super) struct Run(Vec<Subscriber>);

impl Run {
    fn find(&self, session: SessionSlot) -> Result<usize, usize> {
        // New sessions mostly have higher slots, so the end comes before the middle.
        match self.0.last() {
            Some(last) if last.session < session => Err(self.0.len()),
            _ => self.0.binary_search_by_key(&session, |s| s.session),
        }
    }

    fn put(&mut self, subscriber: Subscriber) -> Option<Subscriber> {
        match self.find(subscriber.session) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at], subscriber)),
            Err(at) => {
                self.0.insert(at, subscriber);
                None
            }
        }
    }

    fn remove(&mut self, session: SessionSlot) -> Option<Subscriber> {
        let at = self.find(session).ok()?;
        let removed = self.0.remove(at);
        if self.0.len() * 4 <= self.0.capacity() {
            self.0.shrink_to(self.0.len() * 2);
        }
        Some(removed)
    }

    fn memory(&self) -> usize {
        self.0.capacity() * size_of::<Subscriber>()
    }
}

/// Sorted runs in ascending order. No run is empty.
#[derive(Debug)]
pub(super) struct Runs(Vec<Run>);

impl Runs {
    /// Returns the index of the run that has the session, or into which it belongs.
    fn run_of(&self, session: SessionSlot) -> usize {
        self.0.partition_point(|run| run.0.first().is_some_and(|s| s.session <= session)).saturating_sub(1)
    }

    fn put(&mut self, subscriber: Subscriber) -> Option<Subscriber> {
        let at = self.run_of(subscriber.session);
        let is_last = at + 1 == self.0.len();
        let run = &mut self.0[at];
        if run.0.len() < RUN || run.find(subscriber.session).is_ok() {
            return run.put(subscriber);
        }
        // A full last run is followed by a new one, so ascending slots fill every run. Others are
        // halved.
        let is_append = is_last && run.find(subscriber.session) == Err(RUN);
        let upper = if is_append { Vec::new() } else { run.0.split_off(RUN / 2) };
        self.0.insert(at + 1, Run(upper));
        let lower_end = self.0[at].0.last().map(|s| s.session);
        let at = if Some(subscriber.session) > lower_end { at + 1 } else { at };
        self.0[at].put(subscriber)
    }

    fn remove(&mut self, session: SessionSlot) -> Option<Subscriber> {
        let at = self.run_of(session);
        let removed = self.0[at].remove(session)?;
        let left = self.0[at].0.len();
        if left == 0 && self.0.len() > 1 {
            self.0.remove(at);
        } else if left < RUN / 4 {
            self.merge(at);
        }
        if self.0.len() * 4 <= self.0.capacity() {
            self.0.shrink_to(self.0.len() * 2);
        }
        Some(removed)
    }

    /// Merges a short run with a neighbour if both fit in half a run. So short runs do not
    /// accumulate.
    fn merge(&mut self, at: usize) {
        let fits = |a: usize| self.0[a].0.len() + self.0[a + 1].0.len() <= RUN / 2;
        let left = if at > 0 && fits(at - 1) {
            at - 1
        } else if at + 1 < self.0.len() && fits(at) {
            at
        } else {
            return;
        };
        let right = self.0.remove(left + 1);
        self.0[left].0.extend(right.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn subscriber(session: u32, subscription_id: u32) -> Subscriber {
        Subscriber { session: SessionSlot(session), options: PackedOptions::default(), subscription_id }
    }

    fn all(subscribers: &Subscribers) -> Vec<Subscriber> {
        let mut out = Vec::new();
        subscribers.copy_to(&mut out);
        assert!(subscribers.iter().eq(&out));
        out
    }

    /// Returns the numbers below `n`, each once, in an order that is neither ascending nor
    /// descending.
    fn scattered(n: u32) -> impl Iterator<Item = u32> {
        (0..n).map(move |i| ((u64::from(i) * 7919) % u64::from(n)) as u32)
    }

    #[test]
    fn options_keep_what_a_delivery_needs() {
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
            for (no_local, retain_as_published) in [(false, true), (true, false), (true, true)] {
                let options =
                    SubscriptionOptions { qos, no_local, retain_as_published, ..Default::default() };
                let packed = PackedOptions::from(options);
                assert_eq!(packed.qos(), qos);
                assert_eq!(packed.no_local(), no_local);
                assert_eq!(packed.retain_as_published(), retain_as_published);
            }
        }
    }

    #[test]
    fn every_size_keeps_each_session_once_in_ascending_order() {
        let mut subscribers = Subscribers::default();
        let mut model = BTreeMap::new();
        for session in scattered(3_000) {
            assert_eq!(subscribers.put(subscriber(session, 1)), None);
            model.insert(session, 1);
        }
        assert_eq!(subscribers.put(subscriber(77, 2)).map(|s| s.subscription_id), Some(1));
        model.insert(77, 2);
        assert!(matches!(subscribers, Subscribers::Many(_)));
        for (removed, session) in scattered(3_000).enumerate() {
            if removed % 250 == 0 {
                let expected: Vec<_> = model.iter().map(|(s, id)| subscriber(*s, *id)).collect();
                assert_eq!(all(&subscribers), expected);
            }
            assert!(subscribers.remove(SessionSlot(session)).is_some());
            assert!(subscribers.remove(SessionSlot(session)).is_none());
            model.remove(&session);
        }
        assert!(subscribers.is_empty());
        assert_eq!(subscribers.memory(), 0);
    }

    #[test]
    fn ascending_slots_fill_their_runs() {
        let mut subscribers = Subscribers::default();
        for session in 0..100_000 {
            subscribers.put(subscriber(session, 0));
        }
        assert!(subscribers.memory() < 100_000 * 14, "{}", subscribers.memory());
    }

    #[test]
    fn what_stays_of_a_crowd_takes_little() {
        let mut subscribers = Subscribers::default();
        for session in 0..10_000 {
            subscribers.put(subscriber(session, 0));
        }
        for session in (0..10_000).filter(|s| s % 100 != 0) {
            subscribers.remove(SessionSlot(session));
        }
        assert_eq!(all(&subscribers).len(), 100);
        assert!(subscribers.memory() < 100 * 12 * 4, "{}", subscribers.memory());
    }
}
