//! What a client does with what comes, and what it holds the broker to while it does.

use crate::client::{brief, packet_id};
use crate::oracle::Incoming;
use crate::topics::Topic;
use crate::trace::trace;
use crate::world::{Event, Phase, World};
use homing::mqtt::codec::{self, AckKind, Decoded};
use homing::mqtt::packet::{Acknowledgement, Packet, QoS, ReasonCode};
use std::collections::btree_map::Entry;

/// A packet in what of it matters, free of its bytes.
enum Got {
    Connack { present: bool, reason: ReasonCode, receive_maximum: u16 },
    Publish { dup: bool, qos: QoS, topic: Option<Topic>, id: u16, message: usize },
    Puback(u16, ReasonCode),
    Pubrec(u16, ReasonCode),
    Pubrel(u16),
    Pubcomp(u16),
    Suback(u16, Vec<ReasonCode>),
    Unsuback(u16),
    Other,
}

impl Got {
    fn from(packet: &Packet<'_>) -> Got {
        match packet {
            Packet::Connack(c) => Got::Connack {
                present: c.session_present,
                reason: c.reason,
                receive_maximum: c.properties.receive_maximum.unwrap_or(u16::MAX),
            },
            Packet::Publish(p) => Got::Publish {
                dup: p.dup,
                qos: p.qos,
                topic: Topic::of(p.topic),
                id: p.packet_id.map_or(0, |id| id.get()),
                message: p.payload.first_chunk().map_or(usize::MAX, |m| u32::from_be_bytes(*m) as usize),
            },
            Packet::Puback(a) => Got::Puback(a.packet_id.get(), a.reason),
            Packet::Pubrec(a) => Got::Pubrec(a.packet_id.get(), a.reason),
            Packet::Pubrel(a) => Got::Pubrel(a.packet_id.get()),
            Packet::Pubcomp(a) => Got::Pubcomp(a.packet_id.get()),
            Packet::Suback(s) => Got::Suback(s.packet_id.get(), s.reasons.clone()),
            Packet::Unsuback(u) => Got::Unsuback(u.packet_id.get()),
            _ => Got::Other,
        }
    }
}

impl World {
    /// Bytes came on a client's present connection.
    pub fn client_takes(&mut self, client: usize, socket: usize, bytes: &[u8]) {
        let Some(connection) = self.clients[client].connection.as_mut() else { return };
        let mut buffer = std::mem::take(&mut connection.partial);
        buffer.extend_from_slice(bytes);
        let version = self.clients[client].manners.version;
        let mut taken = 0;
        loop {
            let (got, length) = match codec::decode(&buffer[taken..], version, u32::MAX) {
                Ok(Decoded::Packet { packet, length }) => {
                    trace!(self, "client {client} on {socket} has {}", brief(&packet));
                    (Got::from(&packet), length)
                }
                Ok(Decoded::Incomplete { .. }) => break,
                Err(error) => return self.fail(format!("client {client} cannot read what came: {error}")),
            };
            taken += length;
            let Some(connection) = self.clients[client].connection.as_mut().filter(|c| c.socket == socket)
            else {
                return;
            };
            connection.read += length as u64;
            let result = self.got(client, got);
            self.check(result.map_err(|what| format!("client {client} on socket {socket}: {what}")));
        }
        if let Some(connection) = self.clients[client].connection.as_mut().filter(|c| c.socket == socket) {
            connection.partial = buffer.split_off(taken);
        }
    }

