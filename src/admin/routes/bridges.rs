//! /api/v1/bridges: the connections to other brokers.

use super::json_answer::{JsonAnswer, done};
use crate::admin::access::Scope;
use crate::admin::audit::arguments;
use crate::admin::failed::Failed;
use crate::admin::operator::OperatorRequest;
use crate::admin::state::State;
use crate::bridge::{BridgeState, ConnectOrder};
use crate::broker::bridges::status::BridgeFacts;
use crate::clock;
use crate::time::Instant;
use actix_web::HttpResponse;
use actix_web::web::{Json, Path};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The bridges.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct Bridges {
    pub(crate) bridges: Vec<BridgeRow>,
}

/// A bridge. Its queue and what is in flight are those of its session. Counts begin with the
/// bridge.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Bridge)]
pub(crate) struct BridgeRow {
    pub(crate) name: String,
    /// The client identifier of its session.
    pub(crate) client_id: String,
    pub(crate) state: BridgeState,
    /// Seconds since the state began.
    pub(crate) since: f64,
    /// Seconds until the next attempt to connect; null if none is waited for.
    #[schema(required)]
    pub(crate) next_attempt_in: Option<f64>,
    /// The address of the present or the last attempt.
    pub(crate) address: String,
    /// The version of MQTT of the present or the last connection; null before the first.
    #[schema(required)]
    pub(crate) version: Option<String>,
    /// Why the last connection or attempt ended; null while the bridge is connected.
    #[schema(required)]
    pub(crate) last_error: Option<String>,
    pub(crate) attempts: u64,
    /// Attempts that led to a connection.
    pub(crate) established: u64,
    /// Connections at which the other broker had lost the session.
    pub(crate) sessions_lost: u64,
    /// Topic filters that a side does not let the bridge subscribe to.
    pub(crate) refused_filters: Vec<String>,
    /// Messages that the other broker has not acknowledged.
    pub(crate) unacknowledged: usize,
    /// Messages to the other broker, repetitions included.
    pub(crate) sent: u64,
    /// Messages from the other broker that a topic of the bridge lets in.
    pub(crate) received: u64,
    /// Messages from the other broker that no topic lets in.
    pub(crate) refused: u64,
    /// Messages that came back to this broker, or have passed too many brokers to leave.
    pub(crate) looped: u64,
    /// Messages from the other broker that are too large here.
    pub(crate) too_large: u64,
    /// Messages of the queue that cannot leave: no topic lets them out any more, or the other
    /// broker does not take their size.
    pub(crate) dropped: u64,
    /// Messages that were sent with a lower QoS, because the other broker takes no higher one.
    pub(crate) lowered: u64,
}

/// Returns the bridges, by name.
pub(crate) async fn list(state: State) -> JsonAnswer<Bridges> {
    let now = clock::now();
    let all = state.running()?.bridges().all();
    Ok(Json(Bridges { bridges: all.into_iter().map(|facts| row(facts, now)).collect() }))
}

/// Has a bridge connect now, whatever its `connect` says.
pub(crate) async fn connect(name: Path<String>, request: OperatorRequest) -> Result<HttpResponse, Failed> {
    done(order(&name, request, "connect_bridge", ConnectOrder::Connect))
}

/// Disconnects a bridge, until it is told to connect.
pub(crate) async fn disconnect(name: Path<String>, request: OperatorRequest) -> Result<HttpResponse, Failed> {
    done(order(&name, request, "disconnect_bridge", ConnectOrder::Disconnect))
}

fn order(
    name: &str,
    OperatorRequest { operator, .. }: OperatorRequest,
    action: &'static str,
    order: ConnectOrder,
) -> Result<(), Failed> {
    operator.permit(Scope::Operator)?;
    let is_known = operator.state.running()?.bridges().order(name, order);
    let given = if is_known { Ok(()) } else { Err(Failed::NoSuchBridge) };
    let result = given.as_ref().map_or_else(Failed::slug, |()| "done").to_owned();
    operator.audit((action, name), arguments(&[operator.note_parameter()]), result);
    given
}

fn row(facts: BridgeFacts, now: Instant) -> BridgeRow {
    let next = Some(facts.next_attempt).filter(|at| !at.is_never());
    BridgeRow {
        client_id: facts.client_id(),
        name: facts.name.to_string(),
        state: facts.state,
        since: now.since(facts.since).as_secs_f64(),
        next_attempt_in: next.map(|at| at.since(now).as_secs_f64()),
        address: facts.address,
        version: facts.version.map(|version| version.name().to_owned()),
        last_error: Some(facts.last_error).filter(|error| !error.is_empty()),
        attempts: facts.attempts,
        established: facts.established,
        sessions_lost: facts.sessions_lost,
        refused_filters: facts.refused_filters,
        unacknowledged: facts.unacknowledged,
        sent: facts.counts.sent,
        received: facts.counts.received,
        refused: facts.counts.refused,
        looped: facts.counts.looped,
        too_large: facts.counts.too_large,
        dropped: facts.counts.dropped,
        lowered: facts.counts.lowered,
    }
}
