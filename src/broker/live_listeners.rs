//! The listeners of a running broker: opened at the start, and opened, changed and closed by
//! reloads.
//!
//! A reload has two steps. [`LiveListeners::open_new`] does all that may fail: it binds the sockets
//! of new listeners, and starts the handshake threads if they are needed for the first time.
//! [`LiveListeners::put_in_force`] cannot fail. A listener that changes keeps its socket and its
//! acceptor, which works by other terms from then on. So no connect is refused meanwhile.

use super::bind;
use super::connect_limits::{AddressLimit, ConnectRate, ConnectRates, LiveLimits};
use super::events::EventLog;
use super::handshake::entrance::Entrance;
use super::handshake::{HandshakeParts, Handshakes};
use super::listener::{self, AcceptTerms, Acceptor, ConnectLimits, ListeningSocket};
use super::listener_places::{ListenerMove, ListenerPlace, ListenerPlaces, ListenerPlan};
use super::message::Adopt;
use super::open_listener::{ListenerDirectory, OpenListener};
use super::shard_actor::ShardActor;
use super::start_error::StartError;
use super::statistics::BrokerStatistics;
use crate::config::{Config, Listener, ListenerAddress};
use crate::net::tls::config::TlsServer;
use crate::shard::arrival::ListenerNumber;
use actix::{Addr, Recipient};
use rustix::net::listen;
use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// The TLS of a listener by its number.
pub(super) type TlsOf<'a> = &'a dyn Fn(ListenerNumber) -> Option<Arc<TlsServer>>;

/// The sockets that a broker that starts has bound, by number.
pub(super) type FirstSockets = Vec<ListeningSocket>;

/// The listeners of a running broker.
pub(super) struct LiveListeners {
    places: ListenerPlaces,
    running: Vec<RunningListener>,
    /// The entrances of the open and the closed listeners.
    entrances: Vec<Arc<Entrance>>,
    parts: AcceptorParts,
    /// `None` until a listener needs them. Then they run until the broker ends.
    handshakes: Option<Handshakes>,
    directory: Arc<ListenerDirectory>,
}

/// What all acceptors have in common.
struct AcceptorParts {
    shards: Vec<Recipient<Adopt>>,
    statistics: Arc<BrokerStatistics>,
    log: Arc<EventLog>,
    limits: ConnectLimits,
    /// The rate of connects of the broker.
    rate: ConnectRate,
}

/// A listener with its task.
struct RunningListener {
    number: ListenerNumber,
    address: ListenerAddress,
    socket: Arc<OwnedFd>,
    /// Shared with the acceptor.
    terms: Rc<RefCell<AcceptTerms>>,
    task: JoinHandle<()>,
}

/// A listener that is bound and does not accept yet.
struct ReadyListener {
    terms: Rc<RefCell<AcceptTerms>>,
    address: ListenerAddress,
    socket: Arc<OwnedFd>,
    acceptor: Acceptor,
}

/// Listeners of a reload that are not in force yet.
pub(super) struct NewListeners {
    plan: ListenerPlan,
    /// What has the new numbers, in their order.
    numbered: Vec<OpenListener>,
    ready: Vec<ReadyListener>,
    /// The terms of listeners that change, by the number before.
    changed: Vec<(ListenerNumber, AcceptTerms)>,
    handshakes: Option<Handshakes>,
}

impl NewListeners {
    /// Returns all listeners by number, as they are once these are in force.
    pub(super) fn places(&self) -> &ListenerPlaces {
        &self.plan.places
    }
}

/// What a reload did with the listeners.
#[derive(Clone, Debug, Default)]
pub struct ListenerNews {
    /// Listeners that are new.
    pub opened: Vec<OpenListener>,
    /// Listeners that have changed.
    pub changed: Vec<OpenListener>,
    /// Listeners that were closed.
    pub closed: Vec<OpenListener>,
    /// The listeners that are open now, in the order of the configuration.
    pub open: Vec<OpenListener>,
}

impl ListenerNews {
    /// Returns true if nothing happened.
    pub fn is_empty(&self) -> bool {
        self.opened.is_empty() && self.changed.is_empty() && self.closed.is_empty()
    }
}

