//! `mount_point` of a listener: the topics of its clients have a prefix that they do not see.

use crate::support::launch::{TestBroker, restart_on, start_broker, start_broker_on, versions};
use crate::support::memory_store::Memory;
use crate::support::{Connect, Kind, Message, Property, RawClient, V5, V311, Version, Will};
use homing::config::{ByteSize, Config, Listener, ListenerAddress};
use homing::session::drops::DropReason;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

/// A listener without a mount point.
const PLAIN: usize = 0;
const TENANT_A: usize = 1;
const TENANT_B: usize = 2;

fn tenants(config: &mut Config) {
    config.listeners = ["a/", "b/deep/"]
        .map(|mount_point| Listener {
            address: Some(ListenerAddress::Ip(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))),
            mount_point: Some(mount_point.to_owned()),
            ..Listener::default()
        })
        .into();
}

/// Opens a connection at a listener.
fn open(broker: &TestBroker, listener: usize, version: Version) -> RawClient {
    let TestBroker::InProcess(broker) = broker else { panic!("several listeners need a configuration") };
    RawClient::open(broker.addresses()[listener], version)
}

/// Connects at a listener.
fn enter(broker: &TestBroker, listener: usize, connect: &Connect) -> RawClient {
    open(broker, listener, connect.version).accepted(connect)
}

/// Connects a client whose session ends with its connection.
fn client(broker: &TestBroker, listener: usize, version: Version, client_id: &str) -> RawClient {
    enter(broker, listener, &Connect::new(version, client_id))
}

/// Returns the topics of what came.
fn topics(client: &mut RawClient) -> Vec<String> {
    client.drain().into_iter().map(|publish| publish.topic).collect()
}

fn clients_see_their_own_topics_without_the_prefix(version: Version) {
    for qos in [0, 1, 2] {
        let broker = start_broker(tenants);
        let mut own = client(&broker, TENANT_A, version, "own");
        assert_eq!(own.subscribe(&[("t/+", qos)]), [qos]);
        let mut other = client(&broker, TENANT_B, version, "other");
        other.subscribe(&[("#", qos), ("+/#", qos), ("a/#", qos)]);
        let mut operator = client(&broker, PLAIN, version, "operator");
        operator.subscribe(&[("#", qos)]);
        let mut publisher = client(&broker, TENANT_A, version, "publisher");
        publisher.deliver(&Message::new("t/1", "from a").qos(qos));
        // What QoS 0 has done is known by an answer.
        publisher.ping();
        publisher.wait_for(Kind::Pingresp);
        operator.deliver(&Message::new("a/t/2", "from the operator").qos(qos.max(1)));
        for (topic, text) in [("t/1", "from a"), ("t/2", "from the operator")] {
            let publish = own.expect_publish();
            assert_eq!((publish.topic.as_str(), publish.text()), (topic, text));
            own.complete(&publish);
        }
        own.settle();
        assert_eq!(topics(&mut operator), ["a/t/1", "a/t/2"]);
        other.settle();
        own.unsubscribe(&["t/+"]);
        publisher.deliver(&Message::new("t/3", "").qos(qos.max(1)));
        own.settle();
    }
}
versions!(clients_see_their_own_topics_without_the_prefix: v311, v5);

fn wildcards_reach_no_topics_outside(version: Version) {
    let broker = start_broker(tenants);
    let mut subscriber = client(&broker, TENANT_B, version, "subscriber");
    subscriber.subscribe(&[("#", 1)]);
    let mut levels = client(&broker, TENANT_B, version, "levels");
    levels.subscribe(&[("+/#", 1), ("+/+", 0)]);
    let mut operator = client(&broker, PLAIN, version, "operator");
    for topic in ["x", "b/x", "b/deep", "b/deep/", "b/deeper/x", "a/b/deep/x", "b/deep/x/y", "b/deep/$x"] {
        operator.deliver(&Message::new(topic, "").qos(1));
    }
    // `$x` would look like a topic of the broker.
    assert_eq!(topics(&mut subscriber), ["x/y"]);
    assert_eq!(topics(&mut levels).first().map(String::as_str), Some("x/y"));
}
versions!(wildcards_reach_no_topics_outside: v311, v5);

