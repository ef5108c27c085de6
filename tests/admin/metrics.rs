//! The metrics of a running broker: their documentation, their number, and what they count.

use crate::http::{LOCAL, request, serve_with};
use crate::support::process::Process;
use crate::support::{Connect, Kind, Message, RawClient, Version, until};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::process::Command;

/// A family of metrics: its type and the names of its labels.
#[derive(Debug, Default, PartialEq, Eq)]
struct Family {
    kind: String,
    labels: BTreeSet<String>,
}

/// Starts a broker with a store, an objective and one thread.
fn serve(directory: &tempfile::TempDir, more: &str) -> (Process, SocketAddr, SocketAddr) {
    let file = directory.path().join("homing.toml");
    let objective = "[[slo]]\nname = \"pumps\"\ntopic = \"pumps/#\"\nwithin = \"5s\"\ntarget = 0.999\n";
    // Nobody listens there.
    let export = if cfg!(feature = "otlp") { "[otlp]\nendpoint = \"http://127.0.0.1:9\"\n" } else { "" };
    std::fs::write(&file, format!("{objective}{more}{export}")).expect("it writes");
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.arg("--config").arg(file);
    command.args(["serve", "--listen", "127.0.0.1:0", "--set", "admin.addresses=127.0.0.1:0", "--data-dir"]);
    command.arg(directory.path()).args(["--set", "runtime.threads=1"]);
    serve_with(&mut command)
}

/// Returns the lines of a scrape, without the head of the answer.
fn scrape(admin: SocketAddr) -> Vec<String> {
    let (status, answer) = request(admin, "GET", "/metrics", LOCAL);
    assert_eq!(status, 200, "{answer}");
    let lines = answer.lines().skip_while(|line| !line.starts_with("# HELP"));
    lines.filter(|line| line.contains(' ')).map(str::to_owned).collect()
}

/// Scrapes until a sample has this value, and returns that scrape. The shards report once a second.
fn scrape_until(admin: SocketAddr, sample: &str) -> Vec<String> {
    until(&format!("the line {sample}"), || {
        let lines = scrape(admin);
        lines.iter().any(|line| line == sample).then_some(lines)
    })
}

/// Returns the families of a scrape, by name.
fn families(lines: &[String]) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut present = String::new();
    for line in lines {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            let (name, kind) = head.split_once(' ').expect("a type");
            present = name.to_owned();
            let known =
                families.insert(present.clone(), Family { kind: kind.to_owned(), ..Family::default() });
            assert!(known.is_none(), "{name} is written twice");
        } else if !line.starts_with('#') {
            let family = families.get_mut(&present).expect("a TYPE line before each sample");
            assert!(line.starts_with(&present), "{line} stands below {present}");
            let labels = line.split_once('{').map_or("", |(_, rest)| rest.rsplit_once('}').expect("a }").0);
            let names = labels.split("=\"").map(|part| part.rsplit(['"', ',']).next().unwrap_or_default());
            family.labels.extend(names.filter(|name| !name.is_empty() && *name != "le").map(str::to_owned));
        }
    }
    families
}

/// Returns the families that the tables of `docs/metrics.md` have.
fn documented() -> BTreeMap<String, Family> {
    let text = include_str!("../../docs/metrics.md");
    let rows = text.lines().filter(|line| line.starts_with("| `homing_") || line.starts_with("| `process_"));
    let rows = rows.filter(|line| cfg!(feature = "otlp") || !line.starts_with("| `homing_otlp_"));
    // A broker by itself has no such family: they need the engine of a cluster.
    let rows = rows.filter(|line| !line.starts_with("| `homing_cluster_"));
    let spans = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (name, kind, labels) = (spans(cells[1]), cells[2], spans(cells[3]));
        (name[0].clone(), Family { kind: kind.to_owned(), labels: labels.into_iter().collect() })
    })
    .collect()
}

