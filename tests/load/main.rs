//! `homing load` as its user meets it: every scenario against a broker in this process, both
//! versions, and what it says when there is none. Loss and duplicates are tested where they can be
//! made at will, in the books themselves (`crates/load/src/verify`).

mod own;
mod secured;
mod together;

use homing::broker::Broker;
use homing::config::Config;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

/// One thread; resends come quickly.
fn broker() -> Broker {
    broker_with(|_| {})
}

fn broker_with(configure: impl FnOnce(&mut Config)) -> Broker {
    let mut config = Config::default();
    config.runtime.threads = 1;
    config.network.listen = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
    config.redelivery.interval = Duration::from_millis(300);
    config.redelivery.jitter = 0.0;
    config.redelivery.backoff = 1.0;
    config.expiry.tick = Duration::from_millis(20);
    configure(&mut config);
    Broker::start(config).expect("the broker starts")
}

fn command(broker: &Broker, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.arg("load").args(arguments.split_whitespace());
    command.args(["--port", &broker.addresses()[0].port().to_string()]);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs it with `--json`; it must find nothing forbidden.
fn good(broker: &Broker, arguments: &str) -> Value {
    let Output { status, stdout, stderr } =
        command(broker, arguments).arg("--json").output().expect("the binary was built");
    let said = format!("{arguments}: {}{}", text(&stdout), text(&stderr));
    assert_eq!(status.code(), Some(0), "{said}");
    serde_json::from_slice(&stdout).expect("JSON")
}

fn count(report: &Value, name: &str) -> u64 {
    report["counts"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {report}"))
}

fn figure(report: &Value, name: &str) -> f64 {
    let figures = report["figures"].as_array().expect("figures");
    let figure = figures.iter().find(|figure| figure["name"] == name);
    figure.and_then(|figure| figure["value"].as_f64()).unwrap_or_else(|| panic!("no {name} in {report}"))
}

/// Returns a quantile in milliseconds of a distribution.
fn quantile(report: &Value, name: &str, quantile: &str) -> f64 {
    let distributions = report["distributions"].as_array().expect("distributions");
    let one = distributions.iter().find(|one| one["name"] == name);
    one.and_then(|one| one["ms"][quantile].as_f64()).unwrap_or_else(|| panic!("no {name} in {report}"))
}

/// `sent` publishes came as `delivered` messages, each once and in order.
fn assert_exact(report: &Value, sent: u64, delivered: u64) {
    assert_eq!((count(report, "sent"), count(report, "delivered")), (sent, delivered), "{report}");
    for flaw in ["lost", "duplicated", "out_of_order", "wrong_qos", "foreign"] {
        assert_eq!(count(report, flaw), 0, "{flaw}: {report}");
    }
}

#[test]
fn throughput_counts_every_message_at_every_qos_and_version() {
    let broker = broker();
    for version in ["3.1.1", "5"] {
        for qos in 0..3 {
            let arguments = format!("throughput --mqtt {version} --qos {qos} --messages 200 --publishers 3");
            let report = good(&broker, &arguments);
            assert_exact(&report, 600, 600);
            assert!(report["rate_per_s"].as_f64() > Some(0.0), "{report}");
            let latency = &report["latency_ms"];
            assert!(latency["p50"].as_f64() <= latency["max"].as_f64(), "{report}");
        }
    }
}

#[test]
fn layouts_deliver_to_whom_they_say() {
    let broker = broker();
    let cases = [
        ("fan-in --publishers 5 --subscribers 2", 500, 1000),
        ("fan-out --publishers 2 --subscribers 5", 200, 1000),
        ("shared --publishers 4 --subscribers 3", 400, 400),
    ];
    for (layout, sent, delivered) in cases {
        let report = good(&broker, &format!("throughput --layout {layout} --qos 1 --messages 100"));
        assert_exact(&report, sent, delivered);
    }
}

#[test]
fn payloads_beyond_rumqttcs_own_limit_pass() {
    let broker = broker();
    for version in ["3.1.1", "5"] {
        let arguments =
            format!("throughput --mqtt {version} --qos 1 --payload 50000 --messages 5 --publishers 2");
        assert_exact(&good(&broker, &arguments), 10, 10);
    }
}

#[test]
fn a_rate_is_kept_for_its_duration_and_the_warm_up_left_out() {
    let broker = broker();
    let report = good(&broker, "latency --rate 400 --publishers 4 --qos 1 --duration 1s --warmup 500ms");
    let sent = count(&report, "sent");
    assert!((200..=420).contains(&sent), "{report}");
    assert_exact(&report, sent, sent);
    let measured = report["measured_s"].as_f64().expect("a number");
    assert!((0.3..=0.8).contains(&measured), "{report}");
}

#[test]
fn idle_connections_are_pinged_and_stay() {
    let broker = broker();
    let report = good(&broker, "connections --connections 40 --keep-alive 1s --duration 2s");
    assert_eq!(figure(&report, "connected"), 40.0);
    assert!(figure(&report, "pings answered while idle") >= 40.0, "{report}");
    let name = "TCP and CONNECT to CONNACK";
    assert!(quantile(&report, name, "p50") <= quantile(&report, name, "max"), "{report}");
}

#[test]
fn what_is_withheld_comes_again_and_all_arrives_in_the_end() {
    let broker = broker();
    for version in ["3.1.1", "5"] {
        // Mostly they wait, so many at once.
        thread::scope(|scope| {
            for plan in ["never", "every-nth", "late", "crash"] {
                for qos in 1..3 {
                    let broker = &broker;
                    scope.spawn(move || withhold(broker, plan, version, qos));
                }
            }
        });
    }
}

fn withhold(broker: &Broker, plan: &str, version: &str, qos: u8) {
    let rest = "--publishers 2 --messages 40 --observe 1s --late 500ms --away 50ms";
    let arguments = format!("redelivery --plan {plan} --mqtt {version} --qos {qos} {rest}");
    let report = good(broker, &arguments);
    assert_exact(&report, 80, 80);
    let live = figure(&report, "resent on a live connection");
    let expected = version == "3.1.1" && plan != "crash";
    assert_eq!(live > 0.0, expected, "{arguments}: {report}");
    if expected {
        let name = "resent on a live connection after";
        assert!(quantile(&report, name, "p50") > 100.0, "the broker resends after 300 ms: {report}");
    }
    if plan == "crash" || (plan == "never" && version == "5") {
        assert!(figure(&report, "redelivered at the return") > 0.0, "{arguments}: {report}");
    }
    // Acknowledgements that a crash took with it are missing at the broker: it sends these
    // messages again, and some may come when the subscriber has nothing open any more.
    let after = figure(&report, "came after all was acknowledged");
    assert!(after == 0.0 || plan == "crash", "{arguments}: {report}");
}

#[test]
fn a_queue_for_who_is_away_is_drained_at_the_return() {
    let broker = broker();
    for version in ["3.1.1", "5"] {
        let report =
            good(&broker, &format!("session --mqtt {version} --qos 2 --publishers 2 --messages 100"));
        assert_exact(&report, 200, 200);
        assert_eq!(figure(&report, "queued while away"), 200.0);
    }
}

/// A full queue: to a 3.1.1 publisher the broker can only acknowledge what it drops, and a 5.0 one
/// gets the reason.
#[test]
fn loss_is_exit_code_1_and_a_refusal_is_no_loss() {
    let broker = broker_with(|config| config.limits.queue_messages = 10);
    let arguments = "session --qos 1 --publishers 1 --messages 50 --patience 500ms";
    let output =
        command(&broker, &format!("{arguments} --mqtt 3.1.1")).output().expect("the binary was built");
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{table}");
    assert!(table.contains("FORBIDDEN  40 lost"), "{table}");

    let report = good(&broker, &format!("{arguments} --mqtt 5"));
    assert_eq!((count(&report, "refused"), count(&report, "lost")), (40, 0), "{report}");
}

#[test]
fn the_cost_of_a_local_process_is_read_and_the_plot_drawn() {
    let broker = broker();
    let plot = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("load.svg");
    // The broker runs in this very process.
    let pid = std::process::id();
    let arguments = format!("throughput --qos 1 --messages 200 --pid {pid} --plot {}", plot.display());
    let report = good(&broker, &arguments);
    assert!(report["cost"]["cpu_us_per_message"].as_f64() > Some(0.0), "{report}");
    assert!(report["cost"]["rss_bytes"].as_u64() > Some(0), "{report}");
    let svg = std::fs::read_to_string(plot).expect("the plot");
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"), "{svg}");
}

#[test]
fn the_table_is_for_people() {
    let broker = broker();
    let output = command(&broker, "throughput --qos 2 --messages 50 --publishers 2").output().expect("built");
    let table = text(&output.stdout);
    let words = [
        "sent",
        "delivered",
        "lost",
        "duplicated",
        "out of order",
        "redelivered",
        "rate",
        "p50",
        "p99.9",
        "max",
    ];
    for word in words {
        assert!(table.contains(word), "{word} is missing:\n{table}");
    }
    assert!(table.contains("nothing forbidden was seen"), "{table}");
}

#[test]
fn ctrl_c_prints_what_there_is() {
    let broker = broker();
    let mut child = command(&broker, "throughput --qos 1 --duration 1h --threads 2 --json")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    // Progress is a line a second where there is no terminal: once one has a rate, it runs. A slow
    // machine may still show how many are connected.
    let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let progress = lines.map_while(Result::ok).find(|line| line.contains("/s")).expect("a line with a rate");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let mut json = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut json).expect("text");
    assert_eq!(child.wait().expect("it ended").code(), Some(0), "{json}");
    let report: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(report["interrupted"], true);
    let words = ["throughput", "delivered", "p99", "overdue"];
    assert!(
        count(&report, "delivered") > 0 && words.iter().all(|word| progress.contains(word)),
        "{progress}"
    );
}

#[test]
fn an_unreachable_broker_is_one_line_and_exit_code_1() {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = free.local_addr().expect("bound").port().to_string();
    drop(free);
    for scenario in ["throughput", "latency", "connections", "redelivery", "session"] {
        for version in ["3.1.1", "5"] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
            command.args(["load", scenario, "--mqtt", version, "--port", &port]);
            let output = command.output().expect("the binary was built");
            assert_eq!(output.status.code(), Some(1));
            let line = text(&output.stderr);
            assert!(line.contains(&format!("cannot connect to 127.0.0.1:{port}: ")), "{line}");
            assert_eq!((line.lines().count(), output.stdout.len()), (1, 0), "{line}");
        }
    }
}

