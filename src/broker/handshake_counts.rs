//! The connections that were refused in their handshakes, by cause.

use std::sync::atomic::{AtomicU64, Ordering};

/// The cause for which a connection was refused in its handshakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeEnd {
    /// The handshakes took longer than `network.connect_timeout`.
    Timeout,
    /// `limits.handshakes` was reached, and this socket made room.
    Evicted,
    /// The peer is not in `trusted_proxies`.
    UntrustedProxy,
    /// The PROXY header is missing or refused.
    ProxyHeader,
    /// The first bytes are those of another protocol.
    WrongProtocol,
    /// TLS failed.
    Tls,
    /// The client has no certificate, or an invalid one.
    Certificate,
    /// The WebSocket upgrade is refused.
    Upgrade,
}

impl HandshakeEnd {
    /// Every cause, in the order of its number.
    pub const ALL: [HandshakeEnd; 8] = [
        HandshakeEnd::Timeout,
        HandshakeEnd::Evicted,
        HandshakeEnd::UntrustedProxy,
        HandshakeEnd::ProxyHeader,
        HandshakeEnd::WrongProtocol,
        HandshakeEnd::Tls,
        HandshakeEnd::Certificate,
        HandshakeEnd::Upgrade,
    ];

    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            HandshakeEnd::Timeout => "timeout",
            HandshakeEnd::Evicted => "evicted",
            HandshakeEnd::UntrustedProxy => "untrusted_proxy",
            HandshakeEnd::ProxyHeader => "proxy_header",
            HandshakeEnd::WrongProtocol => "wrong_protocol",
            HandshakeEnd::Tls => "tls",
            HandshakeEnd::Certificate => "certificate",
            HandshakeEnd::Upgrade => "upgrade",
        }
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
