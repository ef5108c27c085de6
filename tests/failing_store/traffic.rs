//! Clients that use every kind of promise, keep an account of what they were promised, and take it
//! that the broker may be gone at any moment.

use crate::support::client::{Event, subscribe_packet};
use crate::support::{Connect, Kind, Message, PATIENCE, Packet, RawClient, V5, V311, Version, now};
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};

/// Each a commit of its own.
const ALONE: usize = 6;
/// More than is kept in memory for a client that is away.
pub const MESSAGES: usize = 200;
/// Unanswered at a time.
const WINDOW: usize = 50;

/// The requests that the broker acknowledged.
#[derive(Debug, Default)]
pub struct Promised {
    /// The CONNACK and SUBACK of the session that is away.
    pub subscribed: bool,
    /// Messages by number that were acknowledged at QoS 1, or by PUBREC at QoS 2.
    pub taken: BTreeSet<usize>,
    /// The messages that were received.
    pub received: BTreeSet<usize>,
    /// Of those, the ones at QoS 2 whose PUBREL came: they must not come again.
    pub released: BTreeSet<usize>,
    pub retained: bool,
    pub deleted: bool,
}

/// Why clients do not go on.
#[derive(Debug)]
pub enum End {
    /// The broker is gone.
    Gone,
    /// It takes no new session or subscription, for want of room in its store.
    NoRoom,
}

/// Goes through it all as far as the broker does.
pub fn run(address: SocketAddr, promised: &mut Promised) -> Result<(), End> {
    let mut away = connect(address, V5, &Connect::persistent(V5, "away"))?;
    subscribe(&mut away)?;
    promised.subscribed = true;
    away.send(&[0xE0, 0]);
    let mut here = connect(address, V311, &Connect::persistent(V311, "here"))?;
    subscribe(&mut here)?;
    let mut publisher = connect(address, V5, &Connect::persistent(V5, "publisher"))?;
    publish_all(&mut publisher, promised)?;
    let id = publisher.publish(&Message::new("kept", "x").qos(1).retained());
    promised.retained = answer(&mut publisher, Kind::Puback, id)? < 0x80;
    let mut back = connect(address, V5, &Connect::persistent(V5, "away"))?;
    receive(&mut back, promised, |promised| promised.received.is_superset(&promised.taken))?;
    connect(address, V311, &Connect::new(V311, "here"))?;
    promised.deleted = true;
    Ok(())
}

fn publish_all(publisher: &mut RawClient, promised: &mut Promised) -> Result<(), End> {
    let alone = (0..ALONE).map(|n| n..n + 1);
    let together = (ALONE..MESSAGES).step_by(WINDOW).map(|n| n..MESSAGES.min(n + WINDOW));
    for numbers in alone.chain(together) {
        let sent: Vec<(usize, u16)> =
            numbers.map(|n| (n, publisher.publish(&Message::new("t", n.to_string()).qos(qos(n))))).collect();
        let mut releasing = Vec::new();
        for (n, id) in sent {
            let kind = if qos(n) == 1 { Kind::Puback } else { Kind::Pubrec };
            if answer(publisher, kind, id)? < 0x80 {
                promised.taken.insert(n);
                releasing.extend((qos(n) == 2).then_some(id));
            }
        }
        for id in &releasing {
            publisher.ack(Kind::Pubrel, *id);
        }
        for id in releasing {
            answer(publisher, Kind::Pubcomp, id)?;
        }
    }
    Ok(())
}

fn qos(n: usize) -> u8 {
    1 + (n % 2) as u8
}

/// Receives and acknowledges until `done`.
pub fn receive(
    client: &mut RawClient,
    promised: &mut Promised,
    done: impl Fn(&Promised) -> bool,
) -> Result<(), End> {
    let mut under_way = std::collections::HashMap::new();
    while !(done(promised) && under_way.is_empty()) {
        match packet(client)? {
            Packet::Publish(publish) => {
                let n: usize = publish.text().parse().expect("a number");
                promised.received.insert(n);
                if publish.qos == 1 {
                    client.ack(Kind::Puback, publish.id);
                } else {
                    client.ack(Kind::Pubrec, publish.id);
                    under_way.insert(publish.id, n);
                }
            }
            Packet::Ack(ack) if ack.kind == Kind::Pubrel => {
                promised.released.extend(under_way.remove(&ack.id));
                client.ack(Kind::Pubcomp, ack.id);
            }
            other => panic!("{other:?}"),
        }
    }
    Ok(())
}

fn connect(address: SocketAddr, version: Version, connect: &Connect) -> Result<RawClient, End> {
    let stream = TcpStream::connect(address).map_err(|_| End::Gone)?;
    let mut client = RawClient::over(stream, version, PATIENCE);
    client.send(&connect.encode());
    match packet(&mut client)? {
        Packet::Connack(connack) if connack.code == 0 => Ok(client),
        // 0x97, or 3 in 3.x.
        Packet::Connack(connack) if matches!(connack.code, 0x97 | 3) => Err(End::NoRoom),
        other => panic!("{other:?}"),
    }
}

fn subscribe(client: &mut RawClient) -> Result<(), End> {
    let packet_sent = subscribe_packet(client.version(), 1, &[], &[("t", 2)]);
    client.send(&packet_sent);
    match packet(client)? {
        Packet::Granted(granted) if granted.codes == [2] => Ok(()),
        // 0x97, or 0x80 in 3.x.
        Packet::Granted(granted) if matches!(granted.codes[..], [0x97 | 0x80]) => Err(End::NoRoom),
        other => panic!("{other:?}"),
    }
}

fn answer(client: &mut RawClient, kind: Kind, id: u16) -> Result<u8, End> {
    match packet(client)? {
        Packet::Ack(ack) => {
            assert_eq!((ack.kind, ack.id), (kind, id));
            Ok(ack.code)
        }
        other => panic!("{other:?}"),
    }
}

fn packet(client: &mut RawClient) -> Result<Packet, End> {
    match client.next(now() + PATIENCE) {
        Event::Packet(packet) => Ok(packet),
        Event::Closed => Err(End::Gone),
        Event::Silence => panic!("neither an answer nor the end"),
    }
}
