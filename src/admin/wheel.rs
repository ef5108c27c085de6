//! The deadline wheel: how many deadlines are due in each part of the next round of the ring.
//!
//! The expiry actor counts only on request, and at most twice a second, whatever the number of
//! viewers.

use super::failed::Failed;
use crate::broker::observer::Observer;
use crate::clock;
use crate::expiry::deadline::DeadlineKind;
use crate::expiry::queue::WheelCount;
use crate::time::Instant;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use utoipa::ToSchema;

/// Time for which a count is not repeated.
const FRESH: Duration = Duration::from_millis(500);

/// Bars of the page. The ring has 1,024 buckets, so a bar has 16 of them.
pub(super) const BARS: usize = 64;

/// The last count. Further callers wait for the counting caller, and share its result.
#[derive(Default)]
pub(super) struct LastWheel(Mutex<Option<(Instant, Arc<WheelCount>)>>);

impl LastWheel {
    /// Returns a count that is at most half a second old. Errors: the expiry actor does not answer
    /// in time.
    pub(super) async fn now(&self, observer: &Observer) -> Result<Wheel, Failed> {
        self.within(observer, FRESH).await
    }

    /// As [`Self::now`], with a count that is at most `age` old. Errors: the expiry actor does not
    /// answer in time.
    pub(super) async fn within(&self, observer: &Observer, age: Duration) -> Result<Wheel, Failed> {
        let mut last = self.0.lock().await;
        if let Some((at, count)) = &*last
            && clock::now() < *at + age
        {
            return Ok(Wheel::of(*at, count));
        }
        let count = observer.count_deadlines().await.map_err(|_| Failed::Busy)?;
        let at = clock::now();
        let wheel = Wheel::of(at, &count);
        *last = Some((at, count));
        Ok(wheel)
    }
}

/// A count of all deadlines, at one moment.
pub(super) struct Wheel {
    at: Instant,
    count: Arc<WheelCount>,
}

pub(super) type ByKind = [u64; DeadlineKind::COUNT];

/// The deadlines of some neighbouring buckets.
pub(super) struct Bar {
    /// The deadlines are due behind this time, in seconds from the count.
    pub(super) from: f64,
    /// The deadlines are due by this time, in seconds from the count.
    pub(super) to: f64,
    pub(super) kinds: ByKind,
}

impl Bar {
    pub(super) fn keys(&self) -> u64 {
        self.kinds.iter().sum()
    }
}

/// The deadlines by the time in which they are due.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Expiry)]
pub(crate) struct Deadlines {
    /// The width of a bucket, in seconds.
    pub(crate) tick: f64,
    /// The width of all buckets, in seconds.
    pub(crate) span: f64,
    pub(crate) keys: u64,
    /// Deadlines by kind.
    pub(crate) kinds: BTreeMap<Cow<'static, str>, u64>,
    /// Deadlines whose time had come at the count.
    pub(crate) overdue: u64,
    /// Deadlines of later rounds.
    pub(crate) later: u64,
    pub(crate) buckets: Vec<BucketRow>,
}

#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Bucket)]
pub(crate) struct BucketRow {
    /// Seconds.
    pub(crate) ends_in: f64,
    pub(crate) keys: u64,
    pub(crate) kinds: BTreeMap<Cow<'static, str>, u64>,
}

impl Wheel {
    fn of(at: Instant, count: &Arc<WheelCount>) -> Wheel {
        Wheel { at, count: Arc::clone(count) }
    }

    /// Returns the number of all deadlines.
    pub(super) fn keys(&self) -> u64 {
        self.count.keys()
    }

    /// Returns the deadlines whose buckets had ended at the count.
    pub(super) fn overdue(&self) -> u64 {
        self.count.overdue().iter().map(|keys| u64::from(*keys)).sum()
    }

    /// Returns the deadlines behind the last bar.
    pub(super) fn later(&self) -> u64 {
        self.count.later().iter().map(|keys| u64::from(*keys)).sum()
    }

    pub(super) fn kinds(&self) -> ByKind {
        let mut kinds = [0; DeadlineKind::COUNT];
        let buckets = self.count.buckets().map(|(_, keys)| keys);
        for keys in buckets.chain([self.count.overdue(), self.count.later()]) {
            add(&mut kinds, keys);
        }
        kinds
    }

