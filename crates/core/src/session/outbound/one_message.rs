//! One unfinished message of a session, as an operator names it: where it is, and its removal.
//!
//! A name never refers to a later message. A stored delivery has a number that is never given
//! twice. Any other message is named by its place, and a place in the window or the queue is never
//! used twice in the life of a session.

use crate::mqtt::packet::QoS;
use crate::persistence::records::EntryNumber;
use crate::session::drops::{DropReason, Dropped, Drops};
use crate::session::outbound::delivery::Delivery;
use crate::session::outbound::queue::{Queue, Queued};
use crate::session::outbound::sender::Sender;
use crate::session::outbound::window::{InFlight, Quota};

/// The name of an unfinished message in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageName {
    /// A stored delivery, in flight or queued.
    Stored(EntryNumber),
    /// The running number of a message in flight that is not stored.
    InFlight(u64),
    /// The place of a queued message that is not stored.
    Queued(u64),
}

/// The reason why an operator cannot have a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoMessage {
    /// The message is finished, or has another place.
    Gone,
    /// The receiver has the message: PUBREC came, and PUBCOMP is awaited.
    Received,
}

/// The place of an unfinished message.
#[derive(Clone, Copy, Debug)]
pub enum MessagePlace<'a> {
    /// In the window, with its running number.
    InFlight(u64, &'a Delivery),
    /// In the queue, in memory.
    Queued(Queued, &'a Delivery),
    /// In the queue, and the message is in the store alone.
    PagedOut(EntryNumber),
}

impl Sender {
    /// Returns the place of a message. Costs a pass over window and queue.
    ///
    /// # Errors
    /// The message is gone, or its receiver has it.
    pub fn place_of(&self, name: MessageName) -> Result<MessagePlace<'_>, NoMessage> {
        let (window, queue) = (&*self.window, &*self.queue);
        let number = match name {
            MessageName::InFlight(number) => Some(number),
            MessageName::Stored(entry) => window.number_of(entry),
            MessageName::Queued(_) => None,
        };
        if let Some(number) = number {
            return in_flight(window, number);
        }
        let queued = match name {
            MessageName::InFlight(_) => return Err(NoMessage::Gone),
            MessageName::Queued(place) => Queued::Place(place),
            MessageName::Stored(entry) => Queued::Stored(entry),
        };
        queue_place(queue, queued).ok_or(NoMessage::Gone)
    }

    /// Drops a message for this reason. `quota` says if the unit of the send quota that a message
    /// in flight holds is free. Costs a pass over window and queue.
    ///
    /// # Errors
    /// The message is gone, or its receiver has it.
    pub fn drop_message(
        &mut self,
        name: MessageName,
        quota: Quota,
        cause: DropReason,
        drops: &mut Drops,
    ) -> Result<(), NoMessage> {
        enum Found {
            InFlight(u64),
            Queued(Queued),
            PagedOut(EntryNumber),
        }
        let found = match self.place_of(name)? {
            MessagePlace::InFlight(number, _) => Found::InFlight(number),
            MessagePlace::Queued(queued, _) => Found::Queued(queued),
            MessagePlace::PagedOut(entry) => Found::PagedOut(entry),
        };
        let dropped = match found {
            Found::InFlight(number) => {
                let removed = self.window.get_mut().and_then(|window| window.remove_publish(number, quota));
                removed.map(|publish| publish.into_drop(cause))
            }
            Found::Queued(queued) => {
                let removed = self.queue.get_mut().and_then(|queue| queue.remove(&queued));
                removed.map(|delivery| delivery.to_drop(cause))
            }
            Found::PagedOut(entry) => {
                let is_removed = self.queue.get_mut().is_some_and(|queue| queue.remove_paged_out(entry));
                is_removed.then(|| Dropped::new(cause, None))
            }
        };
        drops.lose(dropped.ok_or(NoMessage::Gone)?);
        Ok(())
    }
}

fn in_flight(window: &InFlight, number: u64) -> Result<MessagePlace<'_>, NoMessage> {
    if !window.contains(number) {
        return Err(NoMessage::Gone);
    }
    // A PUBREL has no delivery any more.
    let delivery = window.delivery(number).ok_or(NoMessage::Received)?;
    debug_assert!(delivery.qos != QoS::AtMostOnce);
    Ok(MessagePlace::InFlight(number, delivery))
}

fn queue_place(queue: &Queue, queued: Queued) -> Option<MessagePlace<'_>> {
    match queued {
        Queued::Place(place) => {
            let (_, found, delivery) = queue.view_from(place).next()?;
            (found == place).then_some(MessagePlace::Queued(queued, delivery))
        }
        Queued::Stored(entry) => {
            let in_memory =
                queue.view_from(0).map(|(.., delivery)| delivery).find(|delivery| delivery.is_entry(entry));
            let paged_out =
                || queue.view_paged_out_from(entry).next().filter(|paged_out| paged_out.number() == entry);
            match in_memory {
                Some(delivery) => Some(MessagePlace::Queued(queued, delivery)),
                None => paged_out().map(|_| MessagePlace::PagedOut(entry)),
            }
        }
    }
}
