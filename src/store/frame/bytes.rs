//! Numbers and texts of a frame: how they are written, and how they are read without trust.

use std::str;

/// Why a content has no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub &'static str);

/// Appends a number: seven bits in each byte, the lowest first, and a mark in all bytes but the
/// last. Numbers are mostly small, and flash wears out by bytes.
pub(super) fn put_number(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// Appends a number that may be missing: 0 for none, and else one more than the number.
pub(super) fn put_optional(to: &mut Vec<u8>, number: Option<u64>) {
    put_number(to, number.map_or(0, |number| number.saturating_add(1)));
}

/// Appends bytes behind their length.
pub(super) fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put_number(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

/// Appends a text that may be missing: 0 for none, and else its bytes behind one more than their
/// length.
pub(super) fn put_optional_text(to: &mut Vec<u8>, text: Option<&str>) {
    put_optional(to, text.map(|text| text.len() as u64));
    to.extend_from_slice(text.unwrap_or_default().as_bytes());
}

/// Reads what the functions above have written. Every length is checked against what is left.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.0.split_first().ok_or(Malformed("an operation that is cut off"))?;
        self.0 = rest;
        Ok(*first)
    }

    pub(super) fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed("a number above 2^64"))
    }

    /// Returns a number that fits a smaller type.
    pub(super) fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Malformed> {
        T::try_from(self.number()?).map_err(|_| Malformed("a number that is too large for its field"))
    }

    pub(super) fn optional(&mut self) -> Result<Option<u64>, Malformed> {
        Ok(self.number()?.checked_sub(1))
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.number()?;
        self.take(length)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Malformed> {
        utf8(self.bytes()?)
    }

    pub(super) fn optional_text(&mut self) -> Result<Option<&'a str>, Malformed> {
        let Some(length) = self.optional()? else { return Ok(None) };
        utf8(self.take(length)?).map(Some)
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let taken = usize::try_from(length).ok().and_then(|length| self.0.split_at_checked(length));
        let (taken, rest) = taken.ok_or(Malformed("a length beyond its end"))?;
        self.0 = rest;
        Ok(taken)
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, Malformed> {
    str::from_utf8(bytes).map_err(|_| Malformed("a text that is not UTF-8"))
}
