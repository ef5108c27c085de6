//! Encoded packets that wait for their connection's one write of the turn.
//!
//! The outbox knows no socket. The connection asks for the pieces, writes them, and reports how
//! many bytes the socket took. An outbox owns a buffer only while something waits, so an idle
//! connection costs none.

use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::persistence::records::Lsn;
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::IoSlice;

/// Pieces of one vectored write at most. The kernel's own bound is 1,024.
const MAX_PIECES: usize = 64;

/// Bounds of a [`Pool`]: its buffers, the capacity of one buffer, and the capacity of all.
const POOLED: usize = 256;
const POOLED_CAPACITY: usize = 64 * 1024;
const POOLED_BYTES: usize = 1024 * 1024;

/// Stands for a commit whose LSN is not known yet.
const UNNAMED: Lsn = Lsn(u64::MAX);

/// Buffers that drained outboxes leave behind, for the next outbox that has something to write.
///
/// Not charged, because the pool could not make room by giving buffers back. A shard has one pool
/// of at most 1 MiB, so 16 threads hold 16 MiB. This memory is part of the 64 MiB that
/// the process may take beside `limits.memory`.
#[derive(Debug, Default)]
pub struct Pool {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Pool {
    fn take(&mut self) -> Vec<u8> {
        let buffer = self.buffers.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    /// Returns an empty buffer to the pool. Frees it if it has no capacity, is too large, or the
    /// pool is full.
    fn give_back(&mut self, buffer: Vec<u8>) {
        let (capacity, bytes) = (buffer.capacity(), self.bytes + buffer.capacity());
        if (1..=POOLED_CAPACITY).contains(&capacity) && bytes <= POOLED_BYTES && self.buffers.len() < POOLED {
            self.bytes = bytes;
            self.buffers.push(buffer);
        }
    }
}

/// Bytes on their way to one socket.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Encoded packets. The socket took the first `taken` bytes of them.
    buffer: Vec<u8>,
    taken: usize,
    /// Payloads that are written without being copied; usually `None`.
    shared: Option<Box<SharedPayload>>,
    /// Bytes that the socket took since the connection began.
    written: u64,
    /// Stream offsets that must not leave before a commit, in rising order of offset and LSN.
    /// `None` if nothing ever waited for a commit.
    #[expect(
        clippy::box_collection,
        reason = "8 bytes in every connection where 32 would nearly always be empty"
    )]
    commit_gates: Option<Box<VecDeque<(u64, Lsn)>>>,
    /// The charge of `buffer`, of the list of pieces and of the commit gates, as of the last flush.
    charge: Charge,
}

#[derive(Debug, Default)]
struct SharedPayload {
    /// Each piece with its place: the offset in `buffer` before which it is written. In rising
    /// order.
    pieces: VecDeque<(usize, Bytes)>,
    /// Bytes of the first piece that are written.
    taken: usize,
    /// Bytes of all pieces, less `taken`.
    len: usize,
}

impl Outbox {
    /// Returns the buffer, to which the caller appends whole packets.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Appends bytes without copying them.
    pub fn push_shared(&mut self, bytes: Bytes) {
        let shared = self.shared.get_or_insert_default();
        shared.len += bytes.len();
        shared.pieces.push_back((self.buffer.len(), bytes));
    }

    /// Returns the number of bytes that wait.
    pub fn len(&self) -> usize {
        self.buffer.len() - self.taken + self.shared.as_ref().map_or(0, |s| s.len)
    }

    /// True if no bytes wait.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes that the socket took since the connection began.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns the offset in the connection's stream after the last byte that was appended.
    pub fn end_offset(&self) -> u64 {
        self.written + self.len() as u64
    }

    /// Gates the bytes that are appended from now on until `lsn` is committed. A stream has
    /// one order, so everything behind those bytes waits too.
    pub fn gate_until_commit(&mut self, lsn: Lsn) {
        let at = self.end_offset();
        let commit_gates = self.commit_gates.get_or_insert_default();
        if commit_gates.back().is_none_or(|(_, last)| *last < lsn) {
            let is_full = commit_gates.len() == commit_gates.capacity();
            commit_gates.push_back((at, lsn));
            if is_full {
                self.charge.set(self.in_use());
            }
        }
    }

    /// Gates the bytes that are appended from now on until [`Self::release`] names their
    /// commit. Everything behind those bytes waits too. An outbox has at most one such gate at a
    /// time.
    pub fn gate(&mut self) {
        self.gate_until_commit(UNNAMED);
    }

