//! A new broker on what a killed one left: sessions, subscriptions, retained messages, wills, and
//! the time between.

use super::{Stored, on_stored_brokers};
use crate::support::client::subscribe_packet;
use crate::support::memory_store::Image;
use crate::support::{Connect, Kind, Message, Property, RawClient, V5, V311, Will};
use std::time::Duration;

/// Before and after the crash, so that sessions move between shards too.
const THREADS: [(u8, u8); 4] = [(1, 1), (3, 3), (1, 3), (3, 1)];

/// Runs `before` on a broker, and `after` on a new broker that starts, so much later, on its image.
fn restart(later: Duration, before: impl Fn(&Stored), after: impl Fn(&Stored)) {
    for (first, second) in THREADS {
        println!("{first}, then {second} threads");
        let image = left_by(first, &before);
        after(&Stored::after_a_crash(image, second, later));
    }
}

fn left_by(threads: u8, before: impl Fn(&Stored)) -> Image {
    let stored = Stored::new(threads);
    before(&stored);
    stored.image()
}

fn message(text: &str, qos: u8) -> Message {
    Message::new("t", text).qos(qos)
}

fn publisher(stored: &Stored) -> RawClient {
    stored.client(V5, "publisher")
}

#[test]
fn a_session_and_its_subscriptions_are_there_and_what_was_unsubscribed_is_not() {
    restart(
        Duration::ZERO,
        |stored| {
            for version in [V311, V5] {
                let mut client = stored.persistent(version, &format!("{version:?}"));
                client.subscribe(&[("t", 1), ("gone", 2), ("+/two", 2)]);
                client.unsubscribe(&["gone"]);
            }
        },
        |stored| {
            let mut all = [V311, V5].map(|version| stored.persistent(version, &format!("{version:?}")));
            for (topic, qos) in [("t", Some(1)), ("gone", None), ("one/two", Some(2))] {
                publisher(stored).deliver(&Message::new(topic, "x").qos(2));
                for back in &mut all {
                    assert!(back.session_present());
                    let came: Vec<u8> = back.drain().iter().map(|p| p.qos).collect();
                    assert_eq!(came, qos.into_iter().collect::<Vec<_>>(), "{topic}");
                }
            }
        },
    );
}

#[test]
fn v5_subscription_options_and_identifiers_are_kept() {
    restart(
        Duration::ZERO,
        |stored| {
            let mut client = stored.persistent(V5, "c");
            // No Local, then Retain As Published, each with an identifier of its own.
            client.subscribe_with(&[Property::SubscriptionId(7)], &[("own", 0b0101)]);
            client.subscribe_with(&[Property::SubscriptionId(300_000)], &[("kept", 0b1001)]);
        },
        |stored| {
            let mut back = stored.persistent(V5, "c");
            back.deliver(&Message::new("own", "x").qos(1));
            back.settle();
            publisher(stored).deliver(&Message::new("own", "y").qos(1).retained());
            publisher(stored).deliver(&Message::new("kept", "z").qos(1).retained());
            let came = back.expect_publishes(2);
            let seen: Vec<_> = came.iter().map(|p| (p.text(), p.retain, p.subscription_ids())).collect();
            assert_eq!(seen, [("y", false, vec![7]), ("z", true, vec![300_000])]);
        },
    );
}

#[test]
fn v5_shared_subscriptions_are_there_and_prefer_the_member_that_is() {
    let names = ["one", "two", "three"];
    restart(
        Duration::ZERO,
        |stored| {
            for name in names {
                stored.persistent(V5, name).subscribe(&[("$share/g/t", 1), ("marker", 1)]);
            }
        },
        |stored| {
            let mut here = stored.persistent(V5, "two");
            for n in 0..10 {
                publisher(stored).deliver(&message(&n.to_string(), 1));
                let came = here.expect_publish();
                here.complete(&came);
                assert_eq!(came.text(), n.to_string());
            }
            here.disconnect();
            publisher(stored).deliver(&message("while all are away", 1));
            publisher(stored).deliver(&Message::new("marker", "").qos(1));
            let came = names.map(|name| {
                let mut back = stored.persistent(V5, name);
                std::iter::repeat_with(|| back.expect_publish()).take_while(|p| p.topic != "marker").count()
            });
            assert_eq!(came.iter().sum::<usize>(), 1);
        },
    );
}

