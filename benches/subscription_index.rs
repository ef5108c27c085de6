//! The subscription index and the retained store: cost of a match and of a change, bytes per subscription.
//!
//! `cargo bench --bench subscription_index`; bytes are jemalloc's own count, printed first.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use homing::mqtt::message::{Message, Parts};
use homing::mqtt::packet::QoS;
use homing::routing::retained::{Retained, RetainedLimits};
use homing::routing::shared_group::Member;
use homing::routing::subscription_tree::{
    Matches, PackedOptions, SessionSlot, ShardId, Subscriber, SubscriptionTree,
};
use homing::time::Instant;
use std::hint::black_box;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const SIZES: [u32; 3] = [1, 1_000, 100_000];

fn subscriber(session: u32) -> Subscriber {
    Subscriber { session: SessionSlot(session), options: PackedOptions::default(), subscription_id: 0 }
}

/// The filter of subscriber `i`.
type NameFilter = fn(u32) -> String;

/// 25 bytes, as a device names its own topic.
fn exact(i: u32) -> String {
    format!("site/{:02}/dev/{i:07}/state", i % 100)
}

fn single(i: u32) -> String {
    format!("site/{:02}/dev/{i:07}/+", i % 100)
}

fn multi(i: u32) -> String {
    format!("site/{:02}/dev/{i:07}/#", i % 100)
}

/// A wildcard before the part that tells the filters apart.
fn early(i: u32) -> String {
    format!("site/+/dev/{i:07}/+")
}

fn tree(n: u32, filter: NameFilter) -> SubscriptionTree {
    let mut tree = SubscriptionTree::new(ShardId(0));
    for i in 0..n {
        tree.subscribe(&filter(i), subscriber(i));
    }
    tree
}

fn allocated() -> usize {
    tikv_jemalloc_ctl::epoch::advance().unwrap();
    tikv_jemalloc_ctl::stats::allocated::read().unwrap()
}

fn bytes_each<T>(what: &str, n: u32, make: impl FnOnce() -> T) {
    let before = allocated();
    let made = make();
    let bytes = allocated().saturating_sub(before);
    println!("{what:<40} {n:>9} {:>8.1} B each", bytes as f64 / f64::from(n));
    drop(made);
}

fn memory(_: &mut Criterion) {
    for n in [10_000, 100_000] {
        bytes_each("exact filters of 25 B", n, || tree(n, exact));
        bytes_each("filters with +", n, || tree(n, single));
        bytes_each("filters with + twice", n, || tree(n, early));
        bytes_each("filters with #", n, || tree(n, multi));
        bytes_each("subscribers of one filter", n, || tree(n, |_| "all".to_string()));
        bytes_each("members of one group", n, || {
            let mut tree = SubscriptionTree::new(ShardId(0));
            for i in 0..n {
                tree.join("group", "jobs", member(i));
            }
            tree
        });
        let messages: Vec<_> = (0..n).map(|i| message(&exact(i))).collect();
        bytes_each("retained topics, without the message", n, || retained(&messages));
    }
}

fn member(i: u32) -> Member {
    Member {
        shard: ShardId((i % 2) as u8),
        session: SessionSlot(i),
        generation: 0,
        options: PackedOptions::default(),
        subscription_id: 0,
        online: true,
    }
}

