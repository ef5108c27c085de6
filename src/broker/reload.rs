//! Reading the configuration and its files again while the broker runs: all of it, or nothing.
//!
//! Everything is read and checked before anything changes. Then the new settings go to every shard,
//! which swaps them between two turns. Which changes wait for a restart is decided in
//! `src/config/difference.rs`, and in `src/config/listener_changes.rs` for listeners. Last come the listeners: their sockets were bound before. No
//! connection is closed, except those of users, certificates and bans that the files have changed.

use super::connect_limits::LiveLimits;
use super::events::EventLog;
use super::file_edits::{self, ClientFile, ClientFileContent, FileEdit, FileEdited, NotEdited, WrittenFile};
use super::file_news::FileNews;
use super::listener_plan::ListenerPlan;
use super::live_files::{LiveFiles, NewFiles};
use super::live_listeners::{self, ListenerNews, LiveListeners, NewListeners};
use super::message::SettingsChanged;
use super::rate_limit::EventRates;
use super::revocations::{RevocationsUnderWay, Revoked};
use super::settings::{broker_limits, partial_limit, retained_limits, settings, share_rules};
use super::shard_actor::ShardActor;
use crate::clock;
use crate::config::{
    Config, ConfigRefusal, KeyChange, KeyInForce, KeySources, ListenerChange, Loaded, ReloadEffect, Shadowed,
};
use crate::file_thread::{self, FileThread, NotRead};
use crate::log::level;
use crate::service;
use crate::shard::SharedState;
use crate::store::writer::ToStore;
use actix::dev::Request;
use actix::{Addr, Handler, Message};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::{info, warn};

/// Reads all layers of the configuration as at the start.
pub type ConfigReader = Arc<dyn Fn() -> Result<Loaded, ConfigRefusal> + Send + Sync>;

/// Time for all shards to take the new settings. A shard that is late takes them later.
const SWAP: Duration = Duration::from_secs(5);

/// Time for the walks over all clients, from their beginning. A reload with a walk that takes
/// longer reports the clients that are disconnected so far.
const WALKS: Duration = Duration::from_secs(2);

/// The extent of a reload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReloadMode {
    /// Reads and checks everything, and changes nothing.
    #[default]
    Check,
    /// Puts everything in force.
    Apply,
}

/// The watcher of the listeners, called after a reload that changed some.
pub type ListenerWatcher = Arc<dyn Fn(&ListenerNews) + Send + Sync>;

/// Is given the configuration that a reload has put in force.
pub type SettingsWatcher = Box<dyn Fn(&Config) + Send>;

/// The files and settings that a reload has read and not put in force.
struct ReadAgain {
    /// `None` where the configuration was made in code.
    loaded: Option<Loaded>,
    /// The values that hold after the reload.
    config: Config,
    files: NewFiles,
    plan: ListenerPlan,
}

/// The result of a reload.
#[derive(Clone, Debug, Default)]
pub struct Reloaded {
    /// The requested mode: the reload, or a check alone.
    pub mode: ReloadMode,
    /// The keys that differ from the values in force. Keys that need a restart stay different.
    pub changes: Vec<KeyChange>,
    /// The listeners that differ, each with the effect.
    pub listeners: Vec<ListenerChange>,
    /// Values of the file that do not count.
    pub shadowed: Vec<Shadowed>,
    /// Each file that was read again; none for a check.
    pub files: Vec<FileNews>,
    /// The clients that the files disconnected.
    pub disconnected: Revoked,
}

impl Reloaded {
    /// Returns the changes that wait for a restart.
    pub fn pending(&self) -> impl Iterator<Item = &KeyChange> {
        self.changes.iter().filter(|change| change.effect == ReloadEffect::Restart)
    }

    /// Returns true if neither a key nor a file changed.
    pub fn is_as_before(&self) -> bool {
        self.changes.is_empty() && !self.files.iter().any(|file| file.is_changed)
    }

    /// Returns a line for each file, and one for the clients that they disconnected.
    pub fn of_files(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.files.iter().map(ToString::to_string).collect();
        if !lines.is_empty() {
            lines.push(self.disconnected.to_string());
        }
        lines
    }