fn retained_messages_and_wills_are_below_the_mount_point(version: Version) {
    let broker = start_broker(tenants);
    let mut publisher = client(&broker, TENANT_A, version, "publisher");
    publisher.deliver(&Message::new("kept", "a").qos(1).retained());
    let will = Will::new("gone", "will of a").qos(1).retained();
    let dying = enter(&broker, TENANT_A, &Connect::new(version, "dying").will(will));
    let mut watcher = client(&broker, TENANT_A, version, "watcher");
    watcher.subscribe(&[("gone", 1)]);
    dying.vanish();
    let publish = watcher.expect_publish();
    assert_eq!((publish.topic.as_str(), publish.text()), ("gone", "will of a"));
    for (listener, expected) in
        [(TENANT_A, vec!["gone", "kept"]), (TENANT_B, vec![]), (PLAIN, vec!["a/gone", "a/kept"])]
    {
        let mut subscriber = client(&broker, listener, version, "subscriber");
        subscriber.subscribe(&[("#", 1)]);
        let mut came = topics(&mut subscriber);
        came.sort();
        assert_eq!(came, expected);
    }
    // The retained message of another tenant is another one.
    let mut other = client(&broker, TENANT_B, version, "other");
    other.deliver(&Message::new("kept", "").qos(1).retained());
    let mut subscriber = client(&broker, TENANT_A, version, "again");
    subscriber.subscribe(&[("kept", 1)]);
    assert_eq!(topics(&mut subscriber), ["kept"]);
}
versions!(retained_messages_and_wills_are_below_the_mount_point: v311, v5);

fn a_shared_subscription_has_its_members_in_one_tenant(version: Version) {
    let broker = start_broker(tenants);
    let mut own = client(&broker, TENANT_A, version, "own");
    assert_eq!(own.subscribe(&[("$share/g/t/+", 1), ("$share/g", 1)])[0], 1);
    let mut other = client(&broker, TENANT_B, version, "other");
    other.subscribe(&[("$share/g/t/+", 1), ("$share/g/#", 1)]);
    let mut publisher = client(&broker, TENANT_A, version, "publisher");
    for number in 0..4 {
        publisher.deliver(&Message::new(format!("t/{number}"), "").qos(1));
    }
    assert_eq!(topics(&mut own), ["t/0", "t/1", "t/2", "t/3"]);
    other.settle();
    // A member without a mount point names the filter in full.
    let mut operator = client(&broker, PLAIN, version, "operator");
    operator.subscribe(&[("$share/g/a/t/+", 1)]);
    for number in 0..4 {
        publisher.deliver(&Message::new(format!("t/{number}"), "").qos(1));
    }
    let (own, operator) = (topics(&mut own), topics(&mut operator));
    assert_eq!((own.len(), operator.len()), (2, 2));
    assert!(operator.iter().all(|topic| topic.starts_with("a/t/")), "{operator:?}");
}
versions!(a_shared_subscription_has_its_members_in_one_tenant: v311, v5);

#[test]
fn topic_aliases_stand_for_the_names_of_the_client() {
    let broker = start_broker(tenants);
    let connect = Connect::new(V5, "own").with(Property::TopicAliasMaximum(2));
    let mut own = enter(&broker, TENANT_A, &connect);
    own.subscribe_with(&[Property::SubscriptionId(7)], &[("#", 1)]);
    let mut publisher = client(&broker, TENANT_A, V5, "publisher");
    let aliased = |topic: &str, alias| Message::new(topic, "").qos(1).with(Property::TopicAlias(alias));
    for (topic, code) in [("long", 0), ("", 0), ("$own/x", 0x87), ("", 0x87), ("long", 0)] {
        assert_eq!(publisher.deliver(&aliased(topic, 1)), code, "{topic}");
    }
    let came = own.expect_publishes(3);
    let named: Vec<_> = came.iter().map(|publish| publish.topic.as_str()).collect();
    // The broker sets an alias for the topic at its first message.
    assert_eq!(named, ["long", "", ""]);
    assert!(came.iter().all(|publish| publish.properties.contains(&Property::TopicAlias(1))), "{came:?}");
    assert!(came.iter().all(|publish| publish.subscription_ids() == [7]));
}

