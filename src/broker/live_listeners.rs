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
use super::listener_plan::{ListenerPlan, PlannedListener, Predecessor};
use super::message::Adopt;
use super::open_listener::{ListenerDirectory, OpenListener};
use super::settings::listener_terms;
use super::shard_actor::ShardActor;
use super::start_error::StartError;
use super::statistics::BrokerStatistics;
use crate::config::{Config, Listener, ListenerAddress};
use crate::login::listener_terms::ListenerConnections;
use crate::net::tls::config::TlsServer;
use actix::{Addr, Recipient};
use rustix::net::listen;
use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// The sockets that a broker that starts has bound, in the order of its listeners.
pub(super) type FirstSockets = Vec<ListeningSocket>;

/// The listeners of a running broker.
pub(super) struct LiveListeners {
    /// In the order of the configuration.
    running: Vec<RunningListener>,
    /// The entrances that are closed, and may have clients.
    closed: Vec<Arc<Entrance>>,
    parts: AcceptorParts,
    /// `None` until a listener needs them. Then they run until the broker ends.
    handshakes: Option<Handshakes>,
    directory: Arc<ListenerDirectory>,
}

/// The parts that all acceptors share.
struct AcceptorParts {
    shards: Vec<Recipient<Adopt>>,
    statistics: Arc<BrokerStatistics>,
    log: Arc<EventLog>,
    limits: ConnectLimits,
    /// The rate of connects of the broker.
    rate: ConnectRate,
}

struct RunningListener {
    ready: ReadyListener,
    /// `None` while clients are shut out.
    task: Option<JoinHandle<()>>,
}

/// A listener that is open, or will be once its reload is in force.
struct ReadyListener {
    /// The view for operators.
    open: OpenListener,
    entrance: Arc<Entrance>,
    /// `None` while clients are shut out.
    socket: Option<Arc<OwnedFd>>,
    /// Shared with the acceptor.
    terms: Rc<RefCell<AcceptTerms>>,
}

/// The way of one listener of a reload.
enum NewListener {
    /// The listener does not change.
    Same(Arc<Entrance>),
    /// Its socket goes on by other terms. The first entrance is the predecessor.
    Changed(Arc<Entrance>, AcceptTerms, OpenListener),
    /// The listener is bound and does not accept yet. Without an acceptor, clients are shut out.
    Opens(ReadyListener, Option<Acceptor>),
}

/// Listeners of a reload that are not in force yet.
pub(super) struct NewListeners {
    plan: ListenerPlan,
    /// The open listeners of the plan, in their order.
    open: Vec<NewListener>,
    handshakes: Option<Handshakes>,
}

impl NewListeners {
    /// Returns the plan that these follow.
    pub(super) fn plan(&self) -> &ListenerPlan {
        &self.plan
    }

    /// Returns the entrances of the open listeners and then the closed ones, once the new listeners
    /// are in force.
    pub(super) fn entrances(&self) -> Vec<Arc<Entrance>> {
        let entrance = |new: &NewListener| match new {
            NewListener::Same(entrance) => Arc::clone(entrance),
            NewListener::Changed(_, terms, _) => Arc::clone(&terms.entrance),
            NewListener::Opens(ready, _) => Arc::clone(&ready.entrance),
        };
        self.open.iter().map(entrance).chain(self.plan.closed.iter().cloned()).collect()
    }
}

