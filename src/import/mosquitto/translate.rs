//! The meaning of a mosquitto.conf in Homing's settings.
//!
//! Options stand behind the `listener` that they are for, or before the first one for the default
//! listener. With `per_listener_settings true` this holds for users and permissions, too.

use super::conf::ConfLine;
use super::options::{Fate, fate};
use super::value::{RefusedValue, boolean, bounded, bytes, expiration, number, quoted, quoted_seconds, text};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// mosquitto's sessions never expire unless told. This is the longest that Homing takes.
const FOREVER: &str = "49710d";
const MQTT_PORT: u16 = 1883;

/// The settings for Homing. `None` and empty are left to Homing's defaults.
#[derive(Debug, Default, PartialEq)]
pub struct TranslatedSettings {
    /// Listeners with addresses of their own.
    pub listeners: Vec<ListenerSettings>,
    /// Keys of the form `section.key`, with values in TOML, in the order of the output.
    pub keys: Vec<(&'static str, String)>,
}

/// A listener of Homing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListenerSettings {
    /// The address, as Homing's file has it.
    pub address: String,
    /// True for MQTT over WebSocket.
    pub is_websocket: bool,
    /// The origins of web pages that may connect; any if empty.
    pub origins: Vec<String>,
    /// The version of the PROXY protocol.
    pub proxy: Option<&'static str>,
    /// True if the proxy must have used TLS.
    pub proxy_tls: bool,
    /// True if every address counts as a proxy, as in mosquitto.
    pub trusts_all_proxies: bool,
    /// The largest number of connections.
    pub connections: Option<u32>,
    /// The certificate of the broker.
    pub certificate: Option<String>,
    /// The key of the certificate.
    pub key: Option<String>,
    /// The authorities of client certificates.
    pub client_ca: Option<String>,
    /// True if clients must have a certificate.
    pub needs_certificate: bool,
    /// The list of revoked certificates.
    pub crl: Option<String>,
    /// The lowest version of TLS.
    pub minimum: Option<&'static str>,
    /// The part of the certificate that is the user name.
    pub certificate_user: Option<&'static str>,
    /// False if the dates of client certificates do not count.
    pub ignores_dates: bool,
}

/// A line for standard error.
#[derive(Debug, PartialEq, Eq)]
pub struct Note {
    place: Option<String>,
    text: String,
    /// True if something that protects or delivers would be lost.
    pub is_loss: bool,
}

/// A translated configuration.
#[derive(Debug, Default)]
pub struct Translation {
    /// The settings.
    pub settings: TranslatedSettings,
    /// The options that do not mean the same.
    pub notes: Vec<Note>,
}

/// Who may enter by a listener.
#[derive(Clone, Debug, Default, PartialEq)]
struct EntranceSettings {
    anonymous: Option<bool>,
    password_file: Option<String>,
    acl_file: Option<String>,
}

/// One `listener` with its options, as mosquitto has them.
#[derive(Debug, Default)]
struct Listener {
    /// The place of its line; `None` for the default listener.
    place: Option<String>,
    port: Option<u16>,
    host: Option<String>,
    /// The path of a Unix socket.
    path: Option<String>,
    is_ipv6: bool,
    settings: ListenerSettings,
    ca_file: Option<String>,
    /// True if an option of the default listener was given.
    is_used: bool,
    entrance: EntranceSettings,
}

