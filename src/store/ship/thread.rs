//! The shipping thread: its start, and what it does next.

use super::base::{self, BaseCopy, Making};
use super::generation::Generation;
use super::{MANY, ShipOptions, Shipping};
use crate::clock;
use crate::scheduling;
use crate::store::StoreError;
use crate::store::log::tail::{Gone, LogTail};
use crate::store::obstacle::Obstacle;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;
use tracing::{info, warn};

/// Bytes of frames that are written and forced to the disk together.
const CHUNK: usize = 4 << 20;
/// The longest time between two attempts on a folder that cannot be used.
const LONGEST_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 60_000 });

/// Why the thread does not get on.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The folder or a disk cannot be used for now. Says why.
    Blocked(String),
    /// The log does not have what comes next in the folder. Says why.
    Gone(String),
}

impl From<Gone> for Refusal {
    fn from(gone: Gone) -> Refusal {
        Refusal::Gone(gone.to_string())
    }
}

/// Starts the thread for the log of a data directory.
///
/// # Errors
/// The system refuses a thread.
pub(in crate::store) fn start(
    options: ShipOptions,
    data: PathBuf,
    log: u64,
    synced: u64,
) -> Result<Arc<Shipping>, StoreError> {
    let shipping = Arc::new(Shipping::new(options.to.clone(), synced));
    let of_thread = Arc::clone(&shipping);
    let run = move || run(options, data, log, &of_thread);
    // The thread may hang in a write for ever, so nobody joins it.
    match Builder::new().name("homing-ship".into()).spawn(run) {
        Ok(_) => Ok(shipping),
        Err(error) => Err(StoreError::Failed(format!("a thread for the store: {error}"))),
    }
}

/// Runs the thread until a stop.
fn run(options: ShipOptions, data: PathBuf, log: u64, shipping: &Arc<Shipping>) {
    scheduling::yield_to_traffic();
    let _ended = Ended(shipping);
    base::clear(&data);
    let (line, obstacle) = (None, Obstacle::default());
    let mut ship = Ship { options, data, log, shipping: Arc::clone(shipping), line, obstacle };
    let mut pause = Duration::ZERO;
    loop {
        // A folder that cannot be used is left alone for the whole pause.
        let many = if ship.line.is_some() { MANY } else { u64::MAX };
        shipping.wait(pause / 4, u64::MAX);
        shipping.wait(3 * pause / 4, many);
        let is_last = shipping.is_stopping();
        pause = ship.pass_within(pause);
        if is_last {
            return;
        }
    }
}

/// Reports the end of the thread, also that by a panic.
struct Ended<'s>(&'s Shipping);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.ended();
    }
}

struct Ship {
    options: ShipOptions,
    data: PathBuf,
    log: u64,
    shipping: Arc<Shipping>,
    /// `None` until it is known where the copy goes on.
    line: Option<Line>,
    obstacle: Obstacle,
}

/// Where frames come from and go to.
struct Line {
    tail: LogTail,
    generation: Generation,
    /// A copy of the database that is being made.
    making: Option<Making>,
    /// A base on its way.
    base: Option<BaseCopy>,
}

impl Ship {
    /// Ships what there is. Returns the time until the next pass; `pause` is the one before.
    fn pass_within(&mut self, pause: Duration) -> Duration {
        match self.pass() {
            Ok(is_carrying) => {
                if let Some(for_ms) = self.obstacle.gone(clock::now()) {
                    info!(event = "store.ship_again", for_ms, "the copy at store.ship_to goes on");
                }
                if is_carrying { Duration::ZERO } else { self.options.interval }
            }
            Err(Refusal::Gone(why)) => {
                self.shipping.give_up(&why);
                self.options.interval
            }
            // A stop ends a copy of the database.
            Err(Refusal::Blocked(_)) if self.shipping.is_stopping() => pause,
            Err(Refusal::Blocked(why)) => {
                if let Some(for_ms) = self.obstacle.met(clock::now()) {
                    warn!(
                        event = "store.ship_blocked",
                        for_ms,
                        why,
                        "the copy at store.ship_to cannot be written: the log keeps what is missing there, up to a bound"
                    );
                }
                (2 * pause).clamp(self.options.interval, LONGEST_PAUSE)
            }
        }
    }

