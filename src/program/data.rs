//! The data directory: its store, its Unix socket, and the commands that inspect it.

use super::output::{complain, failed, say};
use clap::Subcommand;
use homing::config::{Config, DurabilityLevel, duration};
use homing::store::logged::{LoggedStore, StoreOptions};
use homing::store::replay::{self, ReplayError, Until};
use homing::store::ship::ShipOptions;
use homing::store::sqlite::inspect::{StoreInspection, cut};
use homing::store::sqlite::mend::{Mended, mend};
use homing::store::{Moment, Store, StoreError};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Opens the store that the configuration names. Returns `None` with `store.durability = "none"`.
///
/// # Errors
/// The directory or the database cannot be used.
pub(crate) fn open_store(config: &Config) -> Result<Option<Box<dyn Store>>, StoreError> {
    let Some(directory) = data_directory(config) else { return Ok(None) };
    let (durability, size_limit) = (config.store.durability, config.store.largest_size());
    let options = StoreOptions { durability, size_limit };
    let mut store = LoggedStore::open(&directory, options)?;
    if let Some(to) = config.store.copied_to() {
        store.ship(ShipOptions { to, interval: config.store.ship_interval })?;
    }
    Ok(Some(Box::new(store)))
}

/// Returns the directory of the store; `None` with `store.durability = "none"`.
pub(crate) fn data_directory(config: &Config) -> Option<PathBuf> {
    config.store.directory(std::env::var_os("STATE_DIRECTORY").as_deref())
}

/// Returns the path of the Unix socket of the HTTP interface; `None` for none.
#[cfg(feature = "admin")]
pub(crate) fn socket_path(config: &Config) -> Option<PathBuf> {
    let data = data_directory(config);
    config.admin.socket_path(std::env::var_os("RUNTIME_DIRECTORY").as_deref(), data.as_deref())
}

/// Returns the path of the Unix socket at which a command asks a running broker; `None` for none.
#[cfg(feature = "admin")]
pub(crate) fn socket_to_ask(config: &Config) -> Option<PathBuf> {
    let data = data_directory(config);
    let runtime = std::env::var_os("RUNTIME_DIRECTORY");
    config.admin.socket_to_ask(runtime.as_deref(), data.as_deref(), Path::is_dir)
}

/// Returns `None`: this program has no HTTP interface.
#[cfg(not(feature = "admin"))]
pub(crate) fn socket_to_ask(_: &Config) -> Option<PathBuf> {
    None
}

/// Returns the line of the banner with the place of the store, and the promise of an
/// acknowledgement.
pub(crate) fn storage_line(config: &Config) -> String {
    let Some(directory) = data_directory(config) else {
        return "memory: sessions, queued and retained messages end with this process".to_owned();
    };
    let promise = match config.store.durability {
        DurabilityLevel::Commit => "an acknowledged message is on the disk".to_owned(),
        DurabilityLevel::Interval => {
            format!(
                "an acknowledged message is on the disk within {}",
                duration::format(config.store.sync_interval)
            )
        }
        DurabilityLevel::Os | DurabilityLevel::None => {
            "an acknowledged message survives a crash of the process, not of the machine".to_owned()
        }
    };
    format!("{}: {promise}", directory.display())
}

