//! The ACL files of the broker and of its listeners.

use super::handshake::entrance::listener_name;
use super::start_error::StartError;
use crate::access::acl::Acl;
use crate::auth::acl_file;
use crate::auth::file_error::FileError;
use crate::config::{Config, Listener};
use crate::shard::access::{AclFiles, ListenerAcl};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The paths of all ACL files.
#[derive(Debug)]
pub(super) struct RuleFiles {
    broker: Option<PathBuf>,
    /// All listeners by number, or none if no listener has a file of its own.
    listeners: Vec<(Box<str>, Option<PathBuf>)>,
}

impl RuleFiles {
    /// Returns the paths that the configuration names.
    pub(super) fn new(config: &Config) -> RuleFiles {
        let path = |listener: &Listener| listener.acl_file.as_ref().map(PathBuf::from);
        let all = config.all_listeners();
        let listeners = match all.iter().any(|listener| listener.acl_file.is_some()) {
            true => (0..).zip(&all).map(|(number, one)| (listener_name(number, one), path(one))).collect(),
            false => Vec::new(),
        };
        RuleFiles { broker: config.acl.path(), listeners }
    }

    /// Returns true if no file is named.
    pub(super) fn is_empty(&self) -> bool {
        self.broker.is_none() && self.listeners.is_empty()
    }

    /// Reads all files. A file that is named several times, by listeners or `acl.file`, is read once.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub(super) fn load<'a>(&'a self) -> Result<AclFiles, StartError> {
        let mut known: HashMap<&Path, Arc<Acl>> = HashMap::new();
        let mut acl_of = |path: Option<&'a Path>, refused: fn(FileError) -> StartError| {
            let Some(path) = path else { return Ok(None) };
            if let Some(acl) = known.get(path) {
                return Ok(Some(Arc::clone(acl)));
            }
            let acl = Arc::new(acl_file::load(path).map_err(refused)?);
            known.insert(path, Arc::clone(&acl));
            Ok::<_, StartError>(Some(acl))
        };
        let broker = acl_of(self.broker.as_deref(), StartError::Acl)?;
        let mut listeners = Vec::new();
        for (name, path) in &self.listeners {
            let acl = acl_of(path.as_deref(), StartError::ListenerAcl)?;
            listeners.push(ListenerAcl { name: Arc::from(&**name), acl });
        }
        Ok(AclFiles { broker, listeners })
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
