//! The cluster on `$SYS/broker/cluster/...`, for an operator with any MQTT client. The node that
//! serves publishes it.

use super::report::ClusterReport;
use super::view::ClusterView;
use crate::clock;

/// Returns the topics below `$SYS/broker/` with their values. A text has the words of the
/// [`ClusterReport`].
pub fn figures(view: &ClusterView) -> Vec<(String, String)> {
    of_report(&ClusterReport::of_view(view, clock::now()))
}

fn of_report(report: &ClusterReport) -> Vec<(String, String)> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let log = report.log.clone().unwrap_or_default();
    let of_node = report.nodes.iter().find(|node| Some(&node.node) == report.node.as_ref());
    let mut all = vec![
        ("cluster/name".to_owned(), text(&report.cluster)),
        ("cluster/node".to_owned(), text(&report.node)),
        ("cluster/owner".to_owned(), text(&report.owner)),
        ("cluster/epoch".to_owned(), of_node.map_or(0, |node| node.epoch).to_string()),
        ("cluster/alarm".to_owned(), u8::from(report.alarm.is_some()).to_string()),
        ("cluster/log/leader".to_owned(), text(&log.leader)),
        ("cluster/log/position".to_owned(), log.last.to_string()),
        ("cluster/log/bytes".to_owned(), log.bytes.to_string()),
        ("cluster/log/limit".to_owned(), log.capacity.to_string()),
        ("cluster/append/p99_us".to_owned(), format!("{:.0}", report.append_p99.unwrap_or(0.0) * 1e6)),
    ];
    for node in &report.nodes {
        // The exporter of mosquitto fails at other signs.
        let level = node.node.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        let differences = node.drift_keys.len() + node.drift_files.len();
        all.extend([
            (format!("cluster/nodes/{level}/role"), node.state().to_owned()),
            (format!("cluster/nodes/{level}/lag"), node.lag.to_string()),
            (format!("cluster/nodes/{level}/differences"), differences.to_string()),
            (format!("cluster/nodes/{level}/silent"), u8::from(node.is_silent).to_string()),
        ]);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::report::NodeReport;
    use std::collections::BTreeSet;

    #[test]
    fn every_topic_of_a_cluster_is_documented_and_every_documented_one_is_published() {
        let node = |node: &str| NodeReport { node: node.to_owned(), ..NodeReport::default() };
        let report = ClusterReport { nodes: vec![node("NODE")], ..ClusterReport::default() };
        let published: BTreeSet<String> = of_report(&report).into_iter().map(|(name, _)| name).collect();
        let text = include_str!("../../docs/sys-topics.md");
        let (_, section) = text.split_once("\n## A cluster: `$SYS/broker/cluster/`\n").expect("the section");
        let section = section.split("\n## ").next().unwrap_or_default();
        let cells = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
        let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        let documented: BTreeSet<String> = names.map(|name| format!("cluster/{name}")).collect();
        assert_eq!(published, documented);
        let strange = ClusterReport { nodes: vec![node("plant-7_b")], ..report };
        let is_plain = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "/_".contains(c));
        assert!(of_report(&strange).iter().all(|(name, _)| is_plain(name)));
    }
}
