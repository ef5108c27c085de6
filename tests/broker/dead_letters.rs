//! Dead letters: dropped messages are published to `$dead/<client id>/<topic>` if that is
//! configured.

use crate::rules::{glob, topic};
use crate::support::launch::{TestBroker, on_configured_threads, start_broker_on, versions};
use crate::support::memory_store::Memory;
use crate::support::{
    Connect, Kind, Message, PATIENCE, Property, Publish, RawClient, V5, V311, Version, now,
};
use homing::clock::unix_millis;
use homing::config::{Config, OnExhausted, QueuePolicy, RedeliveryRule};
use homing::named_enum::Named;
use homing::session::drops::{DropReason, DropReasons};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(300);

fn configure(config: &mut Config) {
    let redelivery = &mut config.redelivery;
    (redelivery.interval, redelivery.ack_timeout) = (SHORT, SHORT);
    (redelivery.backoff, redelivery.jitter) = (1.0, 0.0);
    config.sys.publish_interval = Duration::from_millis(100);
}

/// Returns the configuration of these tests with one more change.
fn configured(change: impl Fn(&mut Config)) -> impl Fn(&mut Config) {
    move |config| {
        configure(config);
        change(config);
    }
}

fn watch(broker: &TestBroker) -> RawClient {
    let mut watcher = broker.client(V5, "watcher");
    assert_eq!(watcher.subscribe(&[("$dead/#", 2)]), [2]);
    watcher
}

/// The values of the user properties of this name.
fn said<'a>(letter: &'a Publish, name: &str) -> Vec<&'a str> {
    let of_name = letter.properties.iter().filter_map(|property| match property {
        Property::User(said, value) if said == name => Some(value.as_str()),
        _ => None,
    });
    of_name.collect()
}

fn expect_letter(watcher: &mut RawClient, topic: &str, cause: &str) -> Publish {
    let letter = watcher.expect_publish();
    watcher.complete(&letter);
    assert_eq!((letter.topic.as_str(), said(&letter, "cause")), (topic, vec![cause]), "{letter:?}");
    assert!(!letter.retain);
    letter
}

fn figure(broker: &TestBroker, name: &str, is: impl Fn(u64) -> bool) {
    let mut watcher = broker.client(V311, "figures");
    watcher.subscribe(&[(&format!("$SYS/broker/{name}"), 0)]);
    let deadline = now() + PATIENCE;
    loop {
        let value = watcher.expect_publish().text().parse().expect("a number");
        if is(value) {
            return;
        }
        assert!(now() < deadline, "{name} stays at {value}");
    }
}

fn exhausted(config: &mut Config) {
    config.redelivery.on_exhausted = OnExhausted::DeadLetter;
    config.redelivery.attempts = 2;
}

fn message_sent_as_often_as_allowed_is_a_dead_letter(version: Version) {
    on_configured_threads(configured(exhausted), |broker| {
        let mut watcher = watch(broker);
        let mut publisher = broker.client(V5, "p/1");
        for (qos, persistent) in [(1, false), (2, true)] {
            let client_id = "s/+#%";
            let connect = Connect::new(version, client_id).clean(!persistent);
            let mut subscriber = broker.connect(&connect);
            subscriber.subscribe(&[("a/+", 2)]);
            let began = unix_millis();
            let message = Message::new("a/b", "x").qos(qos);
            let content_type = Property::ContentType("text/plain".to_owned());
            publisher.deliver(&message.with(content_type.clone()).with(Property::user("mine", "1")));
            let first = subscriber.expect_publish();
            for _ in 0..2 {
                let again = subscriber.expect_publish();
                assert!(again.dup && again.id == first.id);
            }
            let letter = expect_letter(&mut watcher, "$dead/s%2F%2B%23%25/a/b", "exhausted");
            assert_eq!((letter.text(), letter.qos), ("x", qos));
            assert!(letter.properties.contains(&content_type));
            let qos = qos.to_string();
            for (name, value) in
                [("mine", "1"), ("attempts", "3"), ("publisher", "p/1"), ("original-qos", &qos)]
            {
                assert_eq!(said(&letter, name), [value], "{name}");
            }
            let time = |name| said(&letter, name)[0].parse::<u64>().expect("milliseconds");
            let (first_sent, last_sent) = (time("first-sent"), time("last-sent"));
            assert!(began <= first_sent + 5 && last_sent <= unix_millis() + 5, "{began} {letter:?}");
            assert!(last_sent - first_sent + 5 >= 2 * SHORT.as_millis() as u64, "{letter:?}");
            // It stays connected, a late acknowledgement is harmless, and the next message comes.
            subscriber.ack(if letter.qos == 1 { Kind::Puback } else { Kind::Pubrec }, first.id);
            publisher.deliver(&Message::new("a/c", "y").qos(1));
            let next = loop {
                if let crate::support::Packet::Publish(next) = subscriber.receive() {
                    break next;
                }
            };
            assert_eq!((next.topic.as_str(), next.dup), ("a/c", false));
            subscriber.complete(&next);
            subscriber.disconnect();
        }
        watcher.settle();
    });
}
versions!(message_sent_as_often_as_allowed_is_a_dead_letter: v31, v311);

