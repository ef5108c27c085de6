//! Files of the operator are read on threads of their own, with a limit on the time.
//!
//! A disk that hangs, a dead network file system or a FIFO without a writer may hold a read for
//! ever. No thread that serves clients or operators waits for one. The threads are never joined, so
//! a read that hangs holds up no stop of the process either.

use crate::clock;
use crate::time::Instant;
use bytesize::ByteSize;
use std::any::Any;
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;
use tokio::sync::oneshot;

thread_local! {
    /// The read of this thread, for the name of its file, if it is a thread of [`FileThread`].
    static NOTED: RefCell<Option<Arc<Mutex<FileRead>>>> = const { RefCell::new(None) };
}

/// The readers of one kind of file: one thread at a time. So reads that hang do not pile up.
#[derive(Clone, Debug)]
pub struct FileThread {
    /// At most 15 bytes, because the kernel keeps no more.
    name: &'static str,
    limits: ReadLimits,
    reading: Arc<Mutex<FileRead>>,
}

/// The time that a caller waits.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    /// For one operation on a file. Longer, and its disk hangs.
    pub operation: Duration,
    /// For the whole read. The rules of a million users are compiled for seconds on a busy machine.
    pub whole: Duration,
}

impl ReadLimits {
    /// Returns one limit for an operation and for the whole read.
    pub const fn both(limit: Duration) -> ReadLimits {
        ReadLimits { operation: limit, whole: limit }
    }

    /// Returns the time until the next look at a read, or the limit that it has passed.
    fn left(self, of_operation: Duration, of_whole: Duration) -> Result<Duration, Duration> {
        if of_operation >= self.operation {
            return Err(self.operation);
        }
        let left = self.whole.saturating_sub(of_whole);
        if left.is_zero() { Err(self.whole) } else { Ok(left.min(self.operation - of_operation)) }
    }
}

/// The read that is under way, if there is one.
#[derive(Debug, Default)]
struct FileRead {
    is_under_way: bool,
    /// The file that was opened last; empty if none was.
    file: PathBuf,
    /// The begin of the operation on it; `None` if it is done.
    since: Option<Instant>,
}

/// The reason why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum NotRead {
    /// The read was not done within the limit. The read goes on, and its result is dropped.
    #[error("{} was not read within {} s; see if its disk or network file system hangs", shown(.0), .1.as_secs_f64())]
    Late(PathBuf, Duration),
    /// An earlier read is under way.
    #[error("an earlier read of {} is not done; see if its disk or network file system hangs", shown(.0))]
    Busy(PathBuf),
    /// The system refuses the thread, or the thread ended without a result.
    #[error("the thread for files: {0}")]
    NoThread(io::Error),
}

impl NotRead {
    /// Returns the file that hangs; `None` if none is known.
    pub fn file(&self) -> Option<&Path> {
        match self {
            NotRead::Late(file, _) | NotRead::Busy(file) => Some(file),
            NotRead::NoThread(_) => None,
        }
    }
}

impl FileThread {
    /// Returns readers with a thread of this name.
    pub fn new(name: &'static str, limits: ReadLimits) -> FileThread {
        FileThread { name, limits, reading: Arc::default() }
    }

    /// Runs `read` on a thread, and returns its result. The system's file operations in it are to
    /// be announced with [`opens`], so that an error names the file.
    ///
    /// A caller that stops waiting ends nothing: the read goes on, and keeps its seat.
    ///
    /// # Errors
    /// The read takes too long, an earlier one is not done, or there is no thread for it.
    pub async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotRead> {
        let seat = ReadSeat::take(&self.reading).map_err(NotRead::Busy)?;
        let (done, result) = oneshot::channel();
        let work = move || {
            NOTED.set(Some(Arc::clone(&seat.0)));
            let result = read();
            // Another read may begin once the caller has the result.
            drop(seat);
            // The result of a late read is dropped here, and not on a thread that serves.
            drop(done.send(result));
        };
        Builder::new().name(self.name.to_owned()).spawn(work).map_err(NotRead::NoThread)?;
        self.wait(result).await
    }