    /// Writes the lines of the log.
    pub(super) fn log(&self) {
        let pending: Vec<&str> = self.pending().map(|change| &*change.key).collect();
        info!(event = "config.reloaded", "{self}");
        if !pending.is_empty() {
            warn!(event = "config.restart_pending", keys = pending.join(","), "changed keys need a restart");
        }
    }
}

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("configuration and files were read again")?;
        let mut mark = ':';
        if self.is_as_before() {
            f.write_str(": nothing changed")?;
            mark = ';';
        }
        for change in &self.changes {
            let KeyChange { key, from, to, effect, .. } = change;
            write!(f, "{mark} {key} {from} -> {to} ({})", effect.name())?;
            mark = ';';
        }
        for change in &self.listeners {
            write!(f, "; {change} ({})", change.effect.name())?;
        }
        for what in self.of_files() {
            write!(f, "{mark} {what}")?;
            mark = ';';
        }
        Ok(())
    }
}

/// Waits for the walks over all clients, for `most` at most. The end of longer walks is reported
/// when it comes.
async fn wait_for(mut revocations: RevocationsUnderWay, most: Duration) -> Revoked {
    if let Ok(disconnected) = tokio::time::timeout(most, revocations.ended()).await {
        return disconnected;
    }
    let so_far = revocations.so_far();
    if so_far.is_under_way {
        revocations.report_end(|disconnected| {
            info!(
                event = "config.clients_checked",
                disconnected = disconnected.total(),
                "all clients were checked against the files of the last reload: {disconnected}"
            );
        });
    }
    so_far
}

/// The settings in force, and the parts that take new ones.
pub(super) struct Reload {
    /// The values in force.
    pub(super) config: Config,
    /// `None` where the configuration was made in code.
    pub(super) reader: Option<ConfigReader>,
    /// The sources of the values in force.
    pub(super) sources: KeySources,
    pub(super) files: LiveFiles,
    pub(super) listeners: LiveListeners,
    /// The thread that reads the configuration and its files.
    pub(super) reading: FileThread,
    /// The watcher of the listeners, if any.
    pub(super) tell: Option<ListenerWatcher>,
    /// Are given the configuration that a reload has put in force.
    pub(super) settings_watchers: Vec<SettingsWatcher>,
    pub(super) limits: Arc<LiveLimits>,
    pub(super) shared: Arc<SharedState>,
    /// `None` without a store.
    pub(super) store: Option<ToStore>,
    pub(super) log: Arc<EventLog>,
}

impl Reload {
    /// Returns every key with the value in force and its source.
    pub(super) fn in_force(&self) -> Vec<KeyInForce> {
        self.config.in_force(&self.sources)
    }

    /// Reads the files of TLS again if one of them changed.
    pub(super) async fn check_tls_files(&mut self) {
        self.files.check_tls_files(&self.listeners.entrances()).await;
    }

    /// Reads one of the files about clients. Errors: the configuration names none, or it cannot be
    /// read.
    pub(super) async fn read_file(&self, file: ClientFile) -> Result<ClientFileContent, NotEdited> {
        let path = file.path(&self.config)?;
        let read = self.reading.run(move || file_edits::read(path)).await.map_err(NotEdited::Hangs)??;
        let is_in_force = self.files.has_in_force(&read.path, read.version);
        Ok(ClientFileContent { is_in_force, ..read })
    }

    /// Changes one of the files about clients, and puts it in force.
    ///
    /// # Errors
    /// The file is unchanged, and the old content stays in force. If the disk hangs, nobody knows
    /// which content the file has. If only the last step is not confirmed by the disk, the change
    /// is in force.
    pub(super) async fn edit_file(&mut self, edit: FileEdit) -> Result<FileEdited, NotEdited> {
        let (key, mode, path) = (edit.file.key(), edit.mode, edit.file.path(&self.config)?);
        let is_of_broker = edit.file.is_of_broker(&path, &self.config);
        let (given_up, of_thread) = (Arc::new(AtomicBool::new(false)), path.clone());
        let seen = Arc::clone(&given_up);
        let written = self.reading.run(move || file_edits::write(&of_thread, edit, &seen)).await;
        let written = written.map_err(|hangs| {
            given_up.store(true, Ordering::Relaxed);
            NotEdited::Hangs(hangs)
        });
        let WrittenFile { parsed, version, is_changed, unsynced } = written??;
        let mut edited = FileEdited { is_changed, version, disconnected: Revoked::default() };
        if mode == ReloadMode::Check || self.files.has_in_force(&path, version) {
            return Ok(edited);
        }
        let plan = self.listeners.plan(&self.config);
        let (under_way, taken) =
            self.files.put_edited_in_force((&path, is_of_broker), parsed, version, &plan);
        taken_by_shards(taken).await;
        edited.disconnected = wait_for(under_way, WALKS).await;
        let (file, disconnected) = (path.display(), &edited.disconnected);
        info!(event = "config.file_changed", key, %file, "an operator changed the file, and it is in force: {disconnected}");
        self.files.retired.free();
        match unsynced {
            Some(error) => {
                warn!(event = "config.file_not_synced", key, "{error}");
                Err(NotEdited::NotSynced(error))
            }
            None => Ok(edited),
        }
    }

