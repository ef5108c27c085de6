//! The answers for programs.

mod actions;
mod audit;
mod clients;
mod config;
mod expiry;
mod health;
mod log_level;
mod login_code;
mod messages;
mod metrics;
mod overview;
mod slo;
mod topics;
mod traces;
mod whereabouts;

use super::problem::problem;
use actix_web::Resource;
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderValue};
use actix_web::web::{self, ServiceConfig, route};

/// Adds the paths for programs.
pub(super) fn add_routes(app: &mut ServiceConfig) {
    app.service(read_only("/healthz").route(web::get().to(health::healthz)))
        .service(read_only("/readyz").route(web::get().to(health::readyz)))
        .service(read_only("/metrics").route(web::get().to(metrics::metrics)))
        .service(read_only("/api/v1/overview").route(web::get().to(overview::overview)))
        .service(resource("/api/v1/config/reload", "POST").route(web::post().to(config::reload)))
        .service(
            resource("/api/v1/log/level", "GET, PUT")
                .route(web::get().to(log_level::level))
                .route(web::put().to(log_level::set)),
        )
        .service(resource("/api/v1/login/code", "POST").route(web::post().to(login_code::code)))
        .service(read_only("/api/v1/expiry").route(web::get().to(expiry::expiry)))
        .service(
            resource("/api/v1/traces", "GET, POST")
                .route(web::get().to(traces::list))
                .route(web::post().to(traces::begin)),
        )
        .service(
            resource("/api/v1/traces/{number}", "GET, DELETE")
                .route(web::get().to(traces::steps))
                .route(web::delete().to(traces::end)),
        )
        .service(read_only("/api/v1/slo").route(web::get().to(slo::slo)))
        .service(read_only("/api/v1/clients").route(web::get().to(clients::list)))
        .service(
            resource("/api/v1/clients/{id}", "GET, DELETE")
                .route(web::get().to(clients::one))
                .route(web::delete().to(actions::end)),
        )
        .service(read_only("/api/v1/clients/{id}/inflight").route(web::get().to(messages::in_flight)))
        .service(read_only("/api/v1/clients/{id}/queue").route(web::get().to(messages::queue)))
        .service(read_only("/api/v1/messages/dropped").route(web::get().to(topics::dropped)))
        .service(read_only("/api/v1/subscriptions").route(web::get().to(topics::subscriptions)))
        .service(read_only("/api/v1/delayed").route(web::get().to(topics::delayed)))
        .service(
            resource("/api/v1/retained", "GET, DELETE")
                .route(web::get().to(topics::retained))
                .route(web::delete().to(topics::delete_retained)),
        )
        .service(read_only("/api/v1/messages/where").route(web::get().to(whereabouts::find_messages)))
        .service(read_only("/api/v1/audit").route(web::get().to(audit::audit)))
        .service(action("/api/v1/clients/{id}/disconnect").route(web::post().to(actions::disconnect)))
        .service(action("/api/v1/clients/{id}/redeliver").route(web::post().to(actions::redeliver)))
        .service(action("/api/v1/clients/{id}/messages/{mid}/skip").route(web::post().to(actions::skip)))
        .service(action("/api/v1/clients/{id}/messages/{mid}/park").route(web::post().to(actions::park)));
}

/// Returns a resource that answers any method but GET with 405.
pub(super) fn read_only(path: &str) -> Resource {
    resource(path, "GET")
}

/// Returns a resource that answers any method but POST with 405.
fn action(path: &str) -> Resource {
    resource(path, "POST")
}

/// Returns a resource that answers all methods but `allowed` with 405.
fn resource(path: &str, allowed: &'static str) -> Resource {
    web::resource(path).default_service(route().to(move || async move {
        let detail = format!("this path takes {allowed} only");
        let mut response = problem(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", &detail);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
        response
    }))
}
