//! A message as a row.

use crate::admin::queries::waits::until;
use crate::clock;
use crate::operators::query::MessageSummary;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A message.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Message)]
pub(crate) struct MessageRow {
    /// In full: pages of long topics are short.
    pub(crate) topic: String,
    #[schema(maximum = 2)]
    pub(crate) qos: u8,
    pub(crate) payload_bytes: usize,
    pub(crate) retain: bool,
    /// Seconds; null for never.
    #[schema(required)]
    pub(crate) expires_in: Option<f64>,
}

impl MessageRow {
    pub(crate) fn of(row: &MessageSummary) -> MessageRow {
        MessageRow {
            topic: row.topic.to_string(),
            qos: row.qos as u8,
            payload_bytes: row.payload,
            retain: row.retain,
            expires_in: until(clock::now(), row.expires),
        }
    }
}
