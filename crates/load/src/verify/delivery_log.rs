//! The log of deliveries of a run: every message sent, every message received, and the cases that
//! the QoS forbids.
//!
//! A *redelivered* message comes again while its handshake is open, or at QoS 1 marked DUP. The
//! standard allows it. Redelivered messages are counted apart, because rumqttc reports a QoS 2
//! message at each transmission. A *duplicated* message comes again after its handshake. Only QoS 1
//! allows it. A message is *out of order* if its first transmission comes after the first
//! transmission of a later message of the same publisher.

use super::Seen;
use homing_core::mqtt::packet::{ProtocolVersion, QoS};
use std::collections::HashMap;

/// One PUBLISH as a receiver had it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedArrival {
    pub receiver: usize,
    pub publisher: u32,
    pub sequence: u64,
    pub qos: QoS,
    pub dup: bool,
    pub id: u16,
}

/// The meaning of one arrival, as the head of this file defines the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArrivalVerdict {
    First,
    Redelivered,
    Duplicated,
}

/// The counts of a run. Copies are counted, except by `sent` and `refused`, which count publishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct DeliveryCounts {
    pub sent: u64,
    /// Publishes that the broker refused with a reason code of 0x80 or above (5.0 only).
    pub refused: u64,
    pub delivered: u64,
    pub lost: u64,
    pub duplicated: u64,
    pub out_of_order: u64,
    pub redelivered: u64,
    /// Redelivered, but not marked DUP.
    pub unmarked: u64,
    /// Redelivered on a connection that had the message already (5.0 only).
    pub resent_live: u64,
    /// New messages with an identifier whose handshake is open.
    pub id_taken: u64,
    pub wrong_qos: u64,
    /// Messages that this run did not send, or with a broken stamp.
    pub foreign: u64,
}

/// A message whose handshake a receiver has not finished.
#[derive(Clone, Copy, Debug)]
struct Open {
    publisher: u32,
    sequence: u64,
    /// The connection that had the message last, counted for each receiver.
    connection: u32,
}

#[derive(Debug, Default)]
struct LoggedReceiver {
    audience: u32,
    connection: u32,
    /// Open handshakes by packet identifier, so 65,535 at most.
    open: HashMap<u16, Open>,
    /// The newest first transmission from each publisher.
    newest: HashMap<u32, u64>,
}

/// The deliveries of one run, as they happened.
#[derive(Debug)]
pub(crate) struct DeliveryLog {
    version: ProtocolVersion,
    qos: QoS,
    /// Audiences that each message goes to.
    copies: u64,
    receivers: Vec<LoggedReceiver>,
    /// The sequence numbers that arrived, by audience and publisher.
    streams: HashMap<(u32, u32), Seen>,
    /// Copies that have not arrived although a later message of the same publisher has.
    gaps: u64,
    counts: DeliveryCounts,
}

impl DeliveryLog {
    /// Creates an empty log. `audiences[r]` is the audience of receiver `r`. Each message goes
    /// to `copies` audiences, once to each. Receivers that share a subscription are one audience.
    pub(crate) fn new(version: ProtocolVersion, qos: QoS, copies: u32, audiences: &[u32]) -> DeliveryLog {
        let receiver = |audience: &u32| LoggedReceiver { audience: *audience, ..LoggedReceiver::default() };
        DeliveryLog {
            version,
            qos,
            copies: u64::from(copies),
            receivers: audiences.iter().map(receiver).collect(),
            streams: HashMap::new(),
            gaps: 0,
            counts: DeliveryCounts::default(),
        }
    }

    /// Counts a message that was sent.
    pub(crate) fn sent(&mut self) {
        self.counts.sent += 1;
    }

    /// Counts a message that the broker refused.
    pub(crate) fn refused(&mut self) {
        self.counts.refused += 1;
    }

    /// Counts a message of another run.
    pub(crate) fn foreign(&mut self) {
        self.counts.foreign += 1;
    }

