//! The client for which a retained or a delayed message counts.

use crate::mqtt::charge::Charge;
use crate::mqtt::message::Message;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The client for which a message counts: its client identifier, and its listener by name, or by
/// address if it has no name. All messages of a client share one value.
#[derive(Debug)]
pub struct Owner {
    client_id: Box<str>,
    listener: Box<str>,
    charge: Charge,
}

impl Owner {
    /// Returns a value of its own.
    pub fn new(client_id: &str, listener: &str) -> Arc<Owner> {
        let charge = Charge::new(size_of::<Owner>() + 16 + client_id.len() + listener.len());
        Arc::new(Owner { client_id: client_id.into(), listener: listener.into(), charge })
    }

    /// Returns the client identifier.
    pub fn client_id(&self) -> &str {
        &self.client_id
    }

    /// Returns the bytes charged for this value.
    pub fn charged(&self) -> usize {
        self.charge.bytes()
    }

    /// Returns the name or the address of the listener.
    pub fn listener(&self) -> &str {
        &self.listener
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Owner) -> bool {
        (&self.client_id, &self.listener) == (&other.client_id, &other.listener)
    }
}

impl Eq for Owner {}

impl Hash for Owner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.client_id, &self.listener).hash(state);
    }
}

/// A message with its owner; `None` if it counts for nobody.
#[derive(Clone, Debug)]
pub struct OwnedMessage {
    /// The message.
    pub message: Message,
    /// The client whose limits count the message.
    pub owner: Option<Arc<Owner>>,
}
