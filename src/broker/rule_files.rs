//! The ACL files of the broker and of its listeners.

use super::file_news::{FileKind, FileNews, counted};
use super::listener_files::{ListenerFiles, ListenerPaths, OfListener};
use super::listener_places::ListenerPlaces;
use super::start_error::StartError;
use crate::access::acl::Acl;
use crate::auth::acl_file;
use crate::auth::file_digests::FileDigests;
use crate::config::Config;
use crate::shard::access::{AclFiles, ListenerAcl};
use std::path::Path;
use std::sync::Arc;

/// The ACL files in force, with their paths.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleFiles {
    paths: ListenerPaths,
    files: ListenerFiles<Acl>,
}

impl RuleFiles {
    /// Returns true if no file is named.
    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Reads all files again, for these listeners. A file that several listeners or `acl.file` name
    /// is read once. Notes their digests, and changes nothing.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub(super) fn read_again(
        &self,
        config: &Config,
        places: &ListenerPlaces,
        digests: &FileDigests,
    ) -> Result<RuleFiles, StartError> {
        let paths = ListenerPaths::new(places, config.acl.path(), |listener| listener.acl_file.as_ref());
        let read = |path: &Path| acl_file::parse(path, &digests.read(path)?);
        let files = paths.load(read, (StartError::Acl, StartError::ListenerAcl), &self.files)?;
        Ok(RuleFiles { paths, files })
    }

    /// Returns the rules for the shards. A closed listener has its own file: other rules hold for
    /// its clients only if they are its settings ([`ListenerPlaces::plan`]).
    pub(super) fn acls(&self) -> AclFiles {
        let of_listener = |OfListener { name, is_open, file }: &OfListener<Arc<Acl>>| {
            let acl = ListenerAcl { name: name.clone().into(), is_open: *is_open, acl: file.clone() };
            (!name.is_empty()).then_some(acl)
        };
        let listeners = self.files.listeners.iter().map(of_listener).collect();
        AclFiles { broker: self.files.broker.clone(), listeners }
    }

    /// Returns the rules of each file.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Acl>> {
        self.files.all()
    }

    /// Returns each file that was read again after `old` ones.
    pub(super) fn news(&self, old: &RuleFiles, has_changed: &dyn Fn(&Path) -> bool) -> Vec<FileNews> {
        let users = |acl: &Acl| format!("rules for {}", counted(acl.users(), "user"));
        let keys = ("acl.file", "acl_file");
        self.paths.news(FileKind::Acl, keys, (&old.files, &self.files), has_changed, &users)
    }
}
