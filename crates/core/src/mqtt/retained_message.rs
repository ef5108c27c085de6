//! A retained message with its source: the client that published it.

use crate::mqtt::charge::Charge;
use crate::mqtt::keyed::Keyed;
use crate::mqtt::message::Message;
use crate::mqtt::owner::Owner;
use hashbrown::HashSet;
use std::hash::{Hash, Hasher};
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

/// The client that published a retained message, as the rules about topics know it. The retained
/// messages of one session share the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedSource {
    /// The client identifier.
    pub client_id: Box<str>,
    /// The user name that counted in the rules; `None` for an anonymous client.
    pub user: Option<Box<str>>,
    /// The listener whose ACL file counted; `None` for the file of the broker.
    pub listener: Option<Box<str>>,
    charge: Charge,
}

impl RetainedSource {
    /// Returns a source, whose bytes are charged once for all its messages.
    pub fn new(client_id: &str, user: Option<&str>, listener: Option<&str>) -> RetainedSource {
        let names = client_id.len() + user.map_or(0, str::len) + listener.map_or(0, str::len);
        RetainedSource {
            client_id: client_id.into(),
            user: user.map(Into::into),
            listener: listener.map(Into::into),
            charge: Charge::new(size_of::<RetainedSource>() + 16 + names),
        }
    }
}

impl Hash for RetainedSource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.client_id, &self.user, &self.listener).hash(state);
    }
}

/// Shares equal sources while the store's messages are read.
#[derive(Debug, Default)]
pub struct SharedSources(HashSet<Arc<RetainedSource>, Keyed>);

impl SharedSources {
    /// Returns the source, or an equal one that came before.
    pub fn share(&mut self, source: RetainedSource) -> Arc<RetainedSource> {
        if let Some(known) = self.0.get(&source) {
            return Arc::clone(known);
        }
        let source = Arc::new(source);
        self.0.insert(Arc::clone(&source));
        source
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sources_are_one() {
        let mut sources = SharedSources::default();
        let mut of = |client_id, user| sources.share(RetainedSource::new(client_id, user, None));
        let (one, same, other) = (of("c", Some("ann")), of("c", Some("ann")), of("c", None));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
    }
}
