//! The codecs of one established connection, between its socket and MQTT.
//!
//! ```text
//! socket -> TLS records -> WebSocket frames -> MQTT        open
//! socket <- TLS records <- WebSocket frames <- MQTT        seal
//! ```
//!
//! Each of the two codecs may be absent. A plain connection has no `Layers` at all.

use crate::named_enum::named_enum;
use std::io::IoSlice;

use thiserror::Error;

use super::tls::engine::Tls;
use super::websocket::frame::{FrameError, Ws};

/// Most MQTT bytes that one call of [`Layers::seal`] seals.
pub const SEAL_MAX: usize = 64 * 1024;

/// The codecs of one connection: TLS, WebSocket, or both. `Layers` is `Send`, so it moves with the
/// socket to the shard of its session.
#[derive(Debug, Default)]
pub struct Layers {
    tls: Option<Box<Tls>>,
    ws: Option<Ws>,
}

/// The result of [`Layers::open`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenedWire {
    /// Number of wire bytes used from the front. The caller keeps the rest, and presents it again
    /// with the bytes that follow. The rest is less than one TLS record (18 KiB at most), and empty
    /// without TLS.
    pub used: usize,
    /// True if the peer closed its side by a WebSocket close frame or by close_notify. Nothing that
    /// comes later is opened. The bytes opened before count.
    pub closed: bool,
}

/// Bytes that the layers of the connection do not accept.
///
/// No variant has bytes of the peer in it.
#[derive(Debug, Error)]
pub enum LayerError {
    /// The first bytes on a TLS listener are no TLS record.
    #[error("no TLS on a TLS listener: {0}")]
    NotTls(FirstBytes),
    /// rustls refused a record or the handshake, or the peer sent a fatal alert.
    #[error("TLS: {0}")]
    Tls(#[source] rustls::Error),
    /// The client offers no version that the listener takes.
    #[error(
        "TLS: the client offers {offered} at most, and the listener takes 1.2 and 1.3, or 1.3 alone with minimum = \"1.3\": update the client, or put a proxy in front of it (docs/listeners.md, \"TLS\")"
    )]
    OldVersion {
        /// The newest version that the client offers.
        offered: &'static str,
    },
    /// The peer split a handshake message after the handshake.
    #[error("TLS: a handshake message after the handshake is split over records")]
    SplitHandshakeMessage,
    /// The peer sent a flight of the handshake that is longer than 32 KiB.
    #[error("TLS: a handshake message of more than 32 KiB")]
    HandshakeTooLong,
    /// A WebSocket frame that the standard or MQTT forbids.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

named_enum! {
    /// The protocol that the first bytes of a connection look like.
    pub enum FirstBytes {
        /// A CONNECT packet of MQTT.
        Mqtt = "the first byte is that of an MQTT CONNECT",
        /// A TLS record with a handshake message.
        Tls = "the first bytes are those of a TLS handshake",
        /// A request line of HTTP.
        Http = "the first bytes are those of an HTTP request",
        /// A PROXY protocol header.
        Proxy = "the first bytes are those of a PROXY protocol header",
        /// Nothing of these.
        Other = "the first bytes are of no known protocol",
    }
}

impl FirstBytes {
    /// Returns the protocol that the first bytes look like. One byte decides between MQTT and TLS;
    /// HTTP and PROXY need up to six.
    pub fn of(bytes: &[u8]) -> FirstBytes {
        match bytes {
            // MQTT 5.0 3.1.1: a CONNECT has type 1 and no flags.
            [0x10, ..] => FirstBytes::Mqtt,
            // RFC 8446 5.1: content type handshake, version 3.x.
            [0x16] | [0x16, 0x03, ..] => FirstBytes::Tls,
            [b'P', b'R', b'O', b'X', b'Y', b' ', ..] | [b'\r', b'\n', b'\r', b'\n', ..] => FirstBytes::Proxy,
            [b'A'..=b'Z', b'A'..=b'Z', b'A'..=b'Z', ..] => FirstBytes::Http,
            _ => FirstBytes::Other,
        }
    }
}

impl Layers {
    /// Returns the layers of a connection after its handshakes. TLS is below WebSocket.
    pub fn new(tls: Option<Tls>, ws: Option<Ws>) -> Layers {
        Layers { tls: tls.map(Box::new), ws }
    }

    /// Returns these layers with WebSocket frames between TLS and MQTT.
    pub fn with_websocket(self, ws: Ws) -> Layers {
        Layers { ws: Some(ws), ..self }
    }