    /// Waits for a result within the limits.
    ///
    /// # Errors
    /// A limit passed, or the thread ended without a result.
    async fn wait<T>(&self, mut result: oneshot::Receiver<T>) -> Result<T, NotRead> {
        let began = clock::now();
        let mut wait = self.limits.operation.min(self.limits.whole);
        loop {
            match tokio::time::timeout(wait, &mut result).await {
                Ok(Ok(result)) => return Ok(result),
                Ok(Err(_)) => return Err(NotRead::NoThread(io::Error::other("it ended without a result"))),
                Err(_) => {}
            }
            let (reading, now) = (lock(&self.reading), clock::now());
            let of_operation = reading.since.map_or(Duration::ZERO, |since| now.since(since));
            wait = self
                .limits
                .left(of_operation, now.since(began))
                .map_err(|limit| NotRead::Late(reading.file.clone(), limit))?;
        }
    }
}

/// Returns the content of a file that has at most `most` bytes. Reads no more, because a device or a
/// file that grows has no end.
///
/// # Errors
/// The system refuses the file, or it is larger.
pub fn read_within(file: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let file = File::open(file)?;
    // As much as the whole file at once, so that a secret is not left in smaller buffers.
    content.reserve_exact(usize::try_from(file.metadata()?.len().min(most)).unwrap_or_default() + 1);
    file.take(most + 1).read_to_end(&mut content)?;
    if content.len() as u64 > most {
        let too_large = format!("it is larger than {}", ByteSize::b(most));
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, too_large));
    }
    Ok(content)
}

/// Notes the file that this thread is about to open or to look at, until the value is dropped: for
/// the limit, and for the error of a read that hangs. Does nothing on other threads than those of
/// [`FileThread`].
pub fn opens(file: &Path) -> OpenedFile {
    note(|reading| {
        file.clone_into(&mut reading.file);
        reading.since = Some(clock::now());
    });
    OpenedFile(())
}

/// An operation on a file.
#[must_use]
#[derive(Debug)]
pub struct OpenedFile(());

impl Drop for OpenedFile {
    fn drop(&mut self) {
        note(|reading| reading.since = None);
    }
}

fn note(change: impl FnOnce(&mut FileRead)) {
    NOTED.with_borrow(|noted| {
        if let Some(reading) = noted {
            change(&mut lock(reading));
        }
    });
}

/// The seat of the one read. The seat is given back when the read ends, also with a panic.
struct ReadSeat(Arc<Mutex<FileRead>>);

impl ReadSeat {
    /// Takes the seat.
    ///
    /// # Errors
    /// Another read has it. Returns its file.
    fn take(reading: &Arc<Mutex<FileRead>>) -> Result<ReadSeat, PathBuf> {
        let mut one = lock(reading);
        if one.is_under_way {
            return Err(one.file.clone());
        }
        *one = FileRead { is_under_way: true, ..FileRead::default() };
        drop(one);
        Ok(ReadSeat(Arc::clone(reading)))
    }
}

impl Drop for ReadSeat {
    fn drop(&mut self) {
        lock(&self.0).is_under_way = false;
    }
}

fn lock(reading: &Mutex<FileRead>) -> MutexGuard<'_, FileRead> {
    reading.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shown(file: &Path) -> String {
    if file.as_os_str().is_empty() { "a file".to_owned() } else { file.display().to_string() }
}

/// Values that are replaced and that other threads may still use: rules of 100,000 users take 11 ms
/// to free. The owner keeps a reference to each, so that no other thread has the last one.
#[derive(Debug, Default)]
pub struct Retired(Vec<Arc<dyn Any + Send + Sync>>);

impl Retired {
    /// Keeps a value that was replaced. Duplicates are not kept.
    pub fn keep<T: Any + Send + Sync>(&mut self, value: Arc<T>) {
        let value: Arc<dyn Any + Send + Sync> = value;
        if !self.0.iter().any(|kept| Arc::ptr_eq(kept, &value)) {
            self.0.push(value);
        }
    }

    /// Frees the values that nobody else uses any more, on a thread for that.
    pub fn free(&mut self) {
        let unused: Vec<_> = self.0.extract_if(.., |value| Arc::strong_count(value) == 1).collect();
        if !unused.is_empty() {
            free(unused);
        }
    }
}

