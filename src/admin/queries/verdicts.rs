//! The verdicts of `where`: one sentence or two for each receiver and each other place of the
//! messages.

use super::delayed::DelayedRow;
use super::waiting_receiver::WaitingReceiver;
use super::waits::{ends_with, until};
use super::whereabouts::FoundPlaces;
use crate::admin::names::letter_name;
use crate::admin::rows::refused::RefusedRow;
use crate::admin::traces::fates::TracedFate;
use crate::clock;
use crate::events::recent_drops::RecentDrop;
use crate::mqtt::topic::first_chars;
use crate::operators::message_search::{InStoreFound, LOOKED_AT};
use crate::operators::receivers::MatchedSession;
use crate::operators::wanted::Wanted;
use crate::operators::whereabouts::FoundMessage;
use crate::persistence::letter::StoredLetter;
use crate::session::drops::DropReason;
use crate::time::Instant;
use crate::time::duration::{long, seconds};
use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

/// Receivers at most of which nothing is known but drops, and as many with traces alone; refused
/// requests at most.
const FURTHER: usize = 10;

/// Characters of a topic in a verdict at most.
const TOPIC: usize = 128;

/// All facts about one receiver.
#[derive(Default)]
struct OfReceiver<'a> {
    session: Option<&'a MatchedSession>,
    waiting: Vec<&'a FoundMessage>,
    in_store: Option<&'a InStoreFound>,
    /// Messages in memory that wait, beside `waiting`.
    unlisted: usize,
    letters: Vec<&'a StoredLetter>,
    drops: Vec<&'a RecentDrop>,
    /// The drops whose topics are not known.
    unknown_drops: Vec<&'a RecentDrop>,
    traced: Option<&'a TracedFate>,
}

/// The receivers in the order in which they were found.
#[derive(Default)]
struct FoundReceivers<'a> {
    names: Vec<&'a str>,
    by_name: HashMap<&'a str, OfReceiver<'a>>,
}