/// The result of a reload for the listeners.
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
    /// Starts the acceptors of the sockets that a broker has bound, by the plan of its start.
    /// Without sockets, clients are shut out. Errors: the system refuses a thread, or the reactor a
    /// socket.
    pub(super) fn start<'a>(
        config: &Config,
        (plan, sockets): (ListenerPlan, FirstSockets),
        shards: &[Addr<ShardActor>],
        (statistics, log): (&Arc<BrokerStatistics>, &Arc<EventLog>),
        limits: &Arc<LiveLimits>,
        tls: impl Iterator<Item = &'a Arc<TlsServer>>,
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
            running: Vec::new(),
            closed: Vec::new(),
            parts,
            handshakes: None,
            directory: Arc::default(),
        };
        let new = listeners.ready(config, plan, tls, sockets)?;
        // Every one is new, so nothing has to end.
        drop(listeners.begin(new));
        Ok(listeners)
    }

    /// Returns the list of all listeners for operators.
    pub(super) fn directory(&self) -> &Arc<ListenerDirectory> {
        &self.directory
    }

    /// Returns the entrances of the open listeners, and then the closed ones.
    pub(super) fn entrances(&self) -> Vec<Arc<Entrance>> {
        self.open_entrances().chain(self.closed.iter().cloned()).collect()
    }

    fn open_entrances(&self) -> impl Iterator<Item = Arc<Entrance>> {
        self.running.iter().map(|running| Arc::clone(&running.ready.entrance))
    }

    /// Returns the way to the listeners of a configuration.
    pub(super) fn plan(&self, config: &Config) -> ListenerPlan {
        let running: Vec<_> = self.open_entrances().collect();
        ListenerPlan::new(&running, &self.closed, &config.all_listeners())
    }

    /// Binds the sockets of the new listeners of a plan, and makes all that new and changed
    /// listeners need. Changes nothing that runs. `tls` has that of the listeners with TLS, in the
    /// order of the plan. Errors: each listener whose address the system refuses, or the system
    /// refuses a thread. Then all sockets that were bound are closed again.
    pub(super) fn open_new<'a>(
        &self,
        config: &Config,
        plan: ListenerPlan,
        tls: impl Iterator<Item = &'a Arc<TlsServer>>,
    ) -> Result<NewListeners, Vec<String>> {
        let bind = |new: &PlannedListener| listener::open(&new.name, &new.listener, config.network.backlog);
        let sockets = for_each_new(&plan, bind)?;
        self.ready(config, plan, tls, sockets).map_err(|error| vec![error.to_string()])
    }

    /// Puts listeners in force, after the shards have their settings. Returns the result, after
    /// every socket that has to be closed is closed.
    pub(super) async fn put_in_force(&mut self, config: &Config, new: NewListeners) -> ListenerNews {
        let (news, ended) = self.begin(new);
        self.set_backlogs(config);
        self.parts.rate.set(config.limits.connects_per_second);
        for task in ended {
            end(task).await;
        }
        news
    }

    /// Stops all acceptors, and closes their sockets.
    pub(super) fn stop(&mut self) {
        self.handshakes = None;
        self.running.drain(..).filter_map(|running| running.task).for_each(|task| task.abort());
    }

    /// Closes the sockets of all listeners. The listeners keep their terms, and a reload may change
    /// these meanwhile.
    pub(super) async fn shut_out(&mut self) {
        for running in &mut self.running {
            running.ready.socket = None;
            if let Some(task) = running.task.take() {
                end(task).await;
            }
        }
    }

    /// Opens the listeners that are closed, at the addresses that they had. Errors: the system
    /// refuses an address, or the reactor a socket. The listeners behind it stay closed.
    pub(super) fn let_in(&mut self, config: &Config) -> Result<(), StartError> {
        for RunningListener { ready, task } in self.running.iter_mut().filter(|one| one.task.is_none()) {
            let address = Some(ready.open.address.clone());
            let settings = Listener { address, ..ready.entrance.settings.clone() };
            let listening = listener::open(&ready.entrance.name, &settings, config.network.backlog)?;
            ready.socket = Some(Arc::clone(&listening.socket));
            *task = Some(actix_rt::spawn(self.parts.acceptor(listening, &ready.terms)?.run()));
        }
        Ok(())
    }

    /// Makes everything that new and changed listeners need. `sockets` has the sockets of new
    /// listeners in their order.
    fn ready<'a>(
        &self,
        config: &Config,
        plan: ListenerPlan,
        mut tls: impl Iterator<Item = &'a Arc<TlsServer>>,
        sockets: Vec<ListeningSocket>,
    ) -> Result<NewListeners, StartError> {
        let (mut open, mut handshakes) = (Vec::new(), self.handshakes.clone());
        let mut sockets = sockets.into_iter();
        for planned in &plan.open {
            let server = planned.listener.tls.as_ref().and_then(|_| tls.next()).cloned();
            let terms_at = |address: &ListenerAddress| -> io::Result<_> {
                let about = OpenListener::of(config, &planned.listener, address.clone());
                let terms = self.parts.terms(config, planned, (server, about.label()), &mut handshakes)?;
                Ok((about, terms))
            };
            // A plan has a socket or a running listener for each, unless clients are shut out.
            open.push(match &planned.before {
                Predecessor::Same(entrance) => NewListener::Same(Arc::clone(entrance)),
                Predecessor::Changed(old) => {
                    let Some(running) = self.running(old) else { continue };
                    let (about, terms) = terms_at(&running.ready.open.address)?;
                    NewListener::Changed(Arc::clone(old), terms, about)
                }
                Predecessor::None => {
                    let socket = sockets.next();
                    let bound = socket.as_ref().map(|socket| &socket.address);
                    let Some(address) = bound.or(planned.listener.address.as_ref()) else { continue };
                    let (about, terms) = terms_at(address)?;
                    self.parts.opens(socket, about, terms)?
                }
            });
        }
        Ok(NewListeners { plan, open, handshakes })
    }

    /// Puts listeners in force. Returns the result, and the tasks of the closed listeners.
    fn begin(&mut self, new: NewListeners) -> (ListenerNews, Vec<JoinHandle<()>>) {
        let NewListeners { plan, open, handshakes } = new;
        let (mut news, mut before) = (ListenerNews::default(), std::mem::take(&mut self.running));
        let mut take = |old: &Arc<Entrance>| before.extract_if(.., |running| running.is_of(old)).next();
        for new in open {
            let running = match new {
                NewListener::Same(entrance) => take(&entrance),
                NewListener::Changed(old, terms, about) => take(&old).map(|mut running| {
                    let entrance = Arc::clone(&terms.entrance);
                    // A listener with port 0 and no name has a new entrance if its place alone
                    // changes, because its place is its name.
                    if entrance.settings != old.settings {
                        news.changed.push(about.clone());
                    }
                    running.ready.terms.replace(terms);
                    (running.ready.open, running.ready.entrance) = (about, entrance);
                    running
                }),
                NewListener::Opens(ready, acceptor) => {
                    news.opened.push(ready.open.clone());
                    let task = acceptor.map(|acceptor| actix_rt::spawn(acceptor.run()));
                    Some(RunningListener { ready, task })
                }
            };
            if let Some(RunningListener { ready, .. }) = &running {
                self.parts.statistics.listeners().add(&ready.entrance.terms.connections);
            }
            self.running.extend(running);
        }
        (self.closed, self.handshakes) = (plan.closed, handshakes);
        news.open = self.running.iter().map(|running| running.ready.open.clone()).collect();
        news.closed = before.iter().map(|running| running.ready.open.clone()).collect();
        self.directory.replace(news.open.clone());
        (news, before.into_iter().filter_map(|running| running.task).collect())
    }

    fn running(&self, entrance: &Arc<Entrance>) -> Option<&RunningListener> {
        self.running.iter().find(|running| running.is_of(entrance))
    }

    /// Sets the backlog of each socket. Costs a system call for each.
    fn set_backlogs(&self, config: &Config) {
        for RunningListener { ready, .. } in &self.running {
            let Some(socket) = &ready.socket else { continue };
            let backlog = ready.entrance.settings.backlog.unwrap_or(config.network.backlog);
            // A socket that listens takes every backlog.
            let _ = listen(socket, i32::try_from(backlog).unwrap_or(i32::MAX));
        }
    }
}