#[test]
fn a_session_that_was_deleted_is_not_there() {
    restart(
        Duration::ZERO,
        |stored| {
            for (name, version) in [("older", V311), ("newer", V5)] {
                stored.persistent(version, name).subscribe(&[("t", 1)]);
                publisher(stored).deliver(&message("x", 1));
                stored.client(version, name);
            }
        },
        |stored| {
            for (name, version) in [("older", V311), ("newer", V5)] {
                let mut back = stored.persistent(version, name);
                assert!(!back.session_present());
                publisher(stored).deliver(&message("x", 1));
                back.settle();
            }
        },
    );
}

// 5.0 [MQTT-4.3.3-10]
#[test]
fn v5_an_incoming_identifier_is_known_until_its_pubrel() {
    restart(
        Duration::ZERO,
        |stored| {
            stored.persistent(V311, "s").subscribe(&[("t", 2)]);
            let mut publisher = stored.persistent(V5, "p");
            for (id, text) in [(1, "released"), (2, "held")] {
                publisher.publish_as(&message(text, 2), id);
                publisher.expect_ack(Kind::Pubrec, id);
            }
            publisher.ack(Kind::Pubrel, 1);
            publisher.expect_ack(Kind::Pubcomp, 1);
        },
        |stored| {
            let mut publisher = stored.persistent(V5, "p");
            assert!(publisher.session_present());
            publisher.publish_as(&message("held", 2).duplicate(), 2);
            publisher.publish_as(&message("new", 2).duplicate(), 1);
            for id in [2, 1] {
                publisher.expect_ack(Kind::Pubrec, id);
                publisher.ack(Kind::Pubrel, id);
                publisher.wait_for(Kind::Pubcomp);
            }
            let mut subscriber = stored.persistent(V311, "s");
            let texts = ["released", "held", "new"];
            for text in texts {
                let came = subscriber.expect_publish();
                assert_eq!(came.text(), text);
                subscriber.complete(&came);
            }
            subscriber.settle();
        },
    );
}

#[test]
fn retained_messages_are_those_that_were_acknowledged_last() {
    restart(
        Duration::ZERO,
        |stored| {
            let mut publisher = publisher(stored);
            for (topic, text) in [
                ("r/kept", "1"),
                ("r/replaced", "1"),
                ("r/erased", "1"),
                ("r/replaced", "2"),
                ("r/erased", ""),
            ] {
                publisher.deliver(&Message::new(topic, text).qos(1).retained());
            }
            publisher.deliver(&Message::new("r/two", "1").qos(2).retained().with(Property::user("k", "v")));
        },
        |stored| {
            let mut subscriber = stored.client(V5, "s");
            subscriber.subscribe(&[("r/#", 2)]);
            let mut came = subscriber.drain();
            came.sort_by(|a, b| a.topic.cmp(&b.topic));
            let seen: Vec<_> = came.iter().map(|p| (p.topic.as_str(), p.text(), p.qos, p.retain)).collect();
            assert_eq!(
                seen,
                [("r/kept", "1", 1, true), ("r/replaced", "2", 1, true), ("r/two", "1", 2, true)]
            );
            assert_eq!(came[2].user_properties(), [("k", "v")]);
        },
    );
}

fn expiring(id: &str, seconds: u32) -> Connect {
    Connect::new(V5, id).clean(false).with(Property::SessionExpiry(seconds))
}

// 5.0 [MQTT-3.1.2-11]
#[test]
fn v5_session_expiry_counts_the_time_that_the_broker_was_down() {
    restart(
        Duration::from_secs(100),
        |stored| {
            for (name, seconds) in [("over", 90), ("left", 200), ("never", u32::MAX)] {
                stored.connect(&expiring(name, seconds)).disconnect();
                // The first were away when it is killed, the others connected.
                std::mem::forget(stored.connect(&expiring(&format!("{name} here"), seconds)));
            }
        },
        |stored| {
            for (name, present) in [("over", false), ("left", true), ("never", true)] {
                for name in [name.to_owned(), format!("{name} here")] {
                    let back = stored.connect(&expiring(&name, 1_000));
                    assert_eq!(back.session_present(), present, "{name}");
                }
            }
        },
    );
}