#[derive(Debug, Default)]
struct Translator {
    is_per_listener: bool,
    entrance: EntranceSettings,
    default: Listener,
    listeners: Vec<Listener>,
    keys: Vec<(&'static str, String)>,
    persistence: bool,
    location: Option<String>,
    has_expiry: bool,
    has_packet_size: bool,
    /// The most verbose `log_type`.
    level: Option<&'static str>,
    notes: Vec<Note>,
}

/// Translates the lines of a configuration.
pub fn translate(lines: &[ConfLine]) -> Translation {
    let is_per_listener =
        lines.iter().any(|line| line.name == "per_listener_settings" && line.value == "true");
    let mut translator = Translator { is_per_listener, ..Translator::default() };
    for line in lines {
        translator.line(line);
    }
    translator.finish()
}

impl Translator {
    fn line(&mut self, line: &ConfLine) {
        let place = format!("{}:{}: {}", line.file.display(), line.number, line.name);
        let (text, is_loss) = match fate(&line.name) {
            None => ("mosquitto has no such option".to_owned(), true),
            Some(Fate::Needless) => return,
            Some(Fate::Differs(text)) => (text.to_owned(), false),
            Some(Fate::Lost(text)) => (text.to_owned(), true),
            Some(Fate::Translated) => match self.option(line) {
                Ok(()) => return,
                Err(text) => (text, true),
            },
        };
        self.notes.push(Note { place: Some(place), text, is_loss });
    }

    fn differs(&mut self, line: &ConfLine, text: &str) {
        let place = format!("{}:{}: {}", line.file.display(), line.number, line.name);
        self.notes.push(Note { place: Some(place), text: text.to_owned(), is_loss: false });
    }

    fn option(&mut self, line: &ConfLine) -> Result<(), RefusedValue> {
        match line.name.as_str() {
            "listener" => self.listener(line),
            "allow_anonymous" | "listener_allow_anonymous" | "password_file" | "acl_file" => {
                self.entrance(line)
            }
            _ => self.of_broker(line),
        }
    }

    fn listener(&mut self, line: &ConfLine) -> Result<(), RefusedValue> {
        let (port, host) = line.value.split_once(' ').unwrap_or((&line.value, ""));
        let port: u16 = number(port)?;
        let host = host.trim();
        let place = Some(format!("{}:{}: listener", line.file.display(), line.number));
        let listener = match (port, host) {
            (0, path) if path.starts_with('/') => {
                Listener { path: Some(path.to_owned()), ..Listener::default() }
            }
            (0, _) => return Err("port 0 needs the path of a Unix socket".to_owned()),
            (_, "") => Listener { port: Some(port), ..Listener::default() },
            (_, host) => Listener { port: Some(port), host: Some(host.to_owned()), ..Listener::default() },
        };
        self.listeners.push(Listener { place, ..listener });
        Ok(())
    }

    fn entrance(&mut self, line: &ConfLine) -> Result<(), RefusedValue> {
        let of_listener = self.is_per_listener || line.name == "listener_allow_anonymous";
        let entrance = match self.listeners.last_mut() {
            _ if !of_listener => &mut self.entrance,
            Some(listener) => &mut listener.entrance,
            None => {
                self.default.is_used = true;
                &mut self.default.entrance
            }
        };
        match line.name.as_str() {
            "password_file" => entrance.password_file = Some(text(line)?),
            "acl_file" => entrance.acl_file = Some(text(line)?),
            _ => entrance.anonymous = Some(boolean(line)?),
        }
        Ok(())
    }

