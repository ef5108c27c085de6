//! The TLS connection of a client, on rustls's unbuffered API (0.23).
//!
//! rustls keeps no buffer here. Records are decrypted in the caller's read buffer and encrypted
//! into the caller's write buffer, which saves 4 KiB for each connection. An idle one takes 3.7 KiB
//! more than without TLS: 2.5 KiB of rustls, and 1.2 KiB of aws-lc for the keys.
//!
//! Versions and cipher suites are in the configuration ([`rustls::ServerConfig`]). rustls itself
//! ends a connection with too many empty records, warnings, key updates or renegotiations.

mod handshake;

use std::fmt;
use std::num::NonZeroU16;

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError};
use rustls::{HandshakeKind, SupportedCipherSuite};

use crate::net::layers::{LayerError, OpenedWire};
pub use handshake::{Progress, TlsHandshake};

/// Longest fragment of a record (RFC 8446 5.1).
pub const RECORD_MAX: usize = 16 * 1024;

/// Room for the header, nonce and tag of a record (29 bytes at most), and for a key update of the
/// peer's and one of our own before it (27 bytes each). Alerts never wait here: `drive` takes them.
const OVERHEAD: usize = 128;

/// Records that are left when [`Tls::must_close`] becomes true.
const RECORDS_RESERVED: u64 = 1024;

/// The TLS connection after its handshake.
pub struct Tls {
    connection: UnbufferedServerConnection,
    /// Largest number of plain bytes in a record, 512 to 16,384.
    record_size: NonZeroU16,
    /// Records that may still be sealed with the keys of TLS 1.2. `u64::MAX` in TLS 1.3, where
    /// rustls renews the keys by itself.
    records_left: u64,
    /// True after an error or after close_notify was sent: rustls is not called again.
    ended: bool,
    /// True if the peer has sent close_notify. Nothing that comes later is opened.
    peer_closed: bool,
    /// The number of the server that admitted the client.
    checked_by: u32,
}

impl Tls {
    /// Returns the connection of a handshake that is done. `peer_closed` is true if the peer has
    /// sent close_notify already.
    fn new(connection: UnbufferedServerConnection, record_size: NonZeroU16, peer_closed: bool) -> Tls {
        let records_left = match connection.negotiated_cipher_suite() {
            // TLS 1.2 cannot renew its keys: rustls stops at this number of records.
            Some(SupportedCipherSuite::Tls12(suite)) => suite.common.confidentiality_limit,
            _ => u64::MAX,
        };
        Tls { connection, record_size, records_left, ended: false, peer_closed, checked_by: 0 }
    }

