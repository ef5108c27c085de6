//! The command line of `homing load`. [`super::plan`] decides if the values go together.

use crate::config::duration;
use crate::mqtt::packet::{ProtocolVersion, QoS};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

const AFTER_HELP: &str = "\
Examples:
  homing load throughput --qos 2                       10 publishers, 10 subscribers, 10 s
  homing load throughput --layout fan-out --subscribers 100 --pid $(pidof mosquitto)
  homing load latency --rate 2000 --qos 1 --plot latency.svg
  homing load redelivery --plan every-nth --observe 30s
  homing load connections --connections 5000 --duration 60s
  homing load throughput --port 8883 --ca ca.pem --user ann --password-file secret

Exit codes: 0 all that the QoS promises was kept; 1 it was not, or the broker cannot be
reached; 2 arguments refused.

Limits of rumqttc 0.25, the client underneath: no MQTT 3.1; it cannot withhold PUBCOMP;
after a reconnect it publishes again with DUP=0 (so a publisher that loses its connection
ends the run); it hands a repeated QoS 2 message up again (counted as redelivered); a
PUBREC that refuses a message keeps its place in the window (5.0); it pings at Keep Alive
whatever else goes on. A client takes 27 KiB (3.1.1) or 45 KiB (5.0) here. One thread does
everything: above its limit the figures are those of this program, not of the broker.
TLS is not done by rumqttc but by a relay in this program: a pass through the kernel more
each way, and three descriptors for each client.
The settings of the broker (--listen, --config, --set ...) have no effect here.";

/// Load a broker, this or any other, and check that it keeps what MQTT promises.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct LoadArguments {
    #[command(subcommand)]
    pub(crate) scenario: Scenario,
}

/// The scenarios of `homing load`, each with its arguments.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum Scenario {
    /// As many messages as the broker takes, in a closed loop
    Throughput(Throughput),
    /// Messages at a fixed rate, each stamped with the time it was due
    Latency(Latency),
    /// Many connections at once, then idle with keep alive
    Connections(ConnectionsArguments),
    /// Subscribers that withhold acknowledgements by plan
    Redelivery(Redelivery),
    /// A queue built up for absent subscribers, then drained
    Session(SessionArguments),
}

impl Scenario {
    /// Returns the arguments that every scenario has.
    pub(crate) fn common(&self) -> &Common {
        match self {
            Scenario::Throughput(arguments) => &arguments.common,
            Scenario::Latency(arguments) => &arguments.common,
            Scenario::Connections(arguments) => &arguments.common,
            Scenario::Redelivery(arguments) => &arguments.common,
            Scenario::Session(arguments) => &arguments.common,
        }
    }
}

