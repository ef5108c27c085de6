//! The engine behind [`Engine`]: NATS JetStream.
//!
//! One thread runs the client of NATS, and callers wait for it with a bound. Of the client only
//! requests, publications and subscriptions are used: JetStream's interface is JSON over requests,
//! and what needs no consumer cannot hang with one.
//!
//! | file | concern |
//! |---|---|
//! | `names` | the names of streams and subjects |
//! | `link` | the connection, its thread, and the change of the server |
//! | `wire` | requests, answers, and what NATS's error codes mean |
//! | `log` | appends, reads, ends, purges |
//! | `tip` | what other nodes announce |
//! | `rows` | the rows: a key-value bucket |
//! | `snapshots` | the snapshots: an object store |
//! | `setup` | makes streams, and compares their settings with what is needed |
//! | `monitor` | what a server says about itself over HTTP |

mod link;
mod log;
mod monitor;
mod names;
mod rows;
mod setup;
mod snapshots;
mod tip;
mod wire;

use crate::cluster::engine::{Append, Bounds, Check, Engine, EngineError, Row, SnapshotError};
use bytes::Bytes;
use link::Link;
use names::Names;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tip::Tip;
use zeroize::Zeroizing;

/// Where the servers are, and who this node is to them.
#[derive(Clone, Debug, Default)]
pub struct NatsSettings {
    /// The name of the cluster: letters, digits, `-` and `_`, at most 32 (`cluster.name`).
    pub cluster: String,
    /// The number of the cell.
    pub cell: u16,
    /// The name of this node, by which the servers list its connection.
    pub node: String,
    /// The servers, `nats://HOST:PORT` or `tls://HOST:PORT`. The first is tried first
    /// (`cluster.nats`).
    pub servers: Vec<String>,
    /// The user and the password.
    pub user: Option<(String, Zeroizing<String>)>,
    /// The file with the authorities of the servers' certificates (PEM). `None`: those of the
    /// system.
    pub ca: Option<PathBuf>,
    /// The files with the certificate of this node and its key (PEM).
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The monitor of a server, `http://HOST:PORT` (`cluster.monitor`).
    pub monitor: Option<String>,
}

/// The reason why settings cannot be used.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The name cannot be part of the name of a stream.
    #[error("cluster.name {0:?} needs 1 to 32 letters of ASCII, digits, - or _")]
    Name(String),
    /// There is no server.
    #[error("cluster.nats names no server")]
    NoServer,
    /// The address of a server is none.
    #[error("cluster.nats {0:?} is not nats://HOST:PORT or tls://HOST:PORT: {1}")]
    Server(String, String),
    /// The thread did not start.
    #[error("the thread of the engine does not start: {0}")]
    Thread(String),
}

/// The log of one cell in NATS JetStream.
pub struct Nats {
    names: Names,
    link: Link,
    tip: Arc<Tip>,
    monitor: Option<String>,
}

impl Nats {
    /// Starts the thread that connects to a server, and tries until it succeeds. The servers may be
    /// away.
    ///
    /// # Errors
    /// A setting makes no sense, or the thread does not start.
    pub fn open(settings: NatsSettings) -> Result<Nats, OpenError> {
        let names = Names::new(&settings.cluster, settings.cell)?;
        let tip = Arc::new(Tip::default());
        let link = Link::open(&settings, names.tip.clone(), Arc::clone(&tip))?;
        Ok(Nats { names, link, tip, monitor: settings.monitor })
    }

    /// Returns the name and the version of the server that this node is connected to, for people.
    pub fn server(&self) -> Option<(String, String)> {
        self.link.server().map(|info| (info.server_name, info.version))
    }
}

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
