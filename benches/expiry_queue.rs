//! The expiry queue beside five other queues at the same work.
//!
//! Run `cargo bench --bench expiry_queue`. The tables of the aim alone: `cargo bench --bench
//! expiry_queue -- '(ring|maps).*/1000000'`.
//!
//! One iteration is a pass over all keys in shuffled order, so that caches do not help. A second
//! table has the largest size in slot order. The tables at the end are in nanoseconds for each key.
//! Below them are the bytes for each key, as jemalloc counts them, and the longest single poll.
//!
//! Two other designs of the ring were measured and dropped. Chains of 32-entry chunks over one
//! table, with entries of slot, generation and round, took 57 / 10 / 20 / 18 ns in slot order, and
//! an unchanged update read two more places. An intrusive list through the index, as in the plain
//! wheel, halved the cost of an update, but expiring took 55 ns, because it follows a pointer for
//! each key.
//!
//! Three were considered and not built. Plain vectors as buckets take up to twice the bytes, and
//! copy when they grow. Lazy deletion needs unbounded memory, or compacts a bucket within one
//! update. Bucket numbers of 32 bits save 4 bytes, but a deadline would come early after 25 days
//! with a tick of a millisecond.

mod yardsticks;

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use foldhash::fast::RandomState as FoldHash;
use homing::expiry::queue::{DeadlineKey, ExpiryQueue, More};
use homing::time::Instant;
use std::collections::BTreeMap;
use std::hash::RandomState;
use std::hint::black_box;
use std::time::{Duration, Instant as Clock};
use tikv_jemalloc_ctl::thread::{allocatedp, deallocatedp};
use yardsticks::delay_queue::{Delays, RUNTIME};
use yardsticks::hashed_wheel::HashedWheel;
use yardsticks::heap::Heap;
use yardsticks::two_maps::TwoMaps;
use yardsticks::{Expiry, INTERVAL, ROUND};

#[global_allocator]
static JEMALLOC: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const SIZES: [u32; 3] = [1_000, 100_000, 1_000_000];
/// Number of buckets with deadlines: a minute from the first to the last.
const BUCKETS: u64 = 240;

/// The time and the number of keys, by queue and operation.
type Table = BTreeMap<(u32, &'static str, &'static str), (Duration, u64)>;

/// The keys in shuffled order, and the start of the bucket of each.
struct Load {
    keys: Vec<(DeadlineKey, Instant)>,
}

impl Load {
    fn new(count: u32) -> Load {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut keys: Vec<_> = (0..count)
            .map(|slot| {
                let bucket = Instant::from_millis((BUCKETS + random(BUCKETS)) * INTERVAL.as_millis() as u64);
                (DeadlineKey { slot, generation: 1 }, bucket)
            })
            .collect();
        for index in (1..keys.len()).rev() {
            keys.swap(index, random(index as u64 + 1) as usize);
        }
        Load { keys }
    }

    /// Returns the same keys in slot order, the best case for caches and prefetching.
    fn in_order(&self) -> Load {
        let mut keys = self.keys.clone();
        keys.sort_unstable_by_key(|(key, _)| key.slot);
        Load { keys }
    }

    /// Returns the time at which all deadlines have passed.
    fn end() -> Instant {
        Instant::ZERO + INTERVAL * (2 * BUCKETS as u32 + 10)
    }

    fn fill<Q: Expiry>(&self) -> Q {
        let mut queue = Q::new();
        for (key, deadline) in &self.keys {
            queue.update(*key, *deadline);
        }
        queue
    }

    /// Moves every key by `shift` from its first deadline. Returns the time that this took.
    fn update<Q: Expiry>(&self, queue: &mut Q, shift: Duration) -> Duration {
        timed(|| {
            for (key, deadline) in &self.keys {
                queue.update(*key, black_box(*deadline + shift));
            }
        })
    }

    fn remove<Q: Expiry>(&self) -> Duration {
        let mut queue: Q = self.fill();
        timed(|| {
            for (key, _) in &self.keys {
                queue.remove(black_box(*key));
            }
        })
    }

    fn expire<Q: Expiry>(&self) -> Duration {
        let mut queue: Q = self.fill();
        let (mut out, mut expired) = (Vec::with_capacity(self.keys.len()), 0);
        let time = timed(|| {
            queue.expire(Self::end(), &mut out, &mut |out| {
                expired += black_box(&*out).len();
                out.clear();
            });
        });
        assert_eq!(expired, self.keys.len());
        time
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    #[expect(clippy::disallowed_methods, reason = "a bench measures the real time")]
    let start = Clock::now();
    work();
    start.elapsed()
}

fn measure<Q: Expiry>(criterion: &mut Criterion, load: &Load, table: &mut Table) {
    let size = load.keys.len() as u32;
    let mut run = |operation: &'static str, pass: &mut dyn FnMut(u64) -> Duration| {
        let sum = table.entry((size, Q::NAME, operation)).or_default();
        let mut group = criterion.benchmark_group(operation);
        group.sampling_mode(SamplingMode::Flat).throughput(Throughput::Elements(u64::from(size)));
        group.bench_function(BenchmarkId::new(Q::NAME, size), |bencher| {
            bencher.iter_custom(|passes| {
                let time = (0..passes).map(&mut *pass).sum();
                *sum = (sum.0 + time, sum.1 + passes * u64::from(size));
                time
            });
        });
    };
    // Each pass moves the keys to where the last pass did not leave them.
    let mut queue: Q = load.fill();
    let mut turn = 0;
    run("changed", &mut |_| {
        turn = turn % 2 + 1;
        load.update(&mut queue, INTERVAL * 5 * turn)
    });
    let mut queue: Q = load.fill();
    run("same bucket", &mut |_| {
        turn = turn % 2 + 1;
        load.update(&mut queue, INTERVAL / 4 * turn)
    });
    drop(queue);
    run("remove", &mut |_| load.remove::<Q>());
    run("expire", &mut |_| load.expire::<Q>());
}