/// The limit is that of the packet that the client gets, without the prefix.
#[test]
fn maximum_packet_size_counts_without_the_prefix() {
    let broker = start_broker(tenants);
    let connect = Connect::new(V5, "own").with(Property::MaximumPacketSize(40));
    let mut own = enter(&broker, TENANT_B, &connect);
    own.subscribe(&[("#", 1)]);
    let mut operator = client(&broker, PLAIN, V5, "operator");
    // Two bytes of header, two of the length of the topic, two of the identifier, one of properties.
    for (payload, comes) in [(33 - "t".len(), true), (33, false)] {
        operator.deliver(&Message::new("b/deep/t", vec![7; payload]).qos(1));
        assert_eq!(own.drain().len(), usize::from(comes), "{payload}");
    }
}

fn topics_of_the_broker_stay_out_of_reach(version: Version) {
    let broker = start_broker(|config| {
        tenants(config);
        config.sys.events = true;
    });
    let mut own = client(&broker, TENANT_A, version, "own");
    // Granted, as by mosquitto, and nothing comes.
    let filters = ["$SYS/#", "$dead/#", "$delayed/#", "$homing/#", "$homing/clients/#", "$homing/events/#"];
    assert_eq!(own.subscribe(&filters.map(|filter| (filter, 1))), [1; 6]);
    own.subscribe(&[("#", 1)]);
    let mut operator = client(&broker, PLAIN, version, "operator");
    operator.subscribe(&[("#", 1), ("$own/#", 1)]);
    let refused = if version == V5 { 0x87 } else { 0 };
    for topic in ["$SYS/x", "$dead/own/x", "$share/g/x", "$own/x", "$homing/events/x"] {
        assert_eq!(own.deliver(&Message::new(topic, "").qos(1)), refused, "{topic}");
    }
    for topic in ["$delayed/0/$own/x", "$delayed/0/", "$delayed/x"] {
        let code = own.deliver(&Message::new(topic, "").qos(1));
        assert_eq!(code, if version == V5 { 0x90 } else { 0 }, "{topic}");
    }
    own.settle();
    own.deliver(&Message::new("$delayed/0/later", "").qos(1));
    assert_eq!(operator.expect_publish().topic, "a/later");
    assert_eq!(own.expect_publish().topic, "later");
}
versions!(topics_of_the_broker_stay_out_of_reach: v311, v5);

#[test]
fn redelivery_requests_and_the_granted_time_are_the_clients_own() {
    let broker = start_broker(tenants);
    let mut own = client(&broker, TENANT_A, V5, "own");
    let asked = Message::new("$homing/session/ack-timeout", "42s").qos(1);
    assert_eq!(own.deliver(&asked), 0);
    assert_eq!(own.subscribe(&[("$homing/session/granted", 1)]), [1]);
    let granted = own.expect_publish();
    assert_eq!((granted.topic.as_str(), granted.text()), ("$homing/session/granted", "ack-timeout=42s"));
    assert_eq!(own.unsubscribe(&["$homing/session/granted"]), [0]);
}

#[test]
fn a_will_that_the_mount_point_does_not_allow_is_refused() {
    let broker = start_broker(|config| {
        tenants(config);
        config.limits.connect_size = ByteSize::mib(1);
    });
    for (version, code) in [(V311, 5), (V5, 0x87)] {
        for topic in ["$own/x".to_owned(), "x".repeat(65_535)] {
            let mut refused = open(&broker, TENANT_A, version);
            refused.send(&Connect::new(version, "c").will(Will::new(topic, "")).encode());
            assert_eq!(refused.expect_connack().code, code);
        }
    }
}

#[test]
fn rules_about_topics_name_them_in_full() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("acl");
    fs::write(&file, "topic a/open/#\npattern write a/%c/state\n").expect("a file");
    let broker = start_broker(|config| {
        tenants(config);
        config.acl.file = file.display().to_string();
    });
    let mut own = client(&broker, TENANT_A, V5, "own");
    assert_eq!(own.subscribe(&[("open/#", 1), ("closed", 1), ("a/open/x", 1), ("#", 1)]), [1, 0x87, 0x87, 1]);
    for (topic, is_allowed) in
        [("open/x", true), ("own/state", true), ("other/state", false), ("a/open/x", false)]
    {
        assert_eq!(own.deliver(&Message::new(topic, "").qos(1)) < 0x80, is_allowed, "{topic}");
    }
    assert!(topics(&mut own).iter().all(|topic| topic == "open/x"));
}

