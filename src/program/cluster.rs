//! The broker as a node of a cluster: it stands by until the cell is its own, then serves, and
//! leaves in order.

use super::data::data_directory;
use super::engine::open_engine;
use super::output::{REFUSED, complain, say};
use super::stop;
use clap::Subcommand;
use homing::broker::observer::Observer;
use homing::broker::owner_door::OwnerDoor;
use homing::broker::reload::ReloadMode;
use homing::broker::standby::StandbyConfig;
use homing::broker::{Broker, Signals, StartError};
use homing::clock;
use homing::cluster::commands::{self, CommandError, InitialSessions};
use homing::cluster::engine::EngineError;
use homing::cluster::messages::{Cell, End, NodeEvent};
use homing::cluster::node::{Node, NodeDoor, write_end};
use homing::cluster::reseed;
use homing::cluster::row::{ClusterView, StoreFacts};
use homing::cluster::sys;
use homing::config::Config;
use homing::log::stderr;
use homing::ownership::Role;
use homing::service;
use homing::store::replicated::ReplicatedStore;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tracing::{error, info, warn};

/// Time for the broker to end its lease before it stops.
const FLUSH: Duration = Duration::from_secs(2);
/// Time for the last frame of a node that leaves. Without it, another node takes over later.
const RELEASE: Duration = Duration::from_secs(5);
/// Time for the last row of a node that leaves. Without it, others take the node for one that serves
/// or stands by until its row is silent.
const LAST_ROW: Duration = Duration::from_millis(1_500);

/// A node that owns its cell.
pub(crate) struct OwnerPart {
    pub(crate) node: NodeDoor,
    data: Option<PathBuf>,
    view: Arc<ClusterView>,
    events: Option<UnboundedReceiver<NodeEvent>>,
    /// Says that the lease has ended.
    flush: Option<Receiver<()>>,
    /// Says that the last frame is stored.
    left: Option<Receiver<End>>,
}

/// The commands about a cluster.
#[derive(Subcommand)]
pub(crate) enum ClusterQuery {
    /// Make the log of a new cluster in NATS, once
    Init {
        /// The cluster begins with the sessions and messages of store.path, the store of a broker by
        /// itself, which must not run
        #[arg(long)]
        from_store: bool,
    },
    /// Show who serves, how far each node is, and how full the log is; exit code 1 if nobody serves
    Status,
    /// Check the settings of NATS, and every frame of the log; exit code 0 or 1
    Verify,
    /// Let another node serve: the node ends in order, and its clients reconnect
    Drain {
        /// The node [default: cluster.node]
        #[arg(value_name = "NODE")]
        node: Option<String>,
        /// Drain though no other node stands by
        #[arg(long)]
        force: bool,
    },
    /// After an alarm: go on with the store of this node, and without the log; loses what the store does
    /// not have
    Reseed {
        /// The confirmation that the command prints without this flag
        #[arg(long)]
        confirm: Option<String>,
    },
    /// Make the data directory that of a broker by itself again
    Leave,
}

/// Carries out a command about the cluster.
pub(crate) fn query(query: &ClusterQuery, config: &Config) -> ExitCode {
    let settings = &config.cluster;
    let refuse = |why: &str, code: u8| {
        complain(why);
        ExitCode::from(code)
    };
    let data = data_directory(config);
    let outcome = if let ClusterQuery::Leave = query {
        let Some(data) = data else { return refuse("store.path is needed", REFUSED) };
        commands::leave(&data)
    } else {
        if !settings.is_on() {
            return refuse("cluster.name is needed: the section [cluster] of the configuration", REFUSED);
        }
        let engine = match open_engine(settings) {
            Ok(engine) => engine,
            Err(why) => return refuse(&why, REFUSED),
        };
        match query {
            ClusterQuery::Init { from_store } => {
                let sessions = match (from_store, &data) {
                    (false, data) => InitialSessions::None(data.as_deref()),
                    (true, Some(data)) => InitialSessions::Of(data),
                    (true, None) => return refuse("store.path is needed", REFUSED),
                };
                commands::init(&*engine, settings, sessions)
            }
            ClusterQuery::Reseed { confirm } => match &data {
                Some(data) => reseed::reseed(&*engine, settings, data, confirm.as_deref()),
                None => return refuse("store.path is needed", REFUSED),
            },
            ClusterQuery::Status => commands::status(&*engine, settings),
            ClusterQuery::Verify => commands::verify(&*engine, settings),
            ClusterQuery::Drain { node, force } => {
                commands::drain(&*engine, settings, node.as_ref().unwrap_or(&settings.node), *force)
            }
            ClusterQuery::Leave => unreachable!("it was carried out"),
        }
    };
    match outcome {
        Ok(report) => {
            say(&report.text);
            if report.is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error @ (CommandError::Refused(_) | CommandError::Engine(EngineError::Refused(_)))) => {
            refuse(&error.to_string(), REFUSED)
        }
        Err(error) => refuse(&error.to_string(), 1),
    }
}

