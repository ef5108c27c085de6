//! `homing load` as its user meets it: every scenario against a broker in this process, both
//! versions, and what it says when there is none. Loss and duplicates are tested where they can be
//! made at will, in the books themselves (`src/load/verify`).

use homing::broker::Broker;
use homing::config::{Anonymous, CertificatePair, ClientCertificates, Config, Listener, ListenerTls};
use homing::named_enum::Named;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Command, Output, Stdio};
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
}

#[test]
fn what_is_withheld_comes_again_and_all_arrives_in_the_end() {
    let broker = broker();
    let rest = "--publishers 2 --messages 40 --observe 1s --late 500ms --away 50ms";
    for version in ["3.1.1", "5"] {
        for qos in 1..3 {
            for plan in ["never", "every-nth", "late", "crash"] {
                let arguments = format!("redelivery --plan {plan} --mqtt {version} --qos {qos} {rest}");
                let report = good(&broker, &arguments);
                assert_exact(&report, 80, 80);
                let live = figure(&report, "resent on a live connection");
                let expected = version == "3.1.1" && plan != "crash";
                assert_eq!(live > 0.0, expected, "{arguments}: {report}");
                if plan == "crash" || (plan == "never" && version == "5") {
                    assert!(figure(&report, "redelivered at the return") > 0.0, "{arguments}: {report}");
                }
                // Acknowledgements that a crash took with it are missing at the broker: it sends these
                // messages again, and some may come when the subscriber has nothing open any more.
                let after = figure(&report, "came after all was acknowledged");
                assert!(after == 0.0 || plan == "crash", "{arguments}: {report}");
            }
        }
    }
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
    let mut child = command(&broker, "throughput --qos 1 --duration 1h --json")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    // Progress is a line a second where there is no terminal: once one came, it runs.
    let mut progress = String::new();
    BufReader::new(child.stderr.take().expect("piped")).read_line(&mut progress).expect("a line");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let mut json = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut json).expect("text");
    assert_eq!(child.wait().expect("it ended").code(), Some(0), "{json}");
    let report: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(report["interrupted"], true);
    assert!(count(&report, "delivered") > 0 && progress.contains("/s"), "{progress}");
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

#[test]
fn bad_arguments_are_one_line_and_exit_code_2() {
    let cases = [
        ("throughput --qos 3", "--qos"),
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

/// A broker that lets in only the user `load` over TLS, and the files of its clients.
struct Secured {
    broker: Broker,
    folder: tempfile::TempDir,
}

impl Secured {
    fn new(client_certificates: &str) -> Secured {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = || KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key()).expect("a certificate");
        let write = |name: &str, text: &str| std::fs::write(path(name), text).expect("a folder");
        write("ca.pem", &authority.pem());
        for (name, names) in [("server", vec!["127.0.0.1".to_owned()]), ("client", Vec::new())] {
            let key = key();
            let params = CertificateParams::new(names).expect("names");
            write(&format!("{name}.pem"), &params.signed_by(&key, &authority).expect("a certificate").pem());
            write(&format!("{name}.key"), &key.serialize_pem());
        }
        write("secret", "right\n");
        write("wrong", "wr0ng-password\n");
        let mut passwd = Command::new(env!("CARGO_BIN_EXE_homing"));
        passwd.args(["passwd", "-c", "-b", "-H", "pbkdf2", &path("passwd"), "load", "right"]);
        assert!(passwd.status().expect("the binary was built").success());
        let pair = CertificatePair {
            certificate: Some(path("server.pem")),
            chain: None,
            key: Some(path("server.key")),
        };
        let tls = ListenerTls {
            certificates: Some(vec![pair]),
            client_certificates: Some(ClientCertificates::of_name(client_certificates).expect("a choice")),
            client_ca: (client_certificates != "off").then(|| path("ca.pem")),
            ..ListenerTls::default()
        };
        let broker = broker_with(|config| {
            let address = config.network.listen[0];
            config.network.listen.clear();
            config.listeners = vec![Listener { tls: Some(tls), ..Listener::plain(address) }];
            config.auth.anonymous = Anonymous::Never;
            config.auth.password_file = path("passwd");
        });
        Secured { broker, folder }
    }

    /// Runs `homing load` in the folder of the files.
    fn load(&self, arguments: &str) -> (Option<i32>, String) {
        let mut command = command(&self.broker, arguments);
        let output = command.current_dir(self.folder.path()).output().expect("the binary was built");
        (output.status.code(), text(&[output.stdout, output.stderr].concat()))
    }
}

#[test]
fn clients_enter_over_tls_with_a_password() {
    let secured = Secured::new("off");
    let entry = "--ca ca.pem --user load --password-file secret";
    for version in ["3.1.1", "5"] {
        for scenario in [
            "throughput --messages 50 --qos 2 --publishers 3",
            "connections --connections 20 --duration 300ms",
            "redelivery --plan crash --publishers 2 --messages 20 --observe 1s --away 50ms",
        ] {
            let (code, said) = secured.load(&format!("{scenario} --mqtt {version} {entry}"));
            assert_eq!(code, Some(0), "{scenario}: {said}");
        }
    }
}

#[test]
fn a_wrong_password_or_authority_is_told_and_no_password_is_shown() {
    let secured = Secured::new("off");
    for (entry, code, expected) in [
        ("--ca ca.pem --user load --password-file wrong", 1, "cannot connect"),
        ("--ca ca.pem --user load", 1, "cannot connect"),
        ("--ca client.pem --user load --password-file secret", 1, "no TLS: invalid peer certificate"),
        ("--ca ca.pem --server-name other.example", 1, "no TLS: invalid peer certificate"),
        ("--ca ca.pem --user load --password-file none", 2, "--password-file none: cannot be read"),
        ("--ca secret", 2, "secret: "),
        ("--ca ca.pem --password-file secret", 2, "--user"),
        ("--cert client.pem", 2, "--key"),
    ] {
        let (got, said) = secured.load(&format!("throughput --messages 1 {entry}"));
        assert_eq!(got, Some(code), "{entry}: {said}");
        assert!(
            said.contains(expected) && !said.contains("wr0ng") && !said.contains("right"),
            "{entry}: {said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn clients_show_their_certificate_and_the_password_may_stand_in_the_environment() {
    let secured = Secured::new("required");
    let mut command = command(&secured.broker, "throughput --messages 5 --ca ca.pem --user load");
    command.args(["--cert", "client.pem", "--key", "client.key"]).env("HOMING_LOAD_PASSWORD", "right");
    let output = command.current_dir(secured.folder.path()).output().expect("the binary was built");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let (code, said) = secured.load("throughput --messages 1 --ca ca.pem --user load --password-file secret");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("CertificateRequired"), "{said}");
}
