//! Questions of operators about a broker that holds a lot, one asked after the other in a loop.

use crate::interface::{Operated, Viewer};
use crate::support::{Connect, Kind, Message, PATIENCE, RawClient, V5, V311, now};
use crate::{by_build, turn};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// The latency that 99 of 100 PINGREQs must keep. A development build is ten times slower, and
/// runs beside other tests.
const PING: Duration = Duration::from_millis(by_build(100, 5) as u64);

/// The latency in calm up to which the bound counts: beyond it, others have the machine.
const CALM: Duration = Duration::from_millis(by_build(10, 1) as u64);

/// The latency that always counts.
const STUCK: Duration = Duration::from_secs(5);

const MEANWHILE: Duration = Duration::from_millis(by_build(1_000, 10_000) as u64);

const GATEWAYS: usize = 256;

/// Subscription Options of a gateway: QoS 0, no retained messages (5.0 section 3.8.3.1). Hostile
/// filters would be matched with all retained messages first, which takes more than eight minutes
/// for all of them.
const WITHOUT_RETAINED: u8 = 2 << 4;

/// Levels of the topic that all filters of the gateways match.
const LEVELS: usize = 32;

/// Publishes that are sent at once.
const BATCH: usize = 1_000;

/// A test run does with a hundredth. `HOMING_QUESTIONS_PART=1` asks a broker that holds everything.
fn part_of(all: usize) -> usize {
    let part = std::env::var("HOMING_QUESTIONS_PART").ok().and_then(|part| part.parse().ok());
    all / part.unwrap_or(100)
}

/// Publishes messages, and waits until the broker has taken them.
fn publish_all(address: SocketAddr, count: usize, message: impl Fn(usize) -> Message) {
    let mut client =
        RawClient::open_with(address, V311, 2 * PATIENCE).accepted(&Connect::new(V311, "filler"));
    for first in (0..count).step_by(BATCH) {
        let mut bytes = Vec::new();
        for n in first..count.min(first + BATCH) {
            bytes.extend(message(n).encode(V311, (n - first + 1) as u16));
        }
        client.send(&bytes);
        (first..count.min(first + BATCH)).for_each(|_| drop(client.expect_packet(Kind::Puback)));
    }
    client.disconnect();
}

fn hostile_topic() -> String {
    vec!["a"; LEVELS].join("/")
}

/// Returns a filter that matches [`hostile_topic`], another one for each number.
fn hostile_filter(number: usize) -> String {
    let level = |at: usize| if number >> at & 1 == 1 { "+" } else { "a" };
    (0..LEVELS).map(level).chain(["#"]).collect::<Vec<_>>().join("/")
}

fn gateway(address: SocketAddr, number: usize, filters: &[String]) -> RawClient {
    let connect = Connect::new(V5, &format!("gateway-{number}")).keep_alive(0);
    let mut client = RawClient::open_with(address, V5, 2 * PATIENCE).accepted(&connect);
    for filters in filters.chunks(200) {
        client
            .subscribe(&filters.iter().map(|filter| (filter.as_str(), WITHOUT_RETAINED)).collect::<Vec<_>>());
    }
    client
}

/// Fills a broker. Returns the gateways.
fn fill(address: SocketAddr) -> Vec<RawClient> {
    let many = part_of(100_000);
    publish_all(address, many, |n| Message::new(format!("r/{n}/state"), "x").qos(1).retained());
    publish_all(address, many, |n| Message::new(format!("$delayed/3600/d/{n}"), "x").qos(1));
    let mut away = RawClient::connect(address, &Connect::persistent(V311, "away"));
    away.subscribe(&[("q/#", 1)]);
    away.disconnect();
    publish_all(address, part_of(1_000_000), |n| Message::new(format!("q/{n}"), "x").qos(1));
    let filters: Vec<String> = (0..part_of(1_000).max(50)).map(hostile_filter).collect();
    (0..GATEWAYS).map(|number| gateway(address, number, &filters)).collect()
}

