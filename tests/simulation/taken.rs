//! What a session may take, and what it must have had in the end.

use crate::oracle::{Message, Oracle, SessionLog, Subscription};
use crate::permissions::Access;
use crate::retained::RetainedCopy;
use crate::shortage::is_short_in;
use crate::topics;
use homing::mqtt::packet::QoS;
use homing::session::drops::{DropReason, Drops};
use std::collections::BTreeSet;

/// A PUBLISH as a client has it.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub message: usize,
    pub dup: bool,
    pub qos: QoS,
    pub retain: bool,
    /// 0 at QoS 0.
    pub id: u16,
    pub ids: Vec<u32>,
    /// Seconds.
    pub expiry: Option<u32>,
    pub v5: bool,
    /// When the broker appended it.
    pub appended: u64,
    /// When its connection began; 0 where it resumed nothing.
    pub since: u64,
}

impl Oracle {
    /// Whether a message was put off before a crash, after which there may be other shards.
    fn may_have_moved(&self, message: &Message) -> bool {
        let Some(delay) = message.delay else { return false };
        self.crashes.iter().any(|at| *at >= message.first_sent.saturating_sub(delay))
    }

    /// A session takes over a message for the first time: only if it asked for it, as it asked for
    /// it.
    pub fn allow(&mut self, session: usize, copy: &Arrival) -> Result<(), String> {
        let message = &self.messages[copy.message];
        if message.first_sent > copy.appended {
            return Err(format!("message {} came too early: {message:?}", copy.message));
        }
        // What is published again from a dead letter has no expiry.
        let again = self.republished.contains_key(&copy.message);
        if !again || copy.expiry.is_some() {
            check_expiry(message, copy, self.unmeasured)?;
        }
        let log = &self.sessions[session];
        let own = message.publisher == log.client;
        let live: Vec<&Subscription> = log
            .subscriptions
            .iter()
            .filter(|s| s.covers(message.topic) && s.left.is_none_or(|left| message.first_sent <= left))
            // Who published what goes out again is not known any more. After a start with other
            // shards, a message that was put off may not find its publisher.
            .filter(|s| !(own && s.options.no_local) || again || self.may_have_moved(message))
            .collect();
        let as_published = message.retain && live.iter().any(|s| s.options.retain_as_published);
        let fits = if live.is_empty() {
            Err(format!("session {session} did not ask for message {}: {message:?}", copy.message))
        } else if copy.retain && !as_published {
            // 3.1.1 [MQTT-3.3.1-9]; 5.0 [MQTT-3.3.1-12], [MQTT-3.3.1-13]
            Err(format!("RETAIN is set on {copy:?} of {message:?}"))
        } else if again {
            check_options_again(message, copy, &live)
        } else {
            check_options((message, own), copy, &live)
        };
        if !copy.retain {
            fits?;
            let taken = self.sessions[session].taken.entry(copy.message).or_default();
            taken[usize::from(copy.qos.bits())] += 1;
            return Ok(());
        }
        let answers = self.retained_answers(session, copy);
        if answers.is_empty() {
            fits?;
            self.sessions[session].live.insert(copy.message);
        } else {
            let topic = message.topic;
            // After a crash it may come once more at QoS 1: acknowledgements are stored lazily.
            let asked = |at: &usize| self.sessions[session].subscriptions[*at].asked;
            let crashed = |at: &usize| self.crashes.iter().any(|crash| asked(at) <= *crash);
            let again = copy.qos == QoS::AtLeastOnce && answers.iter().any(crashed);
            let copy = RetainedCopy {
                answers,
                or_other: fits.is_ok() || again,
                at_most_once: copy.qos == QoS::AtMostOnce,
            };
            self.sessions[session].retained.entry(topic).or_default().push(copy);
        }
        *self.sessions[session].marked.entry(copy.message).or_default() += 1;
        Ok(())
    }

