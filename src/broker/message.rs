//! The messages between actors, except those of the expiry actor (`crate::expiry::message`) and
//! the decisions of the authenticator (`crate::broker::authenticator::decided`).

use super::authenticator::AuthClientParts;
use crate::access::bans::BanList;
use crate::access::identity::{Identity, IdentitySource};
use crate::auth::password::PasswordFile;
use crate::broker::connection::Incoming;
use crate::broker::listener_files::ListenerFiles;
use crate::broker::rate_limit::EventRates;
use crate::broker::revocations::RevocationTally;
use crate::durability::read_requests::DelayedRequest;
use crate::durability::read_requests::PageRequest;
use crate::expiry::actor::ExpiryActor;
use crate::login::acl_files::AclFiles;
use crate::login::listener_terms::ListenerTerms;
use crate::net::tls::config::TlsServer;
use crate::peers::peer_batch::PeerBatch;
use crate::persistence::records::{Lsn, ReadEntry, StoredDelayed};
use crate::shard::ShardSettings;
use crate::store::writer::ToStore;
use actix::{Addr, Message, Recipient};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Sockets for a shard. The listener sends all sockets that it accepted at once in one message.
#[derive(Debug)]
pub struct Adopt(pub Vec<Incoming>);

/// The ways to one shard.
#[derive(Clone)]
pub struct PeerAddresses {
    /// For sockets whose session lives in the shard.
    pub sockets: Recipient<Adopt>,
    /// For the batches of other shards.
    pub batches: Recipient<PeerTurn>,
}

/// Password files were replaced. Users that left the file of their listener, or have another hash,
/// are disconnected.
#[derive(Clone)]
pub struct PasswordsChanged {
    /// The files before.
    pub(super) old: Arc<ListenerFiles<PasswordFile>>,
    /// The files that are in force.
    pub(super) new: Arc<ListenerFiles<PasswordFile>>,
    /// The slot of the first session that is not looked at yet.
    pub(super) from: u32,
    /// Counts the clients that are disconnected.
    pub(super) tally: RevocationTally,
}

impl PasswordsChanged {
    /// Returns true if a client of this listener entered as this user with a line that is gone or
    /// has changed.
    pub(super) fn revokes(&self, user: &Identity, listener: &ListenerTerms) -> bool {
        let path = listener.password_file.as_deref();
        // The clients of a listener whose file is new have entered by the new file.
        let (Some(old), Some(new)) = (self.old.of(path), self.new.of(path)) else { return false };
        let line = |file: &PasswordFile| file.fingerprint(user.user());
        user.source() == IdentitySource::Password && line(old) != line(new)
    }
}

/// The TLS of a listener was replaced. Clients whose certificate is not valid any more are
/// disconnected.
#[derive(Clone)]
pub struct TlsChanged {
    /// The listener. Weak, so that a listener without clients is not kept.
    pub listener: Weak<ListenerTerms>,
    /// The TLS that is in force.
    pub server: Arc<TlsServer>,
    /// The slot of the first connection that is not checked yet.
    pub from: usize,
    /// Counts the clients that are disconnected.
    pub tally: RevocationTally,
}

/// The file of bans was read again. Clients that are banned now are disconnected.
#[derive(Clone, Debug)]
pub struct BansChanged {
    /// The bans that are in force.
    pub bans: Arc<BanList>,
    /// 0 to put the bans in force; else one more than the slot of the first connection that is not
    /// checked yet.
    pub from: usize,
    /// Counts the clients that are disconnected.
    pub tally: RevocationTally,
}

/// The configuration was read again. The reply comes when the shard has the new settings.
#[derive(Clone, Debug)]
pub struct SettingsChanged {
    /// The settings that hold from now on. The rules of the ACL file are not among them.
    pub settings: Arc<ShardSettings>,
    /// The rates of the event topics; `None` if there are no event topics.
    pub events: Option<EventRates>,
    /// The interval between publications of `$SYS`; `None` if `$SYS` is off, and for all shards but
    /// the first.
    pub sys_interval: Option<Duration>,
}

/// The ACL file was read again. Its rules hold from now on.
#[derive(Clone, Debug)]
pub struct AclChanged(pub AclFiles);

