//! A subscriber that reads nothing, and its effect on others. Measures the latency of an unrelated
//! pair, compared with the same traffic to a subscriber that reads, and the memory of the broker
//! for the silent subscriber.

use super::client::{Client, publish};
use super::median;
use super::process::Broker;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
const PROBES: usize = 3_000;
/// The time between two messages of the measured pair, and between two to the other subscriber.
const EVERY: Duration = Duration::from_micros(500);
/// Messages that the silent subscriber is sent before the measurement: more than kernel, outbox and
/// queue can hold.
const BEFORE: usize = 20_000;

/// The publisher of one topic, and its subscriber if that reads.
struct Traffic {
    over: Arc<AtomicBool>,
    publisher: JoinHandle<()>,
    subscriber: Option<JoinHandle<()>>,
    _silent: Option<Client>,
}

impl Traffic {
    fn start(to: SocketAddr, qos: u8, reads: bool) -> Traffic {
        let over = Arc::new(AtomicBool::new(false));
        let mut client = Client::connect(to, "other");
        client.subscribe("other", qos);
        let (subscriber, silent) =
            if reads { (Some(reader(client, &over)), None) } else { (None, Some(client)) };
        let stop = Arc::clone(&over);
        let mut publisher = Client::connect(to, "other-publisher");
        let packet = publish("other", qos, &[7; 1024]);
        let mut send = move || {
            publisher.write(&packet);
            if qos > 0 {
                assert_eq!(publisher.read(), 0x40);
            }
        };
        (0..BEFORE).for_each(|_| send());
        let publisher = thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                send();
                thread::sleep(EVERY);
            }
            // One more message ends the loop of the reader.
            send();
        });
        Traffic { over, publisher, subscriber, _silent: silent }
    }

    fn stop(self) {
        self.over.store(true, Ordering::Relaxed);
        self.publisher.join().expect("no panic");
        if let Some(subscriber) = self.subscriber {
            subscriber.join().expect("no panic");
        }
    }
}

fn reader(mut client: Client, over: &Arc<AtomicBool>) -> JoinHandle<()> {
    let over = Arc::clone(over);
    thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            client.take_publish();
        }
    })
}

/// Returns latencies from PUBLISH to arrival, sorted, in microseconds.
fn probe(to: SocketAddr) -> Vec<f64> {
    let mut subscriber = Client::connect(to, "s");
    subscriber.subscribe("pair", 1);
    let mut publisher = Client::connect(to, "p");
    let packet = publish("pair", 1, &[7; 64]);
    let mut latencies: Vec<f64> = (0..PROBES)
        .map(|_| {
            #[expect(clippy::disallowed_methods, reason = "a bench measures the real time")]
            let start = Instant::now();
            publisher.write(&packet);
            subscriber.take_publish();
            let latency = start.elapsed().as_nanos() as f64 / 1e3;
            assert_eq!(publisher.read(), 0x40);
            thread::sleep(EVERY);
            latency
        })
        .collect();
    latencies.sort_by(f64::total_cmp);
    latencies
}

pub fn run() {
    println!(
        "\n| the other subscriber | pair p50 us | p99 us | p50 to \"reads\" | p99 | broker MiB more |\n|---|---|---|---|---|---|"
    );
    for qos in [0, 1] {
        let mut rows = [const { (Vec::new(), Vec::new(), Vec::new()) }; 2];
        for _ in 0..ROUNDS {
            for (row, reads) in rows.iter_mut().zip([true, false]) {
                let broker = Broker::start();
                let rss = broker.rss_mib();
                let traffic = Traffic::start(broker.address, qos, reads);
                let latencies = probe(broker.address);
                row.0.push(latencies[PROBES / 2]);
                row.1.push(latencies[PROBES * 99 / 100]);
                row.2.push(broker.rss_mib() - rss);
                traffic.stop();
            }
        }
        let ratio =
            |of: &[f64], to: &[f64]| median(&mut of.iter().zip(to).map(|(a, b)| a / b).collect::<Vec<_>>());
        let (p50, p99) = (ratio(&rows[1].0, &rows[0].0), ratio(&rows[1].1, &rows[0].1));
        for (row, (name, p50, p99)) in rows.iter_mut().zip([("reads", 1.0, 1.0), ("is silent", p50, p99)]) {
            let (a, b, held) = (median(&mut row.0), median(&mut row.1), median(&mut row.2));
            println!("| QoS {qos}, {name} | {a:.0} | {b:.0} | {p50:.2} | {p99:.2} | {held:.1} |");
        }
    }
}
