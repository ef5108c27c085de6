//! The paths of the HTTP interface for programs: health, metrics and `/api/v1`.

pub(super) mod acl;
mod actions;
mod api_route;
pub(super) mod audit;
pub(super) mod bans;
pub(super) mod bridges;
mod client_fields;
pub(super) mod clients;
mod cluster;
pub(super) mod config;
pub(super) mod dead_letters;
pub(super) mod delayed;
pub(super) mod doctor;
mod expiry;
mod health;
mod json_answer;
pub(super) mod log_level;
pub(super) mod login;
mod me;
pub(super) mod messages;
mod metrics;
pub(super) mod mosquitto;
pub(super) mod openapi;
pub(super) mod overview;
mod overview_detail;
mod problems;
pub(super) mod publish;
pub(super) mod sinks;
pub(super) mod slo;
pub(super) mod slow;
pub(super) mod store_figures;
pub(super) mod tokens;
pub(super) mod topics;
mod trace_events;
pub(super) mod traces;
pub(super) mod users;
pub(super) mod whereabouts;

use super::access::Scope;
use super::failed::Failed;
use super::pages::entry::PageReader;
use super::pages::live;
use super::problem::problem_answer;
use super::problem_kind::ProblemKind;
use super::request::caller;
use super::state::State;
use super::trace_commands::TraceWish;
use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{ALLOW, HeaderValue};
use actix_web::middleware::{Next, from_fn};
use actix_web::web::{self, PayloadConfig, ServiceConfig, route};
use actix_web::{Error, HttpMessage, Resource, Route};
use api_route::Content::{self, Document, Text};
use api_route::{ApiRoute, RouteAdmission, delete, get, post, put};
use openapi::body_schema::BodySchema;
use serde::Serialize;
use std::sync::LazyLock;
use utoipa::ToSchema;

const EVERYBODY: RouteAdmission = RouteAdmission::Everybody;
const READER: RouteAdmission = RouteAdmission::Reader;
const PUBLISHER: RouteAdmission = RouteAdmission::Scope(Scope::Publisher);
const VIEWER: RouteAdmission = RouteAdmission::Scope(Scope::Viewer);
const OPERATOR: RouteAdmission = RouteAdmission::Scope(Scope::Operator);
const ADMIN: RouteAdmission = RouteAdmission::Scope(Scope::Admin);

/// The beginnings of the paths that take a larger body than the others.
const LARGE: [&str; 2] = ["/api/v1/publish", "/api/v1/acl"];

/// The content of an answer that a handler writes itself.
fn body<T: Serialize + ToSchema>() -> Content {
    Content::Json(BodySchema::of_answer::<T>())
}

