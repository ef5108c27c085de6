//! The count of clients that a reload disconnects.
//!
//! Each shard walks over its clients in portions, in messages to itself. All these messages carry a
//! [`RevocationTally`]. The last one that is dropped ends the count: its walk is complete, a newer
//! change has replaced it, or its shard has ended. A thread that hangs keeps its message, so the
//! caller must set a limit.

use crate::named_enum::named_enum;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;

named_enum! {
    /// The change that ended the right of a client to be connected.
    pub enum RevokedBy {
        /// The user has left the password file, or has another password there.
        Passwords = "passwords",
        /// The certificate is not valid any more.
        Tls = "tls",
        /// A ban.
        Bans = "bans",
    }
}

/// The way to count for one walk of a shard. Dropped at the end of the walk.
#[derive(Clone, Debug)]
pub struct RevocationTally {
    counts: Arc<[AtomicU64; RevokedBy::ALL.len()]>,
    _under_way: mpsc::Sender<Infallible>,
}

/// The running walks, for their waiting caller.
#[derive(Debug)]
pub struct RevocationsUnderWay {
    counts: Arc<[AtomicU64; RevokedBy::ALL.len()]>,
    ended: mpsc::Receiver<Infallible>,
}

/// The numbers of clients that a reload has disconnected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revoked {
    counts: [u64; RevokedBy::ALL.len()],
    /// True if some shards have not looked at all their clients yet.
    pub is_under_way: bool,
}

impl RevocationTally {
    /// Returns a tally to be cloned for each walk, and the way to wait for all of them.
    pub fn begin() -> (RevocationTally, RevocationsUnderWay) {
        let counts: Arc<[AtomicU64; RevokedBy::ALL.len()]> = Arc::default();
        // Nothing is ever sent: the channel is closed with its last sender.
        let (under_way, ended) = mpsc::channel(1);
        let tally = RevocationTally { counts: Arc::clone(&counts), _under_way: under_way };
        (tally, RevocationsUnderWay { counts, ended })
    }

    /// Counts clients that were disconnected.
    pub fn add(&self, by: RevokedBy, clients: u64) {
        self.counts[by as usize].fetch_add(clients, Ordering::Relaxed);
    }
}

impl RevocationsUnderWay {
    /// Waits until all walks have ended. May be given up and begun again.
    pub async fn ended(&mut self) -> Revoked {
        self.ended.recv().await;
        self.so_far()
    }

    /// Calls `report` with the counts when all walks have ended. Returns at once.
    pub fn report_end(mut self, report: impl FnOnce(Revoked) + 'static) {
        actix_rt::spawn(async move { report(self.ended().await) });
    }

    /// Returns the counts so far.
    pub fn so_far(&self) -> Revoked {
        let count = |by: RevokedBy| self.counts[by as usize].load(Ordering::Relaxed);
        Revoked { counts: RevokedBy::ALL.map(count), is_under_way: !self.ended.is_closed() }
    }
}

impl Revoked {
    /// Returns the number of clients that one kind of change disconnected.
    pub const fn clients(&self, by: RevokedBy) -> u64 {
        self.counts[by as usize]
    }

    /// Returns the number of clients that were disconnected.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl fmt::Display for Revoked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.total() {
            0 => f.write_str("no client disconnected")?,
            1 => f.write_str("1 client disconnected")?,
            more => write!(f, "{more} clients disconnected")?,
        }
        let mut mark = " (";
        for by in RevokedBy::ALL {
            let clients = self.clients(by);
            if clients > 0 {
                write!(f, "{mark}{clients} by {}", by.name())?;
                mark = ", ";
            }
        }
        if self.total() > 0 {
            f.write_str(")")?;
        }
        if self.is_under_way {
            f.write_str(" so far; the others are still being looked at")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_complete_when_the_last_walk_ends() {
        let (tally, mut under_way) = RevocationTally::begin();
        let (one, other) = (tally.clone(), tally.clone());
        drop(tally);
        one.add(RevokedBy::Passwords, 2);
        drop(one);
        other.add(RevokedBy::Bans, 1);
        let so_far = under_way.so_far();
        assert_eq!((so_far.total(), so_far.is_under_way), (3, true));
        other.add(RevokedBy::Bans, 40);
        drop(other);
        let end = tokio::runtime::Builder::new_current_thread().build();
        let end = end.expect("an event loop").block_on(under_way.ended());
        assert_eq!(RevokedBy::ALL.map(|by| end.clients(by)), [2, 0, 41]);
        assert!(!end.is_under_way);
    }

    #[test]
    fn the_text_has_each_cause_that_counts() {
        let text = |counts, is_under_way| Revoked { counts, is_under_way }.to_string();
        assert_eq!(text([0; 3], false), "no client disconnected");
        assert_eq!(text([0, 1, 0], false), "1 client disconnected (1 by tls)");
        assert_eq!(
            text([2, 0, 40], true),
            "42 clients disconnected (2 by passwords, 40 by bans) so far; the others are still being looked at"
        );
    }
}
