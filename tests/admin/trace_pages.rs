//! The pages of traces: an operator begins one, sees its steps and ends it.

use crate::api::{Administered, json_of};
use crate::pages::{csrf, get, log_in, post};
use crate::support::{Connect, RawClient, Version, until};

#[test]
fn an_operator_begins_a_trace_on_a_page_sees_its_steps_and_ends_it() {
    let broker = Administered::start();
    let mut pump = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "pump-7"));
    pump.subscribe(&[("pumps/#", 1)]);
    let cookie = log_in(&broker, &broker.operator);
    let (_, page) = get(&broker, "/clients/pump-7", &cookie);
    assert!(page.contains(r#"action="/traces""#) && page.contains("<button>Trace</button>"), "{page}");
    let (_, page) = get(&broker, "/where?topic=pumps%2F7", &cookie);
    assert!(page.contains(r#"name="topic" value="pumps/7""#) && page.contains("<button>Trace</button>"));
    let (status, page) = get(&broker, "/traces?topic=pumps%2F7", &cookie);
    assert!(status == 200 && page.contains("No trace runs") && page.contains(r#"value="pumps/7""#), "{page}");
    let csrf = csrf(&page).to_owned();
    let form = format!("csrf={csrf}&client=&topic=pumps%2F%23&for=10m&payload=true");
    let (status, answer) = post(&broker, "/traces", &cookie, &form);
    assert!(status == 303 && answer.contains("location: /traces/1"), "{answer}");
    let hostile = "pumps/<img>";
    broker.publish(hostile, &["<b>"], 1);
    let publish = pump.expect_publish();
    pump.complete(&publish);
    // Each thread sends its steps for itself.
    let page = until("the last steps", || {
        let (status, page) = get(&broker, "/traces/1", &cookie);
        assert_eq!(status, 200, "{page}");
        let has = |step: &str| page.contains(&format!(">{step}<"));
        (has("received") && has("acknowledged")).then_some(page)
    });
    for part in ["received", "QoS 1, 3 bytes", "payload &", "/clients/pump-7"] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!page.contains("<img>") && !page.contains("<b>"), "{page}");
    let (_, list) = get(&broker, "/traces", &cookie);
    assert!(list.contains("/traces/1") && list.contains("with payloads"), "{list}");
    let end = format!("csrf={csrf}");
    assert_eq!(post(&broker, "/traces/1/end", &cookie, &end).0, 303);
    assert_eq!(get(&broker, "/traces/1", &cookie).0, 404);
    assert_eq!(post(&broker, "/traces/1/end", &cookie, &end).0, 303);
    // A mistake is a page for people.
    let (status, page) = post(&broker, "/traces", &cookie, &format!("csrf={csrf}"));
    assert!(status == 400 && page.contains("a trace needs a client or a topic filter"), "{page}");
    let (_, audit) = broker.ctl(&["audit"]);
    assert!(audit.contains("begin_trace") && audit.contains("payload=true") && audit.contains("end_trace"));
}

#[test]
fn a_viewer_sees_no_trace_and_begins_none() {
    let broker = Administered::start();
    let _pump = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "pump-7"));
    let cookie = log_in(&broker, &broker.viewer);
    let (_, page) = get(&broker, "/clients/pump-7", &cookie);
    assert!(!page.contains("/traces"), "{page}");
    let (_, where_page) = get(&broker, "/where?topic=pumps%2F7", &cookie);
    assert!(!where_page.contains("/traces"), "{where_page}");
    for path in ["/traces", "/traces/1"] {
        assert_eq!(get(&broker, path, &cookie).0, 403, "{path}");
    }
    let form = format!("csrf={}&client=pump-7", csrf(&page));
    for path in ["/traces", "/traces/1/end"] {
        assert_eq!(post(&broker, path, &cookie, &form).0, 403, "{path}");
    }
    let (_, answer) = broker.ask("GET", "/api/v1/traces", &broker.operator);
    assert_eq!(json_of(&answer)["traces"].as_array().map(Vec::len), Some(0));
}
