//! The page that says where a message is, and why it waits.

use super::timeline::link_of;
use super::{Frame, PageResult, State, login_of, render};
use crate::admin::routes::whereabouts::where_is;
use crate::admin::routes::{Failed, read_query};
use actix_web::HttpRequest;
use askama::Template;
use serde::Deserialize;
use serde_json::Value;

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
    frame: Frame,
    form: WhereForm,
    /// `None` if nothing was asked.
    found: Option<Found>,
}

/// The answer: one sentence for each receiver and place, and the subscribers.
struct Found {
    verdicts: Vec<String>,
    subscribers: Vec<Subscriber>,
}

/// A client whose subscriptions match the topic now.
struct Subscriber {
    name: String,
    link: Option<String>,
    state: String,
    qos: String,
    filters: String,
}

pub(super) async fn page(request: HttpRequest, state: State) -> PageResult {
    let login = login_of(&request, &state)?;
    let form: WhereForm = read_query(&request)?;
    let found = if form.topic.is_empty() && form.receiver.is_empty() && form.publisher.is_empty() {
        None
    } else {
        Some(look(&state, &form).await?)
    };
    let frame = Frame::of(&request, &state, &login, "/where").await;
    Ok(render(&WherePage { frame, form, found }))
}

async fn look(state: &State, form: &WhereForm) -> Result<Found, Failed> {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let (topic, publisher, receiver) = (given(&form.topic), given(&form.publisher), given(&form.receiver));
    let body = where_is(state, topic, publisher, receiver).await?;
    let list = |name: &str| body[name].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let subscriber = |row: &Value| {
        let name = text(&row["client_id"]);
        let filters: Vec<String> = row["filters"].as_array().into_iter().flatten().map(text).collect();
        Subscriber {
            link: link_of(&name),
            name: name.chars().take(super::views::SHOWN).collect(),
            state: text(&row["state"]),
            qos: text(&row["qos"]),
            filters: filters.join(", "),
        }
    };
    Ok(Found {
        verdicts: list("verdicts").iter().map(text).collect(),
        subscribers: list("subscriptions").iter().map(subscriber).collect(),
    })
}
