//! Keys that take one of a few words. The words that a session or a shard decides by are defined in
//! those modules.

use super::value;
use crate::login::access_rules::{DeniedPublish, DeniedSubscribe};
use crate::mqtt::packet::ProtocolVersion;
use crate::named_enum::named_enum;
use crate::session::authentication::{Anonymous, AuthMethod};
use crate::session::drops::DropReason;
use crate::session::outbound::queue::QueuePolicy;
use crate::session::outbound::retry::{OnAckTimeout, OnExhausted};

named_enum! {
    /// The callers who may see the payloads of messages by the HTTP interface.
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
    pub enum DurabilityLevel {
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

    /// What lets an acknowledgement leave that no session is owed, in a cluster.
    #[derive(Default)]
    pub enum ClusterAcks {
        /// A lease.
        #[default]
        Lease = "lease",
        /// A frame of its own.
        Commit = "commit",
    }

    /// What a node does that serves, and is cut off from the engine of its cluster.
    #[derive(Default)]
    pub enum IsolationAction {
        /// It disconnects its clients.
        #[default]
        Disconnect = "disconnect",
        /// It keeps them.
        Keep = "keep",
    }

    /// The protocol of a listener.
    #[derive(Default)]
    pub enum ListenerProtocol {
        /// MQTT on the plain socket, or behind TLS.
        #[default]
        Mqtt = "mqtt",
        /// MQTT in a WebSocket.
        WebSocket = "websocket",
    }

    /// The versions of the PROXY protocol header that a listener takes.
    #[derive(Default)]
    pub enum ProxyProtocol {
        /// No header.
        #[default]
        Off = "off",
        /// Version 1, a line of text.
        V1 = "v1",
        /// Version 2, binary.
        V2 = "v2",
        /// Both versions.
        Any = "any",
    }

    /// A kind of telemetry that is exported by OTLP.
    pub enum OtlpSignal {
        /// The metrics.
        Metrics = "metrics",
        /// The log lines.
        Logs = "logs",
        /// The ways of traced messages.
        Traces = "traces",
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

impl OtlpSignal {
    /// Returns the path of the signal below the address of a collector.
    pub fn path(self) -> &'static str {
        match self {
            OtlpSignal::Metrics => "/v1/metrics",
            OtlpSignal::Logs => "/v1/logs",
            OtlpSignal::Traces => "/v1/traces",
        }
    }
}

value::named_fields! { Anonymous, AuthMethod, ClusterAcks, DeniedPublish, DeniedSubscribe, DropReason, DurabilityLevel, IsolationAction, JwtFrom, ListenerProtocol, LogFormat, OnAckTimeout, OnExhausted, OtlpSignal, PayloadViews, ProtocolVersion, ProxyProtocol, QueuePolicy }
