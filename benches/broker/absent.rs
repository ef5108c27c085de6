//! 100 absent sessions with 100,000 messages each: the time to queue them, the memory and files of
//! the broker, and the time to drain one of the sessions. There are 10,000,000 deliveries at QoS 1,
//! each with a number of 8 bytes.
//!
//! `HOMING_BENCH_ABSENT="100 1000"` makes it 100 sessions with 1,000 messages. Each part ends the
//! run after five minutes.

use super::client::{Client, publish};
use super::process::Broker;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const SESSIONS: u32 = 100;
const MESSAGES: u32 = 100_000;

/// Messages that wait for their PUBACK at one time, and deliveries that are acknowledged in one
/// write: within the bounds of the broker.
const AT_ONCE: u32 = 50;

const PATIENCE: Duration = Duration::from_secs(300);

#[expect(clippy::disallowed_methods, reason = "a bench measures the real time")]
pub fn run() {
    let (sessions, messages) = extent();
    let folder = tempfile::tempdir().expect("a folder");
    let broker = Broker::start_in(folder.path());
    let empty = broker.rss_mib();
    for n in 0..sessions {
        let mut client = Client::connect_persistent(broker.address, &format!("away{n}"));
        client.subscribe("t", 1);
    }
    let began = Instant::now();
    let mut publisher = Client::connect(broker.address, "publisher");
    for from in (0..messages).step_by(AT_ONCE as usize) {
        assert!(began.elapsed() < PATIENCE, "{from} messages in {PATIENCE:?}");
        let all = (from..from + AT_ONCE).flat_map(|n| publish("t", 1, &u64::from(n).to_be_bytes()));
        publisher.write(&all.collect::<Vec<_>>());
        (0..AT_ONCE).for_each(|_| assert_eq!(publisher.read(), 0x40));
    }
    let queued = began.elapsed().as_secs_f64();
    let (full, files) = (broker.rss_mib(), mib(folder.path()));
    let began = Instant::now();
    let mut client = Client::connect_persistent(broker.address, "away0");
    let mut acks = Vec::new();
    for n in 0..messages {
        assert_eq!(client.read_publish(&mut acks), u64::from(n).to_be_bytes(), "in their order, each once");
        if n % AT_ONCE == AT_ONCE - 1 {
            assert!(began.elapsed() < PATIENCE, "{n} messages in {PATIENCE:?}");
            client.write(&acks);
            acks.clear();
        }
    }
    let drained = began.elapsed().as_secs_f64();
    let deliveries = f64::from(sessions) * f64::from(messages);
    println!("\n{sessions} sessions that are away, {messages} messages each, one arbiter");
    println!("| queued in | deliveries per s | RSS before | RSS after | files | one is drained in |");
    println!("|---|---|---|---|---|---|");
    println!(
        "| {queued:.1} s | {:.0} | {empty:.0} MiB | {full:.0} MiB | {files:.0} MiB | {drained:.2} s |",
        deliveries / queued
    );
}

fn extent() -> (u32, u32) {
    let Ok(text) = std::env::var("HOMING_BENCH_ABSENT") else { return (SESSIONS, MESSAGES) };
    let mut numbers = text.split_whitespace().map(|n| n.parse::<u32>().expect("a number"));
    let mut next = || numbers.next().expect("sessions and messages");
    (next(), next().next_multiple_of(AT_ONCE))
}

fn mib(folder: &Path) -> f64 {
    let files = fs::read_dir(folder).expect("a folder").flatten();
    files.filter_map(|file| file.metadata().ok()).map(|m| m.len()).sum::<u64>() as f64 / (1024.0 * 1024.0)
}
