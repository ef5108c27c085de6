//! How much an established pair notices of clients that are hostile, broken or many, on the real
//! binary. Each test asserts what must hold on any machine: everybody gets an answer, nobody holds
//! a place for long, and nothing of the pair is lost.
//!
//! The figures are printed (`--nocapture`): the p99 of the pair in calm and meanwhile, and their
//! ratio. In a development build fewer clients come, and the bound on latency only separates slow
//! from stuck. `cargo test --release --test disturbance -- --nocapture` is the measurement; it
//! needs a quiet machine. Storms of logins and of redelivery have test binaries of their own.

#[path = "../transport/kit.rs"]
#[expect(dead_code, reason = "other tests use the rest of the kit")]
mod kit;
#[path = "../support/mod.rs"]
mod support;

mod handshakes;
mod interface;
mod lines;
mod names;
mod questions;
mod reloads;
mod rules;
mod slow_socket;

use rustix::process::{Pid, Signal, kill_process};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The time for which the pair is measured meanwhile, with the warm-up of 0.5 s.
const MEANWHILE: &str = if cfg!(debug_assertions) { "2s" } else { "6s" };

/// One after the other: each is to have the machine.
static TURN: Mutex<()> = Mutex::new(());

/// Waits for the other tests. Their figures end with the returned value.
fn turn() -> MutexGuard<'static, ()> {
    support::process::raise_descriptor_limit();
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns one number in a development build, and another one in a release.
const fn by_build(development: usize, release: usize) -> usize {
    if cfg!(debug_assertions) { development } else { release }
}

/// Sends a signal to a process that runs.
fn signal(process: u32, signal: Signal) {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, signal).expect("it runs");
}

/// Returns the median; of an even number of values the upper one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
