//! What is in the store when a packet leaves, held against what the packet promises.
//!
//! | packet | needs |
//! |---|---|
//! | CONNACK | the session as it was granted, or that there is none |
//! | SUBACK, UNSUBACK | the subscriptions |
//! | PUBACK, PUBREC | the message, for every session that is to have it and has not; for later; as retained |
//! | PUBREC | the identifier as well |
//! | PUBCOMP, PUBREC that refuses | that the identifier is gone |
//! | PUBLISH at QoS 2 | its identifier |
//! | PUBREL | that PUBREC came |

use crate::memory_store::Image;
use crate::oracle::{Message, Oracle};
use crate::world::World;
use homing::mqtt::codec::{self, Decoded};
use homing::mqtt::message::Message as Stored;
use homing::mqtt::packet::{Acknowledgement, Packet, PacketId, QoS, ReasonCode};
use homing::persistence::records::SessionKey;

/// Packet Identifiers that running numbers stand for, in turn.
const IDS: u64 = 65_535;

impl World {
    /// Bytes of a connection left the broker.
    pub fn check_gates(&mut self, socket: usize, bytes: &[u8]) {
        let s = &mut self.sockets[socket];
        let client = s.client;
        // What a connection that ends still writes may have been overtaken.
        if self.disk.is_none() || s.closing.is_some() || self.clients[client].socket() != Some(socket) {
            return;
        }
        let mut buffer = std::mem::take(&mut s.leaving);
        buffer.extend_from_slice(bytes);
        let version = self.clients[client].manners.version;
        let mut taken = 0;
        while let Ok(Decoded::Packet { packet, length }) = codec::decode(&buffer[taken..], version, u32::MAX)
        {
            taken += length;
            let Some(disk) = &self.disk else { return };
            let result = disk.memory.look(|image| self.check_gate(image, client, socket, &packet));
            self.check(result.map_err(|what| format!("{} left for client {client}: {what}", packet.name())));
        }
        self.sockets[socket].leaving = buffer.split_off(taken);
    }

    fn check_gate(
        &self,
        image: &Image,
        client: usize,
        socket: usize,
        packet: &Packet<'_>,
    ) -> Result<(), String> {
        let session = image.session(&self.clients[client].manners.name);
        let key = session.map(|s| s.key);
        match packet {
            Packet::Connack(c) if c.reason.is_error() => Ok(()),
            Packet::Connack(_) => {
                let granted = self.sockets[socket].offer.expiry;
                let kept = match session {
                    Some(s) if s.connected => s.expiry,
                    // It is over wherever it is read back.
                    Some(s) if s.ends > self.instant() => u32::MAX,
                    _ => 0,
                };
                // While there is no room for new records, that a known session is there will do.
                let opened = self.clients[client].connection.as_ref().map_or(self.now, |c| c.opened);
                let known =
                    self.oracle.was_short(opened, self.now) && session.is_some_and(|s| s.expiry == granted);
                if kept == granted || known {
                    Ok(())
                } else {
                    Err(format!("the store has {session:?}, not {granted} s"))
                }
            }
            // The packet may be one of a message that an operator took away since it was written.
            Packet::Publish(_) | Packet::Pubrel(_) if self.is_operated(client) => Ok(()),
            Packet::Publish(p) if p.qos == QoS::ExactlyOnce => {
                let entry = key.zip(p.packet_id).map(|(key, id)| is_received(image, key, id));
                if entry == Some(None) {
                    Err(format!("its identifier {:?} is not kept", p.packet_id))
                } else {
                    Ok(())
                }
            }
            Packet::Pubrel(a) => match key.and_then(|key| is_received(image, key, a.packet_id)) {
                Some(false) => Err(format!("PUBREC {} is not kept", a.packet_id)),
                _ => Ok(()),
            },
            Packet::Puback(a) if !a.reason.is_error() => self.check_taken(image, client, a, QoS::AtLeastOnce),
            Packet::Pubrec(a) if !a.reason.is_error() => {
                // 3.x cannot be told of a refusal, which frees the identifier.
                let told = self.clients[client].manners.version.is_v5();
                if told && key.is_some_and(|key| !image.has_incoming(key, a.packet_id)) {
                    return Err(format!("its identifier {} is not kept", a.packet_id));
                }
                self.check_taken(image, client, a, QoS::ExactlyOnce)
            }
            Packet::Pubcomp(a) | Packet::Pubrec(a) => {
                if key.is_some_and(|key| image.has_incoming(key, a.packet_id)) {
                    return Err(format!("its identifier {} is still kept", a.packet_id));
                }
                Ok(())
            }
            Packet::Suback(s) => self.check_subscribed(image, client, key, s.packet_id, &s.reasons),
            Packet::Unsuback(u) => self.check_subscribed(image, client, key, u.packet_id, &[]),
            _ => Ok(()),
        }
    }

