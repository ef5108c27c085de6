//! What is wrong with the cluster, for `homing doctor`, `GET /api/v1/doctor` and the page.

use crate::cluster::report::{ClusterReport, NodeReport};
use crate::finding::{Check, Finding};

/// Frames by which a standby may be behind. It takes over all the same, and later.
const BEHIND: u64 = 1_000;
/// Seconds for which the engine may not store a frame. An election takes up to 8 s.
const STUCK: f64 = 20.0;

/// Returns a finding for the state of the cell, for the nodes, and for what they have in common.
pub(super) fn findings(report: &ClusterReport) -> Vec<Finding> {
    vec![cell(report), nodes(report), drift(report)]
}

fn cell(report: &ClusterReport) -> Finding {
    if let Some(alarm) = &report.alarm {
        let text = format!("alarm: {alarm}; nobody serves until a person has decided");
        return Finding::fail(Check::Cluster, text).advise("See the alarm in docs/cluster.md");
    }
    let Some(NodeReport { node, undecided, uncommitted, full, epoch, .. }) = report.serving() else {
        return Finding::fail(Check::Cluster, "nobody serves")
            .advise("`homing cluster status` asks NATS; the log of each node says what it waits for");
    };
    let Some(log) = &report.log else {
        return Finding::fail(Check::Cluster, "NATS does not say where the log ends")
            .advise("See if two of its three servers run, and reach each other");
    };
    if *undecided > STUCK {
        let leader = log.leader.as_deref().unwrap_or("unknown");
        return Finding::fail(Check::Cluster, format!("NATS has not stored a frame for {undecided:.0} s"))
            .advise(format!("If all its servers run, restart the one that leads the log: {leader}"));
    }
    if *full {
        return Finding::fail(
            Check::Cluster,
            format!("{node} has no room, and refuses QoS 1 and 2 messages"),
        )
        .advise("See store.full in its log, and cluster.snapshot_failed in the log of each node");
    }
    if *uncommitted > STUCK {
        let text = format!("{node} has not committed a change for {uncommitted:.0} s");
        return Finding::fail(Check::Cluster, text).advise("See store.behind in its log, and its disk");
    }
    Finding::ok(
        Check::Cluster,
        format!(
            "{node} serves, epoch {epoch}, and the log is led by {}",
            log.leader.as_deref().unwrap_or("nobody")
        ),
    )
}

fn nodes(report: &ClusterReport) -> Finding {
    let of = |is: &dyn Fn(&&NodeReport) -> bool| -> Vec<&str> {
        report.nodes.iter().filter(is).map(|node| &*node.node).collect()
    };
    let silent = of(&|node| node.is_silent);
    let behind = of(&|node| !node.is_silent && node.lag > BEHIND);
    let skewed: Vec<String> = report
        .nodes
        .iter()
        .filter(|node| node.is_skewed())
        .map(|node| format!("{} ({})", node.node, node.clock()))
        .collect();
    let stands_by = report.nodes.iter().any(|node| node.role == "following" && !node.is_silent);
    let mut wrong = Vec::new();
    if !silent.is_empty() {
        wrong.push(format!("silent: {}", silent.join(", ")));
    }
    if !behind.is_empty() {
        wrong.push(format!("more than {BEHIND} frames behind: {}", behind.join(", ")));
    }
    if !skewed.is_empty() {
        wrong.push(format!("clock apart: {}", skewed.join(", ")));
    }
    match (wrong.is_empty(), stands_by) {
        (true, _) => {
            Finding::ok(Check::ClusterNodes, format!("{} nodes write their rows", report.nodes.len()))
        }
        (false, true) => Finding::warn(Check::ClusterNodes, wrong.join("; "))
            .advise("Start or repair these nodes, and synchronise their clocks"),
        (false, false) => {
            Finding::fail(Check::ClusterNodes, format!("{}; nobody stands by", wrong.join("; ")))
                .advise("Start or repair these nodes: the next failure stops the cluster")
        }
    }
}

fn drift(report: &ClusterReport) -> Finding {
    let reference = report.owner.as_deref().or(report.node.as_deref()).unwrap_or("the others");
    let found: Vec<String> = report
        .nodes
        .iter()
        .filter(|node| node.drifts())
        .map(|node| format!("{} differs from {reference} in {}", node.node, node.drift()))
        .collect();
    match found.is_empty() {
        true => Finding::ok(Check::ClusterDrift, "the nodes have the same settings and files"),
        false => Finding::warn(Check::ClusterDrift, found.join("; "))
            .advise("Make them the same on all nodes, and reload or restart there"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::report::LogReport;
    use crate::finding::Severity;

    fn node(node: &str, role: &str) -> NodeReport {
        NodeReport {
            node: node.to_owned(),
            role: role.to_owned(),
            seen_ago: Some(1.0),
            ..NodeReport::default()
        }
    }

    fn report(nodes: Vec<NodeReport>) -> ClusterReport {
        ClusterReport {
            cluster: Some("plant".to_owned()),
            node: Some("b".to_owned()),
            owner: Some("a".to_owned()),
            log: Some(LogReport { leader: Some("n1".to_owned()), ..LogReport::default() }),
            nodes,
            ..ClusterReport::default()
        }
    }

    fn severities(report: &ClusterReport) -> [Severity; 3] {
        let found = findings(report);
        for finding in &found {
            assert_eq!(finding.advice.is_empty(), finding.severity == Severity::Ok, "{finding:?}");
        }
        [0, 1, 2].map(|at| found[at].severity)
    }

    #[test]
    fn each_thing_that_may_be_wrong_with_a_cluster_is_a_finding() {
        use Severity::{Fail, Ok, Warn};
        let sound = || report(vec![node("a", "holding"), node("b", "following"), node("c", "following")]);
        assert_eq!(severities(&sound()), [Ok, Ok, Ok]);
        let change = |change: &dyn Fn(&mut ClusterReport)| {
            let mut report = sound();
            change(&mut report);
            severities(&report)
        };
        assert_eq!(change(&|report| report.owner = None), [Fail, Ok, Ok]);
        assert_eq!(change(&|report| report.nodes[0].is_silent = true), [Fail, Warn, Ok]);
        assert_eq!(change(&|report| report.alarm = Some("lost".to_owned())), [Fail, Ok, Ok]);
        assert_eq!(change(&|report| report.log = None), [Fail, Ok, Ok]);
        assert_eq!(change(&|report| report.nodes[0].undecided = 21.0), [Fail, Ok, Ok]);
        assert_eq!(change(&|report| report.nodes[0].uncommitted = 21.0), [Fail, Ok, Ok]);
        assert_eq!(change(&|report| report.nodes[0].full = true), [Fail, Ok, Ok]);
        assert_eq!(change(&|report| report.nodes[2].lag = 1_001), [Ok, Warn, Ok]);
        assert_eq!(change(&|report| report.nodes[2].skew = Some(-1.5)), [Ok, Warn, Ok]);
        assert_eq!(change(&|report| report.nodes[2].is_silent = true), [Ok, Warn, Ok]);
        let alone = change(&|report| report.nodes.iter_mut().skip(1).for_each(|node| node.is_silent = true));
        assert_eq!(alone, [Ok, Fail, Ok]);
        assert_eq!(change(&|report| report.nodes[1].drift_keys = vec!["slo".to_owned()]), [Ok, Ok, Warn]);
    }
}