fn a_session_is_below_its_mount_point_after_a_restart(version: Version) {
    let memory = Memory::default();
    let broker = start_broker_on(&memory, tenants);
    let will = Will::new("gone", "");
    let connect = Connect::persistent(version, "own");
    let mut own = enter(&broker, TENANT_A, &connect.clone().will(will));
    own.subscribe(&[("t/#", 1), ("$share/g/s", 1)]);
    let mut operator = client(&broker, PLAIN, version, "operator");
    operator.deliver(&Message::new("a/t/sent", "").qos(1));
    assert_eq!(own.expect_publish().topic, "t/sent");
    own.disconnect();
    operator.deliver(&Message::new("a/t/waits", "").qos(1));
    let (broker, _memory) = restart_on(broker, &memory, tenants);
    let mut own = enter(&broker, TENANT_A, &connect);
    assert!(own.session_present());
    let came: Vec<_> = own.expect_publishes(2).into_iter().map(|publish| publish.topic).collect();
    assert_eq!(came, ["t/sent", "t/waits"]);
    let mut publisher = client(&broker, TENANT_A, version, "publisher");
    publisher.deliver(&Message::new("t/new", "").qos(1));
    publisher.deliver(&Message::new("s", "").qos(1));
    assert_eq!(topics(&mut own), ["t/new", "s"]);
}
versions!(a_session_is_below_its_mount_point_after_a_restart: v311, v5);

#[test]
fn a_client_id_that_is_in_use_behind_another_mount_point_is_refused() {
    let broker = start_broker(tenants);
    for version in [V311, V5] {
        let mut own = client(&broker, TENANT_A, version, "c");
        for listener in [PLAIN, TENANT_B] {
            let mut other = open(&broker, listener, version);
            other.send(&Connect::new(version, "c").encode());
            assert_eq!(other.expect_connack().code, if version == V5 { 0x85 } else { 2 });
        }
        own.settle();
        // The same mount point takes over, as everywhere.
        let _next = client(&broker, TENANT_A, version, "c");
        own.expect_disconnected(0x8E);
    }
}

#[test]
fn a_session_with_subscriptions_outside_the_mount_point_is_not_resumed() {
    let broker = start_broker(tenants);
    for version in [V311, V5] {
        let connect = Connect::persistent(version, &format!("{version:?}"));
        let mut own = enter(&broker, TENANT_A, &connect);
        own.subscribe(&[("t", 1)]);
        own.disconnect();
        let mut operator = client(&broker, PLAIN, version, "operator");
        operator.deliver(&Message::new("a/t", "waits for a client of a").qos(1));
        let mut other = enter(&broker, TENANT_B, &connect);
        assert!(!other.session_present(), "the session of another tenant has ended");
        operator.deliver(&Message::new("a/t", "").qos(1));
        other.settle();
    }
}

#[test]
fn a_session_without_subscriptions_is_not_resumed_behind_another_mount_point() {
    let broker = start_broker(tenants);
    for version in [V311, V5] {
        let connect = Connect::persistent(version, &format!("{version:?}")).clean(false);
        let begin = Message::new("t", "of a").qos(2);
        let mut own = enter(&broker, TENANT_A, &connect);
        let begun = own.publish(&begin);
        own.expect_ack(Kind::Pubrec, begun);
        own.vanish();
        let own = enter(&broker, TENANT_A, &connect);
        assert!(own.session_present());
        own.vanish();
        let mut watcher = client(&broker, TENANT_B, version, "watcher");
        watcher.subscribe(&[("t", 1)]);
        let mut other = enter(&broker, TENANT_B, &connect);
        assert!(!other.session_present(), "the session of another tenant has ended");
        // In the session of the other tenant, this message would have been a repetition.
        assert_eq!(other.publish(&begin), begun);
        other.expect_ack(Kind::Pubrec, begun);
        assert_eq!(watcher.expect_publish().text(), "of a");
    }
}