/// Makes the data directory of a node, so that the HTTP interface, whose socket is there, answers while
/// the node waits for NATS.
pub(crate) fn make_directory(config: &Config) {
    if let Some(data) = data_directory(config).filter(|_| config.cluster.is_on()) {
        // Whoever uses the directory reports why it cannot be made.
        let _ = DirBuilder::new().recursive(true).mode(0o700).create(data);
    }
}

/// Joins the cluster, so that this node stands by.
///
/// # Errors
/// The exit code, after a line that says why.
pub(crate) fn join(config: &Config, signals: &mut Signals) -> Result<Node, ExitCode> {
    let refuse = |why: &str, code: u8| {
        complain(why);
        stderr::flush();
        ExitCode::from(code)
    };
    let (joined, result) = oneshot::channel();
    let of_thread = config.clone();
    std::thread::spawn(move || drop(joined.send(open_and_join(&of_thread))));
    let joined: Result<Node, (String, u8)> = match signals.wait(result) {
        Ok(Ok(joined)) => joined,
        Ok(Err(_)) => return Err(refuse("the thread that joins the cluster ended", 1)),
        Err(name) => {
            stop::bound();
            info!(event = "broker.stopping", signal = name, "stopping before the node has joined");
            stderr::flush();
            return Err(ExitCode::SUCCESS);
        }
    };
    let node = joined.map_err(|(why, code)| refuse(&why, code))?;
    // To the service manager a standby has started: it does its work until it ends.
    service::is_ready(|| true);
    say(&format!(
        "Homing {}: node {} of cluster {} stands by",
        env!("CARGO_PKG_VERSION"),
        config.cluster.node,
        config.cluster.name
    ));
    Ok(node)
}

/// Opens the engine, and joins. Waits as long as the engine is away, or a file hangs.
///
/// # Errors
/// Why the node does not join, and the exit code.
fn open_and_join(config: &Config) -> Result<Node, (String, u8)> {
    let refused = |why: String| (why, REFUSED);
    // A node with a file that cannot be read would end when it owns the cell, and so would the next.
    homing::broker::check_files(config, |_| Vec::new()).map_err(|mistakes| refused(mistakes.join("\n")))?;
    let engine = open_engine(&config.cluster).map_err(refused)?;
    let data =
        data_directory(config).ok_or_else(|| refused("store.path is needed in a cluster".to_owned()))?;
    Node::join(&config.cluster, engine, &data).map_err(|error| (error.to_string(), error.code()))
}