/// All paths for programs. The methods of one path are adjacent. The first row that fits a path
/// answers, so a fixed name comes before a part in braces. `/metrics` needs no token from loopback,
/// and elsewhere that of a viewer. `tests/admin/api.rs` tries each row with too small a scope.
static ROUTES: LazyLock<Vec<ApiRoute>> = LazyLock::new(|| {
    vec![
        get("/healthz", EVERYBODY, health::healthz).on_standby().says("Answers as long as the process answers.").gives(
            200,
            "`ok`",
            Text("text/plain"),
        ),
        get("/readyz", EVERYBODY, health::readyz).on_standby()
            .says(
                "Says if clients can connect, if the threads that they need work, and if the \
            store has room and commits.",
            )
            .gives(200, "They can.", body::<health::ReadinessAnswer>())
            .gives(503, "They cannot; the reasons say why.", body::<health::ReadinessAnswer>()),
        get("/metrics", EVERYBODY, metrics::metrics).on_standby()
            .says("All figures in Prometheus' text format. From this machine, no token is needed.")
            .gives(200, "Text format 0.0.4.", Text("text/plain"))
            .refuses(&[401, 503]),
        get("/api/v1/doctor", VIEWER, doctor::doctor).on_standby()
            .says("The checks of `homing doctor` that make sense within the running broker."),
        get("/api/v1/overview", VIEWER, overview::overview).says("Totals of the broker."),
        get("/api/v1/config", VIEWER, config::values).on_standby()
            .says("The keys of the configuration with the values in force."),
        post("/api/v1/config/reload", ADMIN, config::reload).on_standby()
            .says("Reads the configuration and its files again: all of it, or nothing.")
            .gives(200, "The changes.", body::<config::ReloadAnswer>())
            .gives(
                202,
                "The reload takes longer than a request may, and goes on.",
                body::<config::UnderWay>(),
            )
            .refuses(&[422]),
        get("/api/v1/log/level", VIEWER, log_level::level).on_standby().says("The level of the log."),
        put("/api/v1/log/level", ADMIN, log_level::set).on_standby()
            .says("Sets the level of the log.")
            .body::<log_level::LogLevelOrder>(),
        post("/api/v1/login", EVERYBODY, login::log_in).on_standby()
            .says(
                "Begins a login of a browser, with the name and the password of a user of \
            `homing admin-user`.",
            )
            .gives(
                200,
                "The cookie `homing_login_PORT` is set, with the port of the interface; with \
            HTTPS, its name begins with `__Host-`. It ends after 30 minutes without a \
            request, and after 8 hours.",
                body::<login::LoginAnswer>(),
            )
            .body::<login::PasswordLogin>()
            .refuses(&[401, 429, 503]),
        post("/api/v1/login/code", VIEWER, login::code).on_standby().says(
            "A one-time code that begins a login of the pages within a minute, with the \
            scope of the caller.",
        ),
        post("/api/v1/logout", VIEWER, login::log_out).on_standby()
            .says("Ends the login that the request belongs to. A token stays valid."),
        get("/api/v1/expiry", VIEWER, expiry::expiry)
            .says("The deadlines by the time in which they are due."),
        get("/api/v1/traces", OPERATOR, traces::list).says("The traces without their steps."),
        post("/api/v1/traces", OPERATOR, traces::begin)
            .says("Begins a trace.")
            .gives(201, "It has begun.", body::<traces::TraceNumber>())
            .body::<TraceWish>(),
        get("/api/v1/traces/{number}", OPERATOR, traces::steps)
            .says("A trace with its steps behind a number."),
        delete("/api/v1/traces/{number}", OPERATOR, traces::end).says("Ends a trace, and forgets its steps."),
        get("/api/v1/traces/{number}/events", OPERATOR, trace_events::events)
            .says("The steps of a trace as server-sent events, until it ends.")
            .gives(
                200,
                "`step` for each step, with its number as the id, and `end`.",
                Text("text/event-stream"),
            )
            .resumes()
            .refuses(&[429]),
        get("/api/v1/events", READER, live::events)
            .says("Live updates as server-sent events. The stream never ends.")
            .gives(200, "Events of the streams that were asked for.", Text("text/event-stream"))
            .resumes()
            .refuses(&[429]),
        get("/api/v1/openapi.json", READER, openapi::document).on_standby().says("This document.").gives(
            200,
            "OpenAPI 3.1.",
            Document,
        ),
        get("/api/v1/docs", READER, openapi::page).on_standby().says("This document as a page for people.").gives(
            200,
            "A page.",
            Text("text/html"),
        ),
        get("/api/problems/{slug}", READER, problems::one).on_standby()
            .says("The meaning of an error, whose `type` is this path.")
            .gives(200, "The meaning, and what to do.", Text("text/plain")),
        get("/api/v1/me", VIEWER, me::me).on_standby().says("The caller: its name, its scope, and the end of its token."),
        get("/api/v1/version", VIEWER, mosquitto::version).on_standby()
            .says("The version of the broker, as mosquitto 2.1 answers it.")
            .gives(200, "The version.", Text("text/plain")),
        get("/api/v1/listeners", VIEWER, mosquitto::listeners)
            .says("What is open, with the fields of mosquitto 2.1 and the number of connections."),
        get("/api/v1/systree", VIEWER, mosquitto::systree)
            .says("The topics of `$SYS` with their values, as the broker published them last."),
        get("/api/v1/slo", VIEWER, slo::slo)
            .says("The delivery objectives with their counts and error budgets."),
        get("/api/v1/bridges", VIEWER, bridges::list)
            .says("The connections to other brokers: state, last error and messages of each."),
        post("/api/v1/bridges/{name}/connect", OPERATOR, bridges::connect)
            .says("Has a bridge connect now, whatever its `connect` says."),
        post("/api/v1/bridges/{name}/disconnect", OPERATOR, bridges::disconnect)
            .says("Disconnects a bridge, until it is told to connect. Its session stays."),
        get("/api/v1/cluster", VIEWER, cluster::cluster).on_standby()
            .says("The cluster as this node sees it: who serves, how far each node is, and where nodes differ."),
        get("/api/v1/sinks", VIEWER, sinks::list)
            .says("The HTTP services that get messages: state, last error and messages of each."),
        get("/api/v1/clients", VIEWER, clients::list)
            .says("The sessions, in pages. A session that stays is listed once."),
        get("/api/v1/clients/{id}", VIEWER, clients::one)
            .says("One session with its messages and subscriptions."),
        delete("/api/v1/clients/{id}", OPERATOR, actions::end)
            .says("Ends the session of a client, with its queue.")
            .refuses(&[409]),
        get("/api/v1/clients/{id}/inflight", VIEWER, messages::in_flight)
            .says("The messages in flight, each with the reason why it waits."),
        get("/api/v1/clients/{id}/queue", VIEWER, messages::queue)
            .says("The messages in the queue, each with the reason why it waits."),
        delete("/api/v1/clients/{id}/queue", OPERATOR, actions::purge)
            .says("Drops the messages in the queue. Those in flight stay."),
        get("/api/v1/clients/{id}/events", VIEWER, clients::events).says(
            "The moments of redelivery of a client in the last 15 minutes, the oldest \
            first.",
        ),
        get("/api/v1/deliveries/slow", VIEWER, slow::list).says(
            "The receivers and topics with a delivery of more than a second in the last \
            hour, the slowest first.",
        ),
        get("/api/v1/messages/dropped", VIEWER, topics::dropped)
            .says("The last dropped messages, and the refused requests of clients, the newest first."),
        get("/api/v1/subscriptions", VIEWER, topics::subscriptions)
            .says(
                "Who gets a topic, who has a filter, or the filters of a client. Exactly one of \
            them must be named.",
            )
            .refuses(&[404]),
        get("/api/v1/shared-groups", VIEWER, topics::groups).says(
            "The shared groups with their numbers of members, in pages. A group that stays \
            is listed once.",
        ),
        get("/api/v1/delayed", VIEWER, delayed::list).says(
            "Delayed messages in memory, the next due first, in pages: those of the next \
            minute, or all without a data directory.",
        ),
        delete("/api/v1/delayed/{delayed}", OPERATOR, delayed::delete)
            .says("Deletes a delayed message that is in memory. It is never published."),
        get("/api/v1/dead-letters", VIEWER, dead_letters::list)
            .says("Stored dead letters, the newest first, without their payloads."),
        delete("/api/v1/dead-letters", OPERATOR, dead_letters::delete_many).says(
            "Deletes the dead letters of a cause, a receiver or a topic, or all. Without \
            `confirm` it counts them.",
        ),
        post("/api/v1/dead-letters/republish", OPERATOR, dead_letters::republish_many).says(
            "Publishes the messages of dead letters again, the oldest first, and removes \
            the letters. Without `confirm` it counts them.",
        ),
        get("/api/v1/dead-letters/{letter}", VIEWER, dead_letters::one).says("One stored dead letter."),
        delete("/api/v1/dead-letters/{letter}", OPERATOR, dead_letters::delete)
            .says("Deletes a stored dead letter."),
        post("/api/v1/dead-letters/{letter}/republish", OPERATOR, dead_letters::republish)
            .says("Publishes the message of a dead letter again, and removes the letter.")
            .refuses(&[409]),
        get("/api/v1/retained", VIEWER, topics::retained)
            .says("Retained messages in the order of the topic tree, in pages."),
        delete("/api/v1/retained", OPERATOR, topics::delete_retained)
            .says("Deletes the retained message of a topic. Subscribers are not told.")
            .refuses(&[404, 409]),
        get("/api/v1/messages/where", VIEWER, whereabouts::find_messages).says(
            "Says where the messages of a topic, a publisher or a receiver are, and why \
            they wait. One of them must be named. With a topic filter, subscriptions and \
            retained messages are left out.",
        ),
        post("/api/v1/publish", PUBLISHER, publish::one)
            .says("Publishes a message. The answer comes when a client would get its PUBACK.")
            .body::<publish::MessageOrder>()
            .refuses(&[422, 429]),
        post("/api/v1/publish/bulk", PUBLISHER, publish::many)
            .says(
                "Publishes up to 256 messages in their order. Each has its own answer. A mistake in the \
            form of one refuses all.",
            )
            .body::<publish::Messages>()
            .refuses(&[429]),
        get("/api/v1/users", OPERATOR, users::list)
            .says("The users of clients in `auth.password_file`, or of `listener`, by name, in pages. No hashes.")
            .refuses(&[409, 422]),
        get("/api/v1/users/{name}", OPERATOR, users::one).says("One user of clients.").refuses(&[409, 422]),
        put("/api/v1/users/{name}", ADMIN, users::set)
            .says(
                "Adds a user of clients, or changes its password. The file is written and in force then, \
            and connections with another password have ended.",
            )
            .body::<users::UserOrder>()
            .refuses(&[409, 422]),
        delete("/api/v1/users/{name}", ADMIN, users::remove)
            .says("Removes a user of clients from the file, and ends its connections.")
            .refuses(&[409, 422]),
        get("/api/v1/acl", ADMIN, acl::show)
            .says("The text of `acl.file`, or of the file of `listener`, with its version as `ETag`.")
            .gives(200, "The text.", body::<acl::AclAnswer>())
            .refuses(&[409]),
        put("/api/v1/acl", ADMIN, acl::set)
            .says("Replaces the text of `acl.file` and puts it in force, or checks it.")
            .body::<acl::AclOrder>()
            .refuses(&[409, 412, 422]),
        get("/api/v1/bans", OPERATOR, bans::list)
            .says("The clients that may not enter, in the order of `bans.file`, in pages.")
            .refuses(&[409]),
        post("/api/v1/bans", OPERATOR, bans::add)
            .says("Bans, and disconnects whom the ban concerns. One of the same kind and value is replaced.")
            .body::<bans::BanOrder>()
            .refuses(&[409, 422]),
        delete("/api/v1/bans", OPERATOR, bans::remove).says("Removes a ban.").refuses(&[404, 409, 422]),
        get("/api/v1/tokens", ADMIN, tokens::list)
            .says("The tokens and users of this interface, without their secrets."),
        post("/api/v1/tokens", ADMIN, tokens::make)
            .says("Makes a token of this interface, and shows it once. One of the same name is replaced.")
            .gives(201, "The token.", body::<tokens::TokenMade>())
            .body::<tokens::TokenOrder>()
            .refuses(&[409, 422]),
        delete("/api/v1/tokens/{name}", ADMIN, tokens::remove)
            .says("Removes a token or a user of this interface.")
            .refuses(&[409, 422]),
        get("/api/v1/audit", ADMIN, audit::audit).on_standby().says("The last actions of operators, the newest first."),
        delete("/api/v1/connections", OPERATOR, actions::disconnect_many).says(
            "Disconnects the clients of a user, a listener or a prefix. Their sessions \
            stay.",
        ),
        post("/api/v1/clients/{id}/disconnect", OPERATOR, actions::disconnect)
            .says("Disconnects a client. Its session stays.")
            .refuses(&[409]),
        post("/api/v1/clients/{id}/redeliver", OPERATOR, actions::redeliver)
            .says("Sends the unacknowledged messages of a client again.")
            .refuses(&[409]),
        post("/api/v1/clients/{id}/messages/{mid}/skip", OPERATOR, actions::skip)
            .says("Drops one message of a client.")
            .refuses(&[409]),
        post("/api/v1/clients/{id}/messages/{mid}/park", OPERATOR, actions::park)
            .says("Moves one message of a client to the dead letters.")
            .refuses(&[409]),
    ]
});

