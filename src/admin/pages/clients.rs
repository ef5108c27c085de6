//! The page of one client, and the actions on it.

use super::client_facts::facts;
use super::entry::{SubmittedForm, Visit};
use super::frame::PageFrame;
use super::page::{NoPage, PageResult, render};
use super::timeline::TimelineDrawing;
use super::views::{ClientView, LONG, MessageView, in_sentence, sentence, shown};
use crate::admin::commands::{ActionDone, carry_out, message_action, redeliver_by};
use crate::admin::failed::Failed;
use crate::admin::operator::Operator;
use crate::admin::queries::sessions::find;
use crate::admin::queries::target::{ClientTarget, OneParameters};
use crate::admin::queries::unfinished::{FoundPage, message_id, unfinished};
use crate::admin::queries::waiting_receiver::WaitingReceiver;
use crate::admin::rows::client::{ClientRow, OwnSubscriptionRow};
use crate::admin::rows::refused::RefusedRow;
use crate::admin::segment::segment;
use crate::admin::sourced_redelivery::{RuleFact, rule_facts, topic_rules};
use crate::admin::state::State;
use crate::operators::client_commands::OperatorAction;
use crate::operators::query::SessionName;
use crate::operators::unfinished::{PagePayloads, UnfinishedPage, UnfinishedPart};
use actix_web::ResponseError;
use actix_web::web::Path;
use askama::Template;
use serde::Deserialize;

/// Messages in flight, and in the queue, that the page of a client shows.
const MESSAGES: usize = 100;

