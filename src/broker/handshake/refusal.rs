//! The reasons why a socket is closed in its handshakes.

use crate::broker::handshake_counts::HandshakeEnd;
use crate::net::layers::LayerError;
use crate::net::proxy::ProxyError;
use crate::net::tls::verify::ChainError;
use crate::net::websocket::upgrade::UpgradeError;
use std::io;
use thiserror::Error;

/// The reason why a socket is closed in its handshakes, for the log.
#[derive(Debug, Error)]
pub(super) enum HandshakeRefusal {
    /// The peer closed the connection. Port scans and health checks do so.
    #[error("closed by the peer")]
    Closed,
    /// The socket failed.
    #[error("{0}")]
    Socket(#[from] io::Error),
    /// The listener expects other bytes.
    #[error("{0}")]
    Layer(#[from] LayerError),
    /// The peer is no trusted proxy.
    #[error("the peer is not in trusted_proxies")]
    Untrusted,
    /// The PROXY header is missing or refused.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The WebSocket upgrade is refused.
    #[error(transparent)]
    Upgrade(#[from] UpgradeError),
    /// The client's certificate is not valid any more.
    #[error(transparent)]
    Chain(#[from] ChainError),
}

impl HandshakeRefusal {
    /// Returns the cause to count. `None` means that the peer just left: this is no refusal, and
    /// not worth more than a debug line.
    pub(super) fn end(&self) -> Option<HandshakeEnd> {
        Some(match self {
            HandshakeRefusal::Closed | HandshakeRefusal::Socket(_) => return None,
            HandshakeRefusal::Layer(LayerError::NotTls(_))
            | HandshakeRefusal::Upgrade(UpgradeError::NotHttp(_)) => HandshakeEnd::WrongProtocol,
            HandshakeRefusal::Layer(LayerError::Tls(error)) if is_about_certificate(error) => {
                HandshakeEnd::Certificate
            }
            // A frame can only come behind the upgrade.
            HandshakeRefusal::Layer(LayerError::Frame(_)) | HandshakeRefusal::Upgrade(_) => {
                HandshakeEnd::Upgrade
            }
            HandshakeRefusal::Layer(_) => HandshakeEnd::Tls,
            HandshakeRefusal::Untrusted => HandshakeEnd::UntrustedProxy,
            HandshakeRefusal::Proxy(_) => HandshakeEnd::ProxyHeader,
            HandshakeRefusal::Chain(_) => HandshakeEnd::Certificate,
        })
    }
}

/// Returns true if the broker refuses the certificate of the client, or misses it.
fn is_about_certificate(error: &rustls::Error) -> bool {
    matches!(
        error,
        rustls::Error::NoCertificatesPresented
            | rustls::Error::InvalidCertificate(_)
            | rustls::Error::InvalidCertRevocationList(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::layers::FirstBytes;

    #[test]
    fn each_refusal_has_its_cause_and_a_peer_that_leaves_has_none() {
        let tls = |error| HandshakeRefusal::Layer(LayerError::Tls(error));
        for (refusal, end) in [
            (HandshakeRefusal::Closed, None),
            (HandshakeRefusal::Socket(io::ErrorKind::ConnectionReset.into()), None),
            (HandshakeRefusal::Untrusted, Some(HandshakeEnd::UntrustedProxy)),
            (ProxyError::Missing(FirstBytes::Mqtt).into(), Some(HandshakeEnd::ProxyHeader)),
            (LayerError::NotTls(FirstBytes::Mqtt).into(), Some(HandshakeEnd::WrongProtocol)),
            (UpgradeError::NotHttp(FirstBytes::Mqtt).into(), Some(HandshakeEnd::WrongProtocol)),
            (UpgradeError::NotFound.into(), Some(HandshakeEnd::Upgrade)),
            (LayerError::HandshakeTooLong.into(), Some(HandshakeEnd::Tls)),
            (tls(rustls::Error::DecryptError), Some(HandshakeEnd::Tls)),
            (tls(rustls::Error::NoCertificatesPresented), Some(HandshakeEnd::Certificate)),
            (ChainError::NoCertificate.into(), Some(HandshakeEnd::Certificate)),
        ] {
            assert_eq!(refusal.end(), end, "{refusal}");
        }
    }
}
