//! Sizes in bytes as people write them: `"1 MiB"`, `"64KiB"`, `"512 B"`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Units, largest first. Binary ones only: whether "MB" is 10^6 or 2^20 is asked too often to be guessed here.
const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A number of bytes, written with a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

impl ByteSize {
    pub const fn kib(n: u64) -> ByteSize {
        ByteSize(n << 10)
    }

    pub const fn mib(n: u64) -> ByteSize {
        ByteSize(n << 20)
    }

    pub const fn gib(n: u64) -> ByteSize {
        ByteSize(n << 30)
    }

    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The size as a length in memory; saturates where `usize` is narrower.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// Why a text is no size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a size with a unit, such as \"64 KiB\" (units: B, KiB, MiB, GiB, TiB)")]
pub struct InvalidSize;

impl FromStr for ByteSize {
    type Err = InvalidSize;

    fn from_str(text: &str) -> Result<ByteSize, InvalidSize> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| InvalidSize)?;
        let unit = unit.trim_start_matches(' ');
        let (_, scale) = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or(InvalidSize)?;
        number.checked_mul(*scale).map(ByteSize).ok_or(InvalidSize)
    }
}

impl fmt::Display for ByteSize {
    /// Exactly, in the largest unit that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, scale)| self.0 >= *scale && self.0.is_multiple_of(*scale));
        let (name, scale) = unit.copied().unwrap_or(("B", 1));
        write!(f, "{} {name}", self.0 / scale)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ByteSize, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        for (text, bytes) in
            [("512 B", 512), ("64KiB", 65_536), ("1 MiB", 1 << 20), ("2 gib", 2 << 30), ("0 B", 0)]
        {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn sizes_without_a_clear_unit_are_refused() {
        for text in ["", "1", "1MB", "1 M", "MiB", "-1 B", "1.5 MiB", "99999999999 TiB", " 1 B", "1 B "] {
            assert_eq!(text.parse::<ByteSize>(), Err(InvalidSize), "{text:?}");
        }
    }

    #[test]
    fn a_size_is_written_as_it_reads() {
        for bytes in [0, 1, 1023, 1024, 1025, 1 << 20, 3 << 30, (1 << 28) - 1, u64::MAX] {
            assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        }
        assert_eq!(ByteSize(268_435_455).to_string(), "268435455 B");
        assert_eq!(ByteSize::mib(16).to_string(), "16 MiB");
    }
}
