//! What must be true, kept beside what happens: messages with their fate, sessions as the standard
//! has them.

use crate::permissions::Permissions;
use crate::retained::RetainedCopy;
use crate::shortage::Period;
use crate::topics::{self, Topic};
use crate::wills::Wills;
use homing::mqtt::packet::{QoS, RetainHandling, SubscriptionOptions};
use std::collections::{BTreeMap, BTreeSet};

/// A message that a client published, whatever number of times it sent it, or a will.
#[derive(Debug)]
pub struct Message {
    pub publisher: usize,
    pub topic: Topic,
    pub qos: QoS,
    pub retain: bool,
    /// It has no payload: with RETAIN it erases.
    pub empty: bool,
    pub is_will: bool,
    /// Seconds.
    pub expiry: Option<u32>,
    /// Milliseconds for which it is put off.
    pub delay: Option<u64>,
    /// Of a will, or one that is put off: when it goes out at the earliest; never, as long as it
    /// does not.
    pub first_sent: u64,
    /// The event in which its client sent it first; none for a will or one that is put off, of
    /// which no more than the millisecond is known.
    pub first_event: Option<u64>,
    pub sends: u32,
    /// The broker has routed it by then.
    pub acknowledged: Option<u64>,
    /// With a reason code that says so.
    pub refused: bool,
}

impl Message {
    /// Whether its Message Expiry Interval may have run out by then.
    pub fn may_expire_by(&self, now: u64) -> bool {
        self.expiry.is_some_and(|secs| self.first_sent.saturating_add(u64::from(secs) * 1_000) <= now)
    }
}

/// One session's subscription, from SUBSCRIBE to UNSUBACK.
#[derive(Debug)]
pub struct Subscription {
    pub filter: &'static str,
    pub options: SubscriptionOptions,
    /// Its own: no two SUBSCRIBEs have the same.
    pub id: Option<u32>,
    pub asked: u64,
    /// Whether the session had one to this filter; not always known.
    pub replaces: Option<bool>,
    /// SUBACK came, and in which event.
    pub in_force: Option<u64>,
    pub in_force_event: u64,
    /// UNSUBSCRIBE, or a SUBSCRIBE that takes its place, was sent.
    pub leaving: Option<u64>,
    /// UNSUBACK came, or the SUBACK of what takes its place.
    pub left: Option<u64>,
    /// Topics whose retained message it must be sent, each with the messages of which one may have
    /// come live instead: they may have been retained after the subscription was entered.
    pub awaits: BTreeMap<Topic, Vec<usize>>,
}

impl Subscription {
    pub fn covers(&self, topic: Topic) -> bool {
        topics::matches(self.filter, topic)
    }

    /// Whether it asks for retained messages, as far as that is known.
    // 3.1.1 [MQTT-3.3.1-6], [MQTT-3.8.4-3]; 5.0 [MQTT-3.3.1-9] to [MQTT-3.3.1-11], and none for
    // shared subscriptions
    pub fn wants_retained(&self) -> Option<bool> {
        if topics::is_share(self.filter) {
            return Some(false);
        }
        match self.options.retain_handling {
            RetainHandling::SendAtSubscribe => Some(true),
            RetainHandling::SendIfNew => self.replaces.map(|replaces| !replaces),
            RetainHandling::DoNotSend => Some(false),
        }
    }

    /// Every shard routes the message by it: SUBACK came before the message was sent first.
    pub fn precedes(&self, message: &Message) -> bool {
        let in_time = |sent: u64| self.in_force_event < sent;
        self.in_force.is_some_and(|from| {
            from < message.first_sent
                || from == message.first_sent && message.first_event.is_some_and(in_time)
        })
    }

    /// It precedes the message, and nothing has been asked that ends it.
    pub fn stands_for(&self, message: &Message) -> bool {
        self.precedes(message) && self.leaving.is_none()
    }
}

/// A QoS 1 or 2 delivery as the client sees it.
#[derive(Debug)]
pub struct Incoming {
    pub message: usize,
    pub qos: QoS,
    pub retain: bool,
    pub ids: Vec<u32>,
    /// Among all of its session, by first receipt.
    pub order: u64,
    /// Among those of its connection: two copies of one message may change places by a crash.
    pub place: u64,
    /// The connection it was last received on, how often there, and when the broker appended that
    /// copy.
    pub socket: usize,
    pub receptions: u32,
    pub appended: u64,
    /// Where that copy ends in the connection's stream.
    pub end: u64,
    pub received: u64,
    /// PUBACK or PUBREC was sent on this connection.
    pub answered: bool,
    /// Where the first of them ends in the client's stream on this connection.
    pub answer_end: Option<u64>,
    /// PUBREC was ever sent.
    pub recorded: bool,
    /// PUBREL came.
    pub released: bool,
    /// PUBACK or PUBCOMP was sent.
    pub finished: bool,
    /// Of QoS 1, and the broker has crashed since it came first: it may have another place among
    /// the others.
    pub unordered: bool,
}

