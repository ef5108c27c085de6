//! A connection whose bytes go through TLS or WebSocket: the codecs, the wire bytes that wait, and
//! the map from wire bytes to MQTT bytes.
//!
//! The shard counts MQTT bytes: outbox, redelivery and stall diagnosis know nothing of records and
//! frames. The kernel counts wire bytes. The marks translate: each write leaves a mark with the end
//! of its wire bytes and the end of its MQTT bytes. A number of acknowledged wire bytes is
//! translated to the MQTT bytes of the last mark at or below the number. So the translation rounds
//! down: a packet may seem to be on the network for longer than it is, and never seems to be at the
//! client too early.

use crate::mqtt::charge::Charge;
use crate::net::layers::{LayerError, Layers};
use crate::session::outbox::Outbox;
use crate::shard::turn::io::Written;
use std::collections::VecDeque;
use std::io::{self, IoSlice};

/// Maximum number of marks. At this number, a write first drops the marks of acknowledged bytes.
const MAX_MARKS: usize = 32;

/// A point in the stream: the wire bytes up to it carry the MQTT bytes up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    wire: u64,
    mqtt: u64,
}

/// The codecs of one connection and their state. Moves with the socket.
#[derive(Debug)]
pub struct Wrapped {
    layers: Layers,
    /// The part of a record that has come. Nearly always empty.
    tail: Vec<u8>,
    /// Wire bytes that the socket did not take. Allocated only then, and freed when empty.
    pending: Vec<u8>,
    /// The end of everything that was sealed.
    sealed: Mark,
    /// The newest mark that was dropped because its bytes are acknowledged.
    base: Mark,
    /// The marks above `base`, in rising order.
    marks: VecDeque<Mark>,
    /// True once the owner was told that the keys are nearly used up.
    reported_keys: bool,
    /// The charge of `tail` and `pending`.
    charge: Charge,
}

impl Wrapped {
    /// Returns the state after the handshakes. `tail` is the part of a record that came behind
    /// them.
    pub fn new(layers: Layers, tail: Vec<u8>) -> Wrapped {
        Wrapped {
            layers,
            tail,
            pending: Vec::new(),
            sealed: Mark::default(),
            base: Mark::default(),
            marks: VecDeque::new(),
            reported_keys: false,
            charge: Charge::NONE,
        }
    }

    /// Copies the bytes that are kept of a record to the front of a read buffer. Returns their
    /// number. The next bytes are read behind them.
    pub(super) fn put_tail(&self, buffer: &mut [u8]) -> usize {
        match buffer.get_mut(..self.tail.len()) {
            Some(front) => {
                front.copy_from_slice(&self.tail);
                self.tail.len()
            }
            // A buffer has 64 KiB, and a tail less than 18 KiB.
            None => 0,
        }
    }

    /// Opens the wire bytes of a read: the bytes of [`Self::put_tail`] and `read` bytes behind
    /// them. Appends their MQTT bytes to `plain`. Replies wait in `pending`, so the caller flushes
    /// if [`Self::has_pending`]. Returns true if the peer closed its side. Errors: the peer broke a
    /// rule of TLS or WebSocket. The alert for the peer is pending.
    pub(super) fn open(
        &mut self,
        buffer: &mut [u8],
        read: usize,
        plain: &mut Vec<u8>,
    ) -> Result<bool, LayerError> {
        let wire = buffer.get_mut(..self.tail.len() + read).unwrap_or_default();
        let before = self.pending.len();
        let opened = self.layers.open(wire, plain, &mut self.pending);
        self.sealed.wire += (self.pending.len() - before) as u64;
        self.tail = match &opened {
            Ok(opened) => wire.get(opened.used..).unwrap_or_default().to_vec(),
            Err(_) => Vec::new(),
        };
        self.account();
        opened.map(|opened| opened.closed)
    }

