//! The answers to operators that wait until the store has committed a batch.

use crate::persistence::records::Lsn;
use std::cell::RefCell;
use tokio::sync::oneshot;

/// The answers of one shard that wait, each with its batch. Operators are few, so a list is enough.
#[derive(Debug, Default)]
pub(super) struct CommitWaits(RefCell<Vec<(Lsn, oneshot::Sender<()>)>>);

/// A commit that an answer waits for.
#[derive(Debug)]
pub struct AwaitedCommit(Option<oneshot::Receiver<()>>);

impl CommitWaits {
    /// Returns the wait for the commit of a batch; `None` for no wait.
    pub(super) fn wait_for(&self, lsn: Option<Lsn>) -> AwaitedCommit {
        AwaitedCommit(lsn.map(|lsn| {
            let (sender, receiver) = oneshot::channel();
            self.0.borrow_mut().push((lsn, sender));
            receiver
        }))
    }

    /// Ends the waits for this batch and all before it.
    pub(super) fn committed(&self, lsn: Lsn) {
        let mut waits = self.0.borrow_mut();
        if waits.is_empty() {
            return;
        }
        for (_, sender) in waits.extract_if(.., |(waits_for, _)| *waits_for <= lsn) {
            // The operator may have gone.
            let _ = sender.send(());
        }
    }
}

impl AwaitedCommit {
    /// Waits for the commit. Returns true at once if nothing waits, and false if the broker ended
    /// before the commit.
    pub async fn wait(self) -> bool {
        match self.0 {
            Some(receiver) => receiver.await.is_ok(),
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_the_end_of_the_broker_ends_is_no_commit() {
        let waits = CommitWaits::default();
        let (first, second) = (waits.wait_for(Some(Lsn(1))), waits.wait_for(Some(Lsn(2))));
        let none = waits.wait_for(None);
        waits.committed(Lsn(1));
        drop(waits);
        actix_rt::System::new().block_on(async {
            assert!(first.wait().await);
            assert!(!second.wait().await);
            assert!(none.wait().await);
        });
    }
}
