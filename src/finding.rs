//! The checks of `homing doctor` and of a running broker, and the finding of each.

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
        /// The broker does not start, breaks a promise, or admits the wrong clients.
        Fail = "fail",
    }

    /// The checks. `homing doctor` makes all checks, and the running broker those that need no
    /// other process.
    pub enum Check {
        /// The configuration itself.
        Configuration = "configuration",
        /// The file descriptors that the system gives to the process.
        Descriptors = "descriptors",
        /// The backlog of listeners that the system allows.
        Backlog = "backlog",
        /// The memory of the machine.
        Memory = "memory",
        /// The wall clock.
        Clock = "clock",
        /// The file of the store, or its absence.
        Store = "store",
        /// The owner and the mode of the data directory.
        Owner = "owner",
        /// The file system of the data directory.
        FileSystem = "file system",
        /// The room on that file system.
        Room = "room",
        /// The copy of the store in another folder.
        Copy = "copy",
        /// The time of a sync, as `homing doctor` or the running broker measures it.
        Sync = "sync",
        /// The look at the files within a running broker.
        Files = "files",
        /// A password file.
        Passwords = "passwords",
        /// The keys of tokens.
        TokenKeys = "token keys",
        /// The headers for the service that checks logins.
        HttpHeaders = "http headers",
        /// The files of a sink.
        Sinks = "sinks",
        /// An ACL file.
        Acl = "acl",
        /// The file of bans.
        Bans = "bans",
        /// The tokens and users of the HTTP interface.
        AdminCredentials = "admin credentials",
        /// Certificates, authorities and revocation lists.
        Tls = "tls",
        /// A private key.
        TlsKey = "tls key",
        /// An address at which the broker listens.
        Port = "port",
        /// Risks of the clients that may connect.
        Login = "login",
        /// The interface without TLS, where others reach it.
        Http = "http",
        /// The networks that may send the header of a proxy.
        Proxies = "proxies",
        /// The other broker of a bridge.
        Bridge = "bridge",
        /// The service of a sink.
        Sink = "sink",
        /// The bridges and sinks of a running broker.
        FarSides = "far sides",
        /// A cluster: who serves, and its log.
        Cluster = "cluster",
        /// The nodes of the cluster: silent, behind, with another clock.
        ClusterNodes = "cluster nodes",
        /// Settings and files in which the nodes differ.
        ClusterDrift = "cluster drift",
        /// A running broker, and its version.
        Broker = "broker",
        /// Signs of life of the threads.
        Threads = "threads",
        /// The use of `limits.memory`.
        MemoryInUse = "held memory",
        /// Dropped messages.
        Drops = "drops",
        /// Keys that wait for a restart.
        Restart = "restart",
        /// The time of commits, and the room of the store.
        Commits = "commits",
        /// The size of the store's log, and what the database does not have of it.
        StoreLog = "store log",
        /// Counts near their limits.
        Limits = "limits",
        /// The export by OTLP.
        Otlp = "otlp",
        /// Lost lines of the log.
        Log = "log",
        /// The time by which deadlines are late.
        Deadlines = "deadlines",
    }
}

/// The fix of a disk whose syncs or commits are slow.
pub(crate) const SLOW_DISK: &str = "Use a faster disk, or store.durability = \"interval\".";

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its weight.
    pub severity: Severity,
    /// The check.
    pub check: Check,
    /// The fact.
    pub text: String,
    /// The suggested fix of a problem, as a sentence; empty if the fact says it.
    pub advice: String,
}

impl Finding {
    pub(crate) fn ok(check: Check, text: impl Into<String>) -> Finding {
        Finding { severity: Severity::Ok, check, text: text.into(), advice: String::new() }
    }

    pub(crate) fn warn(check: Check, text: impl Into<String>) -> Finding {
        Finding { severity: Severity::Warn, check, text: text.into(), advice: String::new() }
    }

    pub(crate) fn fail(check: Check, text: impl Into<String>) -> Finding {
        Finding { severity: Severity::Fail, check, text: text.into(), advice: String::new() }
    }

    /// Adds the suggested fix of a problem. A stop at its end is left out.
    pub(crate) fn advise(self, advice: impl Into<String>) -> Finding {
        let mut advice = advice.into();
        advice.truncate(advice.trim_end_matches('.').len());
        Finding { advice, ..self }
    }
}

/// One line: the severity, the check, the text and the advice.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { severity, check, text, advice } = self;
        let stop = if advice.is_empty() { "" } else { ". " };
        write!(f, "{:<6}{:<14} {text}{stop}{advice}", severity.name(), check.name())
    }
}

/// Returns a number of bytes as an operator reads it, such as `1.5 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    ByteSize(bytes).display().iec().to_string()
}
