//! The error of a run that gives no report.

use super::{client, refused};
use std::io;

/// The reason why there is no report, as one line.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    /// The arguments do not go together.
    #[error(transparent)]
    Refused(#[from] refused::Refused),
    /// A client cannot reach the broker.
    #[error(transparent)]
    Broken(#[from] client::Broken),
    /// The system gives no event loop or no timer.
    #[error("no event loop: {0}")]
    Runtime(#[from] io::Error),
}
