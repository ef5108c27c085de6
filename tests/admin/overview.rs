//! The overview: present rates, waits, objectives and deadlines.

use crate::api::{Administered, json_of};
use crate::live::{Live, bearer};
use crate::pages::{get, log_in};
use crate::support::{Connect, RawClient, Version, until};

#[test]
fn the_overview_has_rates_waits_and_deadlines_for_readers_and_programs() {
    let broker = Administered::start();
    let mut pump = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "pump"));
    pump.subscribe(&[("pumps/#", 1)]);
    // The first samples show the counts before the messages.
    let recent = |broker: &Administered| {
        let (_, answer) = broker.ask("GET", "/api/v1/overview", &broker.viewer);
        json_of(&answer)["recent"].clone()
    };
    until("a rate", || recent(&broker)["received_per_second"].is_number().then_some(()));
    let some = until("a rate above zero, and a wait", || {
        broker.publish("pumps/7", &["on"], 1);
        let publish = pump.expect_publish();
        pump.complete(&publish);
        let recent = recent(&broker);
        let is_above = |field: &str| recent[field].as_f64().is_some_and(|value| value > 0.0);
        ["received_per_second", "sent_per_second", "ack_p99"].into_iter().all(is_above).then_some(recent)
    });
    assert!(some["commit_p99"].is_null(), "there is no store: {some}");
    let (status, page) = get(&broker, "/", &log_in(&broker, &broker.viewer));
    assert_eq!(status, 200, "{page}");
    for part in [
        r#"data-curve="rate_in" points="0.0,"#,
        r#"data-curve="due" points="0.0,"#,
        "The last 2 minutes: lowest",
        "99 % of acknowledgements",
        r#"data-live="up""#,
        "No objective is set.",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!page.contains("99 % of commits"), "{page}");
    let (mut live, _) = Live::open(&broker, "/api/v1/events?streams=overview", &bearer(&broker.viewer));
    let (_, event) = live.event("overview");
    assert!(
        event["curves"]["rate_out"]["points"].as_str().is_some_and(|points| points.contains(' ')),
        "{event}"
    );
    assert!(event["values"]["rate_in"].as_str().is_some_and(|rate| rate.ends_with("/s")), "{event}");
}
