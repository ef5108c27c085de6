//! The page that says where a message is, and why it waits.

use super::entry::login_of;
use super::frame::PageFrame;
use super::page::{PageResult, render};
use super::subscribers::SubscriberList;
use super::views::in_sentence;
use crate::admin::queries::whereabouts::whereabouts;
use crate::admin::request::read_query;
use crate::admin::state::State;
use crate::shard::observe::whereabouts::Wanted;
use actix_web::HttpRequest;
use askama::Template;
use serde::Deserialize;

/// The fields of the form. An empty one is none.
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
    form: WhereForm,
    /// `None` if nothing was asked.
    found: Option<WhereAnswer>,
}

/// The answer: one sentence for each receiver and place, and the subscribers.
struct WhereAnswer {
    verdicts: Vec<String>,
    subscribers: SubscriberList,
}

pub(super) async fn page(request: HttpRequest, state: State) -> PageResult {
    let login = login_of(&request, &state)?;
    let form: WhereForm = read_query(&request)?;
    let given = |text: &str| (!text.is_empty()).then(|| text.into());
    let (topic, publisher, receiver) = (given(&form.topic), given(&form.publisher), given(&form.receiver));
    let wanted = Wanted { topic, publisher, receiver };
    let found = if wanted == Wanted::default() {
        None
    } else {
        let found = whereabouts(&state, &wanted).await?;
        let subscribers = SubscriberList::of(&found.receivers);
        let verdicts = found.verdicts.iter().map(|verdict| in_sentence(verdict)).collect();
        Some(WhereAnswer { verdicts, subscribers })
    };
    let frame = PageFrame::of(&request, &state, &login, "/where").await;
    Ok(render(&WherePage { frame, form, found }))
}
