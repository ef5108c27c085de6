//! The metrics of a node of a cluster, also while it stands by. Without `[cluster]` there are none.

use super::text::Kind::Gauge;
use super::text::MetricsText;
use crate::clock;
use crate::cluster::report::ClusterReport;
use crate::cluster::row::{ClusterView, role_word};

pub(super) fn write(text: &mut MetricsText, view: &ClusterView) {
    let (facts, rows, now) = (view.facts(), view.rows(), clock::now());
    let role = role_word(facts.role);
    let help = "Always 1; the labels have the name of this node, what it does, and its cell.";
    let of_node = [("node", &*view.node), ("role", &*role), ("cell", "0")];
    text.family(Gauge, "cluster_info", help).sample(&of_node, 1_u8);
    text.single(Gauge, "cluster_epoch", "Claims of the cell so far.", facts.epoch);
    let help = "The last frame that the node has read or written.";
    text.single(Gauge, "cluster_position", help, facts.position);
    let help = "Frames by which each node is behind the log, by its row, which it writes each two seconds.";
    let last = view.bounds().map_or(facts.position, |bounds| bounds.last.max(facts.position));
    let lags = rows.iter().map(|seen| (&*seen.row.node, last.saturating_sub(seen.row.position)));
    text.by(Gauge, "cluster_lag_frames", "node", help, lags);
    let help = "Time since each node wrote its row.";
    let ages = rows.iter().map(|seen| (&*seen.row.node, seen.seen_ago(now).as_secs_f64()));
    text.by(Gauge, "cluster_row_age_seconds", "node", help, ages);
    let help = "Time until the end of the lease.";
    text.single(Gauge, "cluster_lease_seconds", help, facts.lease_until.since(now).as_secs_f64());
    let help = "Time since the engine was asked to store a frame that it has not stored; 0 without one.";
    text.single(Gauge, "cluster_undecided_seconds", help, now.since(facts.undecided_since).as_secs_f64());
    let help =
        "Keys and files in which each node differs from the owner, or from this node if nobody serves.";
    let drift = view.nodes.iter().map(|node| (&**node, view.drift_of(node).len()));
    text.by(Gauge, "cluster_drift", "node", help, drift);
    let help = "1 if a node serves by its row of the last 15 s, else 0.";
    text.single(
        Gauge,
        "cluster_has_owner",
        help,
        u64::from(ClusterReport::of_view(view, now).serving().is_some()),
    );
    let help = "Time within which 99 % of the last 512 frames of this node were stored; 0 without any.";
    text.single(
        Gauge,
        "cluster_append_p99_seconds",
        help,
        view.append_p99().unwrap_or_default().as_secs_f64(),
    );
    let help = "1 if frames of the log were lost or changed, and nobody serves, else 0.";
    text.single(Gauge, "cluster_alarm", help, u64::from(!facts.alarm.is_empty()));
}
