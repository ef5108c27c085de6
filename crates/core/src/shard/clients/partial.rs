//! The bytes that a connection has read and not handled.

use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::shard::clients::read_ahead::Search;
use crate::time::Instant;
use std::time::Duration;

/// Bytes that a connection has read and not handled.
#[derive(Debug)]
pub struct Partial {
    bytes: Vec<u8>,
    charge: Charge,
    /// The time of the last byte of a partial packet, and the maximum time until the next byte.
    /// `None` if no byte is expected.
    awaited: Option<(Instant, Duration)>,
    /// The search for acknowledgements in the bytes behind a pause.
    pub(crate) search: Search,
}

impl Default for Partial {
    fn default() -> Partial {
        Partial { bytes: Vec::new(), charge: Charge::NONE, awaited: None, search: Search::default() }
    }
}

impl Partial {
    /// Keeps these bytes in place of the earlier ones.
    pub fn keep(&mut self, bytes: Vec<u8>) {
        self.charge.set(bytes.capacity());
        self.bytes = bytes;
    }

    /// Returns the number of bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Starts to wait for the next byte of a partial packet, for `timeout` at most.
    pub fn wait(&mut self, now: Instant, timeout: Duration) {
        self.awaited = Some((now, timeout));
    }

    /// Returns the deadline of the next byte of a partial packet, or [`Instant::NEVER`] if none is
    /// expected. The time before `awake_since`, when the machine woke from a suspend, does not
    /// count.
    pub(super) fn deadline(&self, awake_since: Instant) -> Instant {
        next_byte(self.awaited, awake_since)
    }

    /// Removes and returns the bytes. No further byte is expected then.
    pub fn take(&mut self) -> Vec<u8> {
        self.charge.set(0);
        (self.awaited, self.search) = (None, Search::default());
        std::mem::take(&mut self.bytes)
    }
}

/// Returns the deadline of a byte that is awaited since a time, for a maximum time.
pub(super) fn next_byte(awaited: Option<(Instant, Duration)>, awake_since: Instant) -> Instant {
    awaited.map_or(Instant::NEVER, |(since, timeout)| since.max(awake_since) + timeout)
}

impl Recount for Partial {
    fn recount(&self) -> Recounted {
        Recounted { in_use: self.bytes.capacity(), charged: self.charge.bytes() }
    }
}