    /// Reads everything again, and puts it in force if nothing has a mistake. Errors: all mistakes
    /// of all layers and files. Then nothing changes.
    pub(super) async fn run(&mut self, mode: ReloadMode) -> Result<Reloaded, Vec<String>> {
        if mode == ReloadMode::Check {
            return self.read_again(mode).await;
        }
        service::reloads();
        let result = self.read_again(mode).await;
        service::reloaded();
        result
    }

    async fn read_again(&mut self, mode: ReloadMode) -> Result<Reloaded, Vec<String>> {
        let result = self.read_and_apply(mode).await;
        // A check changes nothing, so its mistakes are for the caller alone.
        if let (Err(mistakes), ReloadMode::Apply) = (&result, mode) {
            self.refused(mistakes);
        }
        result
    }

    async fn read_and_apply(&mut self, mode: ReloadMode) -> Result<Reloaded, Vec<String>> {
        let ReadAgain { loaded, config, mut files, plan } = self.read_all().await?;
        let mut reloaded = Reloaded { mode, ..Reloaded::default() };
        if let Some(loaded) = &loaded {
            reloaded.changes = loaded.changes_from(&self.config);
            reloaded.listeners = loaded.listener_changes(&self.config);
            reloaded.shadowed.clone_from(&loaded.shadowed);
        }
        if mode == ReloadMode::Check {
            file_thread::free(files);
            return live_listeners::check_new(&plan).map(|()| reloaded);
        }
        let listeners = match self.make_ready(&config, &mut files, plan) {
            Ok(listeners) => listeners,
            Err(mistakes) => {
                file_thread::free(files);
                return Err(mistakes);
            }
        };
        let (plan, entrances) = (listeners.plan(), listeners.entrances());
        let (files, revocations) = self.files.put_in_force(files, plan, &entrances);
        let began = clock::now();
        reloaded.files = files;
        self.put_in_force(config, plan).await;
        self.settings_watchers.iter().for_each(|watcher| watcher(&self.config));
        if let Some(loaded) = &loaded {
            self.sources.note(&self.config, loaded);
        }
        let news = self.listeners.put_in_force(&self.config, listeners).await;
        self.files.statistics.config.done(reloaded.pending().count());
        let left = WALKS.saturating_sub(clock::now().since(began));
        reloaded.disconnected = wait_for(revocations, left).await;
        reloaded.log();
        self.files.retired.free();
        self.tell(news).await;
        Ok(reloaded)
    }

    /// Reports the result of the reload for the listeners. The watcher writes a file.
    async fn tell(&self, news: ListenerNews) {
        let Some(tell) = self.tell.clone().filter(|_| !news.is_empty()) else { return };
        if let Err(error) = self.reading.run(move || tell(&news)).await {
            warn!(event = "broker.addresses_file_failed", %error, "network.addresses_file is not written, so `homing health` needs --address");
        }
    }

    /// Reads the configuration and all files, on a thread for that. Changes nothing. Errors: all
    /// mistakes of all layers and files, or the file that hangs.
    async fn read_all(&self) -> Result<ReadAgain, Vec<String>> {
        let not_read = |error: NotRead| vec![error.to_string()];
        let loaded = match self.reader.clone() {
            Some(read) => Some(self.reading.run(move || read()).await.map_err(not_read)?),
            None => None,
        };
        let loaded = loaded.map(|read| self.checked(read?)).transpose();
        let (loaded, mut mistakes) = match loaded {
            Ok(loaded) => (loaded, Vec::new()),
            Err(refusal) => (None, refusal.0.iter().map(ToString::to_string).collect()),
        };
        // With a mistake in the configuration, the files of the old one are checked.
        let config = loaded
            .as_ref()
            .map_or_else(|| self.config.clone(), |loaded| self.config.with_reloaded(&loaded.config));
        let plan = self.listeners.plan(&config);
        let files = self.files.to_read(&config, &plan);
        let read = move || {
            let files = files.read(&config, &plan);
            (files, config, plan)
        };
        let (files, config, plan) = self.reading.run(read).await.map_err(not_read)?;
        match files {
            Ok(files) if mistakes.is_empty() => Ok(ReadAgain { loaded, config, files, plan }),
            Ok(files) => {
                file_thread::free(files);
                Err(mistakes)
            }
            Err(of_files) => {
                mistakes.extend(of_files);
                Err(mistakes)
            }
        }
    }

