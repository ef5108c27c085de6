//! A lawful publisher with a session: what is unanswered when the broker dies is sent again, with
//! DUP, in its order.

use crate::link::{Came, Link};
use crate::support::rng::Rng;
use crate::support::{Connect, Kind, Message, Packet, Version};
use crate::trial::{Class, Pending, Series, Stamp, Trial, acknowledge};
use std::collections::{BTreeMap, VecDeque};

/// When a message was first sent, and when its PUBACK or PUBREC came.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    pub sent: u64,
    pub acknowledged: Option<u64>,
    /// The round that it was answered in.
    pub round: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Sent,
    /// PUBREC came.
    Received,
}

#[derive(Clone, Copy, Debug)]
struct Exchange {
    id: u16,
    stamp: Stamp,
    stage: Stage,
    /// Its PUBREL went out on an earlier connection: the broker may be through with it.
    released: bool,
}

pub struct Publisher {
    number: u64,
    version: Version,
    series: Vec<Series>,
    rng: Rng,
    /// A CONNACK came: the session has to be there.
    known: bool,
    exchanges: VecDeque<Exchange>,
    next_id: u16,
    window: usize,
    /// New messages in this round at most.
    left: u64,
    /// PUBRELs are kept back in this round.
    releases: bool,
    pub fates: BTreeMap<Series, Vec<Fate>>,
}

impl Publisher {
    pub fn new(number: u64, version: Version, classes: &[Class], rng: Rng) -> Publisher {
        let qos =
            |class: Class| if class == Class::Retained { vec![2 - (number % 2) as u8] } else { vec![1, 2] };
        let of = |class: &Class| qos(*class).into_iter().map(|qos| (*class, qos)).collect::<Vec<_>>();
        let series = classes.iter().flat_map(of).map(|(class, qos)| Series { class, publisher: number, qos });
        Publisher {
            number,
            version,
            series: series.collect(),
            rng,
            known: false,
            exchanges: VecDeque::new(),
            next_id: 1,
            window: 1,
            left: 0,
            releases: true,
            fates: BTreeMap::new(),
        }
    }

    pub fn draw_plan(&mut self) {
        let is_fleet = self.series.iter().any(|s| s.class == Class::Fleet);
        self.window = self.rng.pick(&[1, 2, 8, 40, 90]);
        self.left = if is_fleet { self.rng.between(3, 15) } else { self.rng.between(20, 200) };
        self.releases = !self.rng.percent(15);
    }

    /// From here on it only ends what it began.
    pub fn finish(&mut self) {
        (self.left, self.releases) = (0, true);
    }

    fn name(&self) -> String {
        format!("p{}", self.number)
    }

    /// Publishes until the broker is gone, or all is answered and nothing is left to do. What was
    /// unanswered.
    pub fn run(&mut self, trial: &Trial) -> Pending {
        let pending = self.publish(trial);
        trial.through();
        pending
    }

    fn publish(&mut self, trial: &Trial) -> Pending {
        let is_last = self.left == 0;
        let connects = Pending { connects: 1, ..Pending::default() };
        let Some(mut link) = Link::open(trial.address(), self.version) else {
            trial.must_be_killed(&self.name());
            return connects;
        };
        // With nothing left to send it sends no PINGREQ.
        link.put(&Connect::persistent(self.version, &self.name()).keep_alive(0).encode());
        let mut connected = false;
        loop {
            if connected {
                self.fill_window(trial, &mut link);
            }
            if is_last && connected && self.exchanges.is_empty() {
                return Pending::default();
            }
            match trial.next(&mut link, &self.name()) {
                Came::Packet(Packet::Connack(connack)) => {
                    connected = true;
                    trial.count_acknowledgement();
                    if self.known && !connack.session_present {
                        trial.violated(format!("{}: its session is gone", self.name()));
                    }
                    self.known = true;
                    self.resend(&mut link);
                }
                Came::Packet(packet) => self.take(trial, &mut link, &packet),
                Came::Nothing => {}
                Came::End => {
                    trial.must_be_killed(&self.name());
                    if connected && self.releases {
                        let received = self.exchanges.iter_mut().filter(|e| e.stage == Stage::Received);
                        received.for_each(|e| e.released = true);
                    }
                    return if connected { self.pending() } else { connects };
                }
            }
        }
    }

