//! /api/v1/clients: the sessions, and one session.

use super::client_fields::{ClientFields, PartialClient};
use super::json_answer::JsonAnswer;
use crate::admin::listing::ListedRow;
use crate::admin::queries::sessions::{ListParameters, find, list_sessions};
use crate::admin::queries::sorted::sorted_sessions;
use crate::admin::queries::target::{ClientTarget, OneParameters};
use crate::admin::rows::client::{ClientRow, InFlightMessage, OwnSubscriptionRow};
use crate::admin::rows::message::MessageRow;
use crate::admin::rows::refused::RefusedRow;
use crate::admin::sourced_redelivery::ClientRedelivery;
use crate::admin::state::State;
use crate::admin::timeline::NumberedMoment;
use crate::broker::events::moments::MomentKind;
use actix_web::web::{Json, Path, Query};
use serde::Serialize;
use utoipa::ToSchema;

/// A page of the sessions.
#[derive(Serialize, ToSchema)]
#[schema(as = Clients)]
pub(crate) struct ClientsAnswer {
    clients: Vec<PartialClient>,
    /// The cursor of the next page. Only an answer without a cursor is the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// With `sort`: the number of all sessions that fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<usize>,
    /// With `sort`: the number of those on earlier pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<usize>,
    /// With `sort`: false if the time was over before every session was looked at. Then rows may be
    /// missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    complete: Option<bool>,
}

/// Lists sessions. A page may be short; only an answer without `next` is the last one.
pub(crate) async fn list(asked: Query<ListParameters>, state: State) -> JsonAnswer<ClientsAnswer> {
    let fields = ClientFields::read(asked.fields.as_deref())?;
    let rows =
        |rows: &[ListedRow]| rows.iter().map(|row| fields.of(&ClientRow::of_row(&state, row))).collect();
    Ok(Json(match asked.order()? {
        None => {
            let listed = list_sessions(&state, &asked).await?;
            let (clients, next) = (rows(&listed.rows), listed.next.map(|next| next.encode()));
            ClientsAnswer { clients, next, total: None, before: None, complete: None }
        }
        Some(order) => {
            let sorted = sorted_sessions(&state, (&asked, order)).await?;
            ClientsAnswer {
                clients: rows(&sorted.rows),
                next: sorted.next,
                total: Some(sorted.total),
                before: Some(sorted.before),
                complete: Some(sorted.is_complete),
            }
        }
    }))
}

/// Returns one session with its messages and filters.
pub(crate) async fn one(
    path: Path<String>,
    asked: Query<OneParameters>,
    state: State,
) -> JsonAnswer<ClientRow> {
    let observer = state.running()?;
    let target = ClientTarget::read(&path, asked.reference.as_deref(), &state)?;
    let (detail, socket) = find(&state, &target).await?;
    let row = ClientRow::of(&state, target.shard(observer), &detail.row, socket.as_ref());
    Ok(Json(ClientRow {
        in_flight_messages: Some(detail.in_flight.iter().map(InFlightMessage::of).collect()),
        queue: Some(detail.queue.iter().map(MessageRow::of).collect()),
        subscriptions: Some(detail.subscriptions.iter().map(OwnSubscriptionRow::of).collect()),
        redelivery: Some(ClientRedelivery::of(&detail.redelivery)),
        refused: Some(detail.refused.iter().map(RefusedRow::of).collect()),
        ..row
    }))
}

/// The moments of redelivery of a client.
#[derive(Serialize, ToSchema)]
pub(crate) struct ClientEvents {
    client_id: String,
    events: Vec<EventRow>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ClientEvent)]
struct EventRow {
    unix_ms: u64,
    kind: MomentKind,
    text: String,
}

/// Returns the moments of redelivery of a client in the last 15 minutes, the oldest first. The
/// session may have ended.
pub(crate) async fn events(
    path: Path<String>,
    asked: Query<OneParameters>,
    state: State,
) -> JsonAnswer<ClientEvents> {
    let client_id: Box<str> = match &asked.reference {
        None => path.as_str().into(),
        Some(reference) => {
            let target = ClientTarget::read(&path, Some(reference), &state)?;
            find(&state, &target).await?.0.row.client_id
        }
    };
    let moment = |NumberedMoment { moment, .. }: &NumberedMoment| EventRow {
        unix_ms: moment.unix_ms,
        kind: moment.kind,
        text: moment.text.to_string(),
    };
    let events = state.timeline.of_client(&client_id).iter().map(|entry| moment(entry)).collect();
    Ok(Json(ClientEvents { client_id: client_id.into(), events }))
}
