//! A lawful subscriber: it keeps its side of its session over all its connections, and checks what
//! it is sent.

mod delivery_log;

pub use delivery_log::{DeliveryLog, Interval};

use crate::link::{Came, Link};
use crate::support::client::subscribe_packet;
use crate::support::packet::{Ack, Connack, Granted};
use crate::support::rng::Rng;
use crate::support::{Connect, Kind, PATIENCE, Packet, Property, Publish, V5, Version, now};
use crate::trial::{Class, Pending, Stamp, Trial, acknowledge, unsubscribe};
use delivery_log::{Seen, Unacked};
use std::collections::VecDeque;
use std::time::Instant;

/// The plan of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    Away,
    AtOnce,
    /// So many at once, and fewer not at all.
    Every(usize),
    Withhold,
    /// PUBACK and PUBREC, but no PUBCOMP.
    NoPubcomp,
    /// Breaks off after some packets and comes back.
    Flutter,
    SubscribeAndLeave,
    /// Takes all until the marker comes.
    Drain,
}

/// The end of a connection.
enum Ended {
    Killed(Pending),
    Left,
    Through,
}

/// The state of one connection.
struct Connection {
    link: Link,
    connected: bool,
    /// Received and not acknowledged.
    to_acknowledge: VecDeque<(u16, u8)>,
    /// SUBSCRIBE or UNSUBSCRIBE under way.
    asked: Option<(u16, Kind, Class)>,
    packets: u64,
    last: Instant,
}

pub struct Subscriber {
    number: u64,
    version: Version,
    granted: u8,
    classes: Vec<Class>,
    rng: Rng,
    plan: Plan,
    away_for: u64,
    window: u16,
    starts_afresh: bool,
    /// A CONNACK came: the session has to be there.
    known: bool,
    /// A CONNECT with Clean Start went out, and its CONNACK has not come.
    afresh: bool,
    /// In this round its subscriptions were known to be as they should.
    is_settled: bool,
    next_id: u16,
    pub log: DeliveryLog,
}

impl Subscriber {
    pub fn new(number: u64, version: Version, granted: u8, classes: &[Class], rng: Rng) -> Subscriber {
        Subscriber {
            number,
            version,
            granted,
            classes: classes.to_vec(),
            rng,
            plan: Plan::Away,
            away_for: 0,
            window: u16::MAX,
            starts_afresh: false,
            known: false,
            afresh: false,
            is_settled: false,
            next_id: 1,
            log: DeliveryLog::default(),
        }
    }

    /// 5.0: now and then its session is deleted and begun again.
    pub fn starting_afresh_at_times(mut self) -> Subscriber {
        self.version = V5;
        self.starts_afresh = true;
        self
    }

    pub fn name(&self) -> String {
        format!("s{}", self.number)
    }

    /// Returns all that came to it, for whoever has to find out how a violation came about.
    pub fn history(&self) -> String {
        self.log.seen.iter().map(Seen::to_string).collect()
    }

    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    pub fn plan(&self) -> Plan {
        self.plan
    }

    pub fn set_plan(&mut self, plan: Plan) {
        self.plan = plan;
        self.window = u16::MAX;
    }

    pub fn draw_plan(&mut self) {
        let is_fleet = self.classes == [Class::Fleet];
        if is_fleet && !self.rng.percent(5) {
            self.plan = Plan::Away;
            return;
        }
        if self.away_for > 0 {
            self.away_for -= 1;
            self.plan = Plan::Away;
            return;
        }
        self.window = self.rng.pick(&[3, 20, u16::MAX]);
        self.plan = match self.rng.below(10) {
            0..=3 => Plan::AtOnce,
            4 => Plan::Every(self.rng.between(2, 30) as usize),
            5 => Plan::Withhold,
            6 => Plan::NoPubcomp,
            7 | 8 => Plan::Flutter,
            _ => {
                self.away_for = self.rng.between(0, 5);
                Plan::Away
            }
        };
        self.afresh |= self.starts_afresh && self.rng.percent(25);
    }

