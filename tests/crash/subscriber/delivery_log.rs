//! The record of one session's client: its unacknowledged messages, all messages that came, and the
//! times of its subscriptions.

use crate::support::Kind;
use crate::trial::{Class, MARKER, Series, Stamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

/// A subscription in time; what is not set has not happened so far as is known.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    /// SUBSCRIBE went out.
    pub asked: u64,
    pub granted: Option<u64>,
    /// UNSUBSCRIBE, or CONNECT with Clean Start, went out.
    pub leaving: Option<u64>,
    pub left: Option<u64>,
    /// Of which of the client's sessions.
    pub incarnation: u64,
}

/// A delivery without PUBACK or PUBREC.
#[derive(Clone, Copy, Debug)]
pub struct Unacked {
    pub id: u16,
    pub stamp: Stamp,
    pub qos: u8,
    /// Its identifier is known to be recorded.
    pub firm: bool,
}

#[derive(Clone, Copy, Debug)]
struct Unreleased {
    stamp: Stamp,
    /// PUBREC went out.
    receipt: bool,
}

/// Something that came, for whoever has to find out how a violation came about.
#[derive(Clone, Copy, Debug)]
pub enum Seen {
    /// CONNACK, in this round.
    Connected {
        round: u64,
    },
    Publish {
        id: u16,
        stamp: Stamp,
        dup: bool,
    },
    Pubrel {
        id: u16,
    },
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seen::Connected { round } => write!(f, "\n  round {round}:"),
            Seen::Publish { id, stamp, dup } => {
                write!(f, " {stamp} ({id}{})", if *dup { ", DUP" } else { "" })
            }
            Seen::Pubrel { id } => write!(f, " PUBREL {id}"),
        }
    }
}

#[derive(Default)]
pub struct DeliveryLog {
    intervals: BTreeMap<Class, Vec<Interval>>,
    pub incarnation: u64,
    /// QoS 2 identifiers between PUBLISH and PUBREL.
    unreleased: BTreeMap<u16, Unreleased>,
    /// Unacknowledged messages, in the order in which they came.
    unacked: Vec<Unacked>,
    /// The messages of earlier connections that have not come again.
    expected: VecDeque<Unacked>,
    /// The messages that came, each with the number of its session.
    pub arrivals: BTreeSet<(Stamp, u64)>,
    latest: BTreeMap<Series, usize>,
    /// Messages that first came after a later one of their series, with the number of that one.
    pub disorders: Vec<(Stamp, usize)>,
    marked: bool,
    /// All packets that came, in their order.
    pub seen: Vec<Seen>,
}

/// Subscribing.
impl DeliveryLog {
    pub fn intervals(&self, class: Class) -> &[Interval] {
        self.intervals.get(&class).map_or(&[], Vec::as_slice)
    }

    pub fn last(&self, class: Class) -> Option<Interval> {
        self.intervals(class).last().copied()
    }

    /// Returns true if it is known that the subscription is in force, or that it is not. A
    /// subscription that is always wanted must be in force.
    pub fn is_settled(&self, class: Class) -> bool {
        match self.last(class) {
            None => class == Class::Changing,
            Some(Interval { left: Some(_), .. }) => class == Class::Changing,
            Some(Interval { granted, leaving, .. }) => granted.is_some() && leaving.is_none(),
        }
    }

    /// SUBSCRIBE goes out, perhaps again.
    pub fn ask(&mut self, class: Class, moment: u64) {
        let incarnation = self.incarnation;
        let all = self.intervals.entry(class).or_default();
        if all.last().is_none_or(|last| last.left.is_some()) {
            all.push(Interval { asked: moment, granted: None, leaving: None, left: None, incarnation });
        }
    }

    pub fn leave(&mut self, class: Class, moment: u64) {
        if let Some(last) = self.intervals.get_mut(&class).and_then(|all| all.last_mut()) {
            last.leaving.get_or_insert(moment);
        }
    }

