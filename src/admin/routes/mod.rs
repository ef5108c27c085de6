//! The paths of the HTTP interface for programs: health, metrics and `/api/v1`.

mod actions;
mod audit;
mod client_fields;
mod clients;
mod config;
mod dead_letters;
mod delayed;
mod doctor;
mod expiry;
mod health;
mod json_answer;
mod log_level;
mod login;
mod me;
mod messages;
mod metrics;
mod mosquitto;
pub(super) mod openapi;
mod overview;
mod overview_detail;
mod problems;
mod slo;
mod slow;
mod topics;
mod trace_events;
mod traces;
mod whereabouts;

use super::access::Scope;
use super::pages::entry::PageReader;
use super::pages::live;
use super::problem::problem_answer;
use super::problem_kind::ProblemKind;
use super::request::caller;
use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::guard::fn_guard;
use actix_web::http::header::{ALLOW, HeaderValue};
use actix_web::middleware::{Next, from_fn};
use actix_web::web::{self, ServiceConfig, route};
use actix_web::{Error, HttpMessage, Resource, Route};

/// One method of one path for programs.
struct ApiRoute {
    method: &'static str,
    path: &'static str,
    who: Admission,
    verb: fn() -> Route,
    handler: fn(Route) -> Route,
}

/// Who may ask. The request of anybody else ends before its handler.
#[derive(Clone, Copy)]
enum Admission {
    /// Everybody. The handler may still ask for a token.
    Everybody,
    /// A caller with this scope at least: by a token, by the Unix socket, or by the login of a
    /// browser. The handler finds the caller as an `Asker`.
    Scope(Scope),
    /// A viewer, as above. The handler finds it as a `PageReader`, which knows when the login ends.
    Reader,
}

impl Admission {
    /// Returns the least scope; `None` for everybody.
    const fn least(self) -> Option<Scope> {
        match self {
            Admission::Everybody => None,
            Admission::Scope(scope) => Some(scope),
            Admission::Reader => Some(Scope::Viewer),
        }
    }
}

const fn get(path: &'static str, who: Admission, handler: fn(Route) -> Route) -> ApiRoute {
    ApiRoute { method: "GET", path, who, verb: web::get, handler }
}

const fn put(path: &'static str, who: Admission, handler: fn(Route) -> Route) -> ApiRoute {
    ApiRoute { method: "PUT", path, who, verb: web::put, handler }
}

const fn post(path: &'static str, who: Admission, handler: fn(Route) -> Route) -> ApiRoute {
    ApiRoute { method: "POST", path, who, verb: web::post, handler }
}

const fn delete(path: &'static str, who: Admission, handler: fn(Route) -> Route) -> ApiRoute {
    ApiRoute { method: "DELETE", path, who, verb: web::delete, handler }
}

const EVERYBODY: Admission = Admission::Everybody;
const READER: Admission = Admission::Reader;
const VIEWER: Admission = Admission::Scope(Scope::Viewer);
const OPERATOR: Admission = Admission::Scope(Scope::Operator);
const ADMIN: Admission = Admission::Scope(Scope::Admin);

/// The path of the sessions that come first by a figure. A client may be called `top`, too, so the
/// path means the listing only with the parameter `by`.
const TOP: &str = "/api/v1/clients/top";

