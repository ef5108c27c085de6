//! The HTTP interface for operators and their tools, on a thread of its own.
//!
//! Nothing here joins the way of a message. Figures come from counters that the shards report once
//! a second. The interface starts before the broker, so that a probe learns that the broker is
//! starting.
//!
//! | file | concern |
//! |---|---|
//! | `state` | what the interface knows of the broker |
//! | `routes` | the answers |
//! | `problem` | error answers (RFC 9457) |
//! | [`metrics`] | the metrics of the broker in Prometheus' text format |

pub mod metrics;
mod problem;
mod routes;
mod state;

use crate::broker::observer::Observer;
use crate::config::Admin;
use actix_web::body::MessageBody;
use actix_web::dev::{ServerHandle, ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, CACHE_CONTROL, HOST, HeaderValue};
use actix_web::middleware::{Next, from_fn};
use actix_web::web::{Data, route};
use actix_web::{App, Error, HttpServer, Resource, web};
use problem::problem;
use state::AdminState;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;
use std::time::Duration;

/// Connections at once. Further ones wait in the backlog.
const CONNECTIONS: usize = 64;

/// Time for the head of a request.
const HEAD: Duration = Duration::from_secs(5);

/// Time that an idle connection is kept.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The largest body of a request, in bytes.
const BODY: usize = 64 << 10;

/// The running interface. Dropping the value stops it.
pub struct AdminServer {
    addresses: Vec<SocketAddr>,
    state: Data<AdminState>,
    handle: ServerHandle,
    thread: Option<JoinHandle<()>>,
}

/// The reasons why the interface does not start.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// An address cannot be bound.
    #[error("admin.addresses: cannot listen on {0}: {1}")]
    Bind(SocketAddr, io::Error),
    /// An address is for everybody, and nothing is encrypted.
    #[error(
        "admin.addresses: {0} can be reached from other machines without encryption; use a loopback address, or set admin.allow_plain_http = true if a proxy or a private network protects it"
    )]
    Plain(SocketAddr),
    /// The system refuses the thread or its event loop.
    #[error("the HTTP interface cannot start: {0}")]
    System(#[from] io::Error),
}

impl AdminServer {
    /// Binds the addresses and starts the thread. Returns `None` if there is no address.
    ///
    /// # Errors
    /// An address cannot be bound or must not be used, or the system refuses a thread.
    pub fn start(options: &Admin) -> Result<Option<AdminServer>, AdminError> {
        if options.addresses.is_empty() {
            return Ok(None);
        }
        let (mut sockets, mut addresses) = (Vec::new(), Vec::new());
        for &address in &options.addresses {
            if !(options.allow_plain_http || address.ip().is_loopback()) {
                return Err(AdminError::Plain(address));
            }
            let socket = TcpListener::bind(address).map_err(|error| AdminError::Bind(address, error))?;
            addresses.push(socket.local_addr()?);
            sockets.push(socket);
        }
        let state = Data::new(AdminState::new(addresses.iter().map(SocketAddr::ip).collect()));
        let (started, handle) = std::sync::mpsc::channel();
        let shared = state.clone();
        let thread = std::thread::Builder::new().name("homing-admin".into()).spawn(move || {
            let system = actix_rt::System::new();
            system.block_on(async move {
                match serve(sockets, shared) {
                    Ok(server) => {
                        let _ = started.send(Ok(server.handle()));
                        // It ends with the handle's stop.
                        let _ = server.await;
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            });
        })?;
        let died = || io::Error::other("its thread ended");
        let handle = handle.recv().map_err(|_| died())??;
        Ok(Some(AdminServer { addresses, state, handle, thread: Some(thread) }))
    }

    /// Returns the addresses. A port 0 is replaced by the port that the system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Notes that clients can connect.
    pub fn started(&self, observer: Observer) {
        self.state.started(observer);
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        // The returned future only waits; the stop is under way.
        drop(self.handle.stop(false));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(sockets: Vec<TcpListener>, state: Data<AdminState>) -> io::Result<actix_web::dev::Server> {
    let app = move || {
        App::new()
            .app_data(state.clone())
            .app_data(web::PayloadConfig::new(BODY))
            .app_data(web::JsonConfig::default().limit(BODY))
            .wrap(from_fn(guard))
            .service(read_only("/healthz").route(web::get().to(routes::health::healthz)))
            .service(read_only("/readyz").route(web::get().to(routes::health::readyz)))
            .service(read_only("/metrics").route(web::get().to(routes::figures::metrics)))
            .default_service(route().to(unknown))
    };
    let mut server = HttpServer::new(app)
        .workers(1)
        .worker_max_blocking_threads(2)
        .max_connections(CONNECTIONS)
        .client_request_timeout(HEAD)
        .keep_alive(KEEP_ALIVE)
        .disable_signals()
        .shutdown_timeout(1);
    for socket in sockets {
        server = server.listen(socket)?;
    }
    Ok(server.run())
}

/// Returns a resource that answers any method but GET with 405.
fn read_only(path: &str) -> Resource {
    web::resource(path).default_service(route().to(async || {
        let mut response =
            problem(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "this path takes GET only");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        response
    }))
}

/// Refuses a request whose Host is not this interface. No answer may be stored.
async fn guard(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let own = request.app_data::<Data<AdminState>>().is_some_and(|state| {
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
        host.is_some_and(|host| state.is_own_host(host))
    });
    let mut response = if own {
        next.call(request).await?.map_into_boxed_body()
    } else {
        let detail = "the Host header names neither loopback nor an address of this interface";
        request.into_response(problem(StatusCode::FORBIDDEN, "foreign-host", detail))
    };
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn unknown() -> actix_web::HttpResponse {
    problem(StatusCode::NOT_FOUND, "not-found", "there is no such path; see docs/monitoring.md")
}
