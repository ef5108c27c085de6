//! Payloads of messages: who sees them, how much of them, and the audit of each view.

use crate::api::{Administered, json_of};
use crate::http::{LOCAL, request_with_body};
use crate::support::{Connect, Message, RawClient, Version};
use serde_json::{Value, json};

fn rows(broker: &Administered, path: &str, token: &str, field: &str) -> Vec<Value> {
    let (status, answer) = broker.ask("GET", path, token);
    assert_eq!(status, 200, "{answer}");
    json_of(&answer)[field].as_array().expect("rows").clone()
}

/// Leaves one message of `pump` in flight and two in its queue, and retains one.
fn fill(broker: &Administered) -> RawClient {
    let mut pump = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V311, "pump"));
    pump.subscribe(&[("pumps/#", 1)]);
    let mut app = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    let long = "x".repeat(5_000);
    for payload in ["on", "off", &long] {
        app.deliver(&Message::new("pumps/7/set", payload).qos(1));
    }
    app.deliver(&Message::new("lamps/1", "bright").qos(1).retained());
    pump.expect_publish();
    pump
}

const ONE: [&str; 3] = ["--ephemeral", "--set", "limits.in_flight=1"];

#[test]
fn an_operator_sees_payloads_and_the_audit_log_has_one_entry_for_each_answer() {
    let broker = Administered::start_with(&ONE);
    let _pump = fill(&broker);
    let path = |part: &str| format!("/api/v1/clients/pump/{part}?payload=true");
    let in_flight = rows(&broker, &path("inflight"), &broker.operator, "messages");
    assert_eq!(in_flight[0]["payload"], json!({ "text": "on", "complete": true }));
    let queue = rows(&broker, &path("queue"), &broker.operator, "messages");
    let long = json!({ "text": "x".repeat(4_096), "complete": false });
    assert_eq!(
        [&queue[0]["payload"], &queue[1]["payload"]],
        [&json!({ "text": "off", "complete": true }), &long]
    );
    let retained =
        rows(&broker, "/api/v1/retained?filter=lamps/1&payload=true", &broker.operator, "retained");
    assert_eq!(retained[0]["payload"]["text"], "bright");
    let admin = broker.token("admin");
    let mut seen: Vec<(String, String)> = Vec::new();
    for entry in rows(&broker, "/api/v1/audit", &admin, "actions") {
        assert_eq!((&entry["action"], &entry["who"]), (&json!("view_payload"), &json!("operator")));
        let word = |key: &str| entry[key].as_str().map(ToOwned::to_owned).expect("text");
        seen.push((word("target"), word("arguments")));
    }
    let mid = |row: &Value| row["mid"].as_str().map(ToOwned::to_owned).expect("a name");
    let page = format!("messages=2, first={}, last={}", mid(&queue[0]), mid(&queue[1]));
    let expected =
        [("lamps/1", String::new()), ("pump", page), ("pump", format!("mid={}", mid(&in_flight[0])))];
    assert_eq!(seen, expected.map(|(target, arguments)| (target.to_owned(), arguments)));
}

#[test]
fn the_view_of_a_message_without_room_in_the_queue_is_noted_as_held() {
    let settings = ["--ephemeral", "--set", "limits.queue_messages=1", "--set", "limits.queue_policy=hold"];
    let broker = Administered::start_with(&settings);
    let mut pump = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V311, "pump"));
    pump.subscribe(&[("pumps/#", 1)]);
    pump.disconnect();
    broker.publish("pumps/7", &["1"], 1);
    let mut app = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    app.publish(&Message::new("pumps/7", "2").qos(1));
    broker.await_reason("receiver=pump", "held");
    let queue = rows(&broker, "/api/v1/clients/pump/queue?payload=true", &broker.operator, "messages");
    assert_eq!((&queue[1]["mid"], &queue[1]["payload"]["text"]), (&Value::Null, &json!("2")));
    let first = queue[0]["mid"].as_str().expect("a name");
    let actions = rows(&broker, "/api/v1/audit", &broker.token("admin"), "actions");
    assert_eq!(actions[0]["arguments"], format!("messages=2, first={first}, last=held"));
}

