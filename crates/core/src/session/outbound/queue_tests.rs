//! Tests of `queue`.

use super::*;
use crate::mqtt::charge;
use crate::mqtt::message::Parts;
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::persistence::rows::Entry;
use crate::persistence::write_buffer::WriteBuffer;
use crate::session::objectives::DeliveryMark;
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

/// Restores an entry with this number of Subscription Identifiers.
fn restore(queue: &mut Queue, ids: u32, entry: Entry) {
    let (number, qos) = (entry.number(), QoS::AtLeastOnce);
    let recovered = RecoveredEntry { number, body: None, qos, flight: None, shared: false, ids };
    queue.restore(entry.page_out().expect("it has a body"), &recovered);
}

fn limits(policy: QueuePolicy) -> QueueLimits {
    QueueLimits { messages: 3, bytes: 10_000, policy }
}

#[test]
fn expired_entries_make_room_before_anything_is_refused() {
    let (mut q, mut drops) = (Queue::NEW, Drops::default());
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
    let (mut q, mut drops) = (Queue::NEW, Drops::default());
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
    let (mut q, mut drops) = (Queue::NEW, Drops::default());
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
    let (mut q, mut drops) = (Queue::NEW, Drops::default());
    let l = limits(QueuePolicy::DropOldest);
    for _ in 0..5 {
        assert_eq!(q.push(Instant::ZERO, delivery(Instant::NEVER), Head::Online, &l, &mut drops), Ok(()));
    }
    assert_eq!((q.len(), drops.of(DropReason::QueueOverflow)), (3, 2));
}

#[test]
fn what_the_store_alone_has_is_dropped_and_told_of_without_its_message() {
    let (mut q, mut drops) = (Queue::NEW, Drops::default());
    let (write_buffer, waiting) = (WriteBuffer::new(0, 0), delivery(Instant::NEVER));
    let body = write_buffer.body(&waiting.message);
    for _ in 0..3 {
        restore(&mut q, 0, *write_buffer.known_entry(EntryNumber(1), Some(Rc::clone(&body))));
    }
    let l = limits(QueuePolicy::DropOldest);
    assert_eq!(q.push(Instant::ZERO, waiting, Head::Offline, &l, &mut drops), Ok(()));
    assert_eq!((q.len(), drops.of(DropReason::QueueOverflow)), (3, 1));
    assert!(drops.take_unreported().iter().all(|dropped| dropped.message.is_none()));
}

#[test]
fn a_page_of_large_messages_is_bounded_by_bytes_and_on_the_account_when_it_is_asked_for() {
    let (mut q, mut drops) = (Queue::NEW, Drops::default());
    let write_buffer = WriteBuffer::new(0, 0);
    for n in 0..64 {
        let body = write_buffer.known_body(BodyNumber(n), 100_000, Instant::NEVER);
        restore(&mut q, 0, *write_buffer.known_entry(EntryNumber(n), Some(body)));
    }
    let before = charge::unreported();
    let page = q.next_page().expect("a page");
    assert_eq!((page.len(), charge::unreported() - before), (3, 300_000));
    q.take_page(&page, Vec::new(), &mut drops);
    assert!(charge::unreported() < before);
}

