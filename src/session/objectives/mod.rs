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

impl Objective {
    fn concerns(&self, topic: &str, client_id: &str) -> bool {
        topic::matches(&self.topic, topic)
            && self.client_id.as_ref().is_none_or(|pattern| pattern.matches(client_id))
    }
}

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

    /// Begins a delivery above QoS 0. One to a receiver that is away is only counted as excluded,
    /// because no broker can deliver it in time. Returns the mark that the delivery carries.
    /// Without objectives this costs one branch, else a match with each objective up to the first
    /// that counts the delivery.
    #[inline]
    pub fn begin(
        &mut self,
        now: Instant,
        topic: &str,
        client_id: &str,
        receiver: ReceiverState,
    ) -> DeliveryMark {
        match &mut self.0 {
            None => DeliveryMark::NONE,
            Some(rings) => rings.begin(now, topic, client_id, receiver),
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
    fn begin(&mut self, now: Instant, topic: &str, client_id: &str, receiver: ReceiverState) -> DeliveryMark {
        self.now = self.now.max(now);
        let found = self.objectives.iter().zip(&mut self.rings).enumerate();
        let first = found.into_iter().find(|(_, (objective, _))| objective.concerns(topic, client_id));
        let Some((at, (_, ring))) = first else { return DeliveryMark::NONE };
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
