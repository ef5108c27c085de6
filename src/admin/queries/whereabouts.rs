//! The places where messages are, and why they wait.
//!
//! The answer is put together from the present state of the shards: subscriptions that match,
//! windows and queues, delayed and retained messages, the last dropped ones, and stored dead
//! letters. Each shard is asked for one bounded part after the other. The traces that ran add the
//! past.

use super::ask::ask;
use super::letters::find_letters;
use super::sessions::find;
use super::target::ClientTarget;
use super::verdicts::verdicts;
use crate::admin::failed::Failed;
use crate::admin::state::AdminState;
use crate::admin::traces::fates::TracedFate;
use crate::broker::observer::Observer;
use crate::clock;
use crate::mqtt::packet::QoS;
use crate::persistence::letter::StoredLetter;
use crate::shard::features::delayed::DelayedPlace;
use crate::shard::observe::query::{MessageSummary, Query, QueryAnswer, ROWS};
use crate::shard::observe::recent_drops::RecentDrop;
use crate::shard::observe::wait_reason::WaitReason;
use crate::shard::observe::whereabouts::{FoundMessage, FoundMessages, MatchedReceivers, Wanted};
use crate::time::Instant;
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

/// Time for the whole answer. An answer that is not complete by then says so.
const TIME: Duration = Duration::from_secs(3);

