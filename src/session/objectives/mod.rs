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
    pub name: Box<str>,
    /// A Topic Filter.
    pub topic: Box<str>,
    /// Matches the Client Identifier of the receiver; `None` for any.
    pub client_id: Option<Pattern>,
    /// The time that a receiver has for its acknowledgement.
    pub within: Duration,
    /// The share of deliveries that has to be in time, 0 to 1.
    pub target: f64,
}

/// A set of objectives: bit `n` stands for the objective `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectiveSet(u16);

const _: () = assert!(MOST <= u16::BITS as usize);

/// The objectives of one shard, with their counts. 8 bytes if there is no objective.
#[derive(Clone, Debug, Default)]
pub struct Objectives(Option<Box<Rings>>);

#[derive(Clone, Debug)]
struct Rings {
    objectives: Arc<[Objective]>,
    rings: Vec<SpanRing>,
    /// The latest time that a call named.
    now: Instant,
}

impl Objectives {
    /// Returns objectives without counts. Of more than [`MOST`], the first ones count.
    pub fn new(objectives: &Arc<[Objective]>) -> Objectives {
        let rings: Vec<SpanRing> = objectives.iter().take(MOST).map(|o| SpanRing::new(o.within)).collect();
        let objectives = Arc::clone(objectives);
        let some = !rings.is_empty();
        Objectives(some.then(|| Box::new(Rings { objectives, rings, now: Instant::ZERO })))
    }

    /// Returns the objectives that name a client identifier, or any. Found once for a session,
    /// because each glob looks at each byte of the identifier.
    pub fn of_client(&self, client_id: &str) -> ObjectiveSet {
        self.set(|objective| objective.client_id.as_ref().is_none_or(|glob| glob.matches(client_id)))
    }

    /// Returns the objectives that name a topic. Found once for a publication.
    pub fn of_topic(&self, topic: &str) -> ObjectiveSet {
        self.set(|objective| topic::matches(&objective.topic, topic))
    }

    /// Returns the bytes that [`Self::of_client`] looks at.
    pub fn looked_at(&self, client_id: &str) -> usize {
        let globs = |rings: &Rings| rings.objectives.iter().filter(|o| o.client_id.is_some()).count();
        self.0.as_deref().map_or(0, globs) * client_id.len()
    }

    /// Returns true if there is no objective.
    #[inline]
    pub fn are_none(&self) -> bool {
        self.0.is_none()
    }

    fn set(&self, concerns: impl Fn(&Objective) -> bool) -> ObjectiveSet {
        let Some(rings) = &self.0 else { return ObjectiveSet::default() };
        let bits = rings.objectives.iter().take(MOST).enumerate();
        ObjectiveSet(bits.fold(0, |set, (at, objective)| set | u16::from(concerns(objective)) << at))
    }

    /// Begins a delivery above QoS 0. One to a receiver that is away is only counted as excluded,
    /// because no broker can deliver it in time. Returns the mark that the delivery carries.
    /// Without objectives this costs one branch. The first objective of both sets counts the
    /// delivery.
    #[inline]
    pub fn begin(
        &mut self,
        now: Instant,
        of_topic: ObjectiveSet,
        of_client: ObjectiveSet,
        receiver: ReceiverState,
    ) -> DeliveryMark {
        match &mut self.0 {
            None => DeliveryMark::NONE,
            Some(rings) => rings.begin(now, ObjectiveSet(of_topic.0 & of_client.0), receiver),
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
        let Some(rings) = &mut self.0 else { return };
        rings.now = rings.now.max(now);
        let now = rings.now;
        if let Some(ring) = rings.rings.get_mut(usize::from(mark.objective) - 1) {
            ring.end(now, mark.began(), end);
        }
    }

    /// Counts the open deliveries whose time is over as late. Called once a second.
    pub fn advance(&mut self, now: Instant) {
        if let Some(rings) = &mut self.0 {
            rings.now = rings.now.max(now);
            let now = rings.now;
            rings.rings.iter_mut().for_each(|ring| ring.advance(now));
        }
    }

    /// Iterates over the objectives with their counts, in the order of the configuration.
    pub fn counts(&self) -> impl Iterator<Item = (&Objective, ObjectiveCounts)> {
        self.0.iter().flat_map(|r| r.objectives.iter().zip(&r.rings).map(|(o, ring)| (o, ring.counts())))
    }

    /// Adds the counts of another shard, which has the same objectives.
    pub fn add(&mut self, other: &Objectives) {
        match (&mut self.0, &other.0) {
            (_, None) => {}
            (None, Some(_)) => self.clone_from(other),
            (Some(here), Some(other)) => {
                here.rings.iter_mut().zip(&other.rings).for_each(|(here, other)| here.add(other));
            }
        }
    }
}

impl Rings {
    #[inline(never)]
    fn begin(&mut self, now: Instant, concerned: ObjectiveSet, receiver: ReceiverState) -> DeliveryMark {
        self.now = self.now.max(now);
        let at = concerned.0.trailing_zeros() as usize;
        let Some(ring) = self.rings.get_mut(at) else { return DeliveryMark::NONE };
        match receiver {
            ReceiverState::Away | ReceiverState::None => {
                ring.exclude();
                DeliveryMark::NONE
            }
            ReceiverState::Connected => {
                ring.begin(self.now);
                DeliveryMark::new(at, self.now)
            }
        }
    }
}

#[cfg(test)]
mod tests;
