//! What operators are told about a message that waits for its acknowledgement.

use crate::client::{self, connect_3_1_1, packet, publish, string};
use crate::driver::{self, MemoryDriver};
use homing::mqtt::packet::QoS;
use homing::session::outbound::retry::OnExhausted;
use homing::shard::observe::query::{Query, QueryAnswer, SessionName};
use homing::shard::observe::unfinished::{PagePayloads, UnfinishedPart};
use homing::shard::observe::wait_reason::{AtDeadline, WaitReason};
use std::time::Duration;

/// CONNECT of 3.1.1 with the Clean Session flag off.
fn stays(name: &str) -> Vec<u8> {
    packet(0x10, &[b"\0\x04MQTT\x04\0\0\0", &string(name)[..]].concat())
}

/// Lets a 3.1.1 client leave its message unacknowledged until the one resend that the policy
/// allows. Returns the action that an operator is told to expect next.
fn next_action(connect: &[u8], on_exhausted: OnExhausted) -> AtDeadline {
    let mut settings = driver::settings();
    let retry = &mut settings.session.send.redelivery.retry;
    (retry.attempts, retry.jitter, retry.on_exhausted) = (1, 0.0, on_exhausted);
    let mut driver = MemoryDriver::new(&settings, 1);
    let receiver = driver.open();
    driver.send(receiver, connect);
    driver.send(receiver, b"\x82\x06\0\x01\0\x01a\x01");
    let publisher = client::client(&mut driver, "app", 10);
    publish(&mut driver, publisher, "a", QoS::AtLeastOnce, 1);
    driver.advance(Duration::from_secs(25));
    let (client, part) = (SessionName::Client("pump".into()), UnfinishedPart::InFlight);
    let query = Query::Unfinished { client, part, payloads: PagePayloads::Hidden, from: 0, most: 1 };
    let QueryAnswer::Unfinished(Some(page)) = driver.shards[0].answer(driver.now, &query) else {
        panic!("no page");
    };
    assert_eq!(page.rows[0].transmissions, 2);
    let WaitReason::Unacknowledged(sent) = page.rows[0].wait else { panic!("{:?}", page.rows) };
    sent.then
}

#[test]
fn after_the_last_resend_a_message_that_becomes_a_dead_letter_is_dropped() {
    for connect in [stays("pump"), connect_3_1_1("pump")] {
        assert_eq!(next_action(&connect, OnExhausted::DeadLetter), AtDeadline::Drop);
    }
}

#[test]
fn after_the_last_resend_a_connection_is_closed_only_where_the_policy_closes_it() {
    let (disconnect, keep) = (OnExhausted::Disconnect, OnExhausted::Keep);
    assert_eq!(next_action(&stays("pump"), disconnect), AtDeadline::Disconnect);
    assert_eq!(next_action(&stays("pump"), keep), AtDeadline::Resend);
    // The session ends with the connection, so a close would lose the message.
    assert_eq!(next_action(&connect_3_1_1("pump"), disconnect), AtDeadline::Resend);
}
