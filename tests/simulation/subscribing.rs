//! What a client subscribes to, and the answers.

use crate::client::{Asked, packet_id};
use crate::oracle::Subscription;
use crate::shortage::Short;
use crate::topics::{FILTERS, is_share};
use crate::world::World;
use homing::mqtt::packet::{
    Packet, Properties, QoS, ReasonCode, RetainHandling, Subscribe, SubscribeFilter, SubscriptionOptions,
    Unsubscribe,
};

/// SUBSCRIBEs and UNSUBSCRIBEs without an answer at most.
const MOST_ASKED: usize = 3;

impl World {
    pub(crate) fn change_subscriptions(&mut self, client: usize) {
        let c = &self.clients[client];
        let (Some(connection), Some(session)) = (&c.connection, c.session) else { return };
        if connection.asked.len() >= MOST_ASKED {
            return;
        }
        if self.plan.work.is_some() {
            return self.join_work(client, session);
        }
        let log = &self.oracle.sessions[session];
        let active: Vec<&str> =
            log.subscriptions.iter().filter(|s| s.leaving.is_none()).map(|s| s.filter).collect();
        if self.rng.percent(30) {
            let known = !active.is_empty() && self.rng.percent(90);
            let among: &[&str] = if known { &active } else { &FILTERS };
            let filter = self.rng.pick(among);
            return self.unsubscribe(client, session, filter);
        }
        let mut filters = vec![self.rng.pick(&FILTERS)];
        if self.rng.percent(20) {
            filters.push(self.rng.pick(&FILTERS));
            filters.dedup();
        }
        self.subscribe(client, session, &filters);
    }

    fn unsubscribe(&mut self, client: usize, session: usize, filter: &str) {
        let id = self.clients[client].id();
        let existed = self.has_subscription(client, session, filter);
        let ends = self.supersede(session, filter);
        self.note_asked(client, Asked { id, begins: Vec::new(), ends, unsubscribes: Some(existed) });
        let unsubscribe =
            Unsubscribe { packet_id: packet_id(id), properties: Properties::EMPTY, filters: vec![filter] };
        self.send(client, &Packet::Unsubscribe(unsubscribe));
    }

