//! Makes a data directory of a copy that [`super::ship`] has made: up to its end, up to an earlier
//! moment, or on and on.
//!
//! The directory is built beside its place, under another name, and moved there when it is whole. A
//! directory that follows a copy is marked: no broker starts on it before it is promoted. In the
//! end the directory has no log, so its broker begins one with an identifier of its own, and ships
//! it into a generation of its own.
//!
//! | file | what |
//! |---|---|
//! | `building` | the directory while it is built |
//! | `source` | the frames of a copy in their order |
//! | `until` | the end of a replay |

mod building;
mod source;
mod until;

pub use until::{Reached, Until};

use super::catch_up::CatchUp;
use super::ship::names;
use super::ship::names::Contents;
use super::ship::names_in;
use super::sqlite::base::{mark_of, refuse_node};
use super::sqlite::directory::{database_in, following_in, is_locked};
use super::sqlite::{Sqlite, SqliteOptions};
use super::{StoreError, files};
use crate::clock;
use crate::config::DurabilityLevel;
use aws_lc_rs::digest::{Context, SHA256};
use building::Building;
use source::{Source, contents_of};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Number of looks in a row at something bad before a follower ends: a synchronised folder may have
/// a part of a file for a moment.
const LOOKS: u32 = 40;
/// The time that [`promote`] waits for a follower to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time between two looks at a follower that is to end.
const SOON: Duration = Duration::from_millis(20);

/// Why a replay failed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A file cannot be read or written.
    #[error("{path}: {error}", path = .0.display(), error = .1)]
    Folder(PathBuf, io::Error),
    /// A file or a folder is not what it should be. Says what is wrong.
    #[error("{path}: {what}", path = .0.display(), what = .1)]
    Bad(PathBuf, String),
    /// The directory that is made cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Makes a data directory `into` of the copy in `folder`, with everything up to `until`. Returns
/// the last position.
///
/// # Errors
/// There is no sound copy of that moment, or the directory cannot be made. Nothing is left of it.
pub fn replay(folder: &Path, into: &Path, until: Option<Until>) -> Result<Reached, ReplayError> {
    let folder = generation_in(folder)?;
    let building = Building::begin(into)?;
    let mut replayer = Replayer::restore(&folder, building.path(), until)?;
    replayer.catch_up.database.leave_log()?;
    let reached = replayer.reached();
    drop(replayer);
    building.move_to(into)?;
    Ok(reached)
}

/// As [`replay`] without an end, and then goes on with what comes, until somebody promotes the
/// directory. Goes on from where it ended, if the directory follows this copy already. `say` gets
/// lines for an operator.
///
/// # Errors
/// As [`replay`], or the copy has no more what comes next. The directory stays as it is.
pub fn follow(
    folder: &Path,
    into: &Path,
    interval: Duration,
    mut say: impl FnMut(&str),
) -> Result<Reached, ReplayError> {
    let folder = generation_in(folder)?;
    let folder = folder.canonicalize().map_err(|error| ReplayError::Folder(folder, error))?;
    begin_following(&folder, into)?;
    let mut replayer = Replayer::open(&folder, into)?;
    say(&format!("{} has {} and follows {}", into.display(), replayer.reached(), folder.display()));
    let mut looks = 0;
    loop {
        match replayer.go_on() {
            Ok(()) if looks > 0 => {
                looks = 0;
                say(&format!("{} follows again", into.display()));
            }
            Ok(()) => {}
            Err(ReplayError::Store(error)) => return Err(error.into()),
            Err(error @ ReplayError::Bad(..)) if looks >= LOOKS => return Err(error),
            Err(error) => {
                if looks == 0 {
                    say(&error.to_string());
                }
                looks += u32::from(matches!(error, ReplayError::Bad(..)) || looks == 0);
            }
        }
        if request_in(into).exists() {
            return Ok(replayer.reached());
        }
        thread::sleep(interval);
    }
}

/// Makes a directory that follows a copy, unless it is there already.
fn begin_following(folder: &Path, into: &Path) -> Result<(), ReplayError> {
    match followed(into) {
        Some(followed) if followed == folder => Ok(()),
        Some(followed) => {
            let what = format!("it follows the copy in {}", followed.display());
            Err(ReplayError::Bad(into.to_owned(), what))
        }
        None => {
            let building = Building::begin(into)?;
            drop(Replayer::restore(folder, building.path(), None)?);
            write(&following_in(building.path()), &format!("{}\n", folder.display()))?;
            building.move_to(into)
        }
    }
}