/// The flags of the broker are global, and have no place here.
#[test]
fn the_help_begins_with_what_a_load_tester_looks_for() {
    for (scenario, first) in [
        ("", "throughput"),
        ("throughput", "--layout"),
        ("latency", "--rate"),
        ("connections", "--connections"),
        ("redelivery", "--plan"),
        ("session", "--host"),
        ("add", "--json"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        let output = command.arg("load").args(scenario.split_whitespace()).arg("-h").output().expect("built");
        let help = text(&output.stdout);
        let options = help.find("\nCommands:").or_else(|| help.find("\nOptions:")).map(|at| &help[at..]);
        let first_lines = options.unwrap_or(&help).lines().take(6).collect::<String>();
        assert!(output.status.success() && first_lines.contains(first), "{scenario}: {help}");
        for flag in ["--listen", "--log-level", "--log-format", "--set", "--config", "--ephemeral"] {
            assert!(!help.contains(flag), "{scenario} shows {flag}: {help}");
        }
    }
    let output =
        Command::new(env!("CARGO_BIN_EXE_homing")).arg("load").output().expect("the binary was built");
    let help = text(&output.stderr);
    assert!(output.status.code() == Some(2) && help.contains("Examples:"), "{help}");
}

#[test]
fn bad_arguments_are_one_line_and_exit_code_2() {
    let cases = [
        ("throughput --qos 3", "--qos"),
        ("throughput --payload 64-32", "smaller size"),
        ("throughput --topic a/%x", "%x has no meaning"),
        ("throughput --topic a/b", "add %i"),
        ("throughput --topic $SYS/%i", "nobody may publish"),
        ("throughput --layout fan-in --topic a/dev-%i", "whole level"),
        ("throughput --layout fan-out --publishers 2 --topic a/%i", "one for all"),
        ("throughput --client-id same", "add %i"),
        ("throughput --client-id a%i --subscriber-id a%i", "two clients"),
        ("throughput --users none", "--users none: cannot be read"),
        ("throughput --threads 2 --layout fan-out", "--layout one-to-one"),
        ("throughput --threads 3 --publishers 2", "--threads"),
        ("throughput --threads 0", "--threads"),
        ("throughput --connect-rate 0", "--connect-rate"),
        ("throughput --ramp-up 5s --duration 5s", "--ramp-up"),
        ("throughput --ws-path mqtt", "--ws-path"),
        ("throughput --csv /nowhere/run.csv", "/nowhere/run.csv"),
        ("--listen 127.0.0.1:1 throughput", "setting of the broker"),
        ("throughput --data-dir x", "--data-dir"),
        ("add one.json", "2"),
        ("add /dev/null /dev/null", "is not the output of homing load"),
        ("throughput --mqtt 3.1", "must be 3.1.1 or 5"),
        ("throughput --payload 23", "at least 24"),
        ("throughput --publishers 0", "--publishers"),
        ("throughput --publishers 3 --subscribers 4", "the same one-to-one"),
        ("throughput --layout star", "one-to-one, fan-in, fan-out, shared"),
        ("throughput --duration 5", "not a duration"),
        ("throughput --duration 1s --warmup 1s", "--warmup"),
        ("throughput --pid 4194304", "--pid"),
        ("latency --rate 0", "--rate"),
        ("connections --mqtt 5 --keep-alive 1s", "--keep-alive"),
        ("redelivery --qos 0", "QoS 0"),
        ("redelivery --nth 0", "--nth"),
        ("session --qos 0", "QoS 0"),
        ("somersault", "somersault"),
    ];
    for (arguments, expected) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        let output = command.arg("load").args(arguments.split(' ')).output().expect("the binary was built");
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {line}");
        assert!(line.starts_with("homing: load: ") && line.contains(expected), "{arguments}: {line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}
