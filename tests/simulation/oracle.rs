//! What must be true, kept beside what happens: messages with their fate, sessions as the standard has them.

use crate::topics::{self, Topic};
use homing::mqtt::packet::QoS;
use homing::mqtt::session::loss::{LossCause, Losses};
use std::collections::{BTreeMap, BTreeSet};

/// A message that a client published, whatever number of times it sent it.
#[derive(Debug)]
pub struct Message {
    pub publisher: usize,
    pub topic: Topic,
    pub qos: QoS,
    pub first_sent: u64,
    pub sends: u32,
    pub acknowledged: Option<u64>,
    /// With a reason code that says so.
    pub refused: bool,
}

/// One session's subscription, from SUBSCRIBE to UNSUBACK.
#[derive(Debug)]
pub struct Subscription {
    pub filter: &'static str,
    pub qos: QoS,
    /// SUBACK came.
    pub in_force: Option<u64>,
    /// UNSUBSCRIBE, or a SUBSCRIBE that takes its place, was sent.
    pub leaving: Option<u64>,
    /// UNSUBACK came.
    pub left: Option<u64>,
}

/// A QoS 1 or 2 delivery as the client sees it.
#[derive(Debug)]
pub struct Incoming {
    pub message: usize,
    pub qos: QoS,
    /// Among all of its session, by first receipt.
    pub order: u64,
    /// The connection it was last received on, how often there, and when the broker appended that copy.
    pub socket: usize,
    pub receptions: u32,
    pub appended: u64,
    /// Where that copy ends in the connection's stream.
    pub end: u64,
    pub received: u64,
    /// PUBACK or PUBREC was sent on this connection.
    pub answered: bool,
    /// PUBREC was ever sent.
    pub recorded: bool,
    /// PUBREL came.
    pub released: bool,
    /// PUBACK or PUBCOMP was sent.
    pub finished: bool,
}

/// One Session State, from its beginning to its end.
#[derive(Debug, Default)]
pub struct SessionLog {
    pub client: usize,
    pub ended: Option<u64>,
    pub subscriptions: Vec<Subscription>,
    /// How often each message was taken over, by received QoS.
    pub taken: BTreeMap<usize, [u32; 3]>,
    /// The last message first received of each publisher, topic and QoS.
    last: BTreeMap<(usize, Topic, u8), usize>,
    pub incoming: BTreeMap<u16, Incoming>,
    pub next_order: u64,
    /// Identifiers between PUBLISH and PUBREL.
    pub exactly_once: BTreeSet<u16>,
}

/// The session of a client that lives now, as the standard has it.
struct Live {
    number: usize,
    /// Milliseconds.
    expiry: u64,
    connected: Option<usize>,
    ends: u64,
}

pub struct Oracle {
    pub messages: Vec<Message>,
    pub sessions: Vec<SessionLog>,
    live: Vec<Option<Live>>,
    /// The session that each socket was joined to.
    pub joined: BTreeMap<usize, usize>,
}

impl Oracle {
    pub fn new(clients: usize) -> Oracle {
        Oracle {
            messages: Vec::new(),
            sessions: Vec::new(),
            live: (0..clients).map(|_| None).collect(),
            joined: BTreeMap::new(),
        }
    }

    /// The broker accepted a CONNECT. `expiry` in seconds.
    // 3.1.1 [MQTT-3.1.2-4], [MQTT-3.1.2-6], [MQTT-3.2.2-2]; 5.0 [MQTT-3.1.2-4], [MQTT-3.1.2-5], [MQTT-4.1.0-2]
    pub fn connected(
        &mut self,
        now: u64,
        client: usize,
        socket: usize,
        clean: bool,
        expiry: u32,
        present: bool,
    ) -> Result<(), String> {
        let kept = self.live[client].take();
        if let Some(Live { connected: Some(other), .. }) = kept {
            return Err(format!("client {client} is connected by sockets {other} and {socket}"));
        }
        let lives = kept.filter(|l| now < l.ends);
        let expected = lives.is_some() && !clean;
        if expected != present {
            return Err(format!("client {client}: session present is {present}, not {expected}"));
        }
        let number = match lives.filter(|_| !clean) {
            Some(live) => live.number,
            None => {
                self.sessions.push(SessionLog { client, ..SessionLog::default() });
                self.sessions.len() - 1
            }
        };
        self.end_others(now, client, number);
        self.joined.insert(socket, number);
        let expiry = u64::from(expiry) * 1_000;
        self.live[client] = Some(Live { number, expiry, connected: Some(socket), ends: u64::MAX });
        Ok(())
    }