    /// Seals what may leave of an outbox, and sends it. `send` tries to write to the socket.
    /// `unacknowledged` returns how many sent bytes the peer's kernel has not acknowledged.
    /// `scratch` is the write buffer of the thread. Errors: the error of `send`, except "would
    /// block"; also if the codecs seal nothing more.
    pub(super) fn write(
        &mut self,
        outbox: &mut Outbox,
        scratch: &mut Vec<u8>,
        mut send: impl FnMut(&[u8]) -> io::Result<usize>,
        unacknowledged: impl Fn() -> usize,
    ) -> io::Result<Written> {
        let mut written = Written::default();
        let had_pending = self.has_pending();
        self.send_pending(&mut send, &mut written)?;
        if had_pending && self.pending.is_empty() {
            self.layers.reply_to_ping(&mut self.pending);
            self.sealed.wire += self.pending.len() as u64;
            self.send_pending(&mut send, &mut written)?;
        }
        while self.pending.is_empty() && outbox.writable() > 0 {
            scratch.clear();
            let sealed = if outbox.is_contiguous() {
                self.layers.seal(&[IoSlice::new(outbox.front())], scratch)
            } else {
                self.layers.seal(&outbox.pieces(), scratch)
            };
            if sealed == 0 {
                return Err(io::Error::other("TLS or WebSocket is closed"));
            }
            outbox.advance(sealed);
            written.taken += sealed;
            self.sealed.wire += scratch.len() as u64;
            self.sealed.mqtt += sealed as u64;
            self.mark(&unacknowledged);
            let sent = try_send(&mut send, scratch)?;
            written.progressed |= sent > 0;
            if let Some(rest) = scratch.get(sent..).filter(|rest| !rest.is_empty()) {
                self.pending = rest.to_vec();
            }
        }
        written.pending = self.pending.len();
        self.account();
        Ok(written)
    }

    /// Appends the orderly end of the connection, and sends as much as the socket takes.
    pub(super) fn close(&mut self, mut send: impl FnMut(&[u8]) -> io::Result<usize>) {
        let before = self.pending.len();
        self.layers.close(&mut self.pending);
        self.sealed.wire += (self.pending.len() - before) as u64;
        // The connection ends now, whether or not the peer gets the last record.
        let _ = self.send_pending(&mut send, &mut Written::default());
        self.account();
    }

    /// Returns true if wire bytes wait for the socket.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns the number of MQTT bytes that the peer's kernel does not have, if it has not
    /// acknowledged this many of the wire bytes that were sent. Rounded up.
    pub(super) fn unsent(&self, unacknowledged: usize) -> usize {
        let acknowledged = self.sealed.wire.saturating_sub(self.pending.len() as u64 + unacknowledged as u64);
        let has = if acknowledged >= self.sealed.wire {
            self.sealed.mqtt
        } else {
            let below = self.marks.iter().rev().find(|mark| mark.wire <= acknowledged);
            below.unwrap_or(&self.base).mqtt
        };
        usize::try_from(self.sealed.mqtt - has).unwrap_or(usize::MAX)
    }

    /// Returns true once, when the keys of TLS 1.2 are nearly used up.
    pub(super) fn take_keys_used_up(&mut self) -> bool {
        !self.reported_keys && self.layers.must_close() && {
            self.reported_keys = true;
            true
        }
    }

    /// Returns true if a part of a record or frame has come, and its rest has not.
    pub(super) fn has_partial(&self) -> bool {
        !self.tail.is_empty() || self.layers.is_in_frame()
    }

    pub(super) fn layers(&self) -> &Layers {
        &self.layers
    }

    fn send_pending(
        &mut self,
        send: &mut impl FnMut(&[u8]) -> io::Result<usize>,
        written: &mut Written,
    ) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let sent = try_send(send, &self.pending)?;
        written.progressed |= sent > 0;
        if sent == self.pending.len() {
            self.pending = Vec::new();
        } else {
            self.pending.drain(..sent);
        }
        Ok(())
    }

    /// Adds a mark at the end of what is sealed. With [`MAX_MARKS`], first drops those below the
    /// acknowledged bytes, and then every second one if that was not enough.
    fn mark(&mut self, unacknowledged: impl Fn() -> usize) {
        if self.marks.len() >= MAX_MARKS {
            // The bytes of this write come after the last mark, and are not sent yet.
            let sent = self.marks.back().map_or(0, |mark| mark.wire);
            let acknowledged = sent.saturating_sub(unacknowledged() as u64);
            while let Some(mark) = self.marks.pop_front_if(|mark| mark.wire <= acknowledged) {
                self.base = mark;
            }
            if self.marks.len() >= MAX_MARKS {
                let mut keep = false;
                self.marks.retain(|_| {
                    keep = !keep;
                    keep
                });
            }
        }
        self.marks.push_back(self.sealed);
    }

    fn account(&mut self) {
        let in_use = self.tail.capacity() + self.pending.capacity();
        if in_use != self.charge.bytes() {
            self.charge.set(in_use);
        }
    }
}