    /// Opens the whole records in `wire` and appends their content to `plain`. Appends alerts to
    /// `out`.
    ///
    /// [`OpenedWire::used`] counts the bytes of whole records. The caller keeps the rest, at most
    /// 18 KiB, and presents it again with the bytes that follow.
    ///
    /// # Errors
    /// A record that is not valid, or a fatal alert of the peer. The alert for the peer is in
    /// `out`. A split handshake message is an error: after the handshake only a key update of 5
    /// bytes is legal (RFC 8446 4.6.3), and rustls would need the first part again before it may
    /// encrypt.
    pub fn open(
        &mut self,
        wire: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<OpenedWire, LayerError> {
        if self.ended || self.peer_closed {
            return Ok(OpenedWire { used: wire.len(), closed: true });
        }
        match drive(&mut self.connection, wire, plain, out) {
            // RFC 8446 6.1: data after close_notify is ignored.
            Ok(EngineStep { closed: true, .. }) => {
                self.peer_closed = true;
                Ok(OpenedWire { used: wire.len(), closed: true })
            }
            Ok(EngineStep { has_record: true, .. }) => {
                self.ended = true;
                Err(LayerError::SplitHandshakeMessage)
            }
            Ok(step) => Ok(OpenedWire { used: step.used, closed: false }),
            Err(error) => {
                self.ended = true;
                Err(error)
            }
        }
    }

    /// Seals the bytes of `pieces`, at most `limit`, into records and appends the records to `out`.
    /// Returns the number of plain bytes sealed.
    ///
    /// The number is below the bytes of `pieces` only if `limit` is, or if the connection ended.
    /// Bytes of several pieces are gathered first, because a record needs contiguous bytes.
    pub fn seal<'a>(
        &mut self,
        pieces: impl Iterator<Item = &'a [u8]>,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        let mut pieces = pieces.filter(|piece| !piece.is_empty());
        let (mut sealed, mut piece) = (0, pieces.next().unwrap_or_default());
        while !piece.is_empty() && sealed < limit && !self.ended {
            let most = usize::from(self.record_size.get()).min(limit - sealed);
            let start = out.len();
            let room = most + OVERHEAD;
            out.resize(start + room, 0);
            let done = if let Some((record, rest)) = piece.split_at_checked(most) {
                piece = rest;
                self.encrypt(record, out.get_mut(start..).unwrap_or_default())
            } else {
                // The plain bytes are gathered behind the room of the record.
                while !piece.is_empty() && out.len() - start - room < most {
                    let missing = most - (out.len() - start - room);
                    let (now, rest) = piece.split_at(missing.min(piece.len()));
                    out.extend_from_slice(now);
                    piece = if rest.is_empty() { pieces.next().unwrap_or_default() } else { rest };
                }
                let (_, places) = out.split_at_mut(start);
                let (record, plain) = places.split_at_mut(room);
                self.encrypt(plain, record)
            };
            out.truncate(start + done.wire);
            sealed += done.plain;
            if piece.is_empty() {
                piece = pieces.next().unwrap_or_default();
            }
        }
        sealed
    }

    /// Appends close_notify to `out`, once (RFC 8446 6.1).
    pub fn close(&mut self, out: &mut Vec<u8>) {
        if self.ended {
            return;
        }
        self.ended = true;
        let start = out.len();
        out.resize(start + OVERHEAD, 0);
        let mut written = 0;
        if let Ok(ConnectionState::WriteTraffic(mut writer)) =
            self.connection.process_tls_records(&mut []).state
        {
            let room = out.get_mut(start..).unwrap_or_default();
            written = writer.queue_close_notify(room).unwrap_or(0);
        }
        out.truncate(start + written);
    }

    /// Returns true if the keys of this connection must not seal many more records: fewer than
    /// 1,024 of the 2^24 that TLS 1.2 with AES-GCM allows are left. The owner disconnects the
    /// client.
    ///
    /// TLS 1.3 renews its keys, so the result is always false there.
    pub fn must_close(&self) -> bool {
        self.records_left <= RECORDS_RESERVED
    }

    /// Returns true if the peer has sent close_notify.
    pub fn is_peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// Notes the number of the server that admitted the client.
    pub(super) fn admitted_by(&mut self, server: u32) {
        self.checked_by = server;
    }

    /// Returns the number of the server that admitted the client.
    pub(super) fn checked_by(&self) -> u32 {
        self.checked_by
    }

