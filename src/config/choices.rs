//! Keys that take one of a few words.

use super::value::{self, Field};
use crate::named_enum::{Named, named_enum};
use config::{Value, ValueKind};
use std::fmt;

/// The methods of authentication.
pub(super) const AUTH_METHODS: &[&str] = &["certificate", "password", "scram", "jwt", "http"];

/// Returns true if a list of methods has this one.
pub(super) fn has(methods: &[String], method: &str) -> bool {
    methods.iter().any(|name| name == method)
}

named_enum! {
    /// The policy for a message whose receiver's queue is full. Expired entries are evicted before
    /// the policy applies.
    #[derive(Default)]
    pub enum QueuePolicy {
        /// The new message is not queued. Its publisher gets 0x97 where nobody else took the
        /// message.
        #[default]
        Refuse = "refuse",
        /// The oldest queued message is dropped.
        DropOldest = "drop_oldest",
        /// The receiver is disconnected. Its queue stays with its session.
        Disconnect = "disconnect",
        /// The publisher's acknowledgement waits for room, for `limits.hold_timeout` at most.
        Hold = "hold",
    }

    /// The treatment of a SUBSCRIBE filter of which the client may read nothing.
    #[derive(Default)]
    pub enum DeniedSubscribe {
        /// The filter is refused.
        #[default]
        Refuse = "refuse",
        /// The filter is granted, and nothing is delivered.
        Filter = "filter",
    }

    /// The treatment of a client that publishes to a topic that it may not write.
    #[derive(Default)]
    pub enum DeniedPublish {
        /// The message is dropped.
        #[default]
        Drop = "drop",
        /// The message is dropped, and the client is disconnected.
        Disconnect = "disconnect",
    }

    /// Those who may see the payloads of messages by the HTTP interface.
    #[derive(Default)]
    pub enum PayloadViews {
        /// Operators and administrators. The audit log notes each view and each trace.
        #[default]
        Operator = "operator",
        /// Nobody.
        Never = "never",
    }

    /// The connections on which clients without credentials may enter.
    #[derive(Default)]
    pub enum AnonymousClients {
        /// Connections of this machine.
        #[default]
        Loopback = "loopback",
        /// None.
        Never = "never",
        /// All.
        Always = "always",
    }

    /// The place of a token in CONNECT.
    #[derive(Default)]
    pub enum JwtFrom {
        /// The password.
        #[default]
        Password = "password",
        /// The user name.
        UserName = "username",
    }

    /// The action on a 5.0 connection whose client does not acknowledge in time. The action drops
    /// no message.
    #[derive(Default)]
    pub enum OnAckTimeout {
        /// DISCONNECT 0x97 where the session outlives the connection, so that the client returns
        /// and gets the message again. Elsewhere as [`OnAckTimeout::Alarm`].
        #[default]
        Auto = "auto",
        /// A log line and a count, once every `ack_timeout`.
        Alarm = "alarm",
        /// DISCONNECT 0x97, even where the session, and with it the message, ends.
        Disconnect = "disconnect",
    }

    /// The action when the attempts of a packet are used up.
    #[derive(Default)]
    pub enum OnExhausted {
        /// The connection is closed where the session outlives it, so that the client returns and
        /// gets the message again. Elsewhere as [`OnExhausted::Keep`].
        #[default]
        Disconnect = "disconnect",
        /// The message is sent again every `max_backoff`.
        Keep = "keep",
        /// The message is dropped and published as a dead letter. Its resends are counted over all
        /// connections.
        DeadLetter = "dead_letter",
    }

    /// The promise of an acknowledgement about a crash.
    #[derive(Default)]
    pub enum Durability {
        /// Nothing: sessions, queues and retained messages live in memory.
        None = "none",
        /// The message was given to the system: it survives the process, not the machine.
        Os = "os",
        /// As `os`, and it is forced to the disk at least every `store.sync_interval`.
        Interval = "interval",
        /// The message is on the disk.
        #[default]
        Commit = "commit",
    }

    /// The format of log lines.
    #[derive(Default)]
    pub enum LogFormat {
        /// [`LogFormat::Journal`] if standard error is systemd's journal, else [`LogFormat::Text`].
        #[default]
        Auto = "auto",
        /// One line for people, with logfmt fields.
        Text = "text",
        /// One JSON object on a line, for machines.
        Json = "json",
        /// As text, with a syslog priority in place of time and level.
        Journal = "journal",
    }
}

/// A setting whose values have names is written as the name.
impl<T: Named + fmt::Display> Field for T {
    fn read(value: &Value) -> Option<T> {
        T::of_name(value::text(value)?)
    }

    fn write(&self) -> ValueKind {
        ValueKind::String(self.to_string())
    }
}