/// Drops a value on a thread for that, because a large one takes long.
pub fn free<T: Send + 'static>(value: T) {
    // A system that refuses the thread drops the value here.
    drop(Builder::new().name("homing-free".to_owned()).spawn(move || drop(value)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const LONG: ReadLimits = ReadLimits::both(Duration::from_secs(10));

    fn wait<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("an event loop").block_on(work)
    }

    #[test]
    fn a_read_that_hangs_is_refused_with_its_file_and_keeps_the_only_place_until_it_ends() {
        let files =
            FileThread::new("homing-test", ReadLimits { operation: Duration::from_millis(20), ..LONG });
        let (release, hangs) = mpsc::channel::<()>();
        let (ends, ended) = mpsc::channel::<()>();
        let read = move || {
            let _opened = opens(Path::new("/net/acl"));
            let _ends = ends;
            let _ = hangs.recv();
        };
        let refused = |error: NotRead| error.to_string();
        let late = wait(files.run(read)).map_err(refused);
        let hint = "see if its disk or network file system hangs";
        assert_eq!(late, Err(format!("/net/acl was not read within 0.02 s; {hint}")));
        let busy = wait(files.run(|| 1)).map_err(refused);
        assert_eq!(busy, Err(format!("an earlier read of /net/acl is not done; {hint}")));
        drop(release);
        let _ = ended.recv();
        let free = || wait(files.run(|| 2)).ok();
        let again = std::iter::repeat_with(free).take(10_000).flatten().next();
        assert_eq!(again, Some(2), "the seat is free again");
    }

    #[test]
    fn a_read_that_computes_has_more_time_than_an_operation_that_hangs() {
        let limits = ReadLimits { operation: Duration::from_secs(5), whole: Duration::from_secs(60) };
        let left = |of_operation, of_whole| {
            let left = limits.left(Duration::from_secs(of_operation), Duration::from_secs(of_whole));
            left.map(|left| left.as_secs()).map_err(|limit| limit.as_secs())
        };
        assert_eq!([left(0, 5), left(2, 30), left(0, 58)], [Ok(5), Ok(3), Ok(2)]);
        assert_eq!([left(5, 5), left(0, 60)], [Err(5), Err(60)]);
        let file = || drop(opens(Path::new("/net/acl")));
        let limits = ReadLimits { operation: Duration::from_millis(1), ..LONG };
        let compiles = move || {
            file();
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(wait(FileThread::new("homing-test", limits).run(compiles)).is_ok());
    }

    #[test]
    fn a_file_without_an_end_is_read_within_its_bound() {
        let refused = read_within(Path::new("/dev/zero"), 1 << 20).map_err(|error| error.to_string());
        assert_eq!(refused, Err("it is larger than 1.0 MiB".to_owned()));
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("file");
        std::fs::write(&file, "1234").expect("a file");
        assert_eq!(read_within(&file, 4).ok(), Some(b"1234".to_vec()));
        assert!(read_within(&file, 3).is_err() && read_within(folder.path(), 3).is_err());
    }

    #[test]
    fn a_read_that_panics_gives_its_place_back() {
        let files = FileThread::new("homing-test", LONG);
        let panics = wait(files.run(|| panic!("as the test wants")));
        assert!(matches!(panics, Err(NotRead::NoThread(_))), "{panics:?}");
        assert_eq!(wait(files.run(|| 1)).ok(), Some(1));
    }

    #[test]
    fn a_retired_value_is_freed_on_another_thread_once_nobody_else_has_it() {
        struct Freed(mpsc::Sender<std::thread::ThreadId>);
        impl Drop for Freed {
            fn drop(&mut self) {
                let _ = self.0.send(std::thread::current().id());
            }
        }
        let (freed, who) = mpsc::channel();
        let (value, mut retired) = (Arc::new(Freed(freed)), Retired::default());
        retired.keep(Arc::clone(&value));
        retired.keep(Arc::clone(&value));
        retired.free();
        assert_eq!(retired.0.len(), 1, "a shard has it");
        drop(value);
        assert!(who.try_recv().is_err(), "the last reference is not that of the shard");
        retired.free();
        let thread = who.recv_timeout(Duration::from_secs(10)).expect("it is freed");
        assert_ne!(thread, std::thread::current().id());
    }
}
