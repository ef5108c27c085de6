//! What clients were promised: the packets that leave an owner, and the messages behind them.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// The number of a message, which is its payload.
pub type MessageNumber = u32;

/// A message of a publisher.
#[derive(Debug)]
pub struct Published {
    pub publisher: usize,
    pub cell: usize,
    pub topic: usize,
    pub is_exactly_once: bool,
    pub first_sent: u64,
    /// The time at which the publisher had PUBACK or PUBREC.
    pub acknowledged: Option<u64>,
    /// True if a node has acknowledged it whose clock had stood still. A lease that looks valid then
    /// is the documented limit.
    pub is_excepted: bool,
}

/// A subscription that its client had SUBACK for.
#[derive(Debug)]
pub struct Subscribed {
    pub client: usize,
    pub cell: usize,
    pub topic: usize,
    pub from: u64,
    /// The time at which the client sent UNSUBSCRIBE.
    pub until: u64,
}

/// What came about, over many seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub acknowledged: u64,
    pub delivered: u64,
    pub by_lease: u64,
    pub by_append: u64,
    pub by_a_fooled_clock: u64,
    pub empty_groups: u64,
    pub late_turns: u64,
    pub tables_compared: u64,
    pub pages: u64,
}

impl Totals {
    pub fn is_complete(&self) -> bool {
        let Totals { acknowledged, delivered, by_lease, by_append, empty_groups, late_turns, .. } = *self;
        let all = [acknowledged, delivered, by_lease, by_append, empty_groups, late_turns];
        all.iter().chain([&self.tables_compared, &self.pages]).all(|times| *times > 0)
    }
}

#[derive(Default)]
pub struct Promises {
    pub totals: Totals,
    pub messages: BTreeMap<MessageNumber, Published>,
    pub subscriptions: Vec<Subscribed>,
    /// How often each subscriber had each message.
    pub deliveries: BTreeMap<(usize, MessageNumber), u32>,
    /// The last new message that each subscriber had of a publisher, a topic and a QoS.
    last: BTreeMap<(usize, usize, usize, bool), MessageNumber>,
}

/// When a packet was put in line, and how it may leave.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    /// True if a lease was valid when the packet was put, or later.
    pub has_lease: bool,
    /// True if an append is stored that was first sent when the packet was put, or later.
    pub has_append: bool,
    /// True if the clock of the node has stood still since its last stored append.
    pub is_fooled: bool,
}

impl Promises {
    /// A promise leaves a node. Returns true if it is excepted.
    pub fn leaves(&mut self, kind: u8, leaving: Leaving) -> bool {
        let Leaving { has_lease, has_append, is_fooled } = leaving;
        assert!(has_lease || has_append, "packet type {kind} leaves without a lease and without an append");
        let totals = &mut self.totals;
        match (has_append, is_fooled) {
            (true, _) => totals.by_append += 1,
            (false, true) => totals.by_a_fooled_clock += 1,
            (false, false) => totals.by_lease += 1,
        }
        !has_append && is_fooled
    }

    /// A subscriber had a message. `is_exactly_once` is about this delivery.
    pub fn delivered(&mut self, client: usize, number: MessageNumber, is_exactly_once: bool) {
        let message = &self.messages[&number];
        let times = self.deliveries.entry((client, number)).or_default();
        *times += 1;
        let is_once = is_exactly_once && message.is_exactly_once;
        assert!(*times == 1 || !is_once, "client {client} had message {number} of QoS 2 twice");
        if *times > 1 {
            return;
        }
        self.totals.delivered += 1;
        let of_topic = |one: &&Subscribed| (one.client, one.topic) == (client, message.topic);
        let subscribed = self.subscriptions.iter().rfind(of_topic);
        // A repetition may be the first copy that comes to a younger subscription, also to one whose
        // SUBACK was lost.
        let sent = message.first_sent;
        if subscribed.is_some_and(|one| one.from < sent && sent < one.until) {
            let stream = (client, message.publisher, message.topic, message.is_exactly_once);
            let before = self.last.insert(stream, number);
            assert!(before < Some(number), "client {client} had {number} after {before:?}");
        }
    }

    /// At the end everything is delivered that is owed.
    pub fn check_delivered(&self) {
        for (number, message) in &self.messages {
            let Some(acknowledged) = message.acknowledged.filter(|_| !message.is_excepted) else { continue };
            for subscribed in &self.subscriptions {
                let is_of = subscribed.cell == message.cell && subscribed.topic == message.topic;
                let is_owed = subscribed.from < message.first_sent && acknowledged < subscribed.until;
                if is_of && is_owed {
                    let is_delivered = self.deliveries.contains_key(&(subscribed.client, *number));
                    assert!(is_delivered, "message {number} is lost: {message:?} for {subscribed:?}");
                }
            }
        }
    }

    pub fn add_to(&self, all: &Mutex<Totals>) {
        let mut all = all.lock().expect("nobody panics with it");
        let one = self.totals;
        all.acknowledged += one.acknowledged;
        all.delivered += one.delivered;
        all.by_lease += one.by_lease;
        all.by_append += one.by_append;
        all.by_a_fooled_clock += one.by_a_fooled_clock;
        all.empty_groups += one.empty_groups;
        all.late_turns += one.late_turns;
        all.tables_compared += one.tables_compared;
        all.pages += one.pages;
    }
}