#[derive(Template)]
#[template(path = "client.html", config = "src/admin/askama.toml")]
struct ClientPage {
    frame: PageFrame,
    mistake: Option<String>,
    row: ClientView,
    cause: Option<String>,
    facts: Vec<(&'static str, String)>,
    /// The redelivery settings, each with its source.
    rule: Vec<RuleFact>,
    topic_rules: Option<String>,
    /// The Client Identifier for the form of a trace; `None` if it is too long for one.
    traced_id: Option<String>,
    connected: bool,
    in_flight: Vec<MessageView>,
    queue: Vec<MessageView>,
    /// Why messages of the queue are not shown that are in the store alone.
    store_error: Option<String>,
    more: bool,
    /// The last refused requests, as sentences.
    refused: Vec<String>,
    subscriptions: Vec<OwnSubscriptionRow>,
    /// True if the client has more subscriptions than the page.
    more_subscriptions: bool,
    drawing: TimelineDrawing,
}

/// The form of an action on a client or one of its messages.
#[derive(Deserialize)]
pub(super) struct ActionForm {
    #[serde(default)]
    confirm: String,
    /// The way of a redelivery.
    #[serde(default)]
    by: String,
    /// The name of a message, and the action on it.
    #[serde(default)]
    mid: String,
    #[serde(default)]
    verb: String,
}

pub(super) async fn one(visit: Visit, path: Path<String>) -> PageResult {
    let target = target_of(&visit, &path)?;
    Ok(render(&client_page(&visit, &target).await?))
}

/// Returns the client of a path, or of the parameter `ref`. Errors: there is another parameter, or
/// the `ref` is invalid or of another process.
fn target_of(visit: &Visit, client_id: &str) -> Result<ClientTarget, Failed> {
    let OneParameters { reference } = visit.read()?;
    ClientTarget::read(client_id, reference.as_deref(), &visit.state)
}

async fn client_page(visit: &Visit, target: &ClientTarget) -> Result<ClientPage, NoPage> {
    let state = &visit.state;
    let observer = state.running()?;
    let (detail, socket) = find(state, target).await?;
    let in_flight =
        unfinished(state, target, (UnfinishedPart::InFlight, PagePayloads::Hidden), 0, MESSAGES).await?;
    let queue = unfinished(state, target, (UnfinishedPart::Queue, PagePayloads::Hidden), 0, MESSAGES).await?;
    let row = &detail.row;
    let client = ClientRow::of(state, target.shard(observer), row, socket.as_ref());
    let stall = socket.as_ref().and_then(|socket| socket.stall);
    let (FoundPage { page: in_flight, .. }, FoundPage { page: queue, store_error }) = (in_flight, queue);
    let receiver = WaitingReceiver::of(observer, &row.client_id);
    let rows = |page: &UnfinishedPage| -> Vec<MessageView> {
        let view = |row| MessageView::of(row, message_id(state, page.session, row), &receiver);
        page.rows.iter().map(view).collect()
    };
    Ok(ClientPage {
        // An action comes by another path, which has no page to go back to.
        frame: PageFrame { here: path_of(target), ..PageFrame::of(visit, "/clients").await },
        mistake: None,
        cause: stall.as_ref().map(sentence),
        facts: facts(&client),
        rule: rule_facts(&detail.redelivery),
        topic_rules: topic_rules(&detail.redelivery),
        traced_id: (row.client_id.len() <= LONG).then(|| row.client_id.to_string()),
        connected: row.connection.is_some(),
        in_flight: rows(&in_flight),
        queue: rows(&queue),
        store_error,
        more: in_flight.next.is_some() || queue.next.is_some(),
        drawing: TimelineDrawing::of(&state.timeline.of_client(&row.client_id)),
        refused: detail
            .refused
            .iter()
            .map(|refusal| in_sentence(&RefusedRow::of(refusal).sentence()))
            .collect(),
        more_subscriptions: detail.subscriptions.len() < row.subscriptions,
        subscriptions: detail.subscriptions.iter().map(OwnSubscriptionRow::of).collect(),
        row: ClientView::of(client),
    })
}

fn path_of(target: &ClientTarget) -> String {
    match &target.session {
        SessionName::Client(client_id) => format!("/clients/{}", segment(client_id)),
        SessionName::At(_) => format!("/clients/-?ref={}", target.shown),
    }
}

pub(super) async fn disconnect(path: Path<String>, form: SubmittedForm<ActionForm>) -> PageResult {
    act(&path, form, |_, _| Ok(OperatorAction::Disconnect)).await
}

pub(super) async fn redeliver(path: Path<String>, form: SubmittedForm<ActionForm>) -> PageResult {
    act(&path, form, |_, form| Ok(OperatorAction::Redeliver(redeliver_by(&form.by)?))).await
}

pub(super) async fn end(path: Path<String>, form: SubmittedForm<ActionForm>) -> PageResult {
    act(&path, form, |_, _| Ok(OperatorAction::EndSession)).await
}

/// Skips or parks a message.
pub(super) async fn on_message(path: Path<String>, form: SubmittedForm<ActionForm>) -> PageResult {
    act(&path, form, |state, form| message_action(state, &form.verb, &form.mid)).await
}

/// Acts on a client. A final action needs the client identifier in full in the form. Of an
/// identifier that is too long for that, the form has the first 256 characters.
async fn act(
    client_id: &str,
    form: SubmittedForm<ActionForm>,
    action: impl FnOnce(&State, &ActionForm) -> Result<OperatorAction, Failed>,
) -> PageResult {
    let SubmittedForm { visit, operator, fields: form } = form;
    let target = target_of(&visit, client_id)?;
    let outcome = match action(&visit.state, &form) {
        Ok(action) => confirm_and_act(&operator, &target, &form, action).await.map(|done| (action, done)),
        Err(mistake) => Err(mistake.into()),
    };
    let (action, done) = match outcome {
        Ok(done) => done,
        // The page shows the form again, and says why nothing is done.
        Err(failed) => {
            let page = client_page(&visit, &target).await?;
            let mistake = Some(failed.to_string());
            let mut answer = render(&ClientPage { mistake, ..page });
            *answer.status_mut() = failed.status_code();
            return Ok(answer);
        }
    };
    let page = match action {
        OperatorAction::EndSession => "/clients".to_owned(),
        _ => path_of(&target),
    };
    Ok(visit.answered(&page, done_words(action, done)))
}

/// Returns the sentence about an action that is done.
fn done_words(action: OperatorAction, done: ActionDone) -> String {
    let words = match (action, done.packets) {
        (OperatorAction::EndSession, _) => "The session has ended. Its queue and subscriptions are gone.",
        (OperatorAction::Disconnect, _) => "The client is disconnected. Its session stays.",
        (OperatorAction::Skip(_), _) => "The message was dropped.",
        (OperatorAction::Park(_), _) => "The message is a dead letter now.",
        (OperatorAction::Redeliver(_), Some(0)) => "Nothing is unacknowledged, so nothing was sent again.",
        (OperatorAction::Redeliver(_), Some(1)) => "1 packet was sent again.",
        (OperatorAction::Redeliver(_), Some(packets)) => {
            return format!("{packets} packets were sent again.");
        }
        (OperatorAction::Redeliver(_), None) => {
            "The client is disconnected. Its messages are sent again when it returns."
        }
    };
    words.to_owned()
}

/// Errors: a final action is not confirmed, or the broker refuses.
async fn confirm_and_act(
    operator: &Operator,
    target: &ClientTarget,
    form: &ActionForm,
    action: OperatorAction,
) -> Result<ActionDone, NoPage> {
    if is_final(action) {
        let (detail, _) = find(&operator.state, target).await?;
        if form.confirm != shown(&detail.row.client_id) {
            return Err(NoPage::NotConfirmed);
        }
    }
    Ok(carry_out(operator, target, action).await?)
}

/// Returns true if nothing can undo an action.
fn is_final(action: OperatorAction) -> bool {
    match action {
        OperatorAction::EndSession | OperatorAction::Skip(_) | OperatorAction::Park(_) => true,
        OperatorAction::Disconnect | OperatorAction::Redeliver(_) => false,
    }
}
