//! /api/v1/cluster: the cluster as this node sees it. A standby answers, too.

use super::json_answer::JsonAnswer;
use crate::admin::state::State;
use crate::clock;
use crate::cluster::row::{ClusterView, SeenRow};
use crate::time::Instant;
use actix_web::web::Json;
use serde::Serialize;
use utoipa::ToSchema;

/// The cluster.
#[derive(Serialize, ToSchema)]
#[schema(as = Cluster)]
pub(crate) struct ClusterAnswer {
    /// The name; null without `[cluster]`, and before this node has joined.
    #[schema(required)]
    cluster: Option<String>,
    /// The name of this node.
    #[schema(required)]
    node: Option<String>,
    /// The node that serves, by the last Claim that this node knows.
    #[schema(required)]
    owner: Option<String>,
    /// Why nobody serves until a person has decided; null without an alarm.
    #[schema(required)]
    alarm: Option<String>,
    /// The nodes that have a row, by name.
    nodes: Vec<ClusterNodeRow>,
}

/// A node, by the row that it writes each two seconds.
#[derive(Serialize, ToSchema)]
#[schema(as = ClusterNode)]
struct ClusterNodeRow {
    node: String,
    /// `following`, `claiming`, `recovering`, `holding` (it serves), `releasing`, `released`, `lost`
    /// or `alarmed`.
    role: String,
    epoch: u64,
    /// The last frame that it has.
    position: u64,
    /// Frames by which it is behind this node.
    lag: u64,
    /// Seconds until the end of its lease.
    lease: f64,
    /// Seconds for which a frame of this node is not stored.
    undecided: f64,
    version: String,
    /// Seconds since its row was seen to change.
    seen_ago: f64,
    /// True if that is 15 s or more.
    is_silent: bool,
}

/// Returns the cluster.
pub(crate) async fn cluster(state: State) -> JsonAnswer<ClusterAnswer> {
    let none = ClusterAnswer { cluster: None, node: None, owner: None, alarm: None, nodes: Vec::new() };
    Ok(Json(state.cluster().map_or(none, |view| answer(view, clock::now()))))
}

fn answer(view: &ClusterView, now: Instant) -> ClusterAnswer {
    let facts = view.facts();
    ClusterAnswer {
        cluster: Some(view.name.clone()),
        node: Some(view.node.clone()),
        owner: view.owner().map(str::to_owned),
        alarm: Some(facts.alarm).filter(|alarm| !alarm.is_empty()),
        nodes: view.rows().into_iter().map(|seen| row(seen, facts.position, now)).collect(),
    }
}

fn row(seen: SeenRow, last: u64, now: Instant) -> ClusterNodeRow {
    let (is_silent, seen_ago) = (seen.is_silent(now), now.since(seen.changed).as_secs_f64());
    let row = seen.row;
    let seconds = |ms: u64| ms as f64 / 1_000.0;
    ClusterNodeRow {
        lag: last.saturating_sub(row.position),
        lease: seconds(row.lease_ms),
        undecided: seconds(row.undecided_ms),
        node: row.node,
        role: row.role,
        epoch: row.epoch,
        position: row.position,
        version: row.version,
        seen_ago,
        is_silent,
    }
}
