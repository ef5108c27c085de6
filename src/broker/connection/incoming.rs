//! A socket on its way between threads: from its listener to a shard, or from the shard that read
//! its CONNECT to the shard of its session.

use super::peer::PeerAddress;
use super::transport::DetachedTransport;
use crate::login::arrival::Arrival;
use crate::mqtt::charge::Charge;
use crate::time::Instant;

/// A socket on its way to a shard: just accepted, or from the shard that read its CONNECT.
///
/// Takes less than 100 B without unread bytes. The 2 KiB that each connection may take beside
/// `limits.memory` include them.
#[derive(Debug)]
pub struct Incoming {
    /// The socket.
    pub transport: DetachedTransport,
    /// The client's address.
    pub peer: PeerAddress,
    /// The time at which the listener accepted the socket. The connect timeout runs from here.
    pub accepted: Instant,
    /// Facts about the connection, known before its first packet.
    pub arrival: Arrival,
    /// Bytes that were read and not handled.
    pub unread: Vec<u8>,
    /// The charge of `unread`. A socket that was just accepted has none, because the listener's
    /// thread settles no charges.
    _charge: Charge,
}

impl Incoming {
    /// Returns a socket that a listener accepted.
    pub fn accepted(
        transport: DetachedTransport,
        peer: PeerAddress,
        accepted: Instant,
        arrival: Arrival,
    ) -> Incoming {
        Incoming { transport, peer, accepted, arrival, unread: Vec::new(), _charge: Charge::NONE }
    }

    /// Returns a socket that leaves the shard that read its CONNECT.
    pub fn moved(transport: DetachedTransport, released: Released, unread: Vec<u8>) -> Incoming {
        let _charge = Charge::new(unread.capacity());
        let Released { peer, accepted, arrival } = released;
        Incoming { transport, peer, accepted, arrival, unread, _charge }
    }
}

/// The facts about a connection that go with its socket to another shard.
#[derive(Debug)]
pub struct Released {
    /// The client's address.
    pub peer: PeerAddress,
    /// The time at which the listener accepted the socket.
    pub accepted: Instant,
    /// Facts about the connection, known before its first packet.
    pub arrival: Arrival,
}