    /// Receives until the broker is gone, or the plan is through. What waited for an answer.
    pub fn run(&mut self, trial: &Trial) -> Pending {
        let mut same_life = false;
        self.is_settled = false;
        loop {
            match self.connection(trial, same_life) {
                Ended::Killed(pending) => {
                    trial.must_be_killed(&self.name());
                    return pending;
                }
                Ended::Through => return Pending::default(),
                Ended::Left => same_life = true,
            }
        }
    }

    fn connection(&mut self, trial: &Trial, same_life: bool) -> Ended {
        let unanswered = Ended::Killed(Pending { connects: 1, ..Pending::default() });
        let Some(mut link) = Link::open(trial.address(), self.version) else { return unanswered };
        // It may withhold acknowledgements for longer than any Keep Alive, and sends no PINGREQ.
        let mut connect = Connect::persistent(self.version, &self.name()).clean(self.afresh).keep_alive(0);
        if self.version == V5 {
            connect = connect.with(Property::ReceiveMaximum(self.window));
        }
        if self.afresh {
            self.log.leave_all(trial.moment());
        }
        link.put(&connect.encode());
        let (to_acknowledge, last) = (VecDeque::new(), now());
        let mut at = Connection { link, connected: false, to_acknowledge, asked: None, packets: 0, last };
        let leaves_after = self.rng.between(5, 60);
        loop {
            if at.connected {
                self.subscribe(trial, &mut at);
                self.tell_when_settled(trial, &at);
                if self.is_through(&at) {
                    at.link.flush();
                    return Ended::Through;
                }
            }
            match trial.next(&mut at.link, &self.name()) {
                Came::Packet(packet) => {
                    (at.packets, at.last) = (at.packets + 1, now());
                    self.take(trial, &mut at, &packet, same_life);
                    if self.plan == Plan::Flutter && at.connected && at.packets > leaves_after {
                        at.link.flush();
                        return Ended::Left;
                    }
                }
                Came::Nothing => {
                    if self.plan == Plan::Drain && at.last.elapsed() > PATIENCE {
                        let open = self.log.unreleased();
                        trial.violated(format!("{}: nothing comes; {open} at QoS 2 open", self.name()));
                        return Ended::Through;
                    }
                }
                Came::End if at.connected => return Ended::Killed(self.pending(&at)),
                Came::End => return unanswered,
            }
        }
    }

    fn pending(&self, at: &Connection) -> Pending {
        let receipts = self.log.receipts() as u64;
        Pending { subscriptions: u64::from(at.asked.is_some()), receipts, ..Pending::default() }
    }

    fn tell_when_settled(&mut self, trial: &Trial, at: &Connection) {
        let is_settled = at.asked.is_none() && self.classes.iter().all(|c| self.log.is_settled(*c));
        if is_settled && !self.is_settled {
            self.is_settled = true;
            trial.through();
        }
    }

    fn is_through(&self, at: &Connection) -> bool {
        match self.plan {
            Plan::SubscribeAndLeave => self.is_settled,
            Plan::Drain => {
                self.is_settled
                    && at.to_acknowledge.is_empty()
                    && self.log.unreleased() == 0
                    && self.log.is_marked()
            }
            _ => false,
        }
    }

    /// Asks for what it wants, one thing at a time, until it is answered.
    fn subscribe(&mut self, trial: &Trial, at: &mut Connection) {
        if at.asked.is_some() {
            return;
        }
        let turns = !matches!(self.plan, Plan::Drain | Plan::SubscribeAndLeave) && self.rng.percent(3);
        for class in self.classes.clone() {
            let turns = turns && class == Class::Changing;
            let wanted = class != Class::Changing;
            let interval = self.log.last(class);
            let kind = match interval {
                Some(Interval { left: None, leaving: Some(_), .. }) => Kind::Unsuback,
                Some(Interval { left: None, granted: Some(_), .. }) if turns => Kind::Unsuback,
                Some(Interval { left: None, granted: Some(_), .. }) => continue,
                Some(Interval { left: None, .. }) => Kind::Suback,
                _ if wanted || turns => Kind::Suback,
                _ => continue,
            };
            let (id, filter) = (self.next_id, class.filter());
            self.next_id = self.next_id.checked_add(1).unwrap_or(1);
            let packet = if kind == Kind::Suback {
                self.log.ask(class, trial.moment());
                subscribe_packet(self.version, id, &[], &[(&filter, self.granted)])
            } else {
                self.log.leave(class, trial.moment());
                unsubscribe(self.version, id, &filter)
            };
            at.link.put(&packet);
            at.asked = Some((id, kind, class));
            return;
        }
    }

