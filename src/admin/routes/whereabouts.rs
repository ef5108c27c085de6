//! /api/v1/messages/where: where a message is, and why it waits.
//!
//! The answer is put together from what the shards have now: subscriptions that match, windows and
//! queues, delayed and retained messages, and the last dropped ones. Each shard is asked for one
//! bounded part after the other.

use super::clients::Target;
use super::clients::{find, message, until};
use super::messages::{ends_with, wait};
use super::{Failed, ask, caller, read_query};
use crate::admin::access::Scope;
use crate::admin::state::AdminState;
use crate::broker::observer::Observer;
use crate::clock;
use crate::shard::observe::query::{MessageSummary, Query, QueryAnswer, ROWS};
use crate::shard::observe::recent_drops::RecentDrop;
use crate::shard::observe::wait_reason::WaitReason;
use crate::shard::observe::whereabouts::{
    FoundMessage, FoundMessages, MatchedReceivers, MatchedSession, Wanted,
};
use crate::time::Instant;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Time for the whole answer. An answer that is not complete by then says so.
const TIME: Duration = Duration::from_secs(3);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WhereParameters {
    topic: Option<String>,
    publisher: Option<String>,
    receiver: Option<String>,
}

/// What was found in all shards.
#[derive(Default)]
struct Found {
    receivers: MatchedReceivers,
    messages: Vec<FoundMessage>,
    in_store: Vec<(Box<str>, usize, WaitReason)>,
    delayed: Vec<(Instant, MessageSummary)>,
    dropped: Vec<RecentDrop>,
    /// The retained message of the topic.
    retained: Option<Value>,
    /// What the publisher waits for: a wait reason, and a sentence.
    publisher: Option<(&'static str, String)>,
    /// False if there is more than the answer has.
    is_complete: bool,
}

/// Says where the messages of a topic, a publisher or a receiver are.
pub(crate) async fn find_messages(
    request: HttpRequest,
    state: Data<AdminState>,
) -> Result<HttpResponse, Failed> {
    caller(&request, Scope::Viewer)?;
    let WhereParameters { topic, publisher, receiver } = read_query(&request)?;
    Ok(HttpResponse::Ok().json(where_is(&state, topic, publisher, receiver).await?))
}

/// Returns where the messages of a topic, a publisher or a receiver are, as JSON.
///
/// # Errors
/// Nothing is named, or a shard does not answer.
pub(crate) async fn where_is(
    state: &AdminState,
    topic: Option<String>,
    publisher: Option<String>,
    receiver: Option<String>,
) -> Result<Value, Failed> {
    if topic.is_none() && publisher.is_none() && receiver.is_none() {
        let what = "name a topic, a publisher or a receiver, such as topic=pumps/7/set";
        return Err(Failed::Parameter(what.to_owned()));
    }
    let text = |text: Option<String>| text.map(Into::into);
    let wanted = Wanted { topic: text(topic), publisher: text(publisher), receiver: text(receiver) };
    let found = look(state, &wanted).await?;
    Ok(body(state, &wanted, &found))
}

/// Asks all shards.
async fn look(state: &AdminState, wanted: &Wanted) -> Result<Found, Failed> {
    let observer = state.running()?;
    let mut found = Found { is_complete: true, ..Found::default() };
    let started = clock::now();
    for shard in 0..observer.shards() {
        if let Some(topic) = &wanted.topic {
            let query = Query::Receivers { topic: topic.clone() };
            if let QueryAnswer::Receivers(matched) = ask(state, observer, shard, query).await?.answer {
                found.add_receivers(*matched, wanted);
            }
        }
        let query = Query::Elsewhere { wanted: wanted.clone(), most: ROWS };
        if let QueryAnswer::Elsewhere(delayed, dropped) = ask(state, observer, shard, query).await?.answer {
            found.delayed.extend(delayed);
            found.dropped.extend(dropped);
        }
        // A receiver is in one shard.
        if wanted.receiver.as_deref().is_some_and(|receiver| observer.shard_of(receiver) != shard) {
            continue;
        }
        let mut from = Some(0);
        while let Some(slot) = from.take() {
            if found.messages.len() >= ROWS || clock::now().since(started) > TIME {
                found.is_complete = false;
                break;
            }
            let query = Query::Messages { wanted: wanted.clone(), from: slot };
            if let QueryAnswer::Messages(part) = ask(state, observer, shard, query).await?.answer {
                from = part.next;
                found.add_messages(*part);
            }
        }
    }
    if let Some(topic) = &wanted.topic {
        found.retained = retained(observer, topic);
    }
    if let Some(publisher) = &wanted.publisher {
        found.publisher = publisher_waits(state, observer, publisher).await?;
    }
    Ok(found)
}

impl Found {
    fn add_receivers(&mut self, matched: MatchedReceivers, wanted: &Wanted) {
        let MatchedReceivers { sessions, groups, more } = matched;
        let is_wanted = |client_id: &str| wanted.receiver.as_deref().is_none_or(|name| name == client_id);
        self.receivers.sessions.extend(sessions.into_iter().filter(|session| is_wanted(&session.client_id)));
        for group in groups {
            // Every shard knows every group.
            if !self.receivers.groups.iter().any(|known| known.0 == group.0) {
                self.receivers.groups.push(group);
            }
        }
        self.is_complete &= !more;
    }

