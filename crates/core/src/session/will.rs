//! The time at which the Will Message of a session is published.

use crate::mqtt::will::Will;
use crate::time::Instant;
use std::sync::Arc;
use std::time::Duration;

/// The way in which a connection ended, for the Will Message and the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// DISCONNECT 0x00: the Will Message is discarded. 3.1.1 and 5.0 [MQTT-3.14.4-3]
    Normal,
    /// The network failed, the client broke a rule, a deadline passed, or DISCONNECT 0x04 came.
    Abnormal,
    /// Another connection of the same client resumed the session.
    TakenOverResumed,
    /// Another connection of the same client began a new session.
    TakenOverAfresh,
    /// The broker stops in order.
    Shutdown,
    /// The broker shuts its clients out and goes on, because it cannot reach the log of its cell.
    ShutOut,
}

/// Takes the will of a session to which its client returns. Returns the will if it is due, even if
/// the expiry actor has not reported this yet. Otherwise the will is discarded.
// 5.0 [MQTT-3.1.3-9]
pub fn take_at_return(will: &mut Option<Arc<Will>>, now: Instant, due: Instant) -> Option<Arc<Will>> {
    will.take().filter(|_| due <= now)
}

/// The time at which a Will Message is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WillTime {
    /// Not at all.
    Never,
    /// At once.
    Now,
    /// After this time, unless the client returns before.
    After(Duration),
}

/// Returns when to publish a Will Message with this delay. `session_expiry` is how long the session
/// outlives the connection.
// 5.0 [MQTT-3.1.2-8], [MQTT-3.1.3-9]; 3.1.1 [MQTT-3.1.2-8]
pub fn will_time(delay: Duration, session_expiry: Duration, ending: Ending) -> WillTime {
    // The earlier of the Will Delay Interval and the end of the session counts.
    let wait = delay.min(session_expiry);
    match ending {
        Ending::Normal => WillTime::Never,
        Ending::TakenOverResumed if wait.is_zero() => WillTime::Now,
        // The client returned within the delay.
        Ending::TakenOverResumed => WillTime::Never,
        // The session ends here, and so does the delay.
        Ending::TakenOverAfresh => WillTime::Now,
        Ending::Abnormal if wait.is_zero() => WillTime::Now,
        Ending::Abnormal => WillTime::After(wait),
        // The session ends here. Retained messages and stored sessions get the will: without it a
        // retained "online" would stay for ever.
        Ending::Shutdown if session_expiry.is_zero() => WillTime::Now,
        // The store keeps the will of a session that goes on. The next start publishes it, unless
        // the client is back in time.
        Ending::Shutdown => WillTime::Never,
        // What is published here may never reach the log. Another node may own the cell.
        Ending::ShutOut => WillTime::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    // 5.0 [MQTT-3.1.2-8]
    #[test]
    fn will_goes_out_at_its_delay_or_the_end_of_the_session() {
        assert_eq!(will_time(S(5), S(60), Ending::Abnormal), WillTime::After(S(5)));
        assert_eq!(will_time(S(60), S(5), Ending::Abnormal), WillTime::After(S(5)));
        assert_eq!(will_time(S(5), S(0), Ending::Abnormal), WillTime::Now);
        assert_eq!(will_time(S(0), S(60), Ending::Abnormal), WillTime::Now);
        assert_eq!(will_time(S(0), S(60), Ending::Normal), WillTime::Never);
    }

    // 3.1.1 and 5.0 [MQTT-3.1.2-8]
    #[test]
    fn an_orderly_stop_is_the_end_of_sessions_that_end_with_their_connection() {
        assert_eq!(will_time(S(0), S(0), Ending::Shutdown), WillTime::Now);
        assert_eq!(will_time(S(60), S(0), Ending::Shutdown), WillTime::Now);
        assert_eq!(will_time(S(0), S(60), Ending::Shutdown), WillTime::Never);
        assert_eq!(will_time(S(0), S(0), Ending::ShutOut), WillTime::Never);
    }

    // 5.0 [MQTT-3.1.3-9]
    #[test]
    fn take_over_within_the_delay_cancels_it_unless_the_session_begins_afresh() {
        assert_eq!(will_time(S(5), S(60), Ending::TakenOverResumed), WillTime::Never);
        assert_eq!(will_time(S(0), S(60), Ending::TakenOverResumed), WillTime::Now);
        assert_eq!(will_time(S(5), S(60), Ending::TakenOverAfresh), WillTime::Now);
    }
}
