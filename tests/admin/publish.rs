//! Messages that programs publish by HTTP, and by `homing ctl publish`.

use crate::api::{Administered, json_of};
use crate::http::{LOCAL, request_with_body};
use crate::hung_threads::{StoppedThread, thread_of};
use crate::support::property::Property;
use crate::support::{Connect, RawClient, Version};
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpStream;

/// Publishes with a token. Returns the status and the body of the answer.
fn post(broker: &Administered, token: &str, path: &str, body: &Value) -> (u16, Value) {
    let headers = format!("{LOCAL}Authorization: Bearer {token}\r\n");
    let (status, answer) = request_with_body(broker.admin, "POST", path, &headers, &body.to_string());
    (status, json_of(&answer))
}

fn publish(broker: &Administered, body: &Value) -> (u16, Value) {
    post(broker, &broker.operator, "/api/v1/publish", body)
}

fn subscriber(broker: &Administered, filter: &str) -> RawClient {
    let mut client = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V5, "pump"));
    client.subscribe(&[(filter, 2)]);
    client
}

#[test]
fn a_subscriber_gets_the_message_with_its_properties() {
    let broker = Administered::start();
    let mut client = subscriber(&broker, "pumps/#");
    let message = json!({
        "topic": "pumps/7/set", "payload": "AAH/", "payload_encoding": "base64", "qos": 2,
        "properties": {
            "content_type": "application/octet-stream", "response_topic": "answers/7", "correlation_data": "AQI=",
            "message_expiry_interval": 60, "payload_format_indicator": 0,
            "user_properties": [{ "name": "b", "value": "1" }, { "name": "a", "value": "2" }],
        },
    });
    assert_eq!(publish(&broker, &message), (200, json!({ "reason": "success", "reason_code": 0 })));
    let got = client.expect_publish();
    assert_eq!((&*got.topic, &*got.payload, got.qos), ("pumps/7/set", &[0, 1, 255][..], 2));
    let properties = format!("{:?}", got.properties);
    for part in ["application/octet-stream", "answers/7", "[1, 2]"] {
        assert!(properties.contains(part), "{part} in {properties}");
    }
    let user: Vec<_> = got
        .properties
        .iter()
        .filter_map(|property| match property {
            Property::User(name, value) => Some((name.clone(), value.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(user, [("b".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())]);
}

#[test]
fn an_acknowledged_message_is_in_the_store() {
    let mut broker = Administered::start_with(&[]);
    drop(subscriber(&broker, "pumps/#"));
    broker.await_away("pump");
    let (status, answer) = publish(&broker, &json!({ "topic": "pumps/7/set", "payload": "on" }));
    assert_eq!((status, &answer["reason"]), (200, &json!("success")));
    broker.kill_and_start(&[]);
    let mut back = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V5, "pump").clean(false));
    assert_eq!(&*back.expect_publish().payload, b"on");
}

#[test]
fn a_store_that_hangs_leaves_the_outcome_unknown_and_nothing_is_lost() {
    let broker = Administered::start_with(&[]);
    drop(subscriber(&broker, "pumps/#"));
    broker.await_away("pump");
    let stopped = StoppedThread::stop(thread_of(broker.process(), "homing-store"));
    let (status, answer) = publish(&broker, &json!({ "topic": "pumps/7/set", "payload": "on" }));
    assert_eq!((status, &answer["type"]), (504, &json!("/api/problems/unconfirmed")), "{answer}");
    let messages = json!({ "messages": [{ "topic": "pumps/8/set", "payload": "on" }] });
    let (status, answer) = post(&broker, &broker.operator, "/api/v1/publish/bulk", &messages);
    let unknown =
        json!({ "reason": "unconfirmed", "reason_code": null, "detail": answer["results"][0]["detail"] });
    assert_eq!((status, &answer["results"][0]), (200, &unknown));
    drop(stopped);
    let mut back = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V5, "pump").clean(false));
    assert_eq!(back.expect_publishes(2).len(), 2, "they are committed once the disk works again");
}