    /// Opens wire bytes: appends the MQTT bytes in them to `plain`, and replies (pong, alert; a
    /// close frame after an error) to `out`. The caller sends `out` even after an error.
    ///
    /// After a close frame of the peer, [`Layers::seal`] still seals. [`Layers::close`] replies to
    /// it, once everything before it is handled.
    ///
    /// A pong is appended only if `out` was empty: while older bytes wait for the socket, the
    /// newest ping waits too. So a client that pings and does not read makes `out` grow by one pong
    /// at most.
    ///
    /// `wire` is scratch after the call, except the part that was not used.
    ///
    /// # Errors
    /// The peer broke a rule of TLS or WebSocket. The connection ends; MQTT bytes that the same
    /// call opened before the error may be missing in `plain`.
    pub fn open(
        &mut self,
        wire: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<OpenedWire, LayerError> {
        let Some(tls) = &mut self.tls else {
            let Some(ws) = &mut self.ws else {
                plain.extend_from_slice(wire);
                return Ok(OpenedWire { used: wire.len(), closed: false });
            };
            let is_idle = out.is_empty();
            let kept = ws.open(wire, out)?;
            if is_idle {
                ws.reply_to_ping(out);
            }
            plain.extend_from_slice(wire.get(..kept).unwrap_or_default());
            return Ok(OpenedWire { used: wire.len(), closed: ws.is_read_closed() });
        };
        let start = plain.len();
        let opened = tls.open(wire, plain, out)?;
        let Some(ws) = &mut self.ws else { return Ok(opened) };
        // Pongs and close frames are rare, so their buffer is allocated when one is written.
        let mut replies = Vec::new();
        let kept = ws.open(plain.get_mut(start..).unwrap_or_default(), &mut replies);
        if out.is_empty() {
            ws.reply_to_ping(&mut replies);
        }
        plain.truncate(start + *kept.as_ref().unwrap_or(&0));
        tls.seal(std::iter::once(replies.as_slice()), usize::MAX, out);
        if let Err(error) = kept {
            tls.close(out);
            return Err(error.into());
        }
        Ok(OpenedWire { used: opened.used, closed: opened.closed || ws.is_read_closed() })
    }

    /// Appends the reply to the newest ping of WebSocket that waits, if there is one. Called when
    /// the socket has taken everything that stood before the reply.
    pub fn reply_to_ping(&mut self, out: &mut Vec<u8>) {
        let Some(ws) = &mut self.ws else { return };
        match &mut self.tls {
            Some(tls) => {
                let mut reply = Vec::new();
                ws.reply_to_ping(&mut reply);
                tls.seal(std::iter::once(reply.as_slice()), usize::MAX, out);
            }
            None => ws.reply_to_ping(out),
        }
    }

    /// Seals up to 64 KiB of `pieces` and appends the wire bytes to `out`. Returns the number of
    /// MQTT bytes sealed.
    ///
    /// With WebSocket, one call makes one binary frame. With TLS, a record has up to 16 KiB, or the
    /// configured record size. Returns 0 after [`Layers::close`] or an error of [`Layers::open`].
    pub fn seal(&mut self, pieces: &[IoSlice<'_>], out: &mut Vec<u8>) -> usize {
        let whole: usize = pieces.iter().map(|piece| piece.len()).sum();
        let len = whole.min(SEAL_MAX);
        if len == 0 || self.ws.as_ref().is_some_and(Ws::is_closed) {
            return 0;
        }
        let (header, header_len) = if self.ws.is_some() { Ws::header(len) } else { Default::default() };
        let header = header.get(..header_len).unwrap_or_default();
        let bytes = std::iter::once(header).chain(pieces.iter().map(|piece| &**piece));
        match &mut self.tls {
            Some(tls) => tls.seal(bytes, header_len + len, out).saturating_sub(header_len),
            None => {
                let mut left = header_len + len;
                for piece in bytes {
                    let part = piece.get(..left).unwrap_or(piece);
                    out.extend_from_slice(part);
                    left -= part.len();
                }
                len
            }
        }
    }

    /// Appends the orderly end of the connection to `out`: a WebSocket close frame, with the peer's
    /// code or 1000, and TLS's close_notify. A second call appends nothing.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        let mut frame = Vec::new();
        if let Some(ws) = &mut self.ws {
            ws.close(&mut frame);
        }
        match &mut self.tls {
            Some(tls) => {
                tls.seal(std::iter::once(frame.as_slice()), usize::MAX, out);
                tls.close(out);
            }
            None => out.extend_from_slice(&frame),
        }
    }

    /// Returns true if the keys of TLS 1.2 are nearly used up: the owner disconnects the client
    /// with 0xA0 (Maximum connect time) soon. 1,024 more records may be sealed.
    pub fn must_close(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.must_close())
    }

    /// Returns true if the peer closed its side by a WebSocket close frame or by close_notify.
    pub fn is_peer_closed(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_peer_closed())
            || self.ws.as_ref().is_some_and(Ws::is_read_closed)
    }

    /// Returns true if a part of a WebSocket frame has come, and its rest has not.
    pub fn is_in_frame(&self) -> bool {
        self.ws.as_ref().is_some_and(Ws::is_in_frame)
    }

    /// Returns the TLS connection, if there is one.
    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_deref()
    }
}

#[cfg(test)]
#[path = "layers_tests.rs"]
mod tests;
