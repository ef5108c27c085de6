//! Numbered messages at a steady rate, by writers and readers whose sessions stay, and that look for
//! the node that serves. Each reader checks the numbers as they come, so hours cost no memory:
//!
//! - at QoS 1 each number comes, for the first time in order. It may come again;
//! - at QoS 2 each number comes once, in order.
//!
//! This holds because a writer sends everything again that was not acknowledged.

use crate::link::{Came, Link};
use crate::support::client::subscribe_packet;
use crate::support::{Connect, Kind, Message, Packet, V5, now};
use crate::trial::acknowledge;
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Messages of a writer that are not acknowledged.
const WINDOW: usize = 100;
/// Bytes of a message.
const SIZE: usize = 256;
/// A client that gets nothing for this time looks for another node.
const SILENCE: Duration = Duration::from_secs(3);
/// Time in which everything has come once nothing more is sent.
const DRAINED: Duration = Duration::from_secs(120);

/// What all clients share.
pub struct Stream {
    nodes: Vec<SocketAddr>,
    began: Instant,
    /// Messages of each writer in a second.
    rate: u64,
    ready: AtomicUsize,
    is_over: AtomicBool,
    pub acknowledged: AtomicU64,
    pub delivered: AtomicU64,
    /// Messages of QoS 1 that came again.
    pub repeated: AtomicU64,
    pub connections: AtomicU64,
    /// The time of the last acknowledgement, in milliseconds since the beginning.
    last: AtomicU64,
    /// The longest time without an acknowledgement, in milliseconds, since it was taken.
    gap: AtomicU64,
    /// Messages that each writer has sent, by QoS less 1. Final once it has ended.
    sent: Vec<[AtomicU64; 2]>,
    writers: AtomicUsize,
    violations: Mutex<Vec<String>>,
}

impl Stream {
    /// Of so many writers with a reader each, and so many messages in a second together.
    pub fn new(nodes: Vec<SocketAddr>, writers: usize, rate: u64) -> Stream {
        Stream {
            nodes,
            began: now(),
            rate: rate / writers as u64,
            ready: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            acknowledged: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            last: AtomicU64::new(0),
            gap: AtomicU64::new(0),
            sent: (0..writers).map(|_| Default::default()).collect(),
            writers: AtomicUsize::new(writers),
            violations: Mutex::default(),
        }
    }

    /// Runs all clients until `during` has ended, and everything has come.
    pub fn run(&self, during: impl FnOnce()) {
        thread::scope(|scope| {
            for number in 0..self.sent.len() {
                scope.spawn(move || Reader::new(number).run(self));
                scope.spawn(move || Writer::new(number).run(self));
            }
            let over = Over(self);
            during();
            drop(over);
        });
    }

    /// Returns what was wrong so far.
    pub fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the longest time without an acknowledgement since the last call, up to now.
    pub fn take_gap(&self) -> Duration {
        let open = self.millis().saturating_sub(self.last.load(Ordering::Relaxed));
        let gap = self.gap.swap(0, Ordering::Relaxed).max(open);
        Duration::from_millis(gap)
    }