    /// Records an arrival and returns its meaning.
    pub(crate) fn arrived(&mut self, arrival: LoggedArrival) -> ArrivalVerdict {
        if arrival.qos != self.qos {
            self.counts.wrong_qos += 1;
        }
        let Some(receiver) = self.receivers.get_mut(arrival.receiver) else {
            self.counts.foreign += 1;
            return ArrivalVerdict::Duplicated;
        };
        let stream = self.streams.entry((receiver.audience, arrival.publisher)).or_default();
        let end = stream.end();
        if stream.insert(arrival.sequence) {
            self.gaps = (self.gaps + (stream.end() - end)).saturating_sub(1);
            self.counts.delivered += 1;
            self.counts.out_of_order += u64::from(receiver.is_late(arrival));
            self.counts.id_taken += u64::from(receiver.begin(arrival, self.qos));
            return ArrivalVerdict::First;
        }
        match receiver.resume(arrival) {
            Some(connection) => {
                self.counts.redelivered += 1;
                // 5.0 [MQTT-3.3.1-1], 3.1.1 [MQTT-3.3.1-1]
                self.counts.unmarked += u64::from(!arrival.dup);
                // 5.0 [MQTT-4.4.0-1]; 3.1.1 leaves it open
                let live = connection == receiver.connection && self.version.is_v5();
                self.counts.resent_live += u64::from(live);
                ArrivalVerdict::Redelivered
            }
            // The message and our PUBACK crossed.
            None if arrival.dup && arrival.qos == QoS::AtLeastOnce => {
                self.counts.redelivered += 1;
                ArrivalVerdict::Redelivered
            }
            None => {
                self.counts.duplicated += 1;
                ArrivalVerdict::Duplicated
            }
        }
    }

    /// Records the end of the handshake of `id` for a receiver: PUBREL came, or PUBACK was sent.
    pub(crate) fn closed(&mut self, receiver: usize, id: u16) {
        if let Some(receiver) = self.receivers.get_mut(receiver) {
            receiver.open.remove(&id);
        }
    }

    /// Records that a receiver has a new connection.
    pub(crate) fn reconnected(&mut self, receiver: usize) {
        if let Some(receiver) = self.receivers.get_mut(receiver) {
            receiver.connection += 1;
        }
    }

    /// Returns the number of open handshakes of all receivers.
    pub(crate) fn open(&self) -> usize {
        self.receivers.iter().map(|receiver| receiver.open.len()).sum()
    }

    /// Returns true if everything that was sent has arrived.
    pub(crate) fn complete(&self) -> bool {
        self.counts.delivered >= self.expected()
    }

    /// Returns the number of copies that have arrived, each counted once.
    pub(crate) fn delivered(&self) -> u64 {
        self.counts.delivered
    }

    /// Returns the number of copies that are overdue: a later message of the same publisher has
    /// arrived before them. At the end of a run they are lost.
    pub(crate) fn overdue(&self) -> u64 {
        self.gaps.saturating_sub(self.counts.refused * self.copies)
    }

    fn expected(&self) -> u64 {
        self.counts.sent.saturating_sub(self.counts.refused) * self.copies
    }

    /// Returns the counts. Everything that has not arrived counts as lost.
    pub(crate) fn counts(&self) -> DeliveryCounts {
        DeliveryCounts { lost: self.expected().saturating_sub(self.counts.delivered), ..self.counts }
    }
}

impl LoggedReceiver {
    /// Returns true if a later message of the same publisher arrived before.
    fn is_late(&mut self, arrival: LoggedArrival) -> bool {
        let newest = self.newest.entry(arrival.publisher).or_insert(arrival.sequence);
        let late = arrival.sequence < *newest;
        *newest = arrival.sequence.max(*newest);
        late
    }

    /// Opens the handshake of a first transmission. Returns true if another message had this
    /// identifier open.
    fn begin(&mut self, arrival: LoggedArrival, qos: QoS) -> bool {
        if qos == QoS::AtMostOnce || arrival.qos == QoS::AtMostOnce {
            return false;
        }
        let connection = self.connection;
        let open = Open { publisher: arrival.publisher, sequence: arrival.sequence, connection };
        self.open.insert(arrival.id, open).is_some()
    }

    /// Finds the open handshake of a message that has arrived before. Returns the connection that
    /// had it last, or `None` if no such handshake is open.
    fn resume(&mut self, arrival: LoggedArrival) -> Option<u32> {
        let open = self.open.get_mut(&arrival.id)?;
        let same = open.publisher == arrival.publisher && open.sequence == arrival.sequence;
        same.then(|| std::mem::replace(&mut open.connection, self.connection))
    }
}

