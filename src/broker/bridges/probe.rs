//! A look at the other broker of a bridge, for `homing doctor`: the name, the socket, TLS, CONNECT
//! and SUBSCRIBE, as the bridge itself does it.
//!
//! The look has a client identifier of its own and a session that ends with its connection. So it
//! takes neither the session of a bridge that runs nor its messages. It publishes nothing, so a
//! refused PUBLISH is not found.

use super::attempt::{Accepted, AttemptEnd, greet, say_goodbye};
use super::dial;
use super::turns::{PATIENCE, look_in_turns};
use crate::bridge::deadlines::Patience;
use crate::bridge::hello::{Hello, TermsThere};
use crate::bridge::link::{Link, LinkNews, LinkTerms, Output};
use crate::bridge::rules::{RetainedAtStart, TopicRule, TopicRules};
use crate::broker::live_files::READ;
use crate::clock;
use crate::config::{Bridge, BridgeAddress, BridgeVersion};
use crate::file_thread::FileThread;
use crate::host::Names;
use crate::mqtt::packet::{ProtocolVersion, ReasonCode};
use bytes::Buf;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The end of the client identifier of a look.
const SUFFIX: &str = "-doctor";

/// The largest packet in bytes that is read.
const LARGEST: u32 = 1 << 20;

/// The result of a look at one address of a bridge.
#[derive(Debug)]
pub struct Probed {
    /// The name of the bridge.
    pub bridge: String,
    /// The address.
    pub address: String,
    /// The client identifier of the look.
    pub client_id: String,
    /// What the other broker accepts, or why there is no connection; `None` if there was no time
    /// for the look.
    pub found: Option<Result<Accepts, String>>,
}

/// What another broker accepts.
#[derive(Debug)]
pub struct Accepts {
    /// The version of MQTT.
    pub version: ProtocolVersion,
    /// The Topic Filters that it was asked for.
    pub filters: usize,
    /// The Topic Filters that it refuses, each with the reason.
    pub refused: Vec<(String, ReasonCode)>,
    /// What it does not take of what the bridge may send, each as a sentence.
    pub limits: Vec<String>,
}

/// Looks at every address of the bridges, and returns the results in their order. Blocks for a
/// minute at most; an address whose turn has not come by then is reported so.
///
/// # Errors
/// The system refuses a thread or a socket for the look.
pub fn probe(bridges: &[Bridge]) -> std::io::Result<Vec<Probed>> {
    let addresses = bridges.iter().flat_map(|bridge| {
        bridge.addresses.iter().flatten().map(move |address| (bridge.clone(), address.clone()))
    });
    let looked = look_in_turns(addresses, |(bridge, address)| look_in_time(bridge, address))?;
    let probed = |((bridge, address), found): ((Bridge, BridgeAddress), _)| Probed {
        bridge: bridge.label().to_owned(),
        address: address.to_string(),
        client_id: client_id(&bridge),
        found,
    };
    Ok(looked.into_iter().map(probed).collect())
}

fn client_id(bridge: &Bridge) -> String {
    bridge.client_id_there() + SUFFIX
}

/// What a look waits for, as the error if that does not come in time.
type Stage = Cell<&'static str>;

const NO_CONNECTION: &str =
    "the name is not resolved, or TCP or TLS is not connected, within connect_timeout";
const NO_CONNACK: &str = "no CONNACK within connect_timeout";
const NO_SUBACK: &str = "no SUBACK within connect_timeout";

async fn look_in_time(bridge: Bridge, address: BridgeAddress) -> Result<Accepts, String> {
    let stage = Stage::new(NO_CONNECTION);
    let first = bridge.version().first();
    let found = within(&bridge, look(&bridge, &address, first, &stage)).await;
    let found = match found {
        Err(end) if bridge.version() == BridgeVersion::Auto && end.may_speak_less(first) => {
            within(&bridge, look(&bridge, &address, ProtocolVersion::V3_1_1, &stage)).await
        }
        found => found,
    };
    found.map_err(|end| match end {
        AttemptEnd::Late => stage.get().to_owned(),
        end => end.to_string(),
    })
}

