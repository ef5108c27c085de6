//! The listeners of client events: log lines, event topics and last-disconnect records.
//!
//! The shard makes one [`ClientEvent`] for each thing that happens to a client. Its driver passes
//! the event to [`EventListeners::report`], which is the only way in. All JSON of the broker is
//! made in this folder. The folder imports the rate limiter and the counters of the broker, and
//! nothing of actors or sockets.
//!
//! [`feed`] has the way to the HTTP interface. The steps of traces go there, too.
//!
//! | file | listener | bounded by |
//! |---|---|---|
//! | `log` | a line on standard error | `log.events_per_second`, for all threads together |
//! | `topics` | JSON on `$homing/events/...` | `sys.events_per_second`, `.events_per_client` |
//! | [`moments`] | the timeline of the HTTP interface | a channel of 4,096 |
//! | `last_disconnect` | retained JSON, one for each client | `sys.last_disconnects`, in number |

pub mod feed;
mod last_disconnect;
mod log;
pub mod moments;
mod topics;

use super::rate_limit::EventRates;
use super::statistics::BrokerStatistics;
use crate::broker::connection::PeerAddress;
use crate::clock;
use crate::events::client_events::{ClientEvent, Occurrence};
use crate::mqtt::topic::escape_level;
use crate::session::trace_steps::TraceSteps;
use crate::shard::turn::io::EventMessages;
use crate::time::Instant;
pub use last_disconnect::record;
pub use log::{ClientText, EventLog};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use topics::EventTopics;
use topics::{Scene, Suppressed};

/// Maximum length of a client id in a topic, in bytes. A longer one would leave no room in the
/// topic once it is escaped.
const LONGEST_CLIENT_ID: usize = 1024;

/// The listeners of one thread's events.
#[derive(Debug)]
pub struct EventListeners {
    log: Arc<EventLog>,
    /// `None` unless `sys.events` is set.
    topics: Option<EventTopics>,
    statistics: Arc<BrokerStatistics>,
}

impl EventListeners {
    /// Returns the listeners of one thread, without topics. The log is that of all threads.
    pub fn new(log: Arc<EventLog>, statistics: Arc<BrokerStatistics>) -> EventListeners {
        EventListeners { log, topics: None, statistics }
    }

    /// Writes an event to the log, and returns the publications of the other listeners.
    ///
    /// `address` is the client's; `None` if its connection is gone. `tick_late` is the delay of the
    /// thread's latest batch of expired deadlines.
    pub fn report(
        &mut self,
        now: Instant,
        event: &ClientEvent,
        address: Option<&PeerAddress>,
        tick_late: Duration,
    ) -> EventMessages {
        self.log.write(now, event, address);
        if let (Some(client_id), Occurrence::Dropped(counts)) = (&event.client_id, &event.occurrence) {
            self.statistics.bridges.count_drops(client_id, counts);
            self.statistics.sinks.count_drops(client_id, counts);
        }
        moments::offer(&self.statistics.moments, clock::unix_millis, event);
        let published = self.topics.as_mut().and_then(|topics| {
            let scene = Scene { unix_ms: clock::unix_millis(), address, tick_late };
            topics.compose(now, event, scene).unwrap_or_else(|Suppressed| {
                self.statistics.event_suppressed();
                None
            })
        });
        EventMessages { event: published, last_disconnect: record(now, event) }
    }

    /// Passes steps on to the traces of operators.
    pub fn trace(&self, steps: TraceSteps) {
        let to = &self.statistics.trace_steps;
        to.add_lost(steps.lost);
        steps.steps.into_iter().for_each(|step| to.offer(|| step));
    }

    /// Sets the rates of the event topics; `None` turns the topics off. Equal rates change nothing,
    /// so that suppressed events are still reported.
    pub fn set_rates(&mut self, rates: Option<EventRates>) {
        if self.topics.as_ref().map(EventTopics::rates) != rates {
            self.topics = rates.map(|rates| EventTopics::new(rates.per_second, rates.per_client));
        }
    }

    /// Logs how many lines of all threads were suppressed since the last call, if any.
    pub fn report_suppressed_lines(&self) {
        self.log.report_suppressed();
    }
}

/// Returns a client id as one level of a topic of the broker's own; `None` if the id is too long.
fn client_level(client_id: &str) -> Option<Cow<'_, str>> {
    (client_id.len() <= LONGEST_CLIENT_ID).then(|| escape_level(client_id))
}

#[cfg(test)]
mod tests;
