//! An acknowledgement that does not come in time: which packet waits, since when, and on whom.
//!
//! Not here: what is done about it. A 3.x connection is resent to (`sender`); a 5.0 connection never is
//! (5.0 [MQTT-4.4.0-1]), so there the wait is told of, or the connection cut.

use super::inflight::Quota;
use super::loss::Losses;
use super::queue::Delivery;
use super::retry::Outlives;
use super::sender::Sender;
use super::terms::Terms;
use super::wire::Wire;
use crate::mqtt::packet::PacketId;
use crate::time::Instant;
use std::fmt;
use std::time::Duration;

/// What the socket says of the bytes written to it, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketView {
    /// Bytes written that the peer's kernel has not acknowledged.
    pub unsent: usize,
    /// Segments on their way, unacknowledged. Meaningful only with `unsent`.
    pub on_the_way: u32,
    /// Times that the oldest of those was sent again without an answer.
    pub retransmits: u32,
}

impl SocketView {
    /// How far the peer's kernel took the stream of a connection.
    pub fn peer_has(self, wire: &Wire) -> u64 {
        wire.outbox.written().saturating_sub(self.unsent as u64)
    }
}

/// Who holds the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallCause {
    /// The client's kernel has it: its application holds or dropped it.
    Application,
    /// The client's kernel takes no more bytes: nothing reads the socket.
    Unread,
    /// On its way; a slow link.
    InTransit,
    /// The client's host does not answer: a broken path, or half a connection.
    Unanswered,
}

impl StallCause {
    /// Of a packet that ends at `end_offset`, where the peer's kernel has the stream up to `peer_has`.
    pub fn of(end_offset: u64, peer_has: u64, view: SocketView) -> StallCause {
        if peer_has < end_offset { StallCause::of_network(view) } else { StallCause::Application }
    }

    /// Of a packet that the peer's kernel has not got.
    pub fn of_network(view: SocketView) -> StallCause {
        match view {
            SocketView { retransmits: 1.., .. } => StallCause::Unanswered,
            SocketView { on_the_way: 0, .. } => StallCause::Unread,
            _ => StallCause::InTransit,
        }
    }

    /// The two that matter to a policy: the time counts against an application alone.
    pub const fn name(self) -> &'static str {
        match self {
            StallCause::Application => "application",
            _ => "network",
        }
    }

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
    pub packet_id: PacketId,
    /// Since the message was first sent, over all connections.
    pub age: Duration,
    /// How often the packet was sent, over all connections.
    pub transmissions: u16,
    pub cause: StallCause,
    /// Its message's place in the session: tells two messages with one identifier apart.
    pub number: u64,
    /// How long after its deadline this was found; zero where that is yet to come.
    pub late: Duration,
    /// What the socket said, where it was asked.
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

/// What was found due on a 5.0 connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overdue {
    /// The oldest that the application has had for its ack timeout.
    pub application: Option<Stall>,
    /// The oldest of those for which the connection is to be cut.
    pub cut: Option<Stall>,
    /// The oldest that the client's kernel has not got; its time begins anew.
    pub network: Option<Stall>,
}

impl Overdue {
    fn note(&mut self, stall: Stall, terms: &Terms, outlives: Outlives) {
        let cuts = terms.ack.on_timeout.cuts(outlives);
        let (place, cut) = match stall.cause {
            StallCause::Application => (&mut self.application, cuts.then_some(&mut self.cut)),
            _ => (&mut self.network, None),
        };
        for place in std::iter::once(place).chain(cut) {
            if place.is_none_or(|other| other.age < stall.age) {
                *place = Some(stall);
            }
        }
    }
}

impl Sender {
    /// Looks at what is due on a 5.0 connection; all of it is due again one ack timeout from now, but for what was sent as often
    /// as it may be and is given up.
    // 5.0 [MQTT-4.4.0-1]: nothing is written.
    pub fn overdue(
        &mut self,
        now: Instant,
        view: SocketView,
        outlives: Outlives,
        wire: &Wire,
        losses: &mut Losses,
    ) -> Overdue {
        let Sender { window, terms, .. } = self;
        let (peer_has, mut found) = (view.peer_has(wire), Overdue::default());
        let mut exhausted = Vec::new();
        let cause = |end_offset| StallCause::of(end_offset, peer_has, view);
        for p in window.sent_publishes().filter(|p| p.due <= now) {
            let terms = terms.of(p.delivery.message.topic());
            let cause = cause(p.end_offset);
            p.due = terms.due(now, 0, wire);
            if has_just_arrived(&mut p.with_network, cause) {
                continue;
            }
            let stall = Stall { view, ..p.stall(now, cause) };
            found.note(stall, &terms, outlives);
            if stall.cause == StallCause::Application && terms.gives_up(p.transmissions) {
                exhausted.push(stall.number);
            }
        }
        for r in window.releases().filter(|r| r.due <= now) {
            let terms = terms.under(r.matched);
            let cause = cause(r.end_offset);
            r.due = terms.due(now, 0, wire);
            if !has_just_arrived(&mut r.with_network, cause) {
                found.note(Stall { view, ..r.stall(now, cause) }, &terms, outlives);
            }
        }
        let quota = if found.cut.is_some() { Quota::Free } else { Quota::Forfeited };
        for number in exhausted {
            self.give_up(number, quota, losses);
        }
        found
    }

    /// The unacknowledged packet that was first sent before all others. Whether the client's kernel has it is not asked.
    pub fn oldest_unacknowledged(&self, now: Instant) -> Option<Stall> {
        self.window.oldest(now, |_| StallCause::Application)
    }

    /// The same on a live connection whose socket was asked.
    pub fn oldest_diagnosed(&self, now: Instant, view: SocketView, wire: &Wire) -> Option<Stall> {
        let peer_has = view.peer_has(wire);
        let oldest = self.window.oldest(now, |end_offset| StallCause::of(end_offset, peer_has, view))?;
        Some(Stall { view, ..oldest })
    }

    /// The message with this running number, while it waits for its PUBACK or PUBREC.
    pub fn unacknowledged(&self, number: u64) -> Option<&Delivery> {
        self.window.delivery(number)
    }

    /// Whether this message is still unfinished.
    pub fn is_unfinished(&self, number: u64) -> bool {
        self.window.holds(number)
    }
}

/// Whether the client's kernel has got a packet since the last look: then its time begins. Notes what is seen now.
fn has_just_arrived(with_network: &mut bool, cause: StallCause) -> bool {
    let was = std::mem::replace(with_network, cause != StallCause::Application);
    was && !*with_network
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