    fn millis(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    fn count_acknowledgement(&self) {
        let at = self.millis();
        let before = self.last.fetch_max(at, Ordering::Relaxed);
        self.gap.fetch_max(at.saturating_sub(before), Ordering::Relaxed);
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
    }

    pub fn violated(&self, what: String) {
        let what = format!("{:.1} s: {what}", self.began.elapsed().as_secs_f64());
        println!("VIOLATION {what}");
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// Ends the stream, also if the test fails.
struct Over<'a>(&'a Stream);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

/// The way of a client to the node that serves.
struct Way {
    name: String,
    /// The node that it tries next.
    node: usize,
    is_known: bool,
}

impl Way {
    fn new(name: String) -> Way {
        Way { name, node: 0, is_known: false }
    }

    /// Connects. Returns None if this node does not serve.
    fn open(&mut self, stream: &Stream) -> Option<Link> {
        let link = self.try_open(stream);
        if link.is_none() {
            self.node = (self.node + 1) % stream.nodes.len();
            thread::sleep(Duration::from_millis(50));
        }
        link
    }

    fn try_open(&mut self, stream: &Stream) -> Option<Link> {
        let mut link = Link::open(stream.nodes[self.node], V5)?;
        link.put(&Connect::persistent(V5, &self.name).encode());
        let begun = now();
        while begun.elapsed() < SILENCE {
            match link.next() {
                Came::Packet(Packet::Connack(connack)) if connack.code == 0 => {
                    if self.is_known && !connack.session_present {
                        stream.violated(format!("{}: its session is gone", self.name));
                    }
                    self.is_known = true;
                    stream.connections.fetch_add(1, Ordering::Relaxed);
                    return Some(link);
                }
                // A node that ends says so.
                Came::Packet(_) | Came::End => return None,
                Came::Nothing => {}
            }
        }
        None
    }
}

struct Exchange {
    id: u16,
    qos: u8,
    number: u64,
    /// PUBREC came.
    is_received: bool,
}

struct Writer {
    number: usize,
    way: Way,
    exchanges: VecDeque<Exchange>,
    next_id: u16,
    turn: u64,
}

impl Writer {
    fn new(number: usize) -> Writer {
        let way = Way::new(format!("writer{number}"));
        Writer { number, way, exchanges: VecDeque::new(), next_id: 1, turn: 0 }
    }

    fn run(mut self, stream: &Stream) {
        while stream.ready.load(Ordering::Relaxed) < stream.sent.len() && !stream.is_over() {
            thread::sleep(Duration::from_millis(20));
        }
        let mut over = None;
        while !(stream.is_over() && self.exchanges.is_empty()) {
            if let Some(link) = self.way.open(stream) {
                self.connection(stream, link);
            }
            if stream.is_over() && over.get_or_insert_with(now).elapsed() > DRAINED {
                let open = self.exchanges.len();
                stream.violated(format!("{}: {open} messages are never acknowledged", self.way.name));
                break;
            }
        }
        stream.writers.fetch_sub(1, Ordering::Release);
    }

    fn connection(&mut self, stream: &Stream, mut link: Link) {
        for exchange in &self.exchanges {
            match exchange.is_received {
                true => acknowledge(&mut link, Kind::Pubrel, exchange.id),
                false => link.put(&self.packet(exchange, true)),
            }
        }
        let (begun, mut sent, mut heard) = (now(), 0, now());
        loop {
            let due = begun.elapsed().as_millis() as u64 * stream.rate / 1000;
            // What was not sent while the window was full is not made up for.
            sent = sent.max(due.saturating_sub(WINDOW as u64));
            while sent < due && self.exchanges.len() < WINDOW && !stream.is_over() {
                sent += 1;
                self.publish(stream, &mut link);
            }
            if self.exchanges.is_empty() {
                heard = now();
                if stream.is_over() {
                    return;
                }
            }
            match link.next() {
                Came::Packet(packet) => {
                    heard = now();
                    if self.take(stream, &mut link, &packet).is_none() {
                        return;
                    }
                }
                Came::Nothing if heard.elapsed() > SILENCE => return,
                Came::Nothing => {}
                Came::End => return,
            }
        }
    }

    fn publish(&mut self, stream: &Stream, link: &mut Link) {
        self.turn += 1;
        let qos = 1 + (self.turn % 2) as u8;
        let number = stream.sent[self.number][usize::from(qos - 1)].fetch_add(1, Ordering::Relaxed);
        while self.exchanges.iter().any(|exchange| exchange.id == self.next_id) {
            self.next_id = self.next_id.checked_add(1).unwrap_or(1);
        }
        let exchange = Exchange { id: self.next_id, qos, number, is_received: false };
        self.next_id = self.next_id.checked_add(1).unwrap_or(1);
        link.put(&self.packet(&exchange, false));
        self.exchanges.push_back(exchange);
    }

    fn packet(&self, exchange: &Exchange, dup: bool) -> Vec<u8> {
        let mut payload = format!("{:012}", exchange.number).into_bytes();
        payload.resize(SIZE, b'.');
        let topic = format!("stream/{}/{}", self.number, exchange.qos);
        Message { dup, ..Message::new(topic, payload).qos(exchange.qos) }.encode(V5, exchange.id)
    }

    /// Returns None if the connection is over.
    fn take(&mut self, stream: &Stream, link: &mut Link, packet: &Packet) -> Option<()> {
        // A node that ends says so.
        let Packet::Ack(ack) = packet else { return None };
        let at = self.exchanges.iter().position(|exchange| exchange.id == ack.id);
        let Some(at) = at else {
            stream.violated(format!("{}: {ack:?} answers nothing", self.way.name));
            return Some(());
        };
        // Packet Identifier not found: the owner before has completed it.
        if ack.code >= 0x80 && !(ack.kind == Kind::Pubcomp && ack.code == 0x92) {
            stream.violated(format!("{}: {ack:?} of {}", self.way.name, self.exchanges[at].number));
        }
        if ack.kind != Kind::Pubcomp && !self.exchanges[at].is_received {
            stream.count_acknowledgement();
        }
        if ack.kind == Kind::Pubrec {
            self.exchanges[at].is_received = true;
            acknowledge(link, Kind::Pubrel, ack.id);
        } else {
            self.exchanges.remove(at);
        }
        Some(())
    }
}

struct Reader {
    number: usize,
    way: Way,
    is_subscribed: bool,
    /// The next number, by QoS less 1.
    next: [u64; 2],
    /// Identifiers of QoS 2 that were received and not released.
    received: BTreeSet<u16>,
}

impl Reader {
    fn new(number: usize) -> Reader {
        let way = Way::new(format!("reader{number}"));
        Reader { number, way, is_subscribed: false, next: [0; 2], received: BTreeSet::new() }
    }

    fn run(mut self, stream: &Stream) {
        let mut drained = None;
        while !self.has_all(stream) {
            if let Some(link) = self.way.open(stream) {
                self.connection(stream, link);
            }
            let has_ended = stream.writers.load(Ordering::Acquire) == 0;
            if has_ended && drained.get_or_insert_with(now).elapsed() > DRAINED {
                let (name, next) = (&self.way.name, self.next);
                return stream.violated(format!("{name}: {next:?} is all of {:?}", stream.sent[self.number]));
            }
        }
    }

    fn has_all(&self, stream: &Stream) -> bool {
        let sent = &stream.sent[self.number];
        stream.writers.load(Ordering::Acquire) == 0
            && self.next.iter().zip(sent).all(|(next, sent)| *next == sent.load(Ordering::Relaxed))
            && self.received.is_empty()
    }

    fn connection(&mut self, stream: &Stream, mut link: Link) {
        if !self.is_subscribed {
            link.put(&subscribe_packet(V5, 1, &[], &[(&format!("stream/{}/#", self.number), 2)]));
        }
        let mut heard = now();
        while !self.has_all(stream) {
            match link.next() {
                Came::Packet(packet) => {
                    heard = now();
                    match packet {
                        Packet::Publish(publish) => {
                            let number = std::str::from_utf8(&publish.payload[..12]).ok();
                            let number = number.and_then(|text| text.parse().ok()).expect("a number");
                            self.take(stream, &mut link, publish.qos, publish.id, number);
                        }
                        Packet::Ack(ack) if ack.kind == Kind::Pubrel => {
                            self.received.remove(&ack.id);
                            acknowledge(&mut link, Kind::Pubcomp, ack.id);
                        }
                        Packet::Granted(granted) => {
                            assert_eq!(granted.codes, [2]);
                            self.is_subscribed = true;
                            stream.ready.fetch_add(1, Ordering::Relaxed);
                        }
                        _ => return,
                    }
                }
                Came::Nothing if heard.elapsed() > SILENCE => return,
                Came::Nothing => {}
                Came::End => return,
            }
        }
        // The last PUBCOMP.
        link.flush();
    }

    fn take(&mut self, stream: &Stream, link: &mut Link, qos: u8, id: u16, number: u64) {
        let next = &mut self.next[usize::from(qos - 1)];
        let is_new = qos == 1 || self.received.insert(id);
        if is_new && number >= *next {
            if number > *next {
                let name = &self.way.name;
                stream.violated(format!("{name}: {next} to {} of QoS {qos} are lost or late", number - 1));
            }
            *next = number + 1;
            stream.delivered.fetch_add(1, Ordering::Relaxed);
        } else if qos == 1 {
            stream.repeated.fetch_add(1, Ordering::Relaxed);
        } else if is_new {
            stream.violated(format!("{}: {number} of QoS 2 came again", self.way.name));
        }
        acknowledge(link, if qos == 1 { Kind::Puback } else { Kind::Pubrec }, id);
    }
}
