//! The topics that clients may publish to and receive, by an ACL file.

use crate::support::launch::{TestBroker, start_broker};
use crate::support::{Connect, Message, Property, RawClient, V5, V311, Will};
use homing::config::{Anonymous, Config, DeniedPublish, DeniedSubscribe};
use std::fs;
use tempfile::TempDir;

/// Rules of clients whose names nobody verifies.
const RULES: &str = "\
user ann
topic homes/ann/#
topic deny homes/ann/secret
topic read $SYS/broker/version
pattern write pumps/%c/state
";

struct Setting {
    directory: TempDir,
    broker: TestBroker,
}

fn setting(configure: impl Fn(&mut Config)) -> Setting {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let file = directory.path().join("acl");
    fs::write(&file, RULES).expect("a file for the test");
    let broker = start_broker(|config| {
        config.auth.anonymous = Anonymous::Always;
        config.acl.file = file.display().to_string();
        configure(config);
    });
    Setting { directory, broker }
}

fn ann(broker: &TestBroker, client_id: &str) -> RawClient {
    broker.connect(&Connect::new(V5, client_id).user_name("ann"))
}

#[test]
fn a_filter_is_granted_guarded_or_refused() {
    let Setting { broker, .. } = setting(|_| ());
    let mut client = ann(&broker, "c");
    assert_eq!(client.subscribe(&[("homes/ann/lamp", 1), ("#", 1), ("homes/bob/#", 1)]), [1, 1, 0x87]);
    let mut old = broker.connect(&Connect::new(V311, "old").user_name("ann"));
    assert_eq!(old.subscribe(&[("homes/bob/#", 1), ("$share/g/homes/ann/#", 1)]), [0x80, 1]);
    let mut nobody = broker.client(V5, "nobody");
    assert_eq!(nobody.subscribe(&[("homes/ann/#", 0)]), [0x87]);
}

#[test]
fn a_guarded_subscription_gets_what_its_client_may_read() {
    let Setting { broker, .. } = setting(|_| ());
    let mut watcher = ann(&broker, "w");
    watcher.subscribe(&[("#", 1), ("homes/+/secret", 1)]);
    let mut publisher = ann(&broker, "p");
    assert_eq!(publisher.deliver(&Message::new("homes/ann/secret", "hidden").qos(1)), 0x87);
    let mut pump = broker.client(V5, "pump-1");
    pump.deliver(&Message::new("pumps/pump-1/state", "on").qos(1));
    publisher.deliver(&Message::new("homes/ann/lamp", "on").qos(1));
    assert_eq!(watcher.expect_publish().topic, "homes/ann/lamp", "not the state of the pump");
}

#[test]
fn retained_messages_are_checked_too() {
    let Setting { broker, .. } = setting(|_| ());
    let mut pump = broker.client(V5, "pump-1");
    pump.deliver(&Message::new("pumps/pump-1/state", "on").qos(1).retained());
    let mut publisher = ann(&broker, "p");
    publisher.deliver(&Message::new("homes/ann/lamp", "on").qos(1).retained());
    let mut watcher = ann(&broker, "w");
    watcher.subscribe(&[("#", 1)]);
    assert_eq!(watcher.expect_publish().topic, "homes/ann/lamp");
    assert!(watcher.drain().is_empty());
}

#[test]
fn a_denied_publish_is_answered_and_dropped() {
    let Setting { broker, .. } = setting(|_| ());
    let mut watcher = ann(&broker, "w");
    watcher.subscribe(&[("homes/ann/#", 1)]);
    let mut old = broker.connect(&Connect::new(V311, "old"));
    for qos in [0, 1, 2] {
        old.deliver(&Message::new("homes/ann/lamp", "on").qos(qos));
        old.deliver(&Message::new("$delayed/0/homes/ann/lamp", "on").qos(qos));
    }
    let mut new = broker.client(V5, "new");
    assert_eq!(new.deliver(&Message::new("homes/ann/lamp", "on").qos(1)), 0x87);
    assert_eq!(new.deliver(&Message::new("homes/ann/lamp", "on").qos(2)), 0x87);
    assert_eq!(new.deliver(&Message::new("$delayed/0/homes/ann/lamp", "on").qos(1)), 0x87);
    let aliased = Message::new("homes/ann/lamp", "on").qos(1).with(Property::TopicAlias(1));
    assert_eq!(new.deliver(&aliased), 0x87);
    assert_eq!(new.deliver(&Message::new("", "on").qos(1).with(Property::TopicAlias(1))), 0x87);
    assert!(watcher.drain().is_empty());
}

#[test]
fn a_denied_request_is_an_event_with_the_rule_that_denies_it() {
    let Setting { broker, .. } = setting(|config| {
        config.sys.events = true;
        let rules = fs::read_to_string(&config.acl.file).expect("the file");
        let more = "user watcher\ntopic read $homing/events/#\n";
        fs::write(&config.acl.file, rules + more).expect("the file");
    });
    let mut watcher = broker.connect(&Connect::new(V5, "watcher").user_name("watcher"));
    watcher.subscribe(&[("$homing/events/+/client", 0)]);
    let mut client = broker.connect(&Connect::new(V5, "client").user_name("ann"));
    assert_eq!(client.deliver(&Message::new("homes/ann/secret", "x").qos(1)), 0x87);
    assert_eq!(client.deliver(&Message::new("homes/ann/secret", "x").qos(2)), 0x87);
    let publish = watcher.expect_publish();
    assert_eq!(publish.topic, "$homing/events/publish_refused/client");
    let event: serde_json::Value = serde_json::from_str(publish.text()).expect("JSON");
    assert_eq!((&event["topic"], &event["user"]), (&"homes/ann/secret".into(), &"ann".into()), "{event}");
    assert!(event["why"].as_str().is_some_and(|why| why.starts_with("line 3 of ")), "{event}");
    assert_eq!(client.subscribe(&[("homes/bob/#", 1)]), [0x87]);
    let publish = watcher.expect_publish();
    assert_eq!(publish.topic, "$homing/events/subscription_refused/client");
    assert!(
        publish.text().contains("homes/bob/#") && publish.text().contains("no line of "),
        "{}",
        publish.text()
    );
}

