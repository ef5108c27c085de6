//! The drops of a shard by client, for the events about them, and the last drops.
//!
//! A client has at most one event in [`QUIET`]. The event has the number of drops by reason. The
//! drops of clients beyond [`CLIENTS`] are reported together, so the cost is bounded if every
//! client loses messages.

use crate::events::client_events::{ClientEvent, Occurrence};
use crate::events::recent_drops::RecentDrops;
use crate::mqtt::keyed::Keyed;
use crate::persistence::records::ReadEntry;
use crate::session::drops::{Counts, DropReason, Dropped, ReceiverState};
use crate::session::session_redelivery::SessionRedelivery;
use crate::time::Instant;
use hashbrown::HashMap;
use std::time::Duration;

/// The minimum time between two events of one client.
const QUIET: Duration = Duration::from_secs(10);

/// Maximum number of clients of one shard with a report of their own.
const CLIENTS: usize = 1_000;

/// Longest client identifier, in bytes, that is reported by itself. The reports of 16 shards take 6
/// MiB at most, which are not charged.
const LONGEST_CLIENT_ID: usize = 256;

/// The receiver of a dropped message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DropReceiver<'a> {
    /// The client identifier, or the name of the shared group.
    pub client_id: &'a str,
    pub redelivery: &'a SessionRedelivery,
    /// True if the store has the receiver's messages above QoS 0.
    pub stored: bool,
    pub state: ReceiverState,
}

/// The drops since the last report, by client, and the last drops.
#[derive(Debug, Default)]
pub(crate) struct DropReports {
    recent: RecentDrops,
    clients: HashMap<Box<str>, Since, Keyed>,
    /// The drops of clients beyond [`CLIENTS`], of long client identifiers, and of unknown clients.
    others: Since,
}

/// The drops of one client since its last event.
#[derive(Debug, Default)]
struct Since {
    counts: Counts,
    /// The earliest time of the next event.
    next: Instant,
}

impl Since {
    /// Returns the drops if an event is due, and starts to count anew.
    fn take(&mut self, now: Instant) -> Option<Counts> {
        if self.next > now || self.counts.total() == 0 {
            return None;
        }
        self.next = now + QUIET;
        Some(std::mem::take(&mut self.counts))
    }
}

impl DropReports {
    /// Keeps and counts a drop of a client. A shared group counts as a client, by its name. The
    /// name of no receiver is empty.
    pub(crate) fn note(&mut self, client_id: &str, dropped: &Dropped) {
        self.recent.note(client_id, dropped);
        self.count(client_id, dropped.cause);
    }

    /// Adds the topics that the store had of dropped messages.
    pub(crate) fn topics_came(&mut self, read: &[ReadEntry]) {
        read.iter().for_each(|read| self.recent.topic_came(read));
    }

    fn count(&mut self, client_id: &str, cause: DropReason) {
        let has_place = self.clients.len() < CLIENTS && (1..=LONGEST_CLIENT_ID).contains(&client_id.len());
        let since = match self.clients.get_mut(client_id) {
            Some(since) => since,
            None if has_place => self.clients.entry(client_id.into()).or_default(),
            None => &mut self.others,
        };
        since.counts.add(cause, 1);
    }

    /// Returns the last drops.
    pub(crate) fn recent(&self) -> &RecentDrops {
        &self.recent
    }

    /// Notes an event for each client whose event is due. Removes clients without drops since their
    /// last event, once [`QUIET`] has passed. Housekeeping calls it once a second.
    pub(crate) fn report(&mut self, now: Instant, events: &mut Vec<ClientEvent>) {
        self.recent.set_time(now);
        let mut note = |client_id: Option<&str>, since: &mut Since| {
            let event = |counts| ClientEvent::new(client_id, Occurrence::Dropped(counts));
            events.extend(since.take(now).map(event));
        };
        self.clients.retain(|client_id, since| {
            note(Some(client_id), since);
            since.next > now
        });
        note(None, &mut self.others);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(drop_reports: &mut DropReports, ms: u64) -> Vec<(Option<String>, u64)> {
        let mut events = Vec::new();
        drop_reports.report(Instant::from_millis(ms), &mut events);
        let counted = |event: ClientEvent| match event.occurrence {
            Occurrence::Dropped(counts) => (event.client_id.map(String::from), counts.total()),
            other => panic!("{other:?}"),
        };
        let mut due: Vec<_> = events.into_iter().map(counted).collect();
        due.sort();
        due
    }

    #[test]
    fn a_client_is_reported_once_in_ten_seconds_with_all_drops_since() {
        let mut drop_reports = DropReports::default();
        drop_reports.count("a", DropReason::Expired);
        assert_eq!(due(&mut drop_reports, 1_000), [(Some("a".into()), 1)]);
        drop_reports.count("a", DropReason::Expired);
        drop_reports.count("a", DropReason::QueueRefused);
        drop_reports.count("b", DropReason::Expired);
        assert_eq!(due(&mut drop_reports, 2_000), [(Some("b".into()), 1)]);
        assert_eq!(due(&mut drop_reports, 11_000), [(Some("a".into()), 2)]);
        assert_eq!(due(&mut drop_reports, 30_000), []);
        assert!(drop_reports.clients.is_empty());
    }

    #[test]
    fn clients_beyond_the_bound_are_reported_together() {
        let mut drop_reports = DropReports::default();
        for n in 0..CLIENTS + 5 {
            drop_reports.count(&n.to_string(), DropReason::Expired);
        }
        drop_reports.count(&"long".repeat(LONGEST_CLIENT_ID), DropReason::Expired);
        let due = due(&mut drop_reports, 0);
        assert_eq!((due.len(), due.first()), (CLIENTS + 1, Some(&(None, 6))));
    }
}
