//! Makes the streams of a cluster, and compares the engine's settings with what a cluster needs.
//!
//! Only `init` makes streams, and nothing here changes one: the settings of an engine are its
//! operator's.

use super::client::Nats;
use super::failure::Failure;
use super::link::{LONG_REQUEST, REQUEST};
use super::monitor;
use super::wire::{self, Done, StreamConfig, StreamInfo};
use crate::cluster::engine::{Check, EngineError, MAX_FRAME};
use serde_json::{Value, json};

/// The first version of nats-server that ties a proposal to the term of its leader.
const LEAST_VERSION: [u64; 3] = [2, 14, 4];
/// Copies of each stream.
const REPLICAS: u64 = 3;
/// Bytes that headers and subject add to a frame.
const ENVELOPE: usize = 1024;

/// A setting of a stream: its name, its value, and what it should be.
type Setting = (&'static str, String, String);

pub(super) fn check(nats: &Nats) -> Result<Check, EngineError> {
    let names = &nats.names;
    let log = describe(nats, &names.log)?;
    let mut check = Check::default();
    check.problems.extend(server(nats));
    let max_bytes = log.config.max_bytes;
    if max_bytes <= 0 {
        check.problems.push(format!(
            "the stream {} has no limit, so a full disk would stop the engine: set --max-bytes to cluster.log_size",
            names.log
        ));
    }
    compare(&names.log, log_settings(&names.frames, &log.config), &mut check.problems);
    for stream in [&names.rows, &names.snapshots] {
        compare(stream, common_settings(&describe(nats, stream)?.config), &mut check.problems);
    }
    match &nats.monitor {
        None => check.warnings.push(
            "nobody has checked that nats-server syncs each write: set cluster.monitor to the monitor of this \
             machine's server, and jetstream.sync_interval: always in its configuration"
                .to_owned(),
        ),
        Some(address) => match nats.link.block_on(2 * REQUEST, monitor::syncs_always(address)) {
            Some(Ok(true)) => {}
            Some(Ok(false)) => check.problems.push(format!(
                "the server at cluster.monitor {address} does not sync each write: set jetstream.sync_interval: \
                 always in its configuration, and restart it"
            )),
            Some(Err(why)) => check.warnings.push(format!("cluster.monitor {address}: {why}")),
            None => check.warnings.push(format!("cluster.monitor {address} does not answer")),
        },
    }
    Ok(check)
}

fn describe(nats: &Nats, stream: &str) -> Result<StreamInfo, EngineError> {
    wire::info(nats, stream, "").map_err(|failure| nats.explain(failure, &format!("the stream {stream}")))
}

/// Looks at the server that this node is connected to.
fn server(nats: &Nats) -> Vec<String> {
    let Some(server) = nats.link.server() else { return Vec::new() };
    let mut problems = Vec::new();
    if version(&server.version).is_none_or(|version| version < LEAST_VERSION) {
        let [major, minor, patch] = LEAST_VERSION;
        problems.push(format!(
            "nats-server {} is of version {}, which may lose frames: {major}.{minor}.{patch} or later is needed",
            server.server_name, server.version
        ));
    }
    let needed = MAX_FRAME + ENVELOPE;
    if server.max_payload < needed {
        problems.push(format!(
            "nats-server {} refuses frames: max_payload is {}, and {needed} or more is needed",
            server.server_name, server.max_payload
        ));
    }
    problems
}

/// Reads `2.14.4` or `2.15.0-RC.1`. `None` if it is no version.
fn version(text: &str) -> Option<[u64; 3]> {
    let mut numbers = text.split(['.', '-', '+']).map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some([next()?, next()?, next()?])
}

/// The settings of all three streams.
fn common_settings(config: &StreamConfig) -> Vec<Setting> {
    let none = |setting: &Option<Value>| if setting.is_some() { "set" } else { "none" }.to_owned();
    let replicas = REPLICAS.max(config.num_replicas);
    vec![
        ("num_replicas", config.num_replicas.to_string(), replicas.to_string()),
        ("storage", config.storage.clone(), "file".to_owned()),
        ("retention", config.retention.clone(), "limits".to_owned()),
        ("discard", config.discard.clone(), "new".to_owned()),
        ("max_age", config.max_age.to_string(), "0".to_owned()),
        ("max_msgs", config.max_msgs.max(-1).to_string(), "-1".to_owned()),
        ("sealed", config.sealed.to_string(), "false".to_owned()),
        ("deny_purge", config.deny_purge.to_string(), "false".to_owned()),
        ("no_ack", config.no_ack.to_string(), "false".to_owned()),
        ("mirror", none(&config.mirror), "none".to_owned()),
        ("sources", none(&config.sources), "none".to_owned()),
    ]
}

/// The settings of a log.
fn log_settings(frames: &str, config: &StreamConfig) -> Vec<Setting> {
    let mut settings = common_settings(config);
    let room = i64::try_from(MAX_FRAME + ENVELOPE).unwrap_or(i64::MAX);
    let is_large_enough = config.max_msg_size <= 0 || config.max_msg_size >= room;
    let size = if is_large_enough { config.max_msg_size } else { room };
    settings.extend([
        ("subjects", config.subjects.join(" "), frames.to_owned()),
        ("allow_direct", config.allow_direct.to_string(), "true".to_owned()),
        ("deny_delete", config.deny_delete.to_string(), "true".to_owned()),
        // A message with the header Nats-Rollup would remove all frames before it.
        ("allow_rollup_hdrs", config.allow_rollup_hdrs.to_string(), "false".to_owned()),
        ("max_msgs_per_subject", config.max_msgs_per_subject.to_string(), "-1".to_owned()),
        ("max_msg_size", config.max_msg_size.to_string(), size.to_string()),
    ]);
    settings
}

fn compare(stream: &str, settings: Vec<Setting>, problems: &mut Vec<String>) {
    let differing = settings.into_iter().filter(|(_, value, right)| value != right);
    problems
        .extend(differing.map(|(name, value, right)| {
            format!("the stream {stream} has {name} {value}, and needs {right}")
        }));
}

pub(super) fn init(nats: &Nats, log_bytes: u64) -> Result<(), EngineError> {
    let names = &nats.names;
    for stream in [&names.log, &names.rows, &names.snapshots] {
        refuse_used(nats, stream, log_bytes)?;
    }
    let kept = |stream: &str, subjects: &[&str]| {
        json!({
            "name": stream, "subjects": subjects, "retention": "limits", "storage": "file", "discard": "new",
            "num_replicas": REPLICAS, "max_msgs": -1, "max_bytes": -1, "max_msgs_per_subject": -1,
        })
    };
    let mut rows = kept(&names.rows, &[&format!("{}>", names.row)]);
    rows["max_msgs_per_subject"] = 1.into();
    rows["deny_delete"] = true.into();
    rows["allow_rollup_hdrs"] = true.into();
    create(nats, &names.rows, &rows)?;
    let mut snapshots = kept(&names.snapshots, &[&names.chunks(">"), &names.description(">")]);
    snapshots["allow_direct"] = true.into();
    snapshots["allow_rollup_hdrs"] = true.into();
    create(nats, &names.snapshots, &snapshots)?;
    // Last, because a cluster is there if its log is.
    let mut log = kept(&names.log, &[&names.frames]);
    log["max_bytes"] = log_bytes.into();
    log["allow_direct"] = true.into();
    log["deny_delete"] = true.into();
    create(nats, &names.log, &log)
}

/// Refuses what is not empty. Empty streams remain of an attempt that was broken off, and are as good
/// as new ones. The streams of rows and snapshots are those of all cells.
fn refuse_used(nats: &Nats, stream: &str, log_bytes: u64) -> Result<(), EngineError> {
    let info = match wire::info(nats, stream, "") {
        Err(failure) if failure.is_missing_stream() => return Ok(()),
        Err(failure) => return Err(nats.explain(failure, &format!("the stream {stream}"))),
        Ok(info) => info,
    };
    let is_log = stream == nats.names.log;
    if info.state.last_seq > 0 && (is_log || nats.names.is_first) {
        return Err(EngineError::Refused(format!(
            "the stream {stream} is there already, so this cluster was made before: choose another cluster.name, \
             or remove the old one with `nats stream rm {stream}`"
        )));
    }
    match u64::try_from(info.config.max_bytes) {
        Ok(bytes) if is_log && bytes != log_bytes => Err(EngineError::Refused(format!(
            "the stream {stream} is there, empty and with max_bytes {bytes}: set cluster.log_size to it, or \
             remove it with `nats stream rm {stream}`"
        ))),
        _ => Ok(()),
    }
}

fn create(nats: &Nats, stream: &str, config: &Value) -> Result<(), EngineError> {
    let created: Result<Done, Failure> = wire::ask(nats, LONG_REQUEST, "STREAM.CREATE", stream, config);
    match created {
        Ok(_) => Ok(()),
        // "Stream name already in use with a different configuration": what an attempt has left
        // is as good. Of two at once, the row of the cluster lets one win.
        Err(Failure::Refused(10058, _)) => Ok(()),
        Err(failure) => Err(nats.explain(failure, &format!("the creation of the stream {stream}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert_eq!(version("2.14.4"), Some([2, 14, 4]));
        assert_eq!(version("2.15.0-RC.1"), Some([2, 15, 0]));
        assert_eq!(version("3"), None);
        assert_eq!(version("v2.9"), None);
        assert!(version("2.9.20") < Some(LEAST_VERSION));
        assert!(version("2.14.10") > Some(LEAST_VERSION));
    }

    #[test]
    fn each_setting_that_is_wrong_is_named_with_what_would_be_right() {
        let right = StreamConfig {
            subjects: vec!["homing.plant.c0.log".to_owned()],
            retention: "limits".to_owned(),
            storage: "file".to_owned(),
            discard: "new".to_owned(),
            num_replicas: 5,
            max_msgs: -1,
            max_msgs_per_subject: -1,
            max_msg_size: -1,
            allow_direct: true,
            deny_delete: true,
            ..StreamConfig::default()
        };
        let problems = |config: &StreamConfig| {
            let mut problems = Vec::new();
            compare("L", log_settings("homing.plant.c0.log", config), &mut problems);
            problems
        };
        assert_eq!(problems(&right), Vec::<String>::new());
        let wrong = StreamConfig {
            num_replicas: 1,
            max_age: 5,
            discard: "old".to_owned(),
            allow_direct: false,
            max_msg_size: 1000,
            ..right
        };
        assert_eq!(
            problems(&wrong),
            [
                "the stream L has num_replicas 1, and needs 3",
                "the stream L has discard old, and needs new",
                "the stream L has max_age 5, and needs 0",
                "the stream L has allow_direct false, and needs true",
                "the stream L has max_msg_size 1000, and needs 525312",
            ]
        );
    }
}
