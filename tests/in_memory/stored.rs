//! A dead letter of a stored session's message, over whole shards: the end of the one and the receivers of the other are
//! committed at once.

use crate::shares::send;
use crate::world::{self, LinkId, World};
use homing::journal::record::{Batch, Record};
use homing::mqtt::packet::{
    Acknowledgement, Connect, ConnectProperties, Packet, PacketId, Properties, ProtocolVersion, Publish,
    PublishProperties, QoS, ReasonCode, Subscribe, SubscribeFilter, SubscriptionOptions,
};
use homing::routing::shard::home_of;

const FIRST: PacketId = PacketId::new(1).expect("not 0");

/// A client whose session is stored, with one subscription.
fn subscriber(world: &mut World, name: &str, filter: &str) -> LinkId {
    let link = world.open();
    let connect = Connect {
        version: ProtocolVersion::V5,
        clean_start: true,
        keep_alive: 0,
        properties: ConnectProperties { session_expiry: Some(3600), ..Default::default() },
        client_id: name,
        will: None,
        user_name: None,
        password: None,
    };
    send(world, link, &Packet::Connect(Box::new(connect)));
    let options = SubscriptionOptions { qos: QoS::AtLeastOnce, ..Default::default() };
    let subscribe = Subscribe {
        packet_id: FIRST,
        subscription_id: None,
        properties: Properties::EMPTY,
        filters: vec![SubscribeFilter { filter, options }],
    };
    send(world, link, &Packet::Subscribe(subscribe));
    link
}

fn named_at(role: &str, shard: u8, shards: u8) -> String {
    let mut names = (0..).map(|n: u32| format!("{role} {n}"));
    names.find(|name| home_of(name, shards).0 == shard).expect("every shard has some")
}

/// The batches that follow from a negative acknowledgement: by a receiver in the first shard, of a message whose dead letter
/// somebody in the last is to get.
fn refused(shards: u8) -> Vec<Batch> {
    let mut settings = world::settings();
    settings.session.send.terms.negative_ack = true;
    let mut world = World::new(&settings, shards);
    world.keep_in_store();
    subscriber(&mut world, &named_at("watcher", shards - 1, shards), "$dead/#");
    let receiver = subscriber(&mut world, &named_at("receiver", 0, shards), "t");
    let publish = Publish {
        dup: false,
        qos: QoS::AtLeastOnce,
        retain: false,
        topic: "t",
        packet_id: Some(FIRST),
        properties: PublishProperties::default(),
        payload: b"x",
    };
    send(&mut world, receiver, &Packet::Publish(publish));
    world.batches.clear();
    let refused = Acknowledgement { reason: ReasonCode::QUOTA_EXCEEDED, ..Acknowledgement::success(FIRST) };
    send(&mut world, receiver, &Packet::Puback(refused));
    world.batches
}

fn is_letter(record: &Record) -> bool {
    matches!(record, Record::Body { message, .. } if message.topic().starts_with("$dead/receiver"))
}

#[test]
fn a_dead_letter_is_in_the_batch_in_which_its_message_ends() {
    let batches = refused(1);
    let of_letter = batches.iter().find(|b| b.records.iter().any(is_letter)).expect("a letter");
    assert!(of_letter.records.iter().any(|r| matches!(r, Record::EntryDone(_))), "{of_letter:?}");
}

#[test]
fn a_dead_letter_for_another_shard_is_part_of_a_move_with_the_end_of_its_message() {
    let batches = refused(2);
    let of_letter = |b: &Batch| b.parts.iter().find(|p| p.records.iter().any(is_letter)).map(|p| p.of);
    let number = batches.iter().find_map(of_letter).expect("a letter");
    let moves = |b: &&Batch| b.moves.iter().any(|m| m.number == number && m.parts == 1);
    let of_message = batches.iter().find(moves).expect("the move that it is part of");
    assert!(of_message.records.iter().any(|r| matches!(r, Record::EntryDone(_))), "{of_message:?}");
}