/// The places where the messages of a topic, a publisher or a receiver are, in all shards.
#[derive(Default)]
pub(crate) struct Whereabouts {
    /// The sessions and shared groups that are subscribed to the topic.
    pub(crate) receivers: MatchedReceivers,
    /// The messages in windows and queues.
    pub(crate) messages: Vec<FoundMessage>,
    /// The sessions with messages that are in the store alone: the Client Identifier, the number of
    /// messages, and why they wait.
    pub(crate) in_store: Vec<(Box<str>, usize, WaitReason)>,
    /// The delayed and the dropped messages.
    pub(crate) elsewhere: Elsewhere,
    /// The stored dead letters, the newest first.
    pub(crate) letters: Vec<Arc<StoredLetter>>,
    /// The last steps in traces that run or ran, the newest first.
    pub(crate) traced: Vec<TracedFate>,
    /// The retained message of the topic.
    pub(crate) retained: Option<RetainedSummary>,
    /// The wait of the publisher: a wait reason, and a sentence.
    pub(crate) publisher: Option<(&'static str, String)>,
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

/// The messages that no session has.
#[derive(Default)]
pub(crate) struct Elsewhere {
    /// The delayed messages in memory.
    pub(crate) delayed: Vec<DelayedRow>,
    /// The last dropped messages.
    pub(crate) dropped: Vec<RecentDrop>,
}

/// A delayed message in memory.
#[derive(Clone, Debug)]
pub(crate) struct DelayedRow {
    /// The number of the shard.
    pub(crate) shard: u8,
    /// The place in the shard, with the time at which the message is published.
    pub(crate) place: DelayedPlace,
    /// The message.
    pub(crate) message: MessageSummary,
}

/// Returns the places where messages are.
///
/// # Errors
/// Neither a topic nor a publisher nor a receiver is wanted, or a shard does not answer.
pub(crate) async fn whereabouts(state: &AdminState, wanted: &Wanted) -> Result<Whereabouts, Failed> {
    if *wanted == Wanted::default() {
        let what = "name a topic, a publisher or a receiver, such as topic=pumps/7/set";
        return Err(Failed::Parameter(what.to_owned()));
    }
    let observer = state.running()?;
    // A receiver is in one place; without one, all sessions are looked at.
    let _turn = match wanted.receiver {
        Some(_) => None,
        None => Some(state.search().await.ok_or(Failed::Busy)?),
    };
    let mut found = Whereabouts { is_complete: true, ..Whereabouts::default() };
    let started = clock::now();
    if let Some(topic) = &wanted.topic {
        found.receivers = receivers(state, observer, topic).await?;
        if let Some(receiver) = &wanted.receiver {
            found.receivers.sessions.retain(|session| session.client_id == *receiver);
        }
        found.is_complete &= !found.receivers.more;
        found.retained = retained(observer, topic);
    }
    found.elsewhere = elsewhere(state, observer, wanted).await?;
    for shard in 0..observer.shards() {
        // A receiver is in one shard.
        if wanted.receiver.as_deref().is_none_or(|receiver| observer.shard_of(receiver) == shard) {
            found.look_in(state, observer, (shard, started), wanted).await?;
        }
    }
    if let Some(publisher) = &wanted.publisher {
        found.publisher = publisher_waits(state, observer, publisher).await?;
    }
    let (traced, has_all_traced) = state.traces().fates(wanted);
    // Last, because a deleted letter stays in memory for as long as this answer holds it.
    let (letters, has_all_letters) = find_letters(state, observer, (wanted, started + TIME)).await?;
    (found.traced, found.letters) = (traced, letters);
    found.is_complete &= has_all_traced && has_all_letters;
    found.verdicts = verdicts(wanted, &found);
    Ok(found)
}

/// Returns the sessions and shared groups that are subscribed to a topic, in all shards.
///
/// # Errors
/// A shard does not answer.
pub(crate) async fn receivers(
    state: &AdminState,
    observer: &Observer,
    topic: &str,
) -> Result<MatchedReceivers, Failed> {
    matched(state, observer, &Query::Receivers { topic: topic.into() }).await
}

/// Asks all shards for receivers, until there are as many bytes as one answer may have. Returns
/// them together.
///
/// # Errors
/// A shard does not answer.
pub(super) async fn matched(
    state: &AdminState,
    observer: &Observer,
    query: &Query,
) -> Result<MatchedReceivers, Failed> {
    let mut all = MatchedReceivers::default();
    for shard in 0..observer.shards() {
        if all.has_all_bytes() {
            all.more = true;
            break;
        }
        if let QueryAnswer::Receivers(matched) = ask(state, observer, shard, query.clone()).await?.answer {
            let MatchedReceivers { sessions, groups, more, .. } = *matched;
            sessions.into_iter().for_each(|session| all.add(session));
            for group in groups {
                // Every shard knows every group.
                if !all.groups.iter().any(|known| known.0 == group.0) {
                    all.groups.push(group);
                }
            }
            all.more |= more;
        }
    }
    Ok(all)
}

/// Returns the delayed messages of all shards, the next due first, and the dropped ones, the newest
/// first.
///
/// # Errors
/// A shard does not answer.
pub(crate) async fn elsewhere(
    state: &AdminState,
    observer: &Observer,
    wanted: &Wanted,
) -> Result<Elsewhere, Failed> {
    let mut all = Elsewhere::default();
    for shard in 0..observer.shards() {
        let query = Query::Elsewhere { wanted: wanted.clone(), most: ROWS };
        if let QueryAnswer::Elsewhere(delayed, dropped) = ask(state, observer, shard, query).await?.answer {
            let shard = u8::try_from(shard).unwrap_or(u8::MAX);
            let row = |(place, message)| DelayedRow { shard, place, message };
            all.delayed.extend(delayed.into_iter().map(row));
            all.dropped.extend(dropped);
        }
    }
    all.delayed.sort_by_key(|row| row.place.due);
    all.dropped.sort_by_key(|drop| Reverse(drop.at));
    Ok(all)
}

impl Whereabouts {
    /// Adds the messages in the windows and queues of a shard.
    async fn look_in(
        &mut self,
        state: &AdminState,
        observer: &Observer,
        (shard, started): (usize, Instant),
        wanted: &Wanted,
    ) -> Result<(), Failed> {
        let mut from = Some(0);
        while let Some(slot) = from.take() {
            if self.messages.len() >= ROWS || clock::now().since(started) > TIME {
                self.is_complete = false;
                break;
            }
            let query = Query::Messages { wanted: wanted.clone(), from: slot };
            if let QueryAnswer::Messages(part) = ask(state, observer, shard, query).await?.answer {
                let FoundMessages { messages, in_store, next, more } = *part;
                self.messages.extend(messages);
                self.in_store.extend(in_store);
                self.is_complete &= !more;
                from = next;
            }
        }
        Ok(())
    }
}

fn retained(observer: &Observer, topic: &str) -> Option<RetainedSummary> {
    let retained = observer.shared().retained();
    let found = retained.find(topic, clock::now())?;
    Some(RetainedSummary { payload: found.payload().len(), qos: found.header().qos })
}

/// Returns what the acknowledgements of a publisher wait for.
async fn publisher_waits(
    state: &AdminState,
    observer: &Observer,
    client_id: &str,
) -> Result<Option<(&'static str, String)>, Failed> {
    let row = match find(state, observer, &ClientTarget::client(client_id)).await {
        Ok((detail, _)) => detail.row,
        Err(Failed::NoSuchClient) => return Ok(None),
        Err(failed) => return Err(failed),
    };
    Ok(if row.waits_for_peer {
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
    })
}
