//! The handshake of a TLS connection: bytes in and bytes out, until it is done.

use std::fmt;
use std::num::NonZeroU16;
use std::sync::Arc;

use rustls::server::UnbufferedServerConnection;
use rustls::{PeerIncompatible, ServerConfig};

use super::{RECORD_MAX, Tls, drive};
use crate::net::layers::{FirstBytes, LayerError};

/// Most bytes of an incomplete flight that the caller keeps during a handshake: a client's
/// certificate chain in one record of full size, and as much again.
const HANDSHAKE_KEPT_MAX: usize = 32 * 1024;

/// First byte of a TLS record that carries a handshake message (RFC 8446 5.1).
const HANDSHAKE: u8 = 0x16;

/// A TLS handshake in progress: bytes in, bytes out, until it is done.
pub struct TlsHandshake {
    connection: UnbufferedServerConnection,
    /// The configuration at the begin of the handshake. A reload may come before its end.
    config: Arc<ServerConfig>,
    record_size: NonZeroU16,
    /// The version in the ClientHello, which is the newest one that an old client offers.
    offered: Option<u16>,
    started: bool,
    /// True after an error: rustls is not called again, and the handshake cannot be finished.
    failed: bool,
    /// True if the peer has sent close_notify.
    peer_closed: bool,
}

/// The progress of a handshake after some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Number of bytes used from the front. The caller keeps the present content of the rest, and
    /// presents it again with the bytes that follow: parts of the rest may be decrypted already.
    pub used: usize,
    /// True if the handshake is done.
    pub done: bool,
    /// True if the peer closed the connection with close_notify.
    pub closed: bool,
}

impl TlsHandshake {
    /// Begins the handshake of one connection.
    ///
    /// # Errors
    /// rustls refuses the configuration, for example a fragment size out of its bounds.
    pub fn new(config: Arc<ServerConfig>) -> Result<TlsHandshake, LayerError> {
        let record_size = record_size(&config);
        let connection = UnbufferedServerConnection::new(Arc::clone(&config)).map_err(LayerError::Tls)?;
        Ok(TlsHandshake {
            connection,
            config,
            record_size,
            offered: None,
            started: false,
            failed: false,
            peer_closed: false,
        })
    }

    /// Takes bytes of the peer. Appends handshake bytes and alerts to `out`, and to `plain` the
    /// bytes that arrived behind the end of the handshake.
    ///
    /// After `done`, the rest of `wire` belongs to [`Tls::open`].
    ///
    /// # Errors
    /// The handshake failed; the alert for the peer, if there is one, is in `out`. A first byte
    /// that is no TLS names the protocol that it looks like. After an error every call uses all
    /// bytes and reports a closed connection.
    pub fn advance(
        &mut self,
        wire: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<Progress, LayerError> {
        if self.failed {
            return Ok(Progress { used: wire.len(), done: false, closed: true });
        }
        let result = self.step(wire, plain, out);
        self.failed = result.is_err();
        result
    }

    fn step(
        &mut self,
        wire: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<Progress, LayerError> {
        if !self.started {
            match wire.first() {
                None => return Ok(Progress { used: 0, done: false, closed: false }),
                Some(&HANDSHAKE) => self.started = true,
                Some(_) => return Err(LayerError::NotTls(FirstBytes::of(wire))),
            }
        }
        self.offered = self.offered.or_else(|| client_version(wire));
        let step = drive(&mut self.connection, wire, plain, out).map_err(|error| self.explained(error))?;
        let kept = wire.len() - step.used;
        let done = !self.connection.is_handshaking();
        if !done && kept > HANDSHAKE_KEPT_MAX {
            return Err(LayerError::HandshakeTooLong);
        }
        if done && step.has_record {
            return Err(LayerError::SplitHandshakeMessage);
        }
        self.peer_closed |= step.closed;
        Ok(Progress { used: step.used, done, closed: step.closed })
    }

    /// Returns an error that names the client's version, if that is why the handshake failed.
    fn explained(&self, error: LayerError) -> LayerError {
        use PeerIncompatible::{SupportedVersionsExtensionRequired, Tls12NotOfferedOrEnabled};
        let LayerError::Tls(rustls::Error::PeerIncompatible(what)) = &error else { return error };
        // Clients of all newer versions write 0x0303 there.
        let offered = match self.offered {
            Some(0x0300) => "SSL 3.0",
            Some(0x0301) => "TLS 1.0",
            Some(0x0302) => "TLS 1.1",
            Some(_) if matches!(what, SupportedVersionsExtensionRequired | Tls12NotOfferedOrEnabled) => {
                "TLS 1.2"
            }
            _ => return error,
        };
        LayerError::OldVersion { offered }
    }

    /// Returns true if the handshake is done.
    pub fn is_done(&self) -> bool {
        !self.failed && !self.connection.is_handshaking()
    }

    /// Returns true if the handshake began with this configuration.
    pub(in crate::net::tls) fn is_of(&self, config: &Arc<ServerConfig>) -> bool {
        Arc::ptr_eq(&self.config, config)
    }

    /// Returns the connection for traffic, or `None` if the handshake is not done.
    pub fn finish(self) -> Option<Tls> {
        if !self.is_done() {
            return None;
        }
        Some(Tls::new(self.connection, self.record_size, self.peer_closed))
    }
}

/// Returns the plain bytes of a record. rustls counts the 5 bytes of the header too.
fn record_size(config: &ServerConfig) -> NonZeroU16 {
    let size = config.max_fragment_size.map_or(RECORD_MAX, |size| size.saturating_sub(5)).min(RECORD_MAX);
    u16::try_from(size).ok().and_then(NonZeroU16::new).unwrap_or(NonZeroU16::MIN)
}

/// Returns the version in a ClientHello at the front of these bytes; `None` without a ClientHello.
// RFC 8446 4.1.2 and 5.1: record header, message type and length, then `legacy_version`.
fn client_version(wire: &[u8]) -> Option<u16> {
    match wire {
        [HANDSHAKE, _, _, _, _, 1, _, _, _, major, minor, ..] => Some(u16::from_be_bytes([*major, *minor])),
        _ => None,
    }
}

impl fmt::Debug for TlsHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsHandshake").field("done", &self.is_done()).finish_non_exhaustive()
    }
}
