//! The place in a listing at which the next page begins.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// A place in a listing of sessions, for one filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListCursor {
    /// The number of the shard.
    pub(super) shard: u8,
    /// The slot in the shard.
    pub(super) slot: u32,
    /// A hash of the filter: a cursor of another listing is refused.
    pub(super) filter: u32,
}

impl ListCursor {
    /// Returns the text for a URL.
    pub(super) fn encode(self) -> String {
        let mut bytes = [0; 9];
        bytes[0] = self.shard;
        bytes[1..5].copy_from_slice(&self.slot.to_be_bytes());
        bytes[5..].copy_from_slice(&self.filter.to_be_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads the text of a cursor; `None` if it is none.
    pub(super) fn decode(text: &str) -> Option<ListCursor> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let [shard, a, b, c, d, e, f, g, h] = *bytes.as_slice() else { return None };
        let (slot, filter) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        Some(ListCursor { shard, slot, filter })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_and_anything_else_is_none() {
        let cursor = ListCursor { shard: 3, slot: 70_000, filter: 0xdead_beef };
        assert_eq!(ListCursor::decode(&cursor.encode()), Some(cursor));
        for other in ["", "AAAA", "not base64!", &"A".repeat(100)] {
            assert_eq!(ListCursor::decode(other), None);
        }
    }
}
