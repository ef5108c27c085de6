//! Bridges over more than two brokers: what becomes of a message in a ring. And the notifications of
//! a bridge.

use crate::bridges::{Broker, TOPICS, bridge, subscriber, take};
use crate::broker::Mosquitto;
use crate::support::{Connect, Message, RawClient, V5, until};

/// Three brokers, each with a bridge to the next one.
struct Ring([Broker; 3]);

impl Ring {
    fn started(direction: &str) -> Ring {
        let mut ring = Ring([(); 3].map(|()| Broker::started("")));
        let topics =
            format!("[[bridges.topics]]\ndirection = \"{direction}\"\nfilter = \"ring/#\"\nqos = 2\n");
        for at in 0..3 {
            let next = ring.0[(at + 1) % 3].address();
            ring.0[at].reload(&bridge(&format!("mqtt://{next}"), "", &topics));
            ring.0[at].says("bridge.established");
        }
        ring
    }

    /// Returns the messages that the bridges have dropped because they came back.
    fn looped(&self) -> u64 {
        let of = |broker: &Broker| {
            let text = broker.ctl(&["bridges", "--json"]);
            let (_, behind) = text.split_once("\"looped\":").expect("a count");
            let digits: String = behind.trim_start().chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u64>().expect("a number")
        };
        self.0.iter().map(of).sum()
    }
}

#[test]
fn a_message_comes_to_each_broker_of_a_ring_once() {
    for direction in ["out", "in"] {
        let ring = Ring::started(direction);
        let mut readers =
            ring.0.each_ref().map(|broker| subscriber(broker.address(), V5, "reader", &[("ring/#", 2)]));
        for (at, broker) in ring.0.iter().enumerate() {
            let mut writer = RawClient::connect(broker.address(), &Connect::new(V5, "writer"));
            for qos in 0..3 {
                writer.deliver(&Message::new("ring/x", format!("{at} {qos}")).qos(qos));
            }
        }
        for reader in &mut readers {
            let mut all: Vec<String> = take(reader, 9).into_iter().map(|(_, payload)| payload).collect();
            all.sort();
            let expected: Vec<String> = (0..9).map(|n| format!("{} {}", n / 3, n % 3)).collect();
            assert_eq!(all, expected, "{direction}");
        }
        // Each message has come back to its broker, or would have.
        until("nine messages that came back", || (ring.looped() == 9).then_some(()));
        // A message behind all others would come behind what came twice.
        let mut writer = RawClient::connect(ring.0[0].address(), &Connect::new(V5, "writer"));
        writer.deliver(&Message::new("ring/last", "").qos(2));
        readers.iter_mut().for_each(|reader| assert_eq!(take(reader, 1)[0].0, "ring/last", "{direction}"));
        until("the last one, too", || (ring.looped() == 10).then_some(()));
    }
}

#[test]
fn a_message_passes_a_ring_of_both_directions_each_way_once() {
    let ring = Ring::started("both");
    let mut readers =
        ring.0.each_ref().map(|broker| subscriber(broker.address(), V5, "reader", &[("ring/#", 2)]));
    let mut writer = RawClient::connect(ring.0[0].address(), &Connect::new(V5, "writer"));
    writer.deliver(&Message::new("ring/x", "x").qos(1));
    // One way has one hop, and the other way two.
    for (reader, count) in readers.iter_mut().zip([1, 2, 2]) {
        take(reader, count);
    }
    until("both ways end", || (ring.looped() >= 2).then_some(()));
    readers.iter_mut().for_each(|reader| assert!(reader.drain().is_empty(), "a message goes round"));
}

#[test]
fn both_brokers_tell_the_state_of_a_bridge_with_notifications() {
    let directory = tempfile::tempdir().expect("a directory");
    let far = Mosquitto::start(directory.path(), "allow_anonymous true\n");
    let address = format!("mqtt://{}", far.address);
    let topic = "$SYS/broker/connection/plant/state";
    let mut near =
        Broker::started(&bridge(&address, "client_id = \"plant\"\nnotifications = true\n", TOPICS));
    near.says("bridge.established");
    let mut readers = [near.address(), far.address].map(|side| subscriber(side, V5, "reader", &[(topic, 1)]));
    let told = |readers: &mut [RawClient; 2], state: &str| {
        for reader in readers {
            until(state, || (take(reader, 1)[0].1 == state).then_some(()));
        }
    };
    told(&mut readers, "1");
    near.ctl(&["bridge", "disconnect", "far"]);
    told(&mut readers, "0");
    near.ctl(&["bridge", "connect", "far"]);
    told(&mut readers, "1");
    // The will of the other broker tells that this one is gone.
    near.process().kill();
    let [_, mut at_far] = readers;
    assert_eq!(take(&mut at_far, 1)[0].1, "0");
    near.start();
    assert_eq!(take(&mut at_far, 1)[0].1, "1");
    let own = "client_id = \"plant\"\nnotifications = true\nnotification_topic = \"states/plant\"\n";
    near.reload(&bridge(&address, own, TOPICS));
    assert_eq!(take(&mut at_far, 1)[0].1, "0", "the old topic");
    let mut at_near = subscriber(near.address(), V5, "reader", &[("states/plant", 1)]);
    until("the new topic", || (take(&mut at_near, 1)[0].1 == "1").then_some(()));
}