    fn of_listener(&mut self, line: &ConfLine) -> Result<(), RefusedValue> {
        let listener = match self.listeners.last_mut() {
            Some(listener) => listener,
            None => {
                self.default.is_used = true;
                &mut self.default
            }
        };
        let settings = &mut listener.settings;
        match line.name.as_str() {
            "port" => self.default.port = Some(number(&line.value)?),
            "bind_address" => self.default.host = Some(text(line)?),
            "socket_domain" => listener.is_ipv6 = line.value == "ipv6",
            "max_connections" if line.value == "-1" => settings.connections = None,
            "max_connections" => settings.connections = Some(number(&line.value)?),
            "protocol" => match line.value.as_str() {
                "mqtt" => {}
                "websockets" => settings.is_websocket = true,
                _ => return Err("must be mqtt or websockets".to_owned()),
            },
            "websockets_origin" => settings.origins.push(text(line)?),
            "enable_proxy_protocol" => match line.value.as_str() {
                "1" => settings.proxy = Some("v1"),
                "2" => settings.proxy = Some("v2"),
                _ => return Err("must be 1 or 2".to_owned()),
            },
            "proxy_protocol_v2_require_tls" => settings.proxy_tls = boolean(line)?,
            "cafile" => listener.ca_file = Some(text(line)?),
            "certfile" => settings.certificate = Some(text(line)?),
            "keyfile" => settings.key = Some(text(line)?),
            "crlfile" => settings.crl = Some(text(line)?),
            "require_certificate" => settings.needs_certificate = boolean(line)?,
            "use_identity_as_username" => settings.certificate_user = boolean(line)?.then_some("cn"),
            "use_subject_as_username" => settings.certificate_user = boolean(line)?.then_some("subject"),
            "disable_client_cert_date_checks" => settings.ignores_dates = boolean(line)?,
            "tls_version" => match line.value.as_str() {
                "tlsv1.3" => settings.minimum = Some("1.3"),
                "tlsv1.2" => settings.minimum = Some("1.2"),
                _ => {
                    self.differs(line, "Homing offers TLS 1.2 and 1.3 only, so older clients cannot connect")
                }
            },
            _ => return Err("is not translated".to_owned()),
        }
        Ok(())
    }

    fn of_broker(&mut self, line: &ConfLine) -> Result<(), RefusedValue> {
        match line.name.as_str() {
            "max_inflight_messages" => {
                let messages = bounded(&line.value, 65_535)?;
                self.keys.push(("limits.in_flight", messages.to_string()));
            }
            "max_queued_messages" => {
                let messages = bounded(&line.value, 1_000_000_000)?.to_string();
                self.keys.push(("limits.queue_messages", messages.clone()));
                self.keys.push(("store.queue_messages", messages));
            }
            "max_queued_bytes" => {
                let bytes = bytes(line)?;
                self.keys.extend(bytes.clone().map(|bytes| ("limits.queue_bytes", bytes)));
                self.keys.extend(bytes.map(|bytes| ("store.queue_bytes", bytes)));
            }
            "max_packet_size" | "message_size_limit" => {
                self.keys.extend(bytes(line)?.map(|bytes| ("limits.packet_size", bytes)));
                self.has_packet_size = true;
            }
            "memory_limit" => self.keys.extend(bytes(line)?.map(|bytes| ("limits.memory", bytes))),
            "max_keepalive" if line.value == "0" => {}
            "max_keepalive" => {
                self.keys.push(("keep_alive.maximum", quoted_seconds(number(&line.value)?)));
                self.keys.push(("keep_alive.allow_never", "false".to_owned()));
            }
            "max_topic_alias" => {
                self.keys.push(("limits.topic_alias_maximum", number::<u16>(&line.value)?.to_string()));
            }
            "global_max_connections" | "global_max_clients" if line.value == "-1" => {}
            "global_max_connections" => {
                self.keys.push(("limits.connections", number::<u32>(&line.value)?.to_string()));
            }
            "global_max_clients" => {
                self.keys.push(("limits.sessions", number::<u32>(&line.value)?.to_string()));
            }
            "persistent_client_expiration" => {
                self.keys.push(("limits.session_expiry", expiration(&line.value)?));
                self.has_expiry = true;
            }
            "retry_interval" => self.keys.push(("redelivery.interval", quoted_seconds(number(&line.value)?))),
            "sys_interval" if line.value == "0" => self.keys.push(("sys.publish_interval", quoted("off"))),
            "sys_interval" => self.keys.push(("sys.publish_interval", quoted_seconds(number(&line.value)?))),
            "persistence" => self.persistence = boolean(line)?,
            "persistence_location" => self.location = Some(text(line)?),
            "log_type" => self.log_type(&line.value),
            "log_dest" if line.value == "stderr" => {}
            "log_dest" => self
                .differs(line, "Homing logs to standard error; let systemd or the shell write it elsewhere"),
            // It was read before all other lines.
            "per_listener_settings" => {}
            _ => return self.of_listener(line),
        }
        Ok(())
    }

