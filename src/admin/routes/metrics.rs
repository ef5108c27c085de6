//! /metrics, for Prometheus.

use crate::admin::access::Scope;
use crate::admin::failed::Failed;
use crate::admin::metrics::text::CONTENT_TYPE;
use crate::admin::metrics::{collect, collect_of_standby};
use crate::admin::request::caller;
use crate::admin::state::AdminState;
use crate::broker::connection::is_loopback;
use crate::net::websocket::upgrade::FORWARDING_HEADERS;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};

/// Answers with all metrics. A client on this machine needs no token, others need that of a viewer.
pub(crate) async fn metrics(request: HttpRequest, state: Data<AdminState>) -> Result<HttpResponse, Failed> {
    if !is_local(&request) {
        caller(&request, Scope::Viewer)?;
    }
    let text = match (state.observer(), state.cluster()) {
        (Some(observer), cluster) => collect(observer, &state.requests, cluster),
        (None, Some(cluster)) => collect_of_standby(&state.requests, cluster),
        (None, None) => return Err(Failed::Starting),
    };
    let body = text.into_text();
    Ok(HttpResponse::Ok().content_type(CONTENT_TYPE).body(body))
}

/// Returns true if the client is on this machine. A proxy on this machine speaks for others, so a
/// request that a proxy passed on never is.
fn is_local(request: &HttpRequest) -> bool {
    let passed_on = FORWARDING_HEADERS.iter().any(|name| request.headers().contains_key(*name));
    let local = request.peer_addr().is_some_and(|peer| is_loopback(peer.ip()));
    local && !passed_on
}
