//! A calm client that measures how long others make it wait.

use super::{Connect, RawClient, V311, now};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The longest that another client's PINGRESP may take.
pub const BOUND: Duration = Duration::from_millis(if cfg!(debug_assertions) { 3_000 } else { 100 });

/// Measures another client's longest wait for a PINGRESP while `abuse` runs.
///
/// # Panics
/// It waits longer than the bound. `name` says in the failure what was going on.
pub fn others_wait_little<T>(name: &str, address: SocketAddr, abuse: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    let (longest, result) = thread::scope(|scope| {
        let other = scope.spawn(|| longest_wait(address, &done));
        let result = abuse();
        done.store(true, Ordering::Relaxed);
        (other.join().expect("the other client is served"), result)
    });
    println!("{name}: another client's PINGRESP took {longest:?} at most");
    assert!(
        longest < BOUND,
        "{name}: another client's PINGRESP took {longest:?}, where {BOUND:?} are allowed"
    );
    result
}

fn longest_wait(address: SocketAddr, done: &AtomicBool) -> Duration {
    let mut other = RawClient::open_with(address, V311, Duration::from_secs(60)).accepted(&calm("other"));
    let mut longest = Duration::ZERO;
    while !done.load(Ordering::Relaxed) {
        let sent = now();
        other.settle();
        longest = longest.max(sent.elapsed());
        // A pace, no wait: the machine is the broker's.
        thread::sleep(Duration::from_millis(1));
    }
    longest
}

/// Returns the CONNECT of a client that no Keep Alive ends.
pub fn calm(name: &str) -> Connect {
    Connect::new(V311, name).keep_alive(0)
}