#[test]
fn the_documented_metrics_are_those_of_a_scrape() {
    let directory = tempfile::tempdir().expect("a directory");
    let bridge = "[[bridges]]\nname = \"nowhere\"\naddresses = [\"mqtt://127.0.0.1:9\"]\n\
                  topics = [{ direction = \"out\", filter = \"nowhere/#\" }]\n";
    let sink = "[[sinks]]\nname = \"nowhere\"\nurl = \"http://127.0.0.1:1/\"\nfilters = [\"nowhere/#\"]\n";
    let (_broker, _, admin) = serve(&directory, &[bridge, sink].concat());
    // The first scrape counts as a request, so the second one has every family with its samples.
    scrape(admin);
    let (found, documented) = (families(&scrape(admin)), documented());
    let names = |of: &BTreeMap<String, Family>| of.keys().cloned().collect::<BTreeSet<_>>();
    let missing: Vec<_> = names(&found).difference(&names(&documented)).cloned().collect();
    let unknown: Vec<_> = names(&documented).difference(&names(&found)).cloned().collect();
    assert!(missing.is_empty() && unknown.is_empty(), "not documented: {missing:?}; not found: {unknown:?}");
    for (name, family) in &found {
        assert_eq!(family, &documented[name], "{name}: the scrape, and its row in docs/metrics.md");
        assert_eq!(family.kind == "counter", name.ends_with("_total"), "{name}");
    }
}

#[test]
fn a_scrape_is_small_and_has_one_size_whatever_the_number_of_sessions() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_broker, mqtt, admin) = serve(&directory, "");
    scrape(admin);
    let empty = scrape(admin);
    let clients: Vec<RawClient> = (0..200)
        .map(|n| RawClient::connect(mqtt, &Connect::persistent(Version::V5, &format!("session-{n}"))))
        .collect();
    let full = scrape_until(admin, "homing_sessions{state=\"connected\"} 200");
    let series = |lines: &[String]| lines.iter().filter(|line| !line.starts_with('#')).count();
    assert_eq!(series(&empty), series(&full));
    assert!(series(&full) < 3_000, "{} series", series(&full));
    drop(clients);
}

#[test]
fn an_exchange_counts_its_packets_its_acknowledgement_and_what_nobody_gets() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_broker, mqtt, admin) = serve(&directory, "");
    let mut receiver = RawClient::connect(mqtt, &Connect::persistent(Version::V5, "receiver"));
    receiver.subscribe(&[("pumps/#", 1), ("$share/all/lamps/#", 1)]);
    let mut publisher = RawClient::connect(mqtt, &Connect::new(Version::V5, "publisher"));
    publisher.deliver(&Message::new("pumps/7", "on!").qos(1));
    let publish = receiver.expect_publish();
    publisher.deliver(&Message::new("nobody", "listens").qos(1));
    scrape_until(admin, "homing_inflight_messages 1");
    receiver.ack(Kind::Puback, publish.id);
    let lines = scrape_until(admin, "homing_delivery_ack_seconds_count{qos=\"1\"} 1");
    for line in [
        "homing_packets_received_total{type=\"connect\"} 2",
        "homing_packets_received_total{type=\"publish\"} 2",
        "homing_packets_received_total{type=\"puback\"} 1",
        "homing_packets_sent_total{type=\"connack\"} 2",
        "homing_packets_sent_total{type=\"puback\"} 2",
        "homing_packets_sent_total{type=\"suback\"} 1",
        "homing_publishes_received_total{qos=\"1\"} 2",
        "homing_publishes_sent_total{qos=\"1\"} 1",
        "homing_publish_bytes_received_total 10",
        "homing_publish_bytes_sent_total 3",
        "homing_publishes_unmatched_total 1",
        "homing_connect_results_total{reason=\"success\"} 2",
        "homing_sessions_created_total 2",
        "homing_subscriptions{kind=\"plain\"} 1",
        "homing_subscriptions{kind=\"shared\"} 1",
    ] {
        assert!(lines.iter().any(|found| found == line), "no line {line} in {lines:#?}");
    }
    drop(publisher);
    let lines = scrape_until(admin, "homing_sessions_ended_total{cause=\"disconnected\"} 1");
    assert!(lines.iter().any(|line| line == "homing_disconnects_total{cause=\"network\"} 1"), "{lines:#?}");
    let again = RawClient::connect(mqtt, &Connect::persistent(Version::V5, "receiver"));
    scrape_until(admin, "homing_sessions_taken_over_total 1");
    again.disconnect();
}