    /// Returns the name of the cipher suite, for the log.
    pub fn cipher_suite(&self) -> &'static str {
        self.connection
            .negotiated_cipher_suite()
            .and_then(|suite| suite.suite().as_str())
            .unwrap_or("unknown")
    }

    /// Returns true if the client resumed an earlier session with a ticket.
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Returns the certificate chain of the client, its own certificate first; empty if the client
    /// sent none. A resumed client has the chain of its first handshake.
    pub fn peer_certificates(&self) -> &[rustls::pki_types::CertificateDer<'static>] {
        self.connection.peer_certificates().unwrap_or_default()
    }

    /// Encrypts `plain` as one record at the front of `room`, which has [`OVERHEAD`] bytes more.
    ///
    /// Nothing is sealed if the keys are used up; the connection has ended then.
    fn encrypt(&mut self, plain: &[u8], room: &mut [u8]) -> Sealed {
        // No part of a handshake message is pending here, so rustls accepts an empty buffer.
        let result = match self.connection.process_tls_records(&mut []).state {
            Ok(ConnectionState::WriteTraffic(mut writer)) => writer.encrypt(plain, room),
            _ => Err(EncryptError::EncryptExhausted),
        };
        match result {
            Ok(wire) => {
                // Each call makes one record of traffic; a key update comes rarely, and not in 1.2.
                self.records_left = self.records_left.saturating_sub(1);
                Sealed { plain: plain.len(), wire }
            }
            Err(_) => {
                self.ended = true;
                Sealed { plain: 0, wire: 0 }
            }
        }
    }
}

/// The bytes of one call of [`Tls::encrypt`].
struct Sealed {
    plain: usize,
    wire: usize,
}

/// The result of [`drive`].
struct EngineStep {
    /// Bytes used from the front.
    used: usize,
    /// The peer sent close_notify.
    closed: bool,
    /// The unused bytes begin with a whole record: rustls still needs it, because it has a part of
    /// a handshake message.
    has_record: bool,
}

/// Gives `wire` to rustls until rustls needs more bytes.
///
/// Costs one call of rustls for each record.
///
/// # Errors
/// rustls refused the bytes. The alert is in `out`.
fn drive(
    connection: &mut UnbufferedServerConnection,
    wire: &mut [u8],
    plain: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<EngineStep, LayerError> {
    let (mut used, mut closed) = (0, false);
    loop {
        let status = connection.process_tls_records(wire.get_mut(used..).unwrap_or_default());
        let discard = status.discard;
        let mut more = true;
        match status.state {
            Ok(ConnectionState::ReadTraffic(mut reader)) => {
                while let Some(record) = reader.next_record() {
                    plain.extend_from_slice(record.map_err(LayerError::Tls)?.payload);
                }
            }
            Ok(ConnectionState::EncodeTlsData(mut encoder)) => encode(&mut encoder, out),
            // The caller sends `out`, after an error too.
            Ok(ConnectionState::TransmitTlsData(transmit)) => transmit.done(),
            Ok(ConnectionState::PeerClosed) => closed = true,
            // Early data is not offered: the configuration has none.
            Ok(_) => more = false,
            Err(error) => {
                drain(connection, out);
                return Err(LayerError::Tls(error));
            }
        }
        used += discard;
        if !more {
            break;
        }
    }
    let rest = wire.get(used..).unwrap_or_default();
    let has_record = matches!(rest, [_, _, _, high, low, body @ ..] if body.len() >= usize::from(u16::from_be_bytes([*high, *low])));
    Ok(EngineStep { used, closed, has_record })
}

/// Appends the alert that rustls queued before it returned an error.
///
/// The loop looks at `wants_write` first: without queued bytes rustls would read records again.
fn drain(connection: &mut UnbufferedServerConnection, out: &mut Vec<u8>) {
    while connection.wants_write() {
        match connection.process_tls_records(&mut []).state {
            Ok(ConnectionState::EncodeTlsData(mut encoder)) => encode(&mut encoder, out),
            Ok(ConnectionState::ReadTraffic(mut reader)) => while reader.next_record().is_some() {},
            _ => return,
        }
    }
}

/// Appends one queued record to `out`.
fn encode(encoder: &mut EncodeTlsData<'_, rustls::server::ServerConnectionData>, out: &mut Vec<u8>) {
    let start = out.len();
    if let Err(EncodeError::InsufficientSize(needs)) = encoder.encode(&mut []) {
        out.resize(start + needs.required_size, 0);
        if encoder.encode(out.get_mut(start..).unwrap_or_default()).is_err() {
            out.truncate(start);
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("suite", &self.cipher_suite())
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
