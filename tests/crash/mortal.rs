//! A client whose every connection has a will of its own, without delay: each goes out once, the
//! broker's death or not.

use crate::link::{Came, Link};
use crate::publisher::Fate;
use crate::support::{Connect, Packet, Version, Will};
use crate::trial::{Class, Pending, Series, Stamp, Trial};

pub struct Mortal {
    series: Series,
    version: Version,
    finishes: bool,
    /// A will is promised by the CONNACK of its connection, and kept by that of the next: it has
    /// gone out by then.
    pub fates: Vec<Fate>,
    /// For each connection: true if its CONNACK came, so that its will is stored.
    stored: Vec<bool>,
}

impl Mortal {
    pub fn new(number: u64, version: Version) -> Mortal {
        let series = Series { class: Class::Shared, publisher: number, qos: 2 };
        Mortal { series, version, finishes: false, fates: Vec::new(), stored: Vec::new() }
    }

    pub fn series(&self) -> Series {
        self.series
    }

    /// The next connection is the last, has no will and ends in order.
    pub fn finish(&mut self) {
        self.finishes = true;
    }

    /// Is connected until the broker is gone. What was unanswered.
    pub fn run(&mut self, trial: &Trial) -> Pending {
        let name = format!("m{}", self.series.publisher);
        let unanswered = Pending { connects: 1, ..Pending::default() };
        let Some(mut link) = Link::open(trial.address(), self.version) else {
            trial.must_be_killed(&name);
            return unanswered;
        };
        let mut connect = Connect::persistent(self.version, &name);
        let earlier = self.fates.len();
        if !self.finishes {
            let stamp = Stamp { series: self.series, number: earlier };
            connect = connect.will(Will::new(self.series.topic(), stamp.payload()).qos(2));
            self.fates.push(Fate { sent: trial.moment(), acknowledged: None, round: 0 });
            self.stored.push(false);
        }
        link.put(&connect.encode());
        let mut pending = unanswered;
        loop {
            match trial.next(&mut link, &name) {
                Came::Packet(Packet::Connack(_)) => {
                    pending = Pending::default();
                    self.connected(trial, earlier);
                    if self.finishes {
                        link.put(&[0xE0, 0]);
                    }
                }
                Came::Packet(other) => trial.unexpected(&name, &other),
                Came::Nothing => {}
                Came::End => {
                    if !self.finishes {
                        trial.must_be_killed(&name);
                    }
                    trial.through();
                    return pending;
                }
            }
        }
    }

    fn connected(&mut self, trial: &Trial, earlier: usize) {
        let moment = trial.count_acknowledgement();
        for (fate, stored) in self.fates.iter_mut().zip(&self.stored).take(earlier) {
            if *stored && fate.acknowledged.is_none() {
                (fate.acknowledged, fate.round) = (Some(moment), trial.round());
            }
        }
        self.stored[earlier..].fill(true);
    }
}