impl LiveListeners {
    /// Starts the acceptors of the sockets that a broker has bound.
    ///
    /// # Errors
    /// The system refuses a thread, or the reactor a socket.
    pub(super) fn start(
        config: &Config,
        sockets: FirstSockets,
        shards: &[Addr<ShardActor>],
        (statistics, log): (&Arc<BrokerStatistics>, &Arc<EventLog>),
        limits: &Arc<LiveLimits>,
        tls_of: TlsOf<'_>,
    ) -> Result<LiveListeners, StartError> {
        let per_address = config.limits.connects_per_address;
        let addresses =
            (per_address.limit > 0).then(|| AddressLimit::new(per_address, Arc::clone(statistics)));
        let parts = AcceptorParts {
            shards: shards.iter().map(|shard| shard.clone().recipient()).collect(),
            statistics: Arc::clone(statistics),
            log: Arc::clone(log),
            limits: ConnectLimits { broker: Arc::clone(limits), addresses },
            rate: ConnectRate::new(config.limits.connects_per_second),
        };
        let mut listeners = LiveListeners {
            places: ListenerPlaces::default(),
            running: Vec::new(),
            entrances: Vec::new(),
            parts,
            handshakes: None,
            directory: Arc::default(),
        };
        let places = ListenerPlaces::at_start(&config.all_listeners());
        let moves = places.open().into_iter().map(|(number, _)| ListenerMove::Open(number)).collect();
        let new = listeners.ready(config, ListenerPlan { places, moves }, tls_of, sockets)?;
        // Every one is new, so nothing has to end.
        drop(listeners.begin(config, new));
        Ok(listeners)
    }

    /// Returns the list of all listeners for operators.
    pub(super) fn directory(&self) -> &Arc<ListenerDirectory> {
        &self.directory
    }

    /// Returns the entrances of the open listeners, and of the closed ones with clients.
    pub(super) fn entrances(&self) -> &[Arc<Entrance>] {
        &self.entrances
    }

    /// Returns the way to the listeners of a configuration.
    ///
    /// # Errors
    /// There is no number left for a listener.
    pub(super) fn plan(&self, config: &Config) -> Result<ListenerPlan, String> {
        let has_clients = |number| self.parts.statistics.listeners().are_open(number);
        self.places.plan(&config.all_listeners(), has_clients).map_err(|error| error.to_string())
    }

    /// Binds the sockets of the new listeners of a plan, and makes all that new and changed
    /// listeners need. Changes nothing that runs.
    ///
    /// # Errors
    /// Each listener whose address the system refuses, or the system refuses a thread. Then all
    /// sockets that were bound are closed again.
    pub(super) fn open_new(
        &self,
        config: &Config,
        plan: ListenerPlan,
        tls_of: TlsOf<'_>,
    ) -> Result<NewListeners, Vec<String>> {
        let bind =
            |place: &ListenerPlace| listener::open(&place.name, &place.listener, config.network.backlog);
        let sockets = for_each_new(&plan, bind)?;
        self.ready(config, plan, tls_of, sockets).map_err(|error| vec![error.to_string()])
    }

    /// Puts listeners in force, after the shards have their settings. Returns what happened, when
    /// every socket that has to be closed is closed.
    pub(super) async fn put_in_force(&mut self, config: &Config, new: NewListeners) -> ListenerNews {
        let (news, ended) = self.begin(config, new);
        for task in ended {
            task.abort();
            // The acceptor has its socket until it ends. The result says that it was aborted.
            let _ = task.await;
        }
        news
    }

    /// Stops all acceptors, and closes their sockets.
    pub(super) fn stop(&mut self) {
        self.handshakes = None;
        for listener in self.running.drain(..) {
            listener.task.abort();
        }
    }

