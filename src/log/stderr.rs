//! Writes log lines to standard error from a thread of its own, so that no other thread waits for
//! the reader.
//!
//! A reader that stops reading blocks the writer. A shard that wrote its own lines would stop with
//! all its clients. So a line is copied into a buffer, and the thread writes the buffer in one
//! piece. A line that finds `MOST` bytes pending is dropped and counted: in
//! `$SYS/broker/log/dropped`, and in a line of its own once the reader goes on. The lock is held
//! for a copy, never for a write.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tracing::warn;

/// Maximum number of pending bytes: about 5,000 lines, or fifty seconds of the default rate.
const MOST: usize = 1024 * 1024;

/// Maximum time that the end of the process waits for its last lines.
const FLUSH: Duration = Duration::from_secs(1);

/// The pending lines of this process.
static LINES: Lines = Lines::new();

/// The writer of the log. Each call writes one whole line.
#[derive(Clone, Copy, Debug)]
pub struct LogWriter;

impl Write for LogWriter {
    /// Takes the whole line. A dropped line is counted and is no error, because no caller could do
    /// better.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        push(line, MOST);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a text that an operator asked for. The text has as much room again as the log.
pub fn say(text: &str) {
    push(text.as_bytes(), 2 * MOST);
}

/// Writes the last text of a process without a bound, and waits up to `FLUSH` for it.
pub fn say_last(text: &str) {
    push(text.as_bytes(), usize::MAX);
    flush();
}

/// Starts the thread with the first text. If the system refuses the thread, each text is written at
/// once.
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

/// Waits until everything is written, at most `FLUSH`.
pub fn flush() {
    LINES.flush(FLUSH);
}

/// Returns the number of lines dropped since the start.
pub fn dropped() -> u64 {
    LINES.dropped.load(Ordering::Relaxed)
}

/// The buffer between the threads that log and the thread that writes.
#[derive(Debug)]
struct Lines {
    waiting: Mutex<PendingLines>,
    /// Signalled when there is something to write, and when everything is written.
    changed: Condvar,
    /// Lines dropped since the start.
    dropped: AtomicU64,
}

#[derive(Debug)]
struct PendingLines {
    bytes: Vec<u8>,
    /// True while the thread has bytes that are not written.
    writing: bool,
    /// Dropped lines that no line has reported.
    unreported: u64,
}

impl Lines {
    const fn new() -> Lines {
        let waiting = PendingLines { bytes: Vec::new(), writing: false, unreported: 0 };
        Lines { waiting: Mutex::new(waiting), changed: Condvar::new(), dropped: AtomicU64::new(0) }
    }

    fn waiting(&self) -> MutexGuard<'_, PendingLines> {
        // No code panics while the lock is held.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line if at most `most` bytes are then pending; else drops and counts the line.
    fn push(&self, line: &[u8], most: usize) {
        let mut waiting = self.waiting();
        if waiting.bytes.len().saturating_add(line.len()) > most {
            waiting.unreported += 1;
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.bytes.extend_from_slice(line);
        self.changed.notify_all();
    }

    fn flush(&self, within: Duration) {
        let is_on_its_way = |waiting: &mut PendingLines| waiting.writing || !waiting.bytes.is_empty();
        drop(self.changed.wait_timeout_while(self.waiting(), within, is_on_its_way));
    }

    /// Writes pending lines for ever, on the thread of its own.
    fn run(&self, mut out: impl Write) {
        let mut bytes = Vec::new();
        loop {
            self.take(&mut bytes);
            if let Err(dropped) = write_whole(&mut out, &bytes) {
                // No line reports this, because that line would be dropped, too.
                self.dropped.fetch_add(dropped, Ordering::Relaxed);
            }
            bytes.clear();
            let unreported = std::mem::take(&mut self.waiting().unreported);
            if unreported > 0 {
                warn!(
                    event = "log.lines_dropped",
                    "{unreported} log lines dropped: standard error was not read (counted in $SYS/broker/log/dropped)"
                );
            }
        }
    }

    /// Waits for pending lines and swaps them with the empty `bytes`.
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

/// Writes all bytes. Errors: the number of lines that were not written.
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
    enum PipeReader {
        Asleep,
        Reads,
        Gone,
    }

    type WriteGate = Arc<(Mutex<PipeReader>, Condvar)>;

    /// A pipe without a buffer.
    struct Pipe(WriteGate, mpsc::Sender<Vec<u8>>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (reader, changed) = &*self.0;
            let reader = changed.wait_while(reader.lock().unwrap(), |r| *r == PipeReader::Asleep).unwrap();
            if *reader == PipeReader::Gone {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let _ = self.1.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn becomes(gate: &WriteGate, reader: PipeReader) {
        *gate.0.lock().unwrap() = reader;
        gate.1.notify_all();
    }

    #[test]
    fn whoever_logs_never_waits_for_who_reads() {
        let lines: &'static Lines = Box::leak(Box::new(Lines::new()));
        let gate = WriteGate::new((Mutex::new(PipeReader::Asleep), Condvar::new()));
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
        // The pipe is read again: each line that was not dropped comes, whole and once.
        becomes(&gate, PipeReader::Reads);
        lines.flush(Duration::from_secs(10));
        let bytes: usize = received.try_iter().map(|bytes: Vec<u8>| bytes.len()).sum();
        assert_eq!(bytes / line.len() + dropped, pushed);
        // The pipe is closed: lines that cannot be written are counted.
        becomes(&gate, PipeReader::Gone);
        lines.push(b"a line\nand another\n", MOST);
        lines.flush(Duration::from_secs(10));
        assert_eq!(lines.dropped.load(Ordering::Relaxed) as usize, dropped + 2);
    }
}
