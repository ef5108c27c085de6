//! The real binary with a store that is sound: its size limit, its end by signal, and a row that
//! somebody took out of it.

use crate::support::client::Event;
use crate::support::process::{Process, homing_serve};
use crate::support::{Connect, Kind, Message, PATIENCE, Packet, RawClient, V5, V311, now, until};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::path::Path;

fn homing_on(directory: &Path, extra: &[&str]) -> (Process, SocketAddr) {
    Process::serve(homing_serve().arg("--data-dir").arg(directory).args(extra))
}

/// The least that can be configured.
const LIMIT: u64 = 64 * 1024 * 1024;
const PAYLOAD: usize = 256 * 1024;
const ROOMY: [&str; 4] = ["--set", "store.queue_bytes=1 GiB", "--set", "store.queue_messages=100000"];

fn away(address: SocketAddr) -> RawClient {
    RawClient::connect(address, &Connect::persistent(V5, "away"))
}

fn subscribed_and_away(address: SocketAddr) {
    let mut client = away(address);
    client.subscribe(&[("t", 1)]);
    client.disconnect();
}

fn publisher(address: SocketAddr) -> RawClient {
    RawClient::connect(address, &Connect::new(V5, "publisher"))
}

/// The number at the beginning of a payload.
fn number(payload: &[u8]) -> usize {
    let digits = payload.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&payload[..digits]).expect("digits").parse().expect("a number")
}

fn large(n: usize) -> Message {
    let mut payload = format!("{n} ").into_bytes();
    payload.resize(PAYLOAD, b'x');
    Message::new("t", payload).qos(1)
}

/// Receives and acknowledges until the message of this number.
fn receive_until(client: &mut RawClient, last: usize) -> Vec<usize> {
    let mut numbers = Vec::new();
    while numbers.last() != Some(&last) {
        let publish = client.expect_publish();
        client.complete(&publish);
        numbers.push(number(&publish.payload));
    }
    numbers
}

#[test]
fn at_its_size_limit_the_store_refuses_and_takes_messages_again_once_the_queue_is_drained() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut extra = ROOMY.to_vec();
    extra.extend(["--set", "store.size_limit=64 MiB"]);
    let (mut homing, address) = homing_on(directory.path(), &extra);
    subscribed_and_away(address);
    let mut publisher = publisher(address);
    for round in 0..2 {
        let first = 1000 * round;
        let mut taken = Vec::new();
        let refusal = loop {
            let n = first + taken.len();
            match publisher.deliver(&large(n)) {
                0 => taken.push(n),
                code => break code,
            }
        };
        assert_eq!(refusal, 0x97);
        let bytes = taken.len() * PAYLOAD;
        assert!((32 << 20..LIMIT as usize).contains(&bytes), "{bytes} bytes were taken");
        let file = std::fs::metadata(directory.path().join("homing.db")).expect("it is there");
        assert!(file.len() <= LIMIT, "{} bytes", file.len());
        let mut older = RawClient::connect(address, &Connect::new(V311, "older"));
        older.publish(&large(0));
        assert_eq!(older.expect_closed(), None);

        let mut back = away(address);
        let last = *taken.last().expect("some");
        assert_eq!(receive_until(&mut back, last), taken);
        assert!(homing.line("the store has room again").is_some());
        let deadline = now() + PATIENCE;
        while publisher.deliver(&large(last + 1)) != 0 {
            assert!(now() < deadline, "it is never taken again");
        }
        assert_eq!(receive_until(&mut back, last + 1), [last + 1]);
        back.disconnect();
    }
}

#[test]
fn sigterm_loses_nothing_that_was_acknowledged_and_keeps_what_waited_to_be_committed() {
    const SENT: usize = 1000;
    let directory = tempfile::tempdir().expect("a directory");
    let extra = ["--set", "limits.receive_maximum=65535"];
    let (mut homing, address) = homing_on(directory.path(), &extra);
    subscribed_and_away(address);
    let mut publisher = publisher(address);
    let first = publisher.publish(&Message::new("t", "0").qos(1));
    for n in 1..SENT {
        publisher.publish(&Message::new("t", n.to_string()).qos(1));
    }
    publisher.expect_ack(Kind::Puback, first);
    homing.signal(Signal::TERM);
    let (mut acknowledged, deadline) = (1, now() + PATIENCE);
    loop {
        match publisher.next(deadline) {
            Event::Packet(Packet::Ack(ack)) if ack.code < 0x80 => acknowledged += 1,
            Event::Packet(Packet::Disconnect(disconnect)) => assert_eq!(disconnect.code, 0x8B),
            Event::Closed => break,
            other => panic!("{other:?}"),
        }
    }
    let (code, said) = homing.end();
    assert_eq!(code, Some(0), "{said:#?}");

    let (_homing, address) = homing_on(directory.path(), &ROOMY);
    let mut marker = self::publisher(address);
    assert_eq!(marker.deliver(&Message::new("t", SENT.to_string()).qos(1)), 0);
    let came = receive_until(&mut away(address), SENT);
    println!("{acknowledged} acknowledged, {} kept", came.len() - 1);
    assert!(came.len() > acknowledged, "{acknowledged} were acknowledged: {came:?}");
    // All from the first on, without a gap.
    assert!(came[..came.len() - 1].iter().copied().eq(0..came.len() - 1), "{came:?}");
}

/// Messages in the queue before some are taken out of the database.
const COUNT: usize = 200;

fn rows_are_taken_out(sql: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut homing, address) = homing_on(directory.path(), &ROOMY);
    subscribed_and_away(address);
    let mut publisher = publisher(address);
    for n in 0..COUNT {
        assert_eq!(publisher.deliver(&Message::new("t", n.to_string()).qos(1)), 0);
    }
    take_out(directory.path(), sql);
    let mut back = away(address);
    let expected: Vec<usize> = (0..COUNT).filter(|n| !(150..153).contains(n)).collect();
    assert_eq!(receive_until(&mut back, COUNT - 1), expected);
    let dropped = homing.line("messages dropped").expect("it lives");
    assert!(dropped.contains("away") && dropped.contains("unreadable 3"), "{dropped}");
    assert_eq!(publisher.deliver(&Message::new("t", COUNT.to_string()).qos(1)), 0);
    assert_eq!(receive_until(&mut back, COUNT), [COUNT]);
}

/// By another hand than the broker's.
fn take_out(directory: &Path, sql: &str) {
    let database = rusqlite::Connection::open(directory.join("homing.db")).expect("opened");
    database.busy_timeout(PATIENCE).expect("a time");
    until("the database has what is in the log", || {
        let entries = database.query_row("SELECT count(*) FROM entry", [], |row| row.get(0));
        (entries == Ok(COUNT as i64)).then_some(())
    });
    assert_eq!(database.execute(sql, []).expect("deleted"), 3);
}

#[test]
fn messages_that_the_store_has_lost_are_counted_and_the_queue_goes_on() {
    let some = "(SELECT number FROM body ORDER BY number LIMIT 3 OFFSET 150)";
    rows_are_taken_out(&format!("DELETE FROM body WHERE number IN {some}"));
}

#[test]
fn queue_entries_that_the_store_has_lost_are_counted_and_the_queue_goes_on() {
    let some = "(SELECT number FROM entry ORDER BY number LIMIT 3 OFFSET 150)";
    rows_are_taken_out(&format!("DELETE FROM entry WHERE number IN {some}"));
}
