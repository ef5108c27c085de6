//! The page that says where a message is, and why it waits.

use super::entry::Visit;
use super::frame::PageFrame;
use super::letters::ListedLetter;
use super::page::{PageResult, or_mistake, render_form};
use super::subscribers::SubscriberList;
use super::views::{in_sentence, link_of, seconds, shown};
use crate::admin::queries::whereabouts::{wanted, whereabouts};
use crate::admin::traces::fates::TracedFate;
use crate::clock;
use crate::operators::wanted::Wanted;
use askama::Template;
use serde::Deserialize;

/// The fields of the form. An empty field counts as missing.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WhereForm {
    topic: String,
    receiver: String,
    publisher: String,
}

#[derive(Template)]
#[template(path = "where.html", config = "src/admin/askama.toml")]
struct WherePage {
    frame: PageFrame,
    mistake: Option<String>,
    form: WhereForm,
    /// `None` if nothing was asked.
    found: Option<WhereAnswer>,
}

/// The answer: one verdict for each receiver and place, and links to further pages.
struct WhereAnswer {
    verdicts: Vec<String>,
    letters: Vec<ListedLetter>,
    traced: Vec<TracedRow>,
    subscribers: SubscriberList,
}

/// The last step of the messages of a client in a trace.
struct TracedRow {
    trace: u64,
    name: String,
    link: Option<String>,
    topic: String,
    step: String,
    ago: String,
}

impl TracedRow {
    fn of(fate: &TracedFate) -> TracedRow {
        TracedRow {
            trace: fate.trace,
            name: shown(&fate.client_id),
            link: link_of(&fate.client_id),
            topic: shown(&fate.topic),
            step: fate.kind.name().replace('_', " "),
            ago: seconds(clock::now().since(fate.at)),
        }
    }
}

impl WhereForm {
    /// Returns the client that a trace of the wanted messages follows; empty for none. A topic says
    /// enough.
    fn traced_client(&self) -> &str {
        match (&*self.topic, &*self.publisher) {
            ("", "") => &self.receiver,
            ("", publisher) => publisher,
            _ => "",
        }
    }
}

pub(super) async fn page(visit: Visit) -> PageResult {
    let form: WhereForm = visit.read()?;
    let [topic, publisher, receiver] = [&form.topic, &form.publisher, &form.receiver]
        .map(|text| Some(&**text).filter(|text| !text.is_empty()));
    let found = match wanted(topic, publisher, receiver) {
        Ok(wanted) if wanted == Wanted::default() => Ok(None),
        Ok(wanted) => whereabouts(&visit.state, &wanted).await.map(Some),
        Err(failed) => Err(failed),
    };
    let (found, mistake) = or_mistake(found, || None)?;
    let is_mistaken = mistake.is_some();
    let found = found.map(|found| {
        let subscribers = SubscriberList::of(&found.receivers);
        let verdicts = found.verdicts.iter().map(|verdict| in_sentence(verdict)).collect();
        let letters = found.letters.iter().map(|letter| ListedLetter::of(letter)).collect();
        let traced = found.traced.iter().map(TracedRow::of).collect();
        WhereAnswer { verdicts, letters, traced, subscribers }
    });
    let frame = PageFrame::of(&visit, "/where").await;
    Ok(render_form(&WherePage { frame, mistake, form, found }, is_mistaken))
}
