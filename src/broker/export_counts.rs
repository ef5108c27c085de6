//! The counters of the export by OTLP. The export thread writes the counters. Metrics, problems and
//! checks read them.

use crate::config::OtlpSignal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The counters of one signal.
#[derive(Debug, Default)]
struct SignalCounts {
    sent: AtomicU64,
    lost: AtomicU64,
    failed_requests: AtomicU64,
    /// The reason why the last request failed; `None` if it did not.
    failing: Mutex<Option<String>>,
}

/// The counters of all signals.
#[derive(Debug, Default)]
pub struct ExportCounts([SignalCounts; OtlpSignal::ALL.len()]);

impl ExportCounts {
    fn of(&self, signal: OtlpSignal) -> &SignalCounts {
        &self.0[signal as usize]
    }

    /// Counts records that a collector has taken.
    pub fn add_sent(&self, signal: OtlpSignal, records: u64) {
        self.of(signal).sent.fetch_add(records, Ordering::Relaxed);
    }

    /// Counts records that no collector gets.
    pub fn add_lost(&self, signal: OtlpSignal, records: u64) {
        self.of(signal).lost.fetch_add(records, Ordering::Relaxed);
    }

    /// Notes the result of a request: the reason if it failed.
    pub fn note(&self, signal: OtlpSignal, failure: Option<&str>) {
        let counts = self.of(signal);
        counts.failed_requests.fetch_add(failure.is_some().into(), Ordering::Relaxed);
        *counts.failing.lock().unwrap_or_else(PoisonError::into_inner) = failure.map(str::to_owned);
    }

    /// Forgets why requests failed, because they go elsewhere or nowhere from now on.
    pub fn forget_failures(&self) {
        for counts in &self.0 {
            *counts.failing.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Returns the records that were taken: metric points, log lines or spans.
    pub fn sent(&self, signal: OtlpSignal) -> u64 {
        self.of(signal).sent.load(Ordering::Relaxed)
    }

    /// Returns the records that were lost.
    pub fn lost(&self, signal: OtlpSignal) -> u64 {
        self.of(signal).lost.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that failed.
    pub fn failed_requests(&self, signal: OtlpSignal) -> u64 {
        self.of(signal).failed_requests.load(Ordering::Relaxed)
    }

    /// Returns why the last request of a signal failed; `None` if it did not.
    pub fn failing(&self, signal: OtlpSignal) -> Option<String> {
        self.of(signal).failing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the first signal whose last request failed, with the reason.
    pub fn first_failing(&self) -> Option<(OtlpSignal, String)> {
        OtlpSignal::ALL.iter().find_map(|signal| Some((*signal, self.failing(*signal)?)))
    }
}