    pub fn answered(&mut self, class: Class, kind: Kind, moment: u64) {
        if let Some(last) = self.intervals.get_mut(&class).and_then(|all| all.last_mut()) {
            let at = if kind == Kind::Suback { &mut last.granted } else { &mut last.left };
            *at = Some(moment);
        }
    }

    /// A CONNECT with Clean Start goes out.
    pub fn leave_all(&mut self, moment: u64) {
        let open = self.intervals.values_mut().filter_map(|all| all.last_mut()).filter(|i| i.left.is_none());
        for interval in open {
            interval.leaving.get_or_insert(moment);
        }
    }

    /// Its CONNACK came.
    pub fn begin_afresh(&mut self, moment: u64) {
        let open = self.intervals.values_mut().filter_map(|all| all.last_mut()).filter(|i| i.left.is_none());
        for interval in open {
            interval.left = Some(moment);
        }
        self.incarnation += 1;
        self.unreleased.clear();
        self.unacked.clear();
        self.expected.clear();
    }
}

/// Receiving.
impl DeliveryLog {
    /// Identifiers between PUBLISH and PUBREL.
    pub fn unreleased(&self) -> usize {
        self.unreleased.len()
    }

    /// Returns the number of messages whose PUBREC was sent.
    pub fn receipts(&self) -> usize {
        self.unreleased.values().filter(|h| h.receipt).count()
    }

    pub fn is_marked(&self) -> bool {
        self.marked
    }

    /// From here on, unacknowledged messages are to come again. `same_life`: the broker has not
    /// restarted, so that it has them in memory.
    pub fn reconnected(&mut self, same_life: bool, round: u64) {
        self.seen.push(Seen::Connected { round });
        // Nothing new came while some were expected, so these are the older ones.
        let unacked = self.unacked.drain(..).map(|u| Unacked { firm: u.firm || same_life, ..u });
        let mut all: VecDeque<Unacked> = unacked.collect();
        all.extend(self.expected.drain(..));
        self.expected = all;
    }

    /// A PUBLISH at QoS 1 or 2 came. What is wrong with it.
    pub fn received(&mut self, mut came: Unacked, dup: bool) -> Vec<String> {
        let mut faults = Vec::new();
        let Unacked { id, stamp, qos, .. } = came;
        let repeated = dup && self.came_here(id, stamp);
        self.seen.push(Seen::Publish { id, stamp, dup });
        let before = self.unreleased.get(&id).copied();
        let again = before.is_some() && qos == 2;
        if dup {
            let at = self.expected.iter().position(|e| (e.id, e.stamp) == (id, stamp));
            if let Some(at) = at {
                for passed in self.expected.drain(..=at) {
                    let same = (passed.id, passed.stamp) == (id, stamp);
                    came.firm |= same && passed.firm;
                    if passed.firm && !same {
                        faults.push(format!("{stamp} came again before {} (id {})", passed.stamp, passed.id));
                    }
                }
            }
        } else {
            for missing in self.expected.drain(..).filter(|e| e.firm) {
                let Unacked { id, stamp: older, .. } = missing;
                faults.push(format!("{stamp} is new, and {older} (id {id}) did not come again"));
            }
            if qos == 2 {
                self.unacked.iter_mut().for_each(|u| u.firm = true);
            }
        }
        if qos == 2 {
            let delivered = self.has_arrived(stamp);
            match before {
                Some(open) if open.stamp != stamp => {
                    faults.push(format!("{stamp} (id {id}) while {} holds that identifier", open.stamp));
                }
                Some(_) if !dup => faults.push(format!("{stamp} (id {id}) again without DUP")),
                Some(_) => {}
                None if delivered => faults.push(format!("{stamp} (id {id}, dup {dup}) a second time")),
                None => {}
            }
            // The PUBREC for its first copy on this connection may be under way.
            let receipt = repeated && before.is_some_and(|open| open.receipt);
            self.unreleased.insert(id, Unreleased { stamp, receipt });
        }
        if !again {
            self.arrived(stamp);
        }
        if !repeated {
            self.unacked.push(came);
        }
        self.marked |= stamp.series.publisher == MARKER;
        faults
    }

