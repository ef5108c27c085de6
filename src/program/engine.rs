//! The engine of the cluster, by the settings and the files of this node.

#[cfg(feature = "cluster")]
use homing::auth::file_error::{FileError, LARGEST_SECRET};
use homing::cluster::engine::Engine;
#[cfg(feature = "cluster")]
use homing::cluster::nats::{Nats, NatsSettings};
use homing::config::Cluster;
use std::sync::Arc;
#[cfg(feature = "cluster")]
use zeroize::Zeroizing;

/// Opens the engine that the settings name.
///
/// # Errors
/// Says which key is wrong.
pub(super) fn open_engine(settings: &Cluster) -> Result<Arc<dyn Engine>, String> {
    #[cfg(feature = "cluster")]
    {
        let engine = Nats::open(nats_settings(settings)?).map_err(|error| error.to_string())?;
        Ok(Arc::new(engine))
    }
    #[cfg(not(feature = "cluster"))]
    Err(without_feature(settings))
}

#[cfg(not(feature = "cluster"))]
fn without_feature(settings: &Cluster) -> String {
    let name = &settings.name;
    format!("cluster.name = {name:?}: this program was built without the cargo feature \"cluster\"")
}

/// Returns the settings of the engine, with the password of this node.
///
/// # Errors
/// The file of the password cannot be read.
#[cfg(feature = "cluster")]
fn nats_settings(settings: &Cluster) -> Result<NatsSettings, String> {
    let user = password(settings)?.map(|password| (settings.nats_user.clone(), password));
    Ok(NatsSettings {
        cluster: settings.name.clone(),
        cell: 0,
        node: settings.node.clone(),
        servers: settings.nats.clone(),
        user,
        ca: settings.ca_path(),
        certificate: settings.certificate_paths(),
        monitor: Some(settings.monitor.clone()).filter(|monitor| !monitor.is_empty()),
    })
}

/// Reads the password of this node at NATS, if it has one.
///
/// # Errors
/// The file cannot be read.
#[cfg(feature = "cluster")]
fn password(settings: &Cluster) -> Result<Option<Zeroizing<String>>, String> {
    let Some(path) = settings.password_path() else { return Ok(None) };
    let content = FileError::read_within(&path, LARGEST_SECRET).map(Zeroizing::new);
    let content = content.map_err(|error| format!("cluster.nats_password_file {error}"))?;
    let line = content.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(Some(Zeroizing::new(String::from_utf8_lossy(line).trim_end_matches('\r').to_owned())))
}

/// Reads the files of a node, and keeps nothing. May hang as long as a file does.
///
/// # Errors
/// What is wrong with a file, and its key.
pub(super) fn check_files(settings: &Cluster) -> Result<(), String> {
    if !settings.is_on() {
        return Ok(());
    }
    #[cfg(feature = "cluster")]
    {
        nats_settings(settings)?.check_files().map_err(|error| error.to_string())
    }
    #[cfg(not(feature = "cluster"))]
    Err(without_feature(settings))
}
