//! The messages of one request.

use super::SinkFormat;
use super::encoding::{Header, put_json};
use crate::mqtt::packet::{PacketId, QoS};
use bytes::Bytes;
use std::collections::VecDeque;

/// A message that waits for its request, or for the answer to it.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// `None` at QoS 0.
    pub(super) packet_id: Option<PacketId>,
    pub(super) qos: QoS,
    /// The identifier, which is the same each time the message is sent.
    pub(super) id: String,
    /// The topic, for operators.
    pub(super) topic: String,
    /// JSON without its beginning, or the payload.
    pub(super) encoded: Bytes,
    /// The headers of a raw request; else empty.
    pub(super) headers: Vec<Header>,
}

impl Item {
    /// Returns the bytes that the message takes in the body of a request.
    pub(super) fn size(&self) -> usize {
        // The identifier, its name and the comma behind the object.
        self.encoded.len() + self.id.len() + 10
    }
}

/// A request to the service.
#[derive(Clone, Debug)]
pub struct SinkRequest {
    /// The number under which its answer is expected.
    pub number: u64,
    /// The value of Idempotency-Key.
    pub key: String,
    /// The headers that belong to its message, with Content-Type.
    pub headers: Vec<Header>,
    /// The body.
    pub body: Bytes,
}

/// The messages of one request, in their order.
#[derive(Debug)]
pub(super) struct Batch {
    /// The number of its first message, in the order of their arrival.
    pub(super) first: u64,
    pub(super) items: VecDeque<Item>,
    body: Bytes,
}

impl Batch {
    pub(super) fn new(first: u64, items: VecDeque<Item>, format: SinkFormat) -> Batch {
        let body = match format {
            SinkFormat::Raw => items.front().map(|item| item.encoded.clone()).unwrap_or_default(),
            SinkFormat::Json => list(&items),
        };
        Batch { first, items, body }
    }

    pub(super) fn request(&self, number: u64, format: SinkFormat) -> SinkRequest {
        let headers = match (format, self.items.front()) {
            (SinkFormat::Raw, Some(item)) => item.headers.clone(),
            _ => vec![("content-type", "application/json".to_owned())],
        };
        SinkRequest { number, key: self.key(), headers, body: self.body.clone() }
    }

    /// Returns the key of the request: the identifier of its message, or those of the first and the
    /// last with the number of messages. The messages between two others are those of the session
    /// that are not done, and no message comes between them later. So requests with the same key
    /// have the same messages.
    fn key(&self) -> String {
        match (self.items.front(), self.items.back()) {
            (Some(first), Some(last)) if self.items.len() > 1 => {
                format!("{}_{}_{}", first.id, last.id, self.items.len())
            }
            (Some(only), _) => only.id.clone(),
            _ => String::new(),
        }
    }

    /// Splits a batch of several messages into halves.
    pub(super) fn halves(mut self, format: SinkFormat) -> [Batch; 2] {
        let at = self.items.len() / 2;
        let second = self.items.split_off(at);
        [Batch::new(self.first, self.items, format), Batch::new(self.first + at as u64, second, format)]
    }
}

fn list(items: &VecDeque<Item>) -> Bytes {
    let mut body = Vec::with_capacity(items.iter().map(Item::size).sum::<usize>() + 2);
    body.push(b'[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        put_json(&item.id, &item.encoded, &mut body);
    }
    body.push(b']');
    body.into()
}
