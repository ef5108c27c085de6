//! The unfinished messages of one client, each with the reason why it waits.

use super::json_answer::JsonAnswer;
use crate::admin::access::Caller;
use crate::admin::payloads::{PayloadPermit, PayloadView, limit_of};
use crate::admin::queries::target::ClientTarget;
use crate::admin::queries::unfinished::{FoundPage, message_id, unfinished};
use crate::admin::queries::waiting_receiver::WaitingReceiver;
use crate::admin::queries::waits::{ends_with, until};
use crate::admin::request::{Asker, cursor_to, place_of};
use crate::admin::rows::message::MessageRow;
use crate::admin::state::{AdminState, State};
use crate::clock;
use crate::mqtt::message::Message;
use crate::operators::query::{ROWS, SessionName};
use crate::operators::unfinished::{PagePayloads, UnfinishedMessage, UnfinishedPart};
use crate::operators::wait_reason::{AtDeadline, WaitKind, WaitReason};
use crate::operators::whereabouts::FoundMessage;
use crate::session::outbound::stall::Holder;
use crate::slots::SessionId;
use actix_web::web::{Json, Path, Query};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use utoipa::ToSchema;

/// The name in the audit log of a message that waits for room in the queue: it has no `mid`.
const HELD: &str = "held";

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageParameters {
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// Number of rows at most; 16 with `payload=true`.
    #[schema(minimum = 1, maximum = 256, default = 100, example = 10)]
    limit: Option<usize>,
    cursor: Option<String>,
    /// True for the first 4 KiB of each payload. Then `limit` is 1 to 16, and 16 without it; a
    /// larger one is refused. Payloads need the scope operator, and the audit log notes each
    /// answer.
    #[serde(default)]
    #[schema(default = false, example = true)]
    payload: bool,
}

/// A page of unfinished messages.
#[derive(Serialize, ToSchema)]
pub(crate) struct UnfinishedMessages {
    #[schema(max_items = 256)]
    messages: Vec<UnfinishedRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// Why the store did not answer. Messages that are in the store alone are null then.
    #[serde(skip_serializing_if = "Option::is_none")]
    store_error: Option<String>,
}

/// Returns a page of the messages in flight.
pub(crate) async fn in_flight(
    caller: Asker,
    path: Path<String>,
    asked: Query<PageParameters>,
    state: State,
) -> JsonAnswer<UnfinishedMessages> {
    page(&caller, &path, asked.into_inner(), &state, UnfinishedPart::InFlight).await
}

/// Returns a page of the queue.
pub(crate) async fn queue(
    caller: Asker,
    path: Path<String>,
    asked: Query<PageParameters>,
    state: State,
) -> JsonAnswer<UnfinishedMessages> {
    page(&caller, &path, asked.into_inner(), &state, UnfinishedPart::Queue).await
}

/// Returns a page. Payloads need the scope of an operator, and the audit log notes the view.
async fn page(
    caller: &Caller,
    client_id: &str,
    PageParameters { reference, limit, cursor, payload }: PageParameters,
    state: &AdminState,
    part: UnfinishedPart,
) -> JsonAnswer<UnfinishedMessages> {
    let permit = payload.then(|| PayloadPermit::of(state, caller)).transpose()?;
    let target = ClientTarget::read(client_id, reference.as_deref(), state)?;
    let most = limit_of(limit, (100, ROWS), permit.as_ref())?;
    let from = place_of(cursor.as_deref())?;
    let payloads = if permit.is_some() { PagePayloads::Shown } else { PagePayloads::Hidden };
    let FoundPage { page, store_error } = unfinished(state, &target, (part, payloads), from, most).await?;
    let receiver = match &target.session {
        SessionName::Client(client_id) => WaitingReceiver::of(state.running()?, client_id),
        // The client identifiers of bridges and sinks are short.
        SessionName::At(_) => WaitingReceiver::Client,
    };
    let row = |row: &UnfinishedMessage| UnfinishedRow::of(state, page.session, row, &receiver);
    let mut messages: Vec<UnfinishedRow> = page.rows.iter().map(row).collect();
    if let Some(permit) = &permit {
        show_payloads(permit, &target.shown, &page.rows, &mut messages);
    }
    Ok(Json(UnfinishedMessages { messages, next: page.next.map(cursor_to), store_error }))
}

/// Adds to the rows the payloads of those messages that have one in memory.
fn show_payloads(
    permit: &PayloadPermit<'_>,
    client: &str,
    page: &[UnfinishedMessage],
    rows: &mut [UnfinishedRow],
) {
    let (messages, shown): (Vec<&Message>, Vec<&mut UnfinishedRow>) =
        page.iter().zip(rows).filter_map(|(message, row)| Some((message.body.as_ref()?, row))).unzip();
    let mids: Vec<String> =
        shown.iter().map(|row| row.mid.clone().unwrap_or_else(|| HELD.to_owned())).collect();
    let named: Vec<(&str, &[u8])> =
        mids.iter().zip(messages).map(|(mid, message)| (mid.as_str(), message.payload())).collect();
    for (row, payload) in shown.into_iter().zip(permit.view_page(client, &named)) {
        row.payload = Some(payload);
    }
}

