//! A store that fails, has no room, or takes its time: what clients see of it.
//!
//! `tests/failing_store` shows with processes that the broker exits when the store fails.

use crate::support::client::Event;
use crate::support::faulty_store::{Call, Fault, Faults, Faulty};
use crate::support::launch::{TestBroker, start_stored, with_one_and_three_threads};
use crate::support::memory_store::Memory;
use crate::support::{Connect, Kind, Message, PATIENCE, Property, RawClient, V5, V311, now};
use homing::config::Config;
use std::ops::Deref;
use std::time::Duration;

/// 0x97
const QUOTA_EXCEEDED: u8 = 0x97;
/// A whole second of keep alive, half a second more, and what the expiry queue rounds up: once more
/// as long.
const LONG: Duration = Duration::from_secs(4);

/// Time for which clients are watched after a commit that fails. No packet shows that it failed.
const AFTER_THE_FAULT: Duration = Duration::from_millis(60);

/// A broker on a store that does what the test says.
struct Unreliable {
    broker: TestBroker,
    faults: Faults,
}

impl Unreliable {
    fn new(threads: usize, configure: impl FnOnce(&mut Config)) -> Unreliable {
        let faults = Faults::default();
        let store = Faulty::new(Box::new(Memory::default()), faults.clone());
        let broker = start_stored(Box::new(store), |config| {
            config.runtime.threads = threads;
            configure(config);
        });
        Unreliable { broker, faults }
    }

    /// So many attempts to commit fail for want of room; then what frees room gets through, and
    /// nothing new is taken.
    fn fill(&self, attempts: usize) {
        let next = self.faults.count(Call::Commit);
        (next..next + attempts).for_each(|nth| self.faults.plan(Call::Commit, nth, Fault::Full));
    }

    /// Waits until there were more attempts to commit than that.
    fn wait_for_commit_after(&self, commits: usize) {
        let deadline = now() + PATIENCE;
        while self.faults.count(Call::Commit) <= commits {
            assert!(now() < deadline, "no commit comes");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Asserts that these clients have no answer, after a commit that failed.
    fn assert_unanswered<'a>(&self, clients: impl IntoIterator<Item = &'a mut RawClient>) {
        for client in clients {
            client.expect_nothing_for(AFTER_THE_FAULT);
            // The PINGRESPs show that the client's thread has run since, also on a busy machine.
            client.settle();
            client.settle();
        }
    }

    fn stop_next_commit(&self) {
        self.faults.plan_next(Call::Commit, Fault::Stopped);
    }

    fn wait_until_stopped(&self) {
        assert!(self.faults.wait_until_stopped(PATIENCE), "no commit comes");
    }

    /// Full, and the broker knows: one more message of this publisher's is taken.
    fn full_for(&self, publisher: &mut RawClient, message: &Message) {
        self.fill(1);
        assert_eq!(
            publisher.deliver(message),
            0,
            "taken before it was known, and kept by the second attempt"
        );
    }
}

impl Deref for Unreliable {
    type Target = TestBroker;