#[test]
fn a_session_whose_only_filter_is_the_same_for_all_belongs_to_its_mount_point() {
    let broker = start_broker(tenants);
    for version in [V311, V5] {
        for (client_id, other) in [("b", TENANT_B), ("plain", PLAIN)] {
            let connect = Connect::persistent(version, &format!("{version:?}{client_id}")).clean(false);
            let mut own = enter(&broker, TENANT_A, &connect);
            own.subscribe(&[("$homing/session/granted", 1)]);
            own.vanish();
            let other = enter(&broker, other, &connect);
            assert!(!other.session_present(), "{client_id}: the session of another tenant has ended");
        }
    }
}

#[test]
fn a_session_without_filters_belongs_to_its_mount_point_after_a_restart() {
    let memory = Memory::default();
    let broker = start_broker_on(&memory, tenants);
    let cases: Vec<_> =
        [V311, V5].into_iter().flat_map(|version| [0, 1].map(|filters| (version, filters))).collect();
    let connect = |version, filters: usize, end: &str| {
        Connect::persistent(version, &format!("{version:?}{filters}{end}")).clean(false)
    };
    for &(version, filters) in &cases {
        for end in ["own", "tenant", "plain"] {
            let mut own = enter(&broker, TENANT_A, &connect(version, filters, end));
            if filters > 0 {
                own.subscribe(&[("$homing/session/granted", 1)]);
            }
            own.vanish();
        }
    }
    let (broker, _memory) = restart_on(broker, &memory, tenants);
    for (version, filters) in cases {
        for (end, listener, resumes) in
            [("own", TENANT_A, true), ("tenant", TENANT_B, false), ("plain", PLAIN, false)]
        {
            let client = enter(&broker, listener, &connect(version, filters, end));
            assert_eq!(client.session_present(), resumes, "{end} {version:?}, {filters} filters");
        }
    }
}

#[test]
fn a_session_that_began_without_a_mount_point_is_not_resumed_behind_one() {
    let broker = start_broker(tenants);
    for version in [V311, V5] {
        let connect = Connect::persistent(version, &format!("{version:?}")).clean(false);
        enter(&broker, PLAIN, &connect).vanish();
        let behind_one = enter(&broker, TENANT_A, &connect);
        assert!(!behind_one.session_present());
    }
}

/// Messages may be left of a session whose subscriptions are gone.
#[test]
fn a_message_from_outside_the_mount_point_is_dropped_and_counted() {
    let configure = |config: &mut Config| {
        tenants(config);
        config.redelivery.dead_letters = [DropReason::NotAuthorized].into_iter().collect();
    };
    let clients = [(1, 1), (1, 9), (2, 1), (2, 9)].map(|(qos, window)| {
        let connect = Connect::persistent(V5, &format!("c{qos}{window}"));
        (qos, connect.with(Property::ReceiveMaximum(window)), format!("$dead/c{qos}{window}/x/t"))
    });
    let memory = Memory::default();
    let broker = start_broker_on(&memory, configure);
    let mut operator = client(&broker, PLAIN, V5, "operator");
    for (qos, connect, _) in &clients {
        let mut own = enter(&broker, PLAIN, connect);
        own.subscribe(&[("+/t", *qos)]);
        for (topic, text) in [("a/t", "first"), ("x/t", "outside"), ("a/t", "last")] {
            operator.deliver(&Message::new(topic, text).qos(*qos));
        }
        own.expect_publish();
        own.unsubscribe(&["+/t"]);
        own.disconnect();
    }
    // After a restart it is not known that the clients came without a mount point.
    let (broker, _memory) = restart_on(broker, &memory, configure);
    let mut operator = client(&broker, PLAIN, V5, "operator");
    operator.subscribe(&[("$dead/#", 0)]);
    for (_, connect, letter) in clients {
        let mut own = enter(&broker, TENANT_A, &connect);
        assert!(own.session_present());
        for text in ["first", "last"] {
            let publish = own.expect_publish();
            assert_eq!((publish.topic.as_str(), publish.text()), ("t", text), "{letter}");
            own.complete(&publish);
        }
        own.settle();
        assert_eq!(operator.expect_publish().topic, letter);
    }
}
