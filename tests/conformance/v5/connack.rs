//! 3.2.2: what CONNACK says, and what it leaves out.

use super::cases;
use super::stage::{Stage, find};
use crate::support::{Connect, Packet, Property, RawClient};

cases! {
    clean_start_is_answered_with_no_session: ["MQTT-3.2.2-2"],
    session_present_tells_of_state_on_file: ["MQTT-3.2.2-3"],
    refusal_never_shows_a_session: ["MQTT-3.2.2-6"],
    refusal_is_followed_by_closing: ["MQTT-3.2.2-7"],
    connack_codes_are_from_its_table: ["MQTT-3.2.2-8"],
    response_information_comes_only_where_asked_for: ["MQTT-3.1.2-28"],
    no_authentication_method_where_none_was_named: ["MQTT-4.12.0-6"],
    connack_properties_are_in_range: [],
    session_expiry_granted_is_in_connack_if_it_is_not_what_was_requested: [],
}

fn has(client: &RawClient, id: u8) -> bool {
    client.connack().properties.iter().any(|property| property.id() == id)
}

fn clean_start_is_answered_with_no_session(stage: &Stage) {
    stage.connect(&stage.lasting("c")).disconnect();
    // On file, and in use.
    for _ in 0..2 {
        let mut client = stage.connect(&stage.lasting("c").clean(true));
        assert_eq!((client.connack().code, client.session_present()), (0, false));
        client.settle();
    }
}

fn session_present_tells_of_state_on_file(stage: &Stage) {
    let mut client = stage.connect(&stage.lasting("c"));
    assert_eq!((client.connack().code, client.session_present()), (0, false));
    client.settle();
    client.disconnect();
    let mut client = stage.connect(&stage.lasting("c"));
    assert_eq!((client.connack().code, client.session_present()), (0, true));
    client.settle();
}

/// All that this broker refuses with a CONNACK, although a session of that client id is on file.
fn refusals(stage: &Stage) -> Vec<Connect> {
    stage.connect(&stage.lasting("c")).disconnect();
    assert!(stage.connect(&stage.lasting("c")).session_present());
    vec![
        stage.lasting("c").with(Property::AuthenticationMethod("none-such".to_owned())),
        stage.lasting("c").will(stage.will("+", "")),
        stage.lasting("c").with(Property::ReceiveMaximum(0)),
        stage.lasting("c").with(Property::RequestProblem(2)),
        Connect { client_id: b"\xFF".to_vec(), ..stage.lasting("c") },
    ]
}

/// The answers to them, of which at least one is a CONNACK.
fn answers(stage: &Stage) -> Vec<Vec<Packet>> {
    let mut answers = Vec::new();
    for connect in refusals(stage) {
        let mut client = stage.open();
        client.send(&connect.encode());
        answers.push(client.read_to_end());
    }
    assert!(answers.iter().any(|answer| !answer.is_empty()), "no refusal is ever explained");
    answers
}

fn refusal_never_shows_a_session(stage: &Stage) {
    for packet in answers(stage).into_iter().flatten() {
        let Packet::Connack(connack) = packet else { panic!("{packet:?}") };
        assert!(connack.code != 0 && !connack.session_present, "{connack:?}");
    }
}

/// Each answer was read until the close.
fn refusal_is_followed_by_closing(stage: &Stage) {
    for answer in answers(stage) {
        assert!(answer.len() <= 1, "{answer:?}");
    }
}

fn connack_codes_are_from_its_table(stage: &Stage) {
    let lawful = super::table::codes_of("CONNACK");
    assert_eq!(stage.client("control").connack().code, 0);
    for packet in answers(stage).into_iter().flatten() {
        let Packet::Connack(connack) = packet else { panic!("{packet:?}") };
        assert!(connack.code >= 0x80 && lawful.contains(&connack.code), "{connack:?}");
    }
}

fn response_information_comes_only_where_asked_for(stage: &Stage) {
    assert!(!has(&stage.client("c"), 0x1A));
    assert!(!has(&stage.served(&stage.passing("c").with(Property::RequestResponse(0))), 0x1A));
    // Optional even then.
    stage.served(&stage.passing("c").with(Property::RequestResponse(1))).disconnect();
}

fn no_authentication_method_where_none_was_named(stage: &Stage) {
    // Nothing but PINGRESP, so no AUTH.
    let mut client = stage.client("c");
    client.settle();
    assert!(!has(&client, 0x15) && !has(&client, 0x16), "{:?}", client.connack());
}

/// The values of CONNACK hold for the whole connection, so a client must be able to keep to them.
fn connack_properties_are_in_range(stage: &Stage) {
    let client = stage.client("c");
    for property in &client.connack().properties {
        let fine = match property {
            Property::ReceiveMaximum(value) => *value > 0,
            Property::MaximumPacketSize(value) => *value > 0,
            Property::MaximumQos(value)
            | Property::RetainAvailable(value)
            | Property::WildcardAvailable(value)
            | Property::SubscriptionIdsAvailable(value)
            | Property::SharedAvailable(value) => *value <= 1,
            _ => true,
        };
        assert!(fine, "{property:?}");
    }
}

fn session_expiry_granted_is_in_connack_if_it_is_not_what_was_requested(stage: &Stage) {
    let broker = stage.configured(|config| config.limits.session_expiry = std::time::Duration::from_secs(50));
    let stage = &Stage::of(&broker);
    let granted = |asked: u32| {
        let client = stage.served(&stage.passing("c").with(Property::SessionExpiry(asked)));
        find(
            &client.connack().properties,
            |p| if let Property::SessionExpiry(s) = p { Some(*s) } else { None },
        )
    };
    assert_eq!(granted(51), Some(50));
    assert_eq!(granted(u32::MAX), Some(50));
    assert!(matches!(granted(50), None | Some(50)));
    assert!(matches!(granted(0), None | Some(0)));
}