/// Ends [`follow`], applies what the copy has, and lets a broker start on the directory. Returns
/// the last position, and why the copy could not be read up to its end, if so.
///
/// # Errors
/// The directory does not follow a copy or is of a cluster, or its follower does not end.
pub fn promote(directory: &Path) -> Result<(Reached, Option<ReplayError>), ReplayError> {
    let Some(folder) = followed(directory) else {
        return Err(ReplayError::Bad(directory.to_owned(), "it follows no copy".to_owned()));
    };
    // Its database would lose the identifier of the cluster's log.
    refuse_node(directory)?;
    write(&request_in(directory), "")?;
    let began = clock::now();
    while is_locked(directory) {
        if clock::now().since(began) > PATIENCE {
            let _ = fs::remove_file(request_in(directory));
            let what = "its follower does not end: stop that process, and try again";
            return Err(ReplayError::Bad(directory.to_owned(), what.to_owned()));
        }
        thread::sleep(SOON);
    }
    let mut replayer = Replayer::open(&folder, directory)?;
    let trouble = match replayer.go_on() {
        Err(ReplayError::Store(error)) => return Err(error.into()),
        outcome => outcome.and_then(|()| replayer.source.ends_here()).err(),
    };
    // Frames before the trouble.
    replayer.catch_up.apply()?;
    replayer.catch_up.database.leave_log()?;
    let reached = replayer.reached();
    drop(replayer);
    for path in [request_in(directory), following_in(directory)] {
        fs::remove_file(&path).map_err(|error| ReplayError::Folder(path, error))?;
    }
    files::sync(directory).map_err(|error| ReplayError::Folder(directory.to_owned(), error))?;
    Ok((reached, trouble))
}

/// A database in a directory, and the copy that it follows.
struct Replayer {
    catch_up: CatchUp,
    source: Source,
}

impl Replayer {
    /// Copies the base for a moment into an empty directory, and applies the frames up to the
    /// moment.
    fn restore(folder: &Path, directory: &Path, until: Option<Until>) -> Result<Replayer, ReplayError> {
        let contents = contents_of(folder)?;
        let base = base_for(folder, &contents, until)?;
        copy_base(folder, base, directory)?;
        let path = folder.join(names::base(base));
        let bad = |what: String| ReplayError::Bad(path.clone(), what);
        let (applied, mark) = mark_of(&database_in(directory)).map_err(|error| bad(error.to_string()))?;
        if applied.position != base || applied.id.is_none() {
            return Err(bad(format!("it has position {}", applied.position)));
        }
        if matches!(until, Some(Until::Time(time)) if mark.moment.unix_millis > time) {
            return Err(outside(folder, &contents));
        }
        let mut replayer = Replayer::open(folder, directory)?;
        if replayer.advance(until)? != Advance::Reached && until.is_some() {
            replayer.source.ends_here()?;
            return Err(outside(folder, &contents));
        }
        replayer.catch_up.apply()?;
        Ok(replayer)
    }

    fn open(folder: &Path, directory: &Path) -> Result<Replayer, ReplayError> {
        let options = SqliteOptions { durability: DurabilityLevel::Commit, size_limit: None };
        let catch_up = CatchUp::new(Sqlite::open(directory, options)?)?;
        let (applied, _) = catch_up.database.applied()?;
        // Without an identifier it was promoted, but for the mark: no frame is of log 0.
        let source = Source::behind(folder.to_owned(), applied.id.unwrap_or(0), applied);
        Ok(Replayer { catch_up, source })
    }

    /// Applies what the copy has by now.
    fn go_on(&mut self) -> Result<(), ReplayError> {
        self.advance(None)?;
        Ok(self.catch_up.apply()?)
    }

    fn advance(&mut self, until: Option<Until>) -> Result<Advance, ReplayError> {
        loop {
            if until == Some(Until::Position(self.reached().position)) {
                return Ok(Advance::Reached);
            }
            let Some(frame) = self.source.next()? else { break };
            if matches!(until, Some(Until::Time(time)) if frame.head.moment.unix_millis > time) {
                return Ok(Advance::Reached);
            }
            self.catch_up.take(frame)?;
        }
        // The copy says nothing of later times.
        let is_it = until == Some(Until::Time(self.reached().unix_millis));
        Ok(if is_it { Advance::Reached } else { Advance::AtEnd })
    }

    fn reached(&self) -> Reached {
        let mark = self.catch_up.mark();
        Reached { position: mark.position, unix_millis: mark.moment.unix_millis }
    }
}

/// How far a replay came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Advance {
    /// To the moment that was asked for.
    Reached,
    /// To the end of the copy.
    AtEnd,
}

/// Returns the folder of one log: `folder` itself, or the only one in it.
fn generation_in(folder: &Path) -> Result<PathBuf, ReplayError> {
    let listed = names_in(folder).map_err(|error| ReplayError::Folder(folder.to_owned(), error))?;
    if Contents::of(listed.iter().map(String::as_str)) != Contents::default() {
        return Ok(folder.to_owned());
    }
    let mut generations: Vec<String> =
        listed.into_iter().filter(|name| names::parse_generation(name).is_some()).collect();
    generations.sort();
    let bad = |what: String| Err(ReplayError::Bad(folder.to_owned(), what));
    match &generations[..] {
        [] => bad("there is no copy of a store in it".to_owned()),
        [one] => Ok(folder.join(one)),
        several => bad(format!("it has copies of several logs, so name one: {}", several.join(", "))),
    }
}

