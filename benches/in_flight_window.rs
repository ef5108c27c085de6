//! The in-flight window: what a QoS 1 or 2 delivery costs it from its Packet Identifier to the end, by how many others are
//! unfinished and in which order the client answers.
//!
//! `cargo bench --bench in_flight_window`; one iteration is one message through a window that is otherwise full.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use homing::mqtt::message::{Message, Parts};
use homing::mqtt::packet::{PacketId, QoS};
use homing::mqtt::subscription_ids::SubscriptionIds;
use homing::session::outbound::queue::Delivery;
use homing::session::outbound::window::{InFlight, Received};
use homing::time::Instant;
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The first is a request at a time, 100 the lab's window, the last what a patient operator may allow.
const WINDOWS: [usize; 4] = [1, 20, 100, 10_000];

/// Which of the unfinished messages the client answers next.
#[derive(Clone, Copy)]
enum Order {
    /// The oldest: what the standard asks of a client.
    First,
    /// Any: a client whose workers finish when they do.
    Any,
    /// The newest: the worst for a row that is kept in sending order.
    Last,
}

/// Identifiers of the unfinished messages, as the client has them.
struct Client {
    unfinished: VecDeque<PacketId>,
    seed: u64,
}

impl Client {
    fn answer(&mut self, order: Order) -> PacketId {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let len = self.unfinished.len();
        let id = match order {
            Order::First => self.unfinished.pop_front(),
            Order::Last => self.unfinished.pop_back(),
            Order::Any => self.unfinished.swap_remove_back((self.seed >> 33) as usize % len),
        };
        id.expect("the window is full")
    }
}

fn message() -> Message {
    let parts = Parts {
        qos: QoS::ExactlyOnce,
        retain: false,
        expires: Instant::NEVER,
        topic: "site/17/dev/0004217/state",
        forwarded: &[],
        payload: &[7; 64],
    };
    Message::new(parts, &mut Vec::new())
}

fn push(window: &mut InFlight, message: &Message, qos: QoS) -> PacketId {
    let message = message.clone();
    let delivery =
        Delivery { message, ids: SubscriptionIds::None, qos, retain: false, share: None, stored: None };
    window.push(Instant::ZERO, delivery, Instant::NEVER).packet_id()
}

fn messages(c: &mut Criterion) {
    let message = message();
    let orders = [("in order", Order::First), ("in any order", Order::Any), ("newest first", Order::Last)];
    for (qos, name) in [(QoS::AtLeastOnce, "QoS 1"), (QoS::ExactlyOnce, "QoS 2")] {
        let mut group = c.benchmark_group(name);
        for (order_name, order) in orders {
            for len in WINDOWS {
                let mut window = InFlight::default();
                let unfinished = (1..len).map(|_| push(&mut window, &message, qos)).collect();
                let mut client = Client { unfinished, seed: 1 };
                group.bench_function(BenchmarkId::new(order_name, len), |b| {
                    b.iter(|| {
                        client.unfinished.push_back(push(&mut window, &message, qos));
                        let id = client.answer(order);
                        if qos == QoS::AtLeastOnce {
                            assert!(window.acknowledge(id).is_some());
                        } else {
                            assert_eq!(window.receive(id), Received::Release);
                            assert!(window.complete(id));
                        }
                    });
                });
            }
        }
        group.finish();
    }
}

/// What is asked of a full window without changing it.
fn questions(c: &mut Criterion) {
    let message = message();
    let mut group = c.benchmark_group("asked of a full window");
    for len in WINDOWS {
        let mut window = InFlight::default();
        for _ in 0..len {
            push(&mut window, &message, QoS::AtLeastOnce);
        }
        // At each registration of a deadline that stands already, and at each that does not.
        group.bench_function(BenchmarkId::new("the newest deadline", len), |b| {
            b.iter(|| black_box(&window).newest_due())
        });
        group.bench_function(BenchmarkId::new("the earliest deadline", len), |b| {
            b.iter(|| black_box(&window).earliest_due())
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(300))
        .without_plots();
    targets = messages, questions
}
criterion_main!(benches);
