//! The configuration of a process that serves nobody yet: of a node of a cluster that stands by.
//!
//! It is read again like that of a running broker: all of it, or nothing. What was read holds for
//! the broker that starts when the node becomes the owner. Files are read then, and only checked
//! here, but for the certificate of the HTTP interface, which serves already.

use super::handshake::reload::TlsReload;
use super::listener_plan::ListenerPlan;
use super::live_files::{FilesToRead, READ, report_not_read, report_renewed, tls_news};
use super::reload::{ConfigReader, ReloadMode, Reloaded, SettingsWatcher};
use super::supervisor::TLS_CHECKS;
use crate::clock;
use crate::config::{Config, ConfigRefusal, KeyInForce, KeySources};
use crate::file_thread::{FileThread, NotRead};
use crate::log::level;
use crate::net::tls::live::LiveTls;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use tracing::warn;

/// The configuration of a node that stands by. Usable on any thread.
pub struct StandbyConfig {
    present: Mutex<Present>,
    reader: ConfigReader,
    /// Held by the reload that is under way.
    turn: Mutex<()>,
    /// The thread on which a reload of an operator reads.
    reading: FileThread,
    /// The TLS of the HTTP interface, and of listeners as it was read last. Changed by whoever has the
    /// turn.
    tls: Mutex<TlsReload>,
    /// The thread that looks at the files of TLS.
    looking: FileThread,
    watchers: Mutex<Vec<SettingsWatcher>>,
}

struct Present {
    config: Config,
    sources: KeySources,
    /// The broker has it.
    is_taken: bool,
}

impl StandbyConfig {
    /// Returns the configuration of a start. `reader` reads all layers again.
    pub fn new(config: Config, sources: KeySources, reader: ConfigReader) -> StandbyConfig {
        StandbyConfig {
            present: Mutex::new(Present { config, sources, is_taken: false }),
            reader,
            turn: Mutex::default(),
            reading: FileThread::new("homing-files", READ),
            tls: Mutex::default(),
            looking: FileThread::new("homing-tls-look", READ),
            watchers: Mutex::default(),
        }
    }

    /// Adds a watcher, which each reload gives the new configuration.
    pub fn watch(&self, watcher: SettingsWatcher) {
        lock(&self.watchers).push(watcher);
    }

    /// Reads the certificate of the HTTP interface again at each reload from now on. Returns the work
    /// that also reads it once a minute if its files have changed, until the broker does so.
    pub fn renew(self: &Arc<Self>, interface: Arc<LiveTls>) -> impl Future<Output = ()> + use<> {
        lock(&self.tls).include(interface);
        let own = Arc::clone(self);
        async move {
            let mut checks = tokio::time::interval(TLS_CHECKS);
            // The start has just read the files.
            checks.reset();
            while !lock(&own.present).is_taken {
                checks.tick().await;
                own.check_tls_files().await;
            }
        }
    }

    /// Reads the files of TLS again if one of them changed, on a thread for files.
    async fn check_tls_files(self: &Arc<Self>) {
        let own = Arc::clone(self);
        match self.looking.run(move || own.check_tls_files_here()).await {
            // The first minute of a read that hangs was logged.
            Ok(()) | Err(NotRead::Busy(_)) => {}
            Err(error) => report_not_read(&error),
        }
    }

    fn check_tls_files_here(&self) {
        // A reload that is under way reads the files itself.
        let Ok(_turn) = self.turn.try_lock() else { return };
        let mut tls = lock(&self.tls).clone();
        let renewed = tls.read_renewed();
        if let Some(new) = report_renewed(renewed) {
            tls.put_in_force(new, &[]);
        }
        tls.warn_daily(clock::unix_millis());
        *lock(&self.tls) = tls;
    }

    /// Returns every key with the value in force and its source.
    pub fn in_force(&self) -> Vec<KeyInForce> {
        let present = lock(&self.present);
        present.config.in_force(&present.sources)
    }

    /// Returns the configuration in force.
    pub fn config(&self) -> Config {
        lock(&self.present).config.clone()
    }

    /// Returns what the broker starts with. No reload follows.
    pub fn take(&self) -> (Config, KeySources) {
        let mut present = lock(&self.present);
        present.is_taken = true;
        (present.config.clone(), present.sources.clone())
    }

    /// Reads the configuration and its files again, on a thread for files.
    ///
    /// # Errors
    /// All mistakes, or the file that hangs. Then nothing changes.
    pub async fn reload(self: &Arc<Self>, mode: ReloadMode) -> Result<Reloaded, Vec<String>> {
        let own = Arc::clone(self);
        let read = move || own.reload_here(mode);
        self.reading.run(read).await.unwrap_or_else(|error| Err(vec![error.to_string()]))
    }

    /// Reads the configuration and its files again. Blocks for as long as their disks take.
    ///
    /// # Errors
    /// All mistakes, or another reload is under way. Then nothing changes.
    pub fn reload_here(&self, mode: ReloadMode) -> Result<Reloaded, Vec<String>> {
        let result = self.read_and_apply(mode);
        match (&result, mode) {
            (_, ReloadMode::Check) => {}
            (Ok(reloaded), _) => reloaded.log(),
            (Err(mistakes), _) => {
                for mistake in mistakes {
                    warn!(
                        event = "config.reload_refused",
                        "nothing is changed, because of a mistake: {mistake}"
                    );
                }
            }
        }
        result
    }

