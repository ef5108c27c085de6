//! The open deliveries of one objective, by the time at which they began.

use crate::time::{Instant, millis};
use std::time::Duration;

/// Places of the ring.
const PLACES: u64 = 64;

/// Places that the time of an objective takes. The present place and the place that is partly over
/// are the other two.
const WITHIN: u64 = PLACES - 2;

/// The counts of one objective since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectiveCounts {
    /// Deliveries that were acknowledged in time.
    pub in_time: u64,
    /// Deliveries that were open when their time was over.
    pub late: u64,
    /// Deliveries that were dropped before their time was over.
    pub dropped: u64,
    /// Deliveries to receivers that were away.
    pub excluded: u64,
    /// Deliveries that are not decided yet.
    pub open: u64,
}

impl ObjectiveCounts {
    /// Returns the number of decided deliveries.
    pub fn decided(&self) -> u64 {
        self.in_time + self.late + self.dropped
    }

    /// Returns the share of decided deliveries that were in time; `None` if none is decided.
    #[expect(clippy::cast_precision_loss, reason = "counts of deliveries are below 2^52")]
    pub fn share_in_time(&self) -> Option<f64> {
        (self.decided() > 0).then(|| self.in_time as f64 / self.decided() as f64)
    }

    /// Returns the share of the error budget that is left: 1 if every delivery was in time, 0 at
    /// the target, negative below it. `None` if no delivery is decided, or if the target is 1.
    pub fn budget_left(&self, target: f64) -> Option<f64> {
        let budget = 1.0 - target;
        let bad = 1.0 - self.share_in_time()?;
        (budget > 0.0).then(|| 1.0 - bad / budget)
    }

    fn add(&mut self, other: &ObjectiveCounts) {
        let ObjectiveCounts { in_time, late, dropped, excluded, open } = other;
        self.in_time += in_time;
        self.late += late;
        self.dropped += dropped;
        self.excluded += excluded;
        self.open += open;
    }
}

/// The end of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeliveryEnd {
    Acknowledged,
    Dropped,
    PassedOn,
}

/// The counts of one objective. Time is cut into spans of equal width, and the place of a span is
/// its number modulo [`PLACES`]. 64 spans are enough for all deliveries that are not decided.
#[derive(Clone, Debug)]
pub(super) struct SpanRing {
    /// The time that a receiver has, in milliseconds.
    within: u64,
    /// The width of a span, in milliseconds.
    width: u64,
    /// The number of the first span whose deliveries are not decided.
    first: u64,
    /// The time of the first delivery that the ring may count.
    since: Instant,
    open: [u32; PLACES as usize],
    counts: ObjectiveCounts,
}

impl SpanRing {
    /// Returns a ring that counts deliveries that begin at `since` or later.
    pub(super) fn new(within: Duration, since: Instant) -> SpanRing {
        let within = millis(within).clamp(1, u64::from(u32::MAX));
        let counts = ObjectiveCounts::default();
        let width = within.div_ceil(WITHIN);
        SpanRing {
            within,
            width,
            first: since.as_millis() / width,
            since,
            open: [0; PLACES as usize],
            counts,
        }
    }

    /// Counts the deliveries of each span that is over as late. Usually this is one comparison.
    #[inline]
    pub(super) fn advance(&mut self, now: Instant) {
        // The last delivery of a span began before the span's end.
        if now.as_millis() >= (self.first + 1) * self.width + self.within {
            self.decide(now);
        }
    }

    #[cold]
    fn decide(&mut self, now: Instant) {
        let first = (now.as_millis() - self.within) / self.width;
        // After a long silence, the whole ring is over.
        for span in self.first..first.min(self.first + PLACES) {
            let late = std::mem::take(&mut self.open[(span % PLACES) as usize]);
            self.counts.late += u64::from(late);
        }
        self.first = first;
    }

    pub(super) fn begin(&mut self, now: Instant) {
        self.advance(now);
        self.open[(now.as_millis() / self.width % PLACES) as usize] += 1;
    }

    pub(super) fn exclude(&mut self) {
        self.counts.excluded += 1;
    }

    /// Ends a delivery, unless it is decided already, or is of the ring that had the place before.
    pub(super) fn end(&mut self, now: Instant, began: Instant, end: DeliveryEnd) {
        self.advance(now);
        let span = began.as_millis() / self.width;
        if span < self.first || began < self.since {
            return;
        }
        let open = &mut self.open[(span % PLACES) as usize];
        debug_assert!(*open > 0, "each delivery ends once");
        *open = open.saturating_sub(1);
        let is_over = now.as_millis().saturating_sub(began.as_millis()) > self.within;
        let count = match end {
            DeliveryEnd::PassedOn => return,
            _ if is_over => &mut self.counts.late,
            DeliveryEnd::Acknowledged => &mut self.counts.in_time,
            DeliveryEnd::Dropped => &mut self.counts.dropped,
        };
        *count += 1;
    }

    pub(super) fn counts(&self) -> ObjectiveCounts {
        ObjectiveCounts { open: self.open.iter().copied().map(u64::from).sum(), ..self.counts }
    }

    /// Adds the counts of another ring. The sum is only for [`Self::counts`], because the spans of
    /// the two need not be the same.
    pub(super) fn add(&mut self, other: &SpanRing) {
        self.counts.add(&other.counts);
        self.open.iter_mut().zip(&other.open).for_each(|(here, there)| *here += there);
    }
}
