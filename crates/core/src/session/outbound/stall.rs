//! Overdue acknowledgements: the packet, its age, and its holder.
//!
//! Other files decide on the reaction. A 3.x connection is resent to (`retransmission`). A 5.0
//! connection never is (5.0 [MQTT-4.4.0-1]): the shard reports the overdue packet, or closes the
//! connection.

use crate::mqtt::packet::PacketId;
use crate::named_enum::named_enum;
use crate::time::age::Age;
use std::fmt;
use std::time::Duration;

/// The state of a socket's bytes, as the kernel reports it at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketView {
    /// Written bytes that the peer's kernel has not acknowledged.
    pub unsent: usize,
    /// Segments in transit without an acknowledgement. Meaningful only if `unsent` is not 0.
    pub on_the_way: u32,
    /// Retransmissions of the oldest such segment without an answer.
    pub retransmits: u32,
    /// Bytes that have arrived from the peer, and that the broker has not read. Acknowledgements
    /// may be among them.
    pub arrived: usize,
    /// For the connection of a bridge: the stream offset up to which the other broker's kernel has
    /// what the bridge made of the bytes. The other fields are about the socket to that broker
    /// then. `None` for a client.
    pub passed_on: Option<u64>,
    /// The peer.
    pub far_side: FarSide,
}

impl SocketView {
    /// Returns the stream offset up to which the peer's kernel has acknowledged the connection's
    /// bytes. `written` is the number of bytes that the socket took since the connection began.
    pub fn peer_has(self, written: u64) -> u64 {
        self.passed_on.unwrap_or_else(|| written.saturating_sub(self.unsent as u64))
    }
}

/// The far side of a connection, for the words to operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FarSide {
    /// A client.
    #[default]
    Client,
    /// Another broker, behind a bridge.
    Broker,
    /// An HTTP service, behind a sink.
    Service,
}

named_enum! {
    /// The reason why a packet is unacknowledged.
    pub enum StallCause {
        /// The client's kernel has the packet: the application holds or dropped it.
        Application = "application",
        /// The client's kernel takes no more bytes: no one reads the socket.
        Unread = "unread",
        /// The packet is in transit, on a slow link.
        InTransit = "in_transit",
        /// The client's host does not answer: a broken path, or a half-open connection.
        Unanswered = "unanswered",
    }

    /// The holder of an unacknowledged packet. Time counts only against an application.
    #[derive(Hash)]
    pub enum Holder {
        /// The client's program.
        Application = "application",
        /// The network, or the client's kernel.
        Network = "network",
    }
}

impl StallCause {
    /// Returns the cause for a packet that ends at `end_offset`, if the peer's kernel has the
    /// stream up to `peer_has`.
    pub fn of(end_offset: u64, peer_has: u64, view: SocketView) -> StallCause {
        if peer_has < end_offset { StallCause::of_network(view) } else { StallCause::Application }
    }

    /// Returns the cause for a packet that the peer's kernel does not have.
    pub fn of_network(view: SocketView) -> StallCause {
        match view {
            SocketView { retransmits: 1.., .. } => StallCause::Unanswered,
            SocketView { on_the_way: 0, .. } => StallCause::Unread,
            _ => StallCause::InTransit,
        }
    }

    /// Returns the holder of the packet.
    pub const fn holder(self) -> Holder {
        match self {
            StallCause::Application => Holder::Application,
            StallCause::Unread | StallCause::InTransit | StallCause::Unanswered => Holder::Network,
        }
    }

    /// Returns the cause in words, for an operator.
    pub const fn detail(self, far_side: FarSide) -> &'static str {
        match (self, far_side) {
            (StallCause::Application, FarSide::Client) => "the client's host has it",
            (StallCause::Application, FarSide::Broker) => "the other broker's host has it",
            (StallCause::Application, FarSide::Service) => "the service has not accepted it",
            (StallCause::Unread, FarSide::Client) => "the client's host takes no more bytes",
            (StallCause::Unread, FarSide::Broker) => "the other broker's host takes no more bytes",
            (_, FarSide::Service) => "the service has not accepted what came before it",
            (StallCause::InTransit, _) => "still on its way",
            (StallCause::Unanswered, FarSide::Client) => "the client's host does not answer",
            (StallCause::Unanswered, FarSide::Broker) => "the other broker's host does not answer",
        }
    }
}

/// One packet without its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The Packet Identifier.
    pub packet_id: PacketId,
    /// Time since the message was first sent, over all connections.
    pub age: Age,
    /// Transmissions of the packet, over all connections.
    pub transmissions: u16,
    /// Why the packet is not acknowledged.
    pub cause: StallCause,
    /// The message's running number. Two messages with the same identifier differ in it.
    pub number: u64,
    /// Time from the packet's deadline until it was found; zero before the deadline.
    pub late: Duration,
    /// The state of the socket; the default if the state is not known.
    pub view: SocketView,
}

impl Stall {
    /// Returns the cause in words, for an operator.
    pub fn detail(&self) -> &'static str {
        self.cause.detail(self.view.far_side)
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stall { packet_id, age, transmissions, cause, .. } = self;
        let (id, times) = (packet_id.get(), if *transmissions == 1 { "" } else { "s" });
        let (holder, detail) = (cause.holder(), self.detail());
        write!(
            f,
            "packet {id} unacknowledged for {age}, sent {transmissions} time{times}; {holder}: {detail}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_socket_says_names_the_network() {
        let view = |on_the_way, retransmits| SocketView {
            unsent: 9,
            on_the_way,
            retransmits,
            ..SocketView::default()
        };
        assert_eq!(StallCause::of_network(view(3, 2)), StallCause::Unanswered);
        assert_eq!(StallCause::of_network(view(0, 0)), StallCause::Unread);
        assert_eq!(StallCause::of_network(view(3, 0)), StallCause::InTransit);
        assert!(
            [StallCause::Unread, StallCause::InTransit, StallCause::Unanswered]
                .iter()
                .all(|c| c.holder().name() == "network")
        );
    }

    #[test]
    fn the_socket_of_a_bridge_says_what_the_other_broker_has_and_who_it_is() {
        let view = SocketView { passed_on: Some(100), far_side: FarSide::Broker, ..SocketView::default() };
        assert_eq!(view.peer_has(500), 100, "what the bridge still has is not with the other broker");
        assert_eq!(StallCause::of(101, view.peer_has(500), view), StallCause::Unread);
        assert_eq!(StallCause::of(100, view.peer_has(500), view), StallCause::Application);
        assert_eq!(StallCause::Application.detail(view.far_side), "the other broker's host has it");
    }
}
