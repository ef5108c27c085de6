//! `[[listeners]]`: addresses to listen on, each with its own protocol, TLS and limits. A problem
//! in a listener is reported with the number of the listener.

use super::problem::Problem;
use super::rule::{ValueRule, ValueType};
use super::size::ByteSize;
use super::value::{self, Field, origin, written};
use config::{Map, Value, ValueKind};
use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// The largest rate of messages. It costs 1 us a message, which still counts exactly.
pub(super) const MOST_MESSAGES: i64 = 1_000_000;

/// The smallest rate of bytes. A smaller one would hardly take a CONNECT.
pub(super) const LEAST_BYTES: u64 = 1 << 10;

/// The largest rate of bytes.
pub(super) const MOST_BYTES: u64 = 1 << 30;

/// Maximum number of listeners.
const MOST: usize = 256;

/// Makes the struct of a table from its fields. Each field may be left out.
macro_rules! fields {
    ($(#[$about:meta])* $Table:ident {$($(#[$doc:meta])* $field:ident: $type:ty, $rule:expr;)*}) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $Table {
            $($(#[$doc])* pub $field: Option<$type>,)*
        }

        impl $Table {
            /// The fields, each with what it takes.
            const FIELDS: &[(&str, ValueRule)] = &[$((stringify!($field), $rule)),*];
        }

        impl Field for $Table {
            fn read(value: &Value) -> Option<$Table> {
                let ValueKind::Table(fields) = &value.kind else { return None };
                let mut table = $Table::default();
                $(
                    if let Some(value) = fields.get(stringify!($field)) {
                        let rule: ValueRule = $rule;
                        table.$field = Some(value::read::<Option<$type>>(&rule, value)??);
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

/// A field that may be left out: read as the type inside.
impl<T: Field> Field for Option<T> {
    fn read(value: &Value) -> Option<Option<T>> {
        T::read(value).map(Some)
    }

    fn write(&self) -> ValueKind {
        self.as_ref().map_or(ValueKind::Nil, Field::write)
    }
}

fields! {
    /// One listener. A field that is `None` was left out: the broker-wide key holds, or the
    /// default.
    Listener {
        /// The name in the log and in `$SYS`; the number of the listener if left out.
        name: String, ValueType::Checked(is_name, "a name of 1 to 64 letters, digits, \"-\", \"_\" and \".\"").only();
        /// The address. Every listener that passed the checks has one.
        address: ListenerAddress, ValueType::Checked(is_address, "IP:PORT, such as \"0.0.0.0:8883\" or \"[::]:8883\" (port 0: a free one), or unix:/path of a socket").only();
        /// The permissions of a Unix socket, in octal; else those that the umask leaves.
        mode: String, ValueType::Checked(is_mode, "permissions in octal, such as \"0660\"").only();
        /// The group of a Unix socket, as a name in /etc/group or a number.
        group: String, ValueType::Checked(is_text, "a group, by its name or number").only();
        /// The protocol: "mqtt" (the default) or "websocket".
        protocol: String, ValueType::OneOf(&["mqtt", "websocket"]).only();
        /// The path of the WebSocket; "/mqtt" by default, and "*" accepts any.
        websocket_path: String, ValueType::Checked(is_url_path, "\"*\", or a path that begins with /").only();
        /// The web pages that may connect by WebSocket; by default those of the same host.
        origins: Vec<String>, ValueType::Checked(are_texts, "a list of origins, such as [\"https://app.example.com\"], or [\"*\"]").only();
        /// The versions of the PROXY protocol header that each connection has to begin with; "off"
        /// by default.
        proxy_protocol: String, ValueType::OneOf(&["off", "v1", "v2", "any"]).only();
        /// True if the header has to say that the client used TLS.
        proxy_tls: bool, ValueType::Boolean.only();
        /// The networks of the proxies that are believed.
        trusted_proxies: Vec<String>, ValueType::Checked(are_networks, "a list of addresses or networks: [\"10.0.0.0/8\"]").only();
        /// Connections that the kernel holds; else `network.backlog`.
        backlog: u32, ValueType::Integer(1, 65_535).only();
        /// Connections of this listener at one time; else only `limits.connections` holds.
        connections: u32, ValueType::Integer(1, 100_000_000).only();
        /// PUBLISH packets that each client may send a second; else `limits.messages_per_second`.
        messages_per_second: u32, ValueType::Integer(1, MOST_MESSAGES).only();
        /// Bytes that each client may send a second; else `limits.bytes_per_second`.
        bytes_per_second: ByteSize, ValueType::Size(LEAST_BYTES, MOST_BYTES).only();
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
        client_certificates: String, ValueType::OneOf(&["off", "optional", "required"]).only();
        /// The file with the authorities that issue the clients' certificates.
        client_ca: String, ValueType::Path.only();
        /// Files with lists of revoked certificates.
        crl: Vec<String>, ValueType::Checked(are_paths, "a list of paths: [\"ca.crl\"]").only();
        /// The certificates that are looked up in the lists: "leaf" (the default) or "chain".
        crl_check: String, ValueType::OneOf(&["leaf", "chain"]).only();
        /// False to accept a client's certificate before and after its dates.
        certificate_dates: bool, ValueType::Boolean.only();
        /// The part of the client's certificate that is the user name; "cn" by default.
        certificate_user: String, ValueType::OneOf(&["cn", "san_dns", "san_uri", "san_email", "subject"]).only();
        /// The lowest version: "1.2" (the default) or "1.3".
        minimum: String, ValueType::OneOf(&["1.2", "1.3"]).only();
        /// The application protocols (ALPN); ["mqtt"] by default. An empty list turns the check
        /// off.
        alpn: Vec<String>, ValueType::Checked(are_texts, "a list of protocol names: [\"mqtt\"]").only();
        /// The key exchange groups, best first.
        groups: Vec<String>, ValueType::SomeOf(&["X25519MLKEM768", "SecP256r1MLKEM768", "X25519", "P-256", "P-384"]).only();
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
            Some(path) if path.starts_with('/') && path.len() <= 107 && !path.contains('\0') => {
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

fn is_url_path(value: &Value) -> bool {
    let is_plain = |c: char| c.is_ascii_graphic() && !"?#".contains(c);
    value::text(value).is_some_and(|text| text == "*" || text.starts_with('/') && text.chars().all(is_plain))
}

/// Returns the network that a text names: an address with the length of its prefix, or alone.
pub fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

fn are_networks(value: &Value) -> bool {
    are(value, |item| value::text(item).is_some_and(|text| network(text).is_some()))
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

fn are_texts(value: &Value) -> bool {
    are(value, |item| value::text(item).is_some_and(|text| (1..=255).contains(&text.len())))
}

fn are_paths(value: &Value) -> bool {
    are(value, |item| ValueType::Path.only().admits(item))
}

/// Collects the problems of one source.
struct Problems {
    source: String,
    found: Vec<Problem>,
}

impl Problems {
    fn refuse(&mut self, key: &str, value: &Value, allowed: &str) {
        self.found.push(Problem::NotAllowed {
            source_name: self.source.clone(),
            key: key.to_owned(),
            value: written(value),
            allowed: allowed.to_owned(),
        });
    }

    /// Checks each field of a table by itself.
    fn check(&mut self, name: &str, table: &Map<String, Value>, known: &[(&str, ValueRule)], what: &str) {
        let mut present: Vec<&String> = table.keys().collect();
        present.sort();
        for key in present {
            let value = &table[key];
            match known.iter().find(|(field, _)| field == key) {
                Some((_, rule)) if rule.admits(value) => {}
                Some((_, rule)) => self.refuse(&format!("{name}: {key}"), value, &rule.instead_of(value)),
                None => self.found.push(Problem::UnknownKey {
                    source_name: self.source.clone(),
                    key: format!("{name}: {key}"),
                    hint: format!(
                        "{what} holds {}",
                        known.iter().map(|(field, _)| *field).collect::<Vec<_>>().join(", ")
                    ),
                }),
            }
        }
    }
}

/// Returns every problem with the value of `listeners`.
pub(super) fn problems(value: &Value) -> Vec<Problem> {
    let mut problems = Problems { source: origin(value), found: Vec::new() };
    let ValueKind::Array(items) = &value.kind else {
        problems.refuse("listeners", value, "tables in a file, each [[listeners]]");
        return problems.found;
    };
    if items.len() > MOST {
        let allowed = format!("{MOST} listeners at most; here are {}", items.len());
        problems.refuse("listeners", value, &allowed);
    }
    for (at, item) in items.iter().enumerate() {
        let name = format!("listeners, listener {}", at + 1);
        match &item.kind {
            ValueKind::Table(fields) => {
                check_listener(&mut problems, &name, item, fields);
                check_unique(&mut problems, &name, fields, &items[..at]);
            }
            _ => problems.refuse(&name, item, "a table, [[listeners]] with its keys below it"),
        }
    }
    problems.found
}

/// Refuses an address or name that an earlier listener has. Port 0 may stand twice, because each
/// takes a free port of its own.
fn check_unique(problems: &mut Problems, name: &str, fields: &Map<String, Value>, earlier: &[Value]) {
    for key in ["address", "name"] {
        let Some(value) = fields.get(key) else { continue };
        let Some(text) = value::text(value) else { continue };
        // Port 0 takes a free port each time.
        if key == "address" && text.ends_with(":0") {
            continue;
        }
        let number = text.strip_prefix("listener-").and_then(|number| number.parse::<usize>().ok());
        if key == "name" && number.is_some_and(|number| number != earlier.len() + 1) {
            let allowed = format!(
                "another name: \"{text}\" is that of the listener at this place of the list, if it has none"
            );
            problems.refuse(&format!("{name}: {key}"), value, &allowed);
        }
        let same = earlier.iter().position(|other| match &other.kind {
            ValueKind::Table(other) => other.get(key).and_then(value::text) == Some(text),
            _ => false,
        });
        if let Some(at) = same {
            let allowed = format!("another {key} than that of listener {}", at + 1);
            problems.refuse(&format!("{name}: {key}"), value, &allowed);
        }
    }
}

fn check_listener(problems: &mut Problems, name: &str, item: &Value, fields: &Map<String, Value>) {
    problems.check(name, fields, Listener::FIELDS, "a listener");
    if !fields.contains_key("address") {
        problems.refuse(name, item, "a listener with an address, such as address = \"0.0.0.0:8883\"");
    }
    check_transport(problems, name, fields);
    if let Some(tls) = fields.get("tls")
        && let ValueKind::Table(fields) = &tls.kind
    {
        check_tls(problems, &format!("{name}: tls"), tls, fields);
    }
}

/// Checks the keys that need another key beside them.
fn check_transport(problems: &mut Problems, name: &str, fields: &Map<String, Value>) {
    let text = |key: &str| fields.get(key).and_then(value::text);
    let address = fields.get("address").and_then(ListenerAddress::read);
    let is_unix = matches!(address, Some(ListenerAddress::Unix(_)));
    let is_websocket = text("protocol") == Some("websocket");
    let proxy = text("proxy_protocol").filter(|versions| *versions != "off");
    let is_on = |key: &str| fields.get(key).and_then(bool::read) == Some(true);
    let mut needs = |key: &str, has: bool, allowed: &str| {
        if let Some(value) = fields.get(key).filter(|_| !has) {
            problems.refuse(&format!("{name}: {key}"), value, allowed);
        }
    };
    for key in ["mode", "group"] {
        needs(key, is_unix, "beside an address unix:/path");
    }
    for key in ["websocket_path", "origins"] {
        needs(key, is_websocket, "beside protocol = \"websocket\"");
    }
    needs(
        "trusted_proxies",
        proxy.is_some() || is_websocket,
        "beside proxy_protocol, or protocol = \"websocket\" for X-Forwarded-For",
    );
    needs(
        "proxy_tls",
        !is_on("proxy_tls") || matches!(proxy, Some("v2" | "any")),
        "beside proxy_protocol = \"v2\" or \"any\": version 1 says nothing of TLS",
    );
    let is_local = address.is_none_or(|address| address.is_local());
    needs(
        "proxy_protocol",
        proxy.is_none() || is_local || fields.contains_key("trusted_proxies"),
        "beside trusted_proxies = [\"10.0.0.0/8\"]: anybody could send a forged address otherwise",
    );
}

/// Keys of TLS that concern the certificates of clients.
const OF_CLIENTS: [&str; 5] = ["client_ca", "crl", "crl_check", "certificate_dates", "certificate_user"];

fn check_tls(problems: &mut Problems, name: &str, item: &Value, fields: &Map<String, Value>) {
    problems.check(name, fields, ListenerTls::FIELDS, "[listeners.tls]");
    match fields.get("certificates").map(|value| &value.kind) {
        None => problems.refuse(
            name,
            item,
            "a table with certificates = [{ certificate = \"server.pem\", key = \"server.key\" }]",
        ),
        Some(ValueKind::Array(pairs)) => {
            for (at, pair) in pairs.iter().enumerate() {
                let ValueKind::Table(fields) = &pair.kind else { continue };
                let name = format!("{name}: certificate {}", at + 1);
                problems.check(&name, fields, CertificatePair::FIELDS, "a certificate");
                if !["certificate", "key"].iter().all(|key| fields.contains_key(*key)) {
                    problems.refuse(&name, pair, "a table with both a certificate and its key");
                }
            }
        }
        Some(_) => {}
    }
    let asks = fields.get("client_certificates").and_then(value::text).filter(|text| *text != "off");
    match asks {
        None => {
            for key in OF_CLIENTS {
                if let Some(value) = fields.get(key) {
                    let allowed = "beside client_certificates = \"optional\" or \"required\": clients are not asked for a certificate otherwise";
                    problems.refuse(&format!("{name}: {key}"), value, allowed);
                }
            }
        }
        Some(_) if !fields.contains_key("client_ca") => problems.refuse(
            &format!("{name}: client_certificates"),
            &fields["client_certificates"],
            "beside client_ca = \"ca.pem\", the authorities that issue the clients' certificates",
        ),
        Some(_) => {}
    }
    if fields.get("crl_check").is_some() && !fields.contains_key("crl") {
        problems.refuse(&format!("{name}: crl_check"), &fields["crl_check"], "beside crl = [\"ca.crl\"]");
    }
}
