//! A SUBSCRIBE or UNSUBSCRIBE that takes more than one turn, as data.

use crate::mqtt::charge::Charge;
use crate::mqtt::packet::SubscriptionOptions;
use crate::peers::answer::Answer;
use crate::slots::{ConnectionId, SessionId};

/// The filters of a SUBSCRIBE or UNSUBSCRIBE that are left for later turns.
#[derive(Debug)]
pub(crate) struct SubscribeRequest {
    pub connection: ConnectionId,
    pub session: SessionId,
    pub filters: Names,
    /// The options of each filter. Empty for an UNSUBSCRIBE.
    pub options: Vec<SubscriptionOptions>,
    pub subscription_id: u32,
    pub answer: Answer,
    _charge: Charge,
}

impl SubscribeRequest {
    /// Returns a request whose bytes are charged. For a SUBSCRIBE, `options` has one value for each
    /// filter. For an UNSUBSCRIBE, `options` is empty and `subscription_id` is 0.
    pub(crate) fn new(
        connection: ConnectionId,
        session: SessionId,
        (filters, options): (Names, Vec<SubscriptionOptions>),
        subscription_id: u32,
        answer: Answer,
    ) -> Box<SubscribeRequest> {
        let bytes = filters.memory() + options.capacity() * size_of::<SubscriptionOptions>();
        let _charge = Charge::new(bytes);
        Box::new(SubscribeRequest { connection, session, filters, options, subscription_id, answer, _charge })
    }
}

/// A list of names with one buffer for their text, so that a name costs no allocation.
#[derive(Debug, Default)]
pub(crate) struct Names {
    text: String,
    ends: Vec<u32>,
    next: usize,
}

impl Names {
    /// Adds a name.
    pub(crate) fn add(&mut self, name: &str) {
        self.text.push_str(name);
        // All names come from one packet, so their bytes are fewer than 2^28.
        self.ends.push(self.text.len() as u32);
    }

    /// Returns the next name and its position.
    pub(crate) fn next(&mut self) -> Option<(usize, &str)> {
        let at = self.next;
        let end = *self.ends.get(at)? as usize;
        let begin = at.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |end| *end as usize);
        self.next += 1;
        Some((at, self.text.get(begin..end)?))
    }

    fn memory(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_out_in_order_with_their_position() {
        let mut names = Names::default();
        for name in ["a", "", "b/c"] {
            names.add(name);
        }
        assert_eq!(names.next(), Some((0, "a")));
        assert_eq!(names.next(), Some((1, "")));
        assert_eq!(names.next(), Some((2, "b/c")));
        assert_eq!(names.next(), None);
    }
}
