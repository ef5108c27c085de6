//! Counts of what the sessions of one shard did.

use crate::session::drops::Drops;

/// Counts of what sessions did.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// PUBLISH packets written.
    pub sent: u64,
    /// PUBLISH and PUBREL packets written again, live and at reconnect.
    pub redelivered: u64,
    /// Overdue acknowledgements found, at most one for each connection and look.
    pub stalled: u64,
    /// Connections closed for a missing acknowledgement.
    pub disconnected: u64,
    /// Acknowledgements of the wrong kind for the packet in flight.
    pub contradictions: u64,
    /// Dead letters published.
    pub dead_letters: u64,
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
}

impl Counters {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Counters) {
        // Without `..`: a new count that is not added does not compile.
        let Counters {
            sent,
            redelivered,
            stalled,
            disconnected,
            contradictions,
            dead_letters,
            refused_connects,
            foreign_sessions,
            banned_connects,
            flapping_bans,
            adopted_sessions,
            refused_subscriptions,
            rate_pauses,
            drops,
        } = other;
        self.sent += sent;
        self.redelivered += redelivered;
        self.stalled += stalled;
        self.disconnected += disconnected;
        self.contradictions += contradictions;
        self.dead_letters += dead_letters;
        self.refused_connects += refused_connects;
        self.foreign_sessions += foreign_sessions;
        self.banned_connects += banned_connects;
        self.flapping_bans += flapping_bans;
        self.adopted_sessions += adopted_sessions;
        self.refused_subscriptions += refused_subscriptions;
        self.rate_pauses += rate_pauses;
        self.drops.merge(drops);
    }
}
