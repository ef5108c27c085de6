//! The keys of `[admin]`, and the socket that follows from them.

use super::paths::{first_directory, path_of};
use crate::config::rule::ValueType;
use crate::config::table::section;
use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// A 1 before the port of MQTT.
const ADMIN_PORT: u16 = 11_883;

section! {
    /// The HTTP interface for operators and their tools: /healthz and /readyz for probes, /metrics
    /// for Prometheus.
    [admin] Admin {
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
        /// The file of tokens, as `homing admin-token` writes it. A request has a token as
        /// `Authorization: Bearer TOKEN`. Without the file only /healthz, /readyz, and on this
        /// machine /metrics, are answered over TCP.
        tokens_file: String = String::new(),
            ValueType::Path.or("off", "no file");
        /// Names by which browsers and tools reach the interface over TCP, such as
        /// "broker.example.com", without a port. Loopback and the addresses of the interface need
        /// no entry. A request with another Host is refused, so that no foreign web page can speak
        /// to the interface under a name of its own.
        hosts: Vec<String> = Vec::new(),
            ValueType::HostNames.only();
        /// True if an address beyond loopback may be plain HTTP. Without it the broker does not
        /// start with such an address, because tokens and figures would cross the network
        /// unencrypted. Set it where a proxy or a private network protects the port.
        allow_plain_http: bool = false,
            ValueType::Boolean.only();
    }
}

impl Admin {
    /// Returns the path of the file of tokens; `None` without one.
    pub fn tokens_path(&self) -> Option<PathBuf> {
        path_of(&self.tokens_file)
    }

    /// Returns the path of the Unix socket; `None` for none. `runtime` is systemd's
    /// RUNTIME_DIRECTORY, and `data` the data directory.
    pub fn socket_path(&self, runtime: Option<&OsStr>, data: Option<&Path>) -> Option<PathBuf> {
        let in_directory =
            || first_directory(runtime).or(data).map(|directory| directory.join("homing.sock"));
        path_of(&self.socket).or_else(in_directory)
    }
}