#[test]
fn recovered_subscription_identifiers_count_in_the_queue_and_in_the_page_that_is_asked_for() {
    let (mut q, mut drops) = (Queue::NEW, Drops::default());
    let (write_buffer, ids) = (WriteBuffer::new(0, 0), SubscriptionIds::size_of(100));
    assert_eq!(ids, SubscriptionIds::from_several(&[7; 100]).size());
    for n in 0..128 {
        let body = write_buffer.known_body(BodyNumber(n), 10, Instant::NEVER);
        restore(&mut q, 100, *write_buffer.known_entry(EntryNumber(n), Some(body)));
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
    let (mut q, write_buffer) = (Queue::NEW, WriteBuffer::new(0, 0));
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
    assert_eq!((q.entries.len(), q.paged_out.len()), (2, 8));
    assert!(!q.wants_page(), "what is there is a page");
    q.pop();
    assert!(q.wants_page());
}

#[test]
fn subscription_identifiers_are_charged_in_the_queue_and_on_the_account() {
    let (mut q, mut drops) = (Queue::NEW, Drops::default());
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
    let (mut q, mut drops) = (Queue::NEW, Drops::default());
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

/// The expiry and the size of each delivery in a queue.
fn contents(q: &Queue) -> impl Iterator<Item = (Instant, usize)> {
    let paged_out = q.view_paged_out_from(EntryNumber(0)).map(|entry| (entry.expires(), entry.size()));
    q.view_from(0).map(|(.., delivery)| (delivery.message.header().expires, delivery.size())).chain(paged_out)
}

/// A delivery with this entry in the store, if there is one.
fn numbered(number: u64, expires: Instant, write_buffer: Option<&Rc<WriteBuffer>>) -> Delivery {
    let mut made = delivery(expires);
    let size = made.message.size() as u32;
    made.stored = write_buffer.map(|write_buffer| {
        let body = write_buffer.known_body(BodyNumber(number), size, expires);
        write_buffer.known_entry(EntryNumber(number), Some(body))
    });
    made
}

#[test]
fn a_message_is_refused_only_if_nothing_in_the_full_queue_has_expired() {
    let l = QueueLimits { messages: 100, bytes: 1_000_000, policy: QueuePolicy::Refuse };
    let write_buffer = WriteBuffer::new(0, 0);
    for stored in [None, Some(&write_buffer)] {
        let (mut q, mut drops, mut state, mut refused) = (Queue::NEW, Drops::default(), 3_u64, 0);
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for step in 0..6_000 {
            let now = Instant::from_millis(step);
            match random(40) {
                0 => _ = q.pop().is_some() || q.pop_paged_out().is_some(),
                1 => _ = q.take_where(0, 20, |_| random(8) == 0),
                2 => _ = q.remove(&Queued::Stored(EntryNumber(step.saturating_sub(random(300))))),
                3 => _ = q.remove_paged_out(EntryNumber(step.saturating_sub(random(300)))),
                _ => {}
            }
            let is_expiring = random(3) > 0;
            let expires =
                if is_expiring { Instant::from_millis(step + random(2_000)) } else { Instant::NEVER };
            let has_room = q.len() < l.messages || contents(&q).any(|(expires, _)| expires <= now);
            let taken = q.push(now, numbered(step, expires, stored), Head::Offline, &l, &mut drops);
            assert_eq!(taken.is_ok(), has_room, "message {step}");
            assert_eq!(contents(&q).map(|(_, size)| size).sum::<usize>(), q.bytes());
            assert_eq!(q.recount().in_use, q.recount().charged);
            refused += u32::from(taken.is_err());
            drops.take_unreported();
        }
        assert!((500..5_500).contains(&refused), "{refused} of 6,000");
    }
}

/// One message drops few, wherever the expired ones stand.
#[test]
fn a_message_drops_no_whole_queue_of_expired_ones() {
    const MESSAGES: usize = 20_000;
    let soon = Instant::from_millis(10);
    let write_buffer = WriteBuffer::new(0, 0);
    for (stored, lasting) in
        [(None, 0), (None, MESSAGES / 2), (Some(&write_buffer), 0), (Some(&write_buffer), MESSAGES / 2)]
    {
        let (mut q, mut drops) = (Queue::NEW, Drops::default());
        let l = QueueLimits { messages: MESSAGES, bytes: usize::MAX, policy: QueuePolicy::DropOldest };
        for n in 0..MESSAGES {
            let expires = if n < lasting { Instant::NEVER } else { soon };
            let new = numbered(n as u64, expires, stored);
            assert_eq!(q.push(Instant::ZERO, new, Head::Offline, &l, &mut drops), Ok(()));
        }
        let mut dropped = 0;
        for n in 0..MESSAGES - lasting {
            let new = numbered((MESSAGES + n) as u64, Instant::NEVER, stored);
            assert_eq!(q.push(soon, new, Head::Offline, &l, &mut drops), Ok(()));
            let now = drops.take_unreported().len();
            assert!(now <= SEARCHED.max(MESSAGES / 2 / MOVED), "{now} at once");
            dropped += now;
        }
        assert_eq!((dropped, drops.of(DropReason::QueueOverflow)), (MESSAGES - lasting, 0));
    }
}

/// The operator has lowered the bounds.
#[test]
fn a_queue_far_above_its_bounds_comes_down_with_several_messages() {
    for policy in [QueuePolicy::DropOldest, QueuePolicy::Refuse] {
        let (mut q, mut l) = full_of_expiring(5_000);
        (l.messages, l.policy) = (10, policy);
        let (mut drops, mut attempts) = (Drops::default(), 0);
        let now = Instant::from_millis(if policy == QueuePolicy::Refuse { 10_000 } else { 0 });
        while q.push(now, delivery(Instant::NEVER), Head::All, &l, &mut drops).is_err() {
            attempts += 1;
            assert!(drops.take_unreported().len() <= DROPPED + 10);
        }
        assert!((4..6).contains(&attempts) && q.len() <= l.messages, "{attempts} attempts");
    }
}
