//! The raw client: a blocking socket with a plan.

use super::connect::Connect;
use super::message::Message;
use super::packet::{Ack, Connack, Disconnect, Kind, Packet, Publish};
use super::property::{self, Property};
use super::wire::{self, Put, Version};
use super::{PATIENCE, now};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The next event on a connection.
#[derive(Debug)]
pub enum Event {
    Packet(Packet),
    /// End of stream, or a reset.
    Closed,
    /// Nothing until the deadline.
    Silence,
}

/// A client that acknowledges, pings and closes only when a test says so.
#[derive(Debug)]
pub struct RawClient {
    version: Version,
    stream: TcpStream,
    unread: Vec<u8>,
    /// Packets read while another was waited for.
    set_aside: VecDeque<Packet>,
    last_id: u16,
    connack: Option<Connack>,
    /// Time within which an expected packet must come.
    ack_wait: Duration,
}

impl RawClient {
    /// A connection on which nothing has been said.
    pub fn open(address: SocketAddr, version: Version) -> RawClient {
        RawClient::open_with(address, version, PATIENCE)
    }

    /// The same with another ack_wait: little for a peer that is known to answer at once or never.
    pub fn open_with(address: SocketAddr, version: Version, ack_wait: Duration) -> RawClient {
        RawClient::over(
            TcpStream::connect(address).expect("the broker accepts a connection"),
            version,
            ack_wait,
        )
    }

    /// On a socket of the test's own.
    pub fn over(stream: TcpStream, version: Version, ack_wait: Duration) -> RawClient {
        stream.set_nodelay(true).expect("TCP_NODELAY");
        // A broker that has stopped reading must not hang a test that writes to it.
        stream.set_write_timeout(Some(ack_wait)).expect("a write timeout");
        let (unread, set_aside) = (Vec::new(), VecDeque::new());
        RawClient { version, stream, unread, set_aside, last_id: 0, connack: None, ack_wait }
    }

    /// Connected and accepted.
    pub fn connect(address: SocketAddr, connect: &Connect) -> RawClient {
        RawClient::open(address, connect.version).accepted(connect)
    }

