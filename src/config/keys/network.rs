//! The keys of `[network]`.

use crate::config::rule::{ValueType, days, millis, seconds};
use crate::config::table::section;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// IANA's port for MQTT over plain TCP.
const MQTT_PORT: u16 = 1883;

section! {
    /// The listeners, and the time that a connection may make no progress.
    [network] Network {
        /// Addresses to listen on, each IP:PORT, IPv6 as `[::1]:1883`. Port 0 takes a free port. In
        /// the environment and in flags, separate the addresses by commas. `--listen ADDR:PORT`
        /// sets this key, too. A reload opens and closes listeners as for `[[listeners]]`.
        listen: Vec<SocketAddr> = vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), MQTT_PORT)],
            ValueType::Addresses.only(),
            reload: Live,
            scope: Node,
            why: "Nothing is encrypted by default, so the default is this machine alone.",
            elsewhere: "mosquitto `listener`, EMQX `listeners.tcp.default.bind`, FlashMQ `listen`";
        /// A file that holds the addresses while the broker runs, one on a line. Scripts read it
        /// where a port is 0. `homing health` asks the first address in it.
        addresses_file: String = String::new(),
            ValueType::Path.or("off", "no file"),
            scope: Node,
            why: "A broker with fixed ports does not need it.";
        /// Connections that the kernel holds for each listener until the broker accepts them. The
        /// kernel caps the number at net.core.somaxconn and does not answer further connections;
        /// their clients try again.
        backlog: u32 = 4096,
            ValueType::Integer(1, 65_535).only(),
            reload: Live,
            why: "A whole fleet may reconnect at once.",
            elsewhere: "EMQX `listeners.tcp.default.tcp_options.backlog`";
        /// Time from the connection to the end of the CONNECT packet. A connection whose CONNECT
        /// packet is not complete by then is closed.
        connect_timeout: Duration = Duration::from_secs(10),
            ValueType::Duration(millis(100), seconds(3600)).only(),
            reload: Live,
            why: "A slow mobile link needs no more, and a silent connection costs little.",
            standard: "A server should close a connection that sends no CONNECT within a reasonable time \
                       (5.0 section 3.1.4; 3.1.1 section 3.1.4).",
            elsewhere: "EMQX `mqtt.idle_timeout`";
        /// Time without progress on a connection. A connection that takes no bytes for this long
        /// while some wait for it is closed. So is one that has begun a packet and sends no byte of
        /// the rest for this long.
        write_timeout: Duration = Duration::from_secs(30),
            ValueType::Duration(millis(100), days(1)).only(),
            reload: Live,
            why: "It is above a usual retransmission pause of TCP.",
            elsewhere: "EMQX `listeners.tcp.default.tcp_options.send_timeout`, NATS `write_deadline`";
    }
}
