//! The threads that wait for the engine or for the disk. Each does one kind of work, so that a slow
//! answer holds up no other kind. They end with their channels; a call to the engine is bounded in
//! time.
//!
//! | thread | does |
//! |---|---|
//! | `homing-append` | appends a frame to the log |
//! | `homing-ask` | asks for the ends of the log, and for the frame at one position |
//! | `homing-follow` | asks for the next frames |
//! | `homing-write` | writes the database of a standby |

use super::append_times::AppendTimes;
use super::engine::{Append, Engine, MAX_FRAME};
use super::messages::DriverInput;
use super::writes::DatabaseWrite;
use crate::clock;
use crate::ownership::{AppendId, AppendReply, Position};
use bytes::Bytes;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::Builder;
use std::time::Duration;

/// The time that a node waits for the next frame before it asks for it.
const TIP: Duration = Duration::from_millis(250);
/// The time until the next question for frames that the engine has, and that a server does not have.
const LAGS: Duration = Duration::from_millis(50);
/// Bytes that are read at once.
const READ: usize = 4 << 20;

/// A frame on its way.
pub(super) struct AppendJob {
    pub id: AppendId,
    pub position: Position,
    pub frame: Bytes,
}

enum Question {
    Ends,
    Frame(AppendId, Position),
}

/// A question for the frames behind a position.
struct FollowJob {
    after: u64,
    /// The node has all frames, as far as it knows.
    waits: bool,
}

/// See the module.
pub(super) struct Workers {
    appends: Sender<AppendJob>,
    questions: Sender<Question>,
    follows: Sender<FollowJob>,
    writes: Sender<DatabaseWrite>,
}

impl Workers {
    /// Starts the threads. Their answers go to the driver, and the times of stored frames to `times`.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(super) fn start(
        engine: &Arc<dyn Engine>,
        driver: &Sender<DriverInput>,
        times: Arc<AppendTimes>,
    ) -> io::Result<Workers> {
        let [appending, asking, following] = [(); 3].map(|()| Arc::clone(engine));
        let appends = spawn("homing-append", driver, move |job| append(&*appending, job, &times))?;
        let questions = spawn("homing-ask", driver, move |question| answer(&*asking, question))?;
        let follows = spawn("homing-follow", driver, move |job| follow(&*following, job))?;
        let write = |write: DatabaseWrite| DriverInput::Written(write.run().map(Box::new));
        let writes = spawn("homing-write", driver, write)?;
        Ok(Workers { appends, questions, follows, writes })
    }

    // A thread that has panicked has reported it, and the process ends.

    pub(super) fn append(&self, job: AppendJob) {
        let _ = self.appends.send(job);
    }

    pub(super) fn ask_ends(&self) {
        let _ = self.questions.send(Question::Ends);
    }

    pub(super) fn ask_frame(&self, id: AppendId, position: Position) {
        let _ = self.questions.send(Question::Frame(id, position));
    }

    pub(super) fn follow(&self, after: u64, waits: bool) {
        let _ = self.follows.send(FollowJob { after, waits });
    }

    pub(super) fn write(&self, write: DatabaseWrite) {
        let _ = self.writes.send(write);
    }
}

/// Starts a thread that does each job, and sends its outcome to the driver.
fn spawn<J: Send + 'static>(
    name: &str,
    driver: &Sender<DriverInput>,
    work: impl Fn(J) -> DriverInput + Send + 'static,
) -> io::Result<Sender<J>> {
    let (sender, jobs) = channel();
    let driver = driver.clone();
    let run = move || {
        while let Ok(job) = jobs.recv() {
            if driver.send(work(job)).is_err() {
                return;
            }
        }
    };
    Builder::new().name(name.into()).spawn(run)?;
    Ok(sender)
}

fn append(
    engine: &dyn Engine,
    AppendJob { id, position, frame }: AppendJob,
    times: &AppendTimes,
) -> DriverInput {
    let begun = clock::nanos();
    let reply = match engine.append(position.0 - 1, &frame) {
        Append::Applied(_) => {
            times.note(Duration::from_nanos(clock::nanos().saturating_sub(begun)));
            engine.announce(position.0);
            AppendReply::Stored
        }
        Append::NotLast => AppendReply::WrongLast,
        Append::Unknown(why) => return DriverInput::NoReply(id, why),
        Append::Full => AppendReply::Full,
        Append::Refused(why) => return DriverInput::Refused(id, why),
    };
    DriverInput::Reply(id, reply)
}

fn answer(engine: &dyn Engine, question: Question) -> DriverInput {
    match question {
        Question::Ends => DriverInput::Ends(engine.bounds()),
        Question::Frame(id, position) => {
            let found = engine.read(position.0 - 1, MAX_FRAME);
            DriverInput::Frame(id, position, found)
        }
    }
}

fn follow(engine: &dyn Engine, FollowJob { after, waits }: FollowJob) -> DriverInput {
    if waits {
        let _ = engine.wait_for_tip(after, TIP);
    }
    let frames = engine.read(after, READ).unwrap_or_default();
    if frames.is_empty() && !waits {
        // The engine said that there is more, and a server that lags does not have it yet.
        std::thread::sleep(LAGS);
    }
    DriverInput::Frames(frames)
}
