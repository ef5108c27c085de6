//! MQTT over WebSocket (MQTT 5.0 section 6, RFC 6455): what the broker and the clients of its
//! commands share. The broker's frames are in `src/net/websocket`.

use crate::escape;
use crate::mqtt::topic::first_chars;

/// The bit of the last frame of a message, in the first byte of a header.
pub const FIN: u8 = 0x80;
/// The bit of a client's mask, in the second byte of a header.
pub const MASKED: u8 = 0x80;
/// The opcode of a frame that continues a message.
pub const CONTINUATION: u8 = 0x0;
/// The opcode of a text frame, which MQTT does not use.
pub const TEXT: u8 = 0x1;
/// The opcode of a frame with MQTT bytes.
pub const BINARY: u8 = 0x2;
/// The opcode of a close frame.
pub const CLOSE: u8 = 0x8;
/// The opcode of a ping.
pub const PING: u8 = 0x9;
/// The opcode of the reply to a ping.
pub const PONG: u8 = 0xA;
/// Longest payload of a close frame, a ping or a pong, in bytes (RFC 6455 5.5).
pub const CONTROL_MAX: usize = 125;
/// Longest header of a frame without a mask, in bytes.
pub const UNMASKED_HEADER_MAX: usize = 10;

/// The nonce and its answer of RFC 6455 section 1.3. The nonce only has to tell a WebSocket server
/// from another one.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
/// Longest response to the upgrade, in bytes.
const RESPONSE_MAX: usize = 8 * 1024;
/// Characters of the status that are shown.
const STATUS: usize = 100;

/// Returns the header of one whole frame without a mask, and its length. `len` is that of the
/// payload.
#[inline]
pub fn header(opcode: u8, len: usize) -> ([u8; UNMASKED_HEADER_MAX], usize) {
    let mut header = [0; UNMASKED_HEADER_MAX];
    header[0] = FIN | opcode;
    match (u8::try_from(len), u16::try_from(len)) {
        (Ok(len @ ..126), _) => {
            header[1] = len;
            (header, 2)
        }
        (_, Ok(len)) => {
            header[1] = 126;
            header[2..4].copy_from_slice(&len.to_be_bytes());
            (header, 4)
        }
        _ => {
            header[1] = 127;
            header[2..].copy_from_slice(&(len as u64).to_be_bytes());
            (header, 10)
        }
    }
}

/// Returns the request of a client for the WebSocket at `path` of `host`.
pub fn upgrade_request(host: &str, path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
    )
}

/// The response to [`upgrade_request`], byte by byte, so that no byte of the first frame is taken.
#[derive(Debug, Default)]
pub struct UpgradeResponse(Vec<u8>);

/// Tells if a response is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeProgress {
    /// The next byte is needed.
    Incomplete,
    /// The next byte begins a frame.
    Upgraded,
}

impl UpgradeResponse {
    /// Takes the next byte of the response to a request for `path`.
    ///
    /// # Errors
    /// The response is not the upgrade of a WebSocket.
    pub fn take(&mut self, byte: u8, path: &str) -> Result<UpgradeProgress, String> {
        let response = &mut self.0;
        response.push(byte);
        if response.len() > RESPONSE_MAX {
            return Err("the response to the upgrade does not end".to_owned());
        }
        if !b"HTTP/1.1 ".starts_with(response.get(..9).unwrap_or(response)) {
            return Err("the answer to the upgrade is not HTTP".to_owned());
        }
        if !response.ends_with(b"\r\n\r\n") {
            return Ok(UpgradeProgress::Incomplete);
        }
        let response = String::from_utf8_lossy(response);
        let status = response.lines().next().unwrap_or_default();
        if !status.starts_with("HTTP/1.1 101") {
            let status = escape::visible(first_chars(status, STATUS));
            return Err(format!("GET {path} was answered with {status}"));
        }
        match response.contains(ACCEPT) {
            true => Ok(UpgradeProgress::Upgraded),
            false => Err("the response has no Sec-WebSocket-Accept for the key".to_owned()),
        }
    }
}
