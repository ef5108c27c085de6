//! Questions of operators whose answer must be right whatever they ask for.

use crate::api::{Administered, json_of};
use crate::support::{Connect, Message, RawClient, Version, until};
use serde_json::{Value, json};

fn json(broker: &Administered, path: &str) -> Value {
    let (status, answer) = broker.ask("GET", path, &broker.operator);
    assert_eq!(status, 200, "{answer}");
    json_of(&answer)
}

fn ctl(broker: &Administered, arguments: &[&str]) -> String {
    let (code, text) = broker.ctl(arguments);
    assert_eq!(code, Some(0), "{text}");
    text
}

/// Makes a session of `pump` with a filter, which is away.
fn away(broker: &Administered, filter: &str) {
    let mut pump = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V311, "pump"));
    pump.subscribe(&[(filter, 1)]);
    pump.disconnect();
}

#[test]
fn where_matches_a_filter_with_each_message_that_waits() {
    let broker = Administered::start();
    away(&broker, "t/#");
    for topic in ["t/1", "t/2", "t/2/3"] {
        broker.publish(topic, &["x"], 1);
    }
    let mut app = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    app.deliver(&Message::new("$delayed/30/t/4", "later").qos(1));
    let text = ctl(&broker, &["where", "--topic", "t/#"]);
    assert!(text.contains("receiver_away") && text.contains("2 more wait"), "{text}");
    assert!(text.contains("delayed: published in") && text.contains("t/# is a topic filter"), "{text}");
    let found = json(&broker, "/api/v1/messages/where?topic=t/%2B");
    assert_eq!(found["messages"].as_array().map(Vec::len), Some(2), "{found}");
    let found = json(&broker, "/api/v1/delayed?topic=t/%23");
    assert_eq!(found["delayed"].as_array().map(Vec::len), Some(1), "{found}");
}

#[test]
fn a_text_that_is_no_topic_is_refused_with_what_is_right() {
    let broker = Administered::start();
    for (path, right) in [
        ("messages/where?topic=t/%23/x", "topic"),
        ("messages/where?topic=$share/g/t", "leave its $share/<group>/ out"),
        ("delayed?topic=t%2B", "topic"),
        ("messages/dropped?topic=t%2B", "topic"),
        ("subscriptions?matches=t/%23", "filter=t/#"),
    ] {
        let (status, answer) = broker.ask("GET", &format!("/api/v1/{path}"), &broker.viewer);
        assert!(status == 400 && answer.contains(right), "{path}: {answer}");
    }
}

#[test]
fn where_says_if_the_receiver_has_no_session_or_nothing_waits_for_it() {
    let broker = Administered::start();
    away(&broker, "t/#");
    let text = ctl(&broker, &["where", "--receiver", "pump"]);
    assert!(text.contains("pump") && text.contains("nothing waits for it"), "{text}");
    let text = ctl(&broker, &["where", "--receiver", "pomp"]);
    assert!(text.contains("there is no session of pomp"), "{text}");
    broker.publish("t/1", &["x"], 1);
    assert!(ctl(&broker, &["where", "--receiver", "pump"]).contains("receiver_away"));
}

#[test]
fn a_topic_is_listed_in_full_so_that_its_deletion_removes_the_right_message() {
    let broker = Administered::start();
    let (short, long) = ("t".repeat(256), "t".repeat(300));
    let mut app = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    for topic in [&short, &long] {
        app.deliver(&Message::new(topic, "kept").qos(1).retained());
    }
    let listed = |broker: &Administered| {
        let rows = json(broker, "/api/v1/retained?filter=%2B")["retained"].as_array().cloned();
        let topic = |row: &Value| row["topic"].as_str().map(ToOwned::to_owned);
        rows.unwrap_or_default().iter().filter_map(topic).collect::<Vec<String>>()
    };
    assert_eq!(listed(&broker), [short.clone(), long.clone()]);
    let path = format!("/api/v1/retained?topic={}", listed(&broker)[1]);
    assert_eq!(broker.ask("DELETE", &path, &broker.operator).0, 204);
    assert_eq!(listed(&broker), std::slice::from_ref(&short));
    away(&broker, "#");
    broker.publish(&long, &["x"], 1);
    let queue = json(&broker, "/api/v1/clients/pump/queue");
    assert_eq!(
        queue["messages"].as_array().and_then(|rows| rows.last()?["message"]["topic"].as_str()),
        Some(&*long)
    );
    // The table is for people: the mark says that the cell is cut.
    assert!(ctl(&broker, &["queue", "pump"]).contains("ttt..."));
}

#[test]
fn the_retained_and_the_delayed_messages_are_listed_once_over_their_pages() {
    let broker = Administered::start();
    let mut app = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    for n in 0..25 {
        app.deliver(&Message::new(format!("lamps/{n:02}"), "kept").qos(1).retained());
        app.deliver(&Message::new(format!("$delayed/{}/lamps/{n:02}", 3_600 - n), "later").qos(1));
    }
    let topics = |path: &str, field: &str, of: &dyn Fn(&Value) -> Value| {
        let rows = broker.pages(path, field).concat();
        rows.iter().map(|row| of(row).as_str().map(ToOwned::to_owned)).collect::<Option<Vec<_>>>()
    };
    let all: Vec<String> = (0..25).map(|n| format!("lamps/{n:02}")).collect();
    let retained =
        topics("/api/v1/retained?filter=lamps/%23&limit=4", "retained", &|row| row["topic"].clone());
    assert_eq!(retained.as_ref(), Some(&all));
    let delayed = topics("/api/v1/delayed?limit=4", "delayed", &|row| row["message"]["topic"].clone());
    assert_eq!(delayed, Some(all.into_iter().rev().collect()), "the next due comes first");
    assert_eq!(ctl(&broker, &["retained", "lamps/#"]).lines().count(), 26);
    for path in ["retained", "delayed"] {
        assert_eq!(broker.ask("GET", &format!("/api/v1/{path}?cursor=!"), &broker.viewer).0, 400);
    }
}

#[test]
fn a_reload_that_hides_payloads_hides_them_in_traces_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("homing.toml");
    std::fs::write(&file, "").expect("a file");
    let file_name = file.display().to_string();
    let broker = Administered::start_with(&["--ephemeral", "--config", &file_name]);
    let path = broker.trace(&json!({ "clients": ["app"], "payload": true }));
    let received = |count: usize| {
        broker.publish("pumps/7", &["secret"], 1);
        until("the PUBLISH in the trace", || {
            let steps = json(&broker, &path)["steps"].as_array().cloned().unwrap_or_default();
            let publishes = steps.iter().filter(|step| step["step"] == "received").count();
            (publishes == count).then_some(steps)
        })
    };
    assert!(received(1).iter().any(|step| step["payload"] == "secret"));
    std::fs::write(&file, "[admin]\npayloads = \"never\"\n").expect("a file");
    ctl(&broker, &["reload"]);
    let steps = received(2);
    assert!(steps.iter().all(|step| step["payload"].is_null()), "{steps:?}");
    assert_eq!(json(&broker, &path)["payload"], false);
}
