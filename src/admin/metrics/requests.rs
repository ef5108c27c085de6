//! Counts the requests to the HTTP interface.

use super::text::Kind::{Counter, Histogram};
use super::text::MetricsText;
use crate::time::histogram::SharedHistogram;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Requests by route and status, and their durations.
///
/// A route is the pattern of a path, so the number of routes is that of this program.
#[derive(Debug, Default)]
pub struct RequestCounts {
    counts: Mutex<BTreeMap<(String, u16), u64>>,
    time: SharedHistogram,
}

impl RequestCounts {
    /// Counts one request. `route` is the pattern of its path; `None` if the path is unknown.
    pub fn count(&self, route: Option<String>, status: u16, took: Duration) {
        let route = route.unwrap_or_else(|| "unknown".to_owned());
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((route, status)).or_default() += 1;
        self.time.add(took, 1);
    }

    pub(super) fn write(&self, text: &mut MetricsText) {
        text.family(Counter, "admin_requests_total", "Requests to the HTTP interface.");
        for ((route, status), requests) in &*self.counts.lock().unwrap_or_else(PoisonError::into_inner) {
            text.sample(&[("route", route), ("code", &status.to_string())], requests);
        }
        let help = "Duration of requests to the HTTP interface.";
        text.family(Histogram, "admin_request_seconds", help).histogram(None, &self.time.distribution());
    }
}
