//! The cost of rules about topics: subscriptions of which each message is checked.

use crate::support::client::subscribe_packet;
use crate::support::process::Homing;
use crate::support::{Connect, Message, PATIENCE, RawClient, V311, now};
use crate::{by_build, turn};
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

const SUBSCRIBERS: usize = by_build(200, 9_000);
const RULES: usize = by_build(200, 10_000);
/// Messages that are published at once, and how often.
const BATCH: usize = 10;
const ROUNDS: usize = by_build(5, 10);

/// The CPU time of a delivery with rules, for that without. 1.3 is promised for a release.
const MOST: f64 = if cfg!(debug_assertions) { 5.0 } else { 2.0 };

/// Returns the CPU time of all threads of a process in nanoseconds, by the clock of the scheduler.
fn cpu_ns(process: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let of_task = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    tasks.flatten().filter_map(of_task).sum()
}

/// Connects a client that subscribes to everything at QoS 0.
fn subscriber(address: SocketAddr, number: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let connect = Connect::new(V311, &format!("s{number}")).keep_alive(0).user_name("reader");
    let packets = [connect.encode(), subscribe_packet(V311, 1, &[], &[("#", 0)])].concat();
    stream.write_all(&packets).expect("written");
    let mut answers = [0; 9];
    stream.read_exact(&mut answers).expect("CONNACK and SUBACK");
    assert_eq!((answers[3], answers[8]), (0, 0), "accepted and granted");
    stream.set_nonblocking(true).expect("a mode");
    stream
}

/// Reads until each of these clients has got so many bytes since the last time.
fn read_all(subscribers: &mut [TcpStream], bytes: usize) {
    let (begun, mut scratch) = (now(), [0; 4096]);
    let mut missing = vec![bytes; subscribers.len()];
    while missing.iter().any(|bytes| *bytes > 0) {
        for (stream, missing) in subscribers.iter_mut().zip(&mut missing).filter(|(_, left)| **left > 0) {
            match stream.read(&mut scratch) {
                Ok(count) if count > 0 => *missing -= count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => panic!("a subscriber is disconnected: {other:?}"),
            }
        }
        assert!(begun.elapsed() < 4 * PATIENCE, "deliveries are missing");
    }
}

/// Returns the CPU time of one delivery in nanoseconds. The rules are those of this file.
fn cost_of_a_delivery(rules: Option<&Path>) -> f64 {
    let rules = rules.map(|path| format!("acl.file={}", path.display()));
    let mut arguments = vec!["--ephemeral", "--log-level", "error", "--set", "auth.anonymous=always"];
    arguments.extend(rules.iter().flat_map(|rules| ["--set", rules]));
    let homing = Homing::serve(&arguments);
    let mut subscribers: Vec<TcpStream> =
        (0..SUBSCRIBERS).map(|number| subscriber(homing.address, number)).collect();
    let connect = Connect::new(V311, "publisher").keep_alive(0).user_name("writer");
    let mut publisher = RawClient::connect(homing.address, &connect);
    let message = Message::new("t/7", [b'x'; 64]).encode(V311, 0);
    let batch = message.repeat(BATCH);
    // The first delivery looks the rules up.
    publisher.send(&batch);
    read_all(&mut subscribers, batch.len());
    let before = cpu_ns(homing.process.id());
    for _ in 0..ROUNDS {
        publisher.send(&batch);
        read_all(&mut subscribers, batch.len());
    }
    (cpu_ns(homing.process.id()) - before) as f64 / (SUBSCRIBERS * BATCH * ROUNDS) as f64
}

#[test]
fn guarded_subscriptions_cost_little_more_than_those_without_rules() {
    let _turn = turn();
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let mut text = String::from("user writer\ntopic write t/#\nuser reader\n");
    (0..RULES).for_each(|n| writeln!(text, "topic read t/{n}").expect("a string grows"));
    file.write_all(text.as_bytes()).expect("a writable file");
    // The better of two, interleaved: others may have the machine.
    let rounds = [(); 2].map(|()| (cost_of_a_delivery(None), cost_of_a_delivery(Some(file.path()))));
    let without = rounds.iter().map(|round| round.0).fold(f64::INFINITY, f64::min);
    let with = rounds.iter().map(|round| round.1).fold(f64::INFINITY, f64::min);
    let ratio = with / without;
    println!(
        "{SUBSCRIBERS} subscribers to #: {without:.0} ns a delivery, {with:.0} ns with {RULES} rules, {ratio:.2}"
    );
    assert!(ratio < MOST, "{ratio}");
}