impl DeliveryCounts {
    /// Adds the counts of another part of the load.
    pub(crate) fn add(&mut self, other: &DeliveryCounts) {
        let DeliveryCounts {
            sent,
            refused,
            delivered,
            lost,
            duplicated,
            out_of_order,
            redelivered,
            unmarked,
            resent_live,
            id_taken,
            wrong_qos,
            foreign,
        } = other;
        self.sent += sent;
        self.refused += refused;
        self.delivered += delivered;
        self.lost += lost;
        self.duplicated += duplicated;
        self.out_of_order += out_of_order;
        self.redelivered += redelivered;
        self.unmarked += unmarked;
        self.resent_live += resent_live;
        self.id_taken += id_taken;
        self.wrong_qos += wrong_qos;
        self.foreign += foreign;
    }

    /// Returns the breaches of the rules of the QoS or the version, one line each.
    pub(crate) fn forbidden(&self, qos: QoS) -> Vec<String> {
        let level = qos.bits();
        let mut breaches = Vec::new();
        let mut breach = |count: u64, what: &str| {
            if count > 0 {
                breaches.push(format!("{count} {what}"));
            }
        };
        if qos != QoS::AtMostOnce {
            breach(self.lost, &format!("lost, and QoS {level} loses nothing"));
        }
        if qos != QoS::AtLeastOnce {
            breach(self.duplicated, &format!("duplicated, and QoS {level} never does"));
        }
        breach(self.out_of_order, "out of order ([MQTT-4.6.0-5], [MQTT-4.6.0-6])");
        breach(self.unmarked, "redelivered without DUP ([MQTT-3.3.1-1])");
        breach(self.resent_live, "resent on a live 5.0 connection ([MQTT-4.4.0-1])");
        breach(self.id_taken, "under a packet identifier in use ([MQTT-2.2.1-3], 3.1.1 [MQTT-2.3.1-4])");
        breach(self.wrong_qos, &format!("not at QoS {level}"));
        breaches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deliveries(version: ProtocolVersion, qos: QoS) -> DeliveryLog {
        DeliveryLog::new(version, qos, 1, &[0])
    }

    fn arrival(sequence: u64, qos: QoS, id: u16) -> LoggedArrival {
        LoggedArrival { receiver: 0, publisher: 0, sequence, qos, dup: false, id }
    }

    fn forbidden(deliveries: &DeliveryLog, qos: QoS) -> String {
        deliveries.counts().forbidden(qos).join("; ")
    }

    #[test]
    fn loss_is_forbidden_at_qos_1_and_2_alone() {
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
            let mut deliveries = deliveries(ProtocolVersion::V5, qos);
            for _ in 0..3 {
                deliveries.sent();
            }
            deliveries.arrived(arrival(0, qos, 1));
            deliveries.arrived(arrival(2, qos, 2));
            assert_eq!((deliveries.counts().lost, deliveries.complete()), (1, false));
            assert_eq!(forbidden(&deliveries, qos).contains("1 lost"), qos != QoS::AtMostOnce);
        }
    }

    #[test]
    fn a_gap_is_overdue_until_it_is_filled_or_refused() {
        let mut deliveries = DeliveryLog::new(ProtocolVersion::V5, QoS::AtLeastOnce, 1, &[0, 0]);
        deliveries.arrived(arrival(2, QoS::AtLeastOnce, 1));
        assert_eq!(deliveries.overdue(), 2);
        deliveries.arrived(LoggedArrival { receiver: 1, ..arrival(0, QoS::AtLeastOnce, 1) });
        deliveries.arrived(arrival(3, QoS::AtLeastOnce, 2));
        assert_eq!(deliveries.overdue(), 1);
        deliveries.refused();
        assert_eq!(deliveries.overdue(), 0);
    }

    #[test]
    fn a_refused_publish_is_not_lost() {
        let mut deliveries = deliveries(ProtocolVersion::V5, QoS::AtLeastOnce);
        deliveries.sent();
        deliveries.refused();
        assert!(deliveries.complete());
        assert_eq!((deliveries.counts().lost, deliveries.counts().refused), (0, 1));
    }

