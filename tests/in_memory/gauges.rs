//! The gauges that housekeeping renews: windows, queues, and sessions with an overdue
//! acknowledgement.

use crate::client::{client, connect, enter, publish, subscribe, take};
use crate::driver::{MemoryDriver, settings};
use homing::mqtt::packet::{Connect, ConnectProperties, QoS};
use homing::session::outbound::retry::OnAckTimeout;
use homing::shard::ShardSnapshot;
use std::time::Duration;

/// Lets time pass, and returns the figures of the one shard after its housekeeping.
fn after(driver: &mut MemoryDriver, time: Duration) -> ShardSnapshot {
    driver.advance(time);
    driver.shards[0].snapshot()
}

#[test]
fn windows_queues_and_stalled_sessions_are_counted_until_the_client_acknowledges() {
    let mut driver = MemoryDriver::new(&settings(), 1);
    let (receiver, publisher) = (client(&mut driver, "receiver", 2), client(&mut driver, "publisher", 100));
    subscribe(&mut driver, receiver, &["t"], QoS::AtLeastOnce);
    for packet_id in 1..=5 {
        publish(&mut driver, publisher, "t", QoS::AtLeastOnce, packet_id);
    }
    let present = after(&mut driver, Duration::ZERO);
    assert_eq!((present.session_totals.in_flight, present.session_totals.queued, present.stalled), (2, 3, 0));
    assert!(present.session_totals.queued_bytes > 0);
    let late = after(&mut driver, Duration::from_secs(70));
    assert_eq!(
        (late.session_totals.in_flight, late.stalled, late.counters.stalled.total() > 0),
        (2, 1, true)
    );
    assert_eq!(take(&mut driver, receiver, true).len(), 5);
    let recovered = after(&mut driver, Duration::ZERO);
    assert_eq!(
        (recovered.session_totals.in_flight, recovered.session_totals.queued, recovered.stalled),
        (0, 0, 0)
    );
    let acknowledged = recovered.counters.puback_time.distribution();
    assert_eq!(acknowledged.counts.iter().sum::<u64>(), 5);
    assert!(acknowledged.sum >= Duration::from_secs(140), "two of them took 70 s");
}

#[test]
fn a_stalled_client_that_leaves_counts_again_only_when_it_is_back_and_owes_the_acknowledgement_still() {
    let mut settings = settings();
    settings.session.send.redelivery.ack.on_timeout = OnAckTimeout::Alarm;
    let mut driver = MemoryDriver::new(&settings, 1);
    let enter_as = |driver: &mut MemoryDriver, clean_start| {
        let properties = ConnectProperties { session_expiry: Some(u32::MAX), ..Default::default() };
        enter(driver, Connect { clean_start, properties, ..connect("pump") })
    };
    let (receiver, publisher) = (enter_as(&mut driver, true), client(&mut driver, "publisher", 100));
    subscribe(&mut driver, receiver, &["t"], QoS::AtLeastOnce);
    publish(&mut driver, publisher, "t", QoS::AtLeastOnce, 1);
    assert_eq!(after(&mut driver, Duration::from_secs(70)).stalled, 1);
    driver.close(receiver);
    assert_eq!(after(&mut driver, Duration::from_secs(5)).stalled, 0);
    let back = enter_as(&mut driver, false);
    assert_eq!(after(&mut driver, Duration::ZERO).stalled, 1, "it has the message, and owes PUBACK");
    take(&mut driver, back, true);
    assert_eq!(after(&mut driver, Duration::ZERO).stalled, 0);
}