#[test]
fn the_answer_says_what_puback_would_say() {
    let broker = Administered::start_with(&[
        "--ephemeral",
        "--set",
        "limits.queue_messages=1",
        "--set",
        "limits.in_flight=1",
    ]);
    let set = |topic: &str| json!({ "topic": topic, "payload": "on" });
    let nobody = json!({ "reason": "no_matching_subscribers", "reason_code": 16 });
    assert_eq!(publish(&broker, &set("pumps/7/set")), (200, nobody));
    let text = json!({ "topic": "t", "payload": "/w==", "payload_encoding": "base64",
        "properties": { "payload_format_indicator": 1 } });
    for (message, status, slug, word) in [
        (set("$SYS/x"), 422, "message-refused", "not_authorized (0x87)"),
        (set("a/+"), 422, "message-refused", "topic_name_invalid (0x90)"),
        (set(""), 400, "invalid-parameter", "topic is empty"),
        (text, 422, "message-refused", "payload_format_invalid (0x99)"),
        (json!({ "topic": "t", "qos": 3 }), 400, "invalid-parameter", "must be 0, 1 or 2"),
        (json!({ "topic": "t", "qoss": 1 }), 400, "invalid-parameter", "unknown field"),
    ] {
        let (got, answer) = publish(&broker, &message);
        let (kind, detail) = (answer["type"].as_str().unwrap_or(""), answer["detail"].as_str().unwrap_or(""));
        assert!(got == status && kind.ends_with(slug) && detail.contains(word), "{message}: {got} {answer}");
    }
    let _client = subscriber(&broker, "pumps/#");
    for _ in 0..2 {
        assert_eq!(publish(&broker, &set("pumps/7/set")).0, 200, "one is in flight, and one in the queue");
    }
    let (status, answer) = publish(&broker, &set("pumps/7/set"));
    assert_eq!((status, &answer["type"]), (429, &json!("/api/problems/quota-exceeded")), "{answer}");
}

#[test]
fn each_message_of_many_has_its_own_answer_in_their_order() {
    let broker = Administered::start();
    let mut client = subscriber(&broker, "pumps/#");
    let topics = ["pumps/1", "$SYS/x", "pumps/2", "nobody"];
    let messages: Vec<Value> =
        topics.iter().map(|topic| json!({ "topic": topic, "payload": "on" })).collect();
    let many = |messages: &[Value]| {
        post(&broker, &broker.operator, "/api/v1/publish/bulk", &json!({ "messages": messages }))
    };
    let (status, answer) = many(&messages);
    let reasons: Vec<&str> = answer["results"]
        .as_array()
        .expect("results")
        .iter()
        .filter_map(|one| one["reason"].as_str())
        .collect();
    assert_eq!(reasons, ["success", "not_authorized", "success", "no_matching_subscribers"]);
    assert_eq!((status, &answer["published"]), (200, &json!(3)));
    assert_eq!([&*client.expect_publish().topic, &*client.expect_publish().topic], ["pumps/1", "pumps/2"]);
    let wrong = [json!({ "topic": "pumps/3" }), json!({ "topic": "pumps/4", "qos": 9 })];
    let (status, answer) = many(&wrong);
    assert!(
        status == 400 && answer["detail"].as_str().is_some_and(|text| text.contains("messages[1]")),
        "{answer}"
    );
    assert_eq!(many(&[]).0, 400);
    assert_eq!(many(&vec![json!({ "topic": "t" }); 257]).0, 400);
    let (_, answer) = broker.ask("GET", "/api/v1/clients/pump/inflight", &broker.viewer);
    assert!(!answer.contains("pumps/3"), "a mistake in one refuses all: {answer}");
}

