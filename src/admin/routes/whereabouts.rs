//! /api/v1/messages/where: where a message is, and why it waits.

use super::dead_letters::LetterRow;
use super::json_answer::JsonAnswer;
use super::messages::{UnfinishedRow, Wait};
use crate::admin::queries::delayed::DelayedRow;
use crate::admin::queries::waits::until;
use crate::admin::queries::whereabouts::{FoundPlaces, RetainedSummary, wanted, whereabouts};
use crate::admin::rows::message::MessageRow;
use crate::admin::rows::refused::RefusedRow;
use crate::admin::state::{AdminState, State};
use crate::admin::traces::fates::TracedFate;
use crate::clock;
use crate::events::recent_drops::RecentDrop;
use crate::operators::message_search::InStoreFound;
use crate::operators::query::ROWS;
use crate::operators::receivers::MatchedSession;
use crate::operators::wait_reason::WaitKind;
use crate::operators::whereabouts::FoundMessage;
use crate::routing::shared_group::Presence;
use crate::session::drops::DropReason;
use crate::session::trace_steps::StepKind;
use actix_web::web::{Json, Query};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use utoipa::ToSchema;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WhereParameters {
    /// A topic name, or a topic filter for all topics that it matches.
    #[schema(example = "pumps/7/set")]
    topic: Option<String>,
    /// The client id of the publisher.
    #[schema(example = "app")]
    publisher: Option<String>,
    /// The client id of the receiver.
    #[schema(example = "pump-7")]
    receiver: Option<String>,
}

/// Says where the messages of a topic, a publisher or a receiver are.
pub(crate) async fn find_messages(asked: Query<WhereParameters>, state: State) -> JsonAnswer<Whereabouts> {
    let WhereParameters { topic, publisher, receiver } = &*asked;
    let wanted = wanted(topic.as_deref(), publisher.as_deref(), receiver.as_deref())?;
    let found = whereabouts(&state, &wanted).await?;
    Ok(Json(Whereabouts::of(&state, found)))
}

/// The places of the messages.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct Whereabouts {
    pub(crate) subscriptions: Vec<SubscriberRow>,
    pub(crate) shared_groups: Vec<GroupRow>,
    /// At most 768.
    #[schema(max_items = 768)]
    pub(crate) messages: Vec<UnfinishedRow>,
    /// Further messages that were found.
    pub(crate) not_listed: usize,
    /// The receivers with wanted messages that are in the store alone, or with messages there that
    /// were not looked at.
    #[schema(max_items = 256)]
    pub(crate) in_store: Vec<InStoreRow>,
    /// Messages that are in the store alone and were not looked at, of all receivers.
    pub(crate) not_looked_at: usize,
    /// Why the store did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store_error: Option<String>,
    pub(crate) delayed: Vec<DelayedWait>,
    pub(crate) dropped: Vec<DroppedMessage>,
    /// The drops whose topics are not known, if a topic is asked for.
    pub(crate) dropped_without_topic: Vec<DroppedMessage>,
    /// The refused messages of these topics and of the publisher, and the refused filters.
    pub(crate) refused: Vec<RefusedRow>,
    /// The newest first, at most 256.
    pub(crate) dead_letters: Vec<LetterRow>,
    /// The last step of these messages for each client, in traces that run or ran.
    pub(crate) traced: Vec<FateRow>,
    #[schema(required)]
    pub(crate) retained: Option<RetainedHere>,
    #[schema(required)]
    pub(crate) publisher: Option<PublisherWait>,
    /// One verdict for each receiver, and one for each other place of the messages.
    pub(crate) verdicts: Vec<String>,
    pub(crate) complete: bool,
}

/// Messages of a receiver that are in the store alone.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct InStoreRow {
    pub(crate) receiver: String,
    /// The number of messages, wanted or not.
    pub(crate) messages: usize,
    /// The number of those that are wanted.
    pub(crate) found: usize,
    /// The number of those that were not looked at.
    pub(crate) not_looked_at: usize,
    pub(crate) wait: Wait,
}

#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct DelayedWait {
    pub(crate) wait: Wait,
    pub(crate) message: MessageRow,
}

#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = TracedMessage)]
pub(crate) struct FateRow {
    pub(crate) trace: u64,
    /// The receiver; the publisher of a message that reached nobody.
    pub(crate) client: String,
    /// The first 256 characters.
    pub(crate) topic: String,
    pub(crate) step: StepKind,
    /// Seconds.
    pub(crate) ago: u64,
}

/// The retained message of the topic.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct RetainedHere {
    pub(crate) payload_bytes: usize,
    #[schema(maximum = 2)]
    pub(crate) qos: u8,
}

/// The wait of the publisher.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct PublisherWait {
    /// `peer_pending` or `ack_deferred`.
    pub(crate) reason: Cow<'static, str>,
    pub(crate) text: String,
}

