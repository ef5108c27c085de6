//! The pages of the stored dead letters, and the actions on them.

use super::confirm::{ConfirmQuestion, ask, is_confirmed};
use super::entry::{SubmittedForm, Visit};
use super::frame::PageFrame;
use super::page::{PageResult, or_mistake, render, render_form};
use super::views::{bytes, link_of, long, shown};
use crate::admin::access::Scope;
use crate::admin::commands::{command_on_letter, republish_to};
use crate::admin::failed::Failed;
use crate::admin::names::letter_name;
use crate::admin::payloads::{PayloadPermit, PayloadView};
use crate::admin::queries::letters::{LetterParameters, find_letter, list_letters};
use crate::admin::request::permit;
use crate::admin::segment::segment;
use crate::clock;
use crate::operators::message_commands::MessageCommand;
use crate::persistence::letter::StoredLetter;
use crate::session::drops::DropReason;
use actix_web::web::Path;
use askama::Template;
use serde::Deserialize;
use std::time::Duration;

/// The filter of the list. An empty field does not filter.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LettersForm {
    pub(super) cause: String,
    pub(super) receiver: String,
    pub(super) topic: String,
    pub(super) min_age: String,
    pub(super) max_age: String,
    pub(super) cursor: String,
}

impl LettersForm {
    pub(super) fn is_filtered(&self) -> bool {
        self.fields().iter().any(|(_, value)| !value.is_empty())
    }

    /// Returns the fields of the filter, each with its name.
    pub(super) fn fields(&self) -> [(&'static str, &String); 5] {
        let LettersForm { cause, receiver, topic, min_age, max_age, .. } = self;
        [
            ("cause", cause),
            ("receiver", receiver),
            ("topic", topic),
            ("min_age", min_age),
            ("max_age", max_age),
        ]
    }

    pub(super) fn parameters(&self) -> LetterParameters {
        let given = |text: &String| (!text.is_empty()).then(|| text.clone());
        LetterParameters {
            limit: None,
            cursor: given(&self.cursor),
            cause: given(&self.cause),
            receiver: given(&self.receiver),
            topic: given(&self.topic),
            min_age: given(&self.min_age),
            max_age: given(&self.max_age),
        }
    }

    /// Returns the filter as a query string.
    pub(super) fn query(&self) -> String {
        let given = self.fields().into_iter().filter(|(_, value)| !value.is_empty());
        let pairs: Vec<String> = given.map(|(name, value)| format!("{name}={}", segment(value))).collect();
        pairs.join("&")
    }

    /// Returns the path of the list with this filter.
    pub(super) fn path(&self) -> String {
        match self.query() {
            query if query.is_empty() => "/dead-letters".to_owned(),
            query => format!("/dead-letters?{query}"),
        }
    }

    /// Returns the path of the page that begins at a cursor.
    fn path_from(&self, cursor: &str) -> String {
        let joint = if self.is_filtered() { '&' } else { '?' };
        format!("{}{joint}cursor={}", self.path(), segment(cursor))
    }
}

/// The part of a letter that a page shows besides its facts.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LetterView {
    payload: bool,
}

#[derive(Deserialize)]
pub(super) struct LetterForm {
    /// The receivers of a republication.
    #[serde(default)]
    to: String,
    #[serde(default)]
    confirm: String,
}

#[derive(Template)]
#[template(path = "letters.html", config = "src/admin/askama.toml")]
struct LettersPage {
    frame: PageFrame,
    form: LettersForm,
    mistake: Option<String>,
    causes: Vec<&'static str>,
    letters: Vec<ListedLetter>,
    /// The path of the next page.
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "letter.html", config = "src/admin/askama.toml")]
struct OneLetterPage {
    frame: PageFrame,
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

pub(super) async fn list(visit: Visit) -> PageResult {
    let form: LettersForm = visit.read()?;
    let listed = list_letters(&visit.state, &form.parameters()).await;
    let (listed, mistake) = or_mistake(listed, Default::default)?;
    let is_mistaken = mistake.is_some();
    let page = LettersPage {
        frame: PageFrame::of(&visit, "/dead-letters").await,
        mistake,
        causes: DropReason::ALL.iter().map(|cause| cause.name()).collect(),
        letters: listed.letters.iter().map(|letter| ListedLetter::of(letter)).collect(),
        next: listed.next.map(|cursor| form.path_from(&cursor)),
        form,
    };
    Ok(render_form(&page, is_mistaken))
}

/// Shows one letter; its payload if the address asks for it, for operators.
pub(super) async fn one(visit: Visit, path: Path<String>) -> PageResult {
    let (state, caller) = (&visit.state, &visit.login.caller);
    let LetterView { payload } = visit.read()?;
    let permit = payload.then(|| PayloadPermit::of(state, caller)).transpose()?;
    let (_, letter) = find_letter(state, &path).await?;
    let view = |permit: PayloadPermit<'_>| permit.view(&path, letter.message.payload());
    let payload = permit.map(|permit| ShownPayload::of(view(permit)));
    Ok(render(&OneLetterPage {
        may_see: PayloadPermit::of(state, caller).is_ok(),
        frame: PageFrame::of(&visit, "/dead-letters").await,
        publisher: shown(letter.message.publisher()),
        is_shared: letter.receiver.starts_with("$share/"),
        letter: ListedLetter::of(&letter),
        payload,
    }))
}

/// Publishes the message of a letter again.
pub(super) async fn republish(path: Path<String>, form: SubmittedForm<LetterForm>) -> PageResult {
    let SubmittedForm { visit, operator, fields: form } = form;
    let to = republish_to(&form.to)?;
    let command = |place| MessageCommand::Republish(place, to);
    let done = command_on_letter(&operator, ("republish", &path), command).await;
    letter_answer(&visit, done, "The message is published again, and its dead letter is removed.")
}

/// Leads to the list, which says what happened with a letter.
fn letter_answer(visit: &Visit, done: Result<(), Failed>, said: &'static str) -> PageResult {
    let said = match done {
        Ok(()) => said,
        Err(Failed::NoSuchMessage) => "The dead letter is already gone. Nothing was done.",
        Err(failed) => return Err(failed.into()),
    };
    Ok(visit.answered("/dead-letters", said))
}

/// Deletes a letter, once the operator has confirmed it.
pub(super) async fn delete(path: Path<String>, form: SubmittedForm<LetterForm>) -> PageResult {
    let SubmittedForm { visit, operator, fields: form } = form;
    if !is_confirmed(&form.confirm) {
        permit(&visit.login.caller, Scope::Operator)?;
        let letter = match find_letter(&visit.state, &path).await {
            Ok((_, letter)) => letter,
            Err(gone) => return letter_answer(&visit, Err(gone), ""),
        };
        let ListedLetter { receiver, topic, .. } = ListedLetter::of(&letter);
        let question = ConfirmQuestion {
            title: format!("Delete the dead letter of {receiver} on {topic}?"),
            text: "The message is lost.",
            action: format!("/dead-letters/{}/delete", letter_name(letter.place)),
            fields: Vec::new(),
            note: operator.note,
            button: "Delete",
            back: format!("/dead-letters/{}", letter_name(letter.place)),
        };
        return Ok(ask(&visit, "/dead-letters", question).await);
    }
    let action = ("delete_dead_letter", path.as_str());
    let done = command_on_letter(&operator, action, MessageCommand::DeleteLetter).await;
    letter_answer(&visit, done, "The dead letter is deleted.")
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
