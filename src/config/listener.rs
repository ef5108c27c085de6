//! `[[listeners]]`: addresses to listen on, each with its own protocol, TLS, clients and limits.

use super::Anonymous;
use super::bounds::{LARGEST_PACKET, ONE_KIB};
use super::choices::{ListenerProtocol, ProxyProtocol};
use super::rule::{ValueRule, ValueType};
use super::size::ByteSize;
use super::tls_choices::{CertificateUser, ClientCertificates, CrlCheck, Group, MinimumVersion};
use super::value::{self, Field};
use crate::access::network::network;
use crate::mqtt::packet::ProtocolVersion;
use crate::named_enum::Named;
use crate::session::authentication::AuthMethod;
use crate::session::client_id_rule::ClientIdRule;
use crate::session::mount_point::MountPoint;
use config::{Map, Value, ValueKind};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The largest rate of messages. At this rate a message costs 1 us of credit, which is still
/// counted exactly.
pub(super) const MOST_MESSAGES: i64 = 1_000_000;

/// The smallest rate of bytes. A smaller one would hardly take a CONNECT.
pub(super) const LEAST_BYTES: u64 = 1 << 10;

/// The largest rate of bytes.
pub(super) const MOST_BYTES: u64 = 1 << 30;

/// The name of a listener or an objective.
pub(super) const NAME: ValueType =
    ValueType::Checked(is_name, "a name of 1 to 64 letters, digits, \"-\", \"_\" and \".\"");

