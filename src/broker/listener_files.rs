//! Password files and ACL files: the broker has one of each kind, and a listener may have its own.

use super::file_news::{FileKind, FileNews, with_before};
use super::listener_plan::{ListenerPlan, PlannedListener};
use crate::auth::file_error::FileError;
use crate::auth::password::file::{Fingerprint, PasswordFile};
use crate::config::Listener;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The paths of all files of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct ListenerPaths {
    /// The file of the broker.
    broker: Option<PathBuf>,
    /// The files of open listeners, each with the name of its listener.
    open: Vec<(Box<str>, PathBuf)>,
    /// The files of listeners that accept no connections any more.
    closed: Vec<PathBuf>,
}

/// The contents of all files of one kind.
#[derive(Clone, Debug)]
pub(crate) struct ListenerFiles<T> {
    broker: Option<Arc<T>>,
    /// The files of open listeners, each with the name of its listener.
    open: Vec<(Box<str>, PathBuf, Arc<T>)>,
    /// The files of listeners that accept no connections any more.
    closed: Vec<(PathBuf, Arc<T>)>,
}

/// The errors of a file of the broker, and of a file of a listener.
pub(super) type RefusedFile<E> = (fn(FileError) -> E, fn(FileError) -> E);

impl ListenerPaths {
    /// Returns the path of the broker's file with those that `own` finds in the open listeners of a
    /// plan, and those of its `closed` entrances.
    pub(super) fn new(
        plan: &ListenerPlan,
        broker: Option<PathBuf>,
        own: fn(&Listener) -> Option<&String>,
        closed: Vec<PathBuf>,
    ) -> ListenerPaths {
        let named = |open: &PlannedListener| Some((open.name.clone(), PathBuf::from(own(&open.listener)?)));
        ListenerPaths { broker, open: plan.open.iter().filter_map(named).collect(), closed }
    }

    /// Returns true if no file is named.
    pub(super) fn is_empty(&self) -> bool {
        self.broker.is_none() && self.open.is_empty() && self.closed.is_empty()
    }

    /// Returns true if this is the path of the broker's file.
    pub(super) fn is_of_broker(&self, path: &Path) -> bool {
        self.broker.as_deref() == Some(path)
    }

    /// Returns the file of the broker and those of open listeners, before (`old`) and now. `keys`
    /// name the file of the broker and that of a listener. `numbers` describes a content.
    pub(super) fn news<T>(
        &self,
        kind: FileKind,
        keys: (&'static str, &'static str),
        (old, new): (&ListenerFiles<T>, &ListenerFiles<T>),
        has_changed: &dyn Fn(&Path) -> bool,
        numbers: &dyn Fn(&T) -> String,
    ) -> Vec<FileNews> {
        let one = |key, path: &PathBuf, listener: Option<&str>| {
            let numbers_of = |files: &ListenerFiles<T>| files.named(listener).map(|file| numbers(file));
            Some(FileNews {
                kind,
                key,
                listener: listener.map(str::to_owned),
                path: Some(path.clone()),
                is_changed: has_changed(path),
                detail: with_before(numbers_of(new)?, numbers_of(old)),
            })
        };
        let of_broker = self.broker.iter().filter_map(|path| one(keys.0, path, None));
        let own = self.open.iter().filter_map(|(name, path)| one(keys.1, path, Some(name)));
        of_broker.chain(own).collect()
    }

    /// Reads all files. A file that is named several times is read once. A file of a closed
    /// listener may be gone: then its content from `before` counts, for the remaining clients.
    /// Errors: the first file that cannot be used.
    pub(super) fn load<T, E>(
        &self,
        read: impl Fn(&Path) -> Result<T, FileError>,
        (of_broker, of_listener): RefusedFile<E>,
        before: &ListenerFiles<T>,
    ) -> Result<ListenerFiles<T>, E> {
        let mut known: HashMap<PathBuf, Arc<T>> = HashMap::new();
        let mut file_of = |path: &PathBuf| {
            if let Some(file) = known.get(path) {
                return Ok(Arc::clone(file));
            }
            let file = Arc::new(read(path)?);
            known.insert(path.clone(), Arc::clone(&file));
            Ok(file)
        };
        let broker = self.broker.as_ref().map(&mut file_of).transpose().map_err(of_broker)?;
        let (mut open, mut closed) = (Vec::new(), Vec::new());
        for (name, path) in &self.open {
            open.push((name.clone(), path.clone(), file_of(path).map_err(of_listener)?));
        }
        for path in &self.closed {
            let old = |error| before.at(path).cloned().ok_or_else(|| of_listener(error));
            closed.push((path.clone(), file_of(path).or_else(old)?));
        }
        Ok(ListenerFiles { broker, open, closed })
    }
}

impl<T> ListenerFiles<T> {
    /// Returns these files with another content of the file at a path, which may be that of the
    /// broker.
    pub(super) fn with(&self, path: &Path, is_of_broker: bool, file: &Arc<T>) -> ListenerFiles<T> {
        let of = |other: &PathBuf, old: &Arc<T>| Arc::clone(if *other == path { file } else { old });
        let open = self.open.iter().map(|(name, other, old)| (name.clone(), other.clone(), of(other, old)));
        let closed = self.closed.iter().map(|(other, old)| (other.clone(), of(other, old)));
        let broker = if is_of_broker { Some(Arc::clone(file)) } else { self.broker.clone() };
        ListenerFiles { broker, open: open.collect(), closed: closed.collect() }
    }

    pub(super) fn broker(&self) -> Option<&Arc<T>> {
        self.broker.as_ref()
    }

    /// Returns the file at a path that a listener names.
    pub(super) fn at(&self, path: &Path) -> Option<&Arc<T>> {
        let open = self.open.iter().map(|(_, path, file)| (path, file));
        let closed = self.closed.iter().map(|(path, file)| (path, file));
        open.chain(closed).find(|(other, _)| *other == path).map(|(_, file)| file)
    }

    /// Returns the file in force for a listener: its own, else that of the broker.
    pub(crate) fn of(&self, own: Option<&Path>) -> Option<&Arc<T>> {
        own.map_or(self.broker.as_ref(), |path| self.at(path))
    }

    /// Returns the file of an open listener with this name, or that of the broker for `None`.
    fn named(&self, listener: Option<&str>) -> Option<&Arc<T>> {
        let Some(name) = listener else { return self.broker.as_ref() };
        self.open.iter().find(|(own, ..)| **own == *name).map(|(.., file)| file)
    }

    /// Returns each file, those of closed listeners included.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<T>> {
        let open = self.open.iter().map(|(.., file)| file);
        self.broker.iter().chain(open).chain(self.closed.iter().map(|(_, file)| file))
    }

    /// Returns true if there is no file.
    pub(super) fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }
}

impl ListenerFiles<PasswordFile> {
    /// Returns the fingerprint of a user's line in the password file that holds for a listener;
    /// `None` without a line or a file.
    pub(super) fn fingerprint(&self, own: Option<&Path>, user: &str) -> Option<Fingerprint> {
        self.of(own)?.fingerprint(user)
    }
}

impl<T> Default for ListenerFiles<T> {
    /// Returns no file.
    fn default() -> ListenerFiles<T> {
        ListenerFiles { broker: None, open: Vec::new(), closed: Vec::new() }
    }
}

impl<T> From<Arc<T>> for ListenerFiles<T> {
    fn from(file: Arc<T>) -> ListenerFiles<T> {
        ListenerFiles { broker: Some(file), ..ListenerFiles::default() }
    }
}