/// Returns the position of the base to begin with.
fn base_for(folder: &Path, contents: &Contents, until: Option<Until>) -> Result<u64, ReplayError> {
    let Some(oldest) = contents.bases.first().copied() else {
        return Err(ReplayError::Bad(folder.to_owned(), "it has no whole base yet".to_owned()));
    };
    match until {
        None => Ok(contents.base_for(None).unwrap_or(oldest)),
        Some(Until::Position(position)) => {
            contents.base_for(Some(position)).ok_or_else(|| outside(folder, contents))
        }
        Some(Until::Time(time)) => {
            let mut newest_first = contents.bases.iter().rev().copied();
            let is_before = |base: &u64| reached_by(folder, *base).is_ok_and(|base| base.unix_millis <= time);
            // If no base is early enough, the replay of the oldest one explains it.
            Ok(newest_first.find(is_before).unwrap_or(oldest))
        }
    }
}

/// Returns the moment of a base.
fn reached_by(folder: &Path, base: u64) -> Result<Reached, ReplayError> {
    let path = folder.join(names::base(base));
    let (applied, mark) = mark_of(&path).map_err(|error| ReplayError::Bad(path, error.to_string()))?;
    Ok(Reached { position: applied.position, unix_millis: mark.moment.unix_millis })
}

/// Returns the refusal of a moment that the copy does not have. Says what it has.
fn outside(folder: &Path, contents: &Contents) -> ReplayError {
    match range_of(folder, contents) {
        Ok((from, to)) => {
            ReplayError::Bad(folder.to_owned(), format!("--until is outside of what it has: {from} to {to}"))
        }
        Err(error) => error,
    }
}

/// Returns the first and the last moment of a copy.
fn range_of(folder: &Path, contents: &Contents) -> Result<(Reached, Reached), ReplayError> {
    let (oldest, newest) = (contents.bases.first(), contents.bases.last());
    let from = reached_by(folder, oldest.copied().unwrap_or(0))?;
    let newest = newest.copied().unwrap_or(0);
    let path = folder.join(names::base(newest));
    let (applied, _) = mark_of(&path).map_err(|error| ReplayError::Bad(path, error.to_string()))?;
    let mut to = reached_by(folder, newest)?;
    let mut source = Source::behind(folder.to_owned(), applied.id.unwrap_or(0), applied);
    // Damage behind ends the range.
    while let Ok(Some(frame)) = source.next() {
        to = Reached { position: frame.head.position, unix_millis: frame.head.moment.unix_millis };
    }
    Ok((from, to))
}

/// Copies a base into a directory, and compares its digest.
fn copy_base(folder: &Path, position: u64, directory: &Path) -> Result<(), ReplayError> {
    let (base, sum) = (folder.join(names::base(position)), folder.join(names::sum(position)));
    let to = database_in(directory);
    let (of_base, of_target) =
        (|error| ReplayError::Folder(base.clone(), error), |error| ReplayError::Folder(to.clone(), error));
    let written = fs::read_to_string(&sum).map_err(|error| ReplayError::Folder(sum, error))?;
    let mut from = File::open(&base).map_err(of_base)?;
    let mut target = files::create_new(&to).map_err(of_target)?;
    let (mut digest, mut bytes) = (Context::new(&SHA256), vec![0; 1 << 20]);
    loop {
        let read = from.read(&mut bytes).map_err(of_base)?;
        if read == 0 {
            break;
        }
        digest.update(&bytes[..read]);
        target.write_all(&bytes[..read]).map_err(of_target)?;
    }
    target.sync_all().map_err(of_target)?;
    let digest = names::hexadecimal(digest.finish().as_ref());
    match written.split_whitespace().next() == Some(digest.as_str()) {
        true => Ok(()),
        false => {
            let what = format!("position {position}: its SHA-256 is not the one in {}", names::sum(position));
            Err(ReplayError::Bad(base, what))
        }
    }
}

/// Returns the folder that a directory follows; `None` if it follows none.
fn followed(directory: &Path) -> Option<PathBuf> {
    let folder = fs::read_to_string(following_in(directory)).ok()?;
    Some(PathBuf::from(folder.trim_end_matches('\n')))
}

/// Returns the path of the file that asks a follower to end.
fn request_in(directory: &Path) -> PathBuf {
    directory.join("homing.promote")
}

/// Writes a small file, and forces it to the disk.
fn write(path: &Path, text: &str) -> Result<(), ReplayError> {
    files::write(path, text).map_err(|error| ReplayError::Folder(path.to_owned(), error))
}

#[cfg(test)]
mod tests;