    /// Makes everything that new and changed listeners need. `sockets` has those of the new ones in
    /// their order.
    fn ready(
        &self,
        config: &Config,
        plan: ListenerPlan,
        tls_of: TlsOf<'_>,
        sockets: Vec<ListeningSocket>,
    ) -> Result<NewListeners, StartError> {
        let (mut ready, mut changed, mut numbered) = (Vec::new(), Vec::new(), Vec::new());
        let (mut handshakes, mut sockets) = (self.handshakes.clone(), sockets.into_iter());
        for one in &plan.moves {
            let number = match *one {
                ListenerMove::Open(number) | ListenerMove::Change { to: number, .. } => number,
                ListenerMove::Close(_) => continue,
            };
            let Some(place) = plan.places.get(number) else { continue };
            let entrance = Entrance::new(number, &place.name, &place.listener, tls_of(number));
            if entrance.has_handshakes() && handshakes.is_none() {
                handshakes = Some(self.parts.start_handshakes(config)?);
            }
            let terms = self.parts.terms(place, entrance, handshakes.as_ref());
            let address = match *one {
                ListenerMove::Change { from, .. } => {
                    changed.push((from, terms));
                    self.running(from).map(|running| running.address.clone())
                }
                _ => {
                    let listener =
                        sockets.next().map(|socket| self.parts.ready(socket, terms)).transpose()?;
                    let address = listener.as_ref().map(|listener| listener.address.clone());
                    ready.extend(listener);
                    address
                }
            };
            numbered.extend(address.map(|address| OpenListener::of(config, &place.listener, address)));
        }
        Ok(NewListeners { plan, numbered, ready, changed, handshakes })
    }

    /// Puts listeners in force. Returns what happened, and the tasks of those that are closed.
    fn begin(&mut self, config: &Config, new: NewListeners) -> (ListenerNews, Vec<JoinHandle<()>>) {
        let NewListeners { plan, numbered, ready, changed, handshakes } = new;
        for listener in &numbered {
            self.parts.statistics.listeners().add(listener.label());
        }
        self.directory.replace(&plan.places, numbered);
        let news = self.news(&plan);
        for (from, terms) in changed {
            if let Some(running) = self.running.iter_mut().find(|running| running.number == from) {
                running.number = terms.entrance.number;
                self.entrances.push(Arc::clone(&terms.entrance));
                running.terms.replace(terms);
            }
        }
        for ReadyListener { terms, address, socket, acceptor } in ready {
            let entrance = Arc::clone(&terms.borrow().entrance);
            let task = actix_rt::spawn(acceptor.run());
            let number = entrance.number;
            self.entrances.push(entrance);
            self.running.push(RunningListener { number, address, socket, terms, task });
        }
        self.entrances.retain(|entrance| plan.places.get(entrance.number).is_some());
        (self.places, self.handshakes) = (plan.places, handshakes);
        let is_closed =
            |running: &mut RunningListener| plan.moves.contains(&ListenerMove::Close(running.number));
        let closed = self.running.extract_if(.., is_closed).map(|running| running.task).collect();
        self.set_backlogs(config);
        self.parts.rate.set(config.limits.connects_per_second);
        (news, closed)
    }

    /// Returns what a plan does, once the directory has its listeners.
    fn news(&self, plan: &ListenerPlan) -> ListenerNews {
        let mut news = ListenerNews { open: self.directory.open(), ..ListenerNews::default() };
        // Not what the plan has under the number before, which may follow the new one already.
        let is_same = |from, to| {
            let [before, now] = [self.places.get(from), plan.places.get(to)];
            before.map(|place| &place.listener) == now.map(|place| &place.listener)
        };
        for one in &plan.moves {
            match *one {
                ListenerMove::Open(number) => news.opened.extend(self.directory.get(number)),
                ListenerMove::Close(number) => news.closed.extend(self.directory.get(number)),
                // A listener with port 0 and no name has another number if only its place changed.
                ListenerMove::Change { from, to } if is_same(from, to) => {}
                ListenerMove::Change { to, .. } => news.changed.extend(self.directory.get(to)),
            }
        }
        news
    }

    fn running(&self, number: ListenerNumber) -> Option<&RunningListener> {
        self.running.iter().find(|running| running.number == number)
    }

