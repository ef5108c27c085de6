//! A storm of redelivery: 2,000 clients that acknowledge nothing, 20 messages in flight to each, on
//! the real binary. Others must hardly notice, the resends must be spread, and memory must stay
//! bounded.
//!
//! The figures are printed (`--nocapture`). In a development build the program under test is about
//! ten times slower than a release, so there the bound on latency only separates slow from stuck;
//! `cargo test --release --test storm` holds it to the figure that is promised.

mod support;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use support::pair::{PairLatency, assert_responsive};
use support::process::{Homing, raise_descriptor_limit};
use support::{Connect, Message, RawClient, V311, now, wire};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{LocalSet, spawn_local};

const SUBSCRIBERS: usize = 2_000;
const MESSAGES: usize = 20;
const IN_FLIGHT: usize = SUBSCRIBERS * MESSAGES;
/// With 20 % of jitter the first round spreads over 0.8 s.
const INTERVAL: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(60);

/// Resends come at the ends of the queue's buckets.
const BUCKET: Duration = Duration::from_millis(250);
/// All of them at once would be 100 %.
const LARGEST_SHARE: f64 = 0.6;
/// Beyond what the messages in flight took: the outboxes of one round.
const GROWTH: u64 = 64 << 20;

/// The messages that all subscribers together saw.
#[derive(Default)]
struct Seen {
    first: usize,
    /// When each resend came.
    again: Vec<Instant>,
    closed: usize,
}

/// Subscribes, then reads and acknowledges nothing.
async fn subscriber(
    address: SocketAddr,
    number: usize,
    seen: Rc<RefCell<Seen>>,
    ready: Rc<tokio::sync::Semaphore>,
) {
    let mut stream = TcpStream::connect(address).await.expect("accepted");
    let mut hello = Connect::new(V311, &format!("stuck{number}")).encode();
    hello.extend(support::client::subscribe_packet(V311, 1, &[], &[("storm", 1)]));
    stream.write_all(&hello).await.expect("written");
    let (mut unread, mut scratch) = (Vec::new(), [0; 8 * 1024]);
    loop {
        let count = stream.read(&mut scratch).await.unwrap_or(0);
        if count == 0 {
            seen.borrow_mut().closed += 1;
            return;
        }
        unread.extend_from_slice(&scratch[..count]);
        let mut at = 0;
        while let Some((header, body)) =
            wire::frame(&unread[at..]).filter(|(h, b)| at + h + b <= unread.len())
        {
            match unread[at] >> 4 {
                2 => {}
                9 => ready.add_permits(1),
                3 if unread[at] & 8 == 0 => seen.borrow_mut().first += 1,
                3 => seen.borrow_mut().again.push(now()),
                other => panic!("packet type {other}"),
            }
            at += header + body;
        }
        unread.drain(..at);
    }
}

#[test]
fn a_storm_of_redelivery_leaves_others_responsive() {
    raise_descriptor_limit();
    let interval = format!("redelivery.interval={}s", INTERVAL.as_secs());
    let homing = Homing::serve(&["--log-level", "warn", "--set", &interval]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        tokio::time::timeout(PATIENCE, storm(&homing)).await.expect("in time");
    });
}

async fn storm(homing: &Homing) {
    let (seen, ready) = (Rc::new(RefCell::new(Seen::default())), Rc::new(tokio::sync::Semaphore::new(0)));
    for number in 0..SUBSCRIBERS {
        spawn_local(subscriber(homing.address, number, Rc::clone(&seen), Rc::clone(&ready)));
        // As many at once as the listener's backlog bears with ease.
        if number % 200 == 199 {
            ready.acquire_many(200).await.expect("open").forget();
        }
    }
    let address = homing.address;
    let calm =
        tokio::task::spawn_blocking(move || PairLatency::measure(address, "2s")).await.expect("measured");
    let idle = homing.memory("VmRSS");
    let begun = now();
    let publishing = tokio::task::spawn_blocking(move || {
        let mut publisher = RawClient::connect(address, &Connect::new(V311, "publisher"));
        for _ in 0..MESSAGES {
            publisher.deliver(&Message::new("storm", [b'x'; 256]).qos(1));
        }
    });
    while seen.borrow().first < IN_FLIGHT {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    publishing.await.expect("published");
    let before = homing.memory("VmRSS");

    let mut others = tokio::task::spawn_blocking(move || PairLatency::measure(address, "6s"));
    let mut peak = before;
    let report = loop {
        tokio::select! {
            report = &mut others => break report.expect("measured"),
            () = tokio::time::sleep(Duration::from_millis(50)) => peak = peak.max(homing.memory("VmRSS")),
        }
    };
    judge(&seen.borrow(), begun, [&calm, &report], [idle, before, peak]);
}

fn judge(seen: &Seen, begun: Instant, [calm, report]: [&PairLatency; 2], [idle, before, peak]: [u64; 3]) {
    let resends = seen.again.len();
    let first_round = &seen.again[..resends.min(IN_FLIGHT)];
    let mut by_bucket = vec![0_usize; 200];
    for at in first_round {
        by_bucket[((*at - begun).as_millis() / BUCKET.as_millis()) as usize] += 1;
    }
    let share = by_bucket.iter().copied().max().unwrap_or(0) as f64 / IN_FLIGHT as f64;
    let in_use = by_bucket.iter().filter(|count| **count > 0).count();
    println!("{SUBSCRIBERS} clients that acknowledge nothing, {MESSAGES} messages in flight to each");
    assert_responsive(calm, report);
    println!("  sent {}, delivered {}", report.count("sent"), report.count("delivered"));
    println!(
        "  resends {resends}; the first round in {in_use} times {BUCKET:?}, the largest {:.0} %",
        share * 100.0
    );
    println!("  memory: idle {} KiB, in flight {} KiB, peak {} KiB", idle >> 10, before >> 10, peak >> 10);
    assert_eq!(seen.closed, 0, "disconnected, although that would end their sessions");
    assert!(resends >= IN_FLIGHT, "only {resends} resends: the storm did not come");
    assert!(share < LARGEST_SHARE, "{:.0} % at once", share * 100.0);
    assert!(peak < before + GROWTH, "memory grew by {} KiB", (peak - before) >> 10);
}