/// An unfinished message of a session.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = UnfinishedMessage)]
pub(crate) struct UnfinishedRow {
    /// Names the message for `skip` and `park`.
    #[schema(required)]
    pub(crate) mid: Option<String>,
    #[schema(required, minimum = 1, maximum = 65535)]
    pub(crate) packet_id: Option<u16>,
    pub(crate) transmissions: u16,
    /// Seconds since the first transmission.
    #[schema(required)]
    pub(crate) age: Option<f64>,
    /// True if the message was first sent before the start of the broker. `age` is the time since
    /// the start then, and the message is older.
    pub(crate) sent_before_start: bool,
    /// Seconds since the broker took the message, if the message is queued and in the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queued_for: Option<f64>,
    #[schema(required)]
    pub(crate) message: Option<MessageRow>,
    pub(crate) wait: Wait,
    /// Present where several receivers may be in one answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) receiver: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload: Option<PayloadView>,
}

impl UnfinishedRow {
    fn of(
        state: &AdminState,
        session: SessionId,
        row: &UnfinishedMessage,
        receiver: &WaitingReceiver,
    ) -> UnfinishedRow {
        UnfinishedRow {
            mid: message_id(state, session, row),
            packet_id: row.packet_id.map(|id| id.get()),
            transmissions: row.transmissions,
            age: row.age.map(|age| age.least.as_secs_f64()),
            sent_before_start: row.age.is_some_and(|age| age.is_over),
            queued_for: row.queued_for.map(|age| age.as_secs_f64()),
            message: row.message.as_ref().map(MessageRow::of),
            wait: Wait::of(&row.wait, receiver),
            receiver: None,
            payload: None,
        }
    }

    pub(super) fn of_receiver(
        state: &AdminState,
        found: &FoundMessage,
        receiver: &WaitingReceiver,
    ) -> UnfinishedRow {
        let row = UnfinishedRow::of(state, found.session, &found.message, receiver);
        UnfinishedRow { receiver: Some(found.receiver.to_string()), ..row }
    }
}

/// The reason why a message waits. Times are in seconds; a time that never comes is missing.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct Wait {
    pub(crate) reason: WaitKind,
    /// The event that ends the wait, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ends_with: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_ends_in: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 65535)]
    pub(crate) oldest_packet_id: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) oldest_age: Option<f64>,
    /// True if that packet was first sent before the start of the broker, and is older.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) oldest_sent_before_start: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ahead: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) closed_in: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused_in: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<Holder>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<Cow<'static, str>>,
    /// The broker's action if no acknowledgement comes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) then: Option<AtDeadline>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) then_in: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) due_in: Option<f64>,
}

impl Wait {
    /// Returns the wait of a delayed message.
    pub(super) fn until_due(reason: WaitKind, due_in: Option<f64>) -> Wait {
        Wait { due_in, ..Wait::of_kind(reason) }
    }

    fn of_kind(reason: WaitKind) -> Wait {
        Wait {
            reason,
            ends_with: None,
            session_ends_in: None,
            oldest_packet_id: None,
            oldest_age: None,
            oldest_sent_before_start: None,
            ahead: None,
            closed_in: None,
            refused_in: None,
            cause: None,
            detail: None,
            then: None,
            then_in: None,
            due_in: None,
        }
    }

    /// Returns a wait: its word, its facts, and when it ends.
    pub(super) fn of(wait: &WaitReason, receiver: &WaitingReceiver) -> Wait {
        let now = clock::now();
        let body = Wait { ends_with: Some(ends_with(wait, receiver)), ..Wait::of_kind(wait.kind()) };
        match wait {
            WaitReason::ReceiverAway(ends) => Wait { session_ends_in: until(now, *ends), ..body },
            WaitReason::WindowFull(oldest) => Wait {
                oldest_packet_id: oldest.map(|(packet_id, _)| packet_id.get()),
                oldest_age: oldest.map(|(_, age)| age.least.as_secs_f64()),
                oldest_sent_before_start: oldest.map(|(_, age)| age.is_over),
                ..body
            },
            WaitReason::Behind(messages) | WaitReason::OlderFirst(messages) => {
                Wait { ahead: Some(*messages), ..body }
            }
            WaitReason::SocketBlocked(closes) => Wait { closed_in: until(now, *closes), ..body },
            WaitReason::Held(until_then) => Wait { refused_in: until(now, *until_then), ..body },
            WaitReason::Unacknowledged(sent) | WaitReason::AwaitingPubcomp(sent) => Wait {
                cause: Some(sent.cause.holder()),
                detail: Some(sent.detail().into()),
                then: (!sent.due.is_never()).then_some(sent.then),
                then_in: until(now, sent.due),
                ..body
            },
            WaitReason::Committing | WaitReason::ReadingBack => body,
        }
    }
}
