//! Encoded packets that wait for their connection's one write of the turn.
//!
//! The outbox knows no socket: whoever flushes it asks for the pieces, writes, and says how much was taken. It owns a
//! buffer only while something waits, so an idle connection costs none.

use crate::journal::record::Lsn;
use crate::mqtt::charge::{Charge, Recount, Recounted};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::IoSlice;

/// Pieces one vectored write takes at most; the kernel's own bound is 1,024.
const MAX_PIECES: usize = 64;

/// Of a commit that is not known yet.
const HELD: Lsn = Lsn(u64::MAX);

/// Bytes on their way to one socket.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Encoded packets; of them `taken` are written.
    buffer: Vec<u8>,
    taken: usize,
    /// Payloads that are written from where they are; `None` while there are none, which is nearly always.
    shared: Option<Box<Shared>>,
    /// Bytes the socket took since the connection began.
    written: u64,
    /// Where in the stream what must not leave before a commit begins, in rising order of both; `None` where nothing
    /// ever waited for one.
    #[expect(
        clippy::box_collection,
        reason = "8 bytes in every connection where 32 would nearly always be empty"
    )]
    fences: Option<Box<VecDeque<(u64, Lsn)>>>,
    /// What `buffer` and the list of pieces take, as of the last flush.
    charge: Charge,
}

#[derive(Debug, Default)]
struct Shared {
    /// Each with the offset in `buffer` before which it goes, in rising order.
    pieces: VecDeque<(usize, Bytes)>,
    /// Bytes of the first piece that are written.
    taken: usize,
    /// Bytes of all pieces, less `taken`.
    len: usize,
}

impl Outbox {
    /// The buffer to append whole packets to.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Appends bytes without copying them.
    pub fn push_shared(&mut self, bytes: Bytes) {
        let shared = self.shared.get_or_insert_default();
        shared.len += bytes.len();
        shared.pieces.push_back((self.buffer.len(), bytes));
    }

    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.buffer.len() - self.taken + self.shared.as_ref().map_or(0, |s| s.len)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes the socket has taken since the connection began.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Where in the connection's stream of bytes the last byte appended so far ends.
    pub fn end_offset(&self) -> u64 {
        self.written + self.len() as u64
    }

    /// What is appended from here on does not leave before this is committed; nor, since the stream has one order, does
    /// anything behind it.
    pub fn fence(&mut self, lsn: Lsn) {
        let at = self.end_offset();
        let fences = self.fences.get_or_insert_default();
        if fences.back().is_none_or(|(_, last)| *last < lsn) {
            fences.push_back((at, lsn));
        }
    }

    /// What is appended from here on does not leave before [`Self::release`] has said for which commit it waits, nor does
    /// anything behind it. Not while one is held already.
    pub fn hold(&mut self) {
        self.fence(HELD);
    }

    /// What is held leaves when this is committed, which nothing behind it waits longer for.
    pub fn release(&mut self, lsn: Lsn) {
        let Some(fences) = &mut self.fences else { return };
        let Some((at, _)) = fences.pop_back_if(|(_, waits)| *waits == HELD) else { return };
        if fences.back().is_none_or(|(_, last)| *last < lsn) {
            fences.push_back((at, lsn));
        }
    }

    /// Everything up to this is committed.
    pub fn committed(&mut self, lsn: Lsn) {
        if let Some(fences) = &mut self.fences {
            while fences.pop_front_if(|(_, waits)| *waits <= lsn).is_some() {}
        }
    }

    /// Bytes that wait and may leave.
    pub fn writable(&self) -> usize {
        let len = self.len();
        match self.fences.as_ref().and_then(|f| f.front()) {
            Some((at, _)) => len.min(at.saturating_sub(self.written) as usize),
            None => len,
        }
    }

    /// Whether one plain write of [`Self::front`] is all there is.
    pub fn is_contiguous(&self) -> bool {
        self.shared.is_none()
    }

    /// The bytes up to the first shared piece that may leave.
    pub fn front(&self) -> &[u8] {
        let end = match self.shared.as_ref().and_then(|s| s.pieces.front()) {
            Some((at, _)) => *at,
            None => self.buffer.len(),
        };
        &self.buffer[self.taken..end.min(self.taken + self.writable())]
    }

