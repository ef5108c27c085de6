//! The redelivery settings that hold for a client, and the place that each comes from.

use crate::api::Administered;
use crate::pages::{get, log_in};
use crate::reload::Configured;
use crate::support::{Connect, Message, RawClient, Version};
use serde_json::{Value, json};

const CONFIGURATION: &str = r#"
[redelivery]
attempts = 7

[[redelivery.rules]]
topic = "alarms/#"
interval = "1s"

[[redelivery.rules]]
client_id = "pump-*"
interval = "9s"
on_exhausted = "keep"
"#;

fn redelivery(broker: &Configured, client_id: &str) -> Value {
    let (code, text) = broker.ctl(&["--json", "client", client_id]);
    assert_eq!(code, Some(0), "{text}");
    serde_json::from_str::<Value>(&text).expect("a client")["redelivery"].clone()
}

fn row(setting: &str, value: &str, source: &str, rule: Option<u8>) -> Value {
    json!({ "setting": setting, "value": value, "source": source, "rule": rule })
}

#[test]
fn a_client_has_its_settings_with_the_rule_the_section_or_its_own_request_behind_each() {
    let broker = Configured::start(CONFIGURATION);
    let mut pump = broker.connect(Version::V311, "pump-7");
    let by_rule = row("on_exhausted", "keep", "rule", Some(2));
    let by_section = row("attempts", "7", "section", None);
    let settings = [row("interval", "9s", "rule", Some(2)), by_section.clone(), by_rule.clone()];
    assert_eq!(redelivery(&broker, "pump-7"), json!({ "settings": settings, "topic_rules": [1] }));
    pump.deliver(&Message::new("$homing/session/retry-interval", "30s").qos(1));
    let settings = [row("interval", "30s", "client", None), by_section, by_rule];
    assert_eq!(redelivery(&broker, "pump-7")["settings"], json!(settings));
    let _lamp = broker.connect(Version::V5, "lamp-1");
    let lamp = redelivery(&broker, "lamp-1");
    assert_eq!(lamp["settings"][0]["setting"], "ack_timeout");
    assert!(
        lamp["settings"].as_array().into_iter().flatten().all(|row| row["source"] == "section"),
        "{lamp}"
    );
    // A reload counts at once.
    broker.write(&CONFIGURATION.replace("pump-*", "lamp-*"));
    assert_eq!(broker.ctl(&["reload"]).0, Some(0));
    crate::support::until("the new rules", || {
        let exhausted = &redelivery(&broker, "lamp-1")["settings"][3];
        (*exhausted == row("on_exhausted", "keep", "rule", Some(2))).then_some(())
    });
}

#[test]
fn the_page_of_a_client_says_where_its_settings_come_from() {
    let broker = Administered::start();
    let _pump = RawClient::connect(broker.mqtt, &Connect::new(Version::V311, "pump-7"));
    let (status, page) = get(&broker, "/clients/pump-7", &log_in(&broker, &broker.viewer));
    assert!(status == 200 && page.contains("Redelivery policy"), "{page}");
    assert!(page.contains("section [redelivery]") && page.contains("<code>on_exhausted</code>"), "{page}");
}
