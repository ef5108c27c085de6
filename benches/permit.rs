//! The check of a PUBLISH against an ACL: a topic that was allowed before, and a new topic each
//! time.
//!
//! Run `cargo bench --bench permit`. The user has rules of its own, and all users share patterns,
//! in the proportion of 8 to 2. The rule that grants is the last of its list.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use homing::access::permit::Permit;
use homing::access::rule::ClientNames;
use homing::access::written_topics::WrittenTopics;
use homing::auth::acl_file;
use std::hint::black_box;
use std::path::Path;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const ANN: ClientNames<'_> = ClientNames::new(Some("ann"), "pump-7");

/// New topics, so many that none is remembered when its turn comes again.
const NEW: usize = 1 << 12;

/// Returns the permit of `ann` in a file of so many rules, a fifth of them patterns.
fn permit(rules: usize) -> Permit {
    let patterns = rules / 5;
    let mut text = String::new();
    for n in 0..patterns {
        text.push_str(&format!("pattern readwrite homes/%u/room-{n}/+/set\n"));
    }
    text.push_str("user ann\n");
    for n in 0..rules - patterns - 1 {
        text.push_str(&format!("topic readwrite buildings/{n}/+/temperature\n"));
    }
    text.push_str("topic write sensors/+/temperature\n");
    acl_file::parse(Path::new("acl"), text.as_bytes()).expect("a lawful file").permit_of(Some("ann"))
}

fn publish(c: &mut Criterion) {
    let new: Vec<String> = (0..NEW).map(|n| format!("sensors/{n:04}/temperature")).collect();
    let mut group = c.benchmark_group("permit of a publish");
    group.bench_function("no ACL", |b| {
        let mut written = WrittenTopics::default();
        b.iter(|| black_box(written.may_write(&Permit::All, black_box(&new[0]), ANN)));
    });
    for rules in [1, 10, 100] {
        let permit = permit(rules);
        for topics in [1, 4] {
            let id = BenchmarkId::new(format!("{rules} rules, topics in turn"), topics);
            group.bench_function(id, |b| {
                let mut written = WrittenTopics::default();
                let mut turn = new[..topics].iter().cycle();
                b.iter(|| {
                    let topic = turn.next().expect("it never ends");
                    assert!(written.may_write(&permit, black_box(topic), ANN).is_granted);
                });
            });
        }
        group.bench_function(format!("{rules} rules, a new topic each"), |b| {
            let mut written = WrittenTopics::default();
            let mut turn = new.iter().cycle();
            b.iter(|| {
                let topic = turn.next().expect("it never ends");
                assert!(written.may_write(&permit, black_box(topic), ANN).is_granted);
            });
        });
        group.bench_function(format!("{rules} rules, denied"), |b| {
            let mut written = WrittenTopics::default();
            b.iter(|| {
                assert!(!written.may_write(&permit, black_box("other/0001/temperature"), ANN).is_granted)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, publish);
criterion_main!(benches);