    /// Sends the CONNECT, which must be accepted.
    pub fn accepted(mut self, connect: &Connect) -> RawClient {
        self.send(&connect.encode());
        let connack = self.expect_connack();
        assert_eq!(connack.code, 0, "CONNECT refused: {connack:?}");
        self
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the CONNACK.
    pub fn connack(&self) -> &Connack {
        self.connack.as_ref().expect("connected")
    }

    pub fn session_present(&self) -> bool {
        self.connack().session_present
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

/// Sending.
impl RawClient {
    /// Any bytes. That the peer has closed is for the next expectation to find.
    pub fn send(&mut self, bytes: &[u8]) {
        match self.stream.write_all(bytes) {
            Ok(()) => {}
            Err(e) if is_gone(e.kind()) => {}
            Err(e) => panic!("cannot send: {e}"),
        }
    }

    /// An identifier this client has not used for 65,534 others.
    pub fn fresh_id(&mut self) -> u16 {
        self.last_id = self.last_id.checked_add(1).unwrap_or(1);
        self.last_id
    }

    /// Sends a PUBLISH under a fresh identifier (0 at QoS 0) and waits for nothing.
    pub fn publish(&mut self, message: &Message) -> u16 {
        let id = if message.qos > 0 { self.fresh_id() } else { 0 };
        self.publish_as(message, id);
        id
    }

    pub fn publish_as(&mut self, message: &Message, id: u16) {
        self.send(&message.encode(self.version, id));
    }

    /// Publishes and goes through the whole handshake of the QoS. Returns the reason code of the
    /// first acknowledgement. Deliveries that come in between stay to be expected.
    ///
    /// QoS 1 and 2 are a barrier: what a broker has acknowledged it has put into the outbox of
    /// every receiver. QoS 0 is none: follow it by one of the others before asserting that nothing
    /// came.
    pub fn deliver(&mut self, message: &Message) -> u8 {
        let id = self.publish(message);
        match message.qos {
            0 => 0,
            1 => self.wait_for_ack(Kind::Puback, id).code,
            _ => {
                let code = self.wait_for_ack(Kind::Pubrec, id).code;
                if code < 0x80 {
                    self.ack(Kind::Pubrel, id);
                    assert_eq!(self.wait_for_ack(Kind::Pubcomp, id).code, 0);
                }
                code
            }
        }
    }

    pub fn ack(&mut self, kind: Kind, id: u16) {
        let mut body = Vec::new();
        body.put_u16(id);
        self.send(&wire::packet((kind as u8) << 4 | if kind == Kind::Pubrel { 2 } else { 0 }, &body));
    }

    /// With a reason code, which only 5.0 has.
    pub fn ack_with(&mut self, kind: Kind, id: u16, code: u8) {
        assert_eq!(self.version, Version::V5);
        let mut body = Vec::new();
        body.put_u16(id);
        body.push(code);
        self.send(&wire::packet((kind as u8) << 4 | if kind == Kind::Pubrel { 2 } else { 0 }, &body));
    }

    /// Acknowledges a delivery to the end.
    pub fn complete(&mut self, publish: &Publish) {
        match publish.qos {
            0 => {}
            1 => self.ack(Kind::Puback, publish.id),
            _ => {
                self.ack(Kind::Pubrec, publish.id);
                self.wait_for_ack(Kind::Pubrel, publish.id);
                self.ack(Kind::Pubcomp, publish.id);
            }
        }
    }

    pub fn ping(&mut self) {
        self.send(&[0xC0, 0]);
    }

    /// Subscribes to filters with their options byte. Returns the codes of the SUBACK.
    pub fn subscribe(&mut self, filters: &[(&str, u8)]) -> Vec<u8> {
        self.subscribe_with(&[], filters)
    }

    pub fn subscribe_with(&mut self, properties: &[Property], filters: &[(&str, u8)]) -> Vec<u8> {
        let id = self.fresh_id();
        let packet = subscribe_packet(self.version, id, properties, filters);
        self.send(&packet);
        self.wait_for_grant(Kind::Suback, id)
    }

    /// Unsubscribes. Returns the codes of the UNSUBACK, which only 5.0 has.
    pub fn unsubscribe(&mut self, filters: &[&str]) -> Vec<u8> {
        let id = self.fresh_id();
        let mut body = Vec::new();
        body.put_u16(id);
        if self.version == Version::V5 {
            property::put_all(&mut body, &[]);
        }
        filters.iter().for_each(|filter| body.put_binary(filter.as_bytes()));
        self.send(&wire::packet(0xA2, &body));
        self.wait_for_grant(Kind::Unsuback, id)
    }

    /// Leaves in order and waits until the broker has closed, so that it knows by then.
    pub fn disconnect(mut self) {
        self.send(&[0xE0, 0]);
        self.skip_to_close();
    }

    /// 5.0: leaves with a reason code and properties.
    pub fn disconnect_with(mut self, code: u8, properties: &[Property]) {
        let mut body = vec![code];
        property::put_all(&mut body, properties);
        self.send(&wire::packet(0xE0, &body));
        self.skip_to_close();
    }

    /// Breaks off without DISCONNECT: the client's half is closed, and the broker's answer to that
    /// is waited for.
    pub fn vanish(mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        self.skip_to_close();
    }
}

/// Receiving.
impl RawClient {
    /// The next packet, waiting until `deadline` at most.
    pub fn next(&mut self, deadline: Instant) -> Event {
        if let Some(packet) = self.set_aside.pop_front() {
            return Event::Packet(packet);
        }
        self.next_unread(deadline)
    }

    /// The next packet; that none comes fails the test.
    pub fn receive(&mut self) -> Packet {
        match self.next(now() + self.ack_wait) {
            Event::Packet(packet) => packet,
            other => panic!("waited for a packet, got {other:?}"),
        }
    }

    pub fn expect_packet(&mut self, kind: Kind) -> Packet {
        let packet = self.receive();
        assert_eq!(packet.kind(), kind, "{packet:?}");
        packet
    }

    pub fn expect_connack(&mut self) -> Connack {
        let Packet::Connack(connack) = self.expect_packet(Kind::Connack) else { unreachable!() };
        self.connack = Some(connack.clone());
        connack
    }

    pub fn expect_publish(&mut self) -> Publish {
        let Packet::Publish(publish) = self.expect_packet(Kind::Publish) else { unreachable!() };
        publish
    }

    /// Returns this many deliveries, in the order in which they came.
    pub fn expect_publishes(&mut self, count: usize) -> Vec<Publish> {
        (0..count).map(|_| self.expect_publish()).collect()
    }

    pub fn expect_ack(&mut self, kind: Kind, id: u16) -> Ack {
        let Packet::Ack(ack) = self.expect_packet(kind) else { unreachable!() };
        assert_eq!(ack.id, id, "{ack:?}");
        ack
    }

    /// Expects the end of the stream, with nothing before it but, in 5.0, one DISCONNECT. Returns
    /// the code of that DISCONNECT.
    pub fn expect_closed(&mut self) -> Option<u8> {
        let rest = self.read_to_end();
        match rest.as_slice() {
            [] => None,
            [Packet::Disconnect(disconnect)] => Some(disconnect.code),
            other => panic!("expected the end, got {other:?}"),
        }
    }

    /// Waits until the broker ends the connection: with a DISCONNECT of this code in 5.0, without
    /// one in 3.x.
    pub fn expect_disconnected(&mut self, code: u8) {
        let reason = self.expect_closed();
        let expected = (self.version == Version::V5).then_some(code);
        assert_eq!(reason, expected, "reason codes 0x{:02X?} and 0x{:02X?}", reason, expected);
    }

    /// Returns the reply to a request that may be refused by its own reply or by the end of the
    /// connection: a SUBACK or a DISCONNECT. Where 3.x gets nothing, a DISCONNECT with Protocol
    /// Error stands for the end.
    pub fn expect_suback_or_end(&mut self) -> Packet {
        match self.next(now() + self.ack_wait) {
            Event::Packet(packet) => packet,
            Event::Closed => Packet::Disconnect(Disconnect { code: 0x82, properties: Vec::new() }),
            Event::Silence => panic!("neither answered nor closed"),
        }
    }

    /// Everything up to the end of the stream.
    pub fn read_to_end(&mut self) -> Vec<Packet> {
        let (mut packets, deadline) = (Vec::new(), now() + self.ack_wait);
        loop {
            match self.next(deadline) {
                Event::Packet(packet) => packets.push(packet),
                Event::Closed => return packets,
                Event::Silence => panic!("the broker did not close; it sent {packets:?}"),
            }
        }
    }

    /// Sends PINGREQ and returns all PUBLISHes that came before its PINGRESP.
    ///
    /// This is how "nothing came" is asserted: with an answer that must come, instead of a wait.
    pub fn drain(&mut self) -> Vec<Publish> {
        self.ping();
        let mut publishes = Vec::new();
        loop {
            match self.receive() {
                Packet::Publish(publish) => publishes.push(publish),
                Packet::Pingresp => return publishes,
                other => panic!("neither PUBLISH nor PINGRESP: {other:?}"),
            }
        }
    }

    /// Asserts that nothing comes before the PINGRESP of a PINGREQ.
    pub fn settle(&mut self) {
        let publishes = self.drain();
        assert!(publishes.is_empty(), "unexpected deliveries: {publishes:?}");
    }

    /// Asserts that nothing comes for this time. Use it only where nothing but time can show the
    /// behaviour.
    pub fn expect_nothing_for(&mut self, time: Duration) {
        match self.next(now() + time) {
            Event::Silence => {}
            other => panic!("expected nothing for {time:?}, got {other:?}"),
        }
    }

    /// Returns the next packet of a kind. Others are kept, in their order.
    pub fn wait_for(&mut self, kind: Kind) -> Packet {
        if let Some(at) = self.set_aside.iter().position(|p| p.kind() == kind) {
            return self.set_aside.remove(at).expect("just found");
        }
        let deadline = now() + self.ack_wait;
        loop {
            match self.next_unread(deadline) {
                Event::Packet(packet) if packet.kind() == kind => return packet,
                Event::Packet(packet) => self.set_aside.push_back(packet),
                other => panic!("waited for {kind:?}, got {other:?} after {:?}", self.set_aside),
            }
        }
    }

    fn wait_for_ack(&mut self, kind: Kind, id: u16) -> Ack {
        let Packet::Ack(ack) = self.wait_for(kind) else { unreachable!() };
        assert_eq!(ack.id, id, "{ack:?}");
        ack
    }

    fn wait_for_grant(&mut self, kind: Kind, id: u16) -> Vec<u8> {
        let Packet::Granted(granted) = self.wait_for(kind) else { unreachable!() };
        assert_eq!(granted.id, id, "{granted:?}");
        granted.codes
    }

    fn skip_to_close(&mut self) {
        let deadline = now() + self.ack_wait;
        loop {
            match self.next(deadline) {
                Event::Packet(_) => {}
                Event::Closed => return,
                Event::Silence => panic!("the broker did not close"),
            }
        }
    }

    /// Reads once, at most this many bytes. Returns false at the end of the stream.
    pub fn read_some(&mut self, bytes: usize) -> bool {
        let mut scratch = vec![0; bytes];
        self.stream.set_read_timeout(Some(Duration::from_millis(1))).expect("a read timeout");
        match self.stream.read(&mut scratch) {
            Ok(0) => false,
            Ok(count) => {
                self.unread.extend_from_slice(&scratch[..count]);
                true
            }
            Err(e) => !is_gone(e.kind()),
        }
    }

    fn next_unread(&mut self, deadline: Instant) -> Event {
        let mut scratch = [0; 16 * 1024];
        loop {
            if let Some(packet) = Packet::take_first(self.version, &mut self.unread) {
                return Event::Packet(packet);
            }
            let left = deadline.saturating_duration_since(now());
            if left.is_zero() {
                return Event::Silence;
            }
            self.stream.set_read_timeout(Some(left)).expect("a read timeout");
            match self.stream.read(&mut scratch) {
                Ok(0) => return self.at_end(),
                Ok(count) => self.unread.extend_from_slice(&scratch[..count]),
                Err(e) if is_gone(e.kind()) => return Event::Closed,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => panic!("cannot read: {e}"),
            }
        }
    }

    fn at_end(&self) -> Event {
        assert!(self.unread.is_empty(), "the stream ends within a packet: {:02X?}", self.unread);
        Event::Closed
    }
}

/// A SUBSCRIBE for any filters and option bytes, lawful or not.
pub fn subscribe_packet(
    version: Version,
    id: u16,
    properties: &[Property],
    filters: &[(&str, u8)],
) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_u16(id);
    if version == Version::V5 {
        property::put_all(&mut body, properties);
    }
    for (filter, options) in filters {
        body.put_binary(filter.as_bytes());
        body.push(*options);
    }
    wire::packet(0x82, &body)
}

fn is_gone(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted)
}
