//! Bridges, as operators see them: the API, `homing ctl` and the pages.

use crate::api::{Administered, json_of};
use crate::pages::{get, log_in};
use crate::support::until;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;

/// A broker with a bridge "cloud" to another address.
struct Near {
    broker: Administered,
    file: tempfile::NamedTempFile,
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
        Near { broker: Administered::start_with(&["--config", path]), file }
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
    for part in [link, "cannot connect: Connection refused", "next attempt in", "2 messages, ", "oldest"] {
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
    let file = near.file.path();
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

/// Another broker that accepts the bridge and its filter, and never acknowledges.
struct DeafBroker {
    address: SocketAddr,
}

impl DeafBroker {
    /// Starts a broker that reads all that comes, or nothing behind SUBSCRIBE.
    fn start(reading: Reading) -> DeafBroker {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        // Of what nobody reads, the kernel takes a little.
        rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4 << 10).expect("a size");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept() {
                let mut scratch = [0; 1_024];
                let _ = stream.read(&mut scratch);
                // CONNACK, and the SUBACK of one filter.
                let _ = stream.write_all(&[0x20, 3, 0, 0, 0, 0x90, 4, 0xFF, 0xFF, 0, 1]);
                if reading == Reading::All {
                    let mut stream = stream.try_clone().expect("a descriptor");
                    std::thread::spawn(move || while matches!(stream.read(&mut scratch), Ok(1..)) {});
                }
                open.push(stream);
            }
        });
        DeafBroker { address }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    All,
    Nothing,
}

#[test]
fn a_broker_that_has_messages_and_does_not_acknowledge_is_named_as_their_holder() {
    let far = DeafBroker::start(Reading::All);
    let near = Near::start(far.address, "");
    near.await_bridge("a connection", |bridge| bridge["state"] == "established");
    near.broker.publish("sensors/1", &["on"], 1);
    let held = near.await_bridge("the holder", |bridge| bridge["oldest_unacknowledged"].is_object());
    let oldest = &held["oldest_unacknowledged"];
    assert_eq!(
        (&oldest["cause"], &oldest["detail"]),
        (&"application".into(), &"the other broker's host has it".into())
    );
    for command in
        [&["where", "--topic", "sensors/1"][..], &["client", "$bridge/cloud"], &["inflight", "$bridge/cloud"]]
    {
        let (_, text) = near.broker.ctl(command);
        assert!(text.contains("the other broker's host has it"), "{command:?}: {text}");
    }
}

#[test]
fn a_broker_that_reads_nothing_does_not_have_what_the_bridge_holds_for_it() {
    let far = DeafBroker::start(Reading::Nothing);
    let near = Near::start(far.address, "");
    near.await_bridge("a connection", |bridge| bridge["state"] == "established");
    // More than the bridge and both kernels hold.
    let large = "x".repeat(200 << 10);
    near.broker.publish("sensors/1", &vec![large.as_str(); 60], 1);
    let held = near.await_bridge("the holder", |bridge| bridge["oldest_unacknowledged"].is_object());
    let oldest = &held["oldest_unacknowledged"];
    assert_eq!(
        (&oldest["cause"], &oldest["detail"]),
        (&"network".into(), &"the other broker's host takes no more bytes".into()),
        "{held:#}"
    );
    assert!(oldest["unsent_bytes"].as_u64() > Some(100 << 10), "{held:#}");
    let (_, text) = near.broker.ctl(&["where", "--receiver", "$bridge/cloud"]);
    assert!(text.contains("the other broker's host takes no more bytes"), "{text}");
    assert!(!text.contains("host has it") && !text.contains("client's host"), "{text}");
}

#[test]
fn where_says_why_a_bridge_does_not_send_and_that_the_other_broker_has_acknowledged() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
    let near = Near::start(nobody, "max_backoff = \"1h\"\n");
    near.await_bridge("the end of an attempt", |bridge| bridge["state"] == "waiting");
    near.broker.publish("sensors/1", &["1"], 1);
    let (_, text) = near.broker.ctl(&["where", "--topic", "sensors/1"]);
    for part in [
        "$bridge/cloud (sensors/#, QoS 1)  receiver_away: Until the bridge is connected: its last attempt at mqtt://127.0.0.1:9 ended ",
        "ago: cannot connect: Connection refused (os error 111). Next attempt in ",
        "; its session ends in 6 d 23 h, and the message is dropped then.",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (_, text) = near.broker.ctl(&["queue", "$bridge/cloud"]);
    assert!(text.contains("Next attempt in"), "{text}");
    let far = Administered::start();
    let near = Near::start(far.mqtt, "");
    near.await_bridge("a connection", |bridge| bridge["state"] == "established");
    let whereabouts = |until_then: &str| {
        until(until_then, || {
            let (_, text) = near.broker.ctl(&["where", "--topic", "sensors/1"]);
            text.contains(until_then).then_some(text)
        })
    };
    whereabouts("nothing waits for it. The other broker has acknowledged nothing yet.");
    near.broker.trace(&json!({ "topics": ["sensors/#"], "for": "5m" }));
    near.broker.publish("sensors/1", &["1"], 1);
    whereabouts("nothing waits for it. The other broker acknowledged all that it was sent, the last ");
    let text = whereabouts("Trace 1, its last step on sensors/1: acknowledged by the other broker, ");
    assert!(text.contains(" ago, at 20") && text.contains(" UTC"), "{text}");
}

#[test]
fn what_waits_for_a_bridge_that_the_configuration_has_no_more_says_so() {
    let near = Near::start(SocketAddr::from(([127, 0, 0, 1], 9)), "");
    near.await_bridge("the end of an attempt", |bridge| bridge["state"] == "waiting");
    near.broker.publish("sensors/1", &["1"], 1);
    std::fs::write(near.file.path(), "").expect("a file");
    assert_eq!(near.broker.ctl(&["reload"]).0, Some(0));
    until("the end of the bridge", || {
        let (_, text) = near.broker.ctl(&["where", "--topic", "sensors/1"]);
        text.contains("Until the configuration has this bridge again; its session ends in").then_some(())
    });
}

#[test]
fn the_doctor_tries_a_bridge_and_the_bridge_that_runs_keeps_its_session() {
    let far = Administered::start();
    let near = Near::start(far.mqtt, "");
    near.await_bridge("a connection", |bridge| bridge["state"] == "established");
    let doctor = Command::new(env!("CARGO_BIN_EXE_homing"))
        .args(["doctor", "--config"])
        .arg(near.file.path())
        .args(["--set", "network.listen=127.0.0.1:0", "--set", "admin.addresses=off"])
        .args(["--set", "store.durability=none"])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&doctor.stdout);
    let accepted = format!("cloud: mqtt://{} accepts MQTT 5.0, and grants 1 of 1 filters", far.mqtt);
    assert!(said.contains(&accepted), "{said}{}", String::from_utf8_lossy(&doctor.stderr));
    let bridge = near.bridge();
    assert_eq!((&bridge["attempts"], &bridge["state"]), (&1.into(), &"established".into()), "{bridge:#}");
    // Nothing is left of the doctor.
    let (_, clients) = far.ctl(&["clients", "--prefix", "homing-cloud"]);
    assert!(clients.contains("homing-cloud ") && !clients.contains("doctor"), "{clients}");
}
