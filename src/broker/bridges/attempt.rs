//! One attempt of a bridge: from the address to the end of the connection.

use super::dial::{self, DialError, Dialled, Secrets, Stream};
use super::door::DoorError;
use super::parts::OwnLimits;
use super::pump::Pump;
use super::running::Ending;
use super::session::{SessionHere, stale};
use super::status::BridgeReport;
use crate::bridge::deadlines::Patience;
use crate::bridge::hello::{Hello, RefusedThere, TermsThere, before_renaming};
use crate::bridge::link::{Link, LinkEnd, LinkTerms, Output};
use crate::bridge::path::{BrokerPath, growth};
use crate::bridge::rules::TopicRules;
use crate::bridge::{BridgeState, ConnectOrder, ConnectWhen};
use crate::clock;
use crate::config::{Bridge, BridgeAddress};
use crate::file_thread::FileThread;
use crate::host::Names;
use crate::mqtt::codec::{DecodeError, Decoded, EncodeError, decode, encode};
use crate::mqtt::packet::{Disconnect, Packet, ProtocolVersion, QoS, ReasonCode};
use crate::net::tls::client::is_about_certificate;
use crate::operators::bridge_command::SessionThere;
use bytes::{Buf, BytesMut};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tracing::{info, warn};

/// The largest CONNACK in bytes that is read.
const CONNACK: u32 = 64 << 10;

/// The bytes of room for the names of both brokers in an incoming message. A longer name makes the
/// few messages that are just below the limit too large.
const PATH: usize = 64;

