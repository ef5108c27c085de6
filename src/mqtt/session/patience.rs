//! How long one session waits for an acknowledgement, where that is not simply what the operator set.
//!
//! Absent from a session that was never cut for want of an acknowledgement.

use super::Session;
use super::sender::SendPolicy;
use crate::mqtt::packet::ProtocolVersion;
use std::time::Duration;

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct Patience {
    /// The message that the session was cut for last, and how often in a row.
    cut_by: u64,
    cuts: u32,
}

impl Session {
    /// How long a connection that begins now waits for an acknowledgement: before its first resend (3.x), before its
    /// ack timeout (5.0). Zero: it does not act.
    ///
    /// Once the message that the session was cut for is finished, the next connection is held to the plain ack timeout
    /// again.
    pub fn begin_patience(&mut self, version: ProtocolVersion, policy: &SendPolicy) -> Duration {
        if self.patience.as_ref().is_some_and(|p| !self.sender.is_unfinished(p.cut_by)) {
            self.patience = None;
        }
        if !version.is_v5() {
            return policy.retry.interval;
        }
        policy.ack.after_cuts(self.patience.as_ref().map_or(0, |p| p.cuts))
    }

    /// The session's connection is cut for this message: the next one waits twice as long, if it is the same again.
    pub fn cut_for(&mut self, number: u64) {
        let patience = self.patience.get_or_insert_default();
        let again = patience.cuts > 0 && patience.cut_by == number;
        patience.cuts = if again { patience.cuts.saturating_add(1) } else { 1 };
        patience.cut_by = number;
    }
}
