//! Delivery objectives: the share of deliveries that their receivers acknowledge in time.
//!
//! The first objective whose filter matches a delivery counts it. A delivery begins when a
//! connected receiver gets its message, at once or into its queue. PUBACK ends a delivery at QoS 1,
//! and PUBREC at QoS 2, because the client owns the message from then on. Each delivery is decided
//! when the time of its objective is over: acknowledged is good, open or dropped is bad.
//!
//! No timer and no walk decides. A ring has the number of open deliveries by the time at which they
//! began, and the deliveries of a part of the ring that is over count as late. So a client that
//! says nothing makes its deliveries late. A delivery carries a [`DeliveryMark`] with its time and
//! its objective, so its end costs one comparison and two additions.
//!
//! A path that loses a mark does no harm: its delivery counts as late when its time is over.
//!
//! A reload replaces the list of objectives at once. A mark names a ring, which stays with its
//! objective. A ring that is used again for another objective ignores the marks from before its
//! beginning.

pub mod mark;
mod ring;

use crate::access::glob::Pattern;
use crate::mqtt::topic;
use crate::session::drops::ReceiverState;
use crate::time::Instant;
use ring::{DeliveryEnd, SpanRing};
use std::sync::Arc;
use std::time::Duration;

pub use mark::DeliveryMark;
pub use ring::ObjectiveCounts;

/// Maximum number of objectives.
pub const MOST: usize = 16;

/// An objective of the operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    /// The name, which metrics have as a label.
    pub name: String,
    /// A Topic Filter.
    pub topic: String,
    /// Matches the Client Identifier of the receiver; `None` for any.
    pub client_id: Option<Pattern>,
    /// The time that a receiver has for its acknowledgement.
    pub within: Duration,
    /// The share of deliveries that has to be in time, 0 to 1.
    pub target: f64,
}

/// A set of objectives: bit `n` is the objective `n` of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectiveSet(u16);

const _: () = assert!(MOST <= u16::BITS as usize);

/// The objectives that name one client, and the number of their list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientObjectives {
    /// [`Objectives::list`]; 0 if nothing has looked yet.
    list: u32,
    set: ObjectiveSet,
}

/// The objectives of one shard, with their counts.
#[derive(Clone, Debug, Default)]
pub struct Objectives {
    /// `None` if there is no objective.
    rings: Option<Box<Rings>>,
    /// The largest `now` passed in so far.
    now: Instant,
    /// The number of the list that is in force, from 1. The record of a session has the number of
    /// its list, so no walk over the sessions is needed after a reload.
    list: u32,
    /// True while a trace is on.
    are_traced: bool,
    /// True if there are objectives or a trace is on, so that one branch tells both.
    are_marked: bool,
}

#[derive(Clone, Debug)]
struct Rings {
    objectives: Arc<[Objective]>,
    /// The place in `rings` of each objective. A reload keeps the place, because marks refer to it.
    places: Vec<u8>,
    /// At most [`MOST`]. A place without an objective is used again by the next new one.
    rings: Vec<SpanRing>,
}

impl Objectives {
    /// Returns objectives without counts. Only the first [`MOST`] objectives count.
    pub fn new(objectives: &Arc<[Objective]>) -> Objectives {
        let mut new = Objectives::default();
        new.replace(objectives);
        new
    }

    /// Replaces the objectives. An objective with the name and the time of an earlier one keeps its
    /// counts and its open deliveries, even with another filter or target. All others begin at 0,
    /// and an open delivery of an objective that is gone counts nowhere.
    pub fn replace(&mut self, objectives: &Arc<[Objective]>) {
        if self.rings.as_ref().map_or(&[][..], |rings| &rings.objectives) == &**objectives {
            return;
        }
        if self.list > 0 {
            // So each mark from before has an earlier time than each of a new ring.
            self.now = self.now + Duration::from_millis(1);
        }
        self.list = self.list.wrapping_add(1).max(1);
        let old = self.rings.take().map(|rings| *rings);
        self.rings = (!objectives.is_empty()).then(|| Box::new(Rings::after(old, objectives, self.now)));
        self.follow_traces(self.are_traced);
    }

