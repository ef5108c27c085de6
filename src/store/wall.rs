//! This process's times as another process can read them, and back.
//!
//! The wall clock is read once, when the store is opened. From there on it runs with the monotonic one: what is written
//! comes back as the same instant, and a clock that is set while the broker runs counts from the next start.

use super::Moment;
use crate::mqtt::message::{Message, Parts};
use crate::time::Instant;
use std::time::Duration;

/// "Never" as it is kept: the largest number that SQLite knows.
pub const NEVER: u64 = i64::MAX as u64;

impl Moment {
    /// As it is, but not before this: a wall clock that went backwards while the broker was down stood still.
    pub fn not_before(self, unix_millis: u64) -> Moment {
        Moment { unix_millis: self.unix_millis.max(unix_millis), ..self }
    }

    /// Milliseconds since 1970 of an instant. The beginning of this process stands for all that was before it.
    pub fn to_wall(self, at: Instant) -> u64 {
        if at.is_never() {
            return NEVER;
        }
        if at == Instant::ZERO {
            return 0;
        }
        let (at, now) = (at.as_millis(), self.monotonic.as_millis());
        let wall = if at >= now {
            self.unix_millis.saturating_add(at - now)
        } else {
            self.unix_millis.saturating_sub(now - at)
        };
        wall.min(NEVER - 1)
    }

    /// The instant of that many milliseconds since 1970. What was before this process began is its beginning.
    pub fn from_wall(self, wall: u64) -> Instant {
        if wall >= NEVER {
            return Instant::NEVER;
        }
        let ahead = Duration::from_millis(wall.saturating_sub(self.unix_millis));
        let behind = Duration::from_millis(self.unix_millis.saturating_sub(wall));
        self.monotonic + ahead - behind
    }
}

/// The message with another time to expire at.
pub fn with_expiry(message: &Message, expires: Instant, scratch: &mut Vec<u8>) -> Message {
    let header = message.header();
    if header.expires == expires {
        return message.clone();
    }
    let parts = Parts {
        qos: header.qos,
        retain: header.retain,
        expires,
        topic: message.topic(),
        forwarded: message.forwarded(),
        payload: message.payload(),
    };
    Message::published_by(message.publisher(), parts, scratch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(monotonic: u64, unix_millis: u64) -> Moment {
        Moment { monotonic: Instant::from_millis(monotonic), unix_millis }
    }

    #[test]
    fn times_go_out_and_come_back_in_another_process() {
        let (writes, reads) = (moment(50_000, 1_000_000), moment(10, 1_003_000));
        assert_eq!(writes.to_wall(Instant::from_millis(60_000)), 1_010_000);
        assert_eq!(reads.from_wall(1_010_000), Instant::from_millis(7_010));
        assert_eq!(reads.from_wall(writes.to_wall(Instant::from_millis(40_000))), Instant::ZERO);
        assert_eq!(reads.from_wall(writes.to_wall(Instant::NEVER)), Instant::NEVER);
    }

    #[test]
    fn times_saturate_and_do_not_wrap() {
        let at = moment(0, 1_000_000);
        assert!(!at.from_wall(at.to_wall(Instant::from_millis(u64::MAX - 1))).is_never());
        assert_eq!(moment(5_000, 10).to_wall(Instant::ZERO), 0);
    }

    #[test]
    fn a_wall_clock_that_went_backwards_stands_still() {
        assert_eq!(moment(5, 10).not_before(100), moment(5, 100));
        assert_eq!(moment(5, 200).not_before(100), moment(5, 200));
    }
}