/// The commands on a data directory.
#[derive(Subcommand)]
pub(crate) enum StoreQuery {
    /// Check that the store is sound; reads all of it; exit code 0 or 1
    Check,
    /// List totals, then for each session its state, queue, messages in flight and the oldest one
    Dump,
    /// Copy the store, as it is at one moment, into a new file
    Backup {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Go on without the rest of a damaged log: moves everything behind a position aside; loses
    /// acknowledged messages
    Cut {
        /// The last position that stays, as the broker or `check` names it
        #[arg(long = "at", value_name = "POSITION")]
        position: u64,
    },
    /// Make a data directory of the copy that a broker has made at store.ship_to
    Replay {
        /// The folder of the copy
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
        /// The new data directory
        #[arg(long, value_name = "DIR")]
        into: PathBuf,
        /// The last moment: a position, or a time such as 2027-01-31T12:00:00Z; the end if it is
        /// not given
        #[arg(long, value_name = "POSITION|TIME", conflicts_with = "follow")]
        until: Option<String>,
        /// Go on with what comes, each store.ship_interval, until the directory is promoted; goes
        /// on with a directory that follows already
        #[arg(long)]
        follow: bool,
    },
    /// End `replay --follow`, and let a broker start on the directory
    Promote {
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Go on without what is damaged in the database: copies the rest; lists all that is lost
    Mend,
}

/// Carries out a command on the data directory.
pub(crate) fn inspect_store(query: &StoreQuery, config: &Config) -> ExitCode {
    match query {
        StoreQuery::Replay { folder, into, until, follow } => {
            // So the follower is behind the copy for a quarter of the time at most.
            let interval = follow.then_some(config.store.ship_interval / 4);
            match until.as_deref().map(str::parse).transpose() {
                Ok(until) => replayed(folder, into, until, interval).unwrap_or_else(|error| failed(&error)),
                Err(why) => failed(&format!("--until {why}")),
            }
        }
        StoreQuery::Promote { directory } => promoted(directory).unwrap_or_else(|error| failed(&error)),
        StoreQuery::Check
        | StoreQuery::Dump
        | StoreQuery::Backup { .. }
        | StoreQuery::Cut { .. }
        | StoreQuery::Mend => inspected(query, config).unwrap_or_else(|error| failed(&error)),
    }
}

/// Makes a data directory of a copy. With an interval, follows the copy.
fn replayed(
    folder: &Path,
    into: &Path,
    until: Option<Until>,
    follows: Option<Duration>,
) -> Result<ExitCode, ReplayError> {
    let reached = match follows {
        None => replay::replay(folder, into, until)?,
        Some(interval) => replay::follow(folder, into, interval, say)?,
    };
    say(&format!("{} has everything up to {reached}", into.display()));
    Ok(ExitCode::SUCCESS)
}

fn promoted(directory: &Path) -> Result<ExitCode, ReplayError> {
    let (reached, trouble) = replay::promote(directory)?;
    if let Some(trouble) = trouble {
        complain(&format!("the copy could not be read up to its end: {trouble}"));
    }
    say(&format!("{} has everything up to {reached}: start a broker on it", directory.display()));
    Ok(ExitCode::SUCCESS)
}

fn inspected(query: &StoreQuery, config: &Config) -> Result<ExitCode, StoreError> {
    let Some(directory) = data_directory(config) else {
        return Err(StoreError::Failed(
            "store.durability is none, so there is no store; name one with --data-dir".to_owned(),
        ));
    };
    let inspection = || StoreInspection::open(&directory);
    match query {
        StoreQuery::Check => {
            let store = inspection()?;
            let faults = store.check()?;
            store.log_lines().iter().for_each(|line| say(line));
            if faults.is_empty() {
                say(&format!("the store in {} is sound", directory.display()));
                return Ok(ExitCode::SUCCESS);
            }
            faults.iter().for_each(|fault| complain(fault));
            return Ok(ExitCode::FAILURE);
        }
        StoreQuery::Cut { position } => {
            let aside = cut(&directory, *position)?;
            say(&format!("the log in {} ends with position {position} now", directory.display()));
            aside.iter().for_each(|file| say(&format!("what was behind it is in {}", file.display())));
        }
        StoreQuery::Mend => {
            let Mended { lost, aside } = mend(&directory)?;
            lost.iter().for_each(|line| say(&format!("lost: {line}")));
            say(&format!(
                "the database in {} has all that was sound: {} lost; as it was, it is in {}",
                directory.display(),
                lost.len(),
                aside.display()
            ));
        }
        StoreQuery::Dump => inspection()?.dump(Moment::now(), say)?,
        StoreQuery::Backup { file } => {
            inspection()?.backup(file)?;
            say(&format!("copied {} to {}", directory.display(), file.display()));
        }
        // They need no configured directory.
        StoreQuery::Replay { .. } | StoreQuery::Promote { .. } => {}
    }
    Ok(ExitCode::SUCCESS)
}
