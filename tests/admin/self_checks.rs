//! The checks that a running broker makes of itself.

use crate::api::{Administered, SMALL_STORE, json_of};
use crate::http::{LOCAL, metric, request};
use crate::pages::{get, log_in};
use crate::support::{Connect, Message, RawClient, Version, until};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use std::process::Command;
use std::sync::mpsc;

fn checks(broker: &Administered) -> Value {
    let (status, answer) = broker.ask("GET", "/api/v1/doctor", &broker.viewer);
    assert_eq!(status, 200, "{answer}");
    json_of(&answer)
}

/// Returns the check with this name that is not "ok".
fn trouble<'a>(body: &'a Value, name: &str) -> &'a Value {
    let all = body["checks"].as_array().expect("checks");
    let found = all.iter().find(|check| check["name"] == name && check["result"] != "ok");
    found.unwrap_or_else(|| panic!("no trouble with {name}: {body:#}"))
}

#[test]
fn a_broker_says_what_it_looked_at_and_what_to_do_about_a_trouble() {
    let broker = Administered::start();
    let body = checks(&broker);
    let all = body["checks"].as_array().expect("checks");
    for name in ["broker", "threads", "held memory", "drops", "restart", "limits", "log", "deadlines"] {
        assert!(all.iter().any(|check| check["name"] == name), "{name}: {body:#}");
    }
    for name in ["configuration", "descriptors", "backlog", "memory", "clock", "admin credentials"] {
        assert!(all.iter().any(|check| check["name"] == name), "{name}: {body:#}");
    }
    assert_eq!(trouble(&body, "store")["result"], "warn", "it has no store");
    assert_eq!(body["result"], "warn");
}

#[test]
fn a_broker_finds_a_file_with_a_mistake_and_a_limit_that_is_used_up() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "topic readwrite #\n").expect("a write");
    let acl = format!("acl.file={}", file.path().display());
    let broker = Administered::start_with(&["--set", &acl, "--set", "limits.retained_messages=1"]);
    let mut app = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    app.deliver(&Message::new("lamps/1", "on").qos(1).retained());
    std::fs::write(file.path(), "topic everything a/#\n").expect("a write");
    let body = checks(&broker);
    assert_eq!((&trouble(&body, "acl")["result"], &body["result"]), (&json!("fail"), &json!("fail")));
    let limits = trouble(&body, "limits");
    assert!(limits["detail"].as_str().is_some_and(|text| text.contains("limits.retained_messages: 1 of 1")));
    assert!(limits["advice"].is_string(), "{body:#}");
    assert!(
        body["checks"].as_array().expect("checks").iter().any(|check| check["name"] == "commits"),
        "{body:#}"
    );
}

#[test]
fn a_broker_checks_the_store_of_its_start_until_it_ends() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let broker = Administered::start_with(&["--config", &file.path().display().to_string()]);
    std::fs::write(file.path(), "[store]\ndurability = \"none\"\n").expect("a write");
    let body = checks(&broker);
    let data = broker.database().parent().expect("a directory").display().to_string();
    let mut all = body["checks"].as_array().expect("checks").iter();
    let owner = all.find(|check| check["name"] == "owner").unwrap_or_else(|| panic!("{body:#}"));
    assert!(owner["detail"].as_str().is_some_and(|text| text.contains(&data)), "{body:#}");
}

