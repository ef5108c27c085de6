//! What every payload begins with: who sent it, which it is, and when it was due.

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes of a stamp, and so of the smallest payload.
pub const LENGTH: usize = 24;

/// Run, publisher, sequence, time; big-endian, then filler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Tells this run's messages from those of another run, or of others.
    pub run: u32,
    pub publisher: u32,
    /// From 0, without gaps, for each publisher.
    pub sequence: u64,
    /// Nanoseconds of [`crate::clock::nanos`].
    pub time: u64,
}

impl Stamp {
    /// A payload of `length` bytes, or of [`LENGTH`] where that is more.
    pub fn payload(&self, length: usize) -> Bytes {
        let mut payload = BytesMut::with_capacity(length.max(LENGTH));
        payload.put_u32(self.run);
        payload.put_u32(self.publisher);
        payload.put_u64(self.sequence);
        payload.put_u64(self.time);
        payload.resize(length.max(LENGTH), b'.');
        payload.freeze()
    }

    /// Nothing where it is too short to be one of ours.
    pub fn read(payload: &[u8]) -> Option<Stamp> {
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