const OPERATIONS: [&str; 4] = ["changed", "same bucket", "remove", "expire"];

/// Prints nanoseconds for each key, and in brackets the ratio to the ring. Leaves out what a filter
/// has excluded.
fn print_times(title: &str, table: &Table) {
    println!(
        "\n{title:<24}{:>16}{:>16}{:>16}{:>16}",
        OPERATIONS[0], OPERATIONS[1], OPERATIONS[2], OPERATIONS[3]
    );
    let mut rows: Vec<_> = table.keys().map(|(size, name, _)| (*size, *name)).collect();
    rows.dedup();
    for (size, name) in rows {
        let times = OPERATIONS.map(|operation| per_key(table, (size, name, operation)));
        if times.iter().all(|time| time.is_nan()) {
            continue;
        }
        print!("{size:>8} {name:<15}");
        for (time, operation) in times.into_iter().zip(OPERATIONS) {
            let ratio = time / per_key(table, (size, ExpiryQueue::NAME, operation));
            print!(" {time:>7.1} {:>7}", format!("({ratio:.1})"));
        }
        println!();
    }
}

/// Returns nanoseconds for each key; not a number if nothing was measured.
fn per_key(table: &Table, cell: (u32, &'static str, &'static str)) -> f64 {
    let (time, keys) = table[&cell];
    time.as_nanos() as f64 / keys as f64
}

/// Returns the bytes that this thread holds, in size classes of jemalloc.
fn in_use() -> u64 {
    let allocated = allocatedp::read().expect("jemalloc counts").get();
    allocated.wrapping_sub(deallocatedp::read().expect("jemalloc counts").get())
}

fn print_bytes<Q: Expiry>(load: &Load) {
    let before = in_use();
    let mut queue: Q = load.fill();
    let filled = in_use() - before;
    // The queue is measured after keys have moved for a while.
    for turn in 1..=4 {
        load.update(&mut queue, INTERVAL * 7 * turn);
    }
    let moved = in_use() - before;
    let keys = load.keys.len() as f64;
    println!(
        "{:>8} {:<15}{:>8.1} {:>8.1}",
        load.keys.len(),
        Q::NAME,
        filled as f64 / keys,
        moved as f64 / keys
    );
}

/// Prints the longest round over a million keys: all in one bucket, spread over many, and all to be
/// skipped.
fn print_longest_round(load: &Load) {
    let one_bucket = |_| Instant::ZERO;
    let many = |deadline| deadline;
    let passed_over = |_| Instant::ZERO + INTERVAL * 10 * 1024;
    let cases: [(&str, &dyn Fn(Instant) -> Instant); 3] =
        [("one bucket", &one_bucket), ("240 buckets", &many), ("passed over", &passed_over)];
    for (name, deadline) in cases {
        let mut longest = Vec::new();
        let mut count = 0;
        for _ in 0..7 {
            let mut queue = ExpiryQueue::new(INTERVAL, Instant::ZERO);
            for (key, first) in &load.keys {
                queue.update(*key, deadline(*first));
            }
            let rounds = rounds(&mut queue);
            count = rounds.len();
            longest.extend(rounds.into_iter().max());
        }
        longest.sort_unstable();
        println!("{name:<12} {count:>4} rounds of {ROUND}, the longest of each of 7 runs: {longest:.0?}");
    }
}

fn rounds(queue: &mut ExpiryQueue) -> Vec<Duration> {
    let mut rounds = Vec::new();
    let mut out = Vec::with_capacity(ROUND);
    let mut more = More::Due;
    while more == More::Due {
        out.clear();
        rounds.push(timed(|| more = queue.poll(Load::end(), ROUND, &mut out)));
    }
    rounds
}

fn main() {
    let _entered = RUNTIME.enter();
    let mut criterion = Criterion::default()
        .sample_size(10)
        .nresamples(1_000)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(300))
        .without_plots()
        .configure_from_args();
    let mut table = Table::new();
    let loads = SIZES.map(Load::new);
    for load in &loads {
        measure::<ExpiryQueue>(&mut criterion, load, &mut table);
        measure::<TwoMaps<RandomState>>(&mut criterion, load, &mut table);
        measure::<TwoMaps<FoldHash>>(&mut criterion, load, &mut table);
        measure::<Delays>(&mut criterion, load, &mut table);
        measure::<Heap>(&mut criterion, load, &mut table);
        measure::<HashedWheel>(&mut criterion, load, &mut table);
    }
    print_times("ns a key, shuffled", &table);
    let mut table = Table::new();
    let ordered = loads[2].in_order();
    measure::<ExpiryQueue>(&mut criterion, &ordered, &mut table);
    measure::<TwoMaps<RandomState>>(&mut criterion, &ordered, &mut table);
    measure::<TwoMaps<FoldHash>>(&mut criterion, &ordered, &mut table);
    measure::<HashedWheel>(&mut criterion, &ordered, &mut table);
    print_times("ns a key, in slot order", &table);
    println!("\nbytes a key              filled    moved");
    for load in &loads {
        print_bytes::<ExpiryQueue>(load);
        print_bytes::<TwoMaps<FoldHash>>(load);
        print_bytes::<Delays>(load);
        print_bytes::<Heap>(load);
        print_bytes::<HashedWheel>(load);
    }
    println!();
    print_longest_round(&loads[2]);
    criterion.final_summary();
}
