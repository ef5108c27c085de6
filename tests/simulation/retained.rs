//! The retained message of each topic, as far as it can be known from outside: publishes race each
//! other, so at most times it is one of several.

use crate::oracle::{Message, Oracle, Subscription};
use crate::taken::Arrival;
use crate::topics::Topic;
use homing::mqtt::packet::QoS;
use std::collections::BTreeSet;

/// How long after SUBACK the last of what is retained may be queued.
const AFTER_SUBACK_MS: u64 = 2_000;

/// A copy that may be the retained message of its topic.
#[derive(Debug)]
pub struct RetainedCopy {
    /// The subscriptions that it can be for.
    pub answers: Vec<usize>,
    /// It may as well have come live, with RETAIN as published, or be another copy of one that
    /// came.
    pub or_other: bool,
    pub at_most_once: bool,
}

impl Oracle {
    /// SUBACK came to a subscription: notes which topics' retained messages it must be sent.
    // 3.1.1 [MQTT-3.3.1-6]; 5.0 [MQTT-3.3.1-9], [MQTT-3.3.1-10]
    pub fn expect_retained(&mut self, now: u64, session: usize, at: usize) {
        let s = &self.sessions[session].subscriptions[at];
        if s.wants_retained() != Some(true) || s.options.qos == QoS::AtMostOnce {
            return;
        }
        let client = self.sessions[session].client;
        let must = |topic: &Topic| {
            s.covers(*topic) && self.may_always_read(client, *topic) && self.is_retained(*topic, s.asked, now)
        };
        let instead = |topic: Topic| {
            let may_follow =
                |m: &Message| m.first_sent <= now && m.acknowledged.is_none_or(|at| at >= s.asked);
            let numbers = self.retaining.get(&topic).into_iter().flatten().copied();
            (topic, numbers.filter(|m| may_follow(&self.messages[*m])).collect())
        };
        let awaits = Topic::all().filter(must).map(instead).collect();
        self.sessions[session].subscriptions[at].awaits = awaits;
    }

    /// Whether a topic has a retained message for certain at all times from `from` to `to`,
    /// whichever it is.
    fn is_retained(&self, topic: Topic, from: u64, to: u64) -> bool {
        let lasts = |m: &Message| {
            let lasts = !m.empty && m.expiry.is_none() && m.qos > QoS::AtMostOnce;
            lasts && self.had_room(m) && self.may_always_be_sent(m)
        };
        let messages = || self.retaining.get(&topic).into_iter().flatten().map(|m| &self.messages[*m]);
        let mut settled = messages().filter(|m| lasts(m) && m.acknowledged.is_some_and(|at| at <= from));
        settled.any(|m| {
            let may_follow =
                |o: &&Message| o.first_sent <= to && o.acknowledged.is_none_or(|at| at >= m.first_sent);
            messages().filter(may_follow).all(lasts)
        })
    }

    /// Whether nothing that is or may be retained for a topic ever goes.
    pub fn lasts_as_retained(&self, topic: Topic) -> bool {
        let mut messages = self.retaining.get(&topic).into_iter().flatten().map(|m| &self.messages[*m]);
        messages.all(|m| !m.empty && m.expiry.is_none() && self.had_room(m))
    }

    /// Whether it is certain that there was room for it as retained: without, it erases what it was
    /// to replace, or nothing becomes of it.
    fn had_room(&self, m: &Message) -> bool {
        !m.refused && !self.was_short(m.first_sent, m.acknowledged.unwrap_or(u64::MAX))
    }

