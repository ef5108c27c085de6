//! What operators are told about messages that wait: for an acknowledgement, or in a queue.

use crate::client::{self, connect_3_1_1, packet, publish, string};
use crate::driver::{self, MemoryDriver};
use homing::mqtt::packet::QoS;
use homing::operators::client_commands::{OperatorAction, OperatorCommand, RedeliverBy};
use homing::operators::command::{Command, CommandOutcome};
use homing::operators::query::{Query, QueryAnswer, SessionFilter, SessionName, SessionSummary};
use homing::operators::unfinished::{PagePayloads, UnfinishedPart};
use homing::operators::wait_reason::{AtDeadline, WaitReason};
use homing::session::outbound::retry::OnExhausted;
use homing::session::outbound::stall::SocketView;
use std::time::Duration;

/// CONNECT of 3.1.1 with the Clean Session flag off.
fn stays(name: &str) -> Vec<u8> {
    packet(0x10, &[b"\0\x04MQTT\x04\0\0\0", &string(name)[..]].concat())
}

/// A 3.1.1 client that leaves its message unacknowledged. The policy allows `attempts` resends.
fn unacknowledged(connect: &[u8], attempts: u16, on_exhausted: OnExhausted) -> MemoryDriver {
    let mut settings = driver::settings();
    let retry = &mut settings.session.send.redelivery.retry;
    (retry.attempts, retry.jitter, retry.on_exhausted) = (attempts, 0.0, on_exhausted);
    let mut driver = MemoryDriver::new(&settings, 1);
    let receiver = driver.open();
    driver.send(receiver, connect);
    driver.send(receiver, b"\x82\x06\0\x01\0\x01a\x01");
    let publisher = client::client(&mut driver, "app", 10);
    publish(&mut driver, publisher, "a", QoS::AtLeastOnce, 1);
    driver
}

/// Returns the transmissions of the message, and the action that an operator is told to expect next;
/// `None` if the message is gone.
fn next_action(driver: &MemoryDriver) -> Option<(u16, AtDeadline)> {
    let (client, part) = (SessionName::Client("pump".into()), UnfinishedPart::InFlight);
    let query = Query::Unfinished { client, part, payloads: PagePayloads::Hidden, from: 0, most: 1 };
    let QueryAnswer::Unfinished(Some(page)) = query.answer(driver.now, &driver.shards[0]) else {
        panic!("no page");
    };
    let row = page.rows.first()?;
    let WaitReason::Unacknowledged(sent) = row.wait else { panic!("{:?}", page.rows) };
    Some((row.transmissions, sent.then))
}

/// Returns the action that an operator is told to expect after the only resend that is allowed.
fn after_one_resend(connect: &[u8], on_exhausted: OnExhausted) -> AtDeadline {
    let mut driver = unacknowledged(connect, 1, on_exhausted);
    driver.advance(Duration::from_secs(25));
    let (transmissions, then) = next_action(&driver).expect("it waits");
    assert_eq!(transmissions, 2);
    then
}

fn redeliver(driver: &mut MemoryDriver, by: RedeliverBy) -> CommandOutcome {
    let client = SessionName::Client("pump".into());
    let command = OperatorCommand { client, action: OperatorAction::Redeliver(by) };
    let done = command.carry_out(driver.now, SocketView::default(), &mut driver.shards[0]);
    driver.settle();
    done.outcome
}

#[test]
fn a_redelivery_by_an_operator_is_no_attempt() {
    for on_exhausted in [OnExhausted::DeadLetter, OnExhausted::Disconnect] {
        let mut driver = unacknowledged(&stays("pump"), 2, on_exhausted);
        for _ in 0..2 {
            driver.advance(Duration::from_secs(1));
            assert_eq!(redeliver(&mut driver, RedeliverBy::Resend), CommandOutcome::Resent(1));
        }
        assert_eq!(next_action(&driver), Some((3, AtDeadline::Resend)), "{on_exhausted:?}");
        // The policy's own two attempts come, and an operator may ask once more after the last one.
        driver.advance(Duration::from_secs(250));
        let (transmissions, then) = next_action(&driver).expect("it waits");
        assert_eq!((transmissions, then == AtDeadline::Resend), (5, false), "{on_exhausted:?}");
        assert_eq!(redeliver(&mut driver, RedeliverBy::Resend), CommandOutcome::Resent(1));
        assert_eq!(next_action(&driver), Some((6, then)), "{on_exhausted:?}");
    }
}

