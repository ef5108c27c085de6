//! Configuration: built-in defaults, then a file, then the environment, then flags; each layer beats the one before.
//!
//! [`Config`] is plain data. [`Sources`] reads and checks what an operator wrote, and answers with every problem at once;
//! a `Config` made in code is not checked. Nothing here is reloaded: a change needs a restart.

pub mod duration;
mod expiry;
mod keep_alive;
mod layer;
mod limits;
mod listeners;
mod log;
mod problem;
mod redelivery;
mod redelivery_rule;
mod runtime;
mod schema;
mod size;
mod sources;
mod store;
mod sys;

pub use expiry::Expiry;
pub use keep_alive::KeepAlive;
pub use limits::{Limits, QueuePolicy};
pub use listeners::Listeners;
pub use log::{Log, LogFormat};
pub use problem::{Problem, Refusal, Setting};
pub use redelivery::{OnAckTimeout, OnExhausted, Redelivery};
pub use redelivery_rule::{Glob, RedeliveryRule};
pub use runtime::Runtime;
pub use size::{ByteSize, InvalidSize};
pub use sources::{DEFAULT_FILE, Loaded, Sources};
pub use store::{Durability, Store};
pub use sys::Sys;

use serde::{Deserialize, Serialize};

/// Everything an operator can set; one field per section of the file. `Config::default()` is the built-in defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub runtime: Runtime,
    pub listeners: Listeners,
    pub limits: Limits,
    pub keep_alive: KeepAlive,
    pub expiry: Expiry,
    pub redelivery: Redelivery,
    pub store: Store,
    pub sys: Sys,
    pub log: Log,
}
