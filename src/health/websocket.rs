//! A WebSocket client (RFC 6455) that is just enough for the check: one small frame for each
//! packet.

use crate::clock;
use std::io::{self, Read, Write};
use std::time::Duration;

/// The nonce and its answer of RFC 6455 section 1.3. The nonce only has to tell a WebSocket server
/// from another one.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
/// Longest response to the upgrade, in bytes.
const RESPONSE_MAX: usize = 8 * 1024;
/// A masking key protects proxies from bytes that an attacker chose. The packets of the check are
/// fixed, so the key may be, too.
const MASK: [u8; 4] = [0x37, 0xFA, 0x21, 0x3D];

/// MQTT bytes over a WebSocket.
pub struct WebSocket<S> {
    stream: S,
    /// Payload bytes of the current frame that are still to be read.
    left: usize,
}

/// Asks for the WebSocket at `path`. The response may take `timeout`.
///
/// # Errors
/// The stream fails, or the response is not the upgrade of a WebSocket.
pub fn upgrade<S: Read + Write>(mut stream: S, path: &str, timeout: Duration) -> io::Result<WebSocket<S>> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let began = clock::nanos();
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\n") {
        // Byte by byte, so that no byte of the first frame is taken.
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        response.push(byte[0]);
        if response.len() > RESPONSE_MAX || clock::nanos().saturating_sub(began) > timeout.as_nanos() as u64 {
            return Err(io::Error::other("the response to the upgrade does not end"));
        }
        if !b"HTTP/1.1 ".starts_with(response.get(..9).unwrap_or(&response)) {
            return Err(io::Error::other("the answer to the upgrade is not HTTP"));
        }
    }
    let response = String::from_utf8_lossy(&response);
    let status = response.lines().next().unwrap_or_default();
    if !status.starts_with("HTTP/1.1 101") {
        return Err(io::Error::other(format!("GET {path} was answered with {status}")));
    }
    match response.contains(ACCEPT) {
        true => Ok(WebSocket { stream, left: 0 }),
        false => Err(io::Error::other("the response has no Sec-WebSocket-Accept for the key")),
    }
}

impl<S: Read + Write> Read for WebSocket<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.left == 0 {
            let mut header = [0; 2];
            self.stream.read_exact(&mut header)?;
            match header {
                // A binary frame or a part of one, without a mask, shorter than 126 bytes.
                [0x82 | 0x02 | 0x80 | 0x00, length @ ..126] => self.left = usize::from(length),
                [0x88, _] => return Ok(0),
                [first, second] => {
                    let text = format!("unexpected WebSocket frame {first:02x} {second:02x}");
                    return Err(io::Error::other(text));
                }
            }
        }
        let wanted = buffer.len().min(self.left);
        let read = self.stream.read(&mut buffer[..wanted])?;
        self.left -= read;
        Ok(read)
    }
}

impl<S: Read + Write> Write for WebSocket<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = &bytes[..bytes.len().min(125)];
        let mut frame = vec![0x82, 0x80 | taken.len() as u8];
        frame.extend_from_slice(&MASK);
        frame.extend(taken.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.stream.write_all(&frame)?;
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
