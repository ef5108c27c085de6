//! The paths that mosquitto 2.1's `http_api` has, too: version, listeners and `$SYS` as JSON.

use crate::api::{Administered, json_of};
use crate::support::{Connect, RawClient, Version, until};
use serde_json::{Value, json};

#[test]
fn the_listeners_have_mosquittos_fields_and_their_open_connections() {
    let broker = Administered::start();
    let _client = RawClient::connect(broker.mqtt, &Connect::new(Version::V311, "lamp"));
    let (status, answer) = broker.ask("GET", "/api/v1/listeners", &broker.viewer);
    assert_eq!(status, 200, "{answer}");
    let expected = |port: u16, protocol: &str, anonymous: bool| {
        json!({
            "port": port, "protocol": protocol, "tls": false, "mtls": false, "allow_anonymous": anonymous,
            "name": null, "address": format!("127.0.0.1:{port}"), "proxy": false,
            "connections": if anonymous { json!(1) } else { Value::Null },
        })
    };
    let listeners =
        [expected(broker.mqtt.port(), "mqtt", true), expected(broker.admin.port(), "httpapi", false)];
    assert_eq!(json_of(&answer), json!({ "listeners": listeners }));
    let (code, text) = broker.ctl(&["listeners"]);
    assert!(code == Some(0) && text.contains(&broker.mqtt.to_string()) && text.contains("httpapi"), "{text}");
}

#[test]
fn the_figures_of_sys_are_numbers_under_their_topics() {
    let broker = Administered::start_with(&["--ephemeral", "--set", "sys.publish_interval=1s"]);
    let _client = RawClient::connect(broker.mqtt, &Connect::new(Version::V311, "lamp"));
    let tree = until("a connected client", || {
        let (status, answer) = broker.ask("GET", "/api/v1/systree", &broker.viewer);
        assert_eq!(status, 200, "{answer}");
        let tree = json_of(&answer);
        (tree["$SYS/broker/clients/connected"] == 1).then_some(tree)
    });
    // What mosquitto's own test of its interface asks for, without its outgoing packets.
    for topic in [
        "clients/total",
        "clients/maximum",
        "clients/disconnected",
        "clients/expired",
        "messages/stored",
        "store/messages/bytes",
        "subscriptions/count",
        "shared_subscriptions/count",
        "retained messages/count",
        "messages/received",
        "messages/sent",
        "bytes/received",
        "bytes/sent",
        "publish/bytes/received",
        "publish/bytes/sent",
        "connections/socket/count",
        "publish/messages/dropped",
        "publish/messages/received",
        "publish/messages/sent",
        "uptime",
        "heap/current",
        "heap/maximum",
    ] {
        assert!(tree[format!("$SYS/broker/{topic}")].is_u64(), "{topic} in {tree:#}");
    }
    let (status, answer) = broker.ask("GET", "/api/v1/version", &broker.viewer);
    assert!(status == 200 && answer.ends_with(&format!("\r\n\r\n{}", env!("CARGO_PKG_VERSION"))), "{answer}");
}
