//! Counts of what the sessions of one shard did.

use crate::session::drops::{Counts, Drops};
use crate::session::objectives::Objectives;
use crate::session::outbound::stall::StallCause;
use crate::session::packet_counts::{PacketCounts, PublishCounts, RedeliveryCounts};
use crate::session::packet_notes::AuditedAcks;
use crate::session::slow_deliveries::{AckedDelivery, SlowDeliveries};
use crate::time::Instant;
use crate::time::histogram::Histogram;

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

/// Counts of what sessions did.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Packets received from clients, without PUBLISH.
    pub packets_received: PacketCounts,
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
    /// Topic Filters of SUBSCRIBE packets refused for the same reasons.
    pub refused_subscriptions: u64,
    /// Times that a client was not read for a while, because it was above its rate.
    pub rate_pauses: u64,
    /// Messages dropped.
    pub drops: Drops,
    /// Deliveries by objective.
    pub objectives: Objectives,
    /// Acknowledgements of traced messages in the packet that is being handled.
    pub audited: AuditedAcks,
    /// Deliveries that took more than a second. A copy of the counters has none.
    pub slow: SlowDeliveries,
    /// Steps of the turn that were used and are not charged yet: packets that left a queue or were
    /// sent again.
    pub steps: u32,
}

impl Counters {
    /// Notes that the receiver has a message: its PUBACK or PUBREC came without an error. Need not
    /// be called for an [`AckedDelivery::is_usual`] one, so that nearly each costs two comparisons.
    #[inline(never)]
    pub fn note_delivered(&mut self, now: Instant, delivery: &AckedDelivery<'_>) {
        self.objectives.acknowledged(now, delivery.mark);
        self.slow.acknowledged(now, delivery);
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Counters) {
        // Without `..`: a new count that is not added does not compile.
        let Counters {
            packets_received,
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
        self.packets_received.merge(packets_received);
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
        self.refused_connects += refused_connects;
        self.foreign_sessions += foreign_sessions;
        self.banned_connects += banned_connects;
        self.flapping_bans += flapping_bans;
        self.adopted_sessions += adopted_sessions;
        self.refused_subscriptions += refused_subscriptions;
        self.rate_pauses += rate_pauses;
        self.drops.merge(drops);
        self.objectives.add(objectives);
    }
}
