//! What a node has in common with the others, as digests, and where it differs.
//!
//! The thread `homing-drift` looks at the files every two seconds by `stat`, and reads a file again
//! only if it has changed. So a large file costs nothing while it stays as it is, and a disk that
//! hangs holds up nothing but this thread: the row of the node goes on to be written.

use super::view::{ClusterView, SeenRow};
use crate::auth::file_watch::{FileStamp, stamp};
use crate::config::SharedSettings;
use crate::scheduling;
use aws_lc_rs::digest::{Context, Digest, SHA256, digest};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::Builder;
use std::time::Duration;
use tracing::{info, warn};

/// The time between two looks at the files.
const EVERY: Duration = Duration::from_secs(2);
/// Keys and files that are named each for itself. More would not fit a row, whose largest size is
/// 64 KiB: then all listeners stand for one.
const MOST: usize = 200;
/// Bytes of a digest that the row has.
const KEPT: usize = 16;
/// What stands for the digest of a file that cannot be read.
const UNREADABLE: &str = "unreadable";

/// The digests of what has to be the same on all nodes: no value can be read back from them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedDigests {
    /// Each key that is not at its default.
    keys: BTreeMap<String, String>,
    /// Each key that names files, with the digest of their content.
    files: BTreeMap<String, String>,
}

/// Where a node differs from another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// The keys of the configuration.
    pub keys: Vec<String>,
    /// The keys that name files with another content.
    pub files: Vec<String>,
}

impl Drift {
    /// Returns true without a difference.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of differences.
    pub fn len(&self) -> usize {
        self.keys.len() + self.files.len()
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = self.files.iter().map(|key| format!("the content of {key}"));
        let all: Vec<String> = self.keys.iter().cloned().chain(files).collect();
        f.write_str(&all.join(", "))
    }
}

impl SharedDigests {
    fn new(settings: &SharedSettings, files: BTreeMap<String, String>) -> SharedDigests {
        let keys =
            settings.keys.iter().map(|(key, value)| (key.clone(), shown(&digest(&SHA256, value.as_bytes()))));
        let mut digests = SharedDigests { keys: keys.collect(), files };
        if digests.keys.len() + digests.files.len() > MOST {
            (digests.keys, digests.files) = (merged(digests.keys), merged(digests.files));
        }
        digests
    }

    /// Returns where this node differs from another one.
    fn drift_from(&self, other: &SharedDigests) -> Drift {
        Drift { keys: differing(&self.keys, &other.keys), files: differing(&self.files, &other.files) }
    }
}

