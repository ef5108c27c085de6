//! Lines for standard error, written by a thread of their own, so that nobody else waits for who reads them.
//!
//! A reader that stops reading blocks whoever writes. An arbiter that wrote its own lines would stop with all its clients.
//! Here a line is copied into a buffer; the thread writes what has gathered in one piece. A line that finds `MOST` bytes
//! waiting is dropped and counted: in `$SYS/broker/log/dropped`, and in a line of its own once the reader goes on. The lock is
//! held for a copy, never for a write.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tracing::warn;

/// Bytes that wait at most; as many again may be with the system. Some 1,500 lines: fifteen seconds of the default rate.
const MOST: usize = 256 * 1024;

/// How long the end of the process waits for its last lines.
const FLUSH: Duration = Duration::from_secs(1);

/// Those of this process.
static LINES: Lines = Lines::new();

/// Where the log writes, a whole line in each call.
#[derive(Clone, Copy, Debug)]
pub struct Line;

impl Write for Line {
    /// Takes all of it: what it drops is counted and no error, since nobody who logs could do better.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        push(line, MOST);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a text that an operator asked for, which has as much room again as the log.
pub fn say(text: &str) {
    push(text.as_bytes(), 2 * MOST);
}

/// Writes the last words of a process, whatever waits before them.
pub fn say_last(text: &str) {
    push(text.as_bytes(), usize::MAX);
    flush();
}

/// Starts the thread with the first text. Where the system refuses the thread, texts are written at once.
fn push(text: &[u8], most: usize) {
    static IS_RUNNING: OnceLock<bool> = OnceLock::new();
    let run = || LINES.run(io::stderr());
    let start = || std::thread::Builder::new().name("homing-log".into()).spawn(run).is_ok();
    if *IS_RUNNING.get_or_init(start) {
        LINES.push(text, most);
    } else {
        drop(io::stderr().lock().write_all(text));
    }
}

/// Waits until everything is written, `FLUSH` at most.
pub fn flush() {
    LINES.flush(FLUSH);
}

/// Lines dropped since the start.
pub fn dropped() -> u64 {
    LINES.dropped.load(Ordering::Relaxed)
}

/// Lines on their way.
#[derive(Debug)]
struct Lines {
    waiting: Mutex<Waiting>,
    /// Signalled when there is something to write, and when everything is written.
    changed: Condvar,
    /// Lines dropped since the start.
    dropped: AtomicU64,
}

#[derive(Debug)]
struct Waiting {
    bytes: Vec<u8>,
    /// Whether the thread has bytes that it has not written.
    writing: bool,
    /// Lines dropped that no line has told of.
    untold: u64,
}

impl Lines {
    const fn new() -> Lines {
        let waiting = Waiting { bytes: Vec::new(), writing: false, untold: 0 };
        Lines { waiting: Mutex::new(waiting), changed: Condvar::new(), dropped: AtomicU64::new(0) }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while it is held.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a line if no more than `most` bytes wait with it.
    fn push(&self, line: &[u8], most: usize) {
        let mut waiting = self.waiting();
        if waiting.bytes.len().saturating_add(line.len()) > most {
            waiting.untold += 1;
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.bytes.extend_from_slice(line);
        self.changed.notify_all();
    }

    fn flush(&self, within: Duration) {
        let is_on_its_way = |waiting: &mut Waiting| waiting.writing || !waiting.bytes.is_empty();
        drop(self.changed.wait_timeout_while(self.waiting(), within, is_on_its_way));
    }

    /// The thread: writes what waits, for ever.
    fn run(&self, mut out: impl Write) {
        let mut bytes = Vec::new();
        loop {
            self.take(&mut bytes);
            if let Err(lost) = write_whole(&mut out, &bytes) {
                // Not told in a line: that would be lost as well, and lead to the next.
                self.dropped.fetch_add(lost, Ordering::Relaxed);
            }
            bytes.clear();
            let untold = std::mem::take(&mut self.waiting().untold);
            if untold > 0 {
                warn!("{untold} log lines dropped: standard error was not read ($SYS/broker/log/dropped)");
            }
        }
    }

    /// Waits for something to write, and exchanges it for the empty `bytes`.
    fn take(&self, bytes: &mut Vec<u8>) {
        let mut waiting = self.waiting();
        waiting.writing = false;
        self.changed.notify_all();
        while waiting.bytes.is_empty() {
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        waiting.writing = true;
        std::mem::swap(&mut waiting.bytes, bytes);
    }
}

/// Writes everything.
///
/// # Errors
/// How many lines were not written.
fn write_whole(out: &mut impl Write, mut bytes: &[u8]) -> Result<(), u64> {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(n) if n > 0 => bytes = bytes.get(n..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return Err(bytes.iter().filter(|byte| **byte == b'\n').count() as u64),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, mpsc};

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Reader {
        Asleep,
        Reads,
        Gone,
    }

    type Gate = Arc<(Mutex<Reader>, Condvar)>;

    /// A pipe without any room of its own.
    struct Pipe(Gate, mpsc::Sender<Vec<u8>>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (reader, changed) = &*self.0;
            let reader = changed.wait_while(reader.lock().unwrap(), |r| *r == Reader::Asleep).unwrap();
            if *reader == Reader::Gone {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let _ = self.1.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn becomes(gate: &Gate, reader: Reader) {
        *gate.0.lock().unwrap() = reader;
        gate.1.notify_all();
    }

    #[test]
    fn whoever_logs_never_waits_for_who_reads() {
        let lines: &'static Lines = Box::leak(Box::new(Lines::new()));
        let gate = Gate::new((Mutex::new(Reader::Asleep), Condvar::new()));
        let (taken, received) = mpsc::channel();
        let pipe = Pipe(Arc::clone(&gate), taken);
        std::thread::spawn(|| lines.run(pipe));
        // Nothing is read, and yet all of this returns.
        let line = [b'x'; 1023].iter().chain(b"\n").copied().collect::<Vec<u8>>();
        let pushed = 4 * MOST / line.len();
        for _ in 0..pushed {
            lines.push(&line, MOST);
        }
        lines.flush(Duration::from_millis(1));
        let dropped = lines.dropped.load(Ordering::Relaxed) as usize;
        assert!((pushed / 2..pushed).contains(&dropped), "{dropped} of {pushed}");
        // It is read again: what was not dropped comes, whole and once.
        becomes(&gate, Reader::Reads);
        lines.flush(Duration::from_secs(10));
        let bytes: usize = received.try_iter().map(|bytes: Vec<u8>| bytes.len()).sum();
        assert_eq!(bytes / line.len() + dropped, pushed);
        // It is closed: what cannot be written is counted.
        becomes(&gate, Reader::Gone);
        lines.push(b"a line\nand another\n", MOST);
        lines.flush(Duration::from_secs(10));
        assert_eq!(lines.dropped.load(Ordering::Relaxed) as usize, dropped + 2);
    }
}
