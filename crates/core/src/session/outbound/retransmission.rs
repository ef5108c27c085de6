//! Live retransmission on 3.x connections. One round resends the packets that are due, in order and
//! in a bounded number. When a packet is due, `redelivery_policy` decides.
//!
//! A packet is resent only if the peer's kernel has it and the application does not acknowledge it.
//! A packet that the network still holds is not sent a second time, and no attempt is counted.

use crate::mqtt::codec::PacketType;
use crate::session::counters::Counters;
use crate::session::outbound::in_flight_packet::InFlightPacket;
use crate::session::outbound::retry::{Outlives, RetryPolicy};
use crate::session::outbound::sender::Sender;
use crate::session::outbound::stall::{SocketView, Stall};
use crate::session::outbound::transmission::{Look, PacketHolder, PacketPlace, Transmission};
use crate::session::outbound::window::{InFlight, Quota};
use crate::session::policy::SendPolicy;
use crate::session::redelivery_policy::RedeliveryPolicy;
use crate::session::wire::Wire;
use crate::time::Instant;

/// The result of one [`Sender::retransmit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retransmission {
    /// PUBLISHes sent again.
    pub publishes: u32,
    /// PUBRELs sent again.
    pub releases: u32,
    /// The first packet sent again, with this transmission counted.
    pub resent: Option<Stall>,
    /// The first packet that goes on although it was sent as often as allowed.
    pub kept: Option<Stall>,
    /// The first packet that the peer's kernel does not have. The network holds it, so no attempt
    /// counts.
    pub network: Option<Stall>,
    /// The first packet that was sent as often as allowed, if the connection is to be closed for
    /// it.
    pub exhausted: Option<Stall>,
    /// Number of messages that were sent as often as allowed and dropped.
    pub drop_reports: u32,
}

impl Retransmission {
    /// Notes a packet that is about to be resent after this number of attempts; `None` if an
    /// operator asked for the resend.
    fn note(&mut self, found: Stall, attempts: Option<u16>, retry: &RetryPolicy) {
        let stall = Stall { transmissions: found.transmissions.saturating_add(1), ..found };
        self.resent.get_or_insert(stall);
        if retry.attempts > 0 && attempts == Some(retry.attempts) {
            self.kept.get_or_insert(stall);
        }
    }
}

/// The decision about one packet that is due.
enum DueAction {
    /// Nothing for now. The packet has a later due time, or waits for the next tick.
    Wait,
    /// Send the packet again.
    Resend,
    /// Drop the message.
    Drop,
    /// Close the connection.
    Close,
}

/// One pass over the packets of a connection.
struct ResendRound {
    look: Look,
    outlives: Outlives,
    /// Bytes in the outbox after which nothing is resent.
    outbox: usize,
    /// Resends that are left in this tick.
    budget: usize,
    /// True once budget or outbox are used up. Everything else that is due waits for the next tick.
    is_spent: bool,
    /// The fewest resends of any older packet: of PUBLISHes, then of PUBRELs. A packet is resent
    /// only if every older packet was resent more often than it, so each resend follows the resends
    /// of the older packets. 3.1.1 [MQTT-4.6.0-1], [MQTT-4.6.0-6]
    floors: [u16; 2],
    done: Retransmission,
}

impl ResendRound {
    fn decide(
        &mut self,
        packet: &mut InFlightPacket<'_>,
        policy: &RedeliveryPolicy,
        wire: &Wire,
    ) -> DueAction {
        let stall = match packet.transmission_mut().holder(&self.look, policy, wire) {
            PacketHolder::Network(stall) => {
                self.done.network.get_or_insert(stall);
                return DueAction::Wait;
            }
            PacketHolder::JustArrived => return DueAction::Wait,
            PacketHolder::Application(stall) => stall,
        };
        let attempts = packet.transmission().own_attempts();
        let attempts = (!packet.transmission().is_asked()).then_some(attempts);
        if attempts.is_some() && packet.is_given_up(policy) {
            return DueAction::Drop;
        }
        if attempts.is_some_and(|attempts| policy.retry.closes(attempts, self.outlives)) {
            self.done.exhausted = Some(stall);
            return DueAction::Close;
        }
        if self.is_spent || self.budget == 0 || wire.outbox.len() >= self.outbox {
            self.is_spent = true;
            return DueAction::Wait;
        }
        let floor = self.floors[row(packet)];
        let transmission = packet.transmission_mut();
        if floor <= transmission.attempts {
            // An older packet with a longer interval is not due yet. The client may still
            // acknowledge the older one within one more interval.
            transmission.wait_again(self.look.now, policy, wire);
            return DueAction::Wait;
        }
        self.budget -= 1;
        self.done.note(stall, attempts, &policy.retry);
        DueAction::Resend
    }

