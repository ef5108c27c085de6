//! The files that the broker reads again while it runs: passwords, keys of tokens, ACL, bans, TLS.

use super::file_edits::ParsedFile;
use super::file_news::{FileKind, FileNews, counted, with_before};
use super::handshake::entrance::Entrance;
use super::handshake::reload::{NewTls, TlsReload};
use super::listener_plan::ListenerPlan;
use super::logins::{ChangedPasswords, LoginFiles, Logins, PasswordFiles};
use super::message::{AclChanged, BansChanged, ConnectAuthenticator, PasswordsChanged, TlsChanged};
use super::revocations::{RevocationTally, RevocationsUnderWay};
use super::rule_files::RuleFiles;
use super::settings::asks_authenticator;
use super::shard_actor::ShardActor;
use super::start_error::StartError;
use super::statistics::BrokerStatistics;
use crate::access::bans::BanList;
use crate::auth::ban_file;
use crate::auth::file_digests::FileDigests;
use crate::auth::password::decoy_secret::DecoySecret;
use crate::auth::password::file::Fingerprint;
use crate::clock;
use crate::config::Config;
use crate::file_thread::{FileThread, NotRead, ReadLimits, Retired};
use crate::net::tls::config::TlsServer;
use crate::net::tls::live::LiveTls;
use crate::net::tls::reload::TlsOwner;
use actix::dev::Request;
use actix::{Addr, Handler, Message};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tracing::{error, info};

/// Time for the configuration, and again for the files that it names.
pub(super) const READ: ReadLimits =
    ReadLimits { operation: Duration::from_secs(5), whole: Duration::from_secs(60) };

/// The files that may change while the broker runs, with the parts that use them.
pub(super) struct LiveFiles {
    /// `None` until a listener needs it.
    pub(super) logins: Option<Logins>,
    pub(super) decoys: Option<DecoySecret>,
    pub(super) rules: RuleFiles,
    /// The path of the file of bans; `None` without one.
    pub(super) bans: Option<PathBuf>,
    /// The bans in force.
    pub(super) ban_count: usize,
    /// The digests of the files in force. TLS has its own.
    pub(super) digests: FileDigests,
    pub(super) tls: TlsReload,
    pub(super) shards: Vec<Addr<ShardActor>>,
    pub(super) statistics: Arc<BrokerStatistics>,
    /// The thread that looks at the files of TLS once a minute.
    pub(super) looking: FileThread,
    /// Files that were replaced, and that shards may still use.
    pub(super) retired: Retired,
}

/// The input of a read of the files, on another thread.
pub(super) struct FilesToRead {
    needs_logins: bool,
    /// The password files in force.
    passwords: Arc<PasswordFiles>,
    decoys: Option<DecoySecret>,
    tls: TlsReload,
    rules: RuleFiles,
    bans: Option<PathBuf>,
}

/// Files that were read again and are not in force yet.
pub(super) struct NewFiles {
    logins: Option<LoginFiles>,
    /// An authenticator that has started, if there was none and a listener needs it now.
    started: Option<Logins>,
    tls: NewTls,
    rules: RuleFiles,
    bans: Option<BanList>,
    digests: FileDigests,
}

impl NewFiles {
    /// Returns the TLS of each listener that has some, in the order of the plan.
    pub(super) fn tls(&self) -> impl Iterator<Item = &Arc<TlsServer>> {
        self.tls.servers()
    }

    /// Returns the TLS alone.
    pub(super) fn into_tls(self) -> NewTls {
        self.tls
    }
}

impl FilesToRead {
    /// Returns the input of a start, without any file in force but those of `tls`.
    pub(super) fn of_start(config: &Config, plan: &ListenerPlan, tls: TlsReload) -> FilesToRead {
        FilesToRead {
            needs_logins: asks_authenticator(config, plan),
            passwords: Arc::default(),
            decoys: None,
            tls,
            rules: RuleFiles::default(),
            bans: config.bans.path(),
        }
    }

