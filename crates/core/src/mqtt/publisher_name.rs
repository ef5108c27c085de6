//! The client identifier of a publisher, which its messages share.

use crate::mqtt::charge::Charge;
use std::fmt;
use triomphe::ThinArc;

/// Bytes of a name beside its text: the counter, the length and the charge.
const NAME: usize = 32;

/// The client identifier of a publisher. Takes 8 bytes, and a clone counts a reference. The bytes
/// of the text are charged once, until the last message with the name is gone.
#[derive(Clone)]
pub struct PublisherName(ThinArc<Charge, u8>);

impl PublisherName {
    /// Returns a name with one copy of the text.
    pub fn new(client_id: &str) -> PublisherName {
        let charge = Charge::new(client_id.len() + NAME);
        PublisherName(ThinArc::from_header_and_slice(charge, client_id.as_bytes()))
    }

    /// Returns the name with this text: `last` if it has the same text. For messages that are read
    /// one after the other. An empty text is no name.
    pub fn shared(client_id: &str, last: &mut Option<PublisherName>) -> Option<PublisherName> {
        if client_id.is_empty() {
            return None;
        }
        if last.as_ref().is_none_or(|last| last.bytes() != client_id.as_bytes()) {
            *last = Some(PublisherName::new(client_id));
        }
        last.clone()
    }

    /// Returns the client identifier. Looks at each byte: a second check is better than `unsafe`
    /// code. Only dead letters ask for it.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.bytes()).unwrap_or_default()
    }

    /// Returns the number of bytes of the client identifier.
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Returns true if the client identifier is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    fn bytes(&self) -> &[u8] {
        &self.0.slice
    }
}

impl fmt::Debug for PublisherName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::charge::take_delta;

    #[test]
    fn a_name_is_charged_once_until_its_last_clone_is_gone() {
        take_delta();
        let mut last = None;
        let [one, same] = [(); 2].map(|()| PublisherName::shared("pump", &mut last));
        assert_eq!(take_delta(), 4 + NAME as i64);
        assert_eq!(same.as_ref().map(PublisherName::as_str), Some("pump"));
        assert!(PublisherName::shared("", &mut last).is_none());
        drop((one, last));
        assert_eq!(take_delta(), 0);
        drop(same);
        assert_eq!(take_delta(), -(4 + NAME as i64));
    }
}
