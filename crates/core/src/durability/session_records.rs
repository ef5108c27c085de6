//! The record of one delivery to a stored session.

use crate::persistence::records::Flight;
use crate::persistence::rows::{Body, Entry, NewDelivery, SessionRow};
use crate::session::outbound::queue::Delivery;
use std::rc::Rc;

/// Records a delivery to a session, and returns its entry. Returns `None`, and records nothing, if
/// the session is not stored, which is the case if `row` is `None`. The first delivery of a message
/// also records the message, and puts it into `body` for the others.
pub(crate) fn record_delivery(
    row: Option<&Rc<SessionRow>>,
    body: &mut Option<Rc<Body>>,
    delivery: &Delivery,
    flight: Option<Flight>,
) -> Option<Box<Entry>> {
    let SessionRow { key, write_buffer, .. } = &**row?;
    let body = body.get_or_insert_with(|| write_buffer.body(&delivery.message));
    let Delivery { qos, retain, ids, share, .. } = delivery;
    Some(write_buffer.entry(
        *key,
        body,
        NewDelivery { qos: *qos, retain: *retain, ids, share: share.as_ref(), flight },
    ))
}