    /// What comes live comes exactly once at QoS 2, and in order.
    // 3.1.1 [MQTT-4.3.3-2], [MQTT-4.6.0-5], [MQTT-4.6.0-6]; 5.0 [MQTT-4.3.3-8], [MQTT-4.6.0-5],
    // [MQTT-4.6.0-6]
    pub fn check_order(&mut self, session: usize, copy: &Arrival, loses: bool) -> Result<(), String> {
        let (id, qos) = (copy.message, copy.qos);
        let message = &self.messages[id];
        let log = &mut self.sessions[session];
        let taken = log.taken.get(&id).copied().unwrap_or_default();
        // A copy with RETAIN may have been it.
        let first = taken.iter().sum::<u32>() == 1 && !log.marked.contains_key(&id);
        // What was published at QoS 1 may be routed as often as it is sent, whatever it is
        // delivered at.
        let exactly = qos == QoS::ExactlyOnce || qos == QoS::AtMostOnce && message.qos != QoS::AtLeastOnce;
        // Each republication is another delivery, to each shared group.
        let again = self.republished.get(&id).copied().unwrap_or(0);
        let most = |log: &SessionLog, message: &Message| most(log, message) * (1 + again);
        if exactly && taken[usize::from(qos.bits())] > most(log, message) {
            return Err(format!("session {session} took message {id} twice at {qos:?}: {message:?}"));
        }
        let marked = log.marked.get(&id).copied().unwrap_or(0);
        let wants = |s: &&Subscription| s.covers(message.topic) && s.wants_retained() != Some(false);
        let asked = log.subscriptions.iter().filter(wants).count() as u32;
        // At QoS 1 it may have come once more after a crash.
        let taken: u32 = taken.iter().map(|times| *times.min(&most(log, message))).sum();
        if exactly && marked > 0 && marked + taken > most(log, message) + asked {
            return Err(format!("session {session} took message {id} more often than asked: {message:?}"));
        }
        if marked > 0
            && taken > 0
            && again == 0
            && self.crashes.is_empty()
            && is_by_one_subscribe(log, message)
        {
            return Err(format!("session {session} took message {id} live and retained: {message:?}"));
        }
        // Copies with RETAIN may be the retained ones of a SUBSCRIBE, which come when they are
        // asked for; wills have no order among each other that their clients could know.
        let ordered = !message.is_will && message.delay.is_none() && again == 0;
        if first && !message.topic.is_shared() && !copy.retain && ordered {
            // What was published at different QoS has an order as long as the broker lives; a crash
            // may take the one and leave the other, which the standard allows.
            let of = |published: u8| (message.publisher, message.topic, qos.bits(), published);
            let own = message.qos.bits();
            let alike = |published: &u8| *published == own || self.crashes.is_empty();
            let last = (0..3).filter(alike).filter_map(|published| log.last.get(&of(published))).max();
            let last = last.copied().unwrap_or(id);
            // What its publisher repeats may have been refused the first time, for want of room
            // in a queue or in the broker, have expired since, or been routed while nobody asked
            // for it. It was refused before the other was routed.
            let until = self.messages[last].acknowledged.unwrap_or(u64::MAX).min(copy.appended);
            let short = is_short_in(&self.shortages, message.first_sent, until);
            let stands = log.subscriptions.iter().any(|s| {
                s.covers(message.topic)
                    && s.options.qos > QoS::AtMostOnce
                    && !(s.options.no_local && message.publisher == log.client)
                    && s.stands_for(message)
            });
            let renewed = message.expiry.is_some();
            // The rules may have forbidden the first copy, or an operator may have taken it away.
            let is_sure = log.skipped == 0
                && self.permissions.always(message.publisher, message.topic, Access::Write)
                && self.permissions.always(log.client, message.topic, Access::Read);
            let excused = loses || short || renewed || qos == QoS::AtMostOnce || !stands || !is_sure;
            let repeated = message.sends > 1 && excused;
            if last > id && !repeated {
                return Err(format!("session {session} had message {id} after {last}: {message:?}"));
            }
            let newest = log.last.entry(of(own)).or_insert(id);
            *newest = id.max(*newest);
        }
        if message.topic.is_shared() && exactly {
            let members = self
                .sessions
                .iter()
                .filter(|s| s.taken.get(&id).is_some_and(|t| t[usize::from(qos.bits())] > 0));
            let groups = topics::groups_of(message.topic);
            if members.count() > groups * (1 + again as usize) {
                return Err(format!("message {id} went to more members than groups: {message:?}"));
            }
        }
        Ok(())
    }

    /// Whether a session may be sent this message with RETAIN once more: each SUBSCRIBE asks for a
    /// copy, and one may come live.
    pub fn may_come_retained(&self, session: usize, number: usize) -> bool {
        let Some(message) = self.messages.get(number) else { return false };
        let log = &self.sessions[session];
        let covering = || log.subscriptions.iter().filter(|s| s.covers(message.topic));
        let asked = covering().filter(|s| s.wants_retained() != Some(false)).count() as u32;
        let live = u32::from(covering().any(|s| s.options.retain_as_published));
        log.marked.get(&number).copied().unwrap_or(0) < asked + live
    }

    /// A message that was sent first at `sent` is taken: there must have been room for something at
    /// some time since.
    pub fn check_room(&self, number: usize, sent: u64, now: u64) -> Result<(), String> {
        let message = &self.messages[number];
        // What erases makes room, and a repeated one may have been taken before.
        // So may one that the rules forbid, in 3.x.
        let needs_room = message.sends == 1 && !message.empty && self.may_always_be_sent(message);
        if needs_room && self.had_none(sent, now, |_| true) {
            return Err(format!("message {number} is taken though there is no room: {message:?}"));
        }
        Ok(())
    }

