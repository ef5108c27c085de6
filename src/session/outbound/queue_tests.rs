//! Tests of `queue`.

use super::*;
use crate::mqtt::charge;
use crate::mqtt::message::Parts;
use crate::persistence::write_buffer::WriteBuffer;
use std::rc::Rc;

fn delivery(expires: Instant) -> Delivery {
    let parts = Parts {
        qos: QoS::AtLeastOnce,
        retain: false,
        expires,
        topic: "t",
        forwarded: &[],
        payload: &[0; 100],
    };
    Delivery {
        message: Message::new(parts, &mut Vec::new()),
        ids: SubscriptionIds::None,
        qos: QoS::AtLeastOnce,
        retain: false,
        mark: DeliveryMark::NONE,
        share: None,
        stored: None,
    }
}

fn limits(policy: QueuePolicy) -> QueueLimits {
    QueueLimits { messages: 3, bytes: 10_000, policy }
}

#[test]
fn expired_entries_make_room_before_anything_is_refused() {
    let (mut q, mut drops) = (Queue::default(), Drops::default());
    let l = limits(QueuePolicy::Refuse);
    let soon = Instant::from_millis(10);
    for expires in [Instant::NEVER, soon, Instant::NEVER] {
        assert_eq!(q.push(Instant::ZERO, delivery(expires), Head::Online, &l, &mut drops), Ok(()));
    }
    assert_eq!(q.push(Instant::ZERO, delivery(Instant::NEVER), Head::Online, &l, &mut drops), Err(QueueFull));
    assert_eq!(q.push(soon, delivery(Instant::NEVER), Head::Online, &l, &mut drops), Ok(()));
    assert_eq!((q.len(), drops.of(DropReason::Expired), drops.total()), (3, 1, 1));
}

/// A full queue whose messages expire one after the other, at 1 ms, 2 ms and so on.
fn full_of_expiring(messages: usize) -> (Queue, QueueLimits) {
    let (mut q, mut drops) = (Queue::default(), Drops::default());
    let l = QueueLimits { messages, bytes: 1_000_000, policy: QueuePolicy::Refuse };
    for n in 1..=messages as u64 {
        let delivery = delivery(Instant::from_millis(n));
        assert_eq!(q.push(Instant::ZERO, delivery, Head::All, &l, &mut drops), Ok(()));
    }
    (q, l)
}

#[test]
fn a_check_in_portions_is_completed_while_messages_expire_one_by_one() {
    const MESSAGES: u64 = 40;
    let (mut q, l) = full_of_expiring(MESSAGES as usize);
    let (mut drops, mut place, mut portions) = (Drops::default(), Some(0), 0);
    while let Some(from) = place {
        portions += 1;
        let now = Instant::from_millis(portions);
        assert!(now < Instant::from_millis(MESSAGES), "the check begins anew each time");
        place = q.take_where(from, 4, |_| false).next;
        assert_eq!(q.push(now, delivery(Instant::NEVER), Head::All, &l, &mut drops), Ok(()));
        assert_eq!(drops.of(DropReason::Expired), portions);
    }
    // Each portion looks at four messages, and one new message comes behind them.
    assert_eq!(portions, 13);
}

#[test]
fn a_check_begins_anew_after_a_message_in_the_middle_has_expired() {
    let (mut q, mut drops) = (Queue::default(), Drops::default());
    let l = limits(QueuePolicy::Refuse);
    let soon = Instant::from_millis(10);
    for expires in [Instant::NEVER, soon, Instant::NEVER] {
        assert_eq!(q.push(Instant::ZERO, delivery(expires), Head::All, &l, &mut drops), Ok(()));
    }
    let place = q.take_where(0, 2, |_| false).next.expect("one is left");
    assert_eq!(q.view_from(place).count(), 1);
    assert_eq!(q.push(soon, delivery(Instant::NEVER), Head::All, &l, &mut drops), Ok(()));
    assert_eq!(q.view_from(place).count(), 3);
}

#[test]
fn drop_oldest_keeps_the_newest_and_counts_what_went() {
    let (mut q, mut drops) = (Queue::default(), Drops::default());
    let l = limits(QueuePolicy::DropOldest);
    for _ in 0..5 {
        assert_eq!(q.push(Instant::ZERO, delivery(Instant::NEVER), Head::Online, &l, &mut drops), Ok(()));
    }
    assert_eq!((q.len(), drops.of(DropReason::QueueOverflow)), (3, 2));
}

#[test]
fn what_the_store_alone_has_is_dropped_and_told_of_without_its_message() {
    let (mut q, mut drops) = (Queue::default(), Drops::default());
    let (write_buffer, waiting) = (WriteBuffer::new(0, 0), delivery(Instant::NEVER));
    let body = write_buffer.body(&waiting.message);
    for _ in 0..3 {
        q.restore(
            write_buffer.known_entry(EntryNumber(1), Some(Rc::clone(&body))).park().expect("it has a body"),
            false,
            0,
        );
    }
    let l = limits(QueuePolicy::DropOldest);
    assert_eq!(q.push(Instant::ZERO, waiting, Head::Offline, &l, &mut drops), Ok(()));
    assert_eq!((q.len(), drops.of(DropReason::QueueOverflow)), (3, 1));
    assert!(drops.take_unreported().iter().all(|dropped| dropped.message.is_none()));
}

