//! The test kit: an MQTT client with a codec of its own, and ways to start a broker.
//!
//! The client blocks. It builds and reads every packet without the broker's codec. It acknowledges,
//! pings and closes only when a test says so, and it may send packets that no lawful client sends.
//! It reads strictly: a broken rule of form (flags, identifiers, UTF-8, reason codes, properties
//! out of place) fails the test.
//!
//! `launch` starts a broker in this process, and `process` starts the real program. `shim` builds a
//! library between the program and the system. `memory_store` is a store in memory that can be
//! copied. `faulty_store` is a store whose calls fail when a test says so. `passwords` makes
//! password files. `http_server` reads the requests of a server of a test. `abuse`, `operated` and `work` are traffic that several binaries use. `bystander`
//! and `pair` measure how long others wait meanwhile: the longest wait, and the share of messages
//! that are late.

#![allow(dead_code, unused_imports, unused_macros, reason = "each test binary uses its own part of the kit")]

pub mod abuse;
pub mod bystander;
pub mod client;
pub mod connect;
pub mod faulty_store;
pub mod http_server;
pub mod launch;
pub mod memory_store;
pub mod message;
pub mod operated;
pub mod packet;
pub mod pair;
pub mod passwords;
pub mod process;
pub mod property;
#[path = "../simulation/rng.rs"]
pub mod rng;
pub mod shim;
pub mod wire;
pub mod work;

pub use client::RawClient;
pub use connect::{Connect, Will};
pub use message::Message;
pub use packet::{Kind, Packet, Publish};
pub use passwords::password_file;
pub use property::Property;
pub use wire::Version::{self, V5, V31, V311};

use std::time::{Duration, Instant};

/// Time within which an expected event must come, on a machine that many tests share.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The clock of the tests; the crate's ban on reading one is about the broker.
#[expect(
    clippy::disallowed_methods,
    reason = "a black-box test measures from outside, with a clock of its own"
)]
pub fn now() -> Instant {
    Instant::now()
}

/// Looks again and again until `look` returns something. Returns that.
///
/// # Panics
/// Nothing came within [`PATIENCE`]. `what` says in the failure what was awaited.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(now() - started < PATIENCE, "{what} did not come");
        std::thread::yield_now();
    }
}