    /// All that may leave, in order, as far as one vectored write takes.
    pub fn pieces(&self) -> Vec<IoSlice<'_>> {
        let mut pieces = self.all_pieces();
        let mut left = self.writable();
        pieces.retain_mut(|piece| {
            let all: &[u8] = piece;
            *piece = &all[..all.len().min(left)];
            left -= piece.len();
            !piece.is_empty()
        });
        pieces.into_iter().map(IoSlice::new).collect()
    }

    fn all_pieces(&self) -> Vec<&[u8]> {
        let mut out: Vec<&[u8]> = Vec::with_capacity(8);
        let mut at = self.taken;
        if let Some(shared) = &self.shared {
            let mut skip = shared.taken;
            for (before, bytes) in &shared.pieces {
                if out.len() + 2 > MAX_PIECES {
                    return out;
                }
                if *before > at {
                    out.push(&self.buffer[at..*before]);
                    at = *before;
                }
                out.push(&bytes[skip..]);
                skip = 0;
            }
        }
        if at < self.buffer.len() {
            out.push(&self.buffer[at..]);
        }
        out
    }

    /// The socket took the next `count` bytes; `count` is at most [`Self::len`].
    pub fn advance(&mut self, mut count: usize) {
        self.written += count as u64;
        while let Some(shared) = &mut self.shared {
            let Some((before, bytes)) = shared.pieces.front() else { break };
            let plain = (*before - self.taken).min(count);
            self.taken += plain;
            count -= plain;
            if self.taken < *before || count == 0 && !bytes.is_empty() {
                return;
            }
            let step = (bytes.len() - shared.taken).min(count);
            shared.taken += step;
            shared.len -= step;
            count -= step;
            if shared.taken < bytes.len() {
                return;
            }
            shared.pieces.pop_front();
            shared.taken = 0;
            if shared.pieces.is_empty() {
                self.shared = None;
            }
        }
        self.taken += count;
        debug_assert!(self.taken <= self.buffer.len());
    }

    /// Whether everything was taken: then the buffer is empty and may be lent to another.
    pub fn reset_if_drained(&mut self) -> bool {
        if !self.is_empty() {
            self.compact();
            self.charge.set(self.held());
            return false;
        }
        self.buffer.clear();
        self.taken = 0;
        self.shared = None;
        self.charge.set(self.held());
        true
    }

    /// Gives a buffer to write into where there is none.
    pub fn lend(&mut self, pool: &mut Vec<Vec<u8>>) {
        if self.buffer.capacity() == 0 {
            self.buffer = pool.pop().unwrap_or_default();
            // It may stay: not every packet is answered.
            self.charge.set(self.held());
        }
    }

    /// Takes the buffer back; only when drained.
    pub fn reclaim(&mut self) -> Vec<u8> {
        debug_assert!(self.is_empty());
        self.charge.set(0);
        std::mem::take(&mut self.buffer)
    }

    /// Bytes that it takes; shared pieces are on the account by themselves.
    fn held(&self) -> usize {
        let pieces = self.shared.as_ref().map_or(0, |s| s.pieces.capacity());
        self.buffer.capacity() + pieces * size_of::<(usize, Bytes)>()
    }

    /// Moves what waits to the front once more than half of a long buffer is written: a peer that always leaves a
    /// little unread must not make it grow. Each byte is moved at most once per doubling.
    fn compact(&mut self) {
        if self.taken < 16 * 1024 || self.taken * 2 < self.buffer.len() {
            return;
        }
        self.buffer.drain(..self.taken);
        if let Some(shared) = &mut self.shared {
            for (before, _) in &mut shared.pieces {
                *before -= self.taken;
            }
        }
        self.taken = 0;
    }
}

/// Right after a flush.
impl Recount for Outbox {
    fn recount(&self) -> Recounted {
        Recounted { held: self.held(), charged: self.charge.bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(outbox: &Outbox) -> Vec<u8> {
        outbox.pieces().iter().flat_map(|p| p.to_vec()).collect()
    }

    #[test]
    fn shared_pieces_keep_their_place_however_the_socket_takes_them() {
        for step in 1..13 {
            let mut o = Outbox::default();
            o.buffer().extend_from_slice(b"ab");
            o.push_shared(Bytes::from_static(b"CDE"));
            o.push_shared(Bytes::from_static(b"F"));
            o.buffer().extend_from_slice(b"gh");
            o.push_shared(Bytes::from_static(b"IJ"));
            o.buffer().extend_from_slice(b"k");
            let mut seen = Vec::new();
            while !o.is_empty() {
                let now = all(&o);
                assert_eq!(now.len(), o.len());
                assert!(now.starts_with(o.front()));
                let n = step.min(now.len());
                seen.extend_from_slice(&now[..n]);
                o.advance(n);
                o.compact();
            }
            assert_eq!(seen, b"abCDEFghIJk");
            assert_eq!(o.written(), 11);
            assert!(o.reset_if_drained());
        }
    }

    #[test]
    fn offsets_count_the_whole_stream() {
        let mut o = Outbox::default();
        o.buffer().extend_from_slice(b"abc");
        o.advance(2);
        assert_eq!((o.written(), o.end_offset()), (2, 3));
        o.push_shared(Bytes::from_static(b"xyz"));
        assert_eq!(o.end_offset(), 6);
        o.advance(4);
        assert!(o.reset_if_drained());
        assert_eq!((o.written(), o.end_offset()), (6, 6));
    }

    #[test]
    fn a_buffer_that_never_drains_does_not_grow() {
        let mut o = Outbox::default();
        for _ in 0..1000 {
            o.buffer().extend_from_slice(&[0; 1000]);
            o.advance(if o.len() > 1500 { 1000 } else { 1 });
            o.reset_if_drained();
        }
        assert!(o.buffer.capacity() < 200_000, "{}", o.buffer.capacity());
    }
}
