//! The ACL files of the broker and of its listeners.

use super::listener_files::{ListenerFiles, ListenerPaths, OfListener};
use super::listener_places::ListenerPlaces;
use super::start_error::StartError;
use crate::access::acl::Acl;
use crate::auth::acl_file;
use crate::config::Config;
use crate::shard::access::{AclFiles, ListenerAcl};
use std::sync::Arc;

/// The ACL files in force, with their paths.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleFiles {
    paths: ListenerPaths,
    files: ListenerFiles<Acl>,
}

impl RuleFiles {
    /// Reads the files of a broker that starts.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub(super) fn load(config: &Config, places: &ListenerPlaces) -> Result<RuleFiles, StartError> {
        RuleFiles::default().read_again(config, places)
    }

    /// Returns true if no file is named.
    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Reads all files again, for these listeners. A file that several listeners or `acl.file` name
    /// is read once. Changes nothing.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub(super) fn read_again(
        &self,
        config: &Config,
        places: &ListenerPlaces,
    ) -> Result<RuleFiles, StartError> {
        let paths = ListenerPaths::new(places, config.acl.path(), |listener| listener.acl_file.as_ref());
        let files = paths.load(acl_file::load, (StartError::Acl, StartError::ListenerAcl), &self.files)?;
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

    /// Returns what the log says of files that were read again.
    pub(super) fn changes(&self) -> Vec<String> {
        let broker =
            self.files.broker.iter().map(|acl| format!("the ACL file has rules for {} users", acl.users()));
        let own = self.files.own().map(|(name, acl)| {
            format!("the ACL file of listener {name} has rules for {} users", acl.users())
        });
        broker.chain(own).collect()
    }
}
