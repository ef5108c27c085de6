//! The client of one node: the connection, and the names of what it asks for.

use super::failure::Failure;
use super::link::Link;
use super::names::Names;
use super::settings::{NatsSettings, OpenError};
use super::tip::Tip;
use crate::cluster::engine::EngineError;
use std::sync::Arc;

/// The log of one cell in NATS JetStream.
pub struct Nats {
    pub(super) names: Names,
    pub(super) link: Link,
    pub(super) tip: Arc<Tip>,
    pub(super) monitor: Option<String>,
}

impl Nats {
    /// Starts the thread that connects to a server, and tries until it succeeds. The servers may be
    /// away.
    ///
    /// # Errors
    /// A setting makes no sense, or the thread does not start.
    pub fn open(settings: NatsSettings) -> Result<Nats, OpenError> {
        let names = Names::new(&settings.cluster, settings.cell)?;
        settings.check_files()?;
        let tip = Arc::new(Tip::default());
        let link = Link::open(&settings, names.tip.clone(), Arc::clone(&tip))?;
        Ok(Nats { names, link, tip, monitor: settings.monitor })
    }

    /// Returns the name and the version of the server that this node is connected to, for people.
    pub fn server(&self) -> Option<(String, String)> {
        self.link.server().map(|info| (info.server_name, info.version))
    }

    /// Returns the error for the caller. `what` says what was asked of which stream.
    pub(super) fn explain(&self, failure: Failure, what: &str) -> EngineError {
        let connection = || self.link.describe();
        match failure {
            Failure::NoAnswer if self.link.is_refused() => EngineError::Refused(format!(
                "NATS does not let this node in ({}): see cluster.nats_user and cluster.nats_password_file, or \
                 cluster.nats_certificate",
                connection()
            )),
            Failure::NoAnswer => EngineError::TimedOut(format!("{what} ({})", connection())),
            Failure::NoResponders => {
                EngineError::Unavailable(format!("nobody serves {what} ({})", connection()))
            }
            Failure::NotSent(text) => EngineError::Refused(format!("{what} was not sent: {text}")),
            Failure::Refused(10008 | 10009, text) => EngineError::Unavailable(format!("{what}: {text}")),
            Failure::Refused(10005, text) => {
                EngineError::Unavailable(format!("{what}: {text}: three servers with JetStream must be up"))
            }
            Failure::Refused(10059, _) => EngineError::Missing(what.to_owned()),
            Failure::Refused(code, text) => {
                EngineError::Refused(format!("the engine refused {what}: {text} ({code})"))
            }
            Failure::Malformed(text) => EngineError::Malformed(format!("{what}: {text}")),
        }
    }
}
