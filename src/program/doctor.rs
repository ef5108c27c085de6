//! `homing doctor`, and `homing check-config` with the files.

use super::data::{data_directory, socket_to_ask};
use super::output::{REFUSED, complain, say};
use super::settings::check_config;
use homing::broker;
use homing::broker::bridges;
use homing::config::{Config, ConfigRefusal, Loaded};
use homing::doctor::{self, CheckedBroker};
use homing::finding::{Finding, Severity};
use homing::otlp;
use homing::store::sqlite;
use homing::store::sqlite::directory::refuse_following;
use std::path::Path;
use std::process::ExitCode;

/// Checks the broker of this configuration, and prints the findings. `posts_to_sinks`: ask the
/// services of sinks by POST. Exit code 1 if one of the findings is a fail.
pub(crate) fn check(loaded: &Loaded, posts_to_sinks: bool) -> ExitCode {
    let config = &loaded.config;
    let broker = CheckedBroker {
        config,
        data: data_directory(config),
        socket: socket_to_ask(config),
        ignored: &loaded.ignored,
        posts_to_sinks,
    };
    report(&doctor::check(&broker))
}

/// Prints the problems of a configuration that was refused. Exit code 1.
pub(crate) fn check_refused(refusal: &ConfigRefusal) -> ExitCode {
    report(&doctor::refused(refusal))
}

/// Reads the files that a configuration names as a start does, and prints the result of
/// `check-config`. Exit code 2 if one of them cannot be used.
pub(crate) fn check_with_files(loaded: &Loaded) -> ExitCode {
    match broker::check_files(&loaded.config, other_files) {
        Ok(()) => {
            let copy = copy_of(&loaded.config).filter(|copy| copy.severity == Severity::Warn);
            copy.iter().for_each(|copy| complain(&format!("{}. {}", copy.text, copy.advice)));
            say(&check_config(loaded, "can be used"));
            ExitCode::SUCCESS
        }
        Err(mistakes) => {
            mistakes.iter().for_each(|mistake| complain(mistake));
            ExitCode::from(REFUSED)
        }
    }
}

/// Looks at the data directory, and reads the files of the HTTP interface, of the export, of bridges,
/// sinks and the cluster. Returns the problems.
fn other_files(config: &Config) -> Vec<String> {
    let usable = |data: &Path| refuse_following(data).and_then(|()| sqlite::directory::check(data));
    let store = data_directory(config).and_then(|directory| usable(&directory).err());
    let mut mistakes: Vec<String> =
        store.iter().map(|error| format!("{error} (store.path, or --data-dir)")).collect();
    let copy = copy_of(config).filter(|copy| copy.severity == Severity::Fail);
    mistakes.extend(copy.map(|copy| copy.text));
    mistakes.extend(files_of_interface(config));
    mistakes.extend(config.bridges.iter().filter_map(|bridge| {
        let error = bridges::check_files(bridge).err()?;
        Some(format!("{error} (bridge {:?} of [[bridges]])", bridge.label()))
    }));
    mistakes.extend(files_of_sinks(config));
    mistakes.extend(super::engine::check_files(&config.cluster).err());
    mistakes.extend(otlp::check(&config.otlp).err().map(|error| error.with_key()));
    mistakes
}

/// Returns the finding about the folder for a copy of the store.
fn copy_of(config: &Config) -> Option<Finding> {
    doctor::copy::finding(config, &data_directory(config)?)
}

/// Reads the files of the HTTP interface, if it starts. Returns the problems in the files.
#[cfg(feature = "admin")]
fn files_of_interface(config: &Config) -> Vec<String> {
    let is_off = config.admin.addresses.is_empty() && super::data::socket_path(config).is_none();
    let result = if is_off { Ok(()) } else { homing::admin::check_files(&config.admin) };
    result.err().iter().map(ToString::to_string).collect()
}

#[cfg(not(feature = "admin"))]
fn files_of_interface(_: &Config) -> Vec<String> {
    Vec::new()
}

/// Reads the files of the sinks. Returns the problems in them.
#[cfg(feature = "sinks")]
fn files_of_sinks(config: &Config) -> Vec<String> {
    let problem = |sink: &homing::config::Sink| {
        let error = homing::broker::sinks::check_files(sink).err()?;
        Some(format!("{error} (sink {:?} of [[sinks]])", sink.label()))
    };
    config.sinks.iter().filter_map(problem).collect()
}

#[cfg(not(feature = "sinks"))]
fn files_of_sinks(_: &Config) -> Vec<String> {
    Vec::new()
}

fn report(findings: &[Finding]) -> ExitCode {
    findings.iter().for_each(|finding| say(&finding.to_string()));
    match findings.iter().any(|finding| finding.severity == Severity::Fail) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}
