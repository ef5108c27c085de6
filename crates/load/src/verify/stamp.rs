//! The start of every payload: run, publisher, sequence number, and the time at which the message
//! was due. And the size of every payload, which follows from publisher and sequence number.

use bytes::{BufMut, Bytes, BytesMut};
use std::fmt;
use std::str::FromStr;

/// Bytes of a stamp, and so of the smallest payload.
const LENGTH: usize = 24;

/// Largest payload in bytes: the largest packet of MQTT without room for its header.
const LARGEST: usize = 268_435_455 - 1024;

/// The bounds of the payload sizes of a run, in bytes, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct PayloadSizes {
    pub least: usize,
    pub most: usize,
}

impl PayloadSizes {
    /// Returns the size of one message. Sizes are spread evenly over the range. The receiver
    /// computes the same size, so a message that was cut or padded is no message of the run.
    pub(crate) fn of(&self, publisher: u32, sequence: u64) -> usize {
        let range = (self.most - self.least) as u64 + 1;
        // The finalizer of splitmix64: neighbours get unrelated sizes.
        let mut hash = (u64::from(publisher) << 40 ^ sequence).wrapping_add(0x9E37_79B9_7F4A_7C15);
        hash = (hash ^ hash >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        self.least + ((hash ^ hash >> 31) % range) as usize
    }
}

impl fmt::Display for PayloadSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.least == self.most { self.least.fmt(f) } else { write!(f, "{}-{}", self.least, self.most) }
    }
}

impl FromStr for PayloadSizes {
    type Err = String;

    fn from_str(text: &str) -> Result<PayloadSizes, String> {
        let (least, most) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| {
            text.trim().parse::<usize>().map_err(|_| "not a number of bytes, or a range such as 64-4096")
        };
        let sizes = PayloadSizes { least: number(least)?, most: number(most)? };
        if sizes.least < LENGTH {
            return Err(format!("must be at least {LENGTH}: publisher, sequence and time"));
        }
        if sizes.most > LARGEST {
            return Err(format!("must be at most {LARGEST}: MQTT has no larger packets"));
        }
        if sizes.least > sizes.most {
            return Err("a range begins with its smaller size".to_owned());
        }
        Ok(sizes)
    }
}

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
    fn sizes_of_a_range_are_spread_over_it() {
        let sizes: PayloadSizes = "24-27".parse().unwrap();
        let mut seen = [0; 4];
        for sequence in 0..4000 {
            seen[sizes.of(3, sequence) - 24] += 1;
        }
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
        let one: PayloadSizes = "64".parse().unwrap();
        assert!((0..100).all(|sequence| one.of(0, sequence) == 64));
        assert_eq!((one.to_string(), sizes.to_string()), ("64".to_owned(), "24-27".to_owned()));
    }

    #[test]
    fn a_size_that_cannot_be_is_refused_with_the_bound() {
        for (text, has) in [("23", "at least 24"), ("64-32", "smaller"), ("64-", "number"), ("1e3", "number")]
        {
            let refused = text.parse::<PayloadSizes>().unwrap_err();
            assert!(refused.contains(has), "{text}: {refused}");
        }
        assert!("24-999999999".parse::<PayloadSizes>().unwrap_err().contains("at most"));
    }

    #[test]
    fn what_is_too_short_is_no_stamp() {
        assert_eq!(Stamp::read(&[0; LENGTH - 1]), None);
    }
}
