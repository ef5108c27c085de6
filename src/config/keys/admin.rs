//! The keys of `[admin]`, and the socket that follows from them.

use super::paths::{first_directory, path_of};
use crate::config::choices::PayloadViews;
use crate::config::rule::ValueType;
use crate::config::table::section;
use crate::named_enum::Named;
use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// The name of the socket in its directory.
const SOCKET: &str = "homing.sock";

/// The runtime directory of the packaged service.
const SERVICE_DIRECTORY: &str = "/run/homing";

/// A 1 before the port of MQTT.
const ADMIN_PORT: u16 = 11_883;

section! {
    /// The HTTP interface for operators and their tools: /healthz and /readyz for probes, /metrics
    /// for Prometheus.
    [admin] Admin, scope: Node {
        /// Addresses of the HTTP interface, each IP:PORT. If the default address is taken, the
        /// broker warns and runs without the interface; an address that is set here must be free.
        addresses: Vec<SocketAddr> = vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), ADMIN_PORT)],
            ValueType::Addresses.or("off", "no HTTP interface"),
            why: "Health and metrics cost nothing until somebody asks, and only this machine can.",
            elsewhere: "EMQX `dashboard.listeners.http.bind` and `prometheus`, NATS `http`, mosquitto `listener` with `protocol http_api`";
        /// The Unix socket of the interface, for programs on this machine. Root and the user of the
        /// broker may do everything there, and members of its group may look. With "auto" it is
        /// `homing.sock` in systemd's RUNTIME_DIRECTORY, else in the data directory; a broker with
        /// neither has none.
        socket: String = String::new(),
            ValueType::Path.or("auto", "in the runtime or data directory"),
            why: "No token is needed where the kernel knows who asks.";
        /// The certificate of the interface for HTTPS: a PEM file with the chain, that of the
        /// server first. With it every address speaks TLS 1.2 and 1.3, and plain HTTP is refused.
        /// The file is read again like those of the listeners.
        certificate: String = String::new(),
            ValueType::Path.or("off", "plain HTTP");
        /// The private key of `admin.certificate`: a PEM file that is not encrypted.
        key: String = String::new(),
            ValueType::Path.or("off", "plain HTTP");
        /// The file of those who may use the interface over TCP: tokens for programs, as `homing
        /// admin-token` writes them, and users with passwords for people, as `homing admin-user`
        /// writes them. A program sends `Authorization: Bearer TOKEN`. The file is read again when
        /// it changes. Without the file only /healthz, /readyz, and on this machine /metrics, are
        /// answered over TCP.
        credentials: String = String::new(),
            ValueType::Path.or("off", "no file"),
            reload: Live,
            scope: Cluster;
        /// Names by which browsers and tools reach the interface over TCP, such as
        /// "broker.example.com", without a port. Loopback and the addresses of the interface need
        /// no entry. A request with another Host is refused, so that no foreign web page can speak
        /// to the interface under a name of its own.
        hosts: Vec<String> = Vec::new(),
            ValueType::HostNames.only(),
            reload: Live;
        /// The networks of trusted proxies in front of the interface. The last address in
        /// X-Forwarded-For outside these networks counts as the caller's, for failed logins and for
        /// the audit log. Without this key all people behind a proxy count as one address.
        trusted_proxies: Vec<String> = Vec::new(),
            ValueType::Networks.only(),
            reload: Live;
        /// The callers who may see the payloads of dead letters, of retained, unacknowledged and
        /// queued messages, and of traces. "operator": callers with the scope operator or admin.
        /// The audit log notes each view, and each trace with payloads when it begins. "never":
        /// nobody.
        payloads: PayloadViews = PayloadViews::Operator,
            ValueType::OneOf(PayloadViews::NAMES).only(),
            reload: Live,
            why: "A dead letter or a stuck message is often understood by its content alone.";
        /// True if an address beyond loopback may be plain HTTP. Without it, and without
        /// `admin.certificate`, the broker does not start with such an address, because tokens and
        /// figures would cross the network unencrypted. Set it where a proxy or a private network
        /// protects the port.
        allow_plain_http: bool = false,
            ValueType::Boolean.only();
    }
}

impl Admin {
    /// Returns the path of the file of credentials; `None` without one.
    pub fn credentials_path(&self) -> Option<PathBuf> {
        path_of(&self.credentials)
    }

    /// Returns the paths of the certificate and of its key; `None` without HTTPS.
    pub fn certificate_paths(&self) -> Option<(PathBuf, PathBuf)> {
        path_of(&self.certificate).zip(path_of(&self.key))
    }

    /// Returns the path of the Unix socket; `None` for none. `runtime` is systemd's
    /// RUNTIME_DIRECTORY, and `data` the data directory.
    pub fn socket_path(&self, runtime: Option<&OsStr>, data: Option<&Path>) -> Option<PathBuf> {
        let in_directory = || first_directory(runtime).or(data).map(|directory| directory.join(SOCKET));
        path_of(&self.socket).or_else(in_directory)
    }

    /// Returns the path of the Unix socket at which a command asks a running broker; `None` for
    /// none. `exists` says if a directory exists.
    ///
    /// The shell of an operator has none of systemd's variables. So a command finds the packaged
    /// service if neither the key nor a data directory leads to another broker.
    pub fn socket_to_ask(
        &self,
        runtime: Option<&OsStr>,
        data: Option<&Path>,
        exists: impl Fn(&Path) -> bool,
    ) -> Option<PathBuf> {
        let own = self.socket_path(runtime, data);
        let leads_nowhere = own.as_deref().and_then(Path::parent).is_none_or(|directory| !exists(directory));
        let of_service = Path::new(SERVICE_DIRECTORY);
        match path_of(&self.socket).is_none() && leads_nowhere && exists(of_service) {
            true => Some(of_service.join(SOCKET)),
            false => own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_finds_the_packaged_service_unless_something_leads_to_another_broker() {
        let asked = |socket: &str, runtime: Option<&str>, data: Option<&str>, present: &[&str]| {
            let admin = Admin { socket: socket.to_owned(), ..Admin::default() };
            let exists = |directory: &Path| present.iter().any(|name| directory == Path::new(name));
            admin.socket_to_ask(runtime.map(OsStr::new), data.map(Path::new), exists)
        };
        let service = Some(PathBuf::from("/run/homing/homing.sock"));
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(asked("", None, Some("homing-data"), &["/run/homing"]), service);
        assert_eq!(asked("", None, None, &["/run/homing"]), service);
        let both = ["homing-data", "/run/homing"];
        assert_eq!(asked("", None, Some("homing-data"), &both), path("homing-data/homing.sock"));
        assert_eq!(asked("", None, Some("homing-data"), &[]), path("homing-data/homing.sock"));
        assert_eq!(asked("/tmp/s", None, Some("homing-data"), &["/run/homing"]), path("/tmp/s"));
        assert_eq!(asked("", Some("/run/other"), None, &["/run/other"]), path("/run/other/homing.sock"));
        assert_eq!(asked("", None, None, &[]), None);
    }
}
