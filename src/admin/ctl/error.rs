//! The reasons why a command of `homing ctl` has no result.

use std::io;

/// The reasons why a command has no result.
#[derive(Debug, thiserror::Error)]
pub enum CtlError {
    /// Nobody answers.
    #[error("{endpoint}: {cause}; {advice}")]
    NotReachable {
        /// The Unix socket or the URL.
        endpoint: String,
        /// The answer of the system or of TLS.
        cause: io::Error,
        /// The suggested fix.
        advice: &'static str,
    },
    /// The broker refused.
    #[error("{0}")]
    Refused(String),
    /// The broker does not know a word, or has no client, message or trace of a name.
    #[error("{0}")]
    Argument(String),
    /// The configuration has mistakes, one on a line. Nothing changed.
    #[error("nothing is changed:\n{0}")]
    Configuration(String),
    /// The answer is not HTTP or JSON.
    #[error("the answer cannot be read: {0}")]
    Answer(String),
}
