//! What a client does with what comes, and what it holds the broker to while it does.

use crate::client::Outgoing;
use crate::client::{brief, packet_id};
use crate::oracle::Incoming;
use crate::taken::Arrival;
use crate::topics::{TOPICS, Topic};
use crate::trace::trace;
use crate::world::{Event, Phase, World};
use homing::mqtt::codec::{self, AckKind, Decoded};
use homing::mqtt::packet::{Acknowledgement, Packet, ProtocolVersion, QoS, ReasonCode};
use std::collections::btree_map::Entry;

/// A packet in what of it matters, free of its bytes.
enum Got {
    Connack(Connack),
    /// A challenge.
    Auth,
    Publish {
        copy: Arrival,
        topic: Option<Topic>,
        alias: Option<u16>,
        has_name: bool,
    },
    /// A dead letter of this message, by this identifier.
    DeadLetter(usize, u16),
    Puback(u16, ReasonCode),
    Pubrec(u16, ReasonCode),
    Pubrel(u16),
    Pubcomp(u16),
    Suback(u16, Vec<ReasonCode>),
    Unsuback(u16, Vec<ReasonCode>),
    Other,
}

struct Connack {
    present: bool,
    reason: ReasonCode,
    receive_maximum: u16,
    alias_maximum: u16,
    expiry: Option<u32>,
}

/// What a message without payload counts as: its topic is added.
const EMPTY: usize = usize::MAX - TOPICS.len();