    fn take(&mut self, trial: &Trial, at: &mut Connection, packet: &Packet, same_life: bool) {
        match packet {
            Packet::Connack(connack) => self.accepted(trial, at, connack, same_life),
            Packet::Granted(granted) => self.answered(trial, at, granted),
            Packet::Publish(publish) => self.received(trial, at, publish),
            Packet::Ack(ack) if ack.kind == Kind::Pubrel => self.released(trial, at, ack),
            other => trial.unexpected(&self.name(), other),
        }
    }

    fn accepted(&mut self, trial: &Trial, at: &mut Connection, connack: &Connack, same_life: bool) {
        at.connected = true;
        let moment = trial.count_acknowledgement();
        if connack.code != 0 {
            return trial.violated(format!("{}: refused, {connack:?}", self.name()));
        }
        let present = connack.session_present;
        if self.afresh {
            if present {
                trial.violated(format!("{}: Session Present after Clean Start", self.name()));
            }
            self.log.begin_afresh(moment);
        } else if self.known && !present {
            trial.violated(format!("{}: its session is gone", self.name()));
        }
        (self.known, self.afresh) = (true, false);
        self.log.reconnected(same_life, trial.round());
    }

    fn answered(&mut self, trial: &Trial, at: &mut Connection, granted: &Granted) {
        let moment = trial.count_acknowledgement();
        match at.asked.take() {
            Some((id, kind, class)) if (id, kind) == (granted.id, granted.kind) => {
                if kind == Kind::Suback && granted.codes != [self.granted] {
                    trial.violated(format!("{}: {granted:?}", self.name()));
                }
                self.log.answered(class, kind, moment);
            }
            other => trial.violated(format!("{}: {granted:?} where {other:?} was due", self.name())),
        }
    }

    fn received(&mut self, trial: &Trial, at: &mut Connection, publish: &Publish) {
        let Some(stamp) = Stamp::of(&publish.topic, &publish.payload) else {
            return trial.violated(format!("{}: not ours: {publish:?}", self.name()));
        };
        if publish.qos != self.granted.min(stamp.series.qos) {
            trial.violated(format!("{}: {stamp} at QoS {}", self.name(), publish.qos));
        }
        // 5.0 [MQTT-4.4.0-1]
        if self.version == V5 && publish.dup && self.log.came_here(publish.id, stamp) {
            trial.violated(format!("{}: {stamp} came twice on one connection", self.name()));
        }
        let unacked = Unacked { id: publish.id, stamp, qos: publish.qos, firm: publish.qos == 2 };
        for fault in self.log.received(unacked, publish.dup) {
            trial.violated(format!("{}: {fault}", self.name()));
        }
        at.to_acknowledge.push_back((publish.id, publish.qos));
        let due = match self.plan {
            Plan::Withhold => usize::MAX,
            Plan::Every(count) => count.min(self.window.into()),
            _ => 1,
        };
        if at.to_acknowledge.len() >= due {
            for (id, qos) in at.to_acknowledge.drain(..) {
                self.log.acknowledged(id, qos);
                acknowledge(&mut at.link, if qos == 1 { Kind::Puback } else { Kind::Pubrec }, id);
            }
        }
    }

    fn released(&mut self, trial: &Trial, at: &mut Connection, ack: &Ack) {
        trial.count_acknowledgement();
        if ack.code != 0 {
            trial.violated(format!("{}: {ack:?}", self.name()));
        }
        if let Some(fault) = self.log.released(ack.id) {
            trial.violated(format!("{}: {fault}", self.name()));
        }
        if self.plan != Plan::NoPubcomp {
            acknowledge(&mut at.link, Kind::Pubcomp, ack.id);
        }
    }
}
