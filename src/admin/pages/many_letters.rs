//! The action of the page of dead letters on all that fit its filter, once their number is
//! confirmed.

use super::confirm::{ConfirmQuestion, ask, is_confirmed};
use super::entry::SubmittedForm;
use super::letters::LettersForm;
use super::page::PageResult;
use super::views::{count, in_sentence, shown};
use crate::admin::bulk::{LetterAction, LetterWish, act_on_letters};
use crate::admin::commands::republish_to;
use crate::admin::failed::Failed;
use crate::admin::request::parse_query;
use serde::Deserialize;

/// The form of an action on all letters that fit.
#[derive(Deserialize)]
pub(super) struct ManyForm {
    /// `republish` or `delete`.
    verb: String,
    #[serde(default)]
    to: String,
    #[serde(default)]
    confirm: String,
    /// The confirmation that came with the number of letters: the newest one. No newer letter is
    /// touched.
    #[serde(default)]
    newest: String,
    /// The query string of the list.
    #[serde(default)]
    filter: String,
}

/// Counts the letters, and asks; or acts on them, and says how many it were and how many are left.
pub(super) async fn act(form: SubmittedForm<ManyForm>) -> PageResult {
    let SubmittedForm { visit, operator, fields: form } = form;
    let ManyForm { verb, to, confirm, newest, filter } = form;
    let filter: LettersForm = parse_query(&filter)?;
    let (action, done_word, title_word) = match verb.as_str() {
        "republish" => (LetterAction::Republish(republish_to(&to)?), "published again", "Republish"),
        "delete" => (LetterAction::Delete, "deleted", "Delete"),
        other => {
            let what = format!("the action is {other:?}, and must be republish or delete");
            return Err(Failed::Parameter(what).into());
        }
    };
    let wish = LetterWish {
        all: !filter.is_filtered(),
        confirm: is_confirmed(&confirm).then(|| newest.clone()),
        filter: filter.parameters(),
    };
    let done = act_on_letters(&operator, wish, action).await?;
    let Some(newest) = &done.confirm else {
        let said = match done.count + done.refused {
            0 => "No dead letter fits any more. Nothing was done.".to_owned(),
            _ => done.of_letters(done_word) + ".",
        };
        return Ok(visit.answered(&filter.path(), said));
    };
    let letters = if done.count == 1 { "dead letter" } else { "dead letters" };
    let number = count(done.count as u64);
    let fields = [("filter", filter.query()), ("verb", verb), ("to", to), ("newest", newest.clone())];
    let question = ConfirmQuestion {
        title: format!("{title_word} {number} {letters}{}?", words(&filter)),
        text: match action {
            LetterAction::Republish(_) => {
                "Their messages are published again, the oldest first. A letter is removed once its receivers have the message in their queues."
            }
            LetterAction::Delete => "Their messages are lost.",
        },
        action: "/dead-letters".to_owned(),
        fields: fields.into(),
        note: operator.note,
        button: title_word,
        back: filter.path(),
    };
    Ok(ask(&visit, "/dead-letters", question).await)
}

/// Returns the filter as the end of a question.
fn words(filter: &LettersForm) -> String {
    let given = filter.fields().into_iter().filter(|(_, value)| !value.is_empty());
    let word = |(name, value): (&str, &String)| {
        let name = match name {
            "min_age" => "older than",
            "max_age" => "newer than",
            name => name,
        };
        format!("{name} {}", in_sentence(&shown(value)))
    };
    let words: Vec<String> = given.map(word).collect();
    if words.is_empty() { " of all receivers".to_owned() } else { format!(" ({})", words.join(", ")) }
}