/// Sends as many bytes as the socket takes, and returns their number.
fn try_send(send: &mut impl FnMut(&[u8]) -> io::Result<usize>, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
        match send(rest) {
            Ok(n) => sent += n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::websocket::frame::Ws;

    fn wrapped() -> Wrapped {
        Wrapped::new(Layers::new(None, Some(Ws::default())), Vec::new())
    }

    fn outbox(bytes: usize) -> Outbox {
        let mut outbox = Outbox::default();
        outbox.buffer().resize(bytes, 7);
        outbox
    }

    /// Writes to a socket that takes this many bytes.
    fn write(wrapped: &mut Wrapped, outbox: &mut Outbox, mut room: usize) -> Written {
        let send = |bytes: &[u8]| match room.min(bytes.len()) {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            n => {
                room -= n;
                Ok(n)
            }
        };
        wrapped.write(outbox, &mut Vec::new(), send, || 0).unwrap()
    }

    #[test]
    fn what_the_socket_refuses_is_pending_and_nothing_more_is_sealed() {
        let (mut wrapped, mut outbox) = (wrapped(), outbox(100));
        let written = write(&mut wrapped, &mut outbox, 40);
        assert_eq!(written, Written { taken: 100, pending: 62, progressed: true });
        outbox.buffer().push(1);
        let written = write(&mut wrapped, &mut outbox, 0);
        assert_eq!(written, Written { taken: 0, pending: 62, progressed: false });
        assert_eq!(outbox.writable(), 1);
        let written = write(&mut wrapped, &mut outbox, 1_000);
        assert_eq!(written, Written { taken: 1, pending: 0, progressed: true });
        assert_eq!((wrapped.has_pending(), wrapped.pending.capacity()), (false, 0));
    }

    #[test]
    fn bytes_of_an_unfinished_frame_count_as_not_sent() {
        let (mut wrapped, mut outbox) = (wrapped(), outbox(100));
        write(&mut wrapped, &mut outbox, 1_000);
        assert_eq!(wrapped.unsent(0), 0);
        // Of 102 wire bytes, one is not acknowledged.
        assert_eq!(wrapped.unsent(1), 100);
        outbox.buffer().resize(150, 7);
        write(&mut wrapped, &mut outbox, 51);
        assert_eq!(wrapped.unsent(0), 50, "a byte of the second frame is pending");
        assert_eq!(wrapped.unsent(51), 50, "the first frame is acknowledged");
        assert_eq!(wrapped.unsent(52), 150);
    }

    #[test]
    fn a_close_frame_that_the_socket_refuses_makes_no_message_unsent() {
        let (mut wrapped, mut outbox) = (wrapped(), outbox(100));
        write(&mut wrapped, &mut outbox, 1_000);
        wrapped.close(|_| Err(io::ErrorKind::WouldBlock.into()));
        assert!(wrapped.has_pending());
        assert_eq!(wrapped.unsent(0), 0);
        assert_eq!(wrapped.unsent(1), 100, "a byte of the message is not acknowledged");
    }

    #[test]
    fn thinned_marks_never_report_bytes_too_early() {
        let (mut wrapped, mut outbox) = (wrapped(), outbox(0));
        for n in 1..=1_000_u64 {
            outbox.buffer().push(0);
            // Nothing is ever acknowledged.
            let unacknowledged = 3 * (n as usize - 1);
            let sent =
                wrapped.write(&mut outbox, &mut Vec::new(), |bytes| Ok(bytes.len()), || unacknowledged);
            assert_eq!(sent.unwrap().taken, 1);
            assert!(wrapped.marks.len() <= MAX_MARKS);
        }
        // A frame has two bytes of header and one of payload.
        let mut last = 1_000;
        for unacknowledged in (0..=3_000).rev() {
            let unsent = wrapped.unsent(unacknowledged);
            assert!(unsent * 3 >= unacknowledged && unsent <= last, "{unsent} {unacknowledged}");
            last = unsent;
        }
        assert_eq!(last, 0);
    }

    #[test]
    fn acknowledged_marks_are_dropped() {
        let (mut wrapped, mut outbox) = (wrapped(), outbox(0));
        for _ in 0..1_000 {
            outbox.buffer().push(0);
            write(&mut wrapped, &mut outbox, 3);
            assert!(wrapped.marks.len() <= MAX_MARKS);
        }
        assert_eq!(wrapped.base.mqtt, 992);
        assert_eq!(wrapped.unsent(3), 1);
    }

    #[test]
    fn a_part_of_a_record_is_kept_for_the_next_read() {
        let mut wrapped = Wrapped::new(Layers::default(), b"kept".to_vec());
        let mut buffer = [0; 16];
        assert_eq!(wrapped.put_tail(&mut buffer), 4);
        buffer[4..7].copy_from_slice(b"new");
        let mut plain = Vec::new();
        assert!(!wrapped.open(&mut buffer, 3, &mut plain).unwrap());
        assert_eq!((plain.as_slice(), wrapped.tail.len()), (&b"keptnew"[..], 0));
    }
}
