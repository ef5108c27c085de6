//! The choice in a shared group, over whole shards: fair within 10 %, whoever publishes, and past members that cannot take
//! more.

use crate::world::{self, LinkId, World};
use homing::mqtt::codec::{self, Decoded};
use homing::mqtt::packet::{
    Acknowledgement, Connect, ConnectProperties, Packet, PacketId, Properties, ProtocolVersion, Publish,
    PublishProperties, QoS, Subscribe, SubscribeFilter, SubscriptionOptions,
};
use homing::routing::shard::home_of;

const MEMBERS: usize = 5;
const PUBLISHERS: usize = 3;
/// By each publisher.
const MESSAGES: usize = 400;

pub fn send(world: &mut World, link: LinkId, packet: &Packet<'_>) {
    let mut bytes = Vec::new();
    codec::encode(packet, ProtocolVersion::V5, &mut bytes).expect("a lawful packet");
    world.send(link, &bytes);
}

fn client(world: &mut World, name: &str, receive_maximum: u16) -> LinkId {
    let link = world.open();
    let connect = Connect {
        version: ProtocolVersion::V5,
        clean_start: true,
        keep_alive: 0,
        properties: ConnectProperties { receive_maximum: Some(receive_maximum), ..Default::default() },
        client_id: name,
        will: None,
        user_name: None,
        password: None,
    };
    send(world, link, &Packet::Connect(Box::new(connect)));
    link
}

fn member(world: &mut World, n: usize) -> LinkId {
    let link = client(world, &format!("member {n}"), 1);
    let options = SubscriptionOptions { qos: QoS::AtLeastOnce, ..Default::default() };
    let subscribe = Subscribe {
        packet_id: PacketId::new(1).expect("not 0"),
        subscription_id: None,
        properties: Properties::EMPTY,
        filters: vec![SubscribeFilter { filter: "$share/group/t", options }],
    };
    send(world, link, &Packet::Subscribe(subscribe));
    link
}

pub fn publish(world: &mut World, link: LinkId, topic: &str, qos: QoS, packet_id: u16) {
    let publish = Publish {
        dup: false,
        qos,
        retain: false,
        topic,
        packet_id: PacketId::new(packet_id),
        properties: PublishProperties::default(),
        payload: b"x",
    };
    send(world, link, &Packet::Publish(publish));
}

/// The PUBLISHes that came since, acknowledged unless told otherwise.
fn take(world: &mut World, link: LinkId, acknowledges: bool) -> usize {
    let mut taken = 0;
    loop {
        let received = std::mem::take(&mut world.links[link].received);
        let (mut at, mut ids) = (0, Vec::new());
        while let Ok(Decoded::Packet { packet, length }) =
            codec::decode(&received[at..], ProtocolVersion::V5, u32::MAX)
        {
            at += length;
            if let Packet::Publish(Publish { packet_id: Some(id), .. }) = packet {
                ids.push(id);
            }
        }
        if ids.is_empty() {
            return taken;
        }
        taken += ids.len();
        for id in ids.into_iter().filter(|_| acknowledges) {
            send(world, link, &Packet::Puback(Acknowledgement::success(id)));
        }
    }
}

/// How many messages each member got. `stuck` acknowledges nothing.
fn shares(shards: u8, stuck: Option<usize>) -> Vec<usize> {
    let mut settings = world::settings();
    settings.session.send.queue.messages = 2;
    let mut world = World::new(&settings, shards);
    let members: Vec<LinkId> = (0..MEMBERS).map(|n| member(&mut world, n)).collect();
    let publishers: Vec<LinkId> =
        (0..PUBLISHERS).map(|n| client(&mut world, &format!("publisher {n}"), 100)).collect();
    let mut counts = vec![0; MEMBERS];
    for n in 0..MESSAGES {
        for publisher in &publishers {
            publish(&mut world, *publisher, "t", QoS::AtLeastOnce, n as u16 + 1);
            for (n, link) in members.iter().enumerate() {
                counts[n] += take(&mut world, *link, Some(n) != stuck);
            }
        }
    }
    counts
}

fn assert_even(counts: &[usize], total: usize) {
    let mean = total / counts.len();
    assert_eq!(counts.iter().sum::<usize>(), total, "{counts:?}");
    assert!(counts.iter().all(|n| n.abs_diff(mean) * 10 <= mean), "{counts:?}");
}

#[test]
fn mqtt5_4_8_2_1_members_get_even_shares_whichever_shards_they_and_the_publishers_are_on() {
    for shards in [1, 3] {
        assert_even(&shares(shards, None), PUBLISHERS * MESSAGES);
    }
}

#[test]
fn a_member_that_cannot_take_more_is_passed_over_and_the_others_share_evenly() {
    for shards in [1, 3] {
        for stuck in [0, 3] {
            let mut counts = shares(shards, Some(stuck));
            // The others got what it refused; two wait in its queue.
            assert_eq!(counts.remove(stuck), 1);
            assert_even(&counts, PUBLISHERS * MESSAGES - 3);
        }
    }
}

#[test]
fn what_was_on_its_way_to_a_session_goes_to_the_one_that_takes_its_place() {
    for shards in [2, 3] {
        let mut world = World::new(&world::settings(), shards);
        // A member whose home is not the publisher's.
        let names: Vec<_> = (0..50).map(|n| format!("member {n}")).collect();
        let home = home_of("publisher 0", shards);
        let far = names.iter().position(|name| home_of(name, shards) != home).expect("some live elsewhere");
        member(&mut world, far);
        let publisher = client(&mut world, "publisher 0", 100);
        world.holds_parcels = true;
        publish(&mut world, publisher, "t", QoS::AtLeastOnce, 1);
        let afresh = member(&mut world, far);
        world.holds_parcels = false;
        world.settle();
        assert_eq!(take(&mut world, afresh, true), 1);
    }
}
