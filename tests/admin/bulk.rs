//! Actions on many things at once, the filters and the notes of `homing ctl`, and its exit codes.

use crate::api::{Administered, json_of};
use crate::dead_letters::{connect, id, letters, park, status_of, topics};
use crate::messages::messages;
use crate::support::packet::Kind;
use crate::support::{Connect, Message, RawClient, Version, until};

/// Runs `homing ctl`, which succeeds. Returns what it prints.
fn done(broker: &Administered, arguments: &[&str]) -> String {
    let (code, text) = broker.ctl(arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {text}");
    text.trim().to_owned()
}

/// Returns the confirmation in the refusal of an action on many dead letters.
fn confirmation(broker: &Administered, arguments: &[&str], count: usize) -> String {
    let (code, text) = broker.ctl(arguments);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&format!("nothing is done yet: {count} dead letters")), "{text}");
    text.trim().rsplit(' ').next().expect("a word").to_owned()
}

#[test]
fn a_purge_drops_the_queue_and_leaves_what_is_in_flight() {
    let broker = Administered::start_with(&["--ephemeral", "--set", "limits.in_flight=1"]);
    let mut pump = broker.stuck_client("pump");
    broker.publish("pumps/7/set", &["1", "2", "3"], 1);
    let path = "/api/v1/clients/pump/queue";
    assert_eq!(status_of(&broker, "DELETE", path, &broker.viewer).0, 403);
    assert_eq!(done(&broker, &["purge", "pump", "--note", "replaced"]), "3 messages were dropped");
    assert_eq!(messages(&broker, "queue", "pump").len(), 0);
    assert_eq!(messages(&broker, "inflight", "pump").len(), 1);
    let line = "homing_messages_dropped_total{cause=\"skipped\",receiver=\"connected\"} 3\n";
    until("the drops", || broker.ask("GET", "/metrics", &broker.viewer).1.contains(line).then_some(()));
    let audit = done(&broker, &["audit"]);
    assert!(
        audit.contains("purge") && audit.contains("done 3") && audit.contains("note=replaced"),
        "{audit}"
    );
    // The client goes on.
    pump.ack(Kind::Puback, 1);
    broker.publish("pumps/7/set", &["4"], 1);
    assert_eq!(pump.expect_publish().payload, b"4");
    assert_eq!(status_of(&broker, "DELETE", "/api/v1/clients/no/queue", &broker.operator).0, 404);
}

#[test]
fn many_dead_letters_are_deleted_with_a_confirmation_and_newer_ones_stay() {
    let broker = Administered::start();
    park(&broker, "pump", &["1", "2"]);
    park(&broker, "fan", &["3"]);
    for (method, path) in [("DELETE", ""), ("POST", "/republish")] {
        let path = format!("/api/v1/dead-letters{path}?all=true");
        assert_eq!(status_of(&broker, method, &path, &broker.viewer).0, 403);
    }
    let pump = ["dead-letters", "delete", "--receiver", "pump", "--cause", "parked"];
    let confirm = confirmation(&broker, &pump, 2);
    assert_eq!(letters(&broker, &[]).len(), 3, "nothing is done yet");
    park(&broker, "pump", &["4"]);
    let confirmed = [&pump[..], &["--confirm", &confirm, "--note", "useless"]].concat();
    assert_eq!(done(&broker, &confirmed), "2 dead letters are deleted");
    assert_eq!(topics(&letters(&broker, &[])), ["pumps/4", "pumps/3"]);
    let audit = done(&broker, &["audit"]);
    let line = audit.lines().find(|line| line.contains("delete_dead_letters")).expect("a line");
    for words in ["cause=parked, receiver=pump", "done 2", "note=useless"] {
        assert!(line.contains(words), "{line}");
    }
    let (code, text) = broker.ctl(&["dead-letters", "delete", "--all", "--confirm", "no"]);
    assert!(code == Some(2) && text.contains("confirm"), "{text}");
    assert_eq!(broker.ctl(&["dead-letters", "delete"]).0, Some(2), "nothing is named");
}

#[test]
fn many_messages_are_published_again_in_their_order_and_the_refused_ones_are_counted() {
    let broker = Administered::start();
    park(&broker, "gone", &["4"]);
    park(&broker, "pump", &["1", "2", "3"]);
    assert_eq!(broker.ctl(&["end", "gone"]).0, Some(0));
    let all = ["dead-letters", "republish", "--all"];
    let confirm = confirmation(&broker, &all, 4);
    let text = done(&broker, &[&all[..], &["--confirm", &confirm]].concat());
    assert_eq!(
        text,
        "3 dead letters are published again; 1 stay, the first because the receiver has no session any more"
    );
    let mut pump = connect(&broker, "pump");
    for expected in ["1", "2", "3"] {
        assert_eq!(pump.expect_publish().payload, expected.as_bytes());
    }
    assert_eq!(topics(&letters(&broker, &[])), ["pumps/4"]);
    assert!(id(&letters(&broker, &[])[0]).contains('-'));
}

