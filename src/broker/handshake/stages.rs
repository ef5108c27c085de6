//! The handshakes of one socket, in their order: PROXY header, TLS, WebSocket upgrade.

use super::entrance::Entrance;
use super::progress::{HandshakeProgress, HandshakeStage};
use super::refusal::HandshakeRefusal;
use crate::broker::connection::{DetachedTransport, PeerAddress, SocketRead, Transport, Wrapped};
use crate::clock;
use crate::net::layers::{LayerError, Layers};
use crate::net::proxy::{self, Proxied, ProxyRules, TrustedProxies};
use crate::net::tls::config::{AdmittedClient, TlsServer};
use crate::net::tls::identity::NoIdentity;
use crate::net::websocket::frame::Ws;
use crate::net::websocket::upgrade::{ForwardedClient, UpgradeRules, Upgraded, upgrade};
use arc_swap::ArcSwap;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;

/// Bytes that are read at once. Small, because the peer is not known yet.
const READ_SIZE: usize = 4096;

/// A socket whose handshakes are done.
#[derive(Debug)]
pub(super) struct Done {
    /// The socket with its codecs.
    pub(super) transport: DetachedTransport,
    /// MQTT bytes that came with the end of the handshakes.
    pub(super) unread: Vec<u8>,
    /// The user name in the client's certificate, or the reason why it is missing.
    pub(super) certificate_user: Result<String, NoIdentity>,
}

/// A socket during its handshakes.
struct Stream {
    transport: Transport,
    /// Bytes of the socket that no stage has used.
    wire: Vec<u8>,
}

/// Runs all handshakes of a socket. The caller bounds the time, and reads in `progress` where it
/// ended. Errors: the reason why the socket is to be closed. An alert or a reply for the peer was
/// sent.
pub(super) async fn run(
    entrance: &Entrance,
    transport: DetachedTransport,
    peer: &PeerAddress,
    progress: &HandshakeProgress,
) -> Result<Done, HandshakeRefusal> {
    let mut stream = Stream { transport: Transport::new(transport)?, wire: Vec::new() };
    let address = peer.socket_address().map(|address| address.ip());
    let (mut plain, mut tls) = (Vec::new(), None);
    let mut certificate_user = Err(NoIdentity::NoCertificate);
    if let Some(rules) = entrance.proxy {
        progress.begin(HandshakeStage::Proxy);
        if !entrance.trusts(address) {
            return Err(HandshakeRefusal::Untrusted);
        }
        let proxied = stream.proxy(rules).await?;
        match proxied.source {
            Some(source) => progress.set_source(source),
            None if proxied.is_local => {}
            None => progress.set_unknown_source(),
        }
        // Without the demand for TLS, the operator does not rely on the header's facts about TLS.
        if let Some(tls) = proxied.tls.filter(|_| rules.require_tls) {
            certificate_user = tls.user;
        }
    }
    if let Some(server) = &entrance.tls {
        progress.begin(HandshakeStage::Tls);
        let admitted = stream.tls(server, &mut plain).await?;
        certificate_user = better_name(admitted.user, certificate_user);
        tls = Some(admitted.tls);
    }
    if tls.is_none() && entrance.websocket.is_none() {
        let unread = stream.wire;
        let transport = stream.transport.detach();
        return Ok(Done { transport, unread, certificate_user });
    }
    let mut layers = Layers::new(tls, None);
    if let Some(rules) = &entrance.websocket {
        progress.begin(HandshakeStage::Upgrade);
        // Behind a PROXY header, the client that it names has sent the request. A header of its own
        // would forge another address.
        let sender = progress.source().map_or(address, |source| Some(source.ip()));
        let forwarding = entrance.forwarding(sender).filter(|_| !progress.is_of_unknown_source());
        let (upgraded, ws) = stream.websocket(rules, forwarding, &mut layers, &mut plain).await?;
        match upgraded.client {
            ForwardedClient::Peer => {}
            ForwardedClient::Address(ip) => progress.set_source(SocketAddr::new(ip, 0)),
            ForwardedClient::Unknown => {
                entrance.report_hidden_client(sender);
                progress.set_unknown_source();
            }
        }
        layers = layers.with_websocket(ws);
    }
    let tail = stream.open(&mut layers, &mut plain).await?;
    let transport = stream.transport.detach().wrap(Wrapped::new(layers, tail));
    Ok(Done { transport, unread: plain, certificate_user })
}

/// Returns the name by the TLS of this listener, else the name by that of its proxy. Without
/// either, a certificate that gives no name says more than no certificate.
fn better_name(
    own: Result<String, NoIdentity>,
    of_proxy: Result<String, NoIdentity>,
) -> Result<String, NoIdentity> {
    match (own, of_proxy) {
        (Err(_), Ok(name)) => Ok(name),
        (Err(NoIdentity::NoCertificate), of_proxy) => of_proxy,
        (own, _) => own,
    }
}