/// Adds the paths for programs.
pub(super) fn add_routes(app: &mut ServiceConfig) {
    for methods in ROUTES.chunk_by(|one, next| one.path == next.path) {
        let allowed: Vec<&str> = methods.iter().map(|one| one.method).collect();
        let all = resource(methods[0].path, &allowed.join(", "));
        let is_large = LARGE.iter().any(|beginning| methods[0].path.starts_with(beginning));
        let all = if is_large { all.app_data(PayloadConfig::new(publish::BODY)) } else { all };
        app.service(methods.iter().fold(all, |all, one| all.route(admitted(one))));
    }
}

/// Returns the method and the path of everything that programs may ask, each with the least scope
/// of the caller; `None` for everybody. A part of a path in braces matches any text.
pub fn api_paths() -> impl Iterator<Item = (&'static str, &'static str, Option<Scope>)> {
    ROUTES.iter().map(|row| (row.method, row.path, row.who.least()))
}

/// Returns the route of a row. Its handler runs for those whom the row admits.
fn admitted(row: &ApiRoute) -> Route {
    let (who, on_standby) = (row.who, row.on_standby);
    let check = move |request: ServiceRequest, next: Next<BoxBody>| admit((who, on_standby), request, next);
    (row.route)().wrap(from_fn(check))
}

/// Refuses a request of somebody else, and on a node that stands by each one that only the owner can
/// answer. Keeps who asks for the handler.
async fn admit(
    (who, on_standby): (RouteAdmission, bool),
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse, Error> {
    let known = match who {
        RouteAdmission::Everybody => Ok(()),
        RouteAdmission::Scope(scope) => {
            caller(request.request(), scope).map(|caller| drop(request.extensions_mut().insert(caller)))
        }
        RouteAdmission::Reader => {
            PageReader::of(request.request()).map(|reader| drop(request.extensions_mut().insert(reader)))
        }
    };
    let serving = || request.app_data::<State>().and_then(|state| state.serving_node());
    let known = known.and_then(|()| match serving().filter(|_| !on_standby) {
        Some(serving) => Err(Failed::Standby(serving)),
        None => Ok(()),
    });
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
