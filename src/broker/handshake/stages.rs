//! The handshakes of one socket, in their order: TLS.

use super::entrance::Entrance;
use crate::broker::connection::{DetachedTransport, SocketRead, Transport, Wrapped};
use crate::clock;
use crate::net::layers::{LayerError, Layers};
use crate::net::tls::config::{Admitted, TlsServer};
use crate::net::tls::engine::Tls;
use crate::net::tls::verify::ChainError;
use arc_swap::ArcSwap;
use std::future::poll_fn;
use std::io;
use thiserror::Error;

/// Bytes that are read at once. Small, because the peer is not known yet.
const READ_SIZE: usize = 4096;

/// The reason why a socket is closed in its handshakes, for the log.
#[derive(Debug, Error)]
pub(super) enum Refused {
    /// The peer closed the connection. Port scans and health checks do so.
    #[error("closed by the peer")]
    Closed,
    /// The socket failed.
    #[error("{0}")]
    Socket(#[from] io::Error),
    /// The bytes are not what the listener expects.
    #[error("{0}")]
    Layer(#[from] LayerError),
    /// The client's certificate is not valid any more.
    #[error("the client's certificate: {0}")]
    Chain(#[from] ChainError),
}

impl Refused {
    /// Returns true for an end that is not worth more than a debug line: the peer just left.
    pub(super) fn is_quiet(&self) -> bool {
        matches!(self, Refused::Closed | Refused::Socket(_))
    }
}

/// A socket whose handshakes are done.
#[derive(Debug)]
pub(super) struct Done {
    /// The socket with its codecs.
    pub(super) transport: DetachedTransport,
    /// MQTT bytes that came with the end of the handshakes.
    pub(super) unread: Vec<u8>,
    /// The user name in the client's certificate; `None` without one.
    pub(super) certificate_user: Option<Box<str>>,
}

/// A socket during its handshakes.
struct Stream {
    transport: Transport,
    /// Bytes of the socket that no stage has used.
    wire: Vec<u8>,
}

/// Runs all handshakes of a socket. The caller bounds the time.
///
/// # Errors
/// The reason why the socket is to be closed. An alert for the peer was sent.
pub(super) async fn run(entrance: &Entrance, transport: DetachedTransport) -> Result<Done, Refused> {
    let mut stream = Stream { transport: Transport::new(transport)?, wire: Vec::new() };
    let mut plain = Vec::new();
    let (mut tls, mut certificate_user) = (None, None);
    if let Some(server) = &entrance.tls {
        let admitted = stream.tls(server, &mut plain).await?;
        certificate_user = admitted.user.ok().map(String::into_boxed_str);
        tls = Some(admitted.tls);
    }
    stream.finish(tls, plain, certificate_user).await
}

impl Stream {
    /// Reads some bytes behind those that are not used yet.
    async fn read(&mut self) -> Result<(), Refused> {
        let kept = self.wire.len();
        self.wire.resize(kept + READ_SIZE, 0);
        let read = loop {
            let room = self.wire.get_mut(kept..).unwrap_or_default();
            match self.transport.try_read(room) {
                Ok(SocketRead::Nothing) => poll_fn(|cx| self.transport.poll_read_ready(cx)).await?,
                Ok(SocketRead::Some(n) | SocketRead::Last(n)) => break n,
                Ok(SocketRead::End) => return Err(Refused::Closed),
                Err(error) => return Err(error.into()),
            }
        };
        self.wire.truncate(kept + read);
        Ok(())
    }

    /// Sends all of `bytes`.
    async fn send(&self, bytes: &[u8]) -> Result<(), Refused> {
        let mut sent = 0;
        while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
            match self.transport.try_write(rest) {
                Ok(n) => sent += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| self.transport.poll_write_ready(cx)).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Runs the TLS handshake. Appends the bytes that came behind it to `plain`.
    async fn tls(&mut self, server: &ArcSwap<TlsServer>, plain: &mut Vec<u8>) -> Result<Admitted, Refused> {
        let mut handshake = server.load().handshake()?;
        let mut out = Vec::new();
        loop {
            self.read().await?;
            let progress = handshake.advance(&mut self.wire, plain, &mut out);
            self.send(&out).await?;
            out.clear();
            let progress = progress?;
            self.wire.drain(..progress.used);
            if progress.closed {
                return Err(Refused::Closed);
            }
            if progress.done {
                break;
            }
        }
        // The newest server, because a reload may have come meanwhile.
        let admitted = server.load().admit(handshake, clock::unix_millis(), &mut out);
        self.send(&out).await?;
        Ok(admitted?)
    }

    /// Puts the codecs on the socket, and opens what came behind the handshakes.
    async fn finish(
        mut self,
        tls: Option<Tls>,
        mut unread: Vec<u8>,
        certificate_user: Option<Box<str>>,
    ) -> Result<Done, Refused> {
        let mut layers = Layers::new(tls, None);
        let mut out = Vec::new();
        let opened = layers.open(&mut self.wire, &mut unread, &mut out);
        self.send(&out).await?;
        let tail = self.wire.split_off(opened?.used);
        let transport = self.transport.detach().wrap(Wrapped::new(layers, tail));
        Ok(Done { transport, unread, certificate_user })
    }
}