    #[test]
    fn a_second_copy_is_forbidden_at_qos_0_and_2_alone() {
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
            let mut deliveries = deliveries(ProtocolVersion::V3_1_1, qos);
            deliveries.sent();
            assert_eq!(deliveries.arrived(arrival(0, qos, 1)), ArrivalVerdict::First);
            deliveries.closed(0, 1);
            assert_eq!(deliveries.arrived(arrival(0, qos, 2)), ArrivalVerdict::Duplicated);
            assert_eq!(forbidden(&deliveries, qos).contains("1 duplicated"), qos != QoS::AtLeastOnce);
        }
    }

    #[test]
    fn a_qos_2_message_repeated_before_its_pubrel_is_counted_apart() {
        let mut deliveries = deliveries(ProtocolVersion::V3_1_1, QoS::ExactlyOnce);
        deliveries.sent();
        deliveries.arrived(arrival(0, QoS::ExactlyOnce, 1));
        let again = LoggedArrival { dup: true, ..arrival(0, QoS::ExactlyOnce, 1) };
        assert_eq!(deliveries.arrived(again), ArrivalVerdict::Redelivered);
        assert_eq!(forbidden(&deliveries, QoS::ExactlyOnce), "");
        deliveries.closed(0, 1);
        assert_eq!(deliveries.arrived(again), ArrivalVerdict::Duplicated, "after PUBREL, DUP or not");
    }

    // 3.1.1 [MQTT-3.3.1-1]
    #[test]
    fn redelivery_without_dup_is_forbidden() {
        let mut deliveries = deliveries(ProtocolVersion::V3_1_1, QoS::AtLeastOnce);
        deliveries.arrived(arrival(0, QoS::AtLeastOnce, 1));
        assert_eq!(deliveries.arrived(arrival(0, QoS::AtLeastOnce, 1)), ArrivalVerdict::Redelivered);
        assert_eq!(deliveries.counts().unmarked, 1);
    }

    // 5.0 [MQTT-4.4.0-1]
    #[test]
    fn redelivery_is_for_another_connection() {
        for version in [ProtocolVersion::V3_1_1, ProtocolVersion::V5] {
            let mut deliveries = deliveries(version, QoS::AtLeastOnce);
            let again = LoggedArrival { dup: true, ..arrival(0, QoS::AtLeastOnce, 1) };
            deliveries.arrived(arrival(0, QoS::AtLeastOnce, 1));
            deliveries.reconnected(0);
            deliveries.arrived(again);
            assert_eq!(deliveries.counts().resent_live, 0);
            deliveries.arrived(again);
            assert_eq!(deliveries.counts().resent_live, u64::from(version.is_v5()));
        }
    }

    #[test]
    fn a_message_that_crossed_its_puback_is_redelivered() {
        let mut deliveries = deliveries(ProtocolVersion::V3_1_1, QoS::AtLeastOnce);
        deliveries.arrived(arrival(0, QoS::AtLeastOnce, 1));
        deliveries.closed(0, 1);
        let again = LoggedArrival { dup: true, ..arrival(0, QoS::AtLeastOnce, 1) };
        assert_eq!(deliveries.arrived(again), ArrivalVerdict::Redelivered);
    }

    #[test]
    fn order_is_that_of_first_transmissions_from_one_publisher() {
        let mut deliveries = deliveries(ProtocolVersion::V3_1_1, QoS::AtLeastOnce);
        for (publisher, sequence, id) in [(0, 0, 1), (1, 5, 2), (0, 2, 3), (1, 6, 4), (0, 1, 5)] {
            deliveries.arrived(LoggedArrival { publisher, ..arrival(sequence, QoS::AtLeastOnce, id) });
        }
        assert_eq!(deliveries.counts().out_of_order, 1);
        deliveries.arrived(LoggedArrival { dup: true, ..arrival(0, QoS::AtLeastOnce, 1) });
        assert_eq!(deliveries.counts().out_of_order, 1, "a redelivered one is in order wherever it comes");
    }

    #[test]
    fn those_who_share_a_subscription_are_one_audience() {
        let mut deliveries = DeliveryLog::new(ProtocolVersion::V5, QoS::AtMostOnce, 1, &[0, 0]);
        for sequence in 0..2 {
            deliveries.sent();
            let receiver = if sequence == 0 { 1 } else { 0 };
            deliveries.arrived(LoggedArrival { receiver, ..arrival(sequence, QoS::AtMostOnce, 0) });
        }
        assert!(deliveries.complete());
        deliveries.arrived(arrival(0, QoS::AtMostOnce, 0));
        assert_eq!(deliveries.counts().duplicated, 1, "to another member is twice all the same");
    }

    #[test]
    fn a_new_message_under_an_open_identifier_is_forbidden() {
        let mut deliveries = deliveries(ProtocolVersion::V3_1_1, QoS::ExactlyOnce);
        deliveries.arrived(arrival(0, QoS::ExactlyOnce, 1));
        deliveries.arrived(arrival(1, QoS::ExactlyOnce, 1));
        assert_eq!(deliveries.counts().id_taken, 1);
    }
}