    fn resend(
        &mut self,
        packet: &mut InFlightPacket<'_>,
        policy: &RedeliveryPolicy,
        wire: &mut Wire,
        counters: &mut Counters,
    ) {
        let now = self.look.now;
        match packet {
            InFlightPacket::Publish(p) => {
                self.done.publishes += 1;
                counters.redelivered.live_publishes += 1;
                counters.sent.count(p.delivery.qos, p.delivery.message.payload().len());
                p.resend(now, wire, policy);
            }
            InFlightPacket::Release(r) => {
                self.done.releases += 1;
                counters.redelivered.live_releases += 1;
                counters.packets_sent.count(PacketType::Pubrel);
                r.resend(now, wire, policy);
            }
        }
    }

    /// Lowers the floor for the packets behind this one. A packet that is never resent blocks none.
    fn pass(&mut self, packet: &InFlightPacket<'_>) {
        let Transmission { due, attempts, .. } = *packet.transmission();
        let floor = &mut self.floors[row(packet)];
        *floor = (*floor).min(if due.is_never() { u16::MAX } else { attempts });
    }
}

/// Returns the index of a packet's floor: PUBLISHes and PUBRELs each have an order of their own.
fn row(packet: &InFlightPacket<'_>) -> usize {
    usize::from(matches!(packet, InFlightPacket::Release(_)))
}

impl Sender {
    /// Makes every packet of the connection due now. For an operator, who does not wait for the
    /// deadline, and whose resend is no attempt of the policy. A packet that the network held at
    /// the last look is resent if the peer's kernel has it now: otherwise younger packets would be
    /// resent before it.
    pub fn hasten(&mut self, now: Instant) {
        for mut packet in self.window.get_mut().into_iter().flat_map(InFlight::packets) {
            let transmission = packet.transmission_mut();
            (transmission.due, transmission.place) = (now, PacketPlace::Peer);
            transmission.ask();
        }
    }

    /// Records that the packets of the connection are sent again because an operator closes it.
    /// Such a resend is no attempt of a policy.
    pub fn ask_at_return(&mut self) {
        for mut packet in self.window.get_mut().into_iter().flat_map(InFlight::packets) {
            packet.transmission_mut().ask();
        }
    }

    /// Resends the packets that are due on a 3.x connection, in order and in a bounded number.
    /// Counts them in `counters`.
    ///
    /// `view` is the state of the socket. `outlives` says if the session outlives the connection,
    /// so that closing the connection leads to a redelivery. Costs a pass over the packets in
    /// flight.
    pub fn retransmit(
        &mut self,
        now: Instant,
        view: SocketView,
        outlives: Outlives,
        wire: &mut Wire,
        policy: &SendPolicy,
        counters: &mut Counters,
    ) -> Retransmission {
        let Sender { window, redelivery, .. } = self;
        let Some(window) = window.get_mut() else { return Retransmission::default() };
        let mut round = ResendRound {
            look: Look::new(now, view, wire),
            outlives,
            outbox: policy.outbox,
            budget: redelivery.own.retry.resends_per_tick,
            is_spent: false,
            floors: [u16::MAX; 2],
            done: Retransmission::default(),
        };
        let mut exhausted = Vec::new();
        for mut packet in window.packets() {
            if packet.transmission().due <= now {
                let policy = packet.policy(redelivery);
                match round.decide(&mut packet, &policy, wire) {
                    DueAction::Wait => {}
                    DueAction::Resend => round.resend(&mut packet, &policy, wire, counters),
                    DueAction::Drop => {
                        exhausted.push(packet.transmission().number());
                        continue;
                    }
                    DueAction::Close => break,
                }
            }
            round.pass(&packet);
        }
        let mut done = round.done;
        for number in exhausted {
            done.drop_reports += u32::from(self.drop_exhausted(number, Quota::Free, &mut counters.drops));
        }
        done
    }
}
