//! The start of every payload: run, publisher, sequence number, and the time at which the message
//! was due.

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes of a stamp, and so of the smallest payload.
pub(crate) const LENGTH: usize = 24;

/// The start of a payload: four big-endian numbers, then filler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// A number that differs between runs, so that messages of other runs are recognised.
    pub run: u32,
    pub publisher: u32,
    /// The position in the stream of the publisher: from 0, without gaps.
    pub sequence: u64,
    /// Nanoseconds of [`crate::clock::nanos`].
    pub time: u64,
}

impl Stamp {
    /// Returns a payload that begins with this stamp. Its size is `length` bytes, or [`LENGTH`] if
    /// that is more.
    pub(crate) fn payload(&self, length: usize) -> Bytes {
        let mut payload = BytesMut::with_capacity(length.max(LENGTH));
        payload.put_u32(self.run);
        payload.put_u32(self.publisher);
        payload.put_u64(self.sequence);
        payload.put_u64(self.time);
        payload.resize(length.max(LENGTH), b'.');
        payload.freeze()
    }

    /// Reads a stamp. Returns `None` if the payload is too short.
    pub(crate) fn read(payload: &[u8]) -> Option<Stamp> {
        let (run, rest) = payload.split_first_chunk::<4>()?;
        let (publisher, rest) = rest.split_first_chunk::<4>()?;
        let (sequence, rest) = rest.split_first_chunk::<8>()?;
        let (time, _) = rest.split_first_chunk::<8>()?;
        Some(Stamp {
            run: u32::from_be_bytes(*run),
            publisher: u32::from_be_bytes(*publisher),
            sequence: u64::from_be_bytes(*sequence),
            time: u64::from_be_bytes(*time),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_as_it_was_written() {
        let stamp = Stamp { run: 0xDEAD_BEEF, publisher: 7, sequence: u64::MAX - 1, time: 1 << 40 };
        for length in [0, LENGTH, 1000] {
            let payload = stamp.payload(length);
            assert_eq!(payload.len(), length.max(LENGTH));
            assert_eq!(Stamp::read(&payload), Some(stamp));
        }
    }

    #[test]
    fn what_is_too_short_is_no_stamp() {
        assert_eq!(Stamp::read(&[0; LENGTH - 1]), None);
    }
}
