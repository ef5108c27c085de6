//! Threads and processes that add up, and the CSV file.

use crate::{assert_exact, broker, command, count, figure, good, text};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

#[test]
fn threads_add_up_in_every_scenario() {
    let broker = broker();
    let rest = "--threads 3 --publishers 7 -q 1";
    for scenario in
        ["throughput -m 50", "session -m 50", "redelivery --plan every-nth -m 50 --observe 1s --away 20ms"]
    {
        let report = good(&broker, &format!("{scenario} {rest}"));
        assert_exact(&report, 350, 350);
        assert_eq!((&report["threads"], &report["publishers"]), (&3.into(), &7.into()), "{report}");
    }
    let report = good(&broker, &format!("latency --rate 1400 -d 500ms {rest}"));
    let sent = count(&report, "sent");
    assert!((1..=710).contains(&sent), "{report}");
    assert_exact(&report, sent, sent);
    assert_eq!(figure(&report, "offered rate").round(), 1400.0, "{report}");
    let report = good(&broker, "connections -c 40 --threads 3 -d 100ms");
    assert_eq!(figure(&report, "connected"), 40.0, "{report}");
}

#[test]
fn a_broker_that_is_gone_ends_all_threads_with_one_line() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    let output =
        command.args(["load", "throughput", "--threads", "4", "--host", "127.0.0.1", "-p", "1"]).output();
    let Output { status, stderr, .. } = output.expect("the binary was built");
    let said = text(&stderr);
    assert_eq!((status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("cannot connect to 127.0.0.1:1: "), "{said}");
}

/// Runs `homing load add`.
fn add(folder: &Path, files: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.args(["load", "add", "--json", "--csv", "sum.csv"]).args(files).current_dir(folder);
    command.output().expect("the binary was built")
}

fn latencies(report: &Value) -> u64 {
    let pairs = report["latency_histogram_ns"].as_array().expect("a histogram");
    pairs.iter().map(|pair| pair[1].as_u64().expect("a count")).sum()
}

#[test]
fn reports_of_processes_add_up_and_others_are_refused() {
    let broker = broker();
    let folder = tempfile::tempdir().expect("a folder");
    let parts = [("a.json", "throughput -q 1 -m 50"), ("b.json", "throughput -q 1 -m 30 -n 10 --threads 2")]
        .map(|(file, arguments)| {
            let report = good(&broker, arguments);
            std::fs::write(folder.path().join(file), report.to_string()).expect("a folder");
            report
        });
    let Output { status, stdout, stderr } = add(folder.path(), &["a.json", "b.json"]);
    assert_eq!(status.code(), Some(0), "{}", text(&stderr));
    let sum: Value = serde_json::from_slice(&stdout).expect("JSON");
    assert_exact(&sum, 800, 800);
    assert_eq!(latencies(&sum), latencies(&parts[0]) + latencies(&parts[1]));
    assert_eq!((latencies(&sum), &sum["publishers"], &sum["threads"]), (800, &20.into(), &3.into()));
    let csv = std::fs::read_to_string(folder.path().join("sum.csv")).expect("the file");
    assert!(csv.lines().count() >= 2, "{csv}");

    let other = good(&broker, "throughput -q 2 -m 5");
    std::fs::write(folder.path().join("c.json"), other.to_string()).expect("a folder");
    let Output { status, stderr, .. } = add(folder.path(), &["a.json", "c.json"]);
    let said = text(&stderr);
    assert!(status.code() == Some(2) && said.contains("c.json: the QoS is 2, and 1 in the first"), "{said}");
}

/// A part that lost messages makes the sum forbidden.
#[test]
fn a_loss_in_one_report_is_a_loss_of_the_sum() {
    let broker = broker();
    let folder = tempfile::tempdir().expect("a folder");
    let mut report = good(&broker, "throughput -q 1 -m 10");
    std::fs::write(folder.path().join("a.json"), report.to_string()).expect("a folder");
    report["counts"]["lost"] = 2.into();
    std::fs::write(folder.path().join("b.json"), report.to_string()).expect("a folder");
    let Output { status, stdout, .. } = add(folder.path(), &["a.json", "b.json"]);
    let sum: Value = serde_json::from_slice(&stdout).expect("JSON");
    assert_eq!(status.code(), Some(1), "{sum}");
    assert!(sum["forbidden"][0].as_str().is_some_and(|line| line.starts_with("2 lost")), "{sum}");
}

#[test]
fn a_csv_file_has_a_line_for_each_slot() {
    let broker = broker();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("run.csv");
    let arguments = format!("latency --rate 400 -d 1s -q 1 --threads 2 --csv {}", file.display());
    let output = command(&broker, &arguments).arg("--json").output().expect("the binary was built");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let csv = std::fs::read_to_string(file).expect("the file");
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("at_s,unix_s,per_s,p50_ms,p99_ms,delivered,overdue"));
    let slots = report["slots"].as_array().expect("slots");
    assert!(slots.len() >= 3, "{report}");
    assert_eq!(lines.clone().count(), slots.len(), "{csv}");
    let last = lines.next_back().expect("a line").split(',').collect::<Vec<_>>();
    // A last slot that is too short for a rate is left out.
    let delivered = last[5].parse::<u64>().expect("a number");
    assert!((1..=count(&report, "delivered")).contains(&delivered), "{csv}");
    assert_eq!((last.len(), last[6]), (7, "0"), "{csv}");
}