fn matching(c: &mut Criterion) {
    let mut group = c.benchmark_group("match");
    let filters: [(&str, NameFilter); 4] =
        [("exact", exact), ("+", single), ("+ twice", early), ("#", multi)];
    for (name, filter) in filters {
        for n in SIZES {
            let tree = tree(n, filter);
            // Spread over the filters, so that caches are met as a broker meets them.
            let topics: Vec<_> = (0..1_024_u32).map(|i| exact(i.wrapping_mul(7_919) % n)).collect();
            let mut out = Matches::default();
            let mut next = topics.iter().cycle();
            group.bench_function(BenchmarkId::new(name, n), |b| {
                b.iter(|| {
                    out.clear();
                    tree.matches(next.next().unwrap(), &mut out);
                    assert_eq!(out.subscribers.len(), 1);
                });
            });
        }
    }
    for n in [10, 1_000, 100_000] {
        let tree = tree(n, |_| "all".to_string());
        let mut out = Matches::default();
        group.bench_function(BenchmarkId::new("fan-out", n), |b| {
            b.iter(|| {
                out.clear();
                tree.matches(black_box("all"), &mut out);
            });
        });
    }
    let mut tree = tree(100_000, early);
    let mut out = Matches::default();
    group.bench_function("nothing, among 100000 with +", |b| {
        b.iter(|| {
            out.clear();
            tree.matches(black_box("site/00/dev/none/state"), &mut out);
        });
    });
    // A burst to one topic.
    group.bench_function("the topic before, 100000 with +", |b| {
        b.iter(|| tree.matches(black_box("site/17/dev/0004217/state"), &mut out));
    });
    // SUBSCRIBE and UNSUBSCRIBE between publishes: nothing is rebuilt, so a match stays what it was.
    let mut i = 0_u32;
    group.bench_function("+ twice, 100000, with a subscribe and an unsubscribe", |b| {
        b.iter(|| {
            i = (i + 1) % 1_000_000;
            let filter = early(1_000_000 + i);
            tree.subscribe(&filter, subscriber(i));
            tree.matches(black_box("site/17/dev/0004217/state"), &mut out);
            tree.unsubscribe(&filter, SessionSlot(i));
        });
    });
    group.finish();
}

fn changing(c: &mut Criterion) {
    let mut group = c.benchmark_group("change");
    // All of a crowd on one filter come and go, in an order that is not that of the slots.
    for n in [1_000_u32, 100_000] {
        let order: Vec<_> = (0..n).map(|i| ((u64::from(i) * 7_919) % u64::from(n)) as u32).collect();
        group.bench_function(BenchmarkId::new("a crowd subscribes and unsubscribes", n), |b| {
            b.iter(|| {
                let mut tree = SubscriptionTree::new(ShardId(0));
                for slot in &order {
                    tree.subscribe("all", subscriber(*slot));
                }
                for slot in &order {
                    tree.unsubscribe("all", SessionSlot(*slot));
                }
            });
        });
    }
    let mut tree = SubscriptionTree::new(ShardId(0));
    for i in 0..100 {
        tree.join("group", "jobs", member(i));
    }
    let mut out = Matches::default();
    tree.matches("jobs", &mut out);
    let id = out.groups[0];
    group.bench_function("choose one of 100 members", |b| {
        b.iter(|| tree.group_mut(id).and_then(|g| g.choose(usize::MAX, |m| m.session.0 != 7)));
    });
    group.finish();
}

fn message(topic: &str) -> Message {
    let (qos, expires) = (QoS::AtMostOnce, Instant::NEVER);
    Message::new(
        Parts { qos, retain: true, expires, topic, forwarded: &[], payload: b"21.5" },
        &mut Vec::new(),
    )
}

fn retained(messages: &[Message]) -> Retained {
    let mut retained = Retained::new(RetainedLimits::UNLIMITED);
    for message in messages {
        retained.set(message.clone(), Instant::ZERO).unwrap();
    }
    retained
}

fn retaining(c: &mut Criterion) {
    let mut group = c.benchmark_group("retained");
    for n in [1_000, 100_000] {
        let messages: Vec<_> = (0..n).map(|i| message(&exact(i))).collect();
        let mut store = retained(&messages);
        let mut out = Vec::new();
        // One, ten or n/100 matches; the last has a + above the part that tells the topics apart.
        let filters =
            ["site/07/dev/0000107/+", "site/07/dev/0000107/#", "site/07/#", "site/+/dev/0000107/state"];
        for filter in filters {
            group.bench_function(BenchmarkId::new(filter, n), |b| {
                b.iter(|| {
                    out.clear();
                    store.matching(black_box(filter), Instant::ZERO, &mut out);
                });
            });
        }
        let mut next = messages.iter().cycle();
        group.bench_function(BenchmarkId::new("replace", n), |b| {
            b.iter(|| store.set(next.next().unwrap().clone(), Instant::ZERO));
        });
        let new = message("site/50/dev/new/state");
        group.bench_function(BenchmarkId::new("a new topic and its removal", n), |b| {
            b.iter(|| {
                store.set(new.clone(), Instant::ZERO).unwrap();
                store.remove(new.topic())
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .without_plots();
    targets = memory, matching, changing, retaining
}
criterion_main!(benches);
