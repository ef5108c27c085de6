//! The time that one session waits for an acknowledgement, if it differs from the operator's
//! setting.
//!
//! Two things change the wait: the client's own request, within the operator's bounds, and earlier
//! disconnects for a missing acknowledgement. A session without either has no [`AckWait`].

use crate::mqtt::packet::ProtocolVersion;
use crate::session::redelivery_policy::RedeliveryPolicy;
use crate::time::duration;
use std::time::Duration;

/// The client's requests and the disconnects of one session.
#[derive(Clone, Debug, Default)]
pub struct AckWait {
    retry_interval: Option<Duration>,
    ack_timeout: Option<Duration>,
    /// The running number of the message of the last disconnect. `disconnects` counts disconnects
    /// in a row for this message.
    disconnected_for: u64,
    disconnects: u32,
}

/// A time that a client may request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedTime {
    /// The retry interval of its 3.1 and 3.1.1 connections.
    RetryInterval,
    /// The ack timeout of its 5.0 connections.
    AckTimeout,
}

impl RequestedTime {
    /// Returns the name for user properties and topics.
    pub const fn name(self) -> &'static str {
        match self {
            RequestedTime::RetryInterval => "retry-interval",
            RequestedTime::AckTimeout => "ack-timeout",
        }
    }

    /// Returns the time that a connection of this version waits by.
    pub const fn of(version: ProtocolVersion) -> RequestedTime {
        if version.is_v5() { RequestedTime::AckTimeout } else { RequestedTime::RetryInterval }
    }

    /// Returns the time of this name, or `None` if no time has it.
    pub fn from_name(name: &str) -> Option<RequestedTime> {
        [RequestedTime::RetryInterval, RequestedTime::AckTimeout].into_iter().find(|time| time.name() == name)
    }
}

/// The requested text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidRequest;

impl AckWait {
    /// Creates the record of a session from its requested times, as stored.
    pub fn requested(retry_interval: Option<Duration>, ack_timeout: Option<Duration>) -> AckWait {
        AckWait { retry_interval, ack_timeout, ..AckWait::default() }
    }

    /// Returns the requested time; `None` if the client requested none.
    pub fn time(&self, time: RequestedTime) -> Option<Duration> {
        match time {
            RequestedTime::RetryInterval => self.retry_interval,
            RequestedTime::AckTimeout => self.ack_timeout,
        }
    }

    /// Sets a requested time that [`bounded`] returned.
    pub fn set_time(&mut self, time: RequestedTime, granted: Duration) {
        match time {
            RequestedTime::RetryInterval => self.retry_interval = Some(granted),
            RequestedTime::AckTimeout => self.ack_timeout = Some(granted),
        }
    }

    /// Returns the number of disconnects in a row for one message.
    pub fn disconnects(&self) -> u32 {
        self.disconnects
    }

    /// Begins a connection. The disconnects are forgotten if their message is finished.
    /// `is_unfinished` returns true for the running number of a message that is not.
    pub fn begin_connection(&mut self, is_unfinished: impl Fn(u64) -> bool) {
        if !is_unfinished(self.disconnected_for) {
            self.disconnects = 0;
        }
    }

    /// Records a disconnect for the message with this running number.
    pub fn record_disconnect_for(&mut self, number: u64) {
        let again = self.disconnects > 0 && self.disconnected_for == number;
        self.disconnects = if again { self.disconnects.saturating_add(1) } else { 1 };
        self.disconnected_for = number;
    }
}

/// Reads a requested time and brings it within the operator's bounds. Zero is off and not an
/// interval, so the bounds do not apply to it.
///
/// # Errors
/// [`InvalidRequest`] if the text is not a duration.
pub fn bounded(
    time: RequestedTime,
    text: &str,
    policy: &RedeliveryPolicy,
) -> Result<Duration, InvalidRequest> {
    let requested = duration::parse(text).map_err(|_| InvalidRequest)?;
    if requested.is_zero() {
        return Ok(requested);
    }
    let most = match time {
        RequestedTime::RetryInterval => policy.retry.max_interval,
        RequestedTime::AckTimeout => policy.ack.max_timeout,
    };
    Ok(requested.min(most).max(policy.retry.min_interval.min(most)))
}

/// Formats a granted time for a client; "off" for zero.
pub fn format(granted: Duration) -> String {
    if granted.is_zero() { "off".to_owned() } else { duration::format(granted) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::policy::tests::policy;

    #[test]
    fn a_requested_time_is_brought_within_the_operators_bounds_and_zero_is_off() {
        let mut policy = policy().send.redelivery;
        let secs = Duration::from_secs;
        (policy.retry.min_interval, policy.retry.max_interval) = (secs(2), secs(20));
        policy.ack.max_timeout = secs(60);
        use RequestedTime::{AckTimeout, RetryInterval};
        for (time, text, granted) in [
            (RetryInterval, "1s", Ok(secs(2))),
            (RetryInterval, "10s", Ok(secs(10))),
            (RetryInterval, "30s", Ok(secs(20))),
            (AckTimeout, "30s", Ok(secs(30))),
            (AckTimeout, "90s", Ok(secs(60))),
            (AckTimeout, "0s", Ok(Duration::ZERO)),
            (AckTimeout, "soon", Err(InvalidRequest)),
        ] {
            assert_eq!(bounded(time, text, &policy), granted, "{text}");
        }
    }

    #[test]
    fn disconnects_count_in_a_row_for_one_unfinished_message() {
        let mut ack_wait = AckWait::default();
        for (number, disconnects) in [(7, 1), (7, 2), (8, 1), (7, 1)] {
            ack_wait.record_disconnect_for(number);
            assert_eq!(ack_wait.disconnects(), disconnects);
        }
        ack_wait.begin_connection(|number| number == 7);
        assert_eq!(ack_wait.disconnects(), 1);
        ack_wait.begin_connection(|_| false);
        assert_eq!(ack_wait.disconnects(), 0);
    }
}
