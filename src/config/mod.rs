//! Configuration from built-in defaults, one file, the environment and flags. A later layer wins.
//!
//! `keys` is the table of all keys, with a file for each section. `table` makes
//! the structs of it, and `render` the documents. `rule` says which values a key takes, and `value`
//! converts a written value into a field.
//!
//! [`Config`] is plain data. [`Sources`] reads and checks the operator's input, and returns every
//! problem at once. A `Config` made in code is not checked. `difference` compares two
//! configurations: each key says if a change needs a restart, and `listener_changes` decides about
//! each listener.
//! `in_force` lists the values of a running broker, and `shared` what the nodes of a cluster have to
//! have in common.

mod bounds;
mod bridge;
mod bridge_address;
mod choices;
mod cluster_problems;
mod count_in;
mod difference;
pub mod http_header;
mod in_force;
mod keys;
mod layer;
mod listener;
mod listener_changes;
mod listener_checks;
mod listener_contradictions;
mod named_files;
mod problem;
mod redelivery_rule;
pub mod render;
mod rule;
mod secrets;
mod service_url;
mod shared;
mod sink;
mod size;
mod slo;
mod sources;
mod table;
mod table_list;
mod tls_choices;
mod value;
mod variable;

pub use crate::login::access_rules::{DeniedPublish, DeniedSubscribe};
pub use crate::session::authentication::{Anonymous, AuthMethod};
pub use crate::session::outbound::queue::QueuePolicy;
pub use crate::session::outbound::retry::{OnAckTimeout, OnExhausted};
pub use crate::session::redelivery_rule::RedeliveryRule;
pub use crate::time::duration;
pub use bridge::{Balance, Bridge, BridgeTopic, BridgeVersion};
pub use bridge_address::BridgeAddress;
pub use choices::{
    ClusterAcks, DurabilityLevel, IsolationAction, JwtFrom, ListenerProtocol, LogFormat, OtlpSignal,
    PayloadViews, ProxyProtocol,
};
pub use difference::KeyChange;
#[cfg(test)]
pub(crate) use difference::{every_key_changed, every_listener_key_changed};
pub use in_force::{KeyInForce, KeySources, help_of};
pub use keys::{
    Acl, Admin, Auth, Bans, Cluster, Config, Expiry, KeepAlive, Limits, Log, Network, Otlp, Redelivery,
    Runtime, Store, Sys,
};
pub use listener::{CertificatePair, Listener, ListenerAddress, ListenerTls};
pub use listener_changes::{ListenerChange, ListenerChangeKind};
pub(crate) use listener_changes::{is_live, predecessors};
pub use problem::{ConfigRefusal, Problem, Setting};
pub use rule::is_log_level;
pub use service_url::ServiceUrl;
pub use shared::SharedSettings;
pub use sink::Sink;
pub use size::{ByteSize, InvalidSize};
pub use sources::{DEFAULT_FILES, Loaded, Shadowed, Sources};
pub use table::ReloadEffect;
pub use tls_choices::{CertificateUser, ClientCertificates, CrlCheck, Group, MinimumVersion};
