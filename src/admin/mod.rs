//! The HTTP interface for operators and their tools, on a thread of its own.
//!
//! Nothing here joins the way of a message. Figures come from counters that the shards report once
//! a second. The interface starts before the broker, so that a probe learns that the broker is
//! starting.
//!
//! The table has the modules in their order: a module uses only modules of the lines above its own.
//!
//! | file | concern |
//! |---|---|
//! | [`access`] | the scopes and the callers |
//! | [`credentials`] | the file of tokens and users, and the commands that change it |
//! | `names`, `segment` | sessions, messages and client identifiers in URLs |
//! | `serving_node` | the node that serves in place of one that stands by |
//! | `problem`, `failed` | error answers (RFC 9457) |
//! | `https` | the scheme and the certificate of the addresses |
//! | `unread_body` | the refusal of a request whose body may never end |
//! | `audit`, `logins`, `listing` | the actions of operators, the logins, a page of sessions |
//! | [`metrics`] | the metrics of the broker in Prometheus' text format |
//! | `timeline`, `traces`, `wheel` | redelivery, the steps of messages, and the deadlines |
//! | `human` | numbers and times as people read them |
//! | `recent` | the last two minutes of a few figures, and the last hour and day of others |
//! | `terms` | the settings that a reload changes |
//! | `advice` | what to do about a problem |
//! | [`store_state`] | the state of the store, and its bounds for a warning |
//! | `state` | the state of the interface, and its view of the broker |
//! | `standby` | a node of a cluster that stands by |
//! | `cookies`, `browser_login` | the cookies, and the login of a request |
//! | `login_failures` | which logins are refused, because too many failed |
//! | `login_attempt` | how a login begins, and why it is refused |
//! | `request_origin` | the number of a request, and the address of its caller |
//! | `request` | the caller and the parameters of a request |
//! | `operator` | an operator who acts, and the note and audit line of each action |
//! | `sourced_redelivery` | the redelivery settings of a session in words |
//! | `payloads` | who sees payloads, and how much of them |
//! | `cluster_checks` | what is wrong with the cluster |
//! | [`readiness`] | whether clients can connect, threads work, and the store commits |
//! | `queries`, `commands` | questions to the shards, and actions on clients |
//! | `bulk` | actions on many connections, messages or dead letters |
//! | `client_files` | changes of the files about clients |
//! | `publish` | messages that a program publishes |
//! | `trace_commands` | the beginning and the end of traces |
//! | `timeline::collector`, `recent::sampler` | the tasks that fill the timeline and the figures |
//! | `caller_seats` | the live streams and publishing requests of each credential |
//! | `event_stream` | the answer of a stream of server-sent events |
//! | `pages`, `routes` | the pages for people, and the answers for programs |
//! | `middleware` | what surrounds every request |
//! | [`ctl`] | `homing ctl` |

pub mod access;
mod advice;
mod audit;
mod browser_login;
mod bulk;
mod caller_seats;
mod client_files;
mod cluster_checks;
mod commands;
mod cookies;
pub mod credentials;
pub mod ctl;
mod event_stream;
mod failed;
pub(crate) mod https;
mod human;
mod listing;
mod login_attempt;
mod login_failures;
mod logins;
pub mod metrics;
mod middleware;
mod names;
mod operator;
mod pages;
mod payloads;
mod problem;
mod problem_kind;
mod publish;
mod queries;
pub mod readiness;
mod recent;
mod request;
mod request_origin;
mod routes;
mod rows;
mod segment;
pub mod self_checks;
mod serving_node;
mod sourced_redelivery;
mod standby;
mod state;
pub mod store_state;
mod terms;
mod timeline;
mod trace_commands;
mod traces;
mod unread_body;
mod wheel;

use crate::auth::file_error::FileError;
use crate::broker::bind::{self, BindError, SocketFile, SocketPermissions};
use crate::broker::observer::Observer;
use crate::broker::standby::StandbyConfig;
use crate::cluster::row::ClusterView;
use crate::config::{Admin, Config};
use crate::net::tls::config_error::TlsConfigError;
use crate::net::tls::live::LiveTls;
use crate::scheduling;
use access::PeerUser;
use actix_rt::{Arbiter, ArbiterHandle};
use actix_web::dev::{Server, ServerHandle};
use actix_web::http::KeepAlive;
use actix_web::middleware::from_fn;
use actix_web::web::{Data, PayloadConfig, route};
use actix_web::{App, HttpServer};
use credentials::file::CredentialFile;
use https::Scheme;
use middleware::{HEAD, count, guard};
use pages::page;
pub use routes::api_paths;
use rustls::ServerConfig;
pub use state::DoctorChecks;
use state::{AdminState, NodeParts};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use terms::AdminTerms;

/// Connections at once. Further connections wait in the backlog. Each takes 128 KiB at most before
/// anybody has proven who asks.
const CONNECTIONS: usize = 256;

/// Time for which sent bytes may stay unacknowledged. A client that stops reading is closed then,
/// because the HTTP server has no such time of its own.
const UNREAD: Duration = Duration::from_secs(30);

/// The permissions of the Unix socket: for the broker's user and its group.
const SOCKET_MODE: u32 = 0o660;