    /// Returns the objectives that name a client identifier, or any. Found once for a session and a
    /// list, because each glob looks at each byte of the identifier.
    pub fn of_client(&self, client_id: &str) -> ClientObjectives {
        let set =
            self.set(|objective| objective.client_id.as_ref().is_none_or(|glob| glob.matches(client_id)));
        ClientObjectives { list: self.list, set }
    }

    /// Returns true if `found` is of the list that is in force.
    #[inline]
    pub fn are_known(&self, found: ClientObjectives) -> bool {
        found.list == self.list
    }

    /// Returns the objectives that name a topic. Found once for a publication.
    pub fn of_topic(&self, topic: &str) -> ObjectiveSet {
        self.set(|objective| topic::matches(&objective.topic, topic))
    }

    /// Returns the bytes that [`Self::of_client`] looks at.
    pub fn looked_at(&self, client_id: &str) -> usize {
        let globs = |rings: &Rings| rings.objectives.iter().filter(|o| o.client_id.is_some()).count();
        self.rings.as_deref().map_or(0, globs) * client_id.len()
    }

    /// Returns true if there is no objective.
    #[inline]
    pub fn are_none(&self) -> bool {
        self.rings.is_none()
    }

    /// Sets if a trace is on.
    pub fn follow_traces(&mut self, are_traced: bool) {
        self.are_traced = are_traced;
        self.are_marked = are_traced || self.rings.is_some();
    }

    /// Returns true if a delivery may get a mark: there are objectives, or a trace is on.
    #[inline]
    pub fn are_marked(&self) -> bool {
        self.are_marked
    }

    fn set(&self, concerns: impl Fn(&Objective) -> bool) -> ObjectiveSet {
        let Some(rings) = &self.rings else { return ObjectiveSet::default() };
        let bits = rings.objectives.iter().take(MOST).enumerate();
        ObjectiveSet(bits.fold(0, |set, (at, objective)| set | u16::from(concerns(objective)) << at))
    }

    /// Begins a delivery above QoS 0. A delivery to a receiver that is away is only counted as
    /// excluded, because no broker can be in time for it. Returns the mark that the delivery
    /// carries. Without objectives this costs one branch. The first objective of both sets counts
    /// the delivery.
    #[inline]
    pub fn begin(
        &mut self,
        now: Instant,
        of_topic: ObjectiveSet,
        of_client: ClientObjectives,
        receiver: ReceiverState,
    ) -> DeliveryMark {
        match &mut self.rings {
            None => DeliveryMark::NONE,
            Some(rings) => {
                self.now = self.now.max(now);
                rings.begin(self.now, ObjectiveSet(of_topic.0 & of_client.set.0), receiver)
            }
        }
    }

    /// Ends a delivery that its receiver acknowledged.
    #[inline]
    pub fn acknowledged(&mut self, now: Instant, mark: DeliveryMark) {
        if mark.is_counted() {
            self.end(now, mark, DeliveryEnd::Acknowledged);
        }
    }

    /// Ends a delivery that was dropped. The time is that of the last [`Self::advance`] or later
    /// call.
    #[inline]
    pub fn dropped(&mut self, mark: DeliveryMark) {
        if mark.is_counted() {
            self.end(Instant::ZERO, mark, DeliveryEnd::Dropped);
        }
    }

    /// Ends a delivery whose message goes to another receiver, for which a delivery of its own
    /// begins.
    #[inline]
    pub fn passed_on(&mut self, mark: DeliveryMark) {
        if mark.is_counted() {
            self.end(Instant::ZERO, mark, DeliveryEnd::PassedOn);
        }
    }

