//! Large payloads to many subscribers: the memory that the broker holds while nobody reads, and the
//! CPU time of a delivery.

use super::client::{Client, publish};
use super::median;
use super::process::Broker;

const SUBSCRIBERS: usize = 50;
const ROUNDS: usize = 5;

/// The receive buffer of a subscriber, in bytes. A small one leaves most data in the broker.
const RECEIVE_BUFFER: usize = 16 * 1024;

pub fn run() {
    println!(
        "\n| 1 -> {SUBSCRIBERS}, QoS 1 | messages | MiB of bodies | MiB held more while nobody reads | MiB of 50 copies | CPU us per delivery |"
    );
    println!("|---|---|---|---|---|---|");
    for (payload, messages) in
        [(1 << 10, 100), (4 << 10, 100), (16 << 10, 100), (64 << 10, 100), (1_000 << 10, 8)]
    {
        row(payload, messages);
    }
}

fn row(payload: usize, messages: usize) {
    let broker = Broker::start();
    let mut subscribers: Vec<_> = (0..SUBSCRIBERS)
        .map(|i| {
            let id = format!("s{i}");
            let mut client = Client::with_receive_buffer(broker.address, &id, Some(RECEIVE_BUFFER));
            client.subscribe("large", 1);
            client
        })
        .collect();
    let mut publisher = Client::connect(broker.address, "publisher");
    let packet = publish("large", 1, &vec![7; payload]);
    let (mut held, mut cost) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (rss, cpu) = (broker.rss_mib(), broker.cpu_ns());
        for _ in 0..messages {
            publisher.write(&packet);
            assert_eq!(publisher.read(), 0x40);
        }
        held.push(broker.rss_mib() - rss);
        for subscriber in &mut subscribers {
            for _ in 0..messages {
                assert_eq!(subscriber.take_publish(), payload);
            }
        }
        cost.push((broker.cpu_ns() - cpu) as f64 / (messages * SUBSCRIBERS) as f64 / 1e3);
    }
    let mib = (payload * messages) as f64 / f64::from(1 << 20);
    // Only the first round shows the memory, because later rounds find it allocated.
    let held = held[0];
    let copies = mib * SUBSCRIBERS as f64;
    let us = median(&mut cost);
    println!("| {} KiB | {messages} | {mib:.1} | {held:.1} | {copies:.0} | {us:.1} |", payload >> 10);
}
