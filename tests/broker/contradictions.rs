//! Acknowledgements of the wrong kind for what is in flight: the client is in error and is
//! disconnected with a reason. Late and repeated ones are harmless.

use crate::support::launch::{TestBroker, start_broker, versions};
use crate::support::{Kind, Message, RawClient, V5, Version};
use std::time::Duration;

fn broker() -> TestBroker {
    start_broker(|config| config.sys.publish_interval = Duration::from_millis(50))
}

/// A subscriber of `version` that has got one message of this QoS, and the identifier that it came
/// under.
fn receiver(broker: &TestBroker, version: Version, qos: u8) -> (RawClient, u16) {
    let mut client = broker.persistent(version, "c");
    client.subscribe(&[("t", 2)]);
    broker.client(V5, "p").deliver(&Message::new("t", "x").qos(qos));
    let id = client.expect_publish().id;
    (client, id)
}

fn an_acknowledgement_of_the_wrong_kind_ends_the_connection_and_is_counted(version: Version) {
    let broker = broker();
    let mut count = 0;
    for (qos, before, wrong) in [
        (1, None, Kind::Pubrec),
        (1, None, Kind::Pubcomp),
        (2, None, Kind::Puback),
        (2, None, Kind::Pubcomp),
        (2, Some(Kind::Pubrec), Kind::Puback),
    ] {
        let case = format!("{version:?}: {wrong:?} for QoS {qos} after {before:?}");
        let (mut client, id) = receiver(&broker, version, qos);
        if let Some(kind) = before {
            client.ack(kind, id);
            client.expect_ack(Kind::Pubrel, id);
        }
        client.ack(wrong, id);
        let reason = client.expect_closed();
        assert_eq!(reason, (version == V5).then_some(0x82), "{case}");
        count += 1;
        // The message is kept: the client gets it again.
        let mut client = broker.persistent(version, "c");
        if before.is_some() {
            client.expect_ack(Kind::Pubrel, id);
            client.ack(Kind::Pubcomp, id);
        } else {
            let again = client.expect_publish();
            assert_eq!((again.id, again.dup, again.qos), (id, true, qos), "{case}");
            client.complete(&again);
        }
        client.settle();
    }
    let mut watcher = broker.client(V5, "w");
    watcher.subscribe(&[("$SYS/broker/redelivery/contradictions", 0)]);
    while watcher.expect_publish().text() != count.to_string() {}
}
// 3.1.1 section 4.3.2; 5.0 [MQTT-4.13.1-1]
versions!(an_acknowledgement_of_the_wrong_kind_ends_the_connection_and_is_counted: v31, v311, v5);

fn repeated_and_late_acknowledgements_do_no_harm(version: Version) {
    let broker = broker();
    // QoS 1: a second PUBACK, as for a resend, and what else may come late for an identifier that
    // is free.
    let (mut client, id) = receiver(&broker, version, 1);
    for kind in [Kind::Puback, Kind::Puback, Kind::Pubcomp] {
        client.ack(kind, id);
    }
    client.settle();
    client.disconnect();
    // QoS 2: PUBREC again while PUBCOMP is awaited, here and on the next connection; PUBCOMP again
    // behind the first.
    let (mut client, id) = receiver(&broker, version, 2);
    for _ in 0..2 {
        client.ack(Kind::Pubrec, id);
        client.expect_ack(Kind::Pubrel, id);
    }
    client.vanish();
    let mut client = broker.persistent(version, "c");
    client.expect_ack(Kind::Pubrel, id);
    client.ack(Kind::Pubrec, id);
    client.expect_ack(Kind::Pubrel, id);
    for _ in 0..3 {
        client.ack(Kind::Pubcomp, id);
    }
    client.settle();
}
versions!(repeated_and_late_acknowledgements_do_no_harm: v311, v5);
