//! Keep Alive: the time after which a silent client is disconnected. The verdict is
//! `IdleConnection::check` in `shard/clients/deadlines.rs`, after the socket was read once more.
//!
//! Only inbound packets move the deadline, and only while the broker reads. Outbound traffic proves
//! nothing about the peer. A pause that the broker made is not the client's silence. Costs one
//! store per read.

use crate::time::Instant;
use std::time::Duration;

/// The read-idle deadline of one connection. Packed, because every connection has one: 4 bytes of
/// padding would bring an idle connection into the next class of the allocator.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(4))]
pub struct KeepAlive {
    heard: Instant,
    /// Since when the broker does not read or answer; [`Instant::NEVER`] while it does both.
    paused: Instant,
    /// The time that a client may be silent, in milliseconds; 0 is no limit.
    limit_ms: u32,
}

impl KeepAlive {
    /// Starts a connection with a fixed time until its CONNECT.
    pub fn awaiting_connect(timeout: Duration, now: Instant) -> KeepAlive {
        let limit_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        KeepAlive { heard: now, paused: Instant::NEVER, limit_ms }
    }

    /// Sets the limit to one and a half times the Keep Alive. In milliseconds, 65,535 s and a half
    /// fits 32 bits but not 16.
    // 3.1.1 [MQTT-3.1.2-24], 5.0 [MQTT-3.1.2-22]
    pub fn start(&mut self, keep_alive_secs: u16, now: Instant) {
        self.limit_ms = u32::from(keep_alive_secs) * 1500;
        self.heard = now;
    }

    /// Returns the Keep Alive in seconds; 0 is none.
    pub fn secs(&self) -> u16 {
        u16::try_from(self.limit_ms / 1500).unwrap_or(u16::MAX)
    }

    /// Records that the client sent a whole packet, or a good part of a long one (`has_grown` in
    /// `shard/clients/receive.rs`). Single bytes do not count.
    // 3.1.1 [MQTT-3.1.2-24], 5.0 [MQTT-3.1.2-22]
    pub fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// Returns when the client last sent something, moved forward by the pauses since.
    pub fn last_heard(&self) -> Instant {
        self.heard
    }

    /// Starts a pause: the broker does not read or answer. A pause that already began goes on.
    pub fn pause(&mut self, now: Instant) {
        self.paused = self.paused.min(now);
    }

    /// Ends a pause and adds its length to the deadline. If bytes were read during the pause,
    /// because only answers had to wait, the deadline counts from those bytes at most.
    pub fn resume(&mut self, now: Instant) {
        if !self.paused.is_never() {
            self.heard = (self.heard + now.since(self.paused)).min(now);
            self.paused = Instant::NEVER;
        }
    }

    /// Returns when the client is disconnected; [`Instant::NEVER`] without a Keep Alive and during
    /// a pause.
    ///
    /// `awake_since` is when the machine woke from its last suspend. No client could be heard
    /// during the suspend.
    // 3.1.1 [MQTT-3.1.2-24], 5.0 [MQTT-3.1.2-22]
    pub fn deadline(&self, awake_since: Instant) -> Instant {
        if self.limit_ms == 0 || !self.paused.is_never() {
            return Instant::NEVER;
        }
        self.heard.max(awake_since) + Duration::from_millis(self.limit_ms.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    // 5.0 [MQTT-3.1.2-22]
    #[test]
    fn limit_is_one_and_a_half_times_even_at_the_largest_value() {
        let mut k = KeepAlive::awaiting_connect(Duration::from_secs(10), at(0));
        assert_eq!(k.deadline(Instant::ZERO), at(10_000));
        k.start(65_535, at(0));
        assert_eq!((k.deadline(Instant::ZERO), k.secs()), (at(98_302_500), 65_535));
        k.start(0, at(0));
        assert_eq!(k.deadline(Instant::ZERO), Instant::NEVER);
    }

    #[test]
    fn deadline_stands_still_while_the_broker_does_not_read() {
        let mut k = KeepAlive::awaiting_connect(Duration::from_secs(1), at(0));
        k.start(2, at(1_000));
        k.pause(at(2_000));
        assert_eq!(k.deadline(Instant::ZERO), Instant::NEVER);
        k.pause(at(3_000));
        k.resume(at(10_000));
        assert_eq!(k.deadline(Instant::ZERO), at(1_000 + 8_000 + 3_000));
    }

    #[test]
    fn what_is_heard_during_a_pause_gives_back_no_more_than_that() {
        let mut k = KeepAlive::awaiting_connect(Duration::from_secs(1), at(0));
        k.start(2, at(1_000));
        k.pause(at(2_000));
        k.heard(at(9_000));
        k.resume(at(10_000));
        assert_eq!(k.deadline(Instant::ZERO), at(10_000 + 3_000));
    }

    #[test]
    fn a_suspend_of_the_machine_is_not_the_clients_silence() {
        let mut k = KeepAlive::awaiting_connect(Duration::from_secs(1), at(0));
        k.start(2, at(1_000));
        assert_eq!(k.deadline(at(600_000)), at(600_000 + 3_000));
        k.heard(at(601_000));
        assert_eq!(k.deadline(at(600_000)), at(601_000 + 3_000));
    }
}
