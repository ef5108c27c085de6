//! A work queue: one publisher, a group of members of which one stays, and a slow disk. The others
//! end their sessions with what they have been sent, or refuse it, while neither is committed.
//!
//! What the publisher was told is taken is held by the store, or a member has acknowledged it, or
//! it came as a dead letter.

use crate::client::{Outgoing, packet_id};
use crate::memory_store::Image;
use crate::oracle::{Message, SessionLog};
use crate::publishing::MOST_UNFINISHED;
use crate::topics::Topic;
use crate::trace::trace;
use crate::world::{Phase, World};
use homing::mqtt::packet::{Acknowledgement, Packet, QoS, ReasonCode};
use homing::session::outbound::queue::QueuePolicy;

const PUBLISHER: usize = 0;
/// Its session ends only with the simulation.
const KEEPER: usize = 1;
/// `s/0`, which no subscription but a shared one matches.
const TOPIC: Topic = Topic(3);

impl World {
    pub(crate) fn join_work(&mut self, client: usize, session: usize) {
        let filter = match (client, self.plan.work) {
            (PUBLISHER, Some(work)) if work.letters => "$dead/#",
            (PUBLISHER, _) => return,
            _ => "$share/g/s/0",
        };
        if self.oracle.sessions[session].subscriptions.is_empty() {
            self.subscribe(client, session, &[filter]);
        }
    }

    pub(crate) fn publish_work(&mut self, client: usize) {
        let c = &self.clients[client];
        let Some(connection) = &c.connection else { return };
        if c.unfinished.len() >= usize::from(connection.receive_maximum).min(MOST_UNFINISHED) {
            return;
        }
        let message = self.oracle.enter(Message {
            publisher: client,
            topic: TOPIC,
            qos: QoS::AtLeastOnce,
            retain: false,
            empty: false,
            is_will: false,
            expiry: None,
            delay: None,
            first_sent: self.now,
            first_event: Some(self.events),
            sends: 0,
            acknowledged: None,
            refused: false,
        });
        trace!(self, "client {client} publishes work {message}");
        let id = self.clients[client].id();
        let qos = QoS::AtLeastOnce;
        self.clients[client].unfinished.push(Outgoing {
            id,
            message,
            qos,
            released: false,
            padding: 0,
            sent: self.now,
        });
        let at = self.clients[client].unfinished.len() - 1;
        self.send_publish(client, at, false);
    }

    /// A member has work: whether it does something other than to acknowledge it.
    pub(crate) fn shirks(&mut self, client: usize, message: usize, id: u16) -> bool {
        let Some(work) = self.plan.work.filter(|_| self.phase == Phase::Chaos) else { return false };
        let roll = self.work.below(100);
        let socket = self.clients[client].socket().unwrap_or_default();
        if roll < work.ends && client != KEEPER {
            self.saw("a member ends its session with work");
            trace!(self, "client {client} ends its session with message {message}");
            self.end_session(client, socket);
            return true;
        }
        if (work.ends..work.ends + work.refuses).contains(&roll) {
            self.saw("a member refuses work");
            self.oracle.refused.insert(message);
            let session = self.clients[client].session.unwrap_or_default();
            if let Some(incoming) = self.oracle.sessions[session].incoming.get_mut(&id) {
                (incoming.answered, incoming.finished) = (true, true);
            }
            let ack = Acknowledgement {
                reason: ReasonCode::QUOTA_EXCEEDED,
                ..Acknowledgement::success(packet_id(id))
            };
            self.send(client, &Packet::Puback(ack));
            return true;
        }
        false
    }

    pub(crate) fn got_letter(&mut self, client: usize, message: usize, id: u16) {
        self.saw("a dead letter comes");
        self.oracle.letters.insert(message);
        if id > 0 {
            self.send(client, &Packet::Puback(Acknowledgement::success(packet_id(id))));
        }
    }

    /// Whether somebody owes it: its publisher was told that it is taken, and the keeper was a
    /// member all the time.
    fn is_owed(&self, number: usize) -> bool {
        let message = &self.oracle.messages[number];
        let v5 = self.clients[PUBLISHER].manners.version.is_v5();
        // 3.1.1 cannot be told of a refusal, unless its acknowledgement waits for room.
        let queue = &self.plan.settings.session.send.queue;
        let told = v5 || queue.policy == QueuePolicy::Hold || !self.plan.loses();
        self.plan.work.is_some()
            && told
            && !message.refused
            && !self.oracle.astray.contains(&number)
            && self.has_stood_since(KEEPER, message)
    }

    /// Whether a client's session surely has its subscription since before the message.
    fn has_stood_since(&self, client: usize, message: &Message) -> bool {
        let stands = |log: &SessionLog| {
            log.client == client && log.is_sure() && log.subscriptions.iter().any(|s| s.stands_for(message))
        };
        self.oracle.sessions.iter().any(stands)
    }

    /// What its publisher is told is taken is not in memory alone.
    pub(crate) fn check_work_kept(&self, image: &Image, number: usize) -> Result<(), String> {
        let Some(work) = self.plan.work.filter(|_| self.is_owed(number)) else { return Ok(()) };
        let oracle = &self.oracle;
        let lettered = work.letters && self.has_stood_since(PUBLISHER, &oracle.messages[number]);
        let refused = oracle.refused.contains(&number) && !lettered;
        let had = oracle.done.contains(&number) || oracle.letters.contains(&number);
        let is_it = |m: &homing::mqtt::message::Message| {
            m.payload().first_chunk().map(|n| u32::from_be_bytes(*n) as usize) == Some(number)
        };
        if refused || had || image.pending().any(is_it) {
            return Ok(());
        }
        Err(format!("work {number} is kept for nobody, and nobody has acknowledged it"))
    }

    /// All is quiet: what the publisher was told is taken has been done, whatever is counted as
    /// lost.
    pub(crate) fn check_work_done(&self) -> Result<(), String> {
        for number in 0..self.oracle.messages.len() {
            let oracle = &self.oracle;
            let acknowledged = oracle.messages[number].acknowledged.is_some();
            let ends = [&oracle.done, &oracle.refused, &oracle.letters];
            if acknowledged && self.is_owed(number) && !ends.iter().any(|end| end.contains(&number)) {
                let message = &oracle.messages[number];
                return Err(format!("no member has done work {number}: {message:?}"));
            }
        }
        Ok(())
    }
}