/// Stands by until this node owns the cell. SIGHUP reads the configuration again.
///
/// # Errors
/// The exit code, if the process is to end before, after a line that says why.
pub(crate) fn stand_by(
    config: &Arc<StandbyConfig>,
    mut node: Node,
    signals: &mut Signals,
) -> Result<(OwnerPart, Cell), ExitCode> {
    note_config(config, &node.view);
    loop {
        match signals.wait_with(node.events.recv(), || read_again(config)) {
            Ok(Some(NodeEvent::Recover(cell))) => {
                let (node, view, events) = (node.door(), node.view, Some(node.events));
                let data = data_directory(&config.config());
                return Ok((OwnerPart { node, data, view, events, flush: None, left: None }, *cell));
            }
            Ok(Some(NodeEvent::Left(_)) | None) => {
                node.view.leave(LAST_ROW);
                return Err(ExitCode::SUCCESS);
            }
            // An alarmed node stays, so that operators see it.
            Ok(Some(_)) => {}
            Err(name) => return Err(leave(name, &node.door(), &node.view, &mut node.events, signals)),
        }
    }
}

/// Ends a node whose broker does not let clients in yet, so that nothing is left to store. A second
/// signal exits at once. Returns the exit code.
fn leave(
    name: &str,
    node: &NodeDoor,
    view: &ClusterView,
    events: &mut UnboundedReceiver<NodeEvent>,
    signals: &mut Signals,
) -> ExitCode {
    stop::bound();
    info!(event = "broker.stopping", signal = name, "stopping; a second signal exits at once");
    let is_alarmed = view.facts().role == Role::Alarmed;
    let left = async {
        node.leave();
        while let Some(event) = events.recv().await {
            match event {
                // A Claim that was under way is stored, or the broker was starting.
                NodeEvent::Flush => node.flushed(),
                NodeEvent::Left(_) | NodeEvent::Alarmed(_) => break,
                NodeEvent::Recover(_) | NodeEvent::LetIn | NodeEvent::ShutOut => {}
            }
        }
    };
    // An alarmed node stores nothing any more. For another one, a frame may be under way whose outcome
    // NATS does not say.
    let patience = if is_alarmed { Duration::ZERO } else { RELEASE };
    match signals.wait(async { tokio::time::timeout(patience, left).await }) {
        Ok(Err(_)) if !is_alarmed => warn_of_no_release(),
        Ok(_) => {}
        Err(name) => {
            warn!(event = "broker.exiting", signal = name, "exiting at once");
            stderr::flush();
            return ExitCode::FAILURE;
        }
    }
    view.leave(LAST_ROW);
    stderr::flush();
    ExitCode::SUCCESS
}

fn warn_of_no_release() {
    warn!(
        event = "cluster.no_release",
        "the engine does not store that this node leaves: another one takes over later"
    );
}

/// Gives the node the configuration that is in force, now and after each reload.
fn note_config(config: &StandbyConfig, view: &Arc<ClusterView>) {
    view.note_config(&config.config());
    let of_reloads = Arc::clone(view);
    config.watch(Box::new(move |config| of_reloads.note_config(config)));
}

/// Reads the configuration again on a thread of its own, because a disk may hang. The log has the
/// result.
fn read_again(config: &Arc<StandbyConfig>) {
    let config = Arc::clone(config);
    let read = move || drop(config.reload_here(ReloadMode::Apply));
    if let Err(error) = std::thread::Builder::new().name("homing-reload".into()).spawn(read) {
        warn!(event = "config.reload_refused", %error, "nothing is changed: no thread to read the configuration");
    }
}

impl OwnerPart {
    /// Starts the broker of the cell. The start may wait for the engine, and for ever if the cluster is
    /// alarmed, so it has a thread of its own, and a signal ends the process meanwhile.
    ///
    /// # Errors
    /// The exit code, if the process is to end before the broker runs.
    pub(crate) fn start(
        &mut self,
        cell: Cell,
        config: Config,
        signals: &mut Signals,
    ) -> Result<Result<Broker, StartError>, ExitCode> {
        let start = move || {
            let Cell { database, mark, log } = cell;
            let store = ReplicatedStore::new(database, mark, log, config.cluster.will_grace)?;
            Broker::start_as_owner(config, Box::new(store))
        };
        match (signals.run(start), &mut self.events) {
            (Ok(started), _) => Ok(started.unwrap_or(Err(StartError::Died))),
            (Err(name), Some(events)) => Err(leave(name, &self.node, &self.view, events, signals)),
            (Err(_), None) => Err(ExitCode::SUCCESS),
        }
    }