    /// All is quiet: everything that was acknowledged is where it was asked for, or counted as
    /// given up.
    // 3.1.1 [MQTT-4.3.2-2], [MQTT-4.5.0-1]; 5.0 [MQTT-4.3.2-4], [MQTT-4.5.0-1]
    pub fn check_delivered(&self, now: u64, drops: &Drops, loses: bool) -> Result<(), String> {
        let (mut missing, mut late, mut expired) = (Vec::new(), Vec::new(), 0);
        for (id, message) in self.messages.iter().enumerate() {
            let Some(acknowledged) = message.acknowledged.filter(|_| !message.refused && !message.empty)
            else {
                continue;
            };
            if !self.may_always_be_sent(message) {
                continue;
            }
            // A will that there is no room for is dropped, and counted.
            if message.is_will && self.was_short(message.first_sent, acknowledged) {
                continue;
            }
            let lacks = self.lacking(id, message, acknowledged);
            if message.may_expire_by(now) {
                // One whose time passed while the broker was down is counted once, not for each
                // receiver.
                if message.delay.is_some() {
                    continue;
                }
                expired += lacks.len();
                late.extend(lacks);
            } else {
                missing.extend(lacks);
            }
        }
        let counted = [DropReason::QueueRefused, DropReason::QueueOverflow, DropReason::SessionEnded];
        let counted: u64 = counted.into_iter().map(|cause| drops.of(cause)).sum();
        // What an operator drops reaches nobody, and is counted.
        let operated = drops.of(DropReason::Skipped) + drops.of(DropReason::Parked);
        let excused = operated + if loses { counted } else { 0 };
        // 5.0 [MQTT-3.3.2-5]
        if expired as u64 > drops.of(DropReason::Expired) + excused {
            return Err(format!("{expired} deliveries that could expire are missing: {drops:?}; {late:?}"));
        }
        if !loses && drops.of(DropReason::QueueRefused) + drops.of(DropReason::QueueOverflow) > 0 {
            return Err(format!("messages were refused, though there was room: {drops:?}"));
        }
        if missing.len() as u64 > excused {
            let (id, number) = missing[0];
            return Err(format!(
                "{} deliveries are missing, {excused} are accounted for ({drops:?}): {missing:?}; message {id} in \
                 session {number} of client {}: {:?}",
                missing.len(),
                self.sessions[number].client,
                self.messages[id]
            ));
        }
        Ok(())
    }

    /// Sessions that should have had a message and have not.
    fn lacking(&self, id: usize, message: &Message, acknowledged: u64) -> Vec<(usize, usize)> {
        let due = |s: &Subscription, log: &SessionLog| {
            s.covers(message.topic)
                && s.options.qos > QoS::AtMostOnce
                && message.qos > QoS::AtMostOnce
                && !(s.options.no_local && log.client == message.publisher)
                && s.precedes(message)
                // At the end of a member's session what it had goes to whoever is in the group
                // then.
                && s.leaving.is_none_or(|to| to > acknowledged && !message.topic.is_shared())
        };
        let reads = |log: &SessionLog| log.is_sure() && self.may_always_read(log.client, message.topic);
        let lives = self.sessions.iter().enumerate().filter(|(_, log)| reads(log));
        let mut asked = lives.filter(|(_, log)| log.subscriptions.iter().any(|s| due(s, log)));
        if !message.topic.is_shared() {
            return asked.filter(|(_, log)| !log.had(id)).map(|(number, _)| (id, number)).collect();
        }
        match asked.next() {
            Some((number, _)) if message.qos == QoS::AtLeastOnce && !self.astray.contains(&id) => {
                let somebody = self.sessions.iter().any(|log| log.had(id));
                // What is in the store alone is not read back to go to another.
                let ended = |log: &SessionLog| {
                    (log.survived || self.paged)
                        && log.ended.is_some_and(|ended| ended >= message.first_sent)
                        && log.subscriptions.iter().any(|s| s.covers(message.topic))
                };
                if somebody || self.sessions.iter().any(ended) { Vec::new() } else { vec![(id, number)] }
            }
            _ => Vec::new(),
        }
    }
}

impl SessionLog {
    /// It lives, and what it asked for is known.
    pub fn is_sure(&self) -> bool {
        self.ended.is_none() && !self.vague
    }

    /// Whether it had a message, live or retained.
    pub fn had(&self, message: usize) -> bool {
        self.taken.contains_key(&message) || self.marked.contains_key(&message)
    }
}

/// Whether one SUBSCRIBE alone can have brought a message, which was sent once.
fn is_by_one_subscribe(log: &SessionLog, message: &Message) -> bool {
    let mut covering = log.subscriptions.iter().filter(|s| s.covers(message.topic));
    let only = covering.next().filter(|s| !s.options.retain_as_published);
    only.is_some() && covering.next().is_none() && message.sends <= 1
}

