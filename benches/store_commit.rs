//! The cost of a commit: put and delete of a message, by batch; a durable fan-out; reading back;
//! opening.
//!
//! Run `cargo bench --bench store_commit`. First comes a table of CPU time and bytes written, as
//! the system counts them, then the medians of criterion. The files are in the temporary directory
//! (`TMPDIR`), which should be on a disk and not in memory.

use criterion::{Criterion, Throughput};
use homing::config::DurabilityLevel;
use homing::mqtt::message::{Message, Parts};
use homing::mqtt::packet::{ProtocolVersion, QoS};
use homing::mqtt::subscription_ids::SubscriptionIds;
use homing::persistence::records::{
    BodyNumber, EntryNumber, Record, SessionKey, StoredAccess, StoredEntry, StoredSession,
};
use homing::store::coalesce::CommitGroup;
use homing::store::logged::{LoggedStore, StoreOptions};
use homing::store::{Moment, Store};
use homing::time::Instant;
use std::time::Duration;

const PAYLOAD: usize = 256;

struct Driver {
    store: LoggedStore,
    group: CommitGroup,
    next: u64,
    /// The longest commit and the longest write-back, in milliseconds.
    longest: [f64; 2],
    _directory: tempfile::TempDir,
}

impl Driver {
    fn new(durability: DurabilityLevel, sessions: u64) -> Driver {
        let directory = tempfile::tempdir().expect("a directory");
        let mut store = LoggedStore::open(directory.path(), StoreOptions { durability, size_limit: None })
            .expect("opened");
        store.recover(Moment::now(), Duration::ZERO).expect("recovered");
        let mut driver = Driver {
            store,
            group: CommitGroup::default(),
            next: sessions + 1,
            longest: [0.0; 2],
            _directory: directory,
        };
        for key in 1..=sessions {
            driver.group.fold(Record::Session(Box::new(session(key))));
        }
        driver.commit();
        driver.longest = [0.0; 2];
        driver
    }

    fn commit(&mut self) {
        self.group.seal();
        let began = homing::clock::nanos();
        self.store.commit(&mut self.group).expect("committed");
        let committed = homing::clock::nanos();
        self.store.tidy().expect("tidied");
        // The committing thread asks this before each commit; the size is the one at that time.
        assert!(self.store.has_room().expect("asked"));
        let millis = |from: u64, to: u64| (to - from) as f64 / 1e6;
        self.longest[0] = self.longest[0].max(millis(began, committed));
        self.longest[1] = self.longest[1].max(millis(committed, homing::clock::nanos()));
        self.group.clear();
    }

    /// Puts `messages` messages, each for `receivers` sessions. Returns the first number.
    fn put(&mut self, messages: u64, receivers: u64) -> u64 {
        let first = self.next;
        for _ in 0..messages {
            let body = BodyNumber(self.next);
            self.next += 1;
            self.group.fold(Record::Body { number: body, message: message() });
            for session in 1..=receivers {
                self.group.fold(Record::Entry(Box::new(entry(self.next, session, body))));
                self.next += 1;
            }
        }
        self.commit();
        first
    }

    fn done(&mut self, first: u64, messages: u64, receivers: u64) {
        for n in 0..messages {
            let body = first + n * (receivers + 1);
            (1..=receivers).for_each(|r| self.group.fold(Record::EntryDone(EntryNumber(body + r))));
            self.group.fold(Record::BodyDone(BodyNumber(body)));
        }
        self.commit();
    }

    /// Puts a batch and deletes the one before in one commit, as under a steady load.
    fn steady(&mut self, last: u64, messages: u64) -> u64 {
        for n in 0..messages {
            self.group.fold(Record::EntryDone(EntryNumber(last + 2 * n + 1)));
            self.group.fold(Record::BodyDone(BodyNumber(last + 2 * n)));
        }
        self.put(messages, 1)
    }
}

fn message() -> Message {
    let parts = Parts {
        qos: QoS::AtLeastOnce,
        retain: false,
        expires: Instant::NEVER,
        topic: "site/7/line/3/sensor/temperature",
        forwarded: b"",
        payload: &[b'x'; PAYLOAD],
    };
    Message::new(parts, &mut Vec::new())
}

fn session(key: u64) -> StoredSession {
    StoredSession {
        key: SessionKey(key),
        client_id: format!("client-{key}").into(),
        version: ProtocolVersion::V5,
        expiry: 3600,
        connected: true,
        ends: Instant::NEVER,
        will: None,
        will_due: Instant::NEVER,
        retry_interval: None,
        ack_timeout: None,
        user_name: None,
        access: StoredAccess::default(),
    }
}

fn entry(number: u64, session: u64, body: BodyNumber) -> StoredEntry {
    StoredEntry {
        number: EntryNumber(number),
        session: SessionKey(session),
        body,
        qos: QoS::AtLeastOnce,
        retain: false,
        ids: SubscriptionIds::None,
        share: None,
        flight: None,
    }
}

