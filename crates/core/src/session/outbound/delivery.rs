//! A message on its way to one session, in a queue or in a window.

use crate::mqtt::message::Message;
use crate::mqtt::packet::{PacketId, QoS};
use crate::mqtt::subscription_ids::SubscriptionIds;
use crate::persistence::records::{EntryNumber, Flight};
use crate::persistence::rows::{Body, Entry, NewDelivery, SessionRow};
use crate::session::drops::{DropReason, Dropped};
use crate::session::objectives::DeliveryMark;
use crate::session::outbound::portion::Selection;
use crate::session::wire::Sending;
use std::rc::Rc;
use std::sync::Arc;

/// A message with the fields that its delivery adds.
#[derive(Debug)]
pub struct Delivery {
    /// The message.
    pub message: Message,
    /// The Subscription Identifiers.
    pub ids: SubscriptionIds,
    /// The lower of published and granted QoS.
    pub qos: QoS,
    /// The RETAIN flag.
    pub retain: bool,
    /// The delivery objective that counts the delivery.
    pub mark: DeliveryMark,
    /// The shared subscription that the message came by, in full; `None` without one. At the end of
    /// the session, another member of the group may get the message.
    pub share: Option<Arc<Box<str>>>,
    /// The row in the store; `None` if the delivery is not stored. Dropping the delivery ends the
    /// row.
    pub stored: Option<Box<Entry>>,
}

impl Delivery {
    /// Returns the fields of a PUBLISH that is sent for the first time.
    pub fn sending(&self, packet_id: Option<PacketId>) -> Sending<'_> {
        let Delivery { qos, retain, ids, .. } = self;
        Sending { dup: false, qos: *qos, retain: *retain, packet_id, ids: ids.as_slice() }
    }

    /// Records the delivery to a stored session. Does nothing without a `row`. The first delivery
    /// of a message also records the message, and puts it into `body` for the others. `flight` is
    /// the place in the window, if the delivery is sent at once.
    pub fn record(&mut self, row: Option<&SessionRow>, body: &mut Option<Rc<Body>>, flight: Option<Flight>) {
        let Some(SessionRow { key, write_buffer, .. }) = row else { return };
        let body = body.get_or_insert_with(|| write_buffer.body(&self.message));
        let (qos, retain, ids, share) = (self.qos, self.retain, &self.ids, self.share.as_ref());
        self.stored = Some(write_buffer.entry(*key, body, NewDelivery { qos, retain, ids, share, flight }));
    }

    /// Returns true if this is the stored delivery with this number.
    pub fn is_entry(&self, number: EntryNumber) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.number() == number)
    }

    /// Returns the bytes that count in a queue: the message in full, and its Subscription
    /// Identifiers.
    pub fn size(&self) -> usize {
        self.message.size() + self.ids.size()
    }

    /// Returns the selection of a portion that takes the delivery if `is_taken` returns true for
    /// its message. A shared delivery ends a portion, because passing it to another member costs
    /// more.
    pub fn selection(&self, is_taken: &mut impl FnMut(&Message) -> bool) -> Selection {
        if !is_taken(&self.message) {
            return Selection::Keep;
        }
        if self.share.is_some() { Selection::TakeLast } else { Selection::Take }
    }

    /// Returns the drop of this delivery, which was never sent to the session. The stored row ends
    /// with the delivery itself.
    pub fn to_drop(&self, cause: DropReason) -> Dropped {
        Dropped::unsent(cause, self.message.clone()).counted_by(self.mark)
    }
}