    fn read_and_apply(&self, mode: ReloadMode) -> Result<Reloaded, Vec<String>> {
        let texts = |refusal: ConfigRefusal| refusal.0.iter().map(ToString::to_string).collect::<Vec<_>>();
        let _turn = match self.turn.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(vec!["another reload is under way".to_owned()]),
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
        };
        let loaded = (self.reader)().map_err(texts)?;
        let running = self.config();
        let contradictions = loaded.contradictions_with(&running);
        if !contradictions.is_empty() {
            return Err(texts(ConfigRefusal(contradictions)));
        }
        let config = running.with_reloaded(&loaded.config);
        let plan = ListenerPlan::at_start(&config.all_listeners());
        let tls = lock(&self.tls).clone();
        let tls = FilesToRead::of_start(&config, &plan, tls).read(&config, &plan)?.into_tls();
        let reloaded = Reloaded {
            mode,
            changes: loaded.changes_from(&running),
            listeners: loaded.listener_changes(&running),
            shadowed: loaded.shadowed.clone(),
            files: tls_news(&tls),
            ..Reloaded::default()
        };
        if mode == ReloadMode::Check {
            return Ok(reloaded);
        }
        let mut present = lock(&self.present);
        if present.is_taken {
            return Err(vec!["this node begins to serve: reload again once it does".to_owned()]);
        }
        present.sources.note(&config, &loaded);
        present.config = config.clone();
        drop(present);
        lock(&self.tls).put_in_force(tls, &[]);
        // A process that started no log has no level.
        let _ = level::configure(&config.log.level);
        lock(&self.watchers).iter().for_each(|watcher| watcher(&config));
        Ok(reloaded)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Loaded, Sources};
    use crate::net::tls::settings::TlsSettings;
    use crate::net::tls::test_pki::{Authority, write_leaf};
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_standby_reads_its_configuration_again_and_a_mistake_changes_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("homing.toml");
        let bans = directory.path().join("bans");
        let of_bans = format!("[bans]\nfile = {bans:?}\n");
        let write = |text: &str| std::fs::write(&file, [text, &of_bans].concat()).expect("a file");
        std::fs::write(&bans, "").expect("a file");
        write("[limits]\nqueue_messages = 7\n");
        let path = file.clone();
        let read = move || -> Result<Loaded, ConfigRefusal> { Sources::new().file(&path).load() };
        let loaded = read().expect("it is valid");
        let standby =
            StandbyConfig::new(loaded.config.clone(), KeySources::of_start(&loaded), Arc::new(read));
        let seen = Arc::new(AtomicUsize::new(0));
        let watcher = Arc::clone(&seen);
        standby.watch(Box::new(move |config| {
            watcher.store(config.limits.queue_messages as usize, Ordering::Relaxed)
        }));
        write("[limits]\nqueue_messages = 9\n[runtime]\nthreads = 3\n");
        let checked = standby.reload_here(ReloadMode::Check).expect("no mistake");
        assert_eq!((checked.changes.len(), standby.config().limits.queue_messages), (2, 7));
        let reloaded = standby.reload_here(ReloadMode::Apply).expect("no mistake");
        assert_eq!(reloaded.pending().map(|change| &*change.key).collect::<Vec<_>>(), ["runtime.threads"]);
        assert_eq!((seen.load(Ordering::Relaxed), standby.config().limits.queue_messages), (9, 9));
        let pending = standby.in_force().into_iter().find(|key| key.key == "runtime.threads");
        assert_eq!(pending.and_then(|key| key.pending).as_deref(), Some("3"));
        for (wrong, banned) in [("[limits]\nqueue_messages = 0\n", ""), ("", "nonsense\n")] {
            write(wrong);
            std::fs::write(&bans, banned).expect("a file");
            assert!(standby.reload_here(ReloadMode::Apply).is_err(), "{wrong}{banned}");
            assert_eq!(standby.config().limits.queue_messages, 9);
        }
        std::fs::write(&bans, "").expect("a file");
        write("[limits]\nqueue_messages = 8\n");
        assert_eq!(standby.take().0.limits.queue_messages, 9);
        let late = standby.reload_here(ReloadMode::Apply).expect_err("the broker has it");
        assert!(late[0].contains("begins to serve"), "{late:?}");
    }

    #[test]
    fn a_standby_renews_the_certificate_of_its_interface_at_a_reload_and_when_the_files_change() {
        let directory = tempfile::tempdir().expect("a directory");
        let authority = Authority::new("authority");
        let write =
            |common_name: &str| write_leaf(directory.path(), "own", &authority.server(&[common_name]));
        let live = LiveTls::load(&TlsSettings::new(vec![write("first")])).expect("it is valid");
        let names = || live.newest().certificates()[0].names.clone();
        let read = || -> Result<Loaded, ConfigRefusal> { Sources::new().text("text", "").load() };
        let loaded = read().expect("it is valid");
        let standby =
            StandbyConfig::new(loaded.config.clone(), KeySources::of_start(&loaded), Arc::new(read));
        let standby = Arc::new(standby);
        drop(standby.renew(Arc::clone(&live)));
        write("second");
        standby.reload_here(ReloadMode::Check).expect("no mistake");
        assert_eq!(names(), ["first"]);
        let reloaded = standby.reload_here(ReloadMode::Apply).expect("no mistake");
        assert!(reloaded.files.iter().any(|file| file.key == "admin.certificate"), "{reloaded}");
        assert_eq!(names(), ["second"]);
        write("third");
        standby.check_tls_files_here();
        assert_eq!(names(), ["third"]);
        std::fs::write(directory.path().join("own.pem"), "").expect("a file");
        standby.check_tls_files_here();
        let refused = standby.reload_here(ReloadMode::Apply).expect_err("it is empty");
        assert!(refused[0].contains("admin.certificate"), "{refused:?}");
        assert_eq!(names(), ["third"]);
    }
}