/// Makes the struct of a table from its fields. Each field may be left out.
macro_rules! fields {
    ($(#[$about:meta])* $Table:ident {$($(#[$doc:meta])* $field:ident: $type:ty, $rule:expr;)*}) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $Table {
            $($(#[$doc])* pub $field: Option<$type>,)*
        }

        impl $Table {
            /// The fields, each with its allowed values.
            pub(super) const FIELDS: &[(&str, ValueRule)] = &[$((stringify!($field), $rule)),*];
        }

        impl Field for $Table {
            fn read(value: &Value) -> Option<$Table> {
                let ValueKind::Table(fields) = &value.kind else { return None };
                let mut table = $Table::default();
                $(
                    if let Some(value) = fields.get(stringify!($field)) {
                        let rule: ValueRule = $rule;
                        let read = if rule.is_word(value) { value::zero() } else { Field::read(value) };
                        let field: $type = read?;
                        table.$field = Some(field);
                    }
                )*
                Some(table)
            }

            fn write(&self) -> ValueKind {
                let mut fields = Map::new();
                $(
                    if let Some(field) = &self.$field {
                        fields.insert(stringify!($field).to_owned(), Value::new(None, field.write()));
                    }
                )*
                ValueKind::Table(fields)
            }
        }
    };
}

pub(super) use fields;

fields! {
    /// One listener. A field that is `None` was left out: the broker-wide key holds, or the
    /// default.
    Listener {
        /// The name in the log and in `$SYS`; the address if left out.
        name: String, NAME.only();
        /// The address. Every listener that passed the checks has one.
        address: ListenerAddress, ValueType::Checked(is_address, "IP:PORT, such as \"0.0.0.0:8883\" or \"[::]:8883\" (port 0: a free one), or unix:/path of a socket").only();
        /// The permissions of a Unix socket, in octal; else those that the umask leaves.
        mode: String, ValueType::Checked(is_mode, "permissions in octal, such as \"0660\"").only();
        /// The group of a Unix socket, as a name in /etc/group or a number.
        group: String, ValueType::Checked(is_text, "a group, by its name or number").only();
        /// The methods of authentication; else `auth.methods`. An empty list is no method.
        auth: Vec<AuthMethod>, ValueType::SomeOf(AuthMethod::NAMES).only();
        /// The file with the users of this listener and the hashes of their passwords; else
        /// `auth.password_file`.
        password_file: String, ValueType::Path.only();
        /// The clients without credentials that may enter; else `auth.anonymous`.
        anonymous: Anonymous, ValueType::OneOf(Anonymous::NAMES).only();
        /// The file with the rules about topics for this listener's sessions; else `acl.file`.
        acl_file: String, ValueType::Path.only();
        /// The versions of MQTT that clients may speak; all if left out.
        versions: Vec<ProtocolVersion>, ValueType::SomeOf(ProtocolVersion::NAMES).only();
        /// The client identifiers that may connect; all if left out. A `*` matches no text with the
        /// character beside `%u` on its side.
        client_id: String, ValueType::Checked(is_client_id_rule, "a client id in which %u stands for the user name and * for any text, with a character between the two, such as \"%u-*\"").only();
        /// The prefix of the clients' topics, which they do not see; none if left out.
        mount_point: String, ValueType::Checked(is_mount_point, "the beginning of topics, with / at its end and without wildcards, such as \"tenant-a/\"").only();
        /// The largest packet that is accepted; else `limits.packet_size`.
        packet_size: ByteSize, ValueType::Size(ONE_KIB, LARGEST_PACKET).only();
        /// The longest Keep Alive; else `keep_alive.maximum`.
        keep_alive_maximum: Duration, ValueType::WholeSeconds(1, 65_535).or("unlimited", "the client's choice");
        /// The protocol: "mqtt" (the default) or "websocket".
        protocol: ListenerProtocol, ValueType::OneOf(ListenerProtocol::NAMES).only();
        /// The path of the WebSocket; "/mqtt" by default, and "*" accepts any.
        websocket_path: String, ValueType::Checked(is_url_path, "\"*\", or a path that begins with /").only();
        /// The web pages that may connect by WebSocket; by default those of the same host.
        origins: Vec<String>, ValueType::Checked(are_texts, "a list of origins, such as [\"https://app.example.com\"], or [\"*\"]").only();
        /// The versions of the PROXY protocol header that each connection has to begin with; "off"
        /// by default.
        proxy_protocol: ProxyProtocol, ValueType::OneOf(ProxyProtocol::NAMES).only();
        /// True if the header has to say that the client used TLS.
        proxy_tls: bool, ValueType::Boolean.only();
        /// The networks of the proxies that are believed.
        trusted_proxies: Vec<String>, ValueType::Checked(are_networks, "a list of addresses or networks, those of IPv4 in its own form: [\"10.0.0.0/8\"]").only();
        /// Connections that the kernel holds; else `network.backlog`.
        backlog: u32, ValueType::Integer(1, 65_535).only();
        /// Connections of this listener at one time; else only `limits.connections` holds.
        connections: u32, ValueType::Integer(1, 100_000_000).only();
        /// Connects that this listener accepts in a second, besides `limits.connects_per_second`.
        connects_per_second: u32, ValueType::Integer(1, MOST_MESSAGES).or("unlimited", "as many as come");
        /// PUBLISH packets that each client may send a second; else `limits.messages_per_second`.
        messages_per_second: u32, ValueType::Integer(1, MOST_MESSAGES).or("unlimited", "clients send as fast as they can");
        /// Bytes that each client may send a second; else `limits.bytes_per_second`.
        bytes_per_second: ByteSize, ValueType::Size(LEAST_BYTES, MOST_BYTES).or("unlimited", "clients send as fast as they can");
        /// The part of the limits of retained and delayed messages that the clients of this
        /// listener may take together, in percent; all of it if left out.
        share: u16, ValueType::Integer(1, 100).only();
        /// TLS; `None` for plain connections.
        tls: ListenerTls, ValueType::Checked(is_table, "a table, [listeners.tls] with its keys below it").only();
    }
}

fields! {
    /// The TLS of one listener.
    ListenerTls {
        /// The certificates of the broker with their keys.
        certificates: Vec<CertificatePair>, ValueType::Checked(are_tables, "a list of tables: [{ certificate = \"server.pem\", key = \"server.key\" }]").only();
        /// The demand for a certificate of the client: "off" (the default), "optional" or
        /// "required".
        client_certificates: ClientCertificates, ValueType::OneOf(ClientCertificates::NAMES).only();
        /// The file with the authorities that issue the clients' certificates.
        client_ca: String, ValueType::Path.only();
        /// Files with lists of revoked certificates.
        crl: Vec<String>, ValueType::Checked(are_paths, "a list of paths: [\"ca.crl\"]").only();
        /// The certificates that are looked up in the lists: "leaf" (the default) or "chain".
        crl_check: CrlCheck, ValueType::OneOf(CrlCheck::NAMES).only();
        /// False to accept a client's certificate before and after its dates.
        certificate_dates: bool, ValueType::Boolean.only();
        /// The part of the client's certificate that is the user name; "cn" by default. With
        /// "none" a certificate names nobody.
        certificate_user: CertificateUser, ValueType::OneOf(CertificateUser::NAMES).only();
        /// The lowest version: "1.2" (the default) or "1.3".
        minimum: MinimumVersion, ValueType::OneOf(MinimumVersion::NAMES).only();
        /// The application protocols (ALPN); by default ["mqtt"], and ["http/1.1"] with WebSocket.
        /// An empty list turns the check off.
        alpn: Vec<String>, ValueType::Checked(are_texts, "a list of protocol names: [\"mqtt\"]").only();
        /// The key exchange groups, best first.
        groups: Vec<Group>, ValueType::SomeOf(Group::NAMES).only();
        /// The longest TLS record in bytes; 16 KiB by default.
        record_size: ByteSize, ValueType::Size(512, 16 << 10).only();
        /// False to offer no session tickets, so that no client resumes a session.
        tickets: bool, ValueType::Boolean.only();
    }
}

fields! {
    /// A certificate and its key.
    CertificatePair {
        /// The file with the chain, the server's own certificate first.
        certificate: String, ValueType::Path.only();
        /// The file with the authorities that complete the chain, if `certificate` has one
        /// certificate alone.
        chain: String, ValueType::Path.only();
        /// The file with the private key.
        key: String, ValueType::Path.only();
    }
}

/// The address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerAddress {
    /// TCP.
    Ip(SocketAddr),
    /// A Unix socket at this path.
    Unix(PathBuf),
}

impl ListenerAddress {
    /// Returns true if no other machine can connect: a loopback address or a Unix socket.
    pub fn is_local(&self) -> bool {
        match self {
            ListenerAddress::Ip(address) => address.ip().to_canonical().is_loopback(),
            ListenerAddress::Unix(_) => true,
        }
    }
}

impl fmt::Display for ListenerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenerAddress::Ip(address) => address.fmt(f),
            ListenerAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Field for ListenerAddress {
    fn read(value: &Value) -> Option<ListenerAddress> {
        match value::text(value)?.strip_prefix("unix:") {
            // The longest path that the kernel takes has 107 bytes.
            Some(path)
                if (path.starts_with('/') || path.starts_with("./"))
                    && path.len() <= 107
                    && !path.contains('\0') =>
            {
                Some(ListenerAddress::Unix(PathBuf::from(path)))
            }
            Some(_) => None,
            None => SocketAddr::read(value).map(ListenerAddress::Ip),
        }
    }

    fn write(&self) -> ValueKind {
        ValueKind::String(self.to_string())
    }
}

impl FromStr for ListenerAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<ListenerAddress, &'static str> {
        let value = Value::new(None, ValueKind::String(text.to_owned()));
        ListenerAddress::read(&value).ok_or("must be IP:PORT, or unix:/path of a socket")
    }
}