    fn pending(&self) -> Pending {
        let at = |stage| self.exchanges.iter().filter(|e| e.stage == stage).count() as u64;
        let releases = if self.releases { at(Stage::Received) } else { 0 };
        Pending { publishes: at(Stage::Sent), releases, ..Pending::default() }
    }

    /// 3.1.1 and 5.0 [MQTT-4.4.0-1]
    fn resend(&mut self, link: &mut Link) {
        for exchange in &self.exchanges {
            match exchange.stage {
                Stage::Sent => link.put(&packet(link.version(), exchange, true)),
                Stage::Received if self.releases => acknowledge(link, Kind::Pubrel, exchange.id),
                Stage::Received => {}
            }
        }
    }

    fn fill_window(&mut self, trial: &Trial, link: &mut Link) {
        while self.left > 0 && self.exchanges.len() < self.window {
            self.left -= 1;
            let series = self.series[self.rng.below(self.series.len() as u64) as usize];
            let fates = self.fates.entry(series).or_default();
            let stamp = Stamp { series, number: fates.len() };
            fates.push(Fate { sent: trial.moment(), acknowledged: None, round: 0 });
            let exchange = Exchange { id: self.free_id(), stamp, stage: Stage::Sent, released: false };
            link.put(&packet(self.version, &exchange, false));
            self.exchanges.push_back(exchange);
        }
    }

    fn free_id(&mut self) -> u16 {
        loop {
            let id = self.next_id;
            self.next_id = self.next_id.checked_add(1).unwrap_or(1);
            if self.exchanges.iter().all(|e| e.id != id) {
                return id;
            }
        }
    }

    fn take(&mut self, trial: &Trial, link: &mut Link, packet: &Packet) {
        let Packet::Ack(ack) = packet else {
            return trial.unexpected(&self.name(), packet);
        };
        let moment = trial.count_acknowledgement();
        let stage = if ack.kind == Kind::Pubcomp { Stage::Received } else { Stage::Sent };
        let qos = if ack.kind == Kind::Puback { 1 } else { 2 };
        let matches = |e: &&Exchange| e.stage == stage && e.stamp.series.qos == qos;
        // 3.1.1 [MQTT-4.6.0-2], [MQTT-4.6.0-3], 5.0 the same: in the order of what they answer.
        let first = self.exchanges.iter().find(matches).map(|e| e.id);
        if ack.kind != Kind::Pubcomp && first != Some(ack.id) {
            trial.violated(format!("{}: {ack:?} where {first:?} was due", self.name()));
        }
        let Some(at) = self.exchanges.iter().position(|e| e.id == ack.id && matches(&e)) else {
            return trial.violated(format!("{}: {ack:?} answers nothing", self.name()));
        };
        let Exchange { stamp, released, .. } = self.exchanges[at];
        // Packet Identifier not found
        if ack.code >= 0x80 && !(ack.kind == Kind::Pubcomp && ack.code == 0x92 && released) {
            trial.violated(format!("{}: refused, {ack:?}", self.name()));
        }
        if ack.kind != Kind::Pubcomp
            && let Some(fate) = self.fates.get_mut(&stamp.series).and_then(|f| f.get_mut(stamp.number))
        {
            (fate.acknowledged, fate.round) = (Some(moment), trial.round());
        }
        if ack.kind == Kind::Pubrec {
            self.exchanges[at].stage = Stage::Received;
            if self.releases {
                acknowledge(link, Kind::Pubrel, ack.id);
            }
        } else {
            self.exchanges.remove(at);
        }
    }
}

fn packet(version: Version, exchange: &Exchange, dup: bool) -> Vec<u8> {
    let Stamp { series, .. } = exchange.stamp;
    let message = Message::new(series.topic(), exchange.stamp.payload()).qos(series.qos);
    let message = Message { dup, retain: series.class == Class::Retained, ..message };
    message.encode(version, exchange.id)
}