/// The end of an attempt.
#[derive(Debug, thiserror::Error)]
pub(super) enum AttemptEnd {
    #[error("{0}")]
    Dial(#[from] DialError),
    #[error("no CONNACK within connect_timeout")]
    Late,
    #[error("the other broker closed the connection before CONNACK")]
    NoConnack,
    #[error("the other broker sent {0} in place of CONNACK")]
    NotConnack(&'static str),
    #[error("the other broker sent what is no CONNACK: {0}")]
    Malformed(DecodeError),
    #[error("{0}")]
    Refused(RefusedThere),
    #[error("the connection to the other broker failed: {0}")]
    There(io::Error),
    #[error("the other broker does not accept the certificate of the bridge (keys certificate and key): {0}")]
    CertificateRefused(io::Error),
    #[error("the other broker closed the connection")]
    ClosedThere,
    #[error("{0}")]
    Link(#[from] LinkEnd),
    #[error("a packet cannot be written: {0}")]
    Encode(#[from] EncodeError),
    #[error("{0}")]
    Here(#[from] DoorError),
    #[error("the connection to the shard failed: {0}")]
    OwnSocket(#[from] io::Error),
    #[error("the shard closed the connection")]
    ClosedHere,
    #[error("the bridge ends")]
    Ended(Ending),
    #[error("an operator disconnects the bridge")]
    Ordered,
}

impl AttemptEnd {
    /// Returns the end of the link, if that is the cause.
    pub(super) fn of_link(&self) -> Option<&LinkEnd> {
        match self {
            AttemptEnd::Link(end) => Some(end),
            _ => None,
        }
    }

    /// Returns true if the connection ended because nobody needs it.
    pub(super) fn is_unneeded(&self) -> bool {
        matches!(self, AttemptEnd::Ordered | AttemptEnd::Link(LinkEnd::Idle))
    }

    /// Returns true if the next connection is to follow at once.
    pub(super) fn goes_on(&self) -> bool {
        matches!(self, AttemptEnd::Link(LinkEnd::Freed))
    }

    /// Returns true if the end may be about the version, or about anything else: a proxy without its
    /// broker closes connections, too.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self, AttemptEnd::NoConnack)
    }

    /// Returns true if another version may be accepted after this end.
    pub(super) fn may_speak_less(&self, version: ProtocolVersion) -> bool {
        version.is_v5() && self.is_about_version()
    }

    fn is_about_version(&self) -> bool {
        match self {
            AttemptEnd::Refused(refused) => refused.is_about_version(),
            // Brokers that know 3.1.1 alone answer 5.0 in various ways.
            AttemptEnd::NoConnack | AttemptEnd::Malformed(_) => true,
            _ => false,
        }
    }
}

/// A connection that the other broker has accepted.
pub(super) struct Accepted {
    pub(super) dialled: Dialled,
    pub(super) terms: TermsThere,
    /// The other broker in the paths of messages, if it tells its name.
    there: Option<BrokerPath>,
    /// What came behind CONNACK.
    pub(super) rest: BytesMut,
}

/// What the attempts of a bridge share.
pub(super) struct Attempt<'a> {
    pub(super) bridge: &'a Bridge,
    pub(super) own: OwnLimits,
    pub(super) rules: &'a Arc<TopicRules>,
    pub(super) session: &'a SessionHere,
    pub(super) report: &'a Arc<BridgeReport>,
    pub(super) files: &'a FileThread,
    pub(super) names: &'a Names,
}

impl Attempt<'_> {
    /// Connects by this version, and passes messages until the connection ends. `is_fresh` is true
    /// as long as the session here has never been connected.
    pub(super) async fn run(
        &self,
        address: &BridgeAddress,
        version: ProtocolVersion,
        is_fresh: &mut bool,
        ends: &mut watch::Receiver<Ending>,
        orders: &mut watch::Receiver<ConnectOrder>,
    ) -> AttemptEnd {
        let accepted = match self.connect(address, version).await {
            Ok(accepted) => accepted,
            Err(end) => return end,
        };
        let must_free = *is_fresh && accepted.terms.session_present;
        let must_free = must_free && self.rules.highest_qos_out() == QoS::ExactlyOnce;
        if *is_fresh && !must_free {
            if let Err(end) = self.session.is_connected_first(self.rules).await {
                return end;
            }
            *is_fresh = false;
        }
        let end = match self.begin(accepted, version, must_free).await {
            Ok(pump) => pump.run(ends, orders).await,
            Err(end) => end,
        };
        if matches!(end, AttemptEnd::Link(LinkEnd::Freed)) {
            if let Err(end) = self.session.is_connected_first(self.rules).await {
                return end;
            }
            *is_fresh = false;
        }
        end
    }

    /// Connects, and waits for CONNACK.
    async fn connect(
        &self,
        address: &BridgeAddress,
        version: ProtocolVersion,
    ) -> Result<Accepted, AttemptEnd> {
        self.report.enter(clock::now(), BridgeState::Dialling);
        self.report.change(|facts| {
            facts.attempts += 1;
            facts.address = address.to_string();
            facts.version = Some(version);
            facts.refused_filters.clear();
        });
        let whole = async {
            let secrets = dial::read_files(self.bridge, address, self.files).await?;
            match self.hello(address, version, true, &secrets).await {
                Err(AttemptEnd::Refused(refused)) if refused.reason == ReasonCode::RETAIN_NOT_SUPPORTED => {
                    self.hello(address, version, false, &secrets).await
                }
                hello => hello,
            }
        };
        tokio::time::timeout(self.bridge.patience(), whole).await.unwrap_or(Err(AttemptEnd::Late))
    }

    /// Connects, and sends CONNECT.
    async fn hello(
        &self,
        address: &BridgeAddress,
        version: ProtocolVersion,
        retains_will: bool,
        secrets: &Secrets,
    ) -> Result<Accepted, AttemptEnd> {
        let dialled = dial::connect(self.bridge, address, secrets, self.names).await?;
        self.report.enter(clock::now(), BridgeState::AwaitingConnack);
        let client_id = self.bridge.client_id_there();
        let notification_topic = self.bridge.notifications();
        let hello = Hello {
            version,
            client_id: &client_id,
            clean_start: self.bridge.is_clean(),
            keep_alive: self.bridge.keep_alive_secs(),
            session_expiry: self.bridge.session_expiry_secs(),
            receive_maximum: self.own.receive_maximum,
            packet_size: before_renaming(self.own.packet_size, self.rules.growth_in() + PATH).max(1_024),
            user: self.bridge.user.as_deref(),
            password: secrets.password(),
            bridge_bit: self.bridge.bridge_bit.unwrap_or(false),
            name: self.session.name.as_ref().map(BrokerPath::name),
            notification_topic: notification_topic.as_deref(),
            retains_will,
        };
        greet(dialled, hello).await
    }

    /// Connects the session here with an accepted connection.
    async fn begin(
        &self,
        accepted: Accepted,
        version: ProtocolVersion,
        must_free: bool,
    ) -> Result<Pump, AttemptEnd> {
        let Accepted { dialled, terms, there, rest } = accepted;
        let terms = terms.within(self.bridge.largest_packet());
        let peer = dialled.peer;
        let lost = if terms.session_present { SessionThere::Kept } else { SessionThere::Lost };
        let session = self.session.prepare(lost).await?;
        if !terms.session_present && !self.bridge.is_clean() && session.in_flight + session.forgotten > 0 {
            self.report.change(|facts| {
                facts.sessions_lost += 1;
                facts.last_session_lost = clock::now();
            });
            warn!(event = "bridge.session_lost", bridge = self.bridge.label(), address = %peer, in_flight = session.in_flight, received = session.forgotten, "the other broker has lost the session: messages that it did not acknowledge are sent as new ones, so QoS 2 messages may come twice");
        }
        self.report.enter(clock::now(), BridgeState::Subscribing);
        let patience = Patience {
            keep_alive: terms.keep_alive(self.bridge.keep_alive_secs()),
            answer: self.bridge.patience(),
            acknowledgement: self.bridge.ack_patience(),
        };
        let OwnLimits { packet_size: packet_size_here, takes_retained: takes_retained_here, .. } = self.own;
        let link_terms = LinkTerms { version, there: terms, patience, packet_size_here, takes_retained_here };
        let mut out = Output::default();
        let path_growth = self.session.name.as_ref().map_or(0, |own| growth(own, there.as_ref()));
        let growth = self.rules.growth_out() + path_growth;
        self.session.hello(terms, growth, &mut out.here)?;
        let (rules, stale) = (Arc::clone(self.rules), stale(&session, self.rules));
        let mut link = Link::begin(clock::now(), rules, link_terms, stale, &mut out)?;
        if must_free {
            link.free_identifiers(clock::now(), &mut out);
        }
        if let Some(own) = self.session.name.clone() {
            link.keep_path(own, there);
        }
        if let Some(topic) = self.bridge.notifications() {
            link.notify_on(&topic);
        }
        if self.bridge.connect_when() == ConnectWhen::OnDemand {
            link.end_when_idle(self.bridge.idle_patience());
        }
        let here = self.session.open(Some(&dialled), version)?;
        info!(event = "bridge.accepted", bridge = self.bridge.label(), address = %peer, version = version.name(), session_present = terms.session_present, "the other broker accepts the bridge");
        Ok(Pump::new(dialled, here, link, rest, out, Arc::clone(self.report)))
    }
}

/// Sends CONNECT, and waits for CONNACK.
pub(super) async fn greet(mut dialled: Dialled, hello: Hello<'_>) -> Result<Accepted, AttemptEnd> {
    let (mut out, stream) = (Vec::new(), &mut dialled.stream);
    hello.put(&mut out)?;
    stream.write_all(&out).await.map_err(AttemptEnd::There)?;
    stream.flush().await.map_err(AttemptEnd::There)?;
    let mut rest = BytesMut::new();
    let (terms, there) = read_connack(stream, hello.version, &mut rest).await?;
    Ok(Accepted { dialled, terms, there, rest })
}

/// Reads CONNACK. `rest` gets what comes behind it.
async fn read_connack(
    stream: &mut Box<dyn Stream>,
    version: ProtocolVersion,
    rest: &mut BytesMut,
) -> Result<(TermsThere, Option<BrokerPath>), AttemptEnd> {
    loop {
        match decode(rest, version, CONNACK).map_err(AttemptEnd::Malformed)? {
            Decoded::Packet { packet: Packet::Connack(connack), length } => {
                let terms = TermsThere::of(&connack).map_err(AttemptEnd::Refused)?;
                let there = BrokerPath::of_connack(&connack);
                rest.advance(length);
                return Ok((terms, there));
            }
            Decoded::Packet { packet, .. } => return Err(AttemptEnd::NotConnack(packet.name())),
            Decoded::Incomplete { .. } => {}
        }
        match stream.read_buf(rest).await {
            Ok(0) => return Err(AttemptEnd::NoConnack),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Err(AttemptEnd::NoConnack);
            }
            // By TLS 1.3 a server looks at the certificate of the client behind the handshake.
            Err(error) if is_about_certificate(&error) => return Err(AttemptEnd::CertificateRefused(error)),
            Err(error) => return Err(AttemptEnd::There(error)),
        }
    }
}

/// Ends a connection that only was to end a session.
pub(super) async fn say_goodbye(
    stream: &mut Box<dyn Stream>,
    version: ProtocolVersion,
) -> Result<(), AttemptEnd> {
    let mut out = Vec::new();
    encode(&Packet::Disconnect(Disconnect::new(ReasonCode::NORMAL_DISCONNECTION)), version, &mut out)?;
    stream.write_all(&out).await.map_err(AttemptEnd::There)?;
    stream.shutdown().await.map_err(AttemptEnd::There)
}
