//! The command line of `homing load`. [`super::plan`] decides if the values go together.

use super::verify::PayloadSizes;
use clap::builder::ValueParser;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Subcommand, ValueEnum};
use homing_core::mqtt::packet::{ProtocolVersion, QoS};
use homing_core::time::duration;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  homing load throughput -q 1                          10 publishers, 10 subscribers, 10 s
  homing load latency --rate 2000 -q 1 --csv run.csv   a fixed rate; one line of CSV each 250 ms
  homing load connections -c 10000 -R 500              10,000 clients, 500 more each second
  homing load redelivery --plan every-nth --observe 30s
  homing load throughput --layout fan-out --subscribers 100 --pid $(pidof mosquitto)
  homing load latency -t 'site/%u/up' -i 'meter-%i' --users users.txt --ramp-up 30s
  homing load throughput -p 8883 --ca ca.pem --ws -u ann --password-file secret
  homing load throughput --threads 4 --json > a.json   four threads of this process
  homing load add a.json b.json                        the reports of two machines as one

Exit codes: 0 all that the QoS promises was kept; 1 it was not, or the broker cannot be
reached; 2 arguments refused.";

const LIMITS: &str = "\
Topics are homing-load/RUN/NUMBER, or homing-load/RUN/all with --layout fan-out and shared. RUN has
eight hexadecimal digits and differs between runs, so an ACL allows homing-load/#.

Limits of rumqttc 0.25, the client underneath: no MQTT 3.1; it cannot withhold PUBCOMP;
after a reconnect it publishes again with DUP=0 (so a publisher that loses its connection
ends the run); it hands a repeated QoS 2 message up again (counted as redelivered); a
PUBREC that refuses a message keeps its place in the window (5.0); it pings at Keep Alive
whatever else goes on. A client takes 27 KiB (3.1.1) or 45 KiB (5.0) here. Above the limit
of its threads the figures are those of this program, not of the broker.
TLS and WebSocket are not done by rumqttc but by a relay in this program: a pass through the
kernel more each way, and three descriptors for each client.";

/// The headings of the help, in the order of the help.
const BROKER: &str = "Broker";
const CLIENTS: &str = "Clients";
const MESSAGES: &str = "Messages";
const REPORT: &str = "Report";

/// Load a broker, this or any other, and check that it keeps what MQTT promises.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{LIMITS}"))]
pub struct LoadArguments {
    #[command(flatten)]
    _elsewhere: BrokerSettings,
    #[command(subcommand)]
    pub(crate) command: LoadCommand,
}

/// A scenario, or the sum of reports.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum LoadCommand {
    #[command(flatten)]
    Run(Box<Scenario>),
    /// Add the JSON reports of several processes or machines
    Add(AddArguments),
}

/// The scenarios of `homing load`, each with its arguments.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum Scenario {
    /// As many messages as the broker takes, in a closed loop
    Throughput(Throughput),
    /// Messages at a fixed rate, each stamped with the time it was due
    Latency(Latency),
    /// Many connections, then idle with keep alive
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
pub(crate) struct Common {
    #[command(flatten)]
    pub broker: BrokerArguments,
    #[command(flatten)]
    pub clients: ClientArguments,
    #[command(flatten)]
    pub messages: MessageArguments,
    /// Process of a broker on this machine: its CPU per delivered message and its memory
    #[arg(long, help_heading = REPORT)]
    pub pid: Option<u32>,
    #[command(flatten)]
    pub output: ReportArguments,
}