    /// Returns true if there is a portion of a base to copy at once. After an error, the next pass
    /// looks at the folder anew.
    fn pass(&mut self) -> Result<bool, Refusal> {
        let line = self.line.take().filter(|_| !self.shipping.has_given_up());
        let mut line = match line {
            Some(line) => line,
            None => self.begin()?,
        };
        self.ship_frames(&mut line)?;
        let is_carrying = self.ship_base(&mut line)?;
        self.line = Some(line);
        Ok(is_carrying)
    }

    /// Goes on where the folder ends, if the log has what follows. Else begins with a new base.
    fn begin(&self) -> Result<Line, Refusal> {
        let mut generation = Generation::newest(&self.options.to, self.log)?;
        let end = generation.go_on()?;
        // The log may have freed what comes next, or found out that it had.
        let is_lost = self.shipping.has_given_up();
        self.shipping.keep_everything();
        if let Some(end) = end {
            let tail = LogTail::open(&self.data, self.log, end.position).ok().filter(|_| !is_lost);
            match tail {
                Some(tail) if tail.digest() == end.digest => {
                    self.shipping.shipped(end.position, 0);
                    return Ok(Line { tail, generation, making: None, base: None });
                }
                None if end.position <= self.shipping.target().0 => {}
                // The data directory is an older copy of itself: both pasts stay.
                _ => generation = generation.next()?,
            }
        }
        generation.leave_file();
        let base = self.make_base(&generation)?.end(&mut generation)?;
        let tail = LogTail::open(&self.data, self.log, base.end.position)?;
        if tail.digest() != base.end.digest {
            return Err(Refusal::Gone("the log does not go on from the database".to_owned()));
        }
        self.shipping.shipped(base.end.position, 0);
        Ok(Line { tail, generation, making: None, base: Some(base) })
    }

    fn make_base(&self, generation: &Generation) -> Result<Making, Refusal> {
        let shipping = Arc::clone(&self.shipping);
        Making::begin(&self.data, generation, move || !shipping.is_stopping())
    }

    /// Ships all frames that are on the disk at the beginning of the call.
    fn ship_frames(&self, Line { tail, generation, .. }: &mut Line) -> Result<(), Refusal> {
        let (until, written) = self.shipping.target();
        let (began, mut chunk) = (clock::now(), Vec::new());
        tail.forget();
        loop {
            let first = tail.position() + 1;
            chunk.clear();
            while chunk.len() < CHUNK
                && let Some(frame) = tail.next(until)?
            {
                chunk.extend_from_slice(frame);
                chunk.resize(chunk.len().next_multiple_of(8), 0);
            }
            if chunk.is_empty() {
                break;
            }
            generation.append(first, &chunk)?;
            self.shipping.shipped(tail.position(), chunk.len() as u64);
        }
        self.shipping.is_complete(began, written);
        Ok(())
    }

    /// Begins a base if one is due, or copies a portion of it. Returns true if there is more of it.
    fn ship_base(&self, Line { tail, generation, making, base }: &mut Line) -> Result<bool, Refusal> {
        if self.shipping.is_stopping() {
            return Ok(false);
        }
        if base.is_none() && making.is_none() && generation.needs_base() {
            *making = Some(self.make_base(generation)?);
        }
        if let Some(made) = making.take_if(|making| making.is_done()) {
            *base = Some(made.end(generation)?);
        }
        let Some(copy) = base else { return Ok(false) };
        // The frames before a base are there before its name is: else they would look lost.
        if !copy.carry()? || tail.position() < copy.end.position {
            return Ok(true);
        }
        if let Some(copy) = base.take() {
            let position = copy.end.position;
            generation.end_base(position, &copy.digest())?;
            let folder = generation.path().display();
            info!(event = "store.ship_base", position, %folder, "the copy at store.ship_to has a new base");
        }
        Ok(false)
    }
}