// 5.0 [MQTT-3.3.2-6]
#[test]
fn v5_message_expiry_counts_the_time_that_the_broker_was_down() {
    restart(
        Duration::from_secs(100),
        |stored| {
            let mut subscriber = stored.persistent(V5, "s");
            subscriber.subscribe(&[("t", 1)]);
            subscriber.disconnect();
            for (text, seconds) in [("over", 90), ("left", 200)] {
                let expiring = message(text, 1).with(Property::MessageExpiry(seconds));
                publisher(stored).deliver(&expiring);
                publisher(stored).deliver(&Message { topic: text.into(), ..expiring.retained() });
            }
            publisher(stored).deliver(&message("never", 1));
        },
        |stored| {
            let mut back = stored.persistent(V5, "s");
            let came = back.expect_publishes(2);
            let seen: Vec<_> = came.iter().map(|p| (p.text(), p.expiry().is_some())).collect();
            assert_eq!(seen, [("left", true), ("never", false)]);
            assert!(came[0].expiry().is_some_and(|left| (90..=100).contains(&left)), "{:?}", came[0]);
            back.subscribe(&[("over", 0), ("left", 0)]);
            let retained = back.drain();
            assert_eq!(retained.iter().map(|p| p.text()).collect::<Vec<_>>(), ["left"]);
            assert!(retained[0].expiry().is_some_and(|left| (90..=100).contains(&left)));
        },
    );
}

// 5.0 [MQTT-3.8.4-1]
#[test]
fn v5_suback_that_does_not_fit_ends_a_stored_connection_before_its_retained_messages() {
    on_stored_brokers(|stored| {
        publisher(stored).deliver(&message("kept", 1).retained());
        let filters: Vec<String> = (0..30).map(|n| format!("f/{n}")).collect();
        let mut filters: Vec<(&str, u8)> = filters.iter().map(|filter| (filter.as_str(), 1)).collect();
        filters.push(("t", 1));
        let mut client =
            stored.connect(&Connect::persistent(V5, "small").with(Property::MaximumPacketSize(24)));
        client.send(&subscribe_packet(V5, 1, &[], &filters));
        client.expect_disconnected(0x95);
    });
}

/// A durable session with a will that waits for so many seconds, disconnected by the crash, and a
/// client that receives the will.
fn client_with_a_will(stored: &Stored, delay: u32) {
    stored.persistent(V311, "s").subscribe(&[("will", 1)]);
    let will = Will::new("will", "gone").qos(1).with(Property::WillDelay(delay));
    std::mem::forget(stored.connect(&Connect::persistent(V5, "mortal").will(will)));
}

#[test]
fn a_stored_will_goes_out_after_a_crash_unless_its_client_is_back_within_its_delay() {
    let before = |stored: &Stored| client_with_a_will(stored, 1);
    restart(Duration::ZERO, before, |stored| {
        let came = stored.persistent(V311, "s").expect_publish();
        assert_eq!((came.topic.as_str(), came.text()), ("will", "gone"));
    });
    restart(Duration::ZERO, before, |stored| {
        stored.persistent(V5, "mortal").disconnect();
        // A will with the same delay, begun later, comes first and alone.
        let will = Will::new("will", "of another").qos(1).with(Property::WillDelay(1));
        stored.connect(&Connect::persistent(V5, "another").will(will)).vanish();
        let mut subscriber = stored.persistent(V311, "s");
        assert_eq!(subscriber.expect_publish().text(), "of another");
        subscriber.settle();
    });
}

#[test]
fn a_stored_will_without_delay_goes_out_at_the_restart() {
    restart(
        Duration::ZERO,
        |stored| client_with_a_will(stored, 0),
        |stored| {
            let mut subscriber = stored.persistent(V311, "s");
            let came = subscriber.expect_publish();
            assert_eq!(came.text(), "gone");
            subscriber.complete(&came);
            // Once.
            stored.persistent(V5, "mortal").disconnect();
            subscriber.settle();
        },
    );
}

/// The state that a broker leaves when it stops in order, while these clients are connected.
fn left_by_a_stop(stored: Stored, clients: Vec<RawClient>) -> Image {
    let memory = stored.memory.clone();
    let said_goodbye = |mut client: RawClient| std::thread::spawn(move || client.read_to_end());
    let leaving: Vec<_> = clients.into_iter().map(said_goodbye).collect();
    drop(stored);
    leaving.into_iter().for_each(|client| drop(client.join().expect("the broker ends the connection")));
    memory.image()
}

