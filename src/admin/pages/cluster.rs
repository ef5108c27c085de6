//! The page of the cluster: who serves, how far each node is, and where nodes differ.

use super::entry::Visit;
use super::frame::PageFrame;
use super::page::{NoPage, PageResult, render};
use crate::admin::cluster_checks;
use crate::clock;
use crate::cluster::report::ClusterReport;
use crate::finding::{Finding, Severity};
use askama::Template;

#[derive(Template)]
#[template(path = "nodes.html", config = "src/admin/askama.toml")]
struct ClusterPage {
    frame: PageFrame,
    report: ClusterReport,
    /// The name of the cluster.
    name: String,
    /// The log, and how long appends take, in words.
    log: String,
    /// What is wrong.
    findings: Vec<Finding>,
}

/// The cluster as this node sees it. A node that stands by has the page, too.
pub(super) async fn page(visit: Visit) -> PageResult {
    let view = visit.state.cluster().ok_or(NoPage::NoSuchPage)?;
    let report = ClusterReport::of_view(view, clock::now());
    let findings = cluster_checks::findings(&report).into_iter();
    let findings = findings.filter(|finding| finding.severity != Severity::Ok).collect();
    let log = report.log.as_ref().map_or_else(
        || "NATS does not say where the log ends.".to_owned(),
        |log| format!("The log has {log}{}.", report.appends()),
    );
    let frame = PageFrame::of(&visit, "/cluster").await;
    Ok(render(&ClusterPage { frame, name: view.name.clone(), log, findings, report }))
}