/// Returns the names that one has and the other has not, or with another digest.
fn differing(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> Vec<String> {
    let differs = |name: &&String| one.get(*name) != other.get(*name);
    let only_other = other.keys().filter(|name| !one.contains_key(*name));
    let mut names: Vec<String> = one.keys().filter(differs).chain(only_other).cloned().collect();
    names.sort();
    names
}

/// Merges the entries of all listeners into one.
fn merged(entries: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let (listeners, mut others): (BTreeMap<_, _>, BTreeMap<_, _>) =
        entries.into_iter().partition(|(name, _)| name.starts_with("listeners."));
    if !listeners.is_empty() {
        let all: String = listeners.iter().map(|(name, digest)| format!("{name} {digest}\n")).collect();
        others.insert("listeners".to_owned(), shown(&digest(&SHA256, all.as_bytes())));
    }
    others
}

/// Returns the digest as the row has it.
fn shown(digest: &Digest) -> String {
    digest.as_ref()[..KEPT].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns where each node differs from the reference. The settings and files of the owner count, so
/// the owner is the reference. Nodes of a program that says nothing about them are left out.
fn compare<'a>(
    nodes: impl Iterator<Item = (&'a str, Option<&'a SharedDigests>)>,
    reference: &SharedDigests,
) -> BTreeMap<String, Drift> {
    let drift_of = |(node, digests): (&str, Option<&SharedDigests>)| {
        let drift = digests?.drift_from(reference);
        (!drift.is_empty()).then(|| (node.to_owned(), drift))
    };
    nodes.filter_map(drift_of).collect()
}

/// Compares the nodes of a cluster with the reference among them, if its row has digests.
pub(super) fn among(rows: &[SeenRow], nodes: &[String], reference: &str) -> BTreeMap<String, Drift> {
    let shared =
        rows.iter().find(|seen| seen.row.node == reference).and_then(|seen| seen.row.shared.as_ref());
    // The row of a node that is none of the cluster any more says nothing.
    let nodes = rows.iter().filter(|seen| nodes.contains(&seen.row.node));
    let of_nodes = nodes.map(|seen| (&*seen.row.node, seen.row.shared.as_ref()));
    shared.map(|shared| compare(of_nodes, shared)).unwrap_or_default()
}

/// Logs the nodes whose differences have changed since the last look.
pub(super) fn log_changes(
    before: &BTreeMap<String, Drift>,
    after: &BTreeMap<String, Drift>,
    reference: &str,
) {
    for (node, drift) in after.iter().filter(|(node, drift)| before.get(*node) != Some(drift)) {
        warn!(
            event = "cluster.drift",
            node,
            reference,
            "the node {node} differs from {reference} in {drift}: make them the same on all nodes, and reload there"
        );
    }
    for node in before.keys().filter(|node| !after.contains_key(*node)) {
        info!(event = "cluster.drift_ended", node, "the node {node} does not differ any more");
    }
}

/// The content of files, as of their last change.
#[derive(Default)]
struct FileCache(BTreeMap<PathBuf, (Option<FileStamp>, String)>);

impl FileCache {
    /// Returns the digests of the files of all keys. Reads those that have changed.
    fn look(&mut self, settings: &SharedSettings) -> BTreeMap<String, String> {
        let all: BTreeSet<&PathBuf> = settings.files.values().flatten().collect();
        self.0.retain(|path, _| all.contains(path));
        settings.files.iter().map(|(key, files)| (key.clone(), self.of_key(files))).collect()
    }

    /// Returns one digest for the files of a key, in their order.
    fn of_key(&mut self, files: &[PathBuf]) -> String {
        let digests: Vec<String> = files.iter().map(|file| self.of_file(file)).collect();
        match &digests[..] {
            [one] => one.clone(),
            many => shown(&digest(&SHA256, many.concat().as_bytes())),
        }
    }

    fn of_file(&mut self, file: &Path) -> String {
        // Before the content, so that a change meanwhile is seen at the next look.
        let now = stamp(file);
        if let Some((seen, digest)) = self.0.get(file)
            && *seen == now
        {
            return digest.clone();
        }
        let digest = hash(file).map_or_else(|_| UNREADABLE.to_owned(), |digest| shown(&digest));
        self.0.insert(file.to_owned(), (now, digest.clone()));
        digest
    }
}

/// Returns the digest of a file. Reads it in pieces, so that a large one takes no memory.
///
/// # Errors
/// The system refuses it, or it is none: a FIFO would wait for its writer for ever.
fn hash(file: &Path) -> io::Result<Digest> {
    if !fs::metadata(file)?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let (mut file, mut context) = (File::open(file)?, Context::new(&SHA256));
    let mut piece = vec![0; 64 << 10];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(context.finish()),
            read => context.update(&piece[..read]),
        }
    }
}

