//! What each message was promised, and what became of it.

use homing::mqtt::packet::QoS;

/// The number of a message. It is its payload.
pub type Number = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Here,
    There,
}

pub struct Message {
    /// The side where it was published.
    pub from: Side,
    pub topic: usize,
    /// The QoS of its publisher.
    pub asked: QoS,
    /// The QoS with which it reaches the other side.
    pub qos: QoS,
    /// The sender has an acknowledgement.
    pub is_acknowledged: bool,
    /// True if a lawful loss came about: refused by its receiver, or too large for it.
    pub is_excepted: bool,
    /// The times at which the other side had it.
    pub arrived: Vec<u64>,
}

/// Counts of all that the simulation is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub acknowledged: u64,
    pub exactly_once: u64,
    pub twice: u64,
    pub connections: u64,
    pub resumed: u64,
    pub sessions_lost: u64,
    pub crashes_here: u64,
    pub crashes_there: u64,
    pub breaks: u64,
    pub unanswered: u64,
    pub unacknowledged: u64,
    pub refused: u64,
    pub lowered: u64,
    pub redelivered: u64,
    pub filters_refused: u64,
    pub reloads: u64,
    pub freed: u64,
}

impl Totals {
    fn all(&mut self) -> [&mut u64; 17] {
        [
            &mut self.acknowledged,
            &mut self.exactly_once,
            &mut self.twice,
            &mut self.connections,
            &mut self.resumed,
            &mut self.sessions_lost,
            &mut self.crashes_here,
            &mut self.crashes_there,
            &mut self.breaks,
            &mut self.unanswered,
            &mut self.unacknowledged,
            &mut self.refused,
            &mut self.lowered,
            &mut self.redelivered,
            &mut self.filters_refused,
            &mut self.reloads,
            &mut self.freed,
        ]
    }

    pub fn add(&mut self, other: &Totals) {
        let mut other = other.clone();
        self.all().into_iter().zip(other.all()).for_each(|(sum, more)| *sum += *more);
    }

    pub fn is_complete(&self) -> bool {
        self.clone().all().into_iter().all(|total| *total > 0)
    }
}

#[derive(Default)]
pub struct Oracle {
    messages: Vec<Message>,
    /// The times at which the other broker lost the session.
    lost: Vec<u64>,
    /// The last message that arrived for the first time, by the side where it was published and its
    /// topic.
    last: std::collections::BTreeMap<(Side, usize), Number>,
    pub totals: Totals,
}

impl Oracle {
    pub fn published(
        &mut self,
        from: Side,
        topic: usize,
        (asked, qos): (QoS, QoS),
        is_excepted: bool,
    ) -> Number {
        let is_acknowledged = false;
        let arrived = Vec::new();
        self.messages.push(Message { from, topic, asked, qos, is_acknowledged, is_excepted, arrived });
        self.messages.len() as Number - 1
    }

    pub fn message(&mut self, number: Number) -> &mut Message {
        &mut self.messages[usize::try_from(number).expect("a number")]
    }

    /// The sender may forget the message.
    pub fn acknowledged(&mut self, number: Number) {
        let message = self.message(number);
        if !std::mem::replace(&mut message.is_acknowledged, true) {
            self.totals.acknowledged += 1;
        }
    }

    pub fn lost_session(&mut self, now: u64) {
        self.lost.push(now);
    }

    /// A message is at the other side of its publisher, under this topic.
    pub fn arrives(&mut self, now: u64, at: Side, number: Number, name: &str, other: Option<&str>) {
        let lost = self.lost.clone();
        let message = self.message(number);
        assert_ne!(message.from, at, "message {number} came back to its side as {name}");
        assert_eq!(Some(name), other, "message {number} has another name, or no rule names it");
        let Message { topic, asked, qos, from, is_excepted, .. } = *message;
        let before = message.arrived.last().copied();
        message.arrived.push(now);
        if let Some(before) = before {
            self.totals.twice += 1;
            let was_lost = lost.iter().any(|at| *at >= before && *at <= now);
            assert!(qos != QoS::ExactlyOnce || was_lost, "QoS 2 message {number} arrives twice");
            // A publisher that sends a message again may send it twice to a receiver at QoS 0.
            assert!(asked != QoS::AtMostOnce, "QoS 0 message {number} arrives twice");
            return;
        }
        self.totals.exactly_once += u64::from(qos == QoS::ExactlyOnce);
        // What its receiver refused before may come again.
        if qos == QoS::AtMostOnce || is_excepted {
            return;
        }
        let last = self.last.insert((from, topic), number);
        assert!(last.is_none_or(|last| last < number), "message {number} arrives behind {last:?}");
    }

    /// At the end nobody owes anything.
    pub fn check_delivered(&self) {
        for (number, message) in self.messages.iter().enumerate() {
            let Message { from, topic, qos, is_acknowledged, is_excepted, arrived, .. } = message;
            let is_owed = *is_acknowledged && !is_excepted && *qos != QoS::AtMostOnce;
            assert!(
                !is_owed || !arrived.is_empty(),
                "message {number} of topic {topic} from {from:?} ({qos:?}) was acknowledged, and never arrived"
            );
        }
    }
}
