//! Counts of the actions of one shard's sessions.

use crate::mqtt::codec::{AckKind, PacketType};
use crate::mqtt::message::Message;
use crate::mqtt::packet::Acknowledgement;
use crate::session::drops::{Counts, Drops};
use crate::session::objectives::{Objective, Objectives};
use crate::session::outbound::stall::StallCause;
use crate::session::packet_counts::{PacketCounts, PublishCounts, RedeliveryCounts};
use crate::session::slow_deliveries::{AckedDelivery, SlowDeliveries};
use crate::session::subscriptions::FilterCause;
use crate::session::trace_steps::{StepKind, TraceStep, TraceSteps};
use crate::time::Instant;
use crate::time::histogram::Histogram;
use std::sync::Arc;

/// Overdue acknowledgements by cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StallCounts([u64; StallCause::ALL.len()]);

impl StallCounts {
    /// Counts one overdue acknowledgement.
    pub fn count(&mut self, cause: StallCause) {
        self.0[cause as usize] += 1;
    }

    /// Returns the number of overdue acknowledgements with this cause.
    pub fn of(&self, cause: StallCause) -> u64 {
        self.0[cause as usize]
    }

    /// Returns the number of overdue acknowledgements.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    fn merge(&mut self, other: &StallCounts) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }
}

/// Counts of sessions' actions.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Packets received from clients, without PUBLISH, and without the PUBACKs that
    /// `puback_time` counts, so that a message costs one count less.
    received: PacketCounts,
    /// Packets written to clients, without PUBLISH.
    pub packets_sent: PacketCounts,
    /// PUBLISH packets received from clients, with repetitions.
    pub publishes_received: PublishCounts,
    /// PUBLISH packets written to clients, with repetitions.
    pub sent: PublishCounts,
    /// PUBLISH packets from clients that no subscription matched.
    pub unmatched: u64,
    /// Time from the first transmission of a QoS 1 message to its PUBACK.
    pub puback_time: Histogram,
    /// Time from the first transmission of a QoS 2 message to its PUBREC.
    pub pubrec_time: Histogram,
    /// PUBLISH and PUBREL packets written again.
    pub redelivered: RedeliveryCounts,
    /// Overdue acknowledgements found, at most one for each connection and look, by cause.
    pub stalled: StallCounts,
    /// Connections closed for a missing acknowledgement.
    pub disconnected: u64,
    /// Acknowledgements of the wrong kind for the packet in flight.
    pub contradictions: u64,
    /// Dead letters published, by the reason of the drop.
    pub dead_letters: Counts,
    /// PUBLISH packets from clients that were refused, by reason.
    pub refused_publishes: Counts,
    /// Will Messages that were refused, at CONNECT or when they were due, by reason.
    pub refused_wills: Counts,
    /// CONNECTs refused because sessions, memory or disk reached a bound.
    pub refused_connects: u64,
    /// CONNECTs refused because another user owns the session.
    pub foreign_sessions: u64,
    /// CONNECTs refused because the client is banned.
    pub banned_connects: u64,
    /// Bans that began because a client connected too often.
    pub flapping_bans: u64,
    /// Sessions without an owner that got one.
    pub adopted_sessions: u64,
    /// Topic Filters of SUBSCRIBE packets that were refused, by [`FilterCause`].
    pub refused_subscriptions: [u64; FilterCause::ALL.len()],
    /// Times that a client was not read for a while, because it was above its rate.
    pub rate_pauses: u64,
    /// Messages dropped.
    pub drops: Drops,
    /// Deliveries by objective.
    pub objectives: Objectives,
    /// Acknowledgements of traced messages in the packet that is being handled.
    pub audited: TraceSteps,
    /// Deliveries that took more than a second. A copy of the counters has none.
    pub slow: SlowDeliveries,
    /// Steps of the turn that were used and are not spent yet: packets that left a queue or were
    /// sent again.
    pub steps: u32,
}

impl Counters {
    /// Returns counters of nothing, with these objectives.
    pub fn new(objectives: &Arc<[Objective]>) -> Counters {
        Counters { objectives: Objectives::new(objectives), ..Counters::default() }
    }

