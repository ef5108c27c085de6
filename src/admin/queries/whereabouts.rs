//! The places where messages are, and why they wait.
//!
//! The answer is put together from the present state of the shards: subscriptions that match,
//! windows and queues, delayed and retained messages, the last dropped ones, and stored dead
//! letters. Each shard is asked for one bounded part after the other. Messages that are in the
//! store alone are looked at there. The traces that ran add the past.

use super::ask::{ask, search_turn};
use super::delayed::{DelayedRow, dropped, list_delayed};
use super::letters::find_letters;
use super::sessions::find;
use super::target::ClientTarget;
use super::verdicts::verdicts;
use super::waiting_receiver::FarSides;
use crate::admin::failed::Failed;
use crate::admin::state::AdminState;
use crate::admin::traces::fates::TracedFate;
use crate::broker::observer::Observer;
use crate::clock;
use crate::mqtt::packet::QoS;
use crate::operators::dropped::FoundDrops;
use crate::operators::message_search::{InStoreFound, MessageSearch, SearchStep};
use crate::operators::query::{Query, QueryAnswer, ROWS, SessionSummary};
use crate::operators::receivers::MatchedReceivers;
use crate::operators::wanted::{Wanted, WantedTopic};
use crate::operators::whereabouts::FoundMessage;
use crate::persistence::letter::StoredLetter;
use crate::routing::subscription_tree::SurveyPlace;
use crate::time::Instant;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Time for the whole answer. An answer that is not complete by then says so.
const TIME: Duration = Duration::from_secs(3);

/// The part of it for what comes after the messages in windows and queues.
const LETTERS: Duration = Duration::from_millis(500);

/// The places where the messages of a topic, a publisher or a receiver are, in all shards.
#[derive(Default)]
pub(crate) struct FoundPlaces {
    /// The sessions and shared groups that are subscribed to the topic; none of a filter.
    pub(crate) receivers: MatchedReceivers,
    /// The messages in windows and queues, in memory and in the store.
    pub(crate) messages: Vec<FoundMessage>,
    /// The number of further messages in memory, by the receiver's Client Identifier.
    pub(crate) unlisted: BTreeMap<Box<str>, usize>,
    /// The number of further messages in memory of other receivers.
    pub(crate) unlisted_of_others: usize,
    /// The receivers with messages that are in the store alone.
    pub(crate) in_store: Vec<InStoreFound>,
    /// Messages in the store that were not looked at, of all receivers.
    pub(crate) unseen: usize,
    /// The reason why the store did not answer.
    pub(crate) store_error: Option<String>,
    /// The delayed messages in memory, the next due first.
    pub(crate) delayed: Vec<DelayedRow>,
    /// The last dropped messages and refused requests.
    pub(crate) dropped: FoundDrops,
    /// True if the receiver that is looked for has a session.
    pub(crate) has_session: bool,
    /// The stored dead letters, the newest first.
    pub(crate) letters: Vec<Arc<StoredLetter>>,
    /// The last steps in traces that run or ran, the newest first.
    pub(crate) traced: Vec<TracedFate>,
    /// The retained message of the topic.
    pub(crate) retained: Option<RetainedSummary>,
    /// The wait of the publisher: a wait reason, and a sentence.
    pub(crate) publisher: Option<(&'static str, String)>,
    /// All bridges and sinks.
    pub(crate) far_sides: FarSides,
    /// One sentence for each receiver and each other place of the messages.
    pub(crate) verdicts: Vec<String>,
    /// False if there is more than the answer has.
    pub(crate) is_complete: bool,
}

/// A retained message without its payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetainedSummary {
    /// The bytes of the payload.
    pub(crate) payload: usize,
    pub(crate) qos: QoS,
}

/// Returns the messages that the parameters of a request name. Errors: the topic is neither a topic
/// nor a topic filter.
pub(crate) fn wanted(
    topic: Option<&str>,
    publisher: Option<&str>,
    receiver: Option<&str>,
) -> Result<Wanted, Failed> {
    let topic = topic.map(WantedTopic::read).transpose().map_err(Failed::Parameter)?;
    Ok(Wanted { topic, publisher: publisher.map(Into::into), receiver: receiver.map(Into::into) })
}

