//! The last two minutes of a few figures: rates of messages, and the 99th percentiles of the waits
//! for acknowledgements, the store and deadlines. 9 KiB. [`history`] has the last hour and day.
//!
//! A task on the thread of the interface takes the figures from the last reports of the shards. So
//! the history costs the shards nothing. The history is for people who look now; Prometheus keeps
//! more.

pub(super) mod history;
pub(super) mod sampler;

use crate::time::Instant;
use crate::time::histogram::Distribution;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time between two samples. The shards report once a second, and not at the same time, so a
/// shorter one would show the beat of both.
const PACE: Duration = Duration::from_secs(2);

/// Samples that are kept.
const SAMPLES: usize = 61;

/// Samples over which a rate is the mean.
const SPAN: usize = 2;

/// Samples between two kept distributions.
const COARSE: u32 = 5;

/// Distributions that are kept: one minute.
const DISTRIBUTIONS: usize = 7;

/// The counts of messages at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageSample {
    pub(super) at: Instant,
    /// PUBLISH packets received since the start.
    pub(super) received: u64,
    /// PUBLISH packets sent since the start.
    pub(super) sent: u64,
}

/// The waits since the start.
#[derive(Clone, Debug)]
pub(super) struct WaitSample {
    /// The waits for acknowledgements.
    pub(super) ack: Distribution,
    /// The durations of commits.
    pub(super) commit: Distribution,
    /// The durations of syncs of the store's log.
    pub(super) sync: Distribution,
    /// The durations of writes of the log's changes to the database.
    pub(super) apply: Distribution,
    /// The times by which deadlines were late.
    pub(super) lateness: Distribution,
}

/// The figures of the last two minutes.
#[derive(Debug, Default, PartialEq)]
pub(super) struct RecentView {
    /// Received messages per second, the oldest first. Empty right after the start.
    pub(super) received: Vec<f64>,
    /// Sent messages per second, the oldest first.
    pub(super) sent: Vec<f64>,
    /// The time that 99 % of the acknowledgements of the last minute came within, rounded up to a
    /// power of two of milliseconds; `None` if none came.
    pub(super) ack_p99: Option<Duration>,
    /// As `ack_p99`, for commits.
    pub(super) commit_p99: Option<Duration>,
    /// As `ack_p99`, for syncs of the store's log.
    pub(super) sync_p99: Option<Duration>,
    /// As `ack_p99`, for writes of the log's changes to the database.
    pub(super) apply_p99: Option<Duration>,
    /// As `ack_p99`, for the lateness of deadlines.
    pub(super) lateness_p99: Option<Duration>,
}

/// The samples, the newest last.
#[derive(Debug, Default)]
struct Samples {
    messages: VecDeque<MessageSample>,
    waits: VecDeque<WaitSample>,
    /// The newest waits, which are not kept yet.
    newest: Option<WaitSample>,
    /// Samples until the newest waits are kept.
    until_kept: u32,
}

/// The last two minutes of a few figures.
#[derive(Debug, Default)]
pub(super) struct RecentFigures(Mutex<Samples>);

impl RecentFigures {
    fn samples(&self) -> MutexGuard<'_, Samples> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a sample in. The oldest goes.
    fn take(&self, messages: MessageSample, waits: WaitSample) {
        let mut samples = self.samples();
        if samples.messages.len() >= SAMPLES {
            samples.messages.pop_front();
        }
        samples.messages.push_back(messages);
        if samples.until_kept == 0 {
            samples.until_kept = COARSE;
            if samples.waits.len() >= DISTRIBUTIONS {
                samples.waits.pop_front();
            }
            samples.waits.push_back(waits.clone());
        }
        samples.until_kept -= 1;
        samples.newest = Some(waits);
    }

    /// Returns the figures of the samples.
    pub(super) fn view(&self) -> RecentView {
        let samples = self.samples();
        let rates = |count: fn(&MessageSample) -> u64| {
            let pairs = samples.messages.iter().zip(samples.messages.iter().skip(SPAN));
            pairs.map(|(from, to)| rate(count(from), count(to), to.at.since(from.at))).collect()
        };
        let p99 = |of: fn(&WaitSample) -> &Distribution| {
            let (first, last) = (samples.waits.front()?, samples.newest.as_ref()?);
            of(last).since(of(first)).p99()
        };
        RecentView {
            received: rates(|sample| sample.received),
            sent: rates(|sample| sample.sent),
            ack_p99: p99(|waits| &waits.ack),
            commit_p99: p99(|waits| &waits.commit),
            sync_p99: p99(|waits| &waits.sync),
            apply_p99: p99(|waits| &waits.apply),
            lateness_p99: p99(|waits| &waits.lateness),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "the text has three digits")]
fn rate(from: u64, to: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { to.saturating_sub(from) as f64 / time.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::histogram::Histogram;

    fn take(figures: &RecentFigures, secs: u64, received: u64, acks: &Histogram) {
        let at = Instant::from_millis(secs * 1_000);
        let none = || Histogram::default().distribution();
        let waits = WaitSample {
            ack: acks.distribution(),
            commit: none(),
            sync: none(),
            apply: none(),
            lateness: none(),
        };
        figures.take(MessageSample { at, received, sent: received * 3 }, waits);
    }

    #[test]
    fn rates_are_means_of_two_samples_and_the_oldest_go() {
        let (figures, acks) = (RecentFigures::default(), Histogram::default());
        assert_eq!(figures.view(), RecentView::default());
        for n in 0..=3 {
            take(&figures, n * 2, n * 20, &acks);
        }
        let view = figures.view();
        assert_eq!((view.received, view.sent), (vec![10.0, 10.0], vec![30.0, 30.0]));
        assert_eq!((view.ack_p99, view.commit_p99), (None, None));
        for n in 4..500 {
            take(&figures, n * 2, 0, &acks);
        }
        assert_eq!(figures.view().received, vec![0.0; SAMPLES - SPAN], "a count never falls");
    }

    #[test]
    fn a_percentile_is_that_of_the_last_minute_alone() {
        let (figures, mut acks) = (RecentFigures::default(), Histogram::default());
        acks.add(60_000);
        for n in 0..100 {
            take(&figures, n * 2, 0, &acks);
        }
        assert_eq!(figures.view().ack_p99, None, "the long wait is older");
        acks.add(3);
        take(&figures, 200, 0, &acks);
        assert_eq!(figures.view().ack_p99, Some(Duration::from_millis(4)));
        let samples = figures.samples();
        let in_use = SAMPLES * size_of::<MessageSample>() + (DISTRIBUTIONS + 1) * size_of::<WaitSample>();
        assert!(samples.waits.len() <= DISTRIBUTIONS && in_use <= 9 << 10, "{in_use} bytes");
    }
}