    /// Notes that the receiver has a message: its PUBACK or PUBREC came without an error. The
    /// acknowledgement of a traced message is kept for the shard's report. Need not be called for
    /// an [`AckedDelivery::is_usual`] one, so that nearly each costs two comparisons.
    #[inline(never)]
    pub fn note_delivered(
        &mut self,
        now: Instant,
        delivery: &AckedDelivery<'_>,
        kind: AckKind,
        ack: &Acknowledgement<'_>,
    ) {
        self.objectives.acknowledged(now, delivery.mark);
        self.slow.acknowledged(now, delivery);
        self.note_audited(delivery.message, kind, ack);
    }

    /// Notes an acknowledgement of a message, if the message is traced.
    pub fn note_audited(&mut self, message: &Message, kind: AckKind, ack: &Acknowledgement<'_>) {
        if message.audit().is_some() {
            let step = if kind == AckKind::Puback { StepKind::Acknowledged } else { StepKind::Pubrec };
            let step = TraceStep::of_acknowledgement(step, kind, ack.packet_id, ack.reason);
            self.audited.push(TraceStep { audit: message.audit(), ..step }, usize::MAX);
        }
    }

    /// Counts a packet of a client that is neither a PUBLISH nor a PUBACK that finished a message.
    #[inline]
    pub fn count_received(&mut self, packet: PacketType) {
        self.received.count(packet);
    }

    /// Returns the packets received from clients, without PUBLISH.
    pub fn packets_received(&self) -> PacketCounts {
        let mut all = self.received.clone();
        all.add(PacketType::Puback, self.puback_time.total());
        all
    }

    /// True if the packet that is being handled led to drops, or to acknowledgements of traced
    /// messages, and the shard has not reported them yet.
    #[inline]
    pub fn are_unreported(&self) -> bool {
        self.drops.are_unreported() || !self.audited.steps.is_empty()
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Counters) {
        // Without `..`: a new count that is not added does not compile.
        let Counters {
            received,
            packets_sent,
            publishes_received,
            sent,
            unmatched,
            puback_time,
            pubrec_time,
            redelivered,
            stalled,
            disconnected,
            contradictions,
            dead_letters,
            refused_publishes,
            refused_wills,
            refused_connects,
            foreign_sessions,
            banned_connects,
            flapping_bans,
            adopted_sessions,
            refused_subscriptions,
            rate_pauses,
            drops,
            objectives,
            audited: _,
            slow: _,
            steps: _,
        } = other;
        self.received.merge(received);
        self.packets_sent.merge(packets_sent);
        self.publishes_received.merge(publishes_received);
        self.sent.merge(sent);
        self.unmatched += unmatched;
        self.puback_time.merge(puback_time);
        self.pubrec_time.merge(pubrec_time);
        self.redelivered.merge(redelivered);
        self.stalled.merge(stalled);
        self.disconnected += disconnected;
        self.contradictions += contradictions;
        self.dead_letters.merge(dead_letters);
        self.refused_publishes.merge(refused_publishes);
        self.refused_wills.merge(refused_wills);
        self.refused_connects += refused_connects;
        self.foreign_sessions += foreign_sessions;
        self.banned_connects += banned_connects;
        self.flapping_bans += flapping_bans;
        self.adopted_sessions += adopted_sessions;
        for (count, more) in self.refused_subscriptions.iter_mut().zip(refused_subscriptions) {
            *count += more;
        }
        self.rate_pauses += rate_pauses;
        self.drops.merge(drops);
        self.objectives.add(objectives);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_puback_counts_once_whether_it_finished_a_message_or_not() {
        let mut counters = Counters::default();
        counters.puback_time.add(3);
        counters.count_received(PacketType::Puback);
        counters.count_received(PacketType::Pingreq);
        let mut sum = counters.clone();
        sum.add(&counters);
        let of = |counters: &Counters| {
            let all = counters.packets_received();
            (all.of(PacketType::Puback), all.of(PacketType::Pingreq), all.total())
        };
        assert_eq!((of(&counters), of(&sum)), ((2, 1, 3), (4, 2, 6)));
    }
}