    fn deref(&self) -> &TestBroker {
        &self.broker
    }
}

impl Drop for Unreliable {
    fn drop(&mut self) {
        // It commits what it has before it ends.
        self.faults.make_room();
        self.faults.release();
    }
}

/// Runs a test against brokers of one and of three threads, on a store that can be made to fail.
fn on_unreliable_stores(test: impl Fn(&Unreliable)) {
    with_one_and_three_threads(|threads| test(&Unreliable::new(usize::from(threads), |_| {})));
}

fn message(text: &str, qos: u8) -> Message {
    Message::new("t", text).qos(qos)
}

/// A durable session that is subscribed and away.
fn away(broker: &TestBroker, name: &str) {
    let mut subscriber = broker.persistent(V5, name);
    subscriber.subscribe(&[("t", 2)]);
    subscriber.disconnect();
}

/// Returns the texts of all messages that wait for the session.
fn collect(broker: &TestBroker, name: &str) -> Vec<String> {
    let mut back = broker.persistent(V5, name);
    let mut texts = Vec::new();
    loop {
        let came = back.drain();
        if came.is_empty() {
            back.disconnect();
            return texts;
        }
        for publish in came {
            back.complete(&publish);
            texts.push(publish.text().to_owned());
        }
    }
}

/// Publishes until it is taken.
fn deliver_once_there_is_room(publisher: &mut RawClient, message: &Message) {
    let deadline = now() + PATIENCE;
    while publisher.deliver(message) != 0 {
        assert!(now() < deadline, "it never has room again");
    }
}

#[test]
fn a_full_store_refuses_qos_1_and_2_until_it_has_room_and_keeps_what_was_acknowledged() {
    on_unreliable_stores(|stored| {
        away(stored, "away");
        let mut publisher = stored.client(V5, "publisher");
        assert_eq!(publisher.deliver(&message("before", 1)), 0);
        stored.full_for(&mut publisher, &message("last", 2));
        for _ in 0..3 {
            assert_eq!(publisher.deliver(&message("refused", 1)), QUOTA_EXCEEDED);
            assert_eq!(publisher.deliver(&message("refused", 2)), QUOTA_EXCEEDED);
        }
        let retained = Message::new("kept", "refused").qos(1).retained();
        assert_eq!(publisher.deliver(&retained), QUOTA_EXCEEDED);
        let delayed = Message::new("$delayed/1/t", "refused").qos(1);
        assert_eq!(publisher.deliver(&delayed), QUOTA_EXCEEDED);
        for refused in [message("refused", 1), message("refused", 2), delayed] {
            let mut older = stored.client(V311, "older");
            older.publish(&refused);
            // Neither acknowledged nor lost: it comes again with the next connection.
            assert_eq!(older.expect_closed(), None);
        }
        stored.faults.make_room();
        deliver_once_there_is_room(&mut publisher, &message("after", 1));
        let mut older = stored.client(V311, "older");
        older.deliver(&message("after all", 2));
        assert_eq!(collect(stored, "away"), ["before", "last", "after", "after all"]);
        assert_eq!(stored.client(V5, "late").subscribe(&[("kept", 1)]), [1]);
    });
}

#[test]
fn a_full_store_does_not_touch_qos_0_acknowledgements_and_what_frees_room() {
    on_unreliable_stores(|stored| {
        let mut publisher = stored.client(V5, "publisher");
        assert!(publisher.deliver(&Message::new("kept", "x").qos(1).retained()) < 0x80);
        stored.persistent(V5, "forgotten").disconnect();
        let mut receiver = stored.persistent(V311, "receiver");
        receiver.subscribe(&[("t", 2), ("news", 0)]);
        publisher.deliver(&message("one", 1));
        publisher.deliver(&message("two", 2));
        let waiting = receiver.expect_publishes(2);
        let id = publisher.publish(&message("three", 2));
        publisher.expect_ack(Kind::Pubrec, id);
        stored.full_for(&mut stored.client(V5, "other"), &message("four", 1));

        publisher.publish(&Message::new("news", "x"));
        // The second exchange's PUBREL: its identifier was taken over before.
        publisher.ack(Kind::Pubrel, id);
        assert_eq!(publisher.expect_ack(Kind::Pubcomp, id).code, 0);
        let more = receiver.expect_publishes(3);
        assert_eq!(more.iter().map(|p| p.text()).collect::<Vec<_>>(), ["three", "four", "x"]);
        waiting.iter().chain(&more).for_each(|publish| receiver.complete(publish));
        receiver.settle();
        receiver.unsubscribe(&["news"]);
        let erased = Message::new("kept", "").qos(1).retained();
        assert!(publisher.deliver(&erased) < 0x80);
        // Sessions begin, end and are taken up.
        assert!(!stored.client(V5, "forgotten").session_present());
        receiver.disconnect();
        let mut back = stored.persistent(V311, "receiver");
        assert!(back.session_present());
        back.settle();
        let mut passing = stored.client(V5, "passing");
        assert_eq!(passing.subscribe(&[("t", 1)]), [1]);
    });
}

#[test]
fn what_not_even_the_reserve_has_room_for_waits_unacknowledged_until_there_is() {
    on_unreliable_stores(|stored| {
        away(stored, "away");
        let mut publisher = stored.client(V5, "publisher");
        // With it all that was before is committed: else the end of that connection might meet the
        // full store first.
        assert_eq!(publisher.deliver(&message("zeroth", 1)), 0);
        let commits = stored.faults.count(Call::Commit);
        stored.fill(4);
        let first = publisher.publish(&message("first", 1));
        stored.wait_for_commit_after(commits);
        stored.assert_unanswered([&mut publisher]);
        let mut other = stored.client(V5, "other");
        assert_eq!(other.deliver(&message("refused", 1)), QUOTA_EXCEEDED);
        // In the order they came, 5.0 [MQTT-4.6.0-2]: behind what waits.
        let second = publisher.publish(&message("refused", 1));
        assert_eq!(publisher.expect_ack(Kind::Puback, first).code, 0);
        assert_eq!(publisher.expect_ack(Kind::Puback, second).code, QUOTA_EXCEEDED);
        stored.faults.make_room();
        deliver_once_there_is_room(&mut publisher, &message("after", 2));
        assert_eq!(collect(stored, "away"), ["zeroth", "first", "after"]);
    });
}

#[test]
fn nothing_is_acknowledged_after_a_commit_failed() {
    for fault in [Fault::Failed, Fault::FailedAfter] {
        on_unreliable_stores(|stored| {
            away(stored, "away");
            let mut publishers = [stored.client(V5, "one"), stored.persistent(V311, "two")];
            let commits = stored.faults.count(Call::Commit);
            stored.faults.plan_next(Call::Commit, fault);
            publishers.iter_mut().for_each(|p| _ = p.publish(&message("lost", 1)));
            stored.wait_for_commit_after(commits);
            stored.assert_unanswered(&mut publishers);
            publishers.iter_mut().for_each(|p| _ = p.publish(&message("lost too", 2)));
            let mut subscribing = stored.open(V5);
            subscribing.send(&Connect::persistent(V5, "new").encode());
            subscribing.expect_nothing_for(AFTER_THE_FAULT);
            stored.assert_unanswered(&mut publishers);
        });
    }
}

#[test]
fn nobody_is_disconnected_while_a_commit_takes_longer_than_their_keep_alive() {
    let stored = Unreliable::new(3, |config| config.expiry.tick = Duration::from_millis(100));
    let brief = |connect: Connect| connect.keep_alive(1);
    let mut publishers = [
        stored.connect(&brief(Connect::new(V5, "passing"))),
        stored.connect(&brief(Connect::persistent(V311, "staying"))),
    ];
    away(&stored, "away");
    stored.stop_next_commit();
    let ids = publishers.each_mut().map(|p| [1, 2, 1].map(|qos| p.publish(&message("x", qos))));
    stored.wait_until_stopped();
    // They are silent, since they wait for the answer.
    let connects = [Connect::persistent(V5, "newer"), Connect::persistent(V311, "older")];
    let mut connecting = connects.map(|connect| {
        let mut client = stored.open(connect.version);
        client.send(&brief(connect).encode());
        client
    });
    let until = now() + LONG;
    while now() < until {
        for publisher in &mut publishers {
            publisher.ping();
            assert!(
                matches!(publisher.next(now() + PATIENCE), Event::Packet(p) if p.kind() == Kind::Pingresp)
            );
        }
        connecting[0].expect_nothing_for(Duration::from_millis(250));
        connecting[1].expect_nothing_for(Duration::from_millis(250));
    }
    stored.faults.release();
    for (publisher, [first, second, third]) in publishers.iter_mut().zip(ids) {
        publisher.expect_ack(Kind::Puback, first);
        publisher.expect_ack(Kind::Pubrec, second);
        publisher.expect_ack(Kind::Puback, third);
        publisher.ack(Kind::Pubrel, second);
        publisher.expect_ack(Kind::Pubcomp, second);
    }
    for client in &mut connecting {
        assert_eq!(client.expect_connack().code, 0);
        client.settle();
    }
    assert_eq!(collect(&stored, "away").len(), 6);
}

/// A message that was not sent yet is neither unacknowledged nor stuck.
#[test]
fn a_message_that_waits_for_its_commit_is_not_sent_again_nor_its_receiver_disconnected() {
    let stored = Unreliable::new(3, |config| {
        config.expiry.tick = Duration::from_millis(50);
        config.redelivery.interval = Duration::from_millis(200);
        config.redelivery.min_requested = Duration::from_millis(200);
        config.redelivery.max_backoff = Duration::from_millis(400);
        config.redelivery.attempts = 3;
        config.redelivery.ack_timeout = Duration::from_millis(500);
        config.network.write_timeout = Duration::from_secs(1);
    });
    let narrow = Connect::persistent(V5, "newer").with(Property::ReceiveMaximum(10));
    let mut receivers = [stored.connect(&narrow), stored.persistent(V311, "older")];
    receivers.iter_mut().for_each(|r| drop(r.subscribe(&[("t", 2)])));
    let mut publisher = stored.client(V5, "publisher");
    stored.stop_next_commit();
    // The first is under way alone; all others are the next commit.
    publisher.publish(&message("0", 2));
    stored.wait_until_stopped();
    for n in 1..5 {
        publisher.publish(&message(&n.to_string(), 2));
    }
    let until = now() + LONG;
    while now() < until {
        receivers.iter_mut().for_each(|r| r.expect_nothing_for(Duration::from_millis(250)));
        publisher.settle();
    }
    stored.faults.release();
    for receiver in &mut receivers {
        for n in 0..5 {
            let came = receiver.expect_publish();
            assert_eq!((came.text(), came.dup), (n.to_string().as_str(), false));
            receiver.ack(Kind::Pubrec, came.id);
            receiver.wait_for(Kind::Pubrel);
            receiver.ack(Kind::Pubcomp, came.id);
        }
        receiver.settle();
    }
}
