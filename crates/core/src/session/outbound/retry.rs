//! The operator's settings for missing acknowledgements: the wait, and the action after it.

use crate::named_enum::named_enum;
use std::time::Duration;

/// Settings for live redelivery to 3.1 and 3.1.1 clients. 5.0 has none [MQTT-4.4.0-1].
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Time until the first resend; zero turns live redelivery off.
    pub interval: Duration,
    /// Factor between one interval and the next; 1 or more.
    pub backoff: f64,
    /// Shortest first interval or ack timeout that a client may request.
    pub min_interval: Duration,
    /// Longest interval, without jitter.
    pub max_interval: Duration,
    /// Random share that is added to an interval, 0 to 1. The share is drawn once per connection
    /// and round. So the share spreads connections, and cannot reorder the messages of one
    /// connection.
    pub jitter: f64,
    /// Resends of one packet on one connection before the packet is exhausted; 0 for no limit.
    pub attempts: u16,
    /// The action once a packet is exhausted.
    pub on_exhausted: OnExhausted,
    /// Packets resent to one connection in one tick at most. A storm of resends is spread over
    /// ticks.
    pub resends_per_tick: usize,
}

named_enum! {
    /// The action when the attempts of a packet are used up.
    #[derive(Default)]
    pub enum OnExhausted {
        /// The connection is closed if the session outlives it, so that the client returns and gets
        /// the message again. Otherwise as [`OnExhausted::Keep`].
        #[default]
        Disconnect = "disconnect",
        /// The message is sent again at the longest interval.
        Keep = "keep",
        /// The message is dropped and published as a dead letter. Its resends are counted over all
        /// connections. The message of a PUBREL has arrived, so a PUBREL is treated as under
        /// [`OnExhausted::Disconnect`].
        DeadLetter = "dead_letter",
    }

    /// The action on a 5.0 connection whose client does not acknowledge in time. The action drops
    /// no message.
    #[derive(Default)]
    pub enum OnAckTimeout {
        /// The connection is closed, with 0x97, if the session outlives it, so that the client
        /// returns and gets the message again. Otherwise as [`OnAckTimeout::Alarm`].
        #[default]
        Auto = "auto",
        /// A log line and a count, once every `ack_timeout`.
        Alarm = "alarm",
        /// The connection is closed, with 0x97, even if the session, and with it the message, ends.
        Disconnect = "disconnect",
    }
}

impl RetryPolicy {
    /// Returns how long to wait after the `round`-th resend of a packet; round 0 is the first
    /// transmission. `interval` is the connection's first interval, and `seed` its own.
    pub fn delay(&self, interval: Duration, round: u16, seed: u64) -> Duration {
        // Called with round 0 for every QoS 1 and 2 message to a 3.x client.
        let base = if round == 0 { interval } else { self.grown(interval, round) };
        if self.jitter > 0.0 { base.mul_f64(1.0 + self.jitter * unit(seed, round)) } else { base }
    }

    /// Returns true if the connection is closed for a packet that is due after this number of
    /// resends. `outlives` says if the session outlives the connection, so that the message is
    /// redelivered when the client returns.
    pub fn closes(&self, attempts: u16, outlives: Outlives) -> bool {
        self.attempts > 0
            && attempts >= self.attempts
            && outlives == Outlives::Yes
            && self.on_exhausted != OnExhausted::Keep
    }

    fn grown(&self, interval: Duration, round: u16) -> Duration {
        let cap = self.max_interval.max(interval).as_secs_f64();
        let grown = interval.as_secs_f64() * self.backoff.max(1.0).powi(i32::from(round));
        // `powi` may return infinity; `min` bounds it.
        Duration::from_secs_f64(grown.min(cap))
    }
}

/// Settings for 5.0 connections, to which nothing is resent.
#[derive(Clone, Debug, PartialEq)]
pub struct AckPolicy {
    /// The time that the client's host may have a packet without an acknowledgement. Zero is no
    /// limit.
    pub timeout: Duration,
    /// Longest ack timeout. Each disconnect doubles the timeout up to it.
    pub max_timeout: Duration,
    /// The action after the timeout.
    pub on_timeout: OnAckTimeout,
}

impl OnAckTimeout {
    /// Returns true if a missing acknowledgement closes the connection.
    pub fn disconnects(self, session_outlives: Outlives) -> bool {
        match self {
            OnAckTimeout::Auto => session_outlives == Outlives::Yes,
            OnAckTimeout::Alarm => false,
            OnAckTimeout::Disconnect => true,
        }
    }
}

/// The answer to the question if a session outlives its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlives {
    /// The session stays when the connection ends.
    Yes,
    /// The session ends with the connection.
    No,
}

impl AckPolicy {
    /// Returns the ack timeout of a session after this many disconnects for one message. `timeout`
    /// is the granted one; zero stays zero.
    pub fn after_disconnects(&self, timeout: Duration, disconnects: u32) -> Duration {
        let doubled = timeout.saturating_mul(1_u32.checked_shl(disconnects).unwrap_or(u32::MAX));
        doubled.min(self.max_timeout.max(timeout))
    }
}

/// Returns a number in [0, 1) that depends on `seed` and `round` alone.
fn unit(seed: u64, round: u16) -> f64 {
    let mut state = seed.wrapping_add(u64::from(round).wrapping_mul(SPLITMIX64_STEP));
    (splitmix64(&mut state) >> 11) as f64 / (1u64 << 53) as f64
}

const SPLITMIX64_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Returns the next number of the splitmix64 sequence and advances `state`, which begins as the
/// seed.
///
/// The numbers are evenly distributed, but not secret: one number reveals all later ones.
pub fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(SPLITMIX64_STEP);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
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
    fn used_up_resends_close_only_a_connection_whose_session_stays() {
        let p = policy(0.0);
        assert!(!p.closes(4, Outlives::Yes) && p.closes(5, Outlives::Yes) && !p.closes(5, Outlives::No));
        let keep = RetryPolicy { on_exhausted: OnExhausted::Keep, ..policy(0.0) };
        let unlimited = RetryPolicy { attempts: 0, ..policy(0.0) };
        assert!(!keep.closes(5, Outlives::Yes) && !unlimited.closes(u16::MAX, Outlives::Yes));
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
        let after: Vec<u64> =
            (0..5).map(|disconnects| p.after_disconnects(p.timeout, disconnects).as_secs()).collect();
        assert_eq!(after, [60, 120, 240, 300, 300]);
        assert_eq!(p.after_disconnects(p.timeout, u32::MAX), secs(300));
        assert_eq!(p.after_disconnects(Duration::ZERO, 9), Duration::ZERO);
    }
}