/// The broker, and the way to it.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = BROKER)]
pub(crate) struct BrokerArguments {
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    #[arg(short, long, default_value_t = 1883)]
    pub port: u16,
    /// MQTT version: 3.1.1 or 5
    #[arg(short = 'V', long, value_name = "VERSION", default_value = "3.1.1", value_parser = version)]
    pub mqtt: ProtocolVersion,
    /// Use WebSocket
    #[arg(long)]
    pub ws: bool,
    /// Path of the WebSocket; implies --ws [default: /mqtt]
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    pub ws_path: Option<String>,
    /// Use TLS
    #[arg(long)]
    pub tls: bool,
    /// Trust the authorities in this file (PEM); implies --tls [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Name that the broker's certificate must have; implies --tls [default: --host]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub server_name: Option<String>,
    /// Certificate of all clients (PEM); implies --tls
    #[arg(long, value_name = "FILE", requires = "key", hide_short_help = true)]
    pub cert: Option<PathBuf>,
    /// Private key of --cert (PEM)
    #[arg(long, value_name = "FILE", requires = "cert", hide_short_help = true)]
    pub key: Option<PathBuf>,
}

/// The clients of a run.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = CLIENTS)]
pub(crate) struct ClientArguments {
    /// Publishers [default: by scenario and layout]
    #[arg(long, value_name = "N")]
    pub publishers: Option<u32>,
    /// Subscribers [default: by scenario and layout]
    #[arg(long, value_name = "N")]
    pub subscribers: Option<u32>,
    /// Clients that connect in a second, all together [default: as fast as the broker takes them]
    #[arg(short = 'R', long, value_name = "PER SECOND")]
    pub connect_rate: Option<u32>,
    /// User name of all clients
    #[arg(short, long, value_name = "NAME")]
    pub user: Option<String>,
    /// File with the password in its first line [default: environment variable
    /// HOMING_LOAD_PASSWORD]
    #[arg(long, value_name = "FILE", requires = "user")]
    pub password_file: Option<PathBuf>,
    /// File with a line NAME:PASSWORD for each client; after the last line comes the first again
    #[arg(long, value_name = "FILE", conflicts_with = "user")]
    pub users: Option<PathBuf>,
    /// Client ids of the publishers and idle clients: %i number, %u user, %r run, %% a percent sign
    /// [default: loadRUN-pNUMBER]
    #[arg(short = 'i', long, value_name = "PATTERN")]
    pub client_id: Option<String>,
    /// Client ids of the subscribers [default: --client-id with -sub behind it, or loadRUN-sNUMBER]
    #[arg(long, value_name = "PATTERN", hide_short_help = true)]
    pub subscriber_id: Option<String>,
    /// Number of the first publisher and of the first subscriber; the next have the next ones
    #[arg(short = 'n', long, value_name = "N", default_value_t = 0)]
    #[arg(hide_short_help = true)]
    pub start_number: u32,
    /// Threads that share the clients; more than one needs --layout one-to-one
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u32,
}

/// The messages of a run, and its duration.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = MESSAGES)]
pub(crate) struct MessageArguments {
    /// 0, 1 or 2, for publishers and subscribers [default: 0; redelivery and session: 1]
    #[arg(short, long, value_parser = qos)]
    pub qos: Option<QoS>,
    /// Topic of a publisher: %i number, %c client id, %u user, %r run [default:
    /// homing-load/RUN/...]
    #[arg(short, long, value_name = "PATTERN")]
    pub topic: Option<String>,
    /// Bytes of each payload, or a range such as 64-4096; 24 at least
    #[arg(short = 's', long, value_name = "BYTES", default_value = "64")]
    pub payload: PayloadSizes,
    /// Publish retained messages, and remove them at the end
    #[arg(short, long)]
    pub retain: bool,
    /// Time to publish, warm-up included [default: 10s, or until --messages are sent]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    pub duration: Option<Duration>,
    /// Messages from each publisher, warm-up included
    #[arg(short, long, value_name = "N")]
    pub messages: Option<u64>,
    /// Leave this much out of rate, latency and CPU; it is verified [default: 1s after the ramp-up,
    /// with --messages off]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    #[arg(hide_short_help = true)]
    pub warmup: Option<Duration>,
    /// Unacknowledged QoS 1 and 2 messages of each publisher
    #[arg(long, value_name = "N", default_value_t = 20, hide_short_help = true)]
    pub window: u16,
    /// Maximum time without any progress; then the run ends without the rest
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    #[arg(hide_short_help = true)]
    pub patience: Duration,
}

