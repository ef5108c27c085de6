//! An established publisher and its subscriber, which measure how much others disturb them.
//!
//! The pair exchanges 1,000 messages a second at QoS 1. The load tester plays both, in a process of
//! its own. The same pair is measured in calm before: where even that shows that others have the
//! machine, its latency meanwhile says nothing of the broker, and only a bound that no machine
//! excuses is held to.

use serde_json::Value;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;

/// The latency that 99 of 100 messages must keep, whatever others do. A development build is about
/// ten times slower than a release, so there the bound only separates slow from stuck.
const P99_MS: f64 = if cfg!(debug_assertions) { 1_000.0 } else { 50.0 };

/// The latency in calm up to which that bound counts.
const CALM_P99_MS: f64 = 5.0;

/// The bound that always counts.
const STUCK_MS: f64 = 15_000.0;

/// The time in calm, with the warm-up of 0.5 s.
const CALM: &str = if cfg!(debug_assertions) { "1s" } else { "3s" };

/// The figures of one measurement.
pub struct PairLatency(Value);

impl PairLatency {
    /// Measures for a time such as `"3s"`, the warm-up of 0.5 s included. Blocks meanwhile.
    ///
    /// # Panics
    /// The broker refuses the pair or disconnects it, or the load tester does not run.
    pub fn measure(address: SocketAddr, time: &str) -> PairLatency {
        let output = Command::new(env!("CARGO_BIN_EXE_homing"))
            .args(["load", "latency", "--rate", "1000", "--qos", "1", "--publishers", "1"])
            .args(["--subscribers", "1", "--duration", time, "--warmup", "500ms", "--json"])
            .args(["--port", &address.port().to_string()])
            .stdin(Stdio::null())
            .output()
            .expect("homing load runs");
        let said = String::from_utf8_lossy(&output.stderr);
        PairLatency(serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}")))
    }

    /// Returns a latency in milliseconds: `p50`, `p99` or `max`.
    pub fn ms(&self, name: &str) -> f64 {
        self.0["latency_ms"][name].as_f64().unwrap_or(f64::NAN)
    }

    /// Returns a number of messages: `sent`, `delivered` or `lost`.
    pub fn count(&self, name: &str) -> &Value {
        &self.0["counts"][name]
    }

    fn print(&self, when: &str) {
        let [p50, p99, max] = ["p50", "p99", "max"].map(|name| self.ms(name));
        println!("  the pair {when}: p50 {p50:.2} ms, p99 {p99:.2} ms, max {max:.1} ms");
    }
}

/// Prints both measurements, and asserts that the pair was hardly disturbed.
///
/// # Panics
/// A message is lost, or 99 of 100 messages took too long.
pub fn assert_responsive(calm: &PairLatency, disturbed: &PairLatency) {
    calm.print("in calm");
    disturbed.print("meanwhile");
    let [calm_p99, p99] = [calm, disturbed].map(|latency| latency.ms("p99"));
    println!("  p99 meanwhile / in calm: {:.1}", p99 / calm_p99);
    assert_eq!(disturbed.count("lost"), 0, "messages of the pair are lost");
    assert!(p99 < STUCK_MS, "p99 of the pair: {p99} ms");
    if calm_p99 < CALM_P99_MS {
        assert!(p99 < P99_MS, "p99 of the pair: {p99} ms, in calm {calm_p99} ms");
    } else {
        println!("  others have the machine: p99 is not held to {P99_MS} ms");
    }
}

/// The nice value of the load in a release.
const LOAD: i32 = 19;

/// Lets the pair and the broker go before the load that this thread makes, and before the threads
/// that it starts later. The load stands for other machines, which take no time from the cores of
/// the broker. On two cores the generator of 2,000 logins alone makes the p99 of the pair five
/// times as long.
///
/// A development build, whose bounds are wide, runs beside other tests. There a load of this
/// priority would hardly come.
pub fn stand_aside() {
    if !cfg!(debug_assertions) {
        let _ = rustix::process::nice(LOAD);
    }
}

/// The view that an abuse has of the measurement.
pub struct Stage<'a> {
    begun: Sender<()>,
    is_over: &'a AtomicBool,
}

impl Stage<'_> {
    /// Reports that the abuse is under way. The pair is measured from here on.
    pub fn begun(&self) {
        let _ = self.begun.send(());
    }

    /// Returns true while the pair is measured.
    pub fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }
}

/// Measures the pair in calm, and again for `time` while `abuse` runs. Prints both figures under
/// this name. Returns the result of `abuse`.
///
/// # Panics
/// The pair is disturbed too much, or `abuse` never says that it has begun.
pub fn disturb<T: Send>(
    name: &str,
    address: SocketAddr,
    time: &str,
    abuse: impl FnOnce(&Stage<'_>) -> T + Send,
) -> T {
    let calm = PairLatency::measure(address, CALM);
    let is_over = AtomicBool::new(false);
    let (disturbed, result) = thread::scope(|scope| {
        let (begun, is_under_way) = mpsc::channel();
        let stage = Stage { begun, is_over: &is_over };
        let abuse = scope.spawn(move || {
            stand_aside();
            abuse(&stage)
        });
        // Without a word if the abuse has failed.
        let disturbed = is_under_way.recv().ok().map(|()| PairLatency::measure(address, time));
        is_over.store(true, Ordering::Relaxed);
        (disturbed, abuse.join().expect("the abuse does what it is meant to"))
    });
    println!("{name}:");
    assert_responsive(&calm, &disturbed.expect("the abuse begins"));
    result
}