#[test]
fn a_redelivery_by_a_disconnect_is_no_attempt_either() {
    let mut driver = unacknowledged(&stays("pump"), 1, OnExhausted::DeadLetter);
    for transmissions in 2..4 {
        assert_eq!(redeliver(&mut driver, RedeliverBy::Disconnect), CommandOutcome::Disconnected);
        let receiver = driver.open();
        driver.send(receiver, &stays("pump"));
        assert_eq!(next_action(&driver), Some((transmissions, AtDeadline::Resend)));
    }
}

#[test]
fn after_the_last_resend_a_message_that_becomes_a_dead_letter_is_dropped() {
    for connect in [stays("pump"), connect_3_1_1("pump")] {
        assert_eq!(after_one_resend(&connect, OnExhausted::DeadLetter), AtDeadline::Drop);
    }
}

#[test]
fn after_the_last_resend_a_connection_is_closed_only_where_the_policy_closes_it() {
    let (disconnect, keep) = (OnExhausted::Disconnect, OnExhausted::Keep);
    assert_eq!(after_one_resend(&stays("pump"), disconnect), AtDeadline::Disconnect);
    assert_eq!(after_one_resend(&stays("pump"), keep), AtDeadline::Resend);
    // The session ends with the connection, so a close would lose the message.
    assert_eq!(after_one_resend(&connect_3_1_1("pump"), disconnect), AtDeadline::Resend);
}

/// Returns the row of the session of `pump`.
fn row_of_pump(driver: &MemoryDriver) -> SessionSummary {
    let filter = SessionFilter { prefix: "pump".into(), ..SessionFilter::default() };
    let query = Query::Sessions { from: 0, most: 1, filter };
    let QueryAnswer::Sessions(mut part) = query.answer(driver.now, &driver.shards[0]) else {
        panic!("no sessions");
    };
    part.rows.pop().expect("a session")
}

#[test]
fn the_age_of_the_oldest_queued_message_is_known_in_memory_while_the_client_is_away_and_there() {
    for leaves in [true, false] {
        let mut settings = driver::settings();
        settings.session.send.in_flight = 1;
        let mut driver = MemoryDriver::new(&settings, 1);
        let pump = driver.open();
        driver.send(pump, &stays("pump"));
        driver.send(pump, b"\x82\x06\0\x01\0\x01a\x01");
        let publisher = client::client(&mut driver, "app", 10);
        driver.advance(Duration::from_secs(1));
        // The first message goes to the client.
        publish(&mut driver, publisher, "a", QoS::AtLeastOnce, 1);
        assert_eq!(row_of_pump(&driver).oldest_queued, None);
        if leaves {
            driver.close(pump);
        }
        publish(&mut driver, publisher, "a", QoS::AtLeastOnce, 2);
        driver.advance(Duration::from_secs(5));
        publish(&mut driver, publisher, "a", QoS::AtLeastOnce, 3);
        let row = row_of_pump(&driver);
        assert_eq!((row.oldest_queued, row.oldest_stored), (Some(Duration::from_secs(5)), None));
        let (client, part) = (SessionName::Client("pump".into()), UnfinishedPart::Queue);
        let query = Query::Unfinished { client, part, payloads: PagePayloads::Hidden, from: 0, most: 9 };
        let QueryAnswer::Unfinished(Some(page)) = query.answer(driver.now, &driver.shards[0]) else {
            panic!("no page");
        };
        let ages: Vec<_> = page.rows.iter().map(|row| row.queued_for.map(|age| age.as_secs())).collect();
        assert_eq!(ages, [Some(5), Some(0)]);
    }
}
