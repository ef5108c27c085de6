//! Limits of the whole broker, with four threads: each is the number that it says, wherever
//! clients' sessions live.

use crate::support::launch::{TestBroker, restart_on, start_broker, start_broker_on};
use crate::support::memory_store::Memory;
use crate::support::{Connect, Kind, Message, Property, RawClient, V5, V311};
use homing::config::{Config, Listener};
use std::time::Duration;

fn four_threads(configure: impl FnOnce(&mut Config)) -> TestBroker {
    start_broker(|config| {
        config.runtime.threads = 4;
        configure(config);
    })
}

fn connects(broker: &TestBroker, connect: &Connect) -> bool {
    let mut client = broker.open(connect.version);
    client.send(&connect.encode());
    let accepted = client.expect_connack().code == 0;
    if accepted {
        client.disconnect();
    }
    accepted
}

/// Finding 21.
#[test]
fn exactly_as_many_sessions_as_the_limit_get_in() {
    let broker = four_threads(|config| config.limits.sessions = 50);
    let persistent = |n: u32| Connect::persistent(V311, &format!("c{n}"));
    let accepted = (0..60).filter(|n| connects(&broker, &persistent(*n))).count();
    assert_eq!(accepted, 50);
    // Known clients come back, also with Clean Start. This needs no place and frees none.
    assert!(connects(&broker, &persistent(3)));
    let afresh = || persistent(4).clean(true);
    let mut first = broker.connect(&afresh());
    let mut second = broker.connect(&afresh());
    first.expect_closed();
    assert!(!connects(&broker, &persistent(60)));
    // Its session ends with its connection: one place is free.
    second.settle();
    second.disconnect();
    assert!(connects(&broker, &persistent(61)));
    assert!(!connects(&broker, &persistent(62)));
}

#[test]
fn one_client_may_delay_as_many_messages_as_the_broker_may_keep() {
    let broker = four_threads(|config| {
        config.limits.delayed_messages = 20;
        config.limits.share_per_client = 100;
    });
    let delayed = Message::new("$delayed/1000/t", "x").qos(1);
    let refused = |client: &mut RawClient| {
        let id = client.publish(&delayed);
        client.expect_ack(Kind::Puback, id).code == 0x97
    };
    let mut client = broker.client(V5, "c0");
    assert_eq!((0..25).filter(|_| !refused(&mut client)).count(), 20);
    // Others have no room either, wherever they live.
    for n in 1..8 {
        assert!(refused(&mut broker.client(V5, &format!("c{n}"))));
    }
}

#[test]
fn a_client_has_its_part_of_delayed_and_retained_messages_and_leaves_room_for_others() {
    let memory = Memory::default();
    let configure = |config: &mut Config| {
        config.runtime.threads = 4;
        config.limits.delayed_messages = 20;
        config.limits.retained_messages = 20;
        // The broker's own retained messages count against the limit of all.
        config.sys.publish_interval = Duration::ZERO;
        config.limits.share_per_client = 25;
    };
    let accepted = |client: &mut RawClient, message: &dyn Fn(usize) -> Message| {
        (0..25).filter(|n| client.deliver(&message(*n).qos(1)) < 0x80).count()
    };
    let delayed = |n: usize| Message::new(format!("$delayed/1000/{n}"), "x");
    let retained = |n: usize| Message::new(format!("t/{n}"), "x").retained();
    let broker = start_broker_on(&memory, configure);
    let mut greedy = broker.client(V5, "greedy");
    assert_eq!((accepted(&mut greedy, &delayed), accepted(&mut greedy, &retained)), (5, 5));
    assert_eq!(accepted(&mut broker.client(V5, "other"), &delayed), 5);
    // Each message has the same owner after a restart.
    let (broker, _) = restart_on(broker, &memory, configure);
    let mut greedy = broker.client(V5, "greedy");
    assert_eq!(accepted(&mut greedy, &delayed), 0);
    assert_eq!(accepted(&mut greedy, &|n| Message::new(format!("u/{n}"), "x").retained()), 0);
    assert_eq!(accepted(&mut broker.client(V5, "third"), &delayed), 5);
}

#[test]
fn the_clients_of_a_listener_have_its_part_together() {
    let broker = start_broker(|config| {
        config.limits.delayed_messages = 20;
        let address = config.network.listen.pop().expect("an address");
        config.listeners = vec![Listener { share: Some(50), ..Listener::plain(address) }];
    });
    let delayed = Message::new("$delayed/1000/t", "x").qos(1);
    let clients = (0..20).map(|n| broker.client(V5, &format!("c{n}")).deliver(&delayed));
    assert_eq!(clients.filter(|code| *code < 0x80).count(), 10);
}

#[test]
fn delayed_bytes_are_those_of_the_broker_and_come_back_when_a_message_goes_out() {
    let broker = four_threads(|config| config.limits.delayed_bytes = "10 KiB".parse().expect("a size"));
    let mut client = broker.client(V5, "c0");
    client.subscribe(&[("t", 0)]);
    let delayed = Message::new("$delayed/1/t", "x".repeat(8 * 1024)).qos(1);
    let code = |client: &mut RawClient| {
        let id = client.publish(&delayed);
        client.expect_ack(Kind::Puback, id).code
    };
    assert!(code(&mut client) < 0x80);
    assert_eq!(code(&mut broker.client(V5, "c1")), 0x97);
    client.expect_publish();
    assert!(code(&mut broker.client(V5, "c2")) < 0x80);
}

#[test]
fn last_disconnects_are_as_many_as_the_limit() {
    let broker = four_threads(|config| {
        config.sys.last_disconnects = 2;
        config.sys.publish_interval = Duration::from_millis(50);
    });
    let mut watcher = broker.client(V5, "watcher");
    watcher.subscribe(&[("$SYS/broker/clients/connected", 0)]);
    for n in 0..12 {
        let mut client =
            broker.connect(&Connect::new(V5, &format!("c{n}")).with(Property::RequestProblem(1)));
        client.settle();
        client.vanish();
    }
    while watcher.expect_publish().text() != "1" {}
    let mut reader = broker.client(V5, "reader");
    reader.subscribe(&[("$homing/clients/+/last-disconnect", 0)]);
    assert_eq!(reader.drain().len(), 2);
}
