//! Traces of a running broker: messages and clients as an operator follows them.

use crate::api::{Administered, json_of};
use crate::http::{LOCAL, request_with_body};
use crate::live::{Live, bearer};
use crate::support::{Connect, Message, Property, RawClient, Version, until};
use serde_json::{Value, json};

impl Administered {
    /// Asks as the operator with a body. Returns the status and the JSON of the answer.
    pub fn ask_with(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let headers = format!("{LOCAL}Authorization: Bearer {}\r\n", self.operator);
        let (status, answer) = request_with_body(self.admin, method, path, &headers, &body.to_string());
        (status, json_of(&answer))
    }

    /// Begins a trace. Returns its path.
    pub fn trace(&self, wanted: &Value) -> String {
        let (status, answer) = self.ask_with("POST", "/api/v1/traces", wanted);
        assert_eq!(status, 201, "{answer}");
        format!("/api/v1/traces/{}", answer["trace"])
    }

    /// Returns a trace with its steps, once it has a step that `is_last` accepts.
    fn steps_until(&self, path: &str, is_last: impl Fn(&Value) -> bool) -> Vec<Value> {
        until("the last step", || {
            let (status, answer) = self.ask("GET", path, &self.operator);
            assert_eq!(status, 200, "{answer}");
            let steps = json_of(&answer)["steps"].as_array().cloned().unwrap_or_default();
            steps.iter().any(&is_last).then_some(steps)
        })
    }
}

/// Returns the steps of a client, by their names.
fn steps_of<'a>(steps: &'a [Value], client: &str) -> Vec<&'a str> {
    steps.iter().filter(|step| step["client"] == client).filter_map(|step| step["step"].as_str()).collect()
}

#[test]
fn a_trace_shows_a_message_from_its_publisher_to_each_receiver() {
    let broker = Administered::start();
    let mut receivers = ["one", "two", "three"].map(|name| {
        let mut client = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, name));
        client.subscribe(&[("alarms/#", 1)]);
        client
    });
    let path = broker.trace(&json!({ "clients": ["app"], "for": "5m", "payload": true }));
    let mut app = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    let parent = Property::User("traceparent".into(), "00-0af7-b7ad-01".into());
    app.deliver(&Message::new("alarms/7", "fire").qos(1).with(parent));
    for receiver in &mut receivers {
        let publish = receiver.expect_publish();
        receiver.complete(&publish);
        receiver.ping();
    }
    // Each thread sends its steps for itself.
    for name in ["one", "two"] {
        broker.steps_until(&path, |step| step["client"] == name && step["step"] == "acknowledged");
    }
    let steps = broker.steps_until(&path, |step| step["client"] == "three" && step["step"] == "acknowledged");
    let received = steps.iter().find(|step| step["step"] == "received").expect("it came");
    assert_eq!(received["payload"], "fire");
    assert_eq!(received["traceparent"], "00-0af7-b7ad-01");
    assert_eq!((received["client"].as_str(), received["topic"].as_str()), (Some("app"), Some("alarms/7")));
    for name in ["one", "two", "three"] {
        assert_eq!(steps_of(&steps, name), ["sent", "acknowledged"], "{steps:?}");
    }
    let own = steps_of(&steps, "app");
    assert!(own.contains(&"packet_in") && own.contains(&"publisher_acknowledged"), "{own:?}");
    let numbers: Vec<u64> = steps.iter().filter_map(|step| step["n"].as_u64()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    // Only what comes behind a number.
    let (_, answer) = broker.ask("GET", &format!("{path}?after={}", numbers.len() - 1), &broker.operator);
    assert_eq!(json_of(&answer)["steps"].as_array().map(Vec::len), Some(1));
    assert_eq!(broker.ask("DELETE", &path, &broker.operator).0, 204);
    assert_eq!(broker.ask("GET", &path, &broker.operator).0, 404);
}