impl RunningListener {
    fn is_of(&self, entrance: &Arc<Entrance>) -> bool {
        Arc::ptr_eq(&self.ready.entrance, entrance)
    }
}

impl AcceptorParts {
    /// Starts the handshake threads. Errors: the system refuses a thread or an event loop.
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

    /// Returns the terms of a new or changed listener, which has this TLS and this label. Starts
    /// the handshake threads for the first listener that needs them.
    fn terms(
        &self,
        config: &Config,
        planned: &PlannedListener,
        (tls, label): (Option<Arc<TlsServer>>, String),
        handshakes: &mut Option<Handshakes>,
    ) -> io::Result<AcceptTerms> {
        let PlannedListener { listener, name, rules, .. } = planned;
        let known = self.statistics.listeners().of_label(&label);
        let connections = known.unwrap_or_else(|| Arc::new(ListenerConnections::new(label)));
        let terms = Arc::new(listener_terms(config, listener, connections, Arc::clone(rules)));
        let entrance = Entrance::new(name, listener, terms, tls);
        if entrance.has_handshakes() && handshakes.is_none() {
            *handshakes = Some(self.start_handshakes(config)?);
        }
        let of_listener = ConnectRate::new(listener.connects_per_second.unwrap_or(0));
        Ok(AcceptTerms {
            handshakes: handshakes.clone().filter(|_| entrance.has_handshakes()),
            entrance: Arc::new(entrance),
            connections: listener.connections.map_or(usize::MAX, |most| most as usize),
            rates: ConnectRates::new([self.rate.clone(), of_listener]),
        })
    }