/// Returns the places where messages are. Errors: neither a topic nor a publisher nor a receiver is
/// wanted, or a shard does not answer.
pub(crate) async fn whereabouts(state: &AdminState, wanted: &Wanted) -> Result<FoundPlaces, Failed> {
    if *wanted == Wanted::default() {
        let what = "name a topic, a publisher or a receiver, such as topic=pumps/7/set";
        return Err(Failed::Parameter(what.to_owned()));
    }
    let observer = state.running()?;
    // A receiver is in one place; without one, all sessions are looked at.
    let _turn = match wanted.receiver {
        Some(_) => None,
        None => Some(search_turn(state).await?),
    };
    let mut found = FoundPlaces { is_complete: true, ..FoundPlaces::default() };
    let end = clock::now() + TIME;
    if let Some(topic) = wanted.topic.as_ref().filter(|topic| !topic.is_filter()) {
        found.receivers = receivers(state, topic.text()).await?;
        if let Some(receiver) = &wanted.receiver {
            found.receivers.keep_only(receiver);
        }
        found.is_complete &= !found.receivers.more;
        found.retained = retained(observer, topic.text());
    }
    let delayed = list_delayed(state, wanted.topic.as_ref(), (None, ROWS), end).await?;
    found.is_complete &= delayed.next.is_none();
    found.delayed = delayed.rows;
    found.dropped = dropped(state, wanted).await?;
    found.search(state, end - LETTERS, wanted).await?;
    if let Some(receiver) = &wanted.receiver {
        found.has_session = row_of(state, receiver).await?.is_some();
    }
    if let Some(publisher) = &wanted.publisher {
        found.publisher = row_of(state, publisher).await?.as_ref().and_then(publisher_waits);
    }
    let (traced, has_all_traced) = state.traces.fates(wanted).await;
    // Last, because a deleted letter stays in memory for as long as this answer holds it.
    let (letters, has_all_letters) = find_letters(state, (wanted, end)).await?;
    (found.traced, found.letters) = (traced, letters);
    found.is_complete &= has_all_traced && has_all_letters;
    found.far_sides = FarSides::of(observer);
    found.verdicts = verdicts(wanted, &found);
    Ok(found)
}

/// Returns the sessions and shared groups that are subscribed to a topic, in all shards.
pub(crate) async fn receivers(state: &AdminState, topic: &str) -> Result<MatchedReceivers, Failed> {
    matched(state, |from| Query::Receivers { topic: topic.into(), from }).await
}

/// Asks all shards for receivers, part by part, until there are as many as one answer may have, or
/// the time is over. Returns them together.
pub(super) async fn matched(
    state: &AdminState,
    query: impl Fn(SurveyPlace) -> Query,
) -> Result<MatchedReceivers, Failed> {
    let observer = state.running()?;
    let (mut all, end) = (MatchedReceivers::default(), clock::now() + TIME);
    for shard in 0..observer.shards() {
        let most = all.sessions().len() + ROWS;
        let mut from = Some(SurveyPlace::default());
        while let Some(place) = from.take() {
            if all.has_all_bytes() || clock::now() >= end {
                all.more = true;
                return Ok(all);
            }
            let answer = ask(state, shard, query(place)).await?.answer;
            let QueryAnswer::Receivers(part) = answer else { return Err(Failed::Busy) };
            from = all.take(*part, most);
        }
    }
    Ok(all)
}

impl FoundPlaces {
    /// Adds the messages in windows and queues, and those in the store.
    async fn search(&mut self, state: &AdminState, end: Instant, wanted: &Wanted) -> Result<(), Failed> {
        let observer = state.running()?;
        let receiver = wanted.receiver.as_deref();
        let is_there = |shard: &usize| receiver.is_none_or(|name| observer.shard_of(name) == *shard);
        let mut search = MessageSearch::new(wanted, (0..observer.shards()).filter(is_there));
        while let Some(step) = search.next_step(|name| self.receivers.has(name)) {
            if clock::now() >= end {
                break;
            }
            match (step, observer.store()) {
                (SearchStep::Ask(shard, query), _) => {
                    search.answered(ask(state, shard, query).await?.answer);
                }
                (SearchStep::Look(lookup), Some(store)) => match store.look(lookup, end).await {
                    Ok(looked) => search.looked(looked),
                    Err(why) => search.end_in_store(Some(why)),
                },
                (SearchStep::Look(_), None) => search.end_in_store(None),
            }
        }
        let searched = search.finish();
        let unseen = searched.in_store.iter().map(|one| one.unseen).sum::<usize>();
        self.unseen = searched.unseen_of_others + unseen;
        self.is_complete &= searched.is_complete;
        (self.messages, self.unlisted) = (searched.messages, searched.unlisted);
        self.unlisted_of_others = searched.unlisted_of_others;
        (self.in_store, self.store_error) = (searched.in_store, searched.store_error);
        Ok(())
    }
}

fn retained(observer: &Observer, topic: &str) -> Option<RetainedSummary> {
    let retained = observer.shared().retained();
    let found = retained.find(topic, clock::now())?;
    Some(RetainedSummary { payload: found.payload().len(), qos: found.header().qos })
}

/// Returns the session of a client, if any.
async fn row_of(state: &AdminState, client_id: &str) -> Result<Option<SessionSummary>, Failed> {
    match find(state, &ClientTarget::client(client_id)).await {
        Ok((detail, _)) => Ok(Some(detail.row)),
        Err(Failed::NoSuchClient) => Ok(None),
        Err(failed) => Err(failed),
    }
}

/// Returns the reason why the acknowledgements of a publisher wait.
fn publisher_waits(row: &SessionSummary) -> Option<(&'static str, String)> {
    if row.waits_for_peer {
        let what = "the broker does not read the publisher, until another of its threads has caught up";
        Some(("peer_pending", what.to_owned()))
    } else if row.unanswered > 0 {
        let what = format!(
            "{} of its messages are not acknowledged to it; they wait for receivers with full queues, or for a commit",
            row.unanswered
        );
        Some(("ack_deferred", what))
    } else {
        None
    }
}