    #[cold]
    fn end(&mut self, now: Instant, mark: DeliveryMark, end: DeliveryEnd) {
        self.now = self.now.max(now);
        let Some(rings) = &mut self.rings else { return };
        if let Some(ring) = rings.rings.get_mut(usize::from(mark.objective) - 1) {
            ring.end(self.now, mark.began(), end);
        }
    }

    /// Counts the open deliveries whose time is over as late. Called in each turn, and once a
    /// second on an idle shard.
    pub fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        if let Some(rings) = &mut self.rings {
            rings.rings.iter_mut().for_each(|ring| ring.advance(self.now));
        }
    }

    /// Iterates over the objectives with their counts, in the order of the configuration.
    pub fn counts(&self) -> impl Iterator<Item = (&Objective, ObjectiveCounts)> {
        self.rings.iter().flat_map(|rings| {
            let all = rings.objectives.iter().zip(&rings.places);
            all.filter_map(|(objective, &at)| Some((objective, rings.rings.get(usize::from(at))?.counts())))
        })
    }

    /// Adds the counts of another shard. While a reload is under way, its list may be another one:
    /// then the objectives that both have are added.
    pub fn add(&mut self, other: &Objectives) {
        let Some(there) = &other.rings else { return };
        let Some(here) = &mut self.rings else { return self.clone_from(other) };
        let Rings { objectives, places, rings } = &mut **here;
        for (objective, &at) in objectives.iter().zip(&*places) {
            if let (Some(ring), Some(counted)) = (rings.get_mut(usize::from(at)), there.ring_of(objective)) {
                ring.add(counted);
            }
        }
    }
}

impl Rings {
    /// Returns the rings of these objectives. Objectives in `old` keep their rings and places.
    fn after(old: Option<Rings>, objectives: &Arc<[Objective]>, now: Instant) -> Rings {
        let objectives = Arc::clone(objectives);
        let place_before = |one| old.as_ref().and_then(|old| old.place_of(one));
        let kept: Vec<Option<u8>> = objectives.iter().take(MOST).map(place_before).collect();
        let mut rings = old.map(|old| old.rings).unwrap_or_default();
        let mut free: Vec<u8> = (0..MOST as u8).filter(|at| !kept.contains(&Some(*at))).rev().collect();
        let mut begin = |objective: &Objective| {
            // The lowest free place comes first, so it is a place of `rings` or the next one.
            let at = free.pop().unwrap_or_default();
            let ring = SpanRing::new(objective.within, now);
            match rings.get_mut(usize::from(at)) {
                Some(used) => *used = ring,
                None => rings.push(ring),
            }
            at
        };
        let all = kept.into_iter().zip(objectives.iter());
        let places = all.map(|(kept, one)| kept.unwrap_or_else(|| begin(one))).collect();
        Rings { objectives, places, rings }
    }

    /// Returns the place of the objective with the same name and time.
    fn place_of(&self, one: &Objective) -> Option<u8> {
        let is_same = |(other, _): &(&Objective, &u8)| (&other.name, other.within) == (&one.name, one.within);
        self.objectives.iter().zip(&self.places).find(is_same).map(|(_, at)| *at)
    }

    /// Returns the ring of the objective with the same name and time.
    fn ring_of(&self, one: &Objective) -> Option<&SpanRing> {
        self.rings.get(usize::from(self.place_of(one)?))
    }

    #[inline(never)]
    fn begin(&mut self, now: Instant, concerned: ObjectiveSet, receiver: ReceiverState) -> DeliveryMark {
        let Some(&at) = self.places.get(concerned.0.trailing_zeros() as usize) else {
            return DeliveryMark::NONE;
        };
        let Some(ring) = self.rings.get_mut(usize::from(at)) else { return DeliveryMark::NONE };
        match receiver {
            ReceiverState::Away | ReceiverState::None => {
                ring.exclude();
                DeliveryMark::NONE
            }
            ReceiverState::Connected => {
                ring.begin(now);
                DeliveryMark::new(at, now)
            }
        }
    }
}

#[cfg(test)]
mod tests;
