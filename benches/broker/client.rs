//! A blocking 3.1.1 client of raw packets.

use socket2::{Domain, Socket, Type};
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A connected client, with a clean session and without Keep Alive.
pub struct Client {
    reader: BufReader<TcpStream>,
    body: Vec<u8>,
}

impl Client {
    pub fn connect(to: SocketAddr, id: &str) -> Client {
        Client::with_receive_buffer(to, id, None)
    }

    /// Connects with a session that outlives the connection.
    pub fn connect_persistent(to: SocketAddr, id: &str) -> Client {
        Client::connect_with(to, id, None, false)
    }

    /// Connects with a receive buffer of `bytes`. A small buffer leaves unread data in the broker.
    pub fn with_receive_buffer(to: SocketAddr, id: &str, bytes: Option<usize>) -> Client {
        Client::connect_with(to, id, bytes, true)
    }

    fn connect_with(to: SocketAddr, id: &str, bytes: Option<usize>, clean: bool) -> Client {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        if let Some(bytes) = bytes {
            socket.set_recv_buffer_size(bytes).expect("set before it connects");
        }
        socket.set_tcp_nodelay(true).expect("a TCP socket");
        socket.connect(&to.into()).expect("the broker listens");
        let mut client = Client { reader: BufReader::with_capacity(4096, socket.into()), body: Vec::new() };
        let mut body = [b"\0\x04MQTT\x04\x02\0\0", string(id).as_slice()].concat();
        body[7] = if clean { 2 } else { 0 };
        client.write(&packet(0x10, &body));
        assert_eq!(client.read(), 0x20);
        assert_eq!(client.body[1], 0, "accepted");
        assert!(!clean || client.body[0] == 0, "a clean session");
        client
    }

    pub fn subscribe(&mut self, filter: &str, qos: u8) {
        self.subscribe_all(std::iter::once(filter.to_string()), qos);
    }

    /// Subscribes to all filters with one packet.
    pub fn subscribe_all(&mut self, filters: impl Iterator<Item = String>, qos: u8) {
        let mut body = vec![0, 1];
        for filter in filters {
            body.extend(string(&filter));
            body.push(qos);
        }
        self.write(&packet(0x82, &body));
        assert_eq!(self.read(), 0x90);
        assert!(self.body.iter().skip(2).all(|granted| *granted == qos));
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).expect("the broker reads");
    }

    /// Reads the next packet and returns its first byte. The rest is in [`Self::body`].
    pub fn read(&mut self) -> u8 {
        let mut first = [0];
        self.reader.read_exact(&mut first).expect("the broker writes");
        let (mut len, mut shift) = (0, 0);
        loop {
            let mut byte = [0];
            self.reader.read_exact(&mut byte).expect("a whole packet");
            len |= usize::from(byte[0] & 0x7F) << shift;
            shift += 7;
            if byte[0] & 0x80 == 0 {
                break;
            }
        }
        self.body.resize(len, 0);
        self.reader.read_exact(&mut self.body).expect("a whole packet");
        first[0]
    }

    /// Reads a QoS 1 PUBLISH, and appends its acknowledgement. Returns its payload.
    pub fn read_publish(&mut self, acks: &mut Vec<u8>) -> &[u8] {
        assert_eq!(self.read() & 0xF0, 0x30);
        let topic = usize::from(u16::from_be_bytes([self.body[0], self.body[1]])) + 2;
        acks.extend([0x40, 2, self.body[topic], self.body[topic + 1]]);
        &self.body[topic + 2..]
    }

    /// Reads a PUBLISH, and acknowledges it at QoS 1. Returns the length of its payload.
    pub fn take_publish(&mut self) -> usize {
        let first = self.read();
        assert_eq!(first & 0xF0, 0x30);
        let topic = usize::from(u16::from_be_bytes([self.body[0], self.body[1]])) + 2;
        if first & 0x06 == 0 {
            return self.body.len() - topic;
        }
        let ack = [0x40, 2, self.body[topic], self.body[topic + 1]];
        self.write(&ack);
        self.body.len() - topic - 2
    }
}

/// Returns a PUBLISH. Its Packet Identifier is 1 if its QoS is above 0.
pub fn publish(topic: &str, qos: u8, payload: &[u8]) -> Vec<u8> {
    let id: &[u8] = if qos > 0 { &[0, 1] } else { &[] };
    packet(0x30 | qos << 1, &[&string(topic), id, payload].concat())
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    let mut len = body.len();
    loop {
        let more = if len > 0x7F { 0x80 } else { 0 };
        out.push((len & 0x7F) as u8 | more);
        len >>= 7;
        if len == 0 {
            break;
        }
    }
    out.extend_from_slice(body);
    out
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes(), text.as_bytes()].concat()
}
