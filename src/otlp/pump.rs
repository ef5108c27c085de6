//! Sends records from a queue to the collector, and counts the sent and the lost records.

use super::collector::{Collector, NotTaken, PartialSuccess};
use crate::broker::export_counts::ExportCounts;
use crate::clock;
use crate::config::OtlpSignal;
use crate::log::tap::{Backlog, HasSize};
use crate::time::Instant;
use prost::Message;
use std::cell::RefCell;
use std::ops::DerefMut;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

/// Records of one request at most. Each takes a few kilobytes at most.
const BATCH: usize = 512;

/// The interval at which a queue is looked at.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// The longest wait before a request is sent again, whatever the collector says.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The interval of log lines about failures and losses.
const LINES: Duration = Duration::from_secs(10);

/// A queue of records of one signal.
pub(super) trait Queue {
    /// A record.
    type Record: HasSize;
    /// A request with some of them.
    type Request: Message;

    /// The signal.
    const SIGNAL: OtlpSignal;

    /// Returns the records that wait. No other task runs while the value lives.
    fn backlog(&self) -> impl DerefMut<Target = Backlog<Self::Record>>;

    /// Returns the request with these records.
    fn request(&self, records: &[Self::Record], collector: &Collector) -> Self::Request;
}

/// The waits before a request is sent again: 1 s, and twice as long each time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff(Duration);

impl Backoff {
    /// Returns the next wait. `said` is that of the collector.
    fn next(&mut self, said: Option<Duration>) -> Duration {
        self.0 = (self.0 * 2).clamp(TICK, LONGEST_WAIT);
        said.unwrap_or_default().clamp(self.0, LONGEST_WAIT)
    }

    /// Notes that a request was taken.
    fn succeeded(&mut self) {
        self.0 = Duration::ZERO;
    }
}

/// Counts results, and writes the log lines about them: one in ten seconds.
#[derive(Debug)]
pub(super) struct Results {
    counts: Arc<ExportCounts>,
    lines: RefCell<LineTimes>,
}

#[derive(Debug, Default)]
struct LineTimes {
    /// The time of the last line; `None` before the first.
    last: Option<Instant>,
    /// Records lost since the last line.
    lost: u64,
    /// True for a signal whose failure has a line that no recovery has followed.
    reported: [bool; OtlpSignal::ALL.len()],
}

impl Results {
    pub(super) fn new(counts: Arc<ExportCounts>) -> Results {
        Results { counts, lines: RefCell::default() }
    }

    pub(super) fn counts(&self) -> &Arc<ExportCounts> {
        &self.counts
    }

    /// Counts records that the collector will not get.
    pub(super) fn lost(&self, signal: OtlpSignal, records: u64) {
        self.counts.add_lost(signal, records);
        self.lines.borrow_mut().lost += records;
    }

    /// Counts records that the collector has accepted.
    fn taken(
        &self,
        collector: &Collector,
        signal: OtlpSignal,
        records: u64,
        left_out: Option<PartialSuccess>,
    ) {
        self.counts.note(signal, None);
        let rejected =
            left_out.as_ref().map_or(0, |answer| u64::try_from(answer.rejected).unwrap_or(0)).min(records);
        self.counts.add_sent(signal, records - rejected);
        self.lost(signal, rejected);
        let was_reported = std::mem::take(&mut self.lines.borrow_mut().reported[signal as usize]);
        if was_reported {
            info!(event = "otlp.recovered", collector = %collector, signal = signal.name(), "the collector takes this signal again (otlp.endpoint)");
        }
        if let Some(PartialSuccess { error_message, .. }) = left_out
            && let Some(lost) = self.line()
        {
            warn!(event = "otlp.rejected", collector = %collector, signal = signal.name(), rejected, lost, reason = error_message, "the collector has left records out");
        }
    }

    /// Counts a request that failed.
    pub(super) fn failed(&self, collector: &Collector, signal: OtlpSignal, reason: &str) {
        self.counts.note(signal, Some(reason));
        if let Some(lost) = self.line() {
            self.lines.borrow_mut().reported[signal as usize] = true;
            warn!(
                event = "otlp.failed", collector = %collector, signal = signal.name(), reason, lost,
                "the collector has not taken what was exported: check that it runs, and otlp.endpoint. The broker goes on, and what finds no room is lost"
            );
        }
    }

    /// Writes a line about lost records. While requests fail, the lines about these say it.
    fn report_lost(&self) {
        if self.lines.borrow().lost > 0
            && self.counts.first_failing().is_none()
            && let Some(lost) = self.line()
        {
            warn!(
                event = "otlp.records_lost",
                lost,
                "records were not exported, because the collector does not take them as fast as they come, or has refused them"
            );
        }
    }

    /// Returns the number of records that were lost since the last line, if a line is due.
    fn line(&self) -> Option<u64> {
        let now = clock::now();
        let mut lines = self.lines.borrow_mut();
        let is_due = lines.last.is_none_or(|last| now.since(last) >= LINES);
        is_due.then(|| {
            lines.last = Some(now);
            std::mem::take(&mut lines.lost)
        })
    }
}

/// Sends all records that wait. Returns the time until the next look.
pub(super) async fn pump<Q: Queue>(
    queue: &Q,
    collector: Option<&Collector>,
    results: &Results,
    backoff: &mut Backoff,
) -> Duration {
    let signal = Q::SIGNAL;
    let Some(collector) = collector.filter(|collector| collector.config().exports(signal)) else {
        queue.backlog().clear();
        backoff.succeeded();
        return TICK;
    };
    loop {
        let records = queue.backlog().take(BATCH);
        results.lost(signal, queue.backlog().take_lost());
        results.report_lost();
        if records.is_empty() {
            return TICK;
        }
        let number = records.len() as u64;
        match collector.send(signal, &queue.request(&records, collector)).await {
            Ok(left_out) => {
                backoff.succeeded();
                results.taken(collector, signal, number, left_out);
            }
            Err(NotTaken::NotNow(why, after)) => {
                queue.backlog().put_back(records);
                results.lost(signal, queue.backlog().take_lost());
                results.failed(collector, signal, &why);
                return backoff.next(after);
            }
            Err(NotTaken::Refused(why)) => {
                results.lost(signal, number);
                results.failed(collector, signal, &why);
                // Others may be refused, too, and a collector is not flooded with them.
                return backoff.next(None);
            }
        }
    }
}

/// Sends one request, without a retry: the next request has newer figures.
pub(super) async fn send_once(
    (signal, records): (OtlpSignal, u64),
    request: &impl Message,
    collector: &Collector,
    results: &Results,
) {
    match collector.send(signal, request).await {
        Ok(left_out) => results.taken(collector, signal, records, left_out),
        Err(NotTaken::NotNow(why, _) | NotTaken::Refused(why)) => {
            results.lost(signal, records);
            results.failed(collector, signal, &why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waits_grow_to_half_a_minute_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::default();
        let secs: Vec<u64> = (0..7).map(|_| backoff.next(None).as_secs()).collect();
        assert_eq!(secs, [1, 2, 4, 8, 16, 30, 30]);
        backoff.succeeded();
        let said = |secs| Some(Duration::from_secs(secs));
        assert_eq!(backoff.next(said(9)).as_secs(), 9);
        assert_eq!(
            backoff.next(said(3_600)).as_secs(),
            30,
            "a collector does not silence the export for hours"
        );
    }
}
