//! Signs of life of the threads that a client needs.
//!
//! A watcher sends each thread a question by the way of its other work, and the thread beats once
//! it comes to the question. So an idle thread beats too, no thread has a timer for it, and no
//! message costs anything. A thread that hangs has one question in its way, whatever the number of
//! askers.

use crate::time::Instant;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;

/// The sign of life of one thread.
#[derive(Debug)]
pub struct Pulse {
    /// The time of the question that the thread has not come to, in milliseconds since the start;
    /// [`Instant::NEVER`] without a question.
    asked: AtomicU64,
}

impl Default for Pulse {
    fn default() -> Pulse {
        Pulse { asked: AtomicU64::new(Instant::NEVER.as_millis()) }
    }
}

impl Pulse {
    /// Answers the question, if there is one. For the thread itself. Costs a read without a
    /// question.
    pub fn beat(&self) {
        if !self.asked().is_never() {
            self.set(Instant::NEVER);
        }
    }

    fn asked(&self) -> Instant {
        Instant::from_millis(self.asked.load(Ordering::Relaxed))
    }

    fn set(&self, asked: Instant) {
        self.asked.store(asked.as_millis(), Ordering::Relaxed);
    }
}

impl actix::Message for Pulse {
    type Result = ();
}

/// A question to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PulseQuestion {
    /// The thread has come to the question before.
    New,
    /// The thread has not come to it yet.
    Again,
}

/// The work of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadWork {
    /// The thread serves clients. To start the process again helps against a hang.
    Serves,
    /// The thread commits what is stored. If it hangs, to start the process again helps nobody, and
    /// another node of a cluster does.
    Commits,
    /// The thread reads what is stored, page after page, and may have many pages in its way.
    Reads,
}

/// The thread has ended, because nobody needs it any more.
#[derive(Clone, Copy, Debug)]
pub struct Ended;

/// A thread that has not come to its question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateThread {
    /// The name, which `/proc/PID/task/TID/comm` has, too.
    pub name: Box<str>,
    /// The work of the thread.
    pub work: ThreadWork,
    /// The time since the question.
    pub since: Duration,
}

/// The threads that a client needs. The lock is held for no system call: a thread that hangs in one
/// must not keep others from the list.
#[derive(Debug, Default)]
pub struct Pulses(Mutex<Vec<Arc<WatchedThread>>>);

/// Asks a thread, by the way of its other work.
type Ask = Box<dyn Fn(&Arc<Pulse>, PulseQuestion) -> Result<(), Ended> + Send + Sync>;

struct WatchedThread {
    name: Box<str>,
    work: ThreadWork,
    pulse: Arc<Pulse>,
    ask: Ask,
}

impl std::fmt::Debug for WatchedThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:?}", self.name, self.pulse)
    }
}

impl Pulses {
    /// Watches a thread. `ask` leads a question to it, must not block, and is called again with
    /// each further question while the thread has not come to the first.
    pub fn watch(
        &self,
        name: impl Into<Box<str>>,
        work: ThreadWork,
        pulse: Arc<Pulse>,
        ask: impl Fn(&Arc<Pulse>, PulseQuestion) -> Result<(), Ended> + Send + Sync + 'static,
    ) {
        let thread = WatchedThread { name: name.into(), work, pulse, ask: Box::new(ask) };
        self.lock().push(Arc::new(thread));
    }

    /// Watches a thread that gets each question as a message, until the end of the process.
    pub fn watch_once(
        &self,
        name: impl Into<Box<str>>,
        work: ThreadWork,
        send: impl Fn(Arc<Pulse>) + Send + Sync + 'static,
    ) {
        self.watch(name, work, Arc::default(), move |pulse, question| {
            if question == PulseQuestion::New {
                send(Arc::clone(pulse));
            }
            Ok(())
        });
    }

    /// Watches a thread with an event loop, until the returned task ends. The thread has to run it.
    pub fn watch_loop(&self, name: &str) -> impl Future<Output = ()> + Send + use<> {
        let (questions, mut asked) = unbounded_channel::<Arc<Pulse>>();
        let ask = move |pulse: &Arc<Pulse>, question| match question {
            PulseQuestion::New => questions.send(Arc::clone(pulse)).map_err(|_| Ended),
            PulseQuestion::Again => Ok(()),
        };
        self.watch(name, ThreadWork::Serves, Arc::default(), ask);
        async move {
            while let Some(pulse) = asked.recv().await {
                pulse.beat();
            }
        }
    }

    /// Asks each thread for a sign of life.
    pub fn ask(&self, now: Instant) {
        let mut threads = self.lock().clone();
        // The question wakes the thread, which is a system call.
        threads.retain(|thread| {
            let question =
                if thread.pulse.asked().is_never() { PulseQuestion::New } else { PulseQuestion::Again };
            if question == PulseQuestion::New {
                thread.pulse.set(now);
            }
            (thread.ask)(&thread.pulse, question).is_err()
        });
        if !threads.is_empty() {
            self.lock().retain(|thread| !threads.iter().any(|ended| Arc::ptr_eq(ended, thread)));
        }
    }

    /// Returns the threads that have not come to their question for this long.
    pub fn late(&self, now: Instant, limit: Duration) -> Vec<LateThread> {
        let threads = self.lock().clone();
        let late = threads.iter().filter_map(|thread| {
            let since = now.since(thread.pulse.asked());
            let late = || LateThread { name: thread.name.clone(), work: thread.work, since };
            (since >= limit).then(late)
        });
        late.collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<WatchedThread>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives this thread a name in `/proc/PID/task/TID/comm`. For threads that others start. The kernel
/// keeps 15 bytes.
pub fn name_thread(name: &str) {
    // Without /proc the thread keeps the name of who started it.
    drop(std::fs::write("/proc/thread-self/comm", name));
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(3);

    fn late(pulses: &Pulses, now: Instant) -> Vec<String> {
        pulses.late(now, LIMIT).into_iter().map(|late| late.name.into()).collect()
    }

    #[test]
    fn a_thread_is_late_from_its_first_question_on_until_it_beats_and_an_idle_one_never_is() {
        let (pulses, hangs) = (Pulses::default(), Arc::new(Pulse::default()));
        pulses.watch("hangs", ThreadWork::Serves, Arc::clone(&hangs), |_, _| Ok(()));
        pulses.watch("idle", ThreadWork::Serves, Arc::default(), |pulse, _| {
            pulse.beat();
            Ok(())
        });
        let start = Instant::from_millis(1_000);
        assert!(late(&pulses, start + LIMIT).is_empty(), "nobody has asked");
        for later in [Duration::ZERO, LIMIT / 2, LIMIT] {
            pulses.ask(start + later);
            assert_eq!(late(&pulses, start + later).is_empty(), later < LIMIT);
        }
        assert_eq!(late(&pulses, start + LIMIT), ["hangs"]);
        hangs.beat();
        assert!(late(&pulses, start + LIMIT).is_empty());
    }

    #[test]
    fn one_question_is_in_the_way_of_a_thread_with_a_loop_and_one_that_ended_is_forgotten() {
        let pulses = Pulses::default();
        let answers = pulses.watch_loop("loop");
        let start = Instant::from_millis(1_000);
        (0..9).for_each(|_| pulses.ask(start));
        assert_eq!(late(&pulses, start + LIMIT), ["loop"]);
        let mut answers = Box::pin(answers);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(answers.as_mut().poll(&mut context).is_pending());
        assert!(late(&pulses, start + LIMIT).is_empty());
        drop(answers);
        pulses.ask(start);
        assert!(late(&pulses, start + LIMIT).is_empty());
    }
}
