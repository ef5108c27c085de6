//! The Will Message of a session.

use crate::mqtt::charge::Charge;
use crate::mqtt::packet::QoS;
use std::sync::Arc;
use std::time::Duration;

/// What is published when the connection ends other than by a plain DISCONNECT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Will {
    pub topic: Box<str>,
    pub qos: QoS,
    pub retain: bool,
    pub payload: Box<[u8]>,
    pub forwarded: Box<[u8]>,
    /// Zero in 3.x.
    pub delay: Duration,
    /// Counted from its publication; seconds.
    pub message_expiry: Option<u32>,
    pub charge: Charge,
}

impl Will {
    /// Puts the will on the account. The session shares it with what the store is told of the session.
    pub fn shared(mut self) -> Arc<Will> {
        let bytes = self.topic.len() + self.payload.len() + self.forwarded.len();
        self.charge.set(size_of::<Will>() + bytes);
        Arc::new(self)
    }
}

impl Will {
    /// Bytes that its client sent.
    pub fn size(&self) -> usize {
        self.topic.len() + self.payload.len() + self.forwarded.len()
    }
}

/// How a connection came to its end, as far as the will and the session care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// DISCONNECT 0x00: the will is thrown away. 3.1.1 and 5.0 [MQTT-3.14.4-3]
    Normal,
    /// The network failed, a rule was broken, a deadline passed, or DISCONNECT 0x04.
    Abnormal,
    /// Another connection of the same client took up the session.
    TakenOverResumed,
    /// Another connection of the same client began it anew.
    TakenOverAfresh,
    /// The broker stops.
    Shutdown,
}

/// When a will goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WillTime {
    Never,
    Now,
    After(Duration),
}

/// When to publish a will of this delay. `ends_with_connection`: the session does not outlive it.
// 5.0 [MQTT-3.1.2-8], [MQTT-3.1.3-9]; 3.1.1 [MQTT-3.1.2-8]
pub fn will_time(delay: Duration, session_expiry: Duration, ending: Ending) -> WillTime {
    // The will goes out at its delay or at the end of the session, whichever is first.
    let wait = delay.min(session_expiry);
    match ending {
        Ending::Normal => WillTime::Never,
        Ending::TakenOverResumed if wait.is_zero() => WillTime::Now,
        // The client is back within the delay.
        Ending::TakenOverResumed => WillTime::Never,
        // The session ends here, and so does the delay.
        Ending::TakenOverAfresh => WillTime::Now,
        Ending::Abnormal if wait.is_zero() => WillTime::Now,
        Ending::Abnormal => WillTime::After(wait),
        // Nobody is left to receive it, and a client is not to blame.
        Ending::Shutdown => WillTime::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn mqtt5_3_1_2_8_will_goes_out_at_its_delay_or_the_end_of_the_session() {
        assert_eq!(will_time(S(5), S(60), Ending::Abnormal), WillTime::After(S(5)));
        assert_eq!(will_time(S(60), S(5), Ending::Abnormal), WillTime::After(S(5)));
        assert_eq!(will_time(S(5), S(0), Ending::Abnormal), WillTime::Now);
        assert_eq!(will_time(S(0), S(60), Ending::Abnormal), WillTime::Now);
        assert_eq!(will_time(S(0), S(60), Ending::Normal), WillTime::Never);
    }

    #[test]
    fn mqtt5_3_1_3_9_take_over_within_the_delay_cancels_it_unless_the_session_begins_afresh() {
        assert_eq!(will_time(S(5), S(60), Ending::TakenOverResumed), WillTime::Never);
        assert_eq!(will_time(S(0), S(60), Ending::TakenOverResumed), WillTime::Now);
        assert_eq!(will_time(S(5), S(60), Ending::TakenOverAfresh), WillTime::Now);
    }
}