    /// Returns true if this PUBLISH has come on this connection. In 3.1.1 a broker may repeat one that is not
    /// acknowledged, and Homing does so after `redelivery.interval`. It is owed once all the same.
    pub fn came_here(&self, id: u16, stamp: Stamp) -> bool {
        let here = self.seen.iter().rev().take_while(|seen| !matches!(seen, Seen::Connected { .. }));
        let mut publishes = here.filter_map(|seen| match seen {
            Seen::Publish { id, stamp, .. } => Some((*id, *stamp)),
            _ => None,
        });
        publishes.any(|came| came == (id, stamp))
    }

    fn has_arrived(&self, stamp: Stamp) -> bool {
        self.arrivals.range((stamp, 0)..=(stamp, u64::MAX)).next().is_some()
    }

    /// Of a message that does not come again under its identifier.
    fn arrived(&mut self, stamp: Stamp) {
        let first = !self.has_arrived(stamp);
        self.arrivals.insert((stamp, self.incarnation));
        if first {
            let latest = self.latest.entry(stamp.series).or_default();
            if *latest > stamp.number {
                self.disorders.push((stamp, *latest));
            }
            *latest = stamp.number.max(*latest);
        }
    }

    /// PUBACK or PUBREC goes out.
    pub fn acknowledged(&mut self, id: u16, qos: u8) {
        self.unacked.retain(|u| (u.id, u.qos) != (id, qos));
        if qos == 2
            && let Some(open) = self.unreleased.get_mut(&id)
        {
            open.receipt = true;
        }
    }

    /// PUBREL came.
    pub fn released(&mut self, id: u16) -> Option<String> {
        self.seen.push(Seen::Pubrel { id });
        let open = self.unreleased.remove(&id)?;
        (!open.receipt).then(|| format!("PUBREL {id} for {} without PUBREC", open.stamp))
    }
}

mod tests {
    use super::*;

    const SERIES: Series = Series { class: Class::Fleet, publisher: 0, qos: 2 };

    fn publish(id: u16, number: usize) -> Unacked {
        Unacked { id, stamp: Stamp { series: SERIES, number }, qos: 2, firm: true }
    }

    /// A client that got messages and kept its PUBRECs back until they came again on the connection.
    fn withheld(count: u16) -> DeliveryLog {
        let mut log = DeliveryLog::default();
        log.reconnected(false, 0);
        for dup in [false, true] {
            for id in 1..=count {
                assert_eq!(log.received(publish(id, id.into()), dup), [""; 0]);
            }
        }
        log
    }

    #[test]
    fn what_was_repeated_on_one_connection_is_owed_once_on_the_next() {
        let mut log = withheld(3);
        log.reconnected(false, 1);
        for id in 1..=3 {
            assert_eq!(log.received(publish(id, id.into()), true), [""; 0]);
        }
        assert_eq!(log.received(publish(4, 4), false), [""; 0]);
    }

    #[test]
    fn what_was_repeated_and_does_not_come_on_the_next_connection_is_missed() {
        let mut log = withheld(2);
        log.reconnected(false, 1);
        assert_eq!(log.received(publish(2, 2), true), ["f/0/2 #2 came again before f/0/2 #1 (id 1)"]);
        let mut log = withheld(1);
        log.reconnected(false, 1);
        assert_eq!(
            log.received(publish(2, 2), false),
            ["f/0/2 #2 is new, and f/0/2 #1 (id 1) did not come again"]
        );
    }

    #[test]
    fn a_pubrec_that_crosses_a_repetition_counts() {
        let mut log = DeliveryLog::default();
        log.reconnected(false, 0);
        assert_eq!(log.received(publish(1, 1), false), [""; 0]);
        log.acknowledged(1, 2);
        assert_eq!(log.received(publish(1, 1), true), [""; 0]);
        assert_eq!(log.released(1), None);
        // The broker has the PUBREC, and owes nothing more.
        log.reconnected(false, 1);
        assert_eq!(log.received(publish(2, 2), false), [""; 0]);
    }
}
