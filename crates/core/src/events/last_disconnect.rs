//! The topics of the retained last-disconnect records, up to a maximum number.
//!
//! The broker makes a record from the event of a disconnect (`src/broker/events`). A record
//! costs one retained message, and is made only when a connection ends.

use crate::mqtt::charge::{Charge, Recount, Recounted};
use crate::mqtt::keyed::Keyed;
use hashbrown::HashSet;
use std::collections::VecDeque;
use std::sync::Arc;

/// The topics of the records. Each topic is here once, and keeps its place when its client is
/// disconnected again. A topic may have no retained message, because there was no room for it.
#[derive(Debug, Default)]
pub(crate) struct LastDisconnects {
    /// The oldest first.
    order: VecDeque<Arc<str>>,
    known: HashSet<Arc<str>, Keyed>,
    charge: Charge,
}

/// Bytes of a topic in addition to its text: its places in the queue and in the set, both of which
/// may be half empty.
const TOPIC: usize = 96;

impl LastDisconnects {
    /// Adds a topic, unless it is here already. If there are then more than `most` topics, removes
    /// and returns the oldest one.
    pub(crate) fn keep(&mut self, topic: &str, most: usize) -> Option<Arc<str>> {
        if !self.known.contains(topic) {
            let topic: Arc<str> = topic.into();
            self.known.insert(Arc::clone(&topic));
            self.charge.add(topic.len() + TOPIC);
            self.order.push_back(topic);
        }
        if self.order.len() <= most {
            return None;
        }
        let oldest = self.order.pop_front()?;
        self.known.remove(&oldest);
        self.charge.sub(oldest.len() + TOPIC);
        Some(oldest)
    }
}

impl Recount for LastDisconnects {
    fn recount(&self) -> Recounted {
        let in_use = self.order.iter().map(|topic| topic.len() + TOPIC).sum();
        Recounted { in_use, charged: self.charge.bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While there was no room for retained messages, each disconnect added the same client again.
    /// In the end its oldest place removed the record that there was.
    #[test]
    fn a_client_has_one_place_however_often_it_is_disconnected() {
        let mut records = LastDisconnects::default();
        for topic in ["a", "b", "b", "b", "a"] {
            assert_eq!(records.keep(topic, 2), None);
        }
        assert_eq!(records.keep("c", 2).as_deref(), Some("a"));
        assert_eq!(records.keep("b", 2), None);
        assert_eq!(records.keep("a", 2).as_deref(), Some("b"));
        assert_eq!((records.order.len(), records.known.len()), (2, 2));
    }
}
