//! The cost of a message by the number of connections and subscriptions, with the same traffic: one
//! QoS 1 message at a time, from publisher to subscriber and both acknowledgements, over all pairs
//! in turn.

use super::client::{Client, publish};
use super::median;
use super::process::Broker;

const ROUNDS: usize = 7;
const MESSAGES: usize = 10_000;

/// Filters in one SUBSCRIBE.
const AT_ONCE: u32 = 1_000;
/// Filters of one client, within the broker's default limit.
const EACH: u32 = 10_000;

struct Case {
    name: String,
    broker: Broker,
    pairs: Vec<Pair>,
    /// Clients that hold the other subscriptions.
    _others: Vec<Client>,
    us_per_message: Vec<f64>,
}

struct Pair {
    publisher: Client,
    subscriber: Client,
    packet: Vec<u8>,
}

impl Case {
    fn new(name: String, connections: usize, subscriptions: u32, filter: fn(u32) -> String) -> Case {
        let broker = Broker::start();
        let pairs = (0..connections / 2).map(|i| {
            let topic = format!("pair/{i}/x");
            let mut subscriber = Client::connect(broker.address, &format!("s{i}"));
            subscriber.subscribe(&topic, 1);
            let publisher = Client::connect(broker.address, &format!("p{i}"));
            Pair { publisher, subscriber, packet: publish(&topic, 1, &[7; 64]) }
        });
        let pairs = pairs.collect();
        let others = (0..subscriptions.div_ceil(EACH)).map(|c| {
            let mut client = Client::connect(broker.address, &format!("o{c}"));
            let own = c * EACH..((c + 1) * EACH).min(subscriptions);
            for from in own.clone().step_by(AT_ONCE as usize) {
                client.subscribe_all((from..(from + AT_ONCE).min(own.end)).map(filter), 0);
            }
            client
        });
        let _others = others.collect();
        Case { name, broker, pairs, _others, us_per_message: Vec::new() }
    }

    /// Runs one round over all pairs in turn.
    fn round(&mut self, messages: usize) {
        let before = self.broker.cpu_ns();
        let pairs = self.pairs.len();
        for n in 0..messages {
            let Pair { publisher, subscriber, packet } = &mut self.pairs[n % pairs];
            publisher.write(packet);
            subscriber.take_publish();
            assert_eq!(publisher.read(), 0x40);
        }
        self.us_per_message.push((self.broker.cpu_ns() - before) as f64 / messages as f64 / 1e3);
    }
}

fn exact(i: u32) -> String {
    format!("other/{i}/x")
}

fn wildcard(i: u32) -> String {
    format!("other/{i}/+")
}

/// Returns a filter that matches no published topic, though its first level is a wildcard.
fn wildcard_first(i: u32) -> String {
    format!("+/other{i}/x")
}

pub fn run() {
    let by_connections = [10, 100, 1_000, 10_000];
    table(by_connections.map(|n| Case::new(format!("{n} connections"), n, 0, exact)).into());
    let mut cases = vec![Case::new("10 subscriptions".into(), 10, 5, exact)];
    for n in [1_000, 100_000] {
        cases.push(Case::new(format!("{n} exact"), 10, n, exact));
        cases.push(Case::new(format!("{n} with + last"), 10, n, wildcard));
        cases.push(Case::new(format!("{n} with + first"), 10, n, wildcard_first));
    }
    table(cases);
}

/// Runs all cases in turn and prints a table. The ratios are to the first case in the same round.
fn table(mut cases: Vec<Case>) {
    for case in &mut cases {
        // Every connection is used once before the measurement.
        case.round(case.pairs.len().max(1_000));
        case.us_per_message.clear();
    }
    for _ in 0..ROUNDS {
        cases.iter_mut().for_each(|case| case.round(MESSAGES));
    }
    println!("\n| | broker CPU us per message | to the first |\n|---|---|---|");
    let first = cases[0].us_per_message.clone();
    for case in &mut cases {
        let mut ratios: Vec<_> =
            case.us_per_message.iter().zip(&first).map(|(us, first)| us / first).collect();
        let (us, ratio) = (median(&mut case.us_per_message), median(&mut ratios));
        println!("| {} | {us:.2} | {ratio:.2} |", case.name);
    }
}
