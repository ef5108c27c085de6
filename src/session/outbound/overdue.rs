//! Overdue acknowledgements of a 5.0 connection, and the oldest unacknowledged packet of any.

use crate::session::drops::Drops;
use crate::session::outbound::queue::Delivery;
use crate::session::outbound::retry::Outlives;
use crate::session::outbound::sender::Sender;
use crate::session::outbound::stall::{SocketView, Stall, StallCause};
use crate::session::outbound::transmission::{Holder, Look};
use crate::session::outbound::window::Quota;
use crate::session::redelivery_policy::RedeliveryPolicy;
use crate::session::wire::Wire;
use crate::time::Instant;

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
    /// Finds the overdue acknowledgements of a 5.0 connection. Each packet is due again one ack
    /// timeout from now. A message that was sent as often as allowed is dropped instead.
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

    /// Returns the unacknowledged packet that was sent first. The state of the socket is not known
    /// here, so the cause is always the application.
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
