//! A set of Packet Identifiers.

use crate::mqtt::packet::PacketId;

/// The identifiers of one word.
const BITS: usize = 64;

/// A set of Packet Identifiers: a bit for each, up to the highest that was ever in the set, so 8 KiB
/// at most. A change costs some instructions and no hash, because each message makes two.
#[derive(Debug, Default)]
pub struct Identifiers {
    words: Vec<u64>,
    len: usize,
}

impl Identifiers {
    /// Adds an identifier.
    pub fn insert(&mut self, id: PacketId) {
        let (word, bit) = place(id);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        if let Some(word) = self.words.get_mut(word) {
            self.len += usize::from(*word & bit == 0);
            *word |= bit;
        }
    }

    /// Removes an identifier. Returns true if it was there.
    pub fn remove(&mut self, id: PacketId) -> bool {
        let (word, bit) = place(id);
        let Some(word) = self.words.get_mut(word).filter(|word| **word & bit != 0) else { return false };
        *word &= !bit;
        self.len -= 1;
        true
    }

    /// Returns the number of identifiers.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

fn place(id: PacketId) -> (usize, u64) {
    let id = usize::from(id.get());
    (id / BITS, 1 << (id % BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_is_there_once() {
        let mut set = Identifiers::default();
        let ids = [1, 63, 64, 65_535].map(|id| PacketId::new(id).expect("not 0"));
        assert!(!set.remove(ids[3]) && set.is_empty());
        for id in ids.iter().chain(&ids) {
            set.insert(*id);
        }
        assert_eq!(set.len(), 4);
        assert!(ids.iter().all(|id| set.remove(*id)));
        assert!(set.is_empty() && !set.remove(ids[0]));
    }
}