/// Returns the questions, each of which makes the broker look at much.
fn questions() -> Vec<String> {
    let (topic, far) = (hostile_topic(), part_of(1_000_000) - 1);
    let paths = [
        "retained?filter=%2B/nothing/%2B",
        "retained?filter=r/%23&limit=1000",
        "delayed?topic=d/none",
        "messages/dropped",
        &format!("subscriptions?matches={topic}"),
        &format!("subscriptions?filter={}", hostile_filter(7).replace('+', "%2B").replace('#', "%23")),
        &format!("messages/where?topic={topic}"),
        "messages/where?topic=q/none",
        "messages/where?topic=q/none&receiver=away",
        &format!("clients/away/queue?cursor={far:x}"),
        "clients/away/queue?limit=256",
        "clients/away/inflight",
        "clients/away",
        "clients?prefix=nobody",
        "clients?sort=queued",
        "shared-groups",
        "dead-letters?topic=none",
        "deliveries/slow",
    ];
    paths.map(|path| format!("/api/v1/{path}")).to_vec()
}

/// The latencies of a client while the broker does something else.
#[derive(Default)]
struct Calm {
    pings: Vec<Duration>,
    retained: Vec<Duration>,
    health: Vec<Duration>,
}

fn p99(latencies: &mut [Duration]) -> Duration {
    latencies.sort_unstable();
    latencies.get(latencies.len() * 99 / 100).copied().unwrap_or(STUCK)
}

/// Measures for a time.
fn measure(address: SocketAddr, viewer: &Viewer, time: Duration) -> Calm {
    let mut client =
        RawClient::open_with(address, V5, 2 * PATIENCE).accepted(&Connect::new(V5, "calm").keep_alive(0));
    let (begun, mut seen) = (now(), Calm::default());
    let mut timed = |into: fn(&mut Calm) -> &mut Vec<Duration>, act: &mut dyn FnMut()| {
        let sent = now();
        act();
        into(&mut seen).push(sent.elapsed());
    };
    while begun.elapsed() < time {
        for _ in 0..20 {
            timed(|seen| &mut seen.pings, &mut || client.settle());
            // A pace, no wait: the machine is the broker's.
            thread::sleep(Duration::from_millis(1));
        }
        timed(|seen| &mut seen.retained, &mut || {
            client.deliver(&Message::new("calm/state", "x").qos(1).retained());
        });
        timed(|seen| &mut seen.health, &mut || assert_eq!(viewer.ask("/healthz").1, 200));
    }
    seen
}

#[test]
fn questions_about_a_full_broker_leave_a_ping_within_its_bound() {
    let _turn = turn();
    let broker = Operated::serve_with(&[
        "runtime.threads=1",
        "limits.queue_messages=2000000",
        "limits.queue_bytes=2 GiB",
        "limits.memory=4 GiB",
        "limits.retained_messages=200000",
        "limits.delayed_messages=200000",
    ]);
    let (address, viewer) = (broker.mqtt, &broker.viewer);
    let begun = now();
    let gateways = fill(address);
    println!("  filled in {:.1?}", begun.elapsed());
    let calm = p99(&mut measure(address, viewer, MEANWHILE / 4).pings);
    let (is_over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut seen = thread::scope(|scope| {
        scope.spawn(|| {
            for path in questions().iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let status = viewer.ask(path).1;
                assert!(status == 200, "{path}: {status}");
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
        let seen = measure(address, viewer, MEANWHILE);
        is_over.store(true, Ordering::Relaxed);
        seen
    });
    drop(gateways);
    let [pings, retained, health] =
        [&mut seen.pings, &mut seen.retained, &mut seen.health].map(|all| (p99(all), all.last().copied()));
    println!(
        "  {} answers; p99 and longest: PINGRESP {pings:.1?} (in calm {calm:.1?}), retained PUBACK {retained:.1?}, /healthz {health:.1?}",
        asked.into_inner()
    );
    let bound = if calm < CALM { PING } else { STUCK };
    assert!(pings.0 < bound, "p99 of PINGRESP: {:?}, where {bound:?} are allowed", pings.0);
}