fn patience(bridge: &Bridge) -> Duration {
    bridge.patience().min(PATIENCE)
}

async fn within(
    bridge: &Bridge,
    look: impl Future<Output = Result<Accepts, AttemptEnd>>,
) -> Result<Accepts, AttemptEnd> {
    tokio::time::timeout(patience(bridge), look).await.unwrap_or(Err(AttemptEnd::Late))
}

async fn look(
    bridge: &Bridge,
    address: &BridgeAddress,
    version: ProtocolVersion,
    stage: &Stage,
) -> Result<Accepts, AttemptEnd> {
    stage.set(NO_CONNECTION);
    let secrets = dial::read_files(bridge, address, &FileThread::new("homing-bridge-f", READ)).await?;
    let dialled = dial::connect(bridge, address, &secrets, &Names::default()).await?;
    stage.set(NO_CONNACK);
    let client_id = client_id(bridge);
    let hello = Hello {
        version,
        client_id: &client_id,
        clean_start: true,
        keep_alive: bridge.keep_alive_secs(),
        session_expiry: 0,
        receive_maximum: 1,
        packet_size: LARGEST,
        user: bridge.user.as_deref(),
        password: secrets.password(),
        bridge_bit: bridge.bridge_bit.unwrap_or(false),
        name: None,
        notification_topic: None,
        retains_will: true,
    };
    let accepted = greet(dialled, hello).await?;
    stage.set(NO_SUBACK);
    subscribe(bridge, accepted, version).await
}

/// Subscribes as the bridge does, but for what is retained.
async fn subscribe(
    bridge: &Bridge,
    accepted: Accepted,
    version: ProtocolVersion,
) -> Result<Accepts, AttemptEnd> {
    let Accepted { mut dialled, terms, mut rest, .. } = accepted;
    let never = |rule: TopicRule| TopicRule { retain: RetainedAtStart::Never, ..rule };
    let rules = Arc::new(TopicRules::new(bridge.rules().map(never)));
    let asked = rules.subscriptions_there().len();
    let limits = limits_of(&terms, &rules);
    let patience = patience(bridge);
    let times = Patience { keep_alive: patience, answer: patience, acknowledgement: patience };
    let link_terms = LinkTerms {
        version,
        there: terms,
        patience: times,
        packet_size_here: LARGEST,
        takes_retained_here: true,
    };
    let mut out = Output::default();
    let mut link = Link::begin(clock::now(), rules, link_terms, Vec::new(), &mut out)?;
    while !link.is_subscribed_there() {
        // Each SUBSCRIBE follows the answer to the one before.
        dialled.stream.write_all(&out.there).await.map_err(AttemptEnd::There)?;
        dialled.stream.flush().await.map_err(AttemptEnd::There)?;
        out.there.clear();
        let used = link.take_from_there(clock::now(), &rest, &mut out)?;
        rest.advance(used);
        // A message is for nobody here.
        out.here.clear();
        if used == 0 && dialled.stream.read_buf(&mut rest).await.map_err(AttemptEnd::There)? == 0 {
            return Err(AttemptEnd::ClosedThere);
        }
    }
    // The answers have come, whatever becomes of the farewell.
    let _ = say_goodbye(&mut dialled.stream, version).await;
    let refused = link.take_news().into_iter().filter_map(|news| match news {
        LinkNews::FilterRefusedThere(filter, reason) => Some((filter, reason)),
        _ => None,
    });
    Ok(Accepts { version, filters: asked, refused: refused.collect(), limits })
}

/// Returns what the other broker does not take of what the bridge may send.
fn limits_of(terms: &TermsThere, rules: &TopicRules) -> Vec<String> {
    let mut limits = Vec::new();
    let highest = rules.highest_qos_out();
    if terms.maximum_qos < highest {
        let (most, asked) = (terms.maximum_qos as u8, highest as u8);
        limits.push(format!("takes QoS {most} at most, so messages of QoS {asked} are sent with less"));
    }
    if !terms.takes_retained && !rules.subscriptions_here().is_empty() {
        limits.push("keeps no retained messages".to_owned());
    }
    limits
}
