//! Stored delayed messages: the look-up of those that are due soon, and messages that end while it
//! is under way.

use crate::client::{self, publish, subscribe, take};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::durability::read_requests::DelayedRequest;
use homing::mqtt::packet::QoS;
use homing::operators::command::{Command, CommandOutcome};
use homing::operators::message_commands::MessageCommand;
use homing::persistence::records::{CountedDelayed, DelayedNumber, Record, StoredDelayed};
use homing::session::outbound::stall::SocketView;
use homing::shard::Input;
use homing::shard::features::delayed::{DelayedPlace, HORIZON};
use homing::shard::recovery::placement::RecoveredShard;
use homing::time::Instant;
use std::time::Duration;

const READ_UNTIL: Instant = Instant::from_millis(1_000);

/// A shard with one message in the store that is due late, and a subscriber. A look-up is under
/// way.
fn reading() -> (MemoryDriver, LinkId) {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    let share = RecoveredShard {
        next_number: 10,
        delayed_in_all: vec![CountedDelayed { number: DelayedNumber(0), size: 100, owner: None }],
        read_until: READ_UNTIL,
        ..RecoveredShard::default()
    };
    driver.shards[0].take_up(Instant::ZERO, share);
    driver.advance(Duration::ZERO);
    let link = client::client(&mut driver, "subscriber", 10);
    subscribe(&mut driver, link, &["t", "u"], QoS::AtLeastOnce);
    (driver, link)
}

/// Publishes to a delayed topic. Returns the message as it was recorded.
fn delay(driver: &mut MemoryDriver, topic: &str) -> StoredDelayed {
    driver.batches.clear();
    let publisher = client::client(driver, "publisher", 10);
    publish(driver, publisher, topic, QoS::AtLeastOnce, 1);
    let records = driver.batches.iter().flat_map(|batch| &batch.records);
    let mut delayed = records.filter_map(|record| match record {
        Record::Delayed(delayed) => Some(StoredDelayed::clone(delayed)),
        _ => None,
    });
    delayed.next().expect("a delayed message")
}

/// The look-up ends with a message that it read before the message ended.
fn end_reading(driver: &mut MemoryDriver, read: StoredDelayed) {
    let until = Instant::ZERO + HORIZON;
    let request = DelayedRequest { from: (READ_UNTIL, DelayedNumber(0)), until, most: 1_000 };
    driver.shards[0].input(driver.now, Input::Delayed(request, vec![read]));
    driver.settle();
    assert_eq!(driver.shared.totals.delayed_messages.get(), 1, "the one that is due late");
}

#[test]
fn a_deleted_message_that_a_look_up_read_before_does_not_come_back() {
    let (mut driver, link) = reading();
    let deleted = delay(&mut driver, "$delayed/10/t");
    let place = DelayedPlace { due: deleted.due, number: deleted.number };
    let done = MessageCommand::DeleteDelayed(place).carry_out(
        driver.now,
        SocketView::default(),
        &mut driver.shards[0],
    );
    assert_eq!(done.outcome, CommandOutcome::Done);
    driver.settle();
    end_reading(&mut driver, deleted);
    delay(&mut driver, "$delayed/10/u");
    driver.advance(Duration::from_secs(12));
    assert_eq!(take(&mut driver, link, true), ["u"]);
    assert_eq!(driver.shared.totals.delayed_messages.get(), 1);
}

#[test]
fn a_published_message_that_a_look_up_read_before_is_not_published_again() {
    let (mut driver, link) = reading();
    let published = delay(&mut driver, "$delayed/2/t");
    driver.advance(Duration::from_secs(3));
    assert_eq!(take(&mut driver, link, true), ["t"]);
    end_reading(&mut driver, published);
    driver.advance(Duration::from_secs(3));
    assert!(take(&mut driver, link, true).is_empty());
}
