//! /api/v1/bridges: the connections to other brokers.

use super::json_answer::{JsonAnswer, done};
use crate::admin::access::Scope;
use crate::admin::audit::arguments;
use crate::admin::failed::Failed;
use crate::admin::operator::OperatorRequest;
use crate::admin::queries::far_sides::bridges;
use crate::admin::rows::bridge::BridgeRow;
use crate::admin::state::State;
use crate::bridge::ConnectOrder;
use actix_web::HttpResponse;
use actix_web::web::{Json, Path};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The bridges.
#[derive(Deserialize, Serialize, ToSchema)]
pub(crate) struct Bridges {
    pub(crate) bridges: Vec<BridgeRow>,
}

/// Returns the bridges, by name.
pub(crate) async fn list(state: State) -> JsonAnswer<Bridges> {
    Ok(Json(Bridges { bridges: bridges(state.running()?).await }))
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
