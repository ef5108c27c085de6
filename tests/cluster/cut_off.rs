//! What clients of an owner see that is cut off from the engine.

use crate::link::{Came, Link};
use crate::support::{Connect, Kind, Message, Packet, V5, now};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The lease of an owner: `cluster.lease`.
const LEASE: Duration = Duration::from_secs(4);
/// Time after which an owner disconnects its clients, 10 s, on a busy machine.
const DISCONNECTED: Duration = Duration::from_secs(20);
/// Time between two messages.
const PACE: Duration = Duration::from_millis(20);

/// What was seen.
#[derive(Debug)]
pub struct CutOff {
    /// When the last message was sent that was acknowledged, after the cut.
    pub last: Duration,
    /// When the connection ended, after the cut.
    pub ended: Duration,
}

/// Cuts an owner off. Meanwhile a client publishes at QoS 1 what nobody receives, and others try to
/// connect. Nothing that was sent after the lease has ended may be acknowledged, though it
/// needs no frame. After 10 s the connections have to end.
pub fn watch_cut_off(owner: SocketAddr, cut: impl FnOnce()) -> CutOff {
    let mut publisher = Publisher::connect(owner);
    publisher.run_for(Duration::from_millis(200));
    cut();
    let cut_at = now();
    assert!(publisher.run_for(LEASE).is_some(), "it is disconnected before its lease has ended");
    // A promise as well: CONNACK.
    let mut late = Link::open(owner, V5).expect("it listens");
    late.put(&Connect::new(V5, "late").encode());
    publisher.run_for(DISCONNECTED.saturating_sub(cut_at.elapsed()));
    let ended = cut_at.elapsed();
    assert!(ended < DISCONNECTED, "its clients are still connected after {ended:?}");
    while let came @ (Came::Packet(_) | Came::Nothing) = late.next() {
        let is_accepted = matches!(came, Came::Packet(Packet::Connack(connack)) if connack.code == 0);
        assert!(!is_accepted, "a client was accepted that came after the lease");
        assert!(cut_at.elapsed() < 2 * DISCONNECTED, "a client that came late is still connected");
    }
    let last = publisher.acknowledged.map_or(Duration::ZERO, |sent| sent.saturating_duration_since(cut_at));
    assert!(last < LEASE, "a message was acknowledged that was sent {last:?} after the cut");
    CutOff { last, ended }
}

struct Publisher {
    link: Link,
    /// When each message was sent. The first has identifier 1.
    sent: Vec<Instant>,
    /// When the last message was sent that was acknowledged.
    acknowledged: Option<Instant>,
}

impl Publisher {
    fn connect(owner: SocketAddr) -> Publisher {
        let mut link = Link::open(owner, V5).expect("it listens");
        link.put(&Connect::new(V5, "cut-off").encode());
        let begun = now();
        loop {
            match link.next() {
                Came::Packet(Packet::Connack(_)) => break,
                Came::Nothing if begun.elapsed() < DISCONNECTED => {}
                _ => panic!("the owner refuses a client"),
            }
        }
        Publisher { link, sent: Vec::new(), acknowledged: None }
    }

    /// Publishes for some time. Returns None if the connection has ended.
    fn run_for(&mut self, time: Duration) -> Option<()> {
        let begun = now();
        while begun.elapsed() < time {
            if self.sent.last().is_none_or(|last| last.elapsed() >= PACE) {
                self.sent.push(now());
                let message = Message::new("nobody/receives/this", "x").qos(1);
                self.link.put(&message.encode(V5, self.sent.len() as u16));
            }
            match self.link.next() {
                Came::Packet(Packet::Ack(ack)) if ack.kind == Kind::Puback => {
                    self.acknowledged = self.acknowledged.max(Some(self.sent[usize::from(ack.id) - 1]));
                }
                Came::Packet(Packet::Disconnect(_)) | Came::Nothing => {}
                Came::Packet(other) => panic!("{other:?}"),
                Came::End => return None,
            }
        }
        Some(())
    }
}