    /// The subscriptions of a session that a copy with RETAIN can be the retained message for.
    // 5.0 [MQTT-3.3.1-11]
    pub fn retained_answers(&self, session: usize, copy: &Arrival) -> Vec<usize> {
        let message = &self.messages[copy.message];
        let forgotten = self.forgotten.get(&copy.message).is_some_and(|crash| copy.appended > *crash);
        if !message.retain || message.empty || forgotten {
            return Vec::new();
        }
        let fits = |s: &Subscription| {
            s.covers(message.topic)
                && s.wants_retained() != Some(false)
                && s.asked <= copy.appended
                && copy.qos == message.qos.min(s.options.qos)
                && copy.ids.iter().copied().eq(s.id)
                && !self.is_overwritten(copy.message, s.asked)
                && s.in_force.is_none_or(|at| message.first_sent <= at)
        };
        let all = self.sessions[session].subscriptions.iter().enumerate();
        all.filter(|(_, s)| fits(s)).map(|(at, _)| at).collect()
    }

    /// Whether another message has taken its place for certain by then.
    // 3.1.1 [MQTT-3.3.1-7], [MQTT-3.3.1-10]; 5.0 [MQTT-3.3.1-5], [MQTT-3.3.1-6]
    fn is_overwritten(&self, message: usize, by: u64) -> bool {
        let this = &self.messages[message];
        let Some(settled) = this.acknowledged else { return false };
        self.retaining[&this.topic]
            .iter()
            .map(|m| &self.messages[*m])
            .filter(|other| !other.refused && (!other.is_will || self.had_room(other)))
            .filter(|other| self.may_always_be_sent(other))
            .any(|other| other.first_sent > settled && other.acknowledged.is_some_and(|at| at < by))
    }

    /// All is quiet: what came as retained answers one SUBSCRIBE each, in their order, and what was
    /// retained when a session asked for it has come.
    ///
    /// `paged`: long queues are not in memory, and what is at QoS 0 passes what waits behind their
    /// heads.
    // 3.1.1 and 5.0 [MQTT-4.6.0-6] have an order for each QoS alone.
    pub fn check_retained(&self, paged: bool) -> Result<(), String> {
        for (number, log) in self.sessions.iter().enumerate() {
            for topic in Topic::all() {
                let copies = log.retained.get(&topic).map_or(&[][..], |copies| copies);
                // Without room they are dropped, and counted; they go on behind SUBACK.
                let short = |s: &Subscription| {
                    self.was_short(s.asked, s.in_force.map_or(u64::MAX, |at| at + AFTER_SUBACK_MS))
                };
                // An operator may have skipped any of them.
                let is_sure = log.is_sure() && log.skipped == 0;
                let must = |s: &Subscription| {
                    let awaits = s.awaits.get(&topic).filter(|_| is_sure && !short(s));
                    awaits.is_some_and(|instead| {
                        !instead.iter().any(|m| log.taken.contains_key(m) || log.live.contains(m))
                    })
                };
                let must: Vec<bool> = log.subscriptions.iter().map(must).collect();
                let some = |at_most_once| copies.iter().filter(move |c| c.at_most_once == at_most_once);
                let fits = if paged {
                    pairs(some(false), &must) && pairs(some(true), &vec![false; must.len()])
                } else {
                    pairs(copies.iter(), &must)
                };
                if !fits {
                    let asked: Vec<_> = log.subscriptions.iter().filter(|s| s.covers(topic)).collect();
                    return Err(format!(
                        "session {number} had of what is retained for {} {copies:?}, having asked {asked:?}",
                        topic.name()
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Whether each copy can be for a subscription of its own, in their order, and one is for each that
/// must have one.
fn pairs<'a>(copies: impl Iterator<Item = &'a RetainedCopy>, must: &[bool]) -> bool {
    // How many subscriptions may be done with.
    let mut done = BTreeSet::from([0]);
    for copy in copies {
        let mut next = BTreeSet::new();
        for from in done {
            let skipped = must[from..].iter().take_while(|must| !**must).count();
            let fits = copy.answers.iter().filter(|at| (from..=from + skipped).contains(*at));
            next.extend(fits.map(|at| at + 1));
            if copy.or_other {
                next.insert(from);
            }
        }
        done = next;
    }
    done.iter().any(|from| must[*from..].iter().all(|must| !must))
}