    pub(crate) fn subscribe(&mut self, client: usize, session: usize, filters: &[&'static str]) {
        let c = &mut self.clients[client];
        let id = c.id();
        let identifier = c.manners.identifies.then(|| {
            c.identifiers += 1;
            c.identifiers
        });
        let (mut begins, mut ends, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
        for filter in filters {
            let options = self.draw_options(client, filter);
            let replaces = self.has_subscription(client, session, filter);
            ends.extend(self.supersede(session, filter));
            let log = &mut self.oracle.sessions[session];
            begins.push(log.subscriptions.len());
            log.subscriptions.push(Subscription {
                filter,
                options,
                id: identifier,
                asked: self.now,
                replaces,
                in_force: None,
                in_force_event: 0,
                leaving: None,
                left: None,
                awaits: Default::default(),
            });
            wanted.push(SubscribeFilter { filter, options });
        }
        self.note_asked(client, Asked { id, begins, ends, unsubscribes: None });
        let subscribe = Subscribe {
            packet_id: packet_id(id),
            subscription_id: identifier,
            properties: Properties::EMPTY,
            filters: wanted,
        };
        self.send(client, &Packet::Subscribe(subscribe));
    }

    fn draw_options(&mut self, client: usize, filter: &str) -> SubscriptionOptions {
        let share = is_share(filter) || filter.starts_with("$dead/");
        // A member of a shared group at QoS 0 may lose what another would not have.
        let lowest = if share { QoS::AtLeastOnce } else { QoS::AtMostOnce };
        let qos = self.rng.pick(&[lowest, QoS::AtLeastOnce, QoS::ExactlyOnce, QoS::ExactlyOnce]);
        if !self.clients[client].manners.version.is_v5() {
            return SubscriptionOptions { qos, ..SubscriptionOptions::default() };
        }
        SubscriptionOptions {
            qos,
            // 5.0 [MQTT-3.8.3-4]
            no_local: !share && self.rng.percent(30),
            retain_as_published: self.rng.percent(40),
            retain_handling: self.rng.pick(&[
                RetainHandling::SendAtSubscribe,
                RetainHandling::SendIfNew,
                RetainHandling::DoNotSend,
            ]),
        }
    }

    /// Whether the session has a subscription to this filter when the broker comes to what is sent
    /// now; not always known.
    fn has_subscription(&self, client: usize, session: usize, filter: &str) -> Option<bool> {
        let subscriptions = &self.oracle.sessions[session].subscriptions;
        let Some(at) = subscriptions.iter().rposition(|s| s.filter == filter) else { return Some(false) };
        let last = &subscriptions[at];
        // What this connection asked before is done before.
        let asked = || self.clients[client].connection.iter().flat_map(|c| &c.asked);
        let begins = asked().any(|a| a.begins.contains(&at));
        let ends = asked().any(|a| a.ends.contains(&at) && a.unsubscribes.is_some());
        match (last.leaving, last.left) {
            // One without an answer may be refused, where there are shortages.
            (None, _) => (last.in_force.is_some() || begins && !self.shortage.plays).then_some(true),
            (_, Some(_)) => Some(false),
            _ => ends.then_some(false),
        }
    }

    /// The session's subscriptions to this filter no longer count on.
    fn supersede(&mut self, session: usize, filter: &str) -> Vec<usize> {
        let subscriptions = &mut self.oracle.sessions[session].subscriptions;
        let mut affected = Vec::new();
        for (at, s) in subscriptions.iter_mut().enumerate().filter(|(_, s)| s.filter == filter) {
            s.leaving.get_or_insert(self.now);
            affected.push(at);
        }
        affected
    }

    fn note_asked(&mut self, client: usize, asked: Asked) {
        if let Some(connection) = self.clients[client].connection.as_mut() {
            connection.asked.push_back(asked);
        }
    }

    /// The answer with this identifier came: what it was asked.
    fn answered(&mut self, client: usize, id: u16) -> Result<(usize, Asked), String> {
        let c = &mut self.clients[client];
        let (Some(connection), Some(session)) = (c.connection.as_mut(), c.session) else {
            return Err("an answer without a session".into());
        };
        match connection.asked.pop_front_if(|asked| asked.id == id) {
            Some(asked) => Ok((session, asked)),
            None => Err(format!("SUBACK or UNSUBACK {id} is not the answer that is due")),
        }
    }

    fn end_subscriptions(&mut self, session: usize, ends: &[usize]) {
        for at in ends {
            self.oracle.sessions[session].subscriptions[*at].left.get_or_insert(self.now);
        }
    }

    // 3.1.1 and 5.0 [MQTT-3.8.4-1], [MQTT-3.8.4-6] or [MQTT-3.8.4-7]
    pub(crate) fn got_suback(
        &mut self,
        client: usize,
        id: u16,
        reasons: &[ReasonCode],
    ) -> Result<(), String> {
        let (session, asked) = self.answered(client, id)?;
        let subscriptions = &mut self.oracle.sessions[session].subscriptions;
        let granted: Vec<ReasonCode> =
            asked.begins.iter().map(|at| subscriptions[*at].options.qos.into()).collect();
        let fit = |(reason, granted): (&ReasonCode, &ReasonCode)| reason == granted || reason.is_error();
        let fit = reasons.len() == granted.len() && reasons.iter().zip(&granted).all(fit);
        if !fit || asked.unsubscribes.is_some() {
            return Err(format!("SUBACK {id} says {reasons:?}, not {granted:?}"));
        }
        self.end_subscriptions(session, &asked.ends);
        for (at, reason) in asked.begins.into_iter().zip(reasons) {
            self.check_granted(client, session, at, *reason)?;
            let subscription = &mut self.oracle.sessions[session].subscriptions[at];
            if reason.is_error() {
                subscription.leaving.get_or_insert(self.now);
                subscription.left = Some(self.now);
                self.saw("a SUBSCRIBE is refused for want of room");
            } else {
                (subscription.in_force, subscription.in_force_event) = (Some(self.now), self.events);
                self.oracle.expect_retained(self.now, session, at);
            }
        }
        Ok(())
    }

    /// What is new is refused where there is no room for it, and only then; what the session has is
    /// not.
    fn check_granted(
        &self,
        client: usize,
        session: usize,
        at: usize,
        reason: ReasonCode,
    ) -> Result<(), String> {
        let log = &self.oracle.sessions[session];
        let (s, now) = (&log.subscriptions[at], self.now);
        let offer = self.clients[client].socket().map(|socket| &self.sockets[socket].offer);
        let stored = self.disk.is_some() && offer.is_some_and(|offer| offer.expiry > 0);
        let needs = |short: Short| short == Short::Memory || stored;
        if reason.is_error() {
            // 3.x has one code for all.
            let v5 = self.clients[client].manners.version.is_v5();
            let due = if v5 { ReasonCode::QUOTA_EXCEEDED } else { ReasonCode::UNSPECIFIED_ERROR };
            let is_known = s.replaces == Some(true) && !log.vague;
            if reason != due || is_known || !self.oracle.was_short(s.asked, now) {
                return Err(format!("SUBACK refuses {s:?} with {reason:?}"));
            }
        } else if s.replaces == Some(false) && !log.vague && self.oracle.had_none(s.asked, now, needs) {
            return Err(format!("SUBACK grants {s:?} without room"));
        }
        Ok(())
    }

    // 3.1.1 and 5.0 [MQTT-3.10.4-4], 5.0 [MQTT-3.11.3-1]
    pub(crate) fn got_unsuback(
        &mut self,
        client: usize,
        id: u16,
        reasons: &[ReasonCode],
    ) -> Result<(), String> {
        let (session, asked) = self.answered(client, id)?;
        let Some(existed) = asked.unsubscribes else {
            return Err(format!("UNSUBACK {id} answers a SUBSCRIBE"));
        };
        // What a vague session is subscribed to nobody knows.
        let existed = existed.filter(|_| !self.oracle.sessions[session].vague);
        if let (true, Some(existed)) = (self.clients[client].manners.version.is_v5(), existed) {
            let due = if existed { ReasonCode::SUCCESS } else { ReasonCode::NO_SUBSCRIPTION_EXISTED };
            if reasons != [due] {
                return Err(format!("UNSUBACK {id} says {reasons:?}, not {due:?}"));
            }
        }
        self.end_subscriptions(session, &asked.ends);
        Ok(())
    }
}
