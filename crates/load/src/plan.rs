//! The plan of a run, checked before any connection is opened.

use super::args::{BrokerArguments, ClientArguments, Common, Layout, MessageArguments};
use super::client::{Acks, Options, SessionLife, Tunnel};
use super::command::{ClientCertificate, ClientTls};
use super::credentials::LoadUsers;
use super::pattern::{NamePattern, PatternValues};
use super::refused::{Refused, require};
use super::verify::PayloadSizes;
use crate::clock;
use homing_core::mqtt::packet::{ProtocolVersion, QoS};
use homing_core::mqtt::topic::{begins_with_dollar, is_topic_name};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of clients on each side. Descriptors and ports end before that.
const CLIENTS: u32 = 100_000;
/// Maximum number of threads.
const THREADS: u32 = 64;
/// Longest client id or topic in bytes (MQTT: a UTF-8 string).
const STRING_MAX: usize = 65_535;

/// The duration of a scenario if neither `--duration` nor `--messages` is given, without its
/// ramp-up.
const DURATION: Duration = Duration::from_secs(10);

/// Everything that a scenario needs to know about a run, or about the part of one thread.
#[derive(Clone, Debug)]
pub(super) struct LoadPlan {
    pub wire: LoadWire,
    pub extent: Extent,
    pub topology: Topology,
    pub part: LoadPart,
}

/// The settings that all clients of a run share.
#[derive(Clone, Debug)]
pub(super) struct LoadWire {
    pub host: String,
    pub port: u16,
    users: Arc<LoadUsers>,
    tunnel: Option<Arc<Tunnel>>,
    pub version: ProtocolVersion,
    pub qos: QoS,
    pub payload: PayloadSizes,
    pub retain: bool,
    pub window: u16,
    /// Clients that connect in a second, of all threads; `None` for no limit.
    pub connect_rate: Option<u32>,
    client_id: Option<NamePattern>,
    subscriber_id: Option<NamePattern>,
    /// A random number in client ids and topics, so that two runs against one broker do not meet.
    pub run: u32,
}

/// The task of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientRole {
    Publisher,
    Subscriber,
    /// A client that only connects.
    Idle,
}

/// The bounds of a run in messages and time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub duration: Option<Duration>,
    pub messages: Option<u64>,
    /// Time in which the load grows to its full size.
    pub ramp_up: Duration,
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

/// The clients of one thread among those of the process. A client is a publisher with its
/// subscriber, or an idle connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadPart {
    /// The number of the first client of the process.
    start_number: u32,
    /// Clients of the threads before.
    offset: u32,
    /// Clients of this thread.
    pub count: u32,
    /// Clients of all threads.
    pub whole: u32,
}

impl LoadPart {
    fn whole(start_number: u32, count: u32) -> LoadPart {
        LoadPart { start_number, offset: 0, count, whole: count }
    }

    /// Returns the number of a client of this thread, which is in its ids and topics.
    pub(super) fn number(&self, index: usize) -> u32 {
        self.start_number.saturating_add(self.position(index))
    }

    /// Returns the index in this thread of a client with this number.
    pub(super) fn index(&self, number: u32) -> Option<usize> {
        let index = number.checked_sub(self.number(0))?;
        (index < self.count).then_some(index as usize)
    }

