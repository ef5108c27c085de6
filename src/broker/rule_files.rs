//! The ACL files of the broker and of its listeners.

use super::file_news::{FileKind, FileNews, counted};
use super::listener_files::{ListenerFiles, ListenerPaths};
use super::listener_plan::ListenerPlan;
use super::start_error::StartError;
use crate::access::acl::Acl;
use crate::auth::acl_file;
use crate::auth::file_digests::FileDigests;
use crate::config::Config;
use crate::login::acl_files::AclFiles;
use crate::login::listener_terms::{ListenerRules, LiveRules};
use std::path::{Path, PathBuf};
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
    /// is read once. Notes their digests, and changes nothing. Errors: the first file that cannot
    /// be used.
    pub(super) fn read_again(
        &self,
        config: &Config,
        plan: &ListenerPlan,
        digests: &FileDigests,
    ) -> Result<RuleFiles, StartError> {
        // The file of closed entrances may have changed since, with that of the listener that they
        // followed.
        let closed = plan.with_old_rules().filter_map(|old| old.terms.rules.load().acl_file.clone());
        let paths =
            ListenerPaths::new(plan, config.acl.path(), |one| one.acl_file.as_ref(), closed.collect());
        let read = |path: &Path| acl_file::parse(path, &digests.read(path)?);
        let files = paths.load(read, (StartError::Acl, StartError::ListenerAcl), &self.files)?;
        Ok(RuleFiles { paths, files })
    }

    /// Returns these files with another content of the file at a path, which may be `acl.file`.
    pub(super) fn with(&self, path: &Path, is_of_broker: bool, acl: Acl) -> RuleFiles {
        RuleFiles { paths: self.paths.clone(), files: self.files.with(path, is_of_broker, &Arc::new(acl)) }
    }

    /// Puts the rules of each listener in force, and returns all of them for the shards. A closed
    /// entrance keeps its own file, unless it shares its rules with an open listener.
    pub(super) fn put_in_force(&self, plan: &ListenerPlan) -> AclFiles {
        let put = |live: &LiveRules, rules: ListenerRules| {
            let acl = rules.acl_file.as_deref().and_then(|path| self.files.at(path)).cloned();
            live.store(Arc::new(ListenerRules { acl, ..rules }));
            live.load_full()
        };
        let open = plan.open.iter().map(|open| {
            let (name, acl_file) =
                (Arc::from(&*open.name), open.listener.acl_file.as_ref().map(PathBuf::from));
            put(&open.rules, ListenerRules { name, is_open: true, acl_file, acl: None })
        });
        let closed = plan.with_old_rules().map(|old| {
            let rules = &old.terms.rules;
            put(rules, ListenerRules { is_open: false, ..(**rules.load()).clone() })
        });
        AclFiles { broker: self.files.broker().cloned(), listeners: open.chain(closed).collect() }
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