#[test]
fn all_clients_of_a_prefix_a_user_or_a_listener_are_disconnected_and_no_other() {
    let broker = Administered::start();
    let named = |user: &str, client_id: &str| {
        let connect = Connect { user_name: Some(user.into()), ..Connect::persistent(Version::V5, client_id) };
        RawClient::connect(broker.mqtt, &connect)
    };
    let (mut one, mut two, mut three) = (named("ann", "a-1"), named("ann", "a-2"), named("bob", "b-1"));
    let path = "/api/v1/connections?prefix=a-";
    assert_eq!(status_of(&broker, "DELETE", path, &broker.viewer).0, 403);
    let both = ["disconnect", "--prefix", "a-2", "--user", "ann", "--note", "test"];
    assert_eq!(done(&broker, &both), "1 clients were disconnected");
    two.expect_disconnected(0x98);
    assert_eq!(done(&broker, &["disconnect", "--user", "ann"]), "1 clients were disconnected");
    one.expect_disconnected(0x98);
    three.settle();
    let listener = broker.mqtt.to_string();
    assert_eq!(done(&broker, &["disconnect", "--listener", &listener]), "1 clients were disconnected");
    three.expect_disconnected(0x98);
    let audit = done(&broker, &["audit"]);
    assert!(audit.contains("user=ann, prefix=a-2") && audit.contains("note=test"), "{audit}");
    assert_eq!(status_of(&broker, "DELETE", "/api/v1/connections", &broker.operator).0, 400);
    for wrong in [&["disconnect"][..], &["disconnect", "a-1", "--user", "ann"]] {
        assert_eq!(broker.ctl(wrong).0, Some(2), "{wrong:?}");
    }
}

#[test]
fn the_listing_of_clients_has_each_filter_of_the_interface() {
    let broker = Administered::start_with(&["--ephemeral", "--set", "limits.in_flight=1"]);
    let _pump = broker.stuck_client("pump");
    broker.publish("pumps/7/set", &["1", "2"], 1);
    let connect = Connect { user_name: Some("ann".into()), ..Connect::new(Version::V311, "fan") };
    let _fan = RawClient::connect(broker.mqtt, &connect);
    let listener = broker.mqtt.to_string();
    let listed = |flags: &[&str]| -> Vec<String> {
        let rows = done(&broker, &[&["--json", "clients"], flags].concat());
        let rows: Vec<serde_json::Value> = serde_json::from_str(&rows).expect("a list");
        let names = rows.iter().map(|row| row["client_id"].as_str().expect("a name").to_owned());
        let mut names: Vec<_> = names.filter(|name| name == "pump" || name == "fan").collect();
        names.sort();
        names
    };
    assert_eq!(listed(&["--listener", &listener]), ["fan", "pump"]);
    for (flags, name) in [
        (["--user", "ann"], "fan"),
        (["--version", "3.1.1"], "fan"),
        (["--prefix", "pu"], "pump"),
        (["--cause", "application"], "pump"),
        (["--min-queued", "2"], "pump"),
        (["--min-queued-bytes", "2"], "pump"),
        (["--min-in-flight", "1"], "pump"),
    ] {
        assert_eq!(listed(&flags), [name], "{flags:?}");
    }
    assert_eq!(listed(&["--state", "away"]), [""; 0]);
}

#[test]
fn each_action_takes_a_note_for_the_audit_log() {
    let broker = Administered::start_with(&["--ephemeral", "--set", "limits.in_flight=1"]);
    let _pump = broker.stuck_client("pump");
    broker.publish("pumps/7/set", &["1"], 1);
    let mut publisher = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    publisher.deliver(&Message::new("lamps/1", "on").qos(1).retained());
    publisher.deliver(&Message::new("$delayed/30/lamps/2", "on").qos(1));
    let (_, answer) = broker.ask("GET", "/api/v1/delayed", &broker.viewer);
    let delayed = json_of(&answer)["delayed"][0]["id"].as_str().expect("an id").to_owned();
    let actions: [(&str, &[&str]); 8] = [
        ("redeliver", &["redeliver", "pump"]),
        ("purge", &["purge", "pump"]),
        ("disconnect", &["disconnect", "--prefix", "pump"]),
        ("end", &["end", "pump"]),
        ("delete_retained", &["retained", "--delete", "lamps/1"]),
        ("delete_delayed", &["delayed", "--delete", &delayed]),
        ("log_level", &["log-level", "info"]),
        ("reload", &["reload"]),
    ];
    for (name, action) in actions {
        let note = format!("why {name}");
        done(&broker, &[action, &["--note", &note]].concat());
        let audit = done(&broker, &["audit"]);
        let line = audit.lines().nth(1).expect("the newest action");
        assert!(line.contains(name) && line.contains(&format!("note={note}")), "{name}: {line}");
    }
}

#[test]
fn a_word_or_a_name_that_does_not_exist_is_exit_code_2() {
    let broker = Administered::start();
    for arguments in [
        &["no-such-command"][..],
        &["clients", "--state", "gone"],
        &["clients", "--stuck", "soon"],
        &["clients", "--version", "6"],
        &["disconnect", "--listener", "nowhere"],
        &["top", "--by", "age"],
        &["dead-letters", "list", "--cause", "age"],
        &["dead-letters", "republish", "--all", "--to", "nobody"],
        &["log-level", "=loud"],
        &["client", "nobody"],
        &["queue", "nobody"],
        &["redeliver", "nobody"],
        &["redeliver", "nobody", "--by", "pigeon"],
        &["purge", "nobody"],
        &["disconnect", "nobody"],
        &["end", "nobody"],
        &["skip", "nobody", "e1"],
        &["dead-letters", "show", "1-1"],
        &["dead-letters", "delete", "1-1"],
        &["delayed", "--delete", "1-1-1-1"],
        &["retained", "--delete", "no/topic"],
        &["subscriptions", "--client", "nobody"],
    ] {
        let (code, text) = broker.ctl(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {text}");
    }
}