#[test]
fn the_audit_log_says_which_traces_show_payloads() {
    let broker = Administered::start_with(&ONE);
    broker.trace(&json!({ "clients": ["pump"], "topics": ["pumps/#"], "payload": true }));
    broker.trace(&json!({ "clients": ["pump"], "topics": ["pumps/#"] }));
    let actions = rows(&broker, "/api/v1/audit", &broker.token("admin"), "actions");
    let arguments: Vec<&Value> = actions.iter().map(|entry| &entry["arguments"]).collect();
    assert_eq!(arguments, ["topics=pumps/#", "payload=true, topics=pumps/#"]);
}

#[test]
fn the_commands_show_payloads_on_request_alone() {
    let broker = Administered::start_with(&ONE);
    let _pump = fill(&broker);
    for (command, beginning) in [
        (&["inflight", "pump"][..], "on"),
        (&["queue", "pump"][..], "off"),
        (&["retained", "lamps/#"][..], "bright"),
    ] {
        let (code, text) = broker.ctl(command);
        assert!(code == Some(0) && !text.contains("payload"), "{text}");
        let (code, text) = broker.ctl(&[command, &["--payload"]].concat());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(code, Some(0), "{text}");
        assert!(lines[0].ends_with("payload") && lines[1].ends_with(beginning), "{text}");
    }
    let (_, text) = broker.ctl(&["queue", "pump", "--payload"]);
    assert!(text.trim_end().ends_with("xxx ..."), "{text}");
}

#[test]
fn a_viewer_sees_no_payload_and_nobody_sees_one_unasked() {
    let broker = Administered::start_with(&ONE);
    let _pump = fill(&broker);
    for path in ["/api/v1/clients/pump/inflight", "/api/v1/clients/pump/queue", "/api/v1/retained"] {
        let (status, answer) = broker.ask("GET", &format!("{path}?payload=true"), &broker.viewer);
        assert!(status == 403 && answer.contains("operator"), "{answer}");
        let (status, answer) = broker.ask("GET", &format!("{path}?payload=true&limit=17"), &broker.operator);
        assert!(status == 400 && answer.contains("1 to 16 with payloads"), "{answer}");
        let (status, answer) = broker.ask("GET", path, &broker.operator);
        assert!(status == 200 && !answer.contains("\"payload\""), "{answer}");
    }
    assert!(!broker.ctl(&["audit"]).1.contains("view_payload"));
}

#[test]
fn no_scope_sees_a_payload_where_the_configuration_hides_them() {
    let broker = Administered::start_with(&[&ONE[..], &["--set", "admin.payloads=never"]].concat());
    let _pump = fill(&broker);
    let mid = rows(&broker, "/api/v1/clients/pump/queue", &broker.viewer, "messages")[0]["mid"].clone();
    let (code, text) = broker.ctl(&["park", "pump", mid.as_str().expect("a name")]);
    assert_eq!(code, Some(0), "{text}");
    let letter = rows(&broker, "/api/v1/dead-letters", &broker.viewer, "dead_letters")[0]["id"].clone();
    let admin = broker.token("admin");
    for path in [
        "/api/v1/clients/pump/inflight",
        "/api/v1/clients/pump/queue",
        "/api/v1/retained",
        &format!("/api/v1/dead-letters/{}", letter.as_str().expect("a name")),
    ] {
        let (status, answer) = broker.ask("GET", &format!("{path}?payload=true"), &admin);
        assert!(status == 403 && answer.contains("admin.payloads"), "{answer}");
    }
    let headers = format!("{LOCAL}Authorization: Bearer {admin}\r\n");
    let order = json!({ "clients": ["pump"], "payload": true }).to_string();
    let (status, answer) = request_with_body(broker.admin, "POST", "/api/v1/traces", &headers, &order);
    assert!(status == 403 && answer.contains("admin.payloads"), "{answer}");
}