    /// Returns a listener, with its acceptor if it is bound. Errors: the reactor refuses the
    /// socket.
    fn opens(
        &self,
        listening: Option<ListeningSocket>,
        open: OpenListener,
        terms: AcceptTerms,
    ) -> io::Result<NewListener> {
        let socket = listening.as_ref().map(|listening| Arc::clone(&listening.socket));
        let entrance = Arc::clone(&terms.entrance);
        let terms = Rc::new(RefCell::new(terms));
        let acceptor = listening.map(|listening| self.acceptor(listening, &terms)).transpose()?;
        Ok(NewListener::Opens(ReadyListener { open, entrance, socket, terms }, acceptor))
    }

    /// Returns the acceptor of a socket. Errors: the reactor refuses the socket.
    fn acceptor(&self, listening: ListeningSocket, terms: &Rc<RefCell<AcceptTerms>>) -> io::Result<Acceptor> {
        let (shards, statistics) = (self.shards.clone(), Arc::clone(&self.statistics));
        Acceptor::new(listening, Rc::clone(terms), shards, statistics, self.limits.clone())
    }
}

/// Ends an acceptor, which has its socket until it ends.
async fn end(task: JoinHandle<()>) {
    task.abort();
    // The result says that it was aborted.
    let _ = task.await;
}

/// Checks that the addresses of the new listeners of a plan are free. Opens none of them. Errors:
/// each listener whose address the system refuses.
pub(super) fn check_new(plan: &ListenerPlan) -> Result<(), Vec<String>> {
    for_each_new(plan, |new| {
        new.listener.address.as_ref().map_or(Ok(()), |address| Ok(bind::check(address)?))
    })
    .map(drop)
}

/// Does something with each new listener of a plan. Errors: all errors, each with a correct form.
fn for_each_new<T>(
    plan: &ListenerPlan,
    make: impl Fn(&PlannedListener) -> Result<T, StartError>,
) -> Result<Vec<T>, Vec<String>> {
    let (mut made, mut refused) = (Vec::new(), Vec::new());
    for new in plan.open.iter().filter(|open| open.predecessor().is_none()) {
        match make(new) {
            Ok(one) => made.push(one),
            Err(error) => {
                let in_the_way = plan.removed.iter().find(|old| have_same_port(&old.settings, &new.listener));
                let hint = in_the_way.map(|old| {
                    let listener = old.settings.label();
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