    /// Reads all files, for these listeners. Blocks for as long as their disks take. Errors: the
    /// mistakes of all files.
    pub(super) fn read(&self, config: &Config, plan: &ListenerPlan) -> Result<NewFiles, Vec<String>> {
        let text = |error: StartError| error.to_string();
        let digests = FileDigests::default();
        let read = || LoginFiles::read(config, plan, self.decoys.as_ref(), &self.passwords, &digests);
        let logins = self.needs_logins.then(read).transpose();
        let tls = self.tls.read_again(plan).map_err(StartError::Tls);
        let rules = self.rules.read_again(config, plan, &digests);
        let bans = load_bans(self.bans.as_deref(), &digests);
        match (logins, tls, rules, bans) {
            (Ok(logins), Ok(tls), Ok(rules), Ok(bans)) => {
                Ok(NewFiles { logins, started: None, tls, rules, bans, digests })
            }
            (logins, tls, rules, bans) => {
                let mut mistakes: Vec<String> = logins.err().into_iter().flatten().map(text).collect();
                mistakes.extend([tls.err(), rules.err(), bans.err()].into_iter().flatten().map(text));
                Err(mistakes)
            }
        }
    }
}

/// Reads the file of bans, if there is one.
///
/// # Errors
/// The file cannot be read, or has a mistake.
pub(super) fn load_bans(path: Option<&Path>, digests: &FileDigests) -> Result<Option<BanList>, StartError> {
    let load = |path: &Path| ban_file::parse(path, &digests.read(path)?);
    path.map(load).transpose().map_err(StartError::Bans)
}

/// Reads the files that a configuration names as a start and a reload do, and keeps nothing.
/// `others` reads the files of other parts of the program, and returns their mistakes. Takes as
/// long as a reload may take to read.
///
/// # Errors
/// The mistakes of all files, each with its key, or the file that hangs.
pub fn check_files(
    config: &Config,
    others: impl FnOnce(&Config) -> Vec<String> + Send + 'static,
) -> Result<(), Vec<String>> {
    let named = config;
    let config = config.clone();
    let read = move || {
        let plan = ListenerPlan::at_start(&config.all_listeners());
        let files = FilesToRead::of_start(&config, &plan, TlsReload::default());
        let mut mistakes = files.read(&config, &plan).err().unwrap_or_default();
        mistakes.extend(others(&config));
        mistakes
    };
    let files = FileThread::new("homing-files", READ);
    let mistakes = actix_rt::System::new().block_on(files.run(read));
    let mistakes = mistakes.map_err(|error| vec![with_keys(named, &error)])?;
    if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
}

/// Returns the text of an error, with the keys that name the file.
fn with_keys(config: &Config, error: &NotRead) -> String {
    let keys = error.file().map(|file| config.keys_of_file(file)).unwrap_or_default();
    if keys.is_empty() { error.to_string() } else { format!("{error} ({})", keys.join(", ")) }
}

impl LiveFiles {
    /// Returns the input for a read of the files of these listeners. Nothing changes before
    /// [`Self::put_in_force`].
    pub(super) fn to_read(&self, config: &Config, plan: &ListenerPlan) -> FilesToRead {
        FilesToRead {
            needs_logins: self.logins.is_some() || asks_authenticator(config, plan),
            passwords: self.logins.as_ref().map(Logins::passwords).unwrap_or_default(),
            decoys: self.decoys.clone(),
            tls: self.tls.clone(),
            rules: self.rules.clone(),
            bans: self.bans.clone(),
        }
    }

    /// Starts the authenticator if there was none and the new files need it. Errors: the system
    /// refuses a thread.
    pub(super) fn start_logins(&self, config: &Config, new: &mut NewFiles) -> Result<(), Vec<String>> {
        if self.logins.is_none()
            && let Some(files) = new.logins.take()
        {
            let started = Logins::start(config, files, self.shards.len());
            new.started = Some(started.map_err(|error| vec![error.to_string()])?);
        }
        Ok(())
    }

