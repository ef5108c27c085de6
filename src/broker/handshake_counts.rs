//! The connections that were refused in their handshakes, by cause.

use crate::named_enum::named_enum;
use std::sync::atomic::{AtomicU64, Ordering};

named_enum! {
    /// The cause for which a connection was refused in its handshakes.
    pub enum HandshakeEnd {
        /// The handshakes took longer than `network.connect_timeout`.
        Timeout = "timeout",
        /// `limits.handshakes` was reached, and this socket made room.
        Evicted = "evicted",
        /// The peer is not in `trusted_proxies`.
        UntrustedProxy = "untrusted_proxy",
        /// The PROXY header is missing or refused.
        ProxyHeader = "proxy_header",
        /// The first bytes are those of another protocol.
        WrongProtocol = "wrong_protocol",
        /// TLS failed.
        Tls = "tls",
        /// The client has no certificate, or an invalid one.
        Certificate = "certificate",
        /// The WebSocket upgrade is refused.
        Upgrade = "upgrade",
    }
}

/// The connections that were refused in their handshakes, by cause. The handshake threads count.
#[derive(Debug, Default)]
pub struct HandshakeCounts([AtomicU64; HandshakeEnd::ALL.len()]);

impl HandshakeCounts {
    /// Counts one refused connection.
    pub(super) fn count(&self, end: HandshakeEnd) {
        self.0[end as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the connections that were refused for a cause, since the start.
    pub fn of(&self, end: HandshakeEnd) -> u64 {
        self.0[end as usize].load(Ordering::Relaxed)
    }

    /// Returns the connections that were refused, since the start.
    pub fn total(&self) -> u64 {
        HandshakeEnd::ALL.into_iter().map(|end| self.of(end)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_a_count_of_its_own() {
        let counts = HandshakeCounts::default();
        for (number, end) in HandshakeEnd::ALL.into_iter().enumerate() {
            assert_eq!(end as usize, number);
            (0..=number).for_each(|_| counts.count(end));
            assert_eq!(counts.of(end), number as u64 + 1);
        }
        assert_eq!(counts.total(), 36);
    }
}