#[test]
fn v5_attempts_are_counted_over_all_connections() {
    on_configured_threads(configured(exhausted), |broker| {
        let mut watcher = watch(broker);
        let mut subscriber = broker.connect(&Connect::persistent(V5, "s").clean(true));
        subscriber.subscribe(&[("t", 1)]);
        broker.client(V5, "p").deliver(&Message::new("t", "x").qos(1));
        for times in 0..3 {
            let publish = subscriber.expect_publish();
            assert_eq!(publish.dup, times > 0);
            subscriber.expect_disconnected(0x97);
            subscriber = broker.persistent(V5, "s");
        }
        let letter = expect_letter(&mut watcher, "$dead/s/t", "exhausted");
        assert_eq!(said(&letter, "attempts"), ["3"]);
        subscriber.settle();
    });
}

#[test]
fn v5_negative_acknowledgement_is_a_dead_letter_where_that_is_asked_for() {
    let by_topic = RedeliveryRule { negative_ack: Some(true), ..topic("yes/#") };
    let rules = move |config: &mut Config| config.redelivery.rules = vec![by_topic.clone()];
    on_configured_threads(configured(rules), |broker| {
        let mut watcher = watch(broker);
        let mut subscriber = broker.persistent(V5, "s");
        subscriber.subscribe(&[("+/t", 2)]);
        let mut publisher = broker.client(V311, "p");
        for (qos, kind, code) in [(1, Kind::Puback, 0x83), (2, Kind::Pubrec, 0x80)] {
            for topic in ["no/t", "yes/t"] {
                publisher.deliver(&Message::new(topic, "x").qos(qos));
                let publish = subscriber.expect_publish();
                subscriber.ack_with(kind, publish.id, code);
            }
            let letter = expect_letter(&mut watcher, "$dead/s/yes/t", "negatively_acknowledged");
            assert_eq!(said(&letter, "reason-code"), [format!("0x{code:02X}")]);
            assert_eq!((said(&letter, "attempts"), said(&letter, "publisher")), (vec!["1"], vec!["p"]));
        }
        // Both are finished for it.
        subscriber.settle();
        subscriber.vanish();
        broker.persistent(V5, "s").settle();
        figure(broker, "publish/messages/dropped/negatively_acknowledged", |n| n == 4);
        figure(broker, "messages/dead_letters", |n| n == 2);
        watcher.settle();
    });
}

/// Leaves a session behind that is subscribed to `t`.
fn leave(broker: &TestBroker, version: Version) {
    let mut subscriber = broker.connect(&Connect::persistent(version, "s"));
    subscriber.subscribe(&[("t", 1)]);
    subscriber.disconnect();
}

fn what_a_full_queue_drops_is_a_dead_letter(version: Version) {
    for (policy, cause, dropped) in
        [(QueuePolicy::Refuse, "queue_refused", "two"), (QueuePolicy::DropOldest, "queue_overflow", "one")]
    {
        let change = |config: &mut Config| {
            config.limits.queue_policy = policy;
            config.limits.queue_messages = 1;
            causes(&[cause])(config);
        };
        on_configured_threads(configured(change), |broker| {
            let mut watcher = watch(broker);
            leave(broker, version);
            let mut publisher = broker.client(version, "p");
            for text in ["one", "two"] {
                publisher.deliver(&Message::new("t", text).qos(1));
            }
            let letter = expect_letter(&mut watcher, "$dead/s/t", cause);
            assert_eq!((letter.text(), said(&letter, "attempts")), (dropped, vec!["0"]));
            assert!(said(&letter, "first-sent").is_empty());
            assert_eq!(said(&letter, "publisher"), ["p"]);
        });
    }
}
versions!(what_a_full_queue_drops_is_a_dead_letter: v311, v5);