/// Connections that the kernel holds for each socket until they are accepted. Above that number it
/// drops them without a word, and a client tries again after 1, 3, 7, ... 127 s. So a short backlog
/// would keep others out for minutes while slow clients hold the places.
const BACKLOG: u32 = 1_024;

/// Bytes of the body of a request at most.
const BODY: usize = 64 << 10;

/// The running interface. Dropping the value stops it.
pub struct AdminServer {
    state: Data<AdminState>,
    /// `None` for plain HTTP.
    tls: Option<Arc<LiveTls>>,
    handles: Vec<ServerHandle>,
    /// Gives tasks to the thread.
    arbiter: ArbiterHandle,
    thread: Option<JoinHandle<()>>,
    /// Removes the file of the Unix socket.
    file: Option<SocketFile>,
}

/// The reasons why the interface does not start.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// An address cannot be bound.
    #[error("admin.addresses: {1}")]
    Bind(SocketAddr, BindError),
    /// An address is for everybody, and nothing is encrypted.
    #[error(
        "admin.addresses: {0} can be reached from other machines without encryption; set admin.certificate and admin.key for HTTPS, or admin.allow_plain_http = true if a proxy or a private network protects it, or use a loopback address"
    )]
    Plain(SocketAddr),
    /// The certificate or its key cannot be used.
    #[error("admin.certificate, admin.key: {0}")]
    Certificate(TlsConfigError),
    /// The file of credentials cannot be used.
    #[error("admin.credentials: {0}")]
    Credentials(FileError),
    /// The Unix socket cannot be bound.
    #[error("admin.socket: {0}")]
    Socket(BindError),
    /// The system refuses the thread or its event loop.
    #[error("the HTTP interface cannot start: {0}")]
    System(#[from] io::Error),
}

