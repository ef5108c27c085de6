//! Times of single calls, without faults: `tests/cluster/run --measure`.

use crate::engine_contract::read;
use crate::servers::Servers;
use crate::support::now;
use bytes::Bytes;
use homing::cluster::engine::{Append, Engine};
use std::thread;
use std::time::Duration;

/// Calls of each kind.
const CALLS: usize = 2_000;

fn print(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: usize| times[times.len() * share / 1000];
    println!("{what}: p50 {:?}, p99 {:?}, p99.9 {:?}, of {}", at(500), at(990), at(999), times.len());
}

#[test]
#[ignore = "it measures: tests/cluster/run --measure"]
fn times_of_calls() {
    let servers = Servers::start();
    let (owner, standby) = (servers.initialized("latency"), servers.node("latency"));
    let mut last = 0;
    for size in [300, 4096, 32 * 1024] {
        let frame = Bytes::from(vec![7; size]);
        let append = |_| {
            let begun = now();
            assert_eq!(owner.engine.append(last, &frame), Append::Applied(last + 1));
            last += 1;
            begun.elapsed()
        };
        print(&format!("append of {size} bytes"), (0..CALLS).map(append).collect());
    }
    let timed = |call: &dyn Fn()| {
        let begun = now();
        call();
        begun.elapsed()
    };
    let repeat = |call: &dyn Fn()| (0..CALLS).map(|_| timed(call)).collect::<Vec<_>>();
    print("read of one frame", repeat(&|| drop(standby.engine.read(0, 1).expect("a frame"))));
    print("read of 1 MiB", (0..100).map(|_| timed(&|| drop(standby.engine.read(0, 1 << 20)))).collect());
    print("bounds", repeat(&|| drop(standby.engine.bounds().expect("both ends"))));
    print("put_row", repeat(&|| drop(standby.engine.put_row("row", Bytes::from_static(b"1")))));
    print("row", repeat(&|| drop(standby.engine.row("row").expect("a row"))));
    follow(&*owner.engine, &*standby.engine, last);
}

/// The time from an acknowledgement to the frame at a standby.
fn follow(owner: &dyn Engine, standby: &dyn Engine, first: u64) {
    let times = thread::scope(|scope| {
        let appending = scope.spawn(|| {
            (first..first + CALLS as u64)
                .map(|last| {
                    assert_eq!(
                        owner.append(last, &Bytes::from_static(b"followed")),
                        Append::Applied(last + 1)
                    );
                    let acknowledged = now();
                    owner.announce(last + 1);
                    thread::sleep(Duration::from_millis(2));
                    acknowledged
                })
                .collect::<Vec<_>>()
        });
        let mut seen = Vec::new();
        let mut after = first;
        while seen.len() < CALLS {
            standby.wait_for_tip(after, Duration::from_millis(250));
            let frames = standby.read(after, 1 << 20).unwrap_or_default();
            seen.extend(frames.iter().map(|_| now()));
            after += frames.len() as u64;
        }
        let acknowledged = appending.join().expect("the owner");
        seen.into_iter().zip(acknowledged).map(|(seen, acknowledged)| seen - acknowledged).collect()
    });
    print("from the acknowledgement to the standby", times);
    assert_eq!(read(standby, first, first + CALLS as u64).len(), CALLS);
}