    /// Names the commit that the gated bytes wait for. No byte behind them waits for a later one.
    pub fn release(&mut self, lsn: Lsn) {
        let Some(commit_gates) = &mut self.commit_gates else { return };
        let Some((at, _)) = commit_gates.pop_back_if(|(_, waits)| *waits == UNNAMED) else { return };
        if commit_gates.back().is_none_or(|(_, last)| *last < lsn) {
            commit_gates.push_back((at, lsn));
        }
    }

    /// Removes the gate of [`Self::gate`], behind which nothing was appended.
    pub fn cancel_gate(&mut self) {
        if let Some(commit_gates) = &mut self.commit_gates {
            commit_gates.pop_back_if(|(_, waits)| *waits == UNNAMED);
        }
    }

    /// Holds the bytes from the stream offset `from` on until `lsn` is committed. `lsn` is the open
    /// batch, so no gate waits for a later one, and those behind `from` become needless. A gate
    /// whose commit has no name yet stays the last one.
    pub fn hold_from(&mut self, from: u64, lsn: Lsn) {
        let commit_gates = self.commit_gates.get_or_insert_default();
        let unnamed = commit_gates.pop_back_if(|(_, waits)| *waits == UNNAMED);
        let from = unnamed.map_or(from, |(at, _)| at.min(from));
        while commit_gates.pop_back_if(|(at, _)| *at >= from).is_some() {}
        if commit_gates.back().is_none_or(|(_, last)| *last < lsn) {
            commit_gates.push_back((from, lsn));
        }
        commit_gates.extend(unnamed);
        self.charge.set(self.in_use());
    }

    /// Records that everything up to `lsn` is committed.
    pub fn committed(&mut self, lsn: Lsn) {
        if let Some(commit_gates) = &mut self.commit_gates {
            while commit_gates.pop_front_if(|(_, waits)| *waits <= lsn).is_some() {}
        }
    }

    /// Returns the number of bytes that wait and may leave.
    pub fn writable(&self) -> usize {
        let len = self.len();
        match self.commit_gates.as_ref().and_then(|f| f.front()) {
            Some((at, _)) => len.min(at.saturating_sub(self.written) as usize),
            None => len,
        }
    }

    /// True if one plain write of [`Self::front`] writes everything.
    pub fn is_contiguous(&self) -> bool {
        self.shared.is_none()
    }

    /// Returns the bytes before the first shared piece that may leave.
    pub fn front(&self) -> &[u8] {
        let end = match self.shared.as_ref().and_then(|s| s.pieces.front()) {
            Some((at, _)) => *at,
            None => self.buffer.len(),
        };
        &self.buffer[self.taken..end.min(self.taken + self.writable())]
    }

    /// Returns everything that may leave, in order, up to the bound of one vectored write.
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

    /// Records that the socket took the next `count` bytes; `count` is at most [`Self::len`].
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

    /// Notes that the last `count` bytes of [`Self::written`] were not sent, and never will be. The
    /// outbox writes nothing after this.
    pub fn did_not_leave(&mut self, count: usize) {
        self.written = self.written.saturating_sub(count as u64);
    }

    /// Ends a flush. Returns true if the socket took everything. The buffer then goes to the pool,
    /// for another outbox.
    pub fn end_flush(&mut self, pool: &mut Pool) -> bool {
        let is_drained = self.is_empty();
        if is_drained {
            self.buffer.clear();
            pool.give_back(std::mem::take(&mut self.buffer));
            (self.taken, self.shared) = (0, None);
        } else {
            self.compact();
        }
        self.charge.set(self.in_use());
        is_drained
    }

    /// Takes a buffer from the pool, if the outbox has none.
    pub fn lend(&mut self, pool: &mut Pool) {
        if self.buffer.capacity() == 0 {
            self.buffer = pool.take();
            // The buffer may stay with this outbox, because not every packet is answered.
            self.charge.set(self.in_use());
        }
    }

    /// Returns the bytes that the outbox takes. Shared pieces have their own charge.
    fn in_use(&self) -> usize {
        let pieces = self.shared.as_ref().map_or(0, |s| s.pieces.capacity());
        let commit_gates = self.commit_gates.as_ref().map_or(0, |f| f.capacity());
        self.buffer.capacity() + pieces * size_of::<(usize, Bytes)>() + commit_gates * size_of::<(u64, Lsn)>()
    }

