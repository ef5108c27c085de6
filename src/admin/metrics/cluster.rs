//! The metrics of a node of a cluster, while it serves. Without `[cluster]` there are none.

use super::text::Kind::Gauge;
use super::text::MetricsText;
use crate::clock;
use crate::cluster::row::{ClusterView, role_word};

pub(super) fn write(text: &mut MetricsText, view: &ClusterView) {
    let (facts, rows, now) = (view.facts(), view.rows(), clock::now());
    let role = role_word(facts.role);
    text.by(Gauge, "cluster_role", "role", "Always 1; the label has what the node does.", [(&*role, 1_u64)]);
    text.single(Gauge, "cluster_epoch", "Claims of the cell so far.", facts.epoch);
    let help = "The last frame that the node has read or written.";
    text.single(Gauge, "cluster_position", help, facts.position);
    let help = "Frames by which each node is behind this one, by its row, which it writes each two seconds.";
    let lags = rows.iter().map(|seen| (&*seen.row.node, facts.position.saturating_sub(seen.row.position)));
    text.by(Gauge, "cluster_lag_frames", "node", help, lags);
    let help = "Time since the row of each node was seen to change.";
    let ages = rows.iter().map(|seen| (&*seen.row.node, now.since(seen.changed).as_secs_f64()));
    text.by(Gauge, "cluster_row_age_seconds", "node", help, ages);
    let help = "Time until the end of the lease.";
    text.single(Gauge, "cluster_lease_seconds", help, facts.lease_until.since(now).as_secs_f64());
    let help = "Time since the engine was asked to store a frame that it has not stored; 0 without one.";
    text.single(Gauge, "cluster_undecided_seconds", help, now.since(facts.undecided_since).as_secs_f64());
    let help = "1 if frames of the log were lost or changed, and nobody serves, else 0.";
    text.single(Gauge, "cluster_alarm", help, u64::from(!facts.alarm.is_empty()));
}