impl<'a> FoundReceivers<'a> {
    fn of(&mut self, name: &'a str) -> &mut OfReceiver<'a> {
        self.by_name.entry(name).or_insert_with(|| {
            self.names.push(name);
            OfReceiver::default()
        })
    }

    /// As [`Self::of`], but `None` for a further receiver if `room` is used up.
    fn of_some(&mut self, name: &'a str, room: &mut usize) -> Option<&mut OfReceiver<'a>> {
        if !self.by_name.contains_key(name) {
            *room = room.checked_sub(1)?;
        }
        Some(self.of(name))
    }

    fn gather(wanted: &Wanted, found: &'a FoundPlaces) -> FoundReceivers<'a> {
        let mut all = FoundReceivers::default();
        found.receivers.sessions().iter().for_each(|one| all.of(&one.client_id).session = Some(one));
        found.messages.iter().for_each(|row| all.of(&row.receiver).waiting.push(row));
        for (name, count) in &found.unlisted {
            all.of(name).unlisted = *count;
        }
        for of_receiver in &found.in_store {
            // A receiver of which nothing is known gets no line. One number tells how many messages
            // of all such receivers were not looked at.
            let name = &*of_receiver.receiver;
            if of_receiver.found > 0 || wanted.receiver.is_some() || all.by_name.contains_key(name) {
                all.of(name).in_store = Some(of_receiver);
            }
        }
        found.letters.iter().for_each(|letter| all.of(&letter.receiver).letters.push(letter));
        let (mut of_drops, mut of_traces) = (FURTHER, FURTHER);
        for drop in &found.dropped.drops {
            if let Some(receiver) = all.of_some(drop.receiver.beginning(), &mut of_drops) {
                // The letter of a drop says more than the drop.
                let has_letter = receiver.letters.iter().any(|letter| *letter.cause == *drop.cause.name());
                receiver.drops.extend((!has_letter).then_some(drop));
            }
        }
        for drop in &found.dropped.without_topic {
            let name = drop.receiver.beginning();
            // Of other receivers the topic alone says nothing.
            if wanted.receiver.is_some() || all.by_name.contains_key(name) {
                all.of(name).unknown_drops.push(drop);
            }
        }
        for fate in &found.traced {
            if let Some(receiver) = all.of_some(&fate.client_id, &mut of_traces) {
                receiver.traced = Some(fate);
            }
        }
        all
    }
}

/// Returns one verdict for each receiver, and one for each other place of the messages.
pub(super) fn verdicts(wanted: &Wanted, found: &FoundPlaces) -> Vec<String> {
    let (now, unix_ms) = (clock::now(), clock::unix_millis());
    let all = FoundReceivers::gather(wanted, found);
    let verdict = |name: &&str| {
        let receiver = found.far_sides.receiver(name);
        all.by_name.get(*name)?.verdict((name, &receiver), (now, unix_ms), found.is_complete)
    };
    let subscribed = found.receivers.sessions().len();
    let mut out: Vec<String> = all.names.iter().take(subscribed).filter_map(verdict).collect();
    for (filter, members) in &found.receivers.groups {
        out.push(format!("{filter}  a shared group with {members} members; one of them gets each message"));
    }
    out.extend(about_topic(wanted, found));
    out.extend(refusals(found));
    out.extend(all.names.iter().skip(subscribed).filter_map(verdict));
    out.extend(about_receiver(wanted, found, &all));
    for DelayedRow { place, message, .. } in &found.delayed {
        out.push(match until(now, place.due).filter(|_| place.due > now) {
            Some(_) => {
                let due = seconds(place.due.since(now));
                format!("{}  delayed: published in {due}", shortened(&message.topic))
            }
            None => {
                let topic = shortened(&message.topic);
                format!("{topic}  overdue: it should be published now, and the broker is late")
            }
        });
    }
    if let Some((reason, text)) = &found.publisher {
        out.push(format!("publisher  {reason}: {text}"));
    }
    match found.dropped.without_publisher {
        0 => {}
        count => out.push(format!("drops without a known publisher, which a topic tells apart: {count}")),
    }
    if found.retained.is_some() {
        out.push("the topic has a retained message".to_owned());
    }
    if let Some(why) = &found.store_error {
        out.push(format!("the store did not answer: {why}"));
    }
    let of_these: usize = all.by_name.values().filter_map(|one| Some(one.in_store?.unseen)).sum();
    let of_others = found.unseen.saturating_sub(of_these);
    if of_others > 0 {
        out.push(format!(
            "{of_others} messages of other receivers are only in the store, and were not looked at"
        ));
    }
    if found.unlisted_of_others > 0 {
        out.push(format!("{} messages wait for other receivers; name a receiver", found.unlisted_of_others));
    }
    if found.unseen > 0 && found.store_error.is_none() {
        out.push(format!(
            "a search looks at {LOOKED_AT} messages in the store at most, for 3 s, and not at those whose commit is pending; name a receiver"
        ));
    }
    if !found.is_complete {
        out.push("there is more than was looked at; name a receiver".to_owned());
    }
    out
}

/// Returns the verdicts about the topic itself.
fn about_topic(wanted: &Wanted, found: &FoundPlaces) -> Option<String> {
    let topic = wanted.topic.as_ref()?;
    if topic.is_filter() {
        let filter = shortened(topic.text());
        return Some(format!(
            "{filter} is a topic filter: each topic that it matches counts. Who is subscribed and what is retained is asked for one topic"
        ));
    }
    let is_nobody = found.receivers.sessions().is_empty() && found.receivers.groups.is_empty();
    is_nobody.then(|| match wanted.receiver.as_deref() {
        None => "nobody is subscribed to the topic".to_owned(),
        Some(receiver) => format!("{} is not subscribed to the topic", shortened(receiver)),
    })
}

/// Returns the verdict about a receiver without waiting messages, if only a receiver is looked for.
fn about_receiver(wanted: &Wanted, found: &FoundPlaces, all: &FoundReceivers<'_>) -> Option<String> {
    let receiver = wanted.receiver.as_deref()?;
    let name = shortened(receiver);
    if !found.has_session {
        return Some(format!("there is no session of {name}"));
    }
    let knows_wait = all.by_name.get(receiver).is_some_and(OfReceiver::has_waiting);
    (wanted.topic.is_none() && !knows_wait).then(|| format!("{name}  nothing waits for it."))
}

impl OfReceiver<'_> {
    /// Returns true if a message waits for the receiver.
    fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
            || self.unlisted > 0
            || self.in_store.is_some_and(|in_store| in_store.messages > 0)
    }

    /// Returns the topic of the newest message that the receiver refused for good; `None` if another
    /// cause is newer.
    fn refused_topic(&self) -> Option<&str> {
        let cause = DropReason::NegativelyAcknowledged;
        match (self.letters.first(), self.drops.first()) {
            (Some(letter), _) => (*letter.cause == *cause.name()).then(|| letter.message.topic()),
            (None, drop) => drop.filter(|drop| drop.cause == cause).map(|drop| drop.topic.beginning()),
        }
    }

    /// Returns the known facts as one line; `None` without facts.
    fn verdict(
        &self,
        (name, receiver): (&str, &WaitingReceiver),
        (now, unix_ms): (Instant, u64),
        is_complete: bool,
    ) -> Option<String> {
        let mut parts = Vec::new();
        let (stored, unseen) = self.in_store.map_or((0, 0), |found| (found.unlisted, found.unseen));
        let unlisted = self.unlisted + stored;
        let denied = self.session.and_then(|session| session.denied.as_deref());
        parts.extend(denied.map(|why| format!("may not read the topic: {why}.")));
        match (&*self.waiting, self.in_store) {
            ([first, others @ ..], _) => parts.push(waits(first, others, unlisted, receiver)),
            ([], None) if unlisted > 0 => parts.push(format!("{unlisted} wait.")),
            ([], Some(found)) if unlisted > 0 => {
                let (reason, until) = (found.wait.name(), ends_with(&found.wait, receiver));
                parts.push(format!("{reason}: {unlisted} wait. Until {until}."));
            }
            ([], _) if unseen > 0 => {}
            ([], _) if self.session.is_some() && !is_complete => {
                parts.push("its queue was not looked at to the end; name it as the receiver.".to_owned());
            }
            ([], _) if self.session.is_some() && self.letters.is_empty() && denied.is_none() => {
                parts.push("nothing waits for it.".to_owned());
                parts.extend(receiver.has_all(now));
            }
            ([], _) => {}
        }
        if unseen > 0 {
            parts.push(format!("{unseen} more are only in the store, and were not looked at."));
        }
        parts.extend(self.letters.first().map(|newest| letters(newest, self.letters.len(), unix_ms)));
        parts.extend(self.drops.first().map(|newest| drops(newest, self.drops.len(), now)));
        parts.extend(self.refused_topic().and_then(|topic| receiver.refusal(topic, now)));
        parts.extend(self.unknown_drops.first().map(|newest| {
            let (count, cause, ago) = (self.unknown_drops.len(), newest.cause.name(), now.since(newest.at));
            let drops = if count == 1 { "drop" } else { "drops" };
            format!("{count} {drops} without a known topic, the last: {cause}, {} ago.", long(ago))
        }));
        parts.extend(self.traced.map(|fate| traced(fate, now, receiver)));
        let head = match self.session {
            Some(session) => format!("{name} ({}, QoS {})", session.filters.join(", "), session.qos as u8),
            None if name.is_empty() => "no receiver".to_owned(),
            None => name.to_owned(),
        };
        (!parts.is_empty()).then(|| format!("{head}  {}", parts.join(" ")))
    }
}

/// Returns why messages wait: the first one, and then the first of each further reason. `unlisted`
/// further ones are not listed.
fn waits(
    first: &FoundMessage,
    others: &[&FoundMessage],
    unlisted: usize,
    receiver: &WaitingReceiver,
) -> String {
    let mut text = wait(first, receiver);
    match others.len() + unlisted {
        0 => {}
        1 => text.push_str(" 1 more waits."),
        more => text.push_str(&format!(" {more} more wait.")),
    }
    let mut told = vec![first.message.wait.name()];
    for row in others {
        let reason = row.message.wait.name();
        if !told.contains(&reason) {
            told.push(reason);
            text.push_str(&format!(" {}", wait(row, receiver)));
        }
    }
    text
}

fn wait(row: &FoundMessage, receiver: &WaitingReceiver) -> String {
    let message = &row.message;
    let packet = message.packet_id.map(|id| format!(" packet {},", id.get())).unwrap_or_default();
    let sent = match (message.transmissions, message.age) {
        (0, _) | (_, None) => String::new(),
        (1, Some(age)) => format!(" sent once {} ago.", age.long()),
        (times, Some(age)) => format!(" sent {times} times, first {} ago.", age.long()),
    };
    let until = ends_with(&message.wait, receiver);
    let stop = if until.ends_with('.') { "" } else { "." };
    format!("{}:{packet}{sent} Until {until}{stop}", message.wait.name())
}

/// Returns the verdict about stored dead letters, the newest of which is given.
fn letters(newest: &StoredLetter, count: usize, unix_ms: u64) -> String {
    let (name, topic) = (letter_name(newest.place), shortened(newest.message.topic()));
    let ago = long(Duration::from_millis(unix_ms.saturating_sub(newest.place.dropped_ms)));
    let facts = format!("{name} on {topic}: {}, {ago} ago, sent {}x.", newest.cause, newest.attempts);
    match count {
        1 => format!("It is a dead letter: {facts}"),
        _ => format!("{count} are dead letters, the newest {facts}"),
    }
}

/// Returns the verdict about dropped messages, the last of which is given.
fn drops(last: &RecentDrop, count: usize, now: Instant) -> String {
    let (ago, cause) = (long(now.since(last.at)), last.cause.name());
    let on = if last.topic.beginning().is_empty() { String::new() } else { format!(" on {}", last.topic) };
    match count {
        1 => format!("1 was dropped{on}: {cause}, {ago} ago."),
        _ => format!("{count} were dropped, the last{on}: {cause}, {ago} ago."),
    }
}

/// Returns the verdicts about refused requests, one for each client and topic, and the number of
/// those that are left out.
fn refusals(found: &FoundPlaces) -> Vec<String> {
    let refused = &found.dropped.refused;
    let verdict = |row: &RefusedRow| format!("{}  {}", row.client(), row.sentence());
    let mut out: Vec<String> =
        refused.iter().take(FURTHER).map(|refusal| verdict(&RefusedRow::of(refusal))).collect();
    if let Some(more) = refused.len().checked_sub(FURTHER).filter(|more| *more > 0) {
        out.push(format!("{more} more requests were refused; homing ctl dropped lists them"));
    }
    out
}

/// Returns the last step of a message in a trace.
fn traced(fate: &TracedFate, now: Instant, receiver: &WaitingReceiver) -> String {
    let TracedFate { trace, topic, kind, at, .. } = fate;
    let on = if topic.is_empty() { String::new() } else { format!(" on {}", shortened(topic)) };
    format!("Trace {trace}, its last step{on}: {}.", receiver.step(*kind, *at, now))
}

/// Returns a topic for people. The mark shows that the text is cut.
fn shortened(topic: &str) -> Cow<'_, str> {
    let first = first_chars(topic, TOPIC);
    if first.len() == topic.len() { first.into() } else { format!("{first}...").into() }
}
