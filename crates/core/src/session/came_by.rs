//! The listener by which the client of a session came last, in three bytes.

/// The number of a listener, or none. It has no alignment, so it takes no room in a session beside
/// the version, where an `Option<u16>` would cost 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CameBy([u8; 3]);

impl CameBy {
    /// Returns the value for a number; `None` if the client has not come since the start.
    pub fn new(number: Option<u16>) -> CameBy {
        CameBy(number.map_or([0; 3], |number| {
            let [low, high] = number.to_le_bytes();
            [1, low, high]
        }))
    }

    /// Returns the number; `None` if the client has not come since the start.
    pub fn number(self) -> Option<u16> {
        let [is_known, low, high] = self.0;
        (is_known == 1).then(|| u16::from_le_bytes([low, high]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_and_none_come_back() {
        for number in [None, Some(0), Some(1), Some(0x1234), Some(u16::MAX)] {
            assert_eq!(CameBy::new(number).number(), number);
        }
    }
}