    pub fn has_session(&self, client: usize) -> bool {
        self.live[client].is_some()
    }

    fn end_others(&mut self, now: u64, client: usize, but: usize) {
        for (number, session) in self.sessions.iter_mut().enumerate() {
            if session.client == client && number != but {
                session.ended.get_or_insert(now);
            }
        }
    }

    /// `expiry`: what its DISCONNECT changed it to, in seconds.
    pub fn disconnected(&mut self, now: u64, client: usize, socket: usize, expiry: Option<u32>) {
        let Some(live) = self.live[client].as_mut().filter(|l| l.connected == Some(socket)) else { return };
        if let Some(expiry) = expiry {
            live.expiry = u64::from(expiry) * 1_000;
        }
        live.connected = None;
        live.ends = now + live.expiry;
        if live.expiry == 0 {
            let number = live.number;
            self.live[client] = None;
            self.sessions[number].ended = Some(now);
        }
    }

    pub fn expired(&mut self, now: u64, client: usize) -> Result<(), String> {
        let Some(live) = self.live[client].take() else { return Ok(()) };
        if live.connected.is_some() || now < live.ends {
            return Err(format!("the session of client {client} expired at {now}, not at {}", live.ends));
        }
        self.sessions[live.number].ended = Some(now);
        Ok(())
    }

    pub fn sessions_end_in_time(&self, now: u64, late: u64) -> Result<(), String> {
        for (client, live) in self.live.iter().enumerate() {
            if let Some(live) = live
                && live.connected.is_none()
                && now > live.ends.saturating_add(late)
            {
                return Err(format!("the session of client {client} should have ended at {}", live.ends));
            }
        }
        Ok(())
    }

    /// A session takes over a message: exactly once at QoS 2, in order, and only if it asked for it.
    // 3.1.1 [MQTT-4.3.3-2], [MQTT-4.6.0-5], [MQTT-4.6.0-6]; 5.0 [MQTT-4.3.3-8], [MQTT-4.6.0-5], [MQTT-4.6.0-6]
    pub fn take(&mut self, session: usize, id: usize, qos: QoS, loses: bool) -> Result<(), String> {
        let message = &self.messages[id];
        let log = &mut self.sessions[session];
        let asked = log.subscriptions.iter().any(|s| {
            topics::matches(s.filter, message.topic) && s.left.is_none_or(|left| message.first_sent <= left)
        });
        if !asked && !message.topic.is_shared() {
            return Err(format!("session {session} did not ask for message {id}: {message:?}"));
        }
        let taken = log.taken.entry(id).or_default();
        taken[usize::from(qos.bits())] += 1;
        let first = taken.iter().sum::<u32>() == 1;
        // What was published at QoS 1 may be routed as often as it is sent, whatever it is delivered at.
        let exactly = qos == QoS::ExactlyOnce || qos == QoS::AtMostOnce && message.qos != QoS::AtLeastOnce;
        if exactly && taken[usize::from(qos.bits())] > log_limit(log, message) {
            return Err(format!("session {session} took message {id} twice at {qos:?}: {message:?}"));
        }
        if first && !message.topic.is_shared() {
            let key = (message.publisher, message.topic, qos.bits());
            let last = log.last.entry(key).or_insert(id);
            // What its publisher repeats may have been refused the first time, or routed while nobody asked for it.
            let stands = log.subscriptions.iter().any(|s| {
                topics::matches(s.filter, message.topic)
                    && s.qos > QoS::AtMostOnce
                    && s.in_force.is_some_and(|from| from <= message.first_sent)
                    && s.leaving.is_none()
            });
            let repeated = message.sends > 1 && (loses || qos == QoS::AtMostOnce || !stands);
            if *last > id && !repeated {
                return Err(format!("session {session} had message {id} after {last}: {message:?}"));
            }
            *last = id.max(*last);
        }
        if message.topic.is_shared() && exactly {
            let members = self
                .sessions
                .iter()
                .filter(|s| s.taken.get(&id).is_some_and(|t| t[usize::from(qos.bits())] > 0));
            let groups = topics::groups_of(message.topic);
            if members.count() > groups {
                return Err(format!("message {id} went to more members than groups: {message:?}"));
            }
        }
        Ok(())
    }

