//! The packets of a 5.0 connection whose acknowledgement is overdue. A 5.0 client gets no packet
//! again on the same connection, so they are reported, or the connection is closed.

use crate::session::outbound::retry::Outlives;
use crate::session::outbound::stall::{Stall, StallCause};
use crate::session::outbound::transmission::{Look, PacketHolder};
use crate::session::outbound::window::InFlight;
use crate::session::redelivery_policy::RedeliveryPolicy;
use crate::session::session_redelivery::SessionRedelivery;
use crate::session::wire::Wire;

/// The packets of a 5.0 connection whose acknowledgement is overdue: the oldest of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StalledPackets {
    /// The oldest packet that the application has had for its ack timeout.
    pub application: Option<Stall>,
    /// The oldest packet for which the connection is to be closed.
    pub disconnect: Option<Stall>,
    /// The oldest packet that the client's kernel does not have. Its time begins anew.
    pub network: Option<Stall>,
}

impl StalledPackets {
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

    /// Finds the stalled packets in a window. Each packet is due again
    /// one ack timeout from now. Returns them, and the numbers of the messages that were sent as
    /// often as allowed.
    pub(super) fn find(
        look: &Look,
        outlives: Outlives,
        wire: &Wire,
        window: &mut InFlight,
        redelivery: &SessionRedelivery,
    ) -> (StalledPackets, Vec<u64>) {
        let (mut found, mut given_up) = (StalledPackets::default(), Vec::new());
        for mut packet in window.packets().filter(|packet| packet.transmission().due <= look.now) {
            let policy = packet.policy(redelivery);
            match packet.transmission_mut().holder(look, &policy, wire) {
                PacketHolder::JustArrived => {}
                PacketHolder::Network(stall) => found.note(stall, &policy, outlives),
                PacketHolder::Application(stall) => {
                    packet.transmission_mut().wait_again(look.now, &policy, wire);
                    found.note(stall, &policy, outlives);
                    if packet.is_given_up(&policy) {
                        given_up.push(stall.number);
                    }
                }
            }
        }
        (found, given_up)
    }
}
