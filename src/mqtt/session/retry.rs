//! How long to wait for an acknowledgement, and what when it does not come: the operator's settings.

use std::time::Duration;

/// The operator's settings for live redelivery (3.1 and 3.1.1; 5.0 has none, [MQTT-4.4.0-1]).
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Before the first resend; zero turns live redelivery off.
    pub interval: Duration,
    /// Each interval is this times the one before; 1 or more.
    pub backoff: f64,
    /// No client is granted a shorter first interval or ack timeout.
    pub min_interval: Duration,
    /// No interval is longer, jitter apart.
    pub max_interval: Duration,
    /// Share of the interval that is added at random, 0 to 1: once per connection and round, so that it spreads
    /// connections and cannot reorder the messages of one.
    pub jitter: f64,
    /// Resends of one packet before it counts as exhausted; 0 for no limit.
    pub attempts: u16,
    pub on_exhausted: OnExhausted,
    /// Packets resent to one connection at one tick at most: a storm is spread over ticks.
    pub resends_per_tick: usize,
}

/// What to do with a connection whose packet was resent as often as allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExhausted {
    /// Close it where the session outlives it (the message is redelivered when the client is back); else go on.
    Disconnect,
    /// Go on at the longest interval.
    Keep,
    /// Give the message up and publish it as a dead letter; here its resends are counted over all connections. A PUBREL, whose
    /// message has arrived, is treated as by `Disconnect`.
    DeadLetter,
}

impl RetryPolicy {
    /// How long to wait after a packet was sent for the `round`-th time again (0: sent for the first time).
    /// `interval` is the connection's own first one, and `seed` its own.
    pub fn delay(&self, interval: Duration, round: u16, seed: u64) -> Duration {
        // Asked for every QoS 1 and 2 message to a 3.x client, and then with round 0.
        let base = if round == 0 { interval } else { self.grown(interval, round) };
        if self.jitter > 0.0 { base.mul_f64(1.0 + self.jitter * unit(seed, round)) } else { base }
    }

    fn grown(&self, interval: Duration, round: u16) -> Duration {
        let cap = self.max_interval.max(interval).as_secs_f64();
        let grown = interval.as_secs_f64() * self.backoff.max(1.0).powi(i32::from(round));
        // `powi` may reach infinity; `min` brings it back.
        Duration::from_secs_f64(grown.min(cap))
    }
}

/// The operator's settings for 5.0 connections, which are never resent to.
#[derive(Clone, Debug, PartialEq)]
pub struct AckPolicy {
    /// How long the client's host may have a packet without an acknowledgement; zero: for ever.
    pub timeout: Duration,
    /// What the timeout grows to at most, doubled by each cut.
    pub max_timeout: Duration,
    pub on_timeout: OnAckTimeout,
}

/// What to do about a 5.0 connection whose client does not acknowledge in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnAckTimeout {
    /// Cut it where the session outlives it, so that the message is redelivered; else tell of it.
    Auto,
    /// Tell of it.
    Alarm,
    /// Cut it, though its session may end with it.
    Disconnect,
}

impl OnAckTimeout {
    pub fn cuts(self, session_outlives: Outlives) -> bool {
        match self {
            OnAckTimeout::Auto => session_outlives == Outlives::Yes,
            OnAckTimeout::Alarm => false,
            OnAckTimeout::Disconnect => true,
        }
    }
}

/// Whether a session outlives its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlives {
    Yes,
    No,
}

impl AckPolicy {
    /// The timeout of a session that was granted `timeout` and cut so often for one message.
    pub fn after_cuts(&self, timeout: Duration, cuts: u32) -> Duration {
        let doubled = timeout.saturating_mul(1_u32.checked_shl(cuts).unwrap_or(u32::MAX));
        doubled.min(self.max_timeout.max(timeout))
    }
}

/// A number in [0, 1) that `seed` and `round` settle (splitmix64's finaliser).
fn unit(seed: u64, round: u16) -> f64 {
    let mut z = seed.wrapping_add(u64::from(round).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(jitter: f64) -> RetryPolicy {
        RetryPolicy {
            interval: Duration::from_secs(20),
            backoff: 2.0,
            min_interval: Duration::from_secs(1),
            max_interval: Duration::from_secs(300),
            jitter,
            attempts: 5,
            on_exhausted: OnExhausted::Disconnect,
            resends_per_tick: 100,
        }
    }

    #[test]
    fn intervals_grow_by_the_backoff_up_to_the_cap() {
        let p = policy(0.0);
        let secs: Vec<u64> = (0..6).map(|r| p.delay(p.interval, r, 1).as_secs()).collect();
        assert_eq!(secs, [20, 40, 80, 160, 300, 300]);
        assert_eq!(p.delay(p.interval, u16::MAX, 1).as_secs(), 300);
    }

    #[test]
    fn jitter_only_adds_and_is_one_number_per_connection_and_round() {
        let p = policy(0.2);
        let mut seen = std::collections::HashSet::new();
        for seed in 0..1000 {
            let d = p.delay(p.interval, 0, seed);
            assert!(d >= Duration::from_secs(20) && d < Duration::from_secs(24), "{d:?}");
            assert_eq!(d, p.delay(p.interval, 0, seed));
            seen.insert(d.as_millis() / 100);
        }
        assert!(seen.len() > 30, "spread over {} tenths of a second", seen.len());
    }

    #[test]
    fn each_cut_doubles_the_ack_timeout_up_to_its_cap() {
        let secs = Duration::from_secs;
        let p = AckPolicy { timeout: secs(60), max_timeout: secs(300), on_timeout: OnAckTimeout::Auto };
        let after: Vec<u64> = (0..5).map(|cuts| p.after_cuts(p.timeout, cuts).as_secs()).collect();
        assert_eq!(after, [60, 120, 240, 300, 300]);
        assert_eq!(p.after_cuts(p.timeout, u32::MAX), secs(300));
        assert_eq!(p.after_cuts(Duration::ZERO, 9), Duration::ZERO);
    }
}