#[test]
fn a_page_of_large_messages_is_bounded_by_bytes_and_on_the_account_when_it_is_asked_for() {
    let (mut q, mut drops) = (Queue::default(), Drops::default());
    let write_buffer = WriteBuffer::new(0, 0);
    for n in 0..64 {
        let body = write_buffer.known_body(BodyNumber(n), 100_000, Instant::NEVER);
        let parked = write_buffer.known_entry(EntryNumber(n), Some(body)).park();
        q.restore(parked.expect("it has a body"), false, 0);
    }
    let before = charge::unreported();
    let page = q.next_page().expect("a page");
    assert_eq!((page.len(), charge::unreported() - before), (3, 300_000));
    q.take_page(&page, Vec::new(), &mut drops);
    assert!(charge::unreported() < before);
}

#[test]
fn recovered_subscription_identifiers_count_in_the_queue_and_in_the_page_that_is_asked_for() {
    let (mut q, mut drops) = (Queue::default(), Drops::default());
    let (write_buffer, ids) = (WriteBuffer::new(0, 0), SubscriptionIds::size_of(100));
    assert_eq!(ids, SubscriptionIds::from_several(&[7; 100]).size());
    for n in 0..128 {
        let body = write_buffer.known_body(BodyNumber(n), 10, Instant::NEVER);
        let parked = write_buffer.known_entry(EntryNumber(n), Some(body)).park();
        q.restore(parked.expect("it has a body"), false, ids);
    }
    assert_eq!(q.bytes(), 128 * (10 + ids));
    let before = charge::unreported();
    let page = q.next_page().expect("a page");
    assert_eq!(charge::unreported() - before, 64 * (10 + ids) as i64);
    q.take_page(&page, Vec::new(), &mut drops);
    assert_eq!(q.bytes(), 64 * (10 + ids));
}

#[test]
fn of_large_messages_few_stay_in_memory() {
    let (mut q, write_buffer) = (Queue::default(), WriteBuffer::new(0, 0));
    let payload = vec![0; 200_000];
    for n in 0..10 {
        let parts = Parts {
            qos: QoS::AtLeastOnce,
            retain: false,
            expires: Instant::NEVER,
            topic: "t",
            forwarded: &[],
            payload: &payload,
        };
        let message = Message::new(parts, &mut Vec::new());
        let body = write_buffer.body(&message);
        let stored = Some(write_buffer.known_entry(EntryNumber(n), Some(body)));
        let (ids, share) = (SubscriptionIds::None, None);
        let qos = QoS::AtLeastOnce;
        q.append(
            Delivery { message, ids, qos, retain: false, mark: DeliveryMark::NONE, share, stored },
            Head::Offline,
        );
    }
    assert_eq!((q.entries.len(), q.parked.len()), (2, 8));
    assert!(!q.wants_page(), "what is there is a page");
    q.pop();
    assert!(q.wants_page());
}

#[test]
fn subscription_identifiers_are_charged_in_the_queue_and_on_the_account() {
    let (mut q, mut drops) = (Queue::default(), Drops::default());
    let many: Vec<u32> = (1..=8_192).collect();
    let l = QueueLimits { messages: 1_000, bytes: 100_000, policy: QueuePolicy::Refuse };
    let before = charge::unreported();
    let taken = (0..100).take_while(|_| {
        let ids = SubscriptionIds::from_several(&many);
        let delivery = Delivery { ids, ..delivery(Instant::NEVER) };
        q.push(Instant::ZERO, delivery, Head::Online, &l, &mut drops).is_ok()
    });
    assert_eq!(taken.count(), 3);
    assert!(charge::unreported() - before > 3 * 4 * 8_192);
    while q.pop().is_some() {}
    assert_eq!(q.bytes(), 0);
}

#[test]
fn bytes_are_charged_in_full_and_given_back() {
    let (mut q, mut drops) = (Queue::default(), Drops::default());
    let size = delivery(Instant::NEVER).message.size();
    let l = QueueLimits { messages: 100, bytes: 2 * size, policy: QueuePolicy::Refuse };
    assert_eq!(q.push(Instant::ZERO, delivery(Instant::NEVER), Head::Online, &l, &mut drops), Ok(()));
    assert_eq!(q.push(Instant::ZERO, delivery(Instant::NEVER), Head::Online, &l, &mut drops), Ok(()));
    assert_eq!(q.push(Instant::ZERO, delivery(Instant::NEVER), Head::Online, &l, &mut drops), Err(QueueFull));
    q.pop();
    assert_eq!(q.bytes(), size);
    q.pop();
    assert_eq!(q.bytes(), 0);
}
