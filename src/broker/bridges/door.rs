//! The way of a far side to its session here: a connection to the shard of the session.
//!
//! Bridges and sinks share it. The connection is a pair of Unix sockets, of which the shard gets
//! one end as it gets the socket of any client.

use super::parts::BridgeParts;
use crate::access::grant::SessionRules;
use crate::broker::connection::{DetachedTransport, FarSocket, Incoming, PeerAddress};
use crate::broker::message::Adopt;
use crate::clock;
use crate::login::arrival::Arrival;
use crate::login::listener_terms::{ListenerConnections, ListenerTerms, Served};
use crate::mqtt::codec::{Decoded, decode, encode};
use crate::mqtt::packet::{Disconnect, Packet, ProtocolVersion, ReasonCode};
use crate::operators::bridge_command::{BridgeSession, PrepareBridge, SessionThere};
use crate::operators::command::Command;
use crate::session::authentication::{Anonymous, AuthPolicy, Reach};
use crate::sink;
use bytes::{Buf, BytesMut};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// Time for the shard to accept a session and its filters, and to close a connection.
const SHARD: Duration = Duration::from_secs(10);

/// The reason why there is no connection to the shard.
#[derive(Debug, thiserror::Error)]
pub(in crate::broker) enum DoorError {
    #[error("the session here is refused: {0}")]
    Refused(ReasonCode),
    #[error("the connection to the shard failed: {0}")]
    Socket(#[from] io::Error),
    #[error("the shard does not answer")]
    NoShard,
    #[error("limits.connections is reached")]
    TooManyConnections,
}

/// The client of a session whose connection the broker itself makes.
pub(in crate::broker) struct FarSide<'a> {
    pub(in crate::broker) client_id: String,
    /// The user whose rules in the ACL file hold; `None` if the session may read and write all.
    pub(in crate::broker) acl_user: Option<&'a str>,
    /// Its kind and its name, such as `bridge cloud`. Its listener has this name, and so has its user
    /// if there is no `acl_user`.
    pub(in crate::broker) label: String,
}

/// The way to one session.
pub(in crate::broker) struct ShardDoor {
    parts: BridgeParts,
    pub(in crate::broker) client_id: String,
    /// The user whose rules hold.
    user: Box<str>,
    /// The rules of the session alone; `None` if the ACL file counts.
    rules: Option<SessionRules>,
    connections: Arc<ListenerConnections>,
}

impl ShardDoor {
    pub(in crate::broker) fn new(parts: BridgeParts, far_side: FarSide<'_>) -> ShardDoor {
        let FarSide { client_id, acl_user, label } = far_side;
        ShardDoor {
            parts,
            client_id,
            user: acl_user.map_or_else(|| label.replace(' ', ":"), str::to_owned).into(),
            rules: acl_user.is_none().then_some(SessionRules::Superuser),
            connections: Arc::new(ListenerConnections::new(label)),
        }
    }

    /// Sends a command to the shard of the session.
    pub(in crate::broker) async fn command<C>(&self, command: C) -> Result<C::Outcome, DoorError>
    where
        C: Command + Send + 'static,
        C::Outcome: Send,
    {
        let shard = self.parts.observer.shard_of(&self.client_id);
        self.parts.observer.command(shard, command).await.map_err(|_| DoorError::NoShard)
    }

    /// Looks at the session, and forgets what the far side has lost.
    pub(in crate::broker) async fn prepare(&self, there: SessionThere) -> Result<BridgeSession, DoorError> {
        self.command(PrepareBridge { client_id: self.client_id.as_str().into(), there }).await
    }

    /// Sends `packets` on a connection of their own: CONNECT, then UNSUBSCRIBE and SUBSCRIBE.
    /// Returns when the shard has answered SUBSCRIBE, or UNSUBSCRIBE without one.
    pub(in crate::broker) async fn set_filters(
        &self,
        packets: &[u8],
        subscribes: bool,
    ) -> Result<(), DoorError> {
        let done = async {
            let mut socket = self.open(None, None)?;
            socket.write_all(packets).await?;
            await_filters(&mut socket, subscribes).await?;
            close(socket).await
        };
        tokio::time::timeout(SHARD, done).await.map_err(|_| DoorError::NoShard)?
    }