impl Listener {
    /// Returns the name, or the address of a listener without one.
    pub fn label(&self) -> String {
        let address = || self.address.as_ref().map_or_else(String::new, ListenerAddress::to_string);
        self.name.clone().unwrap_or_else(address)
    }

    /// Returns a plain listener at an address: an entry of `network.listen`.
    pub fn plain(address: SocketAddr) -> Listener {
        Listener { address: Some(ListenerAddress::Ip(address)), ..Listener::default() }
    }
}

fn is_name(value: &Value) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    value::text(value).is_some_and(|text| (1..=64).contains(&text.len()) && text.chars().all(is_plain))
}

fn is_address(value: &Value) -> bool {
    ListenerAddress::read(value).is_some()
}

fn is_mode(value: &Value) -> bool {
    value::text(value).is_some_and(|text| u32::from_str_radix(text, 8).is_ok_and(|mode| mode <= 0o777))
}

fn is_text(value: &Value) -> bool {
    value::text(value).is_some_and(|text| !text.is_empty())
}

fn is_client_id_rule(value: &Value) -> bool {
    value::text(value).is_some_and(|text| text.parse::<ClientIdRule>().is_ok())
}

fn is_mount_point(value: &Value) -> bool {
    value::text(value).is_some_and(|text| text.parse::<MountPoint>().is_ok())
}

fn is_url_path(value: &Value) -> bool {
    let is_plain = |c: char| c.is_ascii_graphic() && !"?#".contains(c);
    value::text(value).is_some_and(|text| text == "*" || text.starts_with('/') && text.chars().all(is_plain))
}

pub(super) fn are_networks(value: &Value) -> bool {
    are(value, |item| value::text(item).is_some_and(|text| network(text).is_ok()))
}

fn is_table(value: &Value) -> bool {
    matches!(value.kind, ValueKind::Table(_))
}

fn are(value: &Value, is: impl Fn(&Value) -> bool) -> bool {
    matches!(&value.kind, ValueKind::Array(items) if items.iter().all(is))
}

fn are_tables(value: &Value) -> bool {
    are(value, is_table) && !matches!(&value.kind, ValueKind::Array(items) if items.is_empty())
}

pub(super) fn are_texts(value: &Value) -> bool {
    are(value, |item| value::text(item).is_some_and(|text| (1..=255).contains(&text.len())))
}

fn are_paths(value: &Value) -> bool {
    are(value, |item| ValueType::Path.only().admits(item))
}
