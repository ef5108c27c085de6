//! The ACL files of the broker and of its listeners.

use super::listener_files::{ListenerFiles, ListenerPaths};
use super::start_error::StartError;
use crate::access::acl::Acl;
use crate::auth::acl_file;
use crate::config::Config;
use crate::shard::access::{AclFiles, ListenerAcl};
use std::sync::Arc;

/// The paths of all ACL files.
#[derive(Debug)]
pub(super) struct RuleFiles(ListenerPaths);

impl RuleFiles {
    /// Returns the paths that the configuration names.
    pub(super) fn new(config: &Config) -> RuleFiles {
        RuleFiles(ListenerPaths::new(config, config.acl.path(), |listener| listener.acl_file.as_ref()))
    }

    /// Returns true if no file is named.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads all files. A file that several listeners or `acl.file` name is read once.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub(super) fn load(&self) -> Result<AclFiles, StartError> {
        let ListenerFiles { broker, listeners } =
            self.0.load(acl_file::load, (StartError::Acl, StartError::ListenerAcl))?;
        let of_listener = |(name, acl): (Box<str>, Option<Arc<Acl>>)| ListenerAcl { name: name.into(), acl };
        Ok(AclFiles { broker, listeners: listeners.into_iter().map(of_listener).collect() })
    }
}

/// Returns what the log says of files that were read again.
pub(super) fn changes(files: &AclFiles) -> Vec<String> {
    let users = |acl: &Arc<Acl>| acl.users();
    let own = files.listeners.iter().filter_map(|listener| Some((&listener.name, listener.acl.as_ref()?)));
    let broker = files.broker.as_ref().map(|acl| format!("the ACL file has rules for {} users", users(acl)));
    let own =
        own.map(|(name, acl)| format!("the ACL file of listener {name} has rules for {} users", users(acl)));
    broker.into_iter().chain(own).collect()
}
