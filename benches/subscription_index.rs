//! The subscription index and the retained store: cost of a match and of a change, bytes per
//! subscription.
//!
//! `cargo bench --bench subscription_index`; bytes are jemalloc's own count, printed first. `cargo
//! bench --bench subscription_index -- longest` prints the longest single change of each table
//! instead, while 1,000,000 entries come and go.

use criterion::{BenchmarkId, Criterion, criterion_group};
use homing::mqtt::message::{Message, Parts};
use homing::mqtt::packet::QoS;
use homing::routing::retained::{Retained, RetainedLimits};
use homing::routing::shared_group::Member;
use homing::routing::subscription_tree::{
    Matches, PackedOptions, SessionSlot, ShardId, Subscriber, SubscriptionTree,
};
use homing::time::Instant;
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const SIZES: [u32; 4] = [1, 1_000, 100_000, 1_000_000];

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
    for (name, filter) in filters {
        for n in [1_000, 1_000_000] {
            let tree = tree(n, filter);
            // Topics of the same shape that no filter has.
            let topics: Vec<_> = (0..1_024_u32).map(|i| exact(n + i)).collect();
            let mut out = Matches::default();
            let mut next = topics.iter().cycle();
            group.bench_function(BenchmarkId::new(format!("nothing, among {name}"), n), |b| {
                b.iter(|| {
                    out.clear();
                    tree.matches(next.next().unwrap(), &mut out);
                    assert!(out.is_empty());
                });
            });
        }
    }
    let mut tree = tree(100_000, early);
    let mut out = Matches::default();
    // A burst to one topic.
    group.bench_function("the topic before, 100000 with +", |b| {
        b.iter(|| tree.matches(black_box("site/17/dev/0004217/state"), &mut out));
    });
    // SUBSCRIBE and UNSUBSCRIBE between publishes: nothing is rebuilt, so a match stays what it
    // was.
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
    // All subscribers of one filter come and go, in another order than that of the slots.
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

/// The CPU time of this thread. The time of other programs on the same core is not in it.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

/// Entries of a table whose longest change is measured.
const MANY: u32 = 1_000_000;

/// Returns the longest of `MANY` changes, and the time of all of them.
fn longest_of(mut change: impl FnMut(u32)) -> (Duration, Duration) {
    let begin = cpu_time();
    let (mut longest, mut before) = (Duration::ZERO, begin);
    for i in 0..MANY {
        change(i);
        let now = cpu_time();
        longest = longest.max(now - before);
        before = now;
    }
    (longest, before - begin)
}

/// Prints the longest insertion and the longest removal while `MANY` entries come and go. Of three
/// rounds the shortest counts, because an interrupt can fall into one.
fn longest_of_table<T>(
    name: &str,
    new: impl Fn() -> T,
    insert: impl Fn(&mut T, u32),
    remove: impl Fn(&mut T, u32),
) {
    let rounds = (0..3).map(|_| {
        let mut table = new();
        let insertion = longest_of(|i| insert(&mut table, i));
        // In an order that is not that of the insertions.
        let removal = longest_of(|i| remove(&mut table, (u64::from(i) * 7_919 % u64::from(MANY)) as u32));
        [insertion, removal]
    });
    let least = |best: [(Duration, Duration); 2], round: [(Duration, Duration); 2]| {
        [0, 1].map(|i| (best[i].0.min(round[i].0), best[i].1.min(round[i].1)))
    };
    let best = rounds.reduce(least).unwrap();
    for (what, (longest, all)) in ["insertion", "removal"].into_iter().zip(best) {
        let mean = all.as_secs_f64() * 1e9 / f64::from(MANY);
        println!(
            "{name:<24} {what:<10} longest {:>9.3} ms, mean {mean:>6.0} ns",
            longest.as_secs_f64() * 1e3
        );
    }
}

/// A filter of 1 to 8 levels. Two of three have a wildcard.
fn deep(i: u32) -> String {
    let mut filter = format!("{i:07}");
    for level in 0..i % 8 {
        match (i / 8 + level) % 3 {
            0 => filter.push_str("/+"),
            _ => filter.push_str(&format!("/{:02}", (i >> level) % 100)),
        }
    }
    filter
}

fn longest_of_filters(name: &str, filter: NameFilter) {
    longest_of_table(
        name,
        || SubscriptionTree::new(ShardId(0)),
        |tree, i| _ = tree.subscribe(&filter(i), subscriber(i)),
        |tree, i| _ = tree.unsubscribe(&filter(i), SessionSlot(i)),
    );
}

fn longest_of_members(name: &str, group: NameFilter, filter: NameFilter) {
    longest_of_table(
        name,
        || SubscriptionTree::new(ShardId(0)),
        |tree, i| _ = tree.join(&group(i), &filter(i), member(i)),
        |tree, i| _ = tree.leave(&group(i), &filter(i), member(i).address()),
    );
}

fn longest(_: &mut Criterion) {
    longest_of_filters("exact filters", exact);
    longest_of_filters("filters with +", single);
    longest_of_filters("filters of 1 to 8 levels", deep);
    longest_of_filters("subscribers of a filter", |_| "all".to_string());
    longest_of_members("groups", |_| "group".to_string(), exact);
    longest_of_members("members of a group", |_| "group".to_string(), |_| "jobs".to_string());
    longest_of_table(
        "retained topics",
        || Retained::new(RetainedLimits::UNLIMITED),
        |store, i| _ = store.set(message(&exact(i)), Instant::ZERO),
        |store, i| _ = store.remove(&exact(i)),
    );
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
criterion_group!(changes, longest);

fn main() {
    if std::env::args().any(|argument| argument == "longest") {
        changes();
    } else {
        benches();
    }
}
