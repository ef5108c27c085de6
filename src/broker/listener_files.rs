//! Password files and ACL files: the broker has one of each kind, and a listener may have its own.

use super::handshake::entrance::listener_name;
use crate::auth::file_error::FileError;
use crate::auth::password::file::{Fingerprint, PasswordFile};
use crate::config::{Config, Listener};
use crate::shard::arrival::ListenerNumber;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The paths of all files of one kind.
#[derive(Debug)]
pub(super) struct ListenerPaths {
    broker: Option<PathBuf>,
    /// All listeners by number, or none if no listener has a file of its own.
    listeners: Vec<(Box<str>, Option<PathBuf>)>,
}

/// The files of one kind, as they were read.
#[derive(Debug)]
pub(crate) struct ListenerFiles<T> {
    pub(super) broker: Option<Arc<T>>,
    /// All listeners by number, with their names, or none if no listener has a file of its own.
    pub(super) listeners: Vec<(Box<str>, Option<Arc<T>>)>,
}

/// The errors of a file of the broker, and of a file of a listener.
pub(super) type RefusedFile<E> = (fn(FileError) -> E, fn(FileError) -> E);

impl ListenerPaths {
    /// Returns the path of the broker's file with the paths that `own` finds in the listeners.
    pub(super) fn new(
        config: &Config,
        broker: Option<PathBuf>,
        own: fn(&Listener) -> Option<&String>,
    ) -> ListenerPaths {
        let all = config.all_listeners();
        let path = |listener| own(listener).map(PathBuf::from);
        let listeners = match all.iter().any(|listener| own(listener).is_some()) {
            true => (0..).zip(&all).map(|(number, one)| (listener_name(number, one), path(one))).collect(),
            false => Vec::new(),
        };
        ListenerPaths { broker, listeners }
    }

    /// Returns true if no file is named.
    pub(super) fn is_empty(&self) -> bool {
        self.broker.is_none() && self.listeners.is_empty()
    }

    /// Returns true if this is the path of the broker's file.
    pub(super) fn is_of_broker(&self, path: &Path) -> bool {
        self.broker.as_deref() == Some(path)
    }

    /// Reads all files. A file that is named several times is read once.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub(super) fn load<'a, T, E>(
        &'a self,
        read: impl Fn(&Path) -> Result<T, FileError>,
        (of_broker, of_listener): RefusedFile<E>,
    ) -> Result<ListenerFiles<T>, E> {
        let mut known: HashMap<&'a Path, Arc<T>> = HashMap::new();
        let mut file_of = |path: Option<&'a PathBuf>, refused: fn(FileError) -> E| {
            let Some(path) = path else { return Ok(None) };
            if let Some(file) = known.get(&**path) {
                return Ok(Some(Arc::clone(file)));
            }
            let file = Arc::new(read(path).map_err(refused)?);
            known.insert(path, Arc::clone(&file));
            Ok::<_, E>(Some(file))
        };
        let broker = file_of(self.broker.as_ref(), of_broker)?;
        let mut listeners = Vec::new();
        for (name, path) in &self.listeners {
            listeners.push((name.clone(), file_of(path.as_ref(), of_listener)?));
        }
        Ok(ListenerFiles { broker, listeners })
    }
}

impl<T> ListenerFiles<T> {
    /// Returns the file that holds for a listener: its own, else that of the broker.
    pub(crate) fn of(&self, listener: ListenerNumber) -> Option<&Arc<T>> {
        let own = self.listeners.get(usize::from(listener.0)).and_then(|(_, own)| own.as_ref());
        own.or(self.broker.as_ref())
    }

    /// Returns the listeners that have a file of their own, by name, each with its file.
    pub(super) fn own(&self) -> impl Iterator<Item = (&str, &Arc<T>)> {
        self.listeners.iter().filter_map(|(name, own)| Some((&**name, own.as_ref()?)))
    }

    /// Returns true if there is no file.
    pub(super) fn is_empty(&self) -> bool {
        self.broker.is_none() && self.own().next().is_none()
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
    /// Returns one file for all listeners.
    fn from(file: Arc<T>) -> ListenerFiles<T> {
        ListenerFiles { broker: Some(file), listeners: Vec::new() }
    }
}