    /// Moves the waiting bytes to the front once more than half of a long buffer is written.
    /// Without this, a peer that always leaves a little unread would make the buffer grow. Each
    /// byte is moved at most once per doubling.
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

/// Valid right after a flush.
impl Recount for Outbox {
    fn recount(&self) -> Recounted {
        Recounted { in_use: self.in_use(), charged: self.charge.bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_bounded_in_buffers_and_bytes() {
        let mut pool = Pool::default();
        for capacity in [0, POOLED_CAPACITY + 1] {
            pool.give_back(Vec::with_capacity(capacity));
            assert_eq!((pool.buffers.len(), pool.bytes), (0, 0), "{capacity}");
        }
        for capacity in [64, 64 * 1024] {
            (0..1_000).for_each(|_| pool.give_back(Vec::with_capacity(capacity)));
            assert!(pool.buffers.len() <= POOLED && pool.bytes <= POOLED_BYTES);
            while pool.take().capacity() > 0 {}
            assert_eq!(pool.bytes, 0);
        }
    }

    #[test]
    fn commit_gates_are_on_the_account() {
        let mut outbox = Outbox::default();
        for n in 1..100 {
            outbox.buffer().push(0);
            outbox.gate_until_commit(Lsn(n));
        }
        outbox.end_flush(&mut Pool::default());
        let Recounted { in_use, charged } = outbox.recount();
        assert!(in_use == charged && in_use > 99 * size_of::<(u64, Lsn)>(), "{in_use} {charged}");
    }

    /// Gates are given as offset and batch. The held outbox has 100 bytes, ten of them written.
    fn held(gates: &[(u64, Option<u64>)], from: u64, lsn: u64) -> Vec<(u64, Lsn)> {
        let mut outbox = Outbox::default();
        for at in 0..100 {
            for (_, waits) in gates.iter().filter(|(gate, _)| *gate == at) {
                match waits {
                    Some(lsn) => outbox.gate_until_commit(Lsn(*lsn)),
                    None => outbox.gate(),
                }
            }
            outbox.buffer().push(0);
        }
        outbox.advance(10);
        outbox.hold_from(from, Lsn(lsn));
        outbox.end_flush(&mut Pool::default());
        let Recounted { in_use, charged } = outbox.recount();
        assert_eq!(in_use, charged);
        outbox.commit_gates.map_or(Vec::new(), |gates| Vec::from(*gates))
    }

    #[test]
    fn a_hold_takes_the_place_of_gates_behind_it_and_none_before_it() {
        assert_eq!(held(&[], 40, 7), [(40, Lsn(7))]);
        assert_eq!(held(&[(20, Some(5))], 40, 7), [(20, Lsn(5)), (40, Lsn(7))]);
        assert_eq!(held(&[(20, Some(5)), (50, Some(6))], 40, 7), [(20, Lsn(5)), (40, Lsn(7))]);
        assert_eq!(held(&[(20, Some(7))], 40, 7), [(20, Lsn(7))], "it waits for this batch already");
        assert_eq!(held(&[(40, Some(7))], 40, 7), [(40, Lsn(7))]);
        assert_eq!(held(&[(50, Some(7))], 40, 7), [(40, Lsn(7))], "the promise is before the gate");
    }

    #[test]
    fn a_gate_without_a_name_stays_the_last() {
        assert_eq!(held(&[(50, None)], 40, 7), [(40, Lsn(7)), (50, UNNAMED)]);
        assert_eq!(held(&[(20, Some(5)), (30, None)], 40, 7), [(20, Lsn(5)), (30, Lsn(7)), (30, UNNAMED)]);
        // Its name comes later, and is of the same batch or a later one.
        let mut outbox = Outbox::default();
        outbox.buffer().push(0);
        outbox.gate();
        outbox.buffer().push(0);
        outbox.hold_from(1, Lsn(7));
        outbox.release(Lsn(7));
        assert_eq!(outbox.writable(), 1);
        outbox.committed(Lsn(7));
        assert_eq!(outbox.writable(), 2);
    }

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
            assert!(o.end_flush(&mut Pool::default()));
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
        assert!(o.end_flush(&mut Pool::default()));
        assert_eq!((o.written(), o.end_offset()), (6, 6));
    }

    #[test]
    fn a_buffer_that_never_drains_does_not_grow() {
        let mut o = Outbox::default();
        for _ in 0..1000 {
            o.buffer().extend_from_slice(&[0; 1000]);
            o.advance(if o.len() > 1500 { 1000 } else { 1 });
            o.end_flush(&mut Pool::default());
        }
        assert!(o.buffer.capacity() < 200_000, "{}", o.buffer.capacity());
    }
}