/// All paths for programs. The methods of one path stand together. The first row that fits a path
/// answers, so a fixed name stands before a part in braces. `/metrics` needs no token from
/// loopback, and elsewhere that of a viewer. `openapi/document.json` describes each row, and
/// `tests/admin/api.rs` tries each with too small a scope.
const ROUTES: &[ApiRoute] = &[
    get("/healthz", EVERYBODY, |to| to.to(health::healthz)),
    get("/readyz", EVERYBODY, |to| to.to(health::readyz)),
    get("/metrics", EVERYBODY, |to| to.to(metrics::metrics)),
    get("/api/v1/doctor", VIEWER, |to| to.to(doctor::doctor)),
    get("/api/v1/overview", VIEWER, |to| to.to(overview::overview)),
    get("/api/v1/config", VIEWER, |to| to.to(config::values)),
    post("/api/v1/config/reload", ADMIN, |to| to.to(config::reload)),
    get("/api/v1/log/level", VIEWER, |to| to.to(log_level::level)),
    put("/api/v1/log/level", ADMIN, |to| to.to(log_level::set)),
    post("/api/v1/login", EVERYBODY, |to| to.to(login::log_in)),
    post("/api/v1/login/code", VIEWER, |to| to.to(login::code)),
    post("/api/v1/logout", VIEWER, |to| to.to(login::log_out)),
    get("/api/v1/expiry", VIEWER, |to| to.to(expiry::expiry)),
    get("/api/v1/traces", OPERATOR, |to| to.to(traces::list)),
    post("/api/v1/traces", OPERATOR, |to| to.to(traces::begin)),
    get("/api/v1/traces/{number}", OPERATOR, |to| to.to(traces::steps)),
    delete("/api/v1/traces/{number}", OPERATOR, |to| to.to(traces::end)),
    get("/api/v1/traces/{number}/events", OPERATOR, |to| to.to(trace_events::events)),
    get("/api/v1/events", READER, |to| to.to(live::events)),
    get("/api/v1/openapi.json", READER, |to| to.to(openapi::document)),
    get("/api/v1/docs", READER, |to| to.to(openapi::page)),
    get("/api/problems/{slug}", READER, |to| to.to(problems::one)),
    get("/api/v1/me", VIEWER, |to| to.to(me::me)),
    get("/api/v1/version", VIEWER, |to| to.to(mosquitto::version)),
    get("/api/v1/listeners", VIEWER, |to| to.to(mosquitto::listeners)),
    get("/api/v1/systree", VIEWER, |to| to.to(mosquitto::systree)),
    get("/api/v1/slo", VIEWER, |to| to.to(slo::slo)),
    get("/api/v1/clients", VIEWER, |to| to.to(clients::list)),
    get(TOP, VIEWER, |to| to.to(clients::top)),
    get("/api/v1/clients/{id}", VIEWER, |to| to.to(clients::one)),
    delete("/api/v1/clients/{id}", OPERATOR, |to| to.to(actions::end)),
    get("/api/v1/clients/{id}/inflight", VIEWER, |to| to.to(messages::in_flight)),
    get("/api/v1/clients/{id}/queue", VIEWER, |to| to.to(messages::queue)),
    delete("/api/v1/clients/{id}/queue", OPERATOR, |to| to.to(actions::purge)),
    get("/api/v1/clients/{id}/events", VIEWER, |to| to.to(clients::events)),
    get("/api/v1/deliveries/slow", VIEWER, |to| to.to(slow::list)),
    get("/api/v1/messages/dropped", VIEWER, |to| to.to(topics::dropped)),
    get("/api/v1/subscriptions", VIEWER, |to| to.to(topics::subscriptions)),
    get("/api/v1/shared-groups", VIEWER, |to| to.to(topics::groups)),
    get("/api/v1/delayed", VIEWER, |to| to.to(delayed::list)),
    delete("/api/v1/delayed/{delayed}", OPERATOR, |to| to.to(delayed::delete)),
    get("/api/v1/dead-letters", VIEWER, |to| to.to(dead_letters::list)),
    delete("/api/v1/dead-letters", OPERATOR, |to| to.to(dead_letters::delete_many)),
    post("/api/v1/dead-letters/republish", OPERATOR, |to| to.to(dead_letters::republish_many)),
    get("/api/v1/dead-letters/{letter}", VIEWER, |to| to.to(dead_letters::one)),
    delete("/api/v1/dead-letters/{letter}", OPERATOR, |to| to.to(dead_letters::delete)),
    post("/api/v1/dead-letters/{letter}/republish", OPERATOR, |to| to.to(dead_letters::republish)),
    get("/api/v1/retained", VIEWER, |to| to.to(topics::retained)),
    delete("/api/v1/retained", OPERATOR, |to| to.to(topics::delete_retained)),
    get("/api/v1/messages/where", VIEWER, |to| to.to(whereabouts::find_messages)),
    get("/api/v1/audit", ADMIN, |to| to.to(audit::audit)),
    delete("/api/v1/connections", OPERATOR, |to| to.to(actions::disconnect_many)),
    post("/api/v1/clients/{id}/disconnect", OPERATOR, |to| to.to(actions::disconnect)),
    post("/api/v1/clients/{id}/redeliver", OPERATOR, |to| to.to(actions::redeliver)),
    post("/api/v1/clients/{id}/messages/{mid}/skip", OPERATOR, |to| to.to(actions::skip)),
    post("/api/v1/clients/{id}/messages/{mid}/park", OPERATOR, |to| to.to(actions::park)),
];

/// Adds the paths for programs.
pub(super) fn add_routes(app: &mut ServiceConfig) {
    for methods in ROUTES.chunk_by(|one, next| one.path == next.path) {
        let allowed: Vec<&str> = methods.iter().map(|one| one.method).collect();
        let all = resource(methods[0].path, &allowed.join(", "));
        let all = if methods[0].path == TOP { all.guard(fn_guard(clients::asks_for_top)) } else { all };
        app.service(methods.iter().fold(all, |all, one| all.route(admitted(one))));
    }
}

/// Returns the method and the path of everything that programs may ask, each with the least scope
/// of the caller; `None` for everybody. A part of a path in braces stands for any text.
pub fn api_paths() -> impl Iterator<Item = (&'static str, &'static str, Option<Scope>)> {
    ROUTES.iter().map(|route| (route.method, route.path, route.who.least()))
}

/// Returns the route of a row. Its handler runs for those whom the row admits.
fn admitted(row: &ApiRoute) -> Route {
    let who = row.who;
    let check = move |request: ServiceRequest, next: Next<BoxBody>| admit(who, request, next);
    (row.handler)((row.verb)()).wrap(from_fn(check))
}

/// Refuses a request of somebody else. Keeps who asks for the handler.
async fn admit(
    who: Admission,
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse, Error> {
    let known = match who {
        Admission::Everybody => Ok(()),
        Admission::Scope(scope) => {
            caller(request.request(), scope).map(|caller| drop(request.extensions_mut().insert(caller)))
        }
        Admission::Reader => {
            PageReader::of(request.request()).map(|reader| drop(request.extensions_mut().insert(reader)))
        }
    };
    match known {
        Ok(()) => next.call(request).await,
        Err(failed) => Ok(request.error_response(failed)),
    }
}

/// Returns a resource that answers all methods but `allowed` with 405.
fn resource(path: &str, allowed: &str) -> Resource {
    let detail = format!("this path takes {allowed} only");
    let allowed = HeaderValue::from_str(allowed).expect("names of methods are text");
    web::resource(path).default_service(route().to(move || {
        let mut response = problem_answer(ProblemKind::MethodNotAllowed, &detail);
        response.headers_mut().insert(ALLOW, allowed.clone());
        std::future::ready(response)
    }))
}
