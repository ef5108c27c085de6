//! The closed loop of one publisher, as pure numbers: bounds on unacknowledged messages and on
//! messages under way end to end.
//!
//! The second bound keeps a fast publisher from filling the queues of the broker. So no QoS 0
//! message is lost because of full buffers, and no broker looks fast because it queues. The cost is
//! a counter for each message under way, at most `end_to_end`.

use std::collections::{HashMap, VecDeque};

/// The bounds of a publisher.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowBounds {
    /// Messages to send in all.
    pub messages: Option<u64>,
    /// Messages without PUBACK or PUBCOMP, and in any QoS messages that the client has not put on
    /// the wire.
    pub window: u32,
    /// Messages that some of their audiences do not have yet; `None` for an open loop.
    pub end_to_end: Option<u32>,
    /// Audiences of each message.
    pub copies: u32,
}

/// The progress of one publisher.
#[derive(Debug)]
pub(super) struct PublishFlow {
    bounds: FlowBounds,
    next: u64,
    unacknowledged: u32,
    /// Messages that the client has and that are not on the wire yet.
    queued: u32,
    /// All messages below have arrived, or are written off.
    base: u64,
    /// Copies still to come of each message from `base` on; empty in an open loop.
    missing: VecDeque<u32>,
    /// Sequence numbers of queued messages of QoS 1 and 2, which will get a packet identifier.
    given: VecDeque<u64>,
    /// Messages on the wire, by packet identifier.
    on_wire: HashMap<u16, u64>,
}

impl PublishFlow {
    /// Returns the flow of a publisher that has sent nothing.
    pub(super) fn new(bounds: FlowBounds) -> PublishFlow {
        PublishFlow {
            bounds,
            next: 0,
            unacknowledged: 0,
            queued: 0,
            base: 0,
            missing: VecDeque::new(),
            given: VecDeque::new(),
            on_wire: HashMap::new(),
        }
    }

    /// Returns true if all messages are sent.
    pub(super) fn exhausted(&self) -> bool {
        self.bounds.messages.is_some_and(|messages| self.next >= messages)
    }

    /// Returns true if the next message may be sent now.
    pub(super) fn is_open(&self) -> bool {
        let end_to_end = self.bounds.end_to_end;
        self.unacknowledged < self.bounds.window
            && self.queued < self.bounds.window
            && end_to_end.is_none_or(|bound| self.next - self.base < u64::from(bound))
    }

    /// Returns true if no message waits for its acknowledgement.
    pub(super) fn is_settled(&self) -> bool {
        self.unacknowledged == 0
    }

    /// Takes the next sequence number for a QoS 0 message.
    pub(super) fn take_unacknowledged(&mut self) -> u64 {
        let sequence = self.next;
        self.next += 1;
        self.queued += 1;
        if self.bounds.end_to_end.is_some() {
            self.missing.push_back(self.bounds.copies);
        }
        sequence
    }

    /// Takes the next sequence number for a QoS 1 or 2 message.
    pub(super) fn take(&mut self) -> u64 {
        self.unacknowledged += 1;
        self.given.push_back(self.next);
        self.take_unacknowledged()
    }

    /// Records that the client has put its oldest queued message on the wire, under this packet
    /// identifier (0: QoS 0).
    pub(super) fn sent(&mut self, id: u16) {
        self.queued = self.queued.saturating_sub(1);
        // A QoS 0 message has no identifier.
        if id != 0
            && let Some(sequence) = self.given.pop_front()
        {
            self.on_wire.insert(id, sequence);
        }
    }

    /// Records the end of the handshake of `id`. Returns the sequence number of the message.
    pub(super) fn finished(&mut self, id: u16) -> Option<u64> {
        let sequence = self.on_wire.remove(&id)?;
        self.unacknowledged = self.unacknowledged.saturating_sub(1);
        Some(sequence)
    }

    /// Records that one audience has the message.
    pub(super) fn arrived(&mut self, sequence: u64) {
        self.settle(sequence, 1);
    }

    /// Records that the broker refused the message, so that no audience will have it.
    pub(super) fn refused(&mut self, sequence: u64) {
        self.settle(sequence, u32::MAX);
    }

    fn settle(&mut self, sequence: u64, copies: u32) {
        let Some(offset) = sequence.checked_sub(self.base) else { return };
        let Some(missing) = usize::try_from(offset).ok().and_then(|offset| self.missing.get_mut(offset))
        else {
            return;
        };
        *missing = missing.saturating_sub(copies);
        while self.missing.front() == Some(&0) {
            self.missing.pop_front();
            self.base += 1;
        }
    }

    /// Continues without the messages that are under way. At QoS 0 they may never arrive.
    pub(super) fn write_off(&mut self) {
        self.missing.clear();
        self.base = self.next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(window: u32, end_to_end: Option<u32>, copies: u32) -> PublishFlow {
        PublishFlow::new(FlowBounds { messages: Some(100), window, end_to_end, copies })
    }

    #[test]
    fn the_window_opens_with_each_acknowledgement() {
        let mut flow = flow(2, None, 1);
        assert_eq!((flow.take(), flow.take(), flow.is_open()), (0, 1, false));
        flow.sent(7);
        assert_eq!(flow.finished(9), None, "an identifier that is not on the wire");
        assert_eq!(flow.finished(7), Some(0));
        assert!(flow.is_open() && !flow.is_settled());
    }

    #[test]
    fn end_to_end_it_is_the_oldest_message_that_counts() {
        let mut flow = flow(100, Some(3), 2);
        for _ in 0..3 {
            flow.take_unacknowledged();
        }
        assert!(!flow.is_open());
        for sequence in [1, 1, 2, 2, 0] {
            flow.arrived(sequence);
        }
        assert!(!flow.is_open(), "one copy of the oldest is missing");
        flow.arrived(0);
        assert!(flow.is_open());
        assert!(flow.missing.is_empty());
    }

    #[test]
    fn what_was_refused_or_written_off_holds_nothing_up() {
        let mut flow = flow(100, Some(1), 5);
        let sequence = flow.take();
        flow.refused(sequence);
        assert!(flow.is_open());
        flow.take();
        assert!(!flow.is_open());
        flow.write_off();
        assert!(flow.is_open());
    }

    #[test]
    fn it_ends_after_its_messages() {
        let mut flow = flow(200, None, 1);
        for _ in 0..100 {
            assert!(!flow.exhausted());
            flow.take_unacknowledged();
        }
        assert!(flow.exhausted());
    }
}