/// One Session State, from its beginning to its end.
#[derive(Debug, Default)]
pub struct SessionLog {
    pub client: usize,
    pub ended: Option<u64>,
    pub subscriptions: Vec<Subscription>,
    /// How often each message was taken over without RETAIN, by received QoS, and with it.
    pub taken: BTreeMap<usize, [u32; 3]>,
    pub marked: BTreeMap<usize, u32>,
    /// Messages that came live with RETAIN, as published: they answer no SUBSCRIBE.
    pub live: BTreeSet<usize>,
    /// Copies that came as the retained message of a topic.
    pub retained: BTreeMap<Topic, Vec<RetainedCopy>>,
    /// The last message first received of each publisher and topic, delivered at and published at a
    /// QoS.
    pub last: BTreeMap<(usize, Topic, u8, u8), usize>,
    pub incoming: BTreeMap<u16, Incoming>,
    pub next_order: u64,
    /// Identifiers between PUBLISH and PUBREL.
    pub exactly_once: BTreeSet<u16>,
    /// Messages of it that an operator skipped or parked.
    pub skipped: usize,
    /// After a crash nobody but the broker knows what is left of it.
    pub vague: bool,
    /// It was taken up after a crash: what waited is in the store alone, until it is read back.
    pub survived: bool,
}

/// The session of a client that lives now, as the standard has it.
pub struct Live {
    pub number: usize,
    /// Milliseconds; and the least and most that may be stored of it.
    pub expiry: u64,
    pub stored_expiry: (u64, u64),
    pub connected: Option<usize>,
    /// When it ends; a crash leaves it open from when on it may.
    pub ends: u64,
    pub may_end: u64,
    /// Its client had CONNACK, which waits until the session is stored.
    pub known: bool,
    /// By its last connection.
    pub told: bool,
    /// Whether a crash left it is not known.
    pub doubtful: bool,
}

pub struct Oracle {
    pub messages: Vec<Message>,
    pub sessions: Vec<SessionLog>,
    pub live: Vec<Option<Live>>,
    /// Messages that a member has acknowledged, those that one has refused, and dead letters that
    /// came.
    pub done: BTreeSet<usize>,
    pub refused: BTreeSet<usize>,
    pub letters: BTreeSet<usize>,
    /// Messages that an operator published again from a dead letter, and how often. A crash may have
    /// undone it.
    pub republished: BTreeMap<usize, u32>,
    /// Clients for which an operator commanded something that may end their connections.
    pub commanded: BTreeSet<usize>,
    /// Sessions whose end may not be stored yet, by client.
    pub ghosts: BTreeMap<usize, usize>,
    /// The session that each socket was joined to.
    pub joined: BTreeMap<usize, usize>,
    /// Sockets whose session was there before.
    pub resumed: BTreeSet<usize>,
    pub wills: Wills,
    /// Messages with RETAIN, by topic.
    pub retaining: BTreeMap<Topic, Vec<usize>>,
    /// Those that a crash took, and when.
    pub forgotten: BTreeMap<usize, u64>,
    /// Messages that may have been with a member whose session a crash took, or that somebody had
    /// of whom a crash left little that is known.
    pub astray: BTreeSet<usize>,
    /// A queue became longer than what of it is kept in memory.
    pub paged: bool,
    /// Time for which the broker was down and that no clock measured.
    pub unmeasured: u64,
    /// When a broker with a store crashed.
    pub crashes: Vec<u64>,
    /// When there was too little memory or disk.
    pub shortages: Vec<Period>,
    pub permissions: Permissions,
}

impl Oracle {
    pub fn new(clients: usize) -> Oracle {
        Oracle {
            messages: Vec::new(),
            sessions: Vec::new(),
            live: (0..clients).map(|_| None).collect(),
            done: BTreeSet::new(),
            refused: BTreeSet::new(),
            letters: BTreeSet::new(),
            republished: BTreeMap::new(),
            commanded: BTreeSet::new(),
            ghosts: BTreeMap::new(),
            joined: BTreeMap::new(),
            resumed: BTreeSet::new(),
            wills: Wills::new(clients),
            retaining: BTreeMap::new(),
            forgotten: BTreeMap::new(),
            astray: BTreeSet::new(),
            paged: false,
            unmeasured: 0,
            crashes: Vec::new(),
            shortages: Vec::new(),
            permissions: Permissions::default(),
        }
    }

    /// Enters a message; answers its number.
    pub fn enter(&mut self, message: Message) -> usize {
        let number = self.messages.len();
        if message.retain {
            self.retaining.entry(message.topic).or_default().push(number);
        }
        self.messages.push(message);
        number
    }