    fn log_type(&mut self, value: &str) {
        const LEVELS: [&str; 5] = ["off", "error", "warn", "info", "debug"];
        let level = match value {
            "all" | "debug" | "subscribe" | "unsubscribe" => "debug",
            "information" | "notice" => "info",
            "warning" => "warn",
            "error" => "error",
            _ => "off",
        };
        let place = |level: &str| LEVELS.iter().position(|known| *known == level);
        if place(level) >= self.level.and_then(place) {
            self.level = Some(level);
        }
    }

    fn loss(&mut self, place: Option<String>, text: &str) {
        self.notes.push(Note { place, text: text.to_owned(), is_loss: true });
    }

    fn finish(mut self) -> Translation {
        let has_listeners = !self.listeners.is_empty();
        let is_local_only = !has_listeners && self.default.port.is_none() && self.default.host.is_none();
        let mut listeners = std::mem::take(&mut self.listeners);
        let default = std::mem::take(&mut self.default);
        if default.port.is_some() || default.host.is_some() || (is_local_only && default.is_used) {
            listeners.insert(0, default);
        } else if default.is_used {
            self.loss(None, "options of a listener stand before the first `listener`; move them behind the listener that they are for");
        }
        self.entrances(&listeners, is_local_only);
        self.broker_defaults();
        let mut translated: Vec<ListenerSettings> = Vec::new();
        for listener in listeners {
            translated.extend(self.translated(listener, is_local_only));
        }
        let settings = TranslatedSettings { listeners: translated, keys: self.keys };
        Translation { settings, notes: self.notes }
    }

    /// Homing has one rule for all listeners.
    fn entrances(&mut self, listeners: &[Listener], is_local_only: bool) {
        let mut entrance = self.entrance.clone();
        if self.is_per_listener {
            let mut each = listeners.iter().map(|listener| &listener.entrance);
            entrance = each.next().cloned().unwrap_or_default();
            if each.any(|other| *other != entrance) {
                self.loss(None, "per_listener_settings: Homing has the same users and permissions on all listeners; make them equal, or run one broker for each");
            }
        } else if listeners.iter().any(|listener| listener.entrance.anonymous.is_some()) {
            self.loss(
                None,
                "listener_allow_anonymous: Homing has the same rule on all listeners; use allow_anonymous",
            );
        }
        match entrance.anonymous {
            Some(true) => self.keys.push(("auth.anonymous", quoted("always"))),
            Some(false) => self.keys.push(("auth.anonymous", quoted("never"))),
            // mosquitto 2 lets anonymous clients in only where it listens on loopback by default.
            None if is_local_only => {}
            None => self.keys.push(("auth.anonymous", quoted("never"))),
        }
        let by_certificate =
            listeners.iter().filter(|listener| listener.settings.certificate_user.is_some()).count();
        let has_others = listeners.iter().any(|listener| {
            listener.settings.needs_certificate && listener.settings.certificate_user.is_none()
        });
        if by_certificate > 0 && has_others {
            self.loss(None, "use_identity_as_username: some listeners take the user from the certificate, and others need one but do not; Homing has one rule for all");
        }
        let methods: &[&str] = match (by_certificate > 0, entrance.password_file.is_some()) {
            (true, true) => &["certificate", "password"],
            (true, false) => &["certificate"],
            (false, true) => &["password"],
            (false, false) => &[],
        };
        if !methods.is_empty() {
            let methods: Vec<String> = methods.iter().map(|method| quoted(method)).collect();
            self.keys.push(("auth.methods", format!("[{}]", methods.join(", "))));
        }
        if let Some(file) = entrance.password_file {
            self.keys.push(("auth.password_file", quoted(&file)));
        }
        if let Some(file) = entrance.acl_file {
            self.keys.push(("acl.file", quoted(&file)));
            // mosquitto grants every filter, and delivers what the client may read.
            self.keys.push(("acl.on_denied_subscribe", quoted("filter")));
        }
    }