    fn got(&mut self, client: usize, got: Got) -> Result<(), String> {
        let Some(connection) = self.clients[client].connection.as_mut() else { return Ok(()) };
        match got {
            Got::Connack { present, reason, receive_maximum } => {
                if reason != ReasonCode::SUCCESS || connection.established {
                    return Err(format!("CONNACK {reason:?}"));
                }
                connection.present = present;
                connection.receive_maximum = receive_maximum;
                self.established(client);
                Ok(())
            }
            _ if !connection.established => Err("something came before CONNACK".into()),
            Got::Publish { dup, qos, topic, id, message } => {
                let same =
                    self.oracle.messages.get(message).is_some_and(|m| Some(m.topic) == topic && m.qos >= qos);
                if !same {
                    return Err(format!("message {message} is not as it was published"));
                }
                self.got_publish(client, dup, qos, id, message)
            }
            Got::Puback(id, reason) => self.got_answer(client, id, QoS::AtLeastOnce, reason),
            Got::Pubrec(id, reason) => self.got_answer(client, id, QoS::ExactlyOnce, reason),
            Got::Pubrel(id) => self.got_pubrel(client, id),
            Got::Pubcomp(id) => {
                let c = &mut self.clients[client];
                c.unfinished.retain(|o| !(o.id == id && o.released));
                Ok(())
            }
            Got::Suback(id, reasons) => self.got_suback(client, id, &reasons),
            Got::Unsuback(id) => {
                let now = self.now;
                for s in self.answered_subscriptions(client, id)? {
                    s.left.get_or_insert(now);
                }
                Ok(())
            }
            Got::Other => Ok(()),
        }
    }

    fn answered_subscriptions(
        &mut self,
        client: usize,
        id: u16,
    ) -> Result<impl Iterator<Item = &mut crate::oracle::Subscription>, String> {
        let c = &mut self.clients[client];
        let (Some(connection), Some(session)) = (c.connection.as_mut(), c.session) else {
            return Err("an answer without a session".into());
        };
        let Some((_, at)) = connection.asked.take_if(|(asked, _)| *asked == id) else {
            return Err(format!("SUBACK or UNSUBACK {id} that was not asked for"));
        };
        let subscriptions = self.oracle.sessions[session].subscriptions.iter_mut().enumerate();
        Ok(subscriptions.filter(move |(n, _)| at.contains(n)).map(|(_, s)| s))
    }

    fn got_suback(&mut self, client: usize, id: u16, reasons: &[ReasonCode]) -> Result<(), String> {
        let now = self.now;
        for s in self.answered_subscriptions(client, id)? {
            if reasons != [ReasonCode::from(s.qos)] {
                return Err(format!("SUBACK {reasons:?} to {s:?}"));
            }
            s.in_force = Some(now);
        }
        Ok(())
    }

    /// PUBACK or PUBREC for a message of its own.
    // 3.1.1 and 5.0 [MQTT-4.6.0-2]
    fn got_answer(&mut self, client: usize, id: u16, qos: QoS, reason: ReasonCode) -> Result<(), String> {
        let now = self.now;
        let c = &mut self.clients[client];
        let Some(at) = c.unfinished.iter().position(|o| o.id == id && o.qos == qos) else {
            return Err(format!("an acknowledgement of {id}, which is not under way"));
        };
        if qos == QoS::AtLeastOnce && c.unfinished[..at].iter().any(|o| o.qos == qos) {
            return Err(format!("PUBACK {id} before that of an older message"));
        }
        let message = &mut self.oracle.messages[c.unfinished[at].message];
        message.acknowledged.get_or_insert(now);
        message.refused |= reason.is_error();
        if qos == QoS::ExactlyOnce && !reason.is_error() {
            c.unfinished[at].released = true;
            self.send(client, &Packet::Pubrel(Acknowledgement::success(packet_id(id))));
        } else {
            c.unfinished.remove(at);
        }
        Ok(())
    }

    fn got_publish(
        &mut self,
        client: usize,
        dup: bool,
        qos: QoS,
        id: u16,
        message: usize,
    ) -> Result<(), String> {
        let loses = self.plan.loses();
        let Some(session) = self.clients[client].session else {
            return Err("PUBLISH without a session".into());
        };
        if qos == QoS::AtMostOnce {
            return self.oracle.take(session, message, qos, loses);
        }
        let again = self.place(client, session, dup, qos, id, message)?;
        self.check_window(client, session)?;
        if qos == QoS::AtLeastOnce {
            self.oracle.take(session, message, qos, loses)?;
            self.consider(client, AckKind::Puback, id, again);
            return Ok(());
        }
        if self.oracle.sessions[session].exactly_once.insert(id) {
            self.oracle.take(session, message, qos, loses)?;
        }
        self.consider(client, AckKind::Pubrec, id, again);
        Ok(())
    }