    /// A message of a client's is acknowledged.
    fn check_taken(
        &self,
        image: &Image,
        client: usize,
        ack: &Acknowledgement<'_>,
        qos: QoS,
    ) -> Result<(), String> {
        let mut unfinished = self.clients[client].unfinished.iter();
        let Some(o) = unfinished.find(|o| o.id == ack.packet_id.get() && o.qos == qos) else { return Ok(()) };
        self.check_kept(image, o.message)
    }

    /// An operator took messages away from the session of a client.
    fn is_operated(&self, client: usize) -> bool {
        let live = self.oracle.live[client].as_ref();
        live.is_some_and(|live| self.oracle.sessions[live.number].skipped > 0)
    }

    /// What has been acknowledged is in the store for whoever has not had it.
    pub fn check_kept(&self, image: &Image, number: usize) -> Result<(), String> {
        let oracle = &self.oracle;
        let message = &oracle.messages[number];
        self.check_work_kept(image, number)?;
        if !oracle.may_always_be_sent(message) {
            return Ok(());
        }
        if message.refused || message.empty || self.plan.loses() || message.qos == QoS::AtMostOnce {
            return Ok(());
        }
        if message.delay.is_some() {
            let kept =
                self.now >= message.first_sent || image.delayed().any(|m| number_of(m) == Some(number));
            return if kept { Ok(()) } else { Err(format!("message {number} is not kept for later")) };
        }
        if message.retain
            && oracle.lasts_as_retained(message.topic)
            && image.retained(message.topic.name()).is_none()
        {
            return Err(format!("message {number} is not kept as retained"));
        }
        if message.may_expire_by(self.now) || message.topic.is_shared() {
            return Ok(());
        }
        for (client, live) in oracle.live.iter().enumerate() {
            let Some(live) = live.as_ref().filter(|l| l.known && !l.doubtful && l.stored_expiry.0 > 0) else {
                continue;
            };
            // Which messages an operator took away is not known by their numbers.
            if oracle.sessions[live.number].skipped > 0 {
                continue;
            }
            if !oracle.is_due(live.number, message) || oracle.sessions[live.number].had(number) {
                continue;
            }
            let key = image.session(&self.clients[client].manners.name).map(|s| s.key);
            let mut entries = key.into_iter().flat_map(|key| image.entries(key));
            if !entries.any(|(_, m)| m.and_then(number_of) == Some(number)) {
                return Err(format!("message {number} is not kept for client {client}"));
            }
        }
        Ok(())
    }

    /// What a SUBSCRIBE or UNSUBSCRIBE asked for, as far as nothing else has been asked since.
    fn check_subscribed(
        &self,
        image: &Image,
        client: usize,
        key: Option<SessionKey>,
        id: PacketId,
        reasons: &[ReasonCode],
    ) -> Result<(), String> {
        let c = &self.clients[client];
        let (Some(connection), Some(session), Some(key)) = (&c.connection, c.session, key) else {
            return Ok(());
        };
        let subscriptions = &self.oracle.sessions[session].subscriptions;
        let Some(asked) = connection.asked.iter().find(|asked| asked.id == id.get()) else { return Ok(()) };
        let granted = asked.begins.iter().zip(reasons).filter(|(_, reason)| !reason.is_error());
        for s in granted.map(|(at, _)| &subscriptions[*at]).filter(|s| s.leaving.is_none()) {
            let kept = image.subscription(key, s.filter);
            let fits = |k: &homing::persistence::records::StoredSubscription| {
                k.options & 3 == s.options.qos.bits() && k.subscription_id == s.id.unwrap_or(0)
            };
            if !kept.is_some_and(fits) {
                return Err(format!("{s:?} is not kept, but {kept:?}"));
            }
        }
        for at in asked.ends.iter().filter(|_| asked.unsubscribes.is_some()) {
            let s = &subscriptions[*at];
            let again = subscriptions[at + 1..].iter().any(|o| o.filter == s.filter);
            if !again && image.subscription(key, s.filter).is_some() {
                return Err(format!("the subscription to {} is still kept", s.filter));
            }
        }
        Ok(())
    }
}

impl Oracle {
    /// Whether a session that goes on is to have a message.
    fn is_due(&self, number: usize, message: &Message) -> bool {
        let log = &self.sessions[number];
        log.is_sure()
            && self.may_always_read(log.client, message.topic)
            && log.subscriptions.iter().any(|s| {
                s.covers(message.topic)
                    && s.options.qos > QoS::AtMostOnce
                    && !(s.options.no_local && log.client == message.publisher)
                    && s.stands_for(message)
            })
    }
}

/// Whether PUBREC came for what is in flight by this identifier; none if nothing is.
fn is_received(image: &Image, key: SessionKey, id: PacketId) -> Option<bool> {
    let is_it = |running: u64| (running % IDS) as u16 + 1 == id.get();
    let mut own = image.entries(key).filter(|(e, _)| e.qos == QoS::ExactlyOnce);
    own.find(|(entry, _)| entry.flight.is_some_and(|f| is_it(f.running)))
        .map(|(_, message)| message.is_none())
}

/// The simulation's number of a message.
pub fn number_of(message: &Stored) -> Option<usize> {
    message.payload().first_chunk().map(|number| u32::from_be_bytes(*number) as usize)
}
