//! The keys of `[cluster]`.

use super::paths::path_of;
use crate::config::bounds::ONE_TIB;
use crate::config::choices::{ClusterAcks, IsolationAction};
use crate::config::rule::{ValueType, days, millis, seconds};
use crate::config::size::ByteSize;
use crate::config::table::section;
use crate::config::value;
use crate::named_enum::Named;
use crate::ownership::{Timing, TimingError};
use config::{Value, ValueKind};
use std::path::PathBuf;
use std::time::Duration;

section! {
    /// Several machines that act as one broker. One node serves, and the others stand by with the
    /// same sessions and messages. NATS JetStream on three servers keeps the log that they share, and
    /// decides who serves. `homing cluster init` makes what the cluster needs there, once. Needs a
    /// build with the cargo feature `cluster`. docs/cluster.md has the details.
    [cluster] Cluster {
        /// The name of the cluster, the same on all nodes. It is a part of the names of streams and
        /// buckets in NATS.
        name: String = String::new(),
            ValueType::Checked(is_name, "1 to 32 letters of ASCII, digits, - and _").or("off", "this broker is no part of a cluster"),
            elsewhere: "EMQX `cluster.name`, NATS `cluster.name`";
        /// The name of this node, one of `nodes`.
        node: String = String::new(),
            ValueType::Checked(is_name, "1 to 32 letters of ASCII, digits, - and _").or("unset", "needed with a name"),
            scope: Node,
            elsewhere: "EMQX `node.name`, NATS `server_name`";
        /// The names of all nodes, the same list on all of them. The order is the rank: of two nodes
        /// that could serve, the earlier one does.
        nodes: Vec<String> = Vec::new(),
            ValueType::Checked(are_names, "a list of 1 to 16 names, none twice").only(),
            elsewhere: "EMQX `cluster.static.seeds`";
        /// The servers of NATS, `nats://HOST:PORT` or `tls://HOST:PORT`. The first that answers is
        /// used. A user and a password in an address are refused.
        nats: Vec<String> = Vec::new(),
            ValueType::Checked(are_servers, "a list of nats://HOST:PORT and tls://HOST:PORT, without user and password").only(),
            scope: Node;
        /// The user of the nodes at NATS.
        nats_user: String = String::new(),
            ValueType::Checked(value::is_label, "a text of 1 to 256 characters").or("none", "no user and password"),
            scope: Node;
        /// The file with the password of this user. Its first line counts.
        nats_password_file: String = String::new(),
            ValueType::Path.or("none", "no user and password"),
            scope: Node;
        /// The authorities that sign the certificates of the servers, in PEM.
        nats_ca: String = String::new(),
            ValueType::Path.or("system", "the authorities that the system trusts"),
            scope: Node;
        /// The certificate with which this node proves who it is to the servers, in PEM.
        nats_certificate: String = String::new(),
            ValueType::Path.or("none", "no certificate"),
            scope: Node;
        /// The key of the certificate, in PEM.
        nats_key: String = String::new(),
            ValueType::Path.or("none", "no certificate"),
            scope: Node;
        /// The HTTP monitor of one of the servers. With it, a start checks that the servers sync each
        /// write (`sync_interval: always`). Without it, each start warns that this is not known.
        monitor: String = String::new(),
            ValueType::Checked(is_monitor, "the address of a monitor of NATS, such as \"http://10.0.0.11:8222\"").or("off", "the setting of the servers is not checked"),
            scope: Node;
        /// The largest size of the log in NATS, on each of its servers. `homing cluster init` sets it.
        /// It has to be at least eight times the largest `packet_size`.
        log_size: ByteSize = ByteSize::mib(8 << 10),
            ValueType::Size(64 << 20, ONE_TIB).only(),
            elsewhere: "NATS `max_bytes`";
        /// The time for which a stored frame lets its node acknowledge what no session is owed. The
        /// node that serves stores one each second.
        lease: Duration = Timing::DEFAULT.lease,
            ValueType::Duration(seconds(2), seconds(60)).only();
        /// A standby takes over after this time without a frame, at least 1.5 times `lease`.
        suspect_after: Duration = Timing::DEFAULT.suspicion,
            ValueType::Duration(seconds(3), days(1)).only(),
            why: "An election among the servers of NATS takes up to 8 s, and is no reason to take over.";
        /// "lease": what no session is owed is acknowledged at once while the lease runs. "commit":
        /// every acknowledgement waits for a frame, about 1 ms more. Choose "commit" where running
        /// machines are frozen for snapshots.
        acks: ClusterAcks = ClusterAcks::Lease,
            ValueType::OneOf(ClusterAcks::NAMES).only();
        /// What the node does that serves, if no frame was stored for `isolation_timeout`.
        /// "disconnect": it disconnects its clients, without their wills, and lets them in again when
        /// it can. "keep": it keeps them; QoS 0 passes among them.
        isolation: IsolationAction = IsolationAction::Disconnect,
            ValueType::OneOf(IsolationAction::NAMES).only();
        /// The time without a stored frame after which a node counts as isolated, above `lease`.
        isolation_timeout: Duration = Timing::DEFAULT.isolation,
            ValueType::Duration(millis(2_001), days(1)).only(),
            why: "An election among the servers of NATS takes up to 8 s.";
        /// The time after a take-over in which no will is published: the clients that were connected
        /// have to find the new node first. A client that is back in time has its will cancelled.
        will_grace: Duration = Duration::from_secs(10),
            ValueType::Duration(0, days(1)).only(),
            standard: "5.0 3.1.2.5: a server may publish a will later, above all after it has restarted.";
    }
}

