//! One result of an examination.

use bytesize::ByteSize;
use std::fmt;

/// The weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it should be.
    Ok,
    /// The broker runs, and something will hurt sooner or later.
    Warn,
    /// The broker does not start, loses what it promised, or lets the wrong people in.
    Fail,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Warn => "warn",
            Severity::Fail => "fail",
        }
    }
}

/// One result of the examination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its weight.
    pub severity: Severity,
    /// The thing that was looked at, in one word.
    pub subject: &'static str,
    /// The fact, and for a problem also the remedy.
    pub text: String,
}

impl Finding {
    pub(super) fn ok(subject: &'static str, text: impl Into<String>) -> Finding {
        Finding { severity: Severity::Ok, subject, text: text.into() }
    }

    pub(super) fn warn(subject: &'static str, text: impl Into<String>) -> Finding {
        Finding { severity: Severity::Warn, subject, text: text.into() }
    }

    pub(super) fn fail(subject: &'static str, text: impl Into<String>) -> Finding {
        Finding { severity: Severity::Fail, subject, text: text.into() }
    }
}

/// One line: the severity, the subject and the text.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<6}{:<15}{}", self.severity.name(), self.subject, self.text)
    }
}

/// Returns a number of bytes as an operator reads it, such as `1.5 GiB`.
pub(super) fn size(bytes: u64) -> String {
    ByteSize(bytes).display().iec().to_string()
}
