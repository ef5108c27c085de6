//! How long one session waits for an acknowledgement, where that is not simply what the operator set: what its client
//! asked for, within the operator's bounds, and what its cuts taught.
//!
//! Absent from a session that never asked and was never cut.

use super::Session;
use super::wire::Wire;
use crate::time::duration;
use std::time::Duration;

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct Patience {
    retry_interval: Option<Duration>,
    ack_timeout: Option<Duration>,
    /// The message that the session was cut for last, and how often in a row.
    cut_by: u64,
    cuts: u32,
}

/// What a client may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The first spacing of resends on its 3.1 and 3.1.1 connections.
    RetryInterval,
    /// The ack timeout of its 5.0 connections.
    AckTimeout,
}

impl Wish {
    /// As in user properties and topics.
    pub const fn name(self) -> &'static str {
        match self {
            Wish::RetryInterval => "retry-interval",
            Wish::AckTimeout => "ack-timeout",
        }
    }

    pub fn from_name(name: &str) -> Option<Wish> {
        [Wish::RetryInterval, Wish::AckTimeout].into_iter().find(|wish| wish.name() == name)
    }
}

/// A wish that does not read as a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

impl Session {
    /// Settles how long a connection that begins now waits for an acknowledgement: before its first resend (3.x), before its
    /// ack timeout (5.0).
    ///
    /// Once the message that the session was cut for is finished, the next connection is held to the plain ack timeout
    /// again.
    pub fn begin_patience(&mut self, wire: &mut Wire) {
        let sender = &self.sender;
        if let Some(patience) = self.patience.as_mut().filter(|p| !sender.is_unfinished(p.cut_by)) {
            patience.cuts = 0;
        }
        self.set_patience(wire);
    }

    /// The same in the midst of a connection.
    pub fn set_patience(&self, wire: &mut Wire) {
        let wish = if wire.version.is_v5() { Wish::AckTimeout } else { Wish::RetryInterval };
        let cuts = self.patience.as_ref().map_or(0, |p| p.cuts);
        let granted = self.granted(wish);
        wire.asked = self.asked(wish).is_some();
        wire.cuts = u16::try_from(cuts).unwrap_or(u16::MAX);
        wire.patience = match wish {
            Wish::RetryInterval => granted,
            Wish::AckTimeout => self.sender.terms.own.ack.after_cuts(granted, cuts),
        };
    }

    /// What holds of what a client may ask for. Zero is off.
    pub fn granted(&self, wish: Wish) -> Duration {
        let own = &self.sender.terms.own;
        let set = match wish {
            Wish::RetryInterval => own.retry.interval,
            Wish::AckTimeout => own.ack.timeout,
        };
        self.asked(wish).unwrap_or(set)
    }

    fn asked(&self, wish: Wish) -> Option<Duration> {
        let patience = self.patience.as_deref()?;
        match wish {
            Wish::RetryInterval => patience.retry_interval,
            Wish::AckTimeout => patience.ack_timeout,
        }
    }

    /// Takes a client's wish, brought within the operator's bounds; it lasts with the session.
    ///
    /// # Errors
    /// [`Unreadable`], and what held goes on.
    pub fn ask(&mut self, wish: Wish, text: &str) -> Result<(), Unreadable> {
        let asked = duration::parse(text).map_err(|_| Unreadable)?;
        let own = &self.sender.terms.own;
        let most = match wish {
            Wish::RetryInterval => own.retry.max_interval,
            Wish::AckTimeout => own.ack.max_timeout,
        };
        // Off is no interval, so the bounds do not concern it.
        let granted =
            if asked.is_zero() { asked } else { asked.min(most).max(own.retry.min_interval.min(most)) };
        let patience = self.patience.get_or_insert_default();
        match wish {
            Wish::RetryInterval => patience.retry_interval = Some(granted),
            Wish::AckTimeout => patience.ack_timeout = Some(granted),
        }
        Ok(())
    }

    /// What the client asked for: retry interval and ack timeout, for the store.
    pub fn wishes(&self) -> (Option<Duration>, Option<Duration>) {
        self.patience.as_ref().map_or((None, None), |p| (p.retry_interval, p.ack_timeout))
    }

    /// What the store had of it.
    pub fn restore_wishes(&mut self, retry_interval: Option<Duration>, ack_timeout: Option<Duration>) {
        if retry_interval.is_some() || ack_timeout.is_some() {
            let patience = self.patience.get_or_insert_default();
            (patience.retry_interval, patience.ack_timeout) = (retry_interval, ack_timeout);
        }
    }

    /// The session's connection is cut for this message: the next one waits twice as long, and twice that if it is cut for the
    /// same again.
    pub fn cut_for(&mut self, number: u64) {
        let patience = self.patience.get_or_insert_default();
        let again = patience.cuts > 0 && patience.cut_by == number;
        patience.cuts = if again { patience.cuts.saturating_add(1) } else { 1 };
        patience.cut_by = number;
    }
}

/// A granted value, as a client reads it.
pub fn format(granted: Duration) -> String {
    if granted.is_zero() { "off".to_owned() } else { duration::format(granted) }
}
