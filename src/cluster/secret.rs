//! The secret behind the SCRAM salts of names that no password file has: one for the cluster.
//!
//! With one for each node, the salts of unknown names would change at a fail-over while those of
//! users stay, and would tell which names exist. `init` makes the secret. Nodes of a cluster that
//! was made before make it by compare-and-set, so that all have the same.

use super::engine::{Engine, EngineError};
use crate::auth::password::decoy_secret::DecoySecret;
use crate::auth::random::random;
use bytes::Bytes;
use std::path::Path;
use std::time::Duration;
use tracing::warn;
use zeroize::Zeroizing;

/// The key of the row.
const SECRET: &str = "scram.secret";
/// The time between two questions of a start.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// Returns the secret of the cluster, and makes a missing one.
///
/// # Errors
/// The engine does not answer, or the row is none of this program.
pub(super) fn of_cluster(engine: &dyn Engine) -> Result<Zeroizing<Vec<u8>>, EngineError> {
    loop {
        if let Some(row) = engine.row(SECRET)? {
            return Ok(Zeroizing::new(row.value.to_vec()));
        }
        let new = random::<32>().map_err(|error| EngineError::Refused(error.to_string()))?;
        // Another node may have been first: then its row is read.
        engine.swap_row(SECRET, 0, Bytes::copy_from_slice(new.as_slice()))?;
    }
}

/// Puts the secret of the cluster into the data directory, where the broker reads it. Waits as long
/// as the engine is away.
pub(super) fn share(engine: &dyn Engine, data: &Path) {
    let secret = loop {
        match of_cluster(engine) {
            Err(EngineError::TimedOut(_) | EngineError::Unavailable(_)) => std::thread::sleep(ASK_AGAIN),
            other => break other,
        }
    };
    let kept = secret.map_err(|error| error.to_string());
    let kept = kept.and_then(|secret| DecoySecret::keep(data, &secret).map_err(|error| error.to_string()));
    if let Err(reason) = kept {
        warn!(event = "auth.decoy_secret", directory = %data.display(), reason, "the scram.secret of the cluster cannot be used: the SCRAM salts of unknown names change at a fail-over");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::memory_engine::MemoryCluster;
    use std::fs;

    #[test]
    fn all_nodes_of_a_cluster_have_one_secret_whoever_makes_it() {
        let cluster = MemoryCluster::initialized();
        let directories = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let read = |at: usize| fs::read(directories[at].path().join("scram.secret")).expect("the secret");
        // One has a secret of its own, from a time before the cluster.
        let own = DecoySecret::of_directory(directories[0].path());
        assert!(own.is_ok());
        let before = read(0);
        for directory in &directories {
            share(&cluster.node(0), directory.path());
        }
        assert!(read(0) == read(1) && read(0) != before && read(0).len() == 32);
        share(&cluster.node(0), directories[1].path());
        assert_eq!(read(0), read(1), "a restart changes nothing");
    }

    #[test]
    fn a_row_of_something_else_leaves_the_secret_of_the_directory() {
        let (cluster, directory) = (MemoryCluster::initialized(), tempfile::tempdir().expect("a directory"));
        let engine = cluster.node(0);
        engine.put_row(SECRET, Bytes::from_static(b"short")).expect("written");
        share(&engine, directory.path());
        assert!(!directory.path().join("scram.secret").exists());
    }
}
