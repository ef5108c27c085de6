//! The traffic of a client, measured against its rates.

use crate::access::meter::{RateMeter, TrafficMeter, TrafficRates};
use crate::login::debts::Debtor;
use crate::time::Instant;
use std::time::Duration;

/// The traffic of a client, measured against its rates.
#[derive(Debug)]
pub struct MeteredTraffic {
    /// The meters.
    pub meter: TrafficMeter,
    /// The meter of acknowledgements that were handled during a pause for the rate.
    ahead: RateMeter,
    /// The debtor after the connection; `None` if the rate came after CONNACK, by a reload.
    pub debtor: Option<Debtor>,
    /// The time at which the pause for the rate ends. Without a pause: the end of the last pause;
    /// [`Instant::ZERO`] before the first.
    pub until: Instant,
    /// The next time at which the broker looks whether a paused client is gone.
    pub look: Instant,
}

/// The time between two looks whether a client that is paused for its rate is gone. A look takes a
/// system call.
const LOOK: Duration = Duration::from_secs(1);

impl MeteredTraffic {
    /// Returns the meters of a client that has sent nothing.
    pub fn new(now: Instant) -> MeteredTraffic {
        MeteredTraffic {
            meter: TrafficMeter::new(now),
            ahead: RateMeter::new(now),
            debtor: None,
            until: Instant::ZERO,
            look: Instant::ZERO,
        }
    }

    /// Pauses the client until `due`.
    pub fn pause(&mut self, now: Instant, due: Instant) {
        self.until = due;
        self.looked(now);
    }

    /// Arranges the next look whether the paused client is gone.
    pub(super) fn looked(&mut self, now: Instant) {
        self.look = now + LOOK;
    }

    /// Meters an acknowledgement that is handled during the pause, and extends the pause. Returns
    /// false, and meters nothing, if the acknowledgements alone are above the rate. The next look
    /// is then at the time from which one may be handled.
    pub(crate) fn meter_ahead(&mut self, now: Instant, rates: TrafficRates, bytes: usize) -> bool {
        // Only a rate in bytes bounds acknowledgements.
        let Some(rate) = rates.bytes else { return true };
        let due = self.ahead.due(rate);
        if due > now {
            self.look = self.look.min(due);
            return false;
        }
        self.ahead.meter(now, rate, bytes as u64);
        self.until = self.until.max(self.meter.meter(now, rates, 0, bytes as u64));
        true
    }
}