    /// Enters a QoS 1 or 2 PUBLISH into the session's record, or finds it there. Answers how often it had come on this
    /// connection.
    // 5.0 [MQTT-4.4.0-1], [MQTT-3.3.1-1], [MQTT-2.2.1-4]; 3.1.1 [MQTT-4.4.0-1], [MQTT-3.3.1-1], [MQTT-2.3.1-4]
    fn place(
        &mut self,
        client: usize,
        session: usize,
        dup: bool,
        qos: QoS,
        id: u16,
        message: usize,
    ) -> Result<u32, String> {
        let v5 = self.clients[client].manners.version.is_v5();
        let Some(connection) = self.clients[client].connection.as_mut() else { return Ok(0) };
        let socket = connection.socket;
        let end = connection.read;
        let appended = self.sockets[socket].appended_at(end);
        let log = &mut self.oracle.sessions[session];
        let order = log.next_order;
        let carried_over = connection.present && !connection.new_begun;
        let incoming = match log.incoming.entry(id) {
            Entry::Vacant(vacant) => {
                log.next_order += 1;
                if dup && !carried_over {
                    return Err(format!("PUBLISH {id} has DUP and was never sent"));
                }
                connection.new_begun |= !dup;
                vacant.insert(Incoming {
                    message,
                    qos,
                    order,
                    socket,
                    receptions: 1,
                    appended,
                    end,
                    received: self.now,
                    answered: false,
                    recorded: false,
                    released: false,
                    finished: false,
                });
                return Ok(0);
            }
            Entry::Occupied(entry) => entry.into_mut(),
        };
        if (incoming.message, incoming.qos) != (message, qos) {
            return Err(format!("identifier {id} denotes message {message} and {incoming:?}"));
        }
        if !dup {
            return Err(format!("PUBLISH {id} again without DUP"));
        }
        if incoming.released {
            return Err(format!("PUBLISH {id} after its PUBREL"));
        }
        let here = incoming.socket == socket;
        if here && v5 {
            return Err(format!("PUBLISH {id} is sent again to 5.0 on a live connection"));
        }
        if !here && !carried_over {
            return Err(format!("PUBLISH {id} of an earlier connection comes after new ones"));
        }
        let before = if here { incoming.receptions } else { 0 };
        let earlier = std::mem::replace(&mut incoming.appended, appended);
        let earlier_end = std::mem::replace(&mut incoming.end, end);
        incoming.receptions = before + 1;
        incoming.received = self.now;
        if !here {
            (incoming.socket, incoming.answered, incoming.finished) = (socket, false, false);
        }
        if here && appended < self.sockets[socket].arrived_at(earlier_end) {
            return Err(format!("PUBLISH {id} is sent again while the network still has it"));
        }
        if here {
            self.check_resend(session, id, before, appended - earlier)?;
        } else {
            self.check_resumed(session, id, socket)?;
        }
        Ok(before)
    }

    /// A PUBLISH came for another time on one 3.x connection, `gap` after the time before.
    // 3.1.1 [MQTT-4.6.0-1], [MQTT-4.6.0-6]
    fn check_resend(&self, session: usize, id: u16, before: u32, gap: u64) -> Result<(), String> {
        let due = self.resend_ms(before - 1);
        if self.plan.retry().interval.is_zero() {
            return Err(format!("PUBLISH {id} is sent again, and redelivery is off"));
        }
        if gap + 1 < due {
            return Err(format!("PUBLISH {id} is sent again after {gap} ms, not {due}"));
        }
        let incoming = &self.oracle.sessions[session].incoming;
        let this = &incoming[&id];
        let passed_over = incoming.iter().find(|(_, o)| {
            o.socket == this.socket && o.order < this.order && !o.answered && o.receptions < this.receptions
        });
        match passed_over {
            Some((older, _)) => Err(format!("PUBLISH {id} is sent again before the older {older}")),
            None => Ok(()),
        }
    }

    /// A PUBLISH of an earlier connection came: all of those come in their order.
    fn check_resumed(&self, session: usize, id: u16, socket: usize) -> Result<(), String> {
        let incoming = &self.oracle.sessions[session].incoming;
        let this = &incoming[&id];
        match incoming.iter().find(|(_, o)| o.socket == socket && o.order > this.order) {
            Some((newer, _)) => Err(format!("PUBLISH {id} is resumed after the newer {newer}")),
            None => Ok(()),
        }
    }

