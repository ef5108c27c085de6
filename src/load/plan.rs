//! The plan of a scenario, checked before any connection is opened.

use super::args::{Common, Layout};
use super::client::{Acks, Options, SessionLife, Tunnel};
use super::credentials::LoadCredentials;
use super::refused::{Refused, require};
use super::verify;
use crate::clock;
use crate::mqtt::packet::{ProtocolVersion, QoS};
use crate::net::tls::client::client_config;
use crate::net::tls::settings::CertificateFiles;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of clients on each side. Descriptors and ports end before that.
const CLIENTS: u32 = 100_000;
/// Maximum payload in bytes: the largest packet of MQTT without room for its header.
const PAYLOAD: usize = 268_435_455 - 1024;

/// The duration of a scenario if neither `--duration` nor `--messages` is given.
const DURATION: Duration = Duration::from_secs(10);

/// The settings that all clients of a run share.
#[derive(Clone, Debug)]
pub(super) struct LoadWire {
    pub host: String,
    pub port: u16,
    pub credentials: Option<LoadCredentials>,
    pub tunnel: Option<Arc<Tunnel>>,
    pub version: ProtocolVersion,
    pub qos: QoS,
    pub payload: usize,
    pub window: u16,
    /// A random number in client ids and topics, so that two runs against one broker do not meet.
    pub run: u32,
}

/// The bounds of a run in messages and time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub duration: Option<Duration>,
    pub messages: Option<u64>,
    pub warmup: Duration,
    pub patience: Duration,
}

/// The topics of the publishers and the filters of the subscribers.
#[derive(Clone, Debug)]
pub(super) struct Topology {
    /// The topic of each publisher.
    pub topics: Vec<String>,
    /// The filter of each subscriber.
    pub filters: Vec<String>,
    /// The audience of each subscriber. Subscribers that share a subscription are one audience.
    pub audiences: Vec<u32>,
    /// Audiences that each message goes to.
    pub copies: u32,
}

impl LoadWire {
    /// Checks the arguments and returns the part that all clients share.
    ///
    /// # Errors
    /// The first argument that makes no sense.
    pub(super) fn new(common: &Common, qos: QoS, run: u32) -> Result<LoadWire, Refused> {
        let least = verify::LENGTH;
        require(
            common.payload >= least,
            &format!("--payload must be at least {least}: publisher, sequence and time"),
        )?;
        require(
            common.payload <= PAYLOAD,
            &format!("--payload must be at most {PAYLOAD}: MQTT has no larger packets"),
        )?;
        require((1..=16_000).contains(&common.window), "--window must be from 1 to 16000")?;
        require(common.port != 0, "--port must not be 0")?;
        require(!common.host.is_empty(), "--host must not be empty")?;
        Ok(LoadWire {
            host: common.host.clone(),
            port: common.port,
            credentials: LoadCredentials::of(common)?,
            tunnel: tunnel(common, run)?,
            version: common.mqtt,
            qos,
            payload: common.payload,
            window: common.window,
            run,
        })
    }

    /// Returns the options of a client that acknowledges at once and whose session ends with its
    /// connection.
    pub(super) fn options(&self, role: &str, index: usize) -> Options {
        Options {
            host: self.host.clone(),
            port: self.port,
            credentials: self.credentials.clone(),
            tunnel: self.tunnel.clone(),
            version: self.version,
            client_id: format!("load{:08x}-{role}{index}", self.run),
            keep_alive: Duration::from_secs(60),
            session: SessionLife::Clean,
            acks: Acks::AtOnce,
            window: self.window,
            payload: self.payload,
            known_ids: Vec::new(),
        }
    }
}

/// Returns the TLS of all clients, or `None` if no argument asks for it.
fn tunnel(common: &Common, run: u32) -> Result<Option<Arc<Tunnel>>, Refused> {
    let identity = match (&common.cert, &common.key) {
        (Some(certificate), Some(key)) => {
            Some(CertificateFiles { certificate: certificate.clone(), chain: None, key: key.clone() })
        }
        _ => None,
    };
    if !(common.tls || common.ca.is_some() || common.server_name.is_some() || identity.is_some()) {
        return Ok(None);
    }
    let config =
        client_config(common.ca.as_deref(), identity.as_ref()).map_err(|error| Refused(error.to_string()))?;
    let name = common.server_name.as_deref().unwrap_or(&common.host);
    Ok(Some(Arc::new(Tunnel::new(config, name, run)?)))
}

