//! The connection of a bridge to the shard of its session.

use super::attempt::AttemptEnd;
use super::dial::Dialled;
use super::parts::{BridgeParts, OwnLimits};
use crate::access::grant::SessionRules;
use crate::bridge;
use crate::bridge::hello::{HelloHere, TermsThere};
use crate::bridge::link::{FRESH_SESSION, put_filters_here};
use crate::bridge::path::BrokerPath;
use crate::bridge::rules::TopicRules;
use crate::broker::connection::{DetachedTransport, Incoming, PeerAddress};
use crate::broker::message::Adopt;
use crate::clock;
use crate::config::Bridge;
use crate::login::arrival::Arrival;
use crate::login::listener_terms::{ListenerConnections, ListenerTerms, Served};
use crate::mqtt::codec::{Decoded, decode, encode};
use crate::mqtt::packet::{Disconnect, Packet, ProtocolVersion, QoS, ReasonCode};
use crate::operators::bridge_command::{
    BoundBridgeQueue, BridgeSession, PrepareBridge, PublishBridgeState, SessionThere,
};
use crate::session::authentication::{Anonymous, AuthPolicy, Reach};
use crate::session::outbound::queue::QueueBounds;
use bytes::{Buf, BytesMut};
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// Time for the shard to accept a session and its filters, and to close a connection.
const SHARD: Duration = Duration::from_secs(10);

/// The terms under which a filter is subscribed before the other broker has said its own.
const NO_TERMS: TermsThere = TermsThere {
    session_present: false,
    receive_maximum: 1,
    packet_size: None,
    maximum_qos: QoS::ExactlyOnce,
    takes_retained: true,
    takes_wildcards: true,
    keep_alive: None,
};

/// The session of one bridge.
pub(super) struct SessionHere {
    parts: BridgeParts,
    pub(super) client_id: String,
    /// The user whose rules hold.
    user: Box<str>,
    /// The rules of the session alone; `None` if the ACL file counts.
    rules: Option<SessionRules>,
    session_expiry: u32,
    pub(super) in_flight: u16,
    queue: QueueBounds,
    /// True if the session has these bounds.
    is_bounded: Cell<bool>,
    /// This broker in the paths of messages.
    pub(super) name: Option<BrokerPath>,
    connections: Arc<ListenerConnections>,
}

impl SessionHere {
    pub(super) fn new(parts: BridgeParts, bridge: &Bridge, own: OwnLimits) -> SessionHere {
        let user = bridge.acl_user.clone().unwrap_or_else(|| format!("bridge:{}", bridge.label()));
        let name = parts.observer.shared().name.as_deref().and_then(BrokerPath::of);
        SessionHere {
            name,
            parts,
            client_id: bridge::client_id(bridge.label()),
            user: user.into(),
            rules: bridge.acl_user.is_none().then_some(SessionRules::Superuser),
            session_expiry: bridge.session_expiry_secs(),
            in_flight: bridge.most_in_flight().min(own.in_flight),
            queue: bridge.queue_bounds(),
            is_bounded: Cell::new(false),
            connections: Arc::new(ListenerConnections::new(format!("bridge {}", bridge.label()))),
        }
    }

    /// Looks at the session, and forgets what the other broker has lost.
    pub(super) async fn prepare(&self, there: SessionThere) -> Result<BridgeSession, AttemptEnd> {
        let command = PrepareBridge { client_id: self.client_id.as_str().into(), there };
        let shard = self.parts.observer.shard_of(&self.client_id);
        self.parts.observer.command(shard, command).await.map_err(|_| AttemptEnd::NoShard)
    }

    /// Gives the session its filters before the other broker is connected, so that messages wait
    /// for it from now on, within the bounds of its queue. Returns the session as it was before.
    pub(super) async fn subscribe(&self, rules: &TopicRules) -> Result<BridgeSession, AttemptEnd> {
        let before = self.prepare(SessionThere::Kept).await?;
        self.give_missing(rules, &before).await?;
        if !before.is_fresh && self.is_bounded.get() {
            return Ok(before);
        }
        let command = BoundBridgeQueue { client_id: self.client_id.as_str().into(), bounds: self.queue };
        let shard = self.parts.observer.shard_of(&self.client_id);
        self.parts.observer.command(shard, command).await.map_err(|_| AttemptEnd::NoShard)?;
        self.is_bounded.set(true);
        Ok(before)
    }

    /// Publishes the state of the bridge here.
    pub(super) async fn publish_state(&self, topic: &str, is_connected: bool) {
        let shard = self.parts.observer.shard_of(&self.client_id);
        // A shard that does not answer is told the next change.
        let _ = self
            .parts
            .observer
            .command(shard, PublishBridgeState { topic: topic.into(), is_connected })
            .await;
    }

    /// Gives the session its filters. Does nothing if the session has them.
    async fn give_missing(&self, rules: &TopicRules, session: &BridgeSession) -> Result<(), AttemptEnd> {
        let filters = rules.subscriptions_here();
        let stale = stale(session, rules);
        let is_missing = |filter: &str| !session.filters.iter().any(|own| own == filter);
        if stale.is_empty() && !filters.iter().any(|(filter, _)| is_missing(filter)) {
            return Ok(());
        }
        let mark = session.is_fresh.then_some(FRESH_SESSION);
        self.give_filters(rules, &stale, mark).await
    }

    /// Notes that the session is connected with the other broker for the first time, which holds
    /// over crashes from here on. Comes before the first message passes.
    pub(super) async fn is_connected_first(&self, rules: &TopicRules) -> Result<(), AttemptEnd> {
        self.give_filters(rules, &[], None).await
    }