    fn add_messages(&mut self, part: FoundMessages) {
        let FoundMessages { messages, in_store, next: _, more } = part;
        self.messages.extend(messages);
        self.in_store.extend(in_store);
        self.is_complete &= !more;
    }

    /// Returns the messages of a session that are in the store alone.
    fn in_store_of(&self, client_id: &str) -> Option<&(Box<str>, usize, WaitReason)> {
        self.in_store.iter().find(|(receiver, ..)| &**receiver == client_id)
    }
}

fn retained(observer: &Observer, topic: &str) -> Option<Value> {
    let retained = observer.shared().retained();
    let found = retained.find(topic, clock::now())?;
    Some(json!({ "payload_bytes": found.payload().len(), "qos": found.header().qos as u8 }))
}

/// Returns what the acknowledgements of a publisher wait for.
async fn publisher_waits(
    state: &AdminState,
    observer: &Observer,
    client_id: &str,
) -> Result<Option<(&'static str, String)>, Failed> {
    let row = match find(state, observer, &Target::client(client_id)).await {
        Ok((detail, _)) => detail.row,
        Err(Failed::NoSuchClient) => return Ok(None),
        Err(failed) => return Err(failed),
    };
    Ok(if row.waits_for_peer {
        let what = "the broker does not read the publisher, until another of its threads has caught up";
        Some(("peer_pending", what.to_owned()))
    } else if row.unanswered > 0 {
        let what = format!(
            "{} of its messages are not acknowledged to it; they wait for receivers with full queues, or for a commit",
            row.unanswered
        );
        Some(("ack_deferred", what))
    } else {
        None
    })
}

fn body(state: &AdminState, wanted: &Wanted, found: &Found) -> Value {
    let now = clock::now();
    let Found { receivers, messages, in_store, delayed, dropped, .. } = found;
    let delayed_row = |(due, row): &(Instant, MessageSummary)| {
        let reason = if *due <= now { "overdue" } else { "delayed" };
        json!({ "wait": { "reason": reason, "due_in": until(now, *due) }, "message": message(row) })
    };
    json!({
        "subscriptions": receivers.sessions.iter().map(session_row).collect::<Vec<_>>(),
        "shared_groups": receivers.groups.iter().map(group_row).collect::<Vec<_>>(),
        "messages": messages.iter().map(|row| found_row(state, row)).collect::<Vec<_>>(),
        "in_store": in_store.iter().map(|(receiver, count, reason)| json!({
            "receiver": &**receiver,
            "messages": count,
            "wait": wait(reason),
        })).collect::<Vec<_>>(),
        "delayed": delayed.iter().map(delayed_row).collect::<Vec<_>>(),
        "dropped": dropped.iter().map(drop_row).collect::<Vec<_>>(),
        "retained": &found.retained,
        "publisher": found.publisher.as_ref().map(|(reason, text)| json!({ "reason": reason, "text": text })),
        "verdicts": verdicts(wanted, found),
        "complete": found.is_complete,
    })
}

/// Returns a session that is subscribed to a topic as JSON.
pub(super) fn session_row(session: &MatchedSession) -> Value {
    json!({
        "client_id": &*session.client_id,
        "state": if session.connected { "connected" } else { "away" },
        "qos": session.qos as u8,
        "filters": session.filters.iter().map(|filter| &**filter).collect::<Vec<_>>(),
    })
}

/// Returns a shared group and its number of members as JSON.
pub(super) fn group_row((filter, members): &(Box<str>, usize)) -> Value {
    json!({ "filter": &**filter, "members": members })
}

/// Returns a dropped message as JSON.
pub(super) fn drop_row(drop: &RecentDrop) -> Value {
    json!({
        "receiver": &*drop.receiver,
        "topic": &*drop.topic,
        "cause": drop.cause.name(),
        "transmissions": drop.transmissions,
        "ago": clock::now().since(drop.at).as_secs(),
    })
}

fn found_row(state: &AdminState, row: &FoundMessage) -> Value {
    let FoundMessage { session, receiver, message: found, .. } = row;
    json!({
        "receiver": &**receiver,
        "mid": found.name.map(|name| state.process().message_name(*session, name)),
        "packet_id": found.packet_id.map(|id| id.get()),
        "transmissions": found.transmissions,
        "age": found.age.map(|age| age.as_secs_f64()),
        "message": found.message.as_ref().map(message),
        "wait": wait(&found.wait),
    })
}

/// Returns one sentence for each receiver and each other place of the messages.
fn verdicts(wanted: &Wanted, found: &Found) -> Vec<String> {
    let mut out = Vec::new();
    for session in &found.receivers.sessions {
        let name = &session.client_id;
        let head = format!("{name} ({}, QoS {})", session.filters.join(", "), session.qos as u8);
        let own: Vec<&FoundMessage> = found.messages.iter().filter(|row| row.receiver == *name).collect();
        out.push(match (own.first(), found.in_store_of(name)) {
            (Some(row), _) => format!("{head}  {}", verdict(row, own.len())),
            (None, Some((_, count, reason))) => {
                format!(
                    "{head}  {}: {count} messages are in the store, perhaps this one. Until {}.",
                    reason.name(),
                    ends_with(reason)
                )
            }
            (None, None) => format!("{head}  nothing waits for it"),
        });
    }
    for (filter, members) in &found.receivers.groups {
        out.push(format!("{filter}  a shared group with {members} members; one of them gets each message"));
    }
    if wanted.topic.is_some() && found.receivers.sessions.is_empty() && found.receivers.groups.is_empty() {
        out.push("nobody that this is about is subscribed to the topic".to_owned());
    }
    let is_matched = |name: &str| found.receivers.sessions.iter().any(|session| &*session.client_id == name);
    for row in found.messages.iter().filter(|row| !is_matched(&row.receiver)) {
        out.push(format!("{}  {}", row.receiver, verdict(row, 1)));
    }
    let now = clock::now();
    for (due, message) in &found.delayed {
        out.push(match until(now, *due).filter(|_| *due > now) {
            Some(seconds) => format!("{}  delayed: published in {seconds:.1} s", message.topic),
            None => format!("{}  overdue: it should be published now, and the broker is late", message.topic),
        });
    }
    if let Some((reason, text)) = &found.publisher {
        out.push(format!("publisher  {reason}: {text}"));
    }
    if found.retained.is_some() {
        out.push("the topic has a retained message".to_owned());
    }
    for drop in found.dropped.iter().take(10) {
        let ago = now.since(drop.at).as_secs();
        out.push(format!("{}  dropped {ago} s ago: {} {}", drop.receiver, drop.cause.name(), drop.topic));
    }
    if !found.is_complete {
        out.push("there is more than was looked at; name a receiver".to_owned());
    }
    out
}

fn verdict(row: &FoundMessage, count: usize) -> String {
    let message = &row.message;
    let packet = message.packet_id.map(|id| format!(" packet {},", id.get())).unwrap_or_default();
    let sent = match (message.transmissions, message.age) {
        (0, _) | (_, None) => String::new(),
        (1, Some(age)) => format!(" sent once {} s ago.", age.as_secs()),
        (times, Some(age)) => format!(" sent {times} times, first {} s ago.", age.as_secs()),
    };
    let others = if count > 1 { format!(" {} more wait.", count - 1) } else { String::new() };
    format!("{}:{packet}{sent} Until {}{others}", message.wait.name(), ends_with(&message.wait))
}