impl AdminServer {
    /// Binds the addresses and the Unix socket, and starts the thread. `socket` is the path of the
    /// Unix socket; `None` for none. Returns `None` if there is neither.
    ///
    /// # Errors
    /// An address or the socket cannot be bound or must not be used, the certificate cannot be
    /// used, the file of credentials has a mistake, or the system refuses a thread.
    pub fn start(options: &Admin, socket: Option<&Path>) -> Result<Option<AdminServer>, AdminError> {
        if options.addresses.is_empty() && socket.is_none() {
            return Ok(None);
        }
        let (credentials, tls) = read_files(options)?;
        let scheme = if tls.is_some() { Scheme::Https } else { Scheme::Http };
        let (sockets, addresses) = bind_addresses(options)?;
        let permissions = SocketPermissions { mode: Some(SOCKET_MODE), group: None };
        let unix = socket.map(|path| bind::unix(path, permissions, BACKLOG)).transpose();
        let (unix, file) = unix.map_err(AdminError::Socket)?.unzip();
        let state = AdminState::new(scheme, addresses, credentials, AdminTerms::of(options));
        let state = Data::new(state);
        let (started, handles) = std::sync::mpsc::channel();
        let (shared, acceptor) = (state.clone(), tls.as_ref().map(LiveTls::acceptor_config));
        let thread = std::thread::Builder::new().name("homing-admin".into()).spawn(move || {
            scheduling::yield_to_traffic();
            let system = actix_rt::System::new();
            system.block_on(async move {
                let collected = shared.clone();
                match serve((sockets, acceptor), unix, shared) {
                    Ok(servers) => {
                        let handles: Vec<_> = servers.iter().map(Server::handle).collect();
                        let _ = started.send(Ok((handles, Arbiter::current())));
                        actix_rt::spawn(recent::sampler::sample(collected.clone()));
                        actix_rt::spawn(readiness::ask_threads(collected.clone()));
                        actix_rt::spawn(timeline::collector::collect(collected));
                        // The tasks end when their handles are stopped.
                        let running: Vec<_> = servers.into_iter().map(actix_rt::spawn).collect();
                        for server in running {
                            let _ = server.await;
                        }
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            });
        })?;
        let died = || io::Error::other("its thread ended");
        let (handles, arbiter) = handles.recv().map_err(|_| died())??;
        Ok(Some(AdminServer { state, tls, handles, arbiter, thread: Some(thread), file }))
    }

    /// Returns the URLs of the addresses, without a slash at the end. A port 0 is replaced by the
    /// port that the system chose.
    pub fn urls(&self) -> impl Iterator<Item = String> {
        self.state.urls()
    }

    /// Returns the watcher that a reload calls with the new configuration.
    pub fn settings_watcher(&self) -> impl Fn(&Config) + Send + use<> {
        let state = self.state.clone();
        move |config| state.put_in_force(AdminTerms::of(&config.admin), config.admin.credentials_path())
    }

    /// Returns the metrics of now, each time that it is called, with the requests to the interface.
    #[cfg(feature = "otlp")]
    pub fn metrics_source(&self, observer: Observer) -> Box<dyn Fn() -> metrics::text::MetricsText + Send> {
        let state = self.state.clone();
        Box::new(move || metrics::collect(&observer, &state.requests, state.cluster()))
    }

    /// Returns the TLS of the addresses, whose files the broker reads again; `None` for plain HTTP.
    pub fn tls(&self) -> Option<Arc<LiveTls>> {
        self.tls.clone()
    }

    /// Returns true if programs on this machine reach the interface by a Unix socket.
    pub fn has_socket(&self) -> bool {
        self.file.is_some()
    }

    /// Notes that this process stands by as a node of a cluster, with this configuration. `checks`
    /// looks at the machine and the files, and may block.
    pub fn joined(&self, view: Arc<ClusterView>, config: Arc<StandbyConfig>, checks: DoctorChecks) {
        if let Some(url) = self.state.pages_elsewhere() {
            view.note_pages(url);
        }
        if let Some(tls) = &self.tls {
            self.arbiter.spawn(config.renew(Arc::clone(tls)));
        }
        self.state.joined(NodeParts { view, config }, checks);
    }

    /// Notes that clients can connect. `checks` looks at the machine and the files of the broker,
    /// as `homing doctor` does. The function may block.
    pub fn started(&self, observer: Observer, checks: DoctorChecks) {
        // From here, so that a thread that hangs before its first turn is on the list, too. Requests
        // have threads of their own.
        self.arbiter.spawn(observer.statistics().pulses().watch_loop("homing-admin"));
        self.state.started(observer, checks);
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        for handle in &self.handles {
            // The returned future only waits; the stop is under way.
            drop(handle.stop(false));
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads the files that the settings name as the start does, and keeps nothing.
///
/// # Errors
/// The file of credentials or the certificate cannot be used, or an address must not be plain HTTP.
pub fn check_files(options: &Admin) -> Result<(), AdminError> {
    read_files(options).map(drop)
}

fn read_files(options: &Admin) -> Result<(CredentialFile, Option<Arc<LiveTls>>), AdminError> {
    let credentials = CredentialFile::load(options.credentials_path()).map_err(AdminError::Credentials)?;
    let tls = https::load(options).map_err(AdminError::Certificate)?;
    let may_be_plain = |address: &&SocketAddr| options.allow_plain_http || address.ip().is_loopback();
    match options.addresses.iter().find(|address| tls.is_none() && !may_be_plain(address)) {
        Some(address) => Err(AdminError::Plain(*address)),
        None => Ok((credentials, tls)),
    }
}

/// Binds the addresses. Returns their sockets, and the addresses with the ports that the system
/// chose. Errors: an address cannot be bound.
fn bind_addresses(options: &Admin) -> Result<(Vec<TcpListener>, Vec<SocketAddr>), AdminError> {
    let (mut sockets, mut addresses) = (Vec::new(), Vec::new());
    for &address in &options.addresses {
        let (socket, bound) =
            bind::tcp(address, BACKLOG).map_err(|error| AdminError::Bind(address, error))?;
        // Accepted sockets inherit it.
        socket2::SockRef::from(&socket).set_tcp_user_timeout(Some(UNREAD))?;
        sockets.push(socket);
        addresses.push(bound);
    }
    Ok((sockets, addresses))
}

/// Starts the servers: one for the TCP sockets, with TLS if they have a configuration of TLS, and
/// one for the Unix socket. Errors: the system refuses a socket.
fn serve(
    (sockets, tls): (Vec<TcpListener>, Option<ServerConfig>),
    unix: Option<UnixListener>,
    state: Data<AdminState>,
) -> io::Result<Vec<Server>> {
    // A macro, because the type of a server names its factory. A connection takes one request: the
    // server has no time for the head of a second one, so idle connections would hold all places.
    macro_rules! limited {
        ($app:expr) => {
            HttpServer::new($app)
                .workers(1)
                .worker_max_blocking_threads(2)
                .max_connections(CONNECTIONS)
                .client_request_timeout(HEAD)
                .tls_handshake_timeout(HEAD)
                .keep_alive(KeepAlive::Disabled)
                .disable_signals()
                .shutdown_timeout(1)
        };
    }
    let app = move || {
        App::new()
            .app_data(state.clone())
            .app_data(PayloadConfig::new(BODY))
            .app_data(request::query_config())
            .wrap(from_fn(guard))
            .wrap(from_fn(count))
            .configure(routes::add_routes)
            .configure(pages::add_routes)
            .default_service(route().to(page::unknown))
    };
    // The Unix socket has a server of its own, whose places no client of the network can take.
    let mut servers = Vec::new();
    if !sockets.is_empty() {
        let mut server = limited!(app.clone());
        for socket in sockets {
            server = match &tls {
                Some(config) => server.listen_rustls_0_23(socket, config.clone())?,
                None => server.listen(socket)?,
            };
        }
        servers.push(server.run());
    }
    if let Some(unix) = unix {
        let server = limited!(app).on_connect(|socket, data| {
            // The kernel knows the user at the other end of a Unix socket.
            if let Some(unix) = socket.downcast_ref::<actix_web::rt::net::UnixStream>()
                && let Ok(peer) = unix.peer_cred()
            {
                data.insert(PeerUser(peer.uid()));
            }
        });
        servers.push(server.listen_uds(unix)?.run());
    }
    Ok(servers)
}
