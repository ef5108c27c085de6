//! The level of the log: which lines are written. An operator may change it while the broker runs.
//!
//! A change costs the message path nothing: a line that the level hides is known by a cached flag.

use crate::config::is_log_level;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use tracing_subscriber::EnvFilter;

/// Directives before those of the operator. The HTTP server logs its own start, and an error for
/// each request that is no HTTP, which any scanner of ports could repeat without an end. The client
/// of NATS logs each attempt to connect, ten in a second; `cluster::nats` says what matters of it.
const QUIET: &str = "actix_server=warn,actix_http=off,async_nats=off";

/// The directive behind those of the operator: lines about operators are always written.
const AUDIT: &str = "homing::audit=info";

/// Replaces the filter of the log. Returns false if the log is gone.
type Replace = Box<dyn Fn(EnvFilter) -> bool + Send + Sync>;

/// The level of the process's log.
static CONTROL: OnceLock<Mutex<LevelControl>> = OnceLock::new();

struct LevelControl {
    replace: Replace,
    /// The level of the configuration.
    configured: String,
    /// The level of an operator, while it holds.
    temporary: Option<String>,
    /// Grows with each change, so that the end of an earlier change undoes no later one.
    change: u64,
}

/// A change of the level that has an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelChange(u64);

/// The reasons why a level is not set.
#[derive(Debug, thiserror::Error)]
pub enum LevelError {
    /// The text is no level.
    #[error(
        "{0:?} is no log level: use error, warn, info, debug, trace, or directives such as info,homing::broker=debug"
    )]
    Invalid(String),
    /// This process has no log.
    #[error("the log of this process was not started")]
    NoLog,
}

/// Returns the filter of these directives. The directives were checked, so the fallback is never
/// used.
pub(super) fn filter(level: &str) -> EnvFilter {
    EnvFilter::builder().parse(format!("{QUIET},{level},{AUDIT}")).unwrap_or_default()
}

/// Notes how the filter of the log is replaced.
pub(super) fn started(level: &str, replace: Replace) {
    let control = LevelControl { replace, configured: level.to_owned(), temporary: None, change: 0 };
    // A process has one log.
    let _ = CONTROL.set(Mutex::new(control));
}

/// Sets the level of the configuration. A level that an operator had set ends.
///
/// # Errors
/// The text is no level, or the process has no log.
pub fn configure(level: &str) -> Result<(), LevelError> {
    check(level)?;
    let mut control = control()?;
    let configured = level.to_owned();
    control.put(|control| (control.configured, control.temporary) = (configured, None))
}

/// Sets the level until [`end`] or the next [`configure`]. Returns what [`end`] takes.
///
/// # Errors
/// The text is no level, or the process has no log.
pub fn set(level: &str) -> Result<LevelChange, LevelError> {
    check(level)?;
    let mut control = control()?;
    let level = level.to_owned();
    control.put(|control| control.temporary = Some(level))?;
    Ok(LevelChange(control.change))
}

/// Ends a change: the level of the configuration holds again. Returns the level that holds then, or
/// `None` if the level was changed again in the meantime.
pub fn end(change: LevelChange) -> Option<String> {
    let mut control = control().ok()?;
    if control.change != change.0 {
        return None;
    }
    control.put(|control| control.temporary = None).ok()?;
    Some(control.configured.clone())
}

/// Returns the level that holds, as an operator wrote it; `None` if the process has no log.
pub fn current() -> Option<String> {
    control().ok().map(|control| control.level().to_owned())
}

/// Checks directives as the configuration does.
fn check(level: &str) -> Result<(), LevelError> {
    if is_log_level(level) { Ok(()) } else { Err(LevelError::Invalid(level.chars().take(256).collect())) }
}

fn control() -> Result<MutexGuard<'static, LevelControl>, LevelError> {
    let control = CONTROL.get().ok_or(LevelError::NoLog)?;
    // No code panics while the lock is held.
    Ok(control.lock().unwrap_or_else(PoisonError::into_inner))
}

impl LevelControl {
    fn level(&self) -> &str {
        self.temporary.as_ref().unwrap_or(&self.configured)
    }

    fn put(&mut self, change: impl FnOnce(&mut LevelControl)) -> Result<(), LevelError> {
        change(self);
        self.change += 1;
        if (self.replace)(filter(self.level())) { Ok(()) } else { Err(LevelError::NoLog) }
    }
}
