//! `homing doctor`: looks at the configuration, the machine, the data directory and a running
//! broker, and says what would make trouble.
//!
//! It changes nothing, but for one file of 4 KiB in the data directory, which is deleted at once.
//!
//! - [`directory`]: the data directory: its owner, its file system, its room, the time of a sync.
//! - [`files`]: the files that the configuration names: can they be read, and who else can.
//! - [`machine`]: descriptors, backlog, memory and the clock.
//! - [`listeners`]: the ports, and who may connect.
//! - [`running`]: what a running broker reports of itself.

mod directory;
mod files;
mod listeners;
mod machine;
#[cfg(feature = "admin")]
mod running;

use crate::config::{Config, Refusal};
use bytesize::ByteSize;
use std::fmt;
use std::path::PathBuf;

/// The weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// The broker runs, and something will hurt sooner or later.
    Warn,
    /// The broker does not start, loses what it promised, or lets the wrong people in.
    Fail,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        }
    }
}

/// One result of the examination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its weight.
    pub verdict: Verdict,
    /// The thing that was looked at, in one word.
    pub subject: &'static str,
    /// The fact, and for a problem also the remedy.
    pub text: String,
}

impl Finding {
    fn ok(subject: &'static str, text: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Ok, subject, text: text.into() }
    }

    fn warn(subject: &'static str, text: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Warn, subject, text: text.into() }
    }

    fn fail(subject: &'static str, text: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Fail, subject, text: text.into() }
    }
}

/// One line: the verdict, the subject and the text.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<6}{:<15}{}", self.verdict.name(), self.subject, self.text)
    }
}

/// Returns a number of bytes as an operator reads it, such as `1.5 GiB`.
fn size(bytes: u64) -> String {
    ByteSize(bytes).display().iec().to_string()
}

/// The broker that is examined.
#[derive(Debug)]
pub struct Patient<'a> {
    /// Its configuration, which is valid.
    pub config: &'a Config,
    /// Its data directory; `None` without a store.
    pub data: Option<PathBuf>,
    /// The Unix socket of its HTTP interface; `None` without one.
    pub socket: Option<PathBuf>,
}

/// Returns the findings about a configuration that was refused: nothing else can be looked at.
pub fn refused(refusal: &Refusal) -> Vec<Finding> {
    refusal.0.iter().map(|problem| Finding::fail("configuration", problem.to_string())).collect()
}

/// Examines a broker. Returns the findings in the order of the subjects.
///
/// Blocks for as long as the disk takes to sync some pages, and for at most 10 s where a running
/// broker does not answer.
pub fn examine(patient: &Patient<'_>) -> Vec<Finding> {
    let config = patient.config;
    let mut findings = vec![Finding::ok("configuration", "valid")];
    findings.extend(machine::findings(config));
    let is_in_use = patient.data.as_deref().is_some_and(directory::is_in_use);
    match &patient.data {
        Some(data) => findings.extend(directory::findings(config, data)),
        None => findings.push(Finding::warn(
            "store",
            "store.durability is none: sessions and messages end with the process",
        )),
    }
    findings.extend(files::findings(config));
    findings.extend(listeners::findings(config, is_in_use));
    #[cfg(feature = "admin")]
    findings.extend(running::findings(patient.socket.as_deref(), is_in_use));
    findings
}