impl Extent {
    /// Checks the bounds of a run. `default` is its duration if neither duration nor messages are
    /// given.
    ///
    /// # Errors
    /// The first argument that makes no sense.
    pub(super) fn new(common: &Common, default: Duration) -> Result<Extent, Refused> {
        require(common.messages != Some(0), "--messages must not be 0")?;
        require(common.duration != Some(Duration::ZERO), "--duration must not be 0")?;
        require(!common.patience.is_zero(), "--patience must not be 0")?;
        let duration =
            if common.messages.is_some() { common.duration } else { common.duration.or(Some(default)) };
        let default = if common.messages.is_some() { Duration::ZERO } else { Duration::from_secs(1) };
        let warmup = common.warmup.unwrap_or(match duration {
            // A second of warm-up would leave nothing.
            Some(duration) if duration < Duration::from_secs(4) => duration / 4,
            _ => default,
        });
        require(
            duration.is_none_or(|duration| warmup < duration),
            "--warmup must be shorter than --duration, which includes it",
        )?;
        Ok(Extent { duration, messages: common.messages, warmup, patience: common.patience })
    }
}

impl Topology {
    /// Returns the topics and filters of a layout.
    ///
    /// # Errors
    /// The numbers of clients are out of range or do not fit the layout.
    pub(super) fn new(layout: Layout, common: &Common, run: u32) -> Result<Topology, Refused> {
        let (publishers, subscribers) = clients(layout, common)?;
        let topic = |name: &str| format!("homing-load/{run:08x}/{name}");
        let numbered = |count: u32| (0..count).map(|index| topic(&index.to_string())).collect::<Vec<_>>();
        let repeated = |text: String, count: u32| vec![text; count as usize];
        let everyone = || (0..subscribers).collect::<Vec<_>>();
        Ok(match layout {
            Layout::OneToOne => Topology {
                topics: numbered(publishers),
                filters: numbered(subscribers),
                audiences: everyone(),
                copies: 1,
            },
            Layout::FanIn => Topology {
                topics: numbered(publishers),
                filters: repeated(topic("+"), subscribers),
                audiences: everyone(),
                copies: subscribers,
            },
            Layout::FanOut => Topology {
                topics: repeated(topic("all"), publishers),
                filters: repeated(topic("all"), subscribers),
                audiences: everyone(),
                copies: subscribers,
            },
            Layout::Shared => Topology {
                topics: repeated(topic("all"), publishers),
                filters: repeated(format!("$share/load/{}", topic("all")), subscribers),
                audiences: vec![0; subscribers as usize],
                copies: 1,
            },
        })
    }
}

/// Checks the arguments that all scenarios share. Returns the settings of the clients and the
/// bounds of the run.
///
/// # Errors
/// The first argument that makes no sense.
pub(super) fn prepare(common: &Common, qos: QoS) -> Result<(LoadWire, Extent), Refused> {
    let wire = LoadWire::new(common, qos, run_number())?;
    let extent = Extent::new(common, DURATION)?;
    Ok((wire, extent))
}

/// Returns a number that almost never is the same in two runs at one time.
fn run_number() -> u32 {
    let time = (clock::unix_millis() & 0xFFFF_FFFF) as u32;
    time ^ std::process::id().rotate_left(20)
}

/// Returns the numbers of publishers and subscribers.
fn clients(layout: Layout, common: &Common) -> Result<(u32, u32), Refused> {
    let (publishers, subscribers) = match layout {
        Layout::OneToOne => {
            let publishers = common.publishers.or(common.subscribers).unwrap_or(10);
            (publishers, common.subscribers.unwrap_or(publishers))
        }
        Layout::FanIn => (common.publishers.unwrap_or(10), common.subscribers.unwrap_or(1)),
        Layout::FanOut => (common.publishers.unwrap_or(1), common.subscribers.unwrap_or(10)),
        Layout::Shared => (common.publishers.unwrap_or(10), common.subscribers.unwrap_or(10)),
    };
    let allowed = 1..=CLIENTS;
    require(allowed.contains(&publishers), &format!("--publishers must be from 1 to {CLIENTS}"))?;
    require(allowed.contains(&subscribers), &format!("--subscribers must be from 1 to {CLIENTS}"))?;
    require(
        layout != Layout::OneToOne || publishers == subscribers,
        "--publishers and --subscribers must be the same one-to-one",
    )?;
    Ok((publishers, subscribers))
}