/// Another process that has the database locked for long stops all commits, as a disk that hangs
/// does.
#[test]
fn a_broker_whose_store_does_not_commit_is_not_ready_and_says_why() {
    let broker = Administered::start_with(&SMALL_STORE);
    let ready = || {
        let (status, answer) = request(broker.admin, "GET", "/readyz", LOCAL);
        (status, json_of(&answer)["checks"]["store"].as_str().map(str::to_owned))
    };
    let is = |state: &str, status| (status, Some(state.to_owned()));
    let other = broker.stop_commits();
    let mut client = RawClient::open(broker.mqtt, Version::V5);
    client.send(&Connect::persistent(Version::V5, "pump").encode());
    until("a broker that is not ready", || (ready() == is("late", 503)).then_some(()));
    let commits = trouble(&checks(&broker), "commits").clone();
    let detail = commits["detail"].as_str().unwrap_or_default();
    assert!(commits["result"] == "fail" && detail.contains("has waited 1"), "{commits:#}");
    let sample = |name: &str| metric(broker.admin, name).expect("a sample");
    assert!(sample("homing_store_oldest_uncommitted_seconds") > 10.0);
    assert!(sample("homing_store_pending_records") > 0.0);
    let (_, page) = get(&broker, "/", &log_in(&broker, &broker.viewer));
    let (_, store) = page.split_once(r#"<section id="store""#).unwrap_or_else(|| panic!("{page}"));
    let trouble = r#"<span class="problem">a change has waited for its commit for "#;
    assert!(store.contains(trouble) && store.contains(r##"<a href="#problems">What to do</a>"##), "{page}");
    assert!(page.contains(r##"<a href="#store">The figures of the store</a>"##), "{page}");
    other.execute_batch("ROLLBACK").expect("no lock");
    client.expect_connack();
    until("a broker that is ready again", || (ready() == is("ok", 200)).then_some(()));
}

/// A file that nobody writes hangs whoever opens it, as a file on a network disk may.
#[test]
fn while_a_look_hangs_the_broker_still_says_what_it_knows_of_itself() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("homing.toml");
    std::fs::write(&config, "").expect("a write");
    let broker = Administered::start_with(&["--ephemeral", "--config", &config.display().to_string()]);
    std::fs::remove_file(&config).expect("it goes");
    mknodat(CWD, &config, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    let (answered, answers) = mpsc::channel();
    std::thread::scope(|threads| {
        for answered in [answered.clone(), answered] {
            let headers = format!("{LOCAL}Authorization: Bearer {}\r\n", broker.viewer);
            let admin = broker.admin;
            threads.spawn(move || {
                let (_, answer) = request(admin, "GET", "/api/v1/doctor", &headers);
                answered.send(json_of(&answer))
            });
        }
        let second = answers.recv().expect("an answer");
        // The first look ends.
        std::fs::write(&config, "").expect("a write");
        let first = answers.recv().expect("an answer");
        let detail = trouble(&second, "files")["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("another look is under way"), "{second:#}");
        let has = |body: &Value, name: &str| {
            body["checks"].as_array().is_some_and(|all| all.iter().any(|check| check["name"] == name))
        };
        assert!(has(&second, "threads") && !has(&second, "clock"), "{second:#}");
        assert!(has(&first, "threads") && has(&first, "clock"), "{first:#}");
    });
}

/// Runs `homing doctor` beside a broker, as its operator would. Returns what it prints.
fn doctor_beside(broker: &Administered) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.args(["doctor", "--ephemeral", "--listen", &broker.mqtt.to_string()]);
    command.arg("--set").arg(format!("admin.socket={}", broker.socket().display()));
    let output = command.output().expect("it runs");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn doctor_takes_the_ports_of_a_running_broker_without_a_store_for_no_fault() {
    let broker = Administered::start();
    let text = doctor_beside(&broker);
    assert!(text.contains("not tried, because a broker runs") && !text.contains("in use"), "{text}");
}

#[test]
fn doctor_reports_what_only_the_running_broker_knows() {
    let broker = Administered::start_with(&["--ephemeral", "--set", "limits.connections=5"]);
    let connect = |n: u8| RawClient::connect(broker.mqtt, &Connect::new(Version::V5, &format!("c-{n}")));
    let _clients: Vec<_> = (0..5).map(connect).collect();
    let text = until("the figures of the last second", || {
        Some(doctor_beside(&broker)).filter(|text| text.contains("limits.connections"))
    });
    let line = text.lines().find(|line| line.contains("limits.connections")).expect("it is there");
    assert!(line.starts_with("warn") && line.contains("5 of 5"), "{line}");
}