    /// Returns the position of a client of this thread among those of the process.
    pub(super) fn position(&self, index: usize) -> u32 {
        self.offset.saturating_add(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

impl LoadPlan {
    /// Checks the arguments of a scenario that publishes.
    ///
    /// # Errors
    /// The first argument that makes no sense.
    pub(super) fn new(
        common: &Common,
        qos: QoS,
        layout: Layout,
        ramp_up: Duration,
    ) -> Result<LoadPlan, Refused> {
        let wire = LoadWire::new(common, qos)?;
        let extent = Extent::new(&common.messages, ramp_up)?;
        let topology = Topology::new(layout, common, &wire)?;
        let pairs = topology.topics.len().max(topology.filters.len());
        let part = LoadPart::whole(common.clients.start_number, u32::try_from(pairs).unwrap_or(u32::MAX));
        require(
            layout == Layout::OneToOne || common.clients.threads == 1,
            "--threads needs --layout one-to-one: with other layouts a message goes to subscribers of every thread, \
             and no thread could say if it was lost or came twice. Start several processes instead, and add their \
             reports with homing load add",
        )?;
        wire.check_ids(common, &[ClientRole::Publisher, ClientRole::Subscriber], &part)?;
        LoadPlan { wire, extent, topology, part }.with_threads(common)
    }

    /// Checks the arguments of a scenario whose clients only connect.
    ///
    /// # Errors
    /// The first argument that makes no sense.
    pub(super) fn idle(common: &Common, clients: u32) -> Result<LoadPlan, Refused> {
        let wire = LoadWire::new(common, QoS::default())?;
        let extent = Extent::new(&common.messages, Duration::ZERO)?;
        let topology = Topology { topics: Vec::new(), filters: Vec::new(), audiences: Vec::new(), copies: 0 };
        let part = LoadPart::whole(common.clients.start_number, clients);
        wire.check_ids(common, &[ClientRole::Idle], &part)?;
        LoadPlan { wire, extent, topology, part }.with_threads(common)
    }

    fn with_threads(self, common: &Common) -> Result<LoadPlan, Refused> {
        require(
            (1..=THREADS).contains(&common.clients.threads),
            &format!("--threads must be from 1 to {THREADS}"),
        )?;
        require(
            common.clients.threads <= self.part.whole,
            "--threads must not be more than there are publishers or connections",
        )?;
        Ok(self)
    }

    /// Gives all clients TLS and WebSocket, if the arguments ask for them.
    ///
    /// # Errors
    /// A file of certificates cannot be used, a name or path is not valid, or the directory for
    /// the sockets cannot be made.
    pub(super) fn with_tunnel(
        mut self,
        broker: &BrokerArguments,
        client_tls: ClientTls,
    ) -> Result<LoadPlan, Refused> {
        self.wire.tunnel = tunnel(broker, self.wire.run, client_tls)?;
        Ok(self)
    }

    /// Returns the part of thread `index` of `threads`.
    pub(super) fn of_thread(&self, index: u32, threads: u32) -> LoadPlan {
        let whole = self.part.whole;
        let bound = |index: u32| (u64::from(whole) * u64::from(index) / u64::from(threads)) as u32;
        let (from, to) = (bound(index), bound(index + 1));
        let cut = |texts: &[String]| texts.get(from as usize..to as usize).unwrap_or(texts).to_vec();
        let mut plan = self.clone();
        if threads > 1 {
            plan.part = LoadPart { offset: from, count: to - from, ..self.part };
            plan.topology.topics = cut(&self.topology.topics);
            plan.topology.filters = cut(&self.topology.filters);
            plan.topology.audiences.truncate(plan.topology.filters.len());
        }
        plan
    }
}

impl LoadWire {
    fn new(common: &Common, qos: QoS) -> Result<LoadWire, Refused> {
        require((1..=16_000).contains(&common.messages.window), "--window must be from 1 to 16000")?;
        require(common.broker.port != 0, "--port must not be 0")?;
        require(!common.broker.host.is_empty(), "--host must not be empty")?;
        require(common.clients.connect_rate != Some(0), "--connect-rate must not be 0")?;
        let pattern = |option: &str, text: &Option<String>| {
            text.as_ref().map(|text| NamePattern::parse(option, text)).transpose()
        };
        let client_id = pattern("--client-id", &common.clients.client_id)?;
        let besides = common.clients.client_id.as_ref().map(|text| format!("{text}-sub"));
        let subscriber_id = pattern("--subscriber-id", &common.clients.subscriber_id.clone().or(besides))?;
        let run = run_number();
        Ok(LoadWire {
            host: common.broker.host.clone(),
            port: common.broker.port,
            users: Arc::new(LoadUsers::of(&common.clients)?),
            tunnel: None,
            version: common.broker.mqtt,
            qos,
            payload: common.messages.payload,
            retain: common.messages.retain,
            window: common.messages.window,
            connect_rate: common.clients.connect_rate,
            client_id,
            subscriber_id,
            run,
        })
    }

    /// Returns the options of a client that acknowledges at once and whose session ends with its
    /// connection.
    pub(super) fn options(&self, role: ClientRole, number: u32) -> Options {
        Options {
            host: self.host.clone(),
            port: self.port,
            credentials: self.users.of_client(number).cloned(),
            tunnel: self.tunnel.clone(),
            version: self.version,
            client_id: self.client_id(role, number),
            keep_alive: Duration::from_secs(60),
            session: SessionLife::Clean,
            acks: Acks::AtOnce,
            window: self.window,
            payload: self.payload.most,
            known_ids: Vec::new(),
        }
    }

    fn client_id(&self, role: ClientRole, number: u32) -> String {
        let (pattern, letter) = match role {
            ClientRole::Publisher => (&self.client_id, 'p'),
            ClientRole::Subscriber => (&self.subscriber_id, 's'),
            ClientRole::Idle => (&self.client_id, 'c'),
        };
        match pattern {
            Some(pattern) => pattern.fill(self.values(number, "")),
            None => format!("load{:08x}-{letter}{number}", self.run),
        }
    }

    fn values<'a>(&'a self, number: u32, client_id: &'a str) -> PatternValues<'a> {
        let user = self.users.of_client(number).map_or("", |credentials| credentials.user.as_str());
        PatternValues { number, run: self.run, user, client_id }
    }

    /// Refuses patterns that name two clients alike, because these would disconnect each other.
    fn check_ids(&self, common: &Common, roles: &[ClientRole], part: &LoadPart) -> Result<(), Refused> {
        if common.clients.client_id.is_none() && common.clients.subscriber_id.is_none() {
            return Ok(());
        }
        let mut ids = HashSet::new();
        for role in roles {
            for index in 0..part.count as usize {
                let id = self.client_id(*role, part.number(index));
                require(
                    (1..=STRING_MAX).contains(&id.len()),
                    "--client-id and --subscriber-id must give from 1 to 65535 bytes",
                )?;
                if let Some(id) = ids.replace(id) {
                    return Err(Refused(format!(
                        "--client-id and --subscriber-id name two clients {id:?}, and a broker disconnects the first when \
                         the second connects; add %i, the number of the client"
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Returns the TLS and WebSocket of all clients, or `None` if no argument asks for them.
fn tunnel(broker: &BrokerArguments, run: u32, client_tls: ClientTls) -> Result<Option<Arc<Tunnel>>, Refused> {
    let certificate = match (&broker.cert, &broker.key) {
        (Some(certificate), Some(key)) => Some(ClientCertificate { certificate, key }),
        _ => None,
    };
    let tls = if broker.tls || broker.ca.is_some() || broker.server_name.is_some() || certificate.is_some() {
        let config = client_tls(broker.ca.as_deref(), certificate).map_err(Refused)?;
        Some((config, broker.server_name.as_deref().unwrap_or(&broker.host)))
    } else {
        None
    };
    let path = broker.ws_path.clone().or(broker.ws.then(|| "/mqtt".to_owned()));
    require(
        path.as_ref()
            .is_none_or(|path| path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic())),
        "--ws-path must begin with / and have neither spaces nor letters outside of ASCII",
    )?;
    if tls.is_none() && path.is_none() {
        return Ok(None);
    }
    Ok(Some(Arc::new(Tunnel::new(tls, path, run)?)))
}

impl Extent {
    fn new(bounds: &MessageArguments, ramp_up: Duration) -> Result<Extent, Refused> {
        require(bounds.messages != Some(0), "--messages must not be 0")?;
        require(bounds.duration != Some(Duration::ZERO), "--duration must not be 0")?;
        require(!bounds.patience.is_zero(), "--patience must not be 0")?;
        let default = bounds.messages.is_none().then(|| DURATION.saturating_add(ramp_up));
        let duration = bounds.duration.or(default);
        require(
            duration.is_none_or(|duration| ramp_up < duration),
            "--ramp-up must be shorter than --duration, which includes it",
        )?;
        let default = if bounds.messages.is_some() { Duration::ZERO } else { Duration::from_secs(1) };
        let warmup = bounds.warmup.unwrap_or(match duration.map(|duration| duration - ramp_up) {
            // A second of warm-up would leave nothing.
            Some(full) if full < Duration::from_secs(4) => ramp_up + full / 4,
            _ => ramp_up.saturating_add(default),
        });
        require(
            duration.is_none_or(|duration| warmup < duration),
            "--warmup must be shorter than --duration, which includes it",
        )?;
        let (messages, patience) = (bounds.messages, bounds.patience);
        Ok(Extent { duration, messages, ramp_up, warmup, patience })
    }
}

impl Topology {
    fn new(layout: Layout, common: &Common, wire: &LoadWire) -> Result<Topology, Refused> {
        let (publishers, subscribers) = clients(layout, &common.clients)?;
        let default = match layout {
            Layout::OneToOne | Layout::FanIn => "homing-load/%r/%i",
            Layout::FanOut | Layout::Shared => "homing-load/%r/all",
        };
        let pattern = NamePattern::parse("--topic", common.messages.topic.as_deref().unwrap_or(default))?;
        let topic = |index: u32| {
            let number = common.clients.start_number.saturating_add(index);
            let client_id = wire.client_id(ClientRole::Publisher, number);
            pattern.fill(wire.values(number, &client_id))
        };
        let topics = (0..publishers).map(topic).collect::<Vec<_>>();
        check_topics(layout, &topics)?;
        let repeated = |text: String| vec![text; subscribers as usize];
        let first = || topics.first().cloned().unwrap_or_default();
        let everyone = (0..subscribers).collect::<Vec<_>>();
        let (filters, audiences, copies) = match layout {
            Layout::OneToOne => (topics.clone(), everyone, 1),
            Layout::FanIn => (repeated(pattern.filter("--topic", wire.run)?), everyone, subscribers),
            Layout::FanOut => (repeated(first()), everyone, subscribers),
            Layout::Shared => {
                // Another run on the same topic must not get a part of these messages.
                let filter = format!("$share/load{:08x}/{}", wire.run, first());
                (repeated(filter), vec![0; subscribers as usize], 1)
            }
        };
        Ok(Topology { topics, filters, audiences, copies })
    }
}

/// Checks that each topic may be published to, and that the topics fit the layout.
fn check_topics(layout: Layout, topics: &[String]) -> Result<(), Refused> {
    for topic in topics {
        if !is_topic_name(topic) || begins_with_dollar(topic) || topic.len() > STRING_MAX {
            return Err(Refused(format!(
                "--topic gives {topic:?}, which nobody may publish to: a topic has 1 to 65535 bytes, no +, no # and no \
                 $ at its begin"
            )));
        }
    }
    let different = topics.iter().collect::<HashSet<_>>().len();
    match layout {
        Layout::OneToOne => require(
            different == topics.len(),
            "--topic gives two publishers the same topic, and one-to-one needs one for each; add %i, the number of the \
             publisher, or use --layout fan-out",
        ),
        Layout::FanIn => Ok(()),
        Layout::FanOut | Layout::Shared => require(
            different == 1,
            "--topic gives publishers different topics, and fan-out and shared have one for all; leave out %i, %c and \
             %u",
        ),
    }
}

/// Returns a number that almost never is the same in two runs at one time.
fn run_number() -> u32 {
    let time = (clock::unix_millis() & 0xFFFF_FFFF) as u32;
    time ^ std::process::id().rotate_left(20)
}

/// Returns the numbers of publishers and subscribers.
fn clients(layout: Layout, arguments: &ClientArguments) -> Result<(u32, u32), Refused> {
    let (publishers, subscribers) = match layout {
        Layout::OneToOne => {
            let publishers = arguments.publishers.or(arguments.subscribers).unwrap_or(10);
            (publishers, arguments.subscribers.unwrap_or(publishers))
        }
        Layout::FanIn => (arguments.publishers.unwrap_or(10), arguments.subscribers.unwrap_or(1)),
        Layout::FanOut => (arguments.publishers.unwrap_or(1), arguments.subscribers.unwrap_or(10)),
        Layout::Shared => (arguments.publishers.unwrap_or(10), arguments.subscribers.unwrap_or(10)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{LoadArguments, LoadCommand};
    use crate::scenario;
    use clap::{Args, Command, FromArgMatches};

    fn plan(arguments: &str) -> Result<LoadPlan, Refused> {
        let command = LoadArguments::augment_args(Command::new("load"));
        let matches = command.try_get_matches_from(["load"].into_iter().chain(arguments.split(' '))).unwrap();
        match LoadArguments::from_arg_matches(&matches).unwrap().command {
            LoadCommand::Run(scenario) => scenario::plan(&scenario, |_, _| Err("no TLS here".to_owned())),
            LoadCommand::Add(_) => panic!("no scenario"),
        }
    }

    #[test]
    fn without_options_ids_and_topics_are_those_of_this_run_alone() {
        let plan = plan("throughput --publishers 2").unwrap();
        let run = format!("{:08x}", plan.wire.run);
        assert_eq!(plan.topology.topics, [format!("homing-load/{run}/0"), format!("homing-load/{run}/1")]);
        let id = |role| plan.wire.options(role, 1).client_id;
        assert_eq!(id(ClientRole::Publisher), format!("load{run}-p1"));
        assert_eq!(id(ClientRole::Subscriber), format!("load{run}-s1"));
        assert_eq!(id(ClientRole::Idle), format!("load{run}-c1"));
    }

    #[test]
    fn threads_share_the_clients_and_each_keeps_its_number() {
        let whole = plan("throughput --threads 3 --publishers 7 -n 100 -t t/%i -i c%i").unwrap();
        let mut topics = Vec::new();
        for index in 0..3 {
            let LoadPlan { topology, part, wire, .. } = whole.of_thread(index, 3);
            assert_eq!(topology.topics, topology.filters);
            for (index, topic) in topology.topics.iter().enumerate() {
                let number = part.number(index);
                assert_eq!((topic, part.index(number)), (&format!("t/{number}"), Some(index)));
                assert_eq!(wire.options(ClientRole::Subscriber, number).client_id, format!("c{number}-sub"));
            }
            assert_eq!(
                (part.index(part.number(0) - 1), part.index(part.number(topology.topics.len()))),
                (None, None)
            );
            topics.extend(topology.topics);
        }
        assert_eq!(topics, whole.topology.topics);
    }

    #[test]
    fn the_ramp_up_is_not_measured() {
        let extent = |arguments: &str| plan(arguments).unwrap().extent;
        let seconds = |duration: Option<Duration>| duration.map(|duration| duration.as_secs_f64());
        let long = extent("latency --ramp-up 30s");
        assert_eq!((seconds(long.duration), long.warmup.as_secs()), (Some(40.0), 31));
        assert_eq!(extent("latency --ramp-up 1s -d 3s").warmup, Duration::from_millis(1500));
        assert_eq!(extent("throughput --ramp-up 1s -m 5").warmup, Duration::from_secs(1));
    }
}
