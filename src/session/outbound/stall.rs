//! Overdue acknowledgements: the packet, its age, and its holder.
//!
//! Other files decide on the reaction. A 3.x connection is resent to (`retransmission`). A 5.0
//! connection never is (5.0 [MQTT-4.4.0-1]): the shard reports the overdue packet, or closes the
//! connection.

use crate::mqtt::packet::PacketId;
use crate::session::drops::Drops;
use crate::session::outbound::queue::Delivery;
use crate::session::outbound::retry::Outlives;
use crate::session::outbound::sender::Sender;
use crate::session::outbound::transmission::{Holder, Look};
use crate::session::outbound::window::Quota;
use crate::session::redelivery_policy::RedeliveryPolicy;
use crate::session::wire::Wire;
use crate::time::Instant;
use std::fmt;
use std::time::Duration;

/// The state of a socket's sent bytes, as the kernel reports it at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketView {
    /// Written bytes that the peer's kernel has not acknowledged.
    pub unsent: usize,
    /// Segments in transit without an acknowledgement. Meaningful only if `unsent` is not 0.
    pub on_the_way: u32,
    /// Retransmissions of the oldest such segment without an answer.
    pub retransmits: u32,
}

impl SocketView {
    /// Returns the stream offset up to which the peer's kernel has acknowledged the connection's
    /// bytes.
    pub fn peer_has(self, wire: &Wire) -> u64 {
        wire.outbox.written().saturating_sub(self.unsent as u64)
    }
}

/// The holder of an unacknowledged packet, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallCause {
    /// The client's kernel has the packet: the application holds or dropped it.
    Application,
    /// The client's kernel takes no more bytes: no one reads the socket.
    Unread,
    /// The packet is in transit, on a slow link.
    InTransit,
    /// The client's host does not answer: a broken path, or a half-open connection.
    Unanswered,
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

    /// Returns the name of the cause as a policy sees it. Time counts only against an application.
    pub const fn name(self) -> &'static str {
        match self {
            StallCause::Application => "application",
            _ => "network",
        }
    }

    /// Returns the cause in words, for an operator.
    pub const fn detail(self) -> &'static str {
        match self {
            StallCause::Application => "the client's host has it",
            StallCause::Unread => "the client's host takes no more bytes",
            StallCause::InTransit => "still on its way",
            StallCause::Unanswered => "the client's host does not answer",
        }
    }
}

/// One packet without its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The Packet Identifier.
    pub packet_id: PacketId,
    /// Time since the message was first sent, over all connections.
    pub age: Duration,
    /// Transmissions of the packet, over all connections.
    pub transmissions: u16,
    /// The holder of the packet.
    pub cause: StallCause,
    /// The message's running number. Two messages with the same identifier differ in it.
    pub number: u64,
    /// Time from the packet's deadline until it was found; zero before the deadline.
    pub late: Duration,
    /// The state of the socket; the default if the socket was not asked.
    pub view: SocketView,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stall { packet_id, age, transmissions, cause, .. } = self;
        let (id, age, times) = (packet_id.get(), age.as_millis(), if *transmissions == 1 { "" } else { "s" });
        let (name, detail) = (cause.name(), cause.detail());
        write!(
            f,
            "packet {id} unacknowledged for {age} ms, sent {transmissions} time{times}; {name}: {detail}"
        )
    }
}

/// The overdue acknowledgements of a 5.0 connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverdueAck {
    /// The oldest packet that the application has had for its ack timeout.
    pub application: Option<Stall>,
    /// The oldest packet for which the connection is to be closed.
    pub disconnect: Option<Stall>,
    /// The oldest packet that the client's kernel does not have. Its time begins anew.
    pub network: Option<Stall>,
}

impl OverdueAck {
    fn note(&mut self, stall: Stall, redelivery: &RedeliveryPolicy, outlives: Outlives) {
        let disconnects = redelivery.ack.on_timeout.disconnects(outlives);
        let (place, also) = match stall.cause {
            StallCause::Application => (&mut self.application, disconnects.then_some(&mut self.disconnect)),
            _ => (&mut self.network, None),
        };
        for place in std::iter::once(place).chain(also) {
            if place.is_none_or(|other| other.age < stall.age) {
                *place = Some(stall);
            }
        }
    }
}

impl Sender {
    /// Finds the overdue acknowledgements of a 5.0 connection. Each of them is due again one ack
    /// timeout from now, except messages that were sent as often as allowed: those are dropped.
    // 5.0 [MQTT-4.4.0-1]: nothing is written.
    pub fn overdue(
        &mut self,
        now: Instant,
        view: SocketView,
        outlives: Outlives,
        wire: &Wire,
        drops: &mut Drops,
    ) -> OverdueAck {
        let Sender { window: Some(window), redelivery, .. } = self else { return OverdueAck::default() };
        let (look, mut found) = (Look::new(now, view, wire), OverdueAck::default());
        let mut exhausted = Vec::new();
        for mut packet in window.packets().filter(|packet| packet.transmission().due <= now) {
            let policy = packet.policy(redelivery);
            match packet.transmission_mut().holder(&look, &policy, wire) {
                Holder::JustArrived => {}
                Holder::Network(stall) => found.note(stall, &policy, outlives),
                Holder::Application(stall) => {
                    packet.transmission_mut().wait_again(now, &policy, wire);
                    found.note(stall, &policy, outlives);
                    if packet.is_exhausted(&policy) {
                        exhausted.push(stall.number);
                    }
                }
            }
        }
        let quota = if found.disconnect.is_some() { Quota::Free } else { Quota::Forfeited };
        for number in exhausted {
            self.drop_exhausted(number, quota, drops);
        }
        found
    }

    /// Returns the unacknowledged packet that was sent first. The socket is not asked, so the cause
    /// is always the application.
    pub fn oldest_unacknowledged(&self, now: Instant) -> Option<Stall> {
        self.window.as_ref()?.oldest(now, |_| StallCause::Application)
    }

    /// Returns the unacknowledged packet that was sent first on a live connection, with its cause.
    pub fn oldest_diagnosed(&self, now: Instant, view: SocketView, wire: &Wire) -> Option<Stall> {
        let peer_has = view.peer_has(wire);
        let cause = |end_offset| StallCause::of(end_offset, peer_has, view);
        let oldest = self.window.as_ref()?.oldest(now, cause)?;
        Some(Stall { view, ..oldest })
    }

    /// Returns the delivery with this running number while it waits for PUBACK or PUBREC.
    pub fn unacknowledged(&self, number: u64) -> Option<&Delivery> {
        self.window.as_ref()?.delivery(number)
    }

    /// True if the message with this running number is not finished.
    pub fn is_unfinished(&self, number: u64) -> bool {
        self.window.as_ref().is_some_and(|window| window.holds(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_socket_says_names_the_network() {
        let view = |on_the_way, retransmits| SocketView { unsent: 9, on_the_way, retransmits };
        assert_eq!(StallCause::of_network(view(3, 2)), StallCause::Unanswered);
        assert_eq!(StallCause::of_network(view(0, 0)), StallCause::Unread);
        assert_eq!(StallCause::of_network(view(3, 0)), StallCause::InTransit);
        assert!(
            [StallCause::Unread, StallCause::InTransit, StallCause::Unanswered]
                .iter()
                .all(|c| c.name() == "network")
        );
    }
}