    fn broker_defaults(&mut self) {
        match (self.persistence, self.location.take()) {
            (true, Some(location)) => {
                // mosquitto's directory has files of mosquitto's.
                let directory = format!("{}/homing", location.trim_end_matches('/'));
                self.keys.push(("store.path", quoted(&directory)));
            }
            (true, None) => {}
            (false, _) => self.keys.push(("store.durability", quoted("none"))),
        }
        if self.persistence {
            let text = "persistence: the sessions and retained messages of mosquitto.db are not carried over";
            self.notes.push(Note { place: None, text: text.to_owned(), is_loss: false });
        }
        if !self.has_expiry {
            self.keys.push(("limits.session_expiry", quoted(FOREVER)));
        }
        if !self.has_packet_size {
            let text = "max_packet_size is not set: mosquitto has no limit, Homing refuses packets above limits.packet_size, 2 MiB";
            self.notes.push(Note { place: None, text: text.to_owned(), is_loss: false });
        }
        if let Some(level) = self.level {
            self.keys.push(("log.level", quoted(level)));
        }
    }

    /// Returns the address of a listener for Homing, and true if only this machine can reach it.
    fn address(&mut self, listener: &Listener, is_local_only: bool) -> Option<(String, bool)> {
        if let Some(path) = &listener.path {
            return Some((format!("unix:{path}"), true));
        }
        let place = listener.place.clone();
        let address = match listener.host.as_deref() {
            None if is_local_only => IpAddr::V4(Ipv4Addr::LOCALHOST),
            None if listener.is_ipv6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            None => {
                let text = "mosquitto also listens on IPv6; for that, repeat the listener in Homing's file with [::]";
                self.notes.push(Note { place, text: text.to_owned(), is_loss: false });
                IpAddr::V4(Ipv4Addr::UNSPECIFIED)
            }
            Some("localhost") => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Some(host) => match host.parse() {
                Ok(address) => address,
                Err(_) => {
                    self.loss(
                        place,
                        &format!("{host} is not an IP address; Homing listens on addresses only"),
                    );
                    return None;
                }
            },
        };
        let socket = SocketAddr::new(address, listener.port.unwrap_or(MQTT_PORT));
        Some((socket.to_string(), address.is_loopback()))
    }

    fn translated(&mut self, listener: Listener, is_local_only: bool) -> Option<ListenerSettings> {
        let (address, is_local) = self.address(&listener, is_local_only)?;
        let Listener { place, mut settings, ca_file, .. } = listener;
        settings.address = address;
        if settings.proxy.is_some() && !is_local {
            let text =
                "mosquitto believes the PROXY header of every address; put your proxies into trusted_proxies";
            self.notes.push(Note { place: place.clone(), text: text.to_owned(), is_loss: false });
            settings.trusts_all_proxies = true;
        }
        match (&settings.certificate, &settings.key) {
            (Some(_), Some(_)) => {}
            (None, None) if ca_file.is_none() && !settings.needs_certificate => {}
            _ => self.loss(place.clone(), "TLS needs both certfile and keyfile"),
        }
        if settings.needs_certificate {
            if ca_file.is_none() {
                self.loss(place.clone(), "require_certificate needs a cafile");
            }
            settings.client_ca = ca_file;
        } else if settings.certificate_user.is_some() {
            self.loss(place, "use_identity_as_username needs require_certificate true");
        } else {
            // mosquitto asks for no certificate then, so neither file has an effect.
            settings.crl = None;
        }
        Some(settings)
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_loss { "LOST" } else { "differs" };
        match &self.place {
            Some(place) => write!(f, "{kind}: {place}: {}", self.text),
            None => write!(f, "{kind}: {}", self.text),
        }
    }
}