#[test]
fn the_operator_chooses_what_denied_clients_see() {
    let Setting { broker, .. } = setting(|config| {
        config.acl.on_denied_subscribe = DeniedSubscribe::Filter;
        config.acl.on_denied_publish = DeniedPublish::Disconnect;
    });
    let mut client = broker.client(V5, "c");
    assert_eq!(client.subscribe(&[("homes/ann/#", 1)]), [1]);
    ann(&broker, "p").deliver(&Message::new("homes/ann/lamp", "on").qos(1));
    assert!(client.drain().is_empty());
    client.publish(&Message::new("homes/ann/lamp", "on").qos(1));
    client.expect_disconnected(0x87);
}

#[test]
fn a_will_that_may_not_be_published_is_refused_at_connect() {
    let Setting { broker, .. } = setting(|_| ());
    for (topic, code) in [("pumps/c/state", 0), ("pumps/d/state", 0x87)] {
        let mut client = broker.open(V5);
        client.send(&Connect::new(V5, "c").will(Will::new(topic, "gone")).encode());
        assert_eq!(client.expect_connack().code, code, "{topic}");
    }
}

#[test]
fn a_will_that_a_reload_forbids_is_not_published() {
    let Setting { broker, directory } = setting(|_| ());
    let TestBroker::InProcess(running) = &broker else { panic!("a broker in this process") };
    let mut watcher = ann(&broker, "w");
    watcher.subscribe(&[("homes/ann/#", 1)]);
    let will = |topic| Will::new(topic, "gone").qos(1);
    let connect = |name, topic| Connect::new(V5, name).user_name("ann").will(will(topic));
    let denied = broker.connect(&connect("denied", "homes/ann/lamp"));
    let allowed = broker.connect(&connect("allowed", "homes/ann/door"));
    let file = directory.path().join("acl");
    fs::write(&file, "user ann\ntopic homes/ann/#\ntopic deny homes/ann/lamp\n").expect("the file");
    running.reload().expect("a lawful file");
    let mut publisher = ann(&broker, "p");
    while publisher.deliver(&Message::new("homes/ann/lamp", "hidden").qos(1)) != 0x87 {}
    watcher.drain();
    denied.vanish();
    allowed.vanish();
    assert_eq!(watcher.expect_publish().topic, "homes/ann/door");
    assert!(watcher.drain().is_empty());
}

#[test]
fn a_shared_message_goes_to_a_member_that_may_read_it() {
    let Setting { broker, .. } = setting(|_| ());
    let mut member = broker.client(V5, "member");
    assert_eq!(member.subscribe(&[("$share/g/homes/#", 1)]), [0x87]);
    let mut reader = ann(&broker, "reader");
    reader.subscribe(&[("$share/g/homes/#", 1)]);
    let mut publisher = ann(&broker, "p");
    for n in 0..4 {
        publisher.deliver(&Message::new("homes/ann/lamp", [n]).qos(1));
    }
    assert_eq!(reader.expect_publishes(4).len(), 4);
}

#[test]
fn a_reload_holds_for_the_next_message_and_a_mistake_changes_nothing() {
    let Setting { broker, directory } = setting(|_| ());
    let TestBroker::InProcess(running) = &broker else { panic!("a broker in this process") };
    let file = directory.path().join("acl");
    let mut watcher = ann(&broker, "w");
    watcher.subscribe(&[("homes/ann/#", 1)]);
    let mut publisher = ann(&broker, "p");
    fs::write(&file, "user ann\ntopic homes/ann/#\ntopic deny homes/ann/lamp\n").expect("the file");
    let of_file =
        format!("acl (acl.file, {}) changed: rules for 1 user; no client disconnected", file.display());
    assert_eq!(running.reload(), Ok(of_file));
    while publisher.deliver(&Message::new("homes/ann/lamp", "hidden").qos(1)) != 0x87 {}
    watcher.drain();
    fs::write(&file, "user ann\ntopic read homes/ann/door\ntopic write homes/ann/#\n").expect("the file");
    running.reload().expect("a lawful file");
    while publisher.deliver(&Message::new("homes/ann/lamp", "hidden").qos(1)) == 0x87 {}
    publisher.deliver(&Message::new("homes/ann/door", "open").qos(1));
    assert_eq!(watcher.expect_publish().topic, "homes/ann/door");
    fs::write(&file, "nonsense\n").expect("the file");
    assert!(running.reload().expect_err("no rule").contains("acl:1: "));
    publisher.deliver(&Message::new("homes/ann/door", "shut").qos(1));
    assert_eq!(watcher.expect_publish().payload, b"shut");
}