    /// All is quiet: everything that was acknowledged is where it was asked for, or counted as given up.
    /// `under_way_ms`: how long a parcel and its ticket may take.
    // 3.1.1 [MQTT-4.3.2-2], [MQTT-4.5.0-1]; 5.0 [MQTT-4.3.2-4], [MQTT-4.5.0-1]
    pub fn check_delivered(&self, losses: &Losses, loses: bool, under_way_ms: u64) -> Result<(), String> {
        let mut missing = Vec::new();
        for (id, message) in self.messages.iter().enumerate() {
            let Some(acknowledged) = message.acknowledged.filter(|_| !message.refused) else { continue };
            // A repeated QoS 2 PUBLISH is answered while what the first one led to may still be under way.
            let repeated = message.qos == QoS::ExactlyOnce && message.sends > 1;
            let acknowledged = acknowledged + if repeated { under_way_ms } else { 0 };
            let due = |s: &Subscription| {
                topics::matches(s.filter, message.topic)
                    && s.qos > QoS::AtMostOnce
                    && s.in_force.is_some_and(|from| from <= message.first_sent)
                    // At the end of a member's session what it had goes to whoever is in the group then.
                    && s.leaving.is_none_or(|to| to > acknowledged && !message.topic.is_shared())
            };
            let mut sessions = self.sessions.iter().enumerate().filter(|(_, s)| s.ended.is_none());
            if !message.topic.is_shared() {
                let without = sessions
                    .filter(|(_, s)| s.subscriptions.iter().any(due) && !s.taken.contains_key(&id))
                    .map(|(number, _)| (id, number));
                missing.extend(without);
            } else if message.qos == QoS::AtLeastOnce
                && let Some((number, _)) = sessions.find(|(_, s)| s.subscriptions.iter().any(due))
                && !self.sessions.iter().any(|s| s.taken.contains_key(&id))
            {
                missing.push((id, number));
            }
        }
        let counted = [LossCause::QueueRefused, LossCause::QueueOverflow, LossCause::SessionEnded];
        let counted: u64 = counted.into_iter().map(|cause| losses.of(cause)).sum();
        let excused = if loses { counted } else { 0 };
        if !loses && losses.of(LossCause::QueueRefused) + losses.of(LossCause::QueueOverflow) > 0 {
            return Err(format!("messages were refused, though there was room: {losses:?}"));
        }
        if missing.len() as u64 > excused {
            let (id, number) = missing[0];
            return Err(format!(
                "{} deliveries are missing, {excused} are accounted for ({losses:?}): {missing:?}; message {id} in \
                 session {number} of client {}: {:?}",
                missing.len(),
                self.sessions[number].client,
                self.messages[id]
            ));
        }
        Ok(())
    }
}

/// How often a session may take a message at QoS 0 or 2: once for each shared group it is in, else once.
fn log_limit(log: &SessionLog, message: &Message) -> u32 {
    if !message.topic.is_shared() {
        return 1;
    }
    let filters: BTreeSet<&str> = log
        .subscriptions
        .iter()
        .filter(|s| topics::matches(s.filter, message.topic))
        .map(|s| s.filter)
        .collect();
    filters.len().max(1) as u32
}