impl Cluster {
    /// Returns true if this broker is a part of a cluster.
    pub fn is_on(&self) -> bool {
        !self.name.is_empty()
    }

    /// Returns the place of this node in the list of nodes.
    pub fn place(&self) -> Option<u16> {
        let place = self.nodes.iter().position(|node| *node == self.node)?;
        u16::try_from(place).ok()
    }

    /// Returns the durations of the ownership.
    ///
    /// # Errors
    /// They do not fit each other.
    pub fn timing(&self) -> Result<Timing, TimingError> {
        let (lease, suspicion, isolation) = (self.lease, self.suspect_after, self.isolation_timeout);
        let timing = Timing { lease, suspicion, isolation, ..Timing::DEFAULT };
        timing.check().map(|()| timing)
    }

    /// Returns the path of the password; `None` without one.
    pub fn password_path(&self) -> Option<PathBuf> {
        path_of(&self.nats_password_file)
    }

    /// Returns the path of the authorities; `None` for those of the system.
    pub fn ca_path(&self) -> Option<PathBuf> {
        path_of(&self.nats_ca)
    }

    /// Returns the paths of the certificate and its key; `None` without them.
    pub fn certificate_paths(&self) -> Option<(PathBuf, PathBuf)> {
        path_of(&self.nats_certificate).zip(path_of(&self.nats_key))
    }
}

fn is_short_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=32).contains(&text.len()) && text.bytes().all(is_part)
}

fn is_name(value: &Value) -> bool {
    value::text(value).is_some_and(is_short_name)
}

fn are_names(value: &Value) -> bool {
    let ValueKind::Array(items) = &value.kind else { return false };
    let names: Vec<&str> = items.iter().filter_map(value::text).filter(|name| is_short_name(name)).collect();
    let is_first = |at: usize| !names[..at].contains(&names[at]);
    names.len() == items.len() && names.len() <= 16 && (0..names.len()).all(is_first)
}

fn are_servers(value: &Value) -> bool {
    let ValueKind::Array(items) = &value.kind else { return false };
    items.len() <= 16 && items.iter().all(|item| value::text(item).is_some_and(is_server))
}

fn is_server(text: &str) -> bool {
    let rest = text.strip_prefix("nats://").or_else(|| text.strip_prefix("tls://"));
    let Some((host, port)) = rest.and_then(|rest| rest.rsplit_once(':')) else { return false };
    let is_plain = !host.is_empty() && !host.contains(['@', '/', '?', '#', ' ']);
    is_plain && port.parse::<u16>().is_ok_and(|port| port != 0)
}

fn is_monitor(value: &Value) -> bool {
    let rest = value::text(value).and_then(|text| text.strip_prefix("http://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['@', '/', '?', '#', ' ']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    fn refusal(assignment: &str) -> String {
        Sources::new().assignment(assignment).load().map(drop).expect_err(assignment).to_string()
    }

    #[test]
    fn what_is_no_name_list_or_server_is_refused_without_showing_a_password() {
        for text in [
            "cluster.name=a.b",
            "cluster.node=",
            "cluster.nodes=[\"a\", \"a\"]",
            "cluster.nodes=a",
            "cluster.nats=[\"http://h:1\"]",
            "cluster.nats=[\"nats://h\"]",
            "cluster.nats=[\"nats://h:0\"]",
            "cluster.monitor=https://h",
            "cluster.lease=1s",
            "cluster.acks=never",
        ] {
            let key = text.split('=').next().unwrap_or_default();
            assert!(refusal(text).contains(key), "{text}");
        }
        for text in
            ["cluster.nats=[\"nats://ann:secret@h:4222\"]", "cluster.monitor=http://ann:secret@h:8222"]
        {
            let refusal = refusal(text);
            assert!(!refusal.contains("secret"), "{refusal}");
        }
    }

    #[test]
    fn a_node_has_its_place_in_the_list_and_durations_fit_each_other() {
        let loaded = Sources::new()
            .assignment("cluster.name=plant")
            .assignment("cluster.node=b")
            .assignment("cluster.nodes=[\"a\", \"b\"]")
            .assignment("cluster.nats=[\"nats://h:4222\"]")
            .load()
            .expect("a node");
        let mut cluster = loaded.config.cluster;
        assert!(cluster.is_on() && cluster.place() == Some(1));
        assert_eq!(cluster.timing(), Ok(Timing::DEFAULT));
        cluster.lease = Duration::from_secs(5);
        let refusal = cluster.timing().expect_err("too short a suspicion").to_string();
        assert!(refusal.starts_with("suspect_after (6s) must be at least 1.5 times the lease"), "{refusal}");
        assert!(!Cluster::default().is_on());
    }
}
