//! A retained message with its source: the client that published it.

use crate::mqtt::message::Message;
use crate::mqtt::owner::Owner;
use std::sync::Arc;

/// A retained message, and the client that published it.
#[derive(Clone, Debug)]
pub struct RetainedMessage {
    /// The message.
    pub message: Message,
    /// The client that published the message. `None` if nobody asks if that client may still
    /// publish to the topic: the message is the broker's own, came without rules about topics, or
    /// came under rules of its session alone.
    pub source: Option<Arc<RetainedSource>>,
    /// The client for which the message counts; `None` if it counts for nobody.
    pub owner: Option<Arc<Owner>>,
}

impl From<Message> for RetainedMessage {
    /// Returns the message without a source and an owner.
    fn from(message: Message) -> RetainedMessage {
        RetainedMessage { message, source: None, owner: None }
    }
}

/// The client that published a retained message, as the rules about topics know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedSource {
    /// The client identifier.
    pub client_id: Box<str>,
    /// The user name that counted in the rules; `None` for an anonymous client.
    pub user: Option<Box<str>>,
    /// The listener whose ACL file counted; `None` for the file of the broker.
    pub listener: Option<Box<str>>,
}

impl RetainedSource {
    /// Returns the bytes on the heap: the names and the fixed part.
    pub fn size(&self) -> usize {
        let length = |name: &Option<Box<str>>| name.as_ref().map_or(0, |name| name.len());
        size_of::<RetainedSource>() + 16 + self.client_id.len() + length(&self.user) + length(&self.listener)
    }
}