#[test]
fn a_long_stored_queue_drops_no_message_without_its_dead_letter() {
    let broker = start_broker_on(&Memory::default(), |config| {
        configure(config);
        config.store.queue_messages = 100;
        config.limits.queue_policy = QueuePolicy::DropOldest;
        causes(&["queue_overflow"])(config);
    });
    leave(&broker, V5);
    let mut watcher = watch(&broker);
    let mut publisher = broker.client(V5, "publisher");
    for n in 0..300 {
        publisher.deliver(&Message::new("t", format!("{n}")).qos(1));
    }
    for n in 0..200 {
        let letter = expect_letter(&mut watcher, "$dead/s/t", "queue_overflow");
        assert_eq!((letter.text(), said(&letter, "publisher")), (&*n.to_string(), vec!["publisher"]));
        watcher.complete(&letter);
    }
}

fn causes(names: &[&str]) -> impl Fn(&mut Config) {
    move |config| {
        config.redelivery.dead_letters =
            names.iter().map(|name| DropReason::of_name(name).expect("a drop reason")).collect()
    }
}

#[test]
fn v5_expired_message_is_a_dead_letter_without_its_expiry() {
    on_configured_threads(configured(causes(&["expired"])), |broker| {
        let mut watcher = watch(broker);
        leave(broker, V5);
        let mut publisher = broker.client(V5, "p");
        let expiry = Property::MessageExpiry(1);
        publisher.deliver(&Message::new("t", "x").qos(1).with(expiry));
        watcher.expect_nothing_for(Duration::from_millis(1100));
        let mut subscriber = broker.persistent(V5, "s");
        let letter = expect_letter(&mut watcher, "$dead/s/t", "expired");
        assert!(!letter.properties.iter().any(|p| matches!(p, Property::MessageExpiry(_))), "{letter:?}");
        subscriber.settle();
    });
}

// 5.0 [MQTT-3.1.2-25]
#[test]
fn v5_message_too_large_for_its_receiver_is_a_dead_letter() {
    on_configured_threads(configured(causes(&["too_large"])), |broker| {
        let mut watcher = watch(broker);
        let small = Connect::new(V5, "s").with(Property::MaximumPacketSize(100));
        let mut subscriber = broker.connect(&small);
        subscriber.subscribe(&[("t", 2)]);
        for qos in 0..=2 {
            broker.client(V5, "p").deliver(&Message::new("t", [b'x'; 10_000]).qos(qos));
            let letter = expect_letter(&mut watcher, "$dead/s/t", "too_large");
            assert_eq!((letter.payload.len(), letter.qos), (10_000, qos.max(1)));
            assert_eq!(said(&letter, "original-qos"), [qos.to_string()]);
        }
        subscriber.settle();
    });
}

fn what_ends_with_its_session_is_a_dead_letter(version: Version) {
    on_configured_threads(configured(causes(&["session_ended"])), |broker| {
        let mut watcher = watch(broker);
        let mut subscriber = broker.client(version, "s");
        subscriber.subscribe(&[("t", 1)]);
        broker.client(version, "p").deliver(&Message::new("t", "sent").qos(1));
        subscriber.expect_publish();
        subscriber.disconnect();
        let letter = expect_letter(&mut watcher, "$dead/s/t", "session_ended");
        assert_eq!((letter.text(), said(&letter, "attempts")), ("sent", vec!["1"]));
        leave(broker, version);
        broker.client(version, "p").deliver(&Message::new("t", "queued").qos(1));
        broker.client(version, "s").disconnect();
        assert_eq!(expect_letter(&mut watcher, "$dead/s/t", "session_ended").text(), "queued");
    });
}
versions!(what_ends_with_its_session_is_a_dead_letter: v31, v311, v5);

