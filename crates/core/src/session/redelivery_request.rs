//! A client's request for its own retry interval or ack timeout, and the ack wait of a connection.

use crate::session::Session;
use crate::session::ack_wait::{AckWait, InvalidRequest, RequestedTime, bounded, format};
use crate::session::redelivery_policy::RedeliveryPolicy;
use crate::session::wire::Wire;
use std::time::Duration;

impl Session {
    /// Begins the ack wait of a new connection. If the message of the last disconnect is finished,
    /// the plain ack timeout holds again.
    pub fn begin_ack_wait(&mut self, wire: &mut Wire) {
        let window = &self.sender.window;
        if let Some(ack_wait) = &mut self.ack_wait {
            ack_wait.begin_connection(|number| window.contains(number));
        }
        self.set_ack_wait(wire);
    }

    /// Sets the ack wait of a live connection, after the client's request changed.
    pub fn set_ack_wait(&self, wire: &mut Wire) {
        let time = RequestedTime::of(wire.version);
        let disconnects = self.ack_wait.as_ref().map_or(0, |ack_wait| ack_wait.disconnects());
        let granted = self.granted(time);
        wire.requested = self.requested(time).is_some();
        wire.disconnects = u16::try_from(disconnects).unwrap_or(u16::MAX);
        wire.set_ack_wait(match time {
            RequestedTime::RetryInterval => granted,
            RequestedTime::AckTimeout => self.settings().ack.after_disconnects(granted, disconnects),
        });
        wire.set_first_wait(self.settings().first_wait(wire));
    }

    /// Returns the requested time, or the operator's setting if the client requested none. Zero is
    /// off.
    pub fn granted(&self, time: RequestedTime) -> Duration {
        let set = match time {
            RequestedTime::RetryInterval => self.settings().retry.interval,
            RequestedTime::AckTimeout => self.settings().ack.timeout,
        };
        self.requested(time).unwrap_or(set)
    }

    /// Returns the settings of the session as a whole.
    fn settings(&self) -> &RedeliveryPolicy {
        &self.sender.redelivery().own
    }

    /// Returns the time that the client requested, within the operator's bounds; `None` without a
    /// request.
    pub fn requested(&self, time: RequestedTime) -> Option<Duration> {
        self.ack_wait.as_deref()?.time(time)
    }

    /// Takes a client's request and brings it within the operator's bounds. The request lasts as
    /// long as the session.
    ///
    /// # Errors
    /// [`InvalidRequest`] if the text is not a duration. The earlier value then stays.
    pub fn request_time(&mut self, time: RequestedTime, text: &str) -> Result<(), InvalidRequest> {
        let granted = bounded(time, text, self.settings())?;
        self.ack_wait.get_or_insert_default().set_time(time, granted);
        Ok(())
    }

    /// Takes a request of a 5.0 CONNECT. Returns the granted time as text for CONNACK. A retry
    /// interval is always off.
    ///
    /// # Errors
    /// [`InvalidRequest`] beside the granted time, if the text is not a duration.
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
        (self.requested(RequestedTime::RetryInterval), self.requested(RequestedTime::AckTimeout))
    }

    /// Restores the requested times from the store.
    pub fn restore_requested_times(
        &mut self,
        retry_interval: Option<Duration>,
        ack_timeout: Option<Duration>,
    ) {
        if retry_interval.is_some() || ack_timeout.is_some() {
            self.ack_wait = Some(Box::new(AckWait::requested(retry_interval, ack_timeout)));
        }
    }

    /// Records a disconnect for the message with this running number. The next connection waits
    /// twice as long, and twice as long again after each further disconnect for the same message.
    pub fn record_disconnect_for(&mut self, number: u64) {
        self.ack_wait.get_or_insert_default().record_disconnect_for(number);
    }
}