/// Starts the thread `homing-drift`. It waits for the first settings.
///
/// # Errors
/// The system refuses a thread.
pub(super) fn start(view: Arc<ClusterView>, settings: Receiver<SharedSettings>) -> io::Result<()> {
    let run = move || {
        scheduling::yield_to_traffic();
        let Ok(mut present) = settings.recv() else { return };
        let mut cache = FileCache::default();
        loop {
            let files = cache.look(&present);
            view.looked(SharedDigests::new(&present, files));
            match settings.recv_timeout(EVERY) {
                Ok(new) => present = new,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    };
    Builder::new().name("homing-drift".into()).spawn(run).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(keys: &[(&str, &str)], files: &[(&str, &Path)]) -> SharedSettings {
        SharedSettings {
            keys: keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            files: files.iter().map(|(key, path)| ((*key).to_owned(), vec![path.to_path_buf()])).collect(),
        }
    }

    fn digests(settings: &SharedSettings) -> SharedDigests {
        SharedDigests::new(settings, FileCache::default().look(settings))
    }

    #[test]
    fn keys_and_files_that_differ_are_named_without_their_values() {
        let directory = tempfile::tempdir().expect("a directory");
        let (one, other) = (directory.path().join("one"), directory.path().join("other"));
        fs::write(&one, "ann:hash").expect("a file");
        fs::write(&other, "ann:hash").expect("a file");
        let a = digests(&settings(&[("limits.memory", "secret-value"), ("slo", "x")], &[("acl.file", &one)]));
        let b =
            digests(&settings(&[("limits.memory", "secret-value"), ("slo", "x")], &[("acl.file", &other)]));
        assert!(a.drift_from(&b).is_empty());
        fs::write(&other, "ann:other").expect("a file");
        let c = digests(&settings(&[("limits.memory", "8 GiB"), ("bridges", "x")], &[("acl.file", &other)]));
        let drift = c.drift_from(&a);
        assert_eq!(drift.keys, ["bridges", "limits.memory", "slo"]);
        assert_eq!((&drift.files[..], drift.len()), (&["acl.file".to_owned()][..], 4));
        assert_eq!(drift.to_string(), "bridges, limits.memory, slo, the content of acl.file");
        let row = serde_json::to_string(&a).expect("a row");
        assert!(!row.contains("secret-value") && !row.contains("ann"), "{row}");
        // A file that only one names, or that cannot be read, is another one.
        let none = digests(&settings(&[], &[]));
        assert_eq!(none.drift_from(&a).files, ["acl.file"]);
        let gone = digests(&settings(&[], &[("acl.file", Path::new("/nowhere/acl"))]));
        assert_eq!(gone.drift_from(&a).files, ["acl.file"]);
        assert!(gone.drift_from(&gone).is_empty());
    }

    #[test]
    fn a_file_is_read_again_only_after_a_change() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("passwd");
        fs::write(&file, "a").expect("a file");
        let settings = settings(&[], &[("auth.password_file", &file)]);
        let mut cache = FileCache::default();
        let first = cache.look(&settings);
        // What was read is kept: a file that is as before is not read.
        let known = cache.0.get_mut(&file).expect("it was read");
        known.1 = "kept".to_owned();
        assert_eq!(cache.look(&settings)["auth.password_file"], "kept");
        fs::write(&file, "ab").expect("a file");
        let second = cache.look(&settings);
        assert!(second["auth.password_file"] != "kept" && second != first);
        // A file that is not named any more is forgotten.
        cache.look(&SharedSettings::default());
        assert!(cache.0.is_empty());
    }

    #[test]
    fn a_fifo_and_a_directory_hold_up_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let fifo = directory.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).expect("a fifo");
        for path in [&fifo, directory.path()] {
            let path: &Path = path;
            assert!(hash(path).is_err(), "{}", path.display());
        }
    }

    #[test]
    fn the_largest_configuration_fits_a_row() {
        let name = |at: usize| format!("listeners.{}{at:03}", "n".repeat(61));
        let keys: Vec<String> = (0..256).map(name).collect();
        let pairs: Vec<(&str, &str)> = keys.iter().map(|key| (&**key, "x")).collect();
        let large = digests(&settings(&pairs, &[]));
        assert_eq!(large.keys.keys().collect::<Vec<_>>(), ["listeners"]);
        let fitting = digests(&settings(&pairs[..MOST], &[]));
        assert_eq!(fitting.keys.len(), MOST);
        let size = serde_json::to_vec(&fitting).expect("a row").len();
        assert!(size < 32 << 10, "{size}");
    }
}
