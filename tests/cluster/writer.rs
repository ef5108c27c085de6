//! A writer that appends as an owner does, and what it learned.

use crate::engine_contract::read;
use crate::support::now;
use bytes::Bytes;
use homing::cluster::engine::{Append, Engine};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Time between attempts, as the design has it.
const RETRY: Duration = Duration::from_millis(150);
/// Time in which a frame is applied, whatever has happened.
const PATIENCE: Duration = Duration::from_secs(90);

/// What is known while frames are written.
#[derive(Default)]
pub struct Progress {
    written: AtomicUsize,
    is_enough: AtomicBool,
}

impl Progress {
    /// Waits until so many more frames are applied.
    pub fn more(&self, frames: usize) {
        let (begun, target) = (now(), self.written.load(Ordering::Relaxed) + frames);
        while self.written.load(Ordering::Relaxed) < target {
            assert!(begun.elapsed() < PATIENCE, "nothing is appended any more");
            thread::yield_now();
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Appends frames while `during` runs. At its end the log must have exactly the frames that were
/// acknowledged. Returns the longest time between two acknowledgements.
pub fn write_while(engine: &dyn Engine, during: impl FnOnce(&Progress)) -> Duration {
    let progress = Progress::default();
    let first = engine.bounds().map_or(0, |bounds| bounds.last);
    let (frames, longest) = thread::scope(|scope| {
        let writer = scope.spawn(|| write(engine, first, &progress));
        let enough = Enough(&progress);
        progress.more(20);
        during(&progress);
        progress.more(20);
        drop(enough);
        writer.join().expect("the writer")
    });
    let last = first + frames.len() as u64;
    let expected: Vec<(u64, Bytes)> = (first + 1..).zip(frames).collect();
    assert!(read(engine, first, last) == expected, "the log has what was acknowledged, in order");
    // Nothing is behind it: another frame gets the next position.
    crate::engine_contract::append(engine, last, &Bytes::from_static(b"end"));
    longest
}

/// Ends the writer, also if the test fails.
struct Enough<'a>(&'a Progress);

impl Drop for Enough<'_> {
    fn drop(&mut self) {
        self.0.is_enough.store(true, Ordering::Relaxed);
    }
}

fn write(engine: &dyn Engine, first: u64, progress: &Progress) -> (Vec<Bytes>, Duration) {
    let (mut frames, mut longest) = (Vec::new(), Duration::ZERO);
    let mut before = now();
    while !progress.is_enough.load(Ordering::Relaxed) {
        let last = first + frames.len() as u64;
        let frame = Bytes::from(format!("{last}-{before:?}-{}", "x".repeat(300)));
        while !is_applied(engine, last, &frame) {
            if progress.is_enough.load(Ordering::Relaxed) || before.elapsed() > PATIENCE {
                return (frames, longest);
            }
            thread::sleep(RETRY);
        }
        frames.push(frame);
        progress.written.fetch_add(1, Ordering::Relaxed);
        longest = longest.max(before.elapsed());
        before = now();
    }
    (frames, longest)
}

/// Makes one attempt, and looks at the log if the attempt does not say it.
fn is_applied(engine: &dyn Engine, last: u64, frame: &Bytes) -> bool {
    match engine.append(last, frame) {
        Append::Applied(_) => true,
        Append::NotLast | Append::Unknown(_) => match engine.read(last, 1) {
            Ok(frames) => match frames.first() {
                Some(found) => {
                    assert!(found == &(last + 1, frame.clone()), "another frame at {}", found.0);
                    true
                }
                None => false,
            },
            Err(_) => false,
        },
        other => panic!("append behind {last}: {other:?}"),
    }
}
