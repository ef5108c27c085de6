//! Dropped messages: each is reported by client. It becomes a dead letter if the redelivery policy
//! says so.
//!
//! What is told goes out at most once in [`QUIET`] for each client, with how many since and by
//! cause. Clients beyond [`CLIENTS`] are told of together, so a fleet that loses messages costs
//! bounded memory.

use crate::mqtt::keyed::Keyed;
use crate::mqtt::message::Message;
use crate::mqtt::topic::TopicFilter;
use crate::session::drops::{Counts, DropReason, Dropped};
use crate::session::session_redelivery::SessionRedelivery;
use crate::shard::Shard;
use crate::shard::features::dead_letters::DeadLetter;
use crate::shard::observe::client_events::{ClientEvent, Occurrence};
use crate::shard::slots::SessionId;
use crate::time::Instant;
use hashbrown::HashMap;
use std::time::Duration;

/// Between two events of one client.
const QUIET: Duration = Duration::from_secs(10);

/// Clients that are told of each for itself, in one shard.
const CLIENTS: usize = 1_000;

/// Bytes of a client id at most, of one that is told of for itself. So 16 shards hold 6 MiB, which
/// are not on the row.
const LONGEST_CLIENT_ID: usize = 256;

/// What clients lost since it was last told.
#[derive(Debug, Default)]
pub(super) struct DropReports {
    clients: HashMap<Box<str>, Since, Keyed>,
    /// Of clients for which there was no place.
    others: Since,
}

#[derive(Debug, Default)]
struct Since {
    counts: Counts,
    /// Not before this.
    tell: Instant,
}

impl Since {
    /// What there is to tell by now.
    fn take(&mut self, now: Instant) -> Option<Counts> {
        if self.tell > now || self.counts.total() == 0 {
            return None;
        }
        self.tell = now + QUIET;
        Some(std::mem::take(&mut self.counts))
    }
}

impl DropReports {
    fn note(&mut self, client_id: &str, cause: DropReason) {
        let no_place = self.clients.len() >= CLIENTS || client_id.len() > LONGEST_CLIENT_ID;
        let since = match self.clients.get_mut(client_id) {
            Some(since) => since,
            None if no_place => &mut self.others,
            None => self.clients.entry(client_id.into()).or_default(),
        };
        since.counts.add(cause, 1);
    }

    /// Hands out what is due; forgets clients that lost nothing since.
    fn tell(&mut self, now: Instant, mut event: impl FnMut(Option<&str>, Counts)) {
        self.clients.retain(|client_id, since| {
            if let Some(counts) = since.take(now) {
                event(Some(client_id), counts);
            }
            since.tell > now
        });
        if let Some(counts) = self.others.take(now) {
            event(None, counts);
        }
    }
}

impl Shard {
    /// Sees to what the session at hand has lost by the call before, if anything.
    #[inline]
    pub(super) fn report_drops(&mut self, id: SessionId) {
        if self.counters.drops.are_unreported() {
            self.report_drops_of(id);
        }
    }

    #[cold]
    fn report_drops_of(&mut self, id: SessionId) {
        let mut lost = self.counters.drops.take_unreported();
        if let Some(session_entry) = self.sessions.get(id) {
            let (client_id, redelivery) =
                (&session_entry.session.client_id, session_entry.session.sender.redelivery());
            let stored = session_entry.session.row().is_some();
            for lost in lost.drain(..) {
                self.drop_reports.note(client_id, lost.cause);
                self.dead_letters.add(DeadLetter::of(lost, client_id, redelivery, stored));
            }
        }
        self.counters.drops.give_back(lost);
    }

    /// A session has ended, and what it had not finished with it; `stored`: it was in the store.
    pub(super) fn drop_with_session(
        &mut self,
        client_id: &str,
        redelivery: &SessionRedelivery,
        lost: Dropped,
        stored: bool,
    ) {
        self.counters.drops.count(lost.cause);
        self.drop_reports.note(client_id, lost.cause);
        self.dead_letters.add(DeadLetter::of(lost, client_id, redelivery, stored));
    }

    /// A message is lost of a client that is not known any more.
    pub(super) fn drop_of_nobody(&mut self, cause: DropReason) {
        self.counters.drops.count(cause);
        self.drop_reports.others.counts.add(cause, 1);
    }

    /// A shared group has lost a message: no member took it. `share` is its filter in full;
    /// `stored`: it comes from what is recorded in the batch that is being filled.
    pub(super) fn drop_of_group(
        &mut self,
        share: &str,
        cause: DropReason,
        message: Option<Message>,
        stored: bool,
    ) {
        let name = TopicFilter::parse(share, usize::MAX).ok().and_then(|filter| filter.share_name);
        let whose = format!("$share/{}", name.unwrap_or_default());
        self.counters.drops.count(cause);
        self.drop_reports.note(&whose, cause);
        self.dead_letters.add(DeadLetter::of(
            Dropped::new(cause, message),
            &whose,
            self.rules.nobody(),
            stored,
        ));
    }

    /// Of the shard's regular work.
    pub(super) fn report_dropped(&mut self, now: Instant) {
        let events = &mut self.effects.events;
        self.drop_reports.tell(now, |client_id, counts| {
            events.push(ClientEvent {
                connection: None,
                client_id: client_id.map(Into::into),
                version: None,
                occurrence: Occurrence::Dropped(counts),
                detail: None,
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(drop_reports: &mut DropReports, ms: u64) -> Vec<(Option<String>, u64)> {
        let mut told = Vec::new();
        drop_reports.tell(Instant::from_millis(ms), |client, counts| {
            told.push((client.map(ToOwned::to_owned), counts.total()));
        });
        told.sort();
        told
    }

    #[test]
    fn a_client_is_told_of_once_in_ten_seconds_with_all_since() {
        let mut drop_reports = DropReports::default();
        drop_reports.note("a", DropReason::Expired);
        assert_eq!(told(&mut drop_reports, 1_000), [(Some("a".into()), 1)]);
        drop_reports.note("a", DropReason::Expired);
        drop_reports.note("a", DropReason::QueueRefused);
        drop_reports.note("b", DropReason::Expired);
        assert_eq!(told(&mut drop_reports, 2_000), [(Some("b".into()), 1)]);
        assert_eq!(told(&mut drop_reports, 11_000), [(Some("a".into()), 2)]);
        assert_eq!(told(&mut drop_reports, 30_000), []);
        assert!(drop_reports.clients.is_empty());
    }

    #[test]
    fn clients_beyond_the_bound_are_told_of_together() {
        let mut drop_reports = DropReports::default();
        for n in 0..CLIENTS + 5 {
            drop_reports.note(&n.to_string(), DropReason::Expired);
        }
        drop_reports.note(&"long".repeat(LONGEST_CLIENT_ID), DropReason::Expired);
        let told = told(&mut drop_reports, 0);
        assert_eq!((told.len(), told.first()), (CLIENTS + 1, Some(&(None, 6))));
    }
}
