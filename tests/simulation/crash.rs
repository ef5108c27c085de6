//! Crashes of the whole broker: memory is gone, every connection breaks, and clients come back.

use crate::oracle::Oracle;
use crate::trace::trace;
use crate::world::World;
use homing::mqtt::packet::QoS;

impl World {
    /// The broker's process ends without a word, and another begins in a while.
    pub fn crash(&mut self) {
        trace!(self, "== the broker crashes");
        self.forget_the_brokers();
        self.break_all();
        self.oracle.crashed(self.now);
        self.up_at = self.now + self.rng.between(10, 1_500);
        self.boot();
    }
}

impl Oracle {
    /// Nothing is stored: no session, will or retained message is left.
    pub fn crashed(&mut self, now: u64) {
        self.end_all(now);
        self.wills_crash(now);
        let Oracle { messages, retaining, forgotten, .. } = self;
        for retaining in retaining.values_mut() {
            retaining.retain(|m| {
                let message = &messages[*m];
                // What has no acknowledgement yet is sent again.
                let again =
                    message.acknowledged.is_none() && message.qos > QoS::AtMostOnce && !message.is_will;
                if !again {
                    forgotten.insert(*m, now);
                }
                again
            });
        }
    }

    /// An acknowledgement came that the broker had sent before it crashed.
    pub fn acknowledged_before_crash(&mut self, message: usize, crash: u64) {
        if let Some(retaining) = self.retaining.get_mut(&self.messages[message].topic) {
            retaining.retain(|m| *m != message);
        }
        self.forgotten.insert(message, crash);
    }
}