    /// Returns the time that all bars take together, in seconds.
    pub(super) fn span(&self) -> f64 {
        self.count.interval().as_secs_f64() * self.count.buckets().count() as f64
    }

    /// Returns the bars, the earliest first.
    pub(super) fn bars(&self) -> Vec<Bar> {
        let buckets: Vec<_> = self.count.buckets().collect();
        let tick = self.count.interval().as_secs_f64();
        let each = buckets.len().div_ceil(BARS).max(1);
        let stretch = |(at, some): (usize, &[(Instant, &[u32; DeadlineKind::COUNT])])| {
            let mut kinds = [0; DeadlineKind::COUNT];
            some.iter().for_each(|(_, keys)| add(&mut kinds, keys));
            let from = tick * (at * each) as f64;
            Bar { from, to: from + tick * some.len() as f64, kinds }
        };
        buckets.chunks(each).enumerate().map(stretch).collect()
    }

    /// Returns the deadlines of each of the next `secs` seconds, as far as the present round knows
    /// them. Overdue deadlines count in the first second.
    pub(super) fn per_second(&self, secs: usize) -> Vec<u64> {
        let total = |keys: &[u32; DeadlineKind::COUNT]| keys.iter().map(|keys| u64::from(*keys)).sum();
        let buckets = self.count.buckets().map(|(end, keys)| (end.since(self.at), total(keys)));
        by_second(buckets.chain([(Duration::ZERO, total(self.count.overdue()))]), secs)
    }

    /// Returns the answer of the API: each bucket with deadlines, and the totals.
    pub(super) fn deadlines(&self) -> Deadlines {
        let buckets = self.count.buckets().filter(|(_, keys)| keys.iter().any(|keys| *keys > 0));
        let buckets = buckets.map(|(end, keys)| {
            let keys = keys.map(u64::from);
            let ends_in = end.since(self.at).as_secs_f64();
            BucketRow { ends_in, keys: keys.iter().sum(), kinds: named(keys) }
        });
        Deadlines {
            tick: self.count.interval().as_secs_f64(),
            span: self.span(),
            keys: self.keys(),
            kinds: named(self.kinds()),
            overdue: self.overdue(),
            later: self.later(),
            buckets: buckets.collect(),
        }
    }

    /// Returns the JSON of the live page: the bars by kind, and the totals.
    pub(super) fn live(&self) -> Value {
        json!({
            "keys": self.keys(),
            "overdue": self.overdue(),
            "later": self.later(),
            "kinds": self.kinds(),
            "bars": self.bars().iter().map(|bar| bar.kinds.to_vec()).collect::<Vec<_>>(),
        })
    }
}

/// Returns the sums of the deadlines of buckets by the second in which each bucket ends. A bucket
/// that ends at a whole second belongs to the second before it.
fn by_second(buckets: impl Iterator<Item = (Duration, u64)>, secs: usize) -> Vec<u64> {
    let mut all = vec![0; secs];
    for (ends_in, keys) in buckets {
        let second = usize::try_from(ends_in.as_millis().saturating_sub(1) / 1_000).unwrap_or(usize::MAX);
        if let Some(sum) = all.get_mut(second) {
            *sum += keys;
        }
    }
    all
}

fn add(kinds: &mut ByKind, keys: &[u32; DeadlineKind::COUNT]) {
    for (sum, keys) in kinds.iter_mut().zip(keys) {
        *sum += u64::from(*keys);
    }
}

/// Returns the kinds with deadlines, by name.
fn named(kinds: ByKind) -> BTreeMap<Cow<'static, str>, u64> {
    let all = DeadlineKind::ALL.into_iter().zip(kinds).filter(|(_, keys)| *keys > 0);
    all.map(|(kind, keys)| (kind.name().into(), keys)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_counts_in_the_second_in_which_it_ends() {
        let buckets = [(0, 1), (1, 2), (1_000, 4), (1_001, 8), (3_000, 16), (3_001, 32), (60_000, 64)];
        let buckets = buckets.map(|(ms, keys)| (Duration::from_millis(ms), keys));
        assert_eq!(by_second(buckets.into_iter(), 3), [7, 8, 16]);
        assert_eq!(by_second(buckets.into_iter(), 60)[59], 64);
    }
}
