//! The WebSocket between a bridge and another broker: MQTT bytes on one side, frames on the other.

use super::dial::Stream;
use crate::auth::random::random;
use crate::net::websocket::frame::{ClientEnd, Ws};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// MQTT bytes that one frame takes at most.
const FRAME: usize = 64 << 10;

/// The bytes of a stream behind its upgrade, without their frames.
///
/// Nothing is assembled: bytes of a frame pass on as they arrive. A write is taken when all frames
/// before it are written, so one frame and one pong are kept at most.
pub(super) struct WebSocketStream {
    inner: Box<dyn Stream>,
    frames: Ws<ClientEnd>,
    /// Frames that the inner stream has not taken.
    out: Vec<u8>,
}

impl WebSocketStream {
    /// Returns the stream of an upgraded connection.
    pub(super) fn new(inner: Box<dyn Stream>) -> WebSocketStream {
        WebSocketStream { inner, frames: Ws::of_end(ClientEnd(mask)), out: Vec::new() }
    }

    /// Writes the frames that wait.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.out))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.out.drain(..written);
        }
        Poll::Ready(Ok(()))
    }

    /// Replies to a ping, if nothing else waits for the inner stream. Both halves of the stream
    /// belong to one task, so its waker is the right one for writes too.
    fn poll_reply(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.out.is_empty() {
            self.frames.reply_to_ping(&mut self.out);
            if self.out.is_empty() {
                return Ok(());
            }
        }
        if self.poll_drain(cx)?.is_ready() {
            // TLS may still hold the bytes.
            let _ = Pin::new(&mut self.inner).poll_flush(cx)?;
        }
        Ok(())
    }
}

impl AsyncRead for WebSocketStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            this.poll_reply(cx)?;
            if this.frames.is_read_closed() {
                return Poll::Ready(Ok(()));
            }
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.inner).poll_read(cx, buffer))?;
            let came = buffer.filled_mut().get_mut(before..).unwrap_or_default();
            if came.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let kept = this.frames.open(came, &mut this.out);
            buffer.set_filled(before + *kept.as_ref().unwrap_or(&0));
            if let Err(error) = kept {
                let _ = this.poll_drain(cx)?;
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
            }
            if buffer.filled().len() > before {
                this.poll_reply(cx)?;
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for WebSocketStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        if this.frames.is_closed() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let taken = bytes.get(..FRAME).unwrap_or(bytes);
        if !taken.is_empty() {
            this.frames.put_binary(taken, &mut this.out);
            // What the inner stream does not take now is written by the next write or flush.
            let _ = this.poll_drain(cx)?;
        }
        Poll::Ready(Ok(taken.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        Pin::new(&mut this.inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.frames.close(&mut this.out);
        ready!(this.poll_drain(cx))?;
        Pin::new(&mut this.inner).poll_shutdown(cx)
    }
}

/// Returns the mask of a frame. Without randomness of the system, frames have no mask that is worth
/// its name, but they pass.
fn mask() -> [u8; 4] {
    random().map_or([0; 4], |mask| *mask)
}