// 3.1.1 [MQTT-3.1.2-8]; 5.0 [MQTT-3.1.2-8]
#[test]
fn an_orderly_stop_publishes_the_will_of_a_session_that_ends_with_it() {
    for (first, second) in THREADS {
        println!("{first}, then {second} threads");
        let stored = Stored::new(first);
        stored.persistent(V311, "absent").subscribe(&[("state/#", 1)]);
        stored.persistent(V311, "sharing").subscribe(&[("$share/g/state/#", 1)]);
        let all: Vec<_> = (0..6).map(|n| (if n % 2 == 0 { V311 } else { V5 }, format!("c{n}"))).collect();
        let clients = all.iter().map(|(version, id)| {
            let topic = format!("state/{id}");
            let will = Will::new(&topic, "offline").qos(1).retained();
            let mut client = stored.connect(&Connect::new(*version, id).will(will));
            client.deliver(&Message::new(&topic, "online").qos(1).retained());
            client
        });
        let clients = clients.collect();
        let stored = Stored::after_a_crash(left_by_a_stop(stored, clients), second, Duration::ZERO);
        for id in ["absent", "sharing"] {
            let mut back = stored.persistent(V311, id);
            for text in ["online", "offline"] {
                for _ in &all {
                    let publish = back.expect_publish();
                    assert_eq!(publish.text(), text, "{id}: {publish:?}");
                    back.complete(&publish);
                }
            }
        }
        let mut reader = publisher(&stored);
        reader.subscribe(&[("state/#", 0)]);
        let retained = reader.drain();
        assert!(retained.iter().all(|publish| publish.text() == "offline"), "{retained:?}");
        assert_eq!(retained.len(), all.len());
    }
}

#[test]
fn an_orderly_stop_leaves_the_will_of_a_session_that_goes_on_to_the_restart() {
    let stored = Stored::new(1);
    stored.persistent(V311, "s").subscribe(&[("will", 1)]);
    let will = Will::new("will", "gone").qos(1).with(Property::WillDelay(60));
    let client = stored.connect(&Connect::persistent(V5, "mortal").will(will));
    let image = left_by_a_stop(stored, vec![client]);
    let stored = Stored::after_a_crash(image, 1, Duration::ZERO);
    stored.persistent(V311, "s").settle();
    // The client is back within the delay of its will.
    stored.persistent(V5, "mortal").disconnect();
    stored.persistent(V311, "s").settle();
}

#[test]
fn a_will_that_went_out_or_was_cancelled_does_not_come_back() {
    restart(
        Duration::ZERO,
        |stored| {
            let mut subscriber = stored.persistent(V311, "s");
            subscriber.subscribe(&[("will", 1)]);
            let connect = Connect::persistent(V5, "mortal").will(Will::new("will", "gone").qos(1));
            stored.connect(&connect).vanish();
            let came = subscriber.expect_publish();
            subscriber.complete(&came);
            stored.connect(&connect).disconnect();
            // Behind both in the store.
            publisher(stored).deliver(&message("x", 2));
            stored.persistent(V5, "mortal").disconnect();
        },
        |stored| {
            let mut subscriber = stored.persistent(V311, "s");
            let again = subscriber.drain();
            // If the PUBACK was not recorded, the message comes again: QoS 1 allows it.
            assert!(again.iter().all(|p| p.dup), "{again:?}");
            again.iter().for_each(|p| subscriber.complete(p));
            subscriber.expect_nothing_for(Duration::from_millis(600));
        },
    );
}

#[test]
fn an_orderly_stop_keeps_what_a_crash_keeps() {
    for (first, second) in THREADS {
        let stored = Stored::new(first);
        let mut subscriber = stored.persistent(V311, "s");
        subscriber.subscribe(&[("t", 2)]);
        let mut publisher = stored.persistent(V5, "p");
        publisher.deliver(&message("one", 1));
        publisher.deliver(&message("two", 2));
        let held = subscriber.expect_publishes(2);
        let memory = stored.memory.clone();
        drop(stored);
        let stored = Stored::on(memory, second, Duration::ZERO);
        let mut back = stored.persistent(V311, "s");
        assert!(back.session_present());
        let again = back.expect_publishes(2);
        for (before, after) in held.iter().zip(&again) {
            assert_eq!((before.id, &before.payload, true), (after.id, &after.payload, after.dup));
        }
        assert!(stored.persistent(V5, "p").session_present());
    }
}
