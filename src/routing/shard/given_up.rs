//! Messages given up: each is told of by client, and where its terms say so becomes a dead letter.
//!
//! What is told goes out at most once in [`QUIET`] for each client, with how many since and by cause. Clients beyond
//! [`CLIENTS`] are told of together, so a fleet that loses messages costs bounded memory.

use super::dead_letter::Letter;
use super::effects::Event;
use super::{SessionId, Shard};
use crate::mqtt::keyed::Keyed;
use crate::mqtt::message::Message;
use crate::mqtt::session::loss::{Counts, LossCause, Lost};
use crate::mqtt::session::terms::SessionTerms;
use crate::mqtt::topic::TopicFilter;
use crate::time::Instant;
use hashbrown::HashMap;
use std::time::Duration;

/// Between two events of one client.
const QUIET: Duration = Duration::from_secs(10);

/// Clients that are told of each for itself, in one shard.
const CLIENTS: usize = 1_000;

/// Bytes of a client id at most, of one that is told of for itself.
const LONGEST_CLIENT_ID: usize = 1024;

/// What clients lost since it was last told.
#[derive(Debug, Default)]
pub(super) struct GivenUp {
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

impl GivenUp {
    fn note(&mut self, client_id: &str, cause: LossCause) {
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
    pub(super) fn settle_losses(&mut self, id: SessionId) {
        if self.tally.losses.are_untold() {
            self.tell_losses(id);
        }
    }

    #[cold]
    fn tell_losses(&mut self, id: SessionId) {
        let mut lost = self.tally.losses.take_untold();
        if let Some(resident) = self.sessions.get(id) {
            let (client_id, terms) = (&resident.session.client_id, resident.session.sender.terms());
            let stored = resident.session.account().is_some();
            for lost in lost.drain(..) {
                self.given_up.note(client_id, lost.cause);
                self.letters.extend(Letter::of(lost, client_id, terms, stored));
            }
        }
        self.tally.losses.give_back(lost);
    }

    /// A session has ended, and what it had not finished with it; `stored`: it was in the store.
    pub(super) fn lose_with_session(
        &mut self,
        client_id: &str,
        terms: &SessionTerms,
        lost: Lost,
        stored: bool,
    ) {
        self.tally.losses.count(lost.cause);
        self.given_up.note(client_id, lost.cause);
        self.letters.extend(Letter::of(lost, client_id, terms, stored));
    }

    /// A message is lost of a client that is not known any more.
    pub(super) fn lose_of_nobody(&mut self, cause: LossCause) {
        self.tally.losses.count(cause);
        self.given_up.others.counts.add(cause, 1);
    }

    /// A shared group has lost a message: no member took it. `share` is its filter in full; `stored`: it comes from what is
    /// recorded in the batch that is being filled.
    pub(super) fn lose_of_group(
        &mut self,
        share: &str,
        cause: LossCause,
        message: Option<Message>,
        stored: bool,
    ) {
        let name = TopicFilter::parse(share, usize::MAX).ok().and_then(|filter| filter.share_name);
        let whose = format!("$share/{}", name.unwrap_or_default());
        self.tally.losses.count(cause);
        self.given_up.note(&whose, cause);
        self.letters.extend(Letter::of(Lost::new(cause, message), &whose, self.rules.nobody(), stored));
    }

    /// Of the shard's regular work.
    pub(super) fn tell_given_up(&mut self, now: Instant) {
        let events = &mut self.effects.events;
        self.given_up.tell(now, |client_id, counts| {
            events.push(Event::GivenUp { client_id: client_id.map(Into::into), counts });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(given_up: &mut GivenUp, ms: u64) -> Vec<(Option<String>, u64)> {
        let mut told = Vec::new();
        given_up.tell(Instant::from_millis(ms), |client, counts| {
            told.push((client.map(ToOwned::to_owned), counts.total()));
        });
        told.sort();
        told
    }

    #[test]
    fn a_client_is_told_of_once_in_ten_seconds_with_all_since() {
        let mut given_up = GivenUp::default();
        given_up.note("a", LossCause::Expired);
        assert_eq!(told(&mut given_up, 1_000), [(Some("a".into()), 1)]);
        given_up.note("a", LossCause::Expired);
        given_up.note("a", LossCause::QueueRefused);
        given_up.note("b", LossCause::Expired);
        assert_eq!(told(&mut given_up, 2_000), [(Some("b".into()), 1)]);
        assert_eq!(told(&mut given_up, 11_000), [(Some("a".into()), 2)]);
        assert_eq!(told(&mut given_up, 30_000), []);
        assert!(given_up.clients.is_empty());
    }

    #[test]
    fn clients_beyond_the_bound_are_told_of_together() {
        let mut given_up = GivenUp::default();
        for n in 0..CLIENTS + 5 {
            given_up.note(&n.to_string(), LossCause::Expired);
        }
        given_up.note(&"long".repeat(LONGEST_CLIENT_ID), LossCause::Expired);
        let told = told(&mut given_up, 0);
        assert_eq!((told.len(), told.first()), (CLIENTS + 1, Some(&(None, 6))));
    }
}
