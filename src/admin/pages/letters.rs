//! The pages of the stored dead letters, and the actions on them.

use super::confirm::{ConfirmQuestion, ask, is_confirmed};
use super::entry::{login_of, login_of_form};
use super::frame::PageFrame;
use super::page::{PageResult, or_mistake, render, render_form};
use super::views::{bytes, link_of, long, shown};
use crate::admin::access::Scope;
use crate::admin::commands::{command_on_letter, republish_to};
use crate::admin::cookies::see;
use crate::admin::names::letter_name;
use crate::admin::payloads::{PayloadPermit, PayloadView};
use crate::admin::queries::letters::{LetterParameters, find_letter, list_letters};
use crate::admin::request::{note_of, permit, read_query};
use crate::admin::segment::segment;
use crate::admin::state::State;
use crate::clock;
use crate::operators::message_commands::MessageCommand;
use crate::persistence::letter::StoredLetter;
use crate::session::drops::DropReason;
use actix_web::{HttpRequest, web};
use askama::Template;
use serde::Deserialize;
use std::time::Duration;

/// The filter of the list. An empty field does not filter.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LettersForm {
    cause: String,
    receiver: String,
    topic: String,
    cursor: String,
    /// The action that led here.
    done: String,
}

impl LettersForm {
    fn is_filtered(&self) -> bool {
        !(self.cause.is_empty() && self.receiver.is_empty() && self.topic.is_empty())
    }

    fn parameters(&self) -> LetterParameters {
        let given = |text: &String| (!text.is_empty()).then(|| text.clone());
        LetterParameters {
            limit: None,
            cursor: given(&self.cursor),
            cause: given(&self.cause),
            receiver: given(&self.receiver),
            topic: given(&self.topic),
        }
    }

    /// Returns the query of the page that begins at a cursor.
    fn query(&self, cursor: &str) -> String {
        let (receiver, topic) = (segment(&self.receiver), segment(&self.topic));
        format!("cause={}&receiver={receiver}&topic={topic}&cursor={}", self.cause, segment(cursor))
    }
}

/// The part of a letter that a page shows besides its facts.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LetterView {
    payload: bool,
}

/// The form of an action on a letter.
#[derive(Deserialize)]
pub(super) struct LetterForm {
    csrf: String,
    /// The receivers of a republication.
    #[serde(default)]
    to: String,
    #[serde(default)]
    note: String,
    #[serde(default)]
    confirm: String,
}

#[derive(Template)]
#[template(path = "letters.html", config = "src/admin/askama.toml")]
struct LettersPage {
    frame: PageFrame,
    form: LettersForm,
    done: Option<&'static str>,
    mistake: Option<String>,
    causes: Vec<&'static str>,
    letters: Vec<ListedLetter>,
    /// The query of the next page.
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "letter.html", config = "src/admin/askama.toml")]
struct OneLetterPage {
    frame: PageFrame,
    csrf: String,
    may_act: bool,
    may_see: bool,
    letter: ListedLetter,
    publisher: String,
    /// True if the receiver is a shared group, which has no session.
    is_shared: bool,
    payload: Option<ShownPayload>,
}

/// A stored dead letter.
pub(super) struct ListedLetter {
    pub(super) id: String,
    pub(super) age: String,
    pub(super) receiver: String,
    pub(super) link: Option<String>,
    pub(super) topic: String,
    /// The cause, with the reason code of the receiver.
    pub(super) cause: String,
    pub(super) sent: String,
    pub(super) qos: u8,
    pub(super) size: String,
}

/// The payload of a letter on its page.
struct ShownPayload {
    text: String,
    note: Option<&'static str>,
}

pub(super) async fn list(request: HttpRequest, state: State) -> PageResult {
    let login = login_of(&request, &state)?;
    let form: LettersForm = read_query(&request)?;
    let listed = list_letters(&state, &form.parameters()).await;
    let (listed, mistake) = or_mistake(listed, Default::default)?;
    let is_mistaken = mistake.is_some();
    let page = LettersPage {
        frame: PageFrame::of(&request, &state, &login, "/dead-letters").await,
        done: match &*form.done {
            "republished" => Some("The message is published again."),
            "deleted" => Some("The dead letter is deleted."),
            _ => None,
        },
        mistake,
        causes: DropReason::ALL.iter().map(|cause| cause.name()).collect(),
        letters: listed.letters.iter().map(|letter| ListedLetter::of(letter)).collect(),
        next: listed.next.map(|cursor| form.query(&cursor)),
        form,
    };
    Ok(render_form(&page, is_mistaken))
}

