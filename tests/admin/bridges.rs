//! Bridges, as operators see them: the API, `homing ctl` and the pages.

use crate::api::{Administered, json_of};
use crate::pages::{get, log_in};
use crate::support::until;
use serde_json::Value;
use std::net::SocketAddr;

/// A broker with a bridge "cloud" to another address.
struct Near {
    broker: Administered,
    _file: tempfile::NamedTempFile,
}

impl Near {
    fn start(far: SocketAddr, keys: &str) -> Near {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let text = format!(
            "[[bridges]]\nname = \"cloud\"\naddresses = [\"mqtt://{far}\"]\nbackoff = \"2s\"\n{keys}\
             [[bridges.topics]]\ndirection = \"out\"\nfilter = \"sensors/#\"\n\
             [[bridges.topics]]\ndirection = \"in\"\nfilter = \"orders/#\"\n"
        );
        std::fs::write(file.path(), text).expect("a file");
        let path = file.path().to_str().expect("text");
        Near { broker: Administered::start_with(&["--config", path]), _file: file }
    }

    /// Returns the bridge, as the API has it.
    fn bridge(&self) -> Value {
        let (status, answer) = self.broker.ask("GET", "/api/v1/bridges", &self.broker.viewer);
        assert_eq!(status, 200, "{answer}");
        json_of(&answer)["bridges"][0].clone()
    }

    /// Waits until the bridge is as wanted, and returns it.
    fn await_bridge(&self, what: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        until(what, || Some(self.bridge()).filter(|bridge| is_wanted(bridge)))
    }
}

#[test]
fn a_bridge_has_its_messages_its_queue_and_what_is_wrong_in_the_api_in_ctl_and_on_its_page() {
    let far = Administered::start();
    let near = Near::start(far.mqtt, "");
    near.await_bridge("a connection", |bridge| bridge["state"] == "established");
    near.broker.publish("sensors/1", &["1", "2", "3"], 1);
    far.publish("orders/1", &["1"], 1);
    let bridge = near.await_bridge("the messages of both ways", |bridge| {
        bridge["received"] == 1 && bridge["sent_per_second"].as_f64() > Some(0.0)
    });
    assert_eq!((&bridge["sent"], &bridge["unacknowledged"]), (&3.into(), &0.into()), "{bridge:#}");
    drop(far);
    let waits = near.await_bridge("the end of the connection", |bridge| bridge["state"] == "waiting");
    assert!(waits["next_attempt_in"].as_f64() > Some(0.0), "{waits:#}");
    near.broker.publish("sensors/1", &["4", "5"], 1);
    let bridge = near.await_bridge("a queue", |bridge| {
        let error = bridge["last_error"].as_str().unwrap_or_default();
        bridge["queued"] == 2 && error.contains("Connection refused") && bridge["state"] == "waiting"
    });
    assert!(bridge["queued_bytes"].as_u64() > Some(0) && bridge["oldest_queued_age"].is_f64(), "{bridge:#}");
    assert!(bridge["queue_used"].as_f64() > Some(0.0), "{bridge:#}");
    let (code, text) = near.broker.ctl(&["bridges"]);
    assert!(code == Some(0) && text.contains("cannot connect: Connection refused"), "{text}");
    let cookie = log_in(&near.broker, &near.broker.viewer);
    let (status, page) = get(&near.broker, "/bridges", &cookie);
    let link = r#"href="/clients/%24bridge%2Fcloud""#;
    for part in [link, "cannot connect: Connection refused", "next attempt in", "2, ", "oldest"] {
        assert!(status == 200 && page.contains(part), "{part}: {page}");
    }
    assert_eq!(get(&near.broker, "/clients/%24bridge%2Fcloud", &cookie).0, 200);
}

#[test]
fn a_broker_without_bridges_says_how_to_set_one() {
    let broker = Administered::start();
    let cookie = log_in(&broker, &broker.viewer);
    let (_, page) = get(&broker, "/bridges", &cookie);
    assert!(page.contains("No bridge is set"), "{page}");
    assert!(broker.ctl(&["bridges"]).1.contains("no bridges"));
}

#[test]
fn a_full_queue_of_a_bridge_has_its_drops_by_cause() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
    let near = Near::start(nobody, "");
    let file = near._file.path();
    let text = std::fs::read_to_string(file).expect("a file");
    std::fs::write(file, format!("{text}[store]\nqueue_messages = 2\n")).expect("a file");
    assert_eq!(near.broker.ctl(&["reload"]).0, Some(0));
    near.broker.publish("sensors/1", &["1", "2", "3"], 0);
    near.broker.publish("sensors/1", &["1", "2", "3"], 1);
    near.await_bridge("the drops and a full queue", |bridge| {
        bridge["drops"].as_array().is_some_and(|all| !all.is_empty()) && bridge["queue_used"] == 1.0
    });
    let (_, text) = near.broker.ctl(&["bridges"]);
    assert!(text.contains("dropped: "), "{text}");
}
