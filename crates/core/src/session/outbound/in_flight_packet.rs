//! The packets of the in-flight window: a PUBLISH, or the PUBREL that follows it at QoS 2.

use crate::mqtt::codec::AckKind;
use crate::mqtt::packet::ReasonCode;
use crate::persistence::records::Flight;
use crate::persistence::rows::Entry;
use crate::session::drops::{DropReason, Dropped, Sent};
use crate::session::outbound::delivery::Delivery;
use crate::session::outbound::transmission::Transmission;
use crate::session::redelivery_policy::RedeliveryPolicy;
use crate::session::session_redelivery::{PolicyRules, SessionRedelivery};
use crate::session::wire::{Sending, Wire};
use crate::time::Instant;
use std::borrow::Cow;
use std::time::Duration;

/// A PUBLISH without its PUBACK or PUBREC.
#[derive(Debug)]
pub struct Unacked {
    /// The message and the additions of its delivery.
    pub delivery: Delivery,
    /// The transmissions of the packet.
    pub transmission: Transmission,
    /// Milliseconds from the first transmission to the last one, up to 49 days.
    pub(super) last_sent_after: u32,
}

impl Unacked {
    /// Returns the place in the window, for the store.
    pub fn flight(&self) -> Flight {
        let transmissions = self.transmission.own_transmissions();
        Flight { running: self.transmission.number(), transmissions }
    }

    /// Records the place in the window, if the delivery is stored. Called once, before the first
    /// transmission.
    pub fn record_place(&mut self) {
        let flight = self.flight();
        if let Some(entry) = &mut self.delivery.stored {
            entry.placed(flight);
        }
    }

    /// Records the transmissions so far, if the delivery is stored.
    pub fn record(&self) {
        if let Some(entry) = &self.delivery.stored {
            entry.sent(self.flight());
        }
    }

    /// Counts one more transmission.
    pub fn sent_again(&mut self, now: Instant) {
        self.transmission.sent_again();
        self.note_last_sent(now);
    }

    fn note_last_sent(&mut self, now: Instant) {
        let after = now.since(self.transmission.first_sent).as_millis();
        self.last_sent_after = u32::try_from(after).unwrap_or(u32::MAX);
    }

    /// Sends the packet again on a live 3.x connection.
    pub fn resend(&mut self, now: Instant, wire: &mut Wire, policy: &RedeliveryPolicy) {
        // 3.1.1 [MQTT-3.3.1-1]
        let sending = Sending { dup: true, ..self.delivery.sending(Some(self.transmission.packet_id())) };
        // 3.x clients announce no Maximum Packet Size, so the packet fits as before.
        let _ = wire.put_publish(now, &self.delivery.message, sending);
        self.transmission.resent();
        self.note_last_sent(now);
        self.transmission.written(policy.due(now, self.transmission.attempts, wire), wire);
        self.record();
    }

    /// Turns the packet into a drop.
    pub fn into_drop(self, cause: DropReason) -> Dropped {
        let Transmission { transmissions, first_sent, .. } = self.transmission;
        let last = first_sent + Duration::from_millis(self.last_sent_after.into());
        let sent = Sent { times: transmissions, first: first_sent, last };
        let dropped = Dropped::unsent(cause, self.delivery.message).counted_by(self.delivery.mark);
        Dropped { sent, ..dropped }
    }
}

/// A PUBREL without its PUBCOMP.
#[derive(Debug)]
pub struct Release {
    /// The transmissions of the PUBREL. `first_sent` is that of its PUBLISH.
    pub transmission: Transmission,
    /// The rules that the message's topic matched.
    pub matched: PolicyRules,
    /// True if the PUBREL holds a unit of the send quota. False after it was carried over from an
    /// earlier connection.
    pub in_quota: bool,
    /// The row in the store; `None` if the delivery is not stored.
    pub stored: Option<Box<Entry>>,
}

impl Release {
    /// Writes the PUBREL, for the first time or again.
    pub fn write(&mut self, now: Instant, wire: &mut Wire, policy: &RedeliveryPolicy) {
        self.transmission.sent_again();
        self.put(now, wire, policy);
    }

    /// Writes the PUBREL, whose transmission is counted.
    fn put(&mut self, now: Instant, wire: &mut Wire, policy: &RedeliveryPolicy) {
        // The PUBREC is recorded before it is answered.
        wire.wait_for(self.stored.as_deref());
        wire.put_acknowledgement(AckKind::Pubrel, self.transmission.packet_id(), ReasonCode::SUCCESS);
        let sent = &mut self.transmission;
        sent.written(policy.due(now, sent.attempts, wire), wire);
    }

    /// Sends the PUBREL again on a live 3.x connection.
    pub fn resend(&mut self, now: Instant, wire: &mut Wire, policy: &RedeliveryPolicy) {
        self.transmission.resent();
        self.put(now, wire, policy);
    }
}

/// One unfinished packet of the window, for an operator.
#[derive(Clone, Copy, Debug)]
pub struct InFlightView<'a> {
    /// The transmission record.
    pub transmission: &'a Transmission,
    /// The message; `None` for a PUBREL, which has none any more.
    pub delivery: Option<&'a Delivery>,
    /// True if the packet was sent on the present connection.
    pub sent_here: bool,
}

/// One packet of the window that was sent on this connection.
#[derive(Debug)]
pub enum InFlightPacket<'a> {
    /// A PUBLISH without its PUBACK or PUBREC.
    Publish(&'a mut Unacked),
    /// A PUBREL without its PUBCOMP.
    Release(&'a mut Release),
}

impl InFlightPacket<'_> {
    /// Returns the transmission record.
    pub fn transmission(&self) -> &Transmission {
        match self {
            InFlightPacket::Publish(p) => &p.transmission,
            InFlightPacket::Release(r) => &r.transmission,
        }
    }

    /// Returns the transmission record, to change it.
    pub fn transmission_mut(&mut self) -> &mut Transmission {
        match self {
            InFlightPacket::Publish(p) => &mut p.transmission,
            InFlightPacket::Release(r) => &mut r.transmission,
        }
    }

    /// Returns the redelivery settings of the packet's topic.
    pub fn policy<'a>(&self, redelivery: &'a SessionRedelivery) -> Cow<'a, RedeliveryPolicy> {
        match self {
            InFlightPacket::Publish(p) => redelivery.of(p.delivery.message.topic()),
            InFlightPacket::Release(r) => redelivery.under(r.matched),
        }
    }

    /// Returns true if the message was sent as often as its policy allows and must be dropped.
    /// Returns false for a PUBREL: its message has arrived, so nothing is left to drop.
    pub fn is_given_up(&self, policy: &RedeliveryPolicy) -> bool {
        match self {
            InFlightPacket::Publish(p) => policy.gives_up(p.transmission.own_transmissions()),
            InFlightPacket::Release(_) => false,
        }
    }
}