    /// Puts files in force, for the listeners of a plan. `entrances` has theirs. Returns each file,
    /// and the walks that disconnect clients.
    pub(super) fn put_in_force(
        &mut self,
        new: NewFiles,
        plan: &ListenerPlan,
        entrances: &[Arc<Entrance>],
    ) -> (Vec<FileNews>, RevocationsUnderWay) {
        let NewFiles { logins: files, started, tls, rules, bans, digests } = new;
        let (tally, under_way) = RevocationTally::begin();
        let before = std::mem::replace(&mut self.digests, digests);
        let mut news = tls_news(&tls);
        if news.is_empty() && !self.tls.is_empty() {
            news.push(tls_as_before());
        }
        self.put_tls_in_force(tls, entrances, &tally);
        let has_changed = |path: &Path| self.digests.has_changed(path, &before);
        if let Some(logins) = started {
            logins.watch(self.statistics.pulses());
            for shard in &self.shards {
                shard.do_send(ConnectAuthenticator(logins.client(shard.clone().recipient())));
            }
            self.logins = Some(logins);
        }
        if let (Some(logins), Some(files)) = (&self.logins, files) {
            self.retired.keep(logins.passwords());
            let (changed, of_logins) = logins.replace(files, &has_changed);
            news.extend(of_logins);
            if let Some(changed) = changed {
                self.disconnect_revoked(&changed, &tally);
            }
        }
        let acls = rules.put_in_force(plan);
        if !self.rules.is_empty() || !rules.is_empty() {
            self.send_to_shards(|| AclChanged(acls.clone()));
            news.extend(rules.news(&self.rules, &has_changed));
        }
        self.rules.all().for_each(|acl| self.retired.keep(Arc::clone(acl)));
        self.rules = rules;
        if let Some(bans) = bans.map(Arc::new) {
            // The shards alone have the list otherwise, and would free it.
            self.retired.keep(Arc::clone(&bans));
            self.put_bans_in_force(&bans, &tally);
            let numbers = |count: usize| counted(count, "ban");
            let path = self.bans.clone();
            news.push(FileNews {
                kind: FileKind::Bans,
                key: "bans.file",
                listener: None,
                is_changed: path.as_deref().is_some_and(&has_changed),
                path,
                detail: with_before(numbers(bans.len()), Some(numbers(self.ban_count))),
            });
            self.ban_count = bans.len();
        }
        (news, under_way)
    }

    /// Returns true if the file at a path had this fingerprint when it was read last.
    pub(super) fn has_in_force(&self, path: &Path, version: Fingerprint) -> bool {
        self.digests.has(path, version)
    }

    /// Puts a file in force that an operator has changed: that of the broker, or of listeners.
    /// Returns the walks that disconnect clients, and the rules on their way to the shards.
    pub(super) fn put_edited_in_force(
        &mut self,
        (path, is_of_broker): (&Path, bool),
        parsed: ParsedFile,
        version: Fingerprint,
        plan: &ListenerPlan,
    ) -> (RevocationsUnderWay, Vec<Request<ShardActor, AclChanged>>) {
        let ((tally, under_way), mut taken) = (RevocationTally::begin(), Vec::new());
        self.digests.note(path, version);
        match parsed {
            ParsedFile::Passwords(file) => {
                let file = match &self.decoys {
                    Some(secret) if is_of_broker => file.with_decoys(secret),
                    Some(secret) => file.with_decoys(&secret.of_file(path)),
                    None => *file,
                };
                // Without an authenticator no listener asks for passwords.
                if let Some(logins) = &self.logins {
                    self.retired.keep(logins.passwords());
                    let changed = logins.replace_passwords(path, is_of_broker, file);
                    self.disconnect_revoked(&changed, &tally);
                }
            }
            ParsedFile::Acl(acl) => {
                let rules = self.rules.with(path, is_of_broker, *acl);
                let acls = rules.put_in_force(plan);
                // A new address takes each message, also while its mailbox is full.
                let sent = self.shards.iter().map(|shard| shard.clone().send(AclChanged(acls.clone())));
                taken.extend(sent);
                self.rules.all().for_each(|acl| self.retired.keep(Arc::clone(acl)));
                self.rules = rules;
            }
            ParsedFile::Bans(bans) => {
                let bans: Arc<BanList> = Arc::from(bans);
                self.retired.keep(Arc::clone(&bans));
                self.put_bans_in_force(&bans, &tally);
                self.ban_count = bans.len();
            }
        }
        (under_way, taken)
    }

    /// Disconnects the users whose line in the password files has changed.
    fn disconnect_revoked(&self, (old, new): &ChangedPasswords, tally: &RevocationTally) {
        self.send_to_shards(|| PasswordsChanged {
            old: Arc::clone(old),
            new: Arc::clone(new),
            from: 0,
            tally: tally.clone(),
        });
    }

    fn put_bans_in_force(&self, bans: &Arc<BanList>, tally: &RevocationTally) {
        self.send_to_shards(|| BansChanged { bans: Arc::clone(bans), from: 0, tally: tally.clone() });
    }

    /// Reads the certificate of the HTTP interface again with those of the listeners.
    pub(super) fn include(&mut self, interface: Arc<LiveTls>) {
        self.tls.include(interface);
        self.report_tls_days();
    }