    /// The broker accepted a CONNECT. `expiry` in seconds.
    // 3.1.1 [MQTT-3.1.2-4], [MQTT-3.1.2-6], [MQTT-3.2.2-2]; 5.0 [MQTT-3.1.2-4], [MQTT-3.1.2-5],
    // [MQTT-4.1.0-2]
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
        // What was not there after the last crash, or had expired, does not come back after the
        // next.
        let is_gone = |l: &Live| l.doubtful && !clean && !present;
        let former = kept.as_ref().filter(|l| l.stored_expiry.1 > 0 && !is_gone(l)).map(|l| l.number);
        if let Some(Live { connected: Some(other), .. }) = kept {
            return Err(format!("client {client} is connected by sockets {other} and {socket}"));
        }
        let lives = kept.filter(|l| now < l.ends && !clean);
        let must = lives.as_ref().is_some_and(|l| now < l.may_end && !l.doubtful);
        if present && lives.is_none() || !present && must {
            return Err(format!("client {client}: session present is {present}, not {}", !present));
        }
        let expiry = u64::from(expiry) * 1_000;
        let live = Live {
            number: self.sessions.len(),
            expiry,
            stored_expiry: (0, expiry),
            connected: Some(socket),
            ends: u64::MAX,
            may_end: u64::MAX,
            known: false,
            told: false,
            doubtful: false,
        };
        let live = match lives.filter(|_| present) {
            Some(Live { number, stored_expiry: (least, most), known, doubtful, .. }) => {
                self.sessions[number].vague |= doubtful;
                Live { number, stored_expiry: (least.min(expiry), most.max(expiry)), known, ..live }
            }
            None => {
                if let Some(former) = former {
                    self.ghosts.entry(client).or_insert(former);
                }
                self.sessions.push(SessionLog { client, ..SessionLog::default() });
                live
            }
        };
        self.end_others(now, client, live.number);
        self.joined.insert(socket, live.number);
        if present {
            self.resumed.insert(socket);
        }
        self.live[client] = Some(live);
        Ok(())
    }

    /// CONNACK came: what it says is stored, and what was before is not any more.
    pub fn connack_came(&mut self, client: usize, socket: usize) {
        if let Some(live) = self.live[client].as_mut().filter(|l| l.connected == Some(socket)) {
            (live.known, live.told) = (true, true);
            live.stored_expiry = (live.expiry, live.expiry);
            self.ghosts.remove(&client);
        }
    }

    /// Each PUBREL of a client that is there was answered in the end: the broker sends it with each
    /// connection until PUBCOMP comes, also if an operator dropped the message before its PUBREC.
    // 3.1.1 and 5.0 [MQTT-4.4.0-1]
    pub fn check_released(&self) -> Result<(), String> {
        let live = self.live.iter().flatten().map(|live| &self.sessions[live.number]);
        for session in live.filter(|session| !session.vague) {
            let is_left = |incoming: &Incoming| incoming.released && !incoming.finished;
            if let Some((id, left)) = session.incoming.iter().find(|(_, incoming)| is_left(incoming)) {
                let client = session.client;
                return Err(format!("PUBREL {id} did not come to client {client} again: {left:?}"));
            }
        }
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

    /// `expiry`: what its DISCONNECT changed it to, in seconds. Answers how many milliseconds the
    /// session lasts.
    pub fn disconnected(&mut self, now: u64, client: usize, socket: usize, expiry: Option<u32>) -> u64 {
        let Some(live) = self.live[client].as_mut().filter(|l| l.connected == Some(socket)) else { return 0 };
        if let Some(expiry) = expiry {
            live.expiry = u64::from(expiry) * 1_000;
            let (least, most) = live.stored_expiry;
            live.stored_expiry = (least.min(live.expiry), most.max(live.expiry));
        }
        live.connected = None;
        live.ends = now + live.expiry;
        live.may_end = live.ends;
        let expiry = live.expiry;
        if expiry == 0 {
            let number = live.number;
            if live.stored_expiry.1 > 0 {
                self.ghosts.entry(client).or_insert(number);
            }
            self.live[client] = None;
            self.sessions[number].ended = Some(now);
        }
        expiry
    }

    pub fn expired(&mut self, now: u64, client: usize) -> Result<(), String> {
        let Some(live) = self.live[client].take() else { return Ok(()) };
        if live.connected.is_some() || now < live.may_end && !live.doubtful {
            return Err(format!("the session of client {client} expired at {now}, not at {}", live.ends));
        }
        self.ghosts.entry(client).or_insert(live.number);
        self.sessions[live.number].ended = Some(now);
        Ok(())
    }

    pub fn sessions_end_in_time(&self, now: u64, late: u64) -> Result<(), String> {
        for (client, live) in self.live.iter().enumerate() {
            if let Some(live) = live
                && live.connected.is_none()
                && !live.doubtful
                && now > live.ends.saturating_add(late)
            {
                return Err(format!("the session of client {client} should have ended at {}", live.ends));
            }
        }
        Ok(())
    }
}
