//! Sizes in bytes as people write them: `"256 MiB"`, `"64KiB"`, `"1.5 GB"`, `"512 B"`. `bytesize`
//! reads them.

use std::fmt;
use std::str::FromStr;

/// Binary units, largest first. Sizes are written in these.
const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A number of bytes, written with a unit.
///
/// `bytesize::ByteSize` is not used as the type of a key, because it writes only one decimal place:
/// 2 MiB and one byte would read as 2 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// Returns `n` times 2^10 bytes.
    pub const fn kib(n: u64) -> ByteSize {
        ByteSize(n << 10)
    }

    /// Returns `n` times 2^20 bytes.
    pub const fn mib(n: u64) -> ByteSize {
        ByteSize(n << 20)
    }

    /// Returns `n` times 2^30 bytes.
    pub const fn gib(n: u64) -> ByteSize {
        ByteSize(n << 30)
    }

    /// Returns the size as a number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Returns the size as a length in memory. The value saturates where `usize` is narrower.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// The error for a text that is no size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a size with a unit, such as \"64 KiB\" (units: B, KiB, MiB, GiB, TiB)")]
pub struct InvalidSize;

impl FromStr for ByteSize {
    type Err = InvalidSize;

    /// Reads a number with a unit that ends in B. KiB, MiB, GiB and TiB are powers of 1,024; kB,
    /// MB, GB and TB are powers of 1,000. A bare number and a bare letter ("64M") are refused,
    /// since programs differ on what they mean.
    fn from_str(text: &str) -> Result<ByteSize, InvalidSize> {
        if !text.ends_with(['b', 'B']) {
            return Err(InvalidSize);
        }
        text.parse().map(|bytesize::ByteSize(bytes)| ByteSize(bytes)).map_err(|_| InvalidSize)
    }
}

impl fmt::Display for ByteSize {
    /// Writes the exact size in the largest binary unit that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, scale)| self.0 >= *scale && self.0.is_multiple_of(*scale));
        let (name, scale) = unit.copied().unwrap_or(("B", 1));
        write!(f, "{} {name}", self.0 / scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        for (text, bytes) in [
            ("512 B", 512),
            ("64KiB", 65_536),
            ("1 MiB", 1 << 20),
            ("2 gib", 2 << 30),
            ("0 B", 0),
            ("1.5 KiB", 1536),
            ("1 MB", 1_000_000),
            ("268435455 B", 268_435_455),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn sizes_without_a_clear_unit_are_refused() {
        for text in ["", "1", "1 M", "1k", "MiB", "-1 B", "1..5 MiB", " 1 B", "1 B ", "many B"] {
            assert_eq!(text.parse::<ByteSize>(), Err(InvalidSize), "{text:?}");
        }
    }

    #[test]
    fn a_size_is_written_as_it_reads() {
        for bytes in [0, 1, 1023, 1024, 1025, 1 << 20, 3 << 30, (1 << 28) - 1, (1 << 53) + 1, u64::MAX] {
            assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        }
        assert_eq!(ByteSize(268_435_455).to_string(), "268435455 B");
        assert_eq!(ByteSize::mib(16).to_string(), "16 MiB");
    }
}
