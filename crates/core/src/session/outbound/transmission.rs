//! The transmission record of a packet in flight: one record for PUBLISH and PUBREL, 3.x and 5.0.
//!
//! [`Transmission::holder`] is the first step of every look at a packet that is due. Time counts
//! against a client only while the client's kernel has the packet.

use crate::mqtt::packet::PacketId;
use crate::session::outbound::stall::{SocketView, Stall, StallCause};
use crate::session::redelivery_policy::RedeliveryPolicy;
use crate::session::wire::Wire;
use crate::time::Instant;
use crate::time::age::Age;

/// Number of Packet Identifiers.
pub(super) const IDS: u64 = 65_535;

const FIRST: PacketId = PacketId::new(1).expect("1 is not 0");

/// Returns the Packet Identifier of a running number.
pub(super) fn packet_id(number: u64) -> PacketId {
    PacketId::new((number % IDS) as u16 + 1).unwrap_or(FIRST)
}

/// The transmissions of one packet: their number, the time of the first, and the due time of the
/// next.
#[derive(Clone, Copy, Debug)]
pub struct Transmission {
    /// The time at which the packet is resent on this connection (3.x) or overdue (5.0);
    /// [`Instant::NEVER`] for neither.
    pub due: Instant,
    /// The time at which the message was first sent; [`Instant::ZERO`] if it was before the start.
    pub first_sent: Instant,
    /// The offset of the packet's end in the connection's stream.
    pub end_offset: u64,
    number: u64,
    /// Resends on this connection.
    pub attempts: u16,
    /// Transmissions over all connections; 0 if the packet was written to one connection only and
    /// the socket did not take all of it. This 0 is not stored: a start finds 1, so DUP is set.
    pub transmissions: u16,
    /// The place of the packet at the last look.
    pub place: PacketPlace,
    asked: AskedResends,
}

/// The place of a packet at the last look at its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketPlace {
    /// No look came since the packet was written.
    Unknown,
    /// The peer's kernel did not have the packet, so its time had not begun.
    Network,
    /// The peer's kernel had the packet.
    Peer,
}

/// The resends that an operator asked for. Such resends are no attempts of a redelivery policy.
/// Three bytes, which fit into the padding of [`Transmission`].
#[derive(Clone, Copy, Debug, Default)]
struct AskedResends {
    /// True if the next resend is such a resend.
    is_next: bool,
    /// Their number on this connection, up to 255.
    here: u8,
    /// Their number over all connections since the start of the broker, up to 255.
    ever: u8,
}

impl Transmission {
    /// Creates the record of the packet with this running number, which is not written yet.
    pub fn new(number: u64, first_sent: Instant, due: Instant, transmissions: u16) -> Transmission {
        let (end_offset, attempts, place, asked) = (0, 0, PacketPlace::Unknown, AskedResends::default());
        Transmission { due, first_sent, end_offset, number, attempts, transmissions, place, asked }
    }

    /// Records that an operator asked for the next resend.
    pub fn ask(&mut self) {
        self.asked.is_next = true;
    }

    /// Returns true if an operator asked for the next resend.
    pub fn is_asked(&self) -> bool {
        self.asked.is_next
    }

    /// Returns the resends on this connection, without those that an operator asked for.
    pub fn own_attempts(&self) -> u16 {
        self.attempts.saturating_sub(self.asked.here.into())
    }

    /// Returns the transmissions over all connections, without those that an operator asked for.
    pub fn own_transmissions(&self) -> u16 {
        self.transmissions.saturating_sub(self.asked.ever.into())
    }

    /// Begins a connection, on which nothing was resent yet.
    pub fn begin_connection(&mut self) {
        (self.attempts, self.asked.here) = (0, 0);
    }

    /// Counts a resend on the connection that has the packet.
    pub fn resent(&mut self) {
        self.attempts = self.attempts.saturating_add(1);
        self.asked.here = self.asked.here.saturating_add(self.asked.is_next.into());
        self.sent_again();
    }

    /// Counts one more transmission.
    pub fn sent_again(&mut self) {
        let is_asked = std::mem::take(&mut self.asked.is_next) && self.transmissions > 0;
        self.asked.ever = self.asked.ever.saturating_add(is_asked.into());
        self.transmissions = self.transmissions.saturating_add(1);
    }

    /// Returns the running number, which is unique in the session.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the Packet Identifier.
    pub fn packet_id(&self) -> PacketId {
        packet_id(self.number)
    }

    /// Returns the time since the message was first sent.
    pub fn age(&self, now: Instant) -> Age {
        Age::since(now, self.first_sent)
    }

    /// Describes the packet as a stall. The caller fills in the state of the socket.
    pub fn stall(&self, now: Instant, cause: StallCause) -> Stall {
        let Transmission { transmissions, number, due, .. } = *self;
        let (packet_id, age, late) = (self.packet_id(), self.age(now), now.since(due));
        Stall { packet_id, age, transmissions, cause, number, late, view: SocketView::default() }
    }

    /// Records that the packet was written, up to the outbox's present end.
    pub fn written(&mut self, due: Instant, wire: &Wire) {
        self.due = due;
        self.end_offset = wire.outbox.end_offset();
        self.place = PacketPlace::Unknown;
    }

    /// Sets the due time one wait from now, without a resend.
    pub fn wait_again(&mut self, now: Instant, policy: &RedeliveryPolicy, wire: &Wire) {
        self.asked.is_next = false;
        self.due = policy.due(now, self.attempts, wire);
    }

    /// Returns who holds the packet, which is due. Unless the application holds it, the wait begins
    /// again: the network's time is not the client's, and a packet that has just arrived has its
    /// whole wait. At the first look, a packet counts as just arrived if bytes behind it are on
    /// their way: the link is slow then, and its acknowledgement may be on its way, too.
    pub fn holder(&mut self, look: &Look, policy: &RedeliveryPolicy, wire: &Wire) -> PacketHolder {
        let cause = StallCause::of(self.end_offset, look.peer_has, look.view);
        let stall = Stall { view: look.view, ..self.stall(look.now, cause) };
        let place = if cause == StallCause::Application { PacketPlace::Peer } else { PacketPlace::Network };
        let has_arrived = match std::mem::replace(&mut self.place, place) {
            PacketPlace::Network => true,
            PacketPlace::Unknown => look.view.unsent > 0,
            PacketPlace::Peer => false,
        };
        if place == PacketPlace::Peer && !has_arrived {
            return PacketHolder::Application(stall);
        }
        self.wait_again(look.now, policy, wire);
        if place == PacketPlace::Network { PacketHolder::Network(stall) } else { PacketHolder::JustArrived }
    }
}

/// One look at a connection whose packets are due.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// The time of the look.
    pub now: Instant,
    /// The state of the socket.
    pub view: SocketView,
    /// The stream offset up to which the peer's kernel has the connection's bytes.
    peer_has: u64,
}

impl Look {
    /// Looks at a connection whose socket is in this state.
    pub fn new(now: Instant, view: SocketView, wire: &Wire) -> Look {
        Look { now, view, peer_has: view.peer_has(wire.outbox.written()) }
    }
}

/// The holder of a packet that is due.
#[derive(Clone, Copy, Debug)]
pub enum PacketHolder {
    /// The peer's kernel does not have the packet.
    Network(Stall),
    /// The peer's kernel got the packet since the last look.
    JustArrived,
    /// The client's application has had the packet for its whole wait.
    Application(Stall),
}