impl Got {
    fn from(packet: &Packet<'_>) -> Got {
        match packet {
            Packet::Connack(c) => Got::Connack(Connack {
                present: c.session_present,
                reason: c.reason,
                receive_maximum: c.properties.receive_maximum.unwrap_or(u16::MAX),
                alias_maximum: c.properties.topic_alias_maximum.unwrap_or(0),
                expiry: c.properties.session_expiry,
            }),
            Packet::Auth(_) => Got::Auth,
            Packet::Publish(p) if p.topic.starts_with("$dead/") => {
                let message = p.payload.first_chunk().map_or(EMPTY, |m| u32::from_be_bytes(*m) as usize);
                Got::DeadLetter(message, p.packet_id.map_or(0, |id| id.get()))
            }
            Packet::Publish(p) => Got::Publish {
                copy: Arrival {
                    message: p.payload.first_chunk().map_or(EMPTY, |m| u32::from_be_bytes(*m) as usize),
                    dup: p.dup,
                    qos: p.qos,
                    retain: p.retain,
                    id: p.packet_id.map_or(0, |id| id.get()),
                    ids: p.properties.subscription_ids.clone(),
                    expiry: p.properties.message_expiry,
                    // The rest the connection knows.
                    v5: false,
                    appended: 0,
                    since: 0,
                },
                topic: Topic::of(p.topic),
                alias: p.properties.topic_alias.map(|a| a.get()),
                has_name: !p.topic.is_empty(),
            },
            Packet::Puback(a) => Got::Puback(a.packet_id.get(), a.reason),
            Packet::Pubrec(a) => Got::Pubrec(a.packet_id.get(), a.reason),
            Packet::Pubrel(a) => Got::Pubrel(a.packet_id.get()),
            Packet::Pubcomp(a) => Got::Pubcomp(a.packet_id.get()),
            Packet::Suback(s) => Got::Suback(s.packet_id.get(), s.reasons.clone()),
            Packet::Unsuback(u) => Got::Unsuback(u.packet_id.get(), u.reasons.clone()),
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
            Got::Connack(connack) => self.got_connack(client, &connack),
            Got::Auth if !connection.established => {
                self.challenged(client);
                Ok(())
            }
            _ if !connection.established => Err("something came before CONNACK".into()),
            Got::Publish { copy, topic, alias, has_name } => {
                let topic = self.resolve(client, topic, alias, has_name)?;
                self.got_publish(client, topic, copy)
            }
            Got::DeadLetter(message, id) => {
                self.got_letter(client, message, id);
                Ok(())
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
            Got::Unsuback(id, reasons) => self.got_unsuback(client, id, &reasons),
            Got::Auth => Err("AUTH after CONNACK".into()),
            Got::Other => Ok(()),
        }
    }

    // 3.1.1 [MQTT-3.2.2-1] to -3; 5.0 [MQTT-3.2.2-2] to -4, [MQTT-3.2.2-17]
    fn got_connack(&mut self, client: usize, connack: &Connack) -> Result<(), String> {
        let c = &mut self.clients[client];
        let Some(connection) = c.connection.as_mut() else { return Ok(()) };
        let (socket, v5) = (connection.socket, c.manners.version.is_v5());
        if connack.reason.is_error() && self.is_kept_out(socket, connack.reason, v5) {
            self.close_up(socket);
            self.clients[client].lose_connection();
            return Ok(());
        }
        let c = &mut self.clients[client];
        let Some(connection) = c.connection.as_mut() else { return Ok(()) };
        if connack.reason.is_error() && self.oracle.was_short(connection.opened, self.now) {
            // 0x97, or 3 in 3.x: which the codec reads as this.
            let due = if v5 { ReasonCode::QUOTA_EXCEEDED } else { ReasonCode::SERVER_UNAVAILABLE };
            if connack.reason != due {
                return Err(format!("CONNACK {:?} for want of room", connack.reason));
            }
            self.close_up(socket);
            self.clients[client].lose_connection();
            return Ok(());
        }
        if connack.reason != ReasonCode::SUCCESS || connection.established {
            return Err(format!("CONNACK {:?}", connack.reason));
        }
        let resumed = self.oracle.resumed.contains(&socket);
        // 3.1 has no Session Present.
        if connack.present != (resumed && c.manners.version != ProtocolVersion::V3_1) {
            return Err(format!("CONNACK says session present {}", connack.present));
        }
        let settings = &self.plan.settings;
        let granted = self.sockets[socket].offer.expiry;
        let changed = v5 && granted == settings.session.connect.session_expiry && connack.expiry.is_some();
        if !changed && connack.expiry.is_some() {
            return Err(format!("CONNACK grants an expiry of {:?}, not {granted}", connack.expiry));
        }
        if v5 && connack.alias_maximum != settings.session.connect.topic_alias_maximum {
            return Err(format!("CONNACK allows {} aliases", connack.alias_maximum));
        }
        self.oracle.connack_came(client, socket);
        connection.present = resumed;
        connection.receive_maximum = connack.receive_maximum;
        connection.own_alias_maximum = connack.alias_maximum;
        self.established(client);
        Ok(())
    }

    /// The topic of a PUBLISH, by its alias where it has no name.
    // 5.0 [MQTT-3.1.2-26], [MQTT-3.1.2-27], [MQTT-3.3.2-7] to -11
    fn resolve(
        &mut self,
        client: usize,
        topic: Option<Topic>,
        alias: Option<u16>,
        has_name: bool,
    ) -> Result<Topic, String> {
        let c = &mut self.clients[client];
        let (Some(connection), most) = (c.connection.as_mut(), c.manners.alias_maximum.unwrap_or(0)) else {
            return Err("PUBLISH without a connection".into());
        };
        if let Some(alias) = alias.filter(|a| *a == 0 || *a > most) {
            return Err(format!("Topic Alias {alias} of {most}"));
        }
        match (has_name, topic, alias) {
            (true, Some(topic), alias) => {
                if let Some(alias) = alias {
                    connection.aliases.insert(alias, topic);
                }
                Ok(topic)
            }
            (false, _, Some(alias)) => {
                let known = connection.aliases.get(&alias).copied();
                self.saw("the broker names a topic by its alias alone");
                known.ok_or_else(|| format!("Topic Alias {alias} stands for nothing"))
            }
            _ => Err("PUBLISH without a topic".into()),
        }
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
        let Outgoing { message: number, sent, .. } = c.unfinished[at];
        if !reason.is_error() {
            self.oracle.check_room(number, sent, now)?;
        }
        let broken = c.connection.as_ref().and_then(|c| self.sockets[c.socket].broken);
        if let Some(crash) = broken.filter(|_| self.disk.is_none()) {
            self.oracle.acknowledged_before_crash(number, crash);
        }
        let late = self.plan.late_ms();
        let forgot = broken.is_some() && self.disk.is_none();
        if reason == ReasonCode::QUOTA_EXCEEDED && self.oracle.was_short(sent, now) {
            self.saw("a PUBLISH is refused for want of room");
        }
        let c = &mut self.clients[client];
        let message = &mut self.oracle.messages[number];
        // A message that an earlier process took may be late by the time that no clock measured.
        let first = message.first_sent.saturating_sub(message.delay.unwrap_or(0));
        let before = self.oracle.crashes.iter().any(|at| *at >= first);
        let unmeasured = if before { self.oracle.unmeasured } else { 0 };
        let routed = message.delay.map_or(now, |delay| now + delay + late + unmeasured);
        message.acknowledged.get_or_insert(routed);
        message.refused |= reason.is_error() || forgot && message.delay.is_some();
        if qos == QoS::ExactlyOnce && !reason.is_error() {
            c.unfinished[at].released = true;
            self.send(client, &Packet::Pubrel(Acknowledgement::success(packet_id(id))));
        } else {
            c.unfinished.remove(at);
        }
        Ok(())
    }

    fn got_publish(&mut self, client: usize, topic: Topic, mut copy: Arrival) -> Result<(), String> {
        let c = &self.clients[client];
        let (Some(session), Some(connection)) = (c.session, &c.connection) else {
            return Err("PUBLISH without a session".into());
        };
        copy.v5 = c.manners.version.is_v5();
        copy.appended = self.sockets[connection.socket].appended_at(connection.read);
        copy.since = if connection.present { connection.since } else { 0 };
        if copy.message == EMPTY {
            copy.message += usize::from(topic.0);
        } else if self.oracle.messages.get(copy.message).is_none_or(|m| m.topic != topic || m.empty) {
            return Err(format!("message {} is not as it was published", copy.message));
        }
        self.check_permitted(client, topic, &copy)?;
        if copy.qos == QoS::AtMostOnce {
            return self.take(session, &copy);
        }
        let (again, fresh) = self.place(client, session, &copy)?;
        self.check_window(client, session)?;
        if copy.qos == QoS::AtLeastOnce {
            if fresh {
                self.take(session, &copy)?;
            }
            if fresh && self.shirks(client, copy.message, copy.id) {
                return Ok(());
            }
            self.consider(client, AckKind::Puback, copy.id, again);
            return Ok(());
        }
        if self.oracle.sessions[session].exactly_once.insert(copy.id) {
            self.take(session, &copy)?;
        }
        self.consider(client, AckKind::Pubrec, copy.id, again);
        Ok(())
    }

    fn take(&mut self, session: usize, copy: &Arrival) -> Result<(), String> {
        self.note_kind(copy);
        // Which of the messages without payload it is nobody knows, nor what a vague session asked
        // for.
        if copy.message >= EMPTY {
            return Ok(());
        }
        if self.oracle.sessions[session].vague {
            self.oracle.astray.insert(copy.message);
            return Ok(());
        }
        self.oracle.allow(session, copy)?;
        self.oracle.check_order(session, copy, self.plan.loses())
    }

    fn note_kind(&mut self, copy: &Arrival) {
        let Some(message) = self.oracle.messages.get(copy.message) else {
            return self.saw("an empty message with RETAIN is delivered");
        };
        let (is_will, is_late) = (message.is_will, message.delay.is_some());
        let kinds = [
            (is_will, "a will is delivered"),
            (is_late, "a message that was put off is delivered"),
            (copy.retain, "a message comes with RETAIN"),
            (copy.expiry.is_some(), "a message comes with what remains of its expiry"),
            (copy.ids.len() > 1, "a message comes by several subscriptions"),
        ];
        for (_, kind) in kinds.into_iter().filter(|(is, _)| *is) {
            self.saw(kind);
        }
    }

    /// Enters a QoS 1 or 2 PUBLISH into the session's record, or finds it there. Answers how often
    /// it had come on this connection, and whether it is entered.
    // 5.0 [MQTT-4.4.0-1], [MQTT-3.3.1-1], [MQTT-2.2.1-4]; 3.1.1 [MQTT-4.4.0-1], [MQTT-3.3.1-1],
    // [MQTT-2.3.1-4]
    fn place(&mut self, client: usize, session: usize, copy: &Arrival) -> Result<(u32, bool), String> {
        let Arrival { message, dup, qos, id, appended, .. } = *copy;
        let v5 = self.clients[client].manners.version.is_v5();
        let Some(connection) = self.clients[client].connection.as_mut() else { return Ok((0, false)) };
        let socket = connection.socket;
        let end = connection.read;
        // Acknowledgements of QoS 1 are stored lazily, and so are the identifiers of what is sent:
        // after a crash the broker may not know of it. What is finished at QoS 2 may be so to the
        // broker, which counts on from what is left.
        let is_stale = |i: &Incoming| {
            let lazy = i.qos == QoS::AtLeastOnce || i.released;
            lazy && self.oracle.crashes.iter().any(|crash| (i.appended..appended).contains(crash))
        };
        // A retained message that was asked for again is another delivery, which may have the
        // identifier of the one that is finished. It has DUP where its first copy never came.
        let asked_again = copy.retain && self.oracle.may_come_retained(session, message);
        // So is a message that an operator published again from its dead letter.
        let asked_again = asked_again || self.oracle.republished.contains_key(&message);
        let is_other = |i: &Incoming| {
            !dup || i.released && asked_again
                || (i.message, i.qos) != (message, qos)
                || (i.retain, &i.ids) != (copy.retain, &copy.ids)
        };
        let log = &self.oracle.sessions[session];
        let forget = log.incoming.get(&id).is_some_and(|i| (is_stale(i) || log.vague) && is_other(i));
        let unordered = log.incoming.get(&id).is_some_and(is_stale);
        let log = &mut self.oracle.sessions[session];
        if forget {
            log.incoming.remove(&id);
        }
        // A message that an operator took away comes back if a crash undoes that. It may be older than
        // messages that came meanwhile.
        let came_back = dup && log.skipped > 0 && !self.oracle.crashes.is_empty();
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
                    retain: copy.retain,
                    ids: copy.ids.clone(),
                    order,
                    place: order,
                    socket,
                    receptions: 1,
                    appended,
                    end,
                    received: self.now,
                    answered: false,
                    answer_end: None,
                    recorded: false,
                    released: false,
                    finished: false,
                    unordered: unordered || came_back,
                });
                return Ok((0, true));
            }
            Entry::Occupied(entry) => entry.into_mut(),
        };
        if (incoming.message, incoming.qos) != (message, qos)
            || (incoming.retain, &incoming.ids) != (copy.retain, &copy.ids)
        {
            return Err(format!("identifier {id} denotes {copy:?} and {incoming:?}"));
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
        incoming.unordered |= unordered;
        incoming.receptions = before + 1;
        incoming.received = self.now;
        let answer_end = incoming.answer_end;
        if !here {
            (incoming.socket, incoming.answered, incoming.finished) = (socket, false, false);
            incoming.answer_end = None;
            incoming.place = order;
            log.next_order += 1;
        }
        if here && appended < self.sockets[socket].arrived_at(earlier_end) {
            return Err(format!("PUBLISH {id} is sent again while the network still has it"));
        }
        if here && answer_end.is_some_and(|end| self.sockets[socket].came_at(end) < appended) {
            return Err(format!("PUBLISH {id} is sent again although its acknowledgement had come"));
        }
        if here {
            self.check_resend(session, id, before, appended - earlier)?;
        } else {
            self.check_resumed(session, id, socket)?;
        }
        Ok((before, false))
    }

    /// A PUBLISH came for another time on one 3.x connection, `gap` after the time before.
    // 3.1.1 [MQTT-4.6.0-1], [MQTT-4.6.0-6]
    fn check_resend(&self, session: usize, id: u16, before: u32, gap: u64) -> Result<(), String> {
        let due = self.resend_ms(before - 1);
        let log = &self.oracle.sessions[session];
        let is_asked_for = log.incoming.get(&id).is_some_and(|incoming| {
            self.sockets[incoming.socket]
                .hastened
                .iter()
                .any(|at| (incoming.appended - gap..=incoming.appended).contains(at))
        });
        if self.plan.retry().interval.is_zero() && !is_asked_for {
            return Err(format!("PUBLISH {id} is sent again, and redelivery is off"));
        }
        if gap + 1 < due && !is_asked_for {
            return Err(format!("PUBLISH {id} is sent again after {gap} ms, not {due}"));
        }
        let incoming = &self.oracle.sessions[session].incoming;
        let this = &incoming[&id];
        let passed_over = incoming.iter().find(|(_, o)| {
            o.socket == this.socket && o.place < this.place && !o.answered && o.receptions < this.receptions
        });
        match passed_over {
            // The older one may be the one that an operator took away.
            Some((older, _)) if self.oracle.sessions[session].skipped == 0 => {
                Err(format!("PUBLISH {id} is sent again before the older {older}"))
            }
            _ => Ok(()),
        }
    }

    /// A PUBLISH of an earlier connection came: all of those come in their order.
    fn check_resumed(&self, session: usize, id: u16, socket: usize) -> Result<(), String> {
        let incoming = &self.oracle.sessions[session].incoming;
        let this = &incoming[&id];
        let newer = |o: &Incoming| o.socket == socket && o.order > this.order && !o.unordered;
        match incoming.iter().find(|(_, o)| newer(o) && !this.unordered) {
            Some((newer, _)) => Err(format!("PUBLISH {id} is resumed after the newer {newer}")),
            None => Ok(()),
        }
    }

    /// How long the broker waits before it sends something for the `round + 1`-th time again,
    /// jitter apart.
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
        // A skipped message of a 3.x client makes room in the window at once.
        let skipped = if c.manners.version.is_v5() { 0 } else { self.oracle.sessions[session].skipped };
        let incoming = &self.oracle.sessions[session].incoming;
        let unfinished = incoming.values().filter(|i| Some(i.socket) == c.socket() && !i.finished).count();
        if unfinished > usize::from(most) + skipped {
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
        match log.incoming.get_mut(&id).filter(|i| i.recorded) {
            Some(incoming) => incoming.released = true,
            None if log.vague => {}
            None => return Err(format!("PUBREL {id} without a PUBREC")),
        }
        log.exactly_once.remove(&id);
        self.consider(client, AckKind::Pubcomp, id, again);
        Ok(())
    }

    /// Acknowledges now, later, or not before it is asked again. `again`: how often it has been
    /// already.
    fn consider(&mut self, client: usize, kind: AckKind, id: u16, again: u32) {
        let withholds = self.clients[client].manners.withholds;
        if self.phase != Phase::Chaos || !self.rng.percent(withholds / u64::from(again / 2 + 1)) {
            if let Some(connection) = self.clients[client].connection.as_mut() {
                connection.unanswered.remove(&(kind as u8, id));
            }
            return self.acknowledge(client, kind, id);
        }
        let Some(connection) = self.clients[client].connection.as_mut() else { return };
        let socket = connection.socket;
        connection.unanswered.insert((kind as u8, id));
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
            // The message may be one that an operator took away.
            let is_operated = self.oracle.sessions[session].skipped > 0;
            if c.manners.version.is_v5() || !connection.established || is_operated {
                continue;
            }
            let incoming = &self.oracle.sessions[session].incoming;
            let waiting = incoming.values().filter(|i| i.socket == connection.socket && !i.answered);
            let ack_wait = pace * (waiting.clone().count() as u64 + 1) + 20 * self.plan.network_ms + 1_000;
            let ack_wait = ack_wait + self.shortage.blocked_ms;
            let jitter = 1.0 + self.plan.retry().jitter;
            // The oldest is sent again first, as many in a tick as the outbox and the policy allow.
            // So one waits while older ones are due again.
            let older = |i: &Incoming| {
                let older = incoming.values().filter(|o| o.socket == i.socket && o.place < i.place);
                older.map(|o| o.received).max().unwrap_or(0)
            };
            let forgotten = waiting.clone().find(|i| {
                // It waits once more if other bytes are on their way at the first look.
                let due = 2 * (self.resend_ms(i.receptions - 1) as f64 * jitter) as u64;
                let due = i.received.max(c.stalled_until) + due;
                let put_off = self.sockets[connection.socket].put_off;
                self.now > due + ack_wait && self.now > older(i).max(put_off) + ack_wait
            });
            if let Some(forgotten) = forgotten.filter(|_| !self.sockets[connection.socket].severed) {
                let what = format!("client {client} waits in vain for another copy of {forgotten:?}");
                self.fail(what);
                return;
            }
        }
    }
}
