//! Password files and ACL files: the broker has one of each kind, and a listener may have its own.

use super::file_news::{FileKind, FileNews, with_before};
use super::listener_places::{ListenerPlace, ListenerPlaces};
use crate::auth::file_error::FileError;
use crate::auth::password::file::{Fingerprint, PasswordFile};
use crate::config::Listener;
use crate::shard::arrival::ListenerNumber;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The paths of all files of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct ListenerPaths {
    broker: Option<PathBuf>,
    /// All listeners by number.
    listeners: Vec<OfListener<PathBuf>>,
}

/// The files of one kind, as they were read.
#[derive(Clone, Debug)]
pub(crate) struct ListenerFiles<T> {
    pub(super) broker: Option<Arc<T>>,
    /// All listeners by number.
    pub(super) listeners: Vec<OfListener<Arc<T>>>,
}

/// The file of one listener, if the listener has one of its own.
#[derive(Clone, Debug)]
pub(super) struct OfListener<F> {
    /// The name of the listener; empty for a number that nobody needs any more.
    pub(super) name: Box<str>,
    /// True if the listener accepts connections.
    pub(super) is_open: bool,
    /// `None` if the file of the broker counts.
    pub(super) file: Option<F>,
}

/// The errors of a file of the broker, and of a file of a listener.
pub(super) type RefusedFile<E> = (fn(FileError) -> E, fn(FileError) -> E);

impl ListenerPaths {
    /// Returns the path of the broker's file with the paths that `own` finds in the listeners.
    pub(super) fn new(
        places: &ListenerPlaces,
        broker: Option<PathBuf>,
        own: fn(&Listener) -> Option<&String>,
    ) -> ListenerPaths {
        let of_number = |place: Option<&ListenerPlace>| OfListener {
            name: place.map(|place| place.name.clone()).unwrap_or_default(),
            is_open: place.is_some_and(ListenerPlace::is_open),
            file: place.and_then(|place| own(&place.listener)).map(PathBuf::from),
        };
        ListenerPaths { broker, listeners: places.by_number().map(of_number).collect() }
    }

    /// Returns true if no file is named.
    pub(super) fn is_empty(&self) -> bool {
        self.broker.is_none() && self.listeners.iter().all(|listener| listener.file.is_none())
    }

    /// Returns true if this is the path of the broker's file.
    pub(super) fn is_of_broker(&self, path: &Path) -> bool {
        self.broker.as_deref() == Some(path)
    }

    /// Returns the file of the broker and those of open listeners, as they were `old` and as they
    /// are now. `keys` name the file of the broker and that of a listener. `numbers` describes a
    /// content.
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
        let open = self.listeners.iter().filter(|listener| listener.is_open);
        let own = open.filter_map(|of| one(keys.1, of.file.as_ref()?, Some(&of.name)));
        of_broker.chain(own).collect()
    }

    /// Reads all files. A file that is named several times is read once. A file of a listener that
    /// is closed may be gone: then what was read `before` counts, for the clients that are left.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub(super) fn load<'a, T, E>(
        &'a self,
        read: impl Fn(&Path) -> Result<T, FileError>,
        (of_broker, of_listener): RefusedFile<E>,
        before: &ListenerFiles<T>,
    ) -> Result<ListenerFiles<T>, E> {
        let mut known: HashMap<&'a Path, Arc<T>> = HashMap::new();
        let mut file_of = |path: &'a Path| {
            if let Some(file) = known.get(path) {
                return Ok(Arc::clone(file));
            }
            let file = Arc::new(read(path)?);
            known.insert(path, Arc::clone(&file));
            Ok(file)
        };
        let broker = self.broker.as_deref().map(&mut file_of).transpose().map_err(of_broker)?;
        let mut listeners = Vec::new();
        for (number, listener) in self.listeners.iter().enumerate() {
            let OfListener { name, is_open, file: path } = listener;
            let old = || before.listeners.get(number)?.file.clone();
            let file = match path.as_deref().map(&mut file_of).transpose() {
                Err(error) if *is_open => return Err(of_listener(error)),
                Err(error) => Some(old().ok_or_else(|| of_listener(error))?),
                Ok(file) => file,
            };
            listeners.push(OfListener { name: name.clone(), is_open: *is_open, file });
        }
        Ok(ListenerFiles { broker, listeners })
    }
}

impl<T> ListenerFiles<T> {
    /// Returns the file that holds for a listener: its own, else that of the broker.
    pub(crate) fn of(&self, listener: ListenerNumber) -> Option<&Arc<T>> {
        let own = self.listeners.get(usize::from(listener.0)).and_then(|of| of.file.as_ref());
        own.or(self.broker.as_ref())
    }

    /// Returns the file of an open listener with this name, or that of the broker for `None`.
    fn named(&self, listener: Option<&str>) -> Option<&Arc<T>> {
        let Some(name) = listener else { return self.broker.as_ref() };
        self.own().find(|(own, _)| *own == name).map(|(_, file)| file)
    }

    /// Returns the open listeners that have a file of their own, by name, each with its file.
    pub(super) fn own(&self) -> impl Iterator<Item = (&str, &Arc<T>)> {
        let open = self.listeners.iter().filter(|listener| listener.is_open);
        open.filter_map(|listener| Some((&*listener.name, listener.file.as_ref()?)))
    }

    /// Returns true if this listener was there when the files were read.
    pub(super) fn know(&self, listener: ListenerNumber) -> bool {
        usize::from(listener.0) < self.listeners.len()
    }

    /// Returns each file, those of closed listeners included.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<T>> {
        self.broker.iter().chain(self.listeners.iter().filter_map(|listener| listener.file.as_ref()))
    }

    /// Returns true if there is no file.
    pub(super) fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }
}

impl ListenerFiles<PasswordFile> {
    /// Returns the fingerprint of a user's line in the password file that holds for a listener;
    /// `None` without a line or a file.
    pub(super) fn fingerprint(&self, listener: ListenerNumber, user: &str) -> Option<Fingerprint> {
        self.of(listener)?.fingerprint(user)
    }
}

impl<T> Default for ListenerFiles<T> {
    /// Returns no file.
    fn default() -> ListenerFiles<T> {
        ListenerFiles { broker: None, listeners: Vec::new() }
    }
}

impl<T> From<Arc<T>> for ListenerFiles<T> {
    /// Returns one file for one listener.
    fn from(file: Arc<T>) -> ListenerFiles<T> {
        let listener = OfListener { name: "".into(), is_open: true, file: None };
        ListenerFiles { broker: Some(file), listeners: vec![listener] }
    }
}