/// The arguments of every scenario.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Load")]
pub(crate) struct Common {
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    #[arg(long, default_value_t = 1883)]
    pub port: u16,
    /// User name of all clients
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// File with the password in its first line [default: environment variable
    /// HOMING_LOAD_PASSWORD]
    #[arg(long, value_name = "FILE", requires = "user")]
    pub password_file: Option<PathBuf>,
    /// Use TLS
    #[arg(long)]
    pub tls: bool,
    /// Trust the authorities in this file (PEM); implies --tls [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Name that the broker's certificate must have; implies --tls [default: --host]
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,
    /// Certificate of all clients (PEM); implies --tls
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// Private key of --cert (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// MQTT version: 3.1.1 or 5
    #[arg(long, value_name = "VERSION", default_value = "3.1.1", value_parser = version)]
    pub mqtt: ProtocolVersion,
    /// 0, 1 or 2, for publishers and subscribers [default: 0; redelivery and session: 1]
    #[arg(long, value_parser = qos)]
    pub qos: Option<QoS>,
    /// Bytes of each payload; 24 at least
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    pub payload: usize,
    /// Default: by scenario and layout
    #[arg(long, value_name = "N")]
    pub publishers: Option<u32>,
    /// Default: by scenario and layout
    #[arg(long, value_name = "N")]
    pub subscribers: Option<u32>,
    /// Time to publish, warm-up included [default: 10s, or until --messages are sent]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub duration: Option<Duration>,
    /// Messages from each publisher, warm-up included
    #[arg(long, value_name = "N")]
    pub messages: Option<u64>,
    /// Leave this much out of rate, latency and CPU; it is verified [default: 1s, with --messages
    /// off]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub warmup: Option<Duration>,
    /// Unacknowledged QoS 1 and 2 messages of each publisher
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub window: u16,
    /// Maximum time without any progress; then the run ends without the rest
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    pub patience: Duration,
    /// Process of a broker on this machine: its CPU per delivered message and its memory
    #[arg(long)]
    pub pid: Option<u32>,
    /// One JSON object instead of the table
    #[arg(long)]
    pub json: bool,
    /// Draw rate and latency over time
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

/// As many messages as the broker takes, in a closed loop
#[derive(Args, Clone, Debug)]
pub(crate) struct Throughput {
    #[command(flatten)]
    pub common: Common,
    #[arg(long, value_enum, default_value_t = Layout::OneToOne)]
    pub layout: Layout,
    /// Messages of each publisher under way until all receivers have them
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub end_to_end: u32,
}

/// Messages at a fixed rate, each stamped with the time it was due
#[derive(Args, Clone, Debug)]
pub(crate) struct Latency {
    #[command(flatten)]
    pub common: Common,
    #[arg(long, value_enum, default_value_t = Layout::OneToOne)]
    pub layout: Layout,
    /// Messages per second of all publishers together
    #[arg(long, value_name = "PER SECOND", default_value_t = 1000)]
    pub rate: u32,
}

/// Many connections at once, then idle with keep alive
#[derive(Args, Clone, Debug)]
pub(crate) struct ConnectionsArguments {
    #[command(flatten)]
    pub common: Common,
    /// Connections to open; --duration is how long they then stay idle
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub connections: u32,
    /// Connections that may be under way at once
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub concurrency: u32,
    /// Keep Alive; rumqttc pings at this interval, and takes 5 s at least with --mqtt 5
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    pub keep_alive: Duration,
}

/// Subscribers that withhold acknowledgements by plan
#[derive(Args, Clone, Debug)]
pub(crate) struct Redelivery {
    #[command(flatten)]
    pub common: Common,
    /// Plan that says which PUBACKs (QoS 1) or PUBRECs (QoS 2) are withheld
    #[arg(long, value_enum, default_value_t = Withhold::Never)]
    pub plan: Withhold,
    /// With --plan every-nth and crash: the n
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub nth: u64,
    /// With --plan late: time from the first transmission of a message to its acknowledgement
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse)]
    pub late: Duration,
    /// Maximum time to watch for resends before the subscribers return
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    pub observe: Duration,
    /// Time that the subscribers are away before they return
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration::parse)]
    pub away: Duration,
}

/// A queue built up for absent subscribers, then drained
#[derive(Args, Clone, Debug)]
pub(crate) struct SessionArguments {
    #[command(flatten)]
    pub common: Common,
}

/// The assignment of publishers to subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Layout {
    /// Publisher i to subscriber i
    OneToOne,
    /// Each on its own topic, all subscribers on all topics by a wildcard
    FanIn,
    /// All publishers on one topic that all subscribers have
    FanOut,
    /// All publishers on one topic that the subscribers share
    Shared,
}

/// The plan by which a subscriber withholds acknowledgements until it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Withhold {
    /// No message is acknowledged
    Never,
    /// The first transmission of every nth message is not acknowledged
    EveryNth,
    /// All acknowledgements are late
    Late,
    /// Every nth message is not acknowledged, and the subscriber closes its connection while
    /// messages come
    Crash,
}

fn version(text: &str) -> Result<ProtocolVersion, &'static str> {
    match text {
        "3.1.1" => Ok(ProtocolVersion::V3_1_1),
        "5" | "5.0" => Ok(ProtocolVersion::V5),
        _ => Err("must be 3.1.1 or 5 (rumqttc has no 3.1)"),
    }
}

fn qos(text: &str) -> Result<QoS, &'static str> {
    text.parse().ok().and_then(QoS::from_bits).ok_or("must be 0, 1 or 2")
}

/// Returns the error of clap as one line, without the usage.
pub fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let meant = |line: &&str| !line.is_empty() && !line.starts_with("For more information");
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:")).filter(meant);
    let line = lines.collect::<Vec<_>>().join(" ");
    line.trim_start_matches("error: ").to_owned()
}
