//! The engine behind [`Engine`]: NATS JetStream.
//!
//! One thread runs the client of NATS, and callers wait for it with a bound. Of the client only
//! requests, publications and subscriptions are used: JetStream's interface is JSON over requests,
//! and what needs no consumer cannot hang with one.
//!
//! | file | concern |
//! |---|---|
//! | `settings` | where the servers are |
//! | `names` | the names of streams and subjects |
//! | `client` | the connection with the names |
//! | `failure` | what NATS's error codes mean |
//! | `link` | the connection, its thread, and the change of the server |
//! | `wire` | requests and their answers |
//! | `log` | appends, reads, ends, purges |
//! | `tip` | what other nodes announce |
//! | `rows` | the rows: a key-value bucket |
//! | `snapshots` | the snapshots: an object store |
//! | `setup` | makes streams, and compares their settings with what is needed |
//! | `monitor` | what a server says about itself over HTTP |

mod client;
mod failure;
mod link;
mod log;
mod monitor;
mod names;
mod rows;
mod settings;
mod setup;
mod snapshots;
mod tip;
mod wire;

pub use client::Nats;
pub use settings::{NatsSettings, OpenError};

use crate::cluster::engine::{Append, Bounds, Check, Engine, EngineError, Row, SnapshotError};
use bytes::Bytes;
use std::io::{Read, Write};
use std::time::Duration;

impl Engine for Nats {
    fn append(&self, last: u64, frame: &Bytes) -> Append {
        log::append(self, last, frame)
    }

    fn read(&self, after: u64, bytes: usize) -> Result<Vec<(u64, Bytes)>, EngineError> {
        log::read(self, after, bytes)
    }

    fn bounds(&self) -> Result<Bounds, EngineError> {
        log::bounds(self)
    }

    fn purge(&self, up_to: u64) -> Result<(), EngineError> {
        log::purge(self, up_to)
    }

    fn begin_behind(&self, position: u64) -> Result<(), EngineError> {
        log::begin_behind(self, position)
    }

    fn announce(&self, position: u64) {
        self.link.announce(&self.names.tip, position);
    }

    fn wait_for_tip(&self, after: u64, limit: Duration) -> Option<u64> {
        self.tip.wait(after, limit)
    }

    fn put_snapshot(&self, position: u64, from: &mut dyn Read) -> Result<(), SnapshotError> {
        snapshots::put(self, position, from)
    }

    fn get_snapshot(&self, position: u64, into: &mut dyn Write) -> Result<(), SnapshotError> {
        snapshots::get(self, position, into)
    }

    fn snapshots(&self) -> Result<Vec<u64>, EngineError> {
        snapshots::list(self)
    }

    fn remove_snapshots(&self, position: u64) -> Result<(), EngineError> {
        snapshots::remove(self, position)
    }

    fn row(&self, key: &str) -> Result<Option<Row>, EngineError> {
        rows::get(self, key)
    }

    fn rows(&self) -> Result<Vec<(String, Row)>, EngineError> {
        rows::all(self)
    }

    fn clock_ms(&self) -> Result<Option<u64>, EngineError> {
        rows::clock_ms(self)
    }

    fn put_row(&self, key: &str, value: Bytes) -> Result<u64, EngineError> {
        rows::put(self, key, value)
    }

    fn swap_row(&self, key: &str, expected: u64, value: Bytes) -> Result<Option<u64>, EngineError> {
        rows::swap(self, key, expected, value)
    }

    fn remove_row(&self, key: &str) -> Result<(), EngineError> {
        rows::remove(self, key)
    }

    fn check(&self) -> Result<Check, EngineError> {
        setup::check(self)
    }

    fn init(&self, log_bytes: u64) -> Result<(), EngineError> {
        setup::init(self, log_bytes)
    }
}
