//! The PUBLISH packets, Will Messages and Topic Filters that the shard refused, for operators.
//!
//! Each client has at most one report of each kind in `QUIET`, with the number of the others. The
//! last refusals are kept. Equal refusals of a client share a row, and one client gets `ROWS` new
//! rows of a kind in `QUIET`, so that no client hides the refusals of the others. A refusal without
//! a row of its own is counted in a row without a topic. Written on the way of a refusal only.

use crate::events::client_events::{ClientEvent, Occurrence};
use crate::events::recent_drops::TEXT;
use crate::mqtt::excerpt::Excerpt;
use crate::mqtt::keyed::Keyed;
use crate::named_enum::named_enum;
use crate::time::Instant;
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::time::Duration;

/// The minimum time between two reports of one kind about one client.
const QUIET: Duration = Duration::from_secs(10);

/// Rows that are kept.
pub(crate) const KEPT: usize = 500;

/// New rows of one kind and client in [`QUIET`], at most.
const ROWS: u8 = 16;

/// Rows among which an equal refusal is looked for.
const LOOKED_AT: usize = 64;

/// Maximum number of clients of one shard with reports of their own.
const CLIENTS: usize = 1_000;

/// Time for which a repeated refusal is a problem.
const LATELY: Duration = Duration::from_mins(10);

/// Equal refusals from which a client repeats itself.
const REPEATED: u64 = 5;

/// Characters of the reason that are kept. A file of rules may have a long name.
const WHY: usize = 256;

named_enum! {
    /// The kind of a refused request.
    pub enum RefusedKind {
        /// A PUBLISH.
        Publish = "publish",
        /// The Will Message of a client.
        Will = "will",
        /// A Topic Filter of a SUBSCRIBE.
        Subscription = "subscription",
    }
}

/// A refused request of a client, or several equal ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The time of the last one, to the second.
    pub at: Instant,
    /// The Client Identifier.
    pub client_id: Excerpt,
    /// The user name of the client; `None` for an anonymous client.
    pub user: Option<Excerpt>,
    /// The kind.
    pub kind: RefusedKind,
    /// The Topic Name or Topic Filter; empty if the row counts requests with several topics.
    pub topic: Excerpt,
    /// The name of the cause: that of a [`DropReason`](crate::session::drops::DropReason) or of a
    /// [`FilterCause`](crate::session::subscriptions::FilterCause).
    pub cause: &'static str,
    /// The rule that denied the request, or the bound that was reached. At most 256 characters.
    pub why: Excerpt,
    /// The number of equal requests.
    pub times: u64,
}

/// A request that is refused now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusedRequest<'a> {
    pub client_id: &'a str,
    pub user: Option<&'a str>,
    pub kind: RefusedKind,
    pub topic: &'a str,
    pub cause: &'static str,
}

/// The refusals of a shard. Not charged: 0.6 MiB at most for the rows, and as much for the reports.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    recent: VecDeque<Refusal>,
    clients: HashMap<Box<str>, [Since; RefusedKind::ALL.len()], Keyed>,
    /// The refusals of clients beyond [`CLIENTS`], and of long client identifiers.
    others: [Since; RefusedKind::ALL.len()],
    now: Instant,
}

/// The refusals of one kind and client since the last report.
#[derive(Debug, Default)]
struct Since {
    first: Option<Box<Refusal>>,
    times: u64,
    rows: u8,
    /// The earliest time of the next report.
    next: Instant,
}

impl Since {
    /// Returns the report if one is due, and starts to count anew.
    fn take(&mut self, now: Instant) -> Option<Occurrence> {
        if self.next > now {
            return None;
        }
        let (first, times) = (self.first.take()?, std::mem::take(&mut self.times));
        self.rows = 0;
        self.next = now + QUIET;
        Some(Occurrence::RequestRefused(Box::new(Refusal { times, ..*first })))
    }
}