/// Shows one letter; its payload if the address asks for it, for operators.
pub(super) async fn one(request: HttpRequest, path: web::Path<String>, state: State) -> PageResult {
    let login = login_of(&request, &state)?;
    let LetterView { payload } = read_query(&request)?;
    let permit = payload.then(|| PayloadPermit::of(&state, &login.caller)).transpose()?;
    let (_, letter) = find_letter(&state, &path).await?;
    let view = |permit: PayloadPermit<'_>| permit.view(&path, letter.message.payload());
    let payload = permit.map(|permit| ShownPayload::of(view(permit)));
    Ok(render(&OneLetterPage {
        csrf: login.csrf.clone(),
        may_act: login.caller.scope >= Scope::Operator,
        may_see: PayloadPermit::of(&state, &login.caller).is_ok(),
        frame: PageFrame::of(&request, &state, &login, "/dead-letters").await,
        publisher: shown(letter.message.publisher()),
        is_shared: letter.receiver.starts_with("$share/"),
        letter: ListedLetter::of(&letter),
        payload,
    }))
}

/// Publishes the message of a letter again.
pub(super) async fn republish(
    request: HttpRequest,
    path: web::Path<String>,
    state: State,
    form: web::Form<LetterForm>,
) -> PageResult {
    let login = login_of_form(&request, &state, &form.csrf)?;
    let to = republish_to(&form.to)?;
    let command = |place| MessageCommand::Republish(place, to);
    command_on_letter(
        &state,
        &login.caller,
        ("republish", &path),
        &note_of(Some(form.into_inner().note))?,
        command,
    )
    .await?;
    Ok(see("/dead-letters?done=republished"))
}

/// Deletes a letter, once the operator has confirmed it.
pub(super) async fn delete(
    request: HttpRequest,
    path: web::Path<String>,
    state: State,
    form: web::Form<LetterForm>,
) -> PageResult {
    let login = login_of_form(&request, &state, &form.csrf)?;
    if !is_confirmed(&form.confirm) {
        permit(&login.caller, Scope::Operator)?;
        let (_, letter) = find_letter(&state, &path).await?;
        let ListedLetter { receiver, topic, .. } = ListedLetter::of(&letter);
        let question = ConfirmQuestion {
            title: format!("Delete the dead letter of {receiver} on {topic}?"),
            text: "The message is lost.",
            action: format!("/dead-letters/{}/delete", letter_name(letter.place)),
            fields: Vec::new(),
            note: form.into_inner().note,
            button: "Delete",
            back: format!("/dead-letters/{}", letter_name(letter.place)),
        };
        return Ok(ask(&request, &state, &login, ("/dead-letters", question)).await);
    }
    let action = ("delete_dead_letter", path.as_str());
    let note = note_of(Some(form.into_inner().note))?;
    command_on_letter(&state, &login.caller, action, &note, MessageCommand::DeleteLetter).await?;
    Ok(see("/dead-letters?done=deleted"))
}

impl ListedLetter {
    pub(super) fn of(letter: &StoredLetter) -> ListedLetter {
        let ago = clock::unix_millis().saturating_sub(letter.place.dropped_ms);
        let code = letter.code.map(|code| format!(" (0x{:02X})", code.byte())).unwrap_or_default();
        ListedLetter {
            id: letter_name(letter.place),
            age: long(Duration::from_millis(ago)),
            receiver: shown(&letter.receiver),
            link: link_of(&letter.receiver).filter(|_| !letter.receiver.starts_with("$share/")),
            topic: shown(letter.message.topic()),
            cause: format!("{}{code}", letter.cause),
            sent: format!("{}x", letter.attempts),
            qos: letter.message.header().qos as u8,
            size: bytes(letter.message.payload().len() as u64),
        }
    }
}

impl ShownPayload {
    fn of(view: PayloadView) -> ShownPayload {
        let PayloadView { text, base64, is_complete } = view;
        let note = match (text.is_some(), is_complete) {
            (true, true) => None,
            (true, false) => Some("The first 4 KiB."),
            (false, true) => Some("In base64, because it is not text."),
            (false, false) => Some("The first 4 KiB, in base64."),
        };
        ShownPayload { text: text.or(base64).unwrap_or_default(), note }
    }
}
