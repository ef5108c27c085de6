//! The progress of the handshakes of one socket.

use crate::named_enum::named_enum;
use std::cell::Cell;
use std::net::SocketAddr;

/// The progress of the handshakes of one socket. A timeout and an eviction end the stages wherever
/// they are, and the log line then needs the facts known so far.
#[derive(Debug, Default)]
pub(super) struct HandshakeProgress {
    stage: Cell<HandshakeStage>,
    source: Cell<Option<SocketAddr>>,
    is_of_unknown_source: Cell<bool>,
}

named_enum! {
    /// The stage of a socket, for the log.
    #[derive(Default)]
    pub(super) enum HandshakeStage {
        /// The handshake thread has not come to the socket yet.
        #[default]
        Waiting = "waiting for its thread",
        /// The PROXY header is read.
        Proxy = "PROXY header",
        /// The TLS handshake runs.
        Tls = "TLS",
        /// The HTTP request of a WebSocket is read.
        Upgrade = "WebSocket upgrade",
    }
}

impl HandshakeProgress {
    pub(super) fn begin(&self, stage: HandshakeStage) {
        self.stage.set(stage);
    }

    /// Returns the stage that has begun last.
    pub(super) fn stage(&self) -> HandshakeStage {
        self.stage.get()
    }

    /// Notes the address that a trusted proxy names.
    pub(super) fn set_source(&self, source: SocketAddr) {
        self.source.set(Some(source));
    }

    /// Notes that a proxy forwards a client whose address it does not know, or does not tell.
    pub(super) fn set_unknown_source(&self) {
        self.is_of_unknown_source.set(true);
    }

    /// Returns the address that a trusted proxy has named; `None` if the peer is the client.
    pub(super) fn source(&self) -> Option<SocketAddr> {
        self.source.get()
    }

    /// Returns true if a proxy forwards a client whose address it does not know.
    pub(super) fn is_of_unknown_source(&self) -> bool {
        self.is_of_unknown_source.get()
    }
}