impl Refusals {
    /// Keeps and counts a refused request. `why` is asked only for a row or a report of its own.
    pub(crate) fn note(&mut self, request: &RefusedRequest<'_>, why: impl FnOnce() -> String) {
        let RefusedRequest { client_id, user, kind, topic, cause } = *request;
        let has_place = self.clients.len() < CLIENTS && (1..=TEXT).contains(&client_id.len());
        let since = match self.clients.get_mut(client_id) {
            Some(since) => since,
            None if has_place => self.clients.entry(client_id.into()).or_default(),
            None => &mut self.others,
        };
        let since = &mut since[kind as usize];
        since.times += 1;
        let row = Refusal {
            at: self.now,
            client_id: Excerpt::of(client_id, TEXT),
            user: user.map(|user| Excerpt::of(user, TEXT)),
            kind,
            topic: Excerpt::of(topic, TEXT),
            cause,
            why: Excerpt::of("", WHY),
            times: 1,
        };
        let found = self.recent.iter().rev().take(LOOKED_AT).position(|known| known.is_like(&row));
        if since.first.is_some() && (found.is_some() || since.rows >= ROWS) {
            return self.count(row, found);
        }
        let row = Refusal { why: Excerpt::of(&why(), WHY), ..row };
        if since.first.is_none() {
            since.first = Some(Box::new(row.clone()));
        }
        if found.is_none() {
            since.rows += 1;
        }
        self.keep(row, found);
    }

    /// Counts a request in the row of its like at the place `found` from the end, or else in the
    /// row without a topic of its client.
    fn count(&mut self, mut row: Refusal, mut found: Option<usize>) {
        if found.is_none() {
            row.topic = Excerpt::of("", TEXT);
            found = self.recent.iter().rev().take(LOOKED_AT).position(|known| known.is_like(&row));
        }
        if let Some(known) = found.and_then(|place| self.recent.iter().rev().nth(place)) {
            row.why = known.why.clone();
        }
        self.keep(row, found);
    }

    /// Adds a row in place of its like at the place `found` from the end, with the number of both.
    fn keep(&mut self, mut row: Refusal, found: Option<usize>) {
        if let Some(known) = found.and_then(|place| self.recent.remove(self.recent.len() - 1 - place)) {
            row.times += known.times;
        }
        if self.recent.len() >= KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back(row);
    }

    /// Iterates over the rows, the newest first.
    pub(crate) fn newest_first(&self) -> impl ExactSizeIterator<Item = &Refusal> {
        self.recent.iter().rev()
    }

    /// Returns the row with the most requests, at least five, and the last within ten minutes: the
    /// client repeats a forbidden request. Costs a pass over the rows.
    pub(crate) fn most_repeated(&self) -> Option<&Refusal> {
        let lately = self.recent.iter().filter(|row| self.now < row.at + LATELY && row.times >= REPEATED);
        lately.max_by_key(|row| row.times)
    }

    /// Iterates over the rows of a client, the newest first.
    pub(crate) fn of_client(&self, client_id: &str) -> impl Iterator<Item = &Refusal> {
        let wanted = Excerpt::of(client_id, TEXT);
        self.newest_first().filter(move |row| row.client_id == wanted)
    }

    /// Notes an event for each client and kind whose report is due. Removes clients without
    /// refusals once [`QUIET`] has passed. Housekeeping calls it once a second.
    pub(crate) fn report(&mut self, now: Instant, events: &mut Vec<ClientEvent>) {
        self.now = now;
        let mut note = |client_id: Option<&str>, since: &mut [Since]| {
            for since in since {
                events.extend(since.take(now).map(|refused| ClientEvent::new(client_id, refused)));
            }
        };
        self.clients.retain(|client_id, since| {
            note(Some(client_id), since);
            since.iter().any(|since| since.next > now)
        });
        note(None, &mut self.others);
    }
}

