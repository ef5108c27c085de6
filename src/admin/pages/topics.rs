//! The page of topics: receivers, and retained messages.

use super::confirm::{ConfirmQuestion, ask, is_confirmed};
use super::entry::{SubmittedForm, Visit};
use super::frame::PageFrame;
use super::page::{PageResult, or_mistake, render_form};
use super::subscribers::SubscriberList;
use super::views::{LONG, bytes, shown, until};
use crate::admin::access::Scope;
use crate::admin::commands::delete_retained;
use crate::admin::failed::Failed;
use crate::admin::queries::by_filter::subscribers;
use crate::admin::queries::retained::find_retained;
use crate::admin::queries::waits;
use crate::admin::queries::whereabouts::receivers;
use crate::admin::request::permit;
use crate::admin::segment::segment;
use crate::admin::state::State;
use crate::clock;
use crate::mqtt::message::Message;
use crate::mqtt::topic::{is_topic_name, without_share};
use askama::Template;
use serde::Deserialize;

/// Retained messages on the page at most.
const RETAINED: usize = 100;

/// The filter of the page. An empty field does not filter.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TopicsForm {
    filter: String,
}

/// The form that deletes a retained message.
#[derive(Deserialize)]
pub(super) struct DeleteForm {
    topic: String,
    /// The filter of the page to go back to.
    #[serde(default)]
    filter: String,
    #[serde(default)]
    confirm: String,
}

#[derive(Template)]
#[template(path = "topics.html", config = "src/admin/askama.toml")]
struct TopicsPage {
    frame: PageFrame,
    mistake: Option<String>,
    filter: String,
    /// True if the filter is one topic: then the page shows who gets its messages. Else it shows
    /// who has the filter.
    is_topic: bool,
    /// `None` without a filter.
    subscribers: Option<SubscriberList>,
    /// The path of the page that says where the messages of the topic are.
    where_link: String,
    retained: Vec<RetainedRow>,
    /// True if there are more retained messages than the page has.
    more: bool,
}

struct RetainedRow {
    /// The first 256 characters of the topic.
    name: String,
    /// The topic, for the links and the form; `None` if it is too long for them.
    topic: Option<TopicLink>,
    qos: u8,
    size: String,
    expires: String,
}

/// A topic in a link and in a form.
struct TopicLink {
    path: String,
    text: String,
}

pub(super) async fn page(visit: Visit) -> PageResult {
    let TopicsForm { filter } = visit.read()?;
    let is_topic = is_topic_name(&filter);
    let (found, mistake) = or_mistake(find(&visit.state, &filter, is_topic).await, Found::default)?;
    let is_mistaken = mistake.is_some();
    let page = TopicsPage {
        frame: PageFrame::of(&visit, "/topics").await,
        mistake,
        is_topic,
        subscribers: found.subscribers,
        where_link: format!("/where?topic={}", segment(&filter)),
        retained: found.retained,
        more: found.more,
        filter,
    };
    Ok(render_form(&page, is_mistaken))
}

/// The content of the page for a filter.
#[derive(Default)]
struct Found {
    subscribers: Option<SubscriberList>,
    retained: Vec<RetainedRow>,
    more: bool,
}

/// Errors: the filter is invalid, or a shard does not answer.
async fn find(state: &State, filter: &str, is_topic: bool) -> Result<Found, Failed> {
    let subscribers = match (filter, is_topic) {
        ("", _) => None,
        (topic, true) => Some(SubscriberList::of(&receivers(state, topic).await?)),
        (filter, false) => Some(SubscriberList::of(&subscribers(state, filter).await?)),
    };
    let found = find_retained(state, topics_of(filter), None, RETAINED).await?;
    let more = !found.is_complete();
    let retained = found.messages.iter().map(RetainedRow::of).collect();
    Ok(Found { subscribers, retained, more })
}

/// Returns the filter of the topics that a filter is about: without the name of a shared group.
fn topics_of(filter: &str) -> &str {
    if filter.is_empty() { "#" } else { without_share(filter) }
}

impl RetainedRow {
    fn of(message: &Message) -> RetainedRow {
        let topic = message.topic();
        let link =
            || TopicLink { path: format!("/topics?filter={}", segment(topic)), text: topic.to_owned() };
        RetainedRow {
            name: shown(topic),
            topic: (topic.len() <= LONG).then(link),
            qos: message.header().qos as u8,
            size: bytes(message.payload().len() as u64),
            expires: match until(waits::until(clock::now(), message.header().expires)) {
                text if text.is_empty() => "never".to_owned(),
                text => text,
            },
        }
    }
}

/// Deletes a retained message, once the operator has confirmed it, and goes back to the page.
pub(super) async fn delete(form: SubmittedForm<DeleteForm>) -> PageResult {
    let SubmittedForm { visit, operator, fields } = form;
    let DeleteForm { topic, filter, confirm } = fields;
    let back = format!("/topics?filter={}", segment(&filter));
    if !is_confirmed(&confirm) {
        permit(&visit.login.caller, Scope::Operator)?;
        let question = ConfirmQuestion {
            title: format!("Delete the retained message of {}?", shown(&topic)),
            text: "Clients that subscribe from now on do not get it. Subscribers are not told.",
            action: "/topics/delete".to_owned(),
            fields: vec![("topic", topic), ("filter", filter)],
            note: operator.note,
            button: "Delete",
            back,
        };
        return Ok(ask(&visit, "/topics", question).await);
    }
    let said = match delete_retained(&operator, &topic).await {
        Ok(()) => "The retained message is deleted.",
        Err(Failed::NoSuchMessage) => "The topic has no retained message any more. Nothing was done.",
        Err(failed) => return Err(failed.into()),
    };
    Ok(visit.answered(&back, said))
}
