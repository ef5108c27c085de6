//! The threads that wait for the engine. Each has one kind of question, so that a slow answer holds
//! up no other kind. They end with their channels; a call to the engine is bounded in time.
//!
//! | thread | asks |
//! |---|---|
//! | `homing-append` | to append a frame |
//! | `homing-ask` | for the ends of the log, and for the frame at one position |
//! | `homing-follow` | for the next frames |

use super::append_times::AppendTimes;
use super::engine::{Append, Engine, MAX_FRAME};
use super::messages::DriverInput;
use crate::clock;
use crate::persistence::ownership::{AppendId, AppendReply, Position};
use bytes::Bytes;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
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
        let (appends, jobs) = channel();
        spawn("homing-append", engine, driver, jobs, move |engine, job| append(engine, job, &times))?;
        let (questions, jobs) = channel();
        spawn("homing-ask", engine, driver, jobs, answer)?;
        let (follows, jobs) = channel();
        spawn("homing-follow", engine, driver, jobs, follow)?;
        Ok(Workers { appends, questions, follows })
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
}

fn spawn<J: Send + 'static>(
    name: &str,
    engine: &Arc<dyn Engine>,
    driver: &Sender<DriverInput>,
    jobs: Receiver<J>,
    work: impl Fn(&dyn Engine, J) -> DriverInput + Send + 'static,
) -> io::Result<()> {
    let (engine, driver) = (Arc::clone(engine), driver.clone());
    let run = move || {
        while let Ok(job) = jobs.recv() {
            if driver.send(work(&*engine, job)).is_err() {
                return;
            }
        }
    };
    Builder::new().name(name.into()).spawn(run).map(drop)
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
