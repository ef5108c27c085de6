//! Keys that take one of a few words. The words that a session or a shard decides by are defined in
//! those modules.

use super::value::{self, Field};
use crate::named_enum::{Named, named_enum};
use crate::session::authentication::Anonymous;
use crate::session::outbound::queue::QueuePolicy;
use crate::session::outbound::retry::{OnAckTimeout, OnExhausted};
use crate::shard::access::{DeniedPublish, DeniedSubscribe};
use config::{Value, ValueKind};

/// Returns true if a list of methods has this one.
pub(super) fn has(methods: &[String], method: &str) -> bool {
    methods.iter().any(|name| name == method)
}

named_enum! {
    /// Those who may see the payloads of messages by the HTTP interface.
    #[derive(Default)]
    pub enum PayloadViews {
        /// Operators and administrators. The audit log notes each view and each trace.
        #[default]
        Operator = "operator",
        /// Nobody.
        Never = "never",
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

macro_rules! named_fields {
    ($($name:ident),* $(,)?) => {$(
        impl Field for $name {
            fn read(value: &Value) -> Option<$name> {
                $name::of_name(value::text(value)?)
            }

            fn write(&self) -> ValueKind {
                ValueKind::String(self.name().to_owned())
            }
        }
    )*};
}

// A setting whose values have names is written as the name.
named_fields! {
    Anonymous, DeniedPublish, DeniedSubscribe, Durability, JwtFrom, LogFormat, OnAckTimeout, OnExhausted, PayloadViews, QueuePolicy,
}
