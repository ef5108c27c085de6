//! The answers to messages that operators published.

use crate::mqtt::packet::ReasonCode;
use crate::operators::publish_command::{PublicationAnswer, PublicationNumber};
use std::cell::RefCell;
use std::collections::HashMap;
use tokio::sync::oneshot;

/// The operators that wait for an answer. The shard bounds their number.
#[derive(Debug, Default)]
pub(super) struct AwaitedAnswers(RefCell<HashMap<PublicationNumber, oneshot::Sender<ReasonCode>>>);

impl AwaitedAnswers {
    /// Returns the answer to a message, which comes later.
    pub(super) fn wait_for(&self, number: PublicationNumber) -> oneshot::Receiver<ReasonCode> {
        let (sender, receiver) = oneshot::channel();
        self.0.borrow_mut().insert(number, sender);
        receiver
    }

    /// Passes an answer on. The operator may have gone.
    pub(super) fn answer(&self, PublicationAnswer { number, reason }: PublicationAnswer) {
        if let Some(sender) = self.0.borrow_mut().remove(&number) {
            let _ = sender.send(reason);
        }
    }
}