#[test]
fn a_publisher_may_publish_and_nothing_else_and_a_viewer_may_not() {
    let broker = Administered::start();
    let publisher = broker.token("publisher");
    let body = json!({ "topic": "pumps/7/set", "payload": "secret" });
    assert_eq!(post(&broker, &publisher, "/api/v1/publish", &body).0, 200);
    assert_eq!(post(&broker, &broker.viewer, "/api/v1/publish", &body).0, 403);
    assert_eq!(broker.ask("GET", "/api/v1/overview", &publisher).0, 403);
    let (_, answer) = broker.ask("GET", "/api/v1/audit?published=true", &broker.token("admin"));
    let entry = &json_of(&answer)["actions"][0];
    assert_eq!((&entry["who"], &entry["action"]), (&json!("publisher"), &json!("publish")), "{answer}");
    assert_eq!(entry["arguments"], "qos=1, retain=false, bytes=6");
    assert_eq!(entry["result"], "no_matching_subscribers");
    assert!(!answer.contains("secret"), "no payload is in the log");
}

#[test]
fn a_large_payload_passes_and_one_beyond_the_limit_does_not() {
    let broker = Administered::start();
    let body = |bytes: usize| json!({ "topic": "t", "payload": "x".repeat(bytes) });
    assert_eq!(publish(&broker, &body(1_000_000)).0, 200);
    assert_eq!(publish(&broker, &body(1 << 20)).0, 413);
}

#[test]
fn the_publisher_is_named_in_traces() {
    let broker = Administered::start();
    let (code, text) = broker.trace_command(&["--topic", "pumps/#", "--for", "2s"], || {
        assert_eq!(publish(&broker, &json!({ "topic": "pumps/7/set", "payload": "on" })).0, 200);
    });
    assert!(code == Some(0) && text.contains("http:operator") && text.contains("nobody"), "{text}");
}

#[test]
fn homing_ctl_publishes_text_and_files() {
    let broker = Administered::start();
    let mut client = subscriber(&broker, "pumps/#");
    let (code, text) = broker.ctl(&["publish", "pumps/7/set", "--payload", "on", "--retain"]);
    assert_eq!((code, text.trim()), (Some(0), "published"));
    assert_eq!(&*client.expect_publish().payload, b"on");
    let file = broker.credentials().with_file_name("payload");
    std::fs::write(&file, [0, 255]).expect("a file");
    let (code, text) = broker.ctl(&["publish", "pumps/7/set", "--payload-file", &file.display().to_string()]);
    assert_eq!((code, text.trim()), (Some(0), "published"));
    assert_eq!(&*client.expect_publish().payload, [0, 255]);
    let (code, text) = broker.ctl(&["publish", "nobody", "--payload", ""]);
    assert_eq!((code, text.trim()), (Some(0), "published; nobody is subscribed to the topic"));
    let (code, text) = broker.ctl(&["publish", "$SYS/x", "--payload", ""]);
    assert!(code == Some(1) && text.contains("not_authorized"), "{text}");
    assert_eq!(broker.ctl(&["publish", "nobody"]).0, Some(2), "there is no payload");
}

#[test]
fn one_token_that_never_sends_its_bodies_leaves_places_to_the_others() {
    let broker = Administered::start();
    let slow = broker.token("publisher");
    let body = json!({ "topic": "pumps/7/set", "payload": "on" });
    let begin = |_| {
        let mut socket = TcpStream::connect(broker.admin).expect("it listens");
        let head =
            format!("{LOCAL}Authorization: Bearer {slow}\r\nContent-Length: 100\r\nExpect: 100-continue");
        write!(socket, "POST /api/v1/publish HTTP/1.1\r\n{head}\r\n\r\n").expect("it reads");
        // The interface asks for the body once the request has its place.
        let mut line = [0; 25];
        std::io::Read::read_exact(&mut socket, &mut line).expect("an answer");
        assert_eq!(&line, b"HTTP/1.1 100 Continue\r\n\r\n");
        socket
    };
    let _stopped: Vec<TcpStream> = (0..32).map(begin).collect();
    let (status, answer) = post(&broker, &slow, "/api/v1/publish", &body);
    assert_eq!((status, &answer["type"]), (429, &json!("/api/problems/share-used")), "{answer}");
    let detail = answer["detail"].as_str().expect("a text");
    assert!(detail.contains("has 32 requests that publish under way"), "{detail}");
    assert_eq!(publish(&broker, &body).0, 200, "another caller publishes");
}
