//! Topics: subscribers, retained messages, and dropped messages.

use super::json_answer::{JsonAnswer, done};
use super::whereabouts::{DroppedMessage, GroupRow, SubscriberRow};
use crate::admin::commands;
use crate::admin::failed::Failed;
use crate::admin::operator::OperatorRequest;
use crate::admin::payloads::{self, PayloadPermit, PayloadView};
use crate::admin::queries::by_filter::{shared_groups, subscribers};
use crate::admin::queries::delayed::dropped as dropped_messages;
use crate::admin::queries::retained::find_retained;
use crate::admin::queries::sessions::find;
use crate::admin::queries::target::ClientTarget;
use crate::admin::queries::waits::until;
use crate::admin::queries::whereabouts::{receivers, wanted};
use crate::admin::request::{Asker, cursor_to, limit_of, place_of};
use crate::admin::rows::refused::RefusedRow;
use crate::admin::state::{AdminState, State};
use crate::clock;
use crate::mqtt::message::Message;
use crate::mqtt::topic::has_wildcard;
use crate::operators::query::ROWS;
use actix_web::HttpResponse;
use actix_web::web::{Json, Query};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Retained messages in one answer at most.
const RETAINED: usize = 1_000;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubscriptionParameters {
    /// The topic name. A filter is refused.
    #[schema(example = "pumps/7/set")]
    matches: Option<String>,
    /// The topic filter, letter by letter as the clients subscribed with it. `$share/g/pumps/#` has
    /// the members of a shared group.
    #[schema(example = "pumps/#")]
    filter: Option<String>,
    /// The client id.
    #[schema(example = "pump-7")]
    client: Option<String>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupParameters {
    /// Number of rows at most.
    #[schema(minimum = 1, maximum = 256, default = 100, example = 10)]
    limit: Option<usize>,
    /// The `next` of the page before.
    #[schema(example = "0")]
    cursor: Option<String>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetainedParameters {
    /// The topic filter.
    #[schema(default = "#", example = "pumps/#")]
    filter: Option<String>,
    /// Number of rows at most; 16 with `payload=true`.
    #[schema(minimum = 1, maximum = 1000, default = 100, example = 10)]
    limit: Option<usize>,
    cursor: Option<String>,
    /// True for the first 4 KiB of each payload. Then `limit` is 1 to 16, and 16 without it; a
    /// larger one is refused. Payloads need the scope operator, and the audit log notes each
    /// answer.
    #[serde(default)]
    #[schema(default = false, example = true)]
    payload: bool,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TopicParameters {
    /// A topic name, or a topic filter for all topics that it matches.
    #[schema(example = "pumps/7/set")]
    topic: Option<String>,
}

/// The retained message that is deleted.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteParameters {
    /// The topic name.
    #[schema(example = "pumps/7/set", required = true)]
    topic: Option<String>,
}

/// The subscribers.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Subscriptions)]
pub(crate) struct SubscriptionsAnswer {
    pub(crate) subscriptions: Vec<SubscriberRow>,
    /// Not with `client`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shared_groups: Option<Vec<GroupRow>>,
    pub(crate) complete: bool,
}

/// A page of the shared groups.
#[derive(Serialize, ToSchema)]
#[schema(as = SharedGroups)]
pub(crate) struct GroupsAnswer {
    shared_groups: Vec<GroupRow>,
    /// The cursor of the next page; none on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A page of the retained messages.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct RetainedMessages {
    pub(crate) retained: Vec<RetainedMessageRow>,
    /// False if there are more.
    pub(crate) complete: bool,
    /// The cursor of the next page. The field is missing at the end, and if a topic of more than 16
    /// KiB comes next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = RetainedMessage)]
pub(crate) struct RetainedMessageRow {
    pub(crate) topic: String,
    #[schema(maximum = 2)]
    pub(crate) qos: u8,
    pub(crate) payload_bytes: usize,
    /// Seconds; null for never.
    #[schema(required)]
    pub(crate) expires_in: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload: Option<PayloadView>,
}

/// The last dropped messages and refused requests.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct DroppedMessages {
    /// The newest first.
    pub(crate) dropped: Vec<DroppedMessage>,
    /// With `topic`: the drops whose topics are not known, because the messages were in the store
    /// alone. Some of them may be wanted.
    pub(crate) without_topic: Vec<DroppedMessage>,
    /// The refused PUBLISH packets, wills and topic filters, the newest first.
    pub(crate) refused: Vec<RefusedRow>,
}

/// Returns the subscriptions that match a topic, those with a filter, or those of a client.
pub(crate) async fn subscriptions(
    asked: Query<SubscriptionParameters>,
    state: State,
) -> JsonAnswer<SubscriptionsAnswer> {
    let found = match asked.into_inner() {
        SubscriptionParameters { matches: Some(topic), filter: None, client: None } => {
            if has_wildcard(&topic) {
                let what = format!(
                    "matches is {topic:?}, and must be a topic; filter={topic} lists who has the filter"
                );
                return Err(Failed::Parameter(what));
            }
            receivers(&state, &topic).await?
        }
        SubscriptionParameters { matches: None, filter: Some(filter), client: None } => {
            subscribers(&state, &filter).await?
        }
        SubscriptionParameters { matches: None, filter: None, client: Some(client) } => {
            return of_client(&state, &client).await;
        }
        _ => {
            let what = "name one of matches=TOPIC, filter=FILTER or client=ID";
            return Err(Failed::Parameter(what.to_owned()));
        }
    };
    Ok(Json(SubscriptionsAnswer {
        subscriptions: found.sessions().iter().map(SubscriberRow::of).collect(),
        shared_groups: Some(found.groups.iter().map(GroupRow::of).collect()),
        complete: !found.more,
    }))
}

async fn of_client(state: &AdminState, client: &str) -> JsonAnswer<SubscriptionsAnswer> {
    let (detail, _) = find(state, &ClientTarget::client(client)).await?;
    let complete = detail.subscriptions.len() == detail.row.subscriptions;
    let filters = detail.subscriptions.into_iter().map(|own| own.filter).collect();
    let row = SubscriberRow::of_client(client, detail.row.presence(), filters);
    Ok(Json(SubscriptionsAnswer { subscriptions: vec![row], shared_groups: None, complete }))
}

/// Lists the shared groups with their numbers of members, in pages.
pub(crate) async fn groups(asked: Query<GroupParameters>, state: State) -> JsonAnswer<GroupsAnswer> {
    let limit = limit_of(asked.limit, 100, ROWS)?;
    let from = place_of(asked.cursor.as_deref())?;
    let found = shared_groups(&state, from, limit).await?;
    let shared_groups = found.rows.iter().map(GroupRow::of).collect();
    Ok(Json(GroupsAnswer { shared_groups, next: found.next.map(cursor_to) }))
}

/// Lists retained messages. Payloads need the scope of an operator, and each is noted in the audit
/// log.
pub(crate) async fn retained(
    caller: Asker,
    asked: Query<RetainedParameters>,
    state: State,
) -> JsonAnswer<RetainedMessages> {
    let permit = asked.payload.then(|| PayloadPermit::of(&state, &caller)).transpose()?;
    let limit = payloads::limit_of(asked.limit, (100, RETAINED), permit.as_ref())?;
    let filter = asked.filter.as_deref().unwrap_or("#");
    let found = find_retained(&state, filter, asked.cursor.as_deref(), limit).await?;
    let row = |message: &Message| RetainedMessageRow {
        topic: message.topic().to_owned(),
        qos: message.header().qos as u8,
        payload_bytes: message.payload().len(),
        expires_in: until(clock::now(), message.header().expires),
        payload: permit.as_ref().map(|permit| permit.view(message.topic(), message.payload())),
    };
    let retained = found.messages.iter().map(row).collect();
    Ok(Json(RetainedMessages { retained, complete: found.is_complete(), next: found.cursor() }))
}

/// Deletes the retained message of a topic.
pub(crate) async fn delete_retained(
    OperatorRequest { operator, asked }: OperatorRequest<DeleteParameters>,
) -> Result<HttpResponse, Failed> {
    done(commands::delete_retained(&operator, &asked.topic.unwrap_or_default()).await)
}

/// Lists the last dropped messages and refused requests, the newest first.
pub(crate) async fn dropped(asked: Query<TopicParameters>, state: State) -> JsonAnswer<DroppedMessages> {
    let wanted = wanted(asked.topic.as_deref(), None, None)?;
    let found = dropped_messages(&state, &wanted).await?;
    Ok(Json(DroppedMessages {
        dropped: found.drops.iter().map(DroppedMessage::of).collect(),
        without_topic: found.without_topic.iter().map(DroppedMessage::of).collect(),
        refused: found.refused.iter().map(RefusedRow::of).collect(),
    }))
}
