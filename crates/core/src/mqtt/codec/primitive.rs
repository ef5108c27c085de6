//! The data types of chapter 1.5 of the standard: integers, strings and binary data.

use super::error::{DecodeError, EncodeError};
use super::packet_type::PacketType;
use crate::mqtt::packet::PacketId;
use crate::mqtt::topic::has_null_or_wildcard;

/// The largest variable byte integer, and so the largest Remaining Length.
pub(super) const VARIABLE_BYTE_INTEGER_MAX: u32 = 268_435_455;

/// Reads fields from the front of a packet body. Every method takes the name of its field for the
/// error.
pub(super) struct ByteReader<'a> {
    rest: &'a [u8],
}

impl<'a> ByteReader<'a> {
    /// Starts at the front of `bytes`.
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> ByteReader<'a> {
        ByteReader { rest: bytes }
    }

    /// True if everything was read.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns all bytes that were not read yet.
    #[inline]
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads `N` bytes.
    #[inline]
    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Truncated { field })?;
        self.rest = rest;
        Ok(*array)
    }

    /// Reads `length` bytes.
    ///
    /// # Errors
    /// Returns [`DecodeError::Truncated`] if there are fewer.
    #[inline]
    pub(super) fn take(&mut self, length: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Truncated { field })?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads one byte.
    ///
    /// # Errors
    /// Returns [`DecodeError::Truncated`] at the end of the input.
    #[inline]
    pub(super) fn byte(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.array(field).map(|[byte]| byte)
    }

    /// Reads a Two Byte Integer.
    ///
    /// # Errors
    /// Returns [`DecodeError::Truncated`] if there are fewer bytes.
    #[inline]
    pub(super) fn two_bytes(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        self.array(field).map(u16::from_be_bytes)
    }

    /// Reads a Four Byte Integer.
    ///
    /// # Errors
    /// Returns [`DecodeError::Truncated`] if there are fewer bytes.
    #[inline]
    pub(super) fn four_bytes(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.array(field).map(u32::from_be_bytes)
    }

    /// Reads a Variable Byte Integer of 5.0.
    ///
    /// # Errors
    /// Returns an error if the integer is truncated, has more than four bytes, or is not in its
    /// shortest form.
    #[inline]
    pub(super) fn variable_byte_integer(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        let (value, size) =
            variable_byte_integer(self.rest, field)?.ok_or(DecodeError::Truncated { field })?;
        // 5.0 [MQTT-1.5.5-1]
        if size != variable_byte_integer_len(value as usize) {
            return Err(DecodeError::VariableByteIntegerNotShortest { field });
        }
        self.take(size, field)?;
        Ok(value)
    }

    /// Reads a Packet Identifier.
    ///
    /// # Errors
    /// Returns an error if the identifier is truncated or 0.
    #[inline]
    pub(super) fn packet_id(&mut self, packet: PacketType) -> Result<PacketId, DecodeError> {
        let id = self.two_bytes("Packet Identifier")?;
        // 3.1.1 [MQTT-2.3.1-1], 5.0 [MQTT-2.2.1-3]
        PacketId::new(id).ok_or(DecodeError::PacketIdentifierZero { packet })
    }

    /// Reads Binary Data: a length of two bytes and so many bytes.
    ///
    /// # Errors
    /// Returns [`DecodeError::Truncated`] if there are fewer bytes.
    #[inline]
    pub(super) fn binary(&mut self, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let length = self.two_bytes(field)?;
        self.take(length.into(), field)
    }

    /// Reads a UTF-8 Encoded String. A byte order mark stays in the string (3.1.1 [MQTT-1.5.3-3],
    /// 5.0 [MQTT-1.5.4-3]).
    ///
    /// # Errors
    /// Returns an error if the string is truncated, is not UTF-8, or has U+0000.
    #[inline]
    pub(super) fn string(&mut self, field: &'static str) -> Result<&'a str, DecodeError> {
        let bytes = self.binary(field)?;
        // A fold without early exit, so that the compiler uses vector compares. 3.1.1
        // [MQTT-1.5.3-2], 5.0 [MQTT-1.5.4-2]
        if bytes.iter().fold(false, |found, &byte| found | (byte == 0)) {
            return Err(DecodeError::NullCharacter { field });
        }
        utf8(bytes, field)
    }

    /// Reads the text of a Topic Filter. The session checks its form.
    ///
    /// # Errors
    /// As [`ByteReader::string`]; also an error if the text is empty.
    pub(super) fn topic_filter(&mut self, packet: PacketType) -> Result<&'a str, DecodeError> {
        let filter = self.string("Topic Filter")?;
        // 3.1.1 and 5.0 [MQTT-4.7.3-1]
        if filter.is_empty() { Err(DecodeError::EmptyTopicFilter { packet }) } else { Ok(filter) }
    }

    /// Reads a Topic Name or an empty string. 5.0 allows an empty string beside a Topic Alias, so
    /// the caller checks that.
    ///
    /// `known` is a checked Topic Name or empty. A topic with the same bytes skips the checks.
    ///
    /// # Errors
    /// As [`ByteReader::string`]; also an error if the topic has a wildcard.
    #[inline]
    pub(super) fn topic_name(&mut self, field: &'static str, known: &'a str) -> Result<&'a str, DecodeError> {
        let bytes = self.binary(field)?;
        if bytes == known.as_bytes() {
            return Ok(known);
        }
        if has_null_or_wildcard(bytes) {
            return Err(topic_name_error(bytes, field));
        }
        utf8(bytes, field)
    }

    /// Reads the bytes of a property set, without the length in front.
    ///
    /// # Errors
    /// Returns an error if the length is malformed or the bytes are truncated.
    #[inline]
    pub(super) fn property_block(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.variable_byte_integer("Property Length")?;
        self.take(length as usize, "properties")
    }

    /// Checks that the body ends here.
    ///
    /// # Errors
    /// Returns [`DecodeError::TrailingBytes`] if bytes are left.
    pub(super) fn finish(&self, packet: PacketType) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            count => Err(DecodeError::TrailingBytes { packet, count }),
        }
    }
}

