//! The files that the broker reads again while it runs: passwords, keys of tokens, ACL, bans, TLS.

use super::handshake::entrance::Entrance;
use super::handshake::reload::{NewTls, TlsReload};
use super::logins::{LoginFiles, Logins};
use super::message::{AclChanged, BansChanged, PasswordsChanged, TlsChanged};
use super::rule_files::{self, RuleFiles};
use super::shard_actor::ShardActor;
use super::statistics::BrokerStatistics;
use crate::access::bans::BanList;
use crate::auth::ban_file;
use crate::clock;
use crate::shard::access::AclFiles;
use actix::{Addr, Handler, Message};
use std::path::PathBuf;
use std::sync::Arc;
use tracing::{error, info};

/// The files that may change while the broker runs, with the parts that use them.
pub(super) struct LiveFiles {
    pub(super) logins: Option<Logins>,
    pub(super) rules: RuleFiles,
    /// The path of the file of bans; `None` without one.
    pub(super) bans: Option<PathBuf>,
    pub(super) tls: TlsReload,
    /// The listeners, by number.
    pub(super) entrances: Vec<Arc<Entrance>>,
    pub(super) shards: Vec<Addr<ShardActor>>,
    pub(super) statistics: Arc<BrokerStatistics>,
}

/// Files that were read again and are not in force yet.
pub(super) struct NewFiles {
    logins: Option<LoginFiles>,
    tls: NewTls,
    acls: AclFiles,
    bans: Option<BanList>,
}

impl LiveFiles {
    /// Reads all files again. Nothing changes before [`Self::put_in_force`].
    ///
    /// # Errors
    /// The mistakes of all files.
    pub(super) fn read(&mut self) -> Result<NewFiles, Vec<String>> {
        let logins = self.logins.as_ref().map(Logins::read_again).transpose();
        let tls = self.tls.read_again();
        let acls = self.rules.load().map_err(|error| error.to_string());
        let bans = self.bans.as_deref().map(ban_file::load).transpose().map_err(|error| error.to_string());
        match (logins, tls, acls, bans) {
            (Ok(logins), Ok(tls), Ok(acls), Ok(bans)) => Ok(NewFiles { logins, tls, acls, bans }),
            (logins, tls, acls, bans) => {
                let mistakes = [logins.err(), tls.err(), acls.err(), bans.err()];
                Err(mistakes.into_iter().flatten().collect())
            }
        }
    }

    /// Notes that what was read last is not in force. Files of TLS that are sound are read again
    /// within a minute.
    pub(super) fn look_again(&mut self) {
        self.tls.look_again();
    }

    /// Puts files in force. Returns what changed, for the log.
    pub(super) fn put_in_force(&mut self, new: NewFiles) -> Vec<String> {
        let NewFiles { logins: files, tls, acls, bans } = new;
        let mut what: Vec<String> = tls.changes.iter().map(ToString::to_string).collect();
        if what.is_empty() && !self.tls.is_empty() {
            what.push("the files of TLS are as before".to_owned());
        }
        self.put_tls_in_force(tls);
        if let (Some(logins), Some(files)) = (&self.logins, files) {
            what.extend(self.put_logins_in_force(logins, files));
        }
        if !self.rules.is_empty() {
            self.send_to_shards(|| AclChanged(acls.clone()));
            what.extend(rule_files::changes(&acls));
        }
        if let Some(bans) = bans.map(Arc::new) {
            self.send_to_shards(|| BansChanged { bans: Arc::clone(&bans), from: 0 });
            what.push(format!("{} bans are in force", bans.len()));
        }
        what
    }

    /// Reads the files of TLS again if one of them changed, all of them or none. Reports what
    /// changed, and once a day what ends soon. Called once a minute.
    pub(super) fn check_tls_files(&mut self) {
        if self.tls.is_empty() {
            return;
        }
        match self.tls.read_renewed() {
            Ok(Some(new)) => {
                let what: Vec<String> = new.changes.iter().map(ToString::to_string).collect();
                self.put_tls_in_force(new);
                if !what.is_empty() {
                    info!(
                        event = "tls.files_reloaded",
                        "files of TLS changed and were read again: {}",
                        what.join("; ")
                    );
                }
            }
            Ok(None) => {}
            Err(error) => {
                error!(
                    event = "tls.files_refused",
                    "files of TLS changed, but the old ones stay in force: {error}"
                );
            }
        }
        let now = clock::unix_millis();
        self.tls.warn_daily(now);
        self.statistics.set_tls_days(self.tls.days_left(now));
    }

    fn send_to_shards<M>(&self, message: impl Fn() -> M)
    where
        M: Message<Result = ()> + Send + 'static,
        ShardActor: Handler<M>,
    {
        self.shards.iter().for_each(|shard| shard.do_send(message()));
    }

    fn put_tls_in_force(&mut self, new: NewTls) {
        for (entrance, server) in self.tls.put_in_force(new, &self.entrances) {
            let listener = entrance.number;
            self.send_to_shards(|| TlsChanged { listener, server: Arc::clone(&server), from: 0 });
        }
        self.statistics.set_tls_days(self.tls.days_left(clock::unix_millis()));
    }

    /// Replaces the files of the logins. Returns what changed.
    fn put_logins_in_force(&self, logins: &Logins, files: LoginFiles) -> Vec<String> {
        let (changed, what) = logins.replace(files);
        if let Some((old, new)) = changed {
            self.send_to_shards(|| PasswordsChanged {
                old: Arc::clone(&old),
                new: Arc::clone(&new),
                from: 0,
            });
        }
        what
    }
}
