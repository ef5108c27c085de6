//! The check of a run: the messages that were sent against the messages that arrived. Pure: every
//! event is an argument, and this folder knows no client and no clock.

mod delivery_log;
mod seen;
mod stamp;

pub(super) use delivery_log::{ArrivalVerdict, DeliveryCounts, DeliveryLog, LoggedArrival};
pub(super) use seen::Seen;
pub(super) use stamp::{PayloadSizes, Stamp};