/// The forms of a report.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReportArguments {
    /// One JSON object instead of the table, for programs and for `homing load add`
    #[arg(long, help_heading = REPORT)]
    pub json: bool,
    /// Write a line for each quarter of a second, while it happens
    #[arg(long, value_name = "FILE", help_heading = REPORT)]
    pub csv: Option<PathBuf>,
    /// Draw rate and latency over time
    #[arg(long, value_name = "FILE.svg", help_heading = REPORT)]
    pub plot: Option<PathBuf>,
}

/// Add the JSON reports of several processes or machines
#[derive(Args, Clone, Debug)]
pub(crate) struct AddArguments {
    /// Reports of `homing load ... --json`, of one scenario
    #[arg(value_name = "FILE", required = true, num_args = 2..)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub output: ReportArguments,
}

/// As many messages as the broker takes, in a closed loop
#[derive(Args, Clone, Debug)]
pub(crate) struct Throughput {
    #[arg(long, value_enum, default_value_t = Layout::OneToOne)]
    pub layout: Layout,
    /// Messages of each publisher under way until all receivers have them
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub end_to_end: u32,
    /// Time in which the publishers start, one after the other
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub ramp_up: Duration,
    #[command(flatten)]
    pub common: Common,
}

/// Messages at a fixed rate, each stamped with the time it was due
#[derive(Args, Clone, Debug)]
pub(crate) struct Latency {
    /// Messages per second of all publishers together
    #[arg(long, value_name = "PER SECOND", default_value_t = 1000)]
    pub rate: u32,
    #[arg(long, value_enum, default_value_t = Layout::OneToOne)]
    pub layout: Layout,
    /// Time in which the rate grows from 0 to --rate
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub ramp_up: Duration,
    #[command(flatten)]
    pub common: Common,
}

/// Many connections, then idle with keep alive
#[derive(Args, Clone, Debug)]
pub(crate) struct ConnectionsArguments {
    /// Connections to open; --duration is how long they then stay idle
    #[arg(short, long, value_name = "N", default_value_t = 1000)]
    pub connections: u32,
    /// Connections that may be under way at once
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub concurrency: u32,
    /// Keep Alive; rumqttc pings at this interval, and takes 5 s at least with --mqtt 5
    #[arg(short, long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    pub keep_alive: Duration,
    #[command(flatten)]
    pub common: Common,
}

/// Subscribers that withhold acknowledgements by plan
#[derive(Args, Clone, Debug)]
pub(crate) struct Redelivery {
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
    #[command(flatten)]
    pub common: Common,
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

/// The flags of the broker. clap copies a global flag into each command that has none of its name.
/// These take the place of the copies: hidden in the help, and refused.
#[derive(Clone, Debug)]
struct BrokerSettings;

impl BrokerSettings {
    /// The ids and names of the global flags of the program.
    const FLAGS: [(&str, &str); 7] = [
        ("listen", "listen"),
        ("config", "config"),
        ("data_dir", "data-dir"),
        ("ephemeral", "ephemeral"),
        ("set", "set"),
        ("log_level", "log-level"),
        ("log_format", "log-format"),
    ];
}

impl Args for BrokerSettings {
    fn augment_args(command: Command) -> Command {
        let refuse =
            |_: &str| Err::<String, _>("it is a setting of the broker; a load test has no use for it");
        BrokerSettings::FLAGS.into_iter().fold(command, |command, (id, name)| {
            let flag = Arg::new(id).long(name).hide(true).num_args(0..=1);
            command.arg(flag.default_missing_value("").value_parser(ValueParser::new(refuse)))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        BrokerSettings::augment_args(command)
    }
}

impl FromArgMatches for BrokerSettings {
    fn from_arg_matches(_: &ArgMatches) -> Result<BrokerSettings, clap::Error> {
        Ok(BrokerSettings)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
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