impl Refusal {
    fn is_like(&self, other: &Refusal) -> bool {
        let Refusal { client_id, kind, topic, cause, .. } = self;
        *kind == other.kind && *cause == other.cause && *topic == other.topic && *client_id == other.client_id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(refusals: &mut Refusals, client_id: &str, topic: &str) {
        let (kind, cause) = (RefusedKind::Publish, "not_authorized");
        let request = RefusedRequest { client_id, user: Some("ann"), kind, topic, cause };
        refusals.note(&request, || "line 3".to_owned());
    }

    /// Returns client, topic and number of each report that is due.
    fn due(refusals: &mut Refusals, ms: u64) -> Vec<(Option<String>, String, u64)> {
        let mut events = Vec::new();
        refusals.report(Instant::from_millis(ms), &mut events);
        let told = |event: ClientEvent| match event.occurrence {
            Occurrence::RequestRefused(refusal) => {
                (event.client_id.map(String::from), refusal.topic.to_string(), refusal.times)
            }
            other => panic!("{other:?}"),
        };
        events.into_iter().map(told).collect()
    }

    fn report(client_id: Option<&str>, topic: &str, times: u64) -> (Option<String>, String, u64) {
        (client_id.map(str::to_owned), topic.to_owned(), times)
    }

    #[test]
    fn a_client_is_reported_once_in_ten_seconds_with_the_number_of_all_refusals_since() {
        let mut refusals = Refusals::default();
        refuse(&mut refusals, "a", "t/1");
        assert_eq!(due(&mut refusals, 1_000), [report(Some("a"), "t/1", 1)]);
        refuse(&mut refusals, "a", "t/2");
        refuse(&mut refusals, "a", "t/1");
        refuse(&mut refusals, "b", "t/1");
        assert_eq!(due(&mut refusals, 2_000), [report(Some("b"), "t/1", 1)]);
        assert_eq!(due(&mut refusals, 11_000), [report(Some("a"), "t/2", 2)]);
        assert_eq!(due(&mut refusals, 30_000), []);
        assert!(refusals.clients.is_empty());
    }

    #[test]
    fn equal_refusals_share_a_row_and_the_newest_comes_first() {
        let mut refusals = Refusals::default();
        for topic in ["t/1", "t/2", "t/1", "t/1"] {
            refuse(&mut refusals, "a", topic);
        }
        let rows: Vec<_> = refusals.newest_first().map(|row| (row.topic.to_string(), row.times)).collect();
        assert_eq!(rows, [("t/1".to_owned(), 3), ("t/2".to_owned(), 1)]);
        assert!(refusals.newest_first().all(|row| row.why.to_string() == "line 3"));
    }

    #[test]
    fn a_client_that_repeats_itself_is_a_problem_for_ten_minutes() {
        let mut refusals = Refusals::default();
        due(&mut refusals, 1_000);
        (0..4).for_each(|_| refuse(&mut refusals, "a", "t"));
        assert_eq!(refusals.most_repeated(), None);
        (0..6).for_each(|_| refuse(&mut refusals, "b", "t"));
        refuse(&mut refusals, "a", "t");
        let name = |refusals: &Refusals| {
            let row = refusals.most_repeated()?;
            Some((row.client_id.to_string(), row.times))
        };
        assert_eq!(name(&refusals), Some(("b".to_owned(), 6)));
        due(&mut refusals, 602_000);
        assert_eq!(name(&refusals), None);
    }

    #[test]
    fn a_client_with_many_topics_has_a_bounded_number_of_rows_and_the_others_are_counted() {
        let mut refusals = Refusals::default();
        refuse(&mut refusals, "quiet", "t");
        for n in 0..10_000 {
            refuse(&mut refusals, "loud", &format!("t/{n}"));
        }
        assert_eq!(refusals.recent.len(), 1 + usize::from(ROWS) + 1);
        let rest = refusals.newest_first().next().expect("a row");
        assert_eq!((&*rest.topic.to_string(), rest.times), ("", 10_000 - u64::from(ROWS)));
        assert!(refusals.newest_first().any(|row| row.client_id.beginning() == "quiet"));
    }

    #[test]
    fn clients_beyond_the_bound_are_reported_together() {
        let mut refusals = Refusals::default();
        for n in 0..CLIENTS + 5 {
            refuse(&mut refusals, &n.to_string(), "t");
        }
        let due = due(&mut refusals, 0);
        assert_eq!(due.len(), CLIENTS + 1);
        assert!(due.contains(&report(None, "t", 5)) && refusals.recent.len() == KEPT);
    }
}