    /// How long the broker waits before it sends something for the `round + 1`-th time again, jitter apart.
    fn resend_ms(&self, round: u32) -> u64 {
        let retry = self.plan.retry();
        let cap = retry.max_interval.max(retry.interval).as_secs_f64();
        let grown = retry.interval.as_secs_f64() * retry.backoff.powi(round as i32);
        (grown.min(cap) * 1000.0) as u64
    }

    /// No more than Receive Maximum are unfinished.
    // 5.0 [MQTT-3.3.4-9]
    fn check_window(&self, client: usize, session: usize) -> Result<(), String> {
        let c = &self.clients[client];
        let most = c.manners.receive_maximum.filter(|_| c.manners.version.is_v5()).unwrap_or(u16::MAX);
        let most = most.min(self.plan.settings.session.send.in_flight);
        let incoming = &self.oracle.sessions[session].incoming;
        let unfinished = incoming.values().filter(|i| Some(i.socket) == c.socket() && !i.finished).count();
        if unfinished > usize::from(most) {
            return Err(format!("{unfinished} unfinished deliveries, {most} at most"));
        }
        Ok(())
    }

    fn got_pubrel(&mut self, client: usize, id: u16) -> Result<(), String> {
        let v5 = self.clients[client].manners.version.is_v5();
        let c = &mut self.clients[client];
        let (Some(connection), Some(session)) = (c.connection.as_mut(), c.session) else { return Ok(()) };
        let pubrels = connection.pubrels.entry(id).or_default();
        *pubrels += 1;
        let allowed = connection.pubrecs.get(&id).copied().unwrap_or(0).max(1);
        if v5 && *pubrels > allowed {
            return Err(format!("PUBREL {id} is sent again to 5.0 on a live connection"));
        }
        let again = *pubrels - 1;
        let log = &mut self.oracle.sessions[session];
        let Some(incoming) = log.incoming.get_mut(&id).filter(|i| i.recorded) else {
            return Err(format!("PUBREL {id} without a PUBREC"));
        };
        incoming.released = true;
        log.exactly_once.remove(&id);
        self.consider(client, AckKind::Pubcomp, id, again);
        Ok(())
    }

    /// Acknowledges now, later, or not before it is asked again. `again`: how often it has been already.
    fn consider(&mut self, client: usize, kind: AckKind, id: u16, again: u32) {
        let withholds = self.clients[client].manners.withholds;
        if self.phase != Phase::Chaos || !self.rng.percent(withholds / u64::from(again / 2 + 1)) {
            if let Some(connection) = self.clients[client].connection.as_mut() {
                connection.owed.remove(&(kind as u8, id));
            }
            return self.acknowledge(client, kind, id);
        }
        let Some(connection) = self.clients[client].connection.as_mut() else { return };
        let socket = connection.socket;
        connection.owed.insert((kind as u8, id));
        if self.rng.percent(70) {
            let at = self.now + self.rng.between(5, 5_000);
            self.schedule(at, Event::Acknowledge { client, socket, kind, packet_id: id });
        }
    }

    /// Looks for deliveries to 3.x that should have been sent again by now.
    pub fn sweep_clients(&mut self) {
        if self.plan.retry().interval.is_zero() {
            return;
        }
        let pace = self.plan.interval_ms() + self.plan.lateness_ms();
        for client in 0..self.clients.len() {
            let c = &self.clients[client];
            let (Some(connection), Some(session)) = (&c.connection, c.session) else { continue };
            if c.manners.version.is_v5() || !connection.established {
                continue;
            }
            let incoming = &self.oracle.sessions[session].incoming;
            let waiting = incoming.values().filter(|i| i.socket == connection.socket && !i.answered);
            let patience = pace * (waiting.clone().count() as u64 + 1) + 20 * self.plan.network_ms + 1_000;
            let jitter = 1.0 + self.plan.retry().jitter;
            let forgotten = waiting.clone().find(|i| {
                let due = (self.resend_ms(i.receptions - 1) as f64 * jitter) as u64;
                self.now > i.received.max(c.stalled_until) + due + patience
            });
            if let Some(forgotten) = forgotten.filter(|_| !self.sockets[connection.socket].cut) {
                let what = format!("client {client} waits in vain for another copy of {forgotten:?}");
                self.fail(what);
                return;
            }
        }
    }
}
