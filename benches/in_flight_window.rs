//! The in-flight window: the cost of a QoS 1 or 2 delivery from its Packet Identifier to its end.
//! The cost depends on the number of other unfinished messages, and on the order in which the
//! client acknowledges.
//!
//! Run `cargo bench --bench in_flight_window`. An iteration is one message through an otherwise
//! full window.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use homing::mqtt::message::{Message, Parts};
use homing::mqtt::packet::{PacketId, QoS};
use homing::mqtt::subscription_ids::SubscriptionIds;
use homing::session::objectives::DeliveryMark;
use homing::session::outbound::delivery::Delivery;
use homing::session::outbound::on_demand::Empty;
use homing::session::outbound::window::{InFlight, Received};
use homing::time::Instant;
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Sizes of the window: one request at a time, two usual sizes, and a very large one that an
/// operator may allow.
const WINDOWS: [usize; 4] = [1, 20, 100, 10_000];

/// The unfinished message that the client acknowledges next.
#[derive(Clone, Copy)]
enum Order {
    /// The oldest, as the standard asks of a client.
    First,
    /// Any, as for a client whose workers finish independently.
    Any,
    /// The newest, which is the worst case for a row in sending order.
    Last,
}

/// The identifiers of the unfinished messages, as the client knows them.
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
    let delivery = Delivery {
        message,
        ids: SubscriptionIds::None,
        qos,
        retain: false,
        mark: DeliveryMark::NONE,
        share: None,
        stored: None,
    };
    window.push(Instant::ZERO, delivery, Instant::NEVER).transmission.packet_id()
}

fn messages(c: &mut Criterion) {
    let message = message();
    let orders = [("in order", Order::First), ("in any order", Order::Any), ("newest first", Order::Last)];
    for (qos, name) in [(QoS::AtLeastOnce, "QoS 1"), (QoS::ExactlyOnce, "QoS 2")] {
        let mut group = c.benchmark_group(name);
        for (order_name, order) in orders {
            for len in WINDOWS {
                let mut window = InFlight::NEW;
                let unfinished = (1..len).map(|_| push(&mut window, &message, qos)).collect();
                let mut client = Client { unfinished, seed: 1 };
                group.bench_function(BenchmarkId::new(order_name, len), |b| {
                    b.iter(|| {
                        client.unfinished.push_back(push(&mut window, &message, qos));
                        let id = client.answer(order);
                        if qos == QoS::AtLeastOnce {
                            assert!(window.acknowledge(id).is_some());
                        } else {
                            let received = window.receive(Instant::ZERO, id);
                            assert!(matches!(received, Received::Release { .. }));
                            assert!(window.complete(id));
                        }
                    });
                });
            }
        }
        group.finish();
    }
}

/// Look-ups in a full window that do not change it.
fn questions(c: &mut Criterion) {
    let message = message();
    let mut group = c.benchmark_group("asked of a full window");
    for len in WINDOWS {
        let mut window = InFlight::NEW;
        for _ in 0..len {
            push(&mut window, &message, QoS::AtLeastOnce);
        }
        // The newest deadline is needed whenever a deadline may have to be registered.
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