/// Returns the CPU time of this process in microseconds, to 10 ms, and the bytes that it wrote to
/// the disk.
fn account() -> (f64, f64) {
    let read = |path| std::fs::read_to_string(path).expect("Linux");
    let stat = read("/proc/self/stat");
    let fields: Vec<f64> = stat
        .rsplit(')')
        .next()
        .into_iter()
        .flat_map(str::split_whitespace)
        .filter_map(|field| field.parse().ok())
        .collect();
    let io = read("/proc/self/io");
    let written = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).expect("it is counted");
    // The state of the process is not a number, so utime and stime are the 11th and 12th number.
    ((fields[10] + fields[11]) * 10_000.0, written.parse().expect("a number"))
}

/// Calls `run` for some seconds, and prints the cost of a unit.
fn figure(name: &str, units: u64, driver: &mut Driver, mut run: impl FnMut(&mut Driver)) {
    let (cpu, written) = account();
    let began = homing::clock::nanos();
    let mut count = 0;
    while homing::clock::nanos() - began < 4_000_000_000 {
        run(driver);
        count += units;
    }
    let seconds = (homing::clock::nanos() - began) as f64 / 1e9;
    let (cpu_after, written_after) = account();
    let count = count as f64;
    println!(
        "{name:<34} {:>9.0}/s {:>7.2} us CPU {:>7.0} B written; longest commit {:.1} ms, write-back {:.1} ms",
        count / seconds,
        (cpu_after - cpu) / count,
        (written_after - written) / count,
        driver.longest[0],
        driver.longest[1],
    );
}

fn figures() {
    for (durability, name) in [
        (DurabilityLevel::Commit, "commit"),
        (DurabilityLevel::Interval, "interval"),
        (DurabilityLevel::Os, "os"),
    ] {
        for batch in [1, 32, 256, 1024] {
            let mut driver = Driver::new(durability, 1);
            let mut last = driver.put(batch, 1);
            figure(&format!("{name}: put + delete, batch {batch}"), batch, &mut driver, |d| {
                last = d.steady(last, batch);
            });
        }
        let mut driver = Driver::new(durability, 1000);
        figure(&format!("{name}: fan-out 1 -> 1,000, per entry"), 1000, &mut driver, |d| {
            let first = d.put(1, 1000);
            d.done(first, 1, 1000);
        });
    }
    open_a_million();
}

/// Opens a store with 1,000 sessions that have 1,000 messages each.
fn open_a_million() {
    let mut driver = Driver::new(DurabilityLevel::Os, 1000);
    let directory = driver._directory.path().to_owned();
    for _ in 0..1000 {
        for session in 1..=1000 {
            let body = BodyNumber(driver.next);
            driver.group.fold(Record::Body { number: body, message: message() });
            driver.group.fold(Record::Entry(Box::new(entry(driver.next + 1, session, body))));
            driver.next += 2;
        }
        driver.commit();
    }
    let bytes = driver.store.bytes();
    let Driver { store, _directory: kept, .. } = driver;
    drop(store);
    let began = homing::clock::nanos();
    let options = StoreOptions { durability: DurabilityLevel::Commit, size_limit: None };
    let mut store = LoggedStore::open(&directory, options).expect("opened");
    let recovered = store.recover(Moment::now(), Duration::ZERO).expect("recovered");
    let took = (homing::clock::nanos() - began) as f64 / 1e6;
    let entries: usize = recovered.sessions.iter().map(|s| s.entries.len()).sum();
    println!("open with {entries} queued messages: {took:.0} ms; {} MiB", bytes >> 20);
    let mut reader = store.reader().expect("a reader");
    let page: Vec<_> = recovered.sessions[7].entries.iter().take(100).collect();
    let wanted: Vec<_> = page.iter().filter_map(|e| Some((e.number, e.body?.number))).collect();
    let began = homing::clock::nanos();
    (0..100).for_each(|_| assert_eq!(reader.entries(&wanted).expect("read").len(), 100));
    println!("a page of 100 messages: {:.0} us", (homing::clock::nanos() - began) as f64 / 1e5);
    drop(kept);
}

fn medians(criterion: &mut Criterion) {
    let mut cases = criterion.benchmark_group("store_commit");
    cases.sample_size(20);
    for batch in [1, 256] {
        let mut driver = Driver::new(DurabilityLevel::Commit, 1);
        let mut last = driver.put(batch, 1);
        cases.throughput(Throughput::Elements(batch));
        cases.bench_function(format!("commit/put and delete/{batch}"), |b| {
            b.iter(|| last = driver.steady(last, batch));
        });
    }
    let mut driver = Driver::new(DurabilityLevel::Commit, 1000);
    cases.throughput(Throughput::Elements(1000));
    cases.bench_function("commit/fan-out/1000", |b| {
        b.iter(|| {
            let first = driver.put(1, 1000);
            driver.done(first, 1, 1000);
        });
    });
    cases.finish();
}

fn main() {
    figures();
    let mut criterion = Criterion::default().configure_from_args();
    medians(&mut criterion);
    criterion.final_summary();
}
