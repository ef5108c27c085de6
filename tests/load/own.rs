//! What users of a load tester bring along: their topics, client ids, users, sizes, retained
//! messages, rates and WebSocket.

use crate::{assert_exact, broker, broker_with, command, count, figure, good, text};
use homing::broker::Broker;
use homing::config::{Anonymous, Listener, ListenerProtocol};
use rumqttc::{Client, Event, MqttOptions, Packet, QoS};
use std::process::Command;

/// The ACL lets a publisher and a subscriber in only with the topics, ids and users that the
/// patterns give.
#[test]
fn own_topics_client_ids_and_users_are_used_and_verified() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    for (user, password) in [("ann", "a:1"), ("bob", "b2")] {
        let mut passwd = Command::new(env!("CARGO_BIN_EXE_homing"));
        passwd.args(["passwd", "-b", "-H", "pbkdf2"]).args((user == "ann").then_some("-c"));
        passwd.args([&path("passwd"), user, password]);
        assert!(passwd.status().expect("the binary was built").success());
    }
    std::fs::write(path("users"), "ann:a:1\nbob:b2\n").expect("a folder");
    std::fs::write(path("acl"), "pattern write site/%u/%c/up\npattern read site/%u/+/up\n")
        .expect("a folder");
    let broker = broker_with(|config| {
        config.auth.anonymous = Anonymous::Never;
        config.auth.password_file = path("passwd");
        config.acl.file = path("acl");
    });
    let entry = format!("--users {} -t site/%u/%c/up -i meter-%i --subscriber-id panel-%i", path("users"));
    for scenario in ["throughput", "redelivery --plan every-nth --observe 500ms --away 10ms", "session"] {
        let report = good(&broker, &format!("{scenario} {entry} -q 1 --publishers 3 -m 20 -n 7"));
        assert_exact(&report, 60, 60);
    }
    let other = format!("throughput {entry} -q 1 -m 1 --patience 200ms").replace("meter", "a/b");
    let output = command(&broker, &other).output().expect("the binary was built");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
}

#[test]
fn fan_in_listens_to_a_level_and_leaves_the_messages_of_others_alone() {
    let broker = broker();
    let report = good(&broker, "throughput --layout fan-in -t home/%i/up -q 1 -m 50 --publishers 4");
    assert_exact(&report, 200, 200);
}

#[test]
fn sizes_of_a_range_are_verified() {
    let broker = broker();
    for version in ["3.1.1", "5"] {
        let arguments = format!("throughput --mqtt {version} -q 2 -s 24-20000 -m 40 --publishers 2");
        let report = good(&broker, &arguments);
        assert_exact(&report, 80, 80);
        assert_eq!(report["payload"]["most"], 20_000, "{report}");
    }
}

/// Publishes a retained message as somebody else.
fn retain(broker: &Broker, topic: &str) {
    let (client, mut connection) =
        Client::new(MqttOptions::new("other", "127.0.0.1", broker.addresses()[0].port()), 10);
    client.publish(topic, QoS::AtLeastOnce, true, "precious").expect("the queue has room");
    let stored = |event| matches!(event, Ok(Event::Incoming(Packet::PubAck(_))));
    assert!(connection.iter().any(stored), "the broker acknowledges");
}

#[test]
fn retained_messages_are_removed_and_those_of_others_never_overwritten() {
    let broker = broker();
    for version in ["3.1.1", "5"] {
        // The second run would refuse topics in which the first has left something.
        for _ in 0..2 {
            let arguments =
                format!("throughput --retain --mqtt {version} -q 1 -t my/%i -m 20 --publishers 3");
            assert_exact(&good(&broker, &arguments), 60, 60);
        }
    }
    retain(&broker, "my/1");
    for scenario in ["throughput", "redelivery", "session"] {
        let arguments = format!("{scenario} --retain -q 1 -t my/%i -m 20 --publishers 3");
        let output = command(&broker, &arguments).output().expect("the binary was built");
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains("has a retained message"), "{said}");
    }
    // Without --retain the message of somebody else is counted as such.
    let report = good(&broker, "throughput -q 1 -t my/%i -m 20 --publishers 3");
    assert_eq!((count(&report, "delivered"), count(&report, "foreign")), (60, 1), "{report}");
}

#[test]
fn clients_connect_and_rates_grow_as_told() {
    let broker = broker();
    let report = good(&broker, "connections -c 31 -R 100 --duration 10ms");
    assert!(figure(&report, "in") >= 0.3, "{report}");
    // Half of the rate in the ramp, and then 0.3 s of the whole.
    let report = good(&broker, "latency --rate 800 --ramp-up 500ms -d 800ms -q 1 --publishers 3");
    let sent = count(&report, "sent");
    assert!((1..=450).contains(&sent), "{report}");
    assert_exact(&report, sent, sent);
    let report = good(&broker, "throughput -q 1 --ramp-up 100ms -d 300ms --publishers 3");
    assert!(count(&report, "delivered") > 0, "{report}");
}

#[test]
fn websocket_carries_everything() {
    let broker = broker_with(|config| {
        let address = config.network.listen[0];
        config.network.listen.clear();
        let protocol = Some(ListenerProtocol::WebSocket);
        config.listeners = vec![Listener { protocol, ..Listener::plain(address) }];
    });
    for version in ["3.1.1", "5"] {
        let arguments = format!("throughput --ws --mqtt {version} -q 2 -s 24-70000 -m 20 --publishers 2");
        assert_exact(&good(&broker, &arguments), 40, 40);
    }
    let plan = "redelivery --ws --plan crash -q 1 --publishers 2 -m 20 --observe 500ms --away 50ms";
    assert_exact(&good(&broker, plan), 40, 40);
}