    async fn give_filters(
        &self,
        rules: &TopicRules,
        stale: &[String],
        mark: Option<u32>,
    ) -> Result<(), AttemptEnd> {
        let filters = rules.subscriptions_here();
        if filters.is_empty() && stale.is_empty() {
            return Ok(());
        }
        let mut out = Vec::new();
        self.hello(NO_TERMS, 0, &mut out)?;
        put_filters_here(&filters, stale, QoS::ExactlyOnce, mark, &mut out)?;
        let done = async {
            let mut socket = self.open(None, ProtocolVersion::V5)?;
            socket.write_all(&out).await?;
            self.await_filters(&mut socket, !filters.is_empty()).await?;
            close(socket).await
        };
        tokio::time::timeout(SHARD, done).await.map_err(|_| AttemptEnd::NoShard)?
    }

    /// Reads until the shard has answered SUBSCRIBE, or else UNSUBSCRIBE. Messages that come
    /// meanwhile are not acknowledged, so they come again.
    async fn await_filters(&self, socket: &mut UnixStream, subscribes: bool) -> Result<(), AttemptEnd> {
        let mut buffer = BytesMut::new();
        loop {
            let used = match decode(&buffer, ProtocolVersion::V5, u32::MAX) {
                Ok(Decoded::Packet { packet: Packet::Connack(connack), .. })
                    if connack.reason != ReasonCode::SUCCESS =>
                {
                    return Err(AttemptEnd::Here(connack.reason));
                }
                Ok(Decoded::Packet { packet: Packet::Disconnect(disconnect), .. }) => {
                    return Err(AttemptEnd::Here(disconnect.reason));
                }
                Ok(Decoded::Packet { packet: Packet::Suback(_), .. }) => return Ok(()),
                Ok(Decoded::Packet { packet: Packet::Unsuback(_), .. }) if !subscribes => return Ok(()),
                Ok(Decoded::Packet { length, .. }) => length,
                Ok(Decoded::Incomplete { .. }) => 0,
                Err(_) => return Err(AttemptEnd::NoShard),
            };
            buffer.advance(used);
            if used == 0 && socket.read_buf(&mut buffer).await? == 0 {
                return Err(AttemptEnd::NoShard);
            }
        }
    }

    /// Appends the CONNECT of the session. `growth` is that of topics on their way out.
    pub(super) fn hello(
        &self,
        there: TermsThere,
        growth: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), AttemptEnd> {
        let (client_id, session_expiry, in_flight) = (&*self.client_id, self.session_expiry, self.in_flight);
        HelloHere { client_id, session_expiry, in_flight, growth, there }.put(out)?;
        Ok(())
    }

    /// Opens a connection to the shard, and returns the bridge's end. `there` is the connection to
    /// the other broker, whose address and socket are the client's for the shard.
    pub(super) fn open(
        &self,
        there: Option<&Dialled>,
        version: ProtocolVersion,
    ) -> Result<UnixStream, AttemptEnd> {
        let (ours, theirs) = UnixStream::pair()?;
        let pair = DetachedTransport::from(OwnedFd::from(theirs.into_std()?));
        let (transport, peer) = match there {
            Some(there) => (pair.passed_on_to(Arc::clone(&there.far)), PeerAddress::ip(there.peer)),
            None => (pair, PeerAddress::unix(rustix::process::getuid().as_raw())),
        };
        let terms = self.terms(version);
        let limit = self.parts.limits.connections();
        let statistics = self.parts.observer.statistics();
        statistics
            .open_connection(&terms.connections, limit, usize::MAX)
            .map_err(|_| AttemptEnd::TooManyConnections)?;
        let arrival = Arrival {
            listener: terms,
            reach: Reach::Local,
            certificate_user: Some(self.user.clone()),
            ..Arrival::default()
        };
        let incoming = Incoming::accepted(transport, peer, clock::now(), arrival);
        let shard = self.parts.observer.shard_of(&self.client_id);
        let shard = self.parts.shards.get(shard).ok_or(AttemptEnd::NoShard)?;
        shard.do_send(Adopt(vec![incoming]));
        Ok(ours)
    }

    /// Returns the terms of a connection. A broker that speaks 3.1.1 knows no Receive Maximum.
    fn terms(&self, version: ProtocolVersion) -> Arc<ListenerTerms> {
        Arc::new(ListenerTerms {
            connections: Arc::clone(&self.connections),
            serves: Served::Bridge(self.rules.clone()),
            receive_maximum: (!version.is_v5()).then_some(u16::MAX),
            auth: Some(AuthPolicy { anonymous: Anonymous::Never, methods: Vec::new() }),
            keep_alive_maximum: Some(0),
            message_rate: Some(None),
            byte_rate: Some(None),
            ..ListenerTerms::default()
        })
    }
}

/// Returns the filters of a session that the rules do not have.
pub(super) fn stale(session: &BridgeSession, rules: &TopicRules) -> Vec<String> {
    let filters = rules.subscriptions_here();
    let is_stale = |own: &&String| !filters.iter().any(|(filter, _)| filter == own);
    session.filters.iter().filter(is_stale).cloned().collect()
}

/// Ends a connection to the shard in order.
async fn close(mut socket: UnixStream) -> Result<(), AttemptEnd> {
    let mut out = Vec::new();
    let end = Packet::Disconnect(Disconnect::new(ReasonCode::NORMAL_DISCONNECTION));
    encode(&end, ProtocolVersion::V5, &mut out)?;
    socket.write_all(&out).await?;
    await_close(&mut socket).await;
    Ok(())
}

/// Waits until the shard has closed its end. What comes meanwhile is dropped.
pub(super) async fn await_close(socket: &mut UnixStream) {
    let mut scratch = vec![0; 16 << 10];
    let closed = async { while matches!(socket.read(&mut scratch).await, Ok(1..)) {} };
    let _ = tokio::time::timeout(SHARD, closed).await;
}
