//! The reasons why a command of `homing ctl` has no result.

use std::io;
use std::path::PathBuf;

/// The reasons why a command has no result.
#[derive(Debug, thiserror::Error)]
pub enum CtlError {
    /// Nobody answers.
    #[error("{}: {cause}; does the broker run, with this admin.socket?", .socket.display())]
    NotReachable {
        /// The Unix socket.
        socket: PathBuf,
        /// The system's answer.
        cause: io::Error,
    },
    /// The broker refused.
    #[error("{0}")]
    Refused(String),
    /// The configuration has mistakes, one on a line. Nothing changed.
    #[error("nothing is changed:\n{0}")]
    Configuration(String),
    /// The answer is not HTTP or JSON.
    #[error("the answer cannot be read: {0}")]
    Answer(String),
}
