//! The time that one session waits for an acknowledgement, if it differs from the operator's
//! setting.
//!
//! Two things change the wait: the client's own request, within the operator's bounds, and earlier
//! disconnects for a missing acknowledgement. A session without either has no [`AckWait`].

use crate::mqtt::packet::ProtocolVersion;
use crate::session::Session;
use crate::session::wire::Wire;
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
    /// Returns the name that stands in user properties and topics.
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

impl Session {
    /// Begins the ack wait of a new connection. If the message of the last disconnect is finished,
    /// the plain ack timeout holds again.
    pub fn begin_ack_wait(&mut self, wire: &mut Wire) {
        let sender = &self.sender;
        if let Some(ack_wait) = self.ack_wait.as_mut().filter(|p| !sender.is_unfinished(p.disconnected_for)) {
            ack_wait.disconnects = 0;
        }
        self.set_ack_wait(wire);
    }

    /// Sets the ack wait of a live connection, after the client's request changed.
    pub fn set_ack_wait(&self, wire: &mut Wire) {
        let time = RequestedTime::of(wire.version);
        let disconnects = self.ack_wait.as_ref().map_or(0, |p| p.disconnects);
        let granted = self.granted(time);
        wire.requested = self.requested(time).is_some();
        wire.disconnects = u16::try_from(disconnects).unwrap_or(u16::MAX);
        wire.set_ack_wait(match time {
            RequestedTime::RetryInterval => granted,
            RequestedTime::AckTimeout => {
                self.sender.redelivery.own.ack.after_disconnects(granted, disconnects)
            }
        });
        wire.set_first_wait(self.sender.redelivery.own.first_wait(wire));
    }

    /// Returns the requested time, or the operator's setting if the client requested none. Zero is
    /// off.
    pub fn granted(&self, time: RequestedTime) -> Duration {
        let own = &self.sender.redelivery.own;
        let set = match time {
            RequestedTime::RetryInterval => own.retry.interval,
            RequestedTime::AckTimeout => own.ack.timeout,
        };
        self.requested(time).unwrap_or(set)
    }

    fn requested(&self, time: RequestedTime) -> Option<Duration> {
        let ack_wait = self.ack_wait.as_deref()?;
        match time {
            RequestedTime::RetryInterval => ack_wait.retry_interval,
            RequestedTime::AckTimeout => ack_wait.ack_timeout,
        }
    }

    /// Takes a client's request and brings it within the operator's bounds. The request lasts as
    /// long as the session.
    ///
    /// # Errors
    /// [`InvalidRequest`] if the text is not a duration. The earlier value then stays.
    pub fn request_time(&mut self, time: RequestedTime, text: &str) -> Result<(), InvalidRequest> {
        let requested = duration::parse(text).map_err(|_| InvalidRequest)?;
        let own = &self.sender.redelivery.own;
        let most = match time {
            RequestedTime::RetryInterval => own.retry.max_interval,
            RequestedTime::AckTimeout => own.ack.max_timeout,
        };
        // Zero is off and not an interval, so the bounds do not apply to it.
        let granted = if requested.is_zero() {
            requested
        } else {
            requested.min(most).max(own.retry.min_interval.min(most))
        };
        let ack_wait = self.ack_wait.get_or_insert_default();
        match time {
            RequestedTime::RetryInterval => ack_wait.retry_interval = Some(granted),
            RequestedTime::AckTimeout => ack_wait.ack_timeout = Some(granted),
        }
        Ok(())
    }

    /// Takes a request of a 5.0 CONNECT. Returns the granted time as text for CONNACK, and an error
    /// if the text is not a duration. A retry interval is always off.
    // 5.0 [MQTT-4.4.0-1]
    pub fn request_time_at_connect(
        &mut self,
        time: RequestedTime,
        text: &str,
    ) -> (Result<(), InvalidRequest>, String) {
        if time == RequestedTime::RetryInterval {
            return (Ok(()), format(Duration::ZERO));
        }
        let read = self.request_time(time, text);
        (read, format(self.granted(time)))
    }

    /// Returns the requested retry interval and ack timeout, for the store.
    pub fn requested_times(&self) -> (Option<Duration>, Option<Duration>) {
        self.ack_wait.as_ref().map_or((None, None), |p| (p.retry_interval, p.ack_timeout))
    }

    /// Restores the requested times from the store.
    pub fn restore_requested_times(
        &mut self,
        retry_interval: Option<Duration>,
        ack_timeout: Option<Duration>,
    ) {
        if retry_interval.is_some() || ack_timeout.is_some() {
            let ack_wait = self.ack_wait.get_or_insert_default();
            (ack_wait.retry_interval, ack_wait.ack_timeout) = (retry_interval, ack_timeout);
        }
    }

    /// Records a disconnect for the message with this running number. The next connection waits
    /// twice as long, and twice as long again after each further disconnect for the same message.
    pub fn record_disconnect_for(&mut self, number: u64) {
        let ack_wait = self.ack_wait.get_or_insert_default();
        let again = ack_wait.disconnects > 0 && ack_wait.disconnected_for == number;
        ack_wait.disconnects = if again { ack_wait.disconnects.saturating_add(1) } else { 1 };
        ack_wait.disconnected_for = number;
    }
}

/// Formats a granted time for a client; "off" for zero.
pub fn format(granted: Duration) -> String {
    if granted.is_zero() { "off".to_owned() } else { duration::format(granted) }
}