    /// Opens a connection to the shard, and returns the far side's end. `there` has the address that
    /// operators see, and the socket whose bytes are those of the connection. `receive_maximum` is
    /// that of the shard.
    pub(in crate::broker) fn open(
        &self,
        there: Option<(SocketAddr, Option<&Arc<FarSocket>>)>,
        receive_maximum: Option<u16>,
    ) -> Result<UnixStream, DoorError> {
        let (ours, theirs) = UnixStream::pair()?;
        let pair = DetachedTransport::from(OwnedFd::from(theirs.into_std()?));
        let (transport, peer) = match there {
            Some((address, Some(far))) => (pair.passed_on_to(Arc::clone(far)), PeerAddress::ip(address)),
            Some((address, None)) => (pair, PeerAddress::ip(address)),
            None => {
                let is_sink = self.client_id.starts_with(sink::CLIENT_ID_PREFIX);
                let pair = if is_sink { pair.of_service() } else { pair };
                (pair, PeerAddress::unix(rustix::process::getuid().as_raw()))
            }
        };
        let terms = self.terms(receive_maximum);
        let limit = self.parts.limits.connections();
        let statistics = self.parts.observer.statistics();
        statistics
            .open_connection(&terms.connections, limit, usize::MAX)
            .map_err(|_| DoorError::TooManyConnections)?;
        let arrival = Arrival {
            listener: terms,
            reach: Reach::Local,
            certificate_user: Some(self.user.clone()),
            ..Arrival::default()
        };
        let incoming = Incoming::accepted(transport, peer, clock::now(), arrival);
        let shard = self.parts.observer.shard_of(&self.client_id);
        let shard = self.parts.shards.get(shard).ok_or(DoorError::NoShard)?;
        shard.do_send(Adopt(vec![incoming]));
        Ok(ours)
    }

    fn terms(&self, receive_maximum: Option<u16>) -> Arc<ListenerTerms> {
        Arc::new(ListenerTerms {
            connections: Arc::clone(&self.connections),
            serves: Served::Bridge(self.rules.clone()),
            receive_maximum,
            auth: Some(AuthPolicy { anonymous: Anonymous::Never, methods: Vec::new() }),
            keep_alive_maximum: Some(0),
            message_rate: Some(None),
            byte_rate: Some(None),
            ..ListenerTerms::default()
        })
    }
}

/// Reads until the shard has answered SUBSCRIBE, or else UNSUBSCRIBE. Messages that come meanwhile
/// are not acknowledged, so they come again.
async fn await_filters(socket: &mut UnixStream, subscribes: bool) -> Result<(), DoorError> {
    let mut buffer = BytesMut::new();
    loop {
        let used = match decode(&buffer, ProtocolVersion::V5, u32::MAX) {
            Ok(Decoded::Packet { packet: Packet::Connack(connack), .. })
                if connack.reason != ReasonCode::SUCCESS =>
            {
                return Err(DoorError::Refused(connack.reason));
            }
            Ok(Decoded::Packet { packet: Packet::Disconnect(disconnect), .. }) => {
                return Err(DoorError::Refused(disconnect.reason));
            }
            Ok(Decoded::Packet { packet: Packet::Suback(_), .. }) => return Ok(()),
            Ok(Decoded::Packet { packet: Packet::Unsuback(_), .. }) if !subscribes => return Ok(()),
            Ok(Decoded::Packet { length, .. }) => length,
            Ok(Decoded::Incomplete { .. }) => 0,
            Err(_) => return Err(DoorError::NoShard),
        };
        buffer.advance(used);
        if used == 0 && socket.read_buf(&mut buffer).await? == 0 {
            return Err(DoorError::NoShard);
        }
    }
}

/// Ends a connection to the shard in order.
async fn close(mut socket: UnixStream) -> Result<(), DoorError> {
    let mut out = Vec::new();
    let end = Packet::Disconnect(Disconnect::new(ReasonCode::NORMAL_DISCONNECTION));
    // A DISCONNECT without properties is always encoded.
    let _ = encode(&end, ProtocolVersion::V5, &mut out);
    socket.write_all(&out).await?;
    await_close(&mut socket).await;
    Ok(())
}

/// Waits until the shard has closed its end. What comes meanwhile is dropped.
pub(in crate::broker) async fn await_close(socket: &mut UnixStream) {
    let mut scratch = vec![0; 16 << 10];
    let closed = async { while matches!(socket.read(&mut scratch).await, Ok(1..)) {} };
    let _ = tokio::time::timeout(SHARD, closed).await;
}