/// The ways to all shards, sent once all have started.
pub struct ConnectPeers {
    /// All shards by number, the receiver included.
    pub peers: Vec<PeerAddresses>,
    /// The way to the committing thread; `None` without a store.
    pub store: Option<ToStore>,
    /// The way to the authenticator; `None` without one.
    pub authenticator: Option<AuthClientParts>,
}

/// The way to an authenticator that started after the shard.
pub struct ConnectAuthenticator(pub AuthClientParts);

/// The store has every batch of the shard up to this one.
pub struct StoredUpTo(pub Lsn);

/// Stored deliveries that a shard requested.
#[derive(Debug)]
pub struct Page {
    /// The request that this answers.
    pub request: PageRequest,
    /// Entries that the store still had.
    pub entries: Vec<ReadEntry>,
}

/// Stored delayed messages that a shard requested.
#[derive(Debug)]
pub struct DelayedPage {
    /// The request that this answers.
    pub request: DelayedRequest,
    /// The messages, by due time.
    pub delayed: Vec<StoredDelayed>,
}

/// Starts the deadlines of a shard. Every shard has its peers' subscriptions before this message,
/// because the peer batches came first. So a message that is due at once after a restart reaches
/// the receivers of every shard.
pub struct StartTimers {
    /// The expiry actor.
    pub expiry: Addr<ExpiryActor>,
}

/// The messages of one turn of another shard for this shard.
pub struct PeerTurn(pub PeerBatch);

/// Disconnects every client with the reason that the broker stops. Answered when no connection is
/// left, and all work is done that came before. May come again.
#[derive(Debug)]
pub struct Stop;

/// Whether clients may be connected, in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// They may.
    Open,
    /// Every client is disconnected, and none is accepted.
    Shut,
}

/// Makes messages of types. A sender learns at most that one was handled.
macro_rules! messages_without_answer {
    ($($Message:ident)*) => {
        $(impl Message for $Message {
            type Result = ();
        })*
    };
}

messages_without_answer! {
    Adopt PasswordsChanged TlsChanged BansChanged SettingsChanged AclChanged ConnectPeers
    ConnectAuthenticator StoredUpTo Page DelayedPage StartTimers PeerTurn Stop Admission
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::listener_files::ListenerPaths;
    use crate::broker::listener_plan::ListenerPlan;
    use crate::broker::start_error::StartError;
    use crate::config::Listener;
    use std::path::Path;

    /// A reload adds a listener, and another user leaves the file meanwhile.
    #[test]
    fn who_came_by_a_listener_that_is_newer_than_the_old_files_is_not_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        let load = |users: &[&str], paths: &[&Path]| {
            let line = |user: &&str| {
                let hash = crate::auth::password::scram::ScramHash::create(b"x", &[1; 16]);
                let hash = crate::auth::password::hash::PasswordHash::Scram(hash).to_text();
                format!("{user}:{hash}\n")
            };
            let own = |path: &&Path| {
                std::fs::write(path, users.iter().map(line).collect::<String>()).unwrap();
                let password_file = Some(path.display().to_string());
                Listener { password_file, ..Listener::default() }
            };
            let plan = ListenerPlan::at_start(&paths.iter().map(own).collect::<Vec<_>>());
            let paths = ListenerPaths::new(&plan, None, |one| one.password_file.as_ref(), Vec::new());
            let refused = (StartError::Passwords as fn(_) -> _, StartError::ListenerPasswords as fn(_) -> _);
            let files =
                paths.load(|path: &Path| PasswordFile::load(path), refused, &ListenerFiles::default());
            Arc::new(files.unwrap())
        };
        let (tally, _) = RevocationTally::begin();
        let (old, new) = (load(&["ann", "bob"], &[&first]), load(&["ann"], &[&first, &second]));
        let change = PasswordsChanged { old, new, from: 0, tally };
        let revokes = |user: &str, file: &Path| {
            let terms = ListenerTerms { password_file: Some(file.to_owned()), ..ListenerTerms::default() };
            change.revokes(&Identity::new(user, IdentitySource::Password), &terms)
        };
        assert!(revokes("bob", &first) && !revokes("ann", &first));
        assert!(!revokes("ann", &second), "no file was there for this listener");
    }
}
