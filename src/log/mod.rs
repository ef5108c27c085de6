//! The log of the process: its lines, their format, their level, and the thread that writes them.
//! The log of frames is [`crate::store::log`].
//!
//! Each line has an event code, such as `client.disconnected`, in the field `event`. The codes are
//! stable, and `docs/log-events.md` lists them. `tests/layers.rs` compares this list with the
//! source, and finds lines without a code.
//!
//! | file | concern |
//! |---|---|
//! | [`mod@format`] | one line as text, as JSON, or for systemd's journal |
//! | [`level`] | which lines are written, also changed while the broker runs |
//! | [`stderr`] | the thread that writes, so that no other thread waits for the reader |
//! | `tap` | the lines on their way to the export by OTLP |

pub mod format;
pub mod level;
pub mod stderr;
#[cfg(feature = "otlp")]
pub mod tap;

use crate::config::{Log, LogFormat};
use format::LineFormat;
use rustix::fs::fstat;
use std::backtrace::Backtrace;
use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use tracing_subscriber::util::SubscriberInitExt;

/// Starts the log of the process, and logs panics. Later calls change nothing.
pub fn start(options: &Log) {
    let line_format = match options.format {
        LogFormat::Auto if is_journal(std::env::var_os("JOURNAL_STREAM").as_deref()) => LineFormat::Journal,
        LogFormat::Journal => LineFormat::Journal,
        LogFormat::Json => LineFormat::Json,
        LogFormat::Auto | LogFormat::Text => LineFormat::Text,
    };
    let log = tracing_subscriber::fmt()
        .with_ansi(line_format == LineFormat::Text && io::stderr().is_terminal())
        .event_format(line_format)
        .with_writer(|| stderr::LogWriter)
        .with_env_filter(level::filter(&options.level))
        .with_filter_reloading();
    let handle = log.reload_handle();
    if log.finish().try_init().is_ok() {
        level::started(&options.level, Box::new(move |filter| handle.reload(filter).is_ok()));
    }
    // The panic is written behind the lines that led to it. The wait for a reader is bounded.
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        stderr::say_last(&format!("thread '{name}' {panic}\n{}\n", Backtrace::capture()));
    }));
}

/// Returns true if standard error is the stream to systemd's journal that `JOURNAL_STREAM` names,
/// as device:inode. A child whose standard error was redirected may have inherited the variable.
fn is_journal(stream: Option<&OsStr>) -> bool {
    let named = stream.and_then(|stream| stream.to_str()?.split_once(':'));
    let Some((device, inode)) = named else { return false };
    fstat(io::stderr())
        .is_ok_and(|file| device.parse() == Ok(file.st_dev) && inode.parse() == Ok(file.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_known_by_the_device_and_inode_of_standard_error() {
        let file = fstat(io::stderr()).unwrap();
        let own = format!("{}:{}", file.st_dev, file.st_ino);
        assert!(is_journal(Some(OsStr::new(&own))));
        assert!(!is_journal(Some(OsStr::new(&format!("{own}1")))));
        assert!(!is_journal(Some(OsStr::new("8"))) && !is_journal(None));
    }
}