impl Stream {
    /// Reads some bytes behind those that are not used yet.
    async fn read(&mut self) -> Result<(), HandshakeRefusal> {
        let kept = self.wire.len();
        self.wire.resize(kept + READ_SIZE, 0);
        let read = loop {
            let room = self.wire.get_mut(kept..).unwrap_or_default();
            match self.transport.try_read(room, READ_SIZE) {
                Ok(SocketRead::Nothing) => poll_fn(|cx| self.transport.poll_read_ready(cx)).await?,
                Ok(SocketRead::Some(n) | SocketRead::Last(n)) => break n,
                Ok(SocketRead::End) => return Err(HandshakeRefusal::Closed),
                Err(error) => return Err(error.into()),
            }
        };
        self.wire.truncate(kept + read);
        Ok(())
    }

    async fn send(&self, bytes: &[u8]) -> Result<(), HandshakeRefusal> {
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
    async fn tls(
        &mut self,
        server: &ArcSwap<TlsServer>,
        plain: &mut Vec<u8>,
    ) -> Result<AdmittedClient, HandshakeRefusal> {
        let mut handshake = server.load().handshake()?;
        let (mut out, mut started) = (Vec::new(), false);
        loop {
            // The PROXY header may have come with the first bytes of TLS.
            if self.wire.is_empty() || started {
                self.read().await?;
            }
            started = true;
            let progress = handshake.advance(&mut self.wire, plain, &mut out);
            self.send(&out).await?;
            out.clear();
            let progress = progress?;
            self.wire.drain(..progress.used);
            // A client may finish the handshake, send its packets and close in one segment.
            if progress.done {
                break;
            }
            if progress.closed {
                return Err(HandshakeRefusal::Closed);
            }
        }
        // The newest server, because a reload may have come meanwhile.
        let admitted = server.load().admit(handshake, clock::unix_millis(), &mut out);
        self.send(&out).await?;
        Ok(admitted?)
    }

    /// Reads the PROXY header.
    async fn proxy(&mut self, rules: ProxyRules) -> Result<Proxied, HandshakeRefusal> {
        loop {
            self.read().await?;
            if let Some(proxied) = proxy::read(&self.wire, rules)? {
                self.wire.drain(..proxied.used);
                return Ok(proxied);
            }
        }
    }

    /// Answers the upgrade request. Leaves in `plain` the MQTT bytes that came behind the request.
    async fn websocket(
        &mut self,
        rules: &UpgradeRules,
        forwarding: Option<&TrustedProxies>,
        layers: &mut Layers,
        plain: &mut Vec<u8>,
    ) -> Result<(Upgraded, Ws), HandshakeRefusal> {
        let mut reply = Vec::new();
        let upgraded = loop {
            self.wire = self.open(layers, plain).await?;
            match upgrade(plain, rules, forwarding, &mut reply) {
                Ok(Some(upgraded)) => break upgraded,
                Ok(None) => self.read().await?,
                Err(error) => {
                    let mut out = Vec::new();
                    layers.seal(&[IoSlice::new(&reply)], &mut out);
                    layers.close(&mut out);
                    self.send(&out).await?;
                    self.transport.shut_down_writing();
                    return Err(error.into());
                }
            }
        };
        plain.drain(..upgraded.used);
        let mut ws = Ws::new();
        let kept = ws.open(plain, &mut reply);
        let mut out = Vec::new();
        layers.seal(&[IoSlice::new(&reply)], &mut out);
        self.send(&out).await?;
        plain.truncate(kept.map_err(LayerError::from)?);
        Ok((upgraded, ws))
    }

    /// Opens what was read and not used, and appends it to `plain`. Returns the part of a record
    /// that is left.
    async fn open(&mut self, layers: &mut Layers, plain: &mut Vec<u8>) -> Result<Vec<u8>, HandshakeRefusal> {
        let mut out = Vec::new();
        let opened = layers.open(&mut self.wire, plain, &mut out);
        self.send(&out).await?;
        let opened = opened?;
        if opened.closed && plain.is_empty() {
            return Err(HandshakeRefusal::Closed);
        }
        let tail = self.wire.split_off(opened.used);
        self.wire = Vec::new();
        Ok(tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_counts_before_a_reason_and_the_own_tls_before_that_of_a_proxy() {
        let [own, of_proxy] = ["own", "proxy"].map(|name| Ok(name.to_owned()));
        let (none, control) = (Err(NoIdentity::NoCertificate), Err(NoIdentity::ControlCharacter));
        assert_eq!(better_name(own.clone(), of_proxy.clone()), own);
        assert_eq!(better_name(control.clone(), of_proxy.clone()), of_proxy);
        assert_eq!(better_name(none.clone(), control.clone()), control);
        assert_eq!(better_name(control.clone(), none.clone()), control);
        assert_eq!(better_name(none.clone(), none.clone()), none);
    }
}