impl Whereabouts {
    fn of(state: &AdminState, found: FoundPlaces) -> Whereabouts {
        let now = clock::now();
        let far_sides = &found.far_sides;
        let receiver = |client_id: &str| far_sides.receiver(client_id);
        let message = |row: &FoundMessage| UnfinishedRow::of_receiver(state, row, &receiver(&row.receiver));
        let has_some = |found: &&InStoreFound| found.found > 0 || found.unseen > 0;
        let in_store = |found: &InStoreFound| InStoreRow {
            receiver: found.receiver.to_string(),
            messages: found.messages,
            found: found.found,
            not_looked_at: found.unseen,
            wait: Wait::of(&found.wait, &receiver(&found.receiver)),
        };
        let delayed = |row: &DelayedRow| {
            let due = row.place.due;
            let reason = if due <= now { WaitKind::Overdue } else { WaitKind::Delayed };
            let wait = Wait::until_due(reason, until(now, due));
            DelayedWait { wait, message: MessageRow::of(&row.message) }
        };
        let traced = |TracedFate { trace, client_id, topic, kind, at }: &TracedFate| FateRow {
            trace: *trace,
            client: client_id.to_string(),
            topic: topic.to_string(),
            step: *kind,
            ago: now.since(*at).as_secs(),
        };
        let retained =
            |found: RetainedSummary| RetainedHere { payload_bytes: found.payload, qos: found.qos as u8 };
        Whereabouts {
            subscriptions: found.receivers.sessions().iter().map(SubscriberRow::of).collect(),
            shared_groups: found.receivers.groups.iter().map(GroupRow::of).collect(),
            not_listed: found.unlisted.values().sum::<usize>()
                + found.unlisted_of_others
                + found.in_store.iter().map(|one| one.unlisted).sum::<usize>(),
            messages: found.messages.iter().map(message).collect(),
            in_store: found.in_store.iter().filter(has_some).take(ROWS).map(in_store).collect(),
            not_looked_at: found.unseen,
            store_error: found.store_error,
            delayed: found.delayed.iter().map(delayed).collect(),
            dropped: found.dropped.drops.iter().map(DroppedMessage::of).collect(),
            dropped_without_topic: found.dropped.without_topic.iter().map(DroppedMessage::of).collect(),
            refused: found.dropped.refused.iter().map(RefusedRow::of).collect(),
            dead_letters: found.letters.iter().map(|letter| LetterRow::of(letter)).collect(),
            traced: found.traced.iter().map(traced).collect(),
            retained: found.retained.map(retained),
            publisher: found.publisher.map(|(reason, text)| PublisherWait { reason: reason.into(), text }),
            verdicts: found.verdicts,
            complete: found.is_complete && found.unseen == 0,
        }
    }
}

/// A session that is subscribed to a topic.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Subscriber)]
pub(crate) struct SubscriberRow {
    pub(crate) client_id: String,
    pub(crate) state: Presence,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 2)]
    pub(crate) qos: Option<u8>,
    pub(crate) filters: Vec<String>,
    /// Why the client may not read the topic, if it may not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) denied: Option<String>,
}

impl SubscriberRow {
    pub(super) fn of(session: &MatchedSession) -> SubscriberRow {
        let row = SubscriberRow::of_client(&session.client_id, session.presence(), session.filters.clone());
        let denied = session.denied.as_deref().map(str::to_owned);
        SubscriberRow { qos: Some(session.qos as u8), denied, ..row }
    }

    pub(super) fn of_client(client: &str, state: Presence, filters: Vec<Box<str>>) -> SubscriberRow {
        let filters = filters.into_iter().map(String::from).collect();
        SubscriberRow { client_id: client.to_owned(), state, qos: None, filters, denied: None }
    }
}

/// A shared group, and its number of members.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = SharedGroup)]
pub(crate) struct GroupRow {
    pub(crate) filter: String,
    pub(crate) members: usize,
}

impl GroupRow {
    pub(super) fn of((filter, members): &(Box<str>, usize)) -> GroupRow {
        GroupRow { filter: filter.to_string(), members: *members }
    }
}

/// A dropped message.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct DroppedMessage {
    /// The client id, or its first 128 characters with a mark and the length of the whole:
    /// `... (1024 bytes)`.
    pub(crate) receiver: String,
    /// The topic name, or its first 128 characters with a mark and the length of the whole. Empty
    /// if the message was in the store alone, so that its topic is not known.
    pub(crate) topic: String,
    pub(crate) cause: DropReason,
    pub(crate) transmissions: u16,
    /// Seconds.
    pub(crate) ago: u64,
}

impl DroppedMessage {
    pub(super) fn of(drop: &RecentDrop) -> DroppedMessage {
        DroppedMessage {
            receiver: drop.receiver.to_string(),
            topic: drop.topic.to_string(),
            cause: drop.cause,
            transmissions: drop.transmissions,
            ago: clock::now().since(drop.at).as_secs(),
        }
    }
}