#[test]
fn a_message_that_no_member_of_a_group_takes_is_the_groups_dead_letter() {
    let change = |config: &mut Config| {
        config.limits.queue_messages = 1;
        causes(&["queue_refused"])(config);
    };
    on_configured_threads(configured(change), |broker| {
        let mut watcher = watch(broker);
        for member in ["one", "two"] {
            let mut member = broker.persistent(V311, member);
            member.subscribe(&[("$share/g/t", 1)]);
            member.disconnect();
        }
        let mut publisher = broker.client(V311, "p");
        for text in ["1", "2", "3"] {
            publisher.deliver(&Message::new("t", text).qos(1));
        }
        let letter = expect_letter(&mut watcher, "$dead/$share%2Fg/t", "queue_refused");
        assert_eq!((letter.text(), said(&letter, "publisher")), ("3", vec!["p"]));
    });
}

#[test]
fn rules_choose_whose_messages_are_dead_letters() {
    let for_s = RedeliveryRule {
        client_id: glob("s*"),
        dead_letters: Some([DropReason::SessionEnded].into_iter().collect()),
        ..RedeliveryRule::default()
    };
    let never = RedeliveryRule { dead_letters: Some(DropReasons::default()), ..topic("private/#") };
    let rules = move |config: &mut Config| config.redelivery.rules = vec![never.clone(), for_s.clone()];
    on_configured_threads(configured(rules), |broker| {
        let mut watcher = watch(broker);
        for client_id in ["other", "s1", "s2"] {
            let mut subscriber = broker.client(V311, client_id);
            subscriber.subscribe(&[("#", 1)]);
            let mut publisher = broker.client(V5, "p");
            for topic in ["private/t", "t"] {
                publisher.deliver(&Message::new(topic, "x").qos(1));
                subscriber.expect_publish();
            }
            subscriber.disconnect();
        }
        for client_id in ["s1", "s2"] {
            expect_letter(&mut watcher, &format!("$dead/{client_id}/t"), "session_ended");
        }
        watcher.settle();
    });
}

#[test]
fn a_dead_letter_makes_no_other() {
    let change = |config: &mut Config| {
        config.limits.queue_messages = 1;
        causes(&["queue_refused"])(config);
    };
    on_configured_threads(configured(change), |broker| {
        let mut away = broker.persistent(V311, "away");
        away.subscribe(&[("$dead/#", 1)]);
        away.disconnect();
        leave(broker, V311);
        let mut publisher = broker.client(V311, "p");
        for text in ["1", "2", "3", "4"] {
            publisher.deliver(&Message::new("t", text).qos(1));
        }
        figure(broker, "publish/messages/dropped/queue_refused", |n| n == 5);
        figure(broker, "messages/dead_letters", |n| n == 3);
        // 3.1.1 has no properties; topic and payload are there.
        let mut away = broker.persistent(V311, "away");
        let letter = away.expect_publish();
        assert_eq!((letter.topic.as_str(), letter.text(), letter.qos), ("$dead/s/t", "2", 1));
        away.complete(&letter);
        away.settle();
    });
}

#[test]
fn dead_letters_are_the_brokers_alone_and_no_wildcard_names_them_by_chance() {
    on_configured_threads(configured(causes(&["session_ended"])), |broker| {
        let mut all = broker.client(V311, "all");
        all.subscribe(&[("#", 1), ("+/s/t", 1)]);
        let mut some = broker.client(V311, "some");
        some.subscribe(&[("$dead/+/t", 1)]);
        // 5.0 reports it to the publisher, 3.x cannot; nothing is routed.
        assert_eq!(broker.client(V5, "forger").deliver(&Message::new("$dead/s/t", "forged").qos(1)), 0x87);
        broker.client(V311, "forger").deliver(&Message::new("$dead/s/t", "forged").qos(1));
        leave(broker, V311);
        broker.client(V5, "p").deliver(&Message::new("t", "x").qos(1));
        broker.client(V311, "s").disconnect();
        assert_eq!(some.expect_publish().text(), "x");
        let seen: Vec<String> = all.drain().into_iter().map(|publish| publish.topic).collect();
        assert_eq!(seen, ["t"]);
    });
}

#[test]
fn dead_letters_are_off_by_default() {
    on_configured_threads(configured(|config| config.limits.queue_messages = 1), |broker| {
        let mut watcher = watch(broker);
        leave(broker, V5);
        let mut publisher = broker.client(V5, "p");
        for _ in 0..3 {
            publisher.deliver(&Message::new("t", "x").qos(1));
        }
        figure(broker, "publish/messages/dropped/queue_refused", |n| n == 2);
        watcher.settle();
    });
}