    /// Sets the backlog of each socket. Costs a system call for each.
    fn set_backlogs(&self, config: &Config) {
        for running in &self.running {
            let own = self.places.get(running.number).and_then(|place| place.listener.backlog);
            let backlog = own.unwrap_or(config.network.backlog);
            // A socket that listens takes every backlog.
            let _ = listen(&*running.socket, i32::try_from(backlog).unwrap_or(i32::MAX));
        }
    }
}

impl AcceptorParts {
    /// Starts the handshake threads.
    ///
    /// # Errors
    /// The system refuses a thread or an event loop.
    fn start_handshakes(&self, config: &Config) -> io::Result<Handshakes> {
        let parts = HandshakeParts {
            shards: self.shards.clone(),
            statistics: Arc::clone(&self.statistics),
            log: Arc::clone(&self.log),
            limits: Arc::clone(&self.limits.broker),
            addresses: self.limits.addresses.clone(),
        };
        let threads = config.runtime.handshake_thread_count();
        Handshakes::start(threads, config.limits.handshakes as usize, &parts)
    }

    fn terms(
        &self,
        place: &ListenerPlace,
        entrance: Entrance,
        handshakes: Option<&Handshakes>,
    ) -> AcceptTerms {
        let of_listener = ConnectRate::new(entrance.connects_per_second);
        AcceptTerms {
            handshakes: handshakes.filter(|_| entrance.has_handshakes()).cloned(),
            entrance: Arc::new(entrance),
            connections: place.listener.connections.map_or(usize::MAX, |most| most as usize),
            rates: ConnectRates::new([self.rate.clone(), of_listener]),
        }
    }

    /// Returns a bound listener with its acceptor.
    ///
    /// # Errors
    /// The reactor refuses the socket.
    fn ready(&self, listening: ListeningSocket, terms: AcceptTerms) -> io::Result<ReadyListener> {
        let (address, socket) = (listening.address.clone(), Arc::clone(&listening.socket));
        let terms = Rc::new(RefCell::new(terms));
        let (shards, statistics) = (self.shards.clone(), Arc::clone(&self.statistics));
        let acceptor = Acceptor::new(listening, Rc::clone(&terms), shards, statistics, self.limits.clone())?;
        Ok(ReadyListener { terms, address, socket, acceptor })
    }
}

/// Checks that the addresses of the new listeners of a plan are free. Opens none of them.
///
/// # Errors
/// Each listener whose address the system refuses.
pub(super) fn check_new(plan: &ListenerPlan) -> Result<(), Vec<String>> {
    for_each_new(plan, |place| {
        place.listener.address.as_ref().map_or(Ok(()), |address| Ok(bind::check(address)?))
    })
    .map(drop)
}

/// Does something with each new listener of a plan.
///
/// # Errors
/// All errors, each with what would be right.
fn for_each_new<T>(
    plan: &ListenerPlan,
    make: impl Fn(&ListenerPlace) -> Result<T, StartError>,
) -> Result<Vec<T>, Vec<String>> {
    let (mut made, mut refused) = (Vec::new(), Vec::new());
    let place = |number: &ListenerNumber| plan.places.get(*number);
    let (mut opens, mut closes) = (Vec::new(), Vec::new());
    for one in &plan.moves {
        match one {
            ListenerMove::Open(number) => opens.extend(place(number)),
            ListenerMove::Close(number) => closes.extend(place(number)),
            ListenerMove::Change { .. } => {}
        }
    }
    for new in opens {
        match make(new) {
            Ok(one) => made.push(one),
            Err(error) => {
                let in_the_way = closes.iter().find(|old| have_same_port(&old.listener, &new.listener));
                let hint = in_the_way.map(|old| {
                    let listener = old.listener.label();
                    format!("; the listener {listener} has this port until the reload is done: remove it with one reload, and add the other with the next")
                });
                refused.push(format!("listener {}: {error}{}", new.name, hint.unwrap_or_default()));
            }
        }
    }
    if refused.is_empty() { Ok(made) } else { Err(refused) }
}

fn have_same_port(one: &Listener, other: &Listener) -> bool {
    match (&one.address, &other.address) {
        (Some(ListenerAddress::Ip(one)), Some(ListenerAddress::Ip(other))) => one.port() == other.port(),
        _ => false,
    }
}