    /// Says that the broker is ready, and from now on lets clients in and out as the node says.
    pub(crate) fn ready(&mut self, broker: &Broker, is_alive: impl Fn(&Observer) -> bool + Send + 'static) {
        let (Some(door), Some(events)) = (broker.owner_door(), self.events.take()) else { return };
        let (flush, flushes) = channel();
        let (left, leaves) = channel();
        (self.flush, self.left) = (Some(flushes), Some(leaves));
        let carry_out = carry_out(door.clone(), events, flush, left);
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime.map(|runtime| runtime.block_on(carry_out)).unwrap_or_else(|error| {
                error!(event = "cluster.no_thread", %error, "no event loop for the node");
                std::process::exit(1)
            });
        };
        if let Err(error) = std::thread::Builder::new().name("homing-node".into()).spawn(run) {
            error!(event = "cluster.no_thread", %error, "no thread for the node");
            std::process::exit(1);
        }
        let of_reloads = Arc::clone(&self.view);
        broker.watch_settings(Box::new(move |config| of_reloads.note_config(config)));
        let observer = broker.observer();
        let seen = Arc::clone(&self.view);
        observer.statistics().publish_further(move || sys::figures(&seen));
        let of_store = observer.clone();
        self.view.note_store(move || {
            let store = of_store.statistics().store();
            StoreFacts {
                is_full: of_store.shared().is_store_full(),
                uncommitted: store.map_or(Duration::ZERO, |store| store.oldest_uncommitted(clock::now())),
                database: store.map_or(0, |store| store.applied.load(Ordering::Relaxed)),
            }
        });
        self.node.recovered(door, Box::new(move || is_alive(&observer)));
    }

    /// Ends the lease. Before the broker stops.
    pub(crate) fn leave(&self) {
        self.node.leave();
        let _ = self.flush.as_ref().map(|flush| flush.recv_timeout(FLUSH));
    }

    /// Gives the cell up. After the broker has stopped, with everything committed.
    pub(crate) fn left(&self) {
        self.node.flushed();
        match self.left.as_ref().map(|left| left.recv_timeout(RELEASE)) {
            Some(Ok(end)) => {
                let written = self.data.as_ref().map_or(Ok(()), |data| write_end(data, &end));
                if let Err(error) = written {
                    // Nothing is lost: the next start reads these frames from the log.
                    warn!(event = "cluster.end_not_written", %error, "the store does not name the last frame");
                }
            }
            Some(Err(RecvTimeoutError::Timeout)) => warn_of_no_release(),
            // The cluster is alarmed, so nothing is stored any more.
            Some(Err(RecvTimeoutError::Disconnected)) | None => {}
        }
        self.view.leave(LAST_ROW);
    }
}

/// Carries out what the node says, until it has left.
async fn carry_out(
    door: OwnerDoor,
    mut events: UnboundedReceiver<NodeEvent>,
    flush: Sender<()>,
    left: Sender<End>,
) {
    let mut says = Some((flush, left));
    while let Some(event) = events.recv().await {
        match event {
            NodeEvent::LetIn => match door.let_in().await {
                Ok(()) => info!(event = "cluster.serves", "this node serves clients"),
                Err(error) => {
                    error!(event = "cluster.not_bound", %error, "a listener cannot be opened: this node ends, and another one serves");
                    stderr::flush();
                    std::process::exit(1);
                }
            },
            NodeEvent::ShutOut => door.shut_out().await,
            NodeEvent::Alarmed(_) => {
                // There will be no Release, so that nobody is to wait for it.
                says = None;
                door.shut_out().await;
            }
            // Who waits for it may have given up.
            NodeEvent::Flush => {
                let _ = says.as_ref().map(|(flush, _)| flush.send(()).is_ok());
            }
            NodeEvent::Left(end) => {
                let _ = says.as_ref().map(|(_, left)| left.send(end).is_ok());
            }
            NodeEvent::Recover(_) => {}
        }
    }
}