    /// Does all that may fail: binds sockets and starts threads. Changes nothing that runs. Errors:
    /// the addresses and threads that the system refuses.
    fn make_ready(
        &self,
        config: &Config,
        files: &mut NewFiles,
        plan: ListenerPlan,
    ) -> Result<NewListeners, Vec<String>> {
        let listeners = self.listeners.open_new(config, plan, files.tls())?;
        self.files.start_logins(config, files)?;
        Ok(listeners)
    }

    /// Counts and logs a reload that is refused.
    fn refused(&self, mistakes: &[String]) {
        self.files.statistics.config.refused();
        for mistake in mistakes {
            warn!(event = "config.reload_refused", "nothing is changed, because of a mistake: {mistake}");
        }
    }

    /// Returns `loaded` if it does not contradict the values that hold until a restart.
    ///
    /// # Errors
    /// The contradictions.
    fn checked(&self, loaded: Loaded) -> Result<Loaded, ConfigRefusal> {
        let contradictions = loaded.contradictions_with(&self.config);
        if contradictions.is_empty() { Ok(loaded) } else { Err(ConfigRefusal(contradictions)) }
    }

    /// Passes the store its changed settings. A store that was handed over in code keeps its own
    /// settings, because no key has changed.
    fn limit_store(&self, config: &Config) {
        let Some(store) = &self.store else { return };
        let (new, old) = (&config.store, &self.config.store);
        if new.size_limit != old.size_limit {
            store.limit_size(new.largest_size());
        }
        if new.synced_every() != old.synced_every() {
            store.sync_every(new.synced_every());
        }
    }

    /// Puts new values in force, and the settings of these listeners. Returns when every shard has
    /// them.
    async fn put_in_force(&mut self, config: Config, plan: &ListenerPlan) {
        self.shared.budget.limit(config.limits.memory.bytes());
        self.shared.partial.limit(partial_limit(&config), config.limits.connect_size.bytes());
        self.shared.retained().limit(retained_limits(&config));
        self.shared.limit_shares(&share_rules(&config, plan));
        self.limits.set(&config);
        self.limit_store(&config);
        self.files.statistics.set_limits(broker_limits(&config, self.limits.connections()));
        self.log.set_limit(config.log.events_per_second);
        // A process that started no log has no level.
        let _ = level::configure(&config.log.level);
        let change = SettingsChanged {
            settings: Arc::new(settings(&config, plan)),
            events: EventRates::of(&config.sys, self.files.shards.len()),
            sys_interval: None,
        };
        let sys = config.sys.clone();
        self.config = config;
        // While a mailbox is full, an address of actix takes one message of `send`, and drops the
        // next. A new address takes each.
        let shards = self.files.shards.iter().enumerate();
        let swap = |(number, shard): (usize, &Addr<ShardActor>)| {
            shard.clone().send(SettingsChanged { sys_interval: sys.interval_of(number), ..change.clone() })
        };
        let swaps: Vec<_> = shards.map(swap).collect();
        taken_by_shards(swaps).await;
    }
}

/// Waits until all shards have taken a message, for [`SWAP`] at most.
async fn taken_by_shards<M>(taken: Vec<Request<ShardActor, M>>)
where
    M: Message + Send + 'static,
    M::Result: Send,
    ShardActor: Handler<M>,
{
    let all = async {
        for one in taken {
            // A shard that has ended takes nothing.
            let _ = one.await;
        }
    };
    if tokio::time::timeout(SWAP, all).await.is_err() {
        warn!(
            event = "config.swap_late",
            "a thread did not take the new settings within {SWAP:?}; it takes them when it goes on"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::revocations::{RevocationTally, RevokedBy};
    use super::*;

    #[test]
    fn a_walk_that_hangs_holds_a_reload_no_longer_than_the_limit() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime.expect("an event loop"), async {
            let (hangs, under_way) = RevocationTally::begin();
            hangs.add(RevokedBy::Bans, 1);
            let limited = tokio::time::timeout(WALKS + Duration::from_millis(1), wait_for(under_way, WALKS));
            let so_far = limited.await.expect("in time");
            assert_eq!((so_far.total(), so_far.is_under_way), (1, true));
            let (ends, under_way) = RevocationTally::begin();
            ends.add(RevokedBy::Tls, 2);
            drop(ends);
            let end = wait_for(under_way, Duration::ZERO).await;
            assert_eq!((end.total(), end.is_under_way), (2, false));
        });
    }
}
