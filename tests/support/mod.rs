//! A second opinion on MQTT: a blocking client that builds and reads every packet by itself, knowing nothing of the
//! broker's own codec.
//!
//! The client does nothing on its own account. It never acknowledges, never pings and never closes unless a test
//! says so; it may send what no lawful client would. What it receives it reads strictly: a broken rule of
//! form (flags, identifiers, UTF-8, reason codes, properties out of place) fails the test that met it.
//!
//! Beside the client stand the brokers: `launch` starts one in this process, `process` the real program, `shim` a library between
//! the program and the system. `abuse` and `work` are traffic that several binaries play.

#![allow(dead_code, unused_imports, unused_macros, reason = "each test binary uses its own part of the kit")]

pub mod abuse;
pub mod client;
pub mod connect;
pub mod launch;
pub mod message;
pub mod packet;
pub mod process;
pub mod property;
pub mod shim;
pub mod wire;
pub mod work;

pub use client::RawClient;
pub use connect::{Connect, Will};
pub use message::Message;
pub use packet::{Kind, Packet, Publish};
pub use property::Property;
pub use wire::Version::{self, V5, V31, V311};

use std::time::{Duration, Instant};

/// How long anything that must come may take on a machine that many tests share.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// The clock of the tests; the crate's ban on reading one is about the broker.
#[expect(
    clippy::disallowed_methods,
    reason = "a black-box test measures from outside, with a clock of its own"
)]
pub fn now() -> Instant {
    Instant::now()
}