#[test]
fn a_watcher_gets_a_step_as_soon_as_it_comes_and_the_command_prints_it() {
    let broker = Administered::start();
    // The command ends with its trace.
    let (code, text) = broker.trace_command(&["--client", "pump", "--topic", "a/#", "--for", "3s"], || {
        let mut pump = RawClient::connect(broker.mqtt, &Connect::new(Version::V311, "pump"));
        pump.subscribe(&[("a/b", 1)]);
        let mut other = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "other"));
        other.deliver(&Message::new("a/b", "x").qos(1));
        let publish = pump.expect_publish();
        pump.complete(&publish);
        pump.ping();
    });
    assert_eq!(code, Some(0), "{text}");
    for part in [
        "<- pump CONNECT",
        "-> pump CONNACK",
        "<- pump SUBSCRIBE id=",
        "<- other PUBLISH id=",
        "matched; ",
        "-> pump PUBLISH id=1 qos=1 a/b 1 B",
        "<- pump PUBACK id=1",
        "<- pump PINGREQ",
        "pump client; connected, new session",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn a_reader_gets_the_steps_as_events_and_goes_on_behind_the_last_one() {
    let broker = Administered::start();
    let path = broker.trace(&json!({ "clients": ["app"] })) + "/events";
    let headers = bearer(&broker.operator);
    let (mut live, status) = Live::open(&broker, &path, &headers);
    assert_eq!(status, 200);
    let mut app = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    let (last, first) = live.event("step");
    assert_eq!((last.as_str(), &first["packet"]), ("1", &json!("CONNECT")));
    assert_eq!(live.event("step").1["step"], "client");
    let (mut again, _) = Live::open(&broker, &path, &format!("{headers}Last-Event-ID: {last}\r\n"));
    assert_eq!(again.event("step").0, "2");
    app.ping();
    for reader in [&mut live, &mut again] {
        while reader.event("step").1["packet"] != "PINGREQ" {}
    }
    let number = path.trim_end_matches("/events");
    assert_eq!(broker.ask("DELETE", number, &broker.operator).0, 204);
    assert_eq!(Live::open(&broker, &path, &headers).1, 404);
    assert_eq!(Live::open(&broker, &path, &bearer(&broker.viewer)).1, 403);
    // A trace that ends by itself says so.
    let path = broker.trace(&json!({ "clients": ["app"], "for": "1s" })) + "/events";
    let (mut live, _) = Live::open(&broker, &path, &headers);
    let (_, end) = live.event("end");
    assert!(end["ended"] == true && end["steps"].is_null(), "{end}");
}

#[test]
fn hostile_names_are_escaped_and_wrong_orders_are_refused() {
    let broker = Administered::start();
    let name = "<img src=x onerror=\"a\">\u{1b}[2J";
    let path = broker.trace(&json!({ "clients": [name] }));
    let mut client = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, name));
    client.ping();
    let steps = broker.steps_until(&path, |step| step["packet"] == "PINGREQ");
    assert!(steps.iter().all(|step| step["client"] == name), "{steps:?}");
    let (_, raw) = broker.ask("GET", &path, &broker.operator);
    assert!(raw.contains("content-type: application/json") && !raw.contains('\u{1b}'), "{raw}");
    client.vanish();
    let many: Vec<String> = (0..17).map(|n| n.to_string()).collect();
    for wrong in [
        json!({}),
        json!({ "clients": [""] }),
        json!({ "clients": ["x".repeat(1_025)] }),
        json!({ "clients": many }),
        json!({ "topics": ["a/#/b"] }),
        json!({ "topics": ["$share/g/a"] }),
        json!({ "topics": ["a", "b", "c", "d", "e"] }),
        json!({ "topics": ["a"], "for": "2h" }),
        json!({ "topics": ["a"], "for": "0s" }),
        json!({ "topics": ["a"], "until": "1h" }),
    ] {
        assert_eq!(broker.ask_with("POST", "/api/v1/traces", &wrong).0, 400, "{wrong}");
    }
    assert_eq!(broker.ask("GET", "/api/v1/traces/1?wait=9s", &broker.operator).0, 400);
    assert_eq!(broker.ask("GET", "/api/v1/traces/77", &broker.operator).0, 404);
    for (method, path) in
        [("GET", "/api/v1/traces"), ("GET", "/api/v1/traces/1"), ("DELETE", "/api/v1/traces/1")]
    {
        assert_eq!(broker.ask(method, path, &broker.viewer).0, 403, "{method} {path}");
    }
    let (_, answer) = broker.ask("GET", "/api/v1/traces", &broker.operator);
    assert_eq!(json_of(&answer)["traces"].as_array().map(Vec::len), Some(1), "{answer}");
}

#[test]
fn where_names_the_last_step_of_a_trace_that_ran() {
    let broker = Administered::start();
    let mut pump = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "pump"));
    pump.subscribe(&[("pumps/#", 1)]);
    let path = broker.trace(&json!({ "topics": ["pumps/#", "lamps/#"] }));
    broker.publish("pumps/7", &["on"], 1);
    broker.publish("lamps/7", &["on"], 1);
    let publish = pump.expect_publish();
    pump.complete(&publish);
    broker.steps_until(&path, |step| step["step"] == "acknowledged");
    broker.steps_until(&path, |step| step["topic"] == "lamps/7");
    let (_, text) = broker.ctl(&["where", "--topic", "pumps/7"]);
    assert!(text.contains("nothing waits for it. Trace 1, its last step on pumps/7: acknowledged"), "{text}");
    let (_, text) = broker.ctl(&["where", "--topic", "lamps/7"]);
    assert!(text.contains("received, and nobody was subscribed"), "{text}");
    let (_, answer) =
        broker.ask("GET", "/api/v1/messages/where?topic=pumps%2F7&receiver=pump", &broker.viewer);
    let traced = &json_of(&answer)["traced"];
    assert_eq!(traced.as_array().map(Vec::len), Some(1), "{traced}");
    let row = &traced[0];
    assert_eq!((&row["client"], &row["topic"]), (&json!("pump"), &json!("pumps/7")));
    assert_eq!((&row["step"], &row["trace"]), (&json!("acknowledged"), &json!(1)));
}