    /// Reads the files of TLS again if one of them changed, all of them or none. Reports changes,
    /// and once a day certificates and revocation lists that end soon. Called once a minute.
    pub(super) async fn check_tls_files(&mut self, entrances: &[Arc<Entrance>]) {
        self.retired.free();
        if self.tls.is_empty() {
            return;
        }
        let mut tls = self.tls.clone();
        let look = move || {
            let renewed = tls.read_renewed();
            (tls, renewed)
        };
        match self.looking.run(look).await {
            Ok((tls, renewed)) => {
                self.tls = tls;
                self.put_renewed_in_force(renewed, entrances);
            }
            // Its first minute was logged.
            Err(NotRead::Busy(_)) => {}
            Err(error) => report_not_read(&error),
        }
        self.tls.warn_daily(clock::unix_millis());
        self.report_tls_days();
    }

    /// Updates the days until the first certificate and the first revocation list end.
    pub(super) fn report_tls_days(&self) {
        self.statistics.set_tls_days(self.tls.days_left(clock::unix_millis()));
    }

    /// Puts renewed files of TLS in force, if there are some, and reports them.
    fn put_renewed_in_force(&mut self, renewed: Result<Option<NewTls>, String>, entrances: &[Arc<Entrance>]) {
        let Some(new) = report_renewed(renewed) else { return };
        let (tally, under_way) = RevocationTally::begin();
        let checks_clients = self.put_tls_in_force(new, entrances, &tally);
        drop(tally);
        if checks_clients {
            under_way.report_end(|disconnected| {
                info!(
                    event = "tls.clients_checked",
                    disconnected = disconnected.total(),
                    "the certificates of all clients were checked again: {disconnected}"
                );
            });
        }
    }

    fn send_to_shards<M>(&self, message: impl Fn() -> M)
    where
        M: Message<Result = ()> + Send + 'static,
        ShardActor: Handler<M>,
    {
        self.shards.iter().for_each(|shard| shard.do_send(message()));
    }

    /// Puts new TLS in force. Returns true if the shards check their clients again.
    fn put_tls_in_force(
        &mut self,
        new: NewTls,
        entrances: &[Arc<Entrance>],
        tally: &RevocationTally,
    ) -> bool {
        self.tls.servers().for_each(|server| self.retired.keep(Arc::clone(server)));
        let to_check = self.tls.put_in_force(new, entrances);
        let checks_clients = !to_check.is_empty();
        for (entrance, server) in to_check {
            self.send_to_shards(|| TlsChanged {
                listener: Arc::downgrade(&entrance.terms),
                server: Arc::clone(&server),
                from: 0,
                tally: tally.clone(),
            });
        }
        self.report_tls_days();
        checks_clients
    }
}

/// Returns the renewed files of TLS that are to be put in force, if there are some. The log has what
/// is new, or why the old ones stay.
pub(super) fn report_renewed(renewed: Result<Option<NewTls>, String>) -> Option<NewTls> {
    let new = renewed.unwrap_or_else(|error| {
        error!(event = "tls.files_refused", "files of TLS changed, but the old ones stay in force: {error}");
        None
    })?;
    let what: Vec<String> = tls_news(&new).iter().map(ToString::to_string).collect();
    if !what.is_empty() {
        info!(event = "tls.files_reloaded", "files of TLS changed and were read again: {}", what.join("; "));
    }
    Some(new)
}

/// Reports files of TLS that hang.
pub(super) fn report_not_read(error: &NotRead) {
    error!(event = "tls.files_refused", "a renewed certificate or revocation list is not in force: {error}");
}

/// Returns the listeners whose TLS changed. A listener and the clients that it had under other
/// settings have the same files, which are named once.
pub(super) fn tls_news(tls: &NewTls) -> Vec<FileNews> {
    let mut all: Vec<FileNews> = Vec::new();
    for change in &tls.changes {
        let (key, listener) = match change.owner {
            TlsOwner::Interface => ("admin.certificate", None),
            _ => ("listeners.tls", Some(change.listener.clone())),
        };
        let detail = change.what.join("; ");
        let news = FileNews { key, listener, is_changed: true, detail, ..tls_as_before() };
        if !all.contains(&news) {
            all.push(news);
        }
    }
    all
}

/// Returns the line for TLS of which no file has changed.
fn tls_as_before() -> FileNews {
    FileNews {
        kind: FileKind::Tls,
        key: "listeners.tls",
        listener: None,
        path: None,
        is_changed: false,
        detail: String::new(),
    }
}