#[inline]
fn utf8<'a>(bytes: &'a [u8], field: &'static str) -> Result<&'a str, DecodeError> {
    // 3.1.1 [MQTT-1.5.3-1], 5.0 [MQTT-1.5.4-1]
    std::str::from_utf8(bytes).map_err(|_| DecodeError::InvalidUtf8 { field })
}

#[cold]
fn topic_name_error(bytes: &[u8], field: &'static str) -> DecodeError {
    if std::str::from_utf8(bytes).is_err() {
        DecodeError::InvalidUtf8 { field }
    } else if bytes.contains(&0) {
        // 3.1.1 [MQTT-4.7.3-2], 5.0 [MQTT-4.7.3-2]
        DecodeError::NullCharacter { field }
    } else {
        // 3.1.1 [MQTT-3.3.2-2], [MQTT-4.7.1-1]; 5.0 [MQTT-3.3.2-2], [MQTT-4.7.0-1]
        DecodeError::WildcardInTopicName { field }
    }
}

/// Returns the variable byte integer at the front of `bytes` and its size; `None` if it is not
/// complete.
///
/// The caller checks for the shortest form, because 3.x does not require it.
#[inline]
pub(super) fn variable_byte_integer(
    bytes: &[u8],
    field: &'static str,
) -> Result<Option<(u32, usize)>, DecodeError> {
    match bytes.first() {
        None => Ok(None),
        Some(&byte) if byte < 0x80 => Ok(Some((byte.into(), 1))),
        Some(_) => long_variable_byte_integer(bytes, field),
    }
}

fn long_variable_byte_integer(
    bytes: &[u8],
    field: &'static str,
) -> Result<Option<(u32, usize)>, DecodeError> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().take(4).enumerate() {
        value |= u32::from(byte & 0x7F) << (7 * index);
        if byte < 0x80 {
            return Ok(Some((value, index + 1)));
        }
    }
    if bytes.len() < 4 { Ok(None) } else { Err(DecodeError::VariableByteIntegerTooLong { field }) }
}

/// Returns the number of bytes that `value` takes, which is at most [`VARIABLE_BYTE_INTEGER_MAX`].
#[inline]
pub(super) const fn variable_byte_integer_len(value: usize) -> usize {
    match value {
        0..=127 => 1,
        128..=16_383 => 2,
        16_384..=2_097_151 => 3,
        _ => 4,
    }
}

/// Appends `value`, which is at most [`VARIABLE_BYTE_INTEGER_MAX`].
#[inline]
pub(super) fn put_variable_byte_integer(out: &mut Vec<u8>, value: u32) {
    debug_assert!(value <= VARIABLE_BYTE_INTEGER_MAX);
    if value < 0x80 {
        return out.push(value as u8);
    }
    let (bytes, length) = variable_byte_integer_bytes(value);
    out.extend(bytes.iter().take(length));
}

fn variable_byte_integer_bytes(value: u32) -> ([u8; 4], usize) {
    let length = variable_byte_integer_len(value as usize);
    let bytes = std::array::from_fn(|index| {
        let more = if index + 1 < length { 0x80 } else { 0 };
        (value >> (7 * index)) as u8 & 0x7F | more
    });
    (bytes, length)
}

/// Appends the bytes that `put_content` writes, behind their length as a variable byte integer.
pub(super) fn put_prefixed(
    out: &mut Vec<u8>,
    put_content: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
    too_long: impl FnOnce(usize) -> EncodeError,
) -> Result<(), EncodeError> {
    let start = out.len();
    put_content(out)?;
    let length = out.len() - start;
    let value = u32::try_from(length).unwrap_or(u32::MAX);
    if value > VARIABLE_BYTE_INTEGER_MAX {
        return Err(too_long(length));
    }
    let (bytes, size) = variable_byte_integer_bytes(value);
    out.splice(start..start, bytes.into_iter().take(size));
    Ok(())
}

pub(super) fn put_binary(out: &mut Vec<u8>, bytes: &[u8], field: &'static str) -> Result<(), EncodeError> {
    let length = bytes.len();
    let prefix = u16::try_from(length).map_err(|_| EncodeError::FieldTooLong { field, length })?;
    out.extend_from_slice(&prefix.to_be_bytes());
    out.extend_from_slice(bytes);
    Ok(())
}

pub(super) fn put_string(out: &mut Vec<u8>, text: &str, field: &'static str) -> Result<(), EncodeError> {
    put_binary(out, text.as_bytes(), field)
}

pub(super) fn put_packet_id(out: &mut Vec<u8>, id: PacketId) {
    out.extend_from_slice(&id.get().to_be_bytes());
}
