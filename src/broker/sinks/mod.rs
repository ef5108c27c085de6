//! Sinks: messages that the broker itself sends to HTTP services.
//!
//! Sinks run on the thread of the [bridges](super::bridges), and open their sessions in the same
//! way. A sink is a task of this thread. [`crate::sink::dispatcher::Dispatcher`] decides what it
//! does.
//!
//! | file | concern |
//! |---|---|
//! | `service` | one request: files, connection, answer |
//! | `hidden` | texts of a service without secrets |
//! | [`probe`] | a look at a service, for `homing doctor` |
//! | `pump` | the socket to the shard, and the requests that are open |
//! | `task` | the connections of one sink to its shard, one after the other |
//! | `status` | the state of a sink for operators |

#[cfg(feature = "sinks")]
mod hidden;
#[cfg(feature = "sinks")]
pub mod probe;
#[cfg(feature = "sinks")]
mod pump;
#[cfg(feature = "sinks")]
mod service;
pub mod status;
#[cfg(feature = "sinks")]
mod task;

#[cfg(feature = "sinks")]
pub use service::check_files;
#[cfg(feature = "sinks")]
pub(super) use task::SinkTask;
