//! The receivers of a topic: sessions with the filters by which they get it, and shared groups.

use crate::mqtt::packet::QoS;
use crate::operators::budget::{BYTES, Question, ROWS};
use crate::routing::shared_group::Presence;
use crate::routing::subscription_tree::{FilterSurvey, GroupId, SurveyPlace};
use crate::shard::clients::session_entry::SessionEntry;
use std::collections::HashMap;

/// Filters of one session in an answer at most.
const FILTERS: usize = 4;

/// Steps of one row: a look-up of its session, and three allocations.
const ROW: usize = 8;

/// A session whose subscriptions match a topic.
#[derive(Clone, Debug)]
pub struct MatchedSession {
    /// The Client Identifier.
    pub client_id: Box<str>,
    /// True if the client is connected.
    pub connected: bool,
    /// The highest QoS of the subscriptions that match.
    pub qos: QoS,
    /// The Topic Filters that match, the first `FILTERS`.
    pub filters: Vec<Box<str>>,
    /// The reason for which the client may not read the topic; `None` if it may, or if no topic is
    /// asked for.
    pub denied: Option<Box<str>>,
}

impl MatchedSession {
    /// Returns a session that gets messages at this QoS, by this filter.
    pub(super) fn of(entry: &SessionEntry, qos: QoS, filter: Box<str>) -> MatchedSession {
        let (client_id, connected) = (entry.session.client_id.clone(), entry.connection.is_some());
        MatchedSession { client_id, connected, qos, filters: vec![filter], denied: None }
    }

    /// Returns the presence of the session.
    pub fn presence(&self) -> Presence {
        if self.connected { Presence::Online } else { Presence::Offline }
    }

    /// Returns the bytes of its texts.
    fn bytes(&self) -> usize {
        self.client_id.len() + self.filters.iter().map(|filter| filter.len()).sum::<usize>()
    }
}

/// The receivers of a topic, or a part of them.
#[derive(Clone, Debug, Default)]
pub struct MatchedReceivers {
    /// The sessions. A Client Identifier is in it once.
    sessions: Vec<MatchedSession>,
    places: HashMap<Box<str>, usize>,
    /// Bytes of the texts of sessions and groups.
    bytes: usize,
    /// The shared groups in full, each with its number of members in all shards.
    pub groups: Vec<(Box<str>, usize)>,
    /// The place at which the next part begins; `None` at the end.
    pub next: Option<SurveyPlace>,
    /// True if there are more than the answer has.
    pub more: bool,
}

impl MatchedReceivers {
    /// Returns the sessions.
    pub fn sessions(&self) -> &[MatchedSession] {
        &self.sessions
    }

    /// Returns true if a client was found.
    pub fn has(&self, client_id: &str) -> bool {
        self.places.contains_key(client_id)
    }

    /// Leaves out the sessions of other clients.
    pub fn keep_only(&mut self, client_id: &str) {
        self.sessions.retain(|session| *session.client_id == *client_id);
    }

    /// Adds a session, or further filters of a known session. Returns false if a new one finds
    /// `most` sessions, or has no room for its bytes.
    pub(super) fn add(&mut self, session: MatchedSession, most: usize) -> bool {
        if let Some(known) = self.places.get(&session.client_id).and_then(|at| self.sessions.get_mut(*at)) {
            known.qos = known.qos.max(session.qos);
            let room = FILTERS.saturating_sub(known.filters.len());
            for filter in session.filters.into_iter().take(room) {
                self.bytes += filter.len();
                known.filters.push(filter);
            }
            return true;
        }
        if self.sessions.len() >= most || self.has_all_bytes() {
            return false;
        }
        self.bytes += session.bytes();
        self.places.insert(session.client_id.clone(), self.sessions.len());
        self.sessions.push(session);
        true
    }

    /// Adds a group, unless it is there: every shard knows every group. Returns false if there is
    /// no room for it.
    fn add_group(&mut self, group: (Box<str>, usize)) -> bool {
        if self.groups.iter().any(|known| known.0 == group.0) {
            return true;
        }
        let has_room = self.groups.len() < ROWS && !self.has_all_bytes();
        if has_room {
            self.bytes += group.0.len();
            self.groups.push(group);
        }
        has_room
    }

    /// Adds the next part of a shard, with `most` sessions in all. Returns the place of the part
    /// that follows; `None` at the end, or if there is no room.
    pub fn take(&mut self, part: MatchedReceivers, most: usize) -> Option<SurveyPlace> {
        let MatchedReceivers { sessions, groups, next, more, .. } = part;
        self.more |= more;
        let mut has_room = true;
        for group in groups {
            has_room &= self.add_group(group);
        }
        for session in sessions {
            has_room &= self.add(session, most);
        }
        self.more |= !has_room;
        next.filter(|_| has_room)
    }

    /// Returns true if the texts have [`BYTES`] or more.
    pub fn has_all_bytes(&self) -> bool {
        self.bytes >= BYTES
    }
}

/// Returns the receivers of a topic in this shard, from a place on.
pub(super) fn receivers(question: &mut Question<'_>, topic: &str, from: &SurveyPlace) -> MatchedReceivers {
    question.budget.spend(1 + from.depth());
    question.budget.spend_bytes(topic.len());
    let mut found = MatchedReceivers::default();
    let mut survey = question.shard.router().tree().survey(topic, from.clone());
    while survey.is_there() {
        add_groups(question, survey.groups(), &mut found);
        if !add_subscribers(question, topic, &mut survey, &mut found) {
            found.next = Some(survey.place());
            break;
        }
        let bytes = survey.advance();
        question.budget.spend(1);
        question.budget.spend_bytes(bytes);
    }
    found
}

/// Adds the subscribers of a filter. Returns false if the question ends before its end.
fn add_subscribers(
    question: &mut Question<'_>,
    topic: &str,
    survey: &mut FilterSurvey<'_>,
    found: &mut MatchedReceivers,
) -> bool {
    let budget = &mut *question.budget;
    let mut filter: Option<Box<str>> = None;
    for subscriber in survey.subscribers() {
        let slot = subscriber.session.0;
        if budget.is_spent() || found.has_all_bytes() {
            survey.listed_before(slot);
            return false;
        }
        budget.spend(ROW);
        let Some((_, entry)) = question.shard.session_at(slot) else { continue };
        let filter = filter.get_or_insert_with(|| survey.filter().into());
        let mut session = MatchedSession::of(entry, subscriber.options.qos(), filter.clone());
        let rules = question.shard.access();
        if rules.are_on() {
            budget.spend(rules.most_steps(topic) as usize);
            if let Some((why, compared)) = entry.why_unreadable(rules, topic) {
                budget.spend(compared);
                session.denied = Some(why.into());
            }
        }
        budget.spend_bytes(session.bytes());
        found.add(session, usize::MAX);
    }
    !budget.is_spent()
}

fn add_groups(question: &mut Question<'_>, groups: &[GroupId], found: &mut MatchedReceivers) {
    let router = question.shard.router();
    for id in groups {
        let Some(filter) = router.full_filter(*id) else { continue };
        question.budget.spend(ROW);
        question.budget.spend_bytes(filter.len());
        let members = router.group(*id).map_or(0, |group| group.len());
        let filter: &str = filter;
        if !found.add_group((filter.into(), members)) {
            found.more = true;
            break;
        }
    }
}