/// QoS, RETAIN and Subscription Identifiers of a copy that came live. `own`: to the session of its
/// publisher.
// 3.1.1 [MQTT-3.8.4-6], [MQTT-3.3.1-9]; 5.0 [MQTT-3.8.4-8], [MQTT-3.3.1-12], [MQTT-3.3.1-13],
// [MQTT-3.3.4-3] to -5
fn check_options(
    (message, own): (&Message, bool),
    copy: &Arrival,
    live: &[&Subscription],
) -> Result<(), String> {
    let shared = message.topic.is_shared();
    let comes_back = |s: &&&Subscription| !(own && s.options.no_local);
    let certain = || live.iter().filter(|s| !shared && s.stands_for(message)).filter(comes_back);
    let most = live.iter().map(|s| s.options.qos).max().unwrap_or(QoS::AtMostOnce).min(message.qos);
    let least = certain().map(|s| s.options.qos).max().unwrap_or(QoS::AtMostOnce).min(message.qos);
    if copy.qos < least || copy.qos > most {
        return Err(format!("{copy:?} is not at {least:?} to {most:?}: {message:?}"));
    }
    if message.retain && !copy.retain && certain().any(|s| s.options.retain_as_published) {
        return Err(format!("{copy:?} has no RETAIN though it was to be as published: {message:?}"));
    }
    let carries = |id: u32| copy.ids.iter().filter(|i| **i == id).count();
    // One for each that matches, though two of one SUBSCRIBE have the same.
    let known = copy.ids.iter().all(|id| carries(*id) <= live.iter().filter(|s| s.id == Some(*id)).count());
    let mut due = certain().filter_map(|s| s.id);
    let complete = due.all(|id| carries(id) >= certain().filter(|s| s.id == Some(id)).count());
    if !known || !complete || shared && copy.ids.len() > 1 || !copy.v5 && !copy.ids.is_empty() {
        return Err(format!("the Subscription Identifiers of {copy:?} do not fit {live:?}"));
    }
    Ok(())
}

/// Those of a copy that may be one from a dead letter, which is not retained and comes by the
/// subscriptions of its own moment.
fn check_options_again(message: &Message, copy: &Arrival, live: &[&Subscription]) -> Result<(), String> {
    let most = live.iter().map(|s| s.options.qos).max().unwrap_or(QoS::AtMostOnce).min(message.qos);
    let carries = |id: u32| copy.ids.iter().filter(|i| **i == id).count();
    let known = copy.ids.iter().all(|id| carries(*id) <= live.iter().filter(|s| s.id == Some(*id)).count());
    if copy.qos > most || !known || !copy.v5 && !copy.ids.is_empty() {
        return Err(format!("{copy:?} was not to be published again by {live:?}"));
    }
    Ok(())
}

/// Nothing is sent for the first time once it has expired, and what is sent carries what remains.
/// `unmeasured`: time that passed and that no clock measured.
// 5.0 [MQTT-3.3.2-5], [MQTT-3.3.2-6]
fn check_expiry(message: &Message, copy: &Arrival, unmeasured: u64) -> Result<(), String> {
    let Some(secs) = message.expiry else {
        return match copy.expiry {
            None => Ok(()),
            Some(_) => Err(format!("{copy:?} has an expiry interval that nobody gave it")),
        };
    };
    let life = u64::from(secs) * 1_000;
    let routed = message.acknowledged.unwrap_or(u64::MAX);
    // What was in flight on an earlier connection does not expire.
    let begins = !copy.dup && message.first_sent >= copy.since;
    if begins && copy.appended > routed.saturating_add(life + unmeasured) {
        return Err(format!("{copy:?} is sent though it has expired: {message:?}"));
    }
    if !copy.v5 {
        return Ok(());
    }
    let remained = |since: u64, more: u64| {
        (life + more).saturating_sub(copy.appended.saturating_sub(since)).div_ceil(1_000)
    };
    let (least, most) = (remained(message.first_sent, 0), remained(routed, unmeasured));
    if copy.expiry.is_none_or(|secs| u64::from(secs) < least || u64::from(secs) > most) {
        return Err(format!("{copy:?} should have {least} to {most} s left: {message:?}"));
    }
    Ok(())
}

/// How often a session may take a message at QoS 0 or 2: once for each shared group it is in, else
/// once.
fn most(log: &SessionLog, message: &Message) -> u32 {
    if !message.topic.is_shared() {
        return 1;
    }
    let filters: BTreeSet<&str> =
        log.subscriptions.iter().filter(|s| s.covers(message.topic)).map(|s| s.filter).collect();
    filters.len().max(1) as u32
}
