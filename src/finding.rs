//! One result of an examination, by `homing doctor` or by the broker itself.

use crate::named_enum::named_enum;
use bytesize::ByteSize;
use std::fmt;

named_enum! {
    /// The weight of a finding.
    #[derive(PartialOrd, Ord)]
    pub enum Severity {
        /// As it should be.
        Ok = "ok",
        /// The broker runs, and something will hurt sooner or later.
        Warn = "warn",
        /// The broker does not start, loses what it promised, or lets the wrong people in.
        Fail = "fail",
    }
}

/// One result of the examination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its weight.
    pub severity: Severity,
    /// The thing that was looked at, in one word.
    pub subject: &'static str,
    /// The fact.
    pub text: String,
    /// What to do about a problem, as a sentence; empty where the fact says it.
    pub advice: String,
}

impl Finding {
    pub(crate) fn ok(subject: &'static str, text: impl Into<String>) -> Finding {
        Finding { severity: Severity::Ok, subject, text: text.into(), advice: String::new() }
    }

    pub(crate) fn warn(subject: &'static str, text: impl Into<String>) -> Finding {
        Finding { severity: Severity::Warn, subject, text: text.into(), advice: String::new() }
    }

    pub(crate) fn fail(subject: &'static str, text: impl Into<String>) -> Finding {
        Finding { severity: Severity::Fail, subject, text: text.into(), advice: String::new() }
    }

    /// Adds what to do about a problem.
    pub(crate) fn advise(self, advice: impl Into<String>) -> Finding {
        Finding { advice: advice.into(), ..self }
    }
}

/// One line: the severity, the subject, the text and the advice.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { severity, subject, text, advice } = self;
        let stop = if advice.is_empty() { "" } else { ". " };
        write!(f, "{:<6}{subject:<14} {text}{stop}{advice}", severity.name())
    }
}

/// Returns a number of bytes as an operator reads it, such as `1.5 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    ByteSize(bytes).display().iec().to_string()
}
