//! What one hostile client does to the others: while the traffic of `support::abuse` runs against the real binary, a second
//! client sends PINGREQ after PINGREQ, and the longest that it waits for its PINGRESP is bounded.
//!
//! The figures are printed (`--nocapture`). A development build is about ten times slower than a release and its tests share
//! the machine with others, so there the bound only tells slow from stuck; `cargo test --release --test abuse` holds the
//! broker to the 100 ms that are promised. How much one turn does is counted in steps elsewhere (`in_memory`, `turns`).

#[path = "support/abuse.rs"]
mod abuse;
#[path = "support/process.rs"]
#[expect(dead_code, reason = "shared with the tests of the process, which use all of it")]
mod process;
#[expect(dead_code, unused_imports, reason = "shared with the broker's tests, which use all of it")]
mod support;

use process::{Process, homing_serve};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use support::{Connect, Message, RawClient, V311, now};

/// The longest that another client's PINGRESP may take.
const BOUND: Duration = Duration::from_millis(if cfg!(debug_assertions) { 3_000 } else { 100 });
/// One after the other: each is to have the machine.
static TURN: Mutex<()> = Mutex::new(());

/// Measures another client's longest wait for a PINGRESP while `abuse` runs.
fn others_wait_little(name: &str, settings: &[&str], abuse: impl FnOnce(SocketAddr)) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = homing_serve();
    command.args(["--log-level", "warn", "--set", "runtime.arbiters=1"]);
    for setting in settings {
        command.args(["--set", setting]);
    }
    let (_process, address) = Process::serve(&mut command);
    let done = AtomicBool::new(false);
    let longest = thread::scope(|scope| {
        let other = scope.spawn(|| longest_wait(address, &done));
        abuse(address);
        done.store(true, Ordering::Relaxed);
        other.join().expect("the other client is served")
    });
    println!("{name}: another client's PINGRESP took {longest:?} at most");
    assert!(
        longest < BOUND,
        "{name}: another client's PINGRESP took {longest:?}, where {BOUND:?} are allowed"
    );
}

fn longest_wait(address: SocketAddr, done: &AtomicBool) -> Duration {
    let mut other = RawClient::open_with(address, V311, Duration::from_secs(60)).accepted(&calm("other"));
    let mut longest = Duration::ZERO;
    while !done.load(Ordering::Relaxed) {
        let sent = now();
        other.settle();
        longest = longest.max(sent.elapsed());
        // A pace, no wait: the machine is the broker's.
        thread::sleep(Duration::from_millis(1));
    }
    longest
}

fn calm(name: &str) -> Connect {
    Connect::new(V311, name).keep_alive(0)
}

/// A socket that has little room, on which nothing is read.
fn narrow(address: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a size");
    socket.connect(&address.into()).expect("the broker accepts a connection");
    socket.into()
}

/// Sends until that time or until the broker ends it.
fn send_until(mut stream: &TcpStream, bytes: &[u8], end: Instant) {
    stream.set_write_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let mut sent = 0;
    while now() < end {
        match stream.write(&bytes[sent..]) {
            Ok(n) => sent = (sent + n) % bytes.len(),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

#[test]
fn a_flood_of_a_client_that_takes_no_bytes_does_not_hold_an_arbiter() {
    let settings = ["listeners.write_timeout=1s", "limits.outbox=64MiB"];
    others_wait_little("flood past the write timeout", &settings, |address| {
        let mut deaf =
            RawClient::over(narrow(address), V311, Duration::from_secs(15)).accepted(&calm("deaf"));
        deaf.subscribe(&[("x", 0)]);
        // More than both kernels take, and less than the outbox.
        let mut publisher = RawClient::connect(address, &calm("publisher"));
        for _ in 0..24 {
            publisher.publish(&Message::new("x", vec![b'x'; 500_000]));
        }
        publisher.settle();
        // At its write timeout it is cut.
        send_until(deaf.stream(), &abuse::flood(V311), now() + Duration::from_secs(5));
    });
}

#[test]
fn a_flood_of_tiny_packets_does_not_hold_an_arbiter() {
    others_wait_little("flood of tiny packets", &[], |address| {
        let flood = abuse::flood(V311);
        let end = now() + Duration::from_secs(1);
        thread::scope(|scope| {
            for n in 0..2 {
                let client = RawClient::connect(address, &calm(&format!("flood {n}")));
                let flood = &flood;
                scope.spawn(move || send_until(client.stream(), flood, end));
            }
        });
    });
}
