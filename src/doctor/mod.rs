//! `homing doctor`: checks the configuration, the machine, the data directory and a running broker,
//! and reports problems. [`crate::finding`] has the list of the checks.
//!
//! The command changes nothing. If no broker runs, all TCP addresses are bound together for a
//! moment. With `store.durability = "commit"` it also writes a file of 36 KiB into the data
//! directory, and deletes it; not while a thread of a running broker hangs.
//!
//! - `bridges`: the other brokers of the bridges.
//! - `directory`: the data directory: its owner, its file system, its room, the time of a sync.
//! - [`copy`]: the folder for a copy of the store.
//! - `files`: the files that the configuration names: can they be read, and who else can.
//! - `machine`: descriptors, backlog, memory and the clock.
//! - `listeners`: the ports, and who may connect.
//! - `running`: the self-report of a running broker.
//! - `sinks`: the services of the sinks.

mod bridges;
pub mod copy;
mod directory;
mod files;
mod listeners;
mod machine;
#[cfg(feature = "admin")]
mod running;
mod sinks;

use crate::config::{Config, ConfigRefusal};
#[cfg(feature = "admin")]
use crate::finding::Severity;
use crate::finding::{Check, Finding};
use std::path::{Path, PathBuf};

/// The broker that is checked.
#[derive(Debug)]
pub struct CheckedBroker<'a> {
    /// Its configuration, which is valid.
    pub config: &'a Config,
    /// Its data directory; `None` without a store.
    pub data: Option<PathBuf>,
    /// The Unix socket of its HTTP interface; `None` without one.
    pub socket: Option<PathBuf>,
    /// A sentence for each environment variable that only looks like a key.
    pub ignored: &'a [String],
    /// True if the services of sinks may be asked with a POST of an empty batch.
    pub posts_to_sinks: bool,
}

/// Returns the findings about a configuration that was refused: nothing else can be looked at.
pub fn refused(refusal: &ConfigRefusal) -> Vec<Finding> {
    refusal.0.iter().map(|problem| Finding::fail(Check::Configuration, problem.to_string())).collect()
}

/// Checks a broker. Returns the findings: configuration, machine, data directory, files,
/// listeners, running broker.
///
/// Blocks for as long as the disk takes to sync some pages, and for at most 10 s at each read or
/// write where a running broker does not answer. Bridges take a minute at most, and sinks another one.
pub fn check(broker: &CheckedBroker<'_>) -> Vec<Finding> {
    let config = broker.config;
    let mut findings = vec![Finding::ok(Check::Configuration, "valid")];
    findings.extend(broker.ignored.iter().map(|ignored| Finding::warn(Check::Configuration, ignored)));
    findings.extend(machine::findings(config));
    let is_in_use = broker.data.as_deref().is_some_and(directory::is_in_use);
    #[cfg(feature = "admin")]
    let asked = running::ask(broker.socket.as_deref(), is_in_use);
    // A thread that hangs may wait for the disk. To write there would hang the doctor, too, and
    // such a process cannot even be killed.
    #[cfg(feature = "admin")]
    let disk_may_hang =
        asked.findings.iter().any(|found| found.check == Check::Threads && found.severity == Severity::Fail);
    #[cfg(not(feature = "admin"))]
    let disk_may_hang = false;
    match &broker.data {
        Some(data) => {
            findings.extend(match disk_may_hang {
                true => directory::findings_in_use(config, data),
                false => directory::findings(config, data),
            });
            findings.extend(copy::finding(config, data));
        }
        None => findings.push(without_store()),
    }
    findings.extend(files::findings(config));
    findings.extend(bridges::findings(config));
    findings.extend(sinks::findings(config, broker.posts_to_sinks));
    #[cfg(feature = "admin")]
    {
        // A broker without a store holds no lock, and has its ports all the same.
        findings.extend(listeners::findings(broker, is_in_use || asked.answers));
        findings.extend(asked.findings);
    }
    #[cfg(not(feature = "admin"))]
    findings.extend(listeners::findings(broker, is_in_use));
    findings
}

/// Checks the broker that runs as this process, from within: configuration, machine, data
/// directory, files and entrances. Writes nothing, and tries no port.
///
/// Blocks for as long as the disk takes to read the files that the configuration names.
pub fn check_own(config: &Config, data: Option<&Path>) -> Vec<Finding> {
    let mut findings = vec![Finding::ok(Check::Configuration, "valid")];
    findings.extend(machine::findings(config));
    match data {
        Some(data) => {
            findings.extend(directory::findings_in_use(config, data));
            findings.extend(copy::finding(config, data));
        }
        None => findings.push(without_store()),
    }
    findings.extend(files::findings(config));
    findings.extend(listeners::entrances(config));
    findings
}

fn without_store() -> Finding {
    Finding::warn(Check::Store, "store.durability is none: sessions and messages end with the process")
}
